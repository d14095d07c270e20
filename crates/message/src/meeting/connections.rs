//! Serves the connections that processes of this user make to the name of a unit.

use super::CROWDED;
use crate::handshake::{Bad, Encoded, Incoming, Protocol};
use polyduct_os::{
    poll::{poll, PollItem},
    process::PidFd,
    socket::{Conn, Listener, Sent, MESSAGE_LIMIT},
    OsError,
};
use serde::{de::DeserializeOwned, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Names a connection; 0 is none.
pub type ConnId = u64;

/// A descriptor that is handed out, maybe to many: what waits to be sent takes up no further one.
pub type Shared = Arc<OwnedFd>;

/// Connections whose process has not been admitted; for one more, the one that came first is dropped.
pub const STRANGERS: usize = 256;

struct Peer {
    conn: Conn,
    /// Hangs up also when a forked child keeps the socket open.
    process: Option<PidFd>,
    pid: u32,
    outbox: VecDeque<(Encoded, Vec<Shared>)>,
    /// Too many descriptors are on their way for those that wait in the outbox.
    crowded: bool,
    admitted: bool,
    /// Closed when the outbox is empty.
    ends: bool,
}

impl Peer {
    fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.is_alive())
    }
}

/// What a connection has said.
pub enum Heard<T> {
    /// A message, and the descriptors that came along.
    Message(T, Vec<OwnedFd>),
    /// Nothing more for now.
    Nothing,
    /// It hung up, or its process has ended.
    Gone,
    /// Something else than a message of the protocol.
    Bad(Bad),
}

/// What has happened.
pub struct Ready {
    /// For each of the other descriptors whether something came.
    pub others: Vec<bool>,
    /// Somebody waits to be [accepted](Connections::accept).
    pub knocked: bool,
    /// Connections to be [heard](Connections::hear).
    pub conns: Vec<ConnId>,
}

/// The listener of a unit, and who has come to it.
pub struct Connections {
    /// `None`: nobody comes any more.
    listener: Option<Listener>,
    protocol: Protocol,
    peers: BTreeMap<ConnId, Peer>,
    next: ConnId,
    buffer: Vec<u8>,
}

impl Connections {
    /// Nobody has come yet.
    pub fn new(listener: Listener, protocol: Protocol) -> Connections {
        let (listener, peers, buffer) = (Some(listener), BTreeMap::new(), vec![0; MESSAGE_LIMIT]);
        Connections { listener, protocol, peers, next: 1, buffer }
    }

    /// The name is free for another.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Waits until something happens to a connection or one of `others`, or `timeout` is over.
    ///
    /// # Errors
    /// The system's, where it cannot wait for so many.
    pub fn wait(&self, others: Vec<PollItem<'_>>, timeout: Option<Duration>) -> Result<Ready, OsError> {
        let crowded = self.peers.values().any(|peer| peer.crowded);
        let timeout = if crowded { Some(timeout.map_or(CROWDED, |t| t.min(CROWDED))) } else { timeout };
        let first = others.len();
        let mut items = others;
        self.items(&mut items);
        poll(&mut items, timeout)?;
        let (others, items) = items.split_at(first);
        let (peers, listener) = items.split_at(2 * self.peers.len());
        let any = |items: &[PollItem<'_>]| items.iter().any(PollItem::is_ready);
        let conns = self.peers.iter().zip(peers.chunks(2));
        let conns = conns.filter(|((_, peer), items)| peer.crowded || any(items)).map(|((&id, _), _)| id);
        let others = others.iter().map(PollItem::is_ready).collect();
        Ok(Ready { others, knocked: any(listener), conns: conns.collect() })
    }

    /// Adds what to wait for, where [`wait`](Self::wait) is not what waits.
    pub fn items<'a>(&'a self, items: &mut Vec<PollItem<'a>>) {
        items.reserve(1 + 2 * self.peers.len());
        for peer in self.peers.values() {
            // A unit that does not take its answers is not asked for more questions.
            items.push(match peer.outbox.is_empty() {
                true => PollItem::readable(&peer.conn),
                false if peer.crowded => PollItem::hangup(&peer.conn),
                false => PollItem::writable(&peer.conn),
            });
            items.push(match &peer.process {
                Some(process) => PollItem::readable(process),
                None => PollItem::hangup(&peer.conn),
            });
        }
        items.extend(self.listener.as_ref().map(PollItem::readable));
    }

    /// Takes in a waiting process of this user. One that comes while no descriptor is left is told
    /// `refusal` of that.
    pub fn accept<T: Serialize>(&mut self, refusal: impl Fn(&OsError) -> T) -> Option<ConnId> {
        let protocol = self.protocol;
        let refuse = |conn: &Conn, error: &OsError| {
            let _ = protocol.encode(&refusal(error)).and_then(|message| message.send(conn, &[]));
        };
        loop {
            let conn = self.listener.as_ref()?.accept_or(refuse).ok()??;
            if conn.stranger() != Ok(None) {
                tracing::warn!(cred = ?conn.peer(), "turned a connection away");
                continue;
            }
            let strangers = || self.peers.iter().filter(|(_, peer)| !peer.admitted).map(|(&id, _)| id);
            if strangers().count() >= STRANGERS {
                let oldest = strangers().next();
                oldest.into_iter().for_each(|id| self.drop(id));
            }
            return Some(self.adopt(conn));
        }
    }

    /// Serves a connection that was made in another way.
    pub fn adopt(&mut self, conn: Conn) -> ConnId {
        let id = self.next;
        self.next += 1;
        let (pid, process) =
            (conn.peer().map_or(0, |cred| cred.pid), conn.peer_pidfd().ok().map(PidFd::shared));
        let (outbox, crowded, admitted, ends) = (VecDeque::new(), false, false, false);
        self.peers.insert(id, Peer { conn, process, pid, outbox, crowded, admitted, ends });
        id
    }

    /// A connection is a unit's: strangers do not push it out.
    pub fn admit(&mut self, id: ConnId) {
        self.peers.entry(id).and_modify(|peer| peer.admitted = true);
    }

    /// The connections that were [admitted](Self::admit), in the order in which they came.
    pub fn admitted(&self) -> Vec<ConnId> {
        self.peers.iter().filter(|(_, peer)| peer.admitted).map(|(&id, _)| id).collect()
    }

    /// Everybody who is there.
    pub fn all(&self) -> Vec<ConnId> {
        self.peers.keys().copied().collect()
    }

    /// The number of the process at the other end, as this process sees it; 0 where it has none here.
    pub fn pid(&self, id: ConnId) -> u32 {
        self.peers.get(&id).map_or(0, |peer| peer.pid)
    }

    /// The process at the other end, where the system gives a descriptor of it.
    pub fn process(&self, id: ConnId) -> Option<&PidFd> {
        self.peers.get(&id)?.process.as_ref()
    }

    /// Connections of `ids` that have hung up, or whose processes have ended.
    pub fn look_at(&self, ids: &[ConnId]) -> Vec<ConnId> {
        let peers: Vec<_> = ids.iter().filter_map(|id| Some((*id, self.peers.get(id)?))).collect();
        let mut items = Vec::with_capacity(2 * peers.len());
        for (_, peer) in &peers {
            items.push(PollItem::hangup(&peer.conn));
            items.push(peer.process.as_ref().map_or(PollItem::hangup(&peer.conn), PollItem::readable));
        }
        if poll(&mut items, Some(Duration::ZERO)).is_err() {
            return Vec::new();
        }
        let gone =
            peers.iter().zip(items.chunks(2)).filter(|(_, items)| items.iter().any(PollItem::is_ready));
        gone.map(|((id, _), _)| *id).collect()
    }

    /// The next message of a connection, after what waits for it was sent. A unit that does not take that is
    /// not heard.
    pub fn hear<T: DeserializeOwned>(&mut self, id: ConnId) -> Heard<T> {
        self.flush(id);
        let Some(peer) = self.peers.get(&id) else { return Heard::Gone };
        if !peer.outbox.is_empty() {
            return if peer.has_ended() { Heard::Gone } else { Heard::Nothing };
        }
        match self.protocol.receive(&peer.conn, &mut self.buffer) {
            Incoming::Message(message, fds) => Heard::Message(message, fds),
            // Nothing more to read, and yet its process may be over while a child of it holds the socket.
            Incoming::Nothing if peer.has_ended() => Heard::Gone,
            Incoming::Nothing => Heard::Nothing,
            Incoming::Closed => Heard::Gone,
            Incoming::Bad(bad) => Heard::Bad(bad),
        }
    }

    /// Sends now, or as soon as there is room. A unit that is gone is noticed by its hangup.
    pub fn send<T: Serialize>(&mut self, id: ConnId, message: &T, fds: Vec<Shared>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        match self.protocol.encode(message) {
            Ok(encoded) => peer.outbox.push_back((encoded, fds)),
            Err(error) => tracing::warn!(%error, "an answer cannot be sent"),
        }
        self.flush(id);
    }

    /// Whether nothing waits to be sent to this one.
    pub fn is_flushed(&self, id: ConnId) -> bool {
        self.peers.get(&id).is_none_or(|peer| peer.outbox.is_empty())
    }

    /// Waits, for `most` at the longest, until one of these takes more of what waits for it, and sends that.
    /// Hears nobody: what they say is there later.
    ///
    /// # Errors
    /// The system's, where it cannot wait for so many.
    pub fn send_on(&mut self, ids: &[ConnId], most: Duration) -> Result<(), OsError> {
        let waiting: Vec<ConnId> = ids.iter().copied().filter(|&id| !self.is_flushed(id)).collect();
        let peers = || waiting.iter().filter_map(|id| self.peers.get(id));
        let most = if peers().any(|peer| peer.crowded) { most.min(CROWDED) } else { most };
        let ready = peers().filter(|peer| !peer.crowded);
        let mut items: Vec<_> = ready.map(|peer| PollItem::writable(&peer.conn)).collect();
        poll(&mut items, Some(most))?;
        for id in waiting {
            self.flush(id);
            if self.peers.get(&id).is_some_and(Peer::has_ended) {
                self.drop(id);
            }
        }
        Ok(())
    }

    /// Hangs up, as soon as everything was sent.
    pub fn finish(&mut self, id: ConnId) {
        self.peers.entry(id).and_modify(|peer| peer.ends = true);
        self.flush(id);
    }

    /// Hangs up.
    pub fn drop(&mut self, id: ConnId) {
        self.peers.remove(&id);
    }

    /// Hands a connection on to somebody else who serves it.
    pub fn take(&mut self, id: ConnId) -> Option<Conn> {
        self.peers.remove(&id).map(|peer| peer.conn)
    }

    fn flush(&mut self, id: ConnId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.crowded = false;
        while let Some((message, fds)) = peer.outbox.front() {
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            match message.send(&peer.conn, &fds) {
                Ok(Sent::WouldBlock) => return,
                // They arrive as their receivers read.
                Err(OsError::TooManyInFlight { .. }) => {
                    peer.crowded = true;
                    return;
                }
                Ok(Sent::Done) | Err(_) => peer.outbox.pop_front(),
            };
        }
        if peer.ends {
            self.peers.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::FILE;

    /// A unit at this name, and a way to connect to it.
    fn at(name: &str) -> (Connections, impl Fn() -> Conn) {
        let name = format!("polyduct-test/{}/{name}", std::process::id()).into_bytes();
        let connections = Connections::new(Listener::bind(&name).unwrap(), FILE);
        (connections, move || Conn::connect(&name).unwrap())
    }

    fn say(conn: &Conn, number: u32) {
        assert_eq!(FILE.encode(&number).unwrap().send(conn, &[]), Ok(Sent::Done));
    }

    fn told(conn: &Conn) -> Option<u32> {
        match FILE.receive(conn, &mut vec![0; MESSAGE_LIMIT]) {
            Incoming::Message(number, _) => Some(number),
            _ => None,
        }
    }

    #[test]
    fn a_crowd_of_strangers_pushes_out_no_unit() {
        let (mut connections, connect) = at("crowd");
        let unit = connect();
        say(&unit, 7);
        let id = connections.accept(|_| 0u32).unwrap();
        assert!(matches!(connections.hear::<u32>(id), Heard::Message(7, _)));
        connections.admit(id);
        let crowd: Vec<Conn> = (0..STRANGERS + 3)
            .map(|_| {
                let conn = connect();
                connections.accept(|_| 0u32).unwrap();
                conn
            })
            .collect();
        assert_eq!(connections.all().len(), STRANGERS + 1);
        assert_eq!(connections.admitted(), [id]);
        connections.send(id, &8u32, Vec::new());
        assert_eq!(told(&unit), Some(8));
        let is_gone = |conn: &&Conn| matches!(FILE.receive::<u32>(conn, &mut [0; 99]), Incoming::Closed);
        assert_eq!(crowd.iter().filter(is_gone).count(), 3, "those that came first");
    }

    #[test]
    fn the_last_word_is_heard_though_ours_was_not() {
        let (mut connections, connect) = at("last");
        let unit = connect();
        let id = connections.accept(|_| 0u32).unwrap();
        say(&unit, 1);
        connections.send(id, &2u32, Vec::new());
        connections.finish(id);
        assert_eq!((told(&unit), told(&unit)), (Some(2), None));
        assert!(connections.all().is_empty());
    }

    #[test]
    fn who_takes_nothing_is_sent_the_rest_later_and_not_heard_before() {
        let (mut connections, connect) = at("slow");
        let unit = connect();
        let id = connections.accept(|_| 0u32).unwrap();
        let mut sent = 0;
        while connections.is_flushed(id) {
            connections.send(id, &sent, Vec::new());
            sent += 1;
        }
        say(&unit, 9);
        assert!(matches!(connections.hear::<u32>(id), Heard::Nothing));
        let mut came = 0;
        while came < sent {
            match told(&unit) {
                Some(number) => {
                    assert_eq!(number, came);
                    came += 1;
                }
                None => assert!(matches!(connections.hear::<u32>(id), Heard::Nothing | Heard::Message(9, _))),
            }
        }
        assert!(connections.is_flushed(id));
    }
}
