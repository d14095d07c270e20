//! A link that is slower than who sends: high priority waits for what is on the wire, and not for what waits
//! to get there. Two network namespaces with a cable that carries so much and no more.

use bytes::Bytes;
use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::link::net::pool::{Buffer, Pool};
use polyduct_message::{ChannelId, HandlerId, Head, MessageError, Order, Priority};
use polyduct_rig::hosts::{plug_in, tell, two_hosts, Other};
use std::process::Command;
use std::time::{Duration, Instant};

const ARGS: [&str; 3] = ["high_priority_does_not_wait_behind_bulk", "--exact", "--nocapture"];
const WATCHDOG: Duration = Duration::from_secs(30);
const ASK: HandlerId = HandlerId(1);
const BULK: HandlerId = HandlerId(2);
const LONG: usize = 1 << 20;
const LINKS: [(Transport, bool); 3] =
    [(Transport::Tcp, true), (Transport::Tcp, false), (Transport::Udp, true)];

#[test]
fn high_priority_does_not_wait_behind_bulk() {
    two_hosts(&ARGS, "Mbit/s", host_a, host_b);
}

fn endpoint(me: u32, at: &str, (transport, trusted): (Transport, bool)) -> NetEndpoint<Buffer> {
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let config = NetConfig::new(me, 2, 5, key, format!("{at}:0").parse().unwrap(), transport);
    let pool = Pool::new(64 << 20);
    let give =
        move |_, i: &polyduct_message::engine::Incoming| pool.take(i.len.unwrap_or(i.at_least) as usize);
    NetEndpoint::start(NetConfig { trusted, ..config }, give).unwrap()
}

fn send(at: &NetEndpoint<Buffer>, to: u32, priority: Priority, handler: HandlerId, bulk: &Bytes) -> bool {
    let head = Head { handler, args: [0; 4] };
    let message = Send { priority, order: Order::Ordered, head, payload: bulk.clone() };
    match at.send(to, ChannelId(u16::from(priority == Priority::Low)), message) {
        Ok(_) => true,
        Err(MessageError::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn host_b() {
    let (_, at) = plug_in();
    let hosts: Vec<_> = LINKS.into_iter().map(|link| endpoint(1, &at, link)).collect();
    let addrs: Vec<_> = hosts.iter().map(|h| h.local_addr().to_string()).collect();
    tell(&format!("at {}", addrs.join(" ")));
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| loop {
                match host.next_event(None).unwrap() {
                    Some(NetEvent::Message { message, .. }) if message.head.handler == ASK => {
                        assert!(send(host, 0, Priority::High, ASK, &Bytes::new()));
                    }
                    _ => {}
                }
            });
        }
    });
}

/// The median of the times that an answer takes, beside bulk or not; and the bulk's megabits a second.
fn answers(a: &NetEndpoint<Buffer>, bulk: Option<&Bytes>) -> (Duration, f64) {
    let (begun, mut times, mut sent) = (Instant::now(), Vec::new(), 0_usize);
    let nothing = Bytes::new();
    let unconfirmed = || a.status(1, Priority::Low).map_or(0, |s| s.unconfirmed);
    sent += unconfirmed();
    let mut asked = None;
    // Once the bulk has filled whatever it fills.
    let settled = Duration::from_millis(if bulk.is_some() { 500 } else { 0 });
    while times.len() < 60 {
        assert!(begun.elapsed() < WATCHDOG, "watchdog: {} answers", times.len());
        if let Some(bulk) = bulk {
            while unconfirmed() < 16 && send(a, 1, Priority::Low, BULK, bulk) {
                sent += 1;
            }
        }
        if asked.is_none() && begun.elapsed() >= settled && send(a, 1, Priority::High, ASK, &nothing) {
            asked = Some(Instant::now());
        }
        match a.next_event(Some(Duration::from_millis(5))).unwrap() {
            Some(NetEvent::Message { .. }) => times.push(asked.take().unwrap().elapsed()),
            Some(NetEvent::Lost { error, .. }) => panic!("{error}"),
            _ => {}
        }
    }
    let delivered = sent - unconfirmed();
    let megabits = delivered as f64 * LONG as f64 * 8.0 / 1e6 / begun.elapsed().as_secs_f64();
    times.sort();
    (times[times.len() / 2], megabits)
}

fn host_a(cable: bool) {
    let mut other = Other::start(&ARGS, cable);
    let mine = other.mine;
    let addrs: Vec<_> = other.hear("at").split(' ').map(|a| a.parse().unwrap()).collect();
    let bulk: Bytes = vec![7; LONG].into();
    let mut slow = Vec::new();
    for (megabits, name) in [(1000, "1gbit"), (200, "200mbit")] {
        if cable {
            let shape = format!("qdisc replace dev cable root tbf rate {name} burst 128kb latency 300ms");
            let done = Command::new("tc").args(shape.split(' ')).output().unwrap();
            assert!(done.status.success(), "tc {shape}: {}", String::from_utf8_lossy(&done.stderr));
        }
        for (link, addr) in LINKS.into_iter().zip(&addrs) {
            let a = endpoint(0, mine, link);
            a.introduce(1, *addr);
            a.connect(1).unwrap();
            while !matches!(a.next_event(Some(WATCHDOG)).unwrap(), Some(NetEvent::Connected { unit: 1, .. }))
            {
            }
            answers(&a, None);
            let (idle, _) = answers(&a, None);
            // A frame of TCP on the wire; and the kernel gives a link what it carries in a millisecond, if it
            // can measure that.
            let frame = Duration::from_secs_f64((128 << 10) as f64 * 8.0 / 1e6 / f64::from(megabits));
            let bound = 2 * idle + frame + Duration::from_millis(1);
            // What else runs on this machine makes it longer, and nothing makes it shorter: some time it is
            // as it should be.
            let well = (0..10).any(|_| {
                let (busy, rate) = answers(&a, Some(&bulk));
                let (transport, trusted) = link;
                println!(
                    "{megabits} Mbit/s, {transport:?}, trusted {trusted}: an answer takes {idle:.1?}, beside bulk {busy:.1?} \
                     ({rate:.0} Mbit/s of it); a frame {frame:.1?}"
                );
                !cable || busy <= bound && rate > 0.75 * f64::from(megabits)
            });
            slow.extend((!well).then_some((link, megabits)));
        }
    }
    assert!(slow.is_empty(), "high priority waits, or bulk is slow: {slow:?}");
}
