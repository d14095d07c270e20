//! Links and what they do to frames.

use super::Random;
use std::time::Duration;

/// How the nodes are connected. Every link goes both ways, each way on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each node to one switch that never blocks.
    Switch,
    /// Each node to two neighbours; frames go the shorter way round.
    Ring,
    /// Rows and columns with wrap-around; frames go along the row first.
    Torus {
        /// Nodes in a row.
        width: usize,
    },
    /// Leaf switches with so many nodes each, and as many spines; frames between leaves go up over a random
    /// spine.
    FatTree {
        /// Nodes of a leaf, and spines.
        radix: usize,
    },
}

/// What each link can do.
#[derive(Clone, Copy, Debug)]
pub struct LinkSpeed {
    /// Bytes per second.
    pub bandwidth: f64,
    /// From one end to the other.
    pub latency: Duration,
    /// Bytes that wait for the link, at most; more are dropped. `u64::MAX` for links that lose nothing.
    pub queue: u64,
}

/// Probabilities for each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// It is dropped.
    pub loss: f64,
    /// It comes twice.
    pub duplicate: f64,
    /// It comes late, after others that were sent later.
    pub reorder: f64,
    /// Some bytes are changed.
    pub corrupt: f64,
}

/// Each path of a session has links of its own, as with several network cards; more share them.
const RAILS: usize = 4;

/// Nodes, links and faults.
#[derive(Debug)]
pub struct Net {
    topology: Topology,
    nodes: usize,
    speed: LinkSpeed,
    /// Until when each link is busy, rail by rail.
    busy: Vec<Duration>,
    /// Links of a rail.
    rail: usize,
    /// What happens to frames from now on.
    pub faults: Faults,
    /// Frames between a node whose bit is set and one whose is not are dropped.
    pub partition: u64,
    /// Paths (by number) on which everything is dropped.
    pub dead_paths: u64,
    /// Frames dropped because a queue was full.
    pub overflows: u64,
}

impl Net {
    /// A network at rest.
    pub fn new(topology: Topology, nodes: usize, speed: LinkSpeed) -> Net {
        // Two links from and two to each node or, in a fat tree, between each leaf and spine as well, is
        // enough for all.
        let rail = nodes * 8 + nodes * nodes * 2;
        Net {
            topology,
            nodes,
            speed,
            busy: vec![Duration::ZERO; rail * RAILS],
            rail,
            faults: Faults::default(),
            partition: 0,
            dead_paths: 0,
            overflows: 0,
        }
    }

    fn route(&self, from: usize, to: usize, path: u8, random: &mut Random, out: &mut Vec<usize>) {
        self.route_in_rail(from, to, path, random, out);
        for link in out {
            *link += usize::from(path) % RAILS * self.rail;
        }
    }

    fn route_in_rail(&self, from: usize, to: usize, path: u8, random: &mut Random, out: &mut Vec<usize>) {
        out.clear();
        let n = self.nodes;
        match self.topology {
            Topology::Switch => out.extend([from, n + to]),
            Topology::Ring => {
                let right = (to + n - from) % n;
                let (step, base, hops) = if right * 2 <= n { (1, 0, right) } else { (n - 1, n, n - right) };
                out.extend((0..hops).map(|hop| base + (from + hop * step) % n));
            }
            Topology::Torus { width } => {
                let height = n.div_ceil(width);
                let (mut x, mut y) = (from % width, from / width);
                // Links of a node: 0 right, 1 left, 2 down, 3 up.
                while x != to % width {
                    let right = (to % width + width - x) % width * 2 <= width;
                    out.push((y * width + x) * 4 + usize::from(!right));
                    x = if right { x + 1 } else { x + width - 1 } % width;
                }
                while y != to / width {
                    let down = (to / width + height - y) % height * 2 <= height;
                    out.push((y * width + x) * 4 + 2 + usize::from(!down));
                    y = if down { y + 1 } else { y + height - 1 } % height;
                }
                for link in out {
                    *link %= n * 8;
                }
            }
            Topology::FatTree { radix } => {
                out.push(from);
                let (a, b) = (from / radix, to / radix);
                if a != b {
                    // Links that lose nothing keep their order as well: the way is fixed by the path.
                    let fixed = self.speed.queue == u64::MAX;
                    let spine =
                        if fixed { usize::from(path) } else { random.below(radix as u64) as usize } % radix;
                    let leaves = n.div_ceil(radix);
                    out.push(2 * n + spine * leaves + a);
                    out.push(2 * n + leaves * radix + spine * leaves + b);
                }
                out.push(n + to);
            }
        }
    }

    /// When the first link of a node is free for another frame.
    pub fn free_at(&mut self, from: usize, to: usize, path: u8) -> Duration {
        let mut route = Vec::new();
        // Only the first link counts, and that is never random.
        self.route(from, to, path, &mut Random::new(0), &mut route);
        route.first().map_or(Duration::ZERO, |&link| self.busy[link])
    }

    /// The links that a frame takes, in order.
    pub fn links(&self, from: usize, to: usize, path: u8, random: &mut Random) -> Vec<usize> {
        let mut route = Vec::new();
        self.route(from, to, path, random, &mut route);
        route
    }

    /// A frame comes to a link: when it comes out at the other end, unless the queue is full.
    pub fn cross(&mut self, now: Duration, link: usize, len: usize) -> Option<Duration> {
        let waits = self.busy[link].saturating_sub(now);
        if waits.as_secs_f64() * self.speed.bandwidth > self.speed.queue as f64 {
            self.overflows += 1;
            return None;
        }
        let takes = Duration::from_secs_f64(len as f64 / self.speed.bandwidth);
        self.busy[link] = self.busy[link].max(now) + takes;
        Some(self.busy[link] + self.speed.latency)
    }

    /// What becomes of a frame behind its last link: each time at which it, or what was made of it, comes to
    /// the receiver.
    pub fn harm(
        &self,
        now: Duration,
        (from, to): (usize, usize),
        path: u8,
        mut frame: Vec<u8>,
        random: &mut Random,
    ) -> [Option<(Duration, Vec<u8>)>; 2] {
        // Paths differ a little, so that they reorder among each other.
        let mut at = now + self.speed.latency * u32::from(path) / 2;
        let f = self.faults;
        let (lost, twice) = (random.chance(f.loss), random.chance(f.duplicate));
        let (late, broken) = (random.chance(f.reorder), random.chance(f.corrupt));
        let apart = (self.partition >> from ^ self.partition >> to) & 1 == 1;
        if apart || self.dead_paths >> path & 1 == 1 || lost {
            return [None, None];
        }
        let second = twice.then(|| {
            let after = self.speed.latency.mul_f64(random.below(400) as f64 / 100.0);
            (at + after, frame.clone())
        });
        if late {
            at += self.speed.latency.mul_f64(random.below(300) as f64 / 100.0);
        }
        if broken && !frame.is_empty() {
            for _ in 0..random.range(1, 4) {
                let place = random.below(frame.len() as u64) as usize;
                frame[place] ^= random.range(1, 255) as u8;
            }
        }
        [Some((at, frame)), second]
    }
}
