//! A unit that is stopped for longer than the others bear its silence: when it wakes it hears that they went
//! on without it.

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::MessageError;
use polyduct_os::process::{PidFd, ProcessId};
use polyduct_rig::{free_address, say, tests, Unit};
use rustix::process::Signal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the units bear.
const SILENCE: Duration = Duration::from_secs(1);

/// All stop and go on together, as at a terminal's Ctrl-Z: nobody was silent.
fn who_was_away_together_goes_on() {
    for transport in ["tcp", "udp"] {
        let mut units = start_both(transport);
        for signal in [Signal::STOP, Signal::CONT] {
            for unit in &units {
                signal_to(unit, signal);
            }
            if signal == Signal::STOP {
                let first = PidFd::of(ProcessId::of(units[0].pid()).unwrap()).unwrap();
                assert!(
                    !first.exited_within(2 * SILENCE).unwrap(),
                    "{} ended while it was stopped",
                    units[0].name
                );
            }
        }
        for unit in &mut units {
            let before: u64 = unit.ask("").unwrap().parse().unwrap();
            let mut after = before;
            let end = Instant::now() + 10 * SILENCE;
            while after < before + 1000 {
                assert!(Instant::now() < end, "{} hangs at {after}", unit.name);
                after = unit.ask("").unwrap_or_else(|| panic!("{} has ended", unit.name)).parse().unwrap();
            }
        }
    }
}

fn main() {
    polyduct_rig::main(unit, tests![who_was_away_too_long_is_told_so, who_was_away_together_goes_on]);
}

/// One process: `unit transport root`. It meets the other for ever, and says how that ended.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let unit: u32 = f[0].parse().unwrap();
    let network = Network {
        apart: unit.into(),
        trusted: true,
        transport: if f[1] == "udp" { Transport::Udp } else { Transport::Tcp },
        ..Network::new(f[2].parse().unwrap(), JobKey::from_bytes([7; 32]).unwrap())
    };
    let brief =
        |name: &str| (name == "POLYDUCT_MESSAGE_SILENCE").then(|| format!("{}ms", SILENCE.as_millis()));
    let options = Options {
        open_timeout: Duration::from_secs(20),
        network: Some(network),
        config: Config::from_sources(None, brief).unwrap(),
        ..Options::new(&format!("away-{}", f[1]), unit, 2)
    };
    let meet = || -> Result<(), MessageError> {
        let d = Domain::join(options)?;
        d.barrier()?;
        say("open");
        let met = Arc::new(AtomicU64::new(0));
        let count = met.clone();
        // A line that comes is a question, and the answer is how often they have met.
        std::thread::spawn(move || {
            std::io::stdin().lines().for_each(|_| say(&count.load(Ordering::Relaxed).to_string()));
        });
        loop {
            d.barrier()?;
            met.fetch_add(1, Ordering::Relaxed);
        }
    };
    say(&format!("end {}", meet().unwrap_err()));
}

fn start_both(transport: &str) -> [Unit; 2] {
    let root = free_address();
    let mut units = [0, 1]
        .map(|unit| Unit::start(format!("unit {unit}, {transport}"), &format!("{unit} {transport} {root}")));
    units.iter_mut().for_each(|unit| assert!(unit.wait_line("open"), "{}", unit.last()));
    units
}

fn signal_to(unit: &Unit, signal: Signal) {
    PidFd::of(ProcessId::of(unit.pid()).unwrap()).unwrap().send_signal(signal).unwrap();
}

fn who_was_away_too_long_is_told_so() {
    for (transport, stopped) in [("tcp", 1), ("tcp", 0), ("udp", 1), ("udp", 0)] {
        let mut units = start_both(transport);
        signal_to(&units[stopped], Signal::STOP);
        let other = &mut units[1 - stopped];
        assert!(other.end().starts_with(&format!("end unit {stopped} is lost")), "{}", other.last());
        signal_to(&units[stopped], Signal::CONT);
        let said = units[stopped].end();
        assert!(!said.contains("broke the protocol"), "{said}");
        assert!(said.contains("did not run for") && said.contains("gone on without it"), "{said}");
    }
}
