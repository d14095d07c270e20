//! Any bytes are the head of a request to a display or are refused; what is read does not depend on what
//! follows it, and its path comes out of its own address again.

#![forbid(unsafe_code)]

mod driver;

use polyduct_display::head::{encode, parse};
use polyduct_display::limits::MAX_HEAD_BYTES;

fn target(input: &[u8]) {
    match parse(input) {
        Ok(Some((request, len))) => {
            assert!(len <= input.len().min(MAX_HEAD_BYTES));
            assert_eq!(parse(&input[..len]), Ok(Some((request.clone(), len))));
            assert_eq!(parse(&input[..len - 1]), Ok(None));
            let again = format!("GET {} HTTP/1.1\r\n\r\n", encode(&request.path));
            if again.len() < MAX_HEAD_BYTES {
                let (again, _) = parse(again.as_bytes()).expect("a request").expect("all of it");
                assert_eq!(again.path, request.path);
            }
        }
        Ok(None) => assert!(input.len() < MAX_HEAD_BYTES),
        Err(why) => assert!((400..500).contains(&why.status()) && !why.to_string().is_empty()),
    }
}

fn main() {
    let seeds: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n",
        b"HEAD /a%20b/c.npy?view=u+v&token=00112233445566778899aabbccdd HTTP/1.1\r\nHost: [::1]\r\n\r\nmore",
        b"GET /a/ws HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
            Origin: http://localhost\r\n\r\n\x81\x82\0\0\0\0hi",
        b"GET /status.json HTTP/1.0\n\n",
        b"GET /a/frames?viewer=00112233445566778899aabbccddeeff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let words: [&[u8]; 12] = [
        b"\r\n",
        b"\r\n\r\n",
        b": ",
        b"%2f",
        b"%FF",
        b"?",
        b"&",
        b"Host",
        b"Upgrade",
        b"Sec-WebSocket-Key",
        b"HTTP/1.1",
        b"POST",
    ];
    driver::run(&seeds, &words, target);
}
