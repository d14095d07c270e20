//! TCP sockets: made, connected, accepted. None blocks.

use core::time::Duration;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;

use polyduct_os::{Errno, OsError};
use rustix::io::retry_on_intr;
use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Connections that the kernel keeps for us while the gate is full.
const BACKLOG: i32 = 1024;
/// Unanswered probes after which a silent connection is dead.
const PROBES: u32 = 3;

/// How sockets notice that the other host is gone. A process that dies is noticed at once, because its host says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Sent bytes stay unacknowledged, or an idle connection stays silent, for at most this long.
    pub dead_after: Duration,
}

impl Default for Patience {
    /// 2.5 s: survivors on other hosts must know within 3 s.
    fn default() -> Self {
        Patience { dead_after: Duration::from_millis(2500) }
    }
}

pub(crate) fn sys(op: &'static str, what: impl Into<String>, errno: Errno) -> OsError {
    let what = what.into();
    match errno {
        Errno::MFILE | Errno::NFILE => OsError::OutOfDescriptors { op, what },
        errno => OsError::System { op, what, errno },
    }
}

fn socket(addr: &SocketAddr) -> Result<OwnedFd, OsError> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    net::socket_with(family, SocketType::STREAM, FLAGS, None).map_err(|e| sys("socket", addr.to_string(), e))
}

/// The addresses of a host by its name, or the address that it is. None where the system knows no such host. It may ask a
/// server, and wait for that.
pub fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    (host, port).to_socket_addrs().map(Vec::from_iter).unwrap_or_default()
}

/// Listens at an address; port 0 takes a free one.
///
/// # Errors
/// [`OsError::AddrInUse`], or the system's.
pub fn listen(addr: SocketAddr) -> Result<TcpListener, OsError> {
    let fail = |op, e| match e {
        Errno::ADDRINUSE => OsError::AddrInUse { name: addr.to_string() },
        e => sys(op, addr.to_string(), e),
    };
    let fd = socket(&addr)?;
    // A port that a former life of this unit left in TIME_WAIT is free.
    sockopt::set_socket_reuseaddr(&fd, true).map_err(|e| fail("setsockopt", e))?;
    net::bind(&fd, &addr).map_err(|e| fail("bind", e))?;
    net::listen(&fd, BACKLOG).map_err(|e| fail("listen", e))?;
    Ok(fd.into())
}

/// Another handle to a listener.
///
/// # Errors
/// The system's.
pub fn again(listener: &TcpListener) -> Result<TcpListener, OsError> {
    let fail = |e| sys("dup", "a listener", Errno::from_io_error(&e).unwrap_or(Errno::IO));
    listener.try_clone().map_err(fail)
}

/// Begins to connect: the socket becomes writable when it is connected or has failed; then ask [`is_connected`].
///
/// # Errors
/// [`OsError::NotListening`] where that is known at once, or the system's.
pub fn connect(addr: SocketAddr, patience: Patience) -> Result<TcpStream, OsError> {
    let fd = socket(&addr)?;
    prepare(&fd, patience)?;
    match net::connect(&fd, &addr) {
        // Interrupted, it goes on by itself like one that is in progress.
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(fd.into()),
        Err(e) => Err(connect_failed(addr, e)),
    }
}

/// Whether a connection that was begun stands; `false`: not yet.
///
/// # Errors
/// Why it failed.
pub fn is_connected(stream: &TcpStream, addr: SocketAddr) -> Result<bool, OsError> {
    let failed = |e| connect_failed(addr, e);
    sockopt::socket_error(stream).map_err(failed)?.map_err(failed)?;
    match net::getpeername(stream) {
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(e) => Err(failed(e)),
    }
}

fn connect_failed(addr: SocketAddr, errno: Errno) -> OsError {
    match errno {
        Errno::CONNREFUSED => OsError::NotListening { name: addr.to_string() },
        e => sys("connect", addr.to_string(), e),
    }
}

/// The next connection that waits, if any.
///
/// # Errors
/// [`OsError::OutOfDescriptors`] (the connection still waits), or the system's.
pub fn accept(
    listener: &TcpListener,
    patience: Patience,
) -> Result<Option<(TcpStream, SocketAddr)>, OsError> {
    loop {
        match retry_on_intr(|| net::acceptfrom_with(listener, FLAGS)) {
            Ok((fd, addr)) => {
                let Some(addr) = addr.and_then(|a| SocketAddr::try_from(a).ok()) else { continue };
                return match prepare(&fd, patience) {
                    Ok(()) => Ok(Some((fd.into(), addr))),
                    Err(_) => continue, // It went away again.
                };
            }
            Err(Errno::AGAIN) => return Ok(None),
            // Errors that the connection had before it was accepted (accept(2)).
            Err(
                Errno::CONNABORTED
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH,
            ) => continue,
            Err(e) => return Err(sys("accept", "a connection", e)),
        }
    }
}

fn prepare(fd: &OwnedFd, patience: Patience) -> Result<(), OsError> {
    let fail = |e| sys("setsockopt", "a TCP socket", e);
    // Messages are gathered above; whatever is written shall go.
    sockopt::set_tcp_nodelay(fd, true).map_err(fail)?;
    let millis = u32::try_from(patience.dead_after.as_millis()).unwrap_or(u32::MAX).max(1);
    sockopt::set_tcp_user_timeout(fd, millis).map_err(fail)?;
    // The kernel counts whole seconds.
    let step = Duration::from_secs((patience.dead_after.as_secs() / u64::from(PROBES)).max(1));
    sockopt::set_tcp_keepidle(fd, step).map_err(fail)?;
    sockopt::set_tcp_keepintvl(fd, step).map_err(fail)?;
    sockopt::set_tcp_keepcnt(fd, PROBES).map_err(fail)?;
    sockopt::set_socket_keepalive(fd, true).map_err(fail)
}

/// The address at which a listener listens.
///
/// # Errors
/// The system's.
pub fn local_addr(listener: &TcpListener) -> Result<SocketAddr, OsError> {
    listener
        .local_addr()
        .map_err(|e| sys("getsockname", "a listener", Errno::from_io_error(&e).unwrap_or(Errno::IO)))
}

/// Writes what the socket takes now; `None`: nothing.
///
/// # Errors
/// [`OsError::PeerClosed`] where nobody reads any more.
pub fn write(stream: &TcpStream, parts: &[std::io::IoSlice<'_>]) -> Result<Option<usize>, OsError> {
    let flags = net::SendFlags::NOSIGNAL | net::SendFlags::DONTWAIT;
    let mut control = net::SendAncillaryBuffer::default();
    match retry_on_intr(|| net::sendmsg(stream, parts, &mut control, flags)) {
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(OsError::PeerClosed),
        Err(e) => Err(sys("sendmsg", "a TCP connection", e)),
    }
}

/// Reads what is there; `None`: nothing yet.
///
/// # Errors
/// [`OsError::PeerClosed`] at the end.
pub fn read(stream: &TcpStream, parts: &mut [std::io::IoSliceMut<'_>]) -> Result<Option<usize>, OsError> {
    match retry_on_intr(|| rustix::io::readv(stream, parts)) {
        Ok(0) => Err(OsError::PeerClosed),
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE) => Err(OsError::PeerClosed),
        Err(e) => Err(sys("readv", "a TCP connection", e)),
    }
}
