//! What a gateway makes of the words of another, be it one that breaks the rules.

use polyduct_message::hash::fnv1a;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::{JobKey, Trust};
use polyduct_message::link::net::channel::Channel;
use polyduct_message::link::net::dial::Dial;
use polyduct_message::link::net::socket::KeepAlive;
use polyduct_message::link::noise::Terms;
use polyduct_message::meeting::Within;
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use polyduct_rig::free_address;
use polyduct_stream::gateway::far::wire::{Answer, Call, Give, Offer, Offered, Take, VERSION};
use polyduct_stream::gateway::far::{FarSteps, Side};
use polyduct_stream::gateway::receive::Sink;
use polyduct_stream::gateway::CAPACITY;
use polyduct_stream::{Adu, Direction, Format, Gateway, Place, Protocol, Share, StreamError, Ties};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn trust() -> Trust {
    Trust { key: JobKey::from_bytes([5; 32]).unwrap(), trusted_network: false }
}

/// A lane from the other end, once it is met.
fn call(addr: SocketAddr) -> Channel {
    let domain = fnv1a(b"polyduct streams".iter().copied().chain(VERSION.to_le_bytes()));
    let me = Identity { domain, unit: 0, incarnation: 7, features: 0, frame_limit: 0, index: 0 };
    let terms = Terms { key: trust().key, me, trusted: false, carrier: Carrier::Stream };
    let start = clock::now();
    loop {
        assert!(clock::now() - start < PATIENCE, "nobody listens");
        let Ok(mut dial) =
            Dial::new(&terms, 0, addr, KeepAlive { dead_after: PATIENCE }, clock::now(), PATIENCE)
        else {
            continue;
        };
        while let Ok(met) = dial.serve(clock::now()) {
            if let Some(met) = met {
                let mut channel = Channel::new(dial.into_stream(), met, PATIENCE);
                let name = "x".to_owned();
                let call = Call {
                    version: VERSION,
                    name,
                    transmits: true,
                    session: 7,
                    met: 0,
                    lane: 0,
                    lanes: 1,
                    gateway: 0,
                    gateways: 1,
                };
                channel.post(&call).unwrap();
                assert!(matches!(hear(&mut channel), Answer::Welcome(_)));
                return channel;
            }
            let (socket, writes) = dial.waits_for();
            let item = if writes { PollItem::writable(socket) } else { PollItem::readable(socket) };
            poll(&mut [item], Some(PATIENCE)).unwrap();
        }
    }
}

fn hear<T: serde::de::DeserializeOwned>(channel: &mut Channel) -> T {
    loop {
        if let Some(said) = channel.hear().unwrap() {
            return said;
        }
        poll(&mut [PollItem::readable(&*channel)], Some(PATIENCE)).unwrap();
    }
}

struct Steps(Vec<Vec<u8>>);

impl Sink for Steps {
    fn step(
        &mut self,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let mut step = vec![0; len as usize];
        fill(&mut step)?;
        self.0.push(step);
        Ok(())
    }
}

fn offer(name: &str) -> Give {
    let array = Offered { name: name.into(), shape: vec![100], elem: "u8".into(), open: None };
    Give::Offer(Offer { arrays: vec![array] })
}

/// Bytes of a step of `adu_len`, which say where they are.
fn unit(adu: u64, adu_len: u64, at: u64, len: u32) -> (Give, Vec<u8>) {
    let byte = |n: u64| (100 * adu).wrapping_add(at).wrapping_add(n) as u8;
    (Give::Unit { adu, adu_len, at, len }, (0..len.into()).map(byte).collect())
}

fn end(steps: u64) -> (Give, Vec<u8>) {
    (Give::End { steps }, Vec::new())
}

/// The steps that come of these words, of which the largest has 50 bytes.
fn receive(words: Vec<(Give, Vec<u8>)>) -> Result<Vec<Vec<u8>>, StreamError> {
    let addr = free_address();
    let place = Place::new(Protocol::Far, None, addr.port());
    let borne = PATIENCE;
    let side = Side {
        place,
        name: "x".into(),
        transmits: false,
        trust: trust(),
        borne,
        session: 9,
        share: Share::ALL,
    };
    let adu = Adu::Changing { most: 50 };
    thread::scope(|s| {
        let came = s.spawn(|| {
            let start = clock::now();
            let late = || clock::now() - start > PATIENCE;
            let mut far = FarSteps::meet(side, Within { most: PATIENCE, gives_up: &late })?;
            far.are_of(adu);
            let format = Format::new(adu, 64, 64, 1)?;
            let lease = Gateway::new(CAPACITY).enter("x", Direction::Receive, &Ties::default())?;
            lease.ready(format, 2)?;
            let mut steps = Steps(Vec::new());
            let moved = far.run(&mut steps, &lease, &late)?;
            assert_eq!(moved, steps.0.len() as u64);
            Ok(steps.0)
        });
        let mut channel = call(addr);
        channel.post(&offer("u")).unwrap();
        assert_eq!(hear::<Take>(&mut channel), Take::Room(1024));
        for (word, bytes) in &words {
            channel.post(word).unwrap();
            let mut sent = 0;
            while sent < bytes.len() {
                sent += channel.send(&[IoSlice::new(&bytes[sent..])]).unwrap().unwrap_or(0);
            }
        }
        let _ = channel.flush();
        // Its last word is answered.
        while !matches!(hear(&mut channel), Take::Broke(_) | Take::Heard) {}
        channel.post(&Give::Heard).unwrap();
        channel.flush().unwrap();
        came.join().unwrap()
    })
}

#[test]
fn units_of_steps_of_all_sizes_come_in_any_order_and_twice() {
    let words = vec![
        unit(1, 50, 40, 10),
        unit(0, 8, 4, 4),
        unit(3, 9, 0, 9),
        unit(0, 8, 4, 4),
        unit(0, 8, 0, 4),
        unit(2, 0, 0, 0),
        unit(0, 8, 0, 4),
        unit(1, 50, 0, 40),
        // What was cut short goes on anywhere.
        unit(4, 9, 2, 4),
        unit(4, 9, 0, 5),
        unit(4, 9, 5, 3),
        unit(4, 9, 5, 4),
        end(5),
    ];
    let whole = |adu, len| unit(adu, len, 0, len as u32).1;
    assert_eq!(receive(words).unwrap(), [whole(0, 8), whole(1, 50), vec![], whole(3, 9), whole(4, 9)]);
}

#[test]
fn words_that_break_the_rules_end_the_stream() {
    for (words, why) in [
        (vec![unit(0, 8, 0, 4), unit(0, 9, 4, 5)], "a unit of 5 bytes at 4 of 9 in step 0"),
        (vec![unit(5, 8, 0, 4), unit(5, 9, 4, 5)], "a unit of 5 bytes at 4 of 9 in step 5"),
        (vec![unit(0, 51, 0, 4)], "a unit of 4 bytes at 0 of 51"),
        (vec![unit(0, 8, 6, 4)], "a unit of 4 bytes at 6 of 8"),
        (vec![unit(0, 8, u64::MAX, 4)], "of 8 in step 0"),
        (vec![unit(0, 8, 4, 0)], "a unit of 0 bytes"),
        (vec![unit(1024, 8, 0, 8)], "in step 1024"),
        (vec![(offer("v"), vec![])], "offers something else"),
        (vec![(Give::Broke("no more".into()), vec![])], "gave up: no more"),
        // The step at hand is never whole, and the one after it would be lost.
        (vec![unit(0, 8, 0, 4), end(0)], "an end after 0 steps, of which there are more"),
        (vec![unit(0, 8, 0, 8), unit(1, 8, 0, 4), end(1)], "an end after 1 steps, of which there are more"),
        (vec![unit(0, 8, 0, 8), unit(2, 8, 0, 8), end(2)], "an end after 2 steps, of which there are more"),
        (vec![end(1), unit(0, 8, 0, 4), end(2)], "an end after 2 steps, which was to be after 1"),
        (vec![end(1), unit(1, 8, 0, 4)], "in step 1"),
    ] {
        let error = receive(words).unwrap_err();
        assert!(matches!(error, StreamError::Broken { .. }) && error.to_string().contains(why), "{error}");
    }
}
