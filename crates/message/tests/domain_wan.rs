//! Domains over long and bad ways: each unit but the first on the far side.

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_rig::hosts::{plug_in, role, run_a, tell, Other, Role};
use polyduct_rig::wan::Wan;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Addresses at the ends of the way.
const ENDS: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 30_000;
/// Less than the time after which who is not heard is given up.
const SILENCE: Duration = Duration::from_secs(9);

/// A domain of so many units over such a way, by TCP and by datagrams, so many times.
fn over(test: &str, units: u32, wan: Wan, times: u16) {
    let args = [test, "--exact", "--nocapture"];
    match role() {
        Role::Outside if !polyduct_rig::wan::is_possible() => {
            eprintln!("NO NETWORK DEVICES HERE: not tested")
        }
        Role::Outside => match run_a(&args) {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&text);
                text.lines().filter(|l| l.contains(" over ")).for_each(|l| println!("{l}"));
                assert!(output.status.success(), "{text}");
            }
            Err(why) => eprintln!("NO NETWORK NAMESPACES HERE ({why}): not tested"),
        },
        Role::A => {
            let mut other = Other::start(&args, true);
            wan.open(other.mine, other.theirs, ENDS[0]);
            other.hear("open");
            for (transport, port) in domains(times) {
                let root = SocketAddr::new(ENDS[0].parse().unwrap(), port);
                let begun = Instant::now();
                talk(0, units, root, transport);
                let took = begun.elapsed();
                println!("{units} units over {wan:?} by {transport:?} after {took:.1?}");
                // Nobody waits until another is silent for too long, which has left and whose last word is
                // lost.
                assert!(transport == Transport::Tcp || took < SILENCE, "{took:?}");
                other.hear("done");
            }
        }
        Role::B => {
            let (theirs, mine) = plug_in();
            wan.open(&mine, &theirs, ENDS[1]);
            tell("open");
            for (transport, port) in domains(times) {
                let root = SocketAddr::new(ENDS[0].parse().unwrap(), port);
                std::thread::scope(|s| {
                    for unit in 1..units {
                        s.spawn(move || talk(unit, units, root, transport));
                    }
                });
                tell("done");
            }
        }
    }
}

/// What carries each domain, and the port at which its units meet.
fn domains(times: u16) -> impl Iterator<Item = (Transport, u16)> {
    (0..times).flat_map(|time| [(Transport::Tcp, 7000 + 2 * time), (Transport::Udp, 7001 + 2 * time)])
}

/// One unit: joins, and mails go to unit 0 and back.
fn talk(unit: u32, units: u32, root: SocketAddr, transport: Transport) {
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let far = |name: &str| (name == "POLYDUCT_MESSAGE_NEAR").then(|| "0".to_owned());
    let options = Options {
        network: Some(Network { transport, ..Network::new(root, key) }),
        open_timeout: PATIENCE,
        timeout: Some(PATIENCE),
        config: Config::from_sources(None, far).unwrap(),
        ..Options::new("wan", unit, units)
    };
    let failed = |what: &str, e| -> ! { panic!("unit {unit} by {transport:?}: {what}: {e}") };
    let d = Domain::join(options).unwrap_or_else(|e| failed("join", e));
    d.barrier().unwrap_or_else(|e| failed("barrier", e));
    let others = if unit == 0 { 1..units } else { 0..1 };
    for to in others.clone() {
        d.send(to, 0, [0; 2], &[unit as u8; LEN]).unwrap_or_else(|e| failed("send", e));
    }
    for from in others {
        let mail = d.recv(Some(from), None).unwrap_or_else(|e| failed("receive", e));
        assert!(mail.payload == [from as u8; LEN], "other bytes than were sent");
    }
    d.barrier().unwrap_or_else(|e| failed("barrier", e));
    d.close().unwrap_or_else(|e| failed("close", e));
}

const GOOD: Wan = Wan { delay: Duration::ZERO, lost: 0, mtu: 1500 };

#[test]
fn many_units_join_at_a_tenth_of_a_second() {
    let wan = Wan { delay: Duration::from_millis(50), ..GOOD };
    over("many_units_join_at_a_tenth_of_a_second", 20, wan, 1);
}

#[test]
fn short_packets_carry_a_domain() {
    over("short_packets_carry_a_domain", 4, Wan { mtu: 576, ..GOOD }, 1);
}

#[test]
fn a_domain_bears_the_loss_of_a_fifth() {
    let wan = Wan { delay: Duration::from_millis(5), lost: 20, ..GOOD };
    over("a_domain_bears_the_loss_of_a_fifth", 4, wan, 6);
}
