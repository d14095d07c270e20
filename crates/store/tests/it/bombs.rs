//! Chunks that say they are larger than they may be, or are: no memory is taken for what is not wanted.

use polyduct_rig::memory::{most_bytes, Counting};
use polyduct_store::zarr::Array;
use serde_json::json;
use std::io::Write;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of a chunk, and the most that one may have while it is decoded.
const CHUNK: usize = 64 << 10;
const LIMIT: usize = 2 * CHUNK + (64 << 10);

/// What Zstandard takes for itself where it looks 128 KiB back.
const ZSTD: usize = 4 << 20;

fn array(codec: &str) -> Array {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [CHUNK], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK]}},
        "chunk_key_encoding": "default", "fill_value": 0, "codecs": ["bytes", codec],
    });
    Array::parse(document.to_string().as_bytes()).unwrap()
}

/// Two gigabytes of one byte, in blocks of 128 KiB, behind a header that says how far back they may look.
fn zstd(window: u8) -> Vec<u8> {
    let block = (1u32 << 1 | (128 << 10) << 3).to_le_bytes();
    let blocks = [block[0], block[1], block[2], 7].repeat(16 << 10);
    [&b"\x28\xb5\x2f\xfd\0"[..], &[window], &blocks].concat()
}

/// A frame of one block and one stream.
fn blosc(flags: u8, element: u8, len: u32, block: u32, stream: &[u8]) -> Vec<u8> {
    let numbers = [len, block, 24 + stream.len() as u32, 20, stream.len() as u32];
    let numbers = numbers.into_iter().flat_map(u32::to_le_bytes);
    [2, 1, flags | 0x10, element].into_iter().chain(numbers).chain(stream.iter().copied()).collect()
}

#[test]
fn nothing_is_decoded_to_more_than_it_may_be() {
    let zeros = vec![0; 64 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&zeros).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    zlib.write_all(&zeros).unwrap();
    let zlib = zlib.finish().unwrap();
    let (len, above) = (CHUNK as u32, LIMIT as u32 + 1);
    let long = [&[255; 4000][..], &[0]].concat();
    // Windows of 128 KiB, of as much as is accepted, of twice that, and of what no machine has.
    let [near, widest, far, farthest] = [7 << 3, 13 << 3, 14 << 3, 31 << 3].map(zstd);
    for (i, (codec, chunk, most)) in [
        // What grows is moved to places of twice the size.
        ("gzip", gzip.finish().unwrap(), 3 * LIMIT),
        ("zstd", near.clone(), ZSTD),
        ("zstd", widest, ZSTD + 2 * (8 << 20)),
        ("zstd", far.clone(), 4096),
        ("zstd", farthest.clone(), 4096),
        ("blosc", blosc(1, 4, above, above, &zlib), 4096),
        ("blosc", blosc(1, 4, u32::MAX, u32::MAX, &zlib), 4096),
        ("blosc", blosc(1, 4, len, u32::MAX, &zlib), 4096),
        ("blosc", blosc(3 << 5 | 1, 4, len, len, &zlib), 3 * CHUNK),
        ("blosc", blosc(4 << 5 | 1, 4, len, len, &near), ZSTD),
        ("blosc", blosc(4 << 5 | 1, 4, len, len, &far), 3 * CHUNK),
        ("blosc", blosc(4 << 5 | 1, 4, len, len, &farthest), 3 * CHUNK),
        // A byte that is repeated a million times.
        (
            "blosc",
            blosc(1 << 5 | 1, 4, len, len, &[&b"\x1fa\x01\0"[..], &long, b"\x10a"].concat()),
            3 * CHUNK,
        ),
        ("blosc", blosc(1, 4, len, len, &[&b"\0a\xe0"[..], &long, b"\0"].concat()), 3 * CHUNK),
        ("blosc", blosc(2 << 5 | 1, 4, len, len, b"\xff\xff\xff\xff\x0f\0a"), 3 * CHUNK),
    ]
    .into_iter()
    .enumerate()
    {
        let array = array(codec);
        let (decoded, bytes) = most_bytes(|| array.decode(chunk));
        assert!(decoded.is_err() && bytes <= most, "{i}: {decoded:?}, {bytes} bytes");
    }
    // What is right takes its own bytes and those of a block.
    let plain: Vec<u8> = (0..CHUNK).map(|i| (i / 256) as u8).collect();
    let frame = blosc(1, 4, len, len, &plain);
    let (decoded, bytes) = most_bytes(|| array("blosc").decode(frame));
    assert_eq!(decoded.map(|decoded| decoded.len()), Ok(CHUNK));
    assert!(bytes <= 2 * CHUNK + 4096, "{bytes} bytes");
}
