//! System calls of `polyduct run` itself fail, each once, each in a run of its own; what it starts goes on
//! untouched. See [`polyduct_rig::faults`].

mod common;
use common::*;
use polyduct_rig::faults::{all, every_call_fails_once, SOME};
use polyduct_rig::inject::{InjectedFault, Outcome, Start};
use std::process::Command;

const POLYDUCT: &str = env!("CARGO_BIN_EXE_polyduct");
/// Its first byte is nowhere else in what a run writes: once means that the text came once.
const TEXT: &str = "#=0123456789";
/// What an error of the run begins with.
const OURS: &str = "polyduct: ";

/// A pipeline's text comes whole, or an error says why not; that all its processes have gone is known by the
/// end of their output, which the outcome waits for.
fn faults(name: &str, pipeline: impl Fn(&Scratch) -> String, args: &[&str]) {
    let dir = Scratch::new(name);
    let raw = dir.write("a.raw", TEXT);
    let made = output(&["cp", "-q", &raw, &dir.path("a.npy"), "--shape", "12", "--dtype", "u1"]);
    assert!(made.status.success());
    let pipeline = pipeline(&dir);
    let command = || {
        let mut command = Command::new(POLYDUCT);
        command.arg("run").args(args).arg(&pipeline);
        command
    };
    let judge = |o: &Outcome| match o.status {
        _ if o.output.contains("panicked") => None,
        Some(0) => (o.output.matches(&TEXT[..1]).count() == 1 && o.output.contains(TEXT)).then_some(true),
        // 101 would be a panic.
        Some(1..=100 | 126..) => o.output.contains(OURS).then_some(false),
        _ => None,
    };
    for fault in [InjectedFault::Error, InjectedFault::Interrupted, InjectedFault::Short] {
        let (runs, failed) = every_call_fails_once(name, (Start::Main, fault, SOME), &command, &judge);
        println!("{name}, {fault:?}: {runs} runs, of which {failed} ended in an error");
        assert!(runs > 0, "{name}: nothing could fail");
        assert!(fault != InjectedFault::Error || !all() || failed > 0, "{name}: no failing call was noticed");
    }
}

#[test]
fn calls_fail_while_units_give_to_a_plain_program() {
    let program = |dir: &Scratch| {
        let script = format!("{POLYDUCT} pump-in $POLYDUCT_OUT < {}", dir.path("a.npy"));
        format!("-n 2 sh {} | cat", dir.write("writer", script))
    };
    faults("run-faults-out", program, &[]);
}

#[test]
fn calls_fail_while_units_take_from_a_plain_program_and_their_output_is_led_through() {
    let program = |dir: &Scratch| {
        let reader = dir.write("reader", format!("{POLYDUCT} pump-out $POLYDUCT_IN; echo"));
        format!("cat {} | -n 2 sh {reader}", dir.path("a.npy"))
    };
    faults("run-faults-in", program, &["--prefix", "--stats"]);
}
