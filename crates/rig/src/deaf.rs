//! A port that drops what comes, as behind a firewall: nobody is refused, and nobody is heard.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How long a connection within this machine takes at most that comes about.
const SOON: Duration = Duration::from_millis(300);

/// A listener of which nobody takes connections: the kernel drops those that come.
pub struct Deaf {
    at: SocketAddr,
    _full: (std::net::TcpListener, Vec<TcpStream>),
}

impl Deaf {
    /// A port of the loopback that drops what comes.
    pub fn new() -> Deaf {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: the descriptor is a socket that lives; no memory is given.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let at = listener.local_addr().unwrap();
        let fill = || TcpStream::connect_timeout(&at, SOON).ok();
        let full = std::iter::from_fn(fill).take(64).collect();
        Deaf { at, _full: (listener, full) }
    }

    /// Where it is.
    pub fn at(&self) -> SocketAddr {
        self.at
    }
}

impl Default for Deaf {
    fn default() -> Deaf {
        Deaf::new()
    }
}
