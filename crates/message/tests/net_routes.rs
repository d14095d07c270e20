//! Routes that do not carry what they are given: each test in a network namespace of its own.

use bytes::Bytes;
use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::{ChannelId, HandlerId, Head, MessageError, Order, Priority};
use polyduct_rig::hosts::{role, run_a, Role};
use std::process::Command;
use std::time::{Duration, Instant};

type Endpoint = NetEndpoint<Vec<u8>>;

const WATCHDOG: Duration = Duration::from_secs(20);

/// Runs `body` in a network namespace where these commands were carried out; where the system allows none,
/// the test says so.
fn on_a_host(test: &str, commands: &[&str], body: impl FnOnce()) {
    if role() == Role::Outside {
        match run_a(&[test, "--exact", "--nocapture"]) {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
            }
            Err(why) => eprintln!("NO NETWORK NAMESPACES HERE ({why}): not tested"),
        }
        return;
    }
    for command in commands {
        let done = Command::new("ip").args(command.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {command}: {}", String::from_utf8_lossy(&done.stderr));
    }
    body();
}

fn endpoint(me: u32, at: &str, trusted: bool) -> Endpoint {
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let mut config = NetConfig::new(me, 9, 5, key, format!("{at}:0").parse().unwrap(), Transport::Udp);
    config.trusted = trusted;
    config.session.silence = Duration::from_millis(700);
    NetEndpoint::start(config, |_, incoming| Some(vec![0; incoming.at_least as usize])).unwrap()
}

fn message(number: u32, payload: Bytes) -> Send {
    let head = Head { handler: HandlerId(1), args: [number; 4] };
    Send { priority: Priority::Low, order: Order::Ordered, head, payload }
}

/// Sends messages from `a` to unit 1, each when the one before has come to `b`.
fn exchange(a: &Endpoint, b: &Endpoint, payload: &Bytes, mut more: impl FnMut(u32) -> bool) {
    let (end, mut number) = (Instant::now() + WATCHDOG, 0);
    while more(number) {
        match a.send(1, ChannelId(0), message(number, payload.clone())) {
            Ok(_) => {}
            Err(MessageError::Full { .. }) => {
                drop(a.next_event(Some(Duration::from_millis(1))).unwrap());
                continue;
            }
            Err(error) => panic!("message {number}: {error}"),
        }
        loop {
            assert!(Instant::now() < end, "message {number} has not come");
            match b.next_event(Some(Duration::from_millis(10))).unwrap() {
                Some(NetEvent::Message { message: m, .. }) => {
                    assert_eq!((m.head.args[0], m.len as usize), (number, payload.len()));
                    assert!(m.payload.unwrap_or_default()[..payload.len()] == payload[..]);
                    break;
                }
                Some(NetEvent::Lost { error, .. }) => panic!("message {number}: {error}"),
                _ => {}
            }
        }
        while let Some(event) = a.next_event(Some(Duration::ZERO)).unwrap() {
            assert!(!matches!(event, NetEvent::Lost { .. }), "message {number}: {event:?}");
        }
        number += 1;
    }
    assert!(number > 0, "nothing has come");
}

#[test]
fn a_route_that_refuses_datagrams_is_of_no_matter_to_others() {
    let routes = [
        "link set lo up",
        "route add prohibit 10.9.2.0/24",
        "route add unreachable 10.9.3.0/24",
        "route add blackhole 10.9.4.0/24",
        "route add throw 10.9.5.0/24",
    ];
    on_a_host("a_route_that_refuses_datagrams_is_of_no_matter_to_others", &routes, || {
        let (a, b) = (endpoint(0, "0.0.0.0", false), endpoint(1, "127.0.0.1", false));
        a.introduce(1, b.local_addr());
        for unit in 2..=5 {
            a.introduce(unit, format!("10.9.{unit}.1:9").parse().unwrap());
        }
        // A broadcast address, which a socket has to ask for.
        a.introduce(6, "127.255.255.255:9".parse().unwrap());
        let begun = Instant::now();
        exchange(&a, &b, &Bytes::from_static(&[7; 3000]), |_| {
            (2..=6).for_each(|unit| a.connect(unit).unwrap());
            begun.elapsed() < Duration::from_secs(2)
        });
    });
}

#[test]
fn a_path_for_short_datagrams_carries_all() {
    let short = ["link set lo up", "link set lo mtu 576", "addr add 10.5.0.1/32 dev lo"];
    on_a_host("a_path_for_short_datagrams_carries_all", &short, || {
        let payload: Bytes = (0..1 << 20).map(|i| (i * 7) as u8).collect::<Vec<_>>().into();
        for (at, trusted) in [("127.0.0.1", true), ("10.5.0.1", true), ("10.5.0.1", false)] {
            let (a, b) = (endpoint(0, at, trusted), endpoint(1, at, trusted));
            a.introduce(1, b.local_addr());
            let begun = Instant::now();
            exchange(&a, &b, &payload, |number| number < 8);
            println!("8 MiB by way of {at} after {:?}", begun.elapsed());
        }
    });
}
