//! A unit that meets the others across hosts and ends before those of its host have found it: nobody waits for it until the
//! time to join is over.

mod units;

use bytes::Bytes;
use polyduct_message::config::Config;
use polyduct_message::domain::hosts::HostId;
use polyduct_message::domain::{system, Domain, Network};
use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::{ChannelId, Head, MessageError, Order, Priority};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use units::{free_address, options, unique};

const UNITS: u32 = 3;

/// Says where it runs, is told that all have come, and goes without a word.
fn meet_and_go(name: &str, unit: u32, host: u64, root: SocketAddr, key: JobKey) {
    let number = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let mut config = NetConfig::new(unit, UNITS, number, key, anywhere, Transport::Tcp);
    config.session.channels = 4096;
    config.session.max_payload = Config::default().bytes("message");
    let endpoint = NetEndpoint::start(config, |_, m: &polyduct_message::engine::Incoming| {
        Some(vec![0; m.len.unwrap_or(m.at_least) as usize])
    })
    .unwrap();
    endpoint.introduce(0, root);
    let introduction = (UNITS, endpoint.local_addr(), HostId::of_this_process(host));
    let payload = Bytes::from(postcard::to_stdvec(&introduction).unwrap());
    let head = Head { handler: system::MEET, args: [2, 0, 0, 0] };
    let end = Instant::now() + Duration::from_secs(20);
    let mut said = false;
    loop {
        assert!(Instant::now() < end, "not all have come");
        let (priority, order, payload) = (Priority::High, Order::Ordered, payload.clone());
        // It is connected when it is first sent to.
        said = said || endpoint.send(0, ChannelId(4095), Send { priority, order, head, payload }).is_ok();
        if let Some(NetEvent::Message { message, .. }) =
            endpoint.next_event(Some(Duration::from_millis(10))).unwrap()
        {
            assert_eq!(message.head.handler, system::MEET);
            return;
        }
    }
}

#[test]
fn who_meets_and_does_not_come_is_lost_at_once() {
    // Which unit goes, and the host of each.
    for (gone, on) in [(1, [1, 2, 2]), (2, [1, 2, 2]), (1, [1, 1, 2]), (2, [1, 2, 1]), (1, [1, 1, 1])] {
        let (name, key, root) = (unique("meet"), JobKey::fresh().unwrap(), free_address());
        std::thread::scope(|s| {
            let (name, key) = (&name, &key);
            s.spawn(move || meet_and_go(name, gone, on[gone as usize], root, key.clone()));
            let rest = (0..UNITS).filter(|&unit| unit != gone).map(|unit| {
                let mut options = options(name, unit, UNITS);
                let apart = on[unit as usize];
                options.network = Some(Network { apart, ..Network::new(root, key.clone()) });
                s.spawn(move || {
                    let begun = Instant::now();
                    // Those of other hosts have joined, and learn it there.
                    let told = Domain::join(options).and_then(|d| d.barrier());
                    (unit, told, begun.elapsed())
                })
            });
            for thread in rest.collect::<Vec<_>>() {
                let (unit, told, took) = thread.join().unwrap();
                let case = format!("unit {gone} of {on:?} goes: unit {unit} after {took:?}: {told:?}");
                assert!(matches!(told, Err(MessageError::PeerLost { unit, .. }) if unit == gone), "{case}");
                assert!(took < Duration::from_secs(10), "{case}");
            }
        });
    }
}
