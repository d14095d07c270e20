//! What a manager says of its streams.

use super::*;

impl Manager {
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
}
