//! Arrays whose size changes from step to step, in files: written by some units, read as steps and as one array.

use polyduct::layout::{Dataset, ElemType};
use polyduct::store::disk::{Create, Store};
use polyduct::values::{pack, unpack, Value};
use polyduct::{open, Array, Changes, Error, Rule};
use polyduct_rig::Scratch;
use proptest::prelude::*;
use std::path::Path;
use std::thread;

const MOST: u64 = 7;
/// The most of the mesh.
const MESH: [u64; 2] = [5, 6];

/// What one step is: how many each unit brings, and the shape of the mesh.
type Step = (Vec<u64>, [u64; 2]);

fn arrays(only: Option<&str>) -> Vec<Array> {
    let array = |name: &str, shape: &[u64], elem, layout: &str, open| {
        let dataset = Dataset::new(shape, elem).unwrap();
        Array { name: name.into(), dataset, layout: layout.into(), open }
    };
    let all = vec![
        array("x", &[MOST, 3], ElemType::F32, "", Some(Changes::Dim(0))),
        array("mesh", &MESH, ElemType::I16, "*,block", Some(Changes::Whole)),
        array("turned", &[2, MOST], ElemType::U8, "", Some(Changes::Dim(1))),
        array("u", &[4], ElemType::F64, "block", None),
        array("grid", &[3], ElemType::I32, "*", Some(Changes::Never)),
    ];
    all.into_iter().filter(|array| only.is_none_or(|only| array.name == only)).collect()
}

/// The elements of an array in a step, row-major: another in each place and step.
fn whole(array: &Array, step: u64, shape: &[u64]) -> Vec<u8> {
    let (len, step) = (array.dataset.elem().len_bytes(), if array.name == "grid" { 0 } else { step });
    let mut bytes = Vec::new();
    for n in 0..shape.iter().product::<u64>() {
        let word = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (step * 0x51 + array.name.len() as u64);
        bytes.extend(&word.to_le_bytes()[..len as usize]);
    }
    bytes
}

/// The shape of an array in a step.
fn shape(array: &Array, (brought, mesh): &Step) -> Vec<u64> {
    let all = brought.iter().sum();
    match &array.name[..] {
        "x" => vec![all, 3],
        "turned" => vec![2, all],
        "mesh" => mesh.to_vec(),
        _ => array.dataset.shape().to_vec(),
    }
}

/// Of a row-major matrix (or column) the rows and columns in these ranges.
fn cut(
    bytes: &[u8],
    shape: &[u64],
    elem: u64,
    rows: std::ops::Range<u64>,
    columns: std::ops::Range<u64>,
) -> Vec<u8> {
    let width = shape.get(1).copied().unwrap_or(1);
    let columns = columns.start.min(width)..columns.end.min(width);
    let of = |row: u64| (row * width + columns.start) * elem..(row * width + columns.end) * elem;
    rows.flat_map(|row| bytes[of(row).start as usize..of(row).end as usize].to_vec()).collect()
}

/// The `unit`-th of so many blocks of so many indices.
fn block(n: u64, unit: u64, units: u64) -> std::ops::Range<u64> {
    let each = n.div_ceil(units).max(1);
    (unit * each).min(n)..((unit + 1) * each).min(n)
}

/// What a writer unit has of an array in a step.
fn brought(array: &Array, step: u64, of: &Step, unit: u64) -> Vec<u8> {
    let (shape, elem, units) = (shape(array, of), array.dataset.elem().len_bytes(), of.0.len() as u64);
    let bytes = whole(array, step, &shape);
    let begin: u64 = of.0[..unit as usize].iter().sum();
    let own = begin..begin + of.0[unit as usize];
    match &array.name[..] {
        "x" => cut(&bytes, &shape, elem, own, 0..3),
        "turned" => cut(&bytes, &shape, elem, 0..2, own),
        "mesh" => cut(&bytes, &shape, elem, 0..shape[0], block(shape[1], unit, units)),
        "u" => cut(&bytes, &shape, elem, block(4, unit, units), 0..1),
        _ => bytes,
    }
}

fn write(url: &str, only: Option<&str>, steps: &[Step], units: u32) -> Vec<Result<(), Error>> {
    let arrays = arrays(only);
    let unit = |unit: u32| -> Result<(), Error> {
        let mut out = open(url).unit(unit).units(units).program("ragged").write_arrays(&arrays)?;
        for (step, of) in (0..).zip(steps) {
            for (n, array) in arrays.iter().enumerate() {
                let mine = of.0[unit as usize];
                match &array.name[..] {
                    // The sizes of the other two follow from the bytes or are said.
                    "mesh" => out.bring(n, &of.1)?,
                    "x" if step % 2 == 0 => out.bring(n, &[mine, 3])?,
                    _ => {}
                }
            }
            if only.is_none() {
                out.set_values(&pack(vec![("time".into(), Value::from(step))]).unwrap())?;
            }
            let parts: Vec<Vec<u8>> =
                arrays.iter().map(|array| brought(array, step, of, unit.into())).collect();
            if step % 3 == 1 {
                let mut memory = out.step()?;
                for (n, array) in arrays.iter().enumerate() {
                    match &array.name[..] {
                        "x" => memory.bring(n, &[of.0[unit as usize], 3])?,
                        "turned" => memory.bring(n, &[2, of.0[unit as usize]])?,
                        _ => {}
                    }
                    let at = memory.arrays()[n].at.clone();
                    memory[at].copy_from_slice(&parts[n]);
                }
                memory.publish()?;
            } else {
                out.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            }
        }
        out.close().map(drop)
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..units).map(|n| scope.spawn(move || unit(n))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Reads all steps by so many units, in blocks of columns or of rows.
fn read(url: &str, only: Option<&str>, steps: &[Step], units: u32, columns: bool) {
    let arrays = arrays(only);
    for unit in 0..units {
        let layout = |array: &Array| match (array.dataset.shape().len(), columns) {
            (1, _) => "block",
            (_, true) => "*,block",
            (_, false) => "block,*",
        };
        let rule = |array: &Array| Rule {
            // A .npy file has no name for its array: it is called as the file is.
            pattern: array.name.clone(),
            layout: layout(array).into(),
            ..Rule::default()
        };
        let rules: Vec<Rule> = arrays.iter().map(rule).collect();
        let mut port = open(url).unit(unit).units(units).read_arrays(&rules).unwrap();
        for (step, of) in (0..).zip(steps) {
            assert_eq!(port.peek().unwrap(), Some(step));
            let mut memory = vec![0; port.local_len_bytes()];
            assert_eq!(port.read(&mut memory).unwrap(), Some(step));
            if only.is_none() {
                assert_eq!(unpack(port.values()).unwrap(), [("time".to_owned(), Value::from(step))]);
            }
            assert_eq!(port.arrays().len(), arrays.len());
            for part in port.arrays() {
                let array = arrays.iter().find(|array| array.name == part.name).unwrap();
                let (shape, elem) = (shape(array, of), array.dataset.elem().len_bytes());
                assert_eq!(part.mapping.dataset().shape(), &shape[..], "{}", part.name);
                let (unit, units) = (unit.into(), units.into());
                let expected = match layout(array) {
                    "*,block" => (0..shape[0], block(shape[1], unit, units)),
                    _ => (block(shape[0], unit, units), 0..u64::MAX),
                };
                let expected = cut(&whole(array, step, &shape), &shape, elem, expected.0, expected.1);
                assert!(
                    memory[part.at.clone()] == expected,
                    "{} of step {step}, {}",
                    array.name,
                    layout(array)
                );
            }
        }
        assert_eq!((port.peek().unwrap(), port.read(&mut []).unwrap()), (None, None));
    }
}

/// All steps of an array, one behind the other.
fn joined(name: &str, steps: &[Step]) -> Vec<u8> {
    let array = &arrays(Some(name))[0];
    (0..).zip(steps).flat_map(|(step, of)| whole(array, step, &shape(array, of))).collect()
}

/// Reads an array as a file has it, in one piece.
fn plain(url: &str) -> (Vec<u64>, Vec<u8>) {
    let mut port = open(url).unit(0).units(1).read("...").unwrap();
    let mut bytes = vec![0; port.local_len_bytes()];
    assert_eq!((port.steps(), port.read(&mut bytes).unwrap()), (Some(1), Some(0)));
    (port.dataset().shape().to_vec(), bytes)
}

fn url(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    (1usize..5).prop_flat_map(|units| {
        let brought = proptest::collection::vec(0..=MOST, units);
        let mesh = (0..=MESH[0], 0..=MESH[1]).prop_map(|(rows, columns)| [rows, columns]);
        proptest::collection::vec((brought, mesh), 1..6)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20) })]

    #[test]
    fn steps_of_any_size_come_back(steps in steps(), readers in 1u32..4, columns: bool) {
        let dir = Scratch::new("ragged");
        let units = steps[0].0.len() as u32;
        let units_of = (0..3).map(|unit| vec![format!("unit{unit}").into()]).collect();
        Store::create(&dir.path().join("s"), &Create { units: units_of, parity: 1, stripe: 4096 }).unwrap();
        for (name, only) in [("g.zarr", None), ("x.npy", Some("x")), ("mesh.npy", Some("mesh"))] {
            let url = url(dir.path(), name);
            write(&url, only, &steps, units).into_iter().for_each(|r| r.unwrap());
            read(&url, only, &steps, readers, columns);
        }
        let store = format!("store:{}/run", url(dir.path(), "s"));
        write(&store, None, &steps, units).into_iter().for_each(|r| r.unwrap());
        read(&store, None, &steps, readers, columns);
        // As any program has it: one array along the first dimension, or elements in a row.
        let all: u64 = steps.iter().flat_map(|(brought, _)| brought).sum();
        for x in [url(dir.path(), "x.npy"), url(dir.path(), "g.zarr/x"), format!("{store}/x")] {
            prop_assert_eq!(plain(&x), (vec![all, 3], joined("x", &steps)));
        }
        for mesh in [url(dir.path(), "mesh.npy"), url(dir.path(), "g.zarr/mesh"), format!("{store}/mesh")] {
            let all = steps.iter().map(|(_, mesh)| mesh.iter().product::<u64>()).sum();
            prop_assert_eq!(plain(&mesh), (vec![all], joined("mesh", &steps)));
        }
    }
}

#[test]
fn steps_of_more_than_a_window_of_rows_come_back() {
    // 3 units of a store with rows of 8 KiB, and steps of megabytes that end anywhere in them.
    let dir = Scratch::new("ragged-long");
    let units = (0..3).map(|unit| vec![format!("unit{unit}").into()]).collect();
    Store::create(&dir.path().join("s"), &Create { units, parity: 1, stripe: 4096 }).unwrap();
    let most = 3 << 20;
    let array = Array {
        name: "x".into(),
        dataset: Dataset::new(&[most], ElemType::Bytes(3)).unwrap(),
        layout: String::new(),
        open: Some(Changes::Dim(0)),
    };
    let (array, units) = (&array, 3u32);
    let brings = |step: u64, unit: u64| {
        [[1, most, 5], [0, 0, 0], [most - 1, 0, most], [0, 7, 0]][step as usize][unit as usize]
    };
    let byte = |step: u64, unit: u64, n: u64| (step * 77 + unit * 13 + n % 251) as u8;
    for url in
        [format!("store:{}/run", url(dir.path(), "s")), url(dir.path(), "g.zarr"), url(dir.path(), "x.npy")]
    {
        let (url, brings, byte) = (&url, &brings, &byte);
        thread::scope(|scope| {
            for unit in 0..units {
                scope.spawn(move || {
                    let open = open(url).unit(unit).units(units).program("ragged");
                    let mut out = open.write_arrays(std::slice::from_ref(array)).unwrap();
                    for step in 0..4 {
                        let len = 3 * brings(step, unit.into());
                        let part: Vec<u8> = (0..len).map(|n| byte(step, unit.into(), n)).collect();
                        out.write_arrays(&[&part]).unwrap();
                    }
                    out.close().unwrap();
                });
            }
        });
        let rule = Rule { pattern: "x".into(), layout: "*".into(), ..Rule::default() };
        let mut port = open(url).unit(0).units(1).read_arrays(&[rule]).unwrap();
        for step in 0..4 {
            assert_eq!(port.peek().unwrap(), Some(step));
            let mut memory = vec![0; port.local_len_bytes()];
            port.read(&mut memory).unwrap();
            let expected =
                (0..3).flat_map(|unit| (0..3 * brings(step, unit)).map(move |n| byte(step, unit, n)));
            assert!(memory.iter().copied().eq(expected), "step {step} of {url}");
        }
        assert_eq!(port.peek().unwrap(), None);
    }
}

#[test]
fn what_does_not_fit_is_told_and_loses_nothing() {
    let dir = Scratch::new("ragged-wrong");
    let path = url(dir.path(), "g.zarr");
    let arrays = arrays(None);
    let mut out = open(&path).unit(0).units(1).write_arrays(&arrays).unwrap();
    let of: Step = (vec![2], [3, 3]);
    let told = |result: Result<(), Error>| result.unwrap_err().to_string();
    for (n, shape, why) in [
        (
            0,
            &[8, 3][..],
            "array \"x\": its size in a step is [8, 3]; expected [7, 3] with at most so many in dimension 0",
        ),
        (0, &[2, 2], "with at most so many"),
        (1, &[6, 1], "at most [5, 6]"),
        (3, &[4], "array \"u\": its size in a step is [4]; expected what it always is"),
    ] {
        let told = told(out.bring(n, shape));
        assert!(told.contains(why), "{told}");
    }
    out.bring(1, &of.1).unwrap();
    let parts: Vec<Vec<u8>> = arrays.iter().map(|array| brought(array, 0, &of, 0)).collect();
    let mut short: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    short[0] = &short[0][1..];
    let told = out.write_arrays(&short).unwrap_err().to_string();
    assert!(told.contains("array \"x\""), "{told}");
    out.set_values(&pack(vec![("time".into(), Value::from(0))]).unwrap()).unwrap();
    out.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    out.close().unwrap();
    read(&path, None, &[of], 1, true);
    // Two units that say different shapes of the whole are told so, both, and may go on.
    let path = url(dir.path(), "mesh.npy");
    let array = &arrays[1..2];
    thread::scope(|scope| {
        for unit in 0..2u32 {
            let path = &path;
            scope.spawn(move || {
                let mut out = open(path).unit(unit).units(2).program("ragged").write_arrays(array).unwrap();
                out.bring(0, &[2 + u64::from(unit), 2]).unwrap();
                let column = vec![7; 2 * (2 + unit as usize)];
                let told = out.write_arrays(&[&column]).unwrap_err().to_string();
                assert!(told.contains("is [3, 2]; expected [2, 2], as unit 0 says (unit 1"), "{told}");
                out.bring(0, &[2, 2]).unwrap();
                out.write_arrays(&[&[unit as u8; 4]]).unwrap();
                out.close().unwrap();
            });
        }
    });
    assert_eq!(plain(&path), (vec![4], vec![0, 0, 1, 1, 0, 0, 1, 1]));
    let refused = |url: &str, arrays: &[Array]| {
        let opened = open(url).unit(0).units(1).write_arrays(arrays);
        opened.map(drop).unwrap_err().to_string()
    };
    for (name, arrays, why) in [
        ("a.npy", &arrays[..2], "a .npy file has one array"),
        ("a.npy", &arrays[3..4], "its size does not change"),
        ("a.npz", &arrays[..1], "its size changes from step to step"),
    ] {
        let told = refused(&url(dir.path(), name), arrays);
        assert!(told.contains(why), "{told}");
    }
}
