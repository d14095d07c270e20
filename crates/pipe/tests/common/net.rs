//! Pipes across hosts whose units are threads of this process.

use super::PipeAt;
use polyduct_pipe::net::{JobKey, Place, Trust};
use std::sync::atomic::{AtomicU32, Ordering};

/// A place that no other test uses: every process has some thousands of the addresses of this host to itself.
pub fn place() -> Place {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let host = format!("127.{}.{}.{}", 1 + (pid >> 8) % 250, pid & 255, 1 + n % 250);
    Place { host, port: 7000 + (n / 250 + (pid >> 16) * 16) as u16, name: "test".into() }
}

/// A key that all units of the tests know.
pub fn trust(trusted_network: bool) -> Trust {
    Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network }
}

/// Where a pipe across hosts is, and who may come.
pub struct Across {
    pub place: Place,
    pub trust: Trust,
}

impl Across {
    pub fn trusting(trusted_network: bool) -> Across {
        Across { place: place(), trust: trust(trusted_network) }
    }
}

/// A pipe across hosts whose units are threads.
pub type NetPipe<'a> = PipeAt<'a, Across>;
