//! Measures pipes between two hosts: network namespaces with a cable (a veth pair) between them.
//!
//! This program looks on; it starts itself as host A, which measures, and that one starts host B. Units are
//! processes in either of the namespaces. Every row checks what arrives; the tools it is compared with do
//! not.

use super::case::{Case, Choice, Measured, Rounds, Target};
use super::transfer::{gigabytes, step_seconds, team, LARGE};
use super::unit::{unique, Role as UnitRole};
use clap::Args;
use polyduct_rig::hosts::{command_a, next_line, plug_in, role, tell, Other, Role};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::time::Instant;

/// Where host B takes what bare connections send, and its iperf3 listens.
const SINK: u16 = 7900;
const IPERF: u16 = 7901;
/// Units of each program.
const UNITS: u32 = 2;
/// Bytes that a baseline sends.
const SENT: usize = 1 << 30;
const BLOCK: usize = 128 << 10;

/// `polyduct-bench hosts`.
#[derive(Args)]
pub struct HostsArgs {
    #[command(flatten)]
    choice: Choice,
    /// iperf3. Without it, the cases against it are left out.
    #[arg(long, default_value = ".peers/bin/iperf3")]
    iperf3: PathBuf,
}

/// Measures, or is one of the hosts. Returns the exit status.
pub fn hosts(args: &HostsArgs) -> u8 {
    match role() {
        Role::Outside if args.choice.lists() => not_here(args, "these are the names only"),
        Role::Outside => {
            let given: Vec<String> = std::env::args().skip(1).collect();
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            match command_a(&given).map(|mut command| command.status()) {
                Ok(Ok(status)) => status.code().map_or(1, |code| code as u8),
                Ok(Err(why)) => not_here(args, &why.to_string()),
                Err(why) => not_here(args, &why),
            }
        }
        Role::A => {
            let mut other = Other::start(&["hosts"], true);
            other.hear("sink");
            let cable = Rc::new(Cable { other: RefCell::new(other), port: Cell::new(7200) });
            args.choice.measure(cases(args, &Ok(cable)), "hosts")
        }
        Role::B => {
            sink();
            0
        }
    }
}

/// Rows that a system does not allow say so, and are no failure.
fn not_here(args: &HostsArgs, why: &str) -> u8 {
    args.choice.measure(cases(args, &Err(format!("no network namespaces here: {why}"))), "hosts")
}

/// Host B, and the next port at which a pipe is opened.
struct Cable {
    other: RefCell<Other>,
    port: Cell<u16>,
}

/// A pipe to measure.
#[derive(Clone, Copy)]
struct Pipe {
    readers: &'static str,
    trusted: bool,
    /// Whether a unit of a program runs on host B.
    on_b: fn(UnitRole, u32) -> bool,
}

/// All writers on A and all readers on B.
const FAR: Pipe = Pipe { readers: "*,block", trusted: true, on_b: |role, _| role == UnitRole::Read };
/// A unit of each program on each host: half of every step is near.
const MIXED: Pipe = Pipe { on_b: |_, unit| unit == 1, ..FAR };
/// The same where each reader gets all from the writer of its own host.
const MIXED_NEAR: Pipe = Pipe { readers: "block,*", ..MIXED };
/// The same where it gets all from that of the other.
const MIXED_FAR: Pipe = Pipe { on_b: |role, unit| (role == UnitRole::Read) == (unit == 0), ..MIXED_NEAR };

impl Cable {
    /// GB/s of 64 MiB steps.
    fn rate(&self, pipe: Pipe) -> Result<f64, String> {
        let other = self.other.borrow();
        // A new port each time: the last one's connections may linger.
        let port = self.port.replace(self.port.get() + 1);
        let name = format!("//{}:{port}/{}", other.mine, unique());
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let seconds =
            team(&name, LARGE, ("block,*", UNITS), (pipe.readers, UNITS)).run_by(&|role, unit| {
                let mut command = if (pipe.on_b)(role, unit) { other.command() } else { Command::new(&me) };
                command.env("POLYDUCT_TRUSTED_NETWORK", u8::from(pipe.trusted).to_string());
                command
            })?;
        Ok(gigabytes(LARGE, seconds / LARGE.steps() as f64))
    }

    /// GB/s that iperf3 receives on one stream.
    fn iperf3(&self, program: &Path) -> Result<f64, String> {
        let other = self.other.borrow();
        let (port, bytes) = (IPERF.to_string(), SENT.to_string());
        let mut server = other.command_of(program);
        // Alone for so many seconds it ends, should this program be gone.
        server.args(["-s", "-1", "--forceflush", "--idle-timeout", "20"]);
        server.args(["-B", other.theirs, "-p", &port]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = server.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
        let lines = server.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let mut lines = lines.into_iter().flatten().map_while(Result::ok);
        let sent = match lines.any(|line| line.contains("listening")) {
            true => Command::new(program)
                .args(["-J", "--connect-timeout", "5000"])
                .args(["-c", other.theirs, "-p", &port, "-n", &bytes])
                .output()
                .map_err(|e| format!("{}: {e}", program.display()))
                .and_then(|client| match client.status.success() {
                    true => Ok(client.stdout),
                    false => Err(said(&client)),
                }),
            false => Err("iperf3 does not listen".to_owned()),
        };
        // It serves one client, and waits for as long as there was none.
        if sent.is_err() {
            let _ = server.kill();
        }
        // All that it reports, for which it needs a reader.
        lines.for_each(drop);
        let _ = server.wait();
        let report: serde_json::Value = serde_json::from_slice(&sent?).map_err(|e| e.to_string())?;
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        bits.map(|bits| bits / 8e9).ok_or_else(|| format!("iperf3 says {report}"))
    }

    /// GB/s of bare connections, the better of one and two.
    fn bare(&self) -> Result<f64, String> {
        let at = format!("{}:{SINK}", self.other.borrow().theirs);
        let rates = [1, 2].map(|streams| bare(&at, streams).map_err(|e| format!("a bare connection: {e}")));
        rates.into_iter().try_fold(0.0, |most: f64, rate| Ok(most.max(rate?)))
    }
}

/// What a client says that failed: as JSON in its output, or where it could not even do so.
fn said(client: &Output) -> String {
    let report = serde_json::from_slice::<serde_json::Value>(&client.stdout).ok();
    let error = report.as_ref().and_then(|report| report["error"].as_str());
    let stderr = String::from_utf8_lossy(&client.stderr);
    format!("iperf3 ended with {}: {}", client.status, error.unwrap_or_else(|| stderr.trim()))
}

/// The cases; without a cable each says why it cannot be measured.
fn cases(args: &HostsArgs, cable: &Result<Rc<Cable>, String>) -> Vec<Case> {
    let rounds = args.choice.rounds();
    let iperf3 = args.iperf3.clone();
    let theirs = move |cable: &Cable| cable.iperf3(&iperf3);
    let by_name =
        |pipe: Pipe| Ok(gigabytes(LARGE, step_seconds(LARGE, "block,*", UNITS, pipe.readers, UNITS)?));
    let both = {
        let theirs = theirs.clone();
        move |cable: &Cable| Ok(2.0 / (1.0 / by_name(MIXED)? + 1.0 / theirs(cable)?))
    };
    let encrypted = Pipe { trusted: false, ..FAR };
    let far = "rows→columns 4096² f32, 2→2, two hosts";
    let mixed = "rows→columns 4096² f32, 2→2, two hosts with a unit of each";
    let case = |name: String, baseline, target, pipe, base: Base| {
        of(rounds, cable, name, baseline, target, pipe, base)
    };
    let against_iperf3 = args.iperf3.exists();
    let mut cases = Vec::new();
    if against_iperf3 {
        let one = "iperf3, one stream";
        let at_least = Target::RatioAtLeast(0.8);
        cases.push(case(format!("{far}, trusted"), one, at_least, FAR, Box::new(theirs.clone())));
        cases.push(case(
            format!("{far}, encrypted"),
            one,
            Target::Right,
            encrypted,
            Box::new(theirs.clone()),
        ));
        let name = "rows→rows, partners far, two hosts with a unit of each";
        // This pipe uses both directions of the cable.
        let one_way = "iperf3, one stream, in one direction only";
        cases.push(case(name.into(), one_way, at_least, MIXED_FAR, Box::new(theirs)));
        // The pipe moves both at once.
        let halves = "a half by name, and then a half by iperf3";
        cases.push(case(mixed.into(), halves, Target::Right, MIXED, Box::new(both)));
    }
    let near = "rows→rows, partners near, two hosts with a unit of each";
    let name = Box::new(move |_: &Cable| by_name(MIXED_NEAR));
    cases.push(case(near.into(), "by name", Target::RatioAtLeast(0.9), MIXED_NEAR, name));
    for (pipe, kind) in [(FAR, "trusted"), (encrypted, "encrypted")] {
        let bare = Box::new(Cable::bare);
        cases.push(case(format!("{far}, {kind}, bare"), "bare TCP", Target::Right, pipe, bare));
    }
    cases
}

/// GB/s that a pipe is compared with.
type Base = Box<dyn Fn(&Cable) -> Result<f64, String>>;

fn of(
    rounds: Rounds,
    cable: &Result<Rc<Cable>, String>,
    name: String,
    baseline: &'static str,
    target: Target,
    pipe: Pipe,
    base: Base,
) -> Case {
    let cable = cable.clone();
    let run = Box::new(move || match &cable {
        Ok(cable) => rounds.of(|| Ok((cable.rate(pipe)?, base(cable)?))),
        Err(why) => Ok(Measured::Missing(why.clone())),
    });
    Case { name, unit: "GB/s", baseline, target, run }
}

fn bare(at: &str, streams: usize) -> std::io::Result<f64> {
    let begun = Instant::now();
    std::thread::scope(|s| {
        let send = || {
            let mut stream = TcpStream::connect(at)?;
            let block = vec![1; BLOCK];
            (0..SENT / streams / BLOCK).try_for_each(|_| stream.write_all(&block))?;
            stream.shutdown(std::net::Shutdown::Write)?;
            stream.read_exact(&mut [0])
        };
        let all: Vec<_> = (0..streams).map(|_| s.spawn(send)).collect();
        all.into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())))
    })?;
    Ok(SENT as f64 / begun.elapsed().as_secs_f64() / 1e9)
}

/// Host B: takes what bare connections send, until A has no interest in it.
fn sink() {
    let (_, mine) = plug_in();
    let Ok(sink) = TcpListener::bind((&mine[..], SINK)) else { return };
    tell("sink");
    std::thread::spawn(move || {
        for stream in sink.incoming() {
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut stream = stream?;
                let mut block = vec![0; BLOCK];
                while stream.read(&mut block)? > 0 {}
                stream.write_all(&[1])
            });
        }
    });
    next_line();
}
