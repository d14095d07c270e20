//! Latency, rate and bandwidth from 8 bytes to 16 MiB on every link: figures to look at, without a target of
//! their own.
//!
//! Shared memory stands beside Open MPI, networks beside shared memory.

use super::cases::play;
use super::pair::{Effort, Play, Scene, Way};
use super::theirs::Peers;
use crate::case::{Case, Rounds, Target};
use crate::peers::paired;
use std::path::Path;

const SIZES: [(usize, &str); 8] = [
    (8, "8 B"),
    (64, "64 B"),
    (512, "512 B"),
    (4 << 10, "4 KiB"),
    (32 << 10, "32 KiB"),
    (256 << 10, "256 KiB"),
    (1 << 20, "1 MiB"),
    (16 << 20, "16 MiB"),
];
/// Up to so many bytes messages are counted, from so many on their bytes.
const COUNTED: usize = 4 << 10;

const LINKS: [(&str, Way); 3] = [
    ("shm", Way::Domain),
    ("tcp", Way::Tcp { trusted: true }),
    ("udp", Way::Udp { trusted: true, lost: None }),
];

/// Messages that take about as long at every size: so many short ones, and fewer where their bytes take
/// longer.
fn times(len: usize, way: Way, most: u64) -> u64 {
    let (most, bytes) = match way {
        Way::Domain | Way::Link => (most, 128 << 20),
        _ => (most / 20, 64 << 20),
    };
    (bytes / len as u64).clamp(4, most)
}

/// The cases.
pub fn cases(rounds: Rounds, effort: Effort, script: &Path) -> Vec<Case> {
    let peers = Peers::new(script);
    let mut cases = Vec::new();
    for (link, way) in LINKS {
        for (len, size) in SIZES {
            let ping = |way| effort.play(way, Scene::Ping { fresh: false }, len, times(len, way, 5000), 5);
            let of = |figure: &str| format!("{figure}, {link}, {size}");
            let micros = |s: f64, _: usize| s * 1e6;
            let theirs = Theirs::Latency;
            cases.push(case(rounds, &peers, of("latency"), "µs", way, ping, micros, theirs));
            let stream = |way| effort.play(way, Scene::Stream, len, times(len, way, 100_000), 3);
            let millions = |s: f64, _: usize| 1e-6 / s;
            let rate = |s: f64, len: usize| len as f64 / s / 1e9;
            let theirs = Theirs::Stream;
            if len <= COUNTED {
                cases.push(case(rounds, &peers, of("rate"), "M/s", way, stream, millions, theirs));
            }
            if len >= COUNTED {
                cases.push(case(rounds, &peers, of("bandwidth"), "GB/s", way, stream, rate, theirs));
            }
        }
    }
    cases
}

/// What is asked of the peer.
#[derive(Clone, Copy)]
enum Theirs {
    Latency,
    Stream,
}

#[allow(clippy::too_many_arguments)]
fn case(
    rounds: Rounds,
    peers: &Peers,
    name: String,
    unit: &'static str,
    way: Way,
    ours: impl Fn(Way) -> Play,
    figure: fn(f64, usize) -> f64,
    theirs: Theirs,
) -> Case {
    let (ours, shm, peers) = (ours(way), ours(Way::Domain), peers.clone());
    let len = ours.size.len;
    let (baseline, run): (_, Box<dyn Fn() -> _>) = if way == Way::Domain {
        let run = move || {
            let theirs = || match theirs {
                Theirs::Latency => peers.latency("openmpi", len),
                Theirs::Stream => peers.stream("openmpi", len),
            };
            paired(rounds, |s| figure(s, len), || Ok(play(&ours)?.value), theirs)
        };
        ("Open MPI 5", Box::new(run))
    } else {
        let run = move || rounds.of(|| Ok((figure(play(&ours)?.value, len), figure(play(&shm)?.value, len))));
        ("shared memory", Box::new(run))
    };
    Case { name, unit, baseline, target: Target::Right, run }
}
