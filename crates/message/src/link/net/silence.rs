//! Measures the silence of the other end of a connection. No I/O: time and what the kernel says go in.
//!
//! A program that is busy takes nothing, and its window is shut for as long: that is no silence, since its
//! kernel answers when it is asked whether the window is still shut. What counts is the time since something
//! was sent that had an answer due, be it data or that question, and nothing at all came since. Of a
//! connection on which nothing is sent, the kernel's own probes say as soon that it is cut.

use super::LinkFault;
use polyduct_os::{socket::tcp::Acks, Errno, OsError};
use std::time::Duration;

/// How often the kernel is asked.
const LOOK: Duration = Duration::from_millis(250);
/// By how much times that the kernel tells may be off: it counts ticks of ten milliseconds or less.
const TICK: Duration = Duration::from_millis(20);

/// For how many seconds a connection that ended so had been silent for as long as was `borne`; 0: it did not
/// end by silence.
pub fn seconds(fault: &LinkFault, borne: Duration) -> u8 {
    // What the kernel says instead where it knows more.
    let silent = [Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::HOSTDOWN];
    match fault {
        LinkFault::System(error) if error.errno().is_some_and(|e| silent.contains(&e)) => silent_for(borne),
        _ => 0,
    }
}

/// So many seconds, of one that was silent for as long as was `borne`.
pub fn silent_for(borne: Duration) -> u8 {
    borne.as_millis().div_ceil(1000).clamp(1, 255) as u8
}

/// What is known.
pub struct Silence {
    /// How long it is borne.
    borne: Duration,
    /// What was sent then has had no answer, as far as is known, and when the last answer before it came.
    due: Option<(Duration, Duration)>,
    /// Something may be on its way.
    look_at: Option<Duration>,
}

impl Silence {
    /// Nothing was sent yet. Silence is borne for so long.
    pub fn new(borne: Duration) -> Silence {
        Silence { borne, due: None, look_at: None }
    }

    /// Something is sent.
    pub fn sent(&mut self, now: Duration) {
        self.look_at.get_or_insert(now + LOOK);
    }

    /// When to [look](Silence::look) again.
    pub fn deadline(&self) -> Option<Duration> {
        self.look_at
    }

    /// Asks for what was acknowledged, where it is time.
    pub fn look(
        &mut self,
        now: Duration,
        acks: impl FnOnce() -> Result<Acks, OsError>,
    ) -> Result<(), OsError> {
        if self.look_at.is_none_or(|at| now < at) {
            return Ok(());
        }
        let Acks { missing, unsent, asked, shut, sent, last } = acks()?;
        // Both are of one tick of the kernel's where data follow an answer at once. Where the window is shut,
        // that may be the answer that what goes beyond it is not taken.
        let unanswered = if shut { sent < last } else { sent <= last };
        let (sent, last) = (now.saturating_sub(sent), now.saturating_sub(last));
        self.due = self.due.filter(|&(_, before)| last <= before + TICK && (missing || asked));
        if self.due.is_none() {
            // What a later answer did not acknowledge goes again, and then an answer to that is due.
            let since = if asked { Some(now) } else { Some(sent).filter(|_| missing && unanswered) };
            self.due = since.map(|since| (since, last));
        }
        if self.due.is_some_and(|(since, _)| now.saturating_sub(since) >= self.borne) {
            let what = "a connection whose other end answers nothing".into();
            return Err(OsError::System { op: "sendmsg", what, errno: Errno::TIMEDOUT });
        }
        // What could not be sent at once is followed by questions, of which the first takes a while.
        self.look_at = (missing || unsent || asked).then_some(now + LOOK);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BORNE: Duration = Duration::from_millis(1900);

    /// Looks as often as it wants from 0 to `until`, while there is always more to send; `acks` says what the
    /// kernel knows at a time. Returns when the connection counts as cut.
    fn cut_at(until: Duration, acks: impl Fn(Duration) -> Acks) -> Option<Duration> {
        let (mut silence, mut now) = (Silence::new(BORNE), Duration::ZERO);
        while now < until {
            silence.sent(now);
            now = silence.deadline().unwrap();
            if silence.look(now, || Ok(acks(now))).is_err() {
                return Some(now);
            }
        }
        None
    }

    /// What was sent `sent` ago, and since then all the time again, while the last answer came `last` ago.
    fn missing(sent: Duration, last: Duration) -> Acks {
        Acks { missing: true, unsent: false, asked: false, shut: false, sent, last }
    }

    /// A window that is shut.
    fn shut(asked: bool, last: Duration) -> Acks {
        Acks { missing: false, unsent: true, asked, shut: true, sent: last, last }
    }

    #[track_caller]
    fn assert_cut(cut: Option<Duration>, from: Duration) {
        let end = from + BORNE;
        assert!(cut.is_some_and(|cut| cut >= end && cut < end + 2 * LOOK), "{cut:?}, expected after {end:?}");
    }

    #[test]
    fn what_is_never_acknowledged_is_cut_in_time() {
        // The last acknowledgement came long before it was sent.
        assert_cut(cut_at(10_000 * MS, |now| missing(MS, now + 60_000 * MS)), Duration::ZERO);
    }

    #[test]
    fn what_cannot_go_again_is_cut_in_time() {
        // The route is gone, too: the kernel tries, but nothing leaves. It was sent as soon as the answer
        // before it came.
        assert_cut(cut_at(10_000 * MS, |now| missing(now, now)), Duration::ZERO);
    }

    #[test]
    fn what_cannot_be_sent_at_all_is_cut_in_time() {
        // Nothing more is given to the kernel, which asks the first time after 200 ms.
        let (mut silence, mut now) = (Silence::new(BORNE), Duration::ZERO);
        silence.sent(now);
        let cut = loop {
            now = silence.deadline().expect("the kernel still has something");
            if silence.look(now, || Ok(shut(now > 300 * MS, now))).is_err() {
                break now;
            }
        };
        assert_cut(Some(cut), 2 * LOOK);
    }

    #[test]
    fn time_counts_from_the_last_acknowledgement() {
        let last = 1500 * MS;
        let acks = |now: Duration| missing(MS, now.checked_sub(last).unwrap_or(100 * MS));
        assert_cut(cut_at(10_000 * MS, acks), last);
    }

    #[test]
    fn a_slow_end_that_acknowledges_and_one_that_has_all_are_there() {
        assert_eq!(cut_at(20_000 * MS, |_| missing(MS, 1000 * MS)), None);
        let mut silence = Silence::new(BORNE);
        silence.sent(Duration::ZERO);
        silence.look(LOOK, || Ok(Acks { unsent: false, ..shut(false, Duration::ZERO) })).unwrap();
        assert_eq!(silence.deadline(), None, "nothing to look for until something is sent");
    }

    #[test]
    fn a_shut_window_is_no_silence_while_the_kernel_answers() {
        // The kernel asks less and less often.
        let answered = |now: Duration| (0..20).map(|k| (200 << k) * MS).take_while(|&at| at <= now).last();
        let ago = |now: Duration| now - answered(now).unwrap_or_default();
        assert_eq!(cut_at(600_000 * MS, |now| shut(false, ago(now))), None);
        // What goes beyond a window that shrinks is sent again as rarely, and answered.
        let beyond = |now| Acks { shut: true, ..missing(ago(now), ago(now)) };
        assert_eq!(cut_at(600_000 * MS, beyond), None);
        // An answer that is late.
        assert_eq!(cut_at(600_000 * MS, |now| shut(ago(now) < 1000 * MS, ago(now))), None);
    }

    #[test]
    fn a_shut_window_of_which_nobody_answers_is_cut() {
        let (gone, last) = (5000 * MS, 2000 * MS);
        assert_cut(cut_at(20_000 * MS, |now| shut(now >= gone, now.saturating_sub(last))), gone);
    }
}
