//! Messages for a unit that does not take them: their number is limited, and their sender keeps the rest.

mod units;

use polyduct_message::domain::Options;
use polyduct_message::MessageError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use units::{at_with, sizes, Place, HOSTS};

/// Bytes of messages that wait to be taken, the least that can be set.
const INBOX: u64 = 64 << 10;
/// What a message counts beside its payload.
const OVERHEAD: u64 = 64;
/// Across hosts so many without payload have come over the link, at most, when the inbox is found full: they
/// need no buffer.
const ON_THE_WAY: u64 = 2 * 4096;
/// How long the sender waits for room.
const PATIENCE: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(20);

fn small_inbox(options: &mut Options) {
    options.config = sizes(&[("inbox", INBOX)]);
    options.timeout = Some(if options.unit == 1 { PATIENCE } else { LONG });
}

/// Tries again as long as it is the time that is over.
fn until_done(mut attempt: impl FnMut() -> Result<(), MessageError>) {
    let end = polyduct_os::clock::now() + LONG;
    while let Err(error) = attempt() {
        let late = polyduct_os::clock::now() > end;
        assert!(!late && matches!(error, MessageError::Timeout { .. }), "{error}");
    }
}

/// Unit 1 sends messages of this length until it is told that there is no room; unit 0 looks, and takes them
/// afterwards.
fn fill(place: Place, len: usize) {
    let sent = AtomicU64::new(0);
    at_with(place, 2, &small_inbox, &|d| {
        d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
        d.synchronise().unwrap();
        if d.unit() == 1 {
            let payload = |n: u32| vec![n as u8; len];
            let full = (0..).find_map(|n| d.send(0, n, [n, 0], &payload(n)).err().map(|error| (n, error)));
            let Some((count, MessageError::Timeout { .. })) = full else {
                panic!("{place:?}, {len} bytes: {full:?}")
            };
            // Nothing of high priority is held up by it.
            let call = d.call(0, "echo", b"still there", Some(LONG)).unwrap();
            let late = polyduct_os::clock::now() + LONG;
            assert_eq!(call.wait_until(Some(late)).unwrap().payload, b"still there");
            sent.store(u64::from(count), Ordering::SeqCst);
            // Room comes, now or when the first are taken.
            until_done(|| d.send(0, count, [count, 0], &payload(count)));
            // A barrier that was begun goes on.
            until_done(|| d.barrier());
            return;
        }
        d.serve_until(None, || sent.load(Ordering::SeqCst) > 0).unwrap();
        let (mails, count) = (d.status().mails, sent.load(Ordering::SeqCst));
        let fit = INBOX / (len as u64 + OVERHEAD);
        let more = if place == Place::Here || len > 0 { 0 } else { ON_THE_WAY };
        assert!(mails <= fit + more, "{place:?}, {len} bytes: {mails} wait where {fit} fit");
        for n in 0..=count as u32 {
            let mail = d.recv(Some(1), None).unwrap();
            assert_eq!((mail.tag, mail.words), (n, [n, 0]));
            assert!(mail.payload == vec![n as u8; len], "wrong bytes");
        }
        assert_eq!(d.status().mails, 0);
        d.barrier().unwrap();
    });
}

#[test]
fn small_messages_beyond_the_limit_are_kept_by_their_sender() {
    for place in HOSTS.into_iter().chain([Place::Here]) {
        [0, 20, 1000].into_iter().for_each(|len| fill(place, len));
    }
}
