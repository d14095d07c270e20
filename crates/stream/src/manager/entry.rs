//! How connections, groups and streams come to be.

use super::*;

impl Manager {
    fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

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
}
