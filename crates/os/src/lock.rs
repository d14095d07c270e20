//! Locks on single bytes of a file, held by an open file and gone with it: also when its process is killed.
//!
//! They are open file description locks: two that this process opened exclude each other like those of two
//! processes, and closing another descriptor of the file releases nothing. The bytes need not be there.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::error::{OsError, Result};

/// How a byte is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// With others who share it.
    Shared,
    /// Alone. The file must be open for writing.
    Alone,
    /// Not any more.
    Not,
}

/// Holds a byte of a file, or lets it go; returns whether it could, at once.
///
/// # Errors
/// [`OsError::System`] where the file system has no locks; [`OsError::OutOfRange`] for a byte that no file
/// has.
pub fn hold(file: impl AsFd, byte: u64, how: Hold) -> Result<bool> {
    let kind = match how {
        Hold::Shared => libc::F_RDLCK,
        Hold::Alone => libc::F_WRLCK,
        Hold::Not => libc::F_UNLCK,
    };
    match fcntl(&file, libc::F_OFD_SETLK, &mut range(byte, kind)?) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::AGAIN) => Ok(false),
        Err(e) => Err(OsError::sys("fcntl", "a lock", e)),
    }
}

/// Whether anybody else holds a byte, in whatever way.
///
/// # Errors
/// As [`hold`].
pub fn is_held(file: impl AsFd, byte: u64) -> Result<bool> {
    let mut found = range(byte, libc::F_WRLCK)?;
    fcntl(&file, libc::F_OFD_GETLK, &mut found).map_err(|e| OsError::sys("fcntl", "a lock", e))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

fn range(byte: u64, kind: i32) -> Result<libc::flock> {
    let start = i64::try_from(byte).ok().filter(|&byte| byte < i64::MAX);
    let out = || OsError::OutOfRange {
        what: "a file".into(),
        start: byte as usize,
        end: (byte as usize).saturating_add(1),
        len: i64::MAX as usize,
    };
    let (l_start, l_type, l_whence) = (start.ok_or_else(out)?, kind as i16, libc::SEEK_SET as i16);
    Ok(libc::flock { l_type, l_whence, l_start, l_len: 1, l_pid: 0 })
}

fn fcntl(file: &impl AsFd, command: i32, lock: &mut libc::flock) -> std::result::Result<(), Errno> {
    loop {
        // SAFETY: both commands read, and one writes, the structure that they are given, which lives as long
        // as the call.
        match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, lock as *mut libc::flock) } {
            -1 => match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
                Errno::INTR => {}
                e => return Err(e),
            },
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_held_by_one_alone_or_by_many_that_share() {
        let path = std::env::temp_dir().join(format!("polyduct-os-lock-{}", std::process::id()));
        let open =
            || std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let [a, b, c] = [open().unwrap(), open().unwrap(), open().unwrap()];
        std::fs::remove_file(&path).unwrap();
        let far = 1 << 60;
        assert!(hold(&a, 7, Hold::Shared).unwrap() && hold(&b, 7, Hold::Shared).unwrap());
        assert!(!hold(&c, 7, Hold::Alone).unwrap());
        assert!(is_held(&c, 7).unwrap() && !is_held(&c, 8).unwrap());
        assert!(hold(&c, 8, Hold::Alone).unwrap() && hold(&c, far, Hold::Alone).unwrap());
        assert!(!hold(&a, far, Hold::Shared).unwrap());
        drop(c);
        assert!(hold(&a, far, Hold::Shared).unwrap());
        assert!(hold(&a, 7, Hold::Not).unwrap() && hold(&b, 7, Hold::Alone).unwrap());
        assert!(matches!(hold(&a, u64::MAX, Hold::Shared), Err(OsError::OutOfRange { .. })));
    }
}
