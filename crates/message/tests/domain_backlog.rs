//! What waits: at the sender, for a unit that takes nothing, and at the receiver, for its next look.

mod units;

use polyduct_message::domain::Domain;
use polyduct_message::link::net::config::Transport;
use polyduct_message::{MessageError, Priority};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use units::{at, together, Place};

const WATCHDOG: Duration = Duration::from_secs(20);

#[test]
fn many_calls_at_once_cost_little_more_each_than_few() {
    const CALLS: u32 = 40_000;
    let begun = AtomicBool::new(false);
    at(Place::Hosts(Transport::Tcp, true), 2, &|d: Domain| {
        d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
        d.synchronise().unwrap();
        if d.unit() == 0 {
            let start = Instant::now();
            let calls: Vec<_> =
                (0..CALLS).map(|n| d.call(1, "echo", &n.to_le_bytes(), None).unwrap()).collect();
            let after = start.elapsed();
            begun.store(true, Ordering::Release);
            for (n, call) in (0..CALLS).zip(calls) {
                assert_eq!(call.wait().unwrap(), n.to_le_bytes());
            }
            println!("{CALLS} calls were begun within {after:?}");
            // Where each looked at all that wait, it took three times as long, with nothing else on the
            // machine.
            assert!(after < Duration::from_secs(2), "{after:?}");
        } else {
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        d.barrier().unwrap();
    });
}

#[test]
fn so_many_sends_as_the_status_says_are_taken() {
    let full = Barrier::new(2);
    together(2, |d| {
        d.handler("nothing", 1, |_, _| ()).unwrap();
        d.synchronise().unwrap();
        // From here on unit 1 does not look.
        full.wait();
        if d.unit() == 0 {
            let nothing = d.lookup("nothing", 1).unwrap();
            for priority in [Priority::High, Priority::Low] {
                let mut channel = d.channel(1, priority).unwrap();
                let says = || match priority {
                    Priority::High => d.status().sends_high,
                    Priority::Low => d.status().sends_low,
                };
                let mut sent = 0;
                // So many at once; across hosts more, since some arrive meanwhile. What arrived is counted
                // until this unit looks.
                while channel.sends_guaranteed().unwrap() > 0 {
                    let sure = channel.sends_guaranteed().unwrap();
                    assert!(!d.is_on_one_host() || says() == sure.into());
                    (0..sure).for_each(|_| channel.short(nothing, [0; 4]).unwrap());
                    sent += sure;
                }
                assert!(sent > 0);
                if d.is_on_one_host() {
                    assert_eq!(channel.short(nothing, [0; 4]), Err(MessageError::Full { to: 1 }));
                }
            }
        }
        full.wait();
        d.barrier().unwrap();
    });
}

#[test]
fn what_waits_at_the_receiver_is_counted_wherever_it_came_from() {
    let go = AtomicBool::new(false);
    together(2, |d| {
        let handled = Arc::new(AtomicU64::new(0));
        let count = handled.clone();
        d.handler("count", 1, move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        d.synchronise().unwrap();
        if d.unit() == 1 {
            let wait = || {
                while !go.swap(false, Ordering::AcqRel) {
                    std::thread::yield_now();
                }
            };
            wait();
            (0..50).for_each(|_| d.post(0, "count", [0; 4], b"some").unwrap());
            d.barrier().unwrap();
            wait();
        } else {
            let waiting = || (d.status().waiting_high, d.status().waiting_low);
            // From here on this unit does not look, so all of them and the word of the barrier behind them
            // wait.
            go.store(true, Ordering::Release);
            let end = Instant::now() + WATCHDOG;
            while waiting() != (1, 50) {
                assert!(Instant::now() < end, "{:?} wait", waiting());
                std::thread::yield_now();
            }
            d.barrier().unwrap();
            d.serve_until(None, || handled.load(Ordering::Relaxed) == 50).unwrap();
            assert_eq!(waiting(), (0, 0));
            go.store(true, Ordering::Release);
        }
        d.barrier().unwrap();
    });
}
