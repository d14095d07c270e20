//! Messages that are still coming count: what a unit gives out for them stays within its limit, and all of
//! them come.

mod units;

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Options, Reach};
use polyduct_message::{MessageError, Priority};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use units::{at_with, sizes, Place, HOSTS};

/// What a unit may hold, the least that can be set.
const INBOX: u64 = 64 << 10;
/// What a message counts beside its payload.
const OVERHEAD: u64 = 64;
/// Bytes of a message that is longer than all the room.
const LARGE: usize = 300_000;
/// How long who sends waits for room.
const PATIENCE: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

fn small_inbox(options: &mut Options) {
    options.config = sizes(&[("inbox", INBOX)]);
    options.timeout = Some(LONG);
}

fn impatient_senders(options: &mut Options) {
    small_inbox(options);
    options.timeout = Some(if options.unit == 0 { LONG } else { PATIENCE });
}

/// Tries again as long as it is the time that is over.
fn until_done(mut attempt: impl FnMut() -> Result<(), MessageError>) {
    let end = polyduct_os::clock::now() + LONG;
    while let Err(error) = attempt() {
        let late = polyduct_os::clock::now() > end;
        assert!(!late && matches!(error, MessageError::Timeout { .. }), "{error}");
    }
}

fn places() -> impl Iterator<Item = Place> {
    HOSTS.into_iter().chain([Place::Here])
}

fn payload(unit: u32) -> Vec<u8> {
    (0..LARGE as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(unit) >> 11) as u8).collect()
}

/// Unit 1 sends to a unit of another host that takes nothing, until there is no room.
#[test]
fn what_a_sender_keeps_has_a_limit() {
    const LEN: usize = 10_000;
    for place in HOSTS.into_iter().filter(|place| matches!(place, Place::Hosts(..))) {
        let full = Barrier::new(2);
        let adjust = |options: &mut Options| {
            options.config = sizes(&[("inbox", INBOX), ("queue", INBOX)]);
            options.timeout = Some(if options.unit == 0 { LONG } else { PATIENCE });
        };
        at_with(place, 2, &adjust, &|d| {
            if d.unit() == 0 {
                full.wait();
                while let Ok(mail) = d.recv(Some(1), None) {
                    assert_eq!(mail.payload.len(), LEN);
                }
                return;
            }
            let sent = (0..).take_while(|&n| d.send(0, n, [0; 2], &[7; LEN]).is_ok()).count();
            let most = 2 * INBOX as usize / LEN;
            assert!((most / 2..=most).contains(&sent), "{place:?}: {sent} were taken");
            full.wait();
            d.leave().unwrap();
        });
    }
}

/// All others begin a message longer than the limit to unit 0, which takes none until all have tried.
#[test]
fn of_many_that_begin_at_once_one_gets_a_buffer_and_all_come() {
    const UNITS: u32 = 6;
    for place in places() {
        let tried = AtomicU32::new(0);
        at_with(place, UNITS, &impatient_senders, &|d| {
            let seen = Arc::new(AtomicU32::new(0));
            let count = seen.clone();
            d.handler("begun", 1, move |_, _| _ = count.fetch_add(1, Ordering::SeqCst)).unwrap();
            d.synchronise().unwrap();
            let me = d.unit();
            if me > 0 {
                let sent = d.send(0, me, [me, 0], &payload(me));
                if d.reach(0) == Ok(Reach::Far) {
                    // The link keeps it. This comes behind its first fragment.
                    let mut channel = d.channel(0, Priority::Low).unwrap();
                    until_done(|| channel.bulk(d.lookup("begun", 0)?, [0; 4], &[]));
                }
                tried.fetch_add(1, Ordering::SeqCst);
                if let Err(error) = sent {
                    assert!(matches!(error, MessageError::Timeout { .. }), "{error}");
                    until_done(|| d.send(0, me, [me, 1], &payload(me)));
                }
                until_done(|| d.barrier());
                return;
            }
            let far = (1..UNITS).filter(|&unit| d.reach(unit) == Ok(Reach::Far)).count() as u32;
            let (mut most, one) = (0, LARGE as u64 + OVERHEAD);
            d.serve_until(None, || {
                most = most.max(d.status().mail_bytes);
                tried.load(Ordering::SeqCst) == UNITS - 1 && seen.load(Ordering::SeqCst) == far
            })
            .unwrap();
            assert_eq!(most, one, "{place:?}");
            // In any order, also one other than that in which they have found room.
            for unit in (1..UNITS).rev() {
                let mail = d.recv(Some(unit), None).unwrap();
                assert_eq!((mail.from, mail.tag, mail.words[0]), (unit, unit, unit));
                assert!(mail.payload == payload(unit), "{place:?}: wrong bytes");
                let held = d.status().mail_bytes;
                assert!(held <= 2 * one, "{place:?}: {held} bytes");
            }
            d.barrier().unwrap();
            assert_eq!(d.try_recv(None, None), None, "{place:?}: twice");
            assert_eq!(d.status().mail_bytes, 0, "{place:?}");
        });
    }
}

#[test]
fn messages_to_handlers_on_many_channels_all_come_where_there_is_room_for_one() {
    const UNITS: u32 = 4;
    const CHANNELS: u64 = 4;
    const TURNS: u64 = 5;
    for place in places() {
        at_with(place, UNITS, &small_inbox, &|d| {
            let whole = Arc::new(AtomicU64::new(0));
            let count = whole.clone();
            d.handler("take", 1, move |_, m| {
                assert!(m.payload == payload(m.args[0]), "wrong bytes");
                count.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
            d.synchronise().unwrap();
            let all = u64::from(UNITS - 1) * CHANNELS * TURNS;
            if d.unit() == 0 {
                // With messages for `recv` among them, which are all taken.
                let mails = u64::from(UNITS - 1) * TURNS;
                (0..mails).for_each(|_| assert_eq!(d.recv(None, None).unwrap().payload.len(), LARGE));
                d.serve_until(None, || whole.load(Ordering::SeqCst) == all).unwrap();
                assert_eq!((d.status().other_bytes, d.status().mail_bytes), (0, 0));
                return d.barrier().unwrap();
            }
            let me = d.unit();
            std::thread::scope(|s| {
                for n in 0..CHANNELS {
                    let d = &d;
                    s.spawn(move || {
                        let priority = if n % 2 == 0 { Priority::Low } else { Priority::High };
                        let mut channel = d.channel(0, priority).unwrap();
                        let take = d.lookup("take", 0).unwrap();
                        let bytes = payload(me);
                        (0..TURNS).for_each(|_| channel.bulk(take, [me, 0, 0, 0], &bytes).unwrap());
                    });
                }
                (0..TURNS).for_each(|_| d.send(0, me, [0; 2], &payload(me)).unwrap());
            });
            d.barrier().unwrap();
        });
    }
}

/// What a handler sends for `recv`, to a unit that takes nothing, is behind no answer.
#[test]
fn who_takes_no_messages_while_it_waits_for_a_call_gets_the_answer() {
    const MAILS: u32 = 20;
    for place in places() {
        at_with(place, 2, &small_inbox, &|d: Domain| {
            let own = d.downgrade();
            d.function("flood", 1, move |c, _| {
                let d = own.upgrade().ok_or("it has left")?;
                for n in 0..MAILS {
                    d.send(c.from(), n, [n; 2], &payload(n)).map_err(|e| e.to_string())?;
                }
                Ok(payload(77))
            })
            .unwrap();
            d.synchronise().unwrap();
            if d.unit() == 0 {
                for _ in 0..2 {
                    let answer = d.call(1, "flood", &payload(5), Some(LONG)).unwrap();
                    assert!(answer.wait().unwrap() == payload(77), "{place:?}");
                }
                assert!(d.status().mail_bytes <= LARGE as u64 + OVERHEAD, "{place:?}");
                for n in (0..MAILS).chain(0..MAILS) {
                    let mail = d.recv(Some(1), None).unwrap();
                    assert!(mail.tag == n && mail.payload == payload(n), "{place:?}: {}", mail.tag);
                }
            }
            d.barrier().unwrap();
        });
    }
}

#[test]
fn what_a_unit_leaves_unfinished_makes_room_for_others() {
    let begun = AtomicU32::new(0);
    at_with(Place::Here, 3, &impatient_senders, &|d: Domain| {
        d.synchronise().unwrap();
        match d.unit() {
            0 => {
                // A part of it comes, then unit 0 looks no more until unit 1 has lost patience and left.
                d.serve_until(None, || d.status().mail_bytes > 1 << 30).unwrap();
                assert_eq!(d.status().mails, 0);
                begun.store(1, Ordering::SeqCst);
                while begun.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                // Not by `recv`, which would find room for it in any case.
                d.serve_until(None, || d.status().mails > 0).unwrap();
                let mail = d.try_recv(Some(2), None).expect("unit 1 has not sent all of it");
                assert!(mail.payload == payload(2));
                assert_eq!((d.status().mail_bytes, d.status().mails), (0, 0));
            }
            1 => {
                let error = d.send(0, 0, [0; 2], &vec![0; 1 << 30]).unwrap_err();
                assert!(matches!(error, MessageError::Timeout { .. }), "{error}");
                d.leave().unwrap();
                begun.store(2, Ordering::SeqCst);
            }
            _ => {
                while begun.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                until_done(|| d.send(0, 2, [0; 2], &payload(2)));
            }
        }
    });
}

#[test]
fn what_a_sender_gives_up_makes_room_though_it_sends_nothing_more() {
    let step = AtomicU32::new(0);
    let wait_for = |n| {
        while step.load(Ordering::SeqCst) < n {
            std::thread::yield_now();
        }
    };
    at_with(Place::Here, 2, &impatient_senders, &|d: Domain| {
        d.handler("nothing", 1, |_, _| ()).unwrap();
        d.synchronise().unwrap();
        if d.unit() == 1 {
            std::thread::scope(|s| {
                // No room is left to say that it is given up.
                s.spawn(|| {
                    let mut channel = d.channel(0, Priority::Low).unwrap();
                    let nothing = d.lookup("nothing", 0).unwrap();
                    wait_for(1);
                    let full =
                        std::iter::repeat_with(|| channel.short(nothing, [0; 4])).find_map(Result::err);
                    assert_eq!(full, Some(MessageError::Full { to: 0 }));
                });
                let error = d.send(0, 0, [0; 2], &vec![0; 1 << 30]).unwrap_err();
                assert!(matches!(error, MessageError::Timeout { .. }), "{error}");
            });
            step.store(2, Ordering::SeqCst);
            d.serve_until(None, || step.load(Ordering::SeqCst) == 3).unwrap();
        } else {
            d.serve_until(None, || d.status().mail_bytes > 1 << 30).unwrap();
            step.store(1, Ordering::SeqCst);
            wait_for(2);
            d.serve_until(None, || d.status().mail_bytes == 0).unwrap();
            assert_eq!((d.status().mail_bytes, d.status().mails), (0, 0));
            step.store(3, Ordering::SeqCst);
        }
        until_done(|| d.barrier());
    });
}

/// Units that exchange more than there is room for, while something else waits to be taken.
#[test]
fn an_exchange_finds_room_whatever_waits() {
    let small = |options: &mut Options| {
        let small = |v: &str| match v {
            "POLYDUCT_MESSAGE_INBOX" => Some(INBOX.to_string()),
            // What is sent does not end in the ring.
            "POLYDUCT_MESSAGE_RING" => Some("16KiB".to_owned()),
            _ => None,
        };
        options.config = Config::from_sources(None, small).unwrap();
        options.timeout = Some(Duration::from_secs(10));
    };
    for place in places() {
        at_with(place, 3, &small, &|d| {
            let (right, left) = ((d.unit() + 1) % 3, (d.unit() + 2) % 3);
            d.send(right, 9, [0; 2], b"later").unwrap();
            d.barrier().unwrap();
            for _ in 0..3 {
                let got = d.send_recv((right, 1), [0; 2], &payload(d.unit()), (Some(left), Some(1)));
                assert_eq!(got.unwrap().payload, payload(left), "{place:?}");
            }
            assert_eq!(d.recv(Some(left), Some(9)).unwrap().payload, b"later");
            d.barrier().unwrap();
        });
    }
}
