//! Many threads of a unit that wait at once, while units leave and others talk.

mod units;

use polyduct_message::domain::Domain;
use polyduct_message::link::net::config::Transport;
use polyduct_message::{MessageError, Priority};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use units::{at, Place};

const UNITS: u32 = 8;
/// Messages that unit 1 sends between two departures.
const BETWEEN: u64 = 3000;

/// Unit 0 waits for each of the others in a thread of its own, handles what unit 1 sends without end, and
/// looks at its status.
fn waits_for_all(d: &Domain) {
    let (over, heard) = (AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
    let (count, own) = (heard.clone(), d.clone());
    d.handler("hear", 1, move |_, _| {
        // The thread that asks for it in a handler is the one that receives.
        let _ = own.status();
        count.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    d.synchronise().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| d.serve_until(None, || over.load(Ordering::Acquire)).unwrap());
        let waiters: Vec<_> = (1..UNITS)
            .map(|unit| {
                s.spawn(move || {
                    let error = d.recv(Some(unit), None).unwrap_err();
                    assert!(matches!(error, MessageError::PeerLeft { unit: u } if u == unit), "{error}");
                })
            })
            .collect();
        while !waiters.iter().all(|w| w.is_finished()) {
            d.poll();
            let _ = d.status();
        }
        waiters.into_iter().for_each(|w| w.join().unwrap());
        over.store(true, Ordering::Release);
    });
    assert_eq!(heard.load(Ordering::Relaxed), BETWEEN * u64::from(UNITS - 1));
}

/// Unit 1 tells the others one after the other to leave, and is the last.
fn sends_without_end(d: &Domain) {
    d.handler("hear", 1, |_, _| ()).unwrap();
    d.synchronise().unwrap();
    let hear = d.lookup("hear", 0).unwrap();
    let mut channel = d.channel(0, Priority::Low).unwrap();
    for next in 2..=UNITS {
        for _ in 0..BETWEEN {
            channel.bulk(hear, [0; 4], &[1; 100]).unwrap();
        }
        if next < UNITS {
            d.send(next, 0, [0; 2], &[]).unwrap();
        }
    }
    channel.flush().unwrap();
}

fn play(place: Place) {
    let run = |d: Domain| match d.unit() {
        0 => waits_for_all(&d),
        1 => sends_without_end(&d),
        _ => {
            d.handler("hear", 1, |_, _| ()).unwrap();
            d.synchronise().unwrap();
            d.recv(Some(1), Some(0)).unwrap();
            d.leave().unwrap();
        }
    };
    at(place, UNITS, &run);
}

#[test]
fn threads_that_wait_for_units_that_leave_are_all_told() {
    for _ in 0..5 {
        play(Place::Here);
    }
}

#[test]
fn so_are_they_across_hosts() {
    play(Place::Hosts(Transport::Tcp, true));
}

#[test]
fn threads_of_a_unit_come_to_barriers_one_after_the_other() {
    let passed = AtomicU64::new(0);
    at(Place::Here, 2, &|d: Domain| {
        d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
        d.synchronise().unwrap();
        for turn in 0..200 {
            if d.unit() == 0 {
                std::thread::scope(|s| {
                    for _ in 0..2 {
                        s.spawn(|| {
                            d.barrier().unwrap();
                            passed.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                });
            } else {
                d.barrier().unwrap();
                // The answer is given by the one of the two that still waits.
                d.call(0, "echo", b"", None).unwrap().wait().unwrap();
                let passed = passed.load(Ordering::SeqCst);
                assert!(passed <= 2 * turn + 1, "two have passed one barrier: {passed} in turn {turn}");
                d.barrier().unwrap();
            }
        }
    });
}

#[test]
fn what_a_thread_waits_for_may_wake_the_others() {
    at(Place::Here, 2, &|d: Domain| {
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let mut asked = 0;
                    let done = || {
                        asked += 1;
                        if asked < 1000 {
                            d.wake();
                        }
                        over.load(Ordering::Acquire)
                    };
                    d.serve_until(None, done).unwrap();
                });
            }
            d.barrier().unwrap();
            over.store(true, Ordering::Release);
            d.wake();
        });
    });
}
