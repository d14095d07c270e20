//! Writers that are open while a unit is replaced.

use polyduct_layout::{Dataset, ElemType};
use polyduct_rig::{say, Scratch, Unit};
use polyduct_store::disk::{nonce, Create, Store, StoreError, StoreReader, StoreWriter};
use polyduct_store::volume::Scrub;
use polyduct_store::{Expect, Options};
use std::path::{Path, PathBuf};

/// Bytes of a step: some rows, and of those a part of the last.
pub const LEN: usize = 90_000;

pub fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let (dir, name) = (Path::new(f[1]), f[2]);
    match f[0] {
        // Steps, as many as it is told of, and then the end.
        "holds" => {
            let mut out = open(dir, name, true).unwrap();
            say("opened");
            for line in std::io::stdin().lines() {
                match line.unwrap().as_str() {
                    "write" => out.write(&step(out.next_step())).unwrap(),
                    _ => return say(&format!("closed {:?}", out.close().map(drop))),
                }
                say("written");
            }
        }
        "loops" => {
            for n in 0.. {
                let mut out = open(dir, name, n % 8 != 0).unwrap();
                out.write(&step(out.next_step())).unwrap();
                out.close().unwrap();
                say(&format!("closed {n}"));
            }
        }
        other => panic!("{other}"),
    }
}

pub fn open(dir: &Path, name: &str, append: bool) -> Result<StoreWriter, StoreError> {
    let dataset = Dataset::new(&[LEN as u64], ElemType::U8).unwrap();
    StoreWriter::open(dir, name, &dataset, "*", append, &Options::default())
}

pub fn step(n: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| ((at * 31 + n * 101) ^ (at >> 8)) as u8).collect()
}

pub fn store(scratch: &Scratch, data: u32, parity: u32) -> Store {
    let units = (0..data + parity).map(|u| vec![PathBuf::from(format!("unit{u}"))]).collect();
    Store::create(scratch.path(), &Create { units, parity, stripe: 8192 }).unwrap()
}

/// Gives unit 1 a new directory; its old one is away first. Gives how often it was tried until the unit was
/// whole.
fn replace(dir: &Path, n: u64) -> u64 {
    let mut store = Store::open(dir).unwrap();
    let old = store.manifest().units[1][0].clone();
    std::fs::rename(dir.join(&old), dir.join(format!("away{n}"))).unwrap();
    for tries in 1.. {
        let new = PathBuf::from(format!("new{n}-{tries}"));
        let rebuilt = store.replace(1, Some(vec![new]), false).map(drop).and_then(|()| loop {
            let mut owned = store.own()?;
            match owned.rebuild(1, 20, nonce()) {
                Ok(progress) if progress.finished => break Ok(()),
                Ok(_) => {}
                Err(e) => break Err(owned.error(e)),
            }
        });
        match rebuilt {
            Ok(()) => return tries,
            Err(e) => println!("try {tries}: {e}"),
        }
    }
    unreachable!("it is tried for ever");
}

/// All units are used, and have what they should; and so it is read without each of them.
fn is_whole(dir: &Path, names: &[&str]) {
    let store = Store::open(dir).unwrap();
    let mut owned = store.own().unwrap();
    assert_eq!(owned.lost().collect::<Vec<_>>(), []);
    let mut scrub = Scrub::new();
    while !owned.scrub(&mut scrub, 1000).unwrap().finished {}
    let report = scrub.report();
    assert!(report.damaged == 0 && report.repaired.is_empty() && report.unrepaired.is_empty(), "{report:?}");
    assert!(owned.take_repairs().is_empty());
    drop(owned);
    let gone = store.manifest().dirs(dir, 0).remove(0);
    std::fs::rename(&gone, dir.join("gone")).unwrap();
    for name in names {
        let mut port = StoreReader::open(dir, name, "*", &Expect::default(), &Options::default()).unwrap();
        let mut part = vec![0; LEN];
        while let Some(n) = port.read(&mut part).unwrap() {
            assert!(part == step(n), "{name}, step {n}");
        }
    }
}

/// Appends to a dataset, or begins one, with the unit there or lost when it opened; with steps before, while
/// and after.
pub fn a_writer_that_was_open_while_a_unit_was_replaced_keeps_it() {
    for (appends, lost_before) in [(false, false), (false, true), (true, false), (true, true)] {
        let scratch = Scratch::new("processes-replaced");
        let dir = scratch.path();
        store(&scratch, 2, 1);
        if appends {
            let mut out = open(dir, "x", false).unwrap();
            out.write(&step(0)).unwrap();
            out.close().unwrap();
        }
        let lost = dir.join("lost");
        if lost_before {
            std::fs::rename(dir.join("unit1"), &lost).unwrap();
        }
        let mut writer = Unit::start("writer", &format!("holds {} x", dir.display()));
        assert!(writer.wait_line("opened"));
        let write = |writer: &mut Unit| assert_eq!(writer.ask("write").as_deref(), Some("written"));
        write(&mut writer);
        if lost_before {
            std::fs::rename(&lost, dir.join("unit1")).unwrap();
        }
        replace(dir, 0);
        write(&mut writer);
        assert_eq!(writer.ask("close").as_deref(), Some("closed Ok(())"));
        is_whole(dir, &["x"]);
    }
}

pub fn a_unit_is_replaced_beside_writers() {
    let scratch = Scratch::new("processes-beside");
    let dir = scratch.path();
    store(&scratch, 2, 1);
    let names = ["a", "b"];
    let start = |name: &&str| Unit::start(*name, &format!("loops {} {name}", dir.display()));
    let mut writers: Vec<Unit> = names.iter().map(start).collect();
    writers.iter_mut().for_each(|writer| assert!(writer.wait_line("closed")));
    let tries: Vec<u64> = (0..8).map(|n| replace(dir, n)).collect();
    // What was begun before is ended.
    for writer in &mut writers {
        for _ in 0..3 {
            assert!(writer.wait_line("closed"), "{:?}", writer.end());
        }
        writer.kill();
        writer.end();
    }
    println!("tries: {tries:?}");
    assert!(tries.iter().all(|&n| n <= 2), "{tries:?}");
    is_whole(dir, &names);
}
