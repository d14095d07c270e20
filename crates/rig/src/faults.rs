//! Every system call of a program fails once, each in a run of its own: no panic, no hang, no wrong byte.
//!
//! `POLYDUCT_FAULTS=all` fails each of them; without it some 20 of each kind, or as many as the test says,
//! beginning with another one each time.

use crate::inject::{self, InjectedFault, Outcome, Start};
use std::process::Command;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

const CHILD: &str = "POLYDUCT_TEST_FAULTS";
const WELL: &str = "all is well";
/// The longest that a run may take. What ends a wait in the program itself is to be shorter.
const LIMIT: Duration = Duration::from_secs(15);
/// Calls of each kind that fail, about, where a test does not say how many.
pub const SOME: u64 = 20;
/// What ends a wait in the program.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The `main` of such a test. `child` is the program: it gets a case's name, does what there is to do once
/// before it [begins](inject::begin), and gives the errors that its parts came to; what is wrong is a panic.
pub fn main(cases: &[(&'static str, InjectedFault)], child: impl FnOnce(&str) -> Vec<String>) {
    let cases: Vec<_> = cases.iter().map(|&(kind, fault)| (kind, fault, SOME)).collect();
    main_of(&cases, child);
}

/// The same; each case says how many of its calls fail, about, unless all do.
pub fn main_of(cases: &[(&'static str, InjectedFault, u64)], child: impl FnOnce(&str) -> Vec<String>) {
    if let Ok(kind) = std::env::var(CHILD) {
        let errors = child(&kind);
        println!("{}", if errors.is_empty() { WELL.to_owned() } else { errors.join("\n") });
        return;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let chosen = |kind: &str| wanted.is_empty() || wanted.iter().any(|word| kind.contains(&word[..]));
    let chosen: Vec<_> = cases.iter().filter(|(kind, ..)| chosen(kind)).collect();
    println!("\nrunning {} tests", chosen.len());
    for &&(kind, fault, some) in &chosen {
        let command = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env(CHILD, kind);
            command
        };
        let judge = |o: &Outcome| (o.status == Some(0)).then(|| o.output.contains(WELL));
        let (runs, failed) = every_call_fails_once(kind, (Start::Mark, fault, some), &command, &judge);
        println!("test {kind}, {fault:?}: {runs} runs, of which {failed} ended in an error ... ok");
    }
    let (passed, out) = (chosen.len(), cases.len() - chosen.len());
    println!("\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; {out} filtered out\n");
}

/// Whether each call fails, instead of some.
pub fn all() -> bool {
    std::env::var("POLYDUCT_FAULTS").is_ok_and(|v| v == "all")
}

/// Runs a program once for each call that fails, `some` of them about unless [all] do. `judge` says whether a
/// run ended well, or in an error as it should; `None` if neither. Gives the numbers of runs and of errors.
pub fn every_call_fails_once(
    what: &str,
    (from, fault, some): (Start, InjectedFault, u64),
    command: &(dyn Fn() -> Command + Sync),
    judge: &(dyn Fn(&Outcome) -> Option<bool> + Sync),
) -> (u64, u64) {
    let reference = inject::run(&mut command(), from, fault, None, LIMIT);
    assert!(!reference.hung && judge(&reference) == Some(true), "{what}: {reference:?}");
    let stride = if all() { 1 } else { reference.calls.div_ceil(some).max(1) };
    let first = 1 + u64::from(std::process::id()) % stride;
    // Two at a time; which call is the Nth differs from run to run, where threads race.
    let half = |parity: u64| {
        let (mut runs, mut failed, mut bad) = (0, 0, Vec::new());
        for nth in (first..=reference.calls).step_by(stride as usize).filter(|n| n / stride % 2 == parity) {
            let outcome = inject::run(&mut command(), from, fault, Some(nth), LIMIT);
            runs += 1;
            match judge(&outcome).filter(|_| !outcome.hung) {
                Some(well) => failed += u64::from(!well),
                None => bad.push(format!("{what}, {fault:?}, call {nth}: {outcome:?}")),
            }
        }
        (runs, failed, bad)
    };
    let ((runs, failed, mut bad), (more, of_them, too)) = std::thread::scope(|s| {
        let other = s.spawn(|| half(1));
        (half(0), other.join().unwrap())
    });
    bad.extend(too);
    assert!(bad.is_empty(), "{} of {} runs went wrong:\n{}", bad.len(), runs + more, bad.join("\n"));
    (runs + more, failed + of_them)
}

/// Runs units as threads, and gives the errors that they came to.
pub fn units<E: ToString + Send>(count: u32, unit: impl Fn(u32) -> Result<(), E> + Sync) -> Vec<String> {
    std::thread::scope(|s| {
        let unit = &unit;
        // A thread that the system does not give is a unit that never comes.
        let started: Vec<_> = (0..count).map(|u| Builder::new().spawn_scoped(s, move || unit(u))).collect();
        let end = |thread: std::io::Result<ScopedJoinHandle<'_, Result<(), E>>>| match thread {
            Ok(thread) => thread.join().unwrap().err().map(|e| e.to_string()),
            Err(e) => Some(e.to_string()),
        };
        started.into_iter().filter_map(end).collect()
    })
}
