//! Frames that go out.

use super::incoming::Slot;
use super::path::{Carried, Control, Outbound};
use super::planted::Bug;
use super::{rank, PathId, Session, Transmit};
use crate::types::{Order, Priority};
use crate::wire::{self, Fragment, Header, Name, Piece, StreamId, FRAGMENT_HEADER_MAX, HEADER_LEN};
use std::time::Duration;

/// After a fragment of so many bytes a frame on a stream ends: a receiver can read them straight into their
/// place.
const ENDS_FRAME: usize = 4096;
/// Bytes of the pieces beside fragments, at most.
const SMALL_PIECE: usize = 8;

/// What may go into a frame.
struct Allowed {
    /// Fragments by priority.
    priority: [bool; 2],
    /// Ordered messages.
    ordered: bool,
}

impl<B: AsMut<[u8]>> Session<B> {
    /// Writes the next frame for a path into `transmit`; `false` if there is none now. Call it when the path
    /// can take a frame, not before: what is written last is chosen last.
    pub fn poll_transmit(&mut self, now: Duration, path: PathId, transmit: &mut Transmit) -> bool {
        transmit.clear();
        self.now = self.now.max(now);
        let Some(known) = self.path(path).filter(|p| p.up) else { return false };
        let (max_frame, number) = (known.max_frame, known.next_number());
        let header = Header {
            path: path.0,
            len: 0,
            session: self.id.send,
            number,
            checksum: self.config.checksum.then_some(0),
        };
        if self.is_broken() {
            return self.write_abort(&header, path, transmit);
        }
        let allowed = self.allowed(now, path);
        let fragments = self.prune(&allowed);
        let Some(known) = self.path_mut(path) else { return false };
        let probe = known.probes > 0;
        let ack_due = known.ack_at.is_some_and(|at| at <= now);
        let lazy_due = self.lazy_at.is_some_and(|at| at <= now);
        let answers = allowed.ordered || self.path(path).is_some_and(|p| !p.suspect());
        let open = self.config.lossless || self.path(path).is_some_and(|p| p.table_open(&self.config));
        let small = answers && (open || probe);
        let control = !self.urgent.is_empty() || lazy_due || self.ping || self.pong;
        if !(fragments || probe || ack_due || control && small) {
            return false;
        }

        header.write(&mut transmit.bytes);
        transmit.len = HEADER_LEN;
        let mut carried = self.path_mut(path).map(|p| p.carried()).unwrap_or_default();
        // Refusals stand before the acknowledgement of what they refuse: the sender must not read the latter
        // as success.
        if small {
            self.write_control(true, max_frame, transmit, &mut carried);
        }
        let mut eliciting = transmit.bytes.len() > HEADER_LEN;
        self.write_ack(now, path, max_frame, transmit, &mut carried);
        if small {
            let before = transmit.bytes.len();
            self.write_control(false, max_frame, transmit, &mut carried);
            self.write_pings(path, transmit);
            eliciting |= transmit.bytes.len() > before;
        }
        transmit.len = transmit.bytes.len();
        let mut went = [false; 2];
        if fragments {
            self.write_fragments(path, &allowed, max_frame, transmit, &mut carried, &mut went);
            eliciting |= went != [false; 2];
        }
        if probe && !eliciting {
            wire::write_piece(&Piece::Ping, &mut transmit.bytes);
            transmit.len += 4;
            eliciting = true;
        }
        if transmit.len == HEADER_LEN {
            return false;
        }
        self.seal(transmit);
        let limited = self.ready.iter().flatten().all(|queue| queue.is_empty());
        let frame =
            Outbound { bytes: transmit.len, high: went == [false, true], eliciting, limited, carried };
        let config = &self.config;
        if let Some(Some(known)) = self.paths.get_mut(usize::from(path.0)) {
            known.on_sent(now, frame, config);
        }
        true
    }

    fn seal(&self, transmit: &mut Transmit) {
        let sum = self.config.checksum.then(|| {
            wire::seal(&mut transmit.bytes, transmit.len as u32, None);
            wire::checksum(transmit.slices())
        });
        wire::seal(&mut transmit.bytes, transmit.len as u32, sum);
    }

    fn write_abort(&mut self, header: &Header, path: PathId, transmit: &mut Transmit) -> bool {
        let Some(code) = self.abort else { return false };
        // A few times, as nobody will say whether it arrived.
        self.aborts_left = if self.config.lossless { 0 } else { self.aborts_left.saturating_sub(1) };
        if self.aborts_left == 0 {
            self.abort = None;
        }
        header.write(&mut transmit.bytes);
        wire::write_piece(&Piece::Abort { code }, &mut transmit.bytes);
        transmit.len = transmit.bytes.len();
        self.seal(transmit);
        let bytes = transmit.len;
        let frame = Outbound { bytes, high: false, eliciting: false, limited: true, carried: Vec::new() };
        let (now, config) = (self.now, &self.config);
        if let Some(Some(known)) = self.paths.get_mut(usize::from(path.0)) {
            known.on_sent(now, frame, config);
        }
        true
    }

    /// The path over which ordered messages go: the first that is up and answers, else the first that is up.
    pub(super) fn primary(&self) -> Option<PathId> {
        let up =
            || self.paths.iter().enumerate().filter_map(|(at, p)| Some((at, p.as_ref().filter(|p| p.up)?)));
        let found = up().find(|(_, p)| !p.suspect()).or_else(|| up().next());
        found.map(|(at, _)| PathId(at as u8))
    }

    fn allowed(&self, now: Duration, path: PathId) -> Allowed {
        let primary = self.primary();
        let ordered = primary == Some(path);
        let Some(known) = self.path(path) else { return Allowed { priority: [false; 2], ordered } };
        if self.config.lossless {
            return Allowed { priority: [true; 2], ordered };
        }
        // A path that does not answer gets only what asks it whether it still lives, as long as there is
        // another.
        if known.suspect() && !ordered {
            return Allowed { priority: [false; 2], ordered };
        }
        if known.probes > 0 {
            return Allowed { priority: [true; 2], ordered };
        }
        if !known.table_open(&self.config) {
            return Allowed { priority: [false; 2], ordered };
        }
        let low = known.window_open(Priority::Low) && known.rate.next_send() <= now;
        Allowed { priority: [low, known.window_open(Priority::High)], ordered }
    }

    /// Removes streams without work from the front of the queues; says whether something is left that may go.
    fn prune(&mut self, allowed: &Allowed) -> bool {
        let mut left = false;
        for priority in [Priority::Low, Priority::High] {
            let rank = rank(priority);
            if !allowed.priority[rank] {
                continue;
            }
            let begin = self.may_begin(priority);
            for any in 0..2 {
                while let Some(&stream) = self.ready[rank][any].front() {
                    let out = &mut self.out[usize::from(stream)];
                    if out.has_work(begin) {
                        left |= any == 1 || allowed.ordered;
                        break;
                    }
                    self.ready[rank][any].pop_front();
                    if out.wants_to_begin() {
                        out.starved = true;
                        self.starved[rank].push(stream);
                    } else {
                        out.queued = false;
                    }
                }
            }
        }
        left
    }

    /// Messages are done: streams that had to wait for that are served again.
    pub(super) fn wake_starved(&mut self) {
        for priority in [Priority::Low, Priority::High] {
            let rank = rank(priority);
            if self.starved[rank].is_empty() || !self.may_begin(priority) {
                continue;
            }
            for stream in self.starved[rank].drain(..) {
                self.out[usize::from(stream)].starved = false;
                let any = usize::from(StreamId::from_index(usize::from(stream)).order() == Order::Any);
                self.ready[rank][any].push_back(stream);
            }
        }
    }

    fn write_control(
        &mut self,
        urgent: bool,
        max_frame: usize,
        transmit: &mut Transmit,
        carried: &mut Vec<Carried>,
    ) {
        let lossless = self.config.lossless;
        let mut left = if urgent { self.urgent.len() } else { self.lazy.len() };
        while left > 0 && transmit.bytes.len() + SMALL_PIECE <= max_frame {
            left -= 1;
            let next = if urgent { self.urgent.pop_front() } else { self.lazy.pop_front() };
            let Some(mut control) = next else { break };
            let name = |stream: StreamId, number: u64| Name { stream, number: number as u32 };
            let piece = match &mut control {
                Control::Taken(stream) => {
                    let inn = &mut self.inn[stream.index()];
                    inn.taken_queued = false;
                    Piece::Taken(name(*stream, inn.base))
                }
                Control::Done(stream, number) => {
                    if self.inn[stream.index()].base > *number {
                        continue;
                    }
                    Piece::Done(name(*stream, *number))
                }
                Control::Refused(stream, number, known) => {
                    match self.inn[stream.index()].slot_mut(*number) {
                        Some(Slot::Refused { attempt, queued }) => {
                            *queued = false;
                            *known = *attempt;
                        }
                        _ => continue,
                    }
                    Piece::Refusal { name: name(*stream, *number), attempt: *known }
                }
                Control::Go(stream) => {
                    let inn = &mut self.inn[stream.index()];
                    inn.go_queued = false;
                    let Some((number, attempt)) = inn.first_refused() else { continue };
                    Piece::GoAhead { name: name(*stream, number), attempt }
                }
                Control::Accepted(stream, number) => {
                    let attempt = match self.inn[stream.index()].slot_mut(*number) {
                        Some(Slot::Open(r)) => {
                            r.accept_queued = false;
                            r.attempt
                        }
                        Some(Slot::Ready(_, attempt)) => *attempt,
                        _ => continue,
                    };
                    Piece::GoAhead { name: name(*stream, *number), attempt }
                }
                Control::Cancel(stream, number) => Piece::Cancel(name(*stream, *number)),
                Control::Close => Piece::Close,
            };
            wire::write_piece(&piece, &mut transmit.bytes);
            if lossless {
                if control == Control::Close {
                    self.closed();
                }
            } else {
                carried.push(Carried::Control(control));
            }
        }
        if !urgent && self.lazy.is_empty() {
            self.lazy_at = None;
            self.unreported = 0;
        }
    }

    fn write_ack(
        &mut self,
        now: Duration,
        path: PathId,
        max_frame: usize,
        transmit: &mut Transmit,
        carried: &mut Vec<Carried>,
    ) {
        // Never more than half of a frame, so that fragments get through as well.
        let room = (max_frame / 2).saturating_sub(transmit.bytes.len());
        let Some(known) = self.path_mut(path).filter(|p| p.ack_wanted()) else { return };
        if let Some(up_to) = known.write_ack(now, path.0, room, &mut transmit.bytes) {
            carried.push(Carried::Ack { up_to });
        }
    }

    fn write_pings(&mut self, path: PathId, transmit: &mut Transmit) {
        // Each path that is up would do; the primary is the one that matters.
        if self.ping && self.primary() == Some(path) {
            self.ping = false;
            wire::write_piece(&Piece::Ping, &mut transmit.bytes);
        }
        if self.pong {
            self.pong = false;
            wire::write_piece(&Piece::Pong, &mut transmit.bytes);
        }
    }

    fn write_fragments(
        &mut self,
        path: PathId,
        allowed: &Allowed,
        max_frame: usize,
        transmit: &mut Transmit,
        carried: &mut Vec<Carried>,
        went: &mut [bool; 2],
    ) {
        loop {
            let room = max_frame.saturating_sub(transmit.len);
            // A message is not split for a small rest of a frame.
            let least = if transmit.len == HEADER_LEN { 1 } else { max_frame / 8 };
            if room < FRAGMENT_HEADER_MAX + least {
                return;
            }
            let Some((rank, stream)) = self.next_stream(allowed) else { return };
            let priority = stream.priority();
            let begin = self.may_begin(priority);
            let out = &mut self.out[stream.index()];
            let before = out.in_flight();
            let cut = out.cut(room, path.0, begin, &self.config);
            self.in_flight += out.in_flight() - before;
            // To the back of the queue: each stream has one fragment at a time.
            let any = usize::from(stream.order() == Order::Any);
            self.ready[rank][any].push_back(stream.index() as u16);
            let Some(cut) = cut else { return };
            went[rank] = true;
            if cut.cancel {
                let name = Name { stream, number: cut.number as u32 };
                wire::write_piece(&Piece::Cancel(name), &mut transmit.bytes);
                transmit.len += SMALL_PIECE;
                carried.push(Carried::Control(Control::Cancel(stream, cut.number)));
                continue;
            }
            self.counters.fragments_sent += 1;
            self.counters.fragments_again += u64::from(cut.again);
            let len = cut.bytes.len();
            let fragment = Fragment {
                name: Name { stream, number: cut.number as u32 },
                attempt: cut.attempt,
                offset: cut.offset,
                len: len as u32,
                last: cut.last,
                head: cut.head,
                total: cut.total,
                bytes: &[],
            };
            wire::write_fragment_header(&fragment, &mut transmit.bytes);
            transmit.len += fragment.header_len() + len;
            if len <= self.config.inline {
                transmit.bytes.extend_from_slice(&cut.bytes);
            } else {
                transmit.parts.push((transmit.bytes.len(), cut.bytes));
            }
            if self.config.lossless {
                if len >= ENDS_FRAME {
                    return;
                }
            } else {
                let (number, attempt, offset) = (cut.number, cut.attempt, cut.offset);
                let head = cut.head.is_some();
                carried.push(Carried::Fragment { stream, number, attempt, offset, len: len as u32, head });
            }
        }
    }

    /// Whose turn it is: high before low, ordered and any in turn, and each stream in turn.
    fn next_stream(&mut self, allowed: &Allowed) -> Option<(usize, StreamId)> {
        self.prune(allowed);
        for rank in if self.config.planted(Bug::LowFirst) { [0, 1] } else { [1, 0] } {
            if !allowed.priority[rank] {
                continue;
            }
            let ordered = allowed.ordered && !self.ready[rank][0].is_empty();
            let any = !self.ready[rank][1].is_empty();
            let any = match (ordered, any) {
                (true, true) => {
                    self.turn[rank] = !self.turn[rank];
                    self.turn[rank]
                }
                (false, false) => continue,
                (_, any) => any,
            };
            let stream = self.ready[rank][usize::from(any)].pop_front()?;
            return Some((rank, StreamId::from_index(usize::from(stream))));
        }
        None
    }
}
