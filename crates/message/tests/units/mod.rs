//! The units of a domain in threads of one process: on one host, and as if they were on several.

#![allow(dead_code)]

use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::Address;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A name that nobody else has.
pub fn unique(what: &str) -> String {
    static N: AtomicU32 = AtomicU32::new(0);
    format!("test-{what}-{}-{}", std::process::id(), N.fetch_add(1, Ordering::Relaxed))
}

pub fn options(name: &str, unit: Address, units: u32) -> Options {
    Options {
        open_timeout: Duration::from_secs(20),
        timeout: Some(Duration::from_secs(20)),
        ..Options::new(name, unit, units)
    }
}

/// Where the units of a domain are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// On this host.
    Here,
    /// On several, as it were.
    Hosts(Transport, bool),
}

pub const HOSTS: [Place; 3] = [
    Place::Hosts(Transport::Tcp, false),
    Place::Hosts(Transport::Tcp, true),
    Place::Hosts(Transport::Udp, true),
];

/// An address where nobody listens.
pub fn free_address() -> SocketAddr {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    taken.local_addr().unwrap()
}

/// Runs all units of a domain, each in a thread: on one host, and as if they were on several.
pub fn together<T: Send>(units: u32, run: impl Fn(Domain) -> T + Sync) -> Vec<T> {
    HOSTS.iter().for_each(|&place| drop(at(place, units, &run)));
    at(Place::Here, units, &run)
}

pub fn at<T: Send>(place: Place, units: u32, run: &(impl Fn(Domain) -> T + Sync)) -> Vec<T> {
    at_with(place, units, &|_| (), run)
}

/// The same with options that the test has a say in.
pub fn at_with<T: Send>(
    place: Place,
    units: u32,
    adjust: &(impl Fn(&mut Options) + Sync),
    run: &(impl Fn(Domain) -> T + Sync),
) -> Vec<T> {
    let (name, key, root) = (unique("domain"), JobKey::fresh().unwrap(), free_address());
    std::thread::scope(|s| {
        let unit = |unit| {
            let mut options = options(&name, unit, units);
            if let Place::Hosts(transport, trusted) = place {
                let network = Network { transport, trusted, ..Network::new(root, key.clone()) };
                options.network = Some(network);
            }
            adjust(&mut options);
            s.spawn(move || run(Domain::join(options).unwrap_or_else(|e| panic!("{place:?}: {e}"))))
        };
        let threads: Vec<_> = (0..units).map(unit).collect();
        let done = threads.into_iter().map(|t| t.join());
        done.collect::<Result<Vec<_>, _>>().unwrap_or_else(|_| panic!("{place:?}"))
    })
}
