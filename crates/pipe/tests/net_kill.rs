//! Pipes across hosts, real processes and real `kill -9`: whoever dies, whenever, every survivor learns it at once and by
//! name, and no step is ever torn. The processes are of one host, where a death is known by the same hangups.
//!
//! `POLYDUCT_KILLS=500` runs more seeds than the default.

mod common;

use common::net::{place, trust};
use common::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::{NetReader, NetWriter, Place};
use polyduct_pipe::{Expect, Given, Options, PipeError, Policy, Refusal};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SHAPE: [u64; 2] = [96, 80];
const LAYOUTS: [&str; 4] = ["block,*", "*,block", "cyclic,*", "block,*;order=F"];
const WATCHDOG: Duration = Duration::from_secs(30);

fn main() {
    if let Ok(spec) = std::env::var("POLYDUCT_TEST_UNIT") {
        return unit(&spec);
    }
    let tests: [(&str, fn()); 2] = [
        ("any_unit_killed_at_any_moment", any_unit_killed_at_any_moment),
        ("units_killed_while_the_pipe_opens", units_killed_while_the_pipe_opens),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let tests: Vec<_> =
        tests.iter().filter(|(n, _)| wanted.is_empty() || wanted.iter().any(|w| n.contains(w))).collect();
    println!("\nrunning {} tests", tests.len());
    for (name, test) in &tests {
        test();
        println!("test {name} ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n", tests.len());
}

/// A line to the parent. A parent that no longer listens has ended the test.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

/// One process: `role layout unit units host port policy trusted`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let number = |i: usize| f[i].parse::<u32>().unwrap();
    let of = if f[0] == "w" {
        writer_options(number(2), number(3))
    } else {
        reader_options("r", number(2), number(3))
    };
    let (timeout, open_timeout) = (Some(Duration::from_secs(20)), Duration::from_millis(number(8).into()));
    let options = Options { policy: f[6].parse::<Policy>().unwrap(), timeout, open_timeout, ..of };
    let at = Place { host: f[4].into(), port: number(5) as u16, name: "kill".into() };
    say("start");
    let done = match f[0] {
        "w" => write(&at, f[1], &options, f[7] == "true"),
        _ => read(&at, f[1], &options, f[7] == "true"),
    };
    match done {
        Ok(()) => say("end"),
        Err(e) => {
            let kind = match &e {
                PipeError::PeerLost { unit, pid, .. } => format!("lost {unit} {pid}"),
                PipeError::Refused { reason: Refusal::Lost { .. } | Refusal::Missing { .. }, .. } => {
                    "refused".into()
                }
                PipeError::Timeout { .. } => "timeout".into(),
                other => format!("other {other}"),
            };
            say(&format!("error {:.6} {kind}", polyduct_os::clock::now().as_secs_f64()));
        }
    }
}

fn write(at: &Place, layout: &str, options: &Options, trusted: bool) -> Result<(), PipeError> {
    let given = Given::Dataset(Dataset::new(&SHAPE, ElemType::U64).unwrap());
    let mut w = NetWriter::open(at, &trust(trusted), &given, layout, options)?;
    let indices = local_indices(w.mapping(), options.unit.into());
    say("open");
    loop {
        let n = w.next_step();
        let mut slot = w.step()?;
        fill(&mut slot, &indices, n);
        slot.publish()?;
        say("step");
    }
}

fn read(at: &Place, layout: &str, options: &Options, trusted: bool) -> Result<(), PipeError> {
    let mut r = NetReader::open(at, &trust(trusted), layout, &Expect::default(), options)?;
    let indices = local_indices(r.mapping(), options.unit.into());
    let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
    say("open");
    let mut last = None;
    while let Some(step) = r.read(&mut part)? {
        fill(&mut expected, &indices, step);
        assert!(part == expected, "step {step} is torn");
        assert!(last < Some(step), "step {step} after {last:?}");
        last = Some(step);
        say("step");
    }
    r.close().map(drop)
}

struct Unit {
    name: String,
    child: Child,
    lines: mpsc::Receiver<String>,
    last: String,
}

impl Unit {
    fn start(name: String, spec: &str) -> Unit {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env("POLYDUCT_TEST_UNIT", spec)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Unit { name, child, lines, last: String::new() }
    }

    /// Waits for a line; `false` when the unit ends before it.
    fn wait_line(&mut self, what: &str) -> bool {
        loop {
            match self.lines.recv_timeout(WATCHDOG) {
                Ok(line) => {
                    self.last = line;
                    if self.last == what {
                        return true;
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("{} hangs after {:?}", self.name, self.last),
            }
        }
    }

    /// Waits for the end; returns the last line.
    fn end(&mut self) -> String {
        while self.wait_line("") {}
        self.child.wait().unwrap();
        self.last.clone()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// xorshift64*: seeded, so that a failing seed can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }

    /// Some time below a step's, without sleeping.
    fn linger(&mut self) {
        let end = Instant::now() + Duration::from_micros(self.below(500));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

fn kills(default: u64) -> u64 {
    std::env::var("POLYDUCT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn start_all(random: &mut Random, open_ms: u32) -> (String, Vec<Unit>) {
    let at = place();
    let (writers, readers) = (1 + random.below(3), 1 + random.below(3));
    let (src, dst) = (LAYOUTS[random.below(4) as usize], LAYOUTS[random.below(4) as usize]);
    let policy = ["block", "block", "block", "latest", "drop_oldest"][random.below(5) as usize];
    let trusted = random.below(2) == 0;
    let case = format!("{writers} {src} to {readers} {dst}, {policy}, trusted {trusted}");
    let unit = |role: &str, layout: &str, unit: u64, units: u64| {
        let name = format!("{} unit {unit}", if role == "w" { "writer" } else { "reader" });
        let spec =
            format!("{role} {layout} {unit} {units} {} {} {policy} {trusted} {open_ms}", at.host, at.port);
        Unit::start(name, &spec)
    };
    let mut units: Vec<Unit> = (0..writers).map(|u| unit("w", src, u, writers)).collect();
    units.extend((0..readers).map(|u| unit("r", dst, u, readers)));
    (case, units)
}

fn any_unit_killed_at_any_moment() {
    let mut delays = Vec::new();
    for seed in 1..=kills(60) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (case, mut units) = start_all(&mut random, 20_000);
        let victim = random.below(units.len() as u64) as usize;
        for unit in &mut units {
            assert!(unit.wait_line("open"), "seed {seed}, {case}: {} says {}", unit.name, unit.last);
        }
        for _ in 0..random.below(12) {
            assert!(
                units[victim].wait_line("step"),
                "seed {seed}, {case}: {} ended by itself",
                units[victim].name
            );
        }
        random.linger();
        let (name, pid) = (units[victim].name.clone(), units[victim].child.id());
        units[victim].child.kill().unwrap();
        let killed = polyduct_os::clock::now().as_secs_f64();
        for (_, unit) in units.iter_mut().enumerate().filter(|(i, _)| *i != victim) {
            let last = unit.end();
            let words: Vec<&str> = last.splitn(3, ' ').collect();
            let expected = format!("lost {name} {pid}");
            assert!(
                words.len() == 3 && words[2] == expected,
                "seed {seed}, {case}: {} says {last:?}, not {expected:?}",
                unit.name
            );
            delays.push(words[1].parse::<f64>().unwrap() - killed);
        }
    }
    delays.sort_by(f64::total_cmp);
    let (middle, worst) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!(
        "{} survivors of {} kills: told within {:.1} ms (median), {:.1} ms (worst)",
        delays.len(),
        kills(60),
        middle * 1e3,
        worst * 1e3
    );
    assert!(middle < 0.1, "survivors are told too late");
    assert!(worst < 3.0, "some survivors are told too late");
}

fn units_killed_while_the_pipe_opens() {
    for seed in 1..=kills(60) / 2 {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (case, mut units) = start_all(&mut random, 1000);
        let victim = random.below(units.len() as u64) as usize;
        assert!(units[victim].wait_line("start"));
        (0..random.below(40)).for_each(|_| random.linger());
        units[victim].child.kill().unwrap();
        for (_, unit) in units.iter_mut().enumerate().filter(|(i, _)| *i != victim) {
            let last = unit.end();
            let kind = last.splitn(3, ' ').nth(2).unwrap_or("").split(' ').next().unwrap_or("").to_owned();
            assert!(
                ["lost", "refused", "timeout"].contains(&&kind[..]),
                "seed {seed}, {case}: {} says {last:?}",
                unit.name
            );
        }
    }
}
