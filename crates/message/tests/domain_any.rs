//! Channels of both orders between units on a network that loses datagrams.

mod shim;

use polyduct_message::domain::{ChannelOptions, Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::Order;
use polyduct_rig::free_address;
use shim::{Shim, Weather};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WATCHDOG: Duration = Duration::from_secs(30);
const MESSAGES: u32 = 400;
/// One fills most of a datagram between units of one host.
const BYTES: usize = 12_000;

/// The numbers of the messages that unit 1 sends to unit 0 on a channel of this order, as they come.
fn across_loss(order: Order) -> Vec<u32> {
    let root = free_address();
    let shim = Shim::new(root, Weather { lost: 10, doubled: 0, late: 0, changed: 0 }, 3);
    let (key, name) = (JobKey::fresh().unwrap(), format!("test-any-{}-{order:?}", std::process::id()));
    let join = |unit: u32| {
        // Unit 1 knows unit 0 by the address of the network between them.
        let known = if unit == 0 { root } else { shim.addr() };
        let listen = if unit == 0 { root } else { SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        let network = Network {
            transport: Transport::Udp,
            trusted: true,
            listen: Some(listen),
            apart: unit.into(),
            ..Network::new(known, key.clone())
        };
        let options = Options {
            open_timeout: WATCHDOG,
            timeout: Some(WATCHDOG),
            network: Some(network),
            ..Options::new(&name, unit, 2)
        };
        Domain::join(options).unwrap()
    };
    let came = Arc::new(Mutex::new(Vec::new()));
    let run = |unit: u32| {
        let d = join(unit);
        let seen = came.clone();
        d.handler("number", 1, move |_, m| {
            assert!(m.payload == [m.args[0] as u8; BYTES], "wrong bytes");
            seen.lock().unwrap().push(m.args[0]);
        })
        .unwrap();
        d.synchronise().unwrap();
        if unit == 1 {
            let number = d.lookup("number", 0).unwrap();
            let mut channel = d.channel_with(0, ChannelOptions { order, ..Default::default() }).unwrap();
            for n in 0..MESSAGES {
                channel.bulk(number, [n, 0, 0, 0], &[n as u8; BYTES]).unwrap();
            }
            channel.flush().unwrap();
            assert_eq!(came.lock().unwrap().len() as u32, MESSAGES, "flushed too soon");
        }
        d.barrier().unwrap();
    };
    std::thread::scope(|s| {
        let run = &run;
        let units = [0, 1].map(|unit| s.spawn(move || run(unit)));
        units.into_iter().for_each(|unit| unit.join().unwrap());
    });
    assert!(shim.counts().1 > 0, "nothing was lost");
    let came = came.lock().unwrap();
    came.clone()
}

#[test]
fn a_lost_message_holds_up_those_after_it_only_where_order_is_asked_for() {
    let all: Vec<u32> = (0..MESSAGES).collect();
    assert!(across_loss(Order::Ordered) == all, "out of order");
    let mut any = across_loss(Order::Any);
    assert!(any != all, "none overtook a lost one");
    any.sort_unstable();
    assert!(any == all, "each comes once");
}
