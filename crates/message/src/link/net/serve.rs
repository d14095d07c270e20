//! An endpoint's sockets are served by its thread or by the program that polls: [`Serving`](super::serving)
//! says by which.

use super::batch::Batch;
use super::config::{NetEvent, Transport, Waker};
use super::events::Events;
use super::hub::NetHub;
use super::serving::{Look, Serving};
use crate::error::MessageError;
use crate::types::Address;
use core::time::Duration;
use polyduct_os::poll::{poll, EventFd, PollItem};
use polyduct_os::{clock, OsError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The number of [`Shared::wake`] among the sockets.
pub const WAKE: u64 = 0;

/// What the program's threads and the endpoint's have in common.
pub struct Shared<B> {
    pub events: Arc<Events>,
    pub wake: EventFd,
    /// The thread is to end.
    pub stop: AtomicBool,
    /// Until when the thread sleeps that a program keeps away which looks at the sockets itself, in
    /// nanoseconds of [`clock::now`]. The thread is woken where this becomes sooner.
    pub away_until: AtomicU64,
    pub state: Mutex<State<B>>,
    pub told: Condvar,
    pub waker: Option<Waker>,
}

/// What only one of them has at a time.
pub struct State<B> {
    pub hub: NetHub<B>,
    /// Until when the thread sleeps, at most; `None` while it does not, or is woken.
    pub sleeps_until: Option<Duration>,
    /// The thread keeps away from the sockets.
    pub away: bool,
    /// When something is due next, as far as that is known: the program finds out again with each tick.
    due: Option<Duration>,
    pub serving: Serving,
    pub batch: Batch,
    /// What a look finds.
    found: Vec<u64>,
    /// The sockets are of no further use.
    pub failed: Option<OsError>,
    /// Threads of the program that sleep until there are events.
    pub waiting: usize,
}

impl<B: AsMut<[u8]>> State<B> {
    pub fn new(hub: NetHub<B>) -> State<B> {
        let serving = match hub.config.transport {
            Transport::Tcp => Serving::default(),
            Transport::Udp => Serving::of_datagrams(),
        };
        State {
            hub,
            sleeps_until: None,
            away: false,
            due: None,
            serving,
            batch: Batch::default(),
            found: Vec::with_capacity(64),
            failed: None,
            waiting: 0,
        }
    }

    /// Until when the thread is to keep away, if it is: no longer than until something is due.
    fn away_until(&self) -> Option<Duration> {
        let until = self.serving.away_until()?;
        Some(self.due.into_iter().chain(self.batch.deadline()).fold(until, Duration::min))
    }

    pub fn check(&self, unit: Address, units: u32) -> Result<(), MessageError> {
        if unit >= units {
            return Err(MessageError::NoUnit { to: unit, units });
        }
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        match self.hub.lost.get(&unit) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl<B: AsMut<[u8]>> Shared<B> {
    pub fn lock(&self) -> MutexGuard<'_, State<B>> {
        // A panic (in a `give`, say) has been heard; the state is never left between two invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happened next, if anything did: what the thread has served, or else the program itself.
    pub fn poll(&self, state: &mut State<B>) -> Result<Option<NetEvent<B>>, MessageError> {
        let now = clock::now();
        if state.batch.look(now) {
            self.send_batch(state, now)?;
        }
        let mut event = state.hub.poll_event(now);
        if event.is_none() && self.look(state, now)? {
            event = state.hub.poll_event(clock::now());
        }
        if let (None, Some(error)) = (&event, &state.failed) {
            return Err(error.clone().into());
        }
        // Taking a message is news to its sender, which is sent when it is time.
        match &event {
            None => self.reconsider_all(state)?,
            Some(NetEvent::Message { from: unit, .. } | NetEvent::Left { unit }) => {
                self.reconsider(state, *unit)?
            }
            Some(_) => {}
        }
        if event.is_some() {
            state.serving.wake();
        }
        Ok(event)
    }

    /// Looks at the sockets in the thread's place. Returns whether there was anything.
    fn look(&self, state: &mut State<B>, now: Duration) -> Result<bool, OsError> {
        if state.failed.is_some() {
            return Ok(false);
        }
        let State { serving, hub, .. } = state;
        let Some(at) = serving.look(now, || hub.recent()) else { return Ok(false) };
        self.stay_away(state);
        let mut any = at == Look::Recent && state.hub.read_recent(now);
        let mut served = Ok(());
        if at == Look::All {
            let mut found = std::mem::take(&mut state.found);
            let looked = self.events.wait(Some(Duration::ZERO), &mut found);
            served = looked.and_then(|()| self.handle(state, &found, now));
            any = found.iter().any(|&number| number != WAKE);
            state.found = found;
        }
        // This process may have been stopped since: what was found now is what others did meanwhile.
        let now = if any { clock::now() } else { now };
        if any {
            state.serving.found(now);
        }
        let ticks = state.serving.tick(now);
        let served = served.and_then(|()| match ticks {
            true => state.hub.handle_time(now).map(|next| state.due = next),
            false => Ok(()),
        });
        if let Err(error) = served {
            self.fail(state, error.clone());
            return Err(error);
        }
        // What came may have made deadlines, here or for strangers, that the thread's sleep knows nothing of.
        if any && !state.away && state.sleeps_until.take().is_some() {
            self.wake.signal()?;
        }
        // Others may sleep until there is just that, and this one takes a part of it.
        self.tell(state);
        Ok(any || ticks)
    }

    fn handle(&self, state: &mut State<B>, found: &[u64], now: Duration) -> Result<(), OsError> {
        state.hub.wakes(now);
        found.iter().filter(|n| **n != WAKE).try_for_each(|&number| state.hub.handle(number, now))
    }

    /// The sockets are of no further use: all who wait are told, and the thread ends.
    pub fn fail(&self, state: &mut State<B>, error: OsError) {
        tracing::error!(%error, "the sockets of this endpoint failed");
        state.failed.get_or_insert(error);
        // A thread that cannot be woken ends at its next deadline.
        let _ = self.wake.signal();
        self.told.notify_all();
        self.waker.iter().for_each(|wake| wake());
    }

    /// Wakes who waits for events, where there are any.
    fn tell(&self, state: &State<B>) {
        if state.hub.has_events() {
            if state.waiting > 0 {
                self.told.notify_all();
            }
            self.waker.iter().for_each(|wake| wake());
        }
    }

    /// The program does not look any more, until it has had news.
    pub fn rest(&self, state: &mut State<B>) -> Result<(), OsError> {
        self.send_batch(state, clock::now())?;
        state.serving.rest();
        self.call_back(state)
    }

    /// The thread is to serve the sockets at once.
    fn call_back(&self, state: &mut State<B>) -> Result<(), OsError> {
        if !std::mem::take(&mut state.away) {
            return Ok(());
        }
        state.sleeps_until = None;
        self.away_until.store(0, Ordering::Relaxed);
        self.wake.signal()
    }

    /// The program has looked: a thread that keeps away goes on doing so. Where it sleeps until a sooner time
    /// it is not woken, and finds this one then.
    fn stay_away(&self, state: &mut State<B>) {
        let Some(until) = state.away_until().filter(|_| state.away) else { return };
        if state.sleeps_until.is_some_and(|sleeps| sleeps < until) {
            state.sleeps_until = Some(until);
            self.away_until.store(until.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// After the session of a unit was used: the thread must not sleep beyond its new deadline, and has to go
    /// on with what its socket did not take.
    pub fn reconsider(&self, state: &mut State<B>, unit: Address) -> Result<(), OsError> {
        if state.away && state.hub.waits_to_write(unit) {
            state.serving.hand_back();
            return self.call_back(state);
        }
        // Where nothing is lost, that is when receipts have to go, about which nobody hurries, or far off. To
        // wake the thread for each of them would take the processor from the program.
        if state.away && state.hub.config.session.lossless {
            return Ok(());
        }
        let deadline = state.hub.peers.get_mut(&unit).and_then(|p| p.session.next_deadline());
        self.no_later_than(state, deadline)
    }

    /// Sends what waits for more messages.
    pub fn send_batch(&self, state: &mut State<B>, now: Duration) -> Result<(), OsError> {
        while let Some(unit) = state.batch.pop() {
            state.hub.pump(unit, now);
            self.reconsider(state, unit)?;
        }
        Ok(())
    }

    /// The thread is not to sleep beyond the time when what waits for more messages has to go.
    pub fn wait_for_more(&self, state: &mut State<B>) -> Result<(), OsError> {
        let deadline = state.batch.deadline();
        self.no_later_than(state, deadline)
    }

    /// The same after any session may have been used. While the thread keeps away, the program's ticks see to
    /// that.
    fn reconsider_all(&self, state: &mut State<B>) -> Result<(), OsError> {
        if state.away || state.sleeps_until.is_none() {
            return Ok(());
        }
        let deadlines = state.hub.peers.values_mut().filter(|p| p.gone.is_none());
        let earliest = deadlines.filter_map(|p| p.session.next_deadline()).min();
        self.no_later_than(state, earliest)
    }

    /// The thread does not sleep beyond that.
    fn no_later_than(&self, state: &mut State<B>, deadline: Option<Duration>) -> Result<(), OsError> {
        let Some(deadline) = deadline else { return Ok(()) };
        state.due = Some(state.due.map_or(deadline, |due| due.min(deadline)));
        if state.sleeps_until.is_none_or(|until| until <= deadline) {
            return Ok(());
        }
        state.sleeps_until = Some(deadline);
        if state.away {
            self.away_until.store(deadline.as_nanos() as u64, Ordering::Relaxed);
        }
        self.wake.signal()
    }

    /// The thread.
    pub fn run(&self) {
        if let Err(error) = self.serve() {
            self.fail(&mut self.lock(), error);
        }
    }

    fn serve(&self) -> Result<(), OsError> {
        let mut ready = Vec::with_capacity(64);
        loop {
            let (away, timeout) = {
                let mut state = self.lock();
                let now = clock::now();
                if state.failed.is_some() {
                    return Ok(());
                }
                self.handle(&mut state, &ready, now)?;
                if self.stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                // Before what is due is asked for: what goes now has deadlines of its own.
                if state.batch.deadline().is_some_and(|deadline| now >= deadline) {
                    self.send_batch(&mut state, now)?;
                }
                // Asked again: this process may have been stopped while it read.
                state.due = state.hub.handle_time(clock::now())?;
                let next = state.due.into_iter().chain(state.batch.deadline()).min();
                self.tell(&state);
                let until = state.serving.away(now).and_then(|_| state.away_until());
                state.away = until.is_some();
                state.sleeps_until = Some(until.or(next).unwrap_or(Duration::MAX));
                self.away_until.store(until.map_or(0, |until| until.as_nanos() as u64), Ordering::Relaxed);
                let left = |until: Duration| until.saturating_sub(clock::now());
                (until.map(left), next.map(left))
            };
            ready.clear();
            match away {
                Some(mut time) => {
                    // As long as the program goes on looking: to wait for the lock would only hold it up.
                    while !time.is_zero() && poll(&mut [PollItem::readable(&self.wake)], Some(time))? == 0 {
                        let until = Duration::from_nanos(self.away_until.load(Ordering::Relaxed));
                        time = until.saturating_sub(clock::now());
                    }
                }
                None => self.events.wait(timeout, &mut ready)?,
            }
            {
                let mut state = self.lock();
                (state.sleeps_until, state.away) = (None, false);
            }
            if away.is_some() || ready.contains(&WAKE) {
                self.wake.drain()?;
            }
        }
    }
}
