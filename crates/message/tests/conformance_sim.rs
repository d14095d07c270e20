//! The conformance suite on the engine itself, over simulated links: lossy datagrams and streams that lose
//! nothing.

mod conformance;

use conformance::{suite, Came, Counts, Happened, Pair, Sent, Setup, Side};
use polyduct_message::engine::{Config, Event, Send};
use polyduct_message::link::sim::{Buffer, Faults, Happening, LinkSpeed, Net, Pool, Random, Topology, World};
use polyduct_message::{ChannelId, Head, MessageError, Order, Priority};
use std::collections::VecDeque;
use std::time::Duration;

struct Simulated {
    world: World,
    happened: [VecDeque<Happened>; 2],
    /// Buffers in use by the user.
    held: [VecDeque<Buffer>; 2],
    /// Messages that `next` has not returned, by side and priority.
    waiting: [[usize; 2]; 2],
}

fn index(side: Side) -> usize {
    usize::from(side == Side::B)
}

fn rank(priority: Priority) -> usize {
    usize::from(priority == Priority::High)
}

impl Simulated {
    fn new(setup: Setup, mut config: Config, faults: Faults, max_frame: usize) -> Simulated {
        let queue = if config.lossless { u64::MAX } else { 500_000 };
        let speed = LinkSpeed { bandwidth: 1e9, latency: Duration::from_micros(20), queue };
        let mut net = Net::new(Topology::Switch, 2, speed);
        net.faults = faults;
        let pool = || Pool::new(setup.buffers.unwrap_or(usize::MAX));
        config.queue_per_priority = setup.queue;
        let mut world = World::new(net, vec![pool(), pool()], Random::new(11));
        world.connect(0, 1, &config, &[(0, max_frame)]);
        Simulated { world, happened: Default::default(), held: Default::default(), waiting: [[0; 2]; 2] }
    }

    /// Takes one happening, or none within the time.
    fn step(&mut self, until: Duration) -> bool {
        let Some(happening) = self.world.next(until) else { return false };
        match happening {
            Happening::Event { at, event, .. } => {
                let happened = match event {
                    Event::Message(message) => {
                        self.waiting[at][rank(message.priority)] += 1;
                        let len = message.len as usize;
                        let payload =
                            message.payload.as_ref().map_or(&[][..], |b| &b.bytes()[..len]).to_vec();
                        self.held[at].extend(message.payload);
                        let (channel, priority, head) = (message.channel, message.priority, message.head);
                        Some(Happened::Message(Came { channel, priority, head, payload }))
                    }
                    Event::Delivered(token) => Some(Happened::Delivered(token)),
                    Event::Refused(_) => Some(Happened::Refused),
                    Event::Broken(_) => Some(Happened::Lost),
                    _ => None,
                };
                self.happened[at].extend(happened);
            }
            Happening::Violation(what) => panic!("{what}"),
            Happening::Alarm(_) | Happening::Bad(_) => {}
        }
        true
    }
}

impl Pair for Simulated {
    fn send(
        &mut self,
        from: Side,
        channel: ChannelId,
        priority: Priority,
        order: Order,
        head: Head,
        payload: Vec<u8>,
    ) -> Sent {
        let message = Send { priority, order, head, payload: payload.into() };
        let at = index(from);
        match self.world.with(at, 1 - at, |session, now| session.send(now, channel, message)) {
            Some(Ok(token)) => Sent::Taken(token),
            Some(Err(MessageError::Full { .. })) => Sent::Full,
            Some(Err(MessageError::PeerLost { .. })) => Sent::Lost,
            other => panic!("{other:?}"),
        }
    }

    fn next(&mut self, at: Side, within: Duration) -> Option<Happened> {
        let until = self.world.now + within;
        loop {
            if let Some(happened) = self.happened[index(at)].pop_front() {
                if let Happened::Message(came) = &happened {
                    self.waiting[index(at)][rank(came.priority)] -= 1;
                }
                return Some(happened);
            }
            if !self.step(until) {
                return None;
            }
        }
    }

    fn settle(&mut self, time: Duration) {
        let until = self.world.now + time;
        while self.step(until) {}
    }

    fn release(&mut self, at: Side) {
        let at = index(at);
        self.held[at].pop_front();
        self.world.with(at, 1 - at, |session, now| session.retry_refused(now));
    }

    fn status(&mut self, at: Side, priority: Priority) -> Counts {
        let waiting = self.waiting[index(at)][rank(priority)];
        let at = index(at);
        let status = self.world.session(at, 1 - at).map(|s| s.status(priority)).unwrap_or_default();
        Counts { waiting: waiting + status.waiting, sends: status.sends }
    }

    fn kill(&mut self, side: Side) {
        self.world.crash(index(side));
    }
}

#[test]
fn datagrams_that_get_lost() {
    let faults = Faults { loss: 0.05, duplicate: 0.05, reorder: 0.1, corrupt: 0.01 };
    suite(&move |setup| Box::new(Simulated::new(setup, Config::datagram(), faults, 1400)));
}

#[test]
fn datagrams_of_full_length() {
    suite(&|setup| Box::new(Simulated::new(setup, Config::datagram(), Faults::default(), 65_000)));
}

#[test]
fn streams() {
    suite(&|setup| Box::new(Simulated::new(setup, Config::stream(), Faults::default(), 65_000)));
}
