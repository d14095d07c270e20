//! Receiving: one thread at a time has the turn, looks at all links and calls the handlers; others that wait
//! sleep until it has.
//!
//! Links that bring nothing for a while are told to call (see [`crate::link::shm::bell`]), and are looked at
//! again when they have, so a domain of thousands of units looks at those few that are busy.

use super::handlers::Table;
use super::peer::{lock, try_lock};
use super::room::Buffer;
use super::Inner;
use crate::link::shm::{Bell, Incoming, Payload, Receiver};
use crate::types::Address;
use polyduct_os::spin::Spin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a wait spins before it sleeps, at most.
const SPIN: Duration = Duration::from_micros(50);
/// Looks at a link that brought nothing, before it is told to call.
const PATIENCE: u32 = 2000;
/// Links up to so many are always looked at: it costs less than to be called.
const FEW: usize = 8;
/// Looks at a link that bring nothing, from one question whether its unit is gone to the next.
const GONE: u32 = 64;

/// The thread that receives, those that wait for that, and what is new to them.
pub(super) struct Receiving {
    bell: Arc<Bell>,
    /// How long the thread that receives spins before it sleeps there.
    spin: Spin,
    progress: Mutex<Progress>,
    /// Threads that ask the one that receives to let them.
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

    /// Where the thread that receives sleeps.
    #[inline]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// A link to a unit stands: threads that receive look at it from now on.
    pub fn add_link(&self, from: Address, receiver: Receiver<Buffer>) {
        lock(&self.fresh).push((from, receiver));
        self.tell_news();
        self.bell.calls().ring();
    }

    /// The thread that receives looks at all links once more, and takes the handlers as they are now.
    pub fn tell_news(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The turn, if no other thread has it or asks for it.
    pub fn try_turn(&self) -> Option<MutexGuard<'_, Progress>> {
        if self.is_wanted() {
            return None;
        }
        try_lock(&self.progress)
    }

    /// The turn, which the thread that has it gives up. Not in a handler: this thread has it then.
    pub fn turn(&self) -> MutexGuard<'_, Progress> {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.bell.calls().ring();
        let progress = lock(&self.progress);
        self.wanted.fetch_sub(1, Ordering::SeqCst);
        progress
    }

    /// Whether a thread asks the one that receives to let it.
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

struct Inward {
    from: Address,
    receiver: Receiver<Buffer>,
    idle: u32,
    /// Its peer has been told to call.
    cold: bool,
    broken: bool,
}

/// The receiving side of all links.
#[derive(Default)]
pub struct Progress {
    links: Vec<Inward>,
    /// Which of them are looked at.
    hot: Vec<usize>,
    /// Some of those have not been told to call since they came to be.
    unarmed: bool,
    /// The number of a link at the bell is its unit's address: where that unit's link is in `links`.
    by_unit: Vec<Option<usize>>,
    /// The number of the latest news that it knows.
    news: u32,
    handlers: Table,
}

impl Progress {
    /// Looks at what has come, once. Returns the number of records handled.
    pub fn poll(&mut self, inner: &Inner) -> usize {
        self.take_news(inner);
        let calls = inner.receiving.bell.calls();
        if calls.any() {
            self.unarmed = true;
            let (links, hot, by_unit) = (&mut self.links, &mut self.hot, &self.by_unit);
            calls.take(|unit| {
                if let Some(&Some(i)) = by_unit.get(unit as usize) {
                    if std::mem::take(&mut links[i].cold) {
                        links[i].idle = 0;
                        hot.push(i);
                    }
                }
            });
        }
        let (mut records, few) = (0, self.links.len() <= FEW);
        let handlers = &self.handlers;
        let links = &mut self.links;
        self.hot.retain(|&i| {
            let link = &mut links[i];
            let found = link.look(inner, handlers);
            records += found;
            link.idle = if found > 0 { 0 } else { link.idle.saturating_add(1) };
            if link.idle % GONE == 1 && inner.units.is_gone(link.from) {
                link.receiver.forget_unfinished();
            }
            if few || link.idle < PATIENCE {
                return true;
            }
            link.receiver.ask_for_call();
            // What came before the peer could know is found now.
            let found = link.look(inner, handlers);
            records += found;
            // A sender that was refused may wait for room, and calls no more: its link is looked at until
            // that is taken.
            link.cold = found == 0 && link.receiver.is_empty();
            if !link.cold {
                link.idle = 0;
            }
            !link.cold
        });
        if let Some(net) = &inner.net {
            records += net.poll(inner, handlers);
        }
        if inner.units.has_backlog() {
            // Somebody may wait for just that.
            records += usize::from(!inner.flush_backlog());
        }
        inner.offer_room();
        records
    }

    /// Tells the peers of all links that are looked at to call: somebody is about to sleep.
    pub fn arm(&mut self) {
        self.unarmed = false;
        for &i in &self.hot {
            self.links[i].receiver.ask_for_call();
        }
    }

    /// Whether there are links to look at that [`arm`](Progress::arm) has not seen. A thread that finds such
    /// after it was about to sleep must tell them, too: their peers would write without a call.
    pub fn has_unarmed(&self) -> bool {
        self.unarmed
    }

    /// Links and handlers that are new, and units that are gone: what they leave unfinished holds room.
    fn take_news(&mut self, inner: &Inner) {
        let news = inner.receiving.epoch.load(Ordering::Acquire);
        if news == self.news {
            return;
        }
        self.news = news;
        self.unarmed = true;
        self.handlers = inner.handlers.table();
        for (from, receiver) in lock(&inner.receiving.fresh).drain(..) {
            let at = from as usize;
            if self.by_unit.len() <= at {
                self.by_unit.resize(at + 1, None);
            }
            self.by_unit[at] = Some(self.links.len());
            self.hot.push(self.links.len());
            self.links.push(Inward { from, receiver, idle: 0, cold: false, broken: false });
        }
        for (i, link) in self.links.iter_mut().enumerate().filter(|(_, link)| inner.units.is_gone(link.from))
        {
            link.idle = 0;
            if inner.units.has_broken(link.from) {
                link.broken = true;
                link.receiver.forget_all();
            }
            if std::mem::take(&mut link.cold) {
                self.hot.push(i);
            }
        }
    }
}

impl Inward {
    fn look(&mut self, inner: &Inner, handlers: &Table) -> usize {
        if self.broken {
            return 0;
        }
        let from = self.from;
        let mut give = |m: &Incoming| inner.buffer_for(from, m);
        let mut deliver =
            |m: &Incoming, payload: Payload<'_, Buffer>| inner.deliver(from, m, payload, handlers);
        match self.receiver.poll(&mut give, &mut deliver) {
            Ok(records) => records,
            Err(error) => {
                self.broken = true;
                self.receiver.forget_all();
                // A unit that has gone may have threads that still send, and what they began is forgotten.
                if !inner.units.is_gone(from) {
                    inner.broke(from, error);
                }
                1
            }
        }
    }
}
