//! The disk begins with a file while the rest of it is written, so that closing it does not wait for all.

use polyduct_os::Errno;
use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;

/// Bytes that are written before the disk is given them.
const EACH: u64 = 64 << 20;

/// Bytes of a file that the disk has not been given.
#[derive(Default)]
pub struct Ahead {
    bytes: u64,
    /// Gives it what there was when it began.
    runs: Option<JoinHandle<()>>,
}

impl Ahead {
    /// So many bytes more have been written. Does not wait, and nothing is lost where the disk fails: that is told when
    /// the file is closed.
    pub fn wrote(&mut self, file: &File, bytes: u64) {
        self.bytes += bytes;
        if self.bytes < EACH || self.runs.as_ref().is_some_and(|runs| !runs.is_finished()) {
            return;
        }
        self.bytes = 0;
        // A failure is told once to each who has opened the file: this one opens it for itself.
        let Ok(file) = reopen(file) else { return };
        let thread = std::thread::Builder::new().name("polyduct-ahead".into());
        self.runs = thread.spawn(move || drop(file.sync_data())).ok();
    }
}

/// Opens a file again, named or not.
fn reopen(file: &File) -> Result<File, Errno> {
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(CWD, &by_number, flags, Mode::empty())).map(File::from)
}
