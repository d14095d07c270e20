//! Local sockets that keep message bounds and carry descriptors.
//!
//! SEQPACKET in the abstract namespace: no file to leave behind, the name is free as soon as its listener is
//! gone, and a dead peer hangs up by itself. Anybody on the machine can connect, so the caller checks
//! [`Conn::stranger`] first. Nothing blocks: wait with [`crate::poll`].

use core::mem::MaybeUninit;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{retry_on_intr, Errno};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::error::{OsError, Result};
use crate::fork;
use crate::limits;
use crate::process::PidFd;

mod listener;
pub mod tcp;
pub mod udp;
mod user;

pub use listener::Listener;
pub use user::whose;

/// The longest message.
pub const MESSAGE_LIMIT: usize = 64 << 10;
/// The most descriptors that one message may carry.
pub const DESCRIPTOR_LIMIT: usize = 8;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// The same on every architecture with the generic numbers; libc does not have it everywhere.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process at the other end when the connection was made, as the kernel saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCred {
    /// Its process; zero where it is outside our process namespace.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// What [`Conn::send`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The whole message is on its way.
    Done,
    /// Nothing was sent: the peer has not read enough. Wait until writable.
    WouldBlock,
}

/// What [`Conn::recv`] found.
#[derive(Debug)]
#[must_use]
pub enum Received {
    /// A whole message.
    Message {
        /// How much of the buffer it fills.
        len: usize,
        /// The descriptors that came with it, closed on exec.
        fds: Vec<OwnedFd>,
    },
    /// Nothing yet. Wait until readable.
    WouldBlock,
    /// The peer has hung up and everything it sent was received.
    Closed,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Conn {
    fd: OwnedFd,
}

impl Conn {
    /// Connects to the listener at `name`.
    ///
    /// # Errors
    /// [`OsError::NotListening`] where there is none, [`OsError::ListenerBusy`] where too many wait there.
    pub fn connect(name: &[u8]) -> Result<Conn> {
        let (addr, shown) = address(name)?;
        let fail = |op, e| OsError::sys(op, format!("listener {shown:?}"), e);
        let fd = socket().map_err(|e| fail("socket", e))?;
        retry_on_intr(|| net::connect(&fd, &addr)).map_err(|e| match e {
            Errno::CONNREFUSED | Errno::NOENT => OsError::NotListening { name: shown.clone() },
            Errno::AGAIN => OsError::ListenerBusy { name: shown.clone() },
            e => fail("connect", e),
        })?;
        limits::made(&fd);
        Ok(Conn { fd })
    }

    /// Two ends of a connection, without a name.
    pub fn pair() -> Result<(Conn, Conn)> {
        net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
            .map(|(a, b)| (Conn { fd: a }, Conn { fd: b }))
            .map_err(|e| OsError::sys("socketpair", "", e))
    }

    /// A connection that was inherited or handed over. Made non-blocking.
    ///
    /// # Errors
    /// The system's, where it is not a socket; [`OsError::BadName`] where it is one of another type.
    pub fn from_fd(fd: OwnedFd) -> Result<Conn> {
        let fail = |op, e| OsError::sys(op, "an inherited connection", e);
        let unix =
            net::sockopt::socket_domain(&fd).map_err(|e| fail("getsockopt", e))? == AddressFamily::UNIX;
        let kind = net::sockopt::socket_type(&fd).map_err(|e| fail("getsockopt", e))?;
        if !unix || kind != SocketType::SEQPACKET {
            let name = format!("descriptor {}", fd.as_raw_fd());
            return Err(OsError::BadName { name, reason: "not a local SEQPACKET socket" });
        }
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|e| fail("fcntl", e))?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK).map_err(|e| fail("fcntl", e))?;
        Ok(Conn { fd })
    }

    /// Sends one message of 1 to [`MESSAGE_LIMIT`] bytes with copies of up to [`DESCRIPTOR_LIMIT`]
    /// descriptors: all of it or nothing.
    ///
    /// # Errors
    /// [`OsError::PeerClosed`] where nobody can receive it any more; [`OsError::TooManyInFlight`], which
    /// passes.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent> {
        if message.is_empty() || message.len() > MESSAGE_LIMIT {
            return Err(OsError::MessageLength { len: message.len(), limit: MESSAGE_LIMIT });
        }
        let too_many = OsError::TooManyDescriptors { given: fds.len(), limit: DESCRIPTOR_LIMIT };
        if fds.len() > DESCRIPTOR_LIMIT {
            return Err(too_many);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(too_many);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match retry_on_intr(|| net::sendmsg(&self.fd, &[IoSlice::new(message)], &mut control, flags)) {
            Ok(_) => Ok(Sent::Done),
            Err(Errno::AGAIN) => Ok(Sent::WouldBlock),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED) => {
                Err(OsError::PeerClosed)
            }
            Err(e) => Err(OsError::sys("sendmsg", format!("{} bytes", message.len()), e)),
        }
    }

    /// Receives one message, whole, with its descriptors. An empty message cannot be told from the end, so it
    /// is the end.
    ///
    /// # Errors
    /// [`OsError::MessageTruncated`], [`OsError::DescriptorsTruncated`]: the message is lost and what had
    /// come with it is closed.
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Received> {
        let room = buffer.len();
        if room == 0 {
            return Err(OsError::MessageLength { len: 0, limit: MESSAGE_LIMIT });
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut receive = || {
            retry_on_intr(|| {
                net::recvmsg(&self.fd, &mut [IoSliceMut::new(&mut *buffer)], &mut control, flags)
            })
        };
        // Neither a reset nor an end means that nothing is left. A peer that closed with a message of ours
        // unread gives one reset before its last messages; and the kernel looks at the queue first and at the
        // end after it, so that it may miss what came between. What came before the end is there at a second
        // look.
        let (got, ended) = match receive() {
            Err(Errno::CONNRESET) => (receive(), false),
            Ok(end) if end.bytes == 0 => (receive(), true),
            other => (other, false),
        };
        let got = match got {
            // An empty message, which nobody sends who means well.
            Err(Errno::AGAIN) if ended => return Ok(Received::Closed),
            Ok(got) => got,
            Err(Errno::AGAIN) => return Ok(Received::WouldBlock),
            Err(Errno::CONNRESET | Errno::NOTCONN) => return Ok(Received::Closed),
            Err(e) => return Err(OsError::sys("recvmsg", format!("{room} bytes"), e)),
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights.inspect(limits::made));
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || fds.len() > DESCRIPTOR_LIMIT {
            return Err(OsError::DescriptorsTruncated { kept: fds.len(), limit: DESCRIPTOR_LIMIT });
        }
        if got.flags.contains(ReturnFlags::TRUNC) {
            return Err(OsError::MessageTruncated { room });
        }
        match got.bytes {
            0 => Ok(Received::Closed),
            len => Ok(Received::Message { len, fds }),
        }
    }

    /// The process that made the connection at the other end, as it looks from here: see
    /// [`stranger`](Self::stranger).
    pub fn peer(&self) -> Result<PeerCred> {
        let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
        option(self, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut cred)
            .map_err(|e| OsError::sys("getsockopt", "SO_PEERCRED", e))?;
        Ok(PeerCred { pid: u32::try_from(cred.pid).unwrap_or(0), uid: cred.uid, gid: cred.gid })
    }

    /// A descriptor of the process that made the connection at the other end.
    ///
    /// # Errors
    /// [`OsError::PeerGone`] where it is no more.
    pub fn peer_pidfd(&self) -> Result<PidFd> {
        let pid = self.peer()?.pid;
        let mut fd: libc::c_int = -1;
        match option(self, libc::SOL_SOCKET, SO_PEERPIDFD, &mut fd) {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            Ok(()) if fd >= 0 => Ok(PidFd::from_fd(unsafe { OwnedFd::from_raw_fd(fd) }, pid)),
            // Before Linux 6.5 by number, which is right as long as the peer, still connected, lives.
            Ok(()) | Err(Errno::NOPROTOOPT) => PidFd::open(pid),
            Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => Err(OsError::PeerGone { pid }),
            Err(e) => Err(OsError::sys("getsockopt", "SO_PEERPIDFD", e)),
        }
    }
}

/// Reads an option of a socket into a plain C value; what the kernel does not know stays as it is.
fn option<T: Plain>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> rustix::io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `len` bytes and every bit pattern of it is valid (`Plain`).
    let rc = unsafe {
        let value = core::ptr::from_mut(value).cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, value, &mut len)
    };
    match rc {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// C values for which every bit pattern is valid.
trait Plain {}
impl Plain for libc::ucred {}
impl Plain for libc::c_int {}
impl Plain for libc::tcp_info {}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    fork::keep(&fd);
    Ok(fd)
}

/// The address of a name, and the name as errors show it.
fn address(name: &[u8]) -> Result<(SocketAddrUnix, String)> {
    let shown = name.escape_ascii().to_string();
    if name.is_empty() {
        return Err(OsError::BadName { name: shown, reason: "empty" });
    }
    match SocketAddrUnix::new_abstract_name(name) {
        Ok(addr) => Ok((addr, shown)),
        Err(_) => Err(OsError::BadName { name: shown, reason: "longer than 107 bytes" }),
    }
}
