//! Units in processes of their own that write or read until they are killed or told.

use super::at::{step_with, At};
use super::net::{trust, Across, Near};
use super::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Options, PipeError, Refusal};
use polyduct_port::{Array, Changes, PortError, Rule};
use polyduct_rig::kills::{error_of, say_error};
use polyduct_rig::{say, Unit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Layouts for both sides.
pub const LAYOUTS: [&str; 4] = ["block,*", "*,block", "cyclic,*", "block,*;order=F"];

/// What a unit's layout begins with where the pipe carries a bundle: the array in that layout, one with an open
/// dimension, and values.
pub const BUNDLE: &str = "bundle:";
/// The most rows that a writer unit brings of the open array, each of two elements.
const ROWS: u64 = 7;

/// How many it does.
fn rows(unit: u64, step: u64) -> u64 {
    (unit * 3 + step) % (ROWS + 1)
}

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
    let done = match (role, layout.strip_prefix(BUNDLE)) {
        ("w", Some(layout)) => write_bundle(at, data, layout, options, steps),
        (_, Some(layout)) => read_bundle(at, layout, options, steps),
        ("w", None) => write(at, data, layout, options, steps),
        (_, None) => read(at, layout, options, steps),
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

fn write_bundle<A: At>(
    at: &A,
    data: Dataset,
    layout: &str,
    options: &Options,
    steps: u64,
) -> Result<(), PipeError> {
    let open = Dataset::new(&[ROWS, 2], ElemType::U64).unwrap();
    let array = |name: &str, dataset, layout: &str, open| Array {
        name: name.into(),
        dataset,
        layout: layout.into(),
        open,
    };
    let arrays = vec![array("rows", open, "", Some(Changes::Dim(0))), array("u", data, layout, None)];
    let mut w = at.writer(&Given::Bundle(arrays), "", options)?;
    let (unit, indices) =
        (u64::from(options.unit), local_indices(&w.arrays()[1].mapping, options.unit.into()));
    say("open");
    while w.next_step() < steps {
        let n = w.next_step();
        if n == steps / 2 {
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        let mut slot = w.step()?;
        slot.bring(0, &[rows(unit, n), 2])?;
        slot.set_values(&n.to_le_bytes())?;
        let [open, u] = [0, 1].map(|array| slot.arrays()[array].at.clone());
        fill(&mut slot[u], &indices, n);
        for (row, bytes) in slot[open].chunks_exact_mut(16).enumerate() {
            bytes[..8].copy_from_slice(&(n * 1000 + unit).to_le_bytes());
            bytes[8..].copy_from_slice(&(row as u64).to_le_bytes());
        }
        slot.publish()?;
        say("step");
    }
    w.close().map(drop)
}

fn read_bundle<A: At>(at: &A, layout: &str, options: &Options, steps: u64) -> Result<(), PipeError> {
    let rule = |pattern: &str, layout: &str| Rule {
        pattern: pattern.into(),
        layout: layout.into(),
        ..Rule::default()
    };
    let mut r = at.reader_of(&[rule("u", layout), rule("rows", "...")], options)?;
    let indices = local_indices(&r.arrays()[1].mapping, options.unit.into());
    let mut expected = vec![0; r.arrays()[1].at.len()];
    say("open");
    let mut last = None;
    while last.is_none_or(|l| l + 1 < steps) {
        let Some(next) = r.peek()? else { break };
        let mut part = vec![0; r.local_len_bytes()];
        let step = r.read(&mut part)?;
        assert_eq!(step, Some(next));
        fill(&mut expected, &indices, next);
        let [open, u] = [0, 1].map(|array| part[r.arrays()[array].at.clone()].to_vec());
        assert!(u == expected, "step {next} is torn");
        assert_eq!(r.values(), next.to_le_bytes(), "values of step {next}");
        let mut units = Vec::<(u64, u64)>::new();
        for row in open.chunks_exact(16) {
            let [unit, row] = [0, 8].map(|at| u64::from_le_bytes(row[at..at + 8].try_into().unwrap()));
            let unit = unit.checked_sub(next * 1000).expect("rows of this step");
            match units.last_mut().filter(|(before, _)| *before == unit) {
                Some((_, rows)) => *rows += 1,
                None => units.push((unit, 1)),
            }
            assert_eq!(units.last(), Some(&(unit, row + 1)), "step {next} is out of order");
        }
        assert!(units.is_sorted() && units.iter().all(|&(unit, n)| n == rows(unit, next)), "{units:?}");
        assert!(last < Some(next), "step {next} after {last:?}");
        last = Some(next);
        say(&format!("step {next}"));
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
    let place = PipeAddress::new(f[4], number(5) as u16, name);
    let near = Near::at(&place);
    let at = Across { place, trust: trust(f[7] == "true"), near };
    let data = Dataset::new(shape, ElemType::U64).unwrap();
    run(&at, f[0], data, f[1], &options, f[10].parse().unwrap());
}
