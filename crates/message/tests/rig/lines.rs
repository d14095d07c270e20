//! Processes of a test that say lines to it: copies of its own program.

#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Duration;

const SPEC: &str = "POLYDUCT_TEST_UNIT";
/// How long a process may say nothing.
const WATCHDOG: Duration = Duration::from_secs(30);

/// In a copy: what it is to do. `None` in the first process.
pub fn spec() -> Option<String> {
    std::env::var(SPEC).ok()
}

/// A copy says a line. A parent that no longer listens has ended the test.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

/// A copy waits for a line of its parent's, or for its end.
pub fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// A copy, as its parent sees it; ends when dropped.
pub struct Unit {
    pub child: Child,
    lines: Receiver<String>,
    /// What it said last.
    pub last: String,
}

impl Unit {
    /// Starts a copy in this program.
    pub fn start(spec: &str) -> Unit {
        Unit::start_by(Command::new(std::env::current_exe().unwrap()), spec)
    }

    /// Starts a copy by a command of one's own.
    pub fn start_by(mut command: Command, spec: &str) -> Unit {
        command.env(SPEC, spec).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Unit { child, lines, last: String::new() }
    }

    /// Waits for the next line that starts with `what`; false when the process ends first.
    pub fn wait_line(&mut self, what: &str) -> bool {
        while let Ok(line) = self.lines.recv_timeout(WATCHDOG) {
            self.last = line;
            if self.last.starts_with(what) {
                return true;
            }
        }
        false
    }

    /// Waits for the process's end and returns its last line.
    pub fn end(&mut self, what: &str) -> String {
        loop {
            match self.lines.recv_timeout(WATCHDOG) {
                Ok(line) => self.last = line,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{what} hangs after {:?}", self.last),
            }
        }
        self.child.wait().unwrap();
        self.last.clone()
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs those of the tests whose names the command line asks for: the harness of a program that is also its own copies.
pub fn run(tests: &[(&str, &dyn Fn())]) {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, test) in
        tests.iter().filter(|(n, _)| wanted.is_empty() || wanted.iter().any(|w| n.contains(w)))
    {
        test();
        println!("test {name} ... ok");
    }
}
