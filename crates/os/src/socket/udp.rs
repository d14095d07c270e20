//! Several datagrams in one system call.

use crate::error::{OsError, Result};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// The most datagrams that one call may send.
pub const MOST: usize = 64;

/// Has the system cut what is sent over this socket into datagrams of `len` bytes each, but for the last (`UDP_SEGMENT`);
/// 0: nothing is cut any more.
///
/// # Errors
/// The system's: it cannot.
///
/// # Examples
/// ```
/// # use std::net::UdpSocket;
/// let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// one.connect(other.local_addr()?)?;
/// if polyduct_os::socket::udp::cut(&one, 3).is_ok() {
///     one.send(b"abcde")?;
///     let mut buffer = [0; 9];
///     assert_eq!([other.recv(&mut buffer)?, other.recv(&mut buffer)?], [3, 2]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cut(socket: impl AsFd, len: u16) -> Result<()> {
    let len = i32::from(len);
    // SAFETY: the system reads one integer, which lives until it has.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const len).cast(),
            size_of_val(&len) as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => {
            let errno =
                std::io::Error::last_os_error().raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error);
            Err(OsError::sys("setsockopt", "UDP_SEGMENT", errno))
        }
    }
}
