//! Real processes that join a domain at one address again as soon as they have left it: each waits for the
//! next domain, whoever is still in the last.

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::MessageError;
use polyduct_rig::{free_address, say, tests, Random, Unit};
use std::time::Duration;

const UNITS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(30);
/// How often each way.
const ROUNDS: u32 = 60;

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            a_domain_opens_again_at_once_by_tcp,
            a_domain_opens_again_at_once_by_udp,
            a_domain_of_one_host_with_an_address_opens_again_at_once,
            who_does_not_live_to_see_the_end_of_the_last_domain_is_told_of_it,
        ],
    );
}

/// One process: `unit root transport near rounds`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let me: u32 = f[0].parse().unwrap();
    for round in 0..f[4].parse().unwrap() {
        if let Err(error) = one(me, &f, round) {
            return say(&format!("round {round}: {error}"));
        }
    }
    say("end");
}

/// Joins, hears from all that they are in the same round, and leaves.
fn one(me: u32, f: &[&str], round: u32) -> Result<(), MessageError> {
    let network = Network {
        transport: if f[2] == "udp" { Transport::Udp } else { Transport::Tcp },
        ..Network::new(f[1].parse().unwrap(), JobKey::from_bytes([7; 32]).unwrap())
    };
    let near = |name: &str| (name == "POLYDUCT_MESSAGE_NEAR").then(|| f[3].to_owned());
    let options = Options {
        timeout: Some(PATIENCE),
        open_timeout: PATIENCE,
        network: Some(network),
        config: Config::from_sources(None, near).unwrap(),
        ..Options::new("again", me, UNITS)
    };
    let d = Domain::join(options)?;
    if me == 0 {
        // The others have gone by then, and come again.
        for from in 1..UNITS {
            assert_eq!(d.recv(Some(from), None)?.words[0], round, "unit {from} is in another round");
        }
        Random::new(round.into()).linger(Duration::from_millis(15));
    } else {
        d.send(0, 7, [round, 0], &[])?;
    }
    d.close()
}

fn opens_again(transport: &str, near: bool) {
    let root = free_address();
    let start = |unit| {
        let near = u8::from(near);
        Unit::start(format!("unit {unit}"), &format!("{unit} {root} {transport} {near} {ROUNDS}"))
    };
    let mut units: Vec<Unit> = (0..UNITS).map(start).collect();
    for unit in &mut units {
        assert_eq!(unit.end(), "end", "{transport}, near {near}: {}", unit.name);
    }
}

fn a_domain_opens_again_at_once_by_tcp() {
    opens_again("tcp", false);
}

fn a_domain_opens_again_at_once_by_udp() {
    opens_again("udp", false);
}

fn a_domain_of_one_host_with_an_address_opens_again_at_once() {
    opens_again("tcp", true);
    opens_again("udp", true);
}

/// One that left opens again while unit 0 and another stay: it waits for as long as it may, and says for
/// what.
fn who_does_not_live_to_see_the_end_of_the_last_domain_is_told_of_it() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let (root, key) = (free_address(), JobKey::fresh().unwrap());
        let options = |unit, open_timeout| {
            let network = Network { apart: u64::from(unit), transport, ..Network::new(root, key.clone()) };
            let timeout = Some(PATIENCE);
            Options { network: Some(network), open_timeout, timeout, ..Options::new("again", unit, 3) }
        };
        std::thread::scope(|s| {
            let (over, wait) = std::sync::mpsc::channel::<()>();
            s.spawn(move || {
                let d = Domain::join(options(0, PATIENCE)).unwrap();
                // It does not look whether unit 1 has left.
                let _ = wait.recv_timeout(PATIENCE);
                d.close().unwrap();
            });
            s.spawn(move || {
                let d = Domain::join(options(2, PATIENCE)).unwrap();
                d.serve_until(None, || d.gone(0).unwrap().is_some()).unwrap();
            });
            Domain::join(options(1, PATIENCE)).unwrap().close().unwrap();
            let early = Domain::join(options(1, Duration::from_secs(2))).map(drop).unwrap_err();
            let text = early.to_string();
            assert!(matches!(early, MessageError::Timeout { .. }), "{transport:?}: {text}");
            let reason = format!(
                "unit 0 to listen at {root}; the last attempt failed: an earlier domain of this name, \
                                  which unit 1 has left, is still open there"
            );
            assert!(text.ends_with(&reason), "{transport:?}: {text}");
            drop(over);
        });
    }
}
