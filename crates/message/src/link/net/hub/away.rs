//! A process that was stopped, or whose machine slept: the time in which it did not run is no silence of the
//! others, who may have given it up meanwhile.

use crate::error::MessageError;
use core::time::Duration;

/// When this process was away.
#[derive(Default)]
pub struct Away {
    /// When it was to look again.
    due: Option<Duration>,
    /// For how long it was away last, and until when that may be why others are gone.
    last: Option<(Duration, Duration)>,
}

impl Away {
    /// It looks again by then.
    pub fn sleeps_until(&mut self, due: Option<Duration>) {
        self.due = due;
    }

    /// It looks now. How long it was away, if that was long by the silence that is borne.
    pub fn looks(&mut self, now: Duration, silence: Duration) -> Option<Duration> {
        let late = now.saturating_sub(self.due?);
        if late < silence / 2 {
            return None;
        }
        self.due = None;
        self.last = Some((late, now.saturating_add(2 * silence)));
        Some(late)
    }

    /// A loss, with what this unit has to do with it.
    pub fn explain(&self, error: MessageError, now: Duration) -> MessageError {
        match (error, self.last) {
            (MessageError::PeerLost { unit, reason }, Some((time, until))) if now < until => {
                let reason = format!(
                    "{reason}; this process did not run for {time:.1?}, and others may have given it up and \
                        gone on without it"
                );
                MessageError::PeerLost { unit, reason }
            }
            (error, _) => error,
        }
    }
}
