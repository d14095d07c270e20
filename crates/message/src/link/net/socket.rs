//! TCP sockets: made, connected, accepted. None blocks.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;

use super::ports;
use polyduct_os::{fork, Errno, OsError};
use rustix::io::retry_on_intr;
use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Connections that the kernel keeps for us while the acceptor is full.
const BACKLOG: i32 = 1024;
/// The kernel asks an idle connection this often within the time after which it counts as dead, at most.
const PROBES: u64 = 100;

/// How sockets notice that the other host is gone. A process that dies is noticed at once, because its host
/// says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// An idle connection stays silent for at most this long, which the kernel counts in whole seconds, two
    /// or more. What is sent and not acknowledged is for the users of connections to look after: the kernel
    /// would count the time in which the other end's window is shut, because its program is busy.
    pub dead_after: Duration,
}

impl Default for KeepAlive {
    /// 2.5 s: survivors on other hosts must know within 3 s.
    fn default() -> Self {
        KeepAlive { dead_after: Duration::from_millis(2500) }
    }
}

pub(crate) fn sys(op: &'static str, what: impl Into<String>, errno: Errno) -> OsError {
    OsError::sys(op, what, errno)
}

fn socket(addr: &SocketAddr) -> Result<OwnedFd, OsError> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = net::socket_with(family, SocketType::STREAM, FLAGS, None)
        .map_err(|e| sys("socket", addr.to_string(), e))?;
    fork::keep(&fd);
    Ok(fd)
}

/// The addresses of a host by its name, or the address that it is. None where the system knows no such host.
/// It may ask a server, and wait for that.
pub fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    (host, port).to_socket_addrs().map(Vec::from_iter).unwrap_or_default()
}

/// The same, asked for again while there are none and `go_on` has nothing against it: names of containers and
/// of machines that start come late.
///
/// # Errors
/// What `go_on` says, which is asked several times a second.
pub fn resolve_while<E>(
    host: &str,
    port: u16,
    go_on: impl FnMut() -> Result<(), E>,
) -> Result<Vec<SocketAddr>, E> {
    ask_while(|| resolve(host, port), go_on)
}

/// How soon a name is asked for again, at first and at most.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

fn ask_while<E>(
    mut ask: impl FnMut() -> Vec<SocketAddr>,
    mut go_on: impl FnMut() -> Result<(), E>,
) -> Result<Vec<SocketAddr>, E> {
    let (first, most) = ASK_AGAIN;
    let mut pause = first;
    loop {
        let found = ask();
        if !found.is_empty() {
            return Ok(found);
        }
        for _ in 0..pause.as_millis() / first.as_millis() {
            go_on()?;
            std::thread::sleep(first);
        }
        pause = (pause * 2).min(most);
    }
}

/// The address of this host from which the way to another begins. Sends nothing.
///
/// # Errors
/// No way leads there.
pub fn way_to(to: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match to.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket only asks for the way.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// Listens at an address; port 0 takes a free one, of those that the [environment](super::ports) allows.
///
/// # Errors
/// [`OsError::AddrInUse`], or the system's.
pub fn listen(addr: SocketAddr) -> Result<TcpListener, OsError> {
    ports::bind_in(addr, ports::range()?, listen_at)
}

fn listen_at(addr: SocketAddr) -> Result<TcpListener, OsError> {
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
    let again = listener.try_clone().map_err(fail)?;
    fork::keep(&again);
    Ok(again)
}

/// Begins to connect: the socket becomes writable when it is connected or has failed; then ask
/// [`is_connected`].
///
/// # Errors
/// [`OsError::NotListening`] where that is known at once, or the system's.
pub fn connect(addr: SocketAddr, patience: KeepAlive) -> Result<TcpStream, OsError> {
    let fd = socket(&addr)?;
    prepare(&fd, patience)?;
    let millis = u32::try_from(patience.dead_after.as_millis()).unwrap_or(u32::MAX).max(1);
    connect_within(&fd, millis)?;
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
        Ok(_) => connect_within(stream, 0).map(|()| true),
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
    patience: KeepAlive,
) -> Result<Option<(TcpStream, SocketAddr)>, OsError> {
    loop {
        match retry_on_intr(|| net::acceptfrom_with(listener, FLAGS)) {
            Ok((fd, addr)) => {
                fork::keep(&fd);
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

fn prepare(fd: &OwnedFd, patience: KeepAlive) -> Result<(), OsError> {
    let fail = |e| sys("setsockopt", "a TCP socket", e);
    // Messages are gathered above; whatever is written shall go.
    sockopt::set_tcp_nodelay(fd, true).map_err(fail)?;
    let (step, probes) = probes(patience);
    let step = Duration::from_secs(step);
    sockopt::set_tcp_keepidle(fd, step).map_err(fail)?;
    sockopt::set_tcp_keepintvl(fd, step).map_err(fail)?;
    sockopt::set_tcp_keepcnt(fd, probes).map_err(fail)?;
    sockopt::set_socket_keepalive(fd, true).map_err(fail)
}

/// After how many seconds the kernel asks an idle connection, and then again; and how many unanswered
/// questions end it after as many seconds more.
fn probes(patience: KeepAlive) -> (u64, u32) {
    let seconds = patience.dead_after.as_millis().div_ceil(1000).clamp(2, 1 << 20) as u64;
    let step = seconds.div_ceil(PROBES);
    (step, (seconds.div_ceil(step) - 1).max(1) as u32)
}

/// How long the kernel tries to connect before it gives up with what it knows; 0: as long as it likes, and
/// once connected.
fn connect_within(fd: impl std::os::fd::AsFd, millis: u32) -> Result<(), OsError> {
    sockopt::set_tcp_user_timeout(fd, millis).map_err(|e| sys("setsockopt", "a TCP socket", e))
}

/// The kernel takes no more of a connection while so many bytes are not sent.
///
/// # Errors
/// The system's.
pub(crate) fn set_unsent(stream: &TcpStream, bytes: usize) -> Result<(), OsError> {
    let set = socket2::SockRef::from(stream).set_tcp_notsent_lowat(u32::try_from(bytes).unwrap_or(u32::MAX));
    set.map_err(|e| sys("setsockopt", "a TCP connection", Errno::from_io_error(&e).unwrap_or(Errno::IO)))
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
    write_with(stream, parts, net::SendFlags::empty())
}

/// The same, and the kernel does not join what follows with it to longer packets: of those, two wait for the
/// link at least.
pub(crate) fn write_apart(
    stream: &TcpStream,
    parts: &[std::io::IoSlice<'_>],
) -> Result<Option<usize>, OsError> {
    write_with(stream, parts, net::SendFlags::EOR)
}

fn write_with(
    stream: &TcpStream,
    parts: &[std::io::IoSlice<'_>],
    flags: net::SendFlags,
) -> Result<Option<usize>, OsError> {
    let flags = flags | net::SendFlags::NOSIGNAL | net::SendFlags::DONTWAIT;
    let sent = match parts {
        // For a short message the system's work with a list of one part counts.
        [part] => retry_on_intr(|| net::send(stream, part, flags)),
        _ => retry_on_intr(|| net::sendmsg(stream, parts, &mut net::SendAncillaryBuffer::default(), flags)),
    };
    match sent {
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(OsError::PeerClosed),
        Err(e) => Err(sys("send", "a TCP connection", e)),
    }
}

/// Reads what is there; `None`: nothing yet.
///
/// # Errors
/// [`OsError::PeerClosed`] at the end.
pub fn read(stream: &TcpStream, parts: &mut [std::io::IoSliceMut<'_>]) -> Result<Option<usize>, OsError> {
    let came = match parts {
        [part] => retry_on_intr(|| net::recv(stream, &mut **part, net::RecvFlags::DONTWAIT)).map(|(_, n)| n),
        _ => retry_on_intr(|| rustix::io::readv(stream, &mut *parts)),
    };
    match came {
        Ok(0) => Err(OsError::PeerClosed),
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE) => Err(OsError::PeerClosed),
        Err(e) => Err(sys("recv", "a TCP connection", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_for_until_somebody_knows_it() {
        let (at, mut left) = (SocketAddr::from(([127, 0, 0, 1], 7)), 3);
        let mut ask = || {
            left -= 1;
            if left == 0 {
                vec![at]
            } else {
                vec![]
            }
        };
        assert_eq!(ask_while(&mut ask, || Ok::<(), ()>(())), Ok(vec![at]));
        let mut patience = 4;
        let limit = || {
            patience -= 1;
            if patience == 0 {
                Err("enough")
            } else {
                Ok(())
            }
        };
        assert_eq!(ask_while(Vec::new, limit), Err("enough"));
    }

    #[test]
    fn idle_connections_are_asked_until_their_time_is_over() {
        for (millis, step, asked) in
            [(1, 1, 1), (2000, 1, 1), (2500, 1, 2), (10_000, 1, 9), (100_000, 1, 99), (600_000, 6, 99)]
        {
            let patience = KeepAlive { dead_after: Duration::from_millis(millis) };
            assert_eq!(probes(patience), (step, asked), "{millis}");
        }
        // The kernel takes no more than that.
        let (step, asked) = probes(KeepAlive { dead_after: Duration::MAX });
        assert!(step <= 32767 && asked <= 127, "{step} {asked}");
    }
}
