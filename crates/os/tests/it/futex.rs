use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyduct_os::futex::{wait, wake, Wake};

use crate::child::WATCHDOG;

#[test]
fn a_word_that_has_changed_is_not_waited_for() {
    let word = AtomicU32::new(5);
    assert_eq!(wait(&word, 4, None), Wake::Mismatch);
    assert_eq!(wake(&word, u32::MAX), 0);
}

#[test]
fn the_time_is_kept() {
    let word = AtomicU32::new(5);
    let start = Instant::now();
    assert_eq!(wait(&word, 5, Some(Duration::from_millis(20))), Wake::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(wait(&word, 5, Some(Duration::ZERO)), Wake::TimedOut);
}

#[test]
fn as_many_are_woken_as_asked_for() {
    let word = AtomicU32::new(0);
    thread::scope(|s| {
        let sleepers: Vec<_> =
            (0..4).map(|_| s.spawn(|| while wait(&word, 0, Some(Duration::MAX)) != Wake::Woken {})).collect();
        let deadline = Instant::now() + WATCHDOG;
        let mut woken = 0;
        while woken < 4 {
            let n = wake(&word, 1);
            assert!(n <= 1 && Instant::now() < deadline);
            woken += n;
            thread::yield_now();
        }
        sleepers.into_iter().for_each(|t| t.join().unwrap());
    });
    assert_eq!(wake(&word, 1), 0);
}

#[test]
fn two_threads_pass_a_word_to_and_fro() {
    const ROUNDS: u32 = 2000;
    let word = AtomicU32::new(0);
    let play = |mine: u32| {
        while word.load(Ordering::Acquire) < ROUNDS {
            let now = word.load(Ordering::Acquire);
            if now % 2 == mine {
                word.store(now + 1, Ordering::Release);
                wake(&word, 1);
            } else {
                assert_ne!(wait(&word, now, Some(WATCHDOG)), Wake::TimedOut);
            }
        }
    };
    thread::scope(|s| {
        s.spawn(|| play(0));
        play(1);
    });
    assert!(word.load(Ordering::Relaxed) >= ROUNDS);
}
