//! Any bytes are a message of the handshake or are refused.

#![forbid(unsafe_code)]

mod driver;

use polyduct_message::handshake::unpack;
use polyduct_pipe::wire::{FromHost, ToHost, PROTOCOL};

fn target(input: &[u8]) {
    let _ = PROTOCOL.decode::<ToHost>(input);
    let _ = PROTOCOL.decode::<FromHost>(input);
    // Behind the header, whose version only this program says.
    let _ = unpack::<ToHost>(input.get(8..).unwrap_or_default());
    let _ = unpack::<FromHost>(input.get(8..).unwrap_or_default());
}

fn main() {
    let seeds: [&[u8]; 4] = [
        b"PDUC\x0f\x00\x00\x01\x00\x06writer\x00\x02\x07block,*\x07\x00\x00\x01\x02\x04\x04\x03f32\x02\x00\x01\x00",
        b"PDUC\x0f\x00\x00\x01\x01\x02\x00\x01",
        b"PDUC\x0f\x00\x01\x01",
        b"PDUC\x02\x00\x00\x00\x00",
    ];
    let words: [&[u8]; 5] = [b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80", b"PDUC", b"\x00", b"\x01"];
    driver::run(&seeds, &words, target);
}
