//! The provider between processes of one host, as between two endpoints of one process.

mod common;
mod suite;

use common::{context, until_told, Node};
use polyduct_fi::abi::{Fid, ADDR_UNSPEC, EHOSTUNREACH, REMOTE_READ, REMOTE_WRITE};
use polyduct_fi::engine::wire::{self, Kind, Offer, Remote};
use polyduct_fi::engine::EAGER_MESSAGES;
use polyduct_message::endpoint::{Endpoint, Number, Place, Sent};
use polyduct_message::{HandlerId, Head};
use std::time::Instant;

/// Nothing has to be set.
fn init() {}

/// An endpoint that says to another whatever it likes.
struct Faulty {
    endpoint: Endpoint<Vec<u8>>,
    to: Number,
}

impl Faulty {
    fn to(node: &Node) -> Faulty {
        let mut endpoint = Endpoint::open(None, None, |_, _| None).unwrap();
        let to = endpoint.peer(&Place::from_bytes(&node.name()).unwrap()).unwrap();
        Faulty { endpoint, to }
    }

    /// Says it, as soon as there is room. `false`: there is none though the other looks and looks, as it
    /// reads no more of this one's.
    fn say(&mut self, node: &mut Node, head: Head, payload: &[u8]) -> bool {
        (0..20_000).any(|_| {
            // What comes back is thrown away, whether it lies there or asks for room.
            self.endpoint.poll(&mut |_, m| Some(vec![0; m.len as usize]), &mut |_, _, _| true);
            let is_said = self.endpoint.send(self.to, head, payload) == Sent::All;
            if !is_said {
                node.look();
            }
            is_said
        })
    }
}

/// Who sends more than it is allowed is cut off, and others are served.
#[test]
fn an_endpoint_that_sends_without_end_is_cut_off() {
    for long in [false, true] {
        let (mut node, mut other) = (Node::new(), Node::new());
        let to_node = other.insert(&node.name());
        let mut faulty = Faulty::to(&node);
        let (head, payload) = match long {
            false => (wire::matched(Kind::Tagged, 5, None), vec![1; 16]),
            true => {
                let offer = Offer { len: 1 << 30, address: 64, number: 3, pieces: 0 };
                (wire::matched(Kind::TaggedOffer, 5, None), offer.to_bytes().to_vec())
            }
        };
        let most = 2 * EAGER_MESSAGES;
        let said = (0..most).take_while(|_| faulty.say(&mut node, head, &payload)).count();
        assert!(said >= EAGER_MESSAGES as usize && said < most as usize, "{said} messages");
        let to_faulty = node.insert(&faulty.endpoint.place().to_bytes());
        assert_eq!(node.tsend(b"x", to_faulty, 1, 7), 0);
        let told = until_told(&mut [&mut node], &[1]);
        assert_eq!(told[0][0].unwrap_err().error, EHOSTUNREACH);
        let mut got = [0; 4];
        assert_eq!(node.trecv(&mut got, ADDR_UNSPEC, 9, 0, 1), 0);
        assert_eq!(other.tsend(b"well", to_node, 9, 2), 0);
        until_told(&mut [&mut node, &mut other], &[1, 1]);
        assert_eq!(&got, b"well");
    }
}

/// An endpoint says what makes no sense, to one that has operations of every kind under way. Others are
/// served.
#[test]
fn an_endpoint_that_says_anything_harms_nobody() {
    let mut x = 0x5851_f42d_4c95_7f2d_u64;
    let mut random = move |n: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % n
    };
    // What the other end stores where it is asked to goes here.
    let room = vec![0_u8; 1 << 20];
    for round in 0..600 {
        let (mut node, mut other) = (Node::new(), Node::new());
        let to_node = other.insert(&node.name());
        let mut faulty = Faulty::to(&node);
        let to_faulty = node.insert(&faulty.endpoint.place().to_bytes());
        let mut memory = vec![7; 1 << 16];
        let mr = node.mr(&mut memory, REMOTE_READ | REMOTE_WRITE, 1).unwrap();
        let (long, mut places) = (vec![round as u8; 300_000], vec![[0; 64]; 40]);
        for (n, place) in (100..).zip(&mut places) {
            assert_eq!(node.trecv(place, to_faulty, random(4), 0, n), 0);
        }
        for n in 0..4 {
            node.tsend(&long, to_faulty, n, 200 + n as usize);
        }
        for _ in 0..random(400) {
            let number = |random: &mut dyn FnMut(u64) -> u64| match random(4) {
                0 => u32::MAX - random(3) as u32,
                _ => random(9) as u32,
            };
            let args = [(); 4].map(|()| number(&mut random));
            let handler = HandlerId(random(16) as u32 | [0, 1 << 8, 15 << 8][random(3) as usize]);
            let address = room.as_ptr() as u64 + random(1 << 10);
            let len = [0, 5, 64, 1000, 300_000, 1 << 40, u64::MAX][random(7) as usize];
            let remote =
                Remote { key: random(3), offset: [0, 9, u64::MAX][random(3) as usize], len, address };
            let offer = Offer { len, address, number: args[0], pieces: [0, 1, 3, 5000][random(4) as usize] };
            let payload = match random(5) {
                0 => Vec::new(),
                1 => vec![9; random(200) as usize],
                2 => offer.to_bytes().to_vec(),
                3 => remote.to_bytes().to_vec(),
                _ => [remote.to_bytes().to_vec(), vec![3; random(64) as usize]].concat(),
            };
            if !faulty.say(&mut node, Head { handler, args }, &payload) {
                break;
            }
            if random(3) == 0 {
                node.look();
            }
        }
        let mut got = [0; 4];
        assert_eq!(node.trecv(&mut got, ADDR_UNSPEC, 77, 0, 1), 0);
        assert_eq!(other.tsend(b"well", to_node, 77, 2), 0);
        let (start, mut has_come) = (Instant::now(), false);
        while !has_come {
            node.look();
            other.look();
            let mut told = std::iter::from_fn(|| node.told());
            has_come = told.any(|one| one.is_ok_and(|one| one.op_context == context(1)));
            assert!(start.elapsed() < common::WATCHDOG, "round {round}");
        }
        assert_eq!(&got, b"well");
        drop(faulty);
        // What the faulty one had to do with the memory ends with it.
        let start = Instant::now();
        // SAFETY: as a program does it.
        while unsafe { ((*(*mr.cast::<Fid>()).ops).close)(mr.cast()) } != 0 {
            node.look();
            assert!(start.elapsed() < common::WATCHDOG, "round {round}: its memory is in use without end");
        }
        // Before the memory of its receives.
        drop(node);
    }
}
