//! Zarr arrays that polyduct writes: any layout writes the right one, any other reads it, and what is none is
//! not replaced.

use crate::oracle::*;
use crate::roundtrip::{case, check_read};
use polyduct_layout::{Dataset, ElemType, Layout};
use polyduct_port::PortError;
use polyduct_store::zarr::Compression;
use polyduct_store::{Expect, FileError, FileReader, FileWriter, Format, Options};
use proptest::prelude::*;
use serde_json::{json, Value};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// All that an array as polyduct writes them has, read without the crate's help: data type, shape, bytes.
/// `None` where there is no such array.
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

pub fn dtype(elem: ElemType) -> &'static str {
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

const COMPRESSIONS: [Compression; 4] =
    [Compression::None, Compression::Gzip(5), Compression::Zstd, Compression::Blosc];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn boxes_and_compressed_chunks_from_any_layout_to_any_layout(
        (shape, elem, (src, p), (dst, q), steps, _) in case(), compression in 0usize..4,
        sizes in proptest::option::of(proptest::collection::vec(1u64..9, 9)), of_steps in proptest::option::of(1u64..4),
        chunk_bytes in 1u64..300, v2: bool,
    ) {
        let dataset = Dataset::new(&shape, elem).unwrap();
        let bind = |text: &str, units: u32| text.parse::<Layout>().unwrap().bind(&dataset, units.into());
        let (Ok(src), Ok(dst)) = (bind(&src, p), bind(&dst, q)) else {
            return Err(TestCaseError::reject("does not bind"));
        };
        let place = Place::new();
        let v2 = v2 && elem != ElemType::Bf16;
        if v2 {
            std::fs::write(place.file(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
        }
        let path = place.file("a.zarr");
        let chunks = sizes.map(|sizes| of_steps.into_iter().chain(sizes).take(shape.len() + usize::from(of_steps.is_some())).collect());
        let options = Options { chunk_bytes, chunks, compression: COMPRESSIONS[compression], ..Options::default() };
        for result in write_as(&path, Format::Zarr, &src, steps, &options) {
            prop_assert_eq!(result, Ok(()));
        }
        prop_assert_eq!(path.join(if v2 { ".zarray" } else { "zarr.json" }).exists(), true);
        let left: Vec<String> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|name| ["new", "draft", "counts", "lock"].iter().any(|left| name.starts_with(left))).collect();
        prop_assert_eq!(left, Vec::<String>::new());
        let expect = Expect { shape: Some(shape.clone()), elem: Some(elem), convert: false };
        check_read(&path, Format::Zarr, &expect, &dst, steps);
    }
}

#[test]
fn drafts_are_gone_as_soon_as_their_chunks_are_files() {
    // Two units that have a half of each chunk: the one that brings the other half makes it a file, before
    // anything is closed.
    let dataset = Dataset::new(&[64, 64], ElemType::F32).unwrap();
    let place = Place::new();
    let path = place.file("d.zarr");
    let map = bind("*,block", &dataset, 2);
    let options =
        |unit| Options { chunks: Some(vec![16, 64]), compression: Compression::Zstd, ..Options::of(unit, 2) };
    let open = |unit| FileWriter::open(&path, Format::Zarr, &dataset, "*,block", &options(unit)).unwrap();
    let (mut a, mut b) = std::thread::scope(|s| {
        let b = s.spawn(|| open(1));
        (open(0), b.join().unwrap())
    });
    let within = || {
        let hidden = place.names().into_iter().find(|name| name.starts_with('.')).unwrap();
        let mut names: Vec<String> = std::fs::read_dir(place.file(&hidden))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    a.write(&part(&map, 0, 0, false)).unwrap();
    assert_eq!(within(), ["counts.0", "draft.0"]);
    b.write(&part(&map, 1, 0, false)).unwrap();
    assert_eq!(within(), ["new.0.0", "new.1.0", "new.2.0", "new.3.0"]);
    std::thread::scope(|s| {
        s.spawn(|| b.close().unwrap());
        a.close().unwrap();
    });
    let expect = Expect::default();
    check_read(&path, Format::Zarr, &expect, &bind("block,*", &dataset, 3), 1);
}

#[test]
fn stretches_of_any_length_fill_chunks() {
    let dataset = Dataset::new(&[50, 70], ElemType::I16).unwrap();
    let place = Place::new();
    let path = place.file("s.zarr");
    let reader = bind("block,block@2x2", &dataset, 4);
    for (chunks, len) in
        [(None, 1000), (Some(vec![8, 70]), 8 * 140), (Some(vec![16, 16]), 333), (Some(vec![2, 50, 9]), 4321)]
    {
        let options =
            Options { chunks, compression: Compression::Blosc, chunk_bytes: 900, ..Options::default() };
        let mut port = FileWriter::open(&path, Format::Zarr, &dataset, "*,*", &options).unwrap();
        for step in 0..3 {
            let bytes = step_bytes(&dataset, step);
            for (i, stretch) in bytes.chunks(len).enumerate() {
                port.write_stretch((i * len) as u64, stretch).unwrap();
            }
            port.end_step().unwrap();
        }
        port.close().unwrap();
        let expect = Expect { shape: Some(vec![50, 70]), ..Expect::default() };
        check_read(&path, Format::Zarr, &expect, &reader, 3);
    }
}

#[test]
fn what_is_written_twice_ends_in_an_error_and_never_in_a_chunk_that_lacks_something() {
    let dataset = Dataset::new(&[8, 70], ElemType::F32).unwrap();
    let place = Place::new();
    let path = place.file("d.zarr");
    let options = Options { chunks: Some(vec![8, 70]), compression: Compression::Zstd, ..Options::of(0, 1) };
    let mut port = FileWriter::open(&path, Format::Zarr, &dataset, "*,*", &options).unwrap();
    let half = vec![7; 4 * 70 * 4];
    let mut write = |at| port.write_stretch(at, &half);
    let end = write(0)
        .and_then(|()| write(0))
        .and_then(|()| write(half.len() as u64))
        .and_then(|()| port.end_step())
        .and_then(|()| port.close().map(drop));
    assert!(end.as_ref().is_err_and(|e| e.to_string().contains("written twice")), "{end:?}");
    drop(port);
    assert!(!path.exists());
}

#[test]
fn only_zarr_has_chunks() {
    let dataset = Dataset::new(&[3], ElemType::U8).unwrap();
    let place = Place::new();
    for (chunks, compression, option) in
        [(None, Compression::Zstd, "compress"), (Some(vec![2]), Compression::None, "chunks")]
    {
        let options = Options { chunks, compression, ..Options::default() };
        let refused = FileWriter::open(&place.file("x.npy"), Format::Npy, &dataset, "*", &options).map(drop);
        assert!(
            matches!(&refused, Err(FileError::Port(PortError::BadOption { option: found, .. })) if *found == option),
            "{refused:?}"
        );
    }
}

#[test]
fn short_pieces_are_written_in_turns() {
    // Single bytes of one unit between the longer pieces of others, over chunks of every size, and several
    // steps in one.
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

#[test]
fn an_array_that_a_link_stands_for_is_replaced_and_the_link_stays() {
    let place = Place::new();
    let link = place.file("x.zarr");
    let dataset = Dataset::new(&[4], ElemType::U8).unwrap();
    std::fs::create_dir(place.file("in")).unwrap();
    std::os::unix::fs::symlink("in/real.zarr", &link).unwrap();
    for bytes in [b"abcd", b"efgh"] {
        let mut port = FileWriter::open(&link, Format::Zarr, &dataset, "*", &unit(0, 1)).unwrap();
        port.write(bytes).unwrap();
        port.close().unwrap();
        let found = read_all(&place.file("in/real.zarr"));
        assert_eq!(found, Some(("uint8".into(), vec![4], bytes.to_vec())));
        assert!(link.is_symlink());
        assert_eq!((place.names().len(), std::fs::read_dir(place.file("in")).unwrap().count()), (2, 1));
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
        let inner = FileWriter::open(&path.join("inner"), Format::Zarr, &dataset, "*", &unit(0, 1));
        assert_eq!(refused(inner), "its directory is a Zarr array, and no group");
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
    let options = Options {
        port: polyduct_port::Options { interrupt: Some(interrupt), ..Default::default() },
        chunk_bytes: 8,
        ..Options::default()
    };
    let mut port = FileWriter::open(&path, Format::Zarr, &dataset, "*,*", &options).unwrap();
    port.write(&[1; 32]).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(port.write(&[2; 32]), Err(FileError::Port(PortError::Interrupted { .. }))));
    stop.store(false, std::sync::atomic::Ordering::Relaxed);
    // As if it had begun.
    let [temporary] = place.names().try_into().unwrap();
    std::fs::write(place.file(&temporary).join("new.1.0.0"), [2; 8]).unwrap();
    port.close().unwrap();
    assert_eq!(read_all(&path), Some(("uint8".into(), vec![4, 8], vec![1; 32])));
}

/// A group of one array `t` with names of dimensions, and metadata of all arrays, as zarr-python writes it.
fn group(place: &Place, version: u64) -> std::path::PathBuf {
    let root = place.file("g.zarr");
    std::fs::create_dir_all(root.join("sub/t")).unwrap();
    let put = |name: &str, document: &Value| std::fs::write(root.join(name), document.to_string()).unwrap();
    let (t, attributes) = (old_array(version), json!({"units": "K", "_ARRAY_DIMENSIONS": ["y", "x"]}));
    if version == 3 {
        let all = json!({"kind": "inline", "must_understand": false, "metadata": {
            "sub": {"zarr_format": 3, "node_type": "group", "attributes": {}}, "sub/t": t,
        }});
        put(
            "zarr.json",
            &json!({"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": all}),
        );
        put("sub/zarr.json", &json!({"zarr_format": 3, "node_type": "group", "attributes": {}}));
        put("sub/t/zarr.json", &t);
    } else {
        let format = json!({"zarr_format": 2});
        [".zgroup", "sub/.zgroup"].iter().for_each(|name| put(name, &format));
        put("sub/t/.zarray", &t);
        put("sub/t/.zattrs", &attributes);
        let all = json!({".zgroup": format, "sub/.zgroup": format, "sub/t/.zarray": t, "sub/t/.zattrs": attributes});
        put(".zmetadata", &json!({"zarr_consolidated_format": 1, "metadata": all}));
    }
    root
}

fn old_array(version: u64) -> Value {
    match version {
        3 => json!({
            "zarr_format": 3, "node_type": "array", "shape": [4, 6], "data_type": "float32", "fill_value": "NaN",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": ["bytes", "zstd"], "attributes": {"units": "K"}, "dimension_names": ["y", "x"],
        }),
        _ => json!({
            "zarr_format": 2, "shape": [4, 6], "chunks": [2, 3], "dtype": "<f4", "fill_value": "NaN", "order": "C",
            "filters": null, "dimension_separator": "/", "compressor": {"id": "zlib", "level": 1},
        }),
    }
}

/// What a group says of an array in it, and the array of itself: the two must agree.
fn said(root: &Path, version: u64, key: &str) -> Value {
    let read =
        |name: &str| -> Value { serde_json::from_slice(&std::fs::read(root.join(name)).unwrap()).unwrap() };
    if version == 3 {
        let own = read(&format!("{key}/zarr.json"));
        assert_eq!(read("zarr.json")["consolidated_metadata"]["metadata"][key], own);
        return own;
    }
    let mut own = read(&format!("{key}/.zarray"));
    let all = read(".zmetadata")["metadata"].take();
    assert_eq!(all[format!("{key}/.zarray")], own);
    own["attributes"] = read(&format!("{key}/.zattrs"));
    assert_eq!(all[format!("{key}/.zattrs")], own["attributes"]);
    own["dimension_names"] = own["attributes"]["_ARRAY_DIMENSIONS"].clone();
    own
}

#[test]
fn an_array_in_a_group_is_written_as_the_group_is() {
    for version in [2, 3] {
        let place = Place::new();
        let root = group(&place, version);
        let write = |name: &str, shape: &[u64], elem: ElemType, units: u32| {
            let dataset = Dataset::new(shape, elem).unwrap();
            let map = bind("block,*", &dataset, units);
            let options = Options { chunk_bytes: 48, ..Options::default() };
            for result in write_as(&root.join("sub").join(name), Format::Zarr, &map, 1, &options) {
                result.unwrap();
            }
            let expect = Expect { shape: Some(shape.to_vec()), elem: Some(elem), convert: false };
            check_read(&root.join("sub").join(name), Format::Zarr, &expect, &map, 1);
            said(&root, version, &format!("sub/{name}"))
        };
        // One that is replaced keeps what was said of it, and where its chunks are looked for.
        let t = write("t", &[4, 6], ElemType::F32, 2);
        assert_eq!(
            (&t["dimension_names"], &t["fill_value"], &t["attributes"]["units"]),
            (&json!(["y", "x"]), &json!("NaN"), &json!("K"))
        );
        assert!(root.join(if version == 3 { "sub/t/c/1/0" } else { "sub/t/1/0" }).is_file());
        // A new one has names, too: those of the one that it is as large as, or others.
        assert_eq!(write("same", &[4, 6], ElemType::U8, 1)["dimension_names"], json!(["y", "x"]));
        assert_eq!(
            write("other", &[3, 6], ElemType::U8, 3)["dimension_names"],
            json!(["other_dim_0", "other_dim_1"])
        );
        // Another size of a dimension that others have, too, is another dimension; a fill value is of its own
        // type alone.
        let t = write("t", &[4, 5], ElemType::I16, 1);
        assert_eq!(t["dimension_names"], json!(["y", "t_dim_1"]));
        assert_eq!(t["fill_value"], if version == 3 { json!(0) } else { Value::Null });
        let names: Vec<_> = place.names();
        assert_eq!(names, ["g.zarr"], "version {version}");
    }
}

#[test]
fn what_a_group_says_and_cannot_be_renewed_is_not_made_wrong() {
    let place = Place::new();
    let root = group(&place, 3);
    let dataset = Dataset::new(&[4], ElemType::U8).unwrap();
    let before = std::fs::read(root.join("sub/t/zarr.json")).unwrap();
    for (text, why) in [
        ("{\"node_type\": ", "byte "),
        (r#"{"node_type": "group", "consolidated_metadata": {"kind": "new"}}"#, "kind that is not known"),
    ] {
        std::fs::write(root.join("zarr.json"), text).unwrap();
        let mut port =
            FileWriter::open(&root.join("sub/t"), Format::Zarr, &dataset, "*", &unit(0, 1)).unwrap();
        port.write(b"abcd").unwrap();
        let error = port.close().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        drop(port);
        assert_eq!(std::fs::read(root.join("sub/t/zarr.json")).unwrap(), before);
    }
    let bf16 = Dataset::new(&[4], ElemType::Bf16).unwrap();
    let place = Place::new();
    let root = group(&place, 2);
    let error = FileWriter::open(&root.join("x"), Format::Zarr, &bf16, "*", &unit(0, 1)).map(drop);
    assert!(matches!(error, Err(FileError::NoForm { format: "Zarr version 2", .. })), "{error:?}");
}

#[test]
fn many_programs_write_into_one_group() {
    for version in [2, 3] {
        let place = Place::new();
        let root = group(&place, version);
        let dataset = Dataset::new(&[4, 6], ElemType::U8).unwrap();
        std::thread::scope(|scope| {
            for i in 0..8 {
                let path = root.join(format!("sub/n{i}"));
                scope.spawn(move || {
                    for round in 0..5u8 {
                        let mut port =
                            FileWriter::open(&path, Format::Zarr, &dataset, "*,*", &unit(0, 1)).unwrap();
                        port.write(&[round; 24]).unwrap();
                        port.close().unwrap();
                    }
                });
            }
        });
        for i in 0..8 {
            assert_eq!(said(&root, version, &format!("sub/n{i}"))["dimension_names"], json!(["y", "x"]));
        }
    }
}
