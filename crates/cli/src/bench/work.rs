//! Starts the processes of a measurement, and runs the part of each.

use clap::Args;
use polyduct::layout::{Dataset, ElemType};
use polyduct::message::{Domain, MessageError, Priority};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a process waits for the others.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a process does, as it is told by its argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Writes steps of a square array of bytes, in blocks of rows. Reports nothing.
    Write { url: String, side: u64, steps: u64 },
    /// Reads them in blocks of columns, and checks them. Reports the seconds of all steps but the first two.
    Read { url: String, side: u64, steps: u64 },
    /// Sends a step of 8 bytes and waits for one in answer. Reports the seconds of one way.
    Ping { name: String, steps: u64 },
    /// Answers.
    Pong { name: String },
    /// Talks to the other unit of a domain. Reports the seconds of a message of 8 bytes one way, of one among
    /// many, and of `bytes` in messages of 1 MiB.
    Talk { domain: String, turns: u32, flood: u32, bytes: u64 },
}

/// `polyduct bench-unit`.
#[derive(Args)]
pub struct UnitArgs {
    /// What to do, in JSON.
    work: String,
}

/// Carries out `polyduct bench-unit`; gives the exit status. What it measured goes to standard output, as a
/// list.
pub fn unit(args: &UnitArgs) -> u8 {
    let done = serde_json::from_str(&args.work).map_err(Into::into).and_then(|work: Work| work.act());
    match done {
        Ok(figures) => u8::from(!crate::text::print_json(&figures)),
        Err(error) => {
            crate::text::say!("polyduct: bench-unit: {error}");
            1
        }
    }
}

impl Work {
    fn act(&self) -> Result<Vec<f64>, Box<dyn Error>> {
        let open = |url: &str| polyduct::open(url).timeout(PATIENCE);
        match self {
            Work::Write { url, side, steps } => {
                let data = Dataset::new(&[*side, *side], ElemType::U8)?;
                let mut out = open(url).write(&data, "block,*")?;
                let unit = polyduct::place(None, None, None, |name| std::env::var(name).ok())?.unit;
                for step in 0..*steps {
                    let mut slot = out.step()?;
                    if step < 2 {
                        slot.fill(unit as u8 + 1);
                    }
                    slot.publish()?;
                }
                out.close()?;
                Ok(vec![])
            }
            Work::Read { url, side, steps } => {
                let mut input = open(url).read("*,block")?;
                let mut part = vec![0; input.local_len_bytes()];
                let mut start = Instant::now();
                let mut came = 0;
                while input.read(&mut part)?.is_some() {
                    came += 1;
                    if came == 2 {
                        start = Instant::now();
                    }
                }
                let seconds = start.elapsed().as_secs_f64();
                let half = part.len() / 2;
                let right = part[..half].iter().all(|b| *b == 1) && part[half..].iter().all(|b| *b == 2);
                if came != *steps || !right {
                    return Err(format!("{came} of {steps} steps of {side} rows came; right: {right}").into());
                }
                Ok(vec![seconds / (steps - 2) as f64])
            }
            Work::Ping { name, steps } => {
                let data = Dataset::new(&[8], ElemType::U8)?;
                let mut out = open(&format!("pipe:{name}-there")).write(&data, "*")?;
                let mut input = open(&format!("pipe:{name}-back")).read("*")?;
                let mut part = [0; 8];
                let mut start = Instant::now();
                for step in 0..steps + steps / 10 {
                    if step == steps / 10 {
                        start = Instant::now();
                    }
                    out.write(&step.to_ne_bytes())?;
                    input.read(&mut part)?;
                    if part != step.to_ne_bytes() {
                        return Err(format!("step {step} came back changed").into());
                    }
                }
                Ok(vec![start.elapsed().as_secs_f64() / (2 * steps) as f64])
            }
            Work::Pong { name } => {
                let data = Dataset::new(&[8], ElemType::U8)?;
                let mut input = open(&format!("pipe:{name}-there")).read("*")?;
                let mut out = open(&format!("pipe:{name}-back")).write(&data, "*")?;
                let mut part = [0; 8];
                while input.read(&mut part)?.is_some() {
                    out.write(&part)?;
                }
                Ok(vec![])
            }
            Work::Talk { domain, turns, flood, bytes } => {
                let domain =
                    polyduct::domain().name(domain).open_timeout(PATIENCE).timeout(PATIENCE).join()?;
                let figures = talk(&domain, *turns, *flood, *bytes)?;
                domain.leave()?;
                Ok(figures)
            }
        }
    }
}

fn talk(domain: &Domain, turns: u32, flood: u32, bytes: u64) -> Result<Vec<f64>, Box<dyn Error>> {
    let other = 1 - domain.unit();
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    domain.handler("count", 1, move |_, message| {
        // A long one that came changed is none.
        let right = message.payload.is_empty() || message.payload[message.payload.len() - 1] == 1;
        counted.fetch_add(u64::from(right), Ordering::Relaxed);
    })?;
    domain.synchronise()?;
    let handler = domain.lookup("count", other)?;
    let mut channel = domain.channel(other, Priority::Low)?;
    let seen = || count.load(Ordering::Relaxed);
    let await_count = |n: u64| -> Result<(), Box<dyn Error>> {
        // A unit that waits for an answer and has nothing else to do looks for it again and again.
        let start = Instant::now();
        while seen() < n && start.elapsed() < PATIENCE {
            domain.poll();
        }
        (seen() == n).then_some(()).ok_or_else(|| format!("{} of {n} messages came", seen()).into())
    };

    let mut start = Instant::now();
    for turn in 0..turns {
        if turn == turns / 10 {
            start = Instant::now();
        }
        if domain.unit() == 0 {
            channel.short(handler, [turn; 4])?;
        }
        await_count(u64::from(turn) + 1)?;
        if domain.unit() == 1 {
            channel.short(handler, [turn; 4])?;
        }
    }
    let one_way = start.elapsed().as_secs_f64() / (2.0 * f64::from(turns - turns / 10));

    domain.barrier()?;
    let start = Instant::now();
    if domain.unit() == 0 {
        for n in 0..flood {
            match channel.short(handler, [n; 4]) {
                // The long way waits for room.
                Err(MessageError::Full { .. }) => channel.bulk(handler, [n; 4], &[])?,
                sent => sent?,
            }
        }
        channel.flush()?;
        await_count(u64::from(turns) + 1)?;
    } else {
        await_count(u64::from(turns) + u64::from(flood))?;
        channel.short(handler, [0; 4])?;
        channel.flush()?;
    }
    let one_of_many = start.elapsed().as_secs_f64() / f64::from(flood);

    // More than the caches hold: programs send what they have computed, and not the same bytes again.
    let source = vec![1; if domain.unit() == 0 { 64 << 20 } else { 0 }];
    let messages = bytes >> 20;
    let before = seen();
    domain.barrier()?;
    let start = Instant::now();
    if domain.unit() == 0 {
        for message in source.chunks(1 << 20).cycle().take(messages as usize) {
            channel.bulk(handler, [0; 4], message)?;
        }
        await_count(before + 1)?;
    } else {
        await_count(before + messages)?;
        channel.short(handler, [0; 4])?;
        channel.flush()?;
    }
    let bulk = start.elapsed().as_secs_f64();
    domain.barrier()?;
    Ok(vec![one_way, one_of_many, bulk])
}

/// Runs programs at once, each so many processes that do the same; gives the longest of each figure that they
/// report.
pub fn run(programs: &[(Work, u32)], environment: &[(&str, &str)]) -> Result<Vec<f64>, String> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut children: Vec<Child> = Vec::new();
    let mut failed = None;
    for (program, (work, units)) in programs.iter().enumerate() {
        for unit in 0..*units {
            let child = Command::new(&this)
                .args(["bench-unit", &serde_json::to_string(work).map_err(|e| e.to_string())?])
                .env("POLYDUCT_JOB", format!("bench-{}", std::process::id()))
                .env("POLYDUCT_PROGRAM", format!("bench-{program}"))
                .env("POLYDUCT_UNIT", unit.to_string())
                .env("POLYDUCT_UNITS", units.to_string())
                .env_remove("POLYDUCT_REPORT")
                .envs(environment.iter().copied())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            match child {
                Ok(child) => children.push(child),
                Err(e) => failed = Some(format!("cannot start {}: {e}", this.display())),
            }
        }
    }
    if failed.is_some() {
        children.iter_mut().for_each(|child| drop(child.kill()));
    }
    let mut longest: Vec<f64> = Vec::new();
    for child in children {
        let out = child.wait_with_output().map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&out.stderr);
        match serde_json::from_slice::<Vec<f64>>(&out.stdout) {
            Ok(figures) if out.status.success() => {
                longest.resize(longest.len().max(figures.len()), 0.0);
                longest.iter_mut().zip(figures).for_each(|(most, figure)| *most = most.max(figure));
            }
            _ => failed = failed.or(Some(format!("{}: {}", out.status, said.trim()))),
        }
    }
    failed.map_or(Ok(longest), Err)
}
