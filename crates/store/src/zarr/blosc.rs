//! Frames of Blosc 1, as c-blosc writes them; `README_CHUNK_FORMAT.rst` in its repository describes them.
//!
//! | bytes | what; all numbers little-endian |
//! |---|---|
//! | 0 | version of the format: 2 |
//! | 1 | version of the compressor's format: 1 |
//! | 2 | flags: bit 0 bytes are shuffled; bit 1 nothing is compressed or shuffled, the bytes follow the header; bit 2 bits are shuffled; bit 3 zero; bit 4 blocks are not split; bits 5 to 7 compressor: 0 blosclz, 1 lz4 and lz4hc, 2 snappy, 3 zlib, 4 zstd |
//! | 3 | bytes of an element, at least 1 |
//! | 4 … 8 | bytes that the frame decodes to |
//! | 8 … 12 | bytes that each block decodes to, but a shorter last one |
//! | 12 … 16 | bytes of the frame |
//! | 16 … | for each block, 4 bytes: where in the frame its first stream begins |
//! | | streams, each behind 4 bytes with its length |
//!
//! A block that is split has a stream for each byte of an element, any other has one. A stream that is as
//! long as what it decodes to is not compressed. Shuffled, a block has the first bytes of all its elements,
//! then all second bytes, and so on; or of each byte of the elements first all lowest bits, eight elements to
//! a byte, and so on. What is left after its last whole element follows as it is.

use super::blosclz;
use super::codec::zeros;
use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::FrameDecoder;

const HEADER_BYTES: usize = 16;

/// Elements of up to so many bytes are split, in blocks that have at least so many of them.
const SPLIT_BYTES: usize = 16;
const SPLIT_ELEMENTS: usize = 128;

/// The largest block of Zstandard, of which decoders keep one or two anyway.
const ZSTD_BLOCK_BYTES: usize = 128 << 10;

/// Elements whose bytes are brought together at a time, so that compilers make vector instructions of it.
const MANY: usize = 64;

/// What a frame's header says, checked against the frame's length.
struct Header {
    flags: u8,
    /// Bytes of an element, at least 1; of what is decoded; and of a block, at least 1.
    element: usize,
    len: usize,
    block: usize,
    /// Whether blocks that are not short have a stream for each byte of an element.
    splits: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shuffled {
    No,
    Bytes,
    Bits,
}

/// What streams are compressed with, and what is used again for each.
enum Compressor {
    BloscLz,
    Lz4,
    Snappy,
    Zlib(Decompress),
    Zstd(Box<FrameDecoder>),
}

/// The bytes of a frame. Takes memory for them and for a block or a few, and none for a frame that says they
/// are more than `limit`; looks at no byte of its streams twice.
pub fn decode(frame: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let header = Header::parse(frame, limit)?;
    if header.is_copy() {
        return Ok(frame[HEADER_BYTES..].to_vec());
    }
    let mut compressor = header.compressor()?;
    let shuffled = header.shuffled();
    let mut bytes = zeros(header.len)?;
    let mut scratch = zeros(if shuffled == Shuffled::No { 0 } else { header.block })?;
    let mut unread = frame.len() - HEADER_BYTES - header.table_bytes();
    for (i, block) in bytes.chunks_mut(header.block).enumerate() {
        let streams = header.streams(block.len());
        let target = match shuffled {
            Shuffled::No => &mut *block,
            _ => &mut scratch[..block.len()],
        };
        let mut at = word(frame, HEADER_BYTES + 4 * i)?;
        for part in target.chunks_exact_mut(target.len() / streams) {
            let len = word(frame, at)?;
            let stream =
                frame.get(at + 4..).and_then(|rest| rest.get(..len)).ok_or("a stream is cut short")?;
            // Streams that many blocks share would make a small frame take forever.
            unread = unread.checked_sub(4 + len).ok_or("streams overlap")?;
            at += 4 + len;
            if len == part.len() {
                part.copy_from_slice(stream);
                continue;
            }
            let found = compressor.decode(stream, part)?;
            if found != part.len() {
                return Err(format!("a stream of {found} bytes; expected {}", part.len()));
            }
        }
        if shuffled != Shuffled::No {
            unshuffle(&scratch, block, header.element, shuffled == Shuffled::Bits);
        }
    }
    Ok(bytes)
}

/// Bytes of a block that is encoded: a whole number of elements of any size that has a place in a header.
const BLOCK_BYTES: usize = 256 << 10;

/// A frame of bytes, shuffled as elements of `element` bytes (at least 1) and compressed with LZ4, that
/// [`decode`] and c-blosc take. It is at most a header longer than `bytes`, of which there are less than 2
/// GiB.
pub fn encode(bytes: &[u8], element: u8) -> Vec<u8> {
    /// Blocks of LZ4 that are not split, and bytes as they are.
    const LZ4_WHOLE: u8 = 1 << 5 | 1 << 4;
    const COPY: u8 = 2;
    let size = usize::from(element.max(1));
    let block = (BLOCK_BYTES / size * size).min(bytes.len()).max(1);
    let header = |flags: u8, len: usize| {
        let words = [bytes.len(), block, len].map(|n| (n as u32).to_le_bytes());
        [&[2, 1, flags, element.max(1)], words.as_flattened()].concat()
    };
    let blocks = bytes.len().div_ceil(block);
    let mut frame = vec![0; HEADER_BYTES + 4 * blocks];
    let mut shuffled = vec![0; block];
    let mut room = vec![0; lz4_flex::block::get_maximum_output_size(block)];
    for (i, piece) in bytes.chunks(block).enumerate() {
        let shuffled = &mut shuffled[..piece.len()];
        shuffle(piece, shuffled, size);
        let begin = frame.len() as u32;
        frame[HEADER_BYTES + 4 * i..][..4].copy_from_slice(&begin.to_le_bytes());
        // As long as what it decodes to, a stream is that.
        let stream = match lz4_flex::block::compress_into(shuffled, &mut room) {
            Ok(len) if len < shuffled.len() => &room[..len],
            _ => &*shuffled,
        };
        frame.extend_from_slice(&(stream.len() as u32).to_le_bytes());
        frame.extend_from_slice(stream);
    }
    if frame.len() >= HEADER_BYTES + bytes.len() {
        return [&header(COPY, HEADER_BYTES + bytes.len()), bytes].concat();
    }
    let flags = LZ4_WHOLE | u8::from(size > 1);
    let header = header(flags, frame.len());
    frame[..HEADER_BYTES].copy_from_slice(&header);
    frame
}

/// The first bytes of all elements, then all second ones, and so on; what is left behind them as it is.
fn shuffle(from: &[u8], to: &mut [u8], size: usize) {
    let n = from.len() / size;
    let (elements, rest) = from.split_at(n * size);
    let (shuffled, behind) = to.split_at_mut(n * size);
    behind.copy_from_slice(rest);
    for (j, row) in shuffled.chunks_exact_mut(n.max(1)).enumerate() {
        row.iter_mut().zip(elements.iter().skip(j).step_by(size)).for_each(|(to, from)| *to = *from);
    }
}

/// Four bytes of the frame as a number.
fn word(frame: &[u8], at: usize) -> Result<usize, String> {
    match frame.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => Ok(u32::from_le_bytes(*bytes) as usize),
        None => Err(format!("nothing at byte {at}")),
    }
}

impl Header {
    fn parse(frame: &[u8], limit: u64) -> Result<Header, String> {
        let Some(&[version, compressor_version, flags, element]) = frame.first_chunk() else {
            return Err("no header".into());
        };
        let (len, block, frame_len) = (word(frame, 4)?, word(frame, 8)?, word(frame, 12)?);
        // Both kinds of shuffling at once mark headers of a later format.
        if (version, compressor_version) != (2, 1) || flags & 8 != 0 || flags & 5 == 5 {
            return Err(format!(
                "version {version}.{compressor_version} with flags {flags:#04x} is not known"
            ));
        }
        if len as u64 > limit {
            return Err(format!("{len} bytes; expected {limit} at most"));
        }
        if frame_len != frame.len() {
            return Err(format!("a frame of {frame_len} bytes in {}", frame.len()));
        }
        let element = usize::from(element);
        let fail = || format!("{len} bytes in blocks of {block}, elements of {element}");
        if element == 0 || block == 0 || block > len.max(1) {
            return Err(fail());
        }
        // Frames from before there was the flag do not set it, and are split where it makes sense.
        let splits = flags & 0x12 == 0 && element <= SPLIT_BYTES && block / element >= SPLIT_ELEMENTS;
        if splits && block % element != 0 {
            return Err(fail());
        }
        let header = Header { flags, element, len, block, splits };
        let found = frame_len - HEADER_BYTES;
        let (least, most) = if header.is_copy() { (len, len) } else { (header.table_bytes(), usize::MAX) };
        match (least..=most).contains(&found) {
            true => Ok(header),
            false => Err(format!("{found} bytes after the header; expected {least}")),
        }
    }

    fn is_copy(&self) -> bool {
        self.flags & 2 != 0
    }

    /// Bytes that say where blocks begin.
    fn table_bytes(&self) -> usize {
        self.len.div_ceil(self.block).saturating_mul(4)
    }

    fn shuffled(&self) -> Shuffled {
        match self.flags & 5 {
            1 if self.element > 1 => Shuffled::Bytes,
            4 => Shuffled::Bits,
            _ => Shuffled::No,
        }
    }

    /// The streams of a block of `len` bytes.
    fn streams(&self, len: usize) -> usize {
        if self.splits && len == self.block {
            self.element
        } else {
            1
        }
    }

    fn compressor(&self) -> Result<Compressor, String> {
        Ok(match self.flags >> 5 {
            0 => Compressor::BloscLz,
            1 => Compressor::Lz4,
            2 => Compressor::Snappy,
            3 => Compressor::Zlib(Decompress::new(true)),
            4 => Compressor::Zstd(Box::default()),
            other => return Err(format!("compressor {other} is not known")),
        })
    }
}

impl Compressor {
    /// Decodes a stream, and says to how many bytes.
    fn decode(&mut self, stream: &[u8], to: &mut [u8]) -> Result<usize, String> {
        match self {
            Compressor::BloscLz => blosclz::decode(stream, to).ok_or_else(|| "blosclz: bad stream".into()),
            Compressor::Lz4 => lz4_flex::block::decompress_into(stream, to).map_err(|e| format!("lz4: {e}")),
            Compressor::Snappy => {
                snap::raw::Decoder::new().decompress(stream, to).map_err(|e| format!("snappy: {e}"))
            }
            Compressor::Zlib(zlib) => {
                zlib.reset(true);
                match zlib.decompress(stream, to, FlushDecompress::Finish) {
                    Ok(Status::StreamEnd) => Ok(zlib.total_out() as usize),
                    Ok(_) => Err("zlib: bad length".into()),
                    Err(e) => Err(format!("zlib: {e}")),
                }
            }
            Compressor::Zstd(zstd) => {
                // No stream looks farther back than it is long.
                zstd.set_max_window_size(to.len().max(ZSTD_BLOCK_BYTES) as u64);
                zstd.decode_all(stream, to).map_err(|e| format!("zstd: {e}"))
            }
        }
    }
}

/// Brings the bytes of elements of `size` bytes together, and their bits.
fn unshuffle(from: &[u8], to: &mut [u8], size: usize, bits: bool) {
    let n = to.len() / size;
    // Elements that do not come in eights keep their bits where they are.
    let shuffled = if bits && !n.is_multiple_of(8) { 0 } else { n * size };
    let (elements, rest) = to.split_at_mut(shuffled);
    rest.copy_from_slice(&from[shuffled..][..rest.len()]);
    for (g, elements) in elements.chunks_mut(MANY * size).enumerate() {
        // The bytes `j` of these elements; of fewer than there are places for, what comes behind is not used.
        let one = |j: usize| match bits {
            true => gather_bits(from, 8 * j * (n / 8) + g * MANY / 8, n / 8),
            false => load(from, j * n + g * MANY),
        };
        let two = |j| join(one(j), one(j + 1), |a, b| u16::from_le_bytes([a, b]));
        let four = |j| join(two(j), two(j + 2), |a, b| u32::from(a) | u32::from(b) << 16);
        let eight = |j| join(four(j), four(j + 4), |a, b| u64::from(a) | u64::from(b) << 32);
        match size {
            1 => store(elements, one(0).map(|byte| [byte])),
            2 => store(elements, two(0).map(u16::to_le_bytes)),
            4 => store(elements, four(0).map(u32::to_le_bytes)),
            8 => store(elements, eight(0).map(u64::to_le_bytes)),
            _ => (0..size).for_each(|j| {
                elements.chunks_exact_mut(size).zip(one(j)).for_each(|(element, byte)| element[j] = byte);
            }),
        }
    }
}

/// Bytes from `at` on, and zeros behind the last.
fn load<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let from = from.get(at..).unwrap_or(&[]);
    from.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; N];
        bytes[..from.len()].copy_from_slice(from);
        bytes
    })
}

/// A byte of each of many elements, of the rows of its bits: `at` is where the first begins, `stride` how far
/// they are apart.
fn gather_bits(from: &[u8], at: usize, stride: usize) -> [u8; MANY] {
    let rows: [[u8; 8]; 8] = std::array::from_fn(|bit| load(from, at + bit * stride));
    let mut bytes = [0; MANY];
    for (i, eight) in bytes.chunks_exact_mut(8).enumerate() {
        eight.copy_from_slice(&transpose_bits(u64::from_le_bytes(rows.map(|row| row[i]))).to_le_bytes());
    }
    bytes
}

/// A word of each two of the same place.
fn join<T, U: Copy + Default>(a: [T; MANY], b: [T; MANY], word: impl Fn(T, T) -> U) -> [U; MANY] {
    let mut words = [U::default(); MANY];
    words.iter_mut().zip(a.into_iter().zip(b)).for_each(|(to, (a, b))| *to = word(a, b));
    words
}

/// Writes as many words as there is room for.
fn store<const N: usize>(to: &mut [u8], words: [[u8; N]; MANY]) {
    to.chunks_exact_mut(N).zip(words).for_each(|(to, word)| to.copy_from_slice(&word));
}

/// Swaps bit `i` of byte `j` and bit `j` of byte `i`: bits one off the diagonal, then pairs, then fours.
fn transpose_bits(mut bits: u64) -> u64 {
    for (by, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let swapped = (bits ^ bits >> by) & mask;
        bits ^= swapped ^ swapped << by;
    }
    bits
}

#[cfg(test)]
mod tests;
