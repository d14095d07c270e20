//! The stream manager: all connections and streams of a gateway, as one state machine (iWarp's network interface, section
//! 5.3.2).
//!
//! Whoever moves the bytes tells it that steps are there ([`offer`](Manager::offer)) and were moved
//! ([`moved`](Manager::moved)), and does what [`poll`](Manager::poll) says. It has no clock, no thread and no memory for
//! data: real gateways and the simulator of the tests drive the same one.
//!
//! 1. A stream is *inactive* while the [dependence resolver](crate::Dependences) has something for its next step to wait
//!    for: a step, another stream, its group, somebody who lets it go on.
//! 2. Then it is *pending*, until the [resource scheduler](crate::Resources) swaps it in.
//! 3. Then it is *active*: its steps may begin, one for each [`Order::Begin`], until its quantum is over and others wait.

mod entry;
mod state;

use crate::control::{Direction, Spec, State, Status, StreamStatus, Ties, WaitsFor};
use crate::{Capacity, ConnectionId, ControlError, Dependences, Format, GroupId, Resources, StreamId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most streams, and the most connections, of a manager.
pub const MAX_STREAMS: usize = 4096;
/// Steps that are there and have not begun, of one stream, at most.
pub const MAX_WAITING: usize = 4096;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A stream gets its buffers and lanes.
    SwapIn(StreamId),
    /// A stream, which moves nothing, gives its buffers and lanes back.
    SwapOut(StreamId),
    /// A stream's step of `len` bytes begins to move.
    Begin {
        /// The stream.
        stream: StreamId,
        /// The step, from 0.
        adu: u64,
        /// Bytes of it.
        len: u64,
    },
    /// A stream has ended: all of its steps were moved, and there are no more.
    End(StreamId),
    /// A stream has failed because another of its group did: why.
    Fail(StreamId, String),
}

#[derive(Debug)]
struct Connection {
    name: String,
    /// Others find it by its name.
    shared: bool,
}

#[derive(Debug)]
struct Stream {
    spec: Spec,
    /// Where it goes, and the names of what it belongs to.
    place: String,
    ties: Ties,
    /// It is known what comes.
    ready: bool,
    /// Steps that are there and have not begun.
    waiting: VecDeque<u64>,
    begun: u64,
    moved: u64,
    bytes: u64,
    /// Bytes of the steps that have begun and were not moved.
    on_the_way: VecDeque<u64>,
    paused: bool,
    /// No more steps come.
    last: bool,
    over: Option<Option<String>>,
    /// Since when it is pending, and since when steps are on their way; and how long in sum.
    pending_since: Option<Duration>,
    moving_since: Option<Duration>,
    pending: Duration,
    moving: Duration,
}

impl Stream {
    fn is_over(&self) -> bool {
        self.over.is_some()
    }

    fn note_pending(&mut self, is: bool, now: Duration) {
        note(&mut self.pending_since, &mut self.pending, is, now);
    }

    fn note_moving(&mut self, now: Duration) {
        let is = !self.on_the_way.is_empty();
        note(&mut self.moving_since, &mut self.moving, is, now);
    }
}

fn note(since: &mut Option<Duration>, sum: &mut Duration, is: bool, now: Duration) {
    match (*since, is) {
        (None, true) => *since = Some(now),
        (Some(from), false) => {
            *sum += now.saturating_sub(from);
            *since = None;
        }
        _ => {}
    }
}

/// The manager. See the [module](self).
#[derive(Debug)]
pub struct Manager {
    connections: BTreeMap<ConnectionId, Connection>,
    streams: BTreeMap<StreamId, Stream>,
    dependences: Dependences,
    resources: Resources,
    /// Groups that others find by their names.
    groups: BTreeMap<String, GroupId>,
    orders: VecDeque<Order>,
    next_id: u32,
}

impl Manager {
    /// With so many bytes of buffers and so many lanes to share out.
    pub fn new(all: Capacity) -> Manager {
        Manager {
            connections: BTreeMap::new(),
            streams: BTreeMap::new(),
            dependences: Dependences::default(),
            resources: Resources::new(all),
            groups: BTreeMap::new(),
            orders: VecDeque::new(),
            next_id: 0,
        }
    }

    // Commands; those by which streams come are in `entry`.

    /// No further step of the stream begins.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn pause(&mut self, id: StreamId, now: Duration) -> Result<(), ControlError> {
        self.set_paused(id, true, now)
    }

    /// The stream goes on.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn resume(&mut self, id: StreamId, now: Duration) -> Result<(), ControlError> {
        self.set_paused(id, false, now)
    }

    fn set_paused(&mut self, id: StreamId, paused: bool, now: Duration) -> Result<(), ControlError> {
        self.stream(id)?.paused = paused;
        self.settle(now);
        Ok(())
    }

    /// Steps that the stream moves before it gives way, from now on.
    ///
    /// # Errors
    /// [`ControlError::NoStream`]; [`ControlError::Format`] for none.
    pub fn set_quantum(&mut self, id: StreamId, quantum: u32, now: Duration) -> Result<(), ControlError> {
        if quantum == 0 {
            return Err(ControlError::Format { what: "quantum", found: 0, expected: "at least 1 step" });
        }
        self.stream(id)?.spec.quantum = quantum;
        self.resources.set_quantum(id, quantum);
        self.settle(now);
        Ok(())
    }

    /// The stream's priority, from now on.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn set_priority(&mut self, id: StreamId, priority: i32, now: Duration) -> Result<(), ControlError> {
        self.stream(id)?.spec.priority = priority;
        self.resources.set_priority(id, priority);
        self.settle(now);
        Ok(())
    }

    /// The stream fails, and what it had is free. What it still moves is given up. Those of its group fail
    /// with it: who moves in lock step with one that is lost would be out of step without knowing.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn fail(&mut self, id: StreamId, why: &str, now: Duration) -> Result<(), ControlError> {
        let Stream { spec, place, ties, .. } = self.stream(id)?;
        let (group, name) = (spec.group, ties.group.clone().unwrap_or_default());
        let because = format!("stream {id} ({place}) of its group {name} has failed: {why}");
        self.finish(id, Some(why.to_owned()), now);
        if group.is_some() {
            // Who comes now belongs to another.
            self.groups.retain(|_, id| Some(*id) != group);
            let member = |(_, s): &(&StreamId, &Stream)| s.spec.group == group && !s.is_over();
            let others: Vec<_> = self.streams.iter().filter(member).map(|(id, _)| *id).collect();
            for other in others {
                self.finish(other, Some(because.clone()), now);
                self.orders.push_back(Order::Fail(other, because.clone()));
            }
        }
        self.settle(now);
        Ok(())
    }

    /// The stream takes no part after all, before its first step. The others of its group go on as if it had not come.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn withdraw(&mut self, id: StreamId, now: Duration) -> Result<(), ControlError> {
        self.stream(id)?;
        self.dependences.withdrawn(id);
        self.finish(id, None, now);
        self.settle(now);
        Ok(())
    }

    /// The stream ends as it is: nobody misses what it still moves.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn end(&mut self, id: StreamId, now: Duration) -> Result<(), ControlError> {
        self.stream(id)?;
        self.finish(id, None, now);
        self.settle(now);
        Ok(())
    }

    /// Forgets a stream that is over; of any other nothing happens.
    pub fn forget(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(Stream::is_over) {
            self.streams.remove(&id);
        }
        let names = &self.dependences;
        self.groups.retain(|_, group| names.group(*group).is_some());
    }

    // Input.

    /// The stream's next step is there, of `len` bytes.
    ///
    /// # Errors
    /// [`ControlError::WrongSize`], [`ControlError::NoStream`]; [`ControlError::TooMany`] for one that has to wait for those
    /// before it.
    pub fn offer(&mut self, id: StreamId, len: u64, now: Duration) -> Result<(), ControlError> {
        let stream = self.stream(id)?;
        if stream.last || !stream.spec.format.fits(len) {
            return Err(ControlError::WrongSize { stream: id, found: len });
        }
        if stream.waiting.len() >= MAX_WAITING {
            return Err(ControlError::TooMany { what: "steps that wait", most: MAX_WAITING });
        }
        stream.waiting.push_back(len);
        self.settle(now);
        Ok(())
    }

    /// The oldest step of the stream that has begun was moved.
    ///
    /// # Errors
    /// [`ControlError::NoStream`]; [`ControlError::WrongSize`] where none has begun.
    pub fn moved(&mut self, id: StreamId, now: Duration) -> Result<(), ControlError> {
        let stream = self.stream(id)?;
        let Some(len) = stream.on_the_way.pop_front() else {
            return Err(ControlError::WrongSize { stream: id, found: 0 });
        };
        stream.moved += 1;
        stream.bytes += len;
        stream.note_moving(now);
        self.dependences.moved(id);
        self.settle(now);
        Ok(())
    }

    /// No more steps of the stream come.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn no_more(&mut self, id: StreamId, now: Duration) -> Result<(), ControlError> {
        self.stream(id)?.last = true;
        self.settle(now);
        Ok(())
    }

    // Output.

    /// The next thing to be done.
    pub fn poll(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    fn connection(&self, id: ConnectionId) -> Result<&Connection, ControlError> {
        self.connections.get(&id).ok_or(ControlError::NoConnection(id))
    }

    /// One that is not over.
    fn stream(&mut self, id: StreamId) -> Result<&mut Stream, ControlError> {
        let stream = self.streams.get_mut(&id).filter(|stream| !stream.is_over());
        stream.ok_or(ControlError::NoStream(id))
    }

    /// What the stream's next step waits for, but buffers and lanes.
    fn waits(&self, id: StreamId, stream: &Stream) -> Option<WaitsFor> {
        if stream.paused {
            return Some(WaitsFor::Resume);
        }
        let tied = self.dependences.waits(id, stream.begun);
        let tied = tied.or_else(|| (!stream.ready).then_some(WaitsFor::Program));
        tied.or_else(|| stream.waiting.is_empty().then_some(WaitsFor::Data))
    }

    fn finish(&mut self, id: StreamId, why: Option<String>, now: Duration) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.waiting.clear();
        stream.on_the_way.clear();
        stream.note_pending(false, now);
        stream.note_moving(now);
        stream.over = Some(why);
        self.dependences.ended(id);
        // One that was not told what it has has nothing to give back.
        if self.resources.holds(id) && !self.orders.contains(&Order::SwapIn(id)) {
            self.orders.push_back(Order::SwapOut(id));
        }
        self.resources.remove(id);
        self.orders.retain(
            |order| !matches!(order, Order::Begin { stream, .. } | Order::SwapIn(stream) if *stream == id),
        );
    }

    /// Goes on until nothing changes any more.
    fn settle(&mut self, now: Duration) {
        while self.end_those_that_are_done(now) || self.schedule(now) {}
    }

    fn end_those_that_are_done(&mut self, now: Duration) -> bool {
        // A stream that waits for another does not end before that one.
        let done = |(&id, s): (&StreamId, &Stream)| {
            let empty = s.last && s.waiting.is_empty() && s.on_the_way.is_empty() && !s.is_over();
            (empty && !matches!(self.dependences.waits(id, 0), Some(WaitsFor::Stream(_)))).then_some(id)
        };
        let done: Vec<_> = self.streams.iter().filter_map(done).collect();
        for &id in &done {
            self.finish(id, None, now);
            self.orders.push_back(Order::End(id));
        }
        !done.is_empty()
    }

    /// One round: who wants, who gives back, who gets, who begins. Gives whether a step began.
    fn schedule(&mut self, now: Duration) -> bool {
        let ids: Vec<_> = self.streams.iter().filter(|(_, s)| !s.is_over()).map(|(id, _)| *id).collect();
        for &id in &ids {
            let can_go_on = self.waits(id, &self.streams[&id]).is_none();
            match can_go_on && !self.resources.holds(id) {
                true => self.resources.want(id),
                false => self.resources.want_no_more(id),
            }
        }
        for &id in &ids {
            let stream = &self.streams[&id];
            let can_go_on = self.waits(id, stream).is_none();
            if stream.on_the_way.is_empty() && self.resources.should_yield(id, can_go_on) {
                self.resources.give_back(id);
                self.orders.push_back(Order::SwapOut(id));
                if can_go_on {
                    self.resources.want(id);
                }
            }
        }
        while let Some(id) = self.resources.swap_in() {
            self.orders.push_back(Order::SwapIn(id));
        }
        let mut began = false;
        for &id in &ids {
            let (holds, goes) = (self.resources.holds(id), self.resources.may_go_on(id));
            let can_go_on = self.waits(id, &self.streams[&id]).is_none();
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            stream.note_pending(can_go_on && !holds, now);
            // As many as its buffers hold are on their way at once: lanes may be long.
            let room = stream.on_the_way.len() < stream.spec.buffers as usize;
            if !(goes && can_go_on && room) {
                continue;
            }
            if let Some(len) = stream.waiting.pop_front() {
                stream.on_the_way.push_back(len);
                stream.note_moving(now);
                self.orders.push_back(Order::Begin { stream: id, adu: stream.begun, len });
                stream.begun += 1;
                self.resources.begin(id);
                began = true;
            }
        }
        began
    }
}
