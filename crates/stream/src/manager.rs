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

    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    // Commands.

    /// A connection to a place, which is called `name` in what is said of it.
    ///
    /// # Errors
    /// [`ControlError::TooMany`].
    pub fn connect(&mut self, name: &str) -> Result<ConnectionId, ControlError> {
        if self.connections.len() >= MAX_STREAMS {
            return Err(ControlError::TooMany { what: "connections", most: MAX_STREAMS });
        }
        let id = ConnectionId(self.id());
        self.connections.insert(id, Connection { name: name.to_owned(), shared: false });
        Ok(id)
    }

    /// The connection ends, and its streams, which have ended, are forgotten.
    ///
    /// # Errors
    /// [`ControlError::InUse`], [`ControlError::NoConnection`].
    pub fn disconnect(&mut self, connection: ConnectionId) -> Result<(), ControlError> {
        self.connection(connection)?;
        let of = |stream: &Stream| stream.spec.connection == connection;
        if let Some((&stream, _)) = self.streams.iter().find(|(_, stream)| of(stream) && !stream.is_over()) {
            return Err(ControlError::InUse { connection, stream });
        }
        let gone: Vec<_> = self.streams.iter().filter(|(_, s)| of(s)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.forget(id));
        self.connections.remove(&connection);
        Ok(())
    }

    /// A group of streams that move in lock step, of which none begins before there are so many.
    pub fn group(&mut self, members: u32) -> GroupId {
        let id = GroupId(self.id());
        self.dependences.expect(id, members);
        id
    }

    /// Registers a stream.
    ///
    /// # Errors
    /// [`ControlError::NoRoom`] where it, or one that is there, could never be served; [`ControlError::Cycle`] where it would
    /// wait for itself; [`ControlError::NoConnection`], [`ControlError::NoStream`], [`ControlError::TooMany`].
    pub fn register(&mut self, spec: Spec, now: Duration) -> Result<StreamId, ControlError> {
        self.connection(spec.connection)?;
        if self.streams.len() >= MAX_STREAMS {
            return Err(ControlError::TooMany { what: "streams", most: MAX_STREAMS });
        }
        if let Some(unknown) = spec.after.iter().find(|id| id.0 >= self.next_id) {
            return Err(ControlError::NoStream(*unknown));
        }
        self.check(&spec, "")?;
        let id = StreamId(self.next_id);
        self.claim(id, &spec)?;
        let place = self.connection(spec.connection)?.name.clone();
        self.add(spec, place, Ties::default(), true);
        self.settle(now);
        Ok(id)
    }

    /// Has a stream take its place among others, by their names, before it is known what comes: it begins
    /// when it is [ready](Manager::ready). A group and a connection are there for as long as one of their
    /// streams is; a group that has all its members takes no more, and the next of that name begin another.
    ///
    /// # Errors
    /// [`ControlError::Cycle`], [`ControlError::Members`], [`ControlError::TooMany`].
    pub fn enter(
        &mut self,
        place: &str,
        direction: Direction,
        ties: &Ties,
        now: Duration,
    ) -> Result<StreamId, ControlError> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(ControlError::TooMany { what: "streams", most: MAX_STREAMS });
        }
        let before = ties.after.as_ref().and_then(|name| self.shared(name));
        let of = |stream: &Stream| Some(stream.spec.connection) == before && !stream.is_over();
        let after: Vec<_> = self.streams.iter().filter(|(_, s)| of(s)).map(|(id, _)| *id).collect();
        let group = ties.group.as_ref().map(|name| self.gathering(name, ties.members)).transpose()?;
        let known = ties.connection.as_ref().and_then(|name| self.shared(name));
        let connection = match known {
            Some(id) => id,
            None => self.connect(ties.connection.as_deref().unwrap_or(place))?,
        };
        let Ties { quantum, priority, permanent, .. } = *ties;
        let unknown = Spec::new(connection, direction, Format::UNKNOWN);
        let spec = Spec { after, group: group.flatten(), quantum, priority, permanent, ..unknown };
        if let Err(error) = self.check(&spec, ties.group.as_deref().unwrap_or("")) {
            if known.is_none() {
                self.connections.remove(&connection);
            }
            return Err(error);
        }
        let spec = match &ties.group {
            Some(name) if spec.group.is_none() => {
                let id = self.group(ties.members.unwrap_or(0));
                self.groups.insert(name.clone(), id);
                Spec { group: Some(id), ..spec }
            }
            _ => spec,
        };
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.shared = ties.connection.is_some();
        }
        let id = self.add(spec, place.to_owned(), ties.clone(), false);
        self.settle(now);
        Ok(id)
    }

    /// The connection that others find by this name.
    fn shared(&self, name: &str) -> Option<ConnectionId> {
        self.connections.iter().find(|(_, c)| c.shared && c.name == name).map(|(id, _)| *id)
    }

    /// The group of this name that others may come to.
    fn gathering(&self, name: &str, members: Option<u32>) -> Result<Option<GroupId>, ControlError> {
        let found = self.groups.get(name).and_then(|id| Some((*id, self.dependences.group(*id)?)));
        match (found, members.unwrap_or(0)) {
            (Some((_, (first, came))), _) if first > 0 && came >= first => Ok(None),
            (Some((_, (first, _))), found) if first != found => {
                Err(ControlError::Members { group: name.to_owned(), first, found })
            }
            (found, _) => Ok(found.map(|(id, _)| id)),
        }
    }

    fn check(&self, spec: &Spec, group: &str) -> Result<(), ControlError> {
        let checked = self.dependences.check(spec.connection, &spec.after, spec.group);
        checked.map_err(|error| match error {
            ControlError::Cycle { group: id, stream, .. } => {
                let place = self.streams.get(&stream).map(|s| s.place.clone()).unwrap_or_default();
                ControlError::Cycle { group: id, group_name: group.to_owned(), stream, place }
            }
            other => other,
        })
    }

    fn claim(&mut self, id: StreamId, spec: &Spec) -> Result<(), ControlError> {
        let need = Capacity { buffer_bytes: spec.buffer_bytes(), lanes: spec.format.lanes() };
        self.resources.add(id, need, (spec.priority, spec.quantum, spec.permanent))
    }

    /// It is known what comes over a stream that has [entered](Manager::enter).
    ///
    /// # Errors
    /// [`ControlError::NoRoom`], [`ControlError::NoStream`].
    pub fn ready(
        &mut self,
        id: StreamId,
        format: Format,
        buffers: u32,
        now: Duration,
    ) -> Result<(), ControlError> {
        let spec = Spec { format, buffers, ..self.stream(id)?.spec.clone() };
        self.claim(id, &spec)?;
        let stream = self.stream(id)?;
        (stream.spec, stream.ready) = (spec, true);
        self.settle(now);
        Ok(())
    }

    fn add(&mut self, spec: Spec, place: String, ties: Ties, ready: bool) -> StreamId {
        let id = StreamId(self.id());
        self.dependences.add(id, spec.connection, &spec.after, spec.group);
        let stream = Stream {
            spec,
            place,
            ties,
            ready,
            waiting: VecDeque::new(),
            begun: 0,
            moved: 0,
            bytes: 0,
            on_the_way: VecDeque::new(),
            paused: false,
            last: false,
            over: None,
            pending_since: None,
            moving_since: None,
            pending: Duration::ZERO,
            moving: Duration::ZERO,
        };
        self.streams.insert(id, stream);
        id
    }

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

    // Questions.

    /// Where a stream is.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn state(&self, id: StreamId) -> Result<State, ControlError> {
        let stream = self.streams.get(&id).ok_or(ControlError::NoStream(id))?;
        Ok(match &stream.over {
            Some(None) => State::Ended,
            Some(Some(_)) => State::Failed,
            None if !stream.on_the_way.is_empty() => State::Active,
            None => match self.waits(id, stream) {
                Some(waits) => State::Inactive(waits),
                None if self.resources.holds(id) => State::Active,
                None => State::Pending,
            },
        })
    }

    /// All that there is.
    pub fn status(&self, now: Duration) -> Status {
        let (all, free) = self.resources.capacity();
        let one = |(&stream, s): (&StreamId, &Stream)| StreamStatus {
            stream,
            connection: s.spec.connection,
            connection_name: s.ties.connection.clone(),
            name: s.place.clone(),
            direction: s.spec.direction,
            state: self.state(stream).unwrap_or(State::Failed),
            group: s.spec.group,
            group_name: s.ties.group.clone(),
            priority: s.spec.priority,
            quantum: s.spec.quantum,
            permanent: s.spec.permanent,
            waiting: s.waiting.len() as u64,
            steps: s.moved,
            bytes: s.bytes,
            buffer_bytes: if self.resources.holds(stream) { s.spec.buffer_bytes() } else { 0 },
            lanes: if s.ready { s.spec.format.lanes() } else { 0 },
            pending: s.pending + s.pending_since.map_or(Duration::ZERO, |from| now.saturating_sub(from)),
            moving: s.moving + s.moving_since.map_or(Duration::ZERO, |from| now.saturating_sub(from)),
            why: s.over.clone().flatten(),
        };
        Status {
            streams: self.streams.iter().map(one).collect(),
            buffer_bytes: all.buffer_bytes,
            free_bytes: free.buffer_bytes,
            lanes: all.lanes,
            free_lanes: free.lanes,
        }
    }

    /// What was registered of a stream.
    ///
    /// # Errors
    /// [`ControlError::NoStream`].
    pub fn spec(&self, id: StreamId) -> Result<&Spec, ControlError> {
        self.streams.get(&id).map(|stream| &stream.spec).ok_or(ControlError::NoStream(id))
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
