//! Any text describes an array or is refused. The names of an array's chunks are numbers and lead nowhere
//! else; behind a zero byte stands a chunk, which is decoded to its length or refused.

#![forbid(unsafe_code)]

mod driver;

use polyduct_store::zarr::{print, Array};

fn target(input: &[u8]) {
    let (text, chunk) = match input.iter().position(|&byte| byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &[][..]),
    };
    let Ok(array) = Array::parse(text) else { return };
    let dims = array.shape.len();
    assert!(array.chunk.len() == dims && !array.chunk.contains(&0));
    assert_eq!(array.fill.len() as u64, array.elem.len_bytes());
    let mut order = array.order.clone();
    order.sort();
    assert!(order.into_iter().eq(0..dims));
    for n in [0, 1, u64::MAX] {
        let key = array.key(&vec![n; dims]);
        let parts: Vec<&str> = key.split(['/', '.']).collect();
        let number = |part: &&str| part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty();
        assert!(parts.iter().skip(usize::from(parts[0] == "c")).all(number), "{key}");
        assert!(!key.starts_with(['/', '.']) && key.len() <= 1 + 21 * dims.max(1));
    }
    if array.chunk_len() <= 1 << 16 {
        if let Ok(bytes) = array.decode(chunk.to_vec()) {
            assert_eq!(bytes.len() as u64, array.chunk_len());
        }
    }
    let again = Array::parse(print(array.elem, &array.shape, &array.chunk, &array.attributes).as_bytes())
        .expect("as printed");
    assert_eq!((again.elem, &again.shape, &again.chunk), (array.elem, &array.shape, &array.chunk));
    assert_eq!(again.attributes, array.attributes);
    assert!(again.fill.iter().all(|&b| b == 0));
}

/// A frame of Blosc of eight bytes, in one block and one stream.
fn blosc(compressor: u8, shuffled: u8, stream: &[u8]) -> Vec<u8> {
    let numbers = [8, 8, 24 + stream.len() as u32, 20, stream.len() as u32];
    let header = [2, 1, compressor << 5 | 0x10 | shuffled, 2].into_iter();
    header.chain(numbers.into_iter().flat_map(u32::to_le_bytes)).chain(stream.iter().copied()).collect()
}

fn main() {
    let common = r#""zarr_format":3,"node_type":"array","attributes":{},"dimension_names":["x",null]"#;
    let texts = [
        format!(
            r#"{{{common},"shape":[10,20],"data_type":"float32","fill_value":"NaN","chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[4,8]}}}},"chunk_key_encoding":{{"name":"default","configuration":{{"separator":"/"}}}},"codecs":[{{"name":"transpose","configuration":{{"order":[1,0]}}}},{{"name":"bytes","configuration":{{"endian":"big"}}}},"crc32c"]}}"#
        ),
        format!(
            r#"{{{common},"shape":[8],"data_type":"r16","fill_value":[1,2],"chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[4]}}}},"chunk_key_encoding":"v2","codecs":[{{"name":"sharding_indexed","configuration":{{"chunk_shape":[2],"codecs":["bytes","gzip"],"index_codecs":["bytes","crc32c"],"index_location":"start"}}}}]}}"#
        ),
        format!(
            r#"{{{common},"shape":[],"data_type":"complex64","fill_value":[0,"Infinity"],"chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[]}}}},"chunk_key_encoding":"default","codecs":["bytes","zstd"]}}"#
        ),
        format!(
            r#"{{{common},"shape":[8],"data_type":"uint16","fill_value":0,"chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[8]}}}},"chunk_key_encoding":"default","codecs":[{{"name":"sharding_indexed","configuration":{{"chunk_shape":[8],"index_codecs":["bytes"],"codecs":[{{"name":"sharding_indexed","configuration":{{"chunk_shape":[4],"codecs":["bytes","blosc"],"index_codecs":["bytes"]}}}}]}}}}]}}"#
        ),
    ];
    // Eight bytes in one raw block, and in one stored block.
    let zstd = b"\0\x28\xb5\x2f\xfd\x20\x08\x41\0\0abcdefgh";
    let gzip = b"\0\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x04\0\xfb\xffabcd\x11\xcd\x82\xed\x04\0\0\0";
    let mut seeds = vec![
        [texts[0].as_bytes(), &[0; 133]].concat(),
        [texts[1].as_bytes(), gzip].concat(),
        [texts[2].as_bytes(), zstd].concat(),
    ];
    // Eight times the same, and each compressor with each way to shuffle.
    let streams: [&[u8]; 5] = [
        b"\0a\xa0\0",
        b"\x12a\x01\0\x10a",
        b"\x08\0a\x0d\x01",
        b"\x78\xda\x4b\x4c\x84\0\0\x0d\xac\x03\x09",
        b"\x28\xb5\x2f\xfd\x20\x08\x43\0\0a",
    ];
    for (compressor, stream) in streams.iter().enumerate() {
        let frame = blosc(compressor as u8, [0, 1, 4][compressor % 3], stream);
        seeds.push([texts[3].as_bytes(), b"\0", &frame].concat());
    }
    for seed in &seeds {
        let (text, chunk) = seed.split_at(seed.iter().position(|&byte| byte == 0).expect("a chunk"));
        let array = Array::parse(text).expect("an array");
        assert!(array.decode(chunk[1..].to_vec()).is_ok() || array.fill == f32::NAN.to_le_bytes());
    }
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let words: [&[u8]; 20] = [
        b"\"name\":",
        b"\"configuration\":{",
        b"\"chunk_shape\":[",
        b"\"sharding_indexed\"",
        b"\"separator\":\"../\"",
        b"\"shape\":[",
        b"18446744073709551615",
        b"-1",
        b"0x7fc00000",
        b"\"group\"",
        b"\"must_understand\":false",
        b"\"blosc\"",
        b"\"bfloat16\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"\0",
        b"\x28\xb5\x2f\xfd",
    ];
    driver::run(&seeds, &words, target);
}
