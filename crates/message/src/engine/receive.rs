//! Frames that come in.

use super::incoming::{Incoming, Message, Reassembly, Slot};
use super::path::{Body, Carried, Control};
use super::ranges::Ranges;
use super::{rank, token, Broken, Event, PathId, Phase, Session};
use crate::error::LinkError;
use crate::types::Order;
use crate::wire::{Fragment, Frame, Lane, Name, Piece};
use std::time::Duration;

/// What a link that reads streams does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The frame was whole and is dealt with.
    Done,
    /// So many bytes of the frame are missing: read them into [`body_mut`](Session::body_mut), or, where that is empty,
    /// anywhere, and say so by [`body_filled`](Session::body_filled).
    Needs(usize),
}

/// What became of a fragment.
enum Kept {
    /// It is kept, or not needed.
    Yes,
    /// There was no room in a table: the frame counts as lost.
    No,
}

type Give<'a, B> = &'a mut dyn FnMut(&Incoming) -> Option<B>;

impl<B: AsMut<[u8]>> Session<B> {
    /// Takes a whole frame that came over a path. `give` is asked for a buffer when the first fragment of a message with
    /// payload comes; `None`, or one that is too short, refuses the message, and the peer sends it again later.
    ///
    /// # Errors
    ///
    /// What is wrong with the frame. It was not used, or, if a piece turned out wrong after others had been used, counts as
    /// lost. The session goes on; whether the path is dropped is for the caller to say: where frames may be corrupted on
    /// the way it should not, on a stream it should.
    pub fn handle_frame(
        &mut self,
        now: Duration,
        path: PathId,
        frame: &[u8],
        give: &mut dyn FnMut(&Incoming) -> Option<B>,
    ) -> Result<(), LinkError> {
        #[cfg(feature = "planted")]
        let mut unsealed = Vec::new();
        #[cfg(feature = "planted")]
        let frame = if self.config.planted(super::planted::Bug::NoChecksum) && frame.len() > 28 {
            unsealed.extend_from_slice(frame);
            unsealed[1] &= !1;
            unsealed[24..28].fill(0);
            &unsealed[..]
        } else {
            frame
        };
        match Frame::parse(frame) {
            Ok(frame) => self.take(now, path, &frame, give).map(|_| ()),
            Err(error) => self.bad(error),
        }
    }

    /// Takes the start of a frame from a link that reads a stream: at least all of it but bytes of its last fragment. If
    /// some are missing, they can be read straight into their place. Only on paths that lose nothing.
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
        let slot = self.inn.get_mut(body.lane.index()).and_then(|lane| lane.slot_mut(body.number));
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
        let Some(lane) = self.inn.get_mut(body.lane.index()) else { return };
        let Some(at) = body.number.checked_sub(lane.base) else { return };
        if let Some(Slot::Open(r)) = lane.slot_mut(body.number) {
            r.have.insert(body.start, body.end);
            if r.complete() {
                self.complete(body.lane, at as usize);
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
        let foreign = header.session != self.id.receive;
        #[cfg(feature = "planted")]
        let foreign = foreign && !self.config.planted(super::planted::Bug::OldSession);
        if foreign {
            return self.bad(LinkError::Unknown { what: "session", found: header.session });
        }
        let unsealed = self.config.checksum && header.checksum.is_none();
        #[cfg(feature = "planted")]
        let unsealed = unsealed && !self.config.planted(super::planted::Bug::NoChecksum);
        if unsealed {
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
                    self.on_done(name.lane, number);
                    self.release(name.lane);
                }
            }
            Piece::Refusal { name, attempt } => {
                if let Some(number) = self.sent_number(name)? {
                    let lane = &mut self.out[name.lane.index()];
                    if lane.refused(self.now, number, *attempt, &self.config) {
                        self.events.push_back(Event::Refused(token(name.lane, number)));
                        self.gate(name.lane);
                        self.wake(name.lane);
                    }
                }
            }
            Piece::GoAhead { name, attempt } => {
                if let Some(number) = self.sent_number(name)? {
                    let lane = &mut self.out[name.lane.index()];
                    match lane.get(number).map(|m| m.attempt.wrapping_sub(*attempt)) {
                        Some(0) => lane.accepted(number, *attempt),
                        Some(1) => lane.go(self.now, &self.config),
                        _ => {}
                    }
                    self.gate(name.lane);
                    self.wake(name.lane);
                }
            }
            Piece::Cancel(name) => {
                let Some(at) = self.slot_for(name)? else { return Ok(Kept::Yes) };
                self.inn[name.lane.index()].set(at, Slot::Done);
                self.advance(name.lane, at);
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
                Carried::Fragment { lane, number, attempt, head: true, .. } => {
                    if let Some(out) = self.out.get_mut(lane.index()) {
                        out.accepted(number, attempt);
                        self.wake(lane);
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
        let Some(out) = self.out.get(name.lane.index()) else { return Err(unknown) };
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
        let Some(out) = self.out.get(name.lane.index()) else {
            // The first receipt of a lane may say that nothing was taken yet.
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
            self.on_done(name.lane, number);
        }
        self.release(name.lane);
        Ok(())
    }

    fn on_done(&mut self, lane: Lane, number: u64) {
        let out = &mut self.out[lane.index()];
        if out.done(number) {
            self.kept[rank(lane.priority())] -= 1;
            if out.get(number).is_some_and(|m| !m.cancelled) {
                self.events.push_back(Event::Delivered(token(lane, number)));
            }
        }
    }

    /// Forgets messages at the front whose receipts came; others may begin.
    fn release(&mut self, lane: Lane) {
        let out = &mut self.out[lane.index()];
        let before = out.in_flight();
        while out.pop_front().is_some() {}
        self.in_flight -= before - out.in_flight();
        self.wake(lane);
        self.wake_starved();
        self.try_close();
    }

    // -- about what the peer sends --

    /// The place of a message among its lane's slots, made if need be; `None` if the message was dealt with before.
    fn slot_for(&mut self, name: &Name) -> Result<Option<usize>, LinkError> {
        let channel = name.lane.channel().0;
        if channel >= self.config.channels {
            return Err(LinkError::Unknown { what: "channel", found: channel.into() });
        }
        let index = name.lane.index();
        if self.inn.len() <= index {
            self.inn.resize_with(index + 1, Default::default);
        }
        let lane = &mut self.inn[index];
        let Some(at) = lane.index(name.number) else { return Ok(None) };
        let more = (at + 1).saturating_sub(lane.slots.len() as u64);
        if more > u64::from(self.config.messages_in_flight).saturating_sub(self.slots) {
            return Err(LinkError::BadField {
                what: "message number",
                found: name.number.into(),
                expected: "no more messages in flight than agreed",
            });
        }
        self.slots += more;
        lane.slots.resize_with(lane.slots.len() + more as usize, || Slot::Empty);
        Ok(Some(at as usize))
    }

    fn fragment(&mut self, path: PathId, f: &Fragment<'_>, give: Give<'_, B>) -> Result<Kept, LinkError> {
        let lane = f.name.lane;
        let end = f.offset + u64::from(f.len);
        let total = f.payload_len();
        let least = total.unwrap_or(end);
        if least > self.config.max_payload {
            return Err(LinkError::BadField {
                what: "payload length",
                found: least,
                expected: "at most the session's limit",
            });
        }
        if f.bytes.len() < f.len as usize {
            // What is missing is skipped unless a place is found below.
            self.expect_body(path, f, u64::MAX);
        }
        let Some(at) = self.slot_for(&f.name)? else {
            self.counters.fragments_spare += 1;
            #[cfg(feature = "planted")]
            self.take_twice(f, give);
            return Ok(Kept::Yes);
        };
        let number = self.inn[lane.index()].base + at as u64;
        let fresh = match &self.inn[lane.index()].slots[at] {
            Slot::Empty => true,
            Slot::Refused { attempt, .. } => f.attempt.wrapping_sub(*attempt) as i8 > 0,
            Slot::Open(_) => {
                if f.head.is_some() && f.attempt > 0 && self.config.lossless {
                    // The answer to its first coming may have been lost with the path.
                    self.go_ahead(lane, number, f.attempt);
                }
                return self.add(path, at, f, give);
            }
            Slot::Done | Slot::Ready(..) => false,
        };
        // Without a head it is a straggler of an attempt that was refused.
        let Some(head) = f.head.filter(|_| fresh) else {
            self.counters.fragments_spare += 1;
            return Ok(Kept::Yes);
        };
        let ask = Incoming {
            channel: lane.channel(),
            priority: lane.priority(),
            order: lane.order(),
            head,
            len: total,
            at_least: least,
        };
        match self.place(lane, at, &ask, give) {
            Some(place) => {
                let r = Reassembly { head, total, place, have: Ranges::default(), attempt: f.attempt };
                self.inn[lane.index()].set(at, Slot::Open(r));
                let kept = self.add(path, at, f, give);
                let known = self.inn[lane.index()].slot_mut(number).is_some();
                if f.attempt > 0 && known {
                    // It was refused before: the sender waits for this.
                    self.go_ahead(lane, number, f.attempt);
                }
                kept
            }
            None => {
                self.refuse(lane, at, f.attempt);
                Ok(Kept::Yes)
            }
        }
    }

    fn go_ahead(&mut self, lane: Lane, number: u64, attempt: u8) {
        if self.inn[lane.index()].go.replace((number, attempt)).is_none() {
            self.urgent.push_back(Control::Go(lane));
        }
    }

    fn expect_body(&mut self, path: PathId, f: &Fragment<'_>, number: u64) {
        if let Some(known) = self.path_mut(path) {
            known.body = Some(Body {
                lane: f.name.lane,
                number,
                start: f.offset,
                at: f.offset + f.bytes.len() as u64,
                end: f.offset + u64::from(f.len),
            });
        }
    }

    /// A buffer for a message, or that it needs none; `None` if it is to be refused.
    fn place(&mut self, lane: Lane, at: usize, ask: &Incoming, give: Give<'_, B>) -> Option<Option<B>> {
        let ordered = lane.order() == Order::Ordered;
        if self.received[rank(lane.priority())].len() >= self.config.waiting {
            self.refused_waiting = true;
            return None;
        }
        let inn = &self.inn[lane.index()];
        if ordered && inn.refused > 0 {
            // An earlier one has no buffer: this one would keep it from getting one.
            if inn.slots.iter().take(at).any(|slot| matches!(slot, Slot::Refused { .. })) {
                return None;
            }
        }
        let needed = ask.len.unwrap_or(ask.at_least);
        if ask.len == Some(0) {
            return Some(None);
        }
        loop {
            if let Some(mut place) = give(ask) {
                return (place.as_mut().len() as u64 >= needed).then_some(Some(place));
            }
            // The next of its lane goes before those that have to wait for others.
            if !(ordered && at == 0 && self.evict(lane)) {
                return None;
            }
        }
    }

    /// Takes a buffer back from an ordered message that waits for others, the last of its lane first. The sender sends that
    /// message again.
    fn evict(&mut self, lane: Lane) -> bool {
        #[cfg(feature = "planted")]
        if self.config.planted(super::planted::Bug::NoEviction) {
            return false;
        }
        let own = lane.index();
        let others = (0..self.inn.len()).filter(|&index| index != own);
        for index in std::iter::once(own).chain(others) {
            if Lane::from_index(index).order() != Order::Ordered {
                continue;
            }
            let Some(at) = self.inn[index].slots.iter().rposition(Slot::holds_buffer).filter(|&at| at > 0)
            else {
                continue;
            };
            let attempt = match &self.inn[index].slots[at] {
                Slot::Open(r) => r.attempt,
                Slot::Ready(_, attempt) => *attempt,
                _ => continue,
            };
            self.counters.evicted += 1;
            self.refuse(Lane::from_index(index), at, attempt);
            return true;
        }
        false
    }

    fn refuse(&mut self, lane: Lane, at: usize, attempt: u8) {
        let inn = &mut self.inn[lane.index()];
        let number = inn.base + at as u64;
        let queued = matches!(inn.slots[at], Slot::Refused { queued: true, .. });
        let old = inn.set(at, Slot::Refused { attempt, queued: true });
        #[cfg(feature = "planted")]
        if self.config.planted(super::planted::Bug::BufferLeak) {
            std::mem::forget(old);
        } else {
            drop(old);
        }
        #[cfg(not(feature = "planted"))]
        drop(old);
        self.counters.refused += 1;
        if !queued {
            self.urgent.push_back(Control::Refused(lane, number, attempt));
        }
    }

    /// Adds a fragment to a message that has its place.
    fn add(
        &mut self,
        path: PathId,
        at: usize,
        f: &Fragment<'_>,
        give: Give<'_, B>,
    ) -> Result<Kept, LinkError> {
        let lane = f.name.lane;
        let end = f.offset + u64::from(f.len);
        let inn = &mut self.inn[lane.index()];
        let number = inn.base + at as u64;
        let Slot::Open(r) = &mut inn.slots[at] else { return Ok(Kept::Yes) };
        if let Some(head) = f.head.filter(|&head| head != r.head) {
            return Err(LinkError::BadField {
                what: "head of a message",
                found: head.handler.0.into(),
                expected: "what its other fragments say",
            });
        }
        let highest = r.have.last().map_or(0, |last| last.1).max(end);
        let total = match (r.total, f.payload_len()) {
            (Some(a), Some(b)) if a != b => Err(b),
            (Some(total), _) | (None, Some(total)) if total < highest => Err(highest),
            (a, b) => Ok(a.or(b)),
        };
        let total = total.map_err(|found| LinkError::BadField {
            what: "payload length",
            found,
            expected: "what its other fragments say",
        })?;
        if f.attempt.wrapping_sub(r.attempt) as i8 > 0 {
            r.attempt = f.attempt;
        }
        if r.have.covers(f.offset, end) && f.len > 0 {
            self.counters.fragments_spare += 1;
            return Ok(Kept::Yes);
        }
        // The start of a message always finds room: then so does what is missing next, and it gets done.
        if f.offset > 0 && r.have.would_grow(f.offset, end) && r.have.len() >= self.config.max_ranges {
            return if self.config.lossless {
                Err(LinkError::BadField {
                    what: "holes in a message",
                    found: r.have.len() as u64,
                    expected: "fewer than agreed",
                })
            } else {
                Ok(Kept::No)
            };
        }
        r.total = total;
        let needed = total.unwrap_or(end);
        let have = r.place.as_mut().map_or(0, |place| place.as_mut().len() as u64);
        if have < needed && !self.grow(lane, at, needed, give) {
            return Ok(Kept::Yes);
        }
        let inn = &mut self.inn[lane.index()];
        let Slot::Open(r) = &mut inn.slots[at] else { return Ok(Kept::Yes) };
        let here = f.offset..f.offset + f.bytes.len() as u64;
        if let Some(place) = &mut r.place {
            place.as_mut()[here.start as usize..here.end as usize].copy_from_slice(f.bytes);
        }
        if here.end < end {
            self.expect_body(path, f, number);
            return Ok(Kept::Yes);
        }
        r.have.insert(here.start, here.end);
        if r.complete() {
            self.complete(lane, at);
        }
        Ok(Kept::Yes)
    }

    /// Moves a message whose length was not known to a longer buffer. Returns whether there is one.
    fn grow(&mut self, lane: Lane, at: usize, needed: u64, give: Give<'_, B>) -> bool {
        let Slot::Open(r) = &self.inn[lane.index()].slots[at] else { return false };
        let attempt = r.attempt;
        let ask = Incoming {
            channel: lane.channel(),
            priority: lane.priority(),
            order: lane.order(),
            head: r.head,
            len: r.total,
            at_least: needed,
        };
        let Some(Some(mut place)) = self.place(lane, at, &ask, give) else {
            self.refuse(lane, at, attempt);
            return false;
        };
        let Slot::Open(r) = &mut self.inn[lane.index()].slots[at] else { return false };
        if let (Some(old), Some((_, end))) = (&mut r.place, r.have.last()) {
            place.as_mut()[..end as usize].copy_from_slice(&old.as_mut()[..end as usize]);
        }
        r.place = Some(place);
        true
    }

    /// All of a message is here.
    fn complete(&mut self, lane: Lane, at: usize) {
        let Slot::Open(r) = self.inn[lane.index()].set(at, Slot::Done) else { return };
        let message = Message {
            channel: lane.channel(),
            priority: lane.priority(),
            order: lane.order(),
            head: r.head,
            len: r.total.unwrap_or(0),
            payload: r.place,
        };
        let waits = lane.order() == Order::Ordered && at > 0;
        #[cfg(feature = "planted")]
        let waits = waits && !self.config.planted(super::planted::Bug::AnyOrder);
        if waits {
            self.inn[lane.index()].set(at, Slot::Ready(message, r.attempt));
        } else {
            self.deliver(lane, message);
            self.advance(lane, at);
        }
    }

    fn deliver(&mut self, lane: Lane, message: Message<B>) {
        self.received[rank(lane.priority())].push_back(message);
        self.unreported += 1;
    }

    /// A slot became done: delivers what waited for it, moves the base, and sees to the receipt.
    fn advance(&mut self, lane: Lane, at: usize) {
        let index = lane.index();
        let number = self.inn[index].base + at as u64;
        while matches!(self.inn[index].slots.front(), Some(Slot::Done | Slot::Ready(..))) {
            if let Some(Slot::Ready(message, _)) = self.inn[index].slots.pop_front() {
                self.deliver(lane, message);
            }
            self.inn[index].base += 1;
            self.slots -= 1;
        }
        if self.inn[index].base > number {
            self.taken(lane);
        } else {
            self.lazy.push_back(Control::Done(lane, number));
            self.lazy_soon();
        }
    }

    /// A receipt for all below the base is to go out.
    pub(super) fn taken(&mut self, lane: Lane) {
        let inn = &mut self.inn[lane.index()];
        if !inn.taken_queued {
            inn.taken_queued = true;
            self.lazy.push_back(Control::Taken(lane));
        }
        self.lazy_soon();
    }

    fn lazy_soon(&mut self) {
        let many = self.unreported * 8 >= u64::from(self.config.messages_in_flight);
        let due = if many { self.now } else { self.now + self.config.ack_delay };
        self.lazy_at = Some(self.lazy_at.map_or(due, |at| at.min(due)));
    }

    #[cfg(feature = "planted")]
    fn take_twice(&mut self, f: &Fragment<'_>, give: Give<'_, B>) {
        let whole = f.offset == 0 && f.last && f.bytes.len() == f.len as usize;
        if !whole || !self.config.planted(super::planted::Bug::TakeTwice) {
            return;
        }
        let (Some(head), lane) = (f.head, f.name.lane) else { return };
        let (channel, priority, order) = (lane.channel(), lane.priority(), lane.order());
        let len = u64::from(f.len);
        let ask = Incoming { channel, priority, order, head, len: Some(len), at_least: len };
        let mut payload = if len > 0 { give(&ask) } else { None };
        if let Some(place) = &mut payload {
            place.as_mut()[..f.bytes.len()].copy_from_slice(f.bytes);
        }
        if payload.is_some() || len == 0 {
            self.deliver(lane, Message { channel, priority, order, head, len, payload });
        }
    }

    /// Whether the session still takes sends.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }
}
