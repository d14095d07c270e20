use super::*;
use proptest::prelude::*;
use std::io::Write;

/// What c-blosc 1.21 made of [`captured`], in hexadecimal digits: each compressor, blocks that are split and
/// that are not, shuffled in each way, with a short last block and without.
const CAPTURED: [&str; 5] = [
    // blosclz, , 0
    "020100042002000020020000aa000000140000001d0000002300000000e0170301e803e0190301d007e0190301b80be00f030100002300\
     000029b80b0000b80b0000a00fe01903018813e01903017017e0190301581be007030100002700000023581b0000e0030301401fe01903\
     012823e01903011027e019030bf82a0000f82a0000f82a00001f00000023f82a0000e00b0301e02ee0190301c832e0190301b036e01903\
     03983a0000",
    // lz4, bytes, 0
    "020121042002000020020000c000000014000000430000001400010014e8010014d0010014b8010014a001001488010014700100145801\
     0014400100142801001410010014f8010014e0010014c80100a0b0b0b0b0b0b0b0b0b09843000000140001001403010014070100140b01\
     00140f01001413010014170100141b0100141f01001423010014270100142a0100142e010014320100a03636363636363636363a0b0000\
     001f0001006f5000000000000b0000001f0001006f500000000000",
    // lz4hc, , 256
    "0201300420020000000100009a0000001c0000004f000000880000002f0000001f000100102fe80304000f2fd00704000f2fb80b04000f\
     2fa00f04000f2f881304000f2f701704000e5000581b0000350000004f581b00000400092f401f04000f2f282304000f2f102704000f2f\
     f82a04000f2fe02e04000f2fc83204000f80b0360000b03600000e0000004fb03600000400045000983a0000",
    // zlib, bytes, 256
    "020171042002000000010000a00000001c00000052000000890000003200000078da63608082173070010676c0c00218e8808102188880\
     69676086017618e086017e181086017118906618600000aecb277a3300000078da8b8880000718d080010118f801030f60e0040c6cd820\
     0d05f230a00c03ea30a005037a3060040366660c030c00f59129c81300000078dadbb0010c6698418015031a0000bd64071d",
    // zstd, bits, 0
    "0201940420020000200200007d000000140000006500000028b52ffd602001dd0200d2460f12d0670c3254ba4214e0f6014e11b91b4449\
     0aaa0afe93aae08f6453b0061125967eaa8acf7f53b5fc9f9637c18f547c1a44b6703e72bcf453d2b070060b20502fb00e2ea70a08d7c3\
     7b20328fe444bf728e1c128c33b301",
];

fn captured() -> Vec<u8> {
    (0..136u32).flat_map(|i| (i / 9 * 1000).to_le_bytes()).collect()
}

fn captured_frames() -> impl Iterator<Item = Vec<u8>> {
    CAPTURED.iter().map(|digits| {
        let digit = |d: u8| (d as char).to_digit(16).unwrap() as u8;
        digits.as_bytes().chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
    })
}

/// How a frame is written.
#[derive(Clone, Debug)]
struct How {
    element: usize,
    block: usize,
    /// Flags of the header.
    shuffled: u8,
    compressor: u8,
    split: bool,
    /// Which streams are not compressed, and whether the last block's come first.
    raw: u64,
    backwards: bool,
}

fn how() -> impl Strategy<Value = How> {
    let element = prop_oneof![1usize..20, Just(255)];
    let block = prop_oneof![1usize..400, 1000usize..5000];
    let shuffled = proptest::sample::select(vec![0, 1, 4]);
    (element, block, shuffled, 0u8..5, any::<bool>(), prop_oneof![Just(0), any::<u64>()], any::<bool>())
        .prop_map(|(element, block, shuffled, compressor, split, raw, backwards)| How {
            element,
            // Whole elements, where there is more than one.
            block: if block > element { block / element * element } else { block },
            shuffled,
            compressor,
            split,
            raw,
            backwards,
        })
}

/// Bytes that repeat in some places.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = (0u8..4, 0usize..3000, any::<u32>());
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| {
        let mut bytes = Vec::<u8>::new();
        for (kind, len, seed) in pieces {
            let mut random = seed | 1;
            let before = bytes.len();
            for i in 0..len {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                bytes.push(match kind {
                    0 => (random >> 24) as u8,
                    1 => seed as u8,
                    2 => (i / 4) as u8,
                    _ => bytes.get((seed as usize % (before + 1)) + i).copied().unwrap_or(3),
                });
            }
        }
        bytes
    })
}

/// The slow and obvious meaning of shuffling.
fn shuffle(block: &[u8], how: &How) -> Vec<u8> {
    let n = block.len() / how.element;
    let (elements, rest) = block.split_at(n * how.element);
    let byte = |i: usize, j: usize| elements[i * how.element + j];
    let mut shuffled = Vec::new();
    for j in 0..how.element {
        match how.shuffled {
            1 => shuffled.extend((0..n).map(|i| byte(i, j))),
            4 if n.is_multiple_of(8) => {
                for bit in 0..8 {
                    let of = |i: usize| byte(i, j) >> bit & 1;
                    shuffled.extend((0..n / 8).map(|g| (0..8).map(|i| of(8 * g + i) << i).sum::<u8>()));
                }
            }
            _ => return block.to_vec(),
        }
    }
    shuffled.extend(rest);
    shuffled
}

fn compress(part: &[u8], compressor: u8) -> Vec<u8> {
    match compressor {
        0 => blosclz(part),
        1 => {
            let mut to = vec![0; lz4_flex::block::get_maximum_output_size(part.len())];
            let len = lz4_flex::block::compress_into(part, &mut to).unwrap();
            to.truncate(len);
            to
        }
        2 => snap::raw::Encoder::new().compress_vec(part).unwrap(),
        3 => {
            let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            zlib.write_all(part).unwrap();
            zlib.finish().unwrap()
        }
        _ => ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest),
    }
}

/// A copy of the nearest earlier bytes wherever three are the same.
fn blosclz(part: &[u8]) -> Vec<u8> {
    let mut found = std::collections::HashMap::new();
    let mut to = Vec::new();
    let mut plain = Vec::new();
    let write = |plain: &mut Vec<u8>, to: &mut Vec<u8>| {
        for bytes in plain.chunks(32) {
            to.push(bytes.len() as u8 - 1);
            to.extend(bytes);
        }
        plain.clear();
    };
    let mut at = 0;
    while at < part.len() {
        let before = part.get(at..at + 3).and_then(|three| found.insert(three, at));
        let back = before.map_or(usize::MAX, |before| at - before - 1);
        if back > 8191 + 65535 {
            plain.push(part[at]);
            at += 1;
            continue;
        }
        let len = (at..part.len()).take_while(|&i| part[i] == part[i - back - 1]).count();
        write(&mut plain, &mut to);
        let near = back.min(8191);
        to.push((len - 2).min(7) as u8 * 32 + (near >> 8) as u8);
        if len >= 9 {
            to.extend(std::iter::repeat_n(255, (len - 9) / 255));
            to.push(((len - 9) % 255) as u8);
        }
        to.push(near as u8);
        if near == 8191 {
            to.extend(((back - near) as u16).to_be_bytes());
        }
        at += len;
    }
    write(&mut plain, &mut to);
    to
}

fn header(flags: u8, element: usize, numbers: [usize; 3]) -> Vec<u8> {
    let numbers = numbers.into_iter().flat_map(|n| (n as u32).to_le_bytes());
    [2, 1, flags, element as u8].into_iter().chain(numbers).collect()
}

fn write(bytes: &[u8], how: &How) -> Vec<u8> {
    let block = how.block.min(bytes.len()).max(1);
    let split =
        how.split && how.element <= 16 && block / how.element >= 128 && block.is_multiple_of(how.element);
    let mut streams = 0;
    let blocks: Vec<Vec<u8>> = bytes
        .chunks(block)
        .map(|bytes| {
            let parts = if split && bytes.len() == block { how.element } else { 1 };
            let shuffled = shuffle(bytes, how);
            let mut to = Vec::new();
            for part in shuffled.chunks(bytes.len() / parts) {
                let mut stream = compress(part, how.compressor);
                if stream.len() >= part.len() || how.raw >> (streams % 64) & 1 == 1 {
                    stream = part.to_vec();
                }
                streams += 1;
                to.extend((stream.len() as u32).to_le_bytes());
                to.extend(stream);
            }
            to
        })
        .collect();
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    if how.backwards {
        order.reverse();
    }
    let mut starts = vec![0; blocks.len()];
    let mut all: Vec<u8> = Vec::new();
    for i in order {
        starts[i] = 16 + 4 * blocks.len() + all.len();
        all.extend(&blocks[i]);
    }
    let flags = how.shuffled | u8::from(!split) << 4 | how.compressor << 5;
    let mut frame = header(flags, how.element, [bytes.len(), block, 16 + 4 * blocks.len() + all.len()]);
    frame.extend(starts.into_iter().flat_map(|at| (at as u32).to_le_bytes()));
    frame.extend(all);
    frame
}

/// What is damaged decodes to no more than it may, or is refused.
fn check_damaged(frame: &[u8], limit: u64) {
    if let Ok(bytes) = decode(frame, limit) {
        assert!(bytes.capacity() as u64 <= limit);
        assert_eq!(bytes.len() as u32, u32::from_le_bytes(frame[4..8].try_into().unwrap()));
    }
}

#[test]
fn frames_of_c_blosc_are_decoded_and_no_damage_of_them_does_harm() {
    let bytes = captured();
    let len = bytes.len() as u64;
    for mut frame in captured_frames() {
        assert_eq!(decode(&frame, len), Ok(bytes.clone()));
        assert_eq!(decode(&frame, len - 1), Err(format!("{len} bytes; expected {} at most", len - 1)));
        for at in 0..frame.len() {
            assert!(decode(&frame[..at], len).is_err(), "{at}");
            let right = frame[at];
            for change in 1..=255 {
                frame[at] = right ^ change;
                check_damaged(&frame, 2 * len);
            }
            frame[at] = right;
        }
        frame.push(0);
        assert!(decode(&frame, len).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_frame_is_decoded(
        bytes in data(), how in how(), at: proptest::sample::Index, change in 1u8..,
    ) {
        let mut frame = write(&bytes, &how);
        let len = bytes.len() as u64;
        let found = decode(&frame, len);
        prop_assert!(found.as_ref() == Ok(&bytes), "{:?} {:?}", how, found.map(|f| f.len()));
        prop_assert!(len == 0 || decode(&frame, len - 1).is_err());
        let at = at.index(frame.len());
        prop_assert!(decode(&frame[..at], len).is_err());
        frame[at] ^= change;
        check_damaged(&frame, len);
    }

    #[test]
    fn copies_are_decoded(bytes in data(), element in 1usize..=255, shuffled in proptest::sample::select(vec![0, 1, 4])) {
        // Whatever the flags say of shuffling and compressors.
        let mut frame = header(2 | 7 << 5 | shuffled, element, [bytes.len(), bytes.len().max(1), 16 + bytes.len()]);
        frame.extend(&bytes);
        prop_assert!(decode(&frame, bytes.len() as u64) == Ok(bytes));
        frame.push(0);
        prop_assert!(decode(&frame, 1 << 20).is_err());
    }
}

#[test]
fn what_no_frame_may_say_is_refused() {
    let frame = |flags, element, len, block, rest: &[u8]| {
        [header(flags, element, [len, block, 16 + rest.len()]).as_slice(), rest].concat()
    };
    let stream = |len: u32, bytes: &[u8]| [&20u32.to_le_bytes(), &len.to_le_bytes(), bytes].concat();
    let eight = stream(8, b"abcdefgh");
    let good = frame(0x10, 1, 8, 8, &eight);
    assert_eq!(decode(&good, 8), Ok(b"abcdefgh".to_vec()));
    let later = [&[3], &good[1..]].concat();
    // Two blocks that are both the one stream.
    let twice = [&24u32.to_le_bytes(), &24u32.to_le_bytes(), &eight[4..]].concat();
    let window = b"\x28\xb5\x2f\xfd\0\xf0\x41\0\0abcdefgh";
    for (frame, problem) in [
        (later, "version 3.1 with flags 0x10 is not known"),
        (frame(0x18, 1, 8, 8, &eight), "version 2.1 with flags 0x18 is not known"),
        (frame(0x15, 1, 8, 8, &eight), "version 2.1 with flags 0x15 is not known"),
        (frame(0xb0, 1, 8, 8, &eight), "compressor 5 is not known"),
        (frame(0x10, 0, 8, 8, &eight), "8 bytes in blocks of 8, elements of 0"),
        (frame(0x10, 1, 8, 0, &eight), "8 bytes in blocks of 0, elements of 1"),
        (frame(0x10, 1, 8, 9, &eight), "8 bytes in blocks of 9, elements of 1"),
        (frame(0x00, 3, 1000, 1000, &[0; 50]), "1000 bytes in blocks of 1000, elements of 3"),
        (frame(0x12, 1, 8, 8, &eight), "16 bytes after the header; expected 8"),
        (frame(0x10, 1, 8, 1, &eight), "16 bytes after the header; expected 32"),
        (frame(0x10, 1, 1001, 8, &eight), "1001 bytes; expected 1000 at most"),
        (frame(0x10, 1, 16, 8, &twice), "streams overlap"),
        (frame(0x10, 1, 8, 8, &stream(9, b"abcdefgh")), "a stream is cut short"),
        (frame(0x10, 1, 8, 8, &100u32.to_le_bytes()), "nothing at byte 100"),
        (frame(0x30, 1, 8, 8, &stream(3, b"\x20ab")), "a stream of 2 bytes; expected 8"),
        (frame(0x10, 1, 8, 8, &stream(3, b"\x01ab")), "a stream of 2 bytes; expected 8"),
        (frame(0x10, 1, 8, 8, &stream(4, b"\x01ab\x20")), "blosclz: bad stream"),
        (frame(0x10, 1, 8, 8, &stream(5, b"\x01ab\x20\x02")), "blosclz: bad stream"),
        (frame(0x10, 1, 8, 8, &stream(7, b"\x01ab\xe0\xff\xff\x00")), "blosclz: bad stream"),
        (frame(0x30, 1, 8, 8, &stream(1, b"\x20")), "lz4: "),
        (frame(0x50, 1, 8, 8, &stream(1, b"\x09")), "snappy: "),
        (frame(0x70, 1, 8, 8, &stream(1, b"\x78")), "zlib: "),
        (frame(0x90, 1, 8, 8, &stream(window.len() as u32, window)), "zstd: "),
    ] {
        let found = decode(&frame, 1000);
        assert!(found.as_ref().is_err_and(|found| found.starts_with(problem)), "{problem}: {found:?}");
    }
}
