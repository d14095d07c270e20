//! The processes of a measurement: starting them, and what each does.

use super::{bundles, disk_unit, pattern};
use clap::Args;
use polyduct::open;
use polyduct_layout::{Dataset, ElemType};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A pipe to measure, as given to each of its processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Name of the pipe.
    pub pipe: String,
    /// What this process does.
    pub role: Role,
    /// The dataset's shape.
    pub shape: Vec<u64>,
    /// The dataset's element type.
    pub elem: String,
    /// This program's layout.
    pub layout: String,
    /// Steps before the clock starts, and in a stream as many after it stops: neither the filling of the
    /// slots nor the leaving of the writers, who are ahead and take processor time to end, belongs to a step.
    pub warm: u64,
    /// Steps that are timed.
    pub steps: u64,
    /// When all begin to open, in seconds of the system's clock.
    pub at: f64,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Publishes slots that were filled once.
    Write,
    /// Reads; checks some elements of every step, and all of the first and the last.
    Read,
    /// Sends a step and waits for one in answer.
    Ping,
    /// Answers.
    Pong,
    /// Opens a pipe for writing at a given time, and closes it.
    OpenWrite,
    /// The same for reading.
    OpenRead,
    /// Publishes slots of several arrays that were filled once.
    BundleWrite,
    /// The same of one array with an open dimension.
    SizedWrite,
    /// Reads several arrays, and checks them.
    BundleRead,
    /// The same; what counts is when the first step is there.
    BundleOpenRead,
    /// Writes a dataset in a store, whose directory is the name, from when it is open to its being safe.
    DiskWrite,
    /// The same without making it safe: what was written is given up.
    DiskWriteUncommitted,
    /// Reads one, and checks it.
    DiskRead,
}

/// `bench unit`.
#[derive(Args)]
pub struct UnitArgs {
    /// The specification, in JSON.
    spec: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Report {
    pub start: f64,
    pub end: f64,
}

/// What one process does.
pub fn run(args: &UnitArgs) -> u8 {
    match serde_json::from_str(&args.spec).map_err(|e| e.to_string()).and_then(|spec: Spec| act(&spec)) {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            0
        }
        Err(error) => {
            crate::text::say!("polyduct-bench: unit: {error}");
            1
        }
    }
}

pub(super) fn now() -> f64 {
    polyduct_os::clock::now().as_secs_f64()
}

fn act(spec: &Spec) -> Result<Report, String> {
    let text = |e: polyduct::Error| e.to_string();
    let elem: ElemType = spec.elem.parse().map_err(|e: polyduct_layout::LayoutError| e.to_string())?;
    let data = Dataset::new(&spec.shape, elem).map_err(|e| e.to_string())?;
    let port = |name: &str| open(&format!("pipe:{}{name}", spec.pipe)).timeout(Duration::from_secs(60));
    let unit = polyduct::place(None, None, None, |v| std::env::var(v).ok()).map_err(text)?.unit.into();
    match spec.role {
        Role::OpenWrite | Role::OpenRead => {
            std::thread::sleep(Duration::try_from_secs_f64(spec.at - now()).unwrap_or_default());
            let (mut writer, mut reader) = (None, None);
            match spec.role {
                Role::OpenWrite => writer = Some(port("").write(&data, &spec.layout).map_err(text)?),
                _ => reader = Some(port("").read(&spec.layout).map_err(text)?),
            }
            let end = now();
            writer.iter_mut().try_for_each(|w| w.close().map(drop)).map_err(text)?;
            reader.iter_mut().try_for_each(|r| r.close().map(drop)).map_err(text)?;
            Ok(Report { start: spec.at, end })
        }
        Role::BundleWrite | Role::SizedWrite => bundles::write(spec),
        Role::BundleRead | Role::BundleOpenRead => bundles::read(spec),
        Role::DiskWrite => disk_unit::write(spec, &data, unit, true),
        Role::DiskWriteUncommitted => disk_unit::write(spec, &data, unit, false),
        Role::DiskRead => disk_unit::read(spec, &data, unit),
        Role::Write => {
            let mut out = port("").write(&data, &spec.layout).map_err(text)?;
            let mapping = out.mapping().clone();
            // Both slots are filled once with a step of their own; after that a step is only published.
            for step in 0..spec.warm + spec.steps + spec.warm {
                let mut slot = out.step().map_err(text)?;
                if step < 2 {
                    pattern::fill(&mapping, unit, &mut slot, step % 2).map_err(|e| e.to_string())?;
                }
                slot.publish().map_err(text)?;
            }
            out.close().map_err(text)?;
            Ok(Report { start: 0.0, end: 0.0 })
        }
        Role::Read => {
            let mut input = port("").read(&spec.layout).map_err(text)?;
            let mapping = input.mapping().clone();
            let sample = pattern::Sample::new(&mapping, unit).map_err(|e| e.to_string())?;
            let mut part = vec![1; input.local_len_bytes()];
            let mut came = 0;
            let mut next = |part: &mut [u8]| -> Result<bool, String> {
                let Some(step) = input.read(part).map_err(text)? else { return Ok(false) };
                if step != came {
                    return Err(format!("step {step} came instead of {came}"));
                }
                came += 1;
                sample.check(part, step % 2)?;
                Ok(true)
            };
            for step in 0..spec.warm {
                next(&mut part)?;
                if step == 0 {
                    pattern::check(&mapping, unit, &part, 0)?;
                }
            }
            let start = now();
            for _ in 0..spec.steps {
                next(&mut part)?;
            }
            let end = now();
            while next(&mut part)? {}
            let all = spec.warm + spec.steps + spec.warm;
            if came != all {
                return Err(format!("{came} of {all} steps came"));
            }
            pattern::check(&mapping, unit, &part, (all - 1) % 2)?;
            Ok(Report { start, end })
        }
        Role::Ping => {
            let mut out = port("-a").write(&data, "*").map_err(text)?;
            let mut input = port("-b").read("*").map_err(text)?;
            let mut start = now();
            let mut part = vec![0; input.local_len_bytes()];
            for step in 0..spec.warm + spec.steps {
                if step == spec.warm {
                    start = now();
                }
                let stamp = vec![step as u8; part.len()];
                out.write(&stamp).map_err(text)?;
                input.read(&mut part).map_err(text)?;
                if part != stamp {
                    return Err(format!("step {step} came back changed"));
                }
            }
            Ok(Report { start, end: now() })
        }
        Role::Pong => {
            let mut input = port("-a").read("*").map_err(text)?;
            let mut out = port("-b").write(&data, "*").map_err(text)?;
            let mut part = vec![0; input.local_len_bytes()];
            while input.read(&mut part).map_err(text)?.is_some() {
                out.write(&part).map_err(text)?;
            }
            Ok(Report { start: 0.0, end: 0.0 })
        }
    }
}

/// Of pipes by address.
const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Programs that run together: each a specification and its number of units.
pub struct Team(pub Vec<(Spec, u32)>);

/// A pipe name that no other measurement uses.
pub fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Team {
    /// Runs all processes; gives the seconds from the first reader's start to the last one's end.
    pub fn run(&self) -> Result<f64, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        self.run_by(&|_, _| Command::new(&program))
    }

    /// The same, with the command that runs this program as a unit of that role and number.
    pub fn run_by(&self, start: &dyn Fn(Role, u32) -> Command) -> Result<f64, String> {
        let mut children: Vec<Child> = Vec::new();
        let mut started = Ok(());
        for (spec, units) in &self.0 {
            for unit in 0..*units {
                let spec_text = serde_json::to_string(spec).map_err(|e| e.to_string())?;
                let child = start(spec.role, unit)
                    .args(["unit", &spec_text])
                    .env("POLYDUCT_UNIT", unit.to_string())
                    .env("POLYDUCT_UNITS", units.to_string())
                    .env("POLYDUCT_PROGRAM", format!("{:?}-{}", spec.role, std::process::id()))
                    .env("POLYDUCT_JOB_KEY", KEY)
                    .env_remove("POLYDUCT_REPORT")
                    .stdout(Stdio::piped())
                    .spawn();
                match child {
                    Ok(child) => children.push(child),
                    Err(e) => started = started.and(Err(format!("cannot start a process: {e}"))),
                }
            }
        }
        if started.is_err() {
            children.iter_mut().for_each(|c| drop(c.kill()));
        }
        let reports: Vec<Result<Report, String>> = children.into_iter().map(finish).collect();
        started?;
        let reports: Vec<Report> = reports.into_iter().collect::<Result<_, _>>()?;
        let timed: Vec<&Report> = reports.iter().filter(|r| r.end > 0.0).collect();
        let start = timed.iter().map(|r| r.start).fold(f64::INFINITY, f64::min);
        let end = timed.iter().map(|r| r.end).fold(0.0, f64::max);
        Ok(end - start)
    }
}

fn finish(mut child: Child) -> Result<Report, String> {
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(format!("a process of the measurement ended with {status}"));
    }
    serde_json::from_str(&line).map_err(|e| format!("unreadable report {line:?}: {e}"))
}
