//! What the system can be told of a file's bytes, beyond the standard library.

use std::os::fd::{AsFd, AsRawFd};

/// Has the system start writing some bytes of a file to the disk, and does not wait. A sync that follows has less to wait for;
/// those of several files wait for their disks at once.
///
/// A hint: what the system or the file system does not do, the sync does.
///
/// ```
/// use polyduct_os::file::start_writing;
/// # let path = std::env::temp_dir().join(format!("polyduct-file-doc-{}", std::process::id()));
/// use std::{fs::File, os::unix::fs::FileExt};
///
/// let log = File::create(&path)?;
/// log.write_all_at(b"what happened", 0)?;
/// start_writing(&log, 0, 13);
/// // Something else, and then:
/// log.sync_data()?;
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn start_writing(file: impl AsFd, at: u64, len: u64) {
    let (Ok(at), Ok(len)) = (i64::try_from(at), i64::try_from(len)) else { return };
    // SAFETY: the call takes no memory, and the descriptor is open as long as `file` is borrowed.
    unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), at, len, libc::SYNC_FILE_RANGE_WRITE) };
}
