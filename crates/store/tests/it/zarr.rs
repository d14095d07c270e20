//! Zarr arrays: any layout writes the right one, any other reads whatever chunks there are, and what is none is refused.

use crate::oracle::*;
use crate::roundtrip::{case, check_read};
use polyduct_layout::{Dataset, ElemType, Layout};
use polyduct_store::zarr::ZarrError;
use polyduct_store::{Expect, FileError, FileReader, FileWriter, Format, Options};
use proptest::prelude::*;
use serde_json::{json, Value};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// All that an array as polyduct writes them has, read without the crate's help: data type, shape, bytes. `None` where
/// there is no such array.
pub fn read_all(path: &Path) -> Option<(String, Vec<u64>, Vec<u8>)> {
    let document: Value = serde_json::from_slice(&std::fs::read(path.join("zarr.json")).ok()?).unwrap();
    let shape = numbers(&document["shape"]);
    let chunk = numbers(&document["chunk_grid"]["configuration"]["chunk_shape"]);
    assert_eq!(document["codecs"], json!([{"name": "bytes", "configuration": {"endian": "little"}}]));
    let dtype = match &document["data_type"] {
        Value::String(name) => name.clone(),
        raw => format!("r{}", raw["configuration"]["length_bytes"].as_u64().unwrap() * 8),
    };
    let elem = match dtype.strip_prefix('r') {
        Some(bits) => bits.parse::<usize>().unwrap() / 8,
        None if dtype == "bool" => 1,
        None => dtype.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().unwrap() / 8,
    };
    let chunk_len = chunk.iter().product::<u64>() as usize * elem;
    let mut chunks = std::collections::HashMap::new();
    let mut data = Vec::new();
    for index in indices(&shape) {
        let coords: Vec<u64> = index.iter().zip(&chunk).map(|(i, c)| i / c).collect();
        let name = coords.iter().fold("c".to_owned(), |name, n| format!("{name}.{n}"));
        let at = index.iter().zip(&chunk).fold(0, |at, (i, c)| at * c + i % c) as usize;
        let bytes = chunks.entry(name.clone()).or_insert_with(|| std::fs::read(path.join(&name)).unwrap());
        assert_eq!(bytes.len(), chunk_len, "{name}");
        data.extend_from_slice(&bytes[at * elem..][..elem]);
    }
    let mut names: Vec<String> =
        std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut expected: Vec<String> = chunks.into_keys().chain(["zarr.json".to_owned()]).collect();
    expected.sort();
    assert_eq!(names, expected);
    Some((dtype, shape, data))
}

/// The array that others shall replace, or not.
pub fn write_old(path: &Path) {
    let dataset = Dataset::new(&[3], ElemType::U8).unwrap();
    let mut port = FileWriter::open(path, Format::Zarr, &dataset, "*", &Options::default()).unwrap();
    port.write(b"old").unwrap();
    port.close().unwrap();
}

pub fn is_old(path: &Path) -> bool {
    read_all(path) == Some(("uint8".into(), vec![3], b"old".to_vec()))
}

fn dtype(elem: ElemType) -> &'static str {
    match elem {
        ElemType::U8 => "uint8",
        ElemType::F32 => "float32",
        ElemType::Bf16 => "bfloat16",
        ElemType::F64 => "float64",
        ElemType::C128 => "complex128",
        ElemType::Bytes(3) => "r24",
        other => panic!("{other}"),
    }
}

fn zero(elem: ElemType) -> Value {
    match elem {
        ElemType::C128 => json!([0, 0]),
        ElemType::Bytes(n) => json!(vec![0; n as usize]),
        _ => json!(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_to_any_layout(
        (shape, elem, (src, p), (dst, q), steps, _) in case(), chunk_bytes in 1u64..300, again: bool,
    ) {
        let dataset = Dataset::new(&shape, elem).unwrap();
        let bind = |text: &str, units: u32| text.parse::<Layout>().unwrap().bind(&dataset, units.into());
        let (Ok(src), Ok(dst)) = (bind(&src, p), bind(&dst, q)) else {
            return Err(TestCaseError::reject("does not bind"));
        };
        let place = Place::new();
        let path = place.file("a.zarr");
        if again {
            write_old(&path);
        }
        let options = Options { chunk_bytes, ..Options::default() };
        for result in write_as(&path, Format::Zarr, &src, steps, &options) {
            prop_assert_eq!(result, Ok(()));
        }
        prop_assert_eq!(place.names(), ["a.zarr"]);
        let data: Vec<u8> = (0..steps).flat_map(|s| step_bytes(&dataset, s)).collect();
        let all: Vec<u64> = if steps == 1 { shape.clone() } else { [&[steps], shape.as_slice()].concat() };
        prop_assert_eq!(read_all(&path), Some((dtype(elem).into(), all, data)));
        let expect = Expect { shape: Some(shape.clone()), elem: Some(elem), convert: false };
        check_read(&path, Format::Zarr, &expect, &dst, steps);
    }
}

/// How somebody else wrote an array.
#[derive(Clone, Debug)]
struct Written {
    chunk: Vec<u64>,
    /// Inner chunks of a shard in each dimension.
    per: Option<Vec<u64>>,
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
    let per = proptest::option::of(proptest::collection::vec(1u64..3, dims));
    let codecs = proptest::sample::select(vec![
        vec![],
        vec![],
        vec!["gzip"],
        vec!["zstd"],
        vec!["crc32c"],
        vec!["zstd", "crc32c"],
        vec!["crc32c", "gzip"],
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
                _ => [bytes.as_slice(), &crc32c::crc32c(&bytes).to_le_bytes()].concat(),
            };
        }
        bytes
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
        let per = self.per.clone().unwrap_or(vec![1; shape.len()]);
        let outer: Vec<u64> = self.chunk.iter().zip(&per).map(|(c, p)| c * p).collect();
        let codecs = match &self.per {
            None => self.codecs(),
            Some(_) => json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": self.chunk, "codecs": self.codecs(),
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "index_location": if self.at_end { "end" } else { "start" },
            }}]),
        };
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
        for shard in indices(&grid) {
            let mut data = Vec::new();
            let mut index = Vec::new();
            let head = if self.at_end { 0 } else { per.iter().product::<u64>() * 16 + 4 };
            for inner in indices(&per) {
                let coords: Vec<u64> =
                    shard.iter().zip(&inner).zip(&per).map(|((s, i), p)| s * p + i).collect();
                if self.is_missing(&coords) {
                    index.extend([0xFF; 16]);
                    continue;
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
                let bytes = self.encode(bytes, component);
                index.extend((head + data.len() as u64).to_le_bytes());
                index.extend((bytes.len() as u64).to_le_bytes());
                data.extend(bytes);
            }
            if self.per.is_some() {
                index.extend(crc32c::crc32c(&index).to_le_bytes());
                data = if self.at_end { [data, index].concat() } else { [index, data].concat() };
            } else if self.is_missing(&shard) {
                continue;
            }
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

#[test]
fn short_pieces_are_written_in_turns() {
    // Single bytes of one unit between the longer pieces of others, over chunks of every size, and several steps in one.
    let dataset = Dataset::new(&[600, 300], ElemType::U8).unwrap();
    let place = Place::new();
    let path = place.file("turns.zarr");
    let data: Vec<u8> = (0..2).flat_map(|s| step_bytes(&dataset, s)).collect();
    for layout in ["*,cut(0,1,200)", "*,cyclic", "cyclic(7),cyclic(5)@1x3"] {
        let map = bind(layout, &dataset, 3);
        for chunk_bytes in [1 << 25, 400_000, 50_000, 7000] {
            let options = Options { chunk_bytes, ..Options::default() };
            for result in write_as(&path, Format::Zarr, &map, 2, &options) {
                result.unwrap();
            }
            let (_, shape, found) = read_all(&path).unwrap();
            assert_eq!(shape, [2, 600, 300]);
            assert!(found == data, "{layout} {chunk_bytes}");
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
    assert_eq!(read(&path), Err(problem("it has no zarr.json")));
    std::fs::write(path.join(".zarray"), "{}").unwrap();
    assert_eq!(read(&path), Err(problem("it is an array of Zarr version 2; expected version 3")));
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
fn only_arrays_are_replaced() {
    let place = Place::new();
    let path = place.file("x.zarr");
    let dataset = Dataset::new(&[4], ElemType::U8).unwrap();
    let open = || FileWriter::open(&path, Format::Zarr, &dataset, "*", &unit(0, 1));
    let refused = |found: Result<FileWriter, FileError>| match found.map(drop) {
        Err(FileError::BadPath { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    std::fs::write(&path, "a file").unwrap();
    assert_eq!(refused(open()), "it is not a directory");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("notes.txt"), "mine").unwrap();
    assert_eq!(refused(open()), "it is a directory that holds something else than a Zarr array");
    std::fs::write(path.join("zarr.json"), "{\"node_type\": \"group\"}").unwrap();
    assert_eq!(refused(open()), "it is a directory that holds something else than a Zarr array");
    std::fs::remove_dir_all(&path).unwrap();
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    assert!(refused(open()).contains("symbolic link"));
    std::fs::remove_file(&path).unwrap();
    assert!(place.names().is_empty());

    // An empty directory is, and an array, whatever lies in it; its permissions stay.
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
    for _ in 0..2 {
        let mut port = open().unwrap();
        port.write(b"abcd").unwrap();
        port.close().unwrap();
        assert_eq!(read_all(&path), Some(("uint8".into(), vec![4], b"abcd".to_vec())));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
        assert_eq!(place.names(), ["x.zarr"]);
    }
    std::fs::create_dir_all(path.join("c/9")).unwrap();
    std::fs::write(path.join("c/9/9"), "old").unwrap();
    let mut port = open().unwrap();
    port.write(b"efgh").unwrap();
    assert!(read_all_of_old(&path));
    port.close().unwrap();
    assert_eq!(read_all(&path), Some(("uint8".into(), vec![4], b"efgh".to_vec())));
    assert_eq!(place.names(), ["x.zarr"]);
    // Given up, it leaves nothing.
    let mut port = open().unwrap();
    port.write(b"gone").unwrap();
    assert_eq!(place.names().len(), 2);
    drop(port);
    assert_eq!(place.names(), ["x.zarr"]);
}

fn read_all_of_old(path: &Path) -> bool {
    std::fs::read(path.join("c.0")).unwrap() == b"abcd" && path.join("c/9/9").exists()
}

#[test]
fn what_a_killed_program_left_is_removed_and_what_a_living_one_has_is_not() {
    let place = Place::new();
    let path = place.file("x.zarr");
    let dataset = Dataset::new(&[4], ElemType::U8).unwrap();
    let open = || FileWriter::open(&path, Format::Zarr, &dataset, "*", &unit(0, 1)).unwrap();
    let mut living = open();
    let [held] = place.names().try_into().unwrap();
    let hash = held.rsplit_once('-').unwrap().0.to_owned();
    for serial in ["1", "7", "old"] {
        let left = place.file(&format!("{hash}-{serial}.part"));
        std::fs::create_dir_all(left.join("c/0")).unwrap();
        std::fs::write(left.join("c/0/0"), "half").unwrap();
    }
    let other = place.file(".polyduct-0000000000000000-0.part");
    std::fs::create_dir(&other).unwrap();
    let mut second = open();
    // One was an array, and its program killed when it had no other name: it has that again.
    assert_eq!(place.names().len(), 4, "{:?}", place.names());
    assert!(path.join("c/0/0").exists());
    living.write(b"one!").unwrap();
    second.write(b"two!").unwrap();
    living.close().unwrap();
    second.close().unwrap();
    assert_eq!(read_all(&path), Some(("uint8".into(), vec![4], b"two!".to_vec())));
    assert_eq!(place.names(), [".polyduct-0000000000000000-0.part", "x.zarr"]);
}

#[test]
fn an_array_that_is_replaced_is_not_read_as_nothing() {
    let place = Place::new();
    let path = place.file("x.zarr");
    let dataset = Dataset::new(&[4, 8], ElemType::U8).unwrap();
    let options = Options { chunk_bytes: 8, ..Options::default() };
    let write = |byte: u8| {
        let mut port = FileWriter::open(&path, Format::Zarr, &dataset, "*,*", &options).unwrap();
        (0..3).for_each(|_| port.write(&[byte; 32]).unwrap());
        port.close().unwrap();
    };
    write(1);
    let mut port = FileReader::open(&path, Format::Zarr, "*,*", &Expect::default(), &unit(0, 1)).unwrap();
    let mut part = [0; 32];
    assert_eq!(port.read(&mut part), Ok(Some(0)));
    assert_eq!(part, [1; 32]);
    write(2);
    match port.read(&mut part) {
        Err(FileError::BadPath { problem, .. }) => assert!(problem.contains("replaced"), "{problem}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_that_was_not_finished_is_not_there() {
    let place = Place::new();
    let path = place.file("x.zarr");
    let dataset = Dataset::new(&[4, 8], ElemType::U8).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = stop.clone();
    let interrupt: polyduct_store::Interrupt =
        std::sync::Arc::new(move || asked.load(std::sync::atomic::Ordering::Relaxed));
    let options = Options { chunk_bytes: 8, interrupt: Some(interrupt), ..Options::default() };
    let mut port = FileWriter::open(&path, Format::Zarr, &dataset, "*,*", &options).unwrap();
    port.write(&[1; 32]).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(port.write(&[2; 32]), Err(FileError::Interrupted { .. })));
    stop.store(false, std::sync::atomic::Ordering::Relaxed);
    // As if it had begun.
    let [temporary] = place.names().try_into().unwrap();
    std::fs::write(place.file(&temporary).join("c.1.0.0"), [2; 8]).unwrap();
    port.close().unwrap();
    assert_eq!(read_all(&path), Some(("uint8".into(), vec![4, 8], vec![1; 32])));
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
