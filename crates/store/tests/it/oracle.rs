//! What the files and the parts must hold, element by element; and places to put them.

use polyduct_layout::{Dataset, Layout, Mapping};
use polyduct_rig::Scratch;
use polyduct_store::{FileError, FileWriter, Format, Options};
use std::path::{Path, PathBuf};

/// Byte `b` of element `element` of a step.
pub fn byte(step: u64, element: u64, b: u64) -> u8 {
    let mixed = (step * 1_000_003 + element * 131 + b + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// One step in row-major order.
pub fn step_bytes(dataset: &Dataset, step: u64) -> Vec<u8> {
    let e = dataset.elem().len_bytes();
    (0..dataset.len_elems()).flat_map(|i| (0..e).map(move |b| byte(step, i, b))).collect()
}

/// All indices of a shape in row-major order.
pub fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![vec![]], |all, &n| {
        all.into_iter().flat_map(|i| (0..n).map(move |k| [i.as_slice(), &[k]].concat())).collect()
    })
}

/// All units' parts of a step: every element where the mapping says that it lies. With `halo`, copies in
/// halos too; otherwise these are rubbish.
pub fn parts(mapping: &Mapping, step: u64, halo: bool) -> Vec<Vec<u8>> {
    let len = |unit| mapping.local_len_bytes(unit).unwrap() as usize;
    let mut parts: Vec<Vec<u8>> = (0..mapping.units()).map(|u| vec![0xEE; len(u)]).collect();
    for (element, index) in indices(mapping.dataset().shape()).iter().enumerate() {
        for place in mapping.locate(index).unwrap() {
            if place.halo && !halo {
                continue;
            }
            let (first, end) = place.bytes_of_elem();
            for (i, b) in (first..end).enumerate() {
                parts[place.unit as usize][place.offset_bytes() as usize + i] =
                    byte(step, element as u64, b.into());
            }
        }
    }
    parts
}

/// One unit's.
pub fn part(mapping: &Mapping, unit: u64, step: u64, halo: bool) -> Vec<u8> {
    parts(mapping, step, halo).swap_remove(unit as usize)
}

pub fn bind(layout: &str, dataset: &Dataset, units: u32) -> Mapping {
    layout.parse::<Layout>().unwrap().bind(dataset, units.into()).unwrap()
}

/// What a .npy file must hold, written without the crate's help.
pub fn npy_bytes(descr: &str, fortran: bool, shape: &[u64], data: &[u8], header_len: usize) -> Vec<u8> {
    let shape = match shape {
        [] => "()".to_owned(),
        [n] => format!("({n},)"),
        more => format!("({})", more.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let fortran = if fortran { "True" } else { "False" };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(((header_len - 10) as u16).to_le_bytes());
    bytes.extend(dict.bytes());
    assert!(bytes.len() < header_len);
    bytes.resize(header_len - 1, b' ');
    bytes.push(b'\n');
    bytes.extend(data);
    bytes
}

/// A directory that is removed with all that is in it.
pub struct Place(Scratch);

impl Place {
    pub fn new() -> Place {
        Place(Scratch::new("store"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub fn unit(unit: u32, units: u32) -> Options {
    Options::of(unit, units)
}

/// Runs `f` for each unit in a thread of its own; gives what they returned.
pub fn in_threads<T: Send>(units: u32, f: impl Fn(u32) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = (0..units).map(|u| scope.spawn(move || f(u))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Writes a file by all units at once.
pub fn write(path: &Path, format: Format, mapping: &Mapping, steps: u64) -> Vec<Result<(), FileError>> {
    write_as(path, format, mapping, steps, &Options::default())
}

/// The same with options of its own.
pub fn write_as(
    path: &Path,
    format: Format,
    mapping: &Mapping,
    steps: u64,
    options: &Options,
) -> Vec<Result<(), FileError>> {
    let units = mapping.units() as u32;
    let layout = mapping.layout().to_string();
    let all: Vec<Vec<Vec<u8>>> = (0..steps).map(|step| parts(mapping, step, false)).collect();
    in_threads(units, |u| {
        let mut port = FileWriter::open(
            path,
            format,
            mapping.dataset(),
            &layout,
            &Options {
                port: polyduct_port::Options { unit: u, units, ..options.clone().port },
                ..options.clone()
            },
        )?;
        for (step, parts) in all.iter().enumerate() {
            let part = &parts[u as usize];
            if step % 2 == 0 {
                port.write(part)?;
            } else {
                let mut given = port.step_mut()?;
                given.copy_from_slice(part);
                assert_eq!(given.number(), step as u64);
                given.publish()?;
            }
        }
        let stats = port.close()?;
        assert_eq!((stats.steps, stats.bytes), (steps, steps * mapping.local_len_bytes(u.into()).unwrap()));
        Ok(())
    })
}
