//! Every system call of a domain fails once, each in a run of its own; see [`polyduct_rig::faults`].

use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::{MessageError, Priority};
use polyduct_rig::faults::{self, PATIENCE};
use polyduct_rig::free_address;
use polyduct_rig::inject::{self, InjectedFault};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Longer than what goes in one piece, and than what the receiver fetches itself from.
const LONG: usize = 700_000;
const REGION: usize = 300_000;

fn main() {
    let cases = [
        ("shm", InjectedFault::Error),
        ("shm", InjectedFault::Interrupted),
        ("tcp", InjectedFault::Error),
        ("tcp", InjectedFault::Interrupted),
        ("tcp", InjectedFault::Short),
        ("udp", InjectedFault::Error),
        ("udp", InjectedFault::Interrupted),
    ];
    faults::main(&cases, child);
}

fn child(kind: &str) -> Vec<String> {
    let name = format!("test-faults-{}", std::process::id());
    let free = free_address();
    let key = JobKey::fresh().unwrap();
    let network = |unit: u32| {
        let transport = if kind == "udp" { Transport::Udp } else { Transport::Tcp };
        let listen = if unit == 0 { free } else { SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        let rest = Network::new(free, key.clone());
        (kind != "shm").then(|| Network { transport, listen: Some(listen), apart: unit.into(), ..rest })
    };
    inject::begin();
    faults::units(2, |unit| {
        let (timeout, open_timeout) = (Some(PATIENCE), PATIENCE);
        talk(Options { timeout, open_timeout, network: network(unit), ..Options::new(&name, unit, 2) })
    })
}

/// What this process's system refused can be asked for once more, and goes on where it was.
fn again(mut ask: impl FnMut() -> Result<(), MessageError>) -> Result<(), MessageError> {
    match ask() {
        Err(MessageError::System(_)) => ask(),
        done => done,
    }
}

/// A unit that talks to the other in every way there is. What comes is right, or does not come.
fn talk(options: Options) -> Result<(), MessageError> {
    let (me, peer) = (options.unit, 1 - options.unit);
    let long = |unit: u32| vec![unit as u8 + 3; LONG];
    let lent;
    let d = Domain::join(options)?;
    let heard = Arc::new(AtomicU32::new(0));
    d.handler("hear", 1, {
        let (heard, right) = (heard.clone(), long(peer));
        move |_, m| {
            assert!(m.payload.is_empty() || m.payload == right, "wrong bytes");
            assert_eq!(m.args[0], heard.fetch_add(1, Ordering::Relaxed), "lost, doubled or out of order");
        }
    })?;
    d.function("echo", 1, |_, x| Ok(x.to_vec()))?;
    d.region(1, REGION)?;
    lent = d.lend(2, long(me))?;
    again(|| d.synchronise())?;

    let hear = d.lookup("hear", peer)?;
    let mut channel = d.channel(peer, Priority::Low)?;
    channel.bulk(hear, [0; 4], &[])?;
    channel.bulk(hear, [1, 0, 0, 0], &long(me))?;
    channel.flush()?;
    d.send(peer, 5, [1, 2], &long(me))?;
    let mail = d.recv(Some(peer), Some(5))?;
    assert!((mail.words, &mail.payload) == ([1, 2], &long(peer)), "wrong mail");
    let answer = d.call(peer, "echo", &long(me), None)?.wait()?;
    assert!(answer == long(me), "a wrong answer");
    d.put(peer, 1, 0, &[me as u8 + 9; REGION])?;
    let mut copy = vec![0; LONG];
    d.get(peer, 2, 0, &mut copy)?;
    assert!(copy == long(peer), "got wrong bytes");
    again(|| d.barrier())?;
    d.get(me, 1, 0, &mut copy[..REGION])?;
    assert!(copy[..REGION] == [peer as u8 + 9; REGION], "wrong bytes were put");
    assert_eq!(heard.load(Ordering::Relaxed), 2);
    d.barrier()?;
    let _ = d.leave();
    drop(lent);
    Ok(())
}
