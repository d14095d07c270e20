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
use crate::{ConnectionId, ControlError, Manager, Order, Spec, Status, StreamError, StreamId};
use polyduct_os::clock;
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
                Order::End(_) => {}
            }
        }
        drop(inner);
        self.0.changed.notify_all();
        told
    }

    /// A connection to a place of this name, and a stream over it. The stream and the connection are forgotten when the
    /// [`Lease`] is dropped.
    ///
    /// # Errors
    /// As [`Manager::connect`] and [`Manager::register`].
    pub fn register(
        &self,
        name: &str,
        spec: impl FnOnce(ConnectionId) -> Spec,
    ) -> Result<Lease, ControlError> {
        let (connection, stream) = self.tell(|manager, now| {
            let connection = manager.connect(name)?;
            match manager.register(spec(connection), now) {
                Ok(stream) => Ok((connection, stream)),
                Err(error) => {
                    manager.disconnect(connection)?;
                    Err(error)
                }
            }
        })?;
        Ok(Lease { gateway: self.clone(), connection, stream })
    }

    /// A stream of two buffers of these sizes, one way.
    pub fn usual(direction: Direction, format: Format) -> impl FnOnce(ConnectionId) -> Spec {
        move |connection| Spec::new(connection, direction, format)
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
        self.lock().letters.entry(id).or_default().stopped = Some(why.to_owned());
        self.0.changed.notify_all();
        Ok(())
    }
}

/// A stream of a gateway, for the thread that moves its data.
#[derive(Debug)]
pub struct Lease {
    gateway: Gateway,
    connection: ConnectionId,
    stream: StreamId,
}

impl Lease {
    /// The stream's number.
    pub fn stream(&self) -> StreamId {
        self.stream
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
        let mut inner = self.gateway.lock();
        loop {
            if let Some(adu) = self.look(&mut inner)? {
                return Ok(adu);
            }
            if again() {
                return Err(StreamError::Stopped { why: "the program gave up".into() });
            }
            let slice = polyduct_port::INTERRUPT_SLICE;
            inner =
                self.gateway.0.changed.wait_timeout(inner, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn look(&self, inner: &mut Inner) -> Result<Option<u64>, StreamError> {
        let letters = inner.letters.entry(self.stream).or_default();
        match &letters.stopped {
            Some(why) => Err(StreamError::Stopped { why: why.clone() }),
            None => Ok(letters.begun.pop_front().map(|(adu, _)| adu)),
        }
    }

    /// Whether somebody has stopped the stream.
    ///
    /// # Errors
    /// [`StreamError::Stopped`], with why.
    pub fn check_stopped(&self) -> Result<(), StreamError> {
        let stopped =
            self.gateway.lock().letters.get(&self.stream).and_then(|letters| letters.stopped.clone());
        stopped.map_or(Ok(()), |why| Err(StreamError::Stopped { why }))
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
}

impl Drop for Lease {
    fn drop(&mut self) {
        // One that has ended is over already.
        let _ = self.gateway.tell(|manager, now| manager.fail(self.stream, "closed", now));
        let _ = self.gateway.tell(|manager, _| manager.disconnect(self.connection));
        self.gateway.lock().letters.remove(&self.stream);
    }
}
