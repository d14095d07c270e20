//! Reading and writing another process's memory.
//!
//! The kernel copies, so that a wrong address is an error and never a fault. It needs the same user and,
//! where Yama is set to `ptrace_scope = 1`, that the owner has [`permit_readers`] or is a descendant.

use core::sync::atomic::AtomicU8;
use core::time::Duration;

use rustix::io::Errno;

use crate::error::{OsError, Result};
use crate::process::PidFd;

/// The kernel's limit on pieces in one call.
const IOV_MAX: usize = 1024;

/// Reads the memory of one process, and writes it.
#[derive(Debug)]
pub struct RemoteReader {
    process: PidFd,
}

impl RemoteReader {
    /// For the process that has this number now.
    pub fn new(pid: u32) -> Result<RemoteReader> {
        PidFd::open(pid).map(RemoteReader::of)
    }

    /// For the process of this descriptor, as from [`crate::socket::Conn::peer_pidfd`].
    pub fn of(process: PidFd) -> RemoteReader {
        RemoteReader { process }
    }

    /// The process.
    pub fn process(&self) -> &PidFd {
        &self.process
    }

    /// Fills `dst` from one place.
    pub fn read(&self, dst: &mut [u8], addr: u64) -> Result<()> {
        let len = dst.len();
        self.read_runs(dst, [(0, addr, len)]).map(|_| ())
    }

    /// Stores `src` at one place of the process's memory, where that can be written.
    ///
    /// # Errors
    /// [`OsError::RemoteDenied`], [`OsError::PeerGone`], [`OsError::BadAddress`]; the first part of `src` may
    /// have been stored then.
    pub fn write(&self, src: &[u8], addr: u64) -> Result<()> {
        let pid = self.numbered()?;
        let start = usize::try_from(addr).ok().filter(|a| a.checked_add(src.len()).is_some());
        let start = start.ok_or(OsError::BadAddress { pid, addr })?;
        let mut done = 0;
        while done < src.len() {
            let piece = |base: usize| libc::iovec {
                iov_base: (base + done) as *mut libc::c_void,
                iov_len: src.len() - done,
            };
            let (local, remote) = (piece(src.as_ptr() as usize), piece(start));
            // SAFETY: the local piece lies in `src`, which the kernel only reads; the remote address is its
            // to check.
            let n = unsafe { libc::process_vm_writev(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
            let addr = addr + done as u64;
            match usize::try_from(n) {
                Ok(0) => return Err(OsError::BadAddress { pid, addr }),
                Ok(n) => done += n,
                Err(_) => match last_errno() {
                    Errno::INTR => {}
                    Errno::PERM | Errno::ACCESS => return Err(OsError::RemoteDenied { pid }),
                    Errno::SRCH => return Err(OsError::PeerGone { pid }),
                    Errno::FAULT => return Err(OsError::BadAddress { pid, addr }),
                    e => return Err(OsError::sys("process_vm_writev", format!("process {pid}"), e)),
                },
            }
        }
        match self.process.exited_within(Duration::ZERO)? {
            false => Ok(()),
            true => Err(OsError::PeerGone { pid }),
        }
    }

    /// Copies runs `(offset in dst, address there, bytes)` in order; returns the bytes copied, which are all
    /// of them. Runs that go on where the last one ended cost nothing extra.
    ///
    /// # Errors
    /// [`OsError::OutOfRange`] for a run beyond `dst`, [`OsError::RemoteDenied`], [`OsError::PeerGone`],
    /// [`OsError::BadAddress`]. What `dst` holds then is unspecified.
    pub fn read_runs<I>(&self, dst: &mut [u8], runs: I) -> Result<u64>
    where
        I: IntoIterator<Item = (usize, u64, usize)>,
    {
        // SAFETY: AtomicU8 has the size and alignment of u8, and the exclusive borrow outlives the shared
        // one.
        let dst = unsafe { core::slice::from_raw_parts(dst.as_mut_ptr().cast::<AtomicU8>(), dst.len()) };
        self.read_runs_shared(dst, runs)
    }

    /// [`read_runs`](Self::read_runs) into memory that several threads fill at once, each its own bytes.
    pub fn read_runs_shared<I>(&self, dst: &[AtomicU8], runs: I) -> Result<u64>
    where
        I: IntoIterator<Item = (usize, u64, usize)>,
    {
        let mut batch = Batch { local: Vec::with_capacity(IOV_MAX), remote: Vec::with_capacity(IOV_MAX) };
        let pid = self.process.pid();
        let mut total = 0_u64;
        for (offset, addr, len) in runs {
            let end = offset.saturating_add(len);
            let Some(room) = dst.get(offset..end) else {
                let what = "the destination of a remote read".into();
                return Err(OsError::OutOfRange { what, start: offset, end, len: dst.len() });
            };
            let fits = usize::try_from(addr).ok().filter(|a| a.checked_add(len).is_some());
            let addr = fits.ok_or(OsError::BadAddress { pid, addr })?;
            if len == 0 {
                continue;
            }
            if batch.local.len() == IOV_MAX || batch.remote.len() == IOV_MAX {
                self.flush(&mut batch)?;
            }
            append(&mut batch.local, room.as_ptr() as usize, len);
            append(&mut batch.remote, addr, len);
            total += len as u64;
        }
        self.flush(&mut batch)?;
        // Only a process that still lives has kept its number all the while, so that the bytes are its own.
        match self.process.exited_within(Duration::ZERO)? {
            false => Ok(total),
            true => Err(OsError::PeerGone { pid }),
        }
    }

    /// The process's number, which the kernel asks for. One of another process namespace has none here.
    fn numbered(&self) -> Result<u32> {
        match self.process.pid() {
            0 => Err(OsError::RemoteDenied { pid: 0 }),
            pid => Ok(pid),
        }
    }

    fn flush(&self, batch: &mut Batch) -> Result<()> {
        let pid = self.numbered()?;
        let (mut local, mut remote) = (&mut batch.local[..], &mut batch.remote[..]);
        while !local.is_empty() {
            // SAFETY: every local piece lies in the caller's `dst` of atomics, which may be written (checked
            // in `read_runs_shared`); the counts are at most IOV_MAX; remote addresses are the kernel's to
            // check.
            let n = unsafe {
                libc::process_vm_readv(
                    pid as libc::pid_t,
                    local.as_ptr(),
                    local.len() as libc::c_ulong,
                    remote.as_ptr(),
                    remote.len() as libc::c_ulong,
                    0,
                )
            };
            let addr = remote.first().map_or(0, |r| r.iov_base as u64);
            match usize::try_from(n) {
                Ok(0) => return Err(OsError::BadAddress { pid, addr }),
                Ok(n) => {
                    local = advance(local, n);
                    remote = advance(remote, n);
                }
                Err(_) => match last_errno() {
                    Errno::INTR => {}
                    Errno::PERM | Errno::ACCESS => return Err(OsError::RemoteDenied { pid }),
                    Errno::SRCH => return Err(OsError::PeerGone { pid }),
                    Errno::FAULT => return Err(OsError::BadAddress { pid, addr }),
                    e => return Err(OsError::sys("process_vm_readv", format!("process {pid}"), e)),
                },
            }
        }
        batch.local.clear();
        batch.remote.clear();
        Ok(())
    }
}

/// The two lists hold the same bytes in the same order, cut independently.
struct Batch {
    local: Vec<libc::iovec>,
    remote: Vec<libc::iovec>,
}

fn append(list: &mut Vec<libc::iovec>, base: usize, len: usize) {
    match list.last_mut() {
        Some(last) if last.iov_base as usize + last.iov_len == base => last.iov_len += len,
        _ => list.push(libc::iovec { iov_base: base as *mut libc::c_void, iov_len: len }),
    }
}

/// Drops the first `n` bytes of a list.
fn advance(list: &mut [libc::iovec], mut n: usize) -> &mut [libc::iovec] {
    let mut at = 0;
    while let Some(piece) = list.get_mut(at) {
        if n < piece.iov_len {
            piece.iov_base = (piece.iov_base as usize + n) as *mut libc::c_void;
            piece.iov_len -= n;
            break;
        }
        n -= piece.iov_len;
        at += 1;
    }
    &mut list[at..]
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Lets every process of the same user read this one's memory, where Yama would otherwise forbid it.
pub fn permit_readers() -> Result<()> {
    match rustix::process::set_ptracer(rustix::process::PTracer::Any) {
        Ok(()) | Err(Errno::INVAL) => Ok(()), // no Yama, nothing to permit
        Err(e) => Err(OsError::sys("prctl", "PR_SET_PTRACER", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pieces: &[(usize, usize)]) -> Vec<libc::iovec> {
        let mut list = Vec::new();
        pieces.iter().for_each(|&(base, len)| append(&mut list, base, len));
        list
    }

    fn bytes(list: &[libc::iovec]) -> Vec<usize> {
        list.iter().flat_map(|v| (v.iov_base as usize..).take(v.iov_len)).collect()
    }

    #[test]
    fn after_a_short_count_the_rest_goes_on_at_the_very_next_byte() {
        let pieces = [(100, 3), (103, 2), (200, 1), (50, 7), (300, 4)];
        let whole = bytes(&list(&pieces));
        assert_eq!((list(&pieces).len(), whole.len()), (4, 17));
        for n in 0..=whole.len() {
            assert_eq!(bytes(advance(&mut list(&pieces), n)), whole[n..], "{n}");
        }
    }
}
