//! Waits without a deadline end, whatever they wait for.

mod units;

use polyduct_message::domain::Domain;
use polyduct_message::link::net::config::Transport;
use polyduct_message::{MessageError, Priority};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{mpsc, Arc, Barrier};
use units::{at, until_asleep, Place};

const PLACES: [Place; 2] = [Place::Here, Place::Hosts(Transport::Tcp, false)];

#[test]
fn a_flush_of_a_channel_that_sent_nothing_ends_at_once() {
    for place in PLACES {
        at(place, 2, &|d: Domain| {
            d.synchronise().unwrap();
            for priority in [Priority::Low, Priority::High] {
                let mut channel = d.channel(1 - d.unit(), priority).unwrap();
                channel.flush().unwrap();
            }
            d.barrier().unwrap();
        });
    }
}

#[test]
fn the_number_of_a_channel_that_is_gone_can_be_used_again() {
    for place in PLACES {
        at(place, 2, &|d: Domain| {
            let heard = Arc::new(AtomicU32::new(0));
            let count = heard.clone();
            d.handler("hear", 1, move |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            d.synchronise().unwrap();
            let kept = d.channel(1 - d.unit(), Priority::Low).unwrap();
            if d.unit() == 0 {
                let hear = d.lookup("hear", 1).unwrap();
                for _ in 0..10_000 {
                    let mut channel = d.channel(1, Priority::Low).unwrap();
                    assert_ne!(channel.number(), kept.number());
                    channel.bulk(hear, [0; 4], &[]).unwrap();
                }
            }
            d.barrier().unwrap();
            if d.unit() == 1 {
                d.serve_until(None, || heard.load(Ordering::Relaxed) == 10_000).unwrap();
            }
            d.barrier().unwrap();
        });
    }
}

/// Results for which there is no room, since their caller takes none of them: those calls fail.
#[test]
fn a_call_whose_answer_finds_no_place_ends() {
    const CALLS: u32 = 100;
    for place in PLACES {
        let served = Arc::new(AtomicU32::new(0));
        at(place, 2, &|d: Domain| {
            let counts = served.clone();
            d.function("long", 1, move |_, _| {
                counts.fetch_add(1, Ordering::Release);
                Ok(vec![7; 1 << 20])
            })
            .unwrap();
            d.synchronise().unwrap();
            if d.unit() == 0 {
                let calls: Vec<_> = (0..CALLS).map(|_| d.call(1, "long", &[], None).unwrap()).collect();
                // It takes none of the answers meanwhile.
                while served.load(Ordering::Acquire) < CALLS {
                    std::thread::yield_now();
                }
                let answers: Vec<_> = calls.into_iter().map(|call| call.wait()).collect();
                let good = answers.iter().flatten().count();
                assert!(answers.iter().flatten().all(|answer| *answer == vec![7; 1 << 20]));
                let words = |e: &MessageError| e.to_string().contains("could not be sent");
                assert!(answers.iter().filter_map(|a| a.as_ref().err()).all(words));
                // Across hosts the receiver's own thread takes some of them.
                let all = good == CALLS as usize;
                assert!(good > 0 && (!all || place != Place::Here), "{good} answers came");
            } else {
                d.serve_until(None, || served.load(Ordering::Acquire) == CALLS).unwrap();
            }
            d.barrier().unwrap();
        });
    }
}

#[test]
fn waits_of_other_threads_end_when_their_unit_leaves() {
    for place in PLACES {
        let over = Barrier::new(2);
        at(place, 2, &|d: Domain| {
            d.barrier().unwrap();
            if d.unit() == 0 {
                std::thread::scope(|s| {
                    let (tell, told) = mpsc::channel();
                    let d = &d;
                    let waiting = s.spawn(move || {
                        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                        d.recv(None, Some(1))
                    });
                    until_asleep(told.recv().unwrap());
                    d.leave().unwrap();
                    let ended = waiting.join().unwrap().map(drop);
                    assert_eq!(ended, Err(MessageError::PeerLeft { unit: 0 }));
                });
            }
            over.wait();
        });
    }
}
