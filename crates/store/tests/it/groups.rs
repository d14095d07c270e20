//! Groups of Zarr and archives: steps, constants, values, and what they refuse.

use crate::oracle::*;
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::values::{pack, unpack, Value};
use polyduct_port::{Array, Changes, Rule};
use polyduct_store::file::{ArraysReader, ArraysWriter, Found, WriteArrays};
use polyduct_store::zarr::Compression;
use polyduct_store::{FileError, FileReader, Format, Options};
use proptest::prelude::*;
use std::path::Path;

fn array(name: &str, shape: &[u64], layout: &str) -> Array {
    let dataset = Dataset::new(shape, ElemType::I16).unwrap();
    Array { name: name.into(), dataset, layout: layout.into(), open: None }
}

fn rule(pattern: &str, layout: &str) -> Rule {
    Rule { pattern: pattern.into(), layout: layout.into(), ..Rule::default() }
}

/// Two arrays with steps and a constant, which two units write.
fn write(path: &Path, steps: u64, options: &Options) {
    let arrays = [
        array("flow/u", &[9, 6], "block,*"),
        Array { open: Some(Changes::Never), ..array("mesh", &[7], "block") },
        array("flow/p", &[9], "cyclic"),
    ];
    in_threads(2, |u| {
        let options = Options { port: unit(u, 2).port, ..options.clone() };
        let mut out = ArraysWriter::open(path, Format::Zarr, &arrays, &options).unwrap();
        for step in 0..steps {
            let of = |n: usize| part(&out.arrays()[n].mapping, u.into(), 10 * n as u64 + step, false);
            // The constant counts with the first step alone.
            let mut parts: Vec<Vec<u8>> = (0..3).map(of).collect();
            if step > 0 {
                parts[1].fill(0xaa);
            }
            let mut said = vec![("time".to_owned(), Value::from(step as f64 / 2.0))];
            if step == 1 {
                said.push(("note".to_owned(), "größe".into()));
            }
            out.set_values(&pack(said).unwrap()).unwrap();
            assert_eq!(out.next_step(), step);
            out.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        }
        out.close().unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(25) })]

    #[test]
    fn steps_of_a_group_come_back(
        steps in 1u64..6,
        units in 1u32..4,
        chunk_bytes in 1u64..200,
        compressed in any::<bool>(),
        stepped in any::<bool>(),
    ) {
        let place = Place::new();
        let path = place.file("g.zarr");
        let compression = if compressed { Compression::Zstd } else { Compression::None };
        write(&path, steps, &Options { chunk_bytes, compression, stepped, ..unit(0, 2) });
        let rules = [rule("mesh", "*"), rule("flow/*", "balanced,...")];
        for u in 0..units {
            let options = unit(u, units);
            let found = Found::of(&path, Format::Zarr, &options).unwrap();
            let shapes: Vec<_> = found.describe().unwrap().iter().map(|a| a.dataset.shape().to_vec()).collect();
            prop_assert_eq!(shapes, [vec![9], vec![9, 6], vec![7]]);
            let rules = if u == 0 { rules.to_vec() } else { vec![rule("mesh", "*"), rule("flow/u", "balanced,*")] };
            let rules = [vec![rule("flow/p", "balanced")], rules].concat();
            let rules: Vec<Rule> =
                rules.into_iter().map(|r| Rule { layout: r.layout.replace("...", "*"), ..r }).collect();
            let mut port = ArraysReader::open(&path, found, &rules, &options).unwrap();
            let mut memory = vec![0; port.local_len_bytes()];
            for step in 0..steps {
                prop_assert_eq!(port.peek().unwrap(), Some(step));
                prop_assert_eq!(port.read(&mut memory).unwrap(), Some(step));
                for array in port.arrays() {
                    let seed = match &array.name[..] {
                        "flow/u" => step,
                        "mesh" => 10,
                        _ => 20 + step,
                    };
                    prop_assert!(memory[array.at.clone()] == part(&array.mapping, u.into(), seed, true));
                }
                let said = unpack(port.values()).unwrap();
                prop_assert_eq!(said.iter().any(|(name, _)| name == "note"), step == 1);
                prop_assert!(said.contains(&("time".to_owned(), (step as f64 / 2.0).into())));
            }
            prop_assert_eq!(port.read(&mut memory).unwrap(), None);
        }
        prop_assert_eq!(place.names(), ["g.zarr"]);
        // Each is an array for itself.
        let one = path.join("flow/p");
        let options = unit(0, 1);
        let port = FileReader::open(&one, Format::Zarr, "*", &Default::default(), &options).unwrap();
        prop_assert_eq!((port.steps(), port.stepped()), (steps, steps > 1 || stepped));
    }
}

#[test]
fn names_and_options_that_a_group_cannot_have() {
    let place = Place::new();
    let path = place.file("g.zarr");
    let told = |names: &[&str], options: &Options| {
        let arrays: Vec<Array> = names.iter().map(|name| array(name, &[4], "*")).collect();
        ArraysWriter::open(&path, Format::Zarr, &arrays, options).err().unwrap().to_string()
    };
    let options = unit(0, 1);
    for (names, why) in [
        (&["a", "a/b"][..], "in another array"),
        (&["zarr.json"], "zarr.json is its own"),
        (&["x/.hidden"], "begin with '.'"),
        (&["../up"], "'..'"),
    ] {
        let error = told(names, &options);
        assert!(error.contains(why), "{error}");
    }
    let chunks = Options { chunks: Some(vec![2]), ..options.clone() };
    assert!(told(&["a"], &chunks).contains("shapes of their own"));
    let open = Array { open: Some(Changes::Dim(0)), ..array("a", &[4], "*") };
    let packed = Options { compression: Compression::Zstd, ..options.clone() };
    for (name, options, why) in [
        ("g.npz", &options, "changes from step to step"),
        ("g.zarr", &packed, "chunks that grow are not compressed"),
    ] {
        let path = place.file(name);
        let format = Format::of_path(&path).unwrap();
        let error = ArraysWriter::open(&path, format, std::slice::from_ref(&open), options)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(place.names().is_empty());
    // Within another group, and over what is no group.
    std::fs::create_dir_all(path.join("sub")).unwrap();
    std::fs::write(path.join("zarr.json"), "{\"zarr_format\":3,\"node_type\":\"group\"}").unwrap();
    let arrays = [array("a", &[4], "*")];
    let open =
        |path: &Path| ArraysWriter::open(path, Format::Zarr, &arrays, &options).err().map(|e| e.to_string());
    assert!(open(&path.join("sub")).unwrap().contains("written as a whole"));
    std::fs::create_dir(place.file("mine.zarr")).unwrap();
    std::fs::write(place.file("mine.zarr/letter.txt"), "dear").unwrap();
    assert!(open(&place.file("mine.zarr")).unwrap().contains("something else than Zarr arrays"));
    assert_eq!(open(&path), None, "a group is replaced");
}

#[test]
fn hostile_archives_are_refused() {
    let place = Place::new();
    let path = place.file("a.npz");
    let options = unit(0, 1);
    let arrays = [array("first", &[40], "*"), array("second", &[3, 3], "*,*")];
    let mut out = ArraysWriter::open(&path, Format::Npz, &arrays, &options).unwrap();
    out.write_arrays(&[&[1; 80], &[2; 18]]).unwrap();
    out.close().unwrap();
    let good = std::fs::read(&path).unwrap();
    let read = |bytes: &[u8]| -> Result<usize, FileError> {
        std::fs::write(&path, bytes).unwrap();
        let found = Found::of(&path, Format::Npz, &options)?;
        let mut port = ArraysReader::open(&path, found, &[rule("*", "...")], &options)?;
        let mut memory = vec![0; port.local_len_bytes()];
        port.read(&mut memory)?;
        Ok(port.arrays().len())
    };
    assert_eq!(read(&good), Ok(2));
    for len in 0..good.len() {
        assert!(read(&good[..len]).is_err(), "{len} of {} bytes", good.len());
    }
    // Each byte changed: an error or an array, never a panic or a great deal of memory.
    for at in 0..good.len() {
        for change in [1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= change;
            let _ = read(&bytes);
        }
    }
    assert!(matches!(read(b"not an archive at all"), Err(FileError::BadArchive { .. })));
}

#[test]
fn hostile_groups_are_refused() {
    let place = Place::new();
    let path = place.file("g.zarr");
    write(&path, 2, &unit(0, 2));
    let find = || Found::of(&path, Format::Zarr, &unit(0, 1));
    let document = path.join("flow/u/zarr.json");
    let good = std::fs::read_to_string(&document).unwrap();
    // What is wrong with one array is told where it is read, and the others can be.
    std::fs::write(&document, good.replace("\"int16\"", "\"string\"")).unwrap();
    assert!(matches!(find().unwrap().describe(), Err(FileError::BadZarr { .. })));
    let open = |name: &str| ArraysReader::open(&path, find()?, &[rule(name, "...")], &unit(0, 1)).map(drop);
    assert!(matches!(open("flow/u"), Err(FileError::BadZarr { .. })));
    assert_eq!(open("flow/p"), Ok(()));
    // A number of steps that no array has is none: nobody waits for so many.
    let root = path.join("zarr.json");
    let text = std::fs::read_to_string(&root).unwrap();
    assert_eq!(find().unwrap().steps(), 2);
    std::fs::write(
        &root,
        text.replace("\"polyduct_steps\": 2", &format!("\"polyduct_steps\": {}", u64::MAX)),
    )
    .unwrap();
    let found = find().unwrap();
    assert_eq!((found.steps(), found.values().len()), (1, 1));
    assert!(found.arrays().iter().all(|array| !array.stepped()));
    // One that is no group, an array, a link that leads out of it.
    std::fs::remove_file(&document).unwrap();
    std::fs::create_dir(place.file("elsewhere")).unwrap();
    std::fs::rename(path.join("mesh"), place.file("elsewhere/mesh")).unwrap();
    std::os::unix::fs::symlink(place.file("elsewhere/mesh"), path.join("mesh")).unwrap();
    let names: Vec<String> = find().unwrap().describe().unwrap().into_iter().map(|a| a.name).collect();
    assert_eq!(names, ["flow/p"]);
    let other = |path: &Path| Found::of(path, Format::Zarr, &unit(0, 1)).err().unwrap().to_string();
    assert!(other(&path.join("flow/p")).contains("it is one array"));
    assert!(other(&place.file("elsewhere")).contains("no Zarr group"));
}
