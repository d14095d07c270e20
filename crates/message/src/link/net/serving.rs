//! Decides who serves an endpoint's sockets: its thread, or the program that polls.
//!
//! A thread that sleeps at the sockets and then wakes the program costs every message two wake-ups, and takes
//! the processor from the program where there are not enough. So a program that polls looks at the sockets
//! itself. While it looks again and again the thread keeps away from them, and for a while after the last
//! look: where the program computes by then, the thread serves the sockets when that while is over. What
//! falls due meanwhile is done in time, except for receipts where nothing is lost, which may be as late. A
//! program that is about to sleep says so, and from then on the thread serves alone, until the program has
//! had news and looks again.

use core::time::Duration;

/// How long after a look of the program the thread keeps away from the sockets: what comes when the program
/// does something else waits so long, at most.
const AWAY: Duration = Duration::from_micros(250);
/// The same after the program has looked for long: a share of that time, and so long at most. Each time that
/// the thread asks, it takes the processor from the program. Over datagrams the pause does not grow: what was
/// lost is sent again only after the acknowledgements of what was not.
const AWAY_MOST: Duration = Duration::from_millis(2);
const AWAY_SHARE: u32 = 8;
/// Looks so far apart are no longer one after the other.
const APART: Duration = Duration::from_micros(20);
/// How long a program has to look, one look after the other, until that keeps the thread away.
const SETTLED: Duration = Duration::from_micros(5);
/// How often a program that polls looks at sockets, at most. It may look at more than those.
const LOOK: Duration = Duration::from_micros(1);
/// The same while it waits for an answer from where others have just come. Each look takes the socket's lock,
/// and holds up what just comes.
const ANSWER: Duration = Duration::from_nanos(500);
/// How often it looks at all of them where it reads from those that brought messages lately in between.
const ASIDE: Duration = Duration::from_micros(10);
/// The same where there are no other connections: only strangers may come then.
const STRANGERS: Duration = Duration::from_micros(100);
/// How often it does while messages come one behind the other, or it waits for room: more of them come at
/// once then, and are acknowledged at once.
const BATCH: Duration = Duration::from_micros(10);
/// Looks that find something, each within four times [`BATCH`] and none behind a message of this side, after
/// which that is so.
const STREAM: u32 = 8;
/// How often a program that polls looks for what is due.
const TICK: Duration = Duration::from_micros(100);

/// Where a program looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// At all sockets.
    All,
    /// At the connections that brought something lately: most answers come on these, and a read finds one
    /// sooner than a question which sockets are readable, with a read behind it.
    Recent,
}

/// Which connections brought something lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recent {
    /// None, or more than to read is to be done at the sockets.
    None,
    /// Some of several.
    Some,
    /// The first of each peer that there is, and no more are about to be made.
    All,
}

/// What is known of the program's looks. Times are of [`polyduct_os::clock::now`].
#[derive(Debug, Default)]
pub struct Serving {
    /// Over datagrams.
    is_lossy: bool,
    /// The last look, unless the thread was asked to serve since.
    last: Option<Duration>,
    /// The program has looked since it last slept.
    looks: bool,
    /// How long the program has looked, one look after the other, less the time in which it has not.
    looked: Duration,
    /// The last look at all sockets.
    all: Option<Duration>,
    /// The last look that found something, and how many did so in a row.
    found_at: Duration,
    streak: u32,
    /// When the program last saw to what is due.
    ticked: Option<Duration>,
    /// The program sleeps, or is about to, and has had no news since.
    rests: bool,
}

impl Serving {
    /// For sockets over which datagrams go.
    pub fn of_datagrams() -> Serving {
        Serving { is_lossy: true, ..Serving::default() }
    }

    /// The program polls and has nothing to do: where it is to look, if at all. `recent` says which
    /// connections [`Look::Recent`] would ask.
    pub fn look(&mut self, now: Duration, recent: impl FnOnce() -> Recent) -> Option<Look> {
        if self.rests {
            return None;
        }
        let since = |last: Duration| now.saturating_sub(last);
        let streams = self.streak >= STREAM;
        // An answer that takes long may as well come from elsewhere.
        let answers = !streams && since(self.found_at) < 4 * BATCH;
        let at = match self.all.map(since) {
            Some(all) if !streams && all < STRANGERS => match recent() {
                Recent::All => Look::Recent,
                Recent::Some if answers && all < ASIDE => Look::Recent,
                _ => Look::All,
            },
            _ => Look::All,
        };
        let pause = match at {
            _ if streams => BATCH,
            Look::Recent if answers => ANSWER,
            _ => LOOK,
        };
        if self.last.is_some_and(|last| since(last) < pause) {
            return None;
        }
        self.looked = match self.last.map(since) {
            Some(pause) if pause < APART => (self.looked + pause).min(AWAY_MOST * AWAY_SHARE),
            Some(pause) => self.looked.saturating_sub(pause),
            None => Duration::ZERO,
        };
        (self.last, self.looks) = (Some(now), true);
        if at == Look::All {
            self.all = Some(now);
        }
        Some(at)
    }

    /// A look found something, and is over now: the program has something to do before it looks again.
    pub fn found(&mut self, now: Duration) {
        self.last = self.last.max(Some(now));
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
        (self.rests, self.looks) = (true, false);
    }

    /// The program has had news, or begins to wait for some: its looks count again.
    pub fn wake(&mut self) {
        self.rests = false;
    }

    /// The thread is to serve, as long as the program does not look again and again.
    pub fn hand_back(&mut self) {
        self.last = None;
    }

    /// Until when the thread is to keep away from the sockets, if it is.
    pub fn away_until(&self) -> Option<Duration> {
        let last = self.last.filter(|_| self.looks)?;
        let most = if self.is_lossy { AWAY } else { AWAY_MOST };
        let away = (self.looked / AWAY_SHARE).clamp(AWAY, most);
        (self.looked >= SETTLED).then_some(last + away)
    }

    /// How long that is.
    pub fn away(&self, now: Duration) -> Option<Duration> {
        self.away_until().map(|until| until.saturating_sub(now)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Asks so often, every so many µs from `at` on. Gives how often that was a look, and when it ended.
    fn ask(serving: &mut Serving, at: Duration, times: u32, every: u32) -> (u32, Duration) {
        let looks =
            (0..times).filter(|&n| serving.look(at + n * every * US, || Recent::None).is_some()).count();
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
        let looks = [end, end, end + US / 2].map(|now| serving.look(now, || Recent::None));
        assert_eq!(looks, [Some(Look::All), None, None]);
    }

    #[test]
    fn who_looks_now_and_then_does_not() {
        let mut serving = Serving::default();
        let (looks, end) = ask(&mut serving, 1000 * US, 100, 100);
        assert_eq!((looks, serving.away(end - 100 * US)), (100, None));
        let mut serving = Serving::default();
        assert_eq!(serving.look(1000 * US, || Recent::None), Some(Look::All));
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
        assert!(serving.look(end + 10 * US, || Recent::None).is_some(), "it may still look");
    }

    /// A program that sends something and sleeps again has not looked: all sleep, if the thread keeps away.
    #[test]
    fn who_slept_keeps_the_thread_away_by_looks_alone() {
        let mut serving = Serving::default();
        let (_, end) = ask(&mut serving, 1000 * US, 8000, 1);
        assert!(serving.away(end).is_some());
        for wakes in [|serving: &mut Serving| serving.sent(true), Serving::wake] {
            serving.rest();
            wakes(&mut serving);
            assert_eq!(serving.away(end), None);
        }
        // The next look counts, and so do those before.
        assert_eq!(ask(&mut serving, end, 1, 1).0, 1);
        assert!(serving.away(end).is_some_and(|away| away > AWAY));
    }

    #[test]
    fn datagrams_keep_the_thread_away_for_a_short_while() {
        let mut serving = Serving::of_datagrams();
        let (_, end) = ask(&mut serving, 1000 * US, 100_000, 1);
        assert_eq!(serving.away_until(), Some(end - US + AWAY));
    }

    #[test]
    fn a_stream_comes_in_batches_and_an_answer_at_once() {
        let mut serving = Serving::default();
        let mut now = 1000 * US;
        for _ in 0..=STREAM {
            now += 5 * US;
            assert!(serving.look(now, || Recent::None).is_some());
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
            assert!(serving.look(now, || Recent::None).is_some());
            serving.found(now);
        }
        assert!(serving.look(now + US, || Recent::None).is_some());
    }

    #[test]
    fn answers_are_looked_for_where_others_came_from() {
        let mut serving = Serving::default();
        let at = 1000 * US;
        let mut look = |now: Duration, recent: Recent, found: bool| {
            let look = serving.look(now, || recent);
            if found {
                serving.found(now);
            }
            look
        };
        assert_eq!(look(at, Recent::Some, true), Some(Look::All), "once, for a beginning");
        assert_eq!(look(at + US / 4, Recent::Some, false), None, "what was found is told first");
        assert_eq!(look(at + US / 2, Recent::Some, false), Some(Look::Recent));
        assert_eq!(look(at + 10 * US, Recent::Some, false), Some(Look::All), "others have their turn");
        assert_eq!(
            look(at + 45 * US, Recent::Some, false),
            Some(Look::All),
            "the answer may come from others"
        );
        assert_eq!(look(at + 47 * US, Recent::Some, false), Some(Look::All));
        assert_eq!(look(at + 49 * US, Recent::All, false), Some(Look::Recent), "there are no others");
        assert_eq!(look(at + 50 * US, Recent::None, true), Some(Look::All));
        assert_eq!(look(at + 52 * US, Recent::None, false), Some(Look::All), "nowhere else to look");
        assert_eq!(look(at + 151 * US, Recent::All, false), Some(Look::Recent));
        assert_eq!(look(at + 152 * US, Recent::All, false), Some(Look::All), "strangers have theirs");
    }

    #[test]
    fn who_has_looked_for_long_keeps_the_thread_away_for_longer() {
        let mut serving = Serving::default();
        let (_, end) = ask(&mut serving, 1000 * US, 8000, 1);
        let away = |serving: &Serving, last: Duration| serving.away_until().map(|until| until - last);
        assert!(away(&serving, end - US).is_some_and(|away| (990 * US..=1000 * US).contains(&away)));
        // An interruption takes little of that, a sleep no more than its time.
        let (_, end) = ask(&mut serving, end + 100 * US, 1, 1);
        assert!(away(&serving, end - US).is_some_and(|away| away > 950 * US));
        serving.rest();
        assert_eq!(serving.away_until(), None);
        serving.wake();
        let (_, end) = ask(&mut serving, end + 4000 * US, 1, 1);
        assert!(away(&serving, end - US).is_some_and(|away| (450 * US..500 * US).contains(&away)));
        let (_, end) = ask(&mut serving, end + 4000 * US, 3, 1);
        assert_eq!(away(&serving, end - US), None, "it does something else");
        let (_, end) = ask(&mut serving, end, 100_000, 1);
        assert_eq!(away(&serving, end - US), Some(AWAY_MOST));
    }

    #[test]
    fn what_is_due_is_seen_to_now_and_then() {
        let mut serving = Serving::default();
        let ticks = (0..1000).filter(|&n| serving.tick(5 * US + n * US)).count();
        assert_eq!(ticks, 10);
    }
}
