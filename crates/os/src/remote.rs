//! Reading and writing another process's memory.
//!
//! The kernel copies, so that a wrong address is an error and never a fault. It needs the same user and,
//! where Yama is set to `ptrace_scope = 1`, that the owner has [`permit_readers`] or is a descendant.

use core::sync::atomic::AtomicU8;
use core::time::Duration;
use std::cell::Cell;

use rustix::io::Errno;

use crate::error::{OsError, Result};
use crate::process::PidFd;

/// The kernel's limit on pieces in one call.
const IOV_MAX: usize = 1024;

/// A piece of a process's memory, as the system takes it in lists.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its address.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
}

impl Piece {
    /// Drops the first `n` bytes of a list of pieces.
    pub fn advance(list: &mut [Piece], mut n: usize) -> &mut [Piece] {
        let mut at = 0;
        while let Some(piece) = list.get_mut(at) {
            if n < piece.len {
                piece.at += n;
                piece.len -= n;
                break;
            }
            n -= piece.len;
            at += 1;
        }
        &mut list[at..]
    }
}

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
    ///
    /// # Errors
    /// [`OsError::RemoteDenied`], [`OsError::PeerGone`], [`OsError::BadAddress`]; what `dst` holds then is
    /// unspecified.
    pub fn read(&self, dst: &mut [u8], addr: u64) -> Result<()> {
        let there = self.place(addr, dst.len())?;
        if !is_slow(dst.as_ptr() as usize, there, dst.len()) {
            self.copy(Way::In, dst.as_mut_ptr(), dst.len(), there)?;
        } else {
            beside(there, |beside| {
                let mut done = 0;
                for piece in dst.chunks_mut(BESIDE) {
                    self.copy(Way::In, beside.as_mut_ptr(), piece.len(), there + done)?;
                    copy_in_bits(piece, beside);
                    done += piece.len();
                }
                Ok(())
            })?;
        }
        self.lived()
    }

    /// Stores `src` at one place of the process's memory, where that can be written.
    ///
    /// # Errors
    /// [`OsError::RemoteDenied`], [`OsError::PeerGone`], [`OsError::BadAddress`]; the first part of `src` may
    /// have been stored then.
    pub fn write(&self, src: &[u8], addr: u64) -> Result<()> {
        let there = self.place(addr, src.len())?;
        // What is stored in another process that has its number is not taken back.
        self.lived()?;
        if !is_slow(there, src.as_ptr() as usize, src.len()) {
            self.copy(Way::Out, src.as_ptr().cast_mut(), src.len(), there)?;
        } else {
            beside(there, |beside| {
                let mut done = 0;
                for piece in src.chunks(BESIDE) {
                    copy_in_bits(beside, piece);
                    self.copy(Way::Out, beside.as_mut_ptr(), piece.len(), there + done)?;
                    done += piece.len();
                }
                Ok(())
            })?;
        }
        self.lived()
    }

    /// An address there, where so many bytes can lie.
    fn place(&self, addr: u64, len: usize) -> Result<usize> {
        let place = usize::try_from(addr).ok().filter(|at| at.checked_add(len).is_some());
        place.ok_or(OsError::BadAddress { pid: self.process.pid(), addr })
    }

    /// Copies from pieces there, one behind the other, into pieces here; as much of both lists as one call of the
    /// system takes. Returns the bytes, which are some.
    ///
    /// # Safety
    /// The pieces here may be written, and nobody else uses them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub unsafe fn gather(&self, here: &[Piece], there: &[Piece]) -> Result<usize> {
        let pid = self.numbered()?;
        // SAFETY: the caller's.
        match unsafe { transfer(Way::In, pid, here, there) }? {
            0 => Err(OsError::BadAddress { pid, addr: there.first().map_or(0, |piece| piece.at as u64) }),
            n => self.lived().map(|()| n),
        }
    }

    /// Copies from there into `here`, or from `here`, which is only read then.
    fn copy(&self, way: Way, here: *mut u8, len: usize, there: usize) -> Result<()> {
        let pid = self.numbered()?;
        let mut done = 0;
        while done < len {
            let piece = |base: usize| Piece { at: base + done, len: len - done };
            let (local, remote) = ([piece(here as usize)], [piece(there)]);
            // SAFETY: the local piece lies in the caller's slice, which may be written for `Way::In`.
            match unsafe { transfer(way, pid, &local, &remote) }? {
                0 => return Err(OsError::BadAddress { pid, addr: (there + done) as u64 }),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Only a process that still lives has kept its number all the while, so that the bytes are its own.
    fn lived(&self) -> Result<()> {
        match self.process.exited_within(Duration::ZERO)? {
            false => Ok(()),
            true => Err(OsError::PeerGone { pid: self.process.pid() }),
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
        let mut total = 0_u64;
        for (offset, addr, len) in runs {
            let end = offset.saturating_add(len);
            let Some(room) = dst.get(offset..end) else {
                let what = "the destination of a remote read".into();
                return Err(OsError::OutOfRange { what, start: offset, end, len: dst.len() });
            };
            let addr = self.place(addr, len)?;
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
        self.lived().map(|()| total)
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
            // in `read_runs_shared`).
            match unsafe { transfer(Way::In, pid, local, remote) }? {
                0 => {
                    let addr = remote.first().map_or(0, |r| r.at as u64);
                    return Err(OsError::BadAddress { pid, addr });
                }
                n => {
                    local = Piece::advance(local, n);
                    remote = Piece::advance(remote, n);
                }
            }
        }
        batch.local.clear();
        batch.remote.clear();
        Ok(())
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Copies between pieces here and pieces there; returns how many bytes, or an error where it was none.
///
/// # Safety
/// The local pieces may be read, and for [`Way::In`] written. Remote addresses are the kernel's to check.
unsafe fn transfer(way: Way, pid: u32, local: &[Piece], remote: &[Piece]) -> Result<usize> {
    let (call, op): (unsafe extern "C" fn(_, _, _, _, _, _) -> _, _) = match way {
        Way::In => (libc::process_vm_readv, "process_vm_readv"),
        Way::Out => (libc::process_vm_writev, "process_vm_writev"),
    };
    let (many, most) = (local.len().min(IOV_MAX), remote.len().min(IOV_MAX));
    loop {
        // SAFETY: the caller's; both lists are as long as is said, and of the system's form.
        let n = unsafe {
            call(
                pid as libc::pid_t,
                local.as_ptr().cast::<libc::iovec>(),
                many as libc::c_ulong,
                remote.as_ptr().cast::<libc::iovec>(),
                most as libc::c_ulong,
                0,
            )
        };
        let Ok(n) = usize::try_from(n) else {
            let addr = remote.first().map_or(0, |r| r.at as u64);
            return Err(match last_errno() {
                Errno::INTR => continue,
                Errno::PERM | Errno::ACCESS => OsError::RemoteDenied { pid },
                Errno::SRCH => OsError::PeerGone { pid },
                Errno::FAULT => OsError::BadAddress { pid, addr },
                e => OsError::sys(op, format!("process {pid}"), e),
            });
        };
        return Ok(n);
    }
}

/// Whether the kernel's copy would be slow: on some processors its string instruction takes four to six times
/// as long where the destination lies a few bytes after the source within their pages, as memory from `malloc`
/// often does (measured on an AMD EPYC: 1 to 31 bytes; the limit leaves room for others).
fn is_slow(to: usize, from: usize, len: usize) -> bool {
    len >= PAGE && (1..64).contains(&(to.wrapping_sub(from) % PAGE))
}

const PAGE: usize = 4096;
/// Bytes that go through memory beside at once: they stay in a core's own cache, and are so many that the
/// calls of the system do not count.
const BESIDE: usize = 128 << 10;
/// The most that is copied at once by vectors, and not by that instruction, in `memcpy`.
const BIT: usize = 2048;

/// Copies what both slices have room for.
fn copy_in_bits(to: &mut [u8], from: &[u8]) {
    let bits = to.chunks_mut(BIT).zip(from.chunks(BIT));
    bits.for_each(|(to, from)| {
        let n = to.len().min(from.len());
        to[..n].copy_from_slice(&from[..n]);
    });
}

thread_local! {
    static MEMORY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// [`BESIDE`] bytes that lie in their page as `place` does, through which a copy goes that would be
/// [slow](is_slow).
fn beside(place: usize, copy: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
    // A thread that is about to end has none that it keeps.
    let mut memory = MEMORY.try_with(Cell::take).unwrap_or_default();
    memory.resize(BESIDE + PAGE, 0);
    let start = place.wrapping_sub(memory.as_ptr() as usize) % PAGE;
    let copied = copy(&mut memory[start..start + BESIDE]);
    let _ = MEMORY.try_with(|kept| kept.set(memory));
    copied
}

/// The two lists hold the same bytes in the same order, cut independently.
struct Batch {
    local: Vec<Piece>,
    remote: Vec<Piece>,
}

fn append(list: &mut Vec<Piece>, at: usize, len: usize) {
    match list.last_mut() {
        Some(last) if last.at + last.len == at => last.len += len,
        _ => list.push(Piece { at, len }),
    }
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

    fn list(pieces: &[(usize, usize)]) -> Vec<Piece> {
        let mut list = Vec::new();
        pieces.iter().for_each(|&(base, len)| append(&mut list, base, len));
        list
    }

    fn bytes(list: &[Piece]) -> Vec<usize> {
        list.iter().flat_map(|v| (v.at..).take(v.len)).collect()
    }

    #[test]
    fn after_a_short_count_the_rest_goes_on_at_the_very_next_byte() {
        let pieces = [(100, 3), (103, 2), (200, 1), (50, 7), (300, 4)];
        let whole = bytes(&list(&pieces));
        assert_eq!((list(&pieces).len(), whole.len()), (4, 17));
        for n in 0..=whole.len() {
            assert_eq!(bytes(Piece::advance(&mut list(&pieces), n)), whole[n..], "{n}");
        }
    }
}
