//! Waiting for many sockets at once (epoll).

use super::socket::sys;
use core::time::Duration;
use polyduct_os::{Errno, OsError};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Readable,
    Writable,
    Both,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Readable => EventFlags::IN | EventFlags::RDHUP,
            Interest::Writable => EventFlags::OUT,
            Interest::Both => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
        }
    }
}

/// A set of sockets, each with a number of the caller's. A socket that is closed leaves it by itself.
#[derive(Debug)]
pub(crate) struct Events(OwnedFd);

impl Events {
    pub fn new() -> Result<Events, OsError> {
        epoll::create(CreateFlags::CLOEXEC).map(Events).map_err(|e| sys("epoll_create", "", e))
    }

    pub fn add(&self, fd: impl AsFd, number: u64, interest: Interest) -> Result<(), OsError> {
        epoll::add(&self.0, fd, EventData::new_u64(number), interest.flags())
            .map_err(|e| sys("epoll_ctl", "add", e))
    }

    pub fn change(&self, fd: impl AsFd, number: u64, interest: Interest) -> Result<(), OsError> {
        epoll::modify(&self.0, fd, EventData::new_u64(number), interest.flags())
            .map_err(|e| sys("epoll_ctl", "modify", e))
    }

    pub fn remove(&self, fd: impl AsFd) -> Result<(), OsError> {
        epoll::delete(&self.0, fd).map_err(|e| sys("epoll_ctl", "delete", e))
    }

    /// Waits until something came or `timeout` is over (`None`: for ever); puts the numbers of what is ready
    /// into `ready`.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) -> Result<(), OsError> {
        ready.clear();
        let timeout = timeout.and_then(|t| rustix::time::Timespec::try_from(t).ok());
        let mut events: [core::mem::MaybeUninit<epoll::Event>; 64] = [core::mem::MaybeUninit::uninit(); 64];
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok((came, _)) => ready.extend(came.iter().map(|e| e.data.u64())),
            Err(Errno::INTR) => {}
            Err(e) => return Err(sys("epoll_wait", "", e)),
        }
        Ok(())
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
