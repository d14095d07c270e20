//! The processes of a measurement: the command itself, started again, each pinned to a processor.

use super::crowd::crowd;
use super::domain_carrier::DomainCarrier;
use super::end::{Carrier, End};
use super::error::BenchError;
use super::link_carrier::LinkCarrier;
use super::net_carrier::{Between, NetCarrier};
use super::region::region;
use super::scenes::{self, Outcome, Size};
use super::tally::Source;
use crate::logp;
use crate::unit::unique;
use clap::Args;
use polyduct_message::link::net::config::Transport;
use polyduct_os::process::{set_parent_death_signal, PidFd, Signal};
use polyduct_os::socket::Conn;
use polyduct_os::{cpu, OsError};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// The channels of a domain.
    Domain,
    /// The shared-memory link itself.
    Link,
    /// The channels of a domain whose units use TCP on loopback.
    DomainTcp {
        /// Not encrypted.
        trusted: bool,
    },
    /// TCP on loopback.
    Tcp {
        /// Not encrypted.
        trusted: bool,
    },
    /// UDP on loopback.
    Udp {
        /// Not encrypted.
        trusted: bool,
        /// Through a relay that loses so many of a hundred.
        lost: Option<u32>,
    },
    /// TCP through a link that carries so much.
    Slow {
        /// Not encrypted.
        trusted: bool,
        /// Megabits a second.
        megabits: u32,
    },
}

/// What is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Scene {
    /// There and back.
    Ping {
        /// Each message is the next part of a source that is larger than the caches, and not always the same.
        fresh: bool,
    },
    /// The same by 64 channels, beside one.
    Channels,
    /// One direction.
    Stream,
    /// The cost to the sender.
    Overhead,
    /// High priority under a flood of low.
    Priority,
    /// Puts or gets.
    Region {
        /// Puts.
        put: bool,
    },
    /// A message and work at once.
    Overlap,
    /// All units to all others: this many units.
    Crowd {
        /// Units of the domain.
        units: u32,
    },
    /// The LogP signature.
    Signature(logp::scene::Script),
}

/// A measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Play {
    /// What carries the messages.
    pub way: Way,
    /// What is done.
    pub scene: Scene,
    /// How much of it.
    pub size: Size,
    /// Another first fragment than the usual.
    pub first_fragment: Option<u64>,
}

/// How much work a measurement is.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// A part of it, for a quick look.
    pub quick: bool,
}

impl Effort {
    /// A measurement of `times` messages and `repeat` repetitions, or of a part of them.
    pub fn play(self, way: Way, scene: Scene, len: usize, times: u64, repeat: u32) -> Play {
        match self.quick {
            true => Play::new(way, scene, len, (times / 20).max(2), repeat.min(2)),
            false => Play::new(way, scene, len, times, repeat),
        }
    }
}

impl Play {
    /// A measurement with all else as usual.
    pub fn new(way: Way, scene: Scene, len: usize, times: u64, repeat: u32) -> Play {
        Play { way, scene, size: Size { len, times, repeat }, first_fragment: None }
    }

    /// Starts the processes, and gives what the first reports. All must have ended well.
    pub fn run(&self) -> Result<Outcome, BenchError> {
        let program = std::env::current_exe()?;
        let units = match self.scene {
            Scene::Crowd { units } => units,
            _ => 2,
        };
        let (one, two) = Conn::pair()?;
        let ends = [one, two];
        let name = unique();
        let (tell, told) = mpsc::channel();
        let mut processes = Vec::new();
        let mut failed = None;
        for unit in 0..units {
            let part = Part { play: self.clone(), name: name.clone(), unit };
            let end = ends[unit.min(1) as usize].as_fd().try_clone_to_owned()?;
            let child = Command::new(&program)
                .args(["message-unit", &serde_json::to_string(&part)?])
                .stdin(Stdio::from(end))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let child = match child {
                Ok(child) => child,
                Err(error) => {
                    failed = Some(BenchError::Start { program: program.clone(), error });
                    break;
                }
            };
            processes.push(PidFd::open(child.id())?);
            let tell = tell.clone();
            std::thread::spawn(move || tell.send((unit, child.wait_with_output())));
        }
        drop(tell);
        drop(ends);
        let mut report = None;
        let kill = || processes.iter().for_each(|p| drop(p.kill()));
        if failed.is_some() {
            kill();
        }
        // The first that fails is the cause; the others would wait for it.
        for (unit, ended) in told {
            let outcome = ended.map_err(BenchError::from).and_then(|output| read(unit, &output));
            match outcome {
                Ok(outcome) if unit == 0 => report = Some(outcome),
                Ok(_) => {}
                Err(error) => {
                    failed.get_or_insert(error);
                    kill();
                }
            }
        }
        match (failed, report) {
            (Some(error), _) => Err(error),
            (None, Some(report)) => Ok(report),
            (None, None) => Err(BenchError::Disagree { what: "there is no report" }),
        }
    }
}

fn read(unit: u32, output: &Output) -> Result<Outcome, BenchError> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().last().unwrap_or("nothing was said").to_owned();
        return Err(BenchError::Ended { status: output.status, said });
    }
    match unit {
        0 => Ok(serde_json::from_slice(&output.stdout)?),
        _ => Ok(Outcome::default()),
    }
}

/// A process's part.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    play: Play,
    name: String,
    unit: u32,
}

/// `bench message-unit`: standard input is a connection to the other process.
#[derive(Args)]
pub struct UnitArgs {
    /// The part, in JSON.
    part: String,
}

/// What one process does.
pub fn run(args: &UnitArgs) -> u8 {
    let played = serde_json::from_str(&args.part).map_err(BenchError::from).and_then(|part| act(&part));
    match played.and_then(|outcome| Ok(serde_json::to_string(&outcome)?)) {
        Ok(report) => {
            println!("{report}");
            0
        }
        Err(error) => {
            crate::text::say!("polyduct-bench: message-unit: {error}");
            1
        }
    }
}

fn act(part: &Part) -> Result<Outcome, BenchError> {
    let Part { play, name, unit } = part;
    // The process that started this one wants the figure; without it there is nothing to do.
    set_parent_death_signal(Some(Signal::KILL))?;
    let cpus = cpu::allowed();
    cpu::pin_to(cpus[*unit as usize % cpus.len()])?;
    if let Scene::Crowd { units } = play.scene {
        return crowd(name, *unit, units, play.size.times);
    }
    let conn = || -> Result<Conn, BenchError> {
        let fd = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok::<_, OsError>(Conn::from_fd(fd)?).map_err(BenchError::from)
    };
    let unit = *unit;
    let source = Source::new(source_bytes(play));
    let lanes = super::tally::HIGH;
    match play.way {
        Way::DomainTcp { trusted } => {
            let network = Some((&conn()?, trusted));
            let carrier = DomainCarrier::new((name, network), unit, lanes, play.first_fragment, source)?;
            whole(End::new(carrier, unit == 0), play, "a domain")
        }
        Way::Domain => {
            let carrier = DomainCarrier::new((name, None), unit, lanes, play.first_fragment, source)?;
            let mut end = End::new(carrier, unit == 0);
            let outcome = match play.scene {
                Scene::Region { put } => region(&mut end, play.size, put),
                _ => scene(&mut end, play, "a domain"),
            };
            ended(end, outcome)
        }
        Way::Link => {
            let carrier = LinkCarrier::new(&conn()?, unit, lanes, play.first_fragment, source)?;
            whole(End::new(carrier, unit == 0), play, "a shared-memory link")
        }
        Way::Tcp { trusted } => {
            let carrier = NetCarrier::new(&conn()?, unit, Transport::Tcp, trusted, Between::Nothing, source)?;
            whole(End::new(carrier, unit == 0), play, "a network link")
        }
        Way::Slow { trusted, megabits } => {
            let between = Between::SlowLink { megabits };
            let carrier = NetCarrier::new(&conn()?, unit, Transport::Tcp, trusted, between, source)?;
            whole(End::new(carrier, unit == 0), play, "a network link")
        }
        Way::Udp { trusted, lost } => {
            let between = lost.map_or(Between::Nothing, |lost| Between::Relay { lost });
            let carrier = NetCarrier::new(&conn()?, unit, Transport::Udp, trusted, between, source)?;
            whole(End::new(carrier, unit == 0), play, "a network link")
        }
    }
}

/// Bytes of the source: more than the caches where bandwidth counts, little where it does not, since fresh
/// memory is slow.
fn source_bytes(play: &Play) -> usize {
    let large = matches!(play.scene, Scene::Stream | Scene::Region { .. } | Scene::Ping { fresh: true });
    let messages = play.size.times.saturating_mul(play.size.repeat.into());
    let moved = play.size.len.saturating_mul(usize::try_from(messages).unwrap_or(usize::MAX));
    let least = play.size.len.max(1 << 20);
    if large {
        moved.clamp(least, least.max(64 << 20))
    } else {
        least
    }
}

fn whole<C: Carrier>(mut end: End<C>, play: &Play, link: &'static str) -> Result<Outcome, BenchError> {
    let outcome = scene(&mut end, play, link);
    ended(end, outcome)
}

/// Leaves, and gives no outcome of which a message was wrong.
fn ended<C: Carrier>(end: End<C>, outcome: Result<Outcome, BenchError>) -> Result<Outcome, BenchError> {
    let outcome = outcome?;
    end.verified("the scene")?;
    end.finish()?;
    Ok(outcome)
}

fn scene<C: Carrier>(end: &mut End<C>, play: &Play, link: &'static str) -> Result<Outcome, BenchError> {
    let size = play.size;
    match &play.scene {
        Scene::Ping { fresh } => scenes::ping(end, size, *fresh),
        Scene::Channels => scenes::channels(end, size),
        Scene::Stream => scenes::stream(end, size),
        Scene::Overhead => scenes::overhead(end, size),
        Scene::Priority => scenes::priority(end, size),
        Scene::Overlap => scenes::overlap(end, size),
        Scene::Signature(script) => logp::scene::signature(end, size, script),
        Scene::Region { .. } => Err(BenchError::NoScene { link, scene: "puts" }),
        Scene::Crowd { .. } => Err(BenchError::NoScene { link, scene: "crowds" }),
    }
}
