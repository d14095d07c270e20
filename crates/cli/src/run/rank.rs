//! One rank of a stage that MPI's launcher starts, a hidden subcommand of this same binary.
//!
//! The launcher starts this instead of the program, and this starts the program: as the unit that MPI says,
//! and under the eyes of the run, which the launcher would only tell that something failed. It ends as the
//! program did, so that the launcher does what it always does.

use super::plan::OWN_VARIABLES;
use super::stats::{RankNotice, RankState};
use super::verdict::End;
use clap::Args;
use polyduct::JobUnit;
use rustix::process::{set_parent_process_death_signal, setrlimit, Resource, Rlimit, Signal};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::{atomic::AtomicBool, Arc};

/// Arguments of `polyduct rank`.
#[derive(Args)]
pub struct RankArgs {
    /// How many ranks there are to be.
    #[arg(long)]
    units: u32,
    #[arg(last = true, required = true)]
    command: Vec<std::ffi::OsString>,
}

/// Runs the program; gives its exit status, if it had one.
pub fn rank(args: &RankArgs) -> u8 {
    match begin(args) {
        Ok(status) => end_as(status),
        Err(why) => {
            crate::text::say!("polyduct: {why}");
            1
        }
    }
}

fn begin(args: &RankArgs) -> Result<ExitStatus, String> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    // A launcher that dies leaves nobody behind.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| format!("cannot watch MPI: {e}"))?;
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2] {
        // Launchers signal the group of a rank, and so the program. How that ends is still to be told.
        let noted = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
        noted.map_err(|e| format!("cannot watch for signals: {e}"))?;
    }
    let place = unit(args.units, |name| std::env::var(name).ok())?;
    let own = || -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("launch").args(["--parent", &std::process::id().to_string(), "--"]);
        Ok(command)
    };
    let mut command = own().map_err(|e| format!("cannot find the command: {e}"))?;
    command.args(&args.command);
    command.env("POLYDUCT_UNIT", place.unit.to_string()).env("POLYDUCT_UNITS", place.units.to_string());
    let mut child = command.spawn().map_err(|e| format!("cannot start the program: {e}"))?;
    tell(&place, RankState::Started(child.id()));
    let status = child.wait().map_err(|e| format!("cannot wait for the program: {e}"))?;
    tell(&place, RankState::Ended(end_of(status)));
    Ok(status)
}

/// Which unit this is, as MPI's launcher has it.
fn unit(units: u32, get: impl Fn(&str) -> Option<String>) -> Result<JobUnit, String> {
    let program = get("POLYDUCT_PROGRAM");
    let by_launcher = |name: &str| get(name).filter(|_| !OWN_VARIABLES.contains(&name));
    let place = polyduct::place(None, None, program.as_deref(), by_launcher).map_err(|e| e.to_string())?;
    match place.units == units {
        true => Ok(place),
        false => Err(format!(
            "this is rank {} of {} by MPI's launcher; expected one of {units} ranks, as -n says",
            place.unit, place.units
        )),
    }
}

/// Tells the run, which may have ended.
fn tell(place: &JobUnit, state: RankState) {
    let JobUnit { unit, program, .. } = place;
    let notice = RankNotice { program: program.clone(), unit: *unit, rank: state };
    let Some(path) = std::env::var_os("POLYDUCT_REPORT") else { return };
    let Ok(line) = serde_json::to_string(&notice) else { return };
    let pipe = std::fs::OpenOptions::new().write(true).open(path);
    let _ = pipe.and_then(|mut pipe| pipe.write_all((line + "\n").as_bytes()));
}

fn end_of(status: ExitStatus) -> End {
    match status.code() {
        Some(code) => End::Exit(code),
        None => End::Signal(status.signal().unwrap_or(0)),
    }
}

/// Gives the exit status, or dies of the signal.
fn end_as(status: ExitStatus) -> u8 {
    let code = |code: i32| u8::try_from(code).unwrap_or(u8::MAX);
    let Some(signal) = status.signal() else { return code(status.code().unwrap_or(1)) };
    // The program's own core is enough.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    if signal_hook::low_level::emulate_default_handler(signal).is_err() {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
        }
    }
    code(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_the_unit_that_mpi_says() {
        let with = |vars: &'static [(&str, &str)]| {
            move |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string())
        };
        let open: &[_] =
            &[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3"), ("POLYDUCT_PROGRAM", "p")];
        let found = unit(3, with(open)).unwrap();
        assert_eq!(found, JobUnit { unit: 2, units: 3, program: "p".into() });
        // Those of a run around this one say nothing.
        let hydra: &[_] =
            &[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("POLYDUCT_UNIT", "0"), ("POLYDUCT_UNITS", "9")];
        assert_eq!(unit(2, with(hydra)).map(|place| place.unit), Ok(1));
        assert_eq!(unit(1, with(&[])).map(|place| place.units), Ok(1));
        for (units, vars) in [(4, open), (2, &[] as &[_])] {
            assert!(unit(units, with(vars)).is_err_and(|why| why.contains("expected one of")));
        }
    }
}
