//! Any bytes are a message of a network link's handshake, or a record, or a datagram, or are refused.

#![forbid(unsafe_code)]

mod driver;

use polyduct_message::link::hello::{Carrier, HandshakeRefusal, Header, Identity};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::datagram;
use polyduct_message::link::net::handshakes::{Handshakes, Reply};
use polyduct_message::link::net::incarnations::Incarnations;
use polyduct_message::link::noise::{Initiator, Pending, Terms};
use std::time::Duration;

fn terms(unit: u32) -> Terms {
    let me = Identity { domain: 5, unit, incarnation: 9, features: 0, frame_limit: 1 << 20, index: 3 };
    Terms { key: JobKey::from_bytes([7; 32]).expect("a key"), me, trusted: false, carrier: Carrier::Stream }
}

/// The first byte says to whom the rest goes.
fn target(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 5 {
        0 => {
            let _ = Header::decode(bytes);
            let _ = Identity::decode(bytes);
            let _ = HandshakeRefusal::decode(bytes);
        }
        // Nothing but a first message that was made with the key gets an answer, and nobody made one with
        // this domain's.
        1 => assert!(Pending::new(
            &Terms { key: JobKey::from_bytes([8; 32]).expect("a key"), ..terms(1) },
            bytes
        )
        .is_err()),
        2 => assert!(Initiator::new(&terms(0), 1).expect("random bytes").answer(bytes).is_err()),
        3 => {
            let mut terms = terms(1);
            terms.carrier = Carrier::Datagrams;
            let mut handshakes = Handshakes::new(terms, Duration::from_secs(5), Incarnations::default())
                .expect("random bytes");
            let from = ([127, 0, 0, 1], 9).into();
            match handshakes.handle(from, bytes, Duration::ZERO, 3) {
                Reply::Refuse(refusal, _) => assert!(refusal.len() <= bytes.len(), "no amplification"),
                Reply::Arrival { .. } => panic!("nobody confirmed"),
                Reply::Answer(answer) => assert!(answer.len() <= bytes.len(), "no amplification"),
                Reply::Nothing => {}
            }
            assert_eq!(handshakes.places(), 0, "nobody has a cookie");
        }
        _ => {
            let mut a = Initiator::new(&terms(0), 1).expect("random bytes");
            let mut b = Pending::new(&terms(1), a.message().bytes()).expect("its message");
            assert!(b.confirm(bytes).is_err());
            let (_, confirm) = a.answer(b.message().bytes()).expect("its answer");
            let mut link = b.confirm(confirm.bytes()).expect("its confirmation");
            let mut out = vec![0; bytes.len() + 16];
            assert!(link.opener.open_next(bytes, &mut out).is_err());
            if let Some((_, number, record)) = datagram::split(bytes) {
                assert!(datagram::open(&mut link.opener, number, record, &mut out).is_err());
            }
        }
    }
}

fn main() {
    let first = Initiator::new(&terms(0), 1).expect("random bytes").message().bytes().to_vec();
    let tagged = |choice: u8, bytes: &[u8]| [&[choice], bytes].concat();
    let refusal = HandshakeRefusal::Trust { mine: true }.encode(Carrier::Stream, false);
    let mut datagram = b"PDND\x03\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    datagram.extend([0; 40]);
    let seeds = [
        tagged(0, &first),
        tagged(0, &terms(0).me.encode()),
        tagged(1, &first),
        tagged(2, &refusal),
        tagged(2, &first),
        tagged(3, &first),
        tagged(4, &datagram),
        tagged(4, &first),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let words: [&[u8]; 6] =
        [b"PDNT", b"PDND", b"\x02\x00", b"\xff\xff\xff\xff", b"\x02", b"\x00\x00\x00\x00\x00\x00\x00\x00"];
    driver::run(&seeds, &words, target);
}
