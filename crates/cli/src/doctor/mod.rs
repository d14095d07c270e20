//! `polyduct doctor`: what this machine offers, the limits and sizes in force, and what earlier runs left
//! behind.

mod leftovers;
mod machine;
mod messages;
mod mpi;
mod units;

use crate::text::{bytes, print, print_json, Colour};
use serde::Serialize;
use std::borrow::Cow;
use std::io;

const AFTER_HELP: &str = "\
Each line is ok, a note, or a thing that is missing; advice follows where something can be done.
Exit status: 0 if everything that polyduct needs is there, 1 if not. Notes do not count.

  polyduct doctor
  polyduct doctor --json | jq '.[] | select(.state != \"ok\")'";

/// Arguments of `polyduct doctor`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// Print a list of findings as JSON.
    #[arg(long)]
    json: bool,
    /// Say what so many units on this machine need, and show the buffers of messages as they are in a domain
    /// of them: rings shrink where memory is short.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    units: u32,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", alias = "colour")]
    color: Colour,
}

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// It works, but slower or with less room than it could; or something is worth knowing.
    Warn,
    /// polyduct does not work without it.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: Cow<'static, str>,
    pub state: State,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn ok(name: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Finding {
        Finding { name: name.into(), state: State::Ok, found: found.into(), advice: None }
    }

    fn warn(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { name: name.into(), state: State::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn missing(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { name: name.into(), state: State::Missing, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Looks at everything; gives the exit status.
pub fn doctor(args: &DoctorArgs) -> u8 {
    let mut findings = machine::examine();
    findings.extend(units::examine(args.units));
    findings.extend(messages::examine(args.units));
    findings.push(mpi::examine());
    findings.extend(leftovers::examine());
    let printed = match args.json {
        true => print_json(&findings),
        false => print(&report(&findings, args.color.on(&io::stdout()))),
    };
    u8::from(!printed || findings.iter().any(|f| f.state == State::Missing))
}

fn report(findings: &[Finding], colour: bool) -> String {
    let width = findings.iter().map(|f| f.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (mark, code) = match finding.state {
            State::Ok => ("ok  ", 32),
            State::Warn => ("warn", 33),
            State::Missing => ("MISS", 31),
        };
        let mark = if colour { format!("\x1b[{code}m{mark}\x1b[0m") } else { mark.to_owned() };
        text += &format!("{mark}  {:width$}  {}\n", finding.name, finding.found);
        if let Some(advice) = &finding.advice {
            text += &format!("      {:width$}  → {advice}\n", "");
        }
    }
    let count = |state| findings.iter().filter(|f| f.state == state).count();
    text += &match (count(State::Missing), count(State::Warn)) {
        (0, 0) => "all is well\n".to_owned(),
        (0, 1) => "polyduct works here; 1 note\n".to_owned(),
        (0, notes) => format!("polyduct works here; {notes} notes\n"),
        (missing, _) => format!("polyduct cannot work here: {missing} missing\n"),
    };
    text
}

/// Bytes, or `no limit`.
fn limit(bytes_or_none: Option<u64>) -> String {
    bytes_or_none.map_or("no limit".into(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_lines_up() {
        let findings = [
            Finding::ok("cpu", "2"),
            Finding::warn("memory", "little", "buy more"),
            Finding::missing("memfd", "no", "another kernel"),
        ];
        let expected = "ok    cpu     2\nwarn  memory  little\n              → buy more\nMISS  memfd   no\n              → another kernel\n\
                        polyduct cannot work here: 1 missing\n";
        assert_eq!(report(&findings, false), expected);
        assert!(report(&findings[..1], true).contains("\x1b[32mok  \x1b[0m"));
    }

    #[test]
    fn what_works_here_is_found_to_work() {
        let findings = machine::examine();
        assert!(findings.iter().all(|f| f.state != State::Missing), "{findings:?}");
        for name in ["processors", "vector code", "caches", "memory", "memfd", "open files", "pidfd"] {
            assert!(findings.iter().any(|f| f.name == name), "{name}");
        }
    }
}
