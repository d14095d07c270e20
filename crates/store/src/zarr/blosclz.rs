//! Streams of blosclz, the compressor that c-blosc has of its own. Nothing describes them but its
//! `blosclz.c`.
//!
//! | first byte | what it begins |
//! |---|---|
//! | below 32 | as many bytes as it says and one more follow as they are |
//! | others | a copy of bytes that came before |
//!
//! The upper three bits of a copy's first byte are its length less 2; where all three are set, the bytes that
//! follow are added to it, up to the first that is not 255. The lower five bits and the next byte, the higher
//! bits first, are how far it goes back less 1; where all thirteen are set, the next two bytes are added, the
//! higher first. The upper three bits of a stream's first byte are a mark: no stream begins with a copy.

/// A copy that is at least so long says how much longer.
const MANY: usize = 9;

/// A copy that goes back farther than so many bytes says how much farther.
const FAR: usize = 0x1fff;

/// Decodes a stream, and says to how many bytes; `None` for a bad one.
pub fn decode(stream: &[u8], to: &mut [u8]) -> Option<usize> {
    let mut stream = stream.iter();
    let mut control = stream.next()? & 31;
    let mut at = 0;
    loop {
        let len = match control {
            0..32 => {
                let len = usize::from(control) + 1;
                let (bytes, rest) = stream.as_slice().split_at_checked(len)?;
                to.get_mut(at..at + len)?.copy_from_slice(bytes);
                stream = rest.iter();
                len
            }
            _ => {
                let mut next = || stream.next().map(|byte| usize::from(*byte));
                let mut len = usize::from(control >> 5) + 2;
                let mut more = if len == MANY { 255 } else { 0 };
                while more == 255 {
                    more = next()?;
                    len += more;
                }
                let mut back = usize::from(control & 31) << 8 | next()?;
                if back == FAR {
                    back += next()? << 8 | next()?;
                }
                repeat(to, at, back + 1, len)?;
                len
            }
        };
        at += len;
        match stream.next() {
            Some(next) => control = *next,
            None => return Some(at),
        }
    }
}

/// Copies `len` bytes to `at` from `back` before it; what is copied may be part of the copy.
fn repeat(to: &mut [u8], at: usize, back: usize, len: usize) -> Option<()> {
    let from = at.checked_sub(back)?;
    let end = at.checked_add(len).filter(|end| *end <= to.len())?;
    if back == 1 {
        let byte = to[from];
        to[at..end].fill(byte);
        return Some(());
    }
    // Twice as much as the time before, as the copy itself may be copied.
    let mut at = at;
    while at < end {
        let len = (at - from).min(end - at);
        to.copy_within(from..from + len, at);
        at += len;
    }
    Some(())
}
