//! The turn to receive: one thread has it and looks for all, the others sleep until it has found something.

use super::peer::{lock, try_lock};
use super::progress::Progress;
use super::room::Buffer;
use crate::link::shm::{Bell, Receiver};
use crate::types::Address;
use polyduct_os::spin::Spin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a wait spins before it sleeps, at most.
const SPIN: Duration = Duration::from_micros(50);

/// Who receives, who waits for that, and what is new to whoever does.
pub(super) struct Receiving {
    bell: Arc<Bell>,
    /// How long who receives spins before it sleeps there.
    spin: Spin,
    progress: Mutex<Progress>,
    /// Threads that ask whoever receives to let them.
    wanted: AtomicUsize,
    /// Those who wait while another thread looks: rung, and counted, after it has handled something and when
    /// it stops looking.
    found: (Mutex<u64>, Condvar),
    waiters: AtomicUsize,
    /// Links that progress does not know yet.
    fresh: Mutex<Vec<(Address, Receiver<Buffer>)>>,
    /// Rises with every new link, every new table of handlers and every unit that is gone.
    epoch: AtomicU32,
}

impl Receiving {
    /// Nobody receives yet. Peers ring at `bell`.
    pub fn new(bell: Arc<Bell>) -> Receiving {
        Receiving {
            bell,
            spin: Spin::new(SPIN),
            progress: Mutex::default(),
            wanted: AtomicUsize::new(0),
            found: Default::default(),
            waiters: AtomicUsize::new(0),
            fresh: Mutex::default(),
            epoch: AtomicU32::new(0),
        }
    }

    /// Where whoever receives sleeps.
    #[inline]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// A link to a unit stands: whoever receives looks at it from now on.
    pub fn add_link(&self, from: Address, receiver: Receiver<Buffer>) {
        lock(&self.fresh).push((from, receiver));
        self.tell_news();
        self.bell.calls().ring();
    }

    /// Whoever receives looks at all links once more, and takes the handlers as they are now.
    pub fn tell_news(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The number of the latest news.
    #[inline]
    pub fn news(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The links that were [added](Receiving::add_link) since this was last asked.
    pub fn take_links(&self) -> Vec<(Address, Receiver<Buffer>)> {
        std::mem::take(&mut *lock(&self.fresh))
    }

    /// The turn, if no other thread has it or asks for it.
    pub fn try_turn(&self) -> Option<MutexGuard<'_, Progress>> {
        if self.is_wanted() {
            return None;
        }
        try_lock(&self.progress)
    }

    /// The turn, which whoever has it gives up. Not in a handler: this thread has it then.
    pub fn turn(&self) -> MutexGuard<'_, Progress> {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.bell.calls().ring();
        let progress = lock(&self.progress);
        self.wanted.fetch_sub(1, Ordering::SeqCst);
        progress
    }

    /// Whether a thread asks whoever receives to let it.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// Has everybody who waits look again.
    pub fn stir(&self) {
        self.bell.calls().ring();
        self.wake_waiters();
    }

    /// Has those look again who wait while another thread receives.
    pub fn wake_waiters(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let mut found = lock(&self.found.0);
            *found = found.wrapping_add(1);
            self.found.1.notify_all();
        }
    }

    /// Waits for so long, at most, while another thread receives, unless `is_over`. That is asked while no
    /// lock is held: it may itself wake those who wait.
    pub fn wait_for_others(&self, time: Duration, is_over: impl FnOnce() -> bool) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let seen = *lock(&self.found.0);
        if !is_over() && self.try_turn().is_none() {
            let found = lock(&self.found.0);
            if *found == seen {
                drop(self.found.1.wait_timeout(found, time));
            }
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Calls `look` until it gives something, asleep in between; `None` at the time `until`. `arm` has the
    /// peers call, and comes before each sleep.
    pub fn sleep_for<T>(
        &self,
        progress: &mut Progress,
        until: Duration,
        look: impl FnMut(&mut Progress) -> Option<T>,
        arm: impl FnMut(&mut Progress),
    ) -> Option<T> {
        self.bell.wait(progress, &self.spin, until, look, arm)
    }
}
