//! Adapts how long a wait spins before it sleeps: about twice as long as answers took lately.
//!
//! To sleep and be woken costs some tens of microseconds, and the processor that slept is slow at first: an
//! answer that comes sooner is worth spinning for. One that takes milliseconds is not, and neither is one
//! whose giver waits for the processor on which this thread spins. What a wait cannot know of its answer the
//! waits before it tell.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

/// The part of a new answer in the estimate: one in so many.
const WEIGHT: u32 = 4;
/// Spinning for less than about what a sleep costs saves nothing.
const LEAST: Duration = Duration::from_micros(10);
/// What an answer counts for, at most, in longest spins: two that were late end the spinning, and one alone
/// does not.
const LATE: u32 = 3;
/// Where answers are late, one wait in so many spins all the same: who sleeps does not see that answers have
/// become quick, since to be woken takes time of its own.
const TRIES: u32 = 16;

/// How long answers at one place took lately. Threads that wait there at once may lose each other's, which
/// does no harm.
#[derive(Debug)]
pub struct Spin {
    /// The longest spin, in nanoseconds.
    most: u32,
    /// The estimate, in nanoseconds.
    answer: AtomicU32,
    /// Waits in a row that did not spin.
    slept: AtomicU32,
}

impl Spin {
    /// A place of which nothing is known yet: the first waits spin for `most`, and none spins for longer.
    pub const fn new(most: Duration) -> Spin {
        let most = if most.as_nanos() < 1 << 20 { most.as_nanos() as u32 } else { 1 << 20 };
        Spin { most, answer: AtomicU32::new(most), slept: AtomicU32::new(0) }
    }

    /// A place where no wait spins.
    pub const fn never() -> Spin {
        Spin::new(Duration::ZERO)
    }

    /// How long the next wait spins.
    pub fn time(&self) -> Duration {
        let answer = self.answer.load(Ordering::Relaxed);
        let nanos = if answer <= self.most {
            answer.saturating_mul(2).max(LEAST.as_nanos() as u32).min(self.most)
        } else if self.slept.fetch_add(1, Ordering::Relaxed) % TRIES == TRIES - 1 {
            self.most
        } else {
            0
        };
        Duration::from_nanos(nanos.into())
    }

    /// A wait is over after this time, with its answer or without.
    pub fn handle_answer(&self, took: Duration) {
        let before = self.answer.load(Ordering::Relaxed);
        let took = took.as_nanos().min((LATE * self.most).into()) as u32;
        let after = match before > self.most && took <= self.most {
            // What was late before says nothing of those that are quick now.
            true => took,
            false => before - before / WEIGHT + took / WEIGHT,
        };
        self.answer.store(after, Ordering::Relaxed);
        if after <= self.most {
            self.slept.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(50);

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn after(answers: impl IntoIterator<Item = u64>) -> Spin {
        let spin = Spin::new(MOST);
        answers.into_iter().for_each(|n| spin.handle_answer(micros(n)));
        spin
    }

    #[test]
    fn spins_are_about_twice_as_long_as_answers_take() {
        assert_eq!(Spin::new(MOST).time(), MOST, "nothing is known");
        let twenty = after([20; 40]).time();
        assert!(twenty >= micros(38) && twenty <= micros(41), "{twenty:?}");
        assert_eq!(after([1; 40]).time(), LEAST);
        assert_eq!(after([30; 40]).time(), MOST);
        assert_eq!(Spin::new(micros(2)).time(), micros(2));
        assert_eq!(Spin::new(Duration::MAX).time(), Duration::from_nanos(1 << 20));
        for answers in [vec![], vec![0], vec![u64::MAX / 1000; 9]] {
            let never = Spin::never();
            answers.into_iter().for_each(|n| never.handle_answer(micros(n)));
            assert_eq!(never.time(), Duration::ZERO);
        }
    }

    #[test]
    fn one_late_answer_among_quick_ones_changes_little_and_late_ones_end_the_spinning() {
        let quick = || std::iter::repeat_n(5, 40);
        assert!(!after(quick().chain([10_000])).time().is_zero());
        assert_eq!(after(quick().chain([10_000; 2])).time(), Duration::ZERO);
        let late = after([10_000; 40]);
        let spun: Duration = (0..160)
            .map(|_| {
                let time = late.time();
                late.handle_answer(micros(10_000));
                time
            })
            .sum();
        assert_eq!(spun, 10 * MOST, "a try in sixteen: 0.3 parts in a thousand of the time");
    }

    #[test]
    fn answers_that_have_become_quick_are_noticed_though_sleep_hides_it() {
        let spin = after([10_000; 40]);
        let (answer, woken) = (micros(20), micros(70));
        let waits = (1..).find(|_| {
            let time = spin.time();
            spin.handle_answer(if time >= answer { answer } else { woken });
            time >= answer
        });
        assert!(waits.is_some_and(|n| n <= TRIES), "{waits:?}");
        for _ in 0..100 {
            assert!(spin.time() >= answer, "each is met without sleep");
            spin.handle_answer(answer);
        }
    }
}
