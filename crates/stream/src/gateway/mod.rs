//! Gateways: threads that carry out what the [manager](crate::Manager) decides, a thread for each stream.
//!
//! | module | idea |
//! |---|---|
//! | [`transmit`] | from a program to lanes: a thread that fills one buffer while others are sent |
//! | [`receive`] | from a lane to a program, straight into its slots |
//! | [`lanes`] | what carries striping units |
//! | [`tcp`] | lanes of ordinary TCP connections |
//! | [`udp`] | datagrams, and raw video |
//! | [`window`] | a frame buffer that others map |
//! | [`far`] | lanes between gateways of two sites |

pub mod far;
pub mod lanes;
pub mod receive;
pub mod tcp;
pub mod transmit;
pub mod udp;
pub mod window;

use crate::{Capacity, Direction, Format};
use crate::{ControlError, GroupId, Manager, Order, Status, StreamError, StreamId, Ties};
use polyduct_os::clock;
use polyduct_port::Interrupt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a gateway has, where nothing else is said: buffers for some streams of large steps, and lanes.
pub const CAPACITY: Capacity = Capacity { buffer_bytes: 256 << 20, lanes: 256 };

/// A gateway: all that its streams share. Clones are the same gateway.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    manager: Manager,
    /// What the threads are to do.
    letters: BTreeMap<StreamId, Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    begun: VecDeque<(u64, u64)>,
    holds: bool,
    /// Was failed from outside.
    stopped: Option<String>,
    /// It is known what comes: the program's pipe is open, and tells of its end.
    ready: bool,
}

impl Inner {
    /// Why a stream was stopped, and whether it is ready.
    fn how(&self, stream: StreamId) -> (Option<String>, bool) {
        let letters = self.letters.get(&stream);
        letters.map_or((None, false), |letters| (letters.stopped.clone(), letters.ready))
    }
}

impl Gateway {
    /// With so much to share out.
    pub fn new(all: Capacity) -> Gateway {
        let inner = Inner { manager: Manager::new(all), letters: BTreeMap::new() };
        Gateway(Arc::new(Shared { state: Mutex::new(inner), changed: Condvar::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the manager, and hands out what it orders.
    fn tell<T>(
        &self,
        ask: impl FnOnce(&mut Manager, Duration) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let mut inner = self.lock();
        let told = ask(&mut inner.manager, clock::now());
        while let Some(order) = inner.manager.poll() {
            match order {
                Order::SwapIn(id) => inner.letters.entry(id).or_default().holds = true,
                Order::SwapOut(id) => inner.letters.entry(id).or_default().holds = false,
                Order::Begin { stream, adu, len } => {
                    inner.letters.entry(stream).or_default().begun.push_back((adu, len));
                }
                Order::Fail(id, why) => inner.letters.entry(id).or_default().stopped = Some(why),
                Order::End(_) => {}
            }
        }
        drop(inner);
        self.0.changed.notify_all();
        told
    }

    /// A stream to or from a place takes its place among others. It is forgotten when the [`Lease`] is
    /// dropped.
    ///
    /// # Errors
    /// As [`Manager::enter`].
    pub fn enter(&self, place: &str, direction: Direction, ties: &Ties) -> Result<Lease, ControlError> {
        let stream = self.tell(|manager, now| manager.enter(place, direction, ties, now))?;
        self.lock().letters.entry(stream).or_default();
        Ok(Lease { gateway: self.clone(), stream, place: place.to_owned(), gone: None })
    }

    /// All that it has.
    pub fn status(&self) -> Status {
        self.lock().manager.status(clock::now())
    }

    /// No further step of the stream begins.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn pause(&self, id: StreamId) -> Result<(), ControlError> {
        self.tell(|manager, now| manager.pause(id, now))
    }

    /// The stream goes on.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn resume(&self, id: StreamId) -> Result<(), ControlError> {
        self.tell(|manager, now| manager.resume(id, now))
    }

    /// Changes the quantum of a stream.
    ///
    /// # Errors
    /// As [`Manager::set_quantum`].
    pub fn set_quantum(&self, id: StreamId, quantum: u32) -> Result<(), ControlError> {
        self.tell(|manager, now| manager.set_quantum(id, quantum, now))
    }

    /// Changes the priority of a stream.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn set_priority(&self, id: StreamId, priority: i32) -> Result<(), ControlError> {
        self.tell(|manager, now| manager.set_priority(id, priority, now))
    }

    /// Has a stream fail: its program is told why.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn close(&self, id: StreamId, why: &str) -> Result<(), ControlError> {
        self.tell(|manager, now| manager.fail(id, why, now))?;
        // One whose lease is gone meanwhile is told nothing.
        self.lock()
            .letters
            .get_mut(&id)
            .into_iter()
            .for_each(|letters| letters.stopped = Some(why.to_owned()));
        self.0.changed.notify_all();
        Ok(())
    }
}

/// A stream of a gateway, for the thread that moves its data.
pub struct Lease {
    gateway: Gateway,
    stream: StreamId,
    /// Its name among people.
    place: String,
    gone: Option<Interrupt>,
}

impl Lease {
    /// The stream's number.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Its group, if it is in one.
    pub fn group(&self) -> Option<GroupId> {
        self.gateway.lock().manager.spec(self.stream).ok().and_then(|spec| spec.group)
    }

    /// Asked while it waits for others, or for its program's pipe: whether its program is gone, which nothing
    /// else tells then.
    pub fn gives_up_when(&mut self, gone: impl Fn() -> bool + Send + Sync + 'static) {
        self.gone = Some(Arc::new(gone));
    }

    /// Says whether the stream is to be given up.
    pub fn watch(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let (gateway, stream, gone) = (self.gateway.clone(), self.stream, self.gone.clone());
        move || {
            let (stopped, ready) = gateway.lock().how(stream);
            stopped.is_some() || (!ready && gone.as_ref().is_some_and(|gone| gone()))
        }
    }

    /// Why the stream is to be given up, if it is.
    ///
    /// # Errors
    /// [`StreamError::Stopped`].
    pub fn check_given_up(&self) -> Result<(), StreamError> {
        self.check_stopped()?;
        let (_, ready) = self.gateway.lock().how(self.stream);
        if ready {
            Ok(())
        } else {
            self.check_program()
        }
    }

    /// It is known what comes: units of these sizes, in so many buffers.
    ///
    /// # Errors
    /// [`StreamError::Control`].
    pub fn ready(&self, format: Format, buffers: u32) -> Result<(), StreamError> {
        self.check_stopped()?;
        self.gateway.tell(|manager, now| manager.ready(self.stream, format, buffers, now))?;
        self.gateway.lock().letters.entry(self.stream).or_default().ready = true;
        Ok(())
    }

    /// Its next step is there.
    ///
    /// # Errors
    /// [`StreamError::Control`], [`StreamError::Stopped`].
    pub fn offer(&self, len: u64) -> Result<(), StreamError> {
        self.check_stopped()?;
        Ok(self.gateway.tell(|manager, now| manager.offer(self.stream, len, now))?)
    }

    /// The number of the next step that may begin, if one may.
    ///
    /// # Errors
    /// [`StreamError::Stopped`].
    pub fn begun(&self) -> Result<Option<u64>, StreamError> {
        self.look(&mut self.gateway.lock())
    }

    /// The same, once one may. `again` is asked now and then: give up?
    ///
    /// # Errors
    /// [`StreamError::Stopped`].
    pub fn wait_begun(&self, again: &dyn Fn() -> bool) -> Result<u64, StreamError> {
        let (slice, mut asked) = (polyduct_port::INTERRUPT_SLICE, clock::now());
        loop {
            {
                let mut inner = self.gateway.lock();
                if let Some(adu) = self.look(&mut inner)? {
                    return Ok(adu);
                }
                let waited = self.gateway.0.changed.wait_timeout(inner, slice);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            if again() {
                self.check_stopped()?;
                return Err(self.stopped("the program gave up"));
            }
            if clock::now().saturating_sub(asked) >= slice {
                asked = clock::now();
                self.check_program()?;
            }
        }
    }

    /// Whether the program is still there, while the stream waits for others.
    ///
    /// # Errors
    /// [`StreamError::Stopped`].
    pub fn check_program(&self) -> Result<(), StreamError> {
        match self.gone.as_ref().is_some_and(|gone| gone()) {
            true => Err(self.stopped("its program is gone")),
            false => Ok(()),
        }
    }

    fn look(&self, inner: &mut Inner) -> Result<Option<u64>, StreamError> {
        let letters = inner.letters.entry(self.stream).or_default();
        match &letters.stopped {
            Some(why) => Err(self.stopped(why)),
            None => Ok(letters.begun.pop_front().map(|(adu, _)| adu)),
        }
    }

    /// Whether somebody has stopped the stream.
    ///
    /// # Errors
    /// [`StreamError::Stopped`], with why.
    pub fn check_stopped(&self) -> Result<(), StreamError> {
        let (stopped, _) = self.gateway.lock().how(self.stream);
        stopped.map_or(Ok(()), |why| Err(self.stopped(&why)))
    }

    /// Whether the stream goes on: nobody has stopped it, and `again` does not say to give up.
    ///
    /// # Errors
    /// [`StreamError::Stopped`].
    pub fn check_going(&self, again: &dyn Fn() -> bool) -> Result<(), StreamError> {
        self.check_stopped()?;
        match again() {
            true => Err(self.stopped("the program gave up")),
            false => Ok(()),
        }
    }

    fn stopped(&self, why: &str) -> StreamError {
        StreamError::stopped(&self.place, why)
    }

    /// Whether the stream has its buffers.
    pub fn holds(&self) -> bool {
        self.gateway.lock().letters.get(&self.stream).is_some_and(|letters| letters.holds)
    }

    /// The oldest step that began was moved.
    ///
    /// # Errors
    /// [`StreamError::Control`].
    pub fn moved(&self) -> Result<(), StreamError> {
        Ok(self.gateway.tell(|manager, now| manager.moved(self.stream, now))?)
    }

    /// There are no more steps.
    ///
    /// # Errors
    /// [`StreamError::Control`].
    pub fn no_more(&self) -> Result<(), StreamError> {
        Ok(self.gateway.tell(|manager, now| manager.no_more(self.stream, now))?)
    }

    /// The stream takes no part after all, before its first step: those of its group wait for another in its place.
    pub fn withdraw(&self) {
        // One that was failed meanwhile is over already.
        let _ = self.gateway.tell(|manager, now| manager.withdraw(self.stream, now));
    }

    /// The stream is over: as it should be, or else why. Those of its group are told.
    pub fn end<T>(&self, how: &Result<T, StreamError>) {
        // One that has ended, or was failed, is over already.
        let _ = self.gateway.tell(|manager, now| match how {
            Ok(_) => manager.end(self.stream, now),
            Err(error) => manager.fail(self.stream, &error.to_string(), now),
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.gateway.tell(|manager, now| {
            // One that has ended is over already.
            let _ = manager.fail(self.stream, "closed", now);
            let connection = manager.spec(self.stream)?.connection;
            manager.forget(self.stream);
            // Others may have it still.
            manager.disconnect(connection)
        });
        self.gateway.lock().letters.remove(&self.stream);
    }
}
