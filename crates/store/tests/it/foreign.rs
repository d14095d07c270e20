//! Zarr arrays that others write: any layout reads whatever chunks there are, and what is none is refused.

use crate::oracle::*;
use crate::roundtrip::case;
use crate::zarr::dtype;
use polyduct_layout::{Dataset, ElemType, Layout};
use polyduct_store::zarr::ZarrError;
use polyduct_store::{Expect, FileError, FileReader, Format};
use proptest::prelude::*;
use serde_json::{json, Value};
use std::io::Write;
use std::path::Path;

fn zero(elem: ElemType) -> Value {
    match elem {
        ElemType::C128 => json!([0, 0]),
        ElemType::Bytes(n) => json!(vec![0; n as usize]),
        _ => json!(0),
    }
}

/// How somebody else wrote an array.
#[derive(Clone, Debug)]
struct Written {
    chunk: Vec<u64>,
    /// Inner chunks of a shard in each dimension, and inner shards of those around it; the outermost first.
    per: Vec<Vec<u64>>,
    order: Vec<usize>,
    big: bool,
    codecs: Vec<&'static str>,
    nested: bool,
    v2: bool,
    at_end: bool,
    /// Which chunks hold nothing but the fill value, which is not zero.
    missing: u64,
}

fn written(dims: usize) -> impl Strategy<Value = Written> {
    let order = Just((0..dims).collect::<Vec<_>>()).prop_shuffle();
    let per = proptest::collection::vec(proptest::collection::vec(1u64..3, dims), 0..3);
    let codecs = proptest::sample::select(vec![
        vec![],
        vec![],
        vec!["gzip"],
        vec!["zstd"],
        vec!["crc32c"],
        vec!["zstd", "crc32c"],
        vec!["crc32c", "gzip"],
        vec!["blosc", "crc32c"],
    ]);
    let keys = (any::<bool>(), any::<bool>(), any::<bool>());
    (proptest::collection::vec(1u64..9, dims), per, order, any::<bool>(), codecs, keys, any::<u64>())
        .prop_map(|(chunk, per, order, big, codecs, (nested, v2, at_end), missing)| Written {
            chunk,
            per,
            order,
            big,
            codecs,
            nested,
            v2,
            at_end,
            missing,
        })
}

/// Eight dimensions of numbers in one.
fn number(coords: &[u64]) -> u64 {
    coords.iter().fold(0, |n, c| n * 9 + c)
}

impl Written {
    fn is_missing(&self, coords: &[u64]) -> bool {
        self.missing >> (number(coords) % 64) & 1 == 1
    }

    fn codecs(&self) -> Value {
        let order = json!({"name": "transpose", "configuration": {"order": self.order}});
        let endian = if self.big { "big" } else { "little" };
        let bytes = json!({"name": "bytes", "configuration": {"endian": endian}});
        let more = self.codecs.iter().map(|name| match *name {
            "gzip" => json!({"name": "gzip", "configuration": {"level": 5}}),
            name => json!({"name": name}),
        });
        [order, bytes].into_iter().chain(more).collect()
    }

    fn encode(&self, mut bytes: Vec<u8>, component: usize) -> Vec<u8> {
        if self.big {
            bytes.chunks_mut(component).for_each(<[u8]>::reverse);
        }
        for codec in &self.codecs {
            bytes = match *codec {
                "gzip" => {
                    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    gzip.write_all(&bytes).unwrap();
                    gzip.finish().unwrap()
                }
                "zstd" => {
                    ruzstd::encoding::compress_to_vec(&*bytes, ruzstd::encoding::CompressionLevel::Fastest)
                }
                // A frame that is not compressed; others have tests of their own.
                "blosc" => {
                    let numbers = [bytes.len(), bytes.len(), bytes.len() + 16];
                    let numbers = numbers.into_iter().flat_map(|n| (n as u32).to_le_bytes());
                    [2, 1, 2, 1].into_iter().chain(numbers).chain(bytes).collect()
                }
                _ => [bytes.as_slice(), &crc32c::crc32c(&bytes).to_le_bytes()].concat(),
            };
        }
        bytes
    }

    /// A chunk, or what holds a grid of them; `None` where there is none.
    fn shard(
        &self,
        levels: &[Vec<u64>],
        coords: &[u64],
        chunk: &dyn Fn(&[u64]) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let Some((per, inside)) = levels.split_first() else { return chunk(coords) };
        let (mut data, mut index) = (Vec::new(), Vec::new());
        let head = if self.at_end { 0 } else { per.iter().product::<u64>() * 16 + 4 };
        for inner in indices(per) {
            let coords: Vec<u64> = coords.iter().zip(&inner).zip(per).map(|((s, i), p)| s * p + i).collect();
            match self.shard(inside, &coords, chunk) {
                Some(bytes) => {
                    index.extend((head + data.len() as u64).to_le_bytes());
                    index.extend((bytes.len() as u64).to_le_bytes());
                    data.extend(bytes);
                }
                None => index.extend([0xFF; 16]),
            }
        }
        if data.is_empty() && levels.len() < self.per.len() {
            return None;
        }
        index.extend(crc32c::crc32c(&index).to_le_bytes());
        Some(if self.at_end { [data, index].concat() } else { [index, data].concat() })
    }

    /// Writes the array whose element at an index is what `element` says; gives the fill value's bytes.
    fn write(&self, path: &Path, elem: ElemType, shape: &[u64], element: impl Fn(&[u64]) -> Vec<u8>) {
        let len = elem.len_bytes() as usize;
        let component = if matches!(elem, ElemType::Bytes(_)) {
            1
        } else if elem == ElemType::C128 {
            8
        } else {
            len
        };
        std::fs::create_dir(path).unwrap();
        let mut outer = self.chunk.clone();
        let mut codecs = self.codecs();
        for per in self.per.iter().rev() {
            codecs = json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": outer, "codecs": codecs,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "index_location": if self.at_end { "end" } else { "start" },
            }}]);
            outer.iter_mut().zip(per).for_each(|(n, per)| *n *= per);
        }
        let separator = if self.nested { "/" } else { "." };
        let encoding = if self.v2 { "v2" } else { "default" };
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype(elem),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": outer}},
            "chunk_key_encoding": {"name": encoding, "configuration": {"separator": separator}},
            "fill_value": zero(elem), "codecs": codecs,
        });
        std::fs::write(path.join("zarr.json"), document.to_string()).unwrap();
        let grid: Vec<u64> = shape.iter().zip(&outer).map(|(n, c)| n.div_ceil(*c)).collect();
        let chunk = |coords: &[u64]| {
            if self.is_missing(coords) {
                return None;
            }
            // In the chunk's own order; what is outside of the array is rubbish.
            let sizes: Vec<u64> = self.order.iter().map(|&d| self.chunk[d]).collect();
            let mut bytes = Vec::new();
            for place in indices(&sizes) {
                let mut at = vec![0; shape.len()];
                self.order.iter().zip(&place).for_each(|(&d, i)| at[d] = coords[d] * self.chunk[d] + i);
                let inside = at.iter().zip(shape).all(|(i, n)| i < n);
                bytes.extend(if inside { element(&at) } else { vec![0xAB; len] });
            }
            Some(self.encode(bytes, component))
        };
        for shard in indices(&grid) {
            let Some(data) = self.shard(&self.per, &shard, &chunk) else { continue };
            let numbers = shard.iter().map(u64::to_string).collect::<Vec<_>>().join(separator);
            let name = match (self.v2, shape.is_empty()) {
                (true, true) => "0".to_owned(),
                (true, false) => numbers,
                (false, true) => "c".to_owned(),
                (false, false) => format!("c{separator}{numbers}"),
            };
            let file = path.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, data).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_chunks_to_any_layout(
        ((shape, elem, _, (dst, q), steps, _), how) in case().prop_flat_map(|case| {
            let dims = case.0.len() + usize::from(case.4 != 1);
            (Just(case), written(dims))
        }),
    ) {
        let dataset = Dataset::new(&shape, elem).unwrap();
        let Ok(dst) = dst.parse::<Layout>().unwrap().bind(&dataset, q.into()) else {
            return Err(TestCaseError::reject("does not bind"));
        };
        let place = Place::new();
        let path = place.file("a.zarr");
        let behind = usize::from(steps != 1);
        let all: Vec<u64> = if steps == 1 { shape.clone() } else { [&[steps], shape.as_slice()].concat() };
        // What is missing is zero; so must be the oracle's elements there.
        let is_missing = |at: &[u64]| {
            how.is_missing(&at.iter().zip(&how.chunk).map(|(i, c)| i / c).collect::<Vec<_>>())
        };
        let element = |at: &[u64]| {
            let step = if behind == 1 { at[0] } else { 0 };
            let element = at[behind..].iter().zip(&shape).fold(0, |e, (i, n)| e * n + i);
            (0..elem.len_bytes()).map(|b| byte(step, element, b)).collect::<Vec<u8>>()
        };
        how.write(&path, elem, &all, element);
        let units = dst.units() as u32;
        let layout = dst.layout().to_string();
        let expect = Expect { shape: Some(shape.clone()), elem: Some(elem), convert: false };
        for u in 0..units {
            let mut port = FileReader::open(&path, Format::Zarr, &layout, &expect, &unit(u, units)).unwrap();
            prop_assert_eq!(port.steps(), steps);
            for step in 0..steps {
                let mut expected = vec![0xEE; port.local_len_bytes()];
                for index in indices(&shape) {
                    let at: Vec<u64> = if behind == 1 { [&[step], index.as_slice()].concat() } else { index.clone() };
                    let bytes = if is_missing(&at) { vec![0; elem.len_bytes() as usize] } else { element(&at) };
                    for p in dst.locate(&index).unwrap().iter().filter(|p| p.unit == u64::from(u)) {
                        let (first, end) = p.bytes_of_elem();
                        let to = p.offset_bytes() as usize;
                        expected[to..to + (end - first) as usize].copy_from_slice(&bytes[first as usize..end as usize]);
                    }
                }
                let mut got = vec![0xEE; port.local_len_bytes()];
                prop_assert_eq!(port.read(&mut got), Ok(Some(step)));
                prop_assert!(got == expected, "{} unit {} step {} {:?}", layout, u, step, how);
            }
        }
    }
}

/// A small array that can be spoilt.
fn plain(path: &Path, codecs: Value) {
    std::fs::create_dir(path).unwrap();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4, 4], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 1.5, "codecs": codecs,
    });
    std::fs::write(path.join("zarr.json"), document.to_string()).unwrap();
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut port = FileReader::open(path, Format::Zarr, "*,*", &Expect::default(), &unit(0, 1))?;
    let mut part = vec![0; port.local_len_bytes()];
    port.read(&mut part)?;
    Ok(part)
}

#[test]
fn what_is_missing_is_the_fill_value() {
    let place = Place::new();
    let path = place.file("x.zarr");
    plain(&path, json!(["bytes"]));
    assert_eq!(read(&path).unwrap(), 1.5f32.to_le_bytes().repeat(16));
    let convert = Expect { elem: Some(ElemType::F64), convert: true, ..Expect::default() };
    let mut port = FileReader::open(&path, Format::Zarr, "*,cyclic", &convert, &unit(1, 2)).unwrap();
    let mut part = vec![0; port.local_len_bytes()];
    port.read(&mut part).unwrap();
    assert_eq!(part, 1.5f64.to_le_bytes().repeat(8));
    // Bytes of elements, too.
    let mut port =
        FileReader::open(&path, Format::Zarr, "stripe(3)", &Expect::default(), &unit(1, 2)).unwrap();
    let mut part = vec![0; port.local_len_bytes()];
    port.read(&mut part).unwrap();
    let all = 1.5f32.to_le_bytes().repeat(16);
    let expected: Vec<u8> = all.chunks(3).skip(1).step_by(2).flatten().copied().collect();
    assert_eq!(part, expected);
}

#[test]
fn what_is_no_array_is_refused() {
    let place = Place::new();
    let path = place.file("x.zarr");
    let shown = path.display().to_string();
    assert!(matches!(read(&path), Err(FileError::System { .. })));
    std::fs::create_dir(&path).unwrap();
    let problem = |p| FileError::BadPath { path: shown.clone(), problem: p };
    assert_eq!(read(&path), Err(problem("it has no zarr.json and no .zarray")));
    std::fs::write(path.join(".zarray"), "{}").unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.ends_with(".zarray: zarr_format: expected 2, found nothing"), "{error}");
    std::fs::remove_dir_all(&path).unwrap();

    plain(&path, json!(["bytes", "gzip"]));
    let chunk = path.join("c/1/0");
    std::fs::create_dir_all(chunk.parent().unwrap()).unwrap();
    std::fs::write(&chunk, "no gzip").unwrap();
    match read(&path) {
        Err(FileError::BadZarr { source: ZarrError::Chunk { key, problem }, .. }) => {
            assert!(key == "c/1/0" && problem.starts_with("gzip: "), "{key} {problem}");
        }
        other => panic!("{other:?}"),
    }
    std::fs::remove_dir_all(&path).unwrap();
    plain(&path, json!(["bytes"]));
    std::fs::create_dir_all(chunk.parent().unwrap()).unwrap();
    std::fs::write(&chunk, [0; 31]).unwrap();
    let cut = FileError::Truncated { path: format!("{shown}/c/1/0"), expected: 32, found: 31 };
    assert_eq!(read(&path), Err(cut));
    // No link leads out of the array.
    let secret = place.file("secret");
    std::fs::write(&secret, [7; 32]).unwrap();
    std::fs::remove_file(&chunk).unwrap();
    std::os::unix::fs::symlink(&secret, &chunk).unwrap();
    assert!(matches!(read(&path), Err(FileError::System { .. })), "{:?}", read(&path));
    std::fs::remove_dir_all(path.join("c")).unwrap();
    std::os::unix::fs::symlink(place.path(), path.join("c")).unwrap();
    assert!(matches!(read(&path), Err(FileError::System { .. })), "{:?}", read(&path));
    // A pipe would block.
    std::fs::remove_file(path.join("c")).unwrap();
    std::fs::create_dir_all(chunk.parent().unwrap()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&chunk).status().unwrap().success());
    assert!(matches!(read(&path), Err(FileError::BadZarr { .. })), "{:?}", read(&path));
}

#[test]
fn shards_with_a_wrong_index_are_refused() {
    let place = Place::new();
    let path = place.file("x.zarr");
    let sharding = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 4], "codecs": ["bytes"], "index_codecs": ["bytes", "crc32c"],
    }}]);
    plain(&path, sharding);
    let shard = |entries: [u64; 4], cut: usize| {
        let mut bytes = vec![7; 32];
        let index: Vec<u8> = entries.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend(&index);
        bytes.extend(crc32c::crc32c(&index).to_le_bytes());
        std::fs::create_dir_all(path.join("c/0")).unwrap();
        std::fs::write(path.join("c/0/0"), &bytes[..bytes.len() - cut]).unwrap();
        read(&path)
    };
    let good = [vec![7; 32], 1.5f32.to_le_bytes().repeat(8)].concat();
    assert_eq!(shard([0, 16, 16, 16], 0), Ok(good));
    let one = [vec![7; 16], 1.5f32.to_le_bytes().repeat(12)].concat();
    assert_eq!(shard([8, 16, u64::MAX, u64::MAX], 0), Ok(one));
    for (entries, cut) in [
        ([0, 16, 16, 16], 1),
        ([0, 16, 16, 16], 40),
        ([0, 16, 1 << 40, 16], 0),
        ([0, 16, u64::MAX - 1, 16], 0),
        ([0, 16, 16, 15], 0),
    ] {
        let found = shard(entries, cut);
        assert!(
            matches!(found, Err(FileError::BadZarr { .. } | FileError::Truncated { .. })),
            "{entries:?} {cut}: {found:?}"
        );
    }
}

#[test]
fn shards_in_shards_with_a_wrong_index_are_refused() {
    let place = Place::new();
    let path = place.file("x.zarr");
    let sharding = |chunk: [u64; 2], codecs: Value| {
        json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": chunk, "codecs": codecs, "index_codecs": ["bytes"], "index_location": "start",
        }}])
    };
    plain(&path, sharding([1, 4], sharding([1, 2], json!(["bytes"]))));
    let index = |entries: [u64; 4]| entries.map(u64::to_le_bytes).concat();
    std::fs::create_dir_all(path.join("c/0")).unwrap();
    // Two shards of two chunks of eight bytes, behind each other; what the second's index says is tried.
    let shard = |second: [u64; 4], outer: [u64; 4]| {
        let first = [index([32, 8, 40, 8]).as_slice(), &[1; 8], &[2; 8]].concat();
        let second = [index(second).as_slice(), &[3; 8], &[4; 8]].concat();
        std::fs::write(path.join("c/0/0"), [index(outer), first, second].concat()).unwrap();
        read(&path).map(|part| part[..32].to_vec())
    };
    let outer = [32, 48, 80, 48];
    let fill = 1.5f32.to_le_bytes().repeat(2);
    let expected = [[1; 8], [2; 8], [4; 8], [3; 8]].concat();
    assert_eq!(shard([40, 8, 32, 8], outer), Ok(expected.clone()));
    let one = [&expected[..24], &fill].concat();
    assert_eq!(shard([40, 8, u64::MAX, u64::MAX], outer), Ok(one));
    let none = [&expected[..16], &fill, &fill].concat();
    assert_eq!(shard([40, 8, 32, 8], [32, 48, u64::MAX, u64::MAX]), Ok(none));
    // Each inner one ends with its shard, though the file may go on.
    for (second, outer) in [
        ([40, 8, 32, 8], [32, 48, 80, 49]),
        ([40, 8, 41, 8], outer),
        ([40, 8, u64::MAX - 3, 8], outer),
        ([40, 8, 32, 8], [32, 47, 80, 48]),
        ([40, 8, 32, 8], [32, 31, 80, 48]),
        ([40, 8, 32, 7], outer),
    ] {
        let found = shard(second, outer);
        assert!(
            matches!(found, Err(FileError::BadZarr { .. } | FileError::Truncated { .. })),
            "{second:?} {outer:?}: {found:?}"
        );
    }
}

#[test]
fn a_large_array_is_read_where_it_is_needed() {
    let place = Place::new();
    let path = place.file("x.zarr");
    std::fs::create_dir_all(path.join("c/5")).unwrap();
    // 2^42 bytes in chunks of 2^33, of which one has a file.
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [1u64 << 26, 1 << 16], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1 << 17, 1 << 16]}},
        "chunk_key_encoding": "default", "fill_value": 9, "codecs": ["bytes"],
    });
    std::fs::write(path.join("zarr.json"), document.to_string()).unwrap();
    let file = std::fs::File::create(path.join("c/5/0")).unwrap();
    file.set_len(1 << 33).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", (1 << 33) - 3).unwrap();
    let layout = format!("cut(0,{},{}),*", 6 * (1u64 << 17) - 1, 6 * (1u64 << 17) + 1);
    let mut port = FileReader::open(&path, Format::Zarr, &layout, &Expect::default(), &unit(1, 3)).unwrap();
    let mut part = vec![1; 2 << 16];
    assert_eq!(port.read(&mut part), Ok(Some(0)));
    let (row, missing) = part.split_at(1 << 16);
    assert!(row.ends_with(b"\0end") && missing.iter().all(|&b| b == 9));
}
