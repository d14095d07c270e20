//! Reads the kernel's view of the other end of a TCP connection.

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
    /// Whether the kernel has bytes that it could not send yet: the window is shut, or there is no way to the
    /// other end.
    pub unsent: bool,
    /// Whether its window is shut, and it has not answered when it was asked last whether it still is.
    pub asked: bool,
    /// Whether its window is shut, as far as it said.
    pub shut: bool,
    /// How long ago a segment with data was sent last, for the first time or again.
    pub sent: Duration,
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
    // A kernel that tells less leaves the rest as it is.
    info.tcpi_snd_wnd = u32::MAX;
    option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)
        .map_err(|e| OsError::sys("getsockopt", "TCP_INFO", e))?;
    let [sent, last] =
        [info.tcpi_last_data_sent, info.tcpi_last_ack_recv].map(|ms| Duration::from_millis(ms.into()));
    Ok(Acks {
        missing: info.tcpi_unacked > 0,
        unsent: info.tcpi_notsent_bytes > 0,
        asked: info.tcpi_probes > 0,
        shut: info.tcpi_snd_wnd == 0,
        sent,
        last,
    })
}
