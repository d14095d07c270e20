//! Waits: a thread that waits receives for all, or sleeps while another thread does.

use super::handlers::in_handler;
use super::progress::Progress;
use super::{system, Inner};
use crate::types::Head;
use crate::MessageError;
use polyduct_os::clock;
use std::cell::Cell;
use std::time::Duration;

/// Looks before a wait asks for the time: about a microsecond.
const LOOKS: u32 = 64;
/// How often a sleeper looks for an interrupt.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// Looks of a short wait from one question whether it is over to the next, where nothing came.
const QUIET_LOOKS: u32 = 8;

/// Looks that find something, at most, before a unit is said to be gone: each takes a record of its ring,
/// which has fewer.
const DRAIN: u32 = 1 << 16;

/// What came of asking whether a wait is over. What it is over with stays where it was found: errors are
/// large, and this is asked at every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    No,
    Yes,
    /// A unit is gone. That counts only when nothing is left of what it sent before.
    Loss,
}

impl Over {
    /// Whether it is over, whatever it is over with.
    pub fn when(over: bool) -> Over {
        match over {
            true => Over::Yes,
            false => Over::No,
        }
    }
}

/// What a wait asks again and again.
pub(super) type Ready<'a> = dyn FnMut(&Inner) -> Over + 'a;

impl Inner {
    /// Handles what has come; `None` while another thread does.
    pub(super) fn poll(&self) -> Option<usize> {
        let records = self.receiving.try_turn()?.poll(self);
        if records > 0 {
            self.receiving.wake_waiters();
        }
        Some(records)
    }

    /// Waits until `ready` gives something, handling what comes meanwhile. `deadline` is a time of
    /// [`clock::now`]; without one, the timeout of the options holds.
    #[inline]
    pub(super) fn wait<T>(
        &self,
        what: &str,
        deadline: Option<Duration>,
        mut ready: impl FnMut(&Inner) -> Option<Result<T, MessageError>>,
    ) -> Result<T, MessageError> {
        let mut found = None;
        let waited = self.wait_over(what, deadline, &mut |inner| {
            let done = ready(inner).or_else(|| inner.units.ends_waits().map(Err));
            let over = match &done {
                None => return Over::No,
                Some(Err(e)) if is_loss(e) => Over::Loss,
                Some(_) => Over::Yes,
            };
            // A loss that was found first does not count beside what was found behind it.
            found = done;
            over
        });
        waited.map_err(|error| *error)?;
        found.unwrap_or_else(|| unreachable!("a wait is over with something"))
    }

    fn wait_over(
        &self,
        what: &str,
        deadline: Option<Duration>,
        ready: &mut Ready<'_>,
    ) -> Result<(), Box<MessageError>> {
        if in_handler() {
            // The thread that would have to receive is this one.
            return if ready(self) == Over::No { Err(MessageError::InHandler.into()) } else { Ok(()) };
        }
        // Answered without a look at the clock where what is waited for is there, or comes at once.
        if self.receive_at_once(LOOKS, usize::MAX, ready) {
            return Ok(());
        }
        let start = clock::now();
        let deadline = deadline.or_else(|| {
            clock::left(start, self.units.options().timeout).map(|left| start.saturating_add(left))
        });
        let deadline = deadline.unwrap_or(Duration::MAX);
        let mut asked = false;
        loop {
            let polled = self.poll();
            if self.is_over(ready, None) {
                return Ok(());
            }
            // What is there is found before anybody is asked.
            if asked && self.units.options().is_interrupted() {
                return Err(MessageError::Interrupted.into());
            }
            asked = true;
            let now = clock::now();
            if self.late_calls(now) {
                continue;
            }
            if now >= deadline {
                return Err(MessageError::Timeout { what: what.to_owned(), waited: now - start }.into());
            }
            let until = deadline.min(now + SLICE).min(self.calls().next_deadline().unwrap_or(Duration::MAX));
            let over = match polled {
                Some(0) => self.receive_until(until, ready),
                Some(_) => false,
                None => self.wait_turn(until.saturating_sub(now), ready),
            };
            if over {
                return Ok(());
            }
        }
    }

    /// Receives for so many looks, if no other thread does, and ends when so many messages, or parts of such,
    /// were handled. Returns whether the wait is over.
    pub(super) fn receive_at_once(&self, looks: u32, mut most: usize, ready: &mut Ready<'_>) -> bool {
        let Some(mut progress) = self.receiving.try_turn() else { return false };
        let mut over = false;
        for look in 0..looks {
            let records = progress.poll(self);
            if records > 0 {
                most = most.saturating_sub(records);
                self.receiving.wake_waiters();
            } else if look % QUIET_LOOKS != 0 {
                polyduct_os::sync::spin_hint();
                continue;
            }
            over = self.is_over(ready, Some(&mut progress));
            if over || most == 0 || self.receiving.is_wanted() {
                break;
            }
        }
        drop(progress);
        // Another thread takes over.
        self.receiving.wake_waiters();
        over
    }

    /// Handles all that is there, and not all that comes meanwhile: more than any ring holds.
    fn drain_with(&self, progress: &mut Progress) {
        let mut left = DRAIN;
        while left > 0 && progress.poll(self) > 0 {
            left -= 1;
        }
    }

    /// Receives until the wait is over, asleep in between, or another thread asks for it. Returns whether the
    /// wait is over.
    fn receive_until(&self, until: Duration, ready: &mut Ready<'_>) -> bool {
        let Some(mut progress) = self.receiving.try_turn() else { return false };
        // Whether peers were told that somebody is about to sleep.
        let asleep = Cell::new(false);
        // One look takes a part of what is there, and no peer calls for the rest: who finds something looks
        // again, since it may be about to sleep.
        let look = |progress: &mut Progress| loop {
            let records = progress.poll(self);
            if records > 0 {
                self.receiving.wake_waiters();
            }
            if self.is_over(ready, Some(progress)) {
                return Some(true);
            }
            if self.receiving.is_wanted() {
                return Some(false);
            }
            // New links, found now: their peers have not been told that somebody is about to sleep.
            let tell = records == 0 && asleep.get() && progress.has_unarmed();
            if tell {
                progress.arm();
            }
            if (records == 0 && !tell) || clock::now() >= until {
                // Here, since what was found after it was about to sleep has it look at the sockets again.
                if asleep.get() {
                    self.net.iter().for_each(|net| net.rest());
                }
                return None;
            }
        };
        let arm = |progress: &mut Progress| {
            asleep.set(true);
            progress.arm();
        };
        let over = self.receiving.sleep_for(&mut progress, until, look, arm);
        drop(progress);
        // Another thread takes over.
        self.receiving.wake_waiters();
        over.unwrap_or(false)
    }

    /// Waits while another thread receives for all. Returns whether the wait is over: that a unit is gone is
    /// settled by who receives.
    fn wait_turn(&self, time: Duration, ready: &mut Ready<'_>) -> bool {
        let mut over = Over::No;
        self.receiving.wait_for_others(time, || {
            over = ready(self);
            over != Over::No
        });
        over == Over::Yes
    }

    /// Whether the wait is over. That a unit is gone counts only when nothing is left of what it sent before.
    fn is_over(&self, ready: &mut Ready<'_>, progress: Option<&mut Progress>) -> bool {
        match ready(self) {
            Over::No => return false,
            Over::Yes => return true,
            Over::Loss => {}
        }
        match progress {
            Some(progress) => self.drain_with(progress),
            None => {
                self.drain_with(&mut self.receiving.turn());
                self.receiving.wake_waiters();
            }
        }
        // If it is still gone, and nothing came, then that is it.
        ready(self);
        true
    }

    /// Ends calls that came to their deadline, and tells their callees.
    /// Returns whether there were such.
    pub(super) fn late_calls(&self, now: Duration) -> bool {
        let late = self.calls().handle_time(now);
        let any = !late.is_empty();
        for (unit, number) in late {
            // A callee that cannot be told answers for nothing.
            let _ = self.push(unit, Head { handler: system::CANCEL, args: [number, 0, 0, 0] }, Vec::new());
        }
        any
    }
}

pub(super) fn is_loss(error: &MessageError) -> bool {
    matches!(error, MessageError::PeerLost { .. } | MessageError::PeerLeft { .. })
}
