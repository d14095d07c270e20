//! Places outside: where a stream goes, or comes from.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a stream gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// Ordinary TCP connections.
    Tcp,
    /// Datagrams.
    Udp,
    /// Datagrams of raw video.
    Rtp,
    /// A file that others map.
    Window,
    /// Lanes between gateways.
    Far,
    /// Browsers.
    Display,
}

/// A place outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// How to get there.
    pub protocol: Protocol,
    /// Its host, or several with commas between them, over which lanes are spread; where there is none, this side
    /// listens.
    pub host: Option<String>,
    /// Its port, or the one to listen at.
    pub port: u16,
    /// Over how many lanes.
    pub lanes: u32,
    /// Bytes of a striping unit, where there are several lanes.
    pub su: u64,
}

/// Bytes of data in a datagram, unless something else is said: with its headers it fits an Ethernet frame.
/// So many whole pixels of three and of four bytes go in it.
pub const PACKET_BYTES: u64 = 1380;
/// Bytes of a striping unit, unless something else is said.
pub const SU_BYTES: u64 = 64 << 10;

impl Place {
    /// A place that is reached by one lane.
    pub fn new(protocol: Protocol, host: Option<&str>, port: u16) -> Place {
        let host = host.map(str::to_owned);
        let su = match protocol {
            Protocol::Udp | Protocol::Rtp => PACKET_BYTES,
            _ => SU_BYTES,
        };
        Place { protocol, host, port, lanes: 1, su }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or("");
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        let scheme = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Rtp => "rtp",
            Protocol::Window => "window",
            Protocol::Far => "stream",
            Protocol::Display => "display",
        };
        write!(f, "{scheme}://{open}{host}{close}:{}", self.port)
    }
}
