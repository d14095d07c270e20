//! Units that are cut off for longer than silence is borne, where lost units are replaced: they come back by
//! themselves, in their places, and no step is lost, doubled or torn. Many pipes between two hosts have one
//! cable, which is cut and mended.
//!
//! Where the system allows no namespaces, the test says so, and nothing is cut.

mod common;

use common::net::trust;
use common::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, OnLoss, Options, PipeError, Reader, Refusal, Writer};
use polyduct_port::PortError;
use polyduct_rig::hosts::{next_line, plug_in, tell, two_hosts, Other};
use std::sync::{Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

const NAME: &str = "units_that_are_cut_off_come_back_in_their_places";
const ARGS: [&str; 3] = [NAME, "--exact", "--nocapture"];
const SHAPE: [u64; 2] = [96, 80];
const STEPS: u64 = 60;
/// The unit that is cut off waits before this step until it is.
const PAUSE: u64 = 20;
const WATCHDOG: Duration = Duration::from_secs(60);

/// A pipe of two writer and two reader units, of which unit 1 of one side is cut off.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// `w` or `r`.
    role: &'static str,
    trusted: bool,
    /// How long unit 0 bears silence, and the unit that is cut off, in seconds.
    silences: [u64; 2],
    /// Another unit takes the place of the one that is cut off.
    replaced: bool,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for role in ["r", "w"] {
        for trusted in [true, false] {
            for silences in [[1, 2], [2, 1]] {
                cases.push(Case { role, trusted, silences, replaced: false });
            }
        }
        cases.push(Case { role, trusted: true, silences: [1, 1], replaced: true });
    }
    cases
}

#[test]
fn units_that_are_cut_off_come_back_in_their_places() {
    two_hosts(&ARGS, "cut off", host_a, host_b);
}

fn place(host: &str, case: usize) -> PipeAddress {
    PipeAddress::new(host, 7200 + case as u16, "cut")
}

/// What the threads of host A wait for.
#[derive(Default)]
struct Told {
    /// Pipes that miss a unit.
    missing: usize,
    /// Replacements that are there.
    open: usize,
    /// Units that have heard that they were replaced.
    replaced: usize,
}

struct Board(Mutex<Told>, Condvar);

impl Board {
    fn add(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.0.lock().unwrap());
        self.1.notify_all();
    }

    fn wait(&self, until: impl Fn(&Told) -> bool) {
        let waited = self.1.wait_timeout_while(self.0.lock().unwrap(), WATCHDOG / 2, |t| !until(t));
        assert!(!waited.unwrap().1.timed_out(), "nothing happens");
    }
}

/// All units but those that are cut off.
fn host_a(cable: bool) {
    let mut other = Other::start(&ARGS, cable);
    other.say(other.mine);
    let (board, cases) = (Board(Mutex::default(), Condvar::new()), cases());
    let replaced: Vec<usize> = (0..cases.len()).filter(|&n| cases[n].replaced && cable).collect();
    std::thread::scope(|s| {
        let start = |n: usize, role: &'static str, unit: u32, new: bool| {
            let (at, case, board, all) = (place(other.mine, n), cases[n], &board, replaced.len());
            s.spawn(move || {
                let looks = |look: Look| match look {
                    Look::Missing if (role, unit) == ("w", 0) => board.add(|told| told.missing += 1),
                    Look::Open if new => board.add(|told| told.open += 1),
                    // Nobody tells who comes after the end.
                    Look::Last if case.replaced && cable => board.wait(|told| told.replaced == all),
                    _ => {}
                };
                let steps = run(&at, case, role, unit, case.silences[0], looks);
                let steps = steps.unwrap_or_else(|e| panic!("{case:?}: {role} {unit}: {e}"));
                assert!(new || steps == (0..STEPS).collect::<Vec<_>>(), "{case:?}: {role} {unit}: {steps:?}");
                assert!(!new || steps.last() == Some(&(STEPS - 1)), "{case:?}: {role} {unit}: {steps:?}");
            });
        };
        for (n, case) in cases.iter().enumerate() {
            for (role, unit) in [("w", 0), ("w", 1), ("r", 0), ("r", 1)] {
                if (role, unit) != (case.role, 1) {
                    start(n, role, unit, false);
                }
            }
        }
        cases.iter().for_each(|_| drop(other.hear("paused")));
        if cable {
            other.cut();
        }
        other.say("go");
        if cable {
            cases.iter().for_each(|_| drop(other.hear("cut")));
            board.wait(|told| told.missing == cases.len());
            replaced.iter().for_each(|&n| start(n, cases[n].role, 1, true));
            board.wait(|told| told.open == replaced.len());
            other.mend();
        }
        for _ in &cases {
            let end = other.hear("end ");
            let (n, end) = end.split_once(' ').unwrap();
            let n: usize = n.parse().unwrap();
            let expected = if replaced.contains(&n) { "replaced" } else { "all" };
            assert_eq!(end, expected, "{:?}", cases[n]);
            board.add(|told| told.replaced += usize::from(replaced.contains(&n)));
        }
        println!("cut off: {} units, cable {cable}", cases.len());
    });
}

/// What a unit says of itself.
enum Look {
    Open,
    /// It is about to begin the step before which a unit that is cut off waits.
    Pause,
    /// It is about to begin the last step.
    Last,
    /// It waits, and says that a unit is lost.
    Missing,
    /// It waits, and says that it does not reach unit 0.
    Cut,
}

/// Writes or reads all steps, and looks at what it waits for; gives the steps.
fn run(
    at: &PipeAddress,
    case: Case,
    role: &str,
    unit: u32,
    silence: u64,
    looks: impl Fn(Look),
) -> Result<Vec<u64>, PipeError> {
    let of = if role == "w" { writer_options(unit, 2) } else { reader_options("r", unit, 2) };
    let on_loss = if role == case.role { OnLoss::Wait } else { OnLoss::Raise };
    let timeout = Some(Duration::from_millis(100));
    let options = Options { on_loss, timeout, silence: Duration::from_secs(silence), ..of };
    let trust = trust(case.trusted);
    let mut seen = [false; 2];
    // Every wait is a short one, and is begun again.
    let start = Instant::now();
    let mut again = |error: PipeError| {
        let PipeError::Port(PortError::Timeout { what, .. }) = &error else { return Err(error) };
        if start.elapsed() > WATCHDOG {
            return Err(error);
        }
        let said = [(what.contains("is lost"), Look::Missing), (what.contains("be reached"), Look::Cut)];
        for ((says, look), seen) in said.into_iter().zip(&mut seen) {
            if says && !std::mem::replace(seen, true) {
                looks(look);
            }
        }
        Ok(())
    };
    let mut steps = Vec::new();
    if role == "w" {
        let given = Given::Dataset(Dataset::new(&SHAPE, ElemType::U64).unwrap());
        let mut w = Writer::open((at, &trust), &given, "block,*", &options)?;
        looks(Look::Open);
        let indices = local_indices(w.mapping(), unit.into());
        while w.next_step() < STEPS {
            let n = w.next_step();
            match n {
                PAUSE => looks(Look::Pause),
                _ if n + 1 == STEPS => looks(Look::Last),
                _ => {}
            }
            match w.step() {
                Ok(mut slot) => {
                    fill(&mut slot, &indices, n);
                    slot.publish()?;
                    steps.push(n);
                }
                Err(error) => again(error)?,
            }
        }
        loop {
            match w.close() {
                Ok(_) => return Ok(steps),
                Err(error) => again(error)?,
            }
        }
    }
    let mut r = Reader::open((at, &trust), "*,block", &Expect::default(), &options)?;
    looks(Look::Open);
    let indices = local_indices(r.mapping(), unit.into());
    let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
    loop {
        if steps.last() == Some(&(PAUSE - 1)) {
            looks(Look::Pause);
        }
        match r.read(&mut part) {
            Ok(None) => break,
            Ok(Some(step)) => {
                fill(&mut expected, &indices, step);
                assert!(part == expected, "{case:?}: step {step} is torn");
                assert!(steps.last().is_none_or(|last| last + 1 == step), "{case:?}: {step} after {steps:?}");
                steps.push(step);
            }
            Err(error) => again(error)?,
        }
    }
    r.close()?;
    Ok(steps)
}

/// The units that are cut off.
fn host_b() {
    plug_in();
    let (host, cases) = (next_line(), cases());
    let go = Barrier::new(cases.len() + 1);
    std::thread::scope(|s| {
        for (n, &case) in cases.iter().enumerate() {
            let (at, go) = (place(&host, n), &go);
            s.spawn(move || {
                let paused = std::cell::Cell::new(false);
                let looks = |look: Look| match look {
                    Look::Pause if !paused.replace(true) => {
                        tell("paused");
                        go.wait();
                    }
                    Look::Cut => tell("cut"),
                    _ => {}
                };
                let end = match run(&at, case, case.role, 1, case.silences[1], looks) {
                    Ok(steps) if steps == (0..STEPS).collect::<Vec<_>>() => "all".to_owned(),
                    Ok(steps) => format!("{steps:?}"),
                    Err(PipeError::Refused { reason: Refusal::Replaced { .. }, .. }) => "replaced".into(),
                    Err(error) => error.to_string(),
                };
                tell(&format!("end {n} {end}"));
            });
        }
        assert_eq!(next_line(), "go");
        go.wait();
    });
}
