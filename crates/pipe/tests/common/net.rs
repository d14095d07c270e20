//! Pipes across hosts whose units are threads of this process.

use super::PipeAt;
use polyduct_message::config::Config;
use polyduct_pipe::net::{JobKey, PipeAddress, Trust};
use polyduct_pipe::{DomainOptions, Options};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A place that no other test uses: every process has some thousands of the addresses of this host to itself.
pub fn place() -> PipeAddress {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let host = format!("127.{}.{}.{}", 1 + (pid >> 8) % 250, pid & 255, 1 + n % 250);
    PipeAddress::new(host, 7000 + (n / 250 + (pid >> 16) * 16) as u16, "test")
}

/// Where such a place is.
pub fn address_of(place: &PipeAddress) -> SocketAddr {
    format!("{}:{}", place.host, place.port).parse().unwrap()
}

/// A key that all units of the tests know.
pub fn trust(trusted_network: bool) -> Trust {
    Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network }
}

/// What a unit says of a domain in which units of one host share memory, or use the network to each other,
/// too.
pub fn near(near: bool) -> DomainOptions {
    let says = |name: &str| (name == "POLYDUCT_MESSAGE_NEAR").then(|| u8::from(near).to_string());
    DomainOptions { config: Config::from_sources(None, says).unwrap(), ..DomainOptions::default() }
}

/// Where a pipe across hosts is, and who may come.
pub struct Across {
    pub place: PipeAddress,
    pub trust: Trust,
    pub near: Near,
}

/// Which units share memory with others of this host, as if they were on one.
#[derive(Clone, Copy, Debug)]
pub enum Near {
    None,
    All,
    /// Those of even number.
    Even,
}

impl Near {
    /// One after the other, from place to place.
    pub fn at(place: &PipeAddress) -> Near {
        let last = place.host.rsplit('.').next().and_then(|n| n.parse::<usize>().ok());
        [Near::None, Near::All, Near::Even][last.unwrap_or(0) % 3]
    }

    pub fn options(self, options: &Options) -> Options {
        let near = match self {
            Near::None => false,
            Near::All => true,
            Near::Even => options.unit.is_multiple_of(2),
        };
        Options { near, ..options.clone() }
    }
}

impl Across {
    pub fn trusting(trusted_network: bool) -> Across {
        let place = place();
        let near = Near::at(&place);
        Across { place, trust: trust(trusted_network), near }
    }

    /// All go over the network.
    pub fn far(trusted_network: bool) -> Across {
        Across { near: Near::None, ..Across::trusting(trusted_network) }
    }
}

/// A pipe across hosts whose units are threads.
pub type NetPipe<'a> = PipeAt<'a, Across>;
