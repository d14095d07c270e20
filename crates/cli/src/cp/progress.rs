//! Shows how far a copy has come, where somebody looks at the terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::Builder;
use std::time::Duration;

const OF_KNOWN: &str =
    "{msg}  {wide_bar}  {bytes} of {total_bytes} ({percent} %)  {bytes_per_sec}  {elapsed}, {eta} to go";
const OF_UNKNOWN: &str = "{spinner} {msg}  {bytes}  {bytes_per_sec}  {elapsed}";

/// Bytes that have moved, and how many will have in the end, as far as that is known.
#[derive(Default)]
pub struct Moved {
    bytes: AtomicU64,
    total: AtomicU64,
}

impl Moved {
    /// Counts bytes that are where they shall be.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Says how many there will be.
    pub fn expect(&self, total: u64) {
        self.total.store(total, Relaxed);
    }

    /// How many there are.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Shows them while `work` goes on.
    pub fn shown<T>(&self, quiet: bool, words: &str, work: impl FnOnce() -> T) -> T {
        if quiet {
            return work();
        }
        // indicatif draws on standard error, and only on a terminal.
        let bar = ProgressBar::new_spinner().with_message(words.to_owned());
        bar.set_style(style(OF_UNKNOWN));
        std::thread::scope(|scope| {
            let (done, finished) = std::sync::mpsc::channel::<()>();
            let bar = &bar;
            let show = move || {
                while finished.recv_timeout(Duration::from_millis(100))
                    == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    self.draw(bar);
                }
                bar.finish_and_clear();
            };
            // Where the system gives no thread nobody is shown anything.
            let _ = Builder::new().spawn_scoped(scope, show);
            let result = work();
            drop(done);
            result
        })
    }

    fn draw(&self, bar: &ProgressBar) {
        let total = self.total.load(Relaxed);
        if total > 0 && bar.length() != Some(total) {
            bar.set_length(total);
            bar.set_style(style(OF_KNOWN));
        }
        bar.set_position(self.bytes());
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_understood_and_a_total_makes_a_bar() {
        for template in [OF_KNOWN, OF_UNKNOWN] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
        let (moved, bar) = (Moved::default(), ProgressBar::hidden());
        moved.add(5);
        moved.draw(&bar);
        assert_eq!((bar.length(), bar.position()), (None, 5));
        moved.expect(20);
        moved.add(5);
        moved.draw(&bar);
        assert_eq!((bar.length(), bar.position()), (Some(20), 10));
    }
}
