//! Time and the state of paths.

use super::path::{Carried, Control, Path};
use super::planted::Bug;
use super::{Broken, Event, PathId, Phase, Session};
use crate::error::{LinkError, MessageError};
use crate::types::Order;
use crate::wire::{StreamId, FRAGMENT_HEADER_MAX, HEADER_LEN};
use std::time::Duration;

/// Bytes that a frame must have room for: a header and one fragment of 64 bytes.
pub(super) const LEAST_FRAME: usize = HEADER_LEN + FRAGMENT_HEADER_MAX + 64;

impl<B: AsMut<[u8]>> Session<B> {
    /// A path came up, with frames of at most `max_frame` bytes each way; or came up again after it was down,
    /// or changed its frame length. Ordered messages go over the first path that is up.
    ///
    /// # Errors
    ///
    /// `Limit` if the session may not have so many paths, or frames are too short for anything.
    pub fn handle_path_up(
        &mut self,
        now: Duration,
        path: PathId,
        max_frame: usize,
    ) -> Result<(), MessageError> {
        let at = usize::from(path.0);
        if at >= self.config.paths {
            let limit = (self.config.paths as u64).saturating_sub(1);
            return Err(MessageError::Limit { what: "path number", limit, found: path.0.into() });
        }
        if max_frame < LEAST_FRAME {
            let (limit, found) = (LEAST_FRAME as u64, max_frame as u64);
            return Err(MessageError::Limit { what: "bytes of a frame", limit, found });
        }
        let max_frame = max_frame.min(crate::wire::MAX_FRAME);
        if self.paths.len() <= at {
            self.paths.resize_with(at + 1, || None);
        }
        match &mut self.paths[at] {
            Some(known) => {
                known.max_frame = max_frame;
                if !known.up {
                    known.up = true;
                    known.timeouts = 0;
                }
            }
            none => *none = Some(Path::new(max_frame, &self.config)),
        }
        self.heard = self.heard.max(now);
        Ok(())
    }

    /// A path went down: what is in flight on it goes out on others, or on this one when it comes up again.
    pub fn handle_path_down(&mut self, now: Duration, path: PathId) {
        self.now = self.now.max(now);
        let mut lost = Vec::new();
        let Some(known) = self.path_mut(path) else { return };
        if !known.up {
            return;
        }
        known.on_down(&mut lost);
        if self.config.lossless {
            self.all_lost();
        } else {
            self.requeue(&lost);
        }
    }

    /// A path that loses nothing went down: nobody knows what arrived.
    fn all_lost(&mut self) {
        for at in self.out.indices() {
            self.out[at].all_lost();
            self.wake(StreamId::from_index(at));
            for number in self.out[at].cancelled() {
                self.urgent.push_back(Control::Cancel(StreamId::from_index(at), number));
            }
        }
        for at in self.inn.indices() {
            let stream = StreamId::from_index(at);
            self.taken(stream);
            let base = self.inn[at].base;
            for slot in 0..self.inn[at].slots.len() {
                let number = base + slot as u64;
                match &mut self.inn[at].slots[slot] {
                    super::incoming::Slot::Done if stream.order() == Order::Any => {
                        self.lazy.push_back(Control::Done(stream, number));
                    }
                    super::incoming::Slot::Refused { attempt, queued } if !*queued => {
                        *queued = true;
                        self.urgent.push_back(Control::Refused(stream, number, *attempt));
                    }
                    _ => {}
                }
            }
        }
        if matches!(self.phase, Phase::CloseSent | Phase::Closed) && !self.urgent.contains(&Control::Close) {
            self.urgent.push_back(Control::Close);
        }
    }

    /// Puts back what frames carried that are lost.
    pub(super) fn requeue(&mut self, lost: &[Carried]) {
        for &carried in lost {
            match carried {
                Carried::Fragment { stream, number, attempt, offset, len, head } => {
                    let again = self
                        .out
                        .get_mut(stream.index())
                        .is_some_and(|out| out.lost(number, attempt, offset, len, head));
                    if again {
                        self.wake(stream);
                    }
                }
                Carried::Ack { .. } => {}
                Carried::Control(control) => self.requeue_control(control),
            }
        }
    }

    fn requeue_control(&mut self, control: Control) {
        if self.config.planted(Bug::ReceiptLost) && matches!(control, Control::Taken(_)) {
            return;
        }
        if self.is_broken() {
            return;
        }
        match control {
            Control::Taken(stream) => self.taken(stream),
            Control::Done(stream, number) => {
                if self.inn.get(stream.index()).is_some_and(|l| l.base <= number) {
                    self.lazy.push_back(control);
                }
            }
            Control::Refused(stream, number, attempt) => {
                let slot = self.inn.get_mut(stream.index()).and_then(|l| l.slot_mut(number));
                if let Some(super::incoming::Slot::Refused { attempt: a, queued }) = slot {
                    if *a == attempt && !*queued {
                        *queued = true;
                        self.urgent.push_back(control);
                    }
                }
            }
            // The peer opens by itself; a lost go-ahead costs only time: the acknowledgement of the head says
            // the same.
            Control::Go(_) | Control::Accepted(..) => {}
            Control::Cancel(stream, number) => {
                if self.out.get(stream.index()).is_some_and(|l| l.get(number).is_some()) {
                    self.urgent.push_back(control);
                }
            }
            Control::Close => self.urgent.push_back(control),
        }
    }

    /// Time has passed: call it when [`next_deadline`](Session::next_deadline) has come; calling it more
    /// often is harmless.
    pub fn handle_time(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.is_broken() {
            return;
        }
        if self.gate_at.is_some_and(|at| at <= now) {
            for stream in std::mem::take(&mut self.gated) {
                let stream = StreamId::from_index(usize::from(stream));
                self.out[stream.index()].gate_time(now, &self.config);
                self.admission(stream);
                self.wake(stream);
            }
            self.gate_at = self.gated.iter().filter_map(|&l| self.out[usize::from(l)].gate_deadline()).min();
        }
        let mut lost = std::mem::take(&mut self.scratch.1);
        for path in self.paths.iter_mut().flatten().filter(|p| p.up) {
            path.on_time(now, &self.config, &mut lost);
        }
        self.requeue(&lost);
        lost.clear();
        self.scratch.1 = lost;

        if self.expects() {
            if now.saturating_sub(self.heard) < self.config.silence {
                if now >= self.ping_at() {
                    self.ping = true;
                    self.pinged = now;
                }
            } else if self.phase == Phase::CloseSent && self.peer_closed {
                // Both had said all; the peer did not wait for the last acknowledgement to arrive.
                self.closed();
            } else if !(self.phase == Phase::Closed && self.peer_closed) {
                self.break_off(Broken::Silent(now.saturating_sub(self.heard)));
            }
        }
    }

    /// This process did not run for so long: what the peer said meanwhile has yet to be looked at, and it was
    /// not silent.
    pub fn was_away(&mut self, time: Duration, now: Duration) {
        self.heard = self.heard.saturating_add(time).min(now);
    }

    /// The peer knows that this side said all.
    pub(super) fn closed(&mut self) {
        if self.phase == Phase::CloseSent {
            self.phase = Phase::Closed;
            self.events.push_back(Event::Closed);
        }
    }

    fn ping_at(&self) -> Duration {
        self.heard.max(self.pinged) + self.config.silence / 5
    }

    /// Puts a stream on the list of those that wait for time.
    pub(super) fn admission(&mut self, stream: StreamId) {
        let index = stream.index() as u16;
        if let Some(at) = self.out[stream.index()].gate_deadline() {
            if !self.gated.contains(&index) {
                self.gated.push(index);
            }
            self.gate_at = Some(self.gate_at.map_or(at, |g| g.min(at)));
        }
    }

    /// Refuses what breaks the protocol, and counts it.
    pub(super) fn bad<T>(&mut self, error: LinkError) -> Result<T, LinkError> {
        self.counters.bad_frames += 1;
        Err(error)
    }

    /// When [`handle_time`](Session::handle_time), or `poll_transmit`, has something to do next even if
    /// nothing comes in; `None` if never. A time in the past means now.
    pub fn next_deadline(&mut self) -> Option<Duration> {
        if self.is_broken() {
            return None;
        }
        let mut next = self.gate_at;
        let mut sooner = |at: Option<Duration>| {
            if let Some(at) = at {
                next = Some(next.map_or(at, |n: Duration| n.min(at)));
            }
        };
        // What could not go out just now waits for something else than time.
        let open = |p: &&Path| p.up && (self.config.lossless || p.table_open(&self.config));
        if self.paths.iter().flatten().any(|p| open(&p)) {
            sooner(self.lazy_at);
        }
        if self.expects() {
            sooner(Some(self.heard + self.config.silence));
            sooner(Some(self.ping_at()));
        }
        let work = !self.config.lossless && self.ready.iter().flatten().any(|queue| !queue.is_empty());
        for path in self.paths.iter().flatten().filter(|p| p.up) {
            sooner(path.deadline());
            if work && path.rate.next_send() > self.now {
                sooner(Some(path.rate.next_send()));
            }
        }
        next
    }
}
