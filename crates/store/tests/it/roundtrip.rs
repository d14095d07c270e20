//! Any layout writes the one right file, and any other reads it.

use crate::oracle::*;
use polyduct_layout::{Dataset, ElemType, Layout, Mapping};
use polyduct_store::npy;
use polyduct_store::{Expect, FileReader, FileWriter, Format};
use proptest::prelude::*;
use std::path::Path;

/// A layout for so many dimensions: text, and how many units.
fn layout(dims: usize) -> impl Strategy<Value = (String, u32)> {
    let dist = prop_oneof![
        3 => Just("*"), 3 => Just("block"), 2 => Just("balanced"), 1 => Just("cyclic"), 2 => Just("cyclic(2)"),
    ];
    let order = prop_oneof![2 => Just(None), 1 => Just(Some(())),];
    let regular = (proptest::collection::vec((dist, 0u64..3, 0u64..2), dims.max(1)), order, 0..8u32, 1u32..6);
    let stripes = (1u64..40, 1u32..5).prop_map(|(n, units)| (format!("stripe({n})"), units));
    let regular = regular.prop_map(move |(dists, order, extra, units)| {
        let mut text: Vec<String> = dists.iter().map(|d| d.0.to_owned()).collect();
        if dims == 0 {
            return (format!("*@{units}"), units);
        }
        let distributed = dists.iter().filter(|d| d.0 != "*").count();
        let mut units = units;
        let mut last = text.pop().unwrap();
        if distributed == 0 {
            last += &format!("@{units}");
        } else if extra == 0 {
            // An axis more than is used: replicas.
            units = 2 * 2u32.pow(distributed as u32 - 1) * 2;
            last += &format!("@{}", vec!["2"; distributed + 1].join("x"));
        }
        text.push(last);
        let mut text = text.join(",");
        if order.is_some() && dims > 1 {
            text += ";order=F";
        }
        if dists.iter().any(|d| (d.1, d.2) != (0, 0)) {
            let halo = |d: &(&str, u64, u64)| match d.0 {
                "block" | "balanced" => format!("{}:{}", d.1, d.2),
                _ => "0".to_owned(),
            };
            text += &format!(";halo={}", dists.iter().map(halo).collect::<Vec<_>>().join(","));
        }
        (text, units)
    });
    prop_oneof![5 => regular, 1 => stripes]
}

fn elem() -> impl Strategy<Value = ElemType> {
    proptest::sample::select(vec![
        ElemType::U8,
        ElemType::F32,
        ElemType::Bf16,
        ElemType::F64,
        ElemType::C128,
        ElemType::Bytes(3),
    ])
}

pub type Side = (String, u32);

pub fn case() -> impl Strategy<Value = (Vec<u64>, ElemType, Side, Side, u64, bool)> {
    proptest::collection::vec(0u64..8, 0..4).prop_flat_map(|shape| {
        let dims = shape.len();
        (Just(shape), elem(), layout(dims), layout(dims), 0u64..4, any::<bool>())
    })
}

/// Reads all steps by all units and compares each part.
pub fn check_read(path: &Path, format: Format, expect: &Expect, mapping: &Mapping, steps: u64) {
    let units = mapping.units() as u32;
    let all: Vec<Vec<Vec<u8>>> = (0..steps).map(|step| parts(mapping, step, true)).collect();
    for u in 0..units {
        let layout = mapping.layout().to_string();
        let mut port = FileReader::open(path, format, &layout, expect, &unit(u, units)).unwrap();
        assert_eq!((port.dataset(), port.steps(), port.mapping()), (mapping.dataset(), steps, mapping));
        let mut got = vec![0; port.local_len_bytes()];
        for step in 0..steps {
            if step % 2 == 0 {
                assert_eq!(port.read(&mut got).unwrap(), Some(step));
            } else {
                let (number, bytes) = port.next_step().unwrap().unwrap();
                assert_eq!(number, step);
                got.copy_from_slice(bytes);
            }
            assert!(got == all[step as usize][u as usize], "{layout} unit {u} step {step}");
        }
        assert_eq!(port.read(&mut got).unwrap(), None);
        assert!(port.next_step().unwrap().is_none());
        assert_eq!(port.stats().steps, steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_to_any_layout((shape, elem, (src, p), (dst, q), steps, raw) in case()) {
        let dataset = Dataset::new(&shape, elem).unwrap();
        let bind = |text: &str, units: u32| text.parse::<Layout>().unwrap().bind(&dataset, units.into());
        let (Ok(src), Ok(dst)) = (bind(&src, p), bind(&dst, q)) else {
            return Err(TestCaseError::reject("does not bind"));
        };
        let place = Place::new();
        let format = if raw { Format::Raw } else { Format::Npy };
        let path = place.file("a");
        for result in write(&path, format, &src, steps) {
            prop_assert_eq!(result, Ok(()));
        }
        prop_assert_eq!(place.names(), ["a"]);
        let data: Vec<u8> = (0..steps).flat_map(|s| step_bytes(&dataset, s)).collect();
        let found = std::fs::read(&path).unwrap();
        match format {
            Format::Raw => prop_assert_eq!(&found, &data),
            _ => {
                let all: Vec<u64> = if steps == 1 { shape.clone() } else { [&[steps], shape.as_slice()].concat() };
                prop_assert_eq!(&found, &npy_bytes(&npy::descr(elem), false, &all, &data, 128));
            }
        }
        // A raw file of nothing counts as one empty array.
        let steps = if raw && dataset.len_bytes() == 0 { 1 } else { steps };
        let expect = Expect { shape: Some(shape.clone()), elem: Some(elem), convert: false };
        check_read(&path, format, &expect, &dst, steps);
    }

    #[test]
    fn files_in_either_order_of_elements_and_of_bytes(
        (shape, elem, _, (dst, q), steps, big) in case(),
        fortran: bool,
    ) {
        prop_assume!(!fortran || !dst.starts_with("stripe") || steps <= 1);
        let dataset = Dataset::new(&shape, elem).unwrap();
        let Ok(dst) = dst.parse::<Layout>().unwrap().bind(&dataset, q.into()) else {
            return Err(TestCaseError::reject("does not bind"));
        };
        // The whole array, steps first, with the first index fastest or slowest.
        let all: Vec<u64> = if steps == 1 { shape.clone() } else { [&[steps], shape.as_slice()].concat() };
        let mut backwards = all.clone();
        if fortran {
            backwards.reverse();
        }
        let component = match elem {
            ElemType::C128 => 8,
            ElemType::Bytes(_) => 1,
            elem => elem.len_bytes(),
        };
        let mut data = Vec::new();
        for mut index in indices(&backwards) {
            if fortran {
                index.reverse();
            }
            let (step, index) = if steps == 1 { (0, index.as_slice()) } else { (index[0], &index[1..]) };
            let element = index.iter().zip(&shape).fold(0, |at, (i, n)| at * n + i);
            let at = |b| if big { b - b % component + (component - 1 - b % component) } else { b };
            data.extend((0..elem.len_bytes()).map(|b| byte(step, element, at(b))));
        }
        // NumPy has no bfloat16, and so none in another order.
        prop_assume!(!big || elem != ElemType::Bf16);
        let descr = npy::descr(elem).replace('<', if big { ">" } else { "<" });
        let place = Place::new();
        let path = place.file("f.npy");
        std::fs::write(&path, npy_bytes(&descr, fortran, &all, &data, 192)).unwrap();
        let expect = Expect { shape: Some(shape.clone()), elem: Some(elem), convert: false };
        check_read(&path, Format::Npy, &expect, &dst, steps);
    }
}

#[test]
fn windows_larger_than_the_buffer() {
    // Several windows of each kind: columns, cyclic, column-major memory; parts of megabytes.
    let dataset = Dataset::new(&[512, 1200], ElemType::F32).unwrap();
    let place = Place::new();
    let path = place.file("big.npy");
    let step = step_bytes(&dataset, 0);
    for layout in
        ["*,block", "*,cyclic", "cyclic(5),cyclic(3)@2x2", "block,*;order=F", "*,block;order=F;halo=0,2"]
    {
        let units = 4;
        let map = bind(layout, &dataset, units);
        for result in write(&path, Format::Npy, &map, 1) {
            result.unwrap();
        }
        let found = std::fs::read(&path).unwrap();
        assert!(found[128..] == step, "{layout}");
        check_read(&path, Format::Npy, &Expect::default(), &map, 1);
    }
}

#[test]
fn a_part_with_holes_leaves_its_neighbours_alone() {
    // One unit has single bytes, the others long pieces: all must take turns, and none may write back what is
    // old.
    let dataset = Dataset::new(&[600, 300], ElemType::U8).unwrap();
    let map = bind("*,cut(0,1,200)", &dataset, 3);
    let place = Place::new();
    let path = place.file("holes.raw");
    let data: Vec<u8> = (0..3).flat_map(|s| step_bytes(&dataset, s)).collect();
    for _ in 0..5 {
        for result in write(&path, Format::Raw, &map, 3) {
            result.unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == data);
    }
    // Single elements that no window would bring together.
    let singles: Vec<String> = (0..64).map(|i| format!("{}:{},0:1", i * 3, i * 3 + 1)).collect();
    let rest: Vec<String> = (0..64).map(|i| format!("{}:{},0:1", i * 3 + 1, i * 3 + 3)).collect();
    let dataset = Dataset::new(&[192, 30], ElemType::U8).unwrap();
    let text = format!("boxes({}|{}+0:192,1:30)", singles.join("+"), rest.join("+"));
    let map = bind(&text, &dataset, 2);
    for result in write(&path, Format::Raw, &map, 1) {
        result.unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == step_bytes(&dataset, 0));
}

#[test]
fn single_bytes_between_the_windows_of_others() {
    // A column, single bytes written one by one beside it, and the rest of each row, all at once.
    const ROWS: u64 = 6000;
    let singles: Vec<String> = (0..ROWS).map(|i| format!("{i}:{},1:2", i + 1)).collect();
    let dataset = Dataset::new(&[ROWS, 400], ElemType::U8).unwrap();
    let layout = format!("boxes(0:{ROWS},0:1|{}|0:{ROWS},2:400)", singles.join("+"));
    let steps: Vec<Vec<u8>> = (0..10).map(|s| step_bytes(&dataset, s)).collect();
    let place = Place::new();
    let path = place.file("singles.raw");
    let together = std::sync::Barrier::new(3);
    in_threads(3, |u| {
        let mut port = FileWriter::open(&path, Format::Raw, &dataset, &layout, &unit(u, 3)).unwrap();
        for step in &steps {
            let columns = [0..1, 1..2, 2..400][u as usize].clone();
            let part: Vec<u8> = step.chunks(400).flat_map(|row| &row[columns.clone()]).copied().collect();
            together.wait();
            port.write(&part).unwrap();
        }
        port.close().unwrap();
    });
    assert!(std::fs::read(&path).unwrap() == steps.concat());
}

#[test]
fn element_types_change_on_the_way() {
    let place = Place::new();
    let path = place.file("c.npy");
    let values: Vec<f32> = (0..24).map(|i| i as f32 * 0.5 - 3.0).collect();
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let turned: Vec<u8> = data.chunks(4).flat_map(|v| v.iter().rev()).copied().collect();
    for (descr, data, layout) in [
        ("<f4", &data, "block,*"),
        ("<f4", &data, "*,block"),
        ("<f4", &data, "*,cyclic;order=F"),
        (">f4", &turned, "block,*"),
        (">f4", &turned, "*,cyclic;order=F"),
    ] {
        std::fs::write(&path, npy_bytes(descr, false, &[4, 6], data, 128)).unwrap();
        let expect = Expect { elem: Some(ElemType::F64), convert: true, ..Expect::default() };
        let map = bind(layout, &Dataset::new(&[4, 6], ElemType::F64).unwrap(), 2);
        for u in 0..2 {
            let mut port = FileReader::open(&path, Format::Npy, layout, &expect, &unit(u, 2)).unwrap();
            let mut got = vec![0; port.local_len_bytes()];
            assert_eq!(port.read(&mut got).unwrap(), Some(0));
            for (i, index) in indices(&[4, 6]).iter().enumerate() {
                for at in map.locate(index).unwrap().iter().filter(|p| p.unit == u64::from(u)) {
                    let at = at.offset_bytes() as usize;
                    let value = f64::from_le_bytes(got[at..at + 8].try_into().unwrap());
                    assert_eq!(value, f64::from(values[i]), "{layout} {index:?}");
                }
            }
        }
    }
    // Two bytes that NumPy does not interpret are bfloat16 where the reader says so, and convert.
    let half: Vec<u8> = values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
    std::fs::write(&path, npy_bytes("|V2", false, &[24], &half, 128)).unwrap();
    let bf16 = Expect { elem: Some(ElemType::Bf16), ..Expect::default() };
    let mut port = FileReader::open(&path, Format::Npy, "*", &bf16, &unit(0, 1)).unwrap();
    let mut got = vec![0; 48];
    port.read(&mut got).unwrap();
    assert_eq!(got, half);
}

#[test]
fn stretches_of_a_big_endian_file_are_native() {
    let dataset = Dataset::new(&[3000, 1000], ElemType::F64).unwrap();
    let (place, step) = (Place::new(), step_bytes(&dataset, 0));
    let path = place.file("big.npy");
    let turned: Vec<u8> = step.chunks(8).flat_map(|v| v.iter().rev()).copied().collect();
    std::fs::write(&path, npy_bytes(">f8", false, &[3000, 1000], &turned, 128)).unwrap();
    let mut port =
        FileReader::open(&path, Format::Npy, "stripe(64)", &Expect::default(), &unit(0, 1)).unwrap();
    let stretch = port.stretch_len().unwrap() as usize;
    let mut got = vec![0; step.len()];
    for (i, bytes) in got.chunks_mut(stretch).enumerate() {
        port.read_stretch(0, (i * stretch) as u64, bytes).unwrap();
    }
    assert!(got == step && got.len() > stretch);
}

#[test]
fn a_file_of_2_pow_33_elements_is_read_where_it_is_needed() {
    let place = Place::new();
    let path = place.file("sparse.npy");
    let header = npy_bytes("|u1", false, &[1 << 17, 1 << 16], &[], 128);
    std::fs::write(&path, header).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(128 + (1 << 33)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 128 + (1 << 33) - 3).unwrap();
    let layout = "cyclic,*@131072";
    let last = unit(4095, 4096);
    let mut port = FileReader::open(&path, Format::Npy, "block,*", &Expect::default(), &last).unwrap();
    assert_eq!(port.local_len_bytes(), 32 << 16);
    let mut part = vec![1; 32 << 16];
    port.read(&mut part).unwrap();
    assert!(part.ends_with(b"\0end") && part[..part.len() - 3].iter().all(|&b| b == 0));
    assert!(FileReader::open(&path, Format::Npy, layout, &Expect::default(), &last).is_err());
}
