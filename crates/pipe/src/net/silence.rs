//! Whether the other end of a connection still acknowledges what is sent to it. No I/O: time and what the kernel says go in.
//!
//! The kernel ends a connection when what it has sent *again* is not acknowledged for some time (`TCP_USER_TIMEOUT`). It first
//! sends again when an answer is later than the answers before would have it, and on busy machines those took seconds. Here time
//! counts from the first sending. Of a connection on which nothing is sent, the kernel's own probes say as soon that it is cut.

use super::place::PATIENCE;
use polyduct_os::{socket::tcp::Acks, Errno, OsError};
use std::time::Duration;

/// How often the kernel is asked.
const LOOK: Duration = Duration::from_millis(250);

/// What is known.
#[derive(Default)]
pub struct Silence {
    /// Something was sent then or later, or acknowledged then, and has not all been acknowledged since, as far as is known.
    since: Option<Duration>,
    look_at: Duration,
}

impl Silence {
    /// Something is sent.
    pub fn sent(&mut self, now: Duration) {
        if self.since.is_none() {
            *self = Silence { since: Some(now), look_at: now + LOOK };
        }
    }

    /// When to [look](Silence::look) again.
    pub fn deadline(&self) -> Option<Duration> {
        self.since.map(|_| self.look_at)
    }

    /// Asks for what was acknowledged, where it is time.
    pub fn look(
        &mut self,
        now: Duration,
        acks: impl FnOnce() -> Result<Acks, OsError>,
    ) -> Result<(), OsError> {
        let Some(since) = self.since.filter(|_| now >= self.look_at) else { return Ok(()) };
        let Acks { missing, last } = acks()?;
        if !missing {
            self.since = None;
            return Ok(());
        }
        let since = since.max(now.saturating_sub(last));
        if now.saturating_sub(since) >= PATIENCE.dead_after {
            let what = "a connection whose other end acknowledges nothing".into();
            return Err(OsError::System { op: "sendmsg", what, errno: Errno::TIMEDOUT });
        }
        *self = Silence { since: Some(since), look_at: now + LOOK };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Looks as often as it wants from 0, when something is sent, to `until`; `acks` says what the kernel knows at a time. Returns
    /// when the connection counts as cut.
    fn cut_at(until: Duration, acks: impl Fn(Duration) -> Acks) -> Option<Duration> {
        let mut silence = Silence::default();
        silence.sent(Duration::ZERO);
        while let Some(now) = silence.deadline().filter(|&now| now < until) {
            if silence.look(now, || Ok(acks(now))).is_err() {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn what_is_never_acknowledged_is_cut_in_time() {
        // The last acknowledgement came long before it was sent.
        let cut = cut_at(10_000 * MS, |now| Acks { missing: true, last: now + 60_000 * MS }).unwrap();
        assert!(cut >= PATIENCE.dead_after && cut < PATIENCE.dead_after + 2 * LOOK, "{cut:?}");
    }

    #[test]
    fn time_counts_from_the_last_acknowledgement() {
        let last = 1500 * MS;
        let acks = |now: Duration| Acks { missing: true, last: now.checked_sub(last).unwrap_or(100 * MS) };
        let cut = cut_at(10_000 * MS, acks).unwrap();
        let end = last + PATIENCE.dead_after;
        assert!(cut >= end && cut < end + 2 * LOOK, "{cut:?}");
    }

    #[test]
    fn a_slow_end_that_acknowledges_and_one_that_has_all_are_there() {
        assert_eq!(cut_at(20_000 * MS, |_| Acks { missing: true, last: 1000 * MS }), None);
        let mut silence = Silence::default();
        silence.sent(Duration::ZERO);
        silence.look(LOOK, || Ok(Acks { missing: false, last: Duration::ZERO })).unwrap();
        assert_eq!(silence.deadline(), None, "nothing to look for until something is sent");
    }
}
