//! Stores whose users are killed: a unit of a writing program, all of it, and who rebuilds, scrubs, replaces
//! a unit, appends, or makes a store.

use polyduct_layout::{Dataset, ElemType};
use polyduct_os::clock;
use polyduct_rig::kills::{error_of, kills, say_error, survivors};
use polyduct_rig::{kill_all, say, tests, Random, Scratch, Unit};
use polyduct_store::disk::{nonce, Create, Owned, Store, StoreError, StoreReader, StoreWriter};
use polyduct_store::volume::{Entry, Scrub, VolumeError};
use polyduct_store::{Expect, Options};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const UNITS: u32 = 3;
const SHAPE: [u64; 2] = [24, 5000];
const STEPS: u64 = 3;

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            a_writing_unit_killed_at_any_moment,
            all_units_killed_at_once,
            a_rebuild_killed_at_any_moment_goes_on,
            a_scrub_and_overwrites_killed_at_any_moment,
            who_replaces_a_unit_killed_at_any_moment,
            who_appends_killed_at_any_moment,
            who_makes_a_store_killed_at_any_moment,
        ],
    );
}

fn dataset() -> Dataset {
    Dataset::new(&SHAPE, ElemType::U32).unwrap()
}

fn options(unit: u32, units: u32) -> Options {
    let (timeout, open_timeout) = (Some(Duration::from_secs(20)), Duration::from_secs(4));
    polyduct_port::Options {
        unit,
        units,
        program: "killed".into(),
        timeout,
        open_timeout,
        ..Default::default()
    }
    .into()
}

fn value(version: u64, step: u64, at: u64) -> u32 {
    (version * 1_000_003 + step * 7919 + at) as u32
}

fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let dir = Path::new(f[1]);
    match f[0] {
        "write" => {
            let (unit, first) = (f[2].parse().unwrap(), f[3].parse().unwrap());
            for version in first.. {
                if let Err(e) = write(dir, unit, UNITS, version) {
                    return say_error(&e);
                }
                say(&format!("closed {version}"));
            }
        }
        "rebuild" => {
            let store = Store::open(dir).unwrap();
            loop {
                let progress = match store.own().unwrap().rebuild(1, 3, nonce()) {
                    // The one before was killed when it was done, before it could say so.
                    Err(VolumeError::NotThere { .. }) => return say("finished"),
                    progress => progress.unwrap(),
                };
                say(&format!("rebuilt {} {}", progress.done, progress.total));
                if progress.finished {
                    return say("finished");
                }
            }
        }
        "overwrite" => {
            let store = Store::open(dir).unwrap();
            for n in 0.. {
                let mut owned = store.own().unwrap();
                let (entry, _) = owned.find("x").unwrap();
                let mut scrub = Scrub::default();
                while !owned.scrub(&mut scrub, 10).unwrap().finished {}
                for block in 0..8 {
                    owned.overwrite(entry.object, block, &[n as u8; 4096], nonce()).unwrap();
                }
                say(&format!("overwritten {n}"));
            }
        }
        "replace" => {
            for n in f[2].parse::<u64>().unwrap().. {
                replace(dir, n).unwrap();
                say(&format!("whole {n}"));
                lose(dir, n);
            }
        }
        "append" => {
            for n in f[2].parse().unwrap().. {
                append(dir, n).unwrap();
                say(&format!("appended {n}"));
            }
        }
        "create" => {
            for n in f[2].parse().unwrap().. {
                make(dir, n).unwrap();
                say(&format!("made {n}"));
            }
        }
        other => panic!("{other}"),
    }
}

/// A version of the dataset, by one unit.
fn write(dir: &Path, unit: u32, units: u32, version: u64) -> Result<(), String> {
    let text = |e: StoreError| e.to_string();
    let mut out =
        StoreWriter::open(dir, "x", &dataset(), "block,*", false, &options(unit, units)).map_err(text)?;
    let rows = SHAPE[0] / u64::from(units);
    for step in 0..STEPS {
        let first = u64::from(unit) * rows * SHAPE[1];
        let part: Vec<u8> =
            (first..first + rows * SHAPE[1]).flat_map(|at| value(version, step, at).to_le_bytes()).collect();
        out.write(&part).map_err(text)?;
    }
    out.close().map_err(text)?;
    Ok(())
}

/// The version that is there, every byte of it checked.
fn version(dir: &Path) -> u64 {
    let mut port = StoreReader::open(dir, "x", "*,*", &Expect::default(), &options(0, 1)).unwrap();
    let mut part = vec![0; port.local_len_bytes()];
    let mut found = None;
    let word = |part: &[u8], at: usize| u32::from_le_bytes(part[4 * at..4 * at + 4].try_into().unwrap());
    while let Some(step) = port.read(&mut part).unwrap() {
        let of =
            *found.get_or_insert_with(|| (0..10_000).find(|&v| value(v, 0, 0) == word(&part, 0)).unwrap());
        let all = (0..part.len() / 4).all(|at| word(&part, at) == value(of, step, at as u64));
        assert!(all, "step {step} of version {of} is torn");
    }
    found.unwrap()
}

struct Place(PathBuf, #[allow(dead_code, reason = "kept for its end")] Scratch);

impl Place {
    fn new(name: &str, data: u32, parity: u32) -> Place {
        let scratch = Scratch::new(&format!("disk-kill-{name}"));
        let path = scratch.path().to_owned();
        let units = (0..data + parity).map(|u| vec![PathBuf::from(format!("unit{u}"))]).collect();
        Store::create(&path, &Create { units, parity, stripe: 8192 }).unwrap();
        Place(path, scratch)
    }

    /// Nothing is left of what got no name, once the kernel has let go of what killed processes had asked of
    /// it: requests on their way keep files open, and locked, for a moment longer than their process is
    /// there.
    fn is_clean(&self) {
        let end = clock::now() + Duration::from_secs(10);
        loop {
            drop(Store::open(&self.0).unwrap().own().unwrap());
            let objects = std::fs::read_dir(self.0.join("unit0/objects")).unwrap();
            let names: Vec<_> = objects.map(|e| e.unwrap().file_name()).collect();
            if names.len() == 2 {
                return;
            }
            assert!(clock::now() < end, "one dataset has two files: {names:?}");
        }
    }
}

fn closed(unit: &Unit) -> Option<u64> {
    unit.seen().iter().rev().find_map(|line| line.strip_prefix("closed ")?.parse().ok())
}

fn a_writing_unit_killed_at_any_moment() {
    let place = Place::new("one", 2, 1);
    let mut first = 0;
    for seed in 0..kills(25) {
        let mut random = Random::new(seed);
        let spec = |unit: u32| format!("write {} {unit} {first}", place.0.display());
        let mut units: Vec<Unit> = (0..UNITS).map(|u| Unit::start(format!("unit {u}"), &spec(u))).collect();
        units.iter_mut().for_each(|u| assert!(u.wait_line("closed"), "{:?}", u.seen()));
        random.linger(Duration::from_millis(40));
        let victim = random.below(UNITS.into()) as usize;
        units[victim].kill();
        for unit in survivors(&mut units, &[victim]) {
            let last = unit.end();
            let (_, error) =
                error_of(&last).unwrap_or_else(|| panic!("seed {seed}: {} says {last:?}", unit.name));
            let named = error.contains(&format!("unit {victim}"));
            // Unit 0 brings them together: without it there is nobody to meet. Nor where it heard of the loss
            // when this unit had closed one dataset and was about to open the next: that ends at the
            // deadline, or where unit 0 ended while it was asked.
            let next = ["to listen", "hung up while it was asked"].iter().any(|text| error.contains(text));
            let alone = error.contains("unit 0") && (victim == 0 || next);
            assert!(named || alone, "seed {seed}: {victim} killed, {error:?}");
        }
        units[victim].end();
        let told = units.iter().filter_map(closed).max().unwrap();
        let there = version(&place.0);
        assert!(there == told || there == told + 1, "seed {seed}: told {told}, there {there}");
        place.is_clean();
        first = there + 1;
    }
}

fn all_units_killed_at_once() {
    let place = Place::new("all", 2, 1);
    let mut first = 0;
    for seed in 0..kills(15) {
        let spec = |unit: u32| format!("write {} {unit} {first}", place.0.display());
        let mut units: Vec<Unit> = (0..UNITS).map(|u| Unit::start(format!("unit {u}"), &spec(u))).collect();
        units.iter_mut().for_each(|u| assert!(u.wait_line("closed")));
        Random::new(seed).linger(Duration::from_millis(40));
        kill_all(&mut units);
        units.iter_mut().for_each(|u| drop(u.end()));
        let told = units.iter().filter_map(closed).max().unwrap();
        let there = version(&place.0);
        assert!(there == told || there == told + 1, "seed {seed}: told {told}, there {there}");
        place.is_clean();
        first = there + 1;
    }
}

fn a_rebuild_killed_at_any_moment_goes_on() {
    let place = Place::new("rebuild", 3, 1);
    write(&place.0, 0, 1, 1).unwrap();
    for seed in 0..kills(6) {
        std::fs::remove_dir_all(place.0.join("unit1")).unwrap();
        drop(Store::open(&place.0).unwrap().own().unwrap());
        Store::open(&place.0).unwrap().replace(1, None, false).unwrap();
        let mut random = Random::new(seed);
        let mut far = 0;
        loop {
            let mut unit = Unit::start("rebuilder", &format!("rebuild {}", place.0.display()));
            let began = unit.wait_line("rebuilt");
            random.linger(Duration::from_millis(20));
            unit.kill();
            unit.end();
            let done = |line: &String| line.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
            if unit.seen().iter().any(|line| line == "finished") {
                break;
            }
            // It goes on where it was: no step is lost that was told of.
            let first = unit.seen().first().and_then(done).unwrap_or(far);
            assert!(!began || first >= far, "seed {seed}: {first} after {far}");
            far = unit.seen().iter().rev().find_map(done).unwrap_or(far);
            assert_eq!(version(&place.0), 1);
        }
        // It is a member again: another may be lost.
        std::fs::rename(place.0.join("unit2"), place.0.join("away")).unwrap();
        assert_eq!(version(&place.0), 1);
        std::fs::rename(place.0.join("away"), place.0.join("unit2")).unwrap();
        let mut store = Store::open(&place.0).unwrap();
        store.replace(2, None, false).unwrap();
        while !store.own().unwrap().rebuild(2, 1000, nonce()).unwrap().finished {}
    }
}

fn a_scrub_and_overwrites_killed_at_any_moment() {
    let place = Place::new("overwrite", 2, 1);
    write(&place.0, 0, 1, 1).unwrap();
    let mut repaired = 0;
    let behind = |owned: &mut Owned<'_>, entry: &Entry| -> Vec<u8> {
        (8..entry.blocks).flat_map(|block| owned.read(entry.object, block).unwrap().to_vec()).collect()
    };
    let unmoved = {
        let store = Store::open(&place.0).unwrap();
        let mut owned = store.own().unwrap();
        let (entry, _) = owned.find("x").unwrap();
        behind(&mut owned, &entry)
    };
    // The last block of a unit, which nobody overwrites, loses a byte.
    let damage = |seed: u64| {
        let objects = std::fs::read_dir(place.0.join(format!("unit{}/objects", seed % 3))).unwrap();
        let mut data =
            objects.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "data"));
        let file = std::fs::File::options().read(true).write(true).open(data.next().unwrap()).unwrap();
        let at = file.metadata().unwrap().len() - 1 - seed * 997 % 4096;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[!byte[0]], at).unwrap();
    };
    for seed in 0..kills(20) {
        let mut unit = Unit::start("overwriter", &format!("overwrite {}", place.0.display()));
        assert!(unit.wait_line("overwritten"));
        damage(seed);
        Random::new(seed).linger(Duration::from_millis(30));
        unit.kill();
        unit.end();
        let told: u8 = unit.last().strip_prefix("overwritten ").unwrap().parse::<u64>().unwrap() as u8;
        let store = Store::open(&place.0).unwrap();
        let mut owned = store.own().unwrap();
        let (entry, _) = owned.find("x").unwrap();
        for block in 0..8 {
            let bytes = owned.read(entry.object, block).unwrap();
            assert!(bytes.iter().all(|&b| b == bytes[0]), "seed {seed}: block {block} is torn");
            assert!(
                [told, told.wrapping_add(1)].contains(&bytes[0]),
                "seed {seed}: {} after {told}",
                bytes[0]
            );
        }
        // The process that was killed has made it good, or this one does, and what it held is there.
        let mut scrub = Scrub::default();
        while !owned.scrub(&mut scrub, 1000).unwrap().finished {}
        let blocks = scrub.report().repaired.values().sum::<u64>();
        assert!(scrub.report().damaged == 0 && blocks <= 1, "{:?}", scrub.report());
        repaired += blocks;
        let mut again = Scrub::default();
        while !owned.scrub(&mut again, 1000).unwrap().finished {}
        assert!(again.report().damaged == 0 && again.report().repaired.is_empty(), "{:?}", again.report());
        assert!(unmoved == behind(&mut owned, &entry), "seed {seed}: what nobody wrote is another");
    }
    println!("{repaired} of {} damaged blocks were left to the scrub after the kill", kills(20));
}

/// Gives unit 1 a new directory, and rebuilds it there.
fn replace(dir: &Path, n: u64) -> Result<(), StoreError> {
    let mut store = Store::open(dir)?;
    let (lost, joining) = {
        let owned = store.own()?;
        let lost = owned.lost().any(|(unit, _)| unit == 1);
        (lost, owned.is_joining(1))
    };
    // The process that was killed may have come to its end.
    if !lost {
        return Ok(());
    }
    if !joining {
        store.replace(1, Some(vec![format!("new{n}").into()]), false)?;
    }
    while !store.own()?.rebuild(1, 60, nonce()).unwrap().finished {}
    Ok(())
}

/// The directory that unit 1 was given is gone, at once.
fn lose(dir: &Path, n: u64) {
    let gone = dir.join(format!("gone{n}"));
    std::fs::rename(dir.join(format!("new{n}")), &gone).unwrap();
    std::fs::remove_dir_all(gone).unwrap();
}

fn who_replaces_a_unit_killed_at_any_moment() {
    let place = Place::new("replace", 2, 1);
    write(&place.0, 0, 1, 1).unwrap();
    std::fs::remove_dir_all(place.0.join("unit1")).unwrap();
    let mut first = 0;
    for seed in 0..kills(6) {
        let mut unit = Unit::start("replacer", &format!("replace {} {first}", place.0.display()));
        assert!(unit.wait_line("whole"));
        Random::new(seed).linger(Duration::from_millis(40));
        unit.kill();
        unit.end();
        let told = number(unit.last());
        // It may have been killed before it took the directory away.
        let (last, next) = (place.0.join(format!("new{told}")), told + 1);
        if last.exists() {
            lose(&place.0, told);
        }
        assert_eq!(version(&place.0), 1, "seed {seed}");
        // The directory that it was about to give the unit is given again.
        replace(&place.0, next).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let store = Store::open(&place.0).unwrap();
        let mut owned = store.own().unwrap();
        assert_eq!(owned.lost().collect::<Vec<_>>(), [], "seed {seed}");
        let mut scrub = Scrub::default();
        while !owned.scrub(&mut scrub, 1000).unwrap().finished {}
        assert!(scrub.report().damaged == 0 && scrub.report().repaired.is_empty(), "{:?}", scrub.report());
        drop(owned);
        assert_eq!(store.manifest().units[1], [PathBuf::from(format!("new{next}"))]);
        lose(&place.0, next);
        first = next + 1;
    }
}

/// Steps that share a row, and steps of some rows each.
const APPENDED: [(&str, u64); 2] = [("short", 1200), ("long", 9000)];

/// Appends a step to each of the datasets; the first time, begins them.
fn append(dir: &Path, n: u64) -> Result<(), StoreError> {
    for (name, len) in APPENDED {
        let dataset = Dataset::new(&[len], ElemType::U32).unwrap();
        let mut out = StoreWriter::open(dir, name, &dataset, "*", true, &options(0, 1))?;
        if out.next_step() > n {
            // The process that was killed came so far.
            continue;
        }
        assert_eq!(out.next_step(), n);
        let step: Vec<u8> = (0..len).flat_map(|at| value(7, n, at).to_le_bytes()).collect();
        out.write(&step)?;
        out.close()?;
    }
    Ok(())
}

fn who_appends_killed_at_any_moment() {
    let place = Place::new("append", 2, 1);
    let mut first = 0;
    for seed in 0..kills(8) {
        let mut unit = Unit::start("appender", &format!("append {} {first}", place.0.display()));
        Random::new(seed).linger(Duration::from_millis(40));
        unit.kill();
        unit.end();
        // Steps that are there for sure.
        let told = if unit.last().is_empty() { first } else { number(unit.last()) + 1 };
        for (name, len) in APPENDED {
            let there = steps(&place.0, name, len);
            assert!((told..=told + 1).contains(&there), "seed {seed}: {name} has {there}, told of {told}");
        }
        // It goes on where it was.
        append(&place.0, told).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        first = told + 1;
        for (name, len) in APPENDED {
            assert_eq!(steps(&place.0, name, len), first, "seed {seed}");
        }
    }
    drop(Store::open(&place.0).unwrap().own().unwrap());
    let objects = std::fs::read_dir(place.0.join("unit0/objects")).unwrap();
    assert_eq!(objects.count(), 2 * APPENDED.len(), "something is left of what came to nothing");
}

/// Steps of a dataset, every byte of them checked; none where it is not there.
fn steps(dir: &Path, name: &str, len: u64) -> u64 {
    let mut port = match StoreReader::open(dir, name, "*", &Expect::default(), &options(0, 1)) {
        Err(StoreError::NotThere { .. }) => return 0,
        port => port.unwrap(),
    };
    let mut part = vec![0; 4 * len as usize];
    let mut n = 0;
    while let Some(step) = port.read(&mut part).unwrap() {
        let words = part.chunks(4).zip(0..);
        assert!(words.into_iter().all(|(word, at)| word == value(7, step, at).to_le_bytes()), "step {step}");
        n += 1;
    }
    n
}

/// Makes a store; of every other one a unit lies in it.
fn make(dir: &Path, n: u64) -> Result<Store, StoreError> {
    let unit = |u: u64| match u == 0 && n.is_multiple_of(2) {
        true => PathBuf::from("unit0"),
        false => dir.join(format!("unit{n}-{u}")),
    };
    let units = (0..3).map(|u| vec![unit(u)]).collect();
    Store::create(&dir.join(format!("store{n}")), &Create { units, parity: 1, stripe: 8192 })
}

fn who_makes_a_store_killed_at_any_moment() {
    let scratch = Scratch::new("disk-kill-create");
    let place = scratch.path();
    let (mut first, mut again) = (0, 0);
    for seed in 0..kills(10) {
        let mut unit = Unit::start("maker", &format!("create {} {first}", place.display()));
        assert!(unit.wait_line("made"));
        Random::new(seed).linger(Duration::from_millis(20));
        unit.kill();
        unit.end();
        let told = number(unit.last());
        for n in first..=told + 1 {
            let dir = place.join(format!("store{n}"));
            let store = match Store::open(&dir) {
                // Then there is none, and it can be made.
                Err(StoreError::NoStore { .. }) if n == told + 1 => {
                    again += 1;
                    make(place, n).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
                }
                store => store.unwrap_or_else(|e| panic!("seed {seed}, {n} of {told}: {e}")),
            };
            assert_eq!(store.own().unwrap().lost().count(), 0, "seed {seed}, {n} of {told}");
        }
        // It can be used.
        let dir = place.join(format!("store{}", told + 1));
        write(&dir, 0, 1, seed).unwrap();
        assert_eq!(version(&dir), seed);
        first = told + 2;
    }
    println!("{again} stores were made again");
    assert!(again > 0, "nobody was killed while a store was made");
}

/// The number that ends a line.
fn number(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
}
