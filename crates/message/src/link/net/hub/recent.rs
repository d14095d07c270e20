//! The connections that brought something lately. A program that polls reads them without asking which are
//! readable.

use super::NetHub;
use crate::link::net::peer::Peer;
use crate::link::net::serving::Recent;
use crate::types::Address;
use core::time::Duration;

/// How many those are, at most. To ask costs about as much as two reads that bring nothing.
pub(super) const RECENT: usize = 2;

impl<B: AsMut<[u8]>> NetHub<B> {
    /// A connection brought something. Not one that this made an end of.
    pub(super) fn note_recent(&mut self, way: (Address, usize)) {
        let (unit, at) = way;
        if self.peers.get(&unit).is_none_or(|peer| peer.ways[at].is_none()) {
            return;
        }
        self.recent.retain(|other| *other != way);
        self.recent.truncate(RECENT - 1);
        self.recent.insert(0, way);
    }

    /// Which connections [`read_recent`](NetHub::read_recent) reads from.
    pub fn recent(&mut self) -> Recent {
        let NetHub { peers, recent, writers, .. } = self;
        writers.retain(|unit| peers.get(unit).is_some_and(Peer::waits_to_write));
        recent.retain(|(unit, at)| peers.get(unit).is_some_and(|peer| peer.ways[*at].is_some()));
        // When a socket takes bytes again, no read tells.
        if recent.is_empty() || !writers.is_empty() {
            return Recent::None;
        }
        // Where both ends began to connect at once there are two: what goes in order comes by the first, and
        // the other lies idle, or brings more where the first is full.
        let brings = |(unit, peer): (&Address, &Peer<B>)| {
            let first = peer.ways.iter().position(Option::is_some);
            first.is_none_or(|first| recent.contains(&(*unit, first)))
        };
        match self.attempts.is_empty() && peers.len() <= RECENT && peers.iter().all(brings) {
            true => Recent::All,
            false => Recent::Some,
        }
    }

    /// Reads from each of the connections that brought something lately. Returns whether any does now.
    pub fn read_recent(&mut self, now: Duration) -> bool {
        self.wakes(now);
        let (mut any, mut i) = (false, 0);
        while let Some(&(unit, at)) = self.recent.get(i) {
            if self.read(unit, at, now) {
                any = true;
                // To the front: those behind it stay where they are.
                self.note_recent((unit, at));
                self.mark(unit);
                self.pump(unit, now);
            }
            i += 1;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::super::WAY;
    use super::*;
    use crate::engine::{Incoming, Send as Outgoing};
    use crate::link::key::JobKey;
    use crate::link::net::config::{NetConfig, NetEvent, Transport};
    use crate::link::net::events::Events;
    use crate::link::net::socket;
    use crate::types::{ChannelId, HandlerId, Head, Order, Priority};
    use bytes::Bytes;
    use polyduct_os::clock;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    const WATCHDOG: Duration = Duration::from_secs(20);

    /// A unit whose sockets nobody serves but the test.
    struct Unit {
        hub: NetHub<Vec<u8>>,
        events: Arc<Events>,
        addr: SocketAddr,
    }

    impl Unit {
        fn new(me: Address) -> Unit {
            let events = Arc::new(Events::new().unwrap());
            let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let key = JobKey::from_bytes([7; 32]).unwrap();
            let config = NetConfig::new(me, 4, 7, key, listen, Transport::Tcp);
            let give = Box::new(|_, incoming: &Incoming| Some(vec![0; incoming.at_least as usize]));
            let (hub, addr) = NetHub::new(config, give, events.clone()).unwrap();
            Unit { hub, events, addr }
        }

        /// What is ready, when anything is.
        fn ready(&self) -> Vec<u64> {
            let mut ready = Vec::new();
            self.events.wait(Some(WATCHDOG), &mut ready).unwrap();
            assert!(!ready.is_empty(), "nothing comes");
            ready
        }

        /// Serves what is ready now.
        fn serve(&mut self) {
            let mut ready = Vec::new();
            self.events.wait(Some(Duration::ZERO), &mut ready).unwrap();
            ready.iter().for_each(|&number| self.hub.handle(number, clock::now()).unwrap());
            self.hub.handle_time(clock::now()).unwrap();
        }

        fn send(&mut self, to: Address, len: usize) {
            let (now, head) = (clock::now(), Head { handler: HandlerId(100), args: [0; 4] });
            let (priority, order, payload) = (Priority::Low, Order::Ordered, Bytes::from(vec![1; len]));
            let message = Outgoing { priority, order, head, payload };
            self.hub.peers.get_mut(&to).unwrap().session.send(now, ChannelId(3), message).unwrap();
            self.hub.pump(to, now);
        }

        /// Units whose messages have come, in their order.
        fn senders(&mut self) -> Vec<Address> {
            let events = std::iter::from_fn(|| self.hub.poll_event(clock::now()));
            let mut senders: Vec<_> = events
                .filter_map(|event| match event {
                    NetEvent::Message { from, .. } => Some(from),
                    _ => None,
                })
                .collect();
            senders.sort_unstable();
            senders
        }
    }

    /// Unit 0, and so many others that are connected to it.
    fn connected<const N: usize>() -> (Unit, [Unit; N]) {
        let mut hub = Unit::new(0);
        let mut others = std::array::from_fn(|i| Unit::new(i as Address + 1));
        for other in &mut others {
            other.hub.book.insert(0, hub.addr);
            other.hub.reach(0, clock::now());
        }
        let end = clock::now() + WATCHDOG;
        while hub.hub.peers.len() < N || others.iter().any(|other| other.hub.peers.is_empty()) {
            hub.serve();
            others.iter_mut().for_each(Unit::serve);
            assert!(clock::now() < end, "no connection");
        }
        (hub, others)
    }

    /// Has messages of these come, by way of the sockets.
    fn bring(hub: &mut Unit, from: &mut [&mut Unit]) {
        for unit in from {
            unit.send(0, 8);
            let end = clock::now() + WATCHDOG;
            while hub.senders().is_empty() {
                hub.serve();
                assert!(clock::now() < end, "no message");
            }
        }
    }

    fn way_of(unit: Address) -> (Address, usize) {
        // The higher address began.
        (unit, 1)
    }

    #[test]
    fn all_are_those_that_are_and_will_be() {
        let (mut hub, [mut a, mut b]) = connected();
        bring(&mut hub, &mut [&mut a, &mut b]);
        assert_eq!(hub.hub.recent, [way_of(2), way_of(1)]);
        assert_eq!(hub.hub.recent(), Recent::All);
        // One is about to come.
        let silent = socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        hub.hub.book.insert(3, silent.local_addr().unwrap());
        hub.hub.reach(3, clock::now());
        assert_eq!(hub.hub.recent(), Recent::Some);
        hub.hub.attempts.clear();
        assert_eq!(hub.hub.recent(), Recent::All);
        hub.hub.recent.truncate(1);
        assert_eq!(hub.hub.recent(), Recent::Some, "one of two");
    }

    /// Where both began to connect there are two ways, and messages come by the first.
    #[test]
    fn an_idle_second_way_needs_no_looks_of_its_own() {
        let [mut hub, mut other] = [Unit::new(0), Unit::new(1)];
        hub.hub.book.insert(1, other.addr);
        other.hub.book.insert(0, hub.addr);
        hub.hub.reach(1, clock::now());
        other.hub.reach(0, clock::now());
        let ways = |unit: &Unit, peer: Address| {
            unit.hub.peers.get(&peer).map_or(0, |peer| peer.ways.iter().flatten().count())
        };
        let end = clock::now() + WATCHDOG;
        while ways(&hub, 1) < 2 || ways(&other, 0) < 2 {
            hub.serve();
            other.serve();
            assert!(clock::now() < end, "no two connections");
        }
        bring(&mut hub, &mut [&mut other]);
        hub.hub.recent.truncate(1);
        assert_eq!(hub.hub.recent(), Recent::All);
    }

    #[test]
    fn a_connection_that_is_over_is_none_of_them() {
        let (mut hub, [mut a, mut b]) = connected();
        bring(&mut hub, &mut [&mut a, &mut b]);
        drop(b);
        let number = (WAY + (1 << 32)) | 2;
        assert!(hub.ready().contains(&number));
        assert!(hub.hub.read_recent(clock::now()), "its end is news");
        hub.senders();
        assert_eq!((hub.hub.recent(), &hub.hub.recent[..]), (Recent::All, &[way_of(1)][..]));
        // What the sockets said before is no news of it.
        hub.hub.handle(number, clock::now()).unwrap();
        assert_eq!(hub.hub.recent, [way_of(1)]);
        drop(a);
        hub.ready();
        assert!(hub.hub.read_recent(clock::now()));
        assert_eq!((hub.hub.recent(), hub.hub.read_recent(clock::now())), (Recent::None, false));
    }

    #[test]
    fn one_that_brought_nothing_is_none_of_them() {
        let (mut hub, [mut a, b]) = connected();
        bring(&mut hub, &mut [&mut a]);
        hub.hub.recent.retain(|way| *way == way_of(1));
        hub.hub.handle((WAY + (1 << 32)) | 2, clock::now()).unwrap();
        assert_eq!((hub.hub.recent(), &hub.hub.recent[..]), (Recent::Some, &[way_of(1)][..]));
        drop(b);
    }

    #[test]
    fn a_busy_connection_does_not_keep_back_what_comes_on_a_quiet_one() {
        let (mut hub, [mut busy, mut quiet]) = connected();
        bring(&mut hub, &mut [&mut quiet, &mut busy]);
        for turn in 0..10 {
            (0..5).for_each(|_| busy.send(0, 8));
            quiet.send(0, 8);
            while hub.ready().len() < 2 {}
            assert!(hub.hub.read_recent(clock::now()));
            let senders = hub.senders();
            assert!(senders.contains(&1) && senders.contains(&2), "turn {turn}: {senders:?}");
        }
    }

    /// No read tells that a socket takes bytes again.
    #[test]
    fn while_a_socket_takes_no_more_the_program_asks_for_all() {
        let (mut hub, [mut a]) = connected();
        bring(&mut hub, &mut [&mut a]);
        assert_eq!(hub.hub.recent(), Recent::All);
        hub.send(1, 32 << 20);
        assert!(hub.hub.waits_to_write(1), "the socket takes more than it can");
        assert_eq!(hub.hub.recent(), Recent::None);
        let end = clock::now() + WATCHDOG;
        while hub.hub.waits_to_write(1) {
            assert_eq!(hub.hub.recent(), Recent::None);
            a.serve();
            hub.serve();
            assert!(clock::now() < end, "it takes nothing");
        }
        assert_eq!(hub.hub.recent(), Recent::All);
    }
}
