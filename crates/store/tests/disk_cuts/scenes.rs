//! What programs do, and what is to be there when that is cut short.

use polyduct_layout::{Dataset, ElemType};
use polyduct_rig::record::told;
use polyduct_store::disk::manifest::Manifest;
use polyduct_store::disk::{nonce, Create, Store, StoreError, StoreReader, StoreWriter};
use polyduct_store::volume::BLOCK;
use polyduct_store::{Expect, FileReader, FileWriter, Format, Options};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a program does in a directory.
pub struct Scene {
    pub name: &'static str,
    /// What is durable before.
    pub prepare: fn(&Path),
    pub act: fn(&Path),
    /// Whether what is left is right, where the program knew so much to be durable; the last number is
    /// another one each time.
    pub check: fn(&Path, u32, u64) -> Result<(), String>,
    /// States that are looked at, at least.
    pub least: u64,
}

pub const SCENES: &[Scene] = &[
    Scene { name: "making", prepare: |_| {}, act: make, check: is_made, least: 120 },
    Scene { name: "writing", prepare: write_first, act: write_more, check: is_written, least: 400 },
    Scene { name: "replacing", prepare: lose_one, act: replace, check: is_replaced, least: 250 },
    Scene { name: "a file", prepare: npy_first, act: npy_again, check: is_npy, least: 10 },
    Scene { name: "a Zarr array", prepare: zarr_first, act: zarr_again, check: is_zarr, least: 20 },
];

const UNITS: u32 = 3;
/// Two rows of two blocks.
const LEN: u64 = 4 * BLOCK as u64;

fn options() -> Options {
    let (timeout, open_timeout) = (Some(Duration::from_secs(20)), Duration::from_secs(20));
    let program = format!("cuts-{}", std::process::id());
    polyduct_port::Options { unit: 0, units: 1, program, timeout, open_timeout, ..Default::default() }.into()
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn create(dir: &Path) -> Result<Store, StoreError> {
    let units = (0..UNITS).map(|unit| vec![PathBuf::from(format!("unit{unit}"))]).collect();
    Store::create(dir, &Create { units, parity: 1, stripe: BLOCK as u64 })
}

fn write(dir: &Path, version: u8, steps: u64) -> Result<(), StoreError> {
    let dataset = Dataset::new(&[LEN], ElemType::U8).unwrap();
    let append = steps > 0;
    let mut out = StoreWriter::open(dir, "x", &dataset, "*", append, &options())?;
    out.write(&vec![version; LEN as usize])?;
    out.close().map(drop)
}

/// The steps of the dataset that is there: each its bytes' value, and the one of its first block.
fn read(dir: &Path) -> Result<Vec<(u8, u8)>, String> {
    let mut port = StoreReader::open(dir, "x", "*", &Expect::default(), &options()).map_err(text)?;
    let (mut part, mut steps) = (vec![0; LEN as usize], Vec::new());
    while port.read(&mut part).map_err(text)?.is_some() {
        let (first, rest) = part.split_at(BLOCK);
        if first.iter().any(|byte| *byte != first[0]) || rest.iter().any(|byte| *byte != rest[0]) {
            return Err("torn".to_owned());
        }
        steps.push((rest[0], first[0]));
    }
    Ok(steps)
}

fn make(dir: &Path) {
    create(&dir.join("store")).unwrap();
    told(1);
}

/// The store is there, or can be made; then it is used, also without one of its units.
fn is_made(dir: &Path, told: u32, turn: u64) -> Result<(), String> {
    let dir = dir.join("store");
    if told == 0 && !dir.join("store.toml").exists() {
        create(&dir).map_err(|e| format!("made again: {e}"))?;
    }
    let store = Store::open(&dir).map_err(text)?;
    let lost = store.own().map_err(text)?.lost().count();
    if lost > 0 {
        return Err(format!("{lost} units are lost"));
    }
    write(&dir, 1, 0).map_err(text)?;
    lose(&dir, (turn % u64::from(UNITS)) as u32);
    match read(&dir)?[..] {
        [(1, 1)] => Ok(()),
        ref other => Err(format!("{other:?}")),
    }
}

fn lose(dir: &Path, unit: u32) {
    std::fs::rename(dir.join(format!("unit{unit}")), dir.join(format!("away{unit}"))).unwrap();
}

fn write_first(dir: &Path) {
    create(dir).unwrap();
    write(dir, 1, 0).unwrap();
}

/// The steps that there are after each number that is told.
const WRITTEN: &[&[(u8, u8)]] = &[&[(1, 1)], &[(2, 2)], &[(2, 3)], &[(2, 3), (4, 4)], &[(5, 5)], &[(5, 6)]];

fn write_more(dir: &Path) {
    let store = Store::open(dir).unwrap();
    let overwrite = |value| {
        let mut owned = store.own().unwrap();
        let (entry, _) = owned.find("x").unwrap();
        owned.overwrite(entry.object, 0, &[value; BLOCK], nonce()).unwrap();
    };
    write(dir, 2, 0).unwrap();
    told(1);
    overwrite(3);
    told(2);
    write(dir, 4, 1).unwrap();
    told(3);
    write(dir, 5, 0).unwrap();
    told(4);
    overwrite(6);
    told(5);
}

/// What was told is there, or what came next; and so it stays, also without one of the units.
fn is_written(dir: &Path, told: u32, turn: u64) -> Result<(), String> {
    let found = read(dir)?;
    let known = &WRITTEN[told as usize..WRITTEN.len().min(told as usize + 2)];
    if !known.contains(&&found[..]) {
        return Err(format!("{found:?}"));
    }
    let lost = Store::open(dir).map_err(text)?.own().map_err(text)?.lost().count();
    if lost > 0 {
        return Err(format!("{lost} units are lost"));
    }
    lose(dir, (turn % u64::from(UNITS)) as u32);
    match read(dir)? {
        again if again == found => Ok(()),
        again => Err(format!("{found:?}, and {again:?} without a unit")),
    }
}

fn lose_one(dir: &Path) {
    write_first(dir);
    lose(dir, 1);
}

fn replace(dir: &Path) {
    let mut store = Store::open(dir).unwrap();
    store.replace(1, Some(vec!["new".into()]), false).unwrap();
    told(1);
    while !store.own().unwrap().rebuild(1, 1, nonce()).unwrap().finished {}
    told(2);
}

/// The data are there in any case; where the unit joined it does so still, and when it is whole another may
/// be lost.
fn is_replaced(dir: &Path, told: u32, _: u64) -> Result<(), String> {
    let known = |when: &str| match read(dir).map_err(|e| format!("{when}: {e}"))?[..] {
        [(1, 1)] => Ok(()),
        ref other => Err(format!("{when}: {other:?}")),
    };
    known("there")?;
    let mut store = Store::open(dir).map_err(text)?;
    let named = Manifest::read(dir).map_err(text)?.units[1] == [PathBuf::from("new")];
    if told >= 1 && !named {
        return Err("the manifest names another directory".to_owned());
    }
    if told < 2 {
        if !store.own().map_err(text)?.is_joining(1) && store.own().map_err(text)?.lost().count() > 0 {
            if told == 1 {
                return Err("the unit has to begin again".to_owned());
            }
            store.replace(1, Some(vec!["new".into()]), false).map_err(|e| format!("replaced again: {e}"))?;
        }
        let joins = store.own().map_err(text)?.is_joining(1);
        while joins && !store.own().map_err(text)?.rebuild(1, 9, nonce()).map_err(text)?.finished {}
    }
    drop(store);
    lose(dir, 0);
    known("without another unit")
}

fn write_file(path: &Path, format: Format, value: u8) {
    let dataset = Dataset::new(&[LEN], ElemType::U8).unwrap();
    let mut out = FileWriter::open(path, format, &dataset, "*", &options()).unwrap();
    out.write(&vec![value; LEN as usize]).unwrap();
    out.close().unwrap();
}

/// One file or the other, whole.
fn is_a_file(path: &Path, format: Format, told: u32) -> Result<(), String> {
    let mut port = FileReader::open(path, format, "*", &Expect::default(), &options()).map_err(text)?;
    let mut part = vec![0; LEN as usize];
    port.read(&mut part).map_err(text)?;
    let is_known = part[0] == 2 || told == 0 && part[0] == 1;
    match part.iter().all(|byte| *byte == part[0]) && is_known {
        true => Ok(()),
        false => Err(format!("{} and others", part[0])),
    }
}

fn npy_first(dir: &Path) {
    write_file(&dir.join("x.npy"), Format::Npy, 1);
}

fn npy_again(dir: &Path) {
    write_file(&dir.join("x.npy"), Format::Npy, 2);
    told(1);
}

fn is_npy(dir: &Path, told: u32, _: u64) -> Result<(), String> {
    is_a_file(&dir.join("x.npy"), Format::Npy, told)
}

fn zarr_first(dir: &Path) {
    write_file(&dir.join("x.zarr"), Format::Zarr, 1);
}

fn zarr_again(dir: &Path) {
    write_file(&dir.join("x.zarr"), Format::Zarr, 2);
    told(1);
}

fn is_zarr(dir: &Path, told: u32, _: u64) -> Result<(), String> {
    is_a_file(&dir.join("x.zarr"), Format::Zarr, told)
}
