//! All to all by more processes than there are processors, beside two processes with a processor each.

use crate::script::{Figure, CROWD};
use polyduct_message::domain::{Domain, Options};
use polyduct_message::{MessageError, Priority};
use polyduct_os::clock::now;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const UNIT: &str = "POLYDUCT_MESSAGE_CROWD";
/// Short messages from each unit to all others together, before it waits for as many from them.
const TURN: u64 = 448;
/// Messages of all units together.
const ALL: u64 = 400_000;

/// Whether this process is one of a crowd; it has done its part then.
pub fn took_part() -> bool {
    let Ok(spec) = std::env::var(UNIT) else { return false };
    let spec: Vec<&str> = spec.split(' ').collect();
    let (unit, units) = (spec[1].parse().unwrap(), spec[2].parse().unwrap());
    println!("{}", exchange(spec[0], unit, units).unwrap());
    true
}

/// The medians of a few rounds, taken in turns.
pub fn figure() -> Figure {
    let (mut two, mut eight) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        two.push(rate(2));
        eight.push(rate(8));
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Figure { scene: &CROWD, case: median(eight), limit: median(two) }
}

/// Million messages a second that `units` processes on two processors exchange.
fn rate(units: u32) -> f64 {
    let name = format!("crowd-{}-{units}-{}", std::process::id(), now().as_nanos());
    let start = |unit| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(UNIT, format!("{name} {unit} {units}")).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<_> = (0..units).map(start).collect();
    let rate = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().unwrap()
    };
    let rates: Vec<f64> = children.into_iter().map(rate).collect();
    rates[0]
}

fn exchange(name: &str, unit: u32, units: u32) -> Result<f64, MessageError> {
    let cpus = polyduct_os::cpu::allowed();
    polyduct_os::cpu::pin_to(cpus[unit as usize % cpus.len().min(2)])?;
    let domain = Domain::join(Options::new(name, unit, units))?;
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    domain.handler("count", 1, move |_, _| _ = count.fetch_add(1, Ordering::Relaxed))?;
    domain.synchronise()?;
    let others = (0..units).filter(|&to| to != unit);
    let mut channels = others
        .map(|to| Ok((domain.channel(to, Priority::Low)?, domain.lookup("count", to)?)))
        .collect::<Result<Vec<_>, MessageError>>()?;
    let each = TURN / u64::from(units - 1);
    let turns = ALL / (TURN * u64::from(units));
    domain.barrier()?;
    let start = now();
    for turn in 1..=turns {
        for (channel, count) in &mut channels {
            for n in 0..each as u32 {
                channel.bulk(*count, [n, 0, 0, 0], &[])?;
            }
        }
        domain.serve_until(None, || seen.load(Ordering::Relaxed) >= turn * TURN)?;
    }
    domain.barrier()?;
    let messages = turns * TURN * u64::from(units);
    Ok(messages as f64 / (now() - start).as_secs_f64() / 1e6)
}
