//! Whatever the other end of a stream, or of a gateway, says is a word of it or none, and is written again as it was read; of a datagram nothing
//! lies beyond its step.

#![forbid(unsafe_code)]

mod driver;
mod words;

use polyduct::Changes;
use polyduct_stream::gateway::far::wire::{Answer, Call, Give, Offer, Offered, Take};
use polyduct_stream::gateway::udp::{Header, HEADER};
use words::{read, say};

fn target(input: &[u8]) {
    read::<Call>(input);
    read::<Answer>(input);
    read::<Give>(input);
    read::<Take>(input);
    // What is asked of a gateway is planned or refused.
    let _ = polyduct::gateway::understands(input);
    if let Some((header, payload)) = Header::decode(input) {
        assert!(header.at + payload.len() as u64 <= header.step_len);
        assert_eq!(header.encode(payload), input[..HEADER]);
    }
    // One whose checksum is right, whatever it says.
    if let Some((numbers, payload)) = input.split_first_chunk::<24>() {
        let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
        let header = Header { end: false, stream: 9, step: number(0), at: number(8), step_len: number(16) };
        let datagram = [&header.encode(payload)[..], payload].concat();
        let fits = header.at.checked_add(payload.len() as u64).is_some_and(|end| end <= header.step_len);
        assert_eq!(Header::decode(&datagram), fits.then_some((header, payload)));
    }
}

fn main() {
    let call = Call {
        version: 2,
        name: "field".into(),
        transmits: true,
        session: 1 << 90,
        met: 0,
        lane: 1,
        lanes: 4,
        gateway: 1,
        gateways: 2,
    };
    let unit = Give::Unit { adu: 3, adu_len: 1 << 20, at: 65536, len: 65536 };
    let array = |name: &str, open| Offered { name: name.into(), shape: vec![4, 5], elem: "f32".into(), open };
    let alone = Give::Offer(Offer { arrays: vec![array("", None)] });
    let changes = [None, Some(Changes::Dim(1)), Some(Changes::Whole), Some(Changes::Never)];
    let several = Give::Offer(Offer { arrays: changes.map(|open| array("deep/u", open)).to_vec() });
    let header = Header { end: false, stream: 2, step: 1, at: 4, step_len: 9 };
    let asked = |place: &str| say(&polyduct::gateway::an_ask(place).expect("a place"));
    let seeds = [
        asked("tcp://127.0.0.1:9?lanes=4"),
        asked("display://:9/large?part=a&members=2&colour=rgb"),
        asked("stream://[::1]:9/field?lanes=6&group=g"),
        say(&call),
        say(&Answer::Refused("not here".into())),
        say(&unit),
        say(&alone),
        say(&several),
        say(&Take::Taken { adu: 3, at: 65536, len: 65536 }),
        [&header.encode(b"abcde")[..], b"abcde"].concat(),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    driver::run(&seeds, &[&[0xff; 10], &[0; 8], b"PDUD\x02", &[0x80, 0x80, 0x04]], target);
}
