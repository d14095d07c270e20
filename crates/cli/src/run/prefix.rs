//! Puts `[stage.unit] ` before each line that the processes print, and keeps lines whole.

use super::plan::{Plan, Role};
use super::start::Output;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::pipe::{pipe_with, PipeFlags};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{channel, Receiver};
use std::thread::Builder;
use std::time::Duration;

/// A line longer than this is cut: memory per stream stays below it.
const MAX_LINE: usize = 64 << 10;
/// How long the output may take to drain when all processes have ended.
const DRAIN: Duration = Duration::from_secs(2);

/// The thread that prints. The run's supervision never waits for a slow terminal.
pub struct Printer {
    /// Closing it tells the thread that no more will come.
    stop: OwnedFd,
    /// What came of it: why standard output took no more, unless nobody was to read it.
    done: Receiver<Option<io::Error>>,
}

impl Printer {
    /// Begins to print `outputs`.
    pub fn start(plan: &Plan, outputs: Vec<Output>, colour: bool) -> io::Result<Printer> {
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let (tell, done) = channel();
        let streams = outputs
            .into_iter()
            .map(|output| {
                let process = &plan.processes[output.process];
                let who = match process.role {
                    // What its ranks print comes through it.
                    Role::Launcher => format!("[{}] ", process.stage),
                    _ => format!("[{}.{}] ", process.stage, process.unit),
                };
                Stream::new(output, &who, process.stage, colour)
            })
            .collect();
        Builder::new().spawn(move || {
            let unwritten = print(streams, &stopped);
            // Nobody may wait any more.
            let _ = tell.send(unwritten);
        })?;
        Ok(Printer { stop, done })
    }

    /// Waits until everything is printed; not for ever, if whoever reads our output does not read. Gives the
    /// error for which standard output took no more; that nobody reads it any more is none.
    pub fn finish(self) -> Option<io::Error> {
        drop(self.stop);
        self.done.recv_timeout(DRAIN).ok().flatten()
    }
}

struct Stream {
    output: Output,
    lines: Lines,
    /// Ours takes no more of it. It is read all the same: the program is not to blame.
    is_lost: bool,
}

impl Stream {
    fn new(output: Output, prefix: &str, stage: usize, colour: bool) -> Stream {
        let prefix = match colour {
            true => format!("\x1b[{}m{prefix}\x1b[0m", [36, 33, 35, 32, 34, 31][stage % 6]),
            false => prefix.to_owned(),
        };
        Stream { output, lines: Lines { prefix: prefix.into_bytes(), rest: Vec::new() }, is_lost: false }
    }

    /// Prints what has come. False at the end of the stream.
    fn forward(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        let len = match rustix::io::read(&self.output.fd, &mut *chunk) {
            Ok(len) => len,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(_) => 0,
        };
        let text = match len {
            0 => self.lines.end(),
            len => self.lines.push(&chunk[..len]),
        };
        self.write(&text)?;
        Ok(len > 0)
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        match self.output.is_stderr {
            _ if self.is_lost => Ok(()),
            true => io::stderr().write_all(text),
            false => io::stdout().write_all(text).and_then(|()| io::stdout().flush()),
        }
    }
}

/// Cuts a stream into prefixed lines.
struct Lines {
    prefix: Vec<u8>,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl Lines {
    /// Takes `bytes` in, gives the lines that are whole now.
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes.len() + 64);
        for part in bytes.split_inclusive(|&b| b == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.emit(&mut text);
            } else if self.rest.len() >= MAX_LINE {
                self.rest.push(b'\n');
                self.emit(&mut text);
            }
        }
        text
    }

    /// Gives the last line if it had no end.
    fn end(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
            self.emit(&mut text);
        }
        text
    }

    fn emit(&mut self, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.prefix);
        text.append(&mut self.rest);
    }
}

/// Prints until all streams have ended; the first error of standard output, unless nobody reads it.
fn print(mut streams: Vec<Stream>, stopped: &OwnedFd) -> Option<io::Error> {
    let mut unwritten = None;
    // Nobody reads ours any more: the program gets the signal that it would get without us.
    let mut goes_on_after = |stream: &mut Stream, error: io::Error| {
        stream.is_lost = error.kind() != io::ErrorKind::BrokenPipe;
        if stream.is_lost && !stream.output.is_stderr {
            unwritten.get_or_insert(error);
        }
        stream.is_lost
    };
    let mut chunk = vec![0; 64 << 10];
    let mut stopping = false;
    while !streams.is_empty() {
        let mut fds: Vec<PollFd> = streams.iter().map(|s| PollFd::new(&s.output.fd, PollFlags::IN)).collect();
        if !stopping {
            fds.push(PollFd::new(stopped, PollFlags::IN));
        }
        // Once told to stop, take what is there and do not wait: a program that left the run may still hold
        // the other end.
        let timeout = stopping.then_some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) if stopping => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        stopping |= ready.get(streams.len()).copied().unwrap_or(false);
        let mut ready = ready.into_iter();
        streams.retain_mut(|s| match ready.next() {
            Some(true) => s.forward(&mut chunk).unwrap_or_else(|e| goes_on_after(s, e)),
            _ => true,
        });
    }
    for stream in &mut streams {
        let text = stream.lines.end();
        if let Err(e) = stream.write(&text) {
            goes_on_after(stream, e);
        }
    }
    unwritten
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(prefix: &str) -> Lines {
        Lines { prefix: prefix.into(), rest: Vec::new() }
    }

    #[test]
    fn lines_stay_whole_whatever_the_pieces() {
        let text = b"one\n\ntwo words\nlast";
        for size in 1..text.len() {
            let mut l = lines("[0.1] ");
            let mut out: Vec<u8> = text.chunks(size).flat_map(|c| l.push(c)).collect();
            assert!(!out.ends_with(b"last"));
            out.extend(l.end());
            assert_eq!(out, b"[0.1] one\n[0.1] \n[0.1] two words\n[0.1] last\n", "{size}");
        }
    }

    #[test]
    fn endless_lines_are_cut() {
        let mut l = lines("> ");
        let out: Vec<u8> = (0..5).flat_map(|_| l.push(&[b'x'; MAX_LINE / 2])).collect();
        assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 2);
        assert!(l.rest.len() < MAX_LINE);
    }
}
