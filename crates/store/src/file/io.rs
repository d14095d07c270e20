//! Bytes to and from a file: every transfer whole, in pieces of bounded size, with room reserved before it.

use super::Options;
use crate::FileError;
use polyduct_os::{clock, Errno};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Bytes of one call; between calls the caller may stop the transfer.
const PIECE: usize = 32 << 20;

/// An open file, as errors name it, and who may interrupt what is done to it.
#[derive(Clone, Copy)]
pub struct Io<'a> {
    pub file: &'a File,
    pub path: &'a str,
    pub options: &'a Options,
}

impl Io<'_> {
    /// Fills `buffer` from offset `at` on.
    ///
    /// # Errors
    /// [`FileError::Truncated`] where the file ends before that.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), FileError> {
        let end = at + buffer.len() as u64;
        let mut offset = at;
        for (i, piece) in buffer.chunks_mut(PIECE).enumerate() {
            if i > 0 {
                self.options.check_interrupt(self.path)?;
            }
            let mut rest = piece;
            while !rest.is_empty() {
                match self.file.read_at(rest, offset) {
                    Ok(0) => {
                        return Err(FileError::Truncated {
                            path: self.path.to_owned(),
                            expected: end,
                            found: offset,
                        })
                    }
                    Ok(n) => {
                        rest = &mut rest[n..];
                        offset += n as u64;
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(FileError::io(self.path, "read", &e)),
                }
            }
        }
        Ok(())
    }

    /// Writes `bytes` at offset `at`. The one place through which data go to a file.
    ///
    /// # Errors
    /// [`FileError::NoSpace`], [`FileError::System`].
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<(), FileError> {
        let mut offset = at;
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            if i > 0 {
                self.options.check_interrupt(self.path)?;
            }
            let mut rest = piece;
            while !rest.is_empty() {
                match self.file.write_at(rest, offset) {
                    Ok(0) => return Err(FileError::sys(self.path, "write", Errno::IO)),
                    Ok(n) => {
                        rest = &rest[n..];
                        offset += n as u64;
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(self.refused("write", Errno::from_io_error(&e), rest.len() as u64)),
                }
            }
        }
        Ok(())
    }

    /// Makes sure that `len` bytes from `at` can be written. Where the file system cannot reserve, nothing is
    /// done and a full disk shows when writing.
    ///
    /// # Errors
    /// [`FileError::NoSpace`], before the disk is filled in vain.
    pub fn reserve(&self, at: u64, len: u64) -> Result<(), FileError> {
        if len == 0 {
            return Ok(());
        }
        // Some systems fill the disk before they refuse: look first. What this file has is not free any more.
        let held = rustix::fs::fstat(self.file).map_or(0, |s| u64::try_from(s.st_blocks).unwrap_or(0) * 512);
        let needed = at.saturating_add(len).saturating_sub(held);
        if let Some(available) = self.available().filter(|&n| n < needed) {
            return Err(FileError::NoSpace { path: self.path.to_owned(), needed, available });
        }
        match retry_on_intr(|| rustix::fs::fallocate(self.file, FallocateFlags::empty(), at, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(e) => Err(self.refused("reserve space", Some(e), needed)),
        }
    }

    /// Makes the file at least so long.
    pub fn extend(&self, len: u64) -> Result<(), FileError> {
        let fail = |op: &'static str| move |e: std::io::Error| FileError::io(self.path, op, &e);
        if self.file.metadata().map_err(fail("stat"))?.len() < len {
            self.file.set_len(len).map_err(fail("extend"))?;
        }
        Ok(())
    }

    /// Waits until no other unit reads or writes the file, until the turn is dropped. A unit that dies gives
    /// up its turn.
    ///
    /// # Errors
    /// [`PortError::Timeout`](polyduct_port::PortError),
    /// [`PortError::Interrupted`](polyduct_port::PortError).
    pub fn turn(&self, waited: &mut Duration) -> Result<FileLock<'_>, FileError> {
        let start = clock::now();
        let mut pause = Duration::from_micros(50);
        loop {
            match rustix::fs::flock(self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(FileError::sys(self.path, "lock", e)),
            }
            let left =
                self.options.patience(self.path, start, self.options.port.timeout, "a turn to write")?;
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        *waited += clock::now().saturating_sub(start);
        Ok(FileLock(self.file))
    }

    fn available(&self) -> Option<u64> {
        let s = rustix::fs::fstatvfs(self.file).ok()?;
        // Some virtual file systems say zero for everything.
        (s.f_blocks > 0).then(|| s.f_bavail.saturating_mul(s.f_frsize))
    }

    fn refused(&self, op: &str, errno: Option<Errno>, needed: u64) -> FileError {
        match errno {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                let available = self.available().unwrap_or(0);
                FileError::NoSpace { path: self.path.to_owned(), needed, available }
            }
            e => FileError::sys(self.path, op, e.unwrap_or(Errno::IO)),
        }
    }
}

/// The right to read and write the file alone.
pub struct FileLock<'a>(&'a File);

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}
