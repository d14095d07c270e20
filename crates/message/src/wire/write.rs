//! The pieces of a frame, into its bytes.

use super::{Fragment, Name, Piece};
use super::{ABORT, ACK, CANCEL, CLOSE, DONE, FRAGMENT, GO_AHEAD, PING, PONG, REFUSAL, TAKEN};
use super::{FIRST, HEAD, LAST, LENGTH, MAX_ACK_RANGES};

/// Appends the header of a fragment; its bytes follow.
pub fn write_fragment_header(f: &Fragment<'_>, out: &mut Vec<u8>) {
    let first = f.offset == 0;
    let flags = if first { FIRST } else { 0 }
        | if f.last { LAST } else { 0 }
        | if f.head.is_some() { HEAD } else { 0 }
        | if f.total.is_some() { LENGTH } else { 0 };
    let stream = f.name.stream.0.to_le_bytes();
    out.extend([FRAGMENT, flags, stream[0], stream[1]]);
    out.extend(f.name.number.to_le_bytes());
    out.extend((f.len | u32::from(f.attempt) << 24).to_le_bytes());
    if !first {
        out.extend(f.offset.to_le_bytes());
    }
    if let Some(head) = f.head {
        out.extend(head.handler.0.to_le_bytes());
        for arg in head.args {
            out.extend(arg.to_le_bytes());
        }
    }
    if let Some(total) = f.total {
        out.extend(total.to_le_bytes());
    }
}

/// Bytes of an acknowledgement with that many ranges.
pub fn ack_len(ranges: usize) -> usize {
    20 + 8 * ranges.saturating_sub(1)
}

/// Appends an acknowledgement of inclusive ranges, from the largest downwards, apart from each other. Nothing
/// is written without ranges; what does not fit the fields is left out.
pub fn write_ack(path: u8, delay_us: u32, mut ranges: impl Iterator<Item = (u64, u64)>, out: &mut Vec<u8>) {
    let Some((mut low, largest)) = ranges.next() else { return };
    let start = out.len();
    let first = (largest - low).min(u32::MAX.into()) as u32;
    out.extend([ACK, path, 0, 0]);
    out.extend(delay_us.to_le_bytes());
    out.extend(largest.to_le_bytes());
    out.extend(first.to_le_bytes());
    let mut count = 0u16;
    for (l, h) in ranges.take(MAX_ACK_RANGES) {
        let (Ok(gap), Ok(len)) = (u32::try_from(low - h - 1), u32::try_from(h - l)) else { break };
        out.extend(gap.to_le_bytes());
        out.extend(len.to_le_bytes());
        low = l;
        count += 1;
    }
    out[start + 2..start + 4].copy_from_slice(&count.to_le_bytes());
}

/// Appends any piece, with the bytes of a fragment.
pub fn write_piece(piece: &Piece<'_>, out: &mut Vec<u8>) {
    let mut named = |kind: u8, attempt: u8, name: &Name| {
        let stream = name.stream.0.to_le_bytes();
        out.extend([kind, attempt, stream[0], stream[1]]);
        out.extend(name.number.to_le_bytes());
    };
    match piece {
        Piece::Fragment(f) => {
            write_fragment_header(f, out);
            out.extend(f.bytes);
        }
        Piece::Ack(a) => write_ack(a.path, a.delay_us, a.ranges(), out),
        Piece::Taken(name) => named(TAKEN, 0, name),
        Piece::Done(name) => named(DONE, 0, name),
        Piece::Refusal { name, attempt } => named(REFUSAL, *attempt, name),
        Piece::GoAhead { name, attempt } => named(GO_AHEAD, *attempt, name),
        Piece::Cancel(name) => named(CANCEL, 0, name),
        Piece::Ping => out.extend([PING, 0, 0, 0]),
        Piece::Pong => out.extend([PONG, 0, 0, 0]),
        Piece::Close => out.extend([CLOSE, 0, 0, 0]),
        Piece::Abort { code } => {
            let code = code.to_le_bytes();
            out.extend([ABORT, 0, code[0], code[1]]);
        }
    }
}
