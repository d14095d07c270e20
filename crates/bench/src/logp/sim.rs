//! The signature of a simulated link: the same bursts, in virtual time and one process.
//!
//! The engine is the one of real networks, and takes no virtual time: o_s and o_r are nothing, and what is
//! left is the link and what the protocol adds to it. So this is the least that any network of that bandwidth
//! and latency can come to.

use super::estimate::{Burst, Signature};
use super::scene::PAUSES;
use super::{doubling, payload};
use crate::message::error::BenchError;
use bytes::Bytes;
use polyduct_message::engine::{Config, Event, Send};
use polyduct_message::link::sim::{Happening, LinkSpeed, Net, Pool, Random, Topology, World};
use polyduct_message::{ChannelId, HandlerId, Head, MessageError, Order, Priority};
use std::time::Duration;

/// 100 Gbit/s, and a microsecond from one node to the other: through a switch, half of it each way.
const SPEED: LinkSpeed = LinkSpeed { bandwidth: 12.5e9, latency: Duration::from_nanos(500), queue: 1 << 20 };
/// The longest frame, as networks for such programs have it.
const FRAME: usize = 9000;
/// Virtual time in which something must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two nodes, of which the second answers where it is told to.
struct Pair {
    world: World,
    len: usize,
    /// Message n is the part of this from n modulo 256 on.
    source: Bytes,
    answers: bool,
    /// Answers that found no room yet.
    owed: u32,
    sent: [u32; 2],
    came: [u32; 2],
}

impl Pair {
    fn new(len: usize, queue: u64) -> Pair {
        let net = Net::new(Topology::Switch, 2, SPEED);
        let pools = vec![Pool::new(1 << 20); 2];
        let mut world = World::new(net, pools, Random::new(1));
        let config = Config { queue_per_stream: queue as usize, ..Config::datagram() };
        world.connect(0, 1, &config, &[(0, FRAME)]);
        let source = (0..len + 256).map(|i| i as u8).collect::<Vec<_>>().into();
        Pair { world, len, source, answers: false, owed: 0, sent: [0; 2], came: [0; 2] }
    }

    fn part(&self, number: u32) -> Bytes {
        let from = number as usize % 256;
        self.source.slice(from..from + self.len)
    }

    /// Sends the next message, if there is room for it.
    fn try_send(&mut self, from: usize) -> Result<bool, BenchError> {
        let number = self.sent[from];
        let head = Head { handler: HandlerId(1), args: [number, 0, 0, 0] };
        let payload = self.part(number);
        let message = Send { priority: Priority::Low, order: Order::Ordered, head, payload };
        match self.world.with(from, 1 - from, |session, now| session.send(now, ChannelId(0), message)) {
            Some(Ok(_)) => self.sent[from] += 1,
            Some(Err(MessageError::Full { .. })) => return Ok(false),
            Some(Err(e)) => return Err(e.into()),
            None => return Err(BenchError::Disagree { what: "there is no session" }),
        }
        Ok(true)
    }

    /// The same, once there is room.
    fn send(&mut self) -> Result<(), BenchError> {
        while !self.try_send(0)? {
            self.step("room")?;
        }
        Ok(())
    }

    /// The next thing that happens.
    fn step(&mut self, what: &'static str) -> Result<(), BenchError> {
        let until = self.world.now + PATIENCE;
        match self.world.next(until) {
            Some(happening) => self.take(happening),
            None => Err(BenchError::Silent { what, seconds: PATIENCE.as_secs() }),
        }
    }

    fn take(&mut self, happening: Happening) -> Result<(), BenchError> {
        let Happening::Event { at, event, .. } = happening else {
            return Err(BenchError::Disagree { what: "the simulated network did what it must not" });
        };
        if let Event::Message(message) = event {
            let number = self.came[at];
            let payload = message.payload.as_ref().map_or(&[][..], |buffer| buffer.bytes());
            let right = payload.get(..message.len as usize) == Some(&self.part(number)[..]);
            if message.head.args[0] != number || !right {
                return Err(BenchError::Wrong { what: "a simulated link", count: 1 });
            }
            self.came[at] += 1;
            self.owed += u32::from(at == 1 && self.answers);
        }
        while self.owed > 0 && self.try_send(1)? {
            self.owed -= 1;
        }
        Ok(())
    }

    /// Until all has come, and all answers.
    fn settle(&mut self) -> Result<(), BenchError> {
        while self.came[1] < self.sent[0] || self.came[0] < self.sent[1] || self.owed > 0 {
            self.step("a message")?;
        }
        Ok(())
    }

    fn pause(&mut self, pause: Duration) -> Result<(), BenchError> {
        let until = self.world.now + pause;
        while let Some(happening) = self.world.next(until) {
            self.take(happening)?;
        }
        Ok(())
    }

    /// Seconds of virtual time that this takes.
    fn seconds(&mut self, act: impl FnOnce(&mut Pair) -> Result<(), BenchError>) -> Result<f64, BenchError> {
        let start = self.world.now;
        act(self)?;
        Ok((self.world.now - start).as_secs_f64())
    }
}

/// Takes the signature. Nothing in it is random, so once is enough.
pub fn signature(len: u32, messages: u64) -> Result<Signature, BenchError> {
    // A burst costs nothing until the session's queue is full, and then what the link takes.
    let longest: u64 = if len <= 4096 { 1 << 14 } else { 1 << 9 };
    let bursts = doubling(longest);
    let mut pair = Pair::new(payload(len), longest / 8);
    let mut stream = || {
        pair.seconds(|pair| {
            (0..messages).try_for_each(|_| pair.send())?;
            pair.settle()
        })
    };
    // The first opens the window.
    stream()?;
    let stream = stream()? / messages as f64;
    pair.answers = true;
    let round_trip = pair.seconds(|pair| {
        pair.send()?;
        pair.settle()
    })?;
    let mut curves = Vec::new();
    for multiple in PAUSES {
        let pause = Duration::from_secs_f64(multiple * round_trip);
        let mut points = Vec::new();
        for &burst in &bursts {
            let took = pair.seconds(|pair| {
                (0..burst).try_for_each(|_| {
                    pair.send()?;
                    match pause.is_zero() {
                        true => Ok(()),
                        false => pair.pause(pause),
                    }
                })
            })?;
            pair.settle()?;
            points.push((burst as f64, took / burst as f64));
        }
        curves.push(Burst { pause: pause.as_secs_f64(), points });
    }
    Ok(Signature { bursts: curves, half_round_trip: round_trip / 2.0, stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_link_is_as_fast_as_it_was_made() {
        for len in [16, 64, 8192, 65536] {
            let signature = signature(len, 2000).unwrap();
            let found = super::super::estimate::estimate(&signature).unwrap();
            assert_eq!((found.send, found.receive), (0.0, 0.0), "{len} bytes: software takes no time");
            let wire = f64::from(len) / SPEED.bandwidth;
            let share = wire / found.gap;
            // Headers of the messages and frames, and acknowledgements, are the rest.
            let least = if len < 100 { 0.1 } else { 0.9 };
            assert!(share > least && share <= 1.0, "{len} bytes: {share} of the bandwidth");
            let full = found.gap_with_replies / found.gap;
            assert!(full > 0.5 && full < 1.5, "{len} bytes: a burst with answers takes {full} of a stream");
            // Through a switch, a frame is on two links, one after the other.
            let first = (f64::from(len).min(FRAME as f64) + 100.0) / SPEED.bandwidth;
            let most = 1e-6 + wire + first + 0.2e-6;
            assert!(found.latency >= 1e-6 && found.latency <= most, "{len} bytes: L {}", found.latency);
        }
    }
}
