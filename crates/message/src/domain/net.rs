//! A domain across hosts: what differs from one host, where partners share memory.
//!
//! All partners on other hosts are on one [endpoint](NetEndpoint); frames are moved by the threads that poll,
//! and by its own where none does. Handlers run in the threads that poll, as on one host. What the
//! [board](super::board) tells on one host, units say here in messages. Unit 0, to whom all are connected,
//! tells all of a loss; and whoever sees a process of its own host end tells those whom it is connected to,
//! since they may only notice its silence.
//!
//! To units of this host nothing goes over the network, and nothing that comes from there is believed of
//! them: their connections, left from when all met, say nothing more.

use super::handlers::Table;
use super::host_map::Hosts;
use super::leave::LAST_NEWS;
use super::meet::{self, Met, Network};
use super::options::Options;
use super::peer::{lock, Gone, LIBRARY_CHANNEL};
use super::room::{Buffer, Lease, RoomShare, Rooms};
use super::units::Units;
use super::wait::SLICE;
use super::{system, Inner};
use crate::engine::{self, Send};
use crate::link::net::config::NetEvent;
use crate::link::net::endpoint::{within, NetEndpoint};
use crate::link::shm::{Bell, Incoming, Payload};
use crate::types::{Address, ChannelId, Head, Order, Priority, Token};
use crate::{LinkError, MessageError};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Events that one look handles, at most: other threads wait for their turn.
const AT_ONCE: usize = 256;
/// How long a unit that gives up waits until that is heard.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes of a message that comes before this unit has joined.
const EARLY: u64 = 1 << 20;
/// Events that may come before this unit has joined, at most; beyond, as many for each unit. More stay with
/// those who send.
const EARLY_EVENTS: (usize, usize) = (1 << 16, 64);

/// Where the endpoint's thread finds the domain.
pub(super) type Owner = Arc<OnceLock<Weak<Inner>>>;

/// This unit's place on the network.
pub(super) struct Net {
    endpoint: NetEndpoint<Buffer>,
    /// What came while the units met.
    early: Mutex<VecDeque<NetEvent<Buffer>>>,
    /// What channels sent and is not with the receiver's program yet, each with its channel's count of such.
    undelivered: Mutex<FxHashMap<(Address, Token), Arc<AtomicU64>>>,
}

impl Net {
    /// Joins across hosts, and waits until all units have come. Returns who is on this host, and what stands
    /// for the domain in the names of their sockets.
    pub fn join(
        options: &Options,
        network: &Network,
        bell: &Arc<Bell>,
        rooms: &Arc<Rooms>,
        owner: Owner,
    ) -> Result<(Net, Hosts, String), MessageError> {
        let (rung, rooms) = (bell.clone(), rooms.clone());
        let config = network.endpoint(options, Arc::new(move || rung.calls().ring()))?;
        let give = move |from: Address, m: &engine::Incoming| {
            let len = m.len.unwrap_or(m.at_least);
            if let Some(inner) = owner.get().and_then(Weak::upgrade) {
                let (channel, priority, head) = (m.channel, m.priority, m.head);
                return inner.buffer_for(from, &Incoming { channel, priority, head, len, holds_up: false });
            }
            let lease = Lease::ask(rooms.clone(), RoomShare::message(m.head.handler, m.priority), len, false);
            lease.filter(|_| len <= EARLY).map(|lease| Buffer::new(vec![0; len as usize], lease))
        };
        let endpoint = NetEndpoint::start(config, give)?;
        let Met { hosts, place, early } = meet::meet(options, network, &endpoint)?;
        let early = Mutex::new(early.into());
        Ok((Net { endpoint, early, undelivered: Mutex::default() }, hosts, place))
    }

    /// Looks at what comes while the units of this host find each other, and keeps it; `seen` counts what it
    /// has looked at. Unit 0 tells those of a lost unit's host, who may wait for it.
    ///
    /// # Errors
    /// The loss of a unit of this host, who will not come; the system's refusals.
    pub fn watch(&self, me: Address, hosts: &Hosts, seen: &Cell<usize>) -> Result<(), MessageError> {
        let (mut early, limit) = (lock(&self.early), early_events(hosts.units()));
        while early.len() < limit {
            let Some(event) = self.endpoint.poll_event()? else { break };
            early.push_back(event);
        }
        for event in early.iter().skip(seen.replace(early.len())) {
            let lost = match event {
                NetEvent::Lost { unit, error } => Some((*unit, error.clone())),
                NetEvent::Message { from, message } if message.head.handler == system::LOST => {
                    let words = message.payload.as_deref().unwrap_or_default();
                    read_loss(hosts, *from, message.head.args[0], words)
                }
                _ => None,
            };
            let Some((unit, error)) = lost else { continue };
            let dooms_this_one = unit != me && !hosts.is_far(unit);
            if me == 0 {
                let payload = Bytes::from(reason(&error).into_bytes());
                // All, where this unit goes, too. Else those of its own host hear of it from this unit later,
                // and not so.
                let hear = |&to: &Address| dooms_this_one || hosts.are_together(to, unit);
                for to in self.endpoint.connected().into_iter().filter(hear) {
                    let (priority, order, payload) = (Priority::High, Order::Ordered, payload.clone());
                    let message = Send { priority, order, head: lost_head(unit), payload };
                    // A unit that cannot be told now learns it when this unit next looks, or by its own
                    // deadline.
                    let _ = self.endpoint.send(to, ChannelId(LIBRARY_CHANNEL), message);
                }
                if dooms_this_one {
                    let _ = self.endpoint.say_goodbye(|_| true, |_| false, within(FAREWELL));
                }
            }
            if dooms_this_one {
                return Err(MessageError::PeerLost { unit, reason: reason(&error) });
            }
        }
        Ok(())
    }

    /// Handles what has come. Returns how much that was.
    pub fn poll(&self, inner: &Inner, handlers: &Table) -> usize {
        for n in 0..AT_ONCE {
            let early = lock(&self.early).pop_front();
            let event = match early.map_or_else(|| self.endpoint.poll_event(), |e| Ok(Some(e))) {
                Ok(Some(event)) => event,
                Ok(None) => return n,
                Err(error) => {
                    // The sockets are of no further use: neither is any partner there.
                    for unit in inner.units.hosts().far() {
                        inner.lost_by(unit, error.clone());
                    }
                    return n;
                }
            };
            self.handle(inner, handlers, event);
        }
        AT_ONCE
    }

    /// The polling thread is about to sleep at the bell.
    pub fn rest(&self) {
        if let Err(error) = self.endpoint.rest() {
            // The thread finds out by itself after a while.
            tracing::warn!(%error, "the thread of the sockets was not woken");
        }
    }

    fn handle(&self, inner: &Inner, handlers: &Table, event: NetEvent<Buffer>) {
        match event {
            NetEvent::Message { from, message } if !inner.units.hosts().is_far(from) => {
                // Said once more when all had met, or by one who does not keep to what all were told then.
                if message.head.handler != system::MEET {
                    inner.broke(from, LinkError::OutOfTurn { what: "a message by the network on one host" });
                }
            }
            NetEvent::Message { from, message } => {
                let engine::Message { channel, priority, head, len, payload, .. } = message;
                let incoming = Incoming { channel, priority, head, len, holds_up: false };
                let payload = match payload {
                    Some(mut buffer) => {
                        buffer.truncate(len as usize);
                        Payload::Buffer(buffer)
                    }
                    None => Payload::Bytes(&[]),
                };
                inner.deliver(from, &incoming, payload, handlers);
            }
            NetEvent::Delivered { to, token } => {
                if let Some(under_way) = lock(&self.undelivered).remove(&(to, token)) {
                    under_way.fetch_sub(1, Ordering::Release);
                }
            }
            // Their processes and the board tell all there is to tell of units of this host.
            NetEvent::Left { unit } | NetEvent::Lost { unit, .. } | NetEvent::Unreachable { unit, .. }
                if !inner.units.hosts().is_far(unit) => {}
            // A unit that gave up says good-bye, too, and is lost all the same.
            NetEvent::Left { unit } => {
                if inner.units.peer(unit).is_ok_and(|peer| peer.gone().is_none()) {
                    inner.set_gone(unit, Gone::Left);
                }
            }
            NetEvent::Lost { unit, error } => self.lost(inner, unit, error),
            NetEvent::Unreachable { unit, fault } => {
                let at = self.endpoint.listens_at(unit).map_or(String::new(), |at| format!(" at {at}"));
                let reason = format!("it cannot be reached{at}: {fault}");
                self.lost(inner, unit, MessageError::PeerLost { unit, reason });
            }
            NetEvent::TurnedAway { from, fault } => tracing::warn!(%from, %fault, "turned away"),
            NetEvent::Connected { .. } | NetEvent::Refused { .. } | NetEvent::Closed { .. } => {}
        }
    }

    /// A unit of another host is lost. Unit 0 tells those who have no connection to it.
    pub fn lost(&self, inner: &Inner, unit: Address, error: MessageError) {
        let error = match inner.units.board().is_leaving(unit) {
            // A unit that leaves because of a loss does not wait.
            true if inner.units.board().because(unit).is_some() => return inner.set_gone(unit, Gone::Left),
            true => {
                let reason = format!("it left, and what it had still to send is lost: {}", reason(&error));
                MessageError::PeerLost { unit, reason }
            }
            false => error,
        };
        inner.lost_by(unit, error.clone());
        if inner.units.me() == 0 && inner.units.tell_loss(unit) {
            let (head, words) = (lost_head(unit), reason(&error).into_bytes());
            for to in inner.units.all().skip(1).filter(|&to| to != unit) {
                // A unit that has gone, too, need not be told.
                let _ = inner.push(to, head, words.clone());
            }
        }
    }

    /// A unit of this host is lost: tells those on others whom this unit is connected to, which are all for
    /// unit 0. Does not wait.
    pub fn tell_far(&self, units: &Units, unit: Address) {
        if !units.tell_loss(unit) {
            return;
        }
        let words = reason(&units.lost_error(unit)).into_bytes();
        for to in self.far_connected(units) {
            let _ = units.push(Some(self), to, lost_head(unit), words.clone());
        }
    }

    /// Units of other hosts that are connected.
    fn far_connected(&self, units: &Units) -> Vec<Address> {
        let mut connected = self.endpoint.connected();
        connected.retain(|&unit| units.hosts().is_far(unit));
        connected
    }

    /// Sends on a channel, of whose messages `under_way` counts those that are not delivered.
    ///
    /// # Errors
    /// [`MessageError::Full`]: not yet connected, or too much waits already.
    pub fn send(
        &self,
        to: Address,
        channel: ChannelId,
        message: Send,
        under_way: &Arc<AtomicU64>,
    ) -> Result<Token, MessageError> {
        // Held meanwhile, so that its delivery is not noted before it is.
        let mut undelivered = lock(&self.undelivered);
        let token = self.endpoint.send(to, channel, message)?;
        under_way.fetch_add(1, Ordering::Relaxed);
        undelivered.insert((to, token), under_way.clone());
        Ok(token)
    }

    /// There is room again for messages that were refused.
    pub fn retry_refused(&self) {
        if let Err(error) = self.endpoint.retry_refused() {
            // They come again by themselves, or nothing does.
            tracing::warn!(%error, "partners were not told that there is room");
        }
    }

    /// Whether the receiver's program has a message.
    pub fn is_delivered(&self, to: Address, token: Token) -> bool {
        !lock(&self.undelivered).contains_key(&(to, token))
    }

    /// Messages without payload that are sure to be taken from a channel.
    pub fn sends_guaranteed(&self, to: Address, channel: ChannelId, priority: Priority, order: Order) -> u32 {
        let room = self.endpoint.room(to, channel, priority, order);
        room.map_or(0, |room| u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// The same for each unit that is connected, from a channel that sends nothing else, high and low.
    pub fn sends(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        let fresh = ChannelId(LIBRARY_CHANNEL - 1);
        let of = move |to, priority| self.sends_guaranteed(to, fresh, priority, Order::Any).into();
        self.endpoint.connected().into_iter().map(move |to| [of(to, Priority::High), of(to, Priority::Low)])
    }

    /// Sends for the library, unless there is no room: `false`.
    pub fn offer(&self, to: Address, priority: Priority, head: Head, payload: Bytes) -> bool {
        let message = Send { priority, order: Order::Ordered, head, payload };
        let sent = self.endpoint.send(to, ChannelId(LIBRARY_CHANNEL), message);
        // Any other error: nobody is there to take it, which an event tells.
        !matches!(sent, Err(MessageError::Full { .. }))
    }

    /// Messages that have come and were not handled, high and low. Exact while nobody else polls.
    pub fn waiting(&self) -> [u64; 2] {
        let mut sum = self.endpoint.waiting();
        for event in lock(&self.early).iter() {
            if let NetEvent::Message { message, .. } = event {
                sum[usize::from(message.priority == Priority::Low)] += 1;
            }
        }
        sum
    }

    /// Tells all on other hosts who are connected that this unit gives up.
    pub fn give_up(&self, units: &Units) {
        for to in self.far_connected(units) {
            let head = Head { handler: system::LEAVING, args: [0, 1, 0, 0] };
            let _ = units.push(Some(self), to, head, Vec::new());
        }
        units.flush_far(self);
        if let Err(error) = self.endpoint.say_goodbye(|_| true, |to| units.owes(to), within(FAREWELL)) {
            tracing::warn!(%error, "gave up while something was under way");
        }
    }

    /// Says good-bye to all on other hosts who are connected, and waits until they have what this unit sent.
    /// `because` of a loss it does not wait for long.
    ///
    /// # Errors
    /// [`MessageError::Timeout`] after the domain's timeout, [`MessageError::Interrupted`]: units
    /// that do not have all by then are told.
    pub fn leave(&self, units: &Units, because: Option<Address>) -> Result<(), MessageError> {
        let args = [because.map_or(0, |lost| lost + 1), 0, 0, 0];
        let mut words = units.board().came(units.me()).0.to_le_bytes().to_vec();
        // A unit that hears of the loss by this first hears how it came.
        if let Some(MessageError::PeerLost { reason, .. }) = because.map(|lost| units.lost_error(lost)) {
            words.extend(reason.into_bytes());
        }
        for to in self.far_connected(units) {
            let _ = units.push(Some(self), to, Head { handler: system::LEAVING, args }, words.clone());
        }
        let in_time =
            within(because.map_or(units.options().timeout, |_| Some(LAST_NEWS)).unwrap_or(Duration::MAX));
        let go_on = |what: &str| match units.options().is_interrupted() {
            true => Err(MessageError::Interrupted),
            false => in_time(what),
        };
        // What found no room goes before the good-bye.
        let mut said = Ok(());
        while said.is_ok() && units.flush_far(self) {
            let time = go_on("others to take what was sent");
            said = time.and_then(|time| self.endpoint.next_event(Some(time.min(SLICE))).map(drop));
        }
        // A unit that is known to be dead answers nothing, and those of this host have the board.
        let there =
            |to: Address| units.hosts().is_far(to) && units.peer(to).is_ok_and(|peer| peer.gone().is_none());
        let go_on = |what: &str| said.clone().and_then(|()| go_on(what));
        // What another thread sends from here on is no part of it: all know that this unit leaves.
        let owes = |to| said.is_err() && units.owes(to);
        let left = self.endpoint.say_goodbye(there, owes, go_on).and(said.clone());
        // A unit that goes because of a loss waits for nobody.
        left.or_else(|error| if because.is_none() { Err(error) } else { Ok(()) })
    }
}

/// Events that may come before this unit has joined, at most.
pub(super) fn early_events(units: u32) -> usize {
    EARLY_EVENTS.0 + EARLY_EVENTS.1 * units as usize
}

/// The loss that a unit tells of, if it is one to know: unit 0 knows of all, others of those whose processes
/// they see.
pub(super) fn read_loss(
    hosts: &Hosts,
    from: Address,
    unit: Address,
    words: &[u8],
) -> Option<(Address, MessageError)> {
    let knows = hosts.reach(unit).is_some() && (from == 0 || hosts.are_together(from, unit));
    knows.then(|| (unit, MessageError::PeerLost { unit, reason: read_reason(words) }))
}

/// How a unit was lost: who hears it names the unit itself.
fn reason(error: &MessageError) -> String {
    match error {
        MessageError::PeerLost { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// A reason in another unit's words: not more of it than an error should have.
pub(super) fn read_reason(words: &[u8]) -> String {
    String::from_utf8_lossy(words).chars().take(400).collect()
}

/// What tells of a loss.
fn lost_head(unit: Address) -> Head {
    Head { handler: system::LOST, args: [unit, 0, 0, 0] }
}
