//! Files of tensors: any layout writes the one right file, any other reads it, and what is no such file is
//! refused.

use crate::oracle::*;
use crate::roundtrip::{case, check_read};
use polyduct_layout::{Dataset, ElemType, Layout};
use polyduct_port::PortError;
use polyduct_store::safetensors::{dtype, Header, SafetensorsError};
use polyduct_store::{Expect, FileError, FileReader, FileWriter, Format, Options};
use proptest::prelude::*;
use std::path::Path;

/// What a file of one tensor must hold, written without the crate's help.
fn file_of(name: &str, dtype: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let shape = format!("{shape:?}").replace(' ', "");
    let len = data.len();
    let header =
        format!("{{\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[0,{len}]}}}}");
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn named(tensor: &str) -> Options {
    Options { tensor: Some(tensor.into()), ..Options::default() }
}

fn open(path: &Path, options: &Options) -> Result<FileReader, FileError> {
    FileReader::open(path, Format::Safetensors, "*", &Expect::default(), options)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_to_any_layout((shape, elem, (src, p), (dst, q), steps, name) in case()) {
        let dataset = Dataset::new(&shape, elem).unwrap();
        let bind = |text: &str, units: u32| text.parse::<Layout>().unwrap().bind(&dataset, units.into());
        let (Ok(src), Ok(dst)) = (bind(&src, p), bind(&dst, q)) else {
            return Err(TestCaseError::reject("does not bind"));
        };
        let place = Place::new();
        let path = place.file("a");
        let options = if name { named("layers.0/w") } else { Options::default() };
        let results = write_as(&path, Format::Safetensors, &src, steps, &options);
        let Some(dtype) = dtype(elem) else {
            let refused = |r: &Result<(), FileError>| matches!(r, Err(FileError::NoForm { elem: e, .. }) if *e == elem);
            prop_assert!(results.iter().all(refused), "{:?}", results);
            prop_assert!(place.names().is_empty());
            return Ok(());
        };
        prop_assert!(results.iter().all(Result::is_ok), "{:?}", results);
        let data: Vec<u8> = (0..steps).flat_map(|s| step_bytes(&dataset, s)).collect();
        let all: Vec<u64> = if steps == 1 { shape.clone() } else { [&[steps], shape.as_slice()].concat() };
        // The same but for the spaces behind the header.
        let found = std::fs::read(&path).unwrap();
        let expected = file_of(if name { "layers.0/w" } else { "data" }, dtype, &all, &data);
        let header = expected.len() - data.len() - 8;
        prop_assert_eq!(&found[8..8 + header], &expected[8..8 + header]);
        let begin = 8 + u64::from_le_bytes(found[..8].try_into().unwrap()) as usize;
        prop_assert!(begin.is_multiple_of(64) && found[8 + header..begin].iter().all(|&b| b == b' '));
        prop_assert_eq!(&found[begin..], data.as_slice());
        let expect = Expect { shape: Some(shape.clone()), elem: Some(elem), convert: false };
        check_read(&path, Format::Safetensors, &expect, &dst, steps);
        // And what others write.
        std::fs::write(&path, expected).unwrap();
        check_read(&path, Format::Safetensors, &expect, &dst, steps);
    }
}

#[test]
fn one_of_several_tensors_is_read() {
    let place = Place::new();
    let path = place.file("m.safetensors");
    let entry = |i: usize| {
        format!("\"t{i:02}\":{{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[{},{}]}}", i * 2, i * 2 + 2)
    };
    let header = format!("{{{}}}", (0..25).map(entry).collect::<Vec<_>>().join(","));
    let data: Vec<u8> = (0..50).collect();
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()).unwrap();
    for i in [0u8, 7, 24] {
        let mut port = open(&path, &named(&format!("t{i:02}"))).unwrap();
        let mut got = [0; 2];
        assert_eq!(port.read(&mut got), Ok(Some(0)));
        assert_eq!(got, [2 * i, 2 * i + 1]);
    }
    for (options, asked) in [(Options::default(), None), (named("t99"), Some("t99".to_owned()))] {
        match open(&path, &options).map(drop) {
            Err(FileError::NoTensor { asked: found, names, .. }) => {
                assert_eq!(found, asked);
                assert!(names.starts_with("t00, t01, ") && names.ends_with(", t19 and 5 more"), "{names}");
            }
            other => panic!("{other:?}"),
        }
    }
    let only = place.file("one.safetensors");
    std::fs::write(&only, file_of("w", "U8", &[2], &[1, 2])).unwrap();
    assert!(open(&only, &Options::default()).is_ok() && open(&only, &named("w")).is_ok());
}

/// A file of several tensors with a note, in whatever order; each holds its number over and over.
fn several(kinds: &[(&str, u64)]) -> Vec<u8> {
    let (mut entries, mut data) = (vec!["\"__metadata__\":{\"by\":\"hand\"}".to_owned()], Vec::new());
    for (i, (dtype, count)) in kinds.iter().enumerate() {
        let begin = data.len() as u64;
        let end = begin + size_of(dtype) * count;
        data.resize(end as usize, i as u8 + 1);
        entries.push(format!(
            "\"t{i}\":{{\"dtype\":\"{dtype}\",\"shape\":[{count}],\"data_offsets\":[{begin},{end}]}}"
        ));
    }
    let header = format!("{{{}}}", entries.join(","));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

fn size_of(dtype: &str) -> u64 {
    match dtype {
        "F64" => 8,
        "F32" => 4,
        "BF16" => 2,
        _ => 1,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn one_tensor_is_written_and_the_others_stay(
        kinds in proptest::collection::vec((prop_oneof![Just("U8"), Just("BF16"), Just("F32"), Just("F64"), Just("F8_E4M3")], 0u64..9), 0..6),
        at in 0usize..7, elem in prop_oneof![Just(ElemType::I8), Just(ElemType::F16), Just(ElemType::I32), Just(ElemType::F64)],
        units in 1u32..4, steps in 0u64..4,
    ) {
        let place = Place::new();
        let path = place.file("m.safetensors");
        std::fs::write(&path, several(&kinds)).unwrap();
        let dataset = Dataset::new(&[5, 3], elem).unwrap();
        let mapping = "block,*".parse::<Layout>().unwrap().bind(&dataset, units.into()).unwrap();
        let name = format!("t{at}");
        let results = write_as(&path, Format::Safetensors, &mapping, steps, &named(&name));
        prop_assert!(results.iter().all(Result::is_ok), "{:?}", results);
        let file = std::fs::read(&path).unwrap();
        let header = Header::parse(&file).unwrap();
        prop_assert_eq!(header.data_len() as usize + header.len_bytes, file.len());
        prop_assert_eq!(&header.metadata, &[("by".to_owned(), "hand".to_owned())].into());
        prop_assert_eq!(header.tensors.len(), kinds.len() + usize::from(at >= kinds.len()));
        for t in &header.tensors {
            let bytes = &file[t.begin as usize..t.end as usize];
            prop_assert!(t.begin.is_multiple_of(t.elem.map_or(1, |e| e.len_bytes())), "{} at {}", t.name, t.begin);
            if t.name == name {
                let data: Vec<u8> = (0..steps).flat_map(|s| step_bytes(&dataset, s)).collect();
                prop_assert_eq!(bytes, data);
                prop_assert_eq!(t.elem, Some(elem));
                continue;
            }
            let i: usize = t.name[1..].parse().unwrap();
            let (dtype, count) = kinds[i];
            prop_assert_eq!((t.dtype.as_str(), t.shape.as_slice()), (dtype, &[count][..]));
            prop_assert!(bytes.len() as u64 == count * size_of(dtype) && bytes.iter().all(|&b| b == i as u8 + 1));
        }
    }
}

#[test]
fn tensors_are_not_lost_between_two_programs_or_for_want_of_a_name() {
    let place = Place::new();
    let path = place.file("m.safetensors");
    let before = several(&[("U8", 4), ("F32", 2)]);
    std::fs::write(&path, &before).unwrap();
    let dataset = Dataset::new(&[3], ElemType::U8).unwrap();
    let write = |options: &Options| FileWriter::open(&path, Format::Safetensors, &dataset, "*", options);
    let refused = |result: Result<(), FileError>, why: &str| match result {
        Err(FileError::BadPath { problem, .. }) => assert!(problem.contains(why), "{problem}"),
        other => panic!("{other:?}"),
    };
    refused(write(&Options::default()).map(drop), "several tensors; name the one to be written");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let mut ports = [write(&named("a")).unwrap(), write(&named("b")).unwrap()];
    ports.iter_mut().for_each(|port| port.write(&[7; 3]).unwrap());
    let [first, second] = &mut ports;
    first.close().unwrap();
    refused(second.close().map(drop), "another program replaced it");
    let names = |path: &Path| {
        let header = Header::parse(&std::fs::read(path).unwrap()).unwrap();
        let mut names: Vec<String> = header.tensors.into_iter().map(|t| t.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(&path), ["a", "t0", "t1"]);
    // What is no such file is not replaced by one tensor, but as a whole.
    std::fs::write(&path, "something else").unwrap();
    assert!(matches!(write(&named("a")).map(drop), Err(FileError::BadSafetensors { .. })));
    let mut whole = write(&Options::default()).unwrap();
    whole.write(&[7; 3]).unwrap();
    whole.close().unwrap();
    assert_eq!(names(&path), ["data"]);
    // Nor is one that came while it was not there.
    std::fs::remove_file(&path).unwrap();
    let mut late = write(&named("a")).unwrap();
    late.write(&[7; 3]).unwrap();
    std::fs::write(&path, &before).unwrap();
    refused(late.close().map(drop), "another program replaced it");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn what_is_no_such_file_is_refused() {
    let place = Place::new();
    let path = place.file("x.safetensors");
    let attempt = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        open(&path, &Options::default()).map(drop)
    };
    let good = file_of("w", "F32", &[3], &[0; 12]);
    assert_eq!(attempt(&good), Ok(()));
    let shown = path.display().to_string();
    let bad = |source| Err(FileError::BadSafetensors { path: shown.clone(), source });
    let len = good.len();
    for cut in 0..len {
        match attempt(&good[..cut]) {
            Err(FileError::BadSafetensors { source: SafetensorsError::Short { .. }, .. }) => {
                assert!(cut < len - 12)
            }
            Err(FileError::Truncated { expected, found, .. }) => {
                assert_eq!((expected, found), (len as u64, cut as u64));
            }
            other => panic!("{cut}: {other:?}"),
        }
    }
    let more = [good.as_slice(), b"x"].concat();
    assert_eq!(attempt(&more), bad(SafetensorsError::Trailing { expected: 12, found: 13 }));
    let float8 = SafetensorsError::Dtype { name: "w".into(), dtype: "F8_E4M3".into() };
    assert_eq!(attempt(&file_of("w", "F8_E4M3", &[3], &[0; 3])), bad(float8));
    assert!(matches!(
        attempt(&file_of("w", "F32", &[1; 10], &[0; 4])),
        Err(FileError::Port(PortError::Layout { .. }))
    ));
    let empty = attempt(b"\x02\0\0\0\0\0\0\0{}");
    assert!(
        matches!(&empty, Err(e @ FileError::NoTensor { .. }) if e.to_string().ends_with("it has nothing"))
    );

    for tensor in ["__metadata__", &"x".repeat(1001)] {
        let dataset = Dataset::new(&[3], ElemType::F32).unwrap();
        let refused = FileWriter::open(&path, Format::Safetensors, &dataset, "*", &named(tensor)).map(drop);
        assert!(
            matches!(refused, Err(FileError::Port(PortError::BadOption { option: "tensor", .. }))),
            "{refused:?}"
        );
    }
    assert_eq!(place.names(), ["x.safetensors"]);
}
