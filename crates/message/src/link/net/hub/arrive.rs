//! How units become peers: attempts of this side, strangers at the door, and the ways that both open.

use super::{agreement, Attempt, Hub, AGAIN, DIAL, FRAME, TOLD, WAY};
use crate::engine::{PathId, Session, SessionId};
use crate::error::{LinkError, MessageError};
use crate::link::hello::{self, Identity};
use crate::link::key;
use crate::link::net::config::{NetConfig, NetEvent, Transport};
use crate::link::net::datagram;
use crate::link::net::dial::{Call, Dial};
use crate::link::net::events::Interest;
use crate::link::net::gate::Visit;
use crate::link::net::knock::Reply;
use crate::link::net::peer::{Conn, Peer, Route, Way};
use crate::link::net::stream::{StreamReader, StreamWriter};
use crate::link::net::Fault;
use crate::link::noise::{Established, Message};
use crate::types::Address;
use core::time::Duration;
use polyduct_os::OsError;
use std::net::{SocketAddr, TcpStream};

impl<B: AsMut<[u8]>> Hub<B> {
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
    pub(super) fn go_on(&mut self, unit: Address, now: Duration) {
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

    pub(super) fn serve_gate(&mut self, now: Duration) -> Result<(), OsError> {
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
        let Some(at) = self.way_for(&peer, mine, now) else { return self.turn_back(peer.unit) };
        let number = (WAY + ((at as u64) << 32)) | u64::from(peer.unit);
        let added = match mine {
            true => self.events.change(&stream, number, Interest::Readable),
            false => self.events.add(&stream, number, Interest::Readable),
        };
        let (mut reader, writer) = (StreamReader::new(opener, FRAME as usize), StreamWriter::new(sealer));
        if mine {
            reader.may_be_refused(self.config.me);
        }
        let conn = Conn { stream, reader, writer, number, waits_to_write: false };
        match added {
            Ok(()) => self.open(&peer, at, Way::Conn(conn), FRAME as usize, now),
            Err(error) => {
                tracing::warn!(unit = peer.unit, %error, "cannot watch a connection");
                self.turn_back(peer.unit);
            }
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
        let bytes = if to.ip().is_loopback() { datagram::LOCAL } else { self.config.datagram_bytes };
        let frame = datagram::frame_limit(bytes.min(datagram::LIMIT));
        let confirm = confirm.map(|message| (message, now));
        self.by_index.insert(mine, (peer.unit, at));
        let route = Route { to, theirs: peer.index, mine, sealer, opener, confirm };
        self.open(&peer, at, Way::Route(route), frame, now);
    }

    /// There is no place for one that the door let in: unless it is a peer already, it may come again.
    fn turn_back(&mut self, unit: Address) {
        if !self.peers.contains_key(&unit) {
            self.free(unit);
        }
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
        if let Some(there) = self.peers.get(&unit).filter(|p| p.incarnation != incarnation) {
            // The door refuses it by name, unless both knocked before either was in.
            if !self.config.replaces && there.gone.is_none() && !there.left {
                tracing::warn!(unit, "turned another process away that says it is a unit that is connected");
                return None;
            }
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
        self.hold(unit, peer.incarnation);
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

    pub(super) fn handshake(&mut self, from: SocketAddr, bytes: &[u8], now: Duration) {
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
}
