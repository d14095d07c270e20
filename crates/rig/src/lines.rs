//! Reads the output of another process line by line.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc;
use std::time::Duration;

/// The longest that anybody waits for a line. Nothing waits for so long when all is well.
pub const WATCHDOG: Duration = Duration::from_secs(30);

/// The lines of a process's output, with a watchdog on each.
pub struct Lines(mpsc::Receiver<String>);

/// No line came, and no end, while the watchdog was awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hangs;

impl Lines {
    /// Follows `out` from here on.
    pub fn new(out: impl Read + Send + 'static) -> Lines {
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Lines(lines)
    }

    /// The next line; `None` when nobody holds the other end any more.
    pub fn next(&self) -> Result<Option<String>, Hangs> {
        match self.0.recv_timeout(WATCHDOG) {
            Ok(line) => Ok(Some(line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(Hangs),
        }
    }

    /// The next so many lines.
    pub fn take(&self, count: usize) -> Vec<String> {
        let line = || self.next().expect("no line came").expect("the output ends");
        std::iter::repeat_with(line).take(count).collect()
    }

    /// Waits until nobody holds the other end any more; the lines until then.
    pub fn end(self) -> Vec<String> {
        std::iter::from_fn(|| self.next().expect("somebody still holds the pipe")).collect()
    }
}
