//! The handshake over datagrams: what it costs who listens, and that it comes to an end on a network that
//! loses and delays. Two state machines and a network in virtual time.

use polyduct_message::link::hello::{
    Carrier, HandshakeRefusal, Header, Identity, Kind, HEADER, REFUSAL, VERSION,
};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::call::Call;
use polyduct_message::link::net::datagram;
use polyduct_message::link::net::handshakes::{Handshakes, Reply, PLACES};
use polyduct_message::link::net::incarnations::Incarnations;
use polyduct_message::link::noise::{Cookie, Established, Initiator, Terms, COOKIE};
use polyduct_message::link::seal::TAG;
use polyduct_message::LinkError;
use polyduct_rig::memory::{most_bytes, Counting};
use polyduct_rig::Random;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const START: Duration = Duration::from_secs(1000);
const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn terms(unit: u32) -> Terms {
    let incarnation = 9 + u64::from(unit);
    let me = Identity { domain: 5, unit, incarnation, features: 0, frame_limit: 1 << 16, index: 77 + unit };
    Terms { key: JobKey::from_bytes([7; 32]).unwrap(), me, trusted: false, carrier: Carrier::Datagrams }
}

fn handshakes() -> Handshakes {
    Handshakes::new(terms(0), 5 * SECOND, Incarnations::default()).unwrap()
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn answer(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Answer(bytes) => bytes,
        _ => panic!("an answer was expected"),
    }
}

fn refused(reply: Reply) -> (HandshakeRefusal, LinkError) {
    match reply {
        Reply::Refuse(bytes, error) => {
            assert_eq!(
                (bytes.len(), Header::decode(&bytes).unwrap().kind),
                (REFUSAL, Kind::HandshakeRefusal)
            );
            (HandshakeRefusal::decode(&bytes[HEADER..]).unwrap(), error)
        }
        _ => panic!("a refusal was expected"),
    }
}

fn nothing(reply: Reply) {
    assert!(matches!(reply, Reply::Nothing));
}

/// A first message without a good cookie.
fn first() -> Vec<u8> {
    Initiator::with_cookie(&terms(1), 0, &[3; COOKIE]).unwrap().message().bytes().to_vec()
}

/// What a unit that is called gets for its first message.
fn cookie(handshakes: &mut Handshakes, from: SocketAddr, now: Duration) -> Cookie {
    let told = answer(handshakes.handle(from, &first(), now, 9));
    assert_eq!(Header::decode(&told).unwrap().kind, Kind::Cookie);
    told[told.len() - COOKIE..].try_into().unwrap()
}

fn call(unit: u32, addr: SocketAddr, now: Duration) -> Call {
    Call::new(terms(unit), 0, addr, now, 60 * SECOND).unwrap()
}

#[test]
fn strangers_leave_nothing_behind_whatever_they_recorded() {
    let mut handshakes = handshakes();
    let first = first();
    for noise in
        [&b""[..], b"P", b"GET / HTTP/1.1", &[0xff; 1400], &first[..HEADER], &first[..first.len() - 1]]
    {
        nothing(handshakes.handle(at(1), noise, START, 9));
    }
    let mut version = first.clone();
    version[4] = 9;
    let (told, error) = refused(handshakes.handle(at(1), &version, START, 9));
    assert_eq!(told, HandshakeRefusal::Version { mine: VERSION.into(), yours: 9 });
    assert!(matches!(error, LinkError::Version { found: 9, .. }));
    // A refusal is never longer than what it answers, and never answered.
    nothing(handshakes.handle(at(1), &version[..8], START, 9));
    version[6] = Kind::HandshakeRefusal as u8;
    nothing(handshakes.handle(at(1), &version, START, 9));
    for kind in [Kind::Answer, Kind::Confirm, Kind::HandshakeRefusal, Kind::Cookie] {
        let mut message = first.clone();
        message[6] = kind as u8;
        nothing(handshakes.handle(at(1), &message, START, 9));
    }
    let trusted = Initiator::with_cookie(&Terms { trusted: true, ..terms(1) }, 0, &[3; COOKIE]).unwrap();
    let trust = refused(handshakes.handle(at(1), trusted.message().bytes(), START, 9));
    assert_eq!(trust, (HandshakeRefusal::Trust { mine: false }, LinkError::Trust { mine: false }));
    // A wrong key is told to who can be reached.
    let good = cookie(&mut handshakes, at(1), START);
    let other = Terms { key: JobKey::from_bytes([8; 32]).unwrap(), ..terms(1) };
    let other = Initiator::with_cookie(&other, 0, &good).unwrap();
    let key = refused(handshakes.handle(at(1), other.message().bytes(), START, 9));
    assert_eq!(key, (HandshakeRefusal::Key, LinkError::Unauthentic));
    assert_eq!(handshakes.places(), 0);

    // A good one, recorded, from everywhere but its own address; and from there when it is old.
    let good = Initiator::with_cookie(&terms(1), 0, &good).unwrap().message().bytes().to_vec();
    let ((), most) = most_bytes(|| {
        for port in 2..10_000 {
            let told = answer(handshakes.handle(at(port), &good, START, 9));
            assert!(told.len() < good.len() && told[6] == Kind::Cookie as u8);
        }
        answer(handshakes.handle(at(1), &good, START + 10 * SECOND, 9));
    });
    assert_eq!(handshakes.places(), 0);
    assert!(most < 4 << 10, "{most} bytes");
}

#[test]
fn each_message_may_come_twice_and_only_the_right_confirmation_counts() {
    let mut handshakes = handshakes();
    let good = cookie(&mut handshakes, at(1), START);
    let mut a = Initiator::with_cookie(&terms(1), 0, &good).unwrap();
    let once = answer(handshakes.handle(at(1), a.message().bytes(), START, 9));
    let twice = answer(handshakes.handle(at(1), a.message().bytes(), START + SECOND, 10));
    assert_eq!((once == twice, handshakes.places()), (true, 1));
    let (established, confirm) = a.answer(&twice).unwrap();
    assert_eq!(established.peer.index, 9);
    nothing(handshakes.handle(at(2), confirm.bytes(), START + SECOND, 9)); // From elsewhere.
    let mut changed = confirm.bytes().to_vec();
    *changed.last_mut().unwrap() ^= 1;
    nothing(handshakes.handle(at(1), &changed, START + SECOND, 9));
    match handshakes.handle(at(1), confirm.bytes(), START + SECOND, 9) {
        Reply::Arrival { established, index } => assert_eq!((established.peer, index), (terms(1).me, 9)),
        _ => panic!("the right one counts"),
    }
    nothing(handshakes.handle(at(1), confirm.bytes(), START + SECOND, 9));
    handshakes.incarnations.bury(1, terms(1).me.incarnation);
    let again = Initiator::with_cookie(&terms(1), 0, &good).unwrap();
    let again = handshakes.handle(at(1), again.message().bytes(), START + SECOND, 9);
    assert_eq!(refused(again), (HandshakeRefusal::Dead, LinkError::Dead { unit: 1 }));
}

#[test]
fn places_are_for_those_who_know_the_key_and_nobody_loses_one_to_another() {
    let mut handshakes = handshakes();
    let enter = |handshakes: &mut Handshakes, port: u16| {
        let good = cookie(handshakes, at(port), START);
        let a = Initiator::with_cookie(&terms(u32::from(port)), 0, &good).unwrap();
        (handshakes.handle(at(port), a.message().bytes(), START, port.into()), a)
    };
    let (begun, mut oldest) = enter(&mut handshakes, 1);
    let begun = answer(begun);
    for port in 2..=PLACES as u16 {
        answer(enter(&mut handshakes, port).0);
    }
    nothing(enter(&mut handshakes, PLACES as u16 + 1).0);
    assert_eq!(handshakes.places(), PLACES);
    let (_, confirm) = oldest.answer(&begun).unwrap();
    assert!(matches!(handshakes.handle(at(1), confirm.bytes(), START, 0), Reply::Arrival { .. }));
    answer(enter(&mut handshakes, PLACES as u16 + 1).0);
    nothing(handshakes.handle(at(1), b"", START + 5 * SECOND, 9));
    assert_eq!(handshakes.places(), 0, "their time is over");
}

// -- a network --

/// How it treats datagrams.
#[derive(Clone, Copy, Debug)]
struct Weather {
    delay: Duration,
    lost: u32,
}

/// Units that call unit 0, all at once, until each has its proof. Returns when the last had, and how many
/// came in there.
fn all_call(units: u16, weather: Weather, seed: u64, forgets: Option<Duration>) -> (Duration, usize) {
    let (root, mut random, mut handshakes) = (at(9), Random::new(seed), handshakes());
    let mut calls: BTreeMap<u16, Call> =
        (1..=units).map(|unit| (1000 + unit, call(unit.into(), root, START))).collect();
    let mut links: BTreeMap<u16, (Established, u32, Duration)> = BTreeMap::new();
    // What is on its way: when it arrives, a number, from where, where to.
    let mut wire: BTreeMap<(Duration, u64), (u16, u16, Vec<u8>)> = BTreeMap::new();
    let (mut now, mut count, mut came, mut forgets) = (START, 0, 0, forgets);
    let mut send = |wire: &mut BTreeMap<_, _>, now: Duration, from: u16, to: u16, bytes: Vec<u8>| {
        count += 1;
        if random.below(100) >= weather.lost.into() {
            let jitter = random.below(1 + weather.delay.as_micros() as u64 / 10);
            wire.insert((now + weather.delay + Duration::from_micros(jitter), count), (from, to, bytes));
        }
    };
    while !calls.is_empty() {
        let due = calls.values().map(Call::deadline).chain(links.values().map(|l| l.2));
        now = due.chain(wire.keys().next().map(|key| key.0)).min().unwrap().max(now);
        assert!(
            now < START + 60 * SECOND,
            "{} of {units} are still out: {weather:?}, seed {seed}",
            calls.len()
        );
        // It ends and starts again: nobody it knew counts any more.
        if forgets.is_some_and(|at| now >= START + at) {
            (forgets, came) = (None, 0);
            handshakes = self::handshakes();
            links.clear();
        }
        for (port, call) in &mut calls {
            if let Some(message) = call.due(now).unwrap() {
                send(&mut wire, now, *port, 9, message.bytes().to_vec());
            }
        }
        // A session asks until it is answered.
        for (port, (established, index, again)) in &mut links {
            if *again <= now && calls.contains_key(port) {
                let mut record = vec![0; 4 + TAG];
                let (number, _) = established.sealer.seal(b"ping", &mut record).unwrap();
                let mut bytes = b"PDND".to_vec();
                bytes.extend(index.to_le_bytes());
                bytes.extend(number.to_le_bytes());
                bytes.extend(record);
                send(&mut wire, now, 9, *port, bytes);
            }
            if *again <= now {
                *again = now + 400 * MS;
            }
        }
        while let Some(entry) = wire.first_entry().filter(|e| e.key().0 <= now) {
            let (from, to, bytes) = entry.remove();
            match (to, datagram::split(&bytes)) {
                (9, _) => match handshakes.handle(at(from), &bytes, now, from.into()) {
                    Reply::Nothing => {}
                    Reply::Answer(answer) => send(&mut wire, now, 9, from, answer),
                    Reply::Refuse(_, error) => panic!("{error}"),
                    Reply::Arrival { established, .. } => {
                        let index = established.peer.index;
                        came += usize::from(links.insert(from, (*established, index, now)).is_none());
                    }
                },
                (to, Some((index, number, record))) => {
                    let proved = calls.get_mut(&to).is_some_and(|call| {
                        let mut scratch = [0; 64];
                        call.index() == index && call.proof(number, record, &mut scratch) == Some(b"ping")
                    });
                    if proved {
                        calls.remove(&to);
                    }
                }
                (to, None) => {
                    if let Some(call) = calls.get_mut(&to) {
                        call.handle(&bytes, now);
                    }
                }
            }
        }
        links.values_mut().for_each(|l| l.2 = l.2.max(now));
    }
    (now - START, came)
}

#[test]
fn all_come_in_however_many_call_at_once_and_whatever_is_lost() {
    let cases =
        [(64, 0, 0, 1), (20, 50, 0, 1), (64, 50, 10, 4), (64, 1, 20, 4), (300, 50, 20, 8), (64, 250, 30, 20)];
    for (units, delay, lost, seconds) in cases {
        let weather = Weather { delay: delay * MS, lost };
        for seed in 0..5 {
            let (took, came) = all_call(units, weather, seed, None);
            assert_eq!(came, usize::from(units));
            assert!(took < seconds * SECOND, "{took:?} for {units}: {weather:?}, seed {seed}");
        }
    }
}

#[test]
fn who_is_forgotten_before_the_end_begins_anew() {
    for delay in [1, 50] {
        for forgets in 0..5 {
            let weather = Weather { delay: delay * MS, lost: 0 };
            // At every leg of the handshake but the answer to its last message.
            let forgets = delay * MS * (2 * forgets + 1) / 2;
            let (took, came) = all_call(8, weather, u64::from(delay), Some(forgets));
            assert!(took < 3 * SECOND && came == 8, "{took:?}, {came} came: forgotten after {forgets:?}");
        }
    }
}
