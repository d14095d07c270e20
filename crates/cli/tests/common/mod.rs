//! What the process tests share.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The longest that anything here may take. Nothing waits for it when all is well.
pub const WATCHDOG: Duration = Duration::from_secs(20);

pub fn polyduct(args: &[&str]) -> Command {
    // Signals that this process ignores, as under nohup, the run would leave ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_polyduct")]).args(args).stdin(Stdio::null());
    command
}

pub fn output(args: &[&str]) -> Output {
    watched(polyduct(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Waits for the end of a process; kills it, and fails, after [`WATCHDOG`].
pub fn watched(child: Child) -> Output {
    let pid = child.id();
    let (tell, done) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = tell.send(());
        output
    });
    if done.recv_timeout(WATCHDOG).is_err() {
        kill(pid, "KILL");
        let output = waiter.join().unwrap();
        panic!("still running after {WATCHDOG:?}; stderr: {}", String::from_utf8_lossy(&output.stderr));
    }
    waiter.join().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sends a signal; false if the process has gone already.
pub fn kill(pid: u32, signal: &str) -> bool {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let signal = match signal {
        "KILL" => rustix::process::Signal::KILL,
        "TERM" => rustix::process::Signal::TERM,
        "INT" => rustix::process::Signal::INT,
        "HUP" => rustix::process::Signal::HUP,
        other => panic!("{other}"),
    };
    rustix::process::kill_process(pid, signal).is_ok()
}

/// Standard output of a running process, with a watchdog on each read.
pub struct Lines {
    lines: mpsc::Receiver<String>,
}

impl Lines {
    pub fn new(out: ChildStdout) -> Lines {
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                if send.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        Lines { lines }
    }

    pub fn next(&self) -> String {
        self.lines.recv_timeout(WATCHDOG).expect("no line came")
    }

    pub fn take(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Waits until nobody holds the other end any more.
    pub fn end(self) -> Vec<String> {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(WATCHDOG) {
                Ok(line) => rest.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return rest,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("somebody still holds the pipe"),
            }
        }
    }
}

/// Reads all of `stream`.
pub fn drain(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A directory of this test's own, removed at its end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("cli-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
