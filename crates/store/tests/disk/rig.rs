//! A store in a directory of its own, and programs of several units.

use polyduct_layout::{Dataset, Layout};
use polyduct_rig::Scratch;
use polyduct_store::disk::{Create, Store, StoreError, StoreReader, StoreWriter};
use polyduct_store::{Expect, Options};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory that goes with the test.
pub struct Place(pub PathBuf, #[allow(dead_code, reason = "kept for its end")] Scratch);

impl Place {
    pub fn new() -> Place {
        let scratch = Scratch::new("disk");
        Place(scratch.path().to_owned(), scratch)
    }

    /// A store of `data` + `parity` units in it.
    pub fn store(data: u32, parity: u32, stripe: u64) -> Place {
        let place = Place::new();
        let units = (0..data + parity).map(|u| vec![PathBuf::from(format!("unit{u}"))]).collect();
        Store::create(&place.0, &Create { units, parity, stripe }).unwrap();
        place
    }

    /// Takes a unit's directory away; the returned path is where it is now.
    pub fn lose(&self, unit: u32) -> PathBuf {
        let (from, to) = (self.0.join(format!("unit{unit}")), self.0.join(format!("away{unit}")));
        std::fs::rename(&from, &to).unwrap();
        to
    }
}

pub fn options(unit: u32, units: u32) -> Options {
    let program = "test".into();
    let (open_timeout, timeout) = (Duration::from_secs(30), Some(Duration::from_secs(30)));
    polyduct_port::Options { unit, units, program, open_timeout, timeout, ..Default::default() }.into()
}

/// Calls `f` as each unit of a program.
pub fn each<T: Send>(units: u32, f: impl Fn(u32) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let f = &f;
        let all: Vec<_> = (0..units).map(|unit| scope.spawn(move || f(unit))).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// The byte of a dataset in a step.
pub fn byte(step: u64, at: u64) -> u8 {
    ((at * 31 + step * 101) ^ (at >> 8)) as u8
}

/// A unit's part of a step, by the oracle: each element by itself.
pub fn part(dataset: &Dataset, layout: &str, unit: u32, units: u32, step: u64) -> Vec<u8> {
    let mapping = layout.parse::<Layout>().unwrap().bind(dataset, units.into()).unwrap();
    let elem = dataset.elem().len_bytes();
    let mut part = vec![0; mapping.local_len_bytes(unit.into()).unwrap() as usize];
    let elems: u64 = dataset.shape().iter().product();
    let mut index = vec![0; dataset.shape().len()];
    for n in 0..elems {
        let mut rest = n;
        for (i, &extent) in index.iter_mut().zip(dataset.shape()).rev() {
            (*i, rest) = (rest % extent, rest / extent);
        }
        for place in mapping.locate(&index).unwrap() {
            if place.unit == u64::from(unit) {
                for b in 0..elem {
                    part[(place.offset_elems * elem + b) as usize] = byte(step, n * elem + b);
                }
            }
        }
    }
    part
}

/// Writes steps as a program of some units.
pub fn write(
    dir: &Path,
    name: &str,
    dataset: &Dataset,
    layout: &str,
    units: u32,
    append: bool,
    steps: std::ops::Range<u64>,
) -> Vec<Result<(), StoreError>> {
    each(units, |unit| {
        let mut out = StoreWriter::open(dir, name, dataset, layout, append, &options(unit, units))?;
        for step in steps.clone() {
            assert_eq!(out.next_step(), if append { step } else { step - steps.start });
            out.write(&part(dataset, layout, unit, units, step))?;
        }
        out.close().map(|_| ())
    })
}

/// Reads all steps as a program of some units, and checks them.
pub fn check(
    dir: &Path,
    name: &str,
    dataset: &Dataset,
    layout: &str,
    units: u32,
    steps: std::ops::Range<u64>,
) -> Vec<Result<(), StoreError>> {
    each(units, |unit| {
        let mut port = StoreReader::open(dir, name, layout, &Expect::default(), &options(unit, units))?;
        assert_eq!(port.steps(), steps.end - steps.start);
        let mut got = vec![0; port.local_len_bytes()];
        let mut expected = steps.clone();
        while let Some(n) = port.read(&mut got)? {
            let step = expected.next().unwrap();
            assert_eq!(n, step - steps.start);
            assert!(
                got == part(dataset, layout, unit, units, step),
                "{name} {layout} unit {unit} step {step}"
            );
        }
        assert_eq!(expected.next(), None);
        Ok(())
    })
}
