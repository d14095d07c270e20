//! Every system call of a store's users fails once, each in a run of its own; see [`polyduct_rig::faults`].

mod uses;

use polyduct_layout::{Dataset, ElemType};
use polyduct_rig::faults::{self, PATIENCE, SOME};
use polyduct_rig::inject::{self, InjectedFault};
use polyduct_store::disk::{nonce, Create, Store, StoreError, StoreReader, StoreWriter};
use polyduct_store::{Expect, Options};
use std::path::{Path, PathBuf};

const LEN: u64 = 100_000;
/// Calls that fail of each other use, where only some do.
const MOST: u64 = 5;
const FEW: u64 = 1;

fn main() {
    let cases = [
        ("alone", InjectedFault::Error, SOME),
        ("alone", InjectedFault::Interrupted, SOME),
        ("alone", InjectedFault::Short, SOME),
        ("pair", InjectedFault::Error, SOME),
        ("pair", InjectedFault::Interrupted, SOME),
    ];
    let uses = uses::KINDS.iter().map(|&(kind, _)| (kind, InjectedFault::Error, MOST));
    // What interrupts, or moves less, is much the same in all of them.
    let many = |kind: &str| faults::all() || ["append", "rebuild"].contains(&kind);
    let kinds = uses::KINDS.iter().map(|&(kind, _)| kind).filter(|kind| many(kind));
    let others =
        kinds.flat_map(|kind| [(kind, InjectedFault::Interrupted, FEW), (kind, InjectedFault::Short, FEW)]);
    let cases: Vec<_> = cases.into_iter().chain(uses).chain(others).collect();
    faults::main_of(&cases, |kind| match uses::KINDS.iter().find(|(name, _)| *name == kind) {
        Some((_, used)) => uses::child(*used),
        None => child(kind),
    });
}

fn options(unit: u32, units: u32) -> Options {
    let program = format!("faults-{}", std::process::id());
    polyduct_port::Options {
        unit,
        units,
        program,
        timeout: Some(PATIENCE),
        open_timeout: PATIENCE,
        ..Default::default()
    }
    .into()
}

fn dataset() -> Dataset {
    Dataset::new(&[LEN], ElemType::U8).unwrap()
}

fn child(kind: &str) -> Vec<String> {
    let units = if kind == "pair" { 2 } else { 1 };
    let dir = std::env::temp_dir().join(format!("polyduct-disk-faults-{}", std::process::id()));
    let dirs = (0..3).map(|u| vec![PathBuf::from(format!("unit{u}"))]).collect();
    Store::create(&dir, &Create { units: dirs, parity: 1, stripe: 8192 }).unwrap();
    write(&dir, 0, 1, 1).unwrap();
    inject::begin();
    let errors = faults::units(units, |unit| write(&dir, unit, units, 2));
    let mut told = errors.is_empty();
    let mut all = errors;
    if units == 1 && told {
        let done = overwrite(&dir);
        told = done.is_ok();
        all.extend(done.err().map(|e| e.to_string()));
    }
    // Whatever failed: what is there is one version or the other, and the one that was told of.
    let seen = faults::units(units, |unit| {
        let found = read(&dir, unit, units)?;
        assert!(found == 2 || !told && found == 1, "version {found}, told {told}");
        Ok::<_, StoreError>(())
    });
    all.extend(seen);
    // One call fails, and it may be one of these.
    let _ = std::fs::remove_dir_all(&dir).or_else(|_| std::fs::remove_dir_all(&dir));
    all
}

fn write(dir: &Path, unit: u32, units: u32, version: u8) -> Result<(), StoreError> {
    let mut out = StoreWriter::open(dir, "x", &dataset(), "block", false, &options(unit, units))?;
    out.write(&vec![version; out.local_len_bytes()])?;
    out.close().map(|_| ())
}

/// Overwrites a block with what is there, by the log.
fn overwrite(dir: &Path) -> Result<(), StoreError> {
    let store = Store::open(dir)?;
    let mut owned = store.own()?;
    let (entry, _) = owned.find("x")?;
    owned.overwrite(entry.object, 3, &[2; 4096], nonce()).map_err(|e| owned.error(e))
}

/// The version that is there, every byte of this unit's part checked.
fn read(dir: &Path, unit: u32, units: u32) -> Result<u8, StoreError> {
    let mut port = StoreReader::open(dir, "x", "block", &Expect::default(), &options(unit, units))?;
    let mut part = vec![0; port.local_len_bytes()];
    assert_eq!(port.read(&mut part)?, Some(0));
    assert!(part.iter().all(|&b| b == part[0]), "torn");
    Ok(part[0])
}
