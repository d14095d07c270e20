//! The units of a domain in threads of one process: on one host, as if each were on its own, and as if they
//! were on two.

#![allow(dead_code)]

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::Address;
use polyduct_rig::free_address;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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
    /// Each on its own, as it were.
    Hosts(Transport, bool),
    /// Those with even numbers on one, as it were, the others on another.
    Mixed(Transport, bool),
}

pub const HOSTS: [Place; 4] = [
    Place::Hosts(Transport::Tcp, false),
    Place::Hosts(Transport::Tcp, true),
    Place::Hosts(Transport::Udp, true),
    Place::Mixed(Transport::Tcp, false),
];

/// Runs all units of a domain, each in a thread: at every kind of place.
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
            options.network = match place {
                Place::Here => None,
                Place::Hosts(transport, trusted) => Some((transport, trusted, unit)),
                Place::Mixed(transport, trusted) => Some((transport, trusted, unit % 2)),
            }
            .map(|(transport, trusted, host)| Network {
                transport,
                trusted,
                apart: host.into(),
                ..Network::new(root, key.clone())
            });
            adjust(&mut options);
            s.spawn(move || run(Domain::join(options).unwrap_or_else(|e| panic!("{place:?}: {e}"))))
        };
        let threads: Vec<_> = (0..units).map(unit).collect();
        let done = threads.into_iter().map(|t| t.join());
        done.collect::<Result<Vec<_>, _>>().unwrap_or_else(|_| panic!("{place:?}"))
    })
}

/// Waits until a thread of this process sleeps.
pub fn until_asleep(thread: i32) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        if stat.rsplit(')').next().unwrap().trim_start().starts_with('S') {
            return;
        }
        assert!(Instant::now() < end, "thread {thread} does not sleep: {stat}");
        std::thread::yield_now();
    }
}

/// These settings with these values, all others by default.
pub fn sizes(given: &[(&str, u64)]) -> Config {
    let value = |variable: &str| {
        let name = variable.strip_prefix("POLYDUCT_MESSAGE_")?.to_lowercase();
        given.iter().find(|(setting, _)| *setting == name).map(|(_, value)| value.to_string())
    };
    Config::from_sources(None, value).unwrap()
}
