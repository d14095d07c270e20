//! Several arrays in a file or a set of files: written by some units, each straight to its place, and read by others.

use crate::oracle::*;
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::values::{pack, Value};
use polyduct_port::{Array, Assembly, BundleError, Expect, Join, Piece, PortError, Rule};
use polyduct_store::file::{ArraysReader, ArraysWriter, Found, WriteArrays};
use polyduct_store::safetensors::{Header, SafetensorsError};
use polyduct_store::zarr::Compression;
use polyduct_store::{FileError, Format, Options};
use proptest::prelude::*;
use std::path::Path;

const SHAPES: [&[u64]; 6] = [&[], &[7], &[0], &[5, 9], &[40, 30], &[3, 4, 5]];
const ELEMS: [ElemType; 5] = [ElemType::U8, ElemType::I16, ElemType::F32, ElemType::F64, ElemType::Bf16];

/// An array: which shape and element, and how it is written and read.
#[derive(Clone, Debug)]
struct Spec {
    shape: usize,
    elem: usize,
    written: usize,
    read: usize,
    taken: bool,
}

impl Spec {
    fn dataset(&self) -> Dataset {
        Dataset::new(SHAPES[self.shape], ELEMS[self.elem]).unwrap()
    }

    fn layout(&self, at: usize) -> &'static str {
        match SHAPES[self.shape].len() {
            0 => ["*", "..."][at % 2],
            1 => ["block", "cyclic(2)", "balanced", "*", "stripe(16)"][at],
            2 => ["block,*", "*,block", "*,cyclic(3);order=F", "*,*", "balanced,*"][at],
            _ => ["block,*,*", "*,*,block", "*,cyclic,*", "*,*,*", "*,balanced,*;order=F"][at],
        }
    }
}

fn format(path: &Path) -> Format {
    Format::of_path(path).unwrap_or(Format::Safetensors)
}

fn writer(path: &Path, arrays: &[Array], options: &Options) -> Result<ArraysWriter, FileError> {
    ArraysWriter::open(path, format(path), arrays, options)
}

fn found(path: &Path, options: &Options) -> Result<Found, FileError> {
    Found::of(path, format(path), options)
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let taken = prop::bool::weighted(0.7);
    let spec = (0..SHAPES.len(), 0..ELEMS.len(), 0..5usize, 0..5usize, taken)
        .prop_map(|(shape, elem, written, read, taken)| Spec { shape, elem, written, read, taken });
    prop::collection::vec(spec, 1..12)
}

fn name_of(n: usize) -> String {
    format!("layers.{n}.größe")
}

fn arrays(specs: &[Spec]) -> Vec<Array> {
    let array = |(n, spec): (usize, &Spec)| Array {
        name: name_of(n),
        dataset: spec.dataset(),
        layout: spec.layout(spec.written).into(),
        open: None,
    };
    specs.iter().enumerate().map(array).collect()
}

fn options(unit: u32, units: u32, shard_bytes: u64) -> Options {
    Options { shard_bytes, ..crate::oracle::unit(unit, units) }
}

/// Writes the arrays by so many units, in the two ways in turn. The content of array n is that of step n.
fn write(path: &Path, specs: &[Spec], units: u32, shard_bytes: u64, compressed: bool) {
    in_threads(units, |u| {
        let compression = if compressed { Compression::Zstd } else { Compression::None };
        let options = Options { compression, chunk_bytes: 300, ..options(u, units, shard_bytes) };
        let mut out = writer(path, &arrays(specs), &options).unwrap();
        let said = vec![("unit".to_owned(), Value::from(u)), ("time".to_owned(), 0.5.into())];
        let of = |n: usize| part(&out.arrays()[n].mapping, u.into(), n as u64, false);
        let parts: Vec<Vec<u8>> = (0..specs.len()).map(of).collect();
        out.set_values(&pack(said).unwrap()).unwrap();
        if specs.len().is_multiple_of(2) {
            out.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        } else {
            let places: Vec<_> = out.arrays().iter().map(|array| array.at.clone()).collect();
            let mut step = (&mut out as &mut dyn WriteArrays).step_mut().unwrap();
            places.into_iter().zip(&parts).for_each(|(at, part)| step[at].copy_from_slice(part));
            step.publish().unwrap();
        }
        let again: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if format(path) != Format::Zarr {
            assert!(out.write_arrays(&again).unwrap_err().to_string().contains("a second one"));
        }
        out.close().unwrap();
        // Once more it does nothing.
        out.close().unwrap();
    });
}

fn check(path: &Path, specs: &[Spec], units: u32) {
    let plain = |(n, spec): (usize, &Spec)| Rule {
        pattern: name_of(n),
        layout: spec.layout(spec.read).into(),
        expect: Expect { elem: Some(ELEMS[spec.elem]), ..Expect::default() },
        ..Rule::default()
    };
    let taken = |(n, spec): &(usize, &Spec)| *n == 0 || spec.taken;
    let rules: Vec<Rule> = specs.iter().enumerate().filter(taken).map(plain).collect();
    for u in 0..units {
        let options = unit(u, units);
        let held = found(path, &options).unwrap();
        let listed: Vec<(String, Dataset)> =
            held.describe().unwrap().into_iter().map(|array| (array.name, array.dataset)).collect();
        let mut all: Vec<(String, Dataset)> =
            specs.iter().enumerate().map(|(n, spec)| (name_of(n), spec.dataset())).collect();
        if format(path) == Format::Npz {
            // NumPy has no bfloat16.
            for (_, dataset) in all.iter_mut().filter(|(_, dataset)| dataset.elem() == ElemType::Bf16) {
                *dataset = Dataset::new(dataset.shape(), ElemType::Bytes(2)).unwrap();
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(listed, all);
        let mut port = ArraysReader::open(path, held, &rules, &options).unwrap();
        assert_eq!(port.arrays().len(), rules.len());
        let mut memory = vec![0xee; port.local_len_bytes()];
        assert_eq!(port.read(&mut memory).unwrap(), Some(0));
        for array in port.arrays() {
            let n: usize = array.name.split('.').nth(1).unwrap().parse().unwrap();
            let want = part(&array.mapping, u.into(), n as u64, true);
            assert!(memory[array.at.clone()] == want, "{}, unit {u} of {units}", array.name);
        }
        let values = polyduct_port::values::unpack(port.values()).unwrap();
        assert_eq!(values, [("time".to_owned(), 0.5.into()), ("unit".to_owned(), 0.into())]);
        assert_eq!(port.read(&mut memory).unwrap(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn arrays_in_files_come_back(
        specs in specs(),
        units in (1u32..5, 1u32..4),
        name in prop::sample::select(vec!["m.safetensors", "m.safetensors.index.json", "m.npz", "m.zarr"]),
        shard_bytes in prop_oneof![Just(5_000_000_000), 1u64..3000],
        compressed in any::<bool>(),
    ) {
        let place = Place::new();
        let path = place.file(name);
        let is_set = name.ends_with(".json");
        let compressed = compressed && name == "m.zarr";
        write(&path, &specs, units.0, shard_bytes, compressed);
        check(&path, &specs, units.1);
        // Nothing but what others know is left, and over it another set.
        let names = place.names();
        let files = names.iter().filter(|name| !name.ends_with(".json")).count();
        prop_assert!(files == 1 || is_set);
        prop_assert_eq!(names.len(), files + usize::from(is_set));
        for name in names.iter().filter(|name| name.ends_with(".safetensors")) {
            let header = Header::parse(&std::fs::read(place.file(name)).unwrap()).unwrap();
            prop_assert_eq!(header.metadata["format"].as_str(), "pt");
        }
        write(&path, &specs[..1], 1, shard_bytes, compressed);
        check(&path, &specs[..1], 2);
        prop_assert_eq!(place.names().len(), 1 + usize::from(is_set));
    }
}

fn array(name: &str, shape: &[u64], elem: ElemType) -> Array {
    let dataset = Dataset::new(shape, elem).unwrap();
    Array { name: name.into(), dataset, layout: "...".into(), open: None }
}

#[test]
fn what_cannot_be_written_is_refused_and_leaves_nothing() {
    let place = Place::new();
    let options = unit(0, 1);
    for name in ["m.safetensors", "m.safetensors.index.json", "m.npz", "m.zarr"] {
        let path = place.file(name);
        let told = |arrays: &[Array]| writer(&path, arrays, &options).err().unwrap();
        let twice = [array("a", &[2], ElemType::U8), array("a", &[3], ElemType::U8)];
        match told(&twice) {
            FileError::Port(PortError::Bundle { source, .. }) => {
                assert_eq!(*source, BundleError::Twice { name: "a".into() })
            }
            e => panic!("{e}"),
        }
        if format(&path) == Format::Safetensors {
            assert!(matches!(told(&[array("a", &[2], ElemType::C64)]), FileError::NoForm { .. }));
        }
        assert!(told(&[array("a/../b", &[2], ElemType::U8)]).to_string().contains("'..'"));
        let bad = Array { layout: "blok".into(), ..array("w", &[2], ElemType::U8) };
        assert!(told(&[bad]).to_string().contains("array \"w\": layout text"));
        // Closed or dropped before anything was written.
        let mut out = writer(&path, &twice[..1], &options).unwrap();
        assert!(out.close().unwrap_err().to_string().contains("not written"));
        drop(writer(&path, &twice[..1], &options).unwrap());
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
    let mut out = writer(&place.file("m.safetensors"), &[array("a", &[2], ElemType::U8)], &options);
    let long = pack(vec![("text".to_owned(), Value::from("x".repeat(5000)))]).unwrap();
    let told = out.as_mut().unwrap().set_values(&long).unwrap_err().to_string();
    assert!(told.contains("bytes of JSON"), "{told}");
}

#[test]
fn units_that_disagree_on_an_array_hear_of_it() {
    let place = Place::new();
    let path = place.file("m.safetensors");
    let errors = in_threads(2, |u| {
        let arrays = [array("a", &[4], ElemType::U8), array("b", &[4 + u64::from(u)], ElemType::U8)];
        writer(&path, &arrays, &unit(u, 2)).err().unwrap()
    });
    for e in errors {
        assert!(matches!(&e, FileError::Port(PortError::Disagree { unit: 1, .. })), "{e}");
    }
    assert!(place.names().is_empty());
}

#[test]
fn a_set_is_there_when_its_index_is() {
    let place = Place::new();
    let index = place.file("m.safetensors.index.json");
    let arrays = [array("a", &[8], ElemType::U8), array("b", &[8], ElemType::U8)];
    let write = |fill: u8, shard_bytes| {
        let mut out = writer(&index, &arrays, &options(0, 1, shard_bytes)).unwrap();
        out.write_arrays(&[&[fill; 8], &[fill + 1; 8]]).unwrap();
        out
    };
    // A set that is not closed changes nothing of the one that is there.
    write(1, 8).close().unwrap();
    let before = place.names();
    assert_eq!(
        before,
        ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m.safetensors.index.json"]
    );
    let unfinished = write(5, 8);
    let read = || {
        let rule = Rule { pattern: "*".into(), layout: "...".into(), ..Rule::default() };
        let held = found(&index, &unit(0, 1))?;
        let mut port = ArraysReader::open(&index, held, &[rule], &unit(0, 1))?;
        let (mut a, mut b) = ([0; 8], [0; 8]);
        port.read_arrays(&mut [&mut a, &mut b])?;
        Ok::<_, FileError>((a[0], b[0]))
    };
    assert_eq!(read(), Ok((1, 2)));
    drop(unfinished);
    assert_eq!((read(), place.names()), (Ok((1, 2)), before));
    // Of another number of files none of the old ones stays.
    write(7, 100).close().unwrap();
    assert_eq!(read(), Ok((7, 8)));
    assert_eq!(place.names(), ["m-00001-of-00001.safetensors", "m.safetensors.index.json"]);
}

#[test]
fn indices_that_lie_are_refused() {
    let place = Place::new();
    let index = place.file("m.safetensors.index.json");
    let mut out = writer(&index, &[array("a", &[8], ElemType::U8)], &unit(0, 1)).unwrap();
    out.write(&[3; 8]).unwrap();
    out.close().unwrap();
    let own = "m-00001-of-00001.safetensors";
    let told = |text: &str| {
        std::fs::write(&index, text).unwrap();
        found(&index, &unit(0, 1)).map(|held| held.describe().unwrap().len())
    };
    let map = |map: &str| format!("{{\"metadata\":{{}},\"weight_map\":{{{map}}}}}");
    assert_eq!(told(&map(&format!("\"a\":{own:?}"))), Ok(1));
    assert_eq!(told(&map("")), Ok(0));
    let lacking = told(&map(&format!("\"a\":{own:?},\"b\":{own:?}"))).unwrap_err();
    assert!(
        matches!(&lacking, FileError::BadSafetensors { source: SafetensorsError::NotThere { name, .. }, .. } if name == "b"),
        "{lacking}"
    );
    for elsewhere in ["../m.safetensors", "/etc/passwd", "..", "x/m.safetensors", "."] {
        let e = told(&map(&format!("\"a\":{elsewhere:?}"))).unwrap_err();
        assert!(
            matches!(&e, FileError::BadSafetensors { .. } | FileError::BadPath { .. }),
            "{elsewhere}: {e}"
        );
    }
    assert!(matches!(told(&map("\"a\":\"gone.safetensors\"")), Err(FileError::System { .. })));
    for garbage in ["", "[]", "{\"weight_map\":3}", "{\"weight_map\":{\"a\":1}}", &"[".repeat(10_000)] {
        assert!(matches!(told(garbage), Err(FileError::BadSafetensors { .. })), "{garbage:.20}");
    }
}

#[test]
fn arrays_of_a_file_are_put_together_and_converted() {
    let place = Place::new();
    let path = place.file("m.safetensors");
    let arrays = ["q", "k"].map(|name| array(name, &[2, 2], ElemType::F32));
    let mut out = writer(&path, &arrays, &unit(0, 1)).unwrap();
    let numbers = |first: f32| -> Vec<u8> { (0..4).flat_map(|n| (first + n as f32).to_le_bytes()).collect() };
    out.write_arrays(&[&numbers(0.0), &numbers(10.0)]).unwrap();
    out.close().unwrap();
    let pieces = ["q", "k"].map(|name| Piece { array: name.into(), of: Vec::new(), at: None }).to_vec();
    let expect = Expect { elem: Some(ElemType::F64), convert: true, ..Expect::default() };
    let of = Some(Assembly { pieces, join: Join::Along(1) });
    let fused = Rule { pattern: "w".into(), layout: "block,*".into(), expect, of };
    let open = |rules: &[Rule]| ArraysReader::open(&path, found(&path, &unit(1, 2))?, rules, &unit(1, 2));
    let mut port = open(std::slice::from_ref(&fused)).unwrap();
    let mut row = [0; 32];
    assert_eq!(port.read(&mut row).unwrap(), Some(0));
    let row: Vec<f64> = row.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(row, [2.0, 3.0, 12.0, 13.0]);
    let strict = Rule { expect: Expect { convert: false, ..fused.expect.clone() }, ..fused };
    assert!(matches!(open(&[strict]), Err(FileError::ElemDiffers { hint, .. }) if hint.contains("convert")));
    let missing = Rule { pattern: "v".into(), layout: "*".into(), ..Rule::default() };
    assert!(open(&[missing]).err().unwrap().to_string().contains("called \"v\""));
    assert!(open(&[]).is_err());
}

#[test]
fn twenty_thousand_arrays_take_no_square_of_that() {
    let place = Place::new();
    let path = place.file("m.safetensors");
    let arrays: Vec<Array> =
        (0..20_000).map(|n| array(&format!("experts.{n}.w"), &[4], ElemType::F32)).collect();
    let part = [7; 16];
    let start = std::time::Instant::now();
    let mut out = writer(&path, &arrays, &unit(0, 1)).unwrap();
    out.write_arrays(&vec![&part[..]; arrays.len()]).unwrap();
    out.close().unwrap();
    let rule = Rule { pattern: "*".into(), layout: "...".into(), ..Rule::default() };
    let held = found(&path, &unit(0, 1)).unwrap();
    let mut port = ArraysReader::open(&path, held, &[rule], &unit(0, 1)).unwrap();
    let mut memory = vec![0; port.local_len_bytes()];
    port.read(&mut memory).unwrap();
    assert!(port.arrays().iter().all(|array| memory[array.at.clone()] == part));
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
