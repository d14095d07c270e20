//! Goodput over paths that lose frames, in simulation, as figures to be reviewed when they change.

use bytes::Bytes;
use polyduct_message::engine::{Config, Event, Send};
use polyduct_message::link::sim::{Faults, Happening, LinkSpeed, Net, Pool, Random, Topology, World};
use polyduct_message::{ChannelId, HandlerId, Head, Order, Priority};
use std::time::Duration;

/// Sends `total` bytes in messages of 256 KiB and returns bytes per second of virtual time, counting until
/// the last arrives.
fn goodput(speed: LinkSpeed, faults: Faults, max_frame: usize, total: usize) -> f64 {
    let mut net = Net::new(Topology::Switch, 2, speed);
    net.faults = faults;
    let pools = vec![Pool::new(10_000), Pool::new(10_000)];
    let mut world = World::new(net, pools, Random::new(7));
    let config = Config::datagram();
    world.connect(0, 1, &config, &[(0, max_frame)]);
    let payload = Bytes::from((0..256usize << 10).map(|i| (i * 31) as u8).collect::<Vec<_>>());
    let count = (total / payload.len()) as u32;
    for number in 0..count {
        let message = Send {
            priority: Priority::Low,
            order: Order::Ordered,
            head: Head { handler: HandlerId(1), args: [number, 0, 0, 0] },
            payload: payload.clone(),
        };
        let sent = world.with(0, 1, |session, now| session.send(now, ChannelId(0), message));
        assert!(matches!(sent, Some(Ok(_))), "{sent:?}");
    }
    let mut next = 0;
    while next < count {
        match world.next(Duration::from_secs(600)) {
            Some(Happening::Event { at: 1, event: Event::Message(message), .. }) => {
                assert_eq!(message.head.args[0], next, "in order");
                assert!(message.payload.is_some_and(|b| b.bytes() == payload));
                next += 1;
            }
            Some(Happening::Violation(what)) => panic!("{what}"),
            Some(_) => {}
            None => panic!("{next} of {count} messages after ten minutes"),
        }
    }
    (count as usize * payload.len()) as f64 / world.now.as_secs_f64()
}

fn fast() -> LinkSpeed {
    LinkSpeed { bandwidth: 1e8, latency: Duration::from_micros(250), queue: 500_000 }
}

fn far() -> LinkSpeed {
    LinkSpeed { bandwidth: 2e7, latency: Duration::from_millis(10), queue: 1_000_000 }
}

#[test]
fn loss_costs_little_more_than_what_is_lost() {
    for (name, speed, total) in [("1 ms round trip", fast(), 16 << 20), ("40 ms round trip", far(), 16 << 20)]
    {
        let lossless = goodput(speed, Faults::default(), 1400, total);
        println!("{name}: {:.1} MB/s of {:.1} without loss", lossless / 1e6, speed.bandwidth / 1e6);
        assert!(lossless > 0.6 * speed.bandwidth, "{name}: {lossless:.0} bytes/s without loss");
        for (loss, at_least) in [(0.01, 0.8), (0.05, 0.6), (0.1, 0.5), (0.3, 0.2)] {
            let rate = goodput(speed, Faults { loss, ..Faults::default() }, 1400, total);
            println!("{name}: {:.2} of that at {:.0} % loss", rate / lossless, loss * 100.0);
            assert!(rate > at_least * lossless, "{name}: {:.2} at loss {loss}", rate / lossless);
        }
    }
}

#[test]
fn reordering_and_duplicates_do_not_stop_it() {
    let faults = Faults { reorder: 0.2, duplicate: 0.1, ..Faults::default() };
    let clean = goodput(fast(), Faults::default(), 1400, 8 << 20);
    let rate = goodput(fast(), faults, 1400, 8 << 20);
    println!("{:.2} of {:.1} MB/s with 20 % late and 10 % twice", rate / clean, clean / 1e6);
    assert!(rate > 0.5 * clean);
}

/// A short queue is real congestion: the sender must find the rate that the link carries instead of pushing
/// more and more into it.
#[test]
fn congestion_is_yielded_to() {
    let speed = LinkSpeed { queue: 30_000, ..fast() };
    let mut net = Net::new(Topology::Switch, 3, speed);
    net.faults = Faults::default();
    let mut world = World::new(net, vec![Pool::new(10_000); 3], Random::new(3));
    let config = Config::datagram();
    for from in [0, 1] {
        world.connect(from, 2, &config, &[(0, 1400)]);
        let payload = Bytes::from(vec![from as u8; 8 << 20]);
        let head = Head { handler: HandlerId(1), args: [0; 4] };
        let message = Send { priority: Priority::Low, order: Order::Ordered, head, payload };
        let sent = world.with(from, 2, |session, now| session.send(now, ChannelId(0), message));
        assert!(matches!(sent, Some(Ok(_))), "{sent:?}");
    }
    let mut done = 0;
    while done < 2 {
        match world.next(Duration::from_secs(60)) {
            Some(Happening::Event { at: 2, event: Event::Message(_), .. }) => done += 1,
            Some(Happening::Violation(what)) => panic!("{what}"),
            Some(_) => {}
            None => panic!("not done after a minute"),
        }
    }
    let frames = (16 << 20) / 1300;
    let share = world.net.overflows as f64 / world.frames as f64;
    let rate = (16u64 << 20) as f64 / world.now.as_secs_f64();
    println!(
        "two senders into one link: {:.1} MB/s of {:.1}, {:.1} % of {} frames dropped ({frames} needed)",
        rate / 1e6,
        speed.bandwidth / 1e6,
        share * 100.0,
        world.frames
    );
    assert!(rate > 0.5 * speed.bandwidth, "{rate}");
    assert!(share < 0.2, "{share} of all frames were dropped by full queues");
}

/// What a path was seen to carry while little was sent is what its user sent, and no reason to hold the next
/// message back.
#[test]
fn the_first_long_message_behind_little_traffic_goes_at_the_links_speed() {
    let speed = LinkSpeed { bandwidth: 1e9, latency: Duration::from_micros(1), queue: 1 << 20 };
    let mut world = World::new(Net::new(Topology::Switch, 2, speed), vec![Pool::new(100); 2], Random::new(5));
    world.connect(0, 1, &Config::datagram(), &[(0, 9000)]);
    let mut send = |from: usize, len: usize| {
        let head = Head { handler: HandlerId(1), args: [0; 4] };
        let payload = Bytes::from(vec![1; len]);
        let message = Send { priority: Priority::Low, order: Order::Ordered, head, payload };
        let start = world.now;
        let sent = world.with(from, 1 - from, |session, now| session.send(now, ChannelId(0), message));
        assert!(matches!(sent, Some(Ok(_))), "{sent:?}");
        loop {
            match world.next(start + Duration::from_secs(1)) {
                Some(Happening::Event { at, event: Event::Message(_), .. }) if at != from => {
                    break (world.now - start).as_secs_f64()
                }
                Some(_) => {}
                None => panic!("{len} bytes did not come in a second"),
            }
        }
    };
    // Two links, one after the other; headers and the first frame's second crossing are the rest.
    let ideal =
        |len: usize| 2.0 * speed.latency.as_secs_f64() + (len + 9000.min(len)) as f64 / speed.bandwidth;
    for len in [8 << 10, 64 << 10] {
        for _ in 0..10 {
            send(0, len);
        }
        for number in 0..10 {
            for from in [0, 1] {
                let took = send(from, len);
                assert!(took < 1.1 * ideal(len), "{len} bytes, {number} from {from}: {took} s");
            }
        }
    }
}
