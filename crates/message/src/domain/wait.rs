//! Receiving and waiting: one thread looks for all, the others sleep until it has found something.

use super::peer::{lock, try_lock};
use super::progress::Progress;
use super::{dispatch, system, Inner};
use crate::types::Head;
use crate::MessageError;
use polyduct_os::clock;
use std::sync::atomic::Ordering;
use std::sync::MutexGuard;
use std::time::Duration;

/// How long a wait spins before it sleeps.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// Looks before a wait asks for the time: about a microsecond.
const LOOKS: u32 = 64;
/// How often a sleeper looks for an interrupt.
const SLICE: Duration = Duration::from_millis(100);

/// What a wait asks again and again.
type Ready<'a, T> = dyn FnMut(&Inner) -> Option<Result<T, MessageError>> + 'a;

impl Inner {
    pub(super) fn poll(&self) -> Option<usize> {
        let mut progress = self.try_progress()?;
        let records = progress.poll(self);
        drop(progress);
        if records > 0 {
            self.wake_waiters();
        }
        Some(records)
    }

    /// Has everybody who waits look again.
    pub(super) fn stir(&self) {
        self.bell.calls().ring();
        self.wake_waiters();
    }

    pub(super) fn wake_waiters(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.turn.0));
            self.turn.1.notify_all();
        }
    }

    /// Waits until `ready` gives something, handling what comes meanwhile. `deadline` is a time of [`clock::now`]; without
    /// one, the timeout of the options holds.
    pub(super) fn wait<T>(
        &self,
        what: &str,
        deadline: Option<Duration>,
        mut ready: impl FnMut(&Inner) -> Option<Result<T, MessageError>>,
    ) -> Result<T, MessageError> {
        let ready: &mut Ready<'_, T> = &mut ready;
        if dispatch::in_handler() {
            // The thread that would have to receive is this one.
            return ready(self).unwrap_or(Err(MessageError::InHandler));
        }
        // Answered without a look at the clock where what is waited for is there, or comes at once.
        if let Some(done) = self.receive_at_once(ready) {
            return done;
        }
        let start = clock::now();
        let deadline = deadline.or(self.options.timeout.map(|t| start + t)).unwrap_or(Duration::MAX);
        for round in 0u32.. {
            let polled = self.poll();
            if let Some(done) = self.settled(ready, None) {
                return done;
            }
            if round > 0 && self.options.interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(MessageError::Interrupted);
            }
            let now = clock::now();
            if self.late_calls(now) {
                continue;
            }
            if now >= deadline {
                return Err(MessageError::Timeout { what: what.to_owned(), waited: now - start });
            }
            let until =
                deadline.min(now + SLICE).min(lock(&self.calls).next_deadline().unwrap_or(Duration::MAX));
            let done = match polled {
                Some(0) => self.receive_until(until, ready),
                Some(_) => None,
                None => self.wait_turn(until.saturating_sub(now), ready),
            };
            if let Some(done) = done {
                return done;
            }
        }
        unreachable!("2^32 rounds of waiting")
    }

    /// Receives for the time of an answer by memory, if no other thread does.
    fn receive_at_once<T>(&self, ready: &mut Ready<'_, T>) -> Option<Result<T, MessageError>> {
        let mut progress = self.try_progress()?;
        let mut done = None;
        for _ in 0..LOOKS {
            match progress.poll(self) {
                0 => polyduct_os::sync::spin_hint(),
                _ => self.wake_waiters(),
            }
            done = self.settled(ready, Some(&mut progress));
            if done.is_some() || self.is_wanted() {
                break;
            }
        }
        drop(progress);
        // Another thread takes over.
        self.wake_waiters();
        done
    }

    /// The receiving side, if no other thread has it or asks for it.
    fn try_progress(&self) -> Option<MutexGuard<'_, Progress>> {
        if self.is_wanted() {
            return None;
        }
        try_lock(&self.progress)
    }

    /// Whether a thread asks whoever receives to let it.
    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// Handles all that is there, whoever receives. Not while [`Inner::turn`] is held, nor in a handler: who receives may need
    /// the first, and is this thread in the second.
    fn drain(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.bell.calls().ring();
        let mut progress = lock(&self.progress);
        self.wanted.fetch_sub(1, Ordering::SeqCst);
        while progress.poll(self) > 0 {}
        drop(progress);
        self.wake_waiters();
    }

    /// Receives until `ready` gives something, asleep in between, or another thread asks for it.
    pub(super) fn receive_until<T>(
        &self,
        until: Duration,
        ready: &mut Ready<'_, T>,
    ) -> Option<Result<T, MessageError>> {
        let mut progress = self.try_progress()?;
        // One look takes a part of what is there, and no peer calls for the rest: who finds something looks again, since
        // it may be about to sleep.
        let look = |progress: &mut Progress| loop {
            let records = progress.poll(self);
            if records > 0 {
                self.wake_waiters();
            }
            if let Some(done) = self.settled(ready, Some(progress)) {
                return Some(Some(done));
            }
            if self.is_wanted() {
                return Some(None);
            }
            if records == 0 || clock::now() >= until {
                return None;
            }
        };
        let found = self.bell.wait(&mut *progress, SPIN, until, look, Progress::arm);
        drop(progress);
        // Another thread takes over.
        self.wake_waiters();
        found.flatten()
    }

    /// Waits while another thread receives for all.
    pub(super) fn wait_turn<T>(
        &self,
        time: Duration,
        ready: &mut Ready<'_, T>,
    ) -> Option<Result<T, MessageError>> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let guard = lock(&self.turn.0);
        // That a unit is gone is settled without this lock, by who waits.
        let done = self.ready(ready);
        if done.is_none() && self.try_progress().is_none() {
            drop(self.turn.1.wait_timeout(guard, time));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        done.filter(|done| !is_loss(done))
    }

    /// What `ready` gives. That a unit is gone counts only when nothing is left of what it sent before.
    pub(super) fn settled<T>(
        &self,
        ready: &mut Ready<'_, T>,
        progress: Option<&mut Progress>,
    ) -> Option<Result<T, MessageError>> {
        let first = self.ready(ready)?;
        if !is_loss(&first) {
            return Some(first);
        }
        match progress {
            Some(progress) => while progress.poll(self) > 0 {},
            None => self.drain(),
        }
        // If it is still gone, and nothing came, then that is it.
        Some(self.ready(ready).unwrap_or(first))
    }

    fn ready<T>(&self, ready: &mut Ready<'_, T>) -> Option<Result<T, MessageError>> {
        ready(self).or_else(|| self.lost().map(Err))
    }

    /// Ends calls that came to their deadline, and tells their callees.
    /// Returns whether there were such.
    pub(super) fn late_calls(&self, now: Duration) -> bool {
        let late = lock(&self.calls).handle_time(now);
        let any = !late.is_empty();
        for (unit, number) in late {
            // A callee that cannot be told answers for nothing.
            let _ = self.push(unit, Head { handler: system::CANCEL, args: [number, 0, 0, 0] }, Vec::new());
        }
        any
    }
}

fn is_loss<T>(done: &Result<T, MessageError>) -> bool {
    matches!(done, Err(MessageError::PeerLost { .. } | MessageError::PeerLeft { .. }))
}
