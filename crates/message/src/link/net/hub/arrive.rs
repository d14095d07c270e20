//! Makes peers of units: attempts of this side, strangers that come, and the connections that both open.

use super::{agreement, Attempt, NetHub, AGAIN, DIAL, FRAME, REPLIES, TOLD, WAY};
use crate::engine::{PathId, Session, SessionId};
use crate::error::{LinkError, MessageError};
use crate::link::hello::{Header, Identity, Kind};
use crate::link::key;
use crate::link::net::acceptor::Visit;
use crate::link::net::call::Call;
use crate::link::net::config::{NetConfig, NetEvent, Transport};
use crate::link::net::datagram;
use crate::link::net::dial::Dial;
use crate::link::net::events::Interest;
use crate::link::net::handshakes::Reply;
use crate::link::net::pace::{self, Pace};
use crate::link::net::peer::{Conn, Peer, PeerLink, Route};
use crate::link::net::record::RecordWriter;
use crate::link::net::socket::set_unsent;
use crate::link::net::stream::StreamReader;
use crate::link::net::LinkFault;
use crate::link::noise::Established;
use crate::types::Address;
use core::time::Duration;
use polyduct_os::OsError;
use std::net::{SocketAddr, TcpStream};

impl<B: AsMut<[u8]>> NetHub<B> {
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

    pub(super) fn dial(&mut self, unit: Address, addr: SocketAddr, now: Duration) -> Result<Dial, LinkFault> {
        let NetConfig { patience, connect_timeout, .. } = self.config;
        let dial = Dial::new(&self.terms, unit, addr, patience, now, connect_timeout)?;
        self.events.add(dial.waits_for().0, DIAL | u64::from(unit), Interest::Both)?;
        Ok(dial)
    }

    fn call(&mut self, unit: Address, addr: SocketAddr, now: Duration) -> Result<Call, LinkFault> {
        let mut terms = self.terms.clone();
        terms.me.index = self.fresh_index()?;
        Call::new(terms, unit, addr, now, self.config.connect_timeout)
    }

    fn fresh_index(&self) -> Result<u32, OsError> {
        loop {
            let mut bytes = [0; 4];
            key::random(&mut bytes)?;
            let index = u32::from_le_bytes(bytes);
            let called = |a: &Attempt| matches!(a, Attempt::Call(call) if call.index() == index);
            if !self.by_index.contains_key(&index) && !self.attempts.values().any(called) {
                return Ok(index);
            }
        }
    }

    fn unreachable(&mut self, unit: Address, fault: LinkFault, now: Duration) {
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
                    self.events.change(stream, DIAL | u64::from(unit), interest).map_err(LinkFault::from)
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
                let due = call.due(now);
                // The socket may be reading now: it goes out afterwards.
                due.map(|message| self.replies.extend(message.map(|m| (addr, m.bytes().to_vec()))))
            }
        };
        if let Err(fault) = result {
            self.attempts.remove(&unit);
            match self.peers.contains_key(&unit) {
                false => self.unreachable(unit, fault, now),
                // It may have come by itself.
                true => self.not_mended(unit, fault, now),
            }
        }
    }

    pub(super) fn serve_acceptor(&mut self, now: Duration) -> Result<(), OsError> {
        let mut visits = Vec::new();
        let Some(acceptor) = &mut self.acceptor else { return Ok(()) };
        let served = acceptor.serve(now, |visit| visits.push(visit));
        for visit in visits {
            match visit {
                Visit::Arrival(arrival) => self.adopt_stream(arrival.stream, arrival.established, false, now),
                Visit::TurnedAway(from, fault) => self.turned_away(from, fault),
            }
        }
        served
    }

    fn turned_away(&mut self, from: SocketAddr, fault: LinkFault) {
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
        let added = added.and_then(|()| set_unsent(&stream, pace::FIRST));
        let (mut reader, writer) = (StreamReader::new(opener, FRAME as usize), RecordWriter::new(sealer));
        if mine {
            reader.may_be_refused(self.config.me);
        }
        let frame = (peer.frame_limit as usize).min(FRAME as usize);
        let pace = Pace::new(now);
        let conn = Conn { stream, reader, writer, number, waits_to_write: false, frame, pace };
        match added {
            Ok(()) => self.open(&peer, at, PeerLink::Conn(Box::new(conn)), FRAME as usize, now),
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
        called: bool,
        now: Duration,
    ) {
        let Established { peer, sealer, opener } = established;
        let Some(at) = self.way_for(&peer, called, now) else { return };
        let bytes = if to.ip().is_loopback() { datagram::LOCAL } else { self.config.datagram_bytes };
        let frame = datagram::frame_limit(bytes.min(datagram::LIMIT));
        self.by_index.insert(mine, (peer.unit, at));
        let route = Route { to, theirs: peer.index, mine, sealer, opener };
        self.open(&peer, at, PeerLink::Route(Box::new(route)), frame, now);
        if let Some(known) = self.peers.get_mut(&peer.unit).filter(|_| !called) {
            // The unit that called waits for a frame. It goes when the socket has been read.
            known.session.ask();
            self.mark(peer.unit);
        }
    }

    /// There is no place for one that the door let in: unless it is a peer already, it may come again.
    fn turn_back(&mut self, unit: Address) {
        if !self.peers.contains_key(&unit) {
            self.incarnations().into_iter().for_each(|there| there.free(unit));
        }
    }

    /// Which way to a peer this is, if there is a place for it; makes room where a new life of the peer
    /// replaces the old.
    fn way_for(&mut self, peer: &Identity, mine: bool, now: Duration) -> Option<usize> {
        let Identity { unit, incarnation, .. } = *peer;
        if unit >= self.config.units || unit == self.config.me || self.closing {
            return None;
        }
        if let Err(error) = self.check_settings(peer) {
            self.notes.push_back(NetEvent::Unreachable { unit, fault: error.into() });
            return None;
        }
        if let Some(there) = self.peers.get(&unit).filter(|p| p.incarnation != incarnation) {
            // The door refuses it by name, unless both knocked before either was in.
            if !self.config.replaces && there.gone.is_none() && !there.has_ended() && there.broken.is_none() {
                tracing::warn!(unit, "turned another process away that says it is a unit that is connected");
                return None;
            }
            let reason = "another life of it came".to_owned();
            self.lose(unit, MessageError::PeerLost { unit, reason });
            self.finish(unit, now);
        }
        self.lost.remove(&unit);
        let at = usize::from((self.config.me < unit) != mine);
        let Some(there) = self.peers.get_mut(&unit) else { return Some(at) };
        if let Some(old) = there.ways[at].take_if(|_| !mine) {
            // It began anew: it has forgotten this one, or lost it.
            if let PeerLink::Route(old) = old {
                self.by_index.remove(&old.mine);
            }
            there.session.handle_path_down(now, PathId(at as u8));
        }
        (there.gone.is_none() && there.ways[at].is_none()).then_some(at)
    }

    fn check_settings(&self, peer: &Identity) -> Result<(), LinkError> {
        if peer.features == agreement(&self.config) {
            return Ok(());
        }
        let (found, expected) = (peer.features.into(), "the same as here, by their checksum");
        Err(LinkError::BadField { what: "settings of the session", found, expected })
    }

    /// The unit that answered this side's call has other settings: it will not take this side in.
    fn disagrees(&self, unit: Address) -> Option<LinkError> {
        let Some(Attempt::Call(call)) = self.attempts.get(&unit) else { return None };
        self.check_settings(call.peer()?).err()
    }

    fn open(&mut self, peer: &Identity, at: usize, way: PeerLink, frame: usize, now: Duration) {
        let unit = peer.unit;
        let id = SessionId::between(self.terms.me.incarnation, peer.incarnation);
        let incarnation = peer.incarnation;
        self.incarnations().into_iter().for_each(|there| there.hold(unit, incarnation));
        let known = self.peers.entry(unit).or_insert_with(|| {
            let incarnation = peer.incarnation;
            self.notes.push_back(NetEvent::Connected { unit, incarnation });
            let mut config = self.config.session.clone();
            // A sealed datagram is its own checksum.
            config.checksum &= self.terms.trusted;
            let session = Session::new(config, unit, id, now);
            Peer {
                incarnation,
                session,
                ways: [None, None],
                left: false,
                freed: false,
                broken: None,
                gone: None,
                ready: false,
            }
        });
        known.ways[at] = Some(way);
        known.broken = None;
        let frame = frame.min(peer.frame_limit as usize);
        if let Err(error) = known.session.handle_path_up(now, PathId(at as u8), frame) {
            self.lose(unit, error);
        }
        // The one that the other side began may have come first. What that may already take for a way has to
        // become one.
        if let Some(Attempt::Call(call)) = self.attempts.get(&unit) {
            if !call.confirms() {
                self.attempts.remove(&unit);
            }
        }
        self.pump(unit, now);
    }

    pub(super) fn handshake(&mut self, from: SocketAddr, bytes: &[u8], now: Duration) {
        let kind = match Header::decode(bytes) {
            Ok(header) => Some(header.kind),
            Err(LinkError::Version { .. }) => None,
            Err(_) => return,
        };
        let answer = matches!(kind, Some(Kind::Answer | Kind::HandshakeRefusal | Kind::Cookie));
        if answer || kind.is_none() {
            let useful = self.attempts.iter_mut().filter_map(|(unit, attempt)| match attempt {
                Attempt::Call(call) if call.addr == from => call.handle(bytes, now).then_some(*unit),
                _ => None,
            });
            for unit in useful.collect::<Vec<_>>() {
                match self.disagrees(unit) {
                    None => self.go_on(unit, now),
                    Some(error) => {
                        self.attempts.remove(&unit);
                        self.unreachable(unit, error.into(), now);
                    }
                }
            }
        }
        if answer {
            return;
        }
        let (Ok(index), Some(handshakes)) = (self.fresh_index(), self.handshakes.as_mut()) else { return };
        match handshakes.handle(from, bytes, now, index) {
            Reply::Nothing => {}
            Reply::Answer(bytes) => self.reply(from, &bytes),
            Reply::Refuse(bytes, error) => {
                self.reply(from, &bytes);
                self.turned_away(from, error.into());
            }
            Reply::Arrival { established, index } => self.adopt_route(from, index, *established, false, now),
        }
    }

    /// A datagram came with an index that belongs to no way: to one that is about to be one, perhaps.
    pub(super) fn called(&mut self, index: u32, number: u64, record: &[u8], now: Duration) {
        let found = self.attempts.iter_mut().find_map(|(unit, attempt)| match attempt {
            Attempt::Call(call) if call.index() == index => {
                call.proof(number, record, &mut self.opened).map(|frame| (*unit, frame.to_vec()))
            }
            _ => None,
        });
        let Some((unit, frame)) = found else { return };
        let Some(Attempt::Call(call)) = self.attempts.remove(&unit) else { return };
        let addr = call.addr;
        let Some(established) = call.into_established() else { return };
        self.adopt_route(addr, index, established, true, now);
        if let Some(&(unit, at)) = self.by_index.get(&index) {
            self.take_frame(unit, at, &frame, now);
        }
    }

    /// The socket is reading now: answers go out afterwards.
    fn reply(&mut self, to: SocketAddr, bytes: &[u8]) {
        if self.replies.len() < REPLIES {
            self.replies.push((to, bytes.to_vec()));
        }
    }
}
