//! Programs that make stores, write and change them, and write files: what they do is recorded, call by call,
//! and all that a power cut may leave of it is looked at; see [`polyduct_rig::cuts`]. Directories lose names
//! that were not synced here, and files what they hold.
//!
//! With `POLYDUCT_CUTS=all` ten times as many states are looked at.

mod scenes;

use polyduct_rig::cuts::{Cut, Recording};
use polyduct_rig::record::{self, record};
use polyduct_rig::{tests, Random, Scratch};
use polyduct_store::volume::planted::{plant, Bug};
use scenes::{Scene, SCENES};
use std::path::{Path, PathBuf};
use std::process::Command;

const CHILD: &str = "POLYDUCT_TEST_CUTS";
/// States that are drawn of each cut, beside the one in which nothing is there that was not durable, and the
/// one in which all is.
const DRAWN: u64 = 1;
/// The same where a bug is planted: that ends with the first state that is wrong.
const DRAWN_OF_BUGS: u64 = 8;

/// Bugs in the order of durability, and what finds them.
const BUGS: &[(Bug, &str)] = &[
    (Bug::NameNotSynced, "writing"),
    (Bug::DirsNotSynced, "making"),
    (Bug::StoreFirst, "making"),
    (Bug::ManifestFirst, "making"),
    (Bug::ManifestNotNamed, "making"),
    (Bug::ManifestFirst, "replacing"),
    (Bug::ManifestNotNamed, "replacing"),
    (Bug::DataNotSynced, "writing"),
    (Bug::CommitFirst, "writing"),
    (Bug::BlocksNotSettled, "writing"),
    (Bug::SumsNotSettled, "writing"),
    (Bug::CatalogNotSynced, "writing"),
    (Bug::EpochNotSynced, "replacing"),
    (Bug::LogNotSynced, "writing"),
    (Bug::PlaceFirst, "writing"),
    (Bug::FileFirst, "a Zarr array"),
    (Bug::FileNotNamed, "a Zarr array"),
    (Bug::FileFirst, "a file"),
    (Bug::FileNotNamed, "a file"),
];

fn main() {
    if let Ok(spec) = std::env::var(CHILD) {
        return child(&spec);
    }
    polyduct_rig::main(|_| {}, tests![every_cut_leaves_what_was_told, planted_bugs_are_found]);
}

/// The program: a scene, with a bug planted in it or none, in a directory.
fn child(spec: &str) {
    let [name, bug, dir] = spec.split('|').collect::<Vec<_>>()[..] else { panic!("{spec}") };
    let scene = scene(name);
    (scene.prepare)(Path::new(dir));
    BUGS.iter().filter(|(of, _)| format!("{of:?}") == bug).for_each(|&(bug, _)| plant(bug));
    record::begin();
    (scene.act)(Path::new(dir));
}

fn scene(name: &str) -> &'static Scene {
    SCENES.iter().find(|scene| scene.name == name).unwrap()
}

/// A directory of its own.
struct Place {
    dir: PathBuf,
    _scratch: Scratch,
}

impl Place {
    fn new() -> Place {
        let scratch = Scratch::in_memory("cuts");
        let dir = std::fs::canonicalize(scratch.path()).unwrap().join("here");
        std::fs::create_dir(&dir).unwrap();
        Place { dir, _scratch: scratch }
    }

    fn record(&self, scene: &Scene, bug: Option<Bug>) -> Recording {
        let bug = bug.map_or(String::new(), |bug| format!("{bug:?}"));
        let spec = format!("{}|{bug}|{}", scene.name, self.dir.display());
        record(Command::new(std::env::current_exe().unwrap()).env(CHILD, spec), &self.dir)
    }

    /// Nothing is in it any more.
    fn clear(&self) {
        std::fs::remove_dir_all(&self.dir).unwrap();
        std::fs::create_dir(&self.dir).unwrap();
    }
}

/// Goes through the states that cuts of a scene leave. Gives how many that were.
fn enumerate(scene: &Scene, bug: Option<Bug>) -> Result<u64, String> {
    let place = Place::new();
    let recording = place.record(scene, bug);
    let more = if std::env::var("POLYDUCT_CUTS").is_ok_and(|v| v == "all") { 10 } else { 1 };
    let most = 2 + if bug.is_some() { DRAWN_OF_BUGS } else { DRAWN * more };
    let (mut cut, mut states, mut random) = (Cut::new(&recording), 0, Random::new(7));
    let mut before = (0, u32::MAX);
    loop {
        let now = (cut.open(), cut.told);
        let (grew, shrank, told) = (now.0 > before.0, now.0 < before.0, now.1 != before.1);
        // What is durable is the same after a write, and all that happened is the same after a sync.
        let is_new = |drawn: &u64| match drawn {
            0 => shrank || told,
            1 => grew || told,
            _ => now != before,
        };
        let all = 1_u64.checked_shl(now.0 as u32).unwrap_or(u64::MAX);
        for drawn in (0..most.min(all)).filter(is_new) {
            let tree = cut.leaves(|_, sectors| match (drawn, random.below(3)) {
                (0, _) | (2.., 0) => 0,
                (1, _) | (2.., 1) => sectors,
                _ => random.below(1 + sectors as u64) as usize,
            });
            place.clear();
            tree.put(&place.dir);
            (scene.check)(&place.dir, cut.told, states)
                .map_err(|e| format!("after {} calls, told {}, {drawn}: {e}", cut.len, cut.told))?;
            states += 1;
        }
        before = now;
        if !cut.advance() {
            return Ok(states);
        }
    }
}

/// Does something with each of a list, two at a time.
fn each<T: Sync, R: Send>(list: &[T], does: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|s| {
        let does = &does;
        let half = move |n: usize| list.iter().skip(n).step_by(2).map(does).collect::<Vec<_>>();
        let other = s.spawn(move || half(1));
        let mut all = half(0);
        all.extend(other.join().unwrap());
        all
    })
}

fn every_cut_leaves_what_was_told() {
    let counts = each(SCENES, |scene| {
        let states = enumerate(scene, None).unwrap_or_else(|e| panic!("{}: {e}", scene.name));
        println!("{}: {states} states", scene.name);
        (scene.name, states, scene.least)
    });
    for (name, states, least) in counts {
        assert!(states >= least, "{name}: {states} states; {least} are to be looked at");
    }
}

/// The checks find each of these.
fn planted_bugs_are_found() {
    each(BUGS, |&(bug, name)| match enumerate(scene(name), Some(bug)) {
        Ok(states) => panic!("{bug:?} is not found in {states} states of {name}"),
        Err(error) => println!("{bug:?}, {name}: {error}"),
    });
}
