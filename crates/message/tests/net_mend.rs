//! Connections that a network breaks are made again, and nothing is lost or doubled.

mod conformance;

use bytes::Bytes;
use conformance::{head, payload, WATCHDOG};
use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::{ChannelId, MessageError, Order, Priority};
use polyduct_rig::{Middle, Random};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

type Endpoint = NetEndpoint<Vec<u8>>;

fn start(me: u32, trusted: bool) -> Endpoint {
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let mut config = NetConfig::new(me, 4, 5, key, "127.0.0.1:0".parse().unwrap(), Transport::Tcp);
    (config.trusted, config.replaces) = (trusted, false);
    NetEndpoint::start(config, |_, i| Some(vec![0; i.len.unwrap_or(i.at_least) as usize])).unwrap()
}

const MESSAGES: u32 = 400;

fn length(number: u32) -> usize {
    [0, 30, 3000, 200_000, 1 << 20][number as usize % 5]
}

/// Sends all messages to the other, and takes as many; each comes once and in its place.
fn exchange(at: &Endpoint, other: u32, done: &AtomicU32) {
    let (mut sent, mut came, mut known) = (0, 0, 0);
    let end = Instant::now() + 2 * WATCHDOG;
    while known < MESSAGES || came < MESSAGES || done.load(Ordering::SeqCst) < 2 {
        if sent < MESSAGES {
            let (priority, order) = (Priority::Low, Order::Ordered);
            let payload = Bytes::from(payload(sent, length(sent)));
            match at.send(other, ChannelId(0), Send { priority, order, head: head(0, sent), payload }) {
                Ok(_) => sent += 1,
                Err(MessageError::Full { .. }) => {}
                Err(error) => panic!("to {other}: {error}"),
            }
        }
        match at.next_event(Some(Duration::from_millis(1))).unwrap() {
            Some(NetEvent::Message { message: m, .. }) => {
                assert_eq!((m.head, m.len as usize), (head(0, came), length(came)));
                assert!(m.payload.unwrap_or_default()[..length(came)] == payload(came, length(came)));
                came += 1;
            }
            Some(NetEvent::Delivered { .. }) => known += 1,
            Some(NetEvent::Lost { error, .. }) => panic!("{other} is lost: {error}"),
            _ => {}
        }
        if known == MESSAGES && came == MESSAGES {
            // Once for each side; then both go on until the other is through.
            known += 1;
            done.fetch_add(1, Ordering::SeqCst);
        }
        assert!(Instant::now() < end, "watchdog: {sent} sent, {came} came, {known} known");
    }
}

#[test]
fn a_reset_ends_no_unit_and_loses_no_message() {
    for trusted in [true, false] {
        let (a, b) = (start(0, trusted), start(1, trusted));
        let [to_a, to_b] = [&a, &b].map(|at| Middle::new(at.local_addr()));
        a.introduce(1, to_b.addr);
        b.introduce(0, to_a.addr);
        let done = AtomicU32::new(0);
        let (mut random, mut resets) = (Random::new(7), 0);
        let end = Instant::now() + 3 * WATCHDOG;
        std::thread::scope(|scope| {
            scope.spawn(|| exchange(&a, 1, &done));
            scope.spawn(|| exchange(&b, 0, &done));
            while done.load(Ordering::SeqCst) < 2 {
                assert!(Instant::now() < end, "watchdog: a side has failed, or never ends");
                random.linger(Duration::from_millis(30));
                resets += [&to_a, &to_b].map(Middle::reset).iter().sum::<usize>();
            }
        });
        println!("trusted {trusted}: {resets} connections were reset under {MESSAGES} messages each way");
        assert!(resets > 5, "{resets}");
    }
}

#[test]
fn who_is_gone_behind_a_middle_that_still_listens_is_lost_in_time_and_for_this_reason() {
    let (a, b) = (start(0, false), start(1, false));
    let middle = Middle::new(b.local_addr());
    a.introduce(1, middle.addr);
    a.connect(1).unwrap();
    let mut begun = None;
    let mut b = Some(b);
    let end = Instant::now() + WATCHDOG;
    let error = loop {
        assert!(Instant::now() < end, "watchdog");
        match a.next_event(Some(Duration::from_millis(100))).unwrap() {
            Some(NetEvent::Connected { unit: 1, .. }) => {
                b.take();
                begun = Some(Instant::now());
            }
            Some(NetEvent::Lost { unit: 1, error }) => break error,
            _ => {}
        }
    };
    assert!(matches!(error, MessageError::PeerLost { .. }), "{error}");
    assert!(error.to_string().contains("could not be made again"), "{error}");
    assert!(begun.unwrap().elapsed() < Duration::from_secs(15), "{:?}", begun.unwrap().elapsed());
}

#[test]
fn who_leaves_while_others_write_to_it_has_left() {
    for round in 0..300 {
        let (a, b) = (start(0, true), start(1, true));
        b.introduce(0, a.local_addr());
        b.connect(0).unwrap();
        let end = Instant::now() + WATCHDOG;
        while a.connected() != [1] {
            a.next_event(Some(Duration::from_millis(1))).unwrap();
            assert!(Instant::now() < end, "watchdog");
        }
        let leaves = std::thread::spawn(move || a.close(WATCHDOG));
        let told = loop {
            let (priority, order) = (Priority::Low, Order::Ordered);
            let payload = Bytes::from(payload(1, 100));
            // Nobody takes these any more.
            let _ = b.send(0, ChannelId(0), Send { priority, order, head: head(0, 1), payload });
            match b.poll_event().unwrap() {
                Some(told @ (NetEvent::Left { .. } | NetEvent::Lost { .. })) => break told,
                _ => assert!(Instant::now() < end, "watchdog"),
            }
        };
        assert!(matches!(told, NetEvent::Left { unit: 0 }), "round {round}: {told:?}");
        leaves.join().unwrap().unwrap();
    }
}
