//! What a run says of its end.

use super::super::names::signal_name;
use super::super::plan::Sink;
use super::super::stats::Mode;
use super::{End, Supervisor, READER_GONE, SIGPIPE};
use std::path::Path;

impl Supervisor<'_> {
    pub(super) fn unopened_message(&self, process: usize, mode: Mode, others: usize) -> String {
        let who = self.plan.describe(process);
        let (pid, stage) = (self.processes[process].pid, self.plan.processes[process].stage);
        let (what, how) = match mode {
            Mode::Read => ("input", "reading"),
            Mode::Write => ("output", "writing"),
        };
        let ended = ended(others, "the other ");
        format!(
            "{who} (pid {pid}) ended without opening its {what}{ended}\n  \
             each unit of stage {stage} must open \"-\" for {how}; a plain Unix program is a stage without -n"
        )
    }

    pub(super) fn unwritten_message(&self) -> String {
        let file = self.plan.file.as_deref().unwrap_or(Path::new("")).display();
        let stage = self.plan.processes.last().map_or(0, |p| p.stage);
        format!(
            "every process succeeded, but stage {stage} did not write {file}\n  \
             each of its units must write the same number of steps and close its port"
        )
    }

    pub(super) fn failure_message(&self, process: usize, end: End, others: usize) -> Option<String> {
        let pid = self.processes[process].pid;
        let what = match end {
            // The reader of the run's own output wanted no more of it: nothing to report, as in the shell.
            End::Signal(SIGPIPE) | End::Exit(READER_GONE)
                if self.plan.processes[process].stdout == Sink::Result =>
            {
                return None;
            }
            End::Exit(code) => format!("exited with status {code}"),
            End::Signal(signal) => format!("was killed by {}", signal_name(signal)),
        };
        let who = self.plan.describe(process);
        Some(format!("{who} (pid {pid}) {what}{}", ended(others, "the other ")))
    }
}

/// What became of the others.
pub(super) fn ended(count: usize, which: &str) -> String {
    match count {
        0 => String::new(),
        1 => format!("; ended {which}1 process"),
        n => format!("; ended {which}{n} processes"),
    }
}
