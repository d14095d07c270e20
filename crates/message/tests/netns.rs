//! Two hosts: network namespaces with a cable (a veth pair) between them, made by this test and gone with its
//! processes.
//!
//! Where the system does not allow it, the test says so and runs between two processes of this host, with B
//! killed in place of the cut.

use bytes::Bytes;
use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::link::net::pool::{Buffer, Pool};
use polyduct_message::{ChannelId, HandlerId, Head, MessageError, Order, Priority};
use polyduct_rig::hosts::{plug_in, tell, two_hosts, Other};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const ARGS: [&str; 3] = ["two_hosts_and_a_cable", "--exact", "--nocapture"];
const STEP: usize = 64 << 20;
const WATCHDOG: Duration = Duration::from_secs(30);
/// Every way that a link can have.
const LINKS: [(Transport, bool); 4] =
    [(Transport::Tcp, true), (Transport::Tcp, false), (Transport::Udp, true), (Transport::Udp, false)];

#[test]
fn two_hosts_and_a_cable() {
    two_hosts(&ARGS, " over ", host_a, host_b);
}

fn endpoint(me: u32, at: &str, (transport, trusted): (Transport, bool)) -> NetEndpoint<Buffer> {
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let mut config = NetConfig::new(me, 2, 5, key, format!("{at}:0").parse().unwrap(), transport);
    // All steps of a case wait at once.
    config.session.queue_bytes = 4 * STEP as u64;
    let pool = Pool::new(4 * STEP);
    let give =
        move |_, i: &polyduct_message::engine::Incoming| pool.take(i.len.unwrap_or(i.at_least) as usize);
    NetEndpoint::start(NetConfig { trusted, ..config }, give).unwrap()
}

fn event(at: &NetEndpoint<Buffer>) -> NetEvent<Buffer> {
    at.next_event(Some(WATCHDOG)).unwrap().expect("something happens within the watchdog's time")
}

fn message(args: [u32; 4], payload: Bytes) -> Send {
    let head = Head { handler: HandlerId(1), args };
    Send { priority: Priority::Low, order: Order::Ordered, head, payload }
}

fn host_a(cable: bool) {
    let mut other = Other::start(&ARGS, cable);
    let mine = other.mine;
    let addrs: Vec<SocketAddr> = other.hear("at").split(' ').map(|a| a.parse().unwrap()).collect();

    let bare = bare(addrs[0]);
    let mut hosts = Vec::new();
    for (link, addr) in LINKS.into_iter().zip(&addrs[1..]) {
        let a = endpoint(0, mine, link);
        a.introduce(1, *addr);
        a.connect(1).unwrap();
        while !matches!(event(&a), NetEvent::Connected { unit: 1, .. }) {}
        steps(&a); // Buffers that are new cost more than the way.
        let rate = steps(&a);
        let (transport, trusted) = link;
        println!(
            "64 MiB steps over {transport:?}, trusted {trusted}: {rate:.2} GB/s, {:.2} of a bare connection",
            rate / bare
        );
        hosts.push(a);
    }
    // The other host goes away without a word.
    let cut = Instant::now();
    other.cut();
    for (a, (transport, trusted)) in hosts.iter().zip(LINKS) {
        let error = loop {
            if let NetEvent::Lost { unit: 1, error } = event(a) {
                break error;
            }
        };
        let took = cut.elapsed();
        println!(
            "the end of a host is known over {transport:?}, trusted {trusted}, after {took:.1?}: {error}"
        );
        assert!(matches!(error, MessageError::PeerLost { unit: 1, .. }), "{error}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}

/// Sends steps and waits for the last one's answer.
fn steps(a: &NetEndpoint<Buffer>) -> f64 {
    let payload: Bytes = (0..STEP).map(|i| (i * 7) as u8).collect::<Vec<_>>().into();
    let (count, begun) = (4, Instant::now());
    for n in 0..count {
        a.send(1, ChannelId(0), message([n, count, 0, 0], payload.clone())).unwrap();
    }
    loop {
        match event(a) {
            NetEvent::Message { .. } => break,
            NetEvent::Lost { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    count as f64 * STEP as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn bare(addr: SocketAddr) -> f64 {
    let mut stream = TcpStream::connect(addr).unwrap();
    let (block, begun) = (vec![1; 128 << 10], Instant::now());
    (0..4 * STEP / block.len()).for_each(|_| stream.write_all(&block).unwrap());
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    4.0 * STEP as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn host_b() {
    let (_, at) = plug_in();
    let at = &at[..];
    let sink = TcpListener::bind((at, 0)).unwrap();
    let hosts: Vec<_> = LINKS.into_iter().map(|link| endpoint(1, at, link)).collect();
    let addrs: Vec<_> = hosts.iter().map(|h| h.local_addr().to_string()).collect();
    tell(&format!("at {} {}", sink.local_addr().unwrap(), addrs.join(" ")));
    std::thread::spawn(move || {
        let (mut stream, _) = sink.accept().unwrap();
        let mut block = vec![0; 128 << 10];
        while stream.read(&mut block).unwrap() > 0 {}
        stream.write_all(&[1]).unwrap();
    });
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| serve(host));
        }
    });
}

/// Checks the steps, answers the last, and goes on until the other host is lost.
fn serve(host: &NetEndpoint<Buffer>) {
    loop {
        match host.next_event(None).unwrap() {
            Some(NetEvent::Message { message: m, .. }) => {
                let [n, count, ..] = m.head.args;
                let payload = m.payload.unwrap();
                assert!(m.len as usize == STEP && payload[STEP - 1] == ((STEP - 1) * 7) as u8);
                if n + 1 == count {
                    assert!(payload.iter().enumerate().all(|(i, b)| *b == (i * 7) as u8));
                    host.send(0, ChannelId(0), message([n; 4], Bytes::new())).unwrap();
                }
            }
            Some(NetEvent::Lost { .. }) => return,
            _ => {}
        }
    }
}
