//! What is printed parses to the same, and what parses prints to the same bytes.

use polyduct_message::wire::{build, write_ack, Fragment, Frame, Name, Piece, StreamId};
use polyduct_message::{ChannelId, HandlerId, Head, Order, Priority};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Name> {
    (0u16..4096, any::<bool>(), any::<bool>(), any::<u32>()).prop_map(|(channel, high, any, number)| {
        let priority = if high { Priority::High } else { Priority::Low };
        let order = if any { Order::Any } else { Order::Ordered };
        Name { stream: StreamId::new(ChannelId(channel), priority, order), number }
    })
}

/// A fragment as its parts, so that its bytes have an owner.
#[derive(Clone, Debug)]
enum Made {
    Fragment { name: Name, attempt: u8, offset: u64, bytes: Vec<u8>, end: u8, head: [u32; 5], beyond: u64 },
    Ack { delay: u32, ranges: Vec<(u64, u64)> },
    Small(u8, Name, u8, u16),
}

fn made() -> impl Strategy<Value = Made> {
    let offset = prop_oneof![Just(0), 1u64..1 << 47];
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    let fragment = (name(), any::<u8>(), offset, bytes, any::<u8>(), any::<[u32; 5]>(), 1u64..1 << 40)
        .prop_map(|(name, attempt, offset, bytes, end, head, beyond)| Made::Fragment {
            name,
            attempt,
            offset,
            bytes,
            end,
            head,
            beyond,
        });
    let ranges = proptest::collection::vec((1u64..1000, 0u64..1000), 1..40);
    let ack = (any::<u32>(), ranges).prop_map(|(delay, steps)| {
        let mut ranges = Vec::new();
        let mut top: u64 = 1 << 40;
        for (gap, len) in steps {
            ranges.push((top - len, top));
            top -= len + gap + 1;
        }
        Made::Ack { delay, ranges }
    });
    let small = (0u8..9, name(), any::<u8>(), any::<u16>()).prop_map(|(k, n, a, c)| Made::Small(k, n, a, c));
    prop_oneof![fragment, ack, small]
}

impl Made {
    fn piece<'a>(&'a self, ack: &'a mut Vec<u8>) -> Piece<'a> {
        match self {
            Made::Fragment { name, attempt, offset, bytes, end, head, beyond } => {
                let last = bytes.is_empty() || end % 2 == 0;
                let head = (*offset == 0 || end % 4 < 2).then_some(Head {
                    handler: HandlerId(head[0]),
                    args: [head[1], head[2], head[3], head[4]],
                });
                let total =
                    (!last && head.is_some() && end % 8 < 4).then_some(offset + bytes.len() as u64 + beyond);
                let len = bytes.len() as u32;
                let (name, attempt, offset) = (*name, *attempt, *offset);
                Piece::Fragment(Fragment { name, attempt, offset, len, last, head, total, bytes })
            }
            Made::Ack { delay, ranges } => {
                // An ack borrows its ranges from a frame.
                let mut bytes = build(0, 0, 0, false, &[]);
                write_ack(3, *delay, ranges.iter().copied(), &mut bytes);
                let len = bytes.len() as u32;
                bytes[4..8].copy_from_slice(&len.to_le_bytes());
                *ack = bytes;
                Frame::parse(ack).unwrap().pieces().next().unwrap()
            }
            Made::Small(kind, name, attempt, code) => match kind {
                0 => Piece::Taken(*name),
                1 => Piece::Done(*name),
                2 => Piece::Refusal { name: *name, attempt: *attempt },
                3 => Piece::GoAhead { name: *name, attempt: *attempt },
                4 => Piece::Cancel(*name),
                5 => Piece::Ping,
                6 => Piece::Pong,
                7 => Piece::Close,
                _ => Piece::Abort { code: *code },
            },
        }
    }
}

proptest! {
    #[test]
    fn printed_and_parsed(
        made in proptest::collection::vec(made(), 0..12),
        (path, session, number, sealed) in any::<(u8, u64, u64, bool)>(),
    ) {
        let mut acks = vec![Vec::new(); made.len()];
        let pieces: Vec<_> = made.iter().zip(&mut acks).map(|(m, ack)| m.piece(ack)).collect();
        let bytes = build(path, session, number, sealed, &pieces);
        let frame = Frame::parse(&bytes).unwrap();
        prop_assert_eq!((frame.header.path, frame.header.session, frame.header.number), (path, session, number));
        prop_assert_eq!(frame.header.len as usize, bytes.len());
        let found: Vec<_> = frame.pieces().collect();
        prop_assert_eq!(&found, &pieces);
        for (m, piece) in made.iter().zip(&found) {
            if let (Made::Ack { ranges, .. }, Piece::Ack(ack)) = (m, piece) {
                prop_assert_eq!(&ack.ranges().collect::<Vec<_>>(), ranges);
            }
        }
    }

    #[test]
    fn whatever_parses_prints_to_itself(tail in proptest::collection::vec(any::<u8>(), 0..120), kind in 1u8..12) {
        let mut bytes = build(0, 1, 2, false, &[]);
        bytes.push(kind);
        bytes.extend(tail);
        let len = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        if let Ok(frame) = Frame::parse(&bytes) {
            let pieces: Vec<_> = frame.pieces().collect();
            prop_assert_eq!(build(0, 1, 2, false, &pieces), bytes);
        }
    }
}
