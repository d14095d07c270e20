//! What a session promises its user, one promise each, on simulated links without faults unless the case is
//! about them.

use bytes::Bytes;
use polyduct_message::engine::{Broken, Config, Event, PathId, Send, Session, SessionId, Transmit};
use polyduct_message::link::sim::{Buffer, Happening, LinkSpeed, Net, Pool, Random, Topology, World};
use polyduct_message::{ChannelId, HandlerId, Head, MessageError, Order, Priority, Token};
use std::time::{Duration, Instant};

const SPEED: LinkSpeed = LinkSpeed { bandwidth: 1e8, latency: Duration::from_micros(100), queue: 1_000_000 };
const STREAM: LinkSpeed = LinkSpeed { queue: u64::MAX, ..SPEED };

fn world(speed: LinkSpeed, config: &Config, paths: &[(u8, usize)]) -> World {
    let net = Net::new(Topology::Switch, 2, speed);
    let mut world = World::new(net, vec![Pool::new(1000), Pool::new(1000)], Random::new(5));
    world.connect(0, 1, config, paths);
    world
}

fn message(priority: Priority, order: Order, len: usize) -> Send {
    let head = Head { handler: HandlerId(1), args: [0; 4] };
    Send { priority, order, head, payload: vec![5; len].into() }
}

fn send(world: &mut World, channel: u16, m: Send) -> Result<Token, MessageError> {
    world.with(0, 1, |session, now| session.send(now, ChannelId(channel), m)).unwrap()
}

/// The next event at a node, within a minute of virtual time.
fn event(world: &mut World, node: usize) -> Event<Buffer> {
    let until = world.now + Duration::from_secs(60);
    loop {
        match world.next(until) {
            Some(Happening::Event { at, event, .. }) if at == node => return event,
            Some(Happening::Violation(what)) => panic!("{what}"),
            Some(_) => {}
            None => panic!("nothing happened at {node}"),
        }
    }
}

fn both() -> [(LinkSpeed, Config); 2] {
    [(SPEED, Config::datagram()), (STREAM, Config::stream())]
}

#[test]
fn fragments_go_out_while_the_rest_is_made() {
    for (speed, config) in both() {
        for known in [Some(300_000), None] {
            let mut world = world(speed, &config, &[(0, 1400)]);
            let first = message(Priority::Low, Order::Ordered, 10_000);
            let begun = world.with(0, 1, |s, now| s.begin(now, ChannelId(0), first, known));
            let token = begun.unwrap().unwrap();
            // The receiver holds the buffer before the second half exists.
            while world.session(1, 0).unwrap().buffers_held() == 0 {
                world.next(world.now + Duration::from_micros(10));
                assert!(world.now < Duration::from_secs(1), "nothing went out before the end was known");
            }
            for _ in 0..29 {
                let more = Bytes::from(vec![5; 10_000]);
                world.with(0, 1, |s, _| s.extend(token, more)).unwrap().unwrap();
                world.next(world.now + Duration::from_micros(50));
            }
            world.with(0, 1, |s, _| s.finish(token)).unwrap().unwrap();
            let Event::Message(came) = event(&mut world, 1) else { panic!() };
            assert_eq!(came.len, 300_000);
            assert!(came.payload.unwrap().bytes()[..300_000].iter().all(|&b| b == 5));
        }
    }
}

#[test]
fn a_message_given_up_is_never_heard_of() {
    for (speed, config) in both() {
        let mut world = world(speed, &config, &[(0, 1400)]);
        let begin = |world: &mut World| {
            let first = message(Priority::Low, Order::Ordered, 5000);
            world.with(0, 1, |s, now| s.begin(now, ChannelId(0), first, None)).unwrap().unwrap()
        };
        let (seen, unseen) = (begin(&mut world), begin(&mut world));
        let last = send(&mut world, 0, message(Priority::Low, Order::Ordered, 1)).unwrap();
        world.next(world.now + Duration::from_millis(2));
        for token in [unseen, seen] {
            world.with(0, 1, |s, now| s.abandon(now, token)).unwrap().unwrap();
            let again = world.with(0, 1, |s, now| s.abandon(now, token)).unwrap();
            assert_eq!(again, Err(MessageError::NoMessage { token }));
        }
        assert!(matches!(event(&mut world, 1), Event::Message(m) if m.len == 1));
        assert_eq!(event(&mut world, 0), Event::Delivered(last));
        assert!(world.session(0, 1).unwrap().is_idle());
        assert_eq!(world.pools[1].out(), 0);
    }
}

#[test]
fn misuse_is_named_and_does_nothing() {
    let config = Config { max_payload: 1000, channels: 4, ..Config::datagram() };
    let mut world = world(SPEED, &config, &[(0, 1400)]);
    let low = |len| message(Priority::Low, Order::Ordered, len);
    let limit = |what, limit, found| MessageError::Limit { what, limit, found };
    assert_eq!(send(&mut world, 4, low(0)), Err(limit("channel number", 3, 4)));
    assert_eq!(send(&mut world, 0, low(1001)), Err(limit("payload bytes", 1000, 1001)));
    let begin = |world: &mut World, len, total| {
        world.with(0, 1, |s, now| s.begin(now, ChannelId(0), low(len), total)).unwrap()
    };
    assert_eq!(begin(&mut world, 5, Some(4)), Err(limit("payload bytes", 4, 5)));
    assert_eq!(begin(&mut world, 0, Some(1001)), Err(limit("payload bytes", 1000, 1001)));
    let token = begin(&mut world, 5, Some(10)).unwrap();
    let mut extend = |len| world.with(0, 1, |s, _| s.extend(token, vec![0; len].into())).unwrap();
    assert_eq!(extend(6), Err(limit("payload bytes", 10, 11)));
    assert_eq!(extend(4), Ok(()));
    let mut finish = || world.with(0, 1, |s, _| s.finish(token)).unwrap();
    assert_eq!(finish(), Err(limit("payload bytes", 10, 9)));
    world.with(0, 1, |s, _| s.extend(token, vec![0; 1].into())).unwrap().unwrap();
    let mut finish = || world.with(0, 1, |s, _| s.finish(token)).unwrap();
    assert_eq!((finish(), finish()), (Ok(()), Err(MessageError::NoMessage { token })));
    let paths = world.with(0, 1, |s, now| {
        (s.handle_path_up(now, PathId(16), 1400), s.handle_path_up(now, PathId(0), 100))
    });
    let (a, b) = paths.unwrap();
    assert_eq!(a, Err(limit("path number", 15, 16)));
    assert_eq!(b, Err(limit("bytes of a frame", 140, 100)));
}

#[test]
fn counts_are_exact() {
    let config = Config { queue_per_stream: 10, queue_per_priority: 15, ..Config::datagram() };
    let mut world = world(SPEED, &config, &[(0, 1400)]);
    world.net.partition = 1;
    let (low, high) = (Priority::Low, Priority::High);
    for sent in 0..15 {
        let status = world.session(0, 1).unwrap().status(low);
        assert_eq!((status.sends, status.unconfirmed), (15 - sent, sent));
        send(&mut world, (sent / 10) as u16, message(low, Order::Ordered, 0)).unwrap();
    }
    let full = Err(MessageError::Full { to: 1 });
    assert_eq!(send(&mut world, 5, message(low, Order::Ordered, 0)), full);
    // Each lane has its own limit, each priority its own count.
    for _ in 0..10 {
        send(&mut world, 0, message(high, Order::Ordered, 0)).unwrap();
    }
    assert_eq!(send(&mut world, 0, message(high, Order::Ordered, 0)), full);
    let session = world.session(0, 1).unwrap();
    assert_eq!(session.room(ChannelId(0), high, Order::Ordered), 0);
    assert_eq!(session.room(ChannelId(0), high, Order::Any), 5);
    assert_eq!((session.status(high).sends, session.status(low).sends), (5, 0));
}

#[test]
fn bytes_that_are_kept_have_a_limit_and_one_message_room() {
    let config = Config { queue_bytes: 1000, ..Config::datagram() };
    let mut world = world(SPEED, &config, &[(0, 1400)]);
    world.net.partition = 1;
    let (low, high) = (Priority::Low, Priority::High);
    let full = Err(MessageError::Full { to: 1 });
    let mut send = |priority, len| send(&mut world, 0, message(priority, Order::Any, len));
    send(low, 900).unwrap();
    assert_eq!(send(low, 101), full);
    send(low, 100).unwrap();
    // Those without payload, and those of the other priority, find room.
    send(low, 0).unwrap();
    send(high, 5000).unwrap();
    assert_eq!(send(high, 1), full);
    let kept = |world: &World| [low, high].map(|p| world.session(0, 1).unwrap().bytes_kept(p));
    assert_eq!(kept(&world), [1000, 5000]);
    world.net.partition = 0;
    (0..4).for_each(|_| assert!(matches!(event(&mut world, 1), Event::Message(_))));
    (0..4).for_each(|_| assert!(matches!(event(&mut world, 0), Event::Delivered(_))));
    assert_eq!(kept(&world), [0, 0]);
}

/// Brings one session's frames to the other.
fn carry(from: &mut Session<Vec<u8>>, to: &mut Session<Vec<u8>>, now: Duration) {
    from.handle_time(now);
    let mut transmit = Transmit::new();
    while from.poll_transmit(now, PathId(0), &mut transmit) {
        let mut frame = Vec::new();
        transmit.write_to(&mut frame);
        to.handle_frame(now, PathId(0), &frame, &mut |_| Some(Vec::new())).unwrap();
    }
}

#[test]
fn who_polls_no_events_is_refused_in_the_end() {
    let config = Config { queue_per_priority: 15, ..Config::datagram() };
    let mut now = Duration::ZERO;
    let ids = [SessionId::between(1, 2), SessionId::between(2, 1)];
    let [mut a, mut b] = [0, 1].map(|n| Session::<Vec<u8>>::new(config.clone(), 1 - n, ids[n as usize], now));
    for session in [&mut a, &mut b] {
        session.handle_path_up(now, PathId(0), 1400).unwrap();
    }
    let mut sent = 0;
    while a.send(now, ChannelId(0), message(Priority::Low, Order::Any, 0)).is_ok() {
        sent += 1;
        assert!(sent < 100, "what was delivered, and is not polled, has no limit");
        for _ in 0..10 {
            now += Duration::from_millis(1);
            carry(&mut a, &mut b, now);
            carry(&mut b, &mut a, now);
            while b.poll_event().is_some() {}
        }
    }
    assert_eq!((sent, a.status(Priority::Low).unconfirmed), (15, 0));
    assert!(matches!(a.poll_event(), Some(Event::Delivered(_))));
    a.send(now, ChannelId(0), message(Priority::Low, Order::Any, 0)).unwrap();
}

#[test]
fn messages_in_any_order_use_all_paths_and_survive_the_death_of_one() {
    for order in [Order::Ordered, Order::Any] {
        let mut world = world(SPEED, &Config::datagram(), &[(0, 1400), (1, 1400)]);
        for number in 0..40 {
            send(&mut world, number % 4, message(Priority::Low, order, 100_000)).unwrap();
        }
        let mut came = 0;
        while came < 40 {
            if let Event::Message(_) = event(&mut world, 1) {
                came += 1;
                if came == 10 {
                    let [a, b] = [0, 1]
                        .map(|p| world.session(0, 1).unwrap().path_counters(PathId(p)).unwrap().bytes_sent);
                    match order {
                        Order::Any => assert!(b * 4 > a, "{a} bytes on one path, {b} on the other"),
                        Order::Ordered => assert_eq!(b, 0),
                    }
                    world.net.dead_paths = 1;
                }
            }
        }
    }
}

#[test]
fn closing_tells_both_when_all_is_delivered() {
    for (speed, config) in both() {
        let mut world = world(speed, &config, &[(0, 1400)]);
        let token = send(&mut world, 0, message(Priority::Low, Order::Ordered, 50_000)).unwrap();
        for node in [0, 1] {
            world.with(node, 1 - node, |s, now| s.close(now));
        }
        let left = MessageError::PeerLeft { unit: 1 };
        assert_eq!(send(&mut world, 0, message(Priority::Low, Order::Ordered, 0)), Err(left));
        let mut events = [Vec::new(), Vec::new()];
        let over = |world: &World, node: usize| world.session(node, 1 - node).unwrap().is_over();
        while !(over(&world, 0) && over(&world, 1)) {
            match world.next(world.now + Duration::from_secs(1)) {
                Some(Happening::Event { at, event, .. }) => events[at].push(format!("{event:?}")),
                Some(Happening::Violation(what)) => panic!("{what}"),
                _ => assert!(world.now < Duration::from_secs(5), "{events:?}"),
            }
        }
        while let Some(Happening::Event { at, event, .. }) = world.next(world.now) {
            events[at].push(format!("{event:?}"));
        }
        events.iter_mut().for_each(|e| e.sort());
        assert_eq!(events[0], ["Closed".to_string(), format!("Delivered({token:?})"), "PeerClosed".into()]);
        assert_eq!(events[1].len(), 3);
        assert!(
            events[1][0] == "Closed" && events[1][1].starts_with("Message") && events[1][2] == "PeerClosed"
        );
    }
}

#[test]
fn an_abort_reaches_the_peer() {
    for (speed, config) in both() {
        let mut world = world(speed, &config, &[(0, 1400)]);
        world.with(0, 1, |s, _| s.abort(42));
        assert_eq!(event(&mut world, 0), Event::Broken(Broken::Here));
        assert_eq!(event(&mut world, 1), Event::Broken(Broken::Aborted(42)));
        let lost = send(&mut world, 0, message(Priority::Low, Order::Ordered, 0));
        assert!(matches!(lost, Err(MessageError::PeerLost { unit: 1, .. })), "{lost:?}");
    }
}

#[test]
fn a_silent_peer_is_lost_within_three_seconds() {
    for (speed, config) in both() {
        for busy in [false, true] {
            let mut world = world(speed, &config, &[(0, 1400)]);
            // A quiet minute is no silence: pings are answered.
            while world.next(Duration::from_secs(60)).is_some() {}
            world.crash(1);
            let died = world.now;
            if busy {
                send(&mut world, 0, message(Priority::Low, Order::Ordered, 10)).unwrap();
            }
            let broken = event(&mut world, 0);
            assert!(matches!(broken, Event::Broken(Broken::Silent(_))), "{broken:?}");
            let took = world.now - died;
            assert!(took > Duration::from_secs(1) && took < Duration::from_secs(3), "{took:?}");
        }
    }
}

/// Two sessions, each frame of one given to the other at once; counts frames.
fn shuttle(a: &mut Session<Vec<u8>>, b: &mut Session<Vec<u8>>, now: Duration) -> u64 {
    let (mut transmit, mut frame, mut frames) = (Transmit::new(), Vec::new(), 0);
    loop {
        let before = frames;
        for flip in [false, true] {
            let (from, to) = if flip { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            while from.poll_transmit(now, PathId(0), &mut transmit) {
                frame.clear();
                transmit.write_to(&mut frame);
                let mut give = |ask: &polyduct_message::engine::Incoming| Some(vec![0; ask.len? as usize]);
                to.handle_frame(now, PathId(0), &frame, &mut give).unwrap();
                frames += 1;
            }
        }
        if frames == before {
            return frames;
        }
    }
}

/// Short messages share frames; prints what a message costs on this machine.
#[test]
fn short_messages_are_batched() {
    for (name, config, max_frame) in
        [("stream", Config::stream(), 65_536), ("datagram", Config::datagram(), 1400)]
    {
        let id = SessionId::between(1, 2);
        let mirrored = SessionId::between(2, 1);
        let mut now = Duration::ZERO;
        let mut a: Session<Vec<u8>> = Session::new(config.clone(), 1, id, now);
        let mut b: Session<Vec<u8>> = Session::new(config, 0, mirrored, now);
        a.handle_path_up(now, PathId(0), max_frame).unwrap();
        b.handle_path_up(now, PathId(0), max_frame).unwrap();
        let (rounds, burst) = (200, 1000);
        let (mut frames, mut came, mut delivered) = (0, 0, 0);
        let start = Instant::now();
        for _ in 0..rounds {
            for _ in 0..burst {
                a.send(now, ChannelId(0), message(Priority::Low, Order::Ordered, 0)).unwrap();
            }
            for _ in 0..20 {
                now += Duration::from_micros(500);
                a.handle_time(now);
                b.handle_time(now);
                frames += shuttle(&mut a, &mut b, now);
            }
            while let Some(Event::Message(_)) = b.poll_event() {
                came += 1;
            }
            while let Some(Event::Delivered(_)) = a.poll_event() {
                delivered += 1;
            }
        }
        let each = start.elapsed() / (rounds * burst);
        println!(
            "{name}: {each:?} a message for both sides, {frames} frames for {} messages",
            rounds * burst
        );
        assert_eq!((came, delivered), (rounds * burst, rounds * burst));
        assert!(frames * 10 < u64::from(rounds * burst), "{frames} frames");
    }
}

/// Prints what a frame with a large fragment costs on this machine, copies and checksums included.
#[test]
fn bulk_costs() {
    for (name, config, max_frame) in
        [("stream", Config::stream(), 65_536), ("datagram", Config::datagram(), 1400)]
    {
        let mut now = Duration::ZERO;
        let mut a: Session<Vec<u8>> = Session::new(config.clone(), 1, SessionId::between(1, 2), now);
        let mut b: Session<Vec<u8>> = Session::new(config, 0, SessionId::between(2, 1), now);
        a.handle_path_up(now, PathId(0), max_frame).unwrap();
        b.handle_path_up(now, PathId(0), max_frame).unwrap();
        let payload = Bytes::from(vec![9; 8 << 20]);
        let start = Instant::now();
        let mut frames = 0;
        let (mut came, mut rounds) = (0, 0);
        let m = Send { payload, ..message(Priority::Low, Order::Ordered, 0) };
        for _ in 0..4 {
            a.send(now, ChannelId(0), m.clone()).unwrap();
        }
        while came < 4 {
            rounds += 1;
            assert!(rounds < 100_000);
            now += Duration::from_micros(200);
            a.handle_time(now);
            b.handle_time(now);
            frames += shuttle(&mut a, &mut b, now);
            while let Some(event) = b.poll_event() {
                came += u32::from(matches!(event, Event::Message(m) if m.len == 8 << 20));
            }
        }
        let took = start.elapsed();
        let rate = f64::from(32 << 20) / took.as_secs_f64() / 1e9;
        println!(
            "{name}: {:?} a frame for both sides, {frames} frames, {rate:.2} GB/s",
            took / frames as u32
        );
    }
}
