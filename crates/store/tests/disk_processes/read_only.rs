//! Stores that can only be read: without the rights to write, or on a medium that is mounted so.

use crate::replaced::{open, step, store, LEN};
use polyduct_rig::{say, Scratch, Unit};
use polyduct_store::disk::{Store, StoreReader, StoredArray};
use polyduct_store::{Expect, Options};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes that are overwritten, over the end of a block.
const OVER: std::ops::Range<u64> = 4000..5000;

/// Reads all of a store in every way, and is refused what changes it.
pub fn unit(dir: &Path) {
    look(dir);
    let (store, array) = (Store::open(dir).unwrap(), StoredArray::open(dir, "x").unwrap());
    let errors = [
        open(dir, "x", true).err().map(|e| e.to_string()),
        array.write_box(0..1, &[0], &[1], &[1]).err().map(|e| e.to_string()),
        store.remove(&["x"], false).err().map(|e| e.to_string()),
    ];
    for error in errors {
        let error = error.expect("it is changed");
        let says =
            ["can only read", "this process cannot use the unit"].iter().any(|what| error.contains(what));
        assert!(says, "{error}");
    }
    say("read");
}

/// Reads all of a store in every way.
pub fn looks(dir: &Path) {
    look(dir);
    say("read");
}

fn look(dir: &Path) {
    let store = Store::open(dir).unwrap();
    assert_eq!(store.datasets().unwrap()["x"].steps, 2);
    assert_eq!(store.own_to_read().unwrap().lost().count(), 0);
    let expected = |n: u64| {
        let mut bytes = step(n);
        if n == 1 {
            bytes[OVER.start as usize..OVER.end as usize].fill(7);
        }
        bytes
    };
    let mut port = StoreReader::open(dir, "x", "*", &Expect::default(), &Options::default()).unwrap();
    let array = StoredArray::open(dir, "x").unwrap();
    let (mut one, mut other) = (vec![0; LEN], vec![0; LEN]);
    for n in 0..2 {
        assert_eq!(port.read(&mut one).unwrap(), Some(n));
        array.read_box(n..n + 1, &[0], &[LEN as u64], &mut other).unwrap();
        assert!(one == expected(n) && other == one, "step {n}");
    }
}

/// All files, and what they hold.
fn content(dir: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => content(&path, all),
            false => drop(all.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
}

/// A store whose units, but for their logs, are as before a change that was acknowledged; and whose file of
/// locks may be gone.
fn cut(scratch: &Scratch) {
    let dir = scratch.path();
    store(scratch, 2, 1);
    let mut out = open(dir, "x", false).unwrap();
    (0..2).for_each(|n| out.write(&step(n)).unwrap());
    out.close().unwrap();
    let array = StoredArray::open(dir, "x").unwrap();
    let files =
        || (0..3).flat_map(|unit| ["data", "sums"].map(|of| dir.join(format!("unit{unit}/objects/0.{of}"))));
    let before: Vec<_> = files().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    let bytes = vec![7; (OVER.end - OVER.start) as usize];
    array.write_box(1..2, &[OVER.start], &[OVER.end], &bytes).unwrap();
    drop(array);
    let changed = before.iter().filter(|(bytes, path)| std::fs::read(path).unwrap() != *bytes).count();
    assert!(changed >= 4, "a block, its parity, and their checksums: {changed}");
    before.into_iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
}

fn reads(command: Command, dir: &Path, how: &str, case: &str) {
    let mut before = BTreeMap::new();
    content(dir, &mut before);
    let mut unit = Unit::start_by(command, "reader", &format!("{how} {}", dir.display()));
    assert_eq!(unit.end(), "read", "{case}");
    let mut after = BTreeMap::new();
    content(dir, &mut after);
    assert!(before == after, "{case}: something is changed");
}

/// A copy of this program that anybody may start.
fn program(name: &str) -> (Scratch, PathBuf) {
    let scratch = Scratch::new(name);
    let copy = scratch.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    (scratch, copy)
}

/// Starts a program where these directories are mounts of their own, on which nothing can be written.
fn mounted_to_read(program: &Path, dirs: &[PathBuf]) -> Command {
    let is_root = rustix::process::geteuid().is_root();
    let mut mounted = Command::new("unshare");
    mounted.args(if is_root { &["--mount"][..] } else { &["--mount", "--map-root-user"] });
    let script =
        "for dir; do mount --bind \"$dir\" \"$dir\" && mount -o remount,bind,ro \"$dir\" || exit 1; \
        done; exec \"$0\"";
    mounted.args(["sh", "-c", script]).arg(program).args(dirs);
    mounted
}

/// The store's own directory can be written, and units cannot: all are there, and none becomes stale by
/// reading.
pub fn units_that_can_only_be_read_are_read_and_nothing_changes() {
    let scratch = Scratch::new("processes-units-read-only");
    cut(&scratch);
    let dir = scratch.path();
    let (_program, copy) = program("processes-units-read-only-program");
    for set in 1..8 {
        let units = (0..3).filter(|unit| set >> unit & 1 != 0).map(|unit| dir.join(format!("unit{unit}")));
        let mounted = mounted_to_read(&copy, &units.collect::<Vec<_>>());
        reads(mounted, dir, "looks", &format!("units {set:b} can only be read"));
    }
    assert_eq!(Store::open(dir).unwrap().own().unwrap().lost().count(), 0);
}

pub fn what_can_only_be_read_is_read_and_nothing_changes() {
    let scratch = Scratch::new("processes-read-only");
    cut(&scratch);
    let dir = scratch.path();
    let (_program, copy) = program("processes-read-only-program");
    let is_root = rustix::process::geteuid().is_root();
    for lock in [true, false] {
        if !lock {
            std::fs::remove_file(dir.join("lock")).unwrap();
        }
        let mounted = mounted_to_read(&copy, &[dir.to_path_buf()]);
        reads(mounted, dir, "reads", &format!("mounted to be read, lock {lock}"));
        // Another user, where this one may do everything.
        let mode =
            |how: &str| assert!(Command::new("chmod").args(["-R", how]).arg(dir).status().unwrap().success());
        let mut other = Command::new(&copy);
        if is_root {
            other.uid(65534).gid(65534);
        }
        mode("a+rX,a-w");
        reads(other, dir, "reads", &format!("without the rights to write, lock {lock}"));
        mode("u+w");
    }
}
