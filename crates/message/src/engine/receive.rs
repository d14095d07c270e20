//! Frames that come in.

use super::incoming::{Incoming, Reassembly, Slot};
use super::outgoing::Outgoing;
use super::path::{Carried, Control};
use super::planted::{self, Bug};
use super::{rank, token, Broken, Event, PathId, Session};
use crate::error::LinkError;
use crate::wire::{Frame, Name, Piece, StreamId};
use std::time::Duration;

/// What a link that reads streams does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The frame was whole and is dealt with.
    Done,
    /// So many bytes of the frame are missing: read them into [`body_mut`](Session::body_mut), or, where that
    /// is empty, anywhere, and say so by [`body_filled`](Session::body_filled).
    Needs(usize),
}

/// What became of a fragment.
pub(super) enum Kept {
    /// It is kept, or not needed.
    Yes,
    /// There was no room in a table: the frame counts as lost.
    No,
}

pub(super) type Give<'a, B> = &'a mut dyn FnMut(&Incoming) -> Option<B>;

impl<B: AsMut<[u8]>> Session<B> {
    /// Takes a whole frame that came over a path. `give` is asked for a buffer when the first fragment of a
    /// message comes; `None`, or one that is too short, refuses the message, and the peer sends it again
    /// later. What is given for a message without payload is dropped at once.
    ///
    /// # Errors
    ///
    /// What is wrong with the frame. It was not used, or, if a piece turned out wrong after others had been
    /// used, counts as lost. The session goes on; whether the path is dropped is for the caller to say: where
    /// frames may be corrupted on the way it should not, on a stream it should.
    pub fn handle_frame(
        &mut self,
        now: Duration,
        path: PathId,
        frame: &[u8],
        give: &mut dyn FnMut(&Incoming) -> Option<B>,
    ) -> Result<(), LinkError> {
        let mut unsealed = Vec::new();
        let frame = match self.config.planted(Bug::NoChecksum) {
            true => planted::unseal(frame, &mut unsealed),
            false => frame,
        };
        match Frame::parse(frame) {
            Ok(frame) => self.take(now, path, &frame, give).map(|_| ()),
            Err(error) => self.bad(error),
        }
    }

    /// Takes the start of a frame from a link that reads a stream: at least all of it but bytes of its last
    /// fragment. If some are missing, they can be read straight into their place. Only on paths that lose
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`handle_frame`](Session::handle_frame); `OutOfTurn` while a frame before it is not complete.
    pub fn begin_frame(
        &mut self,
        now: Duration,
        path: PathId,
        start: &[u8],
        give: &mut dyn FnMut(&Incoming) -> Option<B>,
    ) -> Result<Begun, LinkError> {
        let parsed = if self.config.lossless { Frame::parse_start(start) } else { Frame::parse(start) };
        match parsed {
            Ok(frame) => self.take(now, path, &frame, give),
            Err(error) => self.bad(error),
        }
    }

    /// Where the missing bytes of the frame go. Empty if no frame is begun, or if its bytes are not needed.
    pub fn body_mut(&mut self, path: PathId) -> &mut [u8] {
        let Some(Some(path)) = self.paths.get(usize::from(path.0)) else { return &mut [] };
        let Some(body) = &path.body else { return &mut [] };
        let (start, end) = (body.at as usize, body.end as usize);
        let slot = self.inn.get_mut(body.stream.index()).and_then(|stream| stream.slot_mut(body.number));
        match slot {
            Some(Slot::Open(Reassembly { place: Some(place), .. })) => {
                place.as_mut().get_mut(start..end).unwrap_or_default()
            }
            _ => &mut [],
        }
    }

    /// Bytes of the frame that are missing.
    pub fn body_left(&self, path: PathId) -> usize {
        self.path(path).and_then(|p| p.body.as_ref()).map_or(0, |body| (body.end - body.at) as usize)
    }

    /// So many bytes were read into [`body_mut`](Session::body_mut), or, where that was empty, anywhere.
    pub fn body_filled(&mut self, now: Duration, path: PathId, len: usize) {
        self.now = self.now.max(now);
        self.heard = self.heard.max(now);
        let Some(known) = self.path_mut(path) else { return };
        let Some(body) = &mut known.body else { return };
        body.at = (body.at + len as u64).min(body.end);
        if body.at < body.end {
            return;
        }
        let Some(body) = known.body.take() else { return };
        let Some(stream) = self.inn.get_mut(body.stream.index()) else { return };
        let Some(at) = body.number.checked_sub(stream.base) else { return };
        if let Some(Slot::Open(r)) = stream.slot_mut(body.number) {
            r.have.insert(body.start, body.end);
            if r.complete() {
                self.complete(body.stream, at as usize);
            }
        }
    }

    fn take(
        &mut self,
        now: Duration,
        path: PathId,
        frame: &Frame<'_>,
        give: Give<'_, B>,
    ) -> Result<Begun, LinkError> {
        self.now = self.now.max(now);
        let header = &frame.header;
        if header.session != self.id.receive && !self.config.planted(Bug::OldSession) {
            return self.bad(LinkError::Unknown { what: "session", found: header.session });
        }
        let unsealed = self.config.checksum && header.checksum.is_none();
        if unsealed && !self.config.planted(Bug::NoChecksum) {
            return self.bad(LinkError::BadField { what: "frame flags", found: 0, expected: "a checksum" });
        }
        if header.path != path.0 {
            let (what, found) = ("path of a frame", header.path.into());
            return self.bad(LinkError::BadField { what, found, expected: "the path that it came over" });
        }
        if self.is_broken() {
            return self.bad(LinkError::OutOfTurn { what: "frame after the end" });
        }
        let lossless = self.config.lossless;
        let config = &self.config;
        match self.paths.get_mut(usize::from(path.0)) {
            Some(Some(known)) if known.up => {
                if known.body.is_some() {
                    return self.bad(LinkError::OutOfTurn { what: "frame within a frame" });
                }
                if known.came(header.number) {
                    if lossless {
                        let (what, found) = ("frame number", header.number);
                        return self.bad(LinkError::BadField {
                            what,
                            found,
                            expected: "one that did not come",
                        });
                    }
                    known.on_duplicate(now, config);
                    self.heard = self.heard.max(now);
                    return Ok(Begun::Done);
                }
            }
            _ => return self.bad(LinkError::Unknown { what: "path", found: path.0.into() }),
        }
        self.heard = self.heard.max(now);

        let mut eliciting = false;
        for piece in frame.pieces() {
            eliciting |= !matches!(piece, Piece::Ack(_));
            match self.piece(path, &piece, give) {
                Ok(Kept::Yes) => {}
                Ok(Kept::No) => return Ok(Begun::Done),
                Err(error) => return self.bad(error),
            }
            if self.is_broken() {
                return Ok(Begun::Done);
            }
        }
        let config = &self.config;
        if let Some(Some(known)) = self.paths.get_mut(usize::from(path.0)) {
            known.on_received(now, header.number, eliciting, config);
        }
        Ok(match frame.missing() {
            0 => Begun::Done,
            missing => Begun::Needs(missing),
        })
    }

    fn piece(&mut self, path: PathId, piece: &Piece<'_>, give: Give<'_, B>) -> Result<Kept, LinkError> {
        match piece {
            Piece::Fragment(fragment) => return self.fragment(path, fragment, give),
            Piece::Ack(ack) => {
                if self.config.lossless {
                    return Err(LinkError::OutOfTurn { what: "ack on a path that loses nothing" });
                }
                let (mut arrived, mut lost) = std::mem::take(&mut self.scratch);
                let now = self.now;
                let config = &self.config;
                let result = match self.paths.get_mut(usize::from(ack.path)) {
                    Some(Some(known)) => known.on_ack(now, ack, config, &mut arrived, &mut lost),
                    _ => Err(LinkError::Unknown { what: "path", found: ack.path.into() }),
                };
                self.arrived(PathId(ack.path), &arrived);
                self.requeue(&lost);
                arrived.clear();
                lost.clear();
                self.scratch = (arrived, lost);
                result?;
            }
            Piece::Taken(name) => self.on_taken(name)?,
            Piece::Done(name) => {
                if let Some(number) = self.sent_number(name)? {
                    self.on_done(name.stream, number);
                    self.release(name.stream);
                }
            }
            Piece::Refusal { name, attempt } => {
                if let Some(number) = self.sent_number(name)? {
                    let stream = &mut self.out[name.stream.index()];
                    if stream.refused(self.now, number, *attempt, &self.config) {
                        let told = |m: &mut Outgoing| std::mem::replace(&mut m.refusal_untold, true);
                        if stream.get_mut(number).is_some_and(|m| !told(m)) {
                            self.events.push_back(Event::Refused(token(name.stream, number)));
                        }
                        self.admission(name.stream);
                        self.wake(name.stream);
                    }
                }
            }
            Piece::GoAhead { name, attempt } => {
                if let Some(number) = self.sent_number(name)? {
                    let stream = &mut self.out[name.stream.index()];
                    match stream.get(number).map(|m| m.attempt.wrapping_sub(*attempt)) {
                        Some(0) => stream.accepted(number, *attempt),
                        Some(1) => stream.go(self.now, &self.config),
                        _ => {}
                    }
                    self.admission(name.stream);
                    self.wake(name.stream);
                }
            }
            Piece::Cancel(name) => {
                let Some(at) = self.slot_for(name)? else { return Ok(Kept::Yes) };
                // Each that is answered takes memory until it is; one that is done has its answer on the way.
                if !matches!(self.inn[name.stream.index()].set(at, Slot::Done), Slot::Done) {
                    self.advance(name.stream, at);
                }
            }
            Piece::Ping => self.pong |= self.config.lossless,
            Piece::Pong => {}
            Piece::Close => {
                if !self.peer_closed {
                    self.peer_closed = true;
                    self.events.push_back(Event::PeerClosed);
                }
            }
            Piece::Abort { code } => self.break_off(Broken::Aborted(*code)),
        }
        Ok(Kept::Yes)
    }

    /// What frames carried that the peer has.
    fn arrived(&mut self, path: PathId, arrived: &[Carried]) {
        for &carried in arrived {
            match carried {
                Carried::Fragment { stream, number, attempt, head: true, .. } => {
                    if let Some(out) = self.out.get_mut(stream.index()) {
                        out.accepted(number, attempt);
                        self.wake(stream);
                    }
                }
                Carried::Ack { up_to } => {
                    if let Some(known) = self.path_mut(path) {
                        known.ack_arrived(up_to);
                    }
                }
                Carried::Control(Control::Close) => self.closed(),
                _ => {}
            }
        }
    }

    // -- about what this side sent --

    /// The full number of a message that this side has begun to send; `None` if its receipt came before.
    fn sent_number(&self, name: &Name) -> Result<Option<u64>, LinkError> {
        let unknown = LinkError::Unknown { what: "message", found: name.number.into() };
        let Some(out) = self.out.get(name.stream.index()) else { return Err(unknown) };
        let distance = name.number.wrapping_sub(out.base as u32);
        if distance >= 1 << 31 {
            return Ok(None);
        }
        let number = out.base + u64::from(distance);
        if number >= out.begun {
            return Err(unknown);
        }
        Ok(Some(number))
    }

    fn on_taken(&mut self, name: &Name) -> Result<(), LinkError> {
        let unknown = LinkError::Unknown { what: "message", found: name.number.into() };
        let Some(out) = self.out.get(name.stream.index()) else {
            // The first receipt of a stream may say that nothing was taken yet.
            return if name.number == 0 { Ok(()) } else { Err(unknown) };
        };
        let distance = name.number.wrapping_sub(out.base as u32);
        if distance >= 1 << 31 {
            return Ok(());
        }
        let (base, below) = (out.base, out.base + u64::from(distance));
        if below > out.begun {
            return Err(unknown);
        }
        for number in base..below {
            self.on_done(name.stream, number);
        }
        self.release(name.stream);
        Ok(())
    }

    fn on_done(&mut self, stream: StreamId, number: u64) {
        let (out, rank) = (&mut self.out[stream.index()], rank(stream.priority()));
        let held = out.get(number).map_or(0, |m| m.injected);
        if out.done(number) {
            self.kept[rank] -= 1;
            self.kept_bytes[rank] -= held;
            if out.get(number).is_some_and(|m| !m.cancelled) {
                self.untold[rank] += 1;
                self.events.push_back(Event::Delivered(token(stream, number)));
            }
        }
    }

    /// Forgets messages at the front whose receipts came; others may begin.
    fn release(&mut self, stream: StreamId) {
        let out = &mut self.out[stream.index()];
        let before = out.in_flight();
        while out.pop_front().is_some() {}
        self.in_flight -= before - out.in_flight();
        self.wake(stream);
        self.wake_starved();
        self.try_close();
    }
}
