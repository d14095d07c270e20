//! A process that has its turn, and does not go on.

use crate::replaced::store;
use polyduct_rig::{say, Scratch, Unit};
use polyduct_store::disk::manifest::Manifest;
use polyduct_store::disk::{Store, StoreError};
use rustix::process::{kill_process, Pid, Signal};
use std::path::Path;
use std::time::Duration;

/// Has the turn until it is told to end.
pub fn unit(dir: &Path) {
    let store = Store::open(dir).unwrap();
    let owned = store.own().unwrap();
    say("has it");
    let _ = std::io::stdin().lines().next();
    drop(owned);
    say("ended");
}

pub fn who_waits_for_a_stopped_process_is_told_which() {
    let scratch = Scratch::new("processes-stopped");
    store(&scratch, 2, 1);
    let mut manifest = Manifest::read(scratch.path()).unwrap();
    manifest.units.iter_mut().flatten().for_each(|dir| *dir = scratch.path().join(&dir));
    // By its own directory, and by another with the same manifest.
    let other = scratch.path().join("other");
    std::fs::create_dir(&other).unwrap();
    manifest.write(&other).unwrap();
    for dir in [scratch.path(), &other] {
        let mut unit = Unit::start("holder", &format!("turn {}", scratch.path().display()));
        assert!(unit.wait_line("has"));
        let pid = Pid::from_raw(unit.pid() as i32).unwrap();
        let mut waits = Store::open(dir).unwrap();
        waits.timeout = Some(Duration::from_millis(20));
        let named = |error: Option<StoreError>, stopped: bool| {
            let error = error.expect("two have a turn");
            assert!(matches!(error, StoreError::Busy { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("process {}", unit.pid())), "{text}");
            assert_eq!(text.contains("which is stopped"), stopped, "{text}");
        };
        named(waits.own().err(), false);
        kill_process(pid, Signal::STOP).unwrap();
        // As long as it lives: but it does nothing.
        waits.timeout = None;
        named(waits.own().err(), true);
        kill_process(pid, Signal::CONT).unwrap();
        unit.let_go();
        assert_eq!(waits.own().unwrap().lost().count(), 0);
        assert_eq!(unit.end(), "ended");
    }
}
