//! What one process does with a store while a system call fails. What was acknowledged is there when that is
//! over, and the store can be used, and brought into order.

use polyduct_layout::{Dataset, ElemType};
use polyduct_rig::inject;
use polyduct_store::disk::{nonce, Create, Store, StoreError, StoreReader, StoreWriter, StoredArray};
use polyduct_store::volume::{Scrub, BLOCK};
use polyduct_store::{Expect, Options};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of a step of which two share a row, and of one that takes some rows.
const SHORT: usize = 5000;
const LONG: usize = 40_000;

/// What a store has: of each name, its steps.
type Known = BTreeMap<String, Vec<Vec<u8>>>;

/// Does something with a store, of which calls fail from where it says so. Gives what the store may have
/// then, one of these, and the error to which it came.
type Use = fn(&Path) -> (Vec<Known>, Option<StoreError>);

/// The uses.
pub const KINDS: [(&str, Use); 6] = [
    ("create", create),
    ("append", append),
    ("at", at),
    ("names", names),
    ("rebuild", rebuild),
    ("scrub", scrub),
];

/// A run of a use, and a look at what came of it.
pub fn child(used: Use) -> Vec<String> {
    let dir = std::env::temp_dir().join(format!("polyduct-disk-uses-{}", std::process::id()));
    let (known, error) = used(&dir);
    inject::end();
    let mut known = is_one_of(&dir, known);
    in_order(&dir);
    put(&dir, "new", LONG, 0..1).unwrap();
    known.insert("new".into(), steps(LONG, 0..1));
    // Nothing of it is on one unit alone.
    std::fs::remove_dir_all(dir.join("unit0")).unwrap();
    is_one_of(&dir, vec![known]);
    std::fs::remove_dir_all(&dir).unwrap();
    error.map(|e| e.to_string()).into_iter().collect()
}

fn fill(len: usize, step: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31 + step * 101) ^ (at >> 8)) as u8).collect()
}

fn steps(len: usize, of: Range<usize>) -> Vec<Vec<u8>> {
    of.map(|step| fill(len, step)).collect()
}

/// Appends steps to a dataset, or begins it with them.
fn put(dir: &Path, name: &str, len: usize, of: Range<usize>) -> Result<(), StoreError> {
    let dataset = Dataset::new(&[len as u64], ElemType::U8).unwrap();
    let mut out = StoreWriter::open(dir, name, &dataset, "*", true, &Options::default())?;
    for step in of {
        assert_eq!(out.next_step(), step as u64);
        out.write(&fill(len, step))?;
    }
    out.close().map(drop)
}

fn how(parity: u32) -> Create {
    Create { units: (0..2 + parity).map(|u| vec![format!("unit{u}").into()]).collect(), parity, stripe: 8192 }
}

/// A store with some steps of each of these datasets.
fn store(dir: &Path, parity: u32, datasets: &[(&str, usize, usize)]) -> Known {
    Store::create(dir, &how(parity)).unwrap();
    let put = |&(name, len, n): &(&str, usize, usize)| {
        put(dir, name, len, 0..n).unwrap();
        (name.to_owned(), steps(len, 0..n))
    };
    datasets.iter().map(put).collect()
}

/// All that a store has, as both ways of reading give it.
fn read(dir: &Path) -> Known {
    let mut all = Known::new();
    for (name, meta) in Store::open(dir).unwrap().datasets().unwrap() {
        let mut port = StoreReader::open(dir, &name, "*", &Expect::default(), &Options::default()).unwrap();
        let array = StoredArray::open(dir, &name).unwrap();
        let len = meta.dataset.len_bytes();
        for step in 0..meta.steps {
            let (mut one, mut other) = (vec![0; len as usize], vec![0; len as usize]);
            assert_eq!(port.read(&mut one).unwrap(), Some(step));
            array.read_box(step..step + 1, &[0], &[len], &mut other).unwrap();
            assert!(one == other, "{name}, step {step} is read in two ways");
            all.entry(name.clone()).or_default().push(one);
        }
    }
    all
}

fn is_one_of(dir: &Path, known: Vec<Known>) -> Known {
    let found = read(dir);
    let shown: Vec<_> = found.iter().map(|(name, steps)| (name, steps.len())).collect();
    assert!(known.contains(&found), "{shown:?} is none of {} that may be", known.len());
    found
}

/// Takes lost units back, and checks all words: nothing else was wrong.
fn in_order(dir: &Path) {
    let mut store = Store::open(dir).unwrap();
    for unit in 0..store.geometry().units() {
        let (lost, joining) = {
            let owned = store.own().unwrap();
            let lost = owned.lost().any(|(lost, _)| lost == unit);
            (lost, owned.is_joining(unit))
        };
        if lost && !joining {
            store.replace(unit, None, false).unwrap();
        }
        while lost && !store.own().unwrap().rebuild(unit, 100, nonce()).unwrap().finished {}
    }
    let mut owned = store.own().unwrap();
    assert_eq!(owned.lost().collect::<Vec<_>>(), []);
    let mut scrub = Scrub::new();
    while !owned.scrub(&mut scrub, 100).unwrap().finished {}
    assert!(scrub.report().damaged == 0 && scrub.report().repaired.is_empty(), "{:?}", scrub.report());
}

fn create(dir: &Path) -> (Vec<Known>, Option<StoreError>) {
    inject::begin();
    let made = Store::create(dir, &how(1));
    inject::end();
    if made.is_err() && matches!(Store::open(dir), Err(StoreError::NoStore { .. })) {
        assert!(!dir.exists(), "something is left of it");
        Store::create(dir, &how(1)).unwrap();
    }
    // It is whole, whoever made it.
    assert_eq!(Store::open(dir).unwrap().own().unwrap().lost().count(), 0);
    (vec![Known::new()], made.err())
}

fn append(dir: &Path) -> (Vec<Known>, Option<StoreError>) {
    let mut known = store(dir, 1, &[("x", SHORT, 1), ("long", LONG, 1)]);
    inject::begin();
    for (name, len, of) in
        [("x", SHORT, 1..3), ("long", LONG, 1..2), ("x", SHORT, 3..6), ("begun", SHORT, 0..1)]
    {
        let mut next = known.clone();
        next.entry(name.into()).or_default().extend(steps(len, of.clone()));
        if let Err(e) = put(dir, name, len, of) {
            return (vec![known, next], Some(e));
        }
        known = next;
    }
    (vec![known], None)
}

fn at(dir: &Path) -> (Vec<Known>, Option<StoreError>) {
    let mut known = store(dir, 1, &[("x", LONG, 2)]);
    inject::begin();
    let array = match StoredArray::open(dir, "x") {
        Ok(array) => array,
        Err(e) => return (vec![known], Some(e)),
    };
    // Within a block, over the end of one, a whole one, and over the end of a row.
    for (n, (lo, hi)) in [(100, 200), (8000, 9000), (12288, 16384), (16000, 17000)].into_iter().enumerate() {
        let bytes = vec![n as u8 + 1; hi - lo];
        let before = known["x"][1].clone();
        let over = |known: &mut Known, end: usize| {
            let step = &mut known.get_mut("x").unwrap()[1];
            step[lo..end].copy_from_slice(&bytes[..end - lo]);
        };
        let (lo_at, hi_at) = ([lo as u64], [hi as u64]);
        if let Err(e) = array.write_box(1..2, &lo_at, &hi_at, &bytes) {
            // Block by block, from the first one on.
            let ends = (lo / BLOCK..hi.div_ceil(BLOCK)).map(|block| (block + 1) * BLOCK);
            let state = |end: usize| {
                let mut known = known.clone();
                over(&mut known, end.min(hi));
                known
            };
            let states = [lo].into_iter().chain(ends).map(state).collect();
            return (states, Some(e));
        }
        over(&mut known, hi);
        let mut got = vec![0; hi - lo + 20];
        if let Err(e) = array.read_box(1..2, &[lo_at[0] - 10], &[hi_at[0] + 10], &mut got) {
            return (vec![known], Some(e));
        }
        assert!(got[10..hi - lo + 10] == bytes && got[..10] == before[lo - 10..lo], "{lo}..{hi}");
    }
    (vec![known], None)
}

fn names(dir: &Path) -> (Vec<Known>, Option<StoreError>) {
    let mut known = store(dir, 1, &[("a/x", LONG, 1), ("y", SHORT, 3)]);
    let moved = |known: &mut Known, from: &str, to: &str| {
        let steps = known.remove(from).unwrap();
        known.insert(to.into(), steps);
    };
    inject::begin();
    let store = match Store::open(dir) {
        Ok(store) => store,
        Err(e) => return (vec![known], Some(e)),
    };
    for turn in 0..4 {
        let mut next = known.clone();
        let done = match turn {
            0 => {
                moved(&mut next, "a/x", "b/x");
                store.rename("a", "b").map(drop)
            }
            1 => {
                next.remove("y");
                store.remove(&["y"], false).map(drop)
            }
            2 => store.set_attributes("b/x", serde_json::json!({"unit": "K"}).as_object().unwrap().clone()),
            _ => {
                moved(&mut next, "b/x", "z");
                store.rename("b/x", "z").map(drop)
            }
        };
        if let Err(e) = done {
            return (vec![known, next], Some(e));
        }
        known = next;
    }
    (vec![known], None)
}

fn rebuild(dir: &Path) -> (Vec<Known>, Option<StoreError>) {
    let mut known = store(dir, 1, &[("x", LONG, 2)]);
    std::fs::remove_dir_all(dir.join("unit1")).unwrap();
    put(dir, "meanwhile", SHORT, 0..3).unwrap();
    known.insert("meanwhile".into(), steps(SHORT, 0..3));
    let with = || Some(vec![PathBuf::from("new1")]);
    inject::begin();
    let rebuilt = || -> Result<(), StoreError> {
        let mut store = Store::open(dir)?;
        store.replace(1, with(), false)?;
        loop {
            let mut owned = store.own()?;
            match owned.rebuild(1, 4, nonce()) {
                Ok(progress) if progress.finished => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(owned.error(e)),
            }
        }
    };
    let error = rebuilt().err();
    inject::end();
    // The same directory can be given again.
    let mut store = Store::open(dir).unwrap();
    let lost = |store: &Store| {
        let owned = store.own().unwrap();
        let lost: Vec<u32> =
            owned.lost().map(|(unit, _)| unit).filter(|&unit| !owned.is_joining(unit)).collect();
        lost
    };
    if lost(&store).contains(&1) {
        store.replace(1, with(), false).unwrap();
    }
    (vec![known], error)
}

fn scrub(dir: &Path) -> (Vec<Known>, Option<StoreError>) {
    // One unit may fail, and parity has to make up for what has rotted, too.
    let known = store(dir, 2, &[("x", LONG, 2)]);
    for (unit, at) in [(0, 100), (1, 5 * BLOCK + 7), (2, 2 * BLOCK)] {
        let path = dir.join(format!("unit{unit}/objects/0.data"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    }
    let all = |store: &Store| -> Result<(), StoreError> {
        let mut scrub = Scrub::new();
        loop {
            let mut owned = store.own()?;
            match owned.scrub(&mut scrub, 3) {
                Ok(progress) if progress.finished => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(owned.error(e)),
            }
        }
    };
    inject::begin();
    let scrubbed = Store::open(dir).and_then(|store| all(&store));
    inject::end();
    let error = scrubbed.err();
    // What it did not come to is made good by the next one.
    all(&Store::open(dir).unwrap()).unwrap();
    (vec![known], error)
}
