//! An endpoint's sockets are served by its thread or by the program that polls: [`Serving`](super::serving)
//! says by which.

use super::batch::Batch;
use super::config::{NetEvent, Waker};
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
    /// Until when a program that looks at the sockets itself keeps the thread away, in nanoseconds of
    /// [`clock::now`].
    pub away_until: AtomicU64,
    pub state: Mutex<State<B>>,
    pub told: Condvar,
    pub waker: Option<Waker>,
}

/// What only one of them has at a time.
pub struct State<B> {
    pub hub: NetHub<B>,
    /// Until when the thread sleeps at the sockets, at most; `None` while it does not.
    sleeps_until: Option<Duration>,
    /// The thread keeps away from the sockets.
    away: bool,
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
        State {
            hub,
            sleeps_until: None,
            away: false,
            serving: Serving::default(),
            batch: Batch::default(),
            found: Vec::with_capacity(64),
            failed: None,
            waiting: 0,
        }
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
        let State { serving, hub, failed, .. } = state;
        let Some(at) = serving.look(now, || hub.recent()).filter(|_| failed.is_none()) else {
            return Ok(false);
        };
        let until = serving.away_until().map_or(0, |until| until.as_nanos() as u64);
        self.away_until.store(until, Ordering::Relaxed);
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
            true => state.hub.handle_time(now).map(drop),
            false => Ok(()),
        });
        if let Err(error) = served {
            self.fail(state, error.clone());
            return Err(error);
        }
        // What came may have made deadlines, here or for strangers, that the thread's sleep knows nothing of.
        if any && state.sleeps_until.take().is_some() {
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
        match std::mem::take(&mut state.away) {
            true => self.wake.signal(),
            false => Ok(()),
        }
    }

    /// After the session of a unit was used: the thread must not sleep beyond its new deadline, and has to go
    /// on with what its socket did not take.
    pub fn reconsider(&self, state: &mut State<B>, unit: Address) -> Result<(), OsError> {
        if state.away && state.hub.waits_to_write(unit) {
            state.serving.hand_back();
            return self.call_back(state);
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

    /// The same after any session may have been used.
    fn reconsider_all(&self, state: &mut State<B>) -> Result<(), OsError> {
        if state.sleeps_until.is_none() {
            return Ok(());
        }
        let deadlines = state.hub.peers.values_mut().filter(|p| p.gone.is_none());
        let earliest = deadlines.filter_map(|p| p.session.next_deadline()).min();
        self.no_later_than(state, earliest)
    }

    /// The thread does not sleep at the sockets beyond that.
    fn no_later_than(&self, state: &mut State<B>, deadline: Option<Duration>) -> Result<(), OsError> {
        match (deadline, state.sleeps_until) {
            (Some(deadline), Some(until)) if deadline < until => {
                state.sleeps_until = Some(deadline);
                self.wake.signal()
            }
            _ => Ok(()),
        }
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
                let next = state.hub.handle_time(clock::now())?;
                let next = next.into_iter().chain(state.batch.deadline()).min();
                self.tell(&state);
                let away = state.serving.away(now);
                state.away = away.is_some();
                state.sleeps_until = away.is_none().then(|| next.unwrap_or(Duration::MAX));
                (away, next.map(|t| t.saturating_sub(clock::now())))
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
