//! Stores whose users are killed: a unit of a writing program, all of it, and who rebuilds or scrubs.

use polyduct_layout::{Dataset, ElemType};
use polyduct_rig::kills::{error_of, kills, say_error, survivors};
use polyduct_rig::{kill_all, say, tests, Random, Scratch, Unit};
use polyduct_store::disk::{now, Create, Store, StoreReader, StoreWriter};
use polyduct_store::volume::{Scrub, VolumeError};
use polyduct_store::{Expect, Options};
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
        ],
    );
}

fn dataset() -> Dataset {
    Dataset::new(&SHAPE, ElemType::U32).unwrap()
}

fn options(unit: u32, units: u32) -> Options {
    let (timeout, open_timeout) = (Some(Duration::from_secs(20)), Duration::from_secs(4));
    Options { unit, units, program: "killed".into(), timeout, open_timeout, ..Options::default() }
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
                let progress = match store.own().unwrap().rebuild(1, 3, now()) {
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
                owned.scrub(&mut scrub, 10).unwrap();
                for block in 0..8 {
                    owned.overwrite(entry.object, block, &[n as u8; 4096], now()).unwrap();
                }
                say(&format!("overwritten {n}"));
            }
        }
        other => panic!("{other}"),
    }
}

/// A version of the dataset, by one unit.
fn write(dir: &Path, unit: u32, units: u32, version: u64) -> Result<(), String> {
    let text = |e: polyduct_store::disk::StoreError| e.to_string();
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

    /// Nothing is left of what got no name.
    fn is_clean(&self) {
        drop(Store::open(&self.0).unwrap().own().unwrap());
        let objects = std::fs::read_dir(self.0.join("unit0/objects")).unwrap();
        let names: Vec<_> = objects.map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "one dataset has two files: {names:?}");
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
            // Unit 0 brings them together: without it there is nobody to meet. Nor where it heard of the loss when this unit
            // had closed one dataset and was about to open the next: that ends at the deadline.
            let alone = error.contains("unit 0") && (victim == 0 || error.contains("to listen"));
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
        while !store.own().unwrap().rebuild(2, 1000, now()).unwrap().finished {}
    }
}

fn a_scrub_and_overwrites_killed_at_any_moment() {
    let place = Place::new("overwrite", 2, 1);
    write(&place.0, 0, 1, 1).unwrap();
    for seed in 0..kills(20) {
        let mut unit = Unit::start("overwriter", &format!("overwrite {}", place.0.display()));
        assert!(unit.wait_line("overwritten"));
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
        let mut scrub = Scrub::default();
        while !owned.scrub(&mut scrub, 1000).unwrap().finished {}
        assert!(scrub.report().damaged == 0 && scrub.report().repaired.is_empty(), "{:?}", scrub.report());
    }
}
