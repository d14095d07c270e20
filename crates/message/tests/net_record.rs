//! Messages and bytes that lie elsewhere, by turns on one connection, however they are cut on the way: each
//! comes once, in order, and what is not a message is never taken for one.

use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::record::{Piece, RecordReader, RecordWriter};
use polyduct_message::link::net::LinkFault;
use polyduct_message::link::noise::{Established, Initiator, Pending, Terms};
use polyduct_message::LinkError;
use polyduct_os::poll::{poll, PollItem};
use proptest::prelude::*;
use std::io::{IoSlice, IoSliceMut, Write};
use std::net::{TcpListener, TcpStream};

const LIMIT: usize = 1 << 20;

fn linked(trusted: bool) -> [Established; 2] {
    let me = |unit| Identity { domain: 5, unit, incarnation: 9, features: 0, frame_limit: 1 << 20, index: 0 };
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let terms = |unit| Terms { key: key.clone(), me: me(unit), trusted, carrier: Carrier::Stream };
    let mut a = Initiator::new(&terms(0), 1).unwrap();
    let mut b = Pending::new(&terms(1), a.message().bytes()).unwrap();
    let (a, confirm) = a.answer(b.message().bytes()).unwrap();
    [a, b.confirm(confirm.bytes()).unwrap()]
}

fn pair() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let b = listener.accept().unwrap().0;
    [&a, &b].iter().for_each(|s| s.set_nonblocking(true).unwrap());
    [a, b]
}

/// Both ends of a connection, of which one writes and one reads.
fn ends(trusted: bool, most: usize) -> ((RecordWriter, TcpStream), (RecordReader, TcpStream)) {
    let ([a, b], [from, to]) = (linked(trusted), pair());
    ((RecordWriter::new(a.sealer), from), (RecordReader::new(b.opener, most, most), to))
}

fn bytes(i: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + i * 7 + (at >> 8)) as u8).collect()
}

/// What goes next: a message, or bytes in parts of some length.
fn things() -> impl Strategy<Value = Vec<(bool, usize, usize)>> {
    let len = prop_oneof![1_usize..40, 1_usize..9000, 60_000_usize..300_000];
    prop::collection::vec((any::<bool>(), len, prop_oneof![1_usize..50, 1000_usize..200_000]), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn messages_and_bytes_come_as_they_went(
        things in things(), step in prop_oneof![1_usize..200, 60_000_usize..150_000],
        trusted in any::<bool>(), most in prop_oneof![Just(4 << 10), Just(256 << 10)],
    ) {
        let ((mut writer, from), (mut reader, to)) = ends(trusted, most);
        std::thread::scope(|s| {
            let things = &things;
            s.spawn(move || {
                let wait = || poll(&mut [PollItem::writable(&from)], None).map(drop).unwrap();
                for (i, &(is_message, len, part)) in things.iter().enumerate() {
                    let all = bytes(i, len);
                    if is_message {
                        writer.push(len, std::iter::once(Piece::Copy(&all))).unwrap();
                        continue;
                    }
                    let mut at = 0;
                    while at < len {
                        let parts: Vec<IoSlice<'_>> =
                            all[at..].chunks(part).take(64).map(IoSlice::new).collect();
                        match writer.send(&from, &parts).unwrap() {
                            Some(n) => at += n,
                            None => wait(),
                        }
                    }
                }
                while !writer.write(&from).unwrap() {
                    wait();
                }
            });
            let wait = || poll(&mut [PollItem::readable(&to)], None).map(drop).unwrap();
            for (i, &(is_message, len, _)) in things.iter().enumerate() {
                let mut all = vec![0; if is_message { 0 } else { len }];
                if is_message {
                    loop {
                        if let Some(message) = reader.message(&to, LIMIT).unwrap() {
                            all.extend_from_slice(message);
                            break;
                        }
                        wait();
                    }
                }
                let mut at = all.len() * usize::from(is_message);
                while at < len {
                    let end = (at + step).min(len);
                    let (one, two) = all[at..end].split_at_mut((end - at).div_ceil(2));
                    let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
                    match reader.recv(&to, &mut parts).unwrap() {
                        Some(n) => at += n,
                        None => wait(),
                    }
                }
                assert!(all == bytes(i, len), "{i} of {things:?}");
            }
        });
    }
}

#[test]
fn lengths_that_no_message_can_have_are_refused_before_anything_is_kept_for_them() {
    for len in [0, LIMIT as u32 + 1, u32::MAX] {
        let ((_, mut from), (mut reader, to)) = ends(true, 4 << 10);
        from.write_all(&len.to_le_bytes()).unwrap();
        poll(&mut [PollItem::readable(&to)], None).unwrap();
        let refused = reader.message(&to, LIMIT);
        let found = u64::from(len);
        assert!(
            matches!(refused, Err(LinkFault::Peer(LinkError::BadField { found: f, .. })) if f == found),
            "{len}"
        );
    }
}
