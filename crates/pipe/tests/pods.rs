//! Units of one pipe in process namespaces of their own, as in the containers of a pod: each has number 1
//! there, and yet every step comes whole, and a death is named and noticed at once.

mod common;

use common::{reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::{Expect, Given, OnLoss, Options, PipeError, Policy, Reader, Readers, Writer};
use polyduct_port::PortError;
use polyduct_rig::kills::say_error;
use polyduct_rig::{pods, say, tests, Unit};

/// Parts that readers would fetch from the writer's memory, if they could tell whose it is.
const LEN: u64 = 16 << 20;
const STEPS: u64 = 8;

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            every_step_comes_whole,
            a_death_is_noticed_wherever_it_is,
            a_death_after_unit_0_has_closed_is_noticed,
            a_lost_unit_0_is_replaced,
            a_writer_waits_for_no_reader_of_those_that_come_and_go,
        ],
    );
}

/// One process: `role unit units pipe on_loss steps`. A writer of role `any` has readers that come and go.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let (unit, units) = (f[1].parse().unwrap(), f[2].parse().unwrap());
    let on_loss = f[4].parse::<OnLoss>().unwrap();
    let steps = f[5].parse().unwrap();
    let done = match f[0] {
        "w" => write(f[3], &Options { on_loss, ..writer_options(unit, units) }, steps),
        "any" => {
            let (readers, policy, depth) = (Readers::Any, Policy::Latest, 3);
            write(f[3], &Options { readers, policy, depth, ..writer_options(unit, units) }, steps)
        }
        role => read(f[3], &Options { on_loss, ..reader_options(role, unit, units) }, steps),
    };
    match done {
        Ok(()) => say("end"),
        Err(PipeError::Port(PortError::PeerLost { peer, .. })) => say_error(&format!("lost {peer}")),
        Err(other) => say_error(&format!("other {other}")),
    }
}

fn wait() {
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn write(pipe: &str, options: &Options, steps: u64) -> Result<(), PipeError> {
    let data = Dataset::new(&[LEN], ElemType::U8).unwrap();
    let mut w = Writer::open(pipe, &Given::Dataset(data), "block", options)?;
    let mut part = vec![0; w.local_len_bytes()];
    say("open");
    while w.next_step() < steps {
        if w.next_step() == STEPS / 2 {
            say("half");
            wait();
        }
        part.fill(w.next_step() as u8 + 1);
        w.write(&part)?;
    }
    say("written");
    w.close().map(drop)
}

/// Waits after the last but one of so many steps.
fn read(pipe: &str, options: &Options, steps: u64) -> Result<(), PipeError> {
    let mut r = Reader::open(pipe, "block", &Expect::default(), options)?;
    let mut part = vec![0; r.local_len_bytes()];
    say("open");
    while let Some(step) = r.read(&mut part)? {
        assert!(part.iter().all(|&b| b == step as u8 + 1), "step {step} is torn");
        say(&format!("step {step}"));
        if step + 2 >= steps {
            // The last one has room without this unit.
            say("last");
            wait();
        }
    }
    r.close().map(drop)
}

struct Case {
    pipe: String,
    on_loss: &'static str,
    /// Which units have no /proc of their own namespace.
    blind: fn(usize) -> bool,
}

impl Case {
    /// Two writers and two readers, all in namespaces of their own but the last reader.
    fn start(&self) -> Vec<Unit> {
        [("w", 0), ("w", 1), ("r", 0), ("r", 1)].iter().enumerate().map(|(i, u)| self.unit(i, *u)).collect()
    }

    fn unit(&self, i: usize, (role, unit): (&str, u32)) -> Unit {
        self.unit_of(i, (role, unit, 2), STEPS)
    }

    fn unit_of(&self, i: usize, (role, unit, units): (&str, u32, u32), steps: u64) -> Unit {
        let spec = format!("{role} {unit} {units} {} {} {steps}", self.pipe, self.on_loss);
        let name = format!("{} unit {unit}", if role == "r" { "reader" } else { "writer" });
        match pods::alone(!(self.blind)(i)) {
            Ok(command) if i < 3 => Unit::start_by(command, name, &spec),
            Err(why) => {
                eprintln!("NO PROCESS NAMESPACES HERE ({why}): processes of this one instead");
                Unit::start(name, &spec)
            }
            _ => Unit::start(name, &spec),
        }
    }
}

fn case(name: &str, on_loss: &'static str, blind: fn(usize) -> bool) -> Case {
    Case { pipe: unique(name), on_loss, blind }
}

fn every_step_comes_whole() {
    for blind in [(|_| false) as fn(usize) -> bool, |i| i % 2 == 0] {
        let mut units = case("whole", "raise", blind).start();
        units.iter_mut().for_each(Unit::let_go);
        for unit in &mut units {
            assert_eq!(unit.end(), "end", "{}", unit.name);
        }
    }
}

fn a_death_is_noticed_wherever_it_is() {
    for victim in 0..4 {
        let mut units = case("death", "raise", |i| i == 1).start();
        for unit in &mut units[..2] {
            assert!(unit.wait_line("half"), "{} says {:?}", unit.name, unit.last());
        }
        for unit in &mut units[2..] {
            assert!(unit.wait_line("step"), "{} says {:?}", unit.name, unit.last());
        }
        let mut lost = units.remove(victim);
        lost.kill();
        for unit in &mut units {
            unit.let_go();
            let last = unit.end();
            assert!(last.ends_with(&format!("lost {}", lost.name)), "{} says {last:?}", unit.name);
        }
    }
}

fn a_death_after_unit_0_has_closed_is_noticed() {
    let mut units = case("late", "raise", |_| false).start();
    units[1].let_go();
    units[0].let_go();
    for unit in &mut units[2..] {
        assert!(unit.wait_line("last"), "{} says {:?}", unit.name, unit.last());
    }
    for unit in &mut units[..2] {
        assert!(unit.wait_line("written"));
    }
    assert_eq!(units[1].end(), "end");
    // Unit 0 stays until all have read the last step; one that dies instead is not waited for.
    units.remove(2).kill();
    assert_eq!(units[0].end(), "end");
    units[2].let_go();
    let last = units[2].end();
    assert!(last == "end" || last.ends_with("lost reader unit 0"), "{last}");
}

fn a_lost_unit_0_is_replaced() {
    let case = case("again", "wait", |i| i == 2);
    let mut units = case.start();
    for unit in &mut units[..2] {
        assert!(unit.wait_line("half"), "{} says {:?}", unit.name, unit.last());
    }
    units[0].kill();
    drop(units.remove(0));
    units.insert(0, case.unit(0, ("w", 0)));
    units.iter_mut().for_each(Unit::let_go);
    for unit in &mut units {
        assert_eq!(unit.end(), "end", "{}", unit.name);
    }
}

fn a_writer_waits_for_no_reader_of_those_that_come_and_go() {
    let case = case("any", "raise", |_| false);
    let (mut writer, mut reader) = (case.unit_of(0, ("any", 0, 1), STEPS), case.unit_of(1, ("r", 0, 1), 0));
    assert!(writer.wait_line("half"), "{}", writer.last());
    // It waits after the first step.
    assert!(reader.wait_line("last"), "{}", reader.last());
    writer.let_go();
    assert_eq!(writer.end(), "end");
    reader.let_go();
    assert_eq!(reader.end(), "end");
}
