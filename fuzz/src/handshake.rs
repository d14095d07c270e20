//! Any bytes are a message of the handshake, or the place of an endpoint, or are refused.

#![forbid(unsafe_code)]

mod driver;

use polyduct_message::endpoint::Place;
use polyduct_message::handshake::unpack;
use polyduct_pipe::wire::{FromHost, ToHost, PROTOCOL};

fn target(input: &[u8]) {
    let _ = PROTOCOL.decode::<ToHost>(input);
    let _ = PROTOCOL.decode::<FromHost>(input);
    // Behind the header, whose version only this program says.
    let _ = unpack::<ToHost>(input.get(8..).unwrap_or_default());
    let _ = unpack::<FromHost>(input.get(8..).unwrap_or_default());
    let Some(place) = Place::from_bytes(input) else { return };
    assert_eq!(Place::from_bytes(&place.to_bytes()), Some(place));
}

fn main() {
    let at = ["10.0.0.7:41", "[fe80::1]:65535"].map(|at| at.parse().ok());
    let place = |at| Place { unit: 7, draw: 1 << 63, host: None, at }.to_bytes();
    let places = [at[0], at[1], None].map(place);
    let seeds: [&[u8]; 7] = [
        b"PDUC\x0f\x00\x00\x01\x00\x06writer\x00\x02\x07block,*\x07\x00\x00\x01\x02\x04\x04\x03f32\x02\x00\x01\x00",
        b"PDUC\x0f\x00\x00\x01\x01\x02\x00\x01",
        b"PDUC\x0f\x00\x01\x01",
        b"PDUC\x02\x00\x00\x00\x00",
        &places[0],
        &places[1],
        &places[2],
    ];
    let words: [&[u8]; 5] = [b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80", b"PDUC", b"\x00", b"\x01"];
    driver::run(&seeds, &words, target);
}
