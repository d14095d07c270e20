//! Waiting for descriptors, and waking who waits.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::{retry_on_intr, Errno};

use crate::clock;
use crate::error::{OsError, Result};

/// A descriptor to wait for, and after [`poll`] what came.
#[derive(Debug, Clone)]
#[repr(transparent)]
pub struct PollItem<'fd>(PollFd<'fd>);

impl<'fd> PollItem<'fd> {
    /// Waits until it can be read, or hangs up.
    pub fn readable(fd: &'fd impl AsFd) -> Self {
        Self::new(fd.as_fd(), PollFlags::IN)
    }

    /// Waits until it can be written, or hangs up.
    pub fn writable(fd: &'fd impl AsFd) -> Self {
        Self::new(fd.as_fd(), PollFlags::OUT)
    }

    /// Waits until it can be read or written, or hangs up.
    pub fn both(fd: &'fd impl AsFd) -> Self {
        Self::new(fd.as_fd(), PollFlags::IN | PollFlags::OUT)
    }

    /// Waits only until it hangs up.
    pub fn hangup(fd: &'fd impl AsFd) -> Self {
        Self::new(fd.as_fd(), PollFlags::empty())
    }

    fn new(fd: BorrowedFd<'fd>, wanted: PollFlags) -> Self {
        PollItem(PollFd::from_borrowed_fd(fd, wanted | PollFlags::RDHUP))
    }

    /// There is something to read (perhaps beside a hang-up: read first).
    pub fn is_readable(&self) -> bool {
        self.0.revents().contains(PollFlags::IN)
    }

    /// There is room to write.
    pub fn is_writable(&self) -> bool {
        self.0.revents().contains(PollFlags::OUT)
    }

    /// The other end is gone, or the descriptor is of no use.
    pub fn is_hangup(&self) -> bool {
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
        self.0.revents().intersects(gone)
    }

    /// Anything came.
    pub fn is_ready(&self) -> bool {
        !self.0.revents().is_empty()
    }
}

/// Waits until something came for one of `items` or `timeout` is over (`None`: for ever); returns for how
/// many. Signals do not end it.
pub fn poll(items: &mut [PollItem<'_>], timeout: Option<Duration>) -> Result<usize> {
    let count = items.len();
    // SAFETY: `PollItem` is a transparent wrapper of `PollFd`, so the slices have the same layout.
    let fds = unsafe { core::slice::from_raw_parts_mut(items.as_mut_ptr().cast::<PollFd<'_>>(), count) };
    let deadline = timeout.and_then(|t| clock::now().checked_add(t));
    let mut left = timeout;
    loop {
        match rustix::event::poll(fds, clock::timespec(left).as_ref()) {
            Err(Errno::INTR) => left = deadline.map(|d| d.saturating_sub(clock::now())),
            other => return other.map_err(|e| OsError::sys("poll", format!("{count} descriptors"), e)),
        }
    }
}

/// A counter with a descriptor: any thread (or process that holds it) signals, and who polls it wakes.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at zero.
    pub fn new() -> Result<EventFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        rustix::event::eventfd(0, flags).map(EventFd).map_err(|e| OsError::sys("eventfd", "", e))
    }

    /// Makes it readable. Signals that nobody drained yet run together.
    pub fn signal(&self) -> Result<()> {
        // Nothing makes this fail for long, and a signal that is lost would be a wait without end.
        let mut last = Errno::IO;
        for _ in 0..3 {
            match retry_on_intr(|| rustix::io::write(&self.0, &1_u64.to_ne_bytes())) {
                Ok(_) | Err(Errno::AGAIN) => return Ok(()), // full: it is readable, which is all that is wanted
                Err(e) => last = e,
            }
        }
        Err(OsError::sys("write", "an eventfd", last))
    }

    /// Makes it unreadable; returns how many signals had come.
    pub fn drain(&self) -> Result<u64> {
        let mut count = [0; 8];
        match retry_on_intr(|| rustix::io::read(&self.0, &mut count[..])) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(e) => Err(OsError::sys("read", "an eventfd", e)),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
