//! Receiving and waiting: one thread looks for all, the others sleep until it has found something.

use super::peer::lock;
use super::progress::Progress;
use super::{dispatch, system, Inner};
use crate::types::Head;
use crate::MessageError;
use polyduct_os::clock;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, TryLockError};
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
        let done = (0..LOOKS).find_map(|_| {
            let records = progress.poll(self);
            match records {
                0 => polyduct_os::sync::spin_hint(),
                _ => self.wake_waiters(),
            }
            self.settled(ready, Some(&mut progress))
        });
        drop(progress);
        // Another thread takes over.
        self.wake_waiters();
        done
    }

    /// The receiving side, if no other thread has it.
    fn try_progress(&self) -> Option<MutexGuard<'_, Progress>> {
        match self.progress.try_lock() {
            Ok(progress) => Some(progress),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Receives until `ready` gives something, asleep in between.
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
            let done = self.settled(ready, Some(progress));
            if records == 0 || done.is_some() || clock::now() >= until {
                return done;
            }
        };
        let found = self.bell.wait(&mut *progress, SPIN, until, look, Progress::arm);
        drop(progress);
        // Another thread takes over.
        self.wake_waiters();
        found
    }

    /// Waits while another thread receives for all.
    pub(super) fn wait_turn<T>(
        &self,
        time: Duration,
        ready: &mut Ready<'_, T>,
    ) -> Option<Result<T, MessageError>> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let guard = lock(&self.turn.0);
        let done = self.settled(ready, None);
        let taken = || matches!(self.progress.try_lock(), Err(TryLockError::WouldBlock));
        if done.is_none() && taken() {
            drop(self.turn.1.wait_timeout(guard, time));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// What `ready` gives. That a unit is gone counts only when nothing is left of what it sent before.
    pub(super) fn settled<T>(
        &self,
        ready: &mut Ready<'_, T>,
        progress: Option<&mut Progress>,
    ) -> Option<Result<T, MessageError>> {
        let mut ready = |inner: &Inner| ready(inner).or_else(|| inner.lost().map(Err));
        let first = ready(self)?;
        if !matches!(first, Err(MessageError::PeerLost { .. } | MessageError::PeerLeft { .. })) {
            return Some(first);
        }
        match progress {
            Some(progress) => while progress.poll(self) > 0 {},
            None => while lock(&self.progress).poll(self) > 0 {},
        }
        // If it is still gone, and nothing came, then that is it.
        Some(ready(self).unwrap_or(first))
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
