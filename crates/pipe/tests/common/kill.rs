//! Units in processes of their own that write or read until they are killed or told.

use super::at::{step_with, At};
use super::net::{trust, Across, Near};
use super::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Options, PipeError, Refusal};
use polyduct_port::PortError;
use polyduct_rig::kills::{error_of, say_error};
use polyduct_rig::{say, Unit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Layouts for both sides.
pub const LAYOUTS: [&str; 4] = ["block,*", "*,block", "cyclic,*", "block,*;order=F"];

/// What tests call a unit of a role.
pub fn name(role: &str, unit: u64) -> String {
    format!("{} unit {unit}", if role == "w" { "writer" } else { "reader" })
}

/// What everybody is told who survives a unit.
pub fn loss_of(unit: &Unit) -> String {
    format!("lost {} {}", unit.name, unit.pid())
}

/// Writes (role `w`) or reads so many steps. In the middle of them writers wait to be [let go](Unit::let_go),
/// so that nobody comes to the end before the test is ready for it. Says `start`, `waits` when it first waits
/// for another unit, `open` and each `step`; `end` or the error is the last line.
pub fn run<A: At>(at: &A, role: &str, data: Dataset, layout: &str, options: &Options, steps: u64) {
    say("start");
    let once = AtomicBool::new(false);
    let waits = move || {
        if !once.swap(true, Ordering::Relaxed) {
            say("waits");
        }
        false
    };
    let options = &Options { interrupt: Some(Arc::new(waits)), ..options.clone() };
    let done = match role {
        "w" => write(at, data, layout, options, steps),
        _ => read(at, layout, options, steps),
    };
    match done {
        Ok(()) => say("end"),
        Err(PipeError::Port(PortError::PeerLost { peer, pid, .. })) => {
            say_error(&format!("lost {peer} {pid}"))
        }
        Err(PipeError::Refused { reason: Refusal::Missing { .. }, .. }) => say_error("refused"),
        Err(PipeError::Port(PortError::Timeout { .. })) => say_error("timeout"),
        Err(other) => say_error(&format!("other {other}")),
    }
}

fn write<A: At>(at: &A, data: Dataset, layout: &str, options: &Options, steps: u64) -> Result<(), PipeError> {
    let mut w = at.writer(&Given::Dataset(data), layout, options)?;
    let indices = local_indices(w.mapping(), options.unit.into());
    say("open");
    while w.next_step() < steps {
        let n = w.next_step();
        if n == steps / 2 {
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        step_with(&mut w, |slot| fill(slot, &indices, n))?;
        say("step");
    }
    w.close().map(drop)
}

fn read<A: At>(at: &A, layout: &str, options: &Options, steps: u64) -> Result<(), PipeError> {
    let mut r = at.reader(layout, &Expect::default(), options)?;
    let indices = local_indices(r.mapping(), options.unit.into());
    let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
    say("open");
    let mut last = None;
    while last.is_none_or(|l| l + 1 < steps) {
        let Some(step) = r.read(&mut part)? else { break };
        fill(&mut expected, &indices, step);
        assert!(part == expected, "step {step} is torn");
        assert!(last < Some(step), "step {step} after {last:?}");
        last = Some(step);
        say(&format!("step {step}"));
    }
    r.close().map(drop)
}

/// Checks what a unit says that could not open the pipe, since another one died.
pub fn assert_could_not_open(unit: &mut Unit, case: &str) {
    let last = unit.end();
    let kind = error_of(&last).map_or("", |(_, error)| error.split(' ').next().unwrap_or(""));
    assert!(["lost", "refused", "timeout"].contains(&kind), "{case}: {} says {last:?}", unit.name);
}

/// One process of a pipe across hosts of this name, which carries an array of this shape, as [`run`] has it:
/// `role layout unit units host port policy trusted open_timeout_ms on_loss steps`.
pub fn unit_across(name: &str, shape: &[u64], spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let number = |i: usize| f[i].parse::<u32>().unwrap();
    let of = if f[0] == "w" {
        writer_options(number(2), number(3))
    } else {
        reader_options("r", number(2), number(3))
    };
    let (timeout, open_timeout) = (Some(Duration::from_secs(20)), Duration::from_millis(number(8).into()));
    let (policy, on_loss) = (f[6].parse().unwrap(), f[9].parse().unwrap());
    let options = Options { policy, on_loss, timeout, open_timeout, ..of };
    let place = PipeAddress { host: f[4].into(), port: number(5) as u16, name: name.into() };
    let near = Near::at(&place);
    let at = Across { place, trust: trust(f[7] == "true"), near };
    let data = Dataset::new(shape, ElemType::U64).unwrap();
    run(&at, f[0], data, f[1], &options, f[10].parse().unwrap());
}
