//! What an endpoint holds: its peers and whoever is about to become one. Behind a lock; the thread of the endpoint and the
//! program's own call it in turns. Calls take the time and never wait.

use super::config::{NetConfig, NetEvent, Transport};
use super::datagram::{self, Datagrams};
use super::dial::{Call, Dial};
use super::events::{Events, Interest};
use super::gate::{Gate, Visit};
use super::knock::{Knock, Reply};
use super::peer::{Conn, Give, Peer, Route, Scratch, Way};
use super::stream::{Left, StreamReader, StreamWriter};
use super::{socket, Fault};
use crate::engine::{Broken, Event, PathId, Session, SessionId, Transmit};
use crate::error::{LinkError, MessageError};
use crate::link::hello::{self, Carrier, Identity};
use crate::link::key;
use crate::link::noise::{Established, Message, Terms};
use crate::link::seal::RECORD;
use crate::types::Address;
use core::time::Duration;
use polyduct_os::OsError;
use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Numbers in the [`Events`]: what is at the door, the datagram socket, a dial and each way to a peer.
pub(crate) const GATE: u64 = 1;
pub(crate) const DATAGRAMS: u64 = 2;
const DIAL: u64 = 3 << 32;
const WAY: u64 = 4 << 32;

/// Bytes of a frame on a stream.
const FRAME: u32 = 1 << 20;
/// Strangers turned away that are told between two polls.
const TOLD: usize = 64;
/// A unit that could not be reached is dialled again after this long.
const AGAIN: Duration = Duration::from_millis(50);

pub(crate) enum Attempt {
    Dial(Box<Dial>),
    Call(Box<Call>),
}

pub(crate) struct Hub<B> {
    pub config: NetConfig,
    terms: Terms,
    events: Arc<Events>,
    gate: Option<Gate>,
    knock: Option<Knock>,
    datagrams: Option<Datagrams>,
    datagrams_wait: bool,
    /// Where units listen.
    pub book: HashMap<Address, SocketAddr>,
    attempts: HashMap<Address, Attempt>,
    not_before: HashMap<Address, Duration>,
    pub peers: HashMap<Address, Peer<B>>,
    by_index: HashMap<u32, (Address, usize)>,
    /// Units that may have something to tell.
    ready: VecDeque<Address>,
    notes: VecDeque<NetEvent<B>>,
    told: usize,
    pub lost: HashMap<Address, MessageError>,
    give: Give<B>,
    scratch: Scratch,
    opened: Vec<u8>,
    replies: Vec<(SocketAddr, Vec<u8>)>,
    pub closing: bool,
}

impl<B: AsMut<[u8]>> Hub<B> {
    /// Binds the sockets. Returns the hub and where it listens.
    pub fn new(
        config: NetConfig,
        give: Give<B>,
        events: Arc<Events>,
    ) -> Result<(Hub<B>, SocketAddr), MessageError> {
        let mut incarnation = [0; 8];
        key::random(&mut incarnation)?;
        let (carrier, frame_limit) = match config.transport {
            Transport::Tcp => (Carrier::Stream, FRAME),
            Transport::Udp => (Carrier::Datagrams, datagram::frame_limit(datagram::LIMIT) as u32),
        };
        let me = Identity {
            domain: config.domain,
            unit: config.me,
            incarnation: u64::from_le_bytes(incarnation),
            features: agreement(&config),
            frame_limit,
            index: 0,
        };
        let terms = Terms { key: config.key.clone(), me, trusted: config.trusted, carrier };
        let (mut gate, mut knock, mut datagrams) = (None, None, None);
        let addr = match config.transport {
            Transport::Tcp => {
                let listener = socket::listen(config.listen)?;
                let addr = socket::local_addr(&listener)?;
                let door = Gate::new(listener, terms.clone(), config.patience, config.limits)?;
                events.add(&door, GATE, Interest::Readable)?;
                gate = Some(door);
                addr
            }
            Transport::Udp => {
                let socket = Datagrams::bind(config.listen, config.offload)?;
                events.add(socket.socket(), DATAGRAMS, Interest::Readable)?;
                let addr = socket.local_addr()?;
                knock = Some(Knock::new(terms.clone(), config.limits.deadline));
                datagrams = Some(socket);
                addr
            }
        };
        let hub = Hub {
            config,
            terms,
            events,
            gate,
            knock,
            datagrams,
            datagrams_wait: false,
            book: HashMap::new(),
            attempts: HashMap::new(),
            not_before: HashMap::new(),
            peers: HashMap::new(),
            by_index: HashMap::new(),
            ready: VecDeque::new(),
            notes: VecDeque::new(),
            told: 0,
            lost: HashMap::new(),
            give,
            scratch: Scratch { transmit: Transmit::new(), waste: Vec::new() },
            opened: vec![0; RECORD],
            replies: Vec::new(),
            closing: false,
        };
        Ok((hub, addr))
    }

    pub fn incarnation(&self) -> u64 {
        self.terms.me.incarnation
    }

    /// Begins to reach a unit, unless that goes on already or failed just now.
    pub fn reach(&mut self, unit: Address, now: Duration) {
        let early = self.not_before.get(&unit).is_some_and(|t| now < *t);
        let Some(&addr) = self.book.get(&unit) else { return };
        if early || unit == self.config.me || self.closing {
            return;
        }
        if self.peers.contains_key(&unit)
            || self.attempts.contains_key(&unit)
            || self.lost.contains_key(&unit)
        {
            return;
        }
        let begun = match self.config.transport {
            Transport::Tcp => self.dial(unit, addr, now).map(|dial| Attempt::Dial(Box::new(dial))),
            Transport::Udp => self.call(unit, addr, now).map(|call| Attempt::Call(Box::new(call))),
        };
        match begun {
            Ok(attempt) => {
                self.attempts.insert(unit, attempt);
                self.go_on(unit, now);
            }
            Err(fault) => self.unreachable(unit, fault, now),
        }
    }

    fn dial(&mut self, unit: Address, addr: SocketAddr, now: Duration) -> Result<Dial, Fault> {
        let NetConfig { patience, connect_timeout, .. } = self.config;
        let dial = Dial::new(&self.terms, unit, addr, patience, now, connect_timeout)?;
        self.events.add(dial.waits_for().0, DIAL | u64::from(unit), Interest::Both)?;
        Ok(dial)
    }

    fn call(&mut self, unit: Address, addr: SocketAddr, now: Duration) -> Result<Call, Fault> {
        let mut terms = self.terms.clone();
        terms.me.index = self.fresh_index()?;
        Call::new(&terms, unit, addr, now, self.config.connect_timeout)
    }

    fn fresh_index(&self) -> Result<u32, OsError> {
        loop {
            let mut bytes = [0; 4];
            key::random(&mut bytes)?;
            let index = u32::from_le_bytes(bytes);
            if !self.by_index.contains_key(&index) {
                return Ok(index);
            }
        }
    }

    fn unreachable(&mut self, unit: Address, fault: Fault, now: Duration) {
        self.not_before.insert(unit, now + AGAIN);
        self.notes.push_back(NetEvent::Unreachable { unit, fault });
    }

    /// Goes on with an attempt.
    fn go_on(&mut self, unit: Address, now: Duration) {
        let Some(attempt) = self.attempts.get_mut(&unit) else { return };
        let result = match attempt {
            Attempt::Dial(dial) => match dial.serve(now) {
                Ok(None) => {
                    let (stream, connecting) = dial.waits_for();
                    let interest = if connecting { Interest::Writable } else { Interest::Readable };
                    self.events.change(stream, DIAL | u64::from(unit), interest).map_err(Fault::from)
                }
                Ok(Some(established)) => {
                    let Some(Attempt::Dial(dial)) = self.attempts.remove(&unit) else { return };
                    self.adopt_stream(dial.into_stream(), established, true, now);
                    Ok(())
                }
                Err(fault) => Err(fault),
            },
            Attempt::Call(call) => {
                let addr = call.addr;
                match (call.due(now), &mut self.datagrams) {
                    (Ok(Some(message)), Some(datagrams)) => {
                        datagrams.send_raw(addr, message.bytes());
                        Ok(())
                    }
                    (other, _) => other.map(|_| ()),
                }
            }
        };
        if let Err(fault) = result {
            self.attempts.remove(&unit);
            self.unreachable(unit, fault, now);
        }
    }

    /// Something came from the sockets that have these numbers.
    pub fn handle(&mut self, number: u64, now: Duration) -> Result<(), OsError> {
        let unit = number as u32;
        match number {
            GATE => self.serve_gate(now)?,
            DATAGRAMS => self.receive(now)?,
            _ if number & !u64::from(u32::MAX) == DIAL => self.go_on(unit, now),
            _ => self.read((number >> 32) as usize - 4, unit, now),
        }
        Ok(())
    }

    fn serve_gate(&mut self, now: Duration) -> Result<(), OsError> {
        let mut visits = Vec::new();
        let Some(gate) = &mut self.gate else { return Ok(()) };
        let served = gate.serve(now, |visit| visits.push(visit));
        for visit in visits {
            match visit {
                Visit::Arrival(arrival) => self.adopt_stream(arrival.stream, arrival.established, false, now),
                Visit::TurnedAway(from, fault) => self.turned_away(from, fault),
            }
        }
        served
    }

    fn turned_away(&mut self, from: SocketAddr, fault: Fault) {
        tracing::warn!(%from, %fault, "turned a stranger away");
        self.told += 1;
        if self.told <= TOLD {
            self.notes.push_back(NetEvent::TurnedAway { from, fault });
        }
    }

    fn adopt_stream(&mut self, stream: TcpStream, established: Established, mine: bool, now: Duration) {
        let Established { peer, sealer, opener } = established;
        let Some(at) = self.way_for(&peer, mine, now) else { return };
        let number = (WAY + ((at as u64) << 32)) | u64::from(peer.unit);
        let added = match mine {
            true => self.events.change(&stream, number, Interest::Readable),
            false => self.events.add(&stream, number, Interest::Readable),
        };
        let (reader, writer) = (StreamReader::new(opener, FRAME as usize), StreamWriter::new(sealer));
        let conn = Conn { stream, reader, writer, number, waits_to_write: false };
        match added {
            Ok(()) => self.open(&peer, at, Way::Conn(conn), FRAME as usize, now),
            Err(error) => tracing::warn!(unit = peer.unit, %error, "cannot watch a connection"),
        }
    }

    fn adopt_route(
        &mut self,
        to: SocketAddr,
        mine: u32,
        established: Established,
        confirm: Option<Message>,
        now: Duration,
    ) {
        let Established { peer, sealer, opener } = established;
        let Some(at) = self.way_for(&peer, confirm.is_some(), now) else { return };
        let bytes = self.config.datagram_bytes.unwrap_or_else(|| datagram::datagram_bytes(to));
        let frame = datagram::frame_limit(bytes.min(datagram::LIMIT));
        let confirm = confirm.map(|message| (message, now));
        self.by_index.insert(mine, (peer.unit, at));
        let route = Route { to, theirs: peer.index, mine, sealer, opener, confirm };
        self.open(&peer, at, Way::Route(route), frame, now);
    }

    /// Which way to a peer this is, if there is a place for it; makes room where a new life of the peer replaces the old.
    fn way_for(&mut self, peer: &Identity, mine: bool, now: Duration) -> Option<usize> {
        let Identity { unit, incarnation, .. } = *peer;
        if unit >= self.config.units || unit == self.config.me || self.closing {
            return None;
        }
        if peer.features != agreement(&self.config) {
            let (found, expected) = (peer.features.into(), "the same as here, by their checksum");
            let error = LinkError::BadField { what: "settings of the session", found, expected };
            self.notes.push_back(NetEvent::Unreachable { unit, fault: error.into() });
            return None;
        }
        if self.peers.get(&unit).is_some_and(|p| p.incarnation != incarnation) {
            let reason = "another life of it came".to_owned();
            self.lose(unit, MessageError::PeerLost { unit, reason }, now);
            self.finish(unit);
        }
        self.lost.remove(&unit);
        let at = usize::from((self.config.me < unit) != mine);
        let taken = self.peers.get(&unit).is_some_and(|p| p.gone.is_some() || p.ways[at].is_some());
        (!taken).then_some(at)
    }

    fn open(&mut self, peer: &Identity, at: usize, way: Way, frame: usize, now: Duration) {
        let unit = peer.unit;
        let id = SessionId::between(self.terms.me.incarnation, peer.incarnation);
        let known = self.peers.entry(unit).or_insert_with(|| {
            let incarnation = peer.incarnation;
            self.notes.push_back(NetEvent::Connected { unit, incarnation });
            let mut config = self.config.session.clone();
            // A sealed datagram is its own checksum.
            config.checksum &= self.terms.trusted;
            let session = Session::new(config, unit, id, now);
            Peer { incarnation, session, ways: [None, None], left: false, gone: None, ready: false }
        });
        known.ways[at] = Some(way);
        let frame = frame.min(peer.frame_limit as usize);
        if let Err(error) = known.session.handle_path_up(now, PathId(at as u8), frame) {
            self.lose(unit, error, now);
        }
        // The one that the other side began may have come first.
        if let Some(Attempt::Call(_)) = self.attempts.get(&unit) {
            self.attempts.remove(&unit);
        }
        self.pump(unit, now);
    }

    fn read(&mut self, at: usize, unit: Address, now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        let give = &mut self.give;
        match peer.read(at, now, &mut |incoming| give(unit, incoming), &mut self.scratch.waste) {
            Ok(Left::Nothing | Left::Perhaps) => {}
            Err(fault) => self.way_lost(unit, at, fault, now),
        }
        self.mark(unit);
        self.pump(unit, now);
    }

    fn receive(&mut self, now: Duration) -> Result<(), OsError> {
        let Some(mut datagrams) = self.datagrams.take() else { return Ok(()) };
        let mut served = Ok(true);
        // A few system calls' worth; what is left makes the socket ready again.
        for _ in 0..8 {
            served = datagrams.receive(|from, bytes| self.datagram(from, bytes, now));
            if !matches!(served, Ok(true)) {
                break;
            }
        }
        self.datagrams = Some(datagrams);
        for unit in self.ready.iter().copied().collect::<Vec<_>>() {
            self.pump(unit, now);
        }
        served.map(|_| ())
    }

    fn datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Duration) {
        let Some((index, number, record)) = datagram::split(bytes) else {
            return self.handshake(from, bytes, now);
        };
        let Some(&(unit, at)) = self.by_index.get(&index) else { return };
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        let Some(Some(Way::Route(route))) = peer.ways.get_mut(at) else { return };
        // What does not open, or is no frame, is noise on the way.
        let Ok(frame) = datagram::open(&mut route.opener, number, record, &mut self.opened) else { return };
        route.confirm = None;
        let give = &mut self.give;
        let taken = peer.session.handle_frame(now, PathId(at as u8), frame, &mut |i| give(unit, i));
        if let Err(error) = taken {
            tracing::debug!(unit, %error, "dropped a frame");
        }
        self.mark(unit);
    }

    fn handshake(&mut self, from: SocketAddr, bytes: &[u8], now: Duration) {
        if hello::check_start(bytes).is_err_and(|e| !matches!(e, LinkError::Version { .. })) {
            return;
        }
        let mut answered = None;
        for (unit, attempt) in &mut self.attempts {
            if let Attempt::Call(call) = attempt {
                if call.addr == from {
                    answered = answered.or(call.handle(bytes).map(|done| (*unit, call.index, done)));
                }
            }
        }
        if let Some((unit, index, (established, confirm))) = answered {
            self.attempts.remove(&unit);
            return self.adopt_route(from, index, established, Some(confirm), now);
        }
        let (Ok(index), Some(knock)) = (self.fresh_index(), self.knock.as_mut()) else { return };
        match knock.handle(from, bytes, now, index) {
            Reply::Nothing => {}
            Reply::Answer(bytes) => self.reply(from, &bytes),
            Reply::Refuse(bytes, error) => {
                self.reply(from, &bytes);
                self.turned_away(from, error.into());
            }
            Reply::Arrival { established, index } => self.adopt_route(from, index, *established, None, now),
        }
    }

    /// The socket is reading now: answers go out afterwards.
    fn reply(&mut self, to: SocketAddr, bytes: &[u8]) {
        if self.replies.len() < TOLD {
            self.replies.push((to, bytes.to_vec()));
        }
    }

    /// A way to a peer is over; with the last one, so is the peer.
    fn way_lost(&mut self, unit: Address, at: usize, fault: Fault, now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        peer.ways[at] = None;
        peer.session.handle_path_down(now, PathId(at as u8));
        let error = match fault {
            Fault::Peer(error) => MessageError::BadPeer { unit, error },
            // Where both began at once, the other connection goes on.
            Fault::System(OsError::PeerClosed) if peer.has_way() => return,
            Fault::System(OsError::PeerClosed) => {
                MessageError::PeerLost { unit, reason: "its connection ended".to_owned() }
            }
            Fault::System(error) => MessageError::PeerLost { unit, reason: error.to_string() },
        };
        self.lose(unit, error, now);
    }

    /// A peer is of no further use. The user is told after what had come from it.
    fn lose(&mut self, unit: Address, error: MessageError, _now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        peer.gone.get_or_insert(error);
        for way in peer.ways.iter_mut().filter_map(Option::take) {
            if let Way::Route(route) = way {
                self.by_index.remove(&route.mine);
            }
        }
        let incarnation = peer.incarnation;
        self.gate.iter_mut().for_each(|gate| gate.bury(unit, incarnation));
        self.knock.iter_mut().for_each(|knock| knock.bury(unit, incarnation));
        self.mark(unit);
    }

    /// Forgets a peer that is over and tells so, unless it had left in order.
    fn finish(&mut self, unit: Address) {
        let Some(peer) = self.peers.remove(&unit) else { return };
        let left = MessageError::PeerLeft { unit };
        let error = peer.gone.filter(|_| !peer.left).unwrap_or(left);
        if !peer.left {
            self.notes.push_back(NetEvent::Lost { unit, error: error.clone() });
        }
        self.lost.insert(unit, error);
    }

    fn mark(&mut self, unit: Address) {
        if let Some(peer) = self.peers.get_mut(&unit).filter(|p| !p.ready) {
            peer.ready = true;
            self.ready.push_back(unit);
        }
    }

    /// Whether there may be something to poll.
    pub fn has_events(&self) -> bool {
        !self.notes.is_empty() || !self.ready.is_empty()
    }

    /// Sends what a peer's session has to say.
    pub fn pump(&mut self, unit: Address, now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        match peer.pump(now, &self.events, self.datagrams.as_mut(), &mut self.scratch) {
            Ok(()) => self.flush(),
            Err((at, fault)) => self.way_lost(unit, at, fault, now),
        }
    }

    /// Sends the datagrams that wait.
    fn flush(&mut self) {
        let Some(datagrams) = &mut self.datagrams else { return };
        for (to, bytes) in self.replies.drain(..) {
            datagrams.send_raw(to, &bytes);
        }
        let all = match datagrams.flush() {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "datagrams were not sent");
                true
            }
        };
        if all == self.datagrams_wait {
            let interest = if all { Interest::Readable } else { Interest::Both };
            if self.events.change(datagrams.socket(), DATAGRAMS, interest).is_ok() {
                self.datagrams_wait = !all;
            }
        }
    }

    /// Does what is due. Returns when to come again at the latest.
    pub fn handle_time(&mut self, now: Duration) -> Result<Option<Duration>, OsError> {
        if self.gate.as_ref().and_then(Gate::next_deadline).is_some_and(|t| now >= t) {
            self.serve_gate(now)?;
        }
        let due = |attempt: &Attempt| match attempt {
            Attempt::Dial(dial) => dial.deadline(),
            Attempt::Call(call) => call.deadline(),
        };
        let over: Vec<_> =
            self.attempts.iter().filter(|(_, a)| now >= due(a)).map(|(unit, _)| *unit).collect();
        over.into_iter().for_each(|unit| self.go_on(unit, now));
        let mut next = self.gate.as_ref().and_then(Gate::next_deadline);
        let mut sooner = |t: Option<Duration>| next = next.into_iter().chain(t).min();
        self.attempts.values().for_each(|attempt| sooner(Some(due(attempt))));
        let mut late = Vec::new();
        for (&unit, peer) in self.peers.iter_mut().filter(|(_, p)| p.gone.is_none()) {
            let confirm = peer.ways.iter().find_map(|way| match way {
                Some(Way::Route(route)) => route.confirm.as_ref().map(|(_, again)| *again),
                _ => None,
            });
            let deadline = peer.session.next_deadline().into_iter().chain(confirm).min();
            if deadline.is_some_and(|t| now >= t) {
                peer.session.handle_time(now);
                late.push(unit);
            }
            sooner(deadline);
        }
        for unit in late {
            self.mark(unit);
            self.pump(unit, now);
            sooner(self.peers.get_mut(&unit).and_then(|p| p.session.next_deadline()));
        }
        self.flush();
        // What was due just now is over; what the sockets do not take waits for them, not for a time.
        Ok(next.map(|t| t.max(now + Duration::from_micros(50))))
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self, now: Duration) -> Option<NetEvent<B>> {
        loop {
            if let Some(note) = self.notes.pop_front() {
                return Some(note);
            }
            self.told = 0;
            let unit = *self.ready.front()?;
            let Some(peer) = self.peers.get_mut(&unit) else {
                self.ready.pop_front();
                continue;
            };
            match peer.session.poll_event() {
                Some(event) => {
                    if let Some(event) = self.translate(unit, event, now) {
                        // The others have their turn too.
                        self.ready.rotate_left(1);
                        return Some(event);
                    }
                }
                None => {
                    peer.ready = false;
                    self.ready.pop_front();
                    let over = peer.session.is_over() && peer.left;
                    if peer.gone.is_some() {
                        self.finish(unit);
                        continue;
                    }
                    self.pump(unit, now);
                    if over {
                        self.retire(unit);
                    }
                }
            }
        }
    }

    fn translate(&mut self, unit: Address, event: Event<B>, now: Duration) -> Option<NetEvent<B>> {
        let peer = self.peers.get_mut(&unit)?;
        Some(match event {
            Event::Message(message) => NetEvent::Message { from: unit, message },
            Event::Delivered(token) => NetEvent::Delivered { to: unit, token },
            Event::Refused(token) => NetEvent::Refused { to: unit, token },
            Event::PeerClosed => {
                peer.left = true;
                peer.session.close(now);
                NetEvent::Left { unit }
            }
            Event::Closed => NetEvent::Closed { unit },
            Event::Broken(why) => {
                let reason = match why {
                    Broken::Silent(time) => format!("not heard for {time:.1?}"),
                    Broken::Aborted(code) => format!("it ended the session with code {code}"),
                    Broken::Here => "the session was ended here".to_owned(),
                };
                self.lose(unit, MessageError::PeerLost { unit, reason }, now);
                return None;
            }
        })
    }

    /// Both sides have said their last word.
    fn retire(&mut self, unit: Address) {
        let Some(peer) = self.peers.remove(&unit) else { return };
        for way in peer.ways.into_iter().flatten() {
            if let Way::Route(route) = way {
                self.by_index.remove(&route.mine);
            }
        }
        self.lost.insert(unit, MessageError::PeerLeft { unit });
    }
}

/// What both sides' sessions must have in common.
fn agreement(config: &NetConfig) -> u32 {
    let s = &config.session;
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(s.max_payload.to_le_bytes());
    bytes.extend(s.messages_in_flight.to_le_bytes());
    bytes.extend(s.channels.to_le_bytes());
    bytes.push(s.lossless.into());
    crc32c::crc32c(&bytes)
}
