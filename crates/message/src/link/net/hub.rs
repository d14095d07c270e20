//! The state of an endpoint: its peers, and strangers that are about to become some. Behind a lock; the
//! thread of the endpoint and the program's own call it in turns. Calls take the time and never wait.

mod arrive;
mod away;
mod mend;
mod recent;

use away::Away;

use super::acceptor::Acceptor;
use super::call::Call;
use super::config::{NetConfig, NetEvent, Transport};
use super::datagram::{self, Datagrams};
use super::dial::Dial;
use super::events::{Events, Interest};
use super::handshakes::Handshakes;
use super::incarnations::Incarnations;
use super::peer::{Give, Peer, PeerLink, Scratch};
use super::{socket, LinkFault};
use crate::engine::{Broken, Event, PathId, Transmit};
use crate::error::MessageError;
use crate::link::hello::{Carrier, Identity};
use crate::link::key;
use crate::link::noise::Terms;
use crate::link::seal::RECORD;
use crate::types::Address;
use core::time::Duration;
use polyduct_os::OsError;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
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
/// Answers to strangers that wait for the socket.
const REPLIES: usize = 1024;
/// A unit that could not be reached is dialled again after this long.
const AGAIN: Duration = Duration::from_millis(50);
/// Reads of what came on a connection that takes nothing any more. What a peer sent that has ended is in the
/// socket already; one that goes on sending is heard no further.
const HEARD: usize = 16;

pub(crate) enum Attempt {
    Dial(Box<Dial>),
    Call(Box<Call>),
}

pub(crate) struct NetHub<B> {
    pub config: NetConfig,
    terms: Terms,
    events: Arc<Events>,
    acceptor: Option<Acceptor>,
    handshakes: Option<Handshakes>,
    datagrams: Option<Datagrams>,
    datagrams_wait: bool,
    /// Where units listen.
    pub book: FxHashMap<Address, SocketAddr>,
    attempts: FxHashMap<Address, Attempt>,
    not_before: FxHashMap<Address, Duration>,
    pub peers: FxHashMap<Address, Peer<B>>,
    by_index: FxHashMap<u32, (Address, usize)>,
    /// The connections that brought something lately, the latest first; some may be over.
    recent: Vec<(Address, usize)>,
    /// Units with connections that did not take all there was; some may have since.
    writers: Vec<Address>,
    /// Units that may have something to tell.
    ready: VecDeque<Address>,
    notes: VecDeque<NetEvent<B>>,
    told: usize,
    pub lost: FxHashMap<Address, MessageError>,
    give: Give<B>,
    scratch: Scratch,
    opened: Vec<u8>,
    replies: Vec<(SocketAddr, Vec<u8>)>,
    pub closing: bool,
    away: Away,
}

impl<B: AsMut<[u8]>> NetHub<B> {
    /// Binds the sockets. Returns the hub and where it listens.
    pub fn new(
        config: NetConfig,
        give: Give<B>,
        events: Arc<Events>,
    ) -> Result<(NetHub<B>, SocketAddr), MessageError> {
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
        let (mut acceptor, mut handshakes, mut datagrams) = (None, None, None);
        let incarnations = Incarnations::new(config.replaces);
        let addr = match config.transport {
            Transport::Tcp => {
                let listener = match &config.bound {
                    Some(bound) => socket::again(bound)?,
                    None => socket::listen(config.listen)?,
                };
                let addr = socket::local_addr(&listener)?;
                let door =
                    Acceptor::new(listener, terms.clone(), config.patience, config.limits, incarnations)?;
                events.add(&door, GATE, Interest::Readable)?;
                acceptor = Some(door);
                addr
            }
            Transport::Udp => {
                let socket = Datagrams::bind(config.listen, config.offload)?;
                events.add(socket.socket(), DATAGRAMS, Interest::Readable)?;
                let addr = socket.local_addr()?;
                handshakes = Some(Handshakes::new(terms.clone(), config.limits.deadline, incarnations)?);
                datagrams = Some(socket);
                addr
            }
        };
        let hub = NetHub {
            config,
            terms,
            events,
            acceptor,
            handshakes,
            datagrams,
            datagrams_wait: false,
            book: FxHashMap::default(),
            attempts: FxHashMap::default(),
            not_before: FxHashMap::default(),
            peers: FxHashMap::default(),
            by_index: FxHashMap::default(),
            recent: Vec::with_capacity(recent::RECENT),
            writers: Vec::new(),
            ready: VecDeque::new(),
            notes: VecDeque::new(),
            told: 0,
            lost: FxHashMap::default(),
            give,
            scratch: Scratch { transmit: Transmit::new(), waste: Vec::new() },
            opened: vec![0; RECORD],
            replies: Vec::new(),
            closing: false,
            away: Away::default(),
        };
        Ok((hub, addr))
    }

    pub fn incarnation(&self) -> u64 {
        self.terms.me.incarnation
    }

    /// What a unit answered to an attempt that may still come to something.
    pub fn refused(&self, unit: Address) -> Option<LinkFault> {
        match self.attempts.get(&unit)? {
            Attempt::Call(call) => call.refused().cloned().map(LinkFault::from),
            Attempt::Dial(_) => None,
        }
    }

    /// Something came from the sockets that have these numbers.
    pub fn handle(&mut self, number: u64, now: Duration) -> Result<(), OsError> {
        let unit = number as u32;
        match number {
            GATE => self.serve_acceptor(now)?,
            DATAGRAMS => self.receive(now)?,
            _ if number & !u64::from(u32::MAX) == DIAL => self.go_on(unit, now),
            _ => {
                let at = (number >> 32) as usize - 4;
                if self.read(unit, at, now) {
                    self.note_recent((unit, at));
                }
                // It may be that it takes more.
                self.mark(unit);
                self.pump(unit, now);
            }
        }
        Ok(())
    }

    /// Reads from a connection, if there still is one. Returns whether that brought anything, if only its
    /// end.
    fn read(&mut self, unit: Address, at: usize, now: Duration) -> bool {
        let Some(peer) = self.peers.get_mut(&unit) else { return false };
        let give = &mut self.give;
        let read = peer.read(at, now, &mut |incoming| give(unit, incoming), &mut self.scratch.waste);
        read.unwrap_or_else(|fault| {
            self.way_lost(unit, at, fault, now);
            true
        })
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
        // Answers to those who are not yet peers.
        self.flush();
        served.map(|_| ())
    }

    fn datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Duration) {
        let Some((index, number, record)) = datagram::split(bytes) else {
            return self.handshake(from, bytes, now);
        };
        let Some(&(unit, at)) = self.by_index.get(&index) else {
            return self.called(index, number, record, now);
        };
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        let Some(Some(PeerLink::Route(route))) = peer.ways.get_mut(at) else { return };
        let mut opened = std::mem::take(&mut self.opened);
        // What does not open, or is no frame, is noise on the way.
        if let Ok(frame) = datagram::open(&mut route.opener, number, record, &mut opened) {
            self.take_frame(unit, at, frame, now);
        }
        self.opened = opened;
    }

    fn take_frame(&mut self, unit: Address, at: usize, frame: &[u8], now: Duration) {
        let (Some(peer), give) = (self.peers.get_mut(&unit), &mut self.give) else { return };
        let taken = peer.session.handle_frame(now, PathId(at as u8), frame, &mut |i| give(unit, i));
        if let Err(error) = taken {
            tracing::debug!(unit, %error, "dropped a frame");
        }
        self.mark(unit);
    }

    /// A peer is of no further use. The user is told after what had come from it.
    fn lose(&mut self, unit: Address, error: MessageError) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        peer.gone.get_or_insert(error);
        for way in peer.ways.iter_mut().filter_map(Option::take) {
            if let PeerLink::Route(route) = way {
                self.by_index.remove(&route.mine);
            }
        }
        let incarnation = peer.incarnation;
        self.incarnations().into_iter().for_each(|there| there.bury(unit, incarnation));
        self.mark(unit);
    }

    /// Which lives of units may come in, where any may.
    pub fn incarnations(&mut self) -> Option<&mut Incarnations> {
        let by_tcp = self.acceptor.as_mut().map(|acceptor| &mut acceptor.incarnations);
        by_tcp.or(self.handshakes.as_mut().map(|handshakes| &mut handshakes.incarnations))
    }

    /// Forgets a peer that is over and tells so, unless it had left in order.
    fn finish(&mut self, unit: Address, now: Duration) {
        let Some(peer) = self.peers.remove(&unit) else { return };
        let left = MessageError::PeerLeft { unit };
        let error = peer.gone.filter(|_| !peer.left).unwrap_or(left);
        let error = self.away.explain(error, now);
        if !peer.left {
            self.notes.push_back(NetEvent::Lost { unit, error: error.clone() });
        }
        self.lost.insert(unit, error);
    }

    /// There may be something to poll of a peer.
    pub fn mark(&mut self, unit: Address) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        if !peer.ready {
            peer.ready = true;
            self.ready.push_back(unit);
        }
        // Its program may come again at once, and this one look for its events much later.
        if peer.has_ended() && !std::mem::replace(&mut peer.freed, true) {
            match peer.session.is_broken() {
                true => {
                    let incarnation = peer.incarnation;
                    self.incarnations().into_iter().for_each(|there| there.bury(unit, incarnation));
                }
                false => self.incarnations().into_iter().for_each(|there| there.free(unit)),
            }
        }
    }

    /// Whether there may be something to poll.
    pub fn has_events(&self) -> bool {
        !self.notes.is_empty() || !self.ready.is_empty()
    }

    /// Sends what a peer's session has to say.
    pub fn pump(&mut self, unit: Address, now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        let pumped = peer.pump(now, &self.events, self.datagrams.as_mut(), &mut self.scratch);
        if peer.waits_to_write() && !self.writers.contains(&unit) {
            self.writers.push(unit);
        }
        match pumped {
            Ok(()) => self.flush(),
            Err((at, fault)) => {
                self.hear_out(unit, at, now);
                self.way_lost(unit, at, fault, now);
            }
        }
    }

    /// Reads what came on a way that takes nothing any more: the last word of a peer that left is not to be
    /// missed. No more than [`HEARD`] reads.
    fn hear_out(&mut self, unit: Address, at: usize, now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        let give = &mut self.give;
        for _ in 0..HEARD {
            let read = peer.read(at, now, &mut |incoming| give(unit, incoming), &mut self.scratch.waste);
            if !matches!(read, Ok(true)) {
                break;
            }
        }
        self.mark(unit);
    }

    /// Whether something for a peer waits until a socket takes it.
    pub fn waits_to_write(&self, unit: Address) -> bool {
        self.datagrams_wait || self.peers.get(&unit).is_some_and(Peer::waits_to_write)
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

    /// Before anything else is looked at: whether this process was away.
    pub fn wakes(&mut self, now: Duration) {
        if let Some(time) = self.away.looks(now, self.config.session.silence) {
            tracing::warn!(?time, "this process did not run");
            self.peers.values_mut().for_each(|peer| peer.session.was_away(time, now));
        }
    }

    /// Does what is due. Returns when to come again at the latest.
    pub fn handle_time(&mut self, now: Duration) -> Result<Option<Duration>, OsError> {
        self.wakes(now);
        if self.acceptor.as_ref().and_then(Acceptor::next_deadline).is_some_and(|t| now >= t) {
            self.serve_acceptor(now)?;
        }
        let due = |attempt: &Attempt| match attempt {
            Attempt::Dial(dial) => dial.deadline(),
            Attempt::Call(call) => call.deadline(),
        };
        let over: Vec<_> =
            self.attempts.iter().filter(|(_, a)| now >= due(a)).map(|(unit, _)| *unit).collect();
        over.into_iter().for_each(|unit| self.go_on(unit, now));
        let mut next = self.acceptor.as_ref().and_then(Acceptor::next_deadline);
        let mut sooner = |t: Option<Duration>| next = next.into_iter().chain(t).min();
        self.attempts.values().for_each(|attempt| sooner(Some(due(attempt))));
        sooner(self.mend_all(now));
        let mut late = Vec::new();
        for (&unit, peer) in self.peers.iter_mut().filter(|(_, p)| p.gone.is_none()) {
            let deadline = peer.session.next_deadline();
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
        let next = next.map(|t| t.max(now + Duration::from_micros(50)));
        self.away.sleeps_until(next);
        Ok(next)
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self, now: Duration) -> Option<NetEvent<B>> {
        self.wakes(now);
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
                        self.finish(unit, now);
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
                let reason = match (why, &peer.broken) {
                    (Broken::Silent(time), Some(fault)) => {
                        format!("its connection broke ({fault}) and could not be made again for {time:.1?}")
                    }
                    (Broken::Silent(time), None) => format!("not heard for {time:.1?}"),
                    (Broken::Aborted(code), _) => format!("it ended the session with code {code}"),
                    (Broken::Here, _) => "the session was ended here".to_owned(),
                };
                self.lose(unit, MessageError::PeerLost { unit, reason });
                return None;
            }
        })
    }

    /// Both sides have said their last word.
    fn retire(&mut self, unit: Address) {
        let Some(peer) = self.peers.remove(&unit) else { return };
        for way in peer.ways.into_iter().flatten() {
            if let PeerLink::Route(route) = way {
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
