//! An endpoint on the network: the program's own threads, which send and poll, and one for the sockets where
//! nobody polls.
//!
//! ```no_run
//! # use polyduct_message::link::net::{config::{NetConfig, NetEvent, Transport}, endpoint::NetEndpoint, pool::Pool};
//! # use polyduct_message::{link::key::JobKey, engine::Send, *};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = NetConfig::new(0, 2, 7, JobKey::from_env()?, "0.0.0.0:0".parse()?, Transport::Tcp);
//! let pool = Pool::new(64 << 20);
//! let endpoint = NetEndpoint::start(config, move |_, incoming| pool.take(incoming.at_least as usize))?;
//! endpoint.introduce(1, "10.0.0.2:4000".parse()?);
//! endpoint.connect(1)?;
//! while let Some(event) = endpoint.next_event(None)? {
//!     if let NetEvent::Message { from, message } = event {
//!         println!("{} from {from}", message.len);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod goodbye;

pub use goodbye::within;

use super::config::{NetConfig, NetEvent};
use super::events::{Events, Interest};
use super::hub::NetHub;
use super::serve::{Shared, State, WAKE};
use super::LinkFault;
use crate::engine::{Counters, Incoming, Send as Outgoing, Status};
use crate::error::MessageError;
use crate::types::{Address, ChannelId, Order, Priority, Token};
use core::time::Duration;
use polyduct_os::poll::EventFd;
use polyduct_os::{bell, clock, spin::Spin, OsError};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How long a wait polls before it sleeps, at most.
const SPIN: Duration = Duration::from_micros(50);

/// One unit's place on the network. Dropping it ends its connections without a word, as a crash would;
/// [`close`](NetEndpoint::close) says good-bye.
pub struct NetEndpoint<B: AsMut<[u8]> + Send + 'static> {
    shared: Arc<Shared<B>>,
    spin: Spin,
    thread: Option<JoinHandle<()>>,
    addr: SocketAddr,
    me: Address,
    units: u32,
    incarnation: u64,
}

impl<B: AsMut<[u8]> + Send + 'static> NetEndpoint<B> {
    /// Binds the sockets and starts the thread. `give` is asked for a buffer when a message begins to come;
    /// `None` refuses it for now: the sender keeps it. What is given for a message without payload is dropped
    /// at once. It must not block, nor call the endpoint.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`] where `me` is outside the domain; [`MessageError::System`].
    pub fn start(
        config: NetConfig,
        mut give: impl FnMut(Address, &Incoming) -> Option<B> + Send + 'static,
    ) -> Result<NetEndpoint<B>, MessageError> {
        let (me, units, waker) = (config.me, config.units, config.waker.clone());
        if me >= units {
            return Err(MessageError::NoUnit { to: me, units });
        }
        let (events, wake) = (Arc::new(Events::new()?), EventFd::new()?);
        events.add(&wake, WAKE, Interest::Readable)?;
        let (hub, addr) =
            NetHub::new(config, Box::new(move |from, incoming| give(from, incoming)), events.clone())?;
        let incarnation = hub.incarnation();
        let state = Mutex::new(State::new(hub));
        let (stop, away_until, told) = (AtomicBool::new(false), AtomicU64::new(0), Condvar::new());
        let shared = Arc::new(Shared { events, wake, stop, away_until, state, told, waker });
        let thread = std::thread::Builder::new().name(format!("polyduct-net-{me}")).spawn({
            let shared = shared.clone();
            move || shared.run()
        });
        let thread = thread.map_err(|e| OsError::System {
            op: "clone",
            what: "a thread".to_owned(),
            errno: polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::AGAIN),
        })?;
        Ok(NetEndpoint { shared, spin: Spin::new(SPIN), thread: Some(thread), addr, me, units, incarnation })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// This unit.
    pub fn address(&self) -> Address {
        self.me
    }

    /// Which life of this unit it is: drawn at random when it was started.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Units that are connected.
    pub fn connected(&self) -> Vec<Address> {
        let state = self.shared.lock();
        state.hub.peers.iter().filter(|(_, p)| p.gone.is_none()).map(|(unit, _)| *unit).collect()
    }

    /// Counts of one priority towards one unit; `None` where it is not connected.
    pub fn status(&self, unit: Address, priority: Priority) -> Option<Status> {
        self.shared.lock().hub.peers.get(&unit).map(|p| p.session.status(priority))
    }

    /// Sends without payload to a unit, on such a channel, that are sure not to be refused; `None` where it
    /// is not connected.
    pub fn room(&self, unit: Address, channel: ChannelId, priority: Priority, order: Order) -> Option<usize> {
        let state = self.shared.lock();
        state.hub.peers.get(&unit).map(|p| p.session.room(channel, priority, order))
    }

    /// Messages of all units that have come and were not polled, high and low.
    pub fn waiting(&self) -> [u64; 2] {
        let state = self.shared.lock();
        let count =
            |priority| state.hub.peers.values().map(|p| p.session.status(priority).waiting as u64).sum();
        [count(Priority::High), count(Priority::Low)]
    }

    /// Counts since the beginning towards one unit; `None` where it is not connected.
    pub fn counters(&self, unit: Address) -> Option<Counters> {
        self.shared.lock().hub.peers.get(&unit).map(|p| p.session.counters())
    }

    /// Says where a unit listens. It is connected when it is first sent to.
    pub fn introduce(&self, unit: Address, at: SocketAddr) {
        self.shared.lock().hub.book.insert(unit, at);
    }

    /// Where a unit listens, if anybody has said so.
    pub fn listens_at(&self, unit: Address) -> Option<SocketAddr> {
        self.shared.lock().hub.book.get(&unit).copied()
    }

    /// All units have come: another life of one that has left, or was lost, is turned away from now on. It
    /// wants to be where all meet the next time.
    pub fn complete(&self) {
        self.shared.lock().hub.incarnations().into_iter().for_each(|there| there.complete());
    }

    /// Forgets that a unit left or was lost: another life of it may listen where it did, and the next send
    /// connects to that.
    pub fn forget(&self, unit: Address) {
        self.shared.lock().hub.lost.remove(&unit);
    }

    /// Begins to connect to a unit, unless it is connected; [`NetEvent::Connected`] or
    /// [`NetEvent::Unreachable`] follows.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`] where nobody said where it listens; what it is lost by.
    pub fn connect(&self, unit: Address) -> Result<(), MessageError> {
        let now = clock::now();
        let mut state = self.shared.lock();
        state.check(unit, self.units)?;
        if !state.hub.peers.contains_key(&unit) {
            if !state.hub.book.contains_key(&unit) || unit == self.me {
                return Err(MessageError::NoUnit { to: unit, units: self.units });
            }
            state.hub.reach(unit, now);
            // The thread sleeps without a thought of the new deadline.
            self.shared.wake.signal()?;
        }
        Ok(())
    }

    /// What somebody answered, without a proof, to an attempt to reach a unit by datagrams that is still
    /// under way.
    pub fn refused(&self, unit: Address) -> Option<LinkFault> {
        self.shared.lock().hub.refused(unit)
    }

    /// Sends a message to a unit. Each channel has one writer. The payload is kept, not copied, until the
    /// receiver's program has the message; then [`NetEvent::Delivered`] names the token.
    ///
    /// # Errors
    /// [`MessageError::Full`]: too much waits already, or the unit is not yet connected (this call has begun
    /// to); nothing was taken, poll and send again; what ends a peer is polled before it is returned here.
    /// [`MessageError::NoUnit`], [`MessageError::Limit`], or what the unit is lost by.
    pub fn send(&self, to: Address, channel: ChannelId, message: Outgoing) -> Result<Token, MessageError> {
        let now = clock::now();
        let (len, urgent) = (message.payload.len(), message.priority == Priority::High);
        let mut state = self.shared.lock();
        state.check(to, self.units)?;
        let Some(peer) = state.hub.peers.get_mut(&to) else {
            drop(state);
            self.connect(to)?;
            return Err(MessageError::Full { to });
        };
        if peer.left {
            return Err(MessageError::PeerLeft { unit: to });
        }
        if peer.gone.is_some() {
            // Whether it left or is lost is among what has come and was not polled.
            return Err(MessageError::Full { to });
        }
        let sent = peer.session.send(now, channel, message);
        state.serving.sent(sent.is_ok());
        if sent.is_err() {
            state.batch.no_room(now);
            if state.batch.look(now) {
                self.shared.send_batch(&mut state, now)?;
            }
            return sent;
        }
        if state.batch.waits(to, len, urgent, now) {
            self.shared.wait_for_more(&mut state)?;
            return sent;
        }
        // This one first: what waits for others may be of low priority.
        state.hub.pump(to, now);
        self.shared.reconsider(&mut state, to)?;
        self.shared.send_batch(&mut state, now)?;
        let token = sent?;
        state.batch.sent(clock::now());
        Ok(token)
    }

    /// The receiver's program has buffers again: peers are told to go ahead with what was refused. Without it
    /// they try by themselves after a while.
    ///
    /// # Errors
    /// [`MessageError::System`].
    pub fn retry_refused(&self) -> Result<(), MessageError> {
        let now = clock::now();
        let mut state = self.shared.lock();
        let units: Vec<_> = state.hub.peers.keys().copied().collect();
        for unit in units {
            if let Some(peer) = state.hub.peers.get_mut(&unit) {
                peer.session.retry_refused(now);
            }
            state.hub.pump(unit, now);
            self.shared.reconsider(&mut state, unit)?;
        }
        Ok(())
    }

    /// What happened next, if anything did. Looks at the sockets, too: a caller that calls this again and
    /// again is served sooner than by the endpoint's thread, and one that will not for a while had better
    /// [`rest`](NetEndpoint::rest).
    ///
    /// # Errors
    /// [`MessageError::System`]: the sockets are of no further use.
    pub fn poll_event(&self) -> Result<Option<NetEvent<B>>, MessageError> {
        let mut state = self.shared.lock();
        self.shared.poll(&mut state)
    }

    /// The polling thread is about to sleep until the waker wakes it: the endpoint's thread looks at the
    /// sockets meanwhile. What had come before is polled as ever; the next poll after some news looks at the
    /// sockets again.
    ///
    /// # Errors
    /// [`MessageError::System`].
    pub fn rest(&self) -> Result<(), MessageError> {
        self.shared.rest(&mut self.shared.lock()).map_err(MessageError::from)
    }

    /// Waits for what happens next, for `timeout` at most (`None`: for ever): polls for a moment, then
    /// sleeps.
    ///
    /// # Errors
    /// [`MessageError::System`]: the sockets are of no further use.
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<Option<NetEvent<B>>, MessageError> {
        let start = clock::now();
        let deadline = timeout.and_then(|t| start.checked_add(t));
        self.shared.lock().serving.wake();
        let found = match timeout.is_none_or(|time| time >= SPIN) {
            true => bell::spin(start, self.spin.time(), || self.poll_event().transpose()).transpose()?,
            false => None,
        };
        let found = match found {
            Some(event) => Some(event),
            None => self.sleep(deadline)?,
        };
        self.spin.handle_answer(clock::now() - start);
        Ok(found)
    }

    /// Sleeps until something happens or the deadline comes.
    fn sleep(&self, deadline: Option<Duration>) -> Result<Option<NetEvent<B>>, MessageError> {
        let mut state = self.shared.lock();
        loop {
            if let Some(event) = self.shared.poll(&mut state)? {
                return Ok(Some(event));
            }
            let left = deadline.map(|d| d.saturating_sub(clock::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.shared.rest(&mut state)?;
            state.waiting += 1;
            state = match left {
                Some(left) => {
                    let waited = self.shared.told.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.shared.told.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.waiting -= 1;
        }
    }
}

impl<B: AsMut<[u8]> + Send + 'static> Drop for NetEndpoint<B> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Where it cannot be woken it ends at its next deadline.
        let _ = self.shared.wake.signal();
        // The thread itself drops the endpoint where its `give` had the last hold of it. The state is locked
        // then.
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::goodbye::LOOK;
    use super::*;
    use crate::engine::PathId;
    use crate::link::key::JobKey;
    use crate::link::net::config::Transport;
    use crate::link::net::hub::DATAGRAMS;
    use crate::types::{HandlerId, Head};
    use bytes::Bytes;
    use polyduct_os::Errno;
    use std::net::Ipv4Addr;

    const WATCHDOG: Duration = Duration::from_secs(20);

    fn config(me: Address, transport: Transport) -> NetConfig {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        NetConfig::new(me, 2, 7, JobKey::from_bytes([7; 32]).unwrap(), listen, transport)
    }

    fn endpoint(me: Address, transport: Transport) -> NetEndpoint<Vec<u8>> {
        NetEndpoint::start(config(me, transport), |_, _| None).unwrap()
    }

    /// A program that looks now and then does what the datagrams ask for at once, and nothing that is due.
    #[test]
    fn who_looks_at_datagrams_answers_strangers_at_once() {
        let events = Arc::new(Events::new().unwrap());
        let give = Box::new(|_, _: &Incoming| None::<Vec<u8>>);
        let (mut hub, addr) = NetHub::new(config(0, Transport::Udp), give, events.clone()).unwrap();
        let (dialler, end) = (endpoint(1, Transport::Udp), clock::now() + WATCHDOG);
        dialler.introduce(0, addr);
        dialler.connect(0).unwrap();
        let mut ready = Vec::new();
        while dialler.connected().is_empty() {
            events.wait(Some(LOOK), &mut ready).unwrap();
            if ready.contains(&DATAGRAMS) {
                hub.handle(DATAGRAMS, clock::now()).unwrap();
            }
            assert!(clock::now() < end, "a stranger has no answer");
        }
    }

    /// Sends `count` short messages from one endpoint to another, with a look after each if it `looks`. Gives
    /// the frames that this took.
    fn frames_of(transport: Transport, count: u32, looks: bool) -> u64 {
        let give = |_, incoming: &Incoming| Some(vec![0; incoming.at_least as usize]);
        let [to, from] = [0, 1].map(|me| NetEndpoint::start(config(me, transport), give).unwrap());
        from.introduce(0, to.local_addr());
        from.connect(0).unwrap();
        let end = clock::now() + WATCHDOG;
        while from.connected().is_empty() {
            from.next_event(Some(LOOK)).unwrap();
            assert!(clock::now() < end, "no connection");
        }
        let frames = || {
            let state = from.shared.lock();
            let counters = (0..2).filter_map(|path| state.hub.peers[&0].session.path_counters(PathId(path)));
            counters.map(|path| path.frames_sent).sum::<u64>()
        };
        let before = frames();
        std::thread::scope(|s| {
            let receiver = s.spawn(|| {
                let mut came = 0;
                while came < count {
                    let event =
                        to.next_event(Some(WATCHDOG)).unwrap().expect("the last of a row are sent, too");
                    if let NetEvent::Message { message, .. } = event {
                        assert_eq!(message.head.args[0], came);
                        came += 1;
                    }
                }
            });
            let mut sent = 0;
            while sent < count {
                let head = Head { handler: HandlerId(100), args: [sent, 0, 0, 0] };
                let (priority, order, payload) = (Priority::Low, Order::Ordered, Bytes::new());
                match from.send(0, ChannelId(3), Outgoing { priority, order, head, payload }) {
                    Ok(_) => sent += 1,
                    Err(MessageError::Full { .. }) => drop(from.next_event(Some(LOOK)).unwrap()),
                    Err(error) => panic!("{error}"),
                }
                if looks {
                    while from.poll_event().unwrap().is_some() {}
                }
            }
            // Nobody polls here any more: the endpoint's thread sends what waits.
            receiver.join().unwrap();
        });
        frames() - before
    }

    #[test]
    fn messages_of_a_row_share_frames_and_one_alone_goes_at_once() {
        for transport in [Transport::Tcp, Transport::Udp] {
            let frames = frames_of(transport, 20_000, false);
            assert!(frames < 5_000, "{frames} frames of 20,000 messages in a row");
            let frames = frames_of(transport, 300, true);
            assert!(frames >= 300, "{frames} frames of 300 messages that went alone");
        }
    }

    /// A program that has polled for long sends a row, and then computes: the thread does not keep away
    /// beyond the time when the last of the row has to go.
    #[test]
    fn who_polled_for_long_has_a_row_sent_in_time() {
        for transport in [Transport::Tcp, Transport::Udp] {
            let [to, from] = [0, 1].map(|me| endpoint(me, transport));
            from.introduce(0, to.local_addr());
            from.connect(0).unwrap();
            let end = clock::now() + WATCHDOG;
            let (mut rows, mut away) = (0, false);
            while !away {
                assert!(clock::now() < end, "no row that waits ({rows}), or the thread is never away");
                from.poll_event().unwrap();
                if from.connected().is_empty() || !from.shared.lock().away {
                    continue;
                }
                for _ in 0..10 {
                    let head = Head { handler: HandlerId(100), args: [0; 4] };
                    let (priority, order, payload) = (Priority::Low, Order::Ordered, Bytes::new());
                    match from.send(0, ChannelId(3), Outgoing { priority, order, head, payload }) {
                        Ok(_) | Err(MessageError::Full { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                let state = from.shared.lock();
                let Some(deadline) = state.batch.deadline() else { continue };
                rows += 1;
                away = state.away;
                let away_until = Duration::from_nanos(from.shared.away_until.load(Ordering::Relaxed));
                let until = state.sleeps_until.max(away.then_some(away_until));
                assert!(until <= Some(deadline), "it sleeps until {until:?}, beyond {deadline:?}");
            }
        }
    }

    /// Where the sockets are found to be of no use, those who sleep hear of it, and the thread ends.
    #[test]
    fn all_hear_that_the_sockets_failed() {
        let endpoint = endpoint(0, Transport::Tcp);
        let error = OsError::System { op: "read", what: "a socket".into(), errno: Errno::NOMEM };
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| endpoint.next_event(Some(WATCHDOG)).err());
            while endpoint.shared.lock().waiting == 0 && !sleeper.is_finished() {
                std::thread::yield_now();
            }
            endpoint.shared.fail(&mut endpoint.shared.lock(), error.clone());
            assert_eq!(sleeper.join().unwrap(), Some(MessageError::System(error.clone())));
        });
        let (thread, end) = (endpoint.thread.as_ref().unwrap(), clock::now() + WATCHDOG);
        while !thread.is_finished() {
            assert!(clock::now() < end, "the thread goes on");
            std::thread::yield_now();
        }
    }
}
