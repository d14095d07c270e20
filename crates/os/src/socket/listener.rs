//! The end that waits for peers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net;

use super::{address, socket, Conn, FLAGS};
use crate::clock;
use crate::error::{OsError, Result};
use crate::fork;
use crate::limits;

const BACKLOG: i32 = 4096; // the kernel cuts it to net.core.somaxconn

/// How long a name that is taken may be that of a listener which is being closed, and pauses between
/// attempts.
const CLOSING: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(2);

/// A name where peers connect.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    name: String,
    /// Given up for a moment when there is no other descriptor, so that a peer can be turned away and does
    /// not wait on.
    spare: Mutex<Option<OwnedFd>>,
}

impl Listener {
    /// Listens at `name`, 1 to 107 bytes. A listener that this process has closed may keep its name for a
    /// moment: a child of the process, forked for another program, has it until that one begins.
    ///
    /// # Errors
    /// [`OsError::AddrInUse`] where somebody already does, after 200 ms.
    pub fn bind(name: &[u8]) -> Result<Listener> {
        let (addr, shown) = address(name)?;
        let fail = |op, e| match e {
            Errno::ADDRINUSE => OsError::AddrInUse { name: shown.clone() },
            e => OsError::sys(op, format!("listener {shown:?}"), e),
        };
        let fd = socket().map_err(|e| fail("socket", e))?;
        let start = clock::now();
        while let Err(e) = net::bind(&fd, &addr) {
            if e != Errno::ADDRINUSE || clock::now().saturating_sub(start) >= CLOSING {
                return Err(fail("bind", e));
            }
            std::thread::sleep(PAUSE);
        }
        net::listen(&fd, BACKLOG).map_err(|e| fail("listen", e))?;
        let spare = Mutex::new(Some(again(&fd).map_err(|e| fail("dup", e))?));
        Ok(Listener { fd, name: shown, spare })
    }

    /// The next peer that has connected, if any.
    ///
    /// # Errors
    /// [`OsError::OutOfDescriptors`]: a waiting peer, if any, was turned away (its connection is closed); the
    /// listener goes on.
    pub fn accept(&self) -> Result<Option<Conn>> {
        self.accept_or(|_, _| ())
    }

    /// As [`accept`](Listener::accept); whoever of this user is turned away is told what `farewell` sends.
    /// Without a word they would take the listener for dead.
    pub fn accept_or(&self, farewell: impl FnOnce(&Conn, &OsError)) -> Result<Option<Conn>> {
        loop {
            match net::accept_with(&self.fd, FLAGS) {
                Ok(fd) => {
                    fork::keep(&fd);
                    limits::made(&fd);
                    return Ok(Some(Conn { fd }));
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(e @ (Errno::MFILE | Errno::NFILE)) => {
                    let error = OsError::sys("accept", format!("listener {:?}", self.name), e);
                    self.turn_away(|conn| farewell(conn, &error));
                    return Err(error);
                }
                Err(e) => return Err(OsError::sys("accept", format!("listener {:?}", self.name), e)),
            }
        }
    }

    fn turn_away(&self, farewell: impl FnOnce(&Conn)) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        drop(spare.take());
        if let Ok(fd) = net::accept_with(&self.fd, FLAGS) {
            let conn = Conn { fd };
            if conn.stranger() == Ok(None) {
                farewell(&conn);
            }
        }
        *spare = again(&self.fd).ok();
    }
}

/// Another descriptor of a listener.
fn again(fd: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
    fork::keep(&fd);
    Ok(fd)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
