//! The figures: each a scene that both processes play, with its part for each of them.

use crate::rig::{soon, End};
use polyduct_message::link::shm::{Cut, Incoming, Payload, Receiver, SendError, Sender};
use polyduct_message::{ChannelId, HandlerId, Head, Priority};
use polyduct_os::clock::now;
use polyduct_os::sync::{Ordering, Words};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

#[path = "scenes.rs"]
mod scenes;

use scenes::*;

const SPIN: Duration = Duration::from_micros(50);
const WHOLE: u32 = 1;
const DATA: u32 = 2;
const MEET: u32 = 3;
const SETTLED: u32 = 4;
const MIB: usize = 1 << 20;

/// A figure that is measured.
pub struct Scene {
    pub name: &'static str,
    /// What the ratio is of.
    pub what: &'static str,
    pub unit: &'static str,
    /// The ratio that is aimed at, and whether it is the least (or the most) allowed.
    pub goal: (f64, bool),
    /// Plays one round; returns case and limit.
    pub round: fn(&mut Player) -> (f64, f64),
}

const fn scene(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    goal: (f64, bool),
    round: fn(&mut Player) -> (f64, f64),
) -> Scene {
    Scene { name, what, unit, goal, round }
}

/// All figures.
pub const SCRIPT: &[Scene] = &[
    scene("line-each", "a fresh cache line each / the same one", "ns", (2.0, false), fresh_lines),
    scene("short", "short message one way / a cache line handed over", "ns", (1.5, false), short),
    scene("rate", "short messages in a second / 20 million", "M/s", (1.0, true), rate),
    scene("overhead", "a 64-byte message into the ring / 60 ns", "ns", (1.0, false), overhead),
    scene("channels", "one way with 64 channels / with one", "ns", (1.1, false), channels),
    scene("priority", "high priority under a flood of low / alone", "ns", (2.0, false), priority),
    scene(
        "priority-bulk",
        "high priority under a flood of 1 MiB messages / alone",
        "ns",
        (2.0, false),
        priority_bulk,
    ),
    scene("bulk-1M", "1 MiB messages / memcpy", "GB/s", (0.8, true), |p| bulk(p, MIB, 6, false)),
    scene("bulk-16M", "16 MiB messages / memcpy", "GB/s", (0.8, true), |p| bulk(p, 16 * MIB, 1, false)),
    scene("post-1M", "1 MiB messages, pulled / memcpy", "GB/s", (0.8, true), |p| bulk(p, MIB, 6, true)),
    scene("post-16M", "16 MiB messages, pulled / memcpy", "GB/s", (0.8, true), |p| {
        bulk(p, 16 * MIB, 1, true)
    }),
    scene("cut", "48 KiB one way with cut-through / without", "us", (0.7, false), cut),
    scene("put-256K", "256 KiB put into a region / memcpy of the same", "GB/s", (0.9, true), |p| {
        put(p, 256 << 10, true)
    }),
    scene("get-256K", "256 KiB got from a region / memcpy of the same", "GB/s", (0.9, true), |p| {
        put(p, 256 << 10, false)
    }),
    scene("put-4M", "4 MiB put into a region / memcpy of the same", "GB/s", (0.9, true), |p| {
        put(p, 4 * MIB, true)
    }),
    scene("get-4M", "4 MiB got from a region / memcpy of the same", "GB/s", (0.9, true), |p| {
        put(p, 4 * MIB, false)
    }),
    scene("overlap-1M", "post 1 MiB and compute as long / the transfer", "us", (1.1, false), |p| {
        overlap(p, MIB)
    }),
    scene("overlap-16M", "post 16 MiB and compute as long / the transfer", "us", (1.1, false), |p| {
        overlap(p, 16 * MIB)
    }),
];

/// One measured figure.
pub struct Figure {
    pub scene: &'static Scene,
    pub case: f64,
    pub limit: f64,
}

impl Figure {
    /// For people.
    pub fn line(&self) -> String {
        let (goal, least) = self.scene.goal;
        let ratio = self.case / self.limit;
        let met = if (ratio >= goal) == least || ratio == goal { "" } else { "  MISSED" };
        format!(
            "{:14} {:8.2} {:5} {:8.2}  ratio {ratio:5.2} ({} {goal}){met}  {}",
            self.scene.name,
            self.case,
            self.scene.unit,
            self.limit,
            if least { "≥" } else { "≤" },
            self.scene.what
        )
    }

    /// For programs.
    pub fn json(&self) -> String {
        let (goal, least) = self.scene.goal;
        format!(
            "{{\"name\":\"{}\",\"what\":\"{}\",\"unit\":\"{}\",\"case\":{:.3},\"limit\":{:.3},\"ratio\":{:.3},\"goal\":{goal},\"at_least\":{least}}}",
            self.scene.name, self.scene.what, self.scene.unit, self.case, self.limit, self.case / self.limit
        )
    }
}

/// A figure that the two players have no part in.
pub const CROWD: Scene =
    scene("crowd", "all to all, 8 processes on two processors / two processes", "M/s", (0.5, true), |_| {
        (0.0, 0.0)
    });

/// One of the two processes.
pub struct Player {
    end: End,
    first: bool,
    senders: Vec<Sender>,
    high: Sender,
    receiver: Receiver<Vec<u8>>,
    /// Buffers that go round, and their size.
    spare: RefCell<VecDeque<Vec<u8>>>,
    source: Vec<u8>,
    copy: Vec<u8>,
    seen: Seen,
    met: u64,
    settled: u64,
    /// Long messages so far.
    turn: usize,
    /// The best time of a transfer of so many bytes.
    best_transfer: HashMap<usize, Duration>,
}

/// What has come.
#[derive(Clone, Copy, Default)]
struct Seen {
    short: u64,
    high: u64,
    bulk: u64,
    bad: u64,
    meets: u64,
    settled: u64,
}

impl Player {
    /// The process that asks (`first`), or its copy.
    pub fn new(end: End, first: bool) -> Player {
        let cpus = polyduct_os::cpu::allowed();
        polyduct_os::cpu::pin_to(cpus[usize::from(!first) % cpus.len()]).unwrap();
        let sender = |c| end.link.sender(ChannelId(c), Priority::Low).unwrap();
        let senders = (0..64).map(sender).collect();
        let high = end.link.sender(ChannelId(100), Priority::High).unwrap();
        let receiver = end.link.receiver().unwrap();
        // Larger than the caches, since programs send what they have computed and not the same bytes again.
        let source = (0..64 * MIB).map(|i| (i * 31 / 7 % 253) as u8).collect();
        let copy = vec![2; 64 * MIB];
        Player {
            end,
            first,
            senders,
            high,
            receiver,
            source,
            spare: RefCell::default(),
            copy,
            seen: Seen::default(),
            met: 0,
            settled: 0,
            turn: 0,
            best_transfer: HashMap::new(),
        }
    }

    /// Plays rounds of each scene named.
    pub fn play(mut self, script: &[String]) -> Vec<Figure> {
        let rounds: usize = script[0].parse().unwrap();
        let mut figures = Vec::new();
        for scene in SCRIPT.iter().filter(|s| script[1..].iter().any(|n| n == s.name)) {
            (scene.round)(&mut self);
            let all: Vec<(f64, f64)> = (0..rounds).map(|_| (scene.round)(&mut self)).collect();
            // The best eighth of each: whatever else runs only ever takes time away.
            let best = |f: fn(&(f64, f64)) -> f64| {
                let mut all: Vec<f64> = all.iter().map(f).collect();
                all.sort_by(f64::total_cmp);
                if scene.unit.ends_with("/s") {
                    all.reverse();
                }
                all[all.len() / 8]
            };
            assert_eq!(self.seen.bad, 0, "{}: wrong bytes", scene.name);
            figures.push(Figure { scene, case: best(|r| r.0), limit: best(|r| r.1) });
        }
        figures
    }

    fn poll(&mut self) -> usize {
        let Player { receiver, spare, seen, source, high, first, .. } = self;
        let first = *first;
        let give = &mut |_: &Incoming| spare.borrow_mut().pop_front();
        let deliver = &mut |m: &Incoming, payload: Payload<'_, Vec<u8>>| match payload {
            Payload::Bytes(_) if m.priority == Priority::High => {
                seen.high += 1;
                if !first {
                    high.short(m.head).unwrap();
                }
            }
            Payload::Bytes(_) => match m.head.args[0] {
                MEET => seen.meets += 1,
                SETTLED => seen.settled += 1,
                _ => seen.short += 1,
            },
            Payload::Buffer(buffer) => {
                seen.bulk += 1;
                // Some bytes, and outside of what is timed all of them.
                let n = m.len as usize;
                let whole = m.head.args[1] == WHOLE;
                let from = m.head.args[2] as usize;
                let good = if whole {
                    buffer[..n] == source[from..from + n]
                } else {
                    [0, n / 2, n - 1].into_iter().all(|i| buffer[i] == source[from + i])
                };
                seen.bad += u64::from(!good);
                spare.borrow_mut().push_back(buffer);
            }
        };
        receiver.poll(give, deliver).unwrap()
    }

    /// Buffers of `len` bytes, as many as the sources are.
    fn buffers(&mut self, len: usize) {
        if self.spare.get_mut().front().is_none_or(|b| b.len() != len) {
            *self.spare.get_mut() = (0..64 * MIB / len).map(|_| vec![1; len]).collect();
        }
    }

    fn until(&mut self, mut done: impl FnMut(&Seen) -> bool) {
        while !done(&self.seen) {
            if self.poll() == 0 {
                core::hint::spin_loop();
            }
        }
    }

    /// Both are here. Returns the counts of what came before.
    fn meet(&mut self) -> Seen {
        let before = self.seen;
        self.met += 1;
        let met = self.met;
        self.senders[0].short(head(MEET)).unwrap();
        self.until(|seen| seen.meets >= met);
        before
    }

    /// `n` hand-overs of a cache line there and back; ns for one.
    fn limit(&mut self, n: u64) -> f64 {
        let line: &Words = {
            let lines = self.end.beside.lines(0..64).unwrap();
            // SAFETY: both are 64 bytes of atomics.
            unsafe { &*lines.as_ptr().cast() }
        };
        let word = &line.w[0];
        let from = word.load(Ordering::Acquire) / 2 * 2;
        let start = now();
        for i in 0..n {
            let mine = from + 2 * i + u64::from(!self.first);
            while word.load(Ordering::Acquire) != mine {
                core::hint::spin_loop();
            }
            word.store(mine + 1, Ordering::Release);
        }
        while word.load(Ordering::Acquire) < from + 2 * n {
            core::hint::spin_loop();
        }
        (now() - start).as_secs_f64() * 1e9 / (2 * n) as f64
    }

    /// `n` short messages there and back by `channels` channels; ns for one.
    fn ping(&mut self, n: u64, channels: usize) -> f64 {
        let from = self.meet().short;
        let start = now();
        for i in 0..n {
            if !self.first {
                self.until(|seen| seen.short > from + i);
            }
            self.senders[i as usize % channels].short(head(DATA)).unwrap();
            if self.first {
                self.until(|seen| seen.short > from + i);
            }
        }
        (now() - start).as_secs_f64() * 1e9 / (2 * n) as f64
    }

    fn ping_high(&mut self, n: u64, mut flood: impl FnMut(&mut Player)) -> f64 {
        let from = self.meet().high;
        let mut all = Vec::new();
        for next in from + 1..=from + n {
            if !self.first {
                self.until(|seen| seen.high >= next); // answered as it comes
                continue;
            }
            flood(self);
            let start = now();
            self.high.short(head(DATA)).unwrap();
            self.until(|seen| seen.high >= next);
            all.push((now() - start).as_secs_f64() * 1e9 / 2.0);
        }
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }
}

fn head(what: u32) -> Head {
    Head { handler: HandlerId(7), args: [what, 0, 0, 0] }
}
