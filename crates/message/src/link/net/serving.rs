//! Decides who serves an endpoint's sockets: its thread, or the program that polls.
//!
//! A thread that sleeps at the sockets and then wakes the program costs every message two wake-ups, and takes
//! the processor from the program where there are not enough. So a program that polls looks at the sockets
//! itself, and while it does so again and again the thread keeps away from them: until [`AWAY`] after the
//! last look. A program that is about to sleep says so: the thread serves alone then until there was news. A
//! program that computes is found out after that time.

use core::time::Duration;

/// How long after a look of the program the thread keeps away from the sockets: what comes, or is due, when
/// it does something else waits so long, at most.
pub const AWAY: Duration = Duration::from_micros(250);
/// Looks so far apart are no longer one after the other.
const APART: Duration = Duration::from_micros(20);
/// How long a program has to look, one look after the other, until that keeps the thread away.
const SETTLED: Duration = Duration::from_micros(5);
/// How often a program that polls looks at the sockets, at most. It may look at more than those.
const LOOK: Duration = Duration::from_micros(1);
/// How often it does while messages come one behind the other, or it waits for room: more of them come at
/// once then, and are acknowledged at once.
const BATCH: Duration = Duration::from_micros(10);
/// Looks that find something, each within four times [`BATCH`] and none behind a message of this side, after
/// which that is so.
const STREAM: u32 = 8;
/// How often a program that polls looks for what is due.
const TICK: Duration = Duration::from_micros(100);

/// What is known of the program's looks. Times are of [`polyduct_os::clock::now`].
#[derive(Debug, Default)]
pub struct Serving {
    /// The last look, unless the thread was asked to serve since, and the first of those that came one after
    /// the other.
    last: Option<Duration>,
    first: Duration,
    /// The last look that found something, and how many did so in a row.
    found_at: Duration,
    streak: u32,
    /// When the program last saw to what is due.
    ticked: Option<Duration>,
    /// The program sleeps, or is about to, and has had no news since.
    rests: bool,
}

impl Serving {
    /// The program polls and has nothing to do: whether it is to look at the sockets.
    pub fn look(&mut self, now: Duration) -> bool {
        let pause = if self.streak < STREAM { LOOK } else { BATCH };
        let since = self.last.map(|last| now.saturating_sub(last));
        if self.rests || since.is_some_and(|time| time < pause) {
            return false;
        }
        if since.is_none_or(|time| time >= APART) {
            self.first = now;
        }
        self.last = Some(now);
        true
    }

    /// A look found something.
    pub fn found(&mut self, now: Duration) {
        let in_a_row = now.saturating_sub(self.found_at) < 4 * BATCH;
        (self.found_at, self.streak) = (now, if in_a_row { self.streak.saturating_add(1) } else { 0 });
    }

    /// Whether the program that looks is to see to what is due as well.
    pub fn tick(&mut self, now: Duration) -> bool {
        let is_due = self.ticked.is_none_or(|last| now.saturating_sub(last) >= TICK);
        if is_due {
            self.ticked = Some(now);
        }
        is_due
    }

    /// The program has sent something and may wait for the answer; or there was no `room`, and it waits for
    /// that.
    pub fn sent(&mut self, room: bool) {
        self.streak = if room { 0 } else { STREAM };
        self.rests &= !room;
    }

    /// The program is about to sleep.
    pub fn rest(&mut self) {
        (self.rests, self.last) = (true, None);
    }

    /// The program has had news, or begins to wait for some: its looks count again.
    pub fn wake(&mut self) {
        self.rests = false;
    }

    /// The thread is to serve, as long as the program does not look again and again.
    pub fn hand_back(&mut self) {
        self.last = None;
    }

    /// How long the thread is to keep away from the sockets from now on.
    pub fn away(&self, now: Duration) -> Option<Duration> {
        let last = self.last.filter(|&last| last.saturating_sub(self.first) >= SETTLED)?;
        let left = (last + AWAY).saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Asks so often, every so many µs from `at` on. Gives how often that was a look, and when it ended.
    fn ask(serving: &mut Serving, at: Duration, times: u32, every: u32) -> (u32, Duration) {
        let looks = (0..times).filter(|&n| serving.look(at + n * every * US)).count();
        (looks as u32, at + times * every * US)
    }

    #[test]
    fn who_polls_again_and_again_keeps_the_thread_away() {
        let mut serving = Serving::default();
        let (looks, end) = ask(&mut serving, 1000 * US, 10, 1);
        assert_eq!(looks, 10);
        assert_eq!(serving.away(end), Some(AWAY - US));
        assert_eq!(serving.away(end + AWAY), None, "it does something else");
        // It looks no more often than that pays.
        assert!(serving.look(end) && !serving.look(end) && !serving.look(end + US / 2));
    }

    #[test]
    fn who_looks_now_and_then_does_not() {
        let mut serving = Serving::default();
        let (looks, end) = ask(&mut serving, 1000 * US, 100, 100);
        assert_eq!((looks, serving.away(end - 100 * US)), (100, None));
        let mut serving = Serving::default();
        assert!(serving.look(1000 * US));
        assert_eq!(serving.away(1000 * US), None, "a single look");
    }

    #[test]
    fn who_sleeps_looks_again_when_there_was_news() {
        let mut serving = Serving::default();
        let (_, end) = ask(&mut serving, 1000 * US, 10, 1);
        serving.rest();
        assert_eq!(serving.away(end), None);
        assert_eq!(ask(&mut serving, end, 10, 1).0, 0);
        serving.wake();
        assert_eq!(ask(&mut serving, end, 10, 1).0, 10);
        assert!(serving.away(end + 10 * US).is_some());
        serving.hand_back();
        assert_eq!(serving.away(end + 10 * US), None);
        assert!(serving.look(end + 10 * US), "it may still look");
    }

    #[test]
    fn a_stream_comes_in_batches_and_an_answer_at_once() {
        let mut serving = Serving::default();
        let mut now = 1000 * US;
        for _ in 0..=STREAM {
            now += 5 * US;
            assert!(serving.look(now));
            serving.found(now);
        }
        assert_eq!(ask(&mut serving, now + US, 30, 1).0, 3);
        now += 31 * US;
        serving.sent(true);
        assert_eq!(ask(&mut serving, now, 30, 1).0, 30);
        now += 30 * US;
        serving.sent(false);
        assert_eq!(ask(&mut serving, now + US, 30, 1).0, 3, "it waits for room");
        // What comes now and then is no stream.
        serving.sent(true);
        for _ in 0..50 {
            now += 50 * US;
            assert!(serving.look(now));
            serving.found(now);
        }
        assert!(serving.look(now + US));
    }

    #[test]
    fn what_is_due_is_seen_to_now_and_then() {
        let mut serving = Serving::default();
        let ticks = (0..1000).filter(|&n| serving.tick(5 * US + n * US)).count();
        assert_eq!(ticks, 10);
    }
}
