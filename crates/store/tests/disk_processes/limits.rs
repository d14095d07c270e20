//! Processes to which the system refuses files: their calls end with an error that says so, and the store
//! stays as good as it was.

use crate::replaced::{open, step, store, LEN};
use polyduct_rig::{say, Scratch, Unit};
use polyduct_store::disk::{nonce, Store, StoreError, StoreReader, StoredArray};
use polyduct_store::volume::Scrub;
use polyduct_store::{Expect, Options};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Opens so many arrays, and reads and overwrites each: several times, one after the other.
pub fn many(dir: &Path, n: usize) {
    let arrays: Vec<StoredArray> = (0..n).map(|_| StoredArray::open(dir, "x").unwrap()).collect();
    for round in 0..3 {
        for (n, array) in arrays.iter().enumerate() {
            let (at, mut got) = ([n as u64 * 10], [0; 10]);
            let to = [at[0] + 10];
            array.write_box(0..1, &at, &to, &[(n + round) as u8; 10]).unwrap();
            array.read_box(0..1, &at, &to, &mut got).unwrap();
            assert_eq!(got, [(n + round) as u8; 10]);
        }
    }
    say("done");
}

/// Says how each of some uses of a store ended.
pub fn unit(dir: &Path) {
    let scrubbed = || -> Result<(), StoreError> {
        let store = Store::open(dir)?;
        let mut owned = store.own()?;
        let mut scrub = Scrub::new();
        while !owned.scrub(&mut scrub, 1000).map_err(|e| owned.error(e))?.finished {}
        let report = scrub.report();
        assert!(
            report.damaged == 0 && report.repaired.is_empty() && report.unrepaired.is_empty(),
            "{report:?}"
        );
        Ok(())
    };
    let read = || -> Result<(), StoreError> {
        let mut port = StoreReader::open(dir, "x", "*", &Expect::default(), &Options::default())?;
        let mut part = vec![0; LEN];
        while let Some(n) = port.read(&mut part)? {
            assert!(part == step(n), "step {n}");
        }
        Ok(())
    };
    let overwritten = || -> Result<(), StoreError> {
        let array = StoredArray::open(dir, "x")?;
        let mut first = [0; 100];
        array.read_box(0..1, &[0], &[100], &mut first)?;
        array.write_box(0..1, &[0], &[100], &first)
    };
    let appended = || -> Result<(), StoreError> {
        let mut out = open(dir, "x", true)?;
        out.write(&step(out.next_step()))?;
        out.close().map(drop)
    };
    for used in [&read as &dyn Fn() -> _, &overwritten, &appended, &scrubbed] {
        match used() {
            Ok(()) => say("done"),
            Err(e) => say(&format!("refused {e}")),
        }
    }
}

fn filled(scratch: &Scratch) {
    store(scratch, 2, 1);
    let mut out = open(scratch.path(), "x", false).unwrap();
    out.write(&step(0)).unwrap();
    out.close().unwrap();
}

/// No unit is lost or stale, and nothing is damaged.
fn is_as_it_was(dir: &Path, case: &str) {
    let store = Store::open(dir).unwrap();
    let mut owned = store.own().unwrap();
    assert_eq!(owned.lost().collect::<Vec<_>>(), [], "{case}");
    let mut scrub = Scrub::new();
    while !owned.scrub(&mut scrub, 1000).unwrap().finished {}
    assert!(
        scrub.report().damaged == 0 && scrub.report().repaired.is_empty(),
        "{case}: {:?}",
        scrub.report()
    );
    // What was acknowledged can be overwritten, too.
    let (entry, _) = owned.find("x").unwrap();
    let block = owned.read(entry.object, 0).unwrap();
    owned.overwrite(entry.object, 0, &block, nonce()).unwrap();
}

fn refused(command: Command, dir: &Path) -> Vec<String> {
    let mut unit = Unit::start_by(command, "limited", &format!("limited {}", dir.display()));
    unit.end();
    let of = |line: &String| line.strip_prefix("refused ").map(str::to_owned);
    assert_eq!(unit.seen().len(), 4, "{:?}", unit.seen());
    unit.seen().iter().filter_map(of).collect()
}

pub fn few_descriptors_cost_no_unit() {
    let scratch = Scratch::new("processes-descriptors");
    filled(&scratch);
    let (mut all, mut none) = (0, 0);
    for limit in (8..90).step_by(2) {
        let mut command = Command::new("sh");
        let program = std::env::current_exe().unwrap();
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\"")]).arg(program);
        let errors = refused(command, scratch.path());
        for error in &errors {
            let says = ["file descriptors", "open files"].iter().any(|what| error.contains(what));
            assert!(says, "{limit}: {error}");
        }
        (all, none) = (all + u32::from(errors.len() == 4), none + u32::from(errors.is_empty()));
        is_as_it_was(scratch.path(), &format!("{limit} files"));
    }
    assert!(all > 0 && none > 0, "{all} {none}");
}

pub fn who_may_not_use_a_unit_makes_it_no_worse() {
    let scratch = Scratch::new("processes-rights");
    filled(&scratch);
    let dir = scratch.path();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let chown = Command::new("chmod").args(["-R", "a+rwX"]).arg(dir).status().unwrap();
    assert!(chown.success());
    for of in ["unit1", "unit1/superblock", "unit1/objects/0.sums", "unit1/log"] {
        let path = dir.join(of);
        let before = std::fs::metadata(&path).unwrap().permissions().mode();
        mode(&path, 0);
        // Another user, where this one may do everything.
        let program = dir.join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(&program);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let errors = refused(command, dir);
        mode(&path, before);
        assert!(!errors.is_empty(), "{of}");
        for error in &errors {
            assert!(error.contains("unit 1") && error.contains(of) && error.contains("ermission"), "{error}");
        }
        is_as_it_was(dir, of);
    }
}

pub fn many_arrays_need_few_descriptors() {
    const ARRAYS: usize = 60;
    let scratch = Scratch::new("processes-arrays");
    filled(&scratch);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\""]).arg(std::env::current_exe().unwrap());
    let mut unit = Unit::start_by(command, "arrays", &format!("many {ARRAYS} {}", scratch.path().display()));
    assert_eq!(unit.end(), "done");
}
