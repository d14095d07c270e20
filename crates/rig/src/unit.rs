//! A unit in a process of its own: a copy of the test's program that speaks in lines and can be killed.

use crate::lines::Lines;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

const SPEC: &str = "POLYDUCT_TEST_UNIT";

/// What this process is to do, if it is a unit.
pub(crate) fn spec() -> Option<String> {
    std::env::var(SPEC).ok()
}

/// A line from a unit to the test. A test that no longer listens has ended.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

/// A process that is one unit; killed when dropped. Its standard input stays open for as long as this lives,
/// or until it is [let go](Unit::let_go).
pub struct Unit {
    /// What tests call it.
    pub name: String,
    child: Child,
    /// Not the child's: waiting for that would close it, and a unit in a process namespace, which dies a moment
    /// after the command that is killed, would go on with what it waits for in that moment.
    stdin: Option<ChildStdin>,
    lines: Lines,
    seen: Vec<String>,
}

impl Unit {
    /// Starts a copy of this program, whose [`main`](crate::main) runs the unit with `spec`.
    pub fn start(name: impl Into<String>, spec: &str) -> Unit {
        Unit::start_by(Command::new(std::env::current_exe().unwrap()), name, spec)
    }

    /// The same by a command that runs this program, somewhere else or in another environment.
    pub fn start_by(mut command: Command, name: impl Into<String>, spec: &str) -> Unit {
        let command = command.env(SPEC, spec).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Lines::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        Unit { name: name.into(), child, stdin, lines, seen: Vec::new() }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far, as far as anybody has waited for it.
    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    /// The last of that.
    pub fn last(&self) -> &str {
        self.seen.last().map_or("", String::as_str)
    }

    /// Tells it a line; returns the next that it says, which is not kept. `None` when the process ends first.
    pub fn ask(&mut self, line: &str) -> Option<String> {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.lines.next().unwrap_or_else(|_| panic!("{} does not answer {line:?}", self.name))
    }

    /// Ends its standard input, for which it may be waiting.
    pub fn let_go(&mut self) {
        self.stdin = None;
    }

    /// Waits for the next line whose first word is `what`; false when the process ends first.
    pub fn wait_line(&mut self, what: &str) -> bool {
        while self.hear() {
            if self.last().split(' ').next() == Some(what) {
                return true;
            }
        }
        false
    }

    /// Waits for the process's end and returns its last line.
    pub fn end(&mut self) -> String {
        while self.hear() {}
        self.child.wait().unwrap();
        self.last().to_owned()
    }

    fn hear(&mut self) -> bool {
        match self.lines.next() {
            Ok(line) => {
                let more = line.is_some();
                self.seen.extend(line);
                more
            }
            Err(_) => panic!("{} hangs after {:?}", self.name, self.seen.last()),
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills all at once, and waits until they are gone.
pub fn kill_all(units: &mut [Unit]) {
    units.iter_mut().for_each(Unit::kill);
    units.iter_mut().for_each(|u| drop(u.child.wait()));
}
