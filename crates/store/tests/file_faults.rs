//! Every system call of those who write and read one file fails once, each in a run of its own; see
//! [`polyduct_rig::faults`].
//!
//! Whatever fails: under its name the file is as it was, or it is the new one, whole; who was told that it is
//! there finds it.

use polyduct_layout::{Dataset, ElemType};
use polyduct_rig::faults::{self, PATIENCE};
use polyduct_rig::inject::{self, InjectedFault};
use polyduct_store::{Expect, FileError, FileReader, FileWriter, Format, Options};
use std::path::Path;

const LEN: u64 = 100_000;

fn main() {
    let cases = [
        ("npy", InjectedFault::Error),
        ("npy", InjectedFault::Interrupted),
        ("npy", InjectedFault::Short),
        ("zarr", InjectedFault::Error),
        ("pair", InjectedFault::Error),
        ("pair", InjectedFault::Interrupted),
    ];
    faults::main(&cases, child);
}

fn options(unit: u32, units: u32) -> Options {
    let program = format!("file-faults-{}", std::process::id());
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

fn child(kind: &str) -> Vec<String> {
    let units = if kind == "pair" { 2 } else { 1 };
    let dir = std::env::temp_dir().join(format!("polyduct-file-faults-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let (path, format) = match kind {
        "zarr" => (dir.join("x.zarr"), Format::Zarr),
        _ => (dir.join("x.npy"), Format::Npy),
    };
    // A directory has its name once and for all: the file is written over, the directory appears.
    let before = if format == Format::Npy { 1 } else { 0 };
    if before == 1 {
        write(&path, format, 0, 1, 1).unwrap();
    }
    inject::begin();
    let errors = faults::units(units, |unit| write(&path, format, unit, units, 2));
    let told = errors.is_empty();
    let mut all = errors;
    all.extend(faults::units(units, |unit| {
        if !path.try_exists().map_err(|e| e.to_string())? {
            assert!(before == 0 && !told, "the file is gone");
            return Ok(());
        }
        let found = read(&path, format, unit, units).map_err(|e| e.to_string())?;
        assert!(found == 2 || !told && found == 1 && before == 1, "version {found}, told {told}");
        Ok::<_, String>(())
    }));
    // One call fails, and it may be one of these.
    let _ = std::fs::remove_dir_all(&dir).or_else(|_| std::fs::remove_dir_all(&dir));
    all
}

fn write(path: &Path, format: Format, unit: u32, units: u32, version: u8) -> Result<(), FileError> {
    let dataset = Dataset::new(&[LEN], ElemType::U8).unwrap();
    let mut out = FileWriter::open(path, format, &dataset, "block", &options(unit, units))?;
    out.write(&vec![version; out.local_len_bytes()])?;
    out.close().map(|_| ())
}

/// The version that is there, every byte of this unit's part checked.
fn read(path: &Path, format: Format, unit: u32, units: u32) -> Result<u8, FileError> {
    let mut port = FileReader::open(path, format, "block", &Expect::default(), &options(unit, units))?;
    let mut part = vec![0; port.local_len_bytes()];
    assert_eq!(port.read(&mut part)?, Some(0));
    assert!(part.iter().all(|&b| b == part[0]), "torn");
    Ok(part[0])
}
