//! Endpoints on real sockets of this machine: the suite for all links, deaths, and lossy networks in between.

mod conformance;
mod shim;

use bytes::Bytes;
use conformance::{head, payload, suite, Came, Counts, Happened, Pair, Sent, Setup, Side, WATCHDOG};
use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::link::net::LinkFault;
use polyduct_message::{ChannelId, Head, LinkError, MessageError, Order, Priority};
use shim::{Shim, Weather};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Endpoint = NetEndpoint<Vec<u8>>;

const MODES: [(Transport, bool); 4] =
    [(Transport::Tcp, true), (Transport::Tcp, false), (Transport::Udp, true), (Transport::Udp, false)];

fn config(me: u32, transport: Transport, trusted: bool) -> NetConfig {
    let key = JobKey::from_bytes([7; 32]).unwrap();
    NetConfig { trusted, ..NetConfig::new(me, 4, 5, key, "127.0.0.1:0".parse().unwrap(), transport) }
}

fn start(config: NetConfig) -> Endpoint {
    NetEndpoint::start(config, |_, incoming| Some(vec![0; incoming.at_least as usize])).unwrap()
}

/// The first event that `found` takes; what comes before is dropped.
fn wait<T>(at: &Endpoint, mut found: impl FnMut(NetEvent<Vec<u8>>) -> Option<T>) -> T {
    let end = Instant::now() + WATCHDOG;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let event = at.next_event(Some(left)).unwrap().expect("nothing more within the watchdog's time");
        if let Some(found) = found(event) {
            return found;
        }
    }
}

fn wait_connected(at: &Endpoint, other: u32) {
    wait(at, |event| match event {
        NetEvent::Connected { unit, .. } => (unit == other).then_some(()),
        NetEvent::Message { .. } => panic!("nothing was sent yet"),
        _ => None,
    });
}

/// Two units that know each other.
fn connected(transport: Transport, trusted: bool) -> (Endpoint, Endpoint) {
    let (a, b) = (start(config(0, transport, trusted)), start(config(1, transport, trusted)));
    a.introduce(1, b.local_addr());
    a.connect(1).unwrap();
    wait_connected(&a, 1);
    wait_connected(&b, 0);
    (a, b)
}

fn message(number: u32, payload: impl Into<Bytes>) -> Send {
    let (priority, order, payload) = (Priority::Low, Order::Ordered, payload.into());
    Send { priority, order, head: head(0, number), payload }
}

/// Sends as soon as there is room.
fn send(from: &Endpoint, to: u32, number: u32, bytes: impl Into<Bytes> + Clone) {
    let end = Instant::now() + WATCHDOG;
    loop {
        match from.send(to, ChannelId(0), message(number, bytes.clone())) {
            Ok(_) => return,
            Err(MessageError::Full { .. }) => drop(from.next_event(Some(Duration::from_millis(5))).unwrap()),
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < end, "watchdog");
    }
}

fn receive(at: &Endpoint) -> (u32, Head, Vec<u8>) {
    wait(at, |event| match event {
        NetEvent::Message { from, message } => {
            let mut payload = message.payload.unwrap_or_default();
            payload.truncate(message.len as usize);
            Some((from, message.head, payload))
        }
        NetEvent::Lost { unit, error } => panic!("unit {unit} lost: {error}"),
        _ => None,
    })
}

// -- the suite --

/// The suite sends a crowd of messages and then looks who comes first. The endpoints' own threads would have
/// carried the first ones away by then, so the receivers are held up, by buffers that they do not give, until
/// the suite takes something.
struct Net {
    held: Arc<AtomicBool>,
    sides: [Option<Endpoint>; 2],
    buffers: [Option<Arc<AtomicUsize>>; 2],
    seen: [VecDeque<Happened>; 2],
    dead: [bool; 2],
}

impl Net {
    fn new(setup: Setup, transport: Transport, trusted: bool) -> Net {
        let held = Arc::new(AtomicBool::new(false));
        let buffers = [0, 1].map(|_| setup.buffers.map(|n| Arc::new(AtomicUsize::new(n))));
        let [a, b] = [0, 1].map(|me| {
            let mut config = config(me, transport, trusted);
            config.session.queue_per_stream = setup.queue;
            config.session.queue_per_priority = setup.queue;
            let (free, held) = (buffers[me as usize].clone(), held.clone());
            let give = move |_: u32, incoming: &polyduct_message::engine::Incoming| {
                let taken = !held.load(Ordering::SeqCst)
                    && free.as_ref().is_none_or(|free| {
                        free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
                    });
                taken.then(|| vec![0; incoming.len.unwrap_or(incoming.at_least) as usize])
            };
            NetEndpoint::start(config, give).unwrap()
        });
        a.introduce(1, b.local_addr());
        a.connect(1).unwrap();
        wait_connected(&a, 1);
        wait_connected(&b, 0);
        Net { held, sides: [Some(a), Some(b)], buffers, seen: Default::default(), dead: [false; 2] }
    }

    fn go(&self) {
        if self.held.swap(false, Ordering::SeqCst) {
            self.sides.iter().flatten().for_each(|side| side.retry_refused().unwrap());
        }
    }

    fn side(&self, side: Side) -> &Endpoint {
        self.sides[side as usize].as_ref().expect("alive")
    }
}

impl Pair for Net {
    // The endpoints' threads do not wait for `next`, and the kernel's buffers hold some.
    fn taken_meanwhile(&self) -> usize {
        6
    }

    fn send(
        &mut self,
        from: Side,
        channel: ChannelId,
        priority: Priority,
        order: Order,
        head: Head,
        payload: Vec<u8>,
    ) -> Sent {
        let message = Send { priority, order, head, payload: payload.into() };
        self.held.store(true, Ordering::SeqCst);
        match self.side(from).send(from.other() as u32, channel, message) {
            Ok(token) => Sent::Taken(token),
            Err(MessageError::Full { .. }) => Sent::Full,
            Err(MessageError::PeerLost { .. }) => Sent::Lost,
            Err(error) => panic!("{error}"),
        }
    }

    fn next(&mut self, at: Side, within: Duration) -> Option<Happened> {
        self.go();
        let end = Instant::now() + within;
        loop {
            if let Some(seen) = self.seen[at as usize].pop_front() {
                return Some(seen);
            }
            let left = end.saturating_duration_since(Instant::now());
            return Some(match self.side(at).next_event(Some(left)).unwrap()? {
                NetEvent::Message { message: m, .. } => {
                    let mut payload = m.payload.unwrap_or_default();
                    payload.truncate(m.len as usize);
                    let (channel, priority, head) = (m.channel, m.priority, m.head);
                    Happened::Message(Came { channel, priority, head, payload })
                }
                NetEvent::Delivered { token, .. } => Happened::Delivered(token),
                NetEvent::Refused { .. } => Happened::Refused,
                NetEvent::Lost { .. } => Happened::Lost,
                _ => continue,
            });
        }
    }

    fn settle(&mut self, time: Duration) {
        self.go();
        // The endpoints' threads work by themselves: wait until what can arrive has arrived.
        let end = Instant::now() + time;
        let counts = |net: &Net| {
            [Side::A, Side::B].map(|side| {
                let at = net.side(side);
                [Priority::Low, Priority::High].map(|p| at.status(side.other() as u32, p))
            })
        };
        let (mut last, mut same_since) = (counts(self), Instant::now());
        while Instant::now() < end && same_since.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
            let now = counts(self);
            if now != last {
                (last, same_since) = (now, Instant::now());
            }
        }
    }

    fn release(&mut self, at: Side) {
        if let Some(free) = &self.buffers[at as usize] {
            free.fetch_add(1, Ordering::SeqCst);
            self.side(at).retry_refused().unwrap();
        }
    }

    fn status(&mut self, at: Side, priority: Priority) -> Counts {
        let status = self.side(at).status(at.other() as u32, priority).expect("connected");
        Counts { waiting: status.waiting, sends: status.sends }
    }

    fn kill(&mut self, side: Side) {
        self.sides[side as usize] = None;
        self.dead[side as usize] = true;
    }
}

#[test]
fn tcp_conforms_when_trusted() {
    suite(&|setup| Box::new(Net::new(setup, Transport::Tcp, true)));
}

#[test]
fn tcp_conforms_when_encrypted() {
    suite(&|setup| Box::new(Net::new(setup, Transport::Tcp, false)));
}

#[test]
fn udp_conforms_when_trusted() {
    suite(&|setup| Box::new(Net::new(setup, Transport::Udp, true)));
}

#[test]
fn udp_conforms_when_encrypted() {
    suite(&|setup| Box::new(Net::new(setup, Transport::Udp, false)));
}

// -- connections --

#[test]
fn both_may_begin_at_once_and_nothing_is_lost_or_doubled() {
    for (transport, trusted) in MODES {
        for _ in 0..10 {
            let (a, b) = (start(config(0, transport, trusted)), start(config(1, transport, trusted)));
            a.introduce(1, b.local_addr());
            b.introduce(0, a.local_addr());
            // Each sends fifty, and takes what comes meanwhile.
            let exchange = |at: &Endpoint, other: u32| {
                let (mut sent, mut came, mut known) = (0, 0, 0);
                let end = Instant::now() + WATCHDOG;
                while sent < 50 || came < 50 || known < 50 {
                    if sent < 50 {
                        match at.send(other, ChannelId(0), message(sent, payload(sent, 3000))) {
                            Ok(_) => sent += 1,
                            Err(MessageError::Full { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    match at.next_event(Some(Duration::from_millis(1))).unwrap() {
                        Some(NetEvent::Message { message: m, .. }) => {
                            assert_eq!(m.head, head(0, came));
                            assert!(m.payload.unwrap()[..3000] == payload(came, 3000));
                            came += 1;
                        }
                        Some(NetEvent::Delivered { .. }) => known += 1,
                        Some(NetEvent::Lost { error, .. }) => panic!("{error}"),
                        _ => {}
                    }
                    assert!(Instant::now() < end, "watchdog: {sent} sent, {came} came, {known} known");
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| exchange(&a, 1));
                scope.spawn(|| exchange(&b, 0));
            });
        }
    }
}

#[test]
fn a_unit_is_connected_when_first_used_and_leaves_in_order() {
    for (transport, trusted) in MODES {
        let (a, b) = (start(config(0, transport, trusted)), start(config(1, transport, trusted)));
        a.introduce(1, b.local_addr());
        assert!(a.connected().is_empty());
        let first = a.send(1, ChannelId(0), message(0, "early"));
        assert_eq!(first, Err(MessageError::Full { to: 1 }), "not connected: nothing was taken");
        send(&a, 1, 1, "hello");
        let receiver = std::thread::spawn(move || {
            assert_eq!(receive(&b), (0, head(0, 1), b"hello".to_vec()));
            let left = wait(&b, |e| match e {
                NetEvent::Left { unit } => Some(unit),
                NetEvent::Lost { unit, error } => panic!("unit {unit} lost: {error}"),
                _ => None,
            });
            assert_eq!(left, 0);
            assert_eq!(b.send(0, ChannelId(0), message(0, "late")), Err(MessageError::PeerLeft { unit: 0 }));
            // Nothing more is heard of it.
            while let Some(event) = b.next_event(Some(Duration::from_millis(50))).unwrap() {
                assert!(matches!(event, NetEvent::Closed { unit: 0 }), "{event:?}");
            }
        });
        a.close(WATCHDOG).unwrap();
        receiver.join().unwrap();
    }
}

#[test]
fn who_is_not_there_is_unreachable_and_others_are_not_disturbed() {
    let (a, b) = connected(Transport::Tcp, true);
    let nobody = start(config(2, Transport::Tcp, true)).local_addr();
    a.introduce(2, nobody);
    a.connect(2).unwrap();
    let fault = wait(&a, |e| match e {
        NetEvent::Unreachable { unit: 2, fault } => Some(fault),
        _ => None,
    });
    assert_eq!(fault, LinkFault::System(polyduct_os::OsError::NotListening { name: nobody.to_string() }));
    assert_eq!(a.connect(3), Err(MessageError::NoUnit { to: 3, units: 4 }), "nobody said where it is");
    assert_eq!(a.connect(4), Err(MessageError::NoUnit { to: 4, units: 4 }));
    send(&a, 1, 7, "still there");
    assert_eq!(receive(&b).2, b"still there");
}

#[test]
fn sides_that_do_not_agree_learn_why_over_both_transports() {
    for (transport, trusted) in MODES {
        let good = start(config(1, transport, trusted));
        let told = |other: NetConfig| {
            let timeout = Duration::from_millis(300);
            let other = start(NetConfig { connect_timeout: timeout, ..other });
            other.introduce(1, good.local_addr());
            other.connect(1).unwrap();
            wait(&other, |e| match e {
                NetEvent::Unreachable { unit: 1, fault } => Some(fault),
                NetEvent::Connected { .. } => panic!("connected"),
                _ => None,
            })
        };
        let base = || config(0, transport, trusted);
        let key = JobKey::from_bytes([8; 32]).unwrap();
        assert_eq!(told(NetConfig { key, ..base() }), LinkError::Unauthentic.into());
        assert_eq!(told(NetConfig { domain: 6, ..base() }), LinkError::WrongDomain.into());
        let other = NetConfig { trusted: !trusted, ..base() };
        assert_eq!(told(other), LinkError::Trust { mine: !trusted }.into());
        let mut settings = base();
        settings.session.channels = 7;
        assert!(matches!(told(settings), LinkFault::Peer(LinkError::BadField { .. })));
    }
}

#[test]
fn a_replacement_may_come_where_a_unit_was_lost() {
    for (transport, trusted) in MODES {
        let (a, b) = connected(transport, trusted);
        drop(b);
        let error = wait(&a, |e| match e {
            NetEvent::Lost { unit: 1, error } => Some(error),
            _ => None,
        });
        assert!(matches!(error, MessageError::PeerLost { unit: 1, .. }), "{error}");
        assert_eq!(a.send(1, ChannelId(0), message(0, "")).unwrap_err(), error);
        let b = start(config(1, transport, trusted));
        b.introduce(0, a.local_addr());
        send(&b, 0, 3, "I am new");
        assert_eq!(receive(&a), (1, head(0, 3), b"I am new".to_vec()));
        send(&a, 1, 4, "welcome");
        assert_eq!(receive(&b).2, b"welcome");
    }
}

#[test]
fn a_unit_that_is_connected_keeps_its_place_where_none_is_replaced() {
    for (transport, trusted) in MODES {
        let keep = |me| NetConfig { replaces: false, ..config(me, transport, trusted) };
        let a = start(keep(0));
        let b = start(keep(1));
        b.introduce(0, a.local_addr());
        send(&b, 0, 1, "first");
        assert_eq!(receive(&a).2, b"first");
        let timeout = Duration::from_millis(300);
        let second = start(NetConfig { connect_timeout: timeout, ..keep(1) });
        second.introduce(0, a.local_addr());
        second.connect(0).unwrap();
        let fault = wait(&second, |e| match e {
            NetEvent::Unreachable { unit: 0, fault } => Some(fault),
            NetEvent::Connected { .. } => panic!("connected"),
            _ => None,
        });
        assert_eq!(fault, LinkError::Taken { unit: 1 }.into());
        send(&b, 0, 2, "still there");
        assert_eq!(receive(&a).2, b"still there");
        send(&a, 1, 3, "and heard");
        assert_eq!(receive(&b).2, b"and heard");
        // A unit that has left makes room.
        b.close(WATCHDOG).unwrap();
        wait(&a, |e| matches!(e, NetEvent::Left { unit: 1 }).then_some(()));
        send(&second, 0, 4, "now I am it");
        assert_eq!(receive(&a).2, b"now I am it");
    }
}

#[test]
fn a_process_that_is_killed_is_named_to_all_survivors_at_once() {
    const CHILD: &str = "POLYDUCT_TEST_VICTIM";
    let name = "a_process_that_is_killed_is_named_to_all_survivors_at_once";
    if let Some(hubs) = std::env::var_os(CHILD) {
        let (transport, addrs) = hubs.to_str().unwrap().split_once(' ').unwrap();
        let transport = if transport == "tcp" { Transport::Tcp } else { Transport::Udp };
        let victim = start(config(3, transport, true));
        for (unit, addr) in addrs.split(' ').enumerate() {
            victim.introduce(unit as u32, addr.parse().unwrap());
            send(&victim, unit as u32, 1, "hello");
        }
        loop {
            victim.next_event(None).unwrap();
        }
    }
    for (transport, text, limit) in
        [(Transport::Tcp, "tcp", Duration::from_millis(100)), (Transport::Udp, "udp", Duration::from_secs(3))]
    {
        let survivors: Vec<_> = (0..3).map(|me| start(config(me, transport, true))).collect();
        let addrs: Vec<_> = survivors.iter().map(|s| s.local_addr().to_string()).collect();
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, format!("{text} {}", addrs.join(" ")))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        for survivor in &survivors {
            assert_eq!(receive(survivor).0, 3);
        }
        let killed = Instant::now();
        victim.kill().unwrap();
        let errors: Vec<_> = survivors
            .iter()
            .map(|survivor| {
                wait(survivor, |e| match e {
                    NetEvent::Lost { unit: 3, error } => Some(error),
                    _ => None,
                })
            })
            .collect();
        let took = killed.elapsed();
        println!("{text}: three survivors know after {took:?}: {}", errors[0]);
        assert!(errors.iter().all(|e| matches!(e, MessageError::PeerLost { unit: 3, .. })));
        assert!(took < limit, "{took:?}");
        victim.wait().unwrap();
    }
}

// -- bad networks --

#[test]
fn datagrams_are_lost_doubled_reordered_and_changed_and_all_arrives_once_in_order() {
    for trusted in [true, false] {
        for percent in [0, 1, 5, 10, 30] {
            let weather = Weather { lost: percent, doubled: percent, late: percent, changed: percent };
            let b = start(config(1, Transport::Udp, trusted));
            let shim = Shim::new(b.local_addr(), weather, 1 + u64::from(percent));
            let a = start(config(0, Transport::Udp, trusted));
            a.introduce(1, shim.addr());
            let count = 120;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..count)
                        .for_each(|n| send(&a, 1, n, payload(n, [0, 100, 9000, 70_000][n as usize % 4])));
                    // What was taken is delivered while somebody drives; the thread of the endpoint does.
                });
                for n in 0..count {
                    let (from, came, bytes) = receive(&b);
                    assert_eq!((from, came), (0, head(0, n)), "{percent} %");
                    assert!(
                        bytes == payload(n, [0, 100, 9000, 70_000][n as usize % 4]),
                        "{percent} %: wrong bytes"
                    );
                }
            });
            println!("trusted {trusted}, {percent} %: {:?}", shim.counts());
        }
    }
}

#[test]
fn without_offload_datagrams_go_in_batches_too() {
    let [mut one, mut two] = [0, 1].map(|me| config(me, Transport::Udp, true));
    (one.offload, two.offload) = (false, false);
    let (a, b) = (start(one), start(two));
    a.introduce(1, b.local_addr());
    std::thread::scope(|scope| {
        scope.spawn(|| (0..40).for_each(|n| send(&a, 1, n, payload(n, 50_000))));
        for n in 0..40 {
            assert!(receive(&b).2 == payload(n, 50_000));
        }
    });
}
