//! Units that give up while their processes live: whoever waits is told at once, and by name.

mod units;

use polyduct_message::domain::pending::CallError;
use polyduct_message::domain::Domain;
use polyduct_message::{MessageError, Priority};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use units::{at, until_asleep, Place, HOSTS};

/// By when those who sleep are to know. They look by themselves every 100 ms.
const AT_ONCE: Duration = Duration::from_millis(50);

/// What units 0 and 1 wait for when unit 2 gives up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    Barrier,
    /// For a message of the one that gives up, and of one that does not.
    Recv,
    Call,
    /// For room.
    Bulk,
    Serve,
}

const WAITS: [Wait; 5] = [Wait::Barrier, Wait::Recv, Wait::Call, Wait::Bulk, Wait::Serve];

impl Wait {
    fn wait(self, d: &Domain) -> MessageError {
        let error = match self {
            Wait::Barrier => d.barrier().err(),
            Wait::Recv => d.recv(Some(if d.unit() == 0 { 2 } else { 0 }), None).err(),
            Wait::Call => d.call(2, "nothing", b"", None).unwrap().wait().err(),
            Wait::Bulk => {
                let nothing = d.lookup("take", 2).unwrap();
                let mut channel = d.channel(2, Priority::Low).unwrap();
                std::iter::repeat_with(|| channel.bulk(nothing, [0; 4], &[3; 1000])).find_map(Result::err)
            }
            Wait::Serve => d.serve_until(None, || false).err(),
        };
        error.expect("unit 2 is gone")
    }
}

/// Unit 2 gives up while the others wait so. Returns how long each of them took to know.
fn give_up(place: Place, wait: Wait) -> Vec<Duration> {
    let (waiting, when) = (Mutex::new(Vec::new()), Mutex::new(None));
    let ready = Barrier::new(3);
    let run = |d: Domain| {
        d.function("nothing", 1, |_, _| Ok(Vec::new())).unwrap();
        d.handler("take", 1, |_, _| ()).unwrap();
        d.synchronise().unwrap();
        if d.unit() == 2 {
            ready.wait();
            waiting.lock().unwrap().iter().for_each(|&thread| until_asleep(thread));
            *when.lock().unwrap() = Some(Instant::now());
            d.give_up();
            return None;
        }
        waiting.lock().unwrap().push(rustix::thread::gettid().as_raw_nonzero().get());
        ready.wait();
        let error = wait.wait(&d);
        let told = Instant::now();
        match (wait, &error) {
            (Wait::Call, MessageError::Call(CallError::PeerGone { unit: 2, .. })) => {}
            (_, MessageError::PeerLost { unit: 2, reason }) if reason.contains("gave up") => {}
            _ => panic!("{place:?}, {wait:?}: unit {} is told {error:?}", d.unit()),
        }
        Some(told - when.lock().unwrap().unwrap())
    };
    at(place, 3, &run).into_iter().flatten().collect()
}

#[test]
fn whoever_waits_on_one_host_is_told_at_once() {
    let rounds = || WAITS.iter().flat_map(|&wait| (0..3).flat_map(move |_| give_up(Place::Here, wait)));
    let took: Vec<Duration> = rounds().collect();
    // Others use this machine, too: a few may have had to wait for a processor.
    let late = took.iter().filter(|&&t| t > AT_ONCE).count();
    assert!(took.len() == 30 && late <= 5, "{late} of {took:?}");
}

#[test]
fn a_thread_that_panics_gives_up() {
    let run = |d: Domain| {
        if d.unit() == 1 {
            let panic = std::thread::spawn(move || {
                let _d = d;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            assert!(panic.join().is_err());
            return;
        }
        match d.recv(Some(1), None) {
            Err(MessageError::PeerLost { unit: 1, reason }) if reason.contains("gave up") => {}
            other => panic!("unit {} is told {other:?}", d.unit()),
        }
    };
    for place in [Place::Here].into_iter().chain(HOSTS) {
        at(place, 3, &run);
    }
}

#[test]
fn whoever_waits_across_hosts_is_told() {
    for place in HOSTS {
        WAITS.iter().for_each(|&wait| assert_eq!(give_up(place, wait).len(), 2));
    }
}
