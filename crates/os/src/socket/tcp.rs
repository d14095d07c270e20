//! What the kernel knows of the other end of a TCP connection.

use super::option;
use crate::error::{OsError, Result};
use core::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::Duration;

/// What the other end has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    /// Whether segments were sent that it has not acknowledged.
    pub missing: bool,
    /// How long ago its last acknowledgement came, of whatever it was.
    pub last: Duration,
}

/// What the other end of a connection has acknowledged (`TCP_INFO`).
///
/// # Errors
/// The system's.
///
/// # Examples
/// ```
/// # use std::net::{TcpListener, TcpStream};
/// let listener = TcpListener::bind(("127.0.0.1", 0))?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// assert!(!polyduct_os::socket::tcp::acks(&stream)?.missing);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn acks(socket: impl AsFd) -> Result<Acks> {
    // SAFETY: a structure of integers.
    let mut info: libc::tcp_info = unsafe { MaybeUninit::zeroed().assume_init() };
    option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)
        .map_err(|e| OsError::sys("getsockopt", "TCP_INFO", e))?;
    let last = Duration::from_millis(info.tcpi_last_ack_recv.into());
    Ok(Acks { missing: info.tcpi_unacked > 0, last })
}
