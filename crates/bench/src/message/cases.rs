//! The rows that have a target.

use super::pair::{Effort, Play, Scene, Way};
use super::scenes::Outcome;
use super::slow_link::bytes_a_second;
use super::theirs::{Peers, Theirs};
use crate::case::{Case, Rounds, Target};
use crate::latency::line_one_way;
use crate::peers::paired;
use std::path::Path;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Bytes that go through a TCP connection in a round.
const TCP_BYTES: u64 = 1 << 30;
/// Datagrams of a hundred that the relay loses.
const LOSSES: [u32; 4] = [1, 5, 10, 30];
/// Megabits a second of a slow link.
const SLOW: u32 = 200;
/// Bytes of a frame of TCP, at most.
const FRAME: usize = 128 << 10;
/// Messages between each two units, all to all.
const CROWD: u64 = 20_000;

/// Plays, with the error in words.
pub fn play(play: &Play) -> Result<Outcome, String> {
    play.run().map_err(|e| e.to_string())
}

fn nanos(seconds: f64) -> f64 {
    seconds * 1e9
}

/// A case of which each round is one play: its value and its base, shown as `figure` has them.
fn one(
    rounds: Rounds,
    name: impl Into<String>,
    (unit, baseline): (&'static str, &'static str),
    target: Target,
    what: Play,
    figure: fn(f64, &Play) -> f64,
) -> Case {
    Case {
        name: name.into(),
        unit,
        baseline,
        target,
        run: Box::new(move || {
            rounds.of(|| {
                let Outcome { value, base, .. } = play(&what)?;
                Ok((figure(value, &what), figure(base, &what)))
            })
        }),
    }
}

/// A case against a peer: both in seconds, shown as `figure` has them.
fn peer(
    rounds: Rounds,
    name: impl Into<String>,
    (unit, baseline): (&'static str, &'static str),
    target: Target,
    ours: Play,
    figure: fn(f64, usize) -> f64,
    theirs: impl Fn() -> Theirs + 'static,
) -> Case {
    Case {
        name: name.into(),
        unit,
        baseline,
        target,
        run: Box::new(move || {
            let len = ours.size.len;
            paired(rounds, |s| figure(s, len), || Ok(play(&ours)?.value), &theirs)
        }),
    }
}

fn gigabytes(seconds: f64, what: &Play) -> f64 {
    what.size.len as f64 / seconds / 1e9
}

/// The cases.
pub fn cases(rounds: Rounds, effort: Effort, script: &Path) -> Vec<Case> {
    let peers = Peers::new(script);
    let mut cases = short(rounds, effort, &peers);
    cases.extend(side_by_side(rounds, effort));
    cases.extend(bulk(rounds, effort, &peers));
    cases.push(crowd(rounds, effort));
    cases.extend(networks(rounds, effort, &peers));
    cases
}

/// Domain and link, as names say it.
const WAYS: [(Way, &str); 2] = [(Way::Domain, ""), (Way::Link, ", the link itself")];

fn short(rounds: Rounds, effort: Effort, peers: &Peers) -> Vec<Case> {
    let mut cases = Vec::new();
    let ping = |way| effort.play(way, Scene::Ping { fresh: false }, 0, 5000, 9);
    let rate = |way| effort.play(way, Scene::Stream, 0, 200_000, 7);
    for (way, words) in WAYS {
        let what = ping(way);
        cases.push(Case {
            name: format!("short message, one way, shm{words}"),
            unit: "ns",
            baseline: "cache line between threads",
            target: Target::RatioAtMost(1.5),
            run: Box::new(move || rounds.of(|| Ok((nanos(play(&what)?.value), line_one_way(true) * 1e3)))),
        });
    }
    let nanos_of = |s: f64, _: usize| nanos(s);
    let baselines = [
        ("ucx", "UCX ucp_am_lat", Target::RatioAtMost(0.6)),
        ("openmpi", "Open MPI 5", Target::Right),
        ("mpich", "MPICH", Target::Right),
    ];
    for (name, words, target) in baselines {
        let peers = peers.clone();
        let theirs = move || peers.latency(name, 8);
        let what = ping(Way::Domain);
        let title = format!("short message, one way, shm, against {words}");
        cases.push(peer(rounds, title, ("ns", words), target, what, nanos_of, theirs));
    }
    for (way, words) in WAYS {
        let what = rate(way);
        cases.push(Case {
            name: format!("short messages a second, one direction{words}"),
            unit: "M/s",
            baseline: "cache lines between threads",
            target: Target::ValueAtLeast(20.0),
            run: Box::new(move || rounds.of(|| Ok((1e-6 / play(&what)?.value, 1.0 / line_one_way(true))))),
        });
    }
    let millions = |s: f64, _: usize| 1e-6 / s;
    let baselines = [
        ("openmpi", "Open MPI 5", Target::RatioAtLeast(2.0)),
        ("mpich", "MPICH", Target::Right),
        ("ucx", "UCX ucp_am_bw", Target::Right),
    ];
    for (name, words, target) in baselines {
        let peers = peers.clone();
        let theirs = move || peers.stream(name, 8);
        let what = rate(Way::Domain);
        let title = format!("short messages a second, one direction, against {words}");
        cases.push(peer(rounds, title, ("M/s", words), target, what, millions, theirs));
    }
    for (way, words) in WAYS {
        let what = effort.play(way, Scene::Overhead, 64, 1, 9);
        cases.push(Case {
            name: format!("o_s of a 64-byte message{words}"),
            unit: "ns",
            baseline: "cache line between threads",
            target: Target::ValueAtMost(60.0),
            run: Box::new(move || rounds.of(|| Ok((nanos(play(&what)?.value), line_one_way(true) * 1e3)))),
        });
    }
    cases
}

/// Rows whose base is another way of doing the same, in the same play.
fn side_by_side(rounds: Rounds, effort: Effort) -> Vec<Case> {
    let mut cases = Vec::new();
    let nanos_of = |s: f64, _: &Play| nanos(s);
    for (way, words) in WAYS {
        let channels = effort.play(way, Scene::Channels, 0, 3000, 9);
        let name = format!("64 channels in turn, one way{words}");
        let target = Target::RatioAtMost(1.1);
        cases.push(one(rounds, name, ("ns", "1 channel"), target, channels, nanos_of));
        for (len, flood) in [(0, "short messages"), (1, "long messages")] {
            let what = effort.play(way, Scene::Priority, len, 300, 9);
            let name = format!("high priority under a flood of {flood}{words}");
            cases.push(one(rounds, name, ("ns", "idle"), Target::RatioAtMost(2.0), what, nanos_of));
        }
        cases.push(cut_through(rounds, effort, way, words));
    }
    for (len, words) in [(MIB, "1 MiB"), (16 * MIB, "16 MiB")] {
        let what = effort.play(Way::Domain, Scene::Overlap, len, 1, 9);
        let micros = |s: f64, _: &Play| s * 1e6;
        let name = format!("overlap, {words}, work as long as the transfer");
        let target = Target::RatioAtMost(1.1);
        cases.push(one(rounds, name, ("µs", "the transfer alone"), target, what, micros));
    }
    cases
}

/// 48 KiB one way in growing fragments, against the whole in one.
fn cut_through(rounds: Rounds, effort: Effort, way: Way, words: &str) -> Case {
    let with = effort.play(way, Scene::Ping { fresh: true }, 48 * KIB, 200, 9);
    let without = Play { first_fragment: Some(64 << 10), ..with.clone() };
    Case {
        name: format!("48 KiB, one way, with cut-through{words}"),
        unit: "µs",
        baseline: "without",
        target: Target::RatioAtMost(0.7),
        run: Box::new(move || rounds.of(|| Ok((play(&with)?.value * 1e6, play(&without)?.value * 1e6)))),
    }
}

fn bulk(rounds: Rounds, effort: Effort, peers: &Peers) -> Vec<Case> {
    let mut cases = Vec::new();
    for (len, words) in [(MIB, "1 MiB"), (16 * MIB, "16 MiB")] {
        let times = (64 * MIB / len) as u64;
        for (way, which) in WAYS {
            let what = effort.play(way, Scene::Stream, len, times, 5);
            let name = format!("bulk {words}{which}");
            let target = Target::RatioAtLeast(0.8);
            cases.push(one(rounds, name, ("GB/s", "memcpy"), target, what, gigabytes));
        }
        let what = effort.play(Way::Domain, Scene::Stream, len, times, 5);
        let peers = peers.clone();
        let theirs = move || peers.faster_stream(["openmpi", "mpich"], len);
        let rate = |s: f64, len: usize| len as f64 / s / 1e9;
        let name = format!("bulk {words}, against the better of Open MPI and MPICH");
        let target = Target::RatioAtLeast(1.3);
        cases.push(peer(rounds, name, ("GB/s", "MPI"), target, what, rate, theirs));
    }
    for (len, words) in [(256 * KIB, "256 KiB"), (4 * MIB, "4 MiB")] {
        for (put, which) in [(true, "put"), (false, "get")] {
            let what = effort.play(Way::Domain, Scene::Region { put }, len, (16 * MIB / len) as u64, 9);
            let name = format!("{which} {words}");
            cases.push(one(rounds, name, ("GB/s", "memcpy"), Target::RatioAtLeast(0.9), what, gigabytes));
        }
    }
    cases
}

fn crowd(rounds: Rounds, effort: Effort) -> Case {
    // As many messages in all.
    let of = |units: u32, times| effort.play(Way::Domain, Scene::Crowd { units }, 0, times, 1);
    let (two, eight) = (of(2, CROWD * 28), of(8, CROWD));
    Case {
        name: "all to all, 8 processes on two cores".into(),
        unit: "M/s",
        baseline: "2 processes",
        target: Target::RatioAtLeast(0.5),
        run: Box::new(move || rounds.of(|| Ok((1e-6 / play(&eight)?.value, 1e-6 / play(&two)?.value)))),
    }
}

/// An answer of high priority beside bulk on a slow link, against twice an idle link's and a frame on the
/// wire.
fn behind_bulk(rounds: Rounds, effort: Effort, trusted: bool, words: &str) -> Case {
    let what = effort.play(Way::Slow { trusted, megabits: SLOW }, Scene::Priority, 1, 100, 5);
    let frame = FRAME as f64 / bytes_a_second(SLOW);
    Case {
        name: format!("high priority beside bulk, TCP, {words}, a link of {SLOW} Mbit/s, there and back"),
        unit: "µs",
        baseline: "twice idle, and a frame",
        target: Target::RatioAtMost(1.0),
        run: Box::new(move || {
            rounds.of(|| {
                let Outcome { value, base, .. } = play(&what)?;
                // The scene gives halves of the way there and back.
                Ok((2.0 * value * 1e6, (2.0 * 2.0 * base + frame) * 1e6))
            })
        }),
    }
}

fn networks(rounds: Rounds, effort: Effort, peers: &Peers) -> Vec<Case> {
    let mut cases = Vec::new();
    for (trusted, words, least) in [(true, "trusted", 0.9), (false, "encrypted", 0.4)] {
        let times = TCP_BYTES / MIB as u64;
        let what = effort.play(Way::Tcp { trusted }, Scene::Stream, MIB, times, 1);
        let peers = peers.clone();
        let rate = |s: f64, len: usize| len as f64 / s / 1e9;
        // Of each megabyte, as ours.
        let theirs = move || Ok(peers.tcp(TCP_BYTES)?.map(|s| s / times as f64));
        let name = format!("TCP, loopback, {words}, 1 MiB messages");
        let target = Target::RatioAtLeast(least);
        cases.push(peer(rounds, name, ("GB/s", "iperf3, one stream"), target, what, rate, theirs));
    }
    for (trusted, words) in [(true, "trusted"), (false, "encrypted")] {
        cases.push(behind_bulk(rounds, effort, trusted, words));
    }
    let udp = move |lost| {
        let way = Way::Udp { trusted: true, lost };
        effort.play(way, Scene::Stream, 64 * KIB, 1024, 1)
    };
    let none = udp(None);
    cases.push(one(
        rounds,
        "UDP, no relay, 64 KiB messages, once and in order",
        ("GB/s", "memcpy"),
        Target::Right,
        none,
        gigabytes,
    ));
    for lost in LOSSES {
        let (with, without) = (udp(Some(lost)), udp(Some(0)));
        let target = if lost == 1 { Target::RatioAtLeast(0.5) } else { Target::Right };
        cases.push(Case {
            name: format!("UDP, {lost} % lost, 64 KiB messages, once and in order"),
            unit: "GB/s",
            baseline: "the same relay, none lost",
            target,
            run: Box::new(move || {
                rounds.of(|| {
                    let base = gigabytes(play(&without)?.value, &without);
                    Ok((gigabytes(play(&with)?.value, &with), base))
                })
            }),
        });
    }
    cases
}
