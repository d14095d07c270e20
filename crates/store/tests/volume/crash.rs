//! Every state in which a cut may leave a store: old or new content of each write, nothing between, and what
//! was acknowledged is there, with each unit lost in turn. So it is while a unit is rebuilt and while the
//! store is scrubbed, and when that is done everything can be lost again that parity allows.

use super::scenario::{Count, Run, Step};
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::{Geometry, BLOCK};

const IN_USE: &[Step] = &[
    Step::Replace("a", 100),
    Step::Overwrite("a", 1, 900),
    Step::Overwrite("a", 1, 901),
    Step::Overwrite("a", 0, 902),
    Step::Replace("b", 200),
    Step::Replace("a", 300),
    Step::Overwrite("a", 2, 903),
    Step::Remove("b"),
    Step::Reopen,
    Step::Overwrite("a", 3, 904),
];

/// A unit is lost, and a new one rebuilt in its place, while the store is in use.
const NEW_UNIT: &[Step] = &[
    Step::Replace("a", 100),
    Step::Replace("b", 200),
    Step::Lose(1),
    Step::Overwrite("a", 1, 900),
    Step::Wipe(1),
    Step::Join(1),
    Step::Overwrite("a", 0, 901),
    Step::Rebuild(1, 1),
    Step::Overwrite("a", 0, 902),
    Step::Replace("c", 300),
    Step::Rebuild(1, 1),
    Step::Reopen,
    Step::Remove("a"),
    Step::Overwrite("c", 1, 903),
    Step::Rebuild(1, 1),
    Step::Overwrite("b", 0, 904),
    Step::Rebuild(1, 1),
    Step::Overwrite("b", 1, 905),
];

/// The same unit comes back, after it has missed something.
const STALE_UNIT: &[Step] = &[
    Step::Replace("a", 100),
    Step::Overwrite("a", 1, 900),
    Step::Lose(0),
    Step::Replace("b", 200),
    Step::Overwrite("a", 0, 901),
    Step::Back(0),
    Step::Join(0),
    Step::Overwrite("a", 2, 902),
    Step::Rebuild(0, 2),
    Step::Overwrite("a", 0, 903),
    Step::Reopen,
    Step::Rebuild(0, 2),
];

/// A unit fails, which only reading finds, and works again: it still says that it is a member when it is to
/// join.
const FLAKY_UNIT: &[Step] = &[
    Step::Replace("a", 100),
    Step::Lose(1),
    Step::Scrub(9),
    Step::Back(1),
    Step::Join(1),
    Step::Overwrite("a", 1, 900),
    Step::Rebuild(1, 9),
];

/// A unit fails while rows are written to it, after some of them, and comes back.
const FAILING_UNIT: &[Step] = &[
    Step::Replace("a", 100),
    Step::Unwritable(1, 0),
    Step::Replace("b", 200),
    Step::Overwrite("b", 1, 900),
    Step::Overwrite("a", 0, 901),
    Step::Back(1),
    Step::Join(1),
    Step::Rebuild(1, 9),
    Step::Overwrite("b", 0, 902),
];

/// With more parity another unit is lost meanwhile, and comes back.
const TWO_UNITS: &[Step] = &[
    Step::Replace("a", 100),
    Step::Lose(1),
    Step::Overwrite("a", 1, 900),
    Step::Wipe(1),
    Step::Join(1),
    Step::Rebuild(1, 1),
    Step::Lose(3),
    Step::Overwrite("a", 0, 901),
    Step::Back(3),
    Step::Join(3),
    Step::Reopen,
    Step::Overwrite("a", 2, 902),
    Step::Rebuild(1, 1),
    Step::Overwrite("a", 0, 903),
    Step::Rebuild(3, 9),
];

/// The same as in use, where an object has two blocks.
const MIRRORED: &[Step] = &[
    Step::Replace("a", 100),
    Step::Overwrite("a", 1, 900),
    Step::Overwrite("a", 0, 901),
    Step::Replace("b", 200),
    Step::Remove("b"),
    Step::Reopen,
    Step::Overwrite("a", 1, 902),
];

/// One of two comes back after it has missed something.
const MIRRORED_STALE: &[Step] = &[
    Step::Replace("a", 100),
    Step::Lose(0),
    Step::Overwrite("a", 1, 900),
    Step::Reopen,
    Step::Overwrite("a", 0, 901),
    Step::Back(0),
    Step::Join(0),
    Step::Overwrite("a", 0, 902),
    Step::Rebuild(0, 9),
    Step::Overwrite("a", 1, 903),
];

/// What has rotted is found and made good.
const SCRUBBED: &[Step] = &[
    Step::Replace("a", 100),
    Step::Replace("b", 200),
    Step::Overwrite("a", 1, 900),
    Step::Rot(1, "a", false, 17),
    Step::Rot(1, "a", true, 3),
    Step::Rot(1, "b", false, 4096 + 5),
    Step::Scrub(1),
    Step::Overwrite("b", 1, 901),
    Step::Reopen,
    Step::Scrub(2),
    Step::Overwrite("a", 0, 902),
    Step::Scrub(9),
    Step::Overwrite("a", 1, 903),
];

/// At least so many states are opened, together more than 300,000; with `POLYDUCT_CUTS=all` some two million.
fn all(run: Run, least: u64, scenarios: &[(&str, &[Step])]) {
    let more = if std::env::var("POLYDUCT_CUTS").is_ok_and(|v| v == "all") { 10 } else { 1 };
    let (data, parity) = (run.geometry.data(), run.geometry.parity());
    let mut opened = 0;
    for (name, steps) in scenarios {
        match (Run { most: run.most * more, ..run }).enumerate(&[], steps) {
            Ok(Count { cuts, states, .. }) => {
                println!("{data}+{parity}, {name}: {cuts} states left by cuts, {states} opened");
                opened += states;
            }
            Err(error) => panic!("{data}+{parity}, {name}: {error}"),
        }
    }
    assert!(opened >= least, "{data}+{parity}: {opened} states; {least} are to be looked at");
}

/// Scenarios in which so few writes are on their way at any time that each subset of them is opened: 2¹² at
/// most.
const FEW_AT_ONCE: &[(u32, u32, &[&[Step]])] = {
    const ONE: &[Step] = &[Step::Overwrite("a", 1, 900)];
    const TWO: &[Step] = &[Step::Overwrite("a", 1, 900), Step::Overwrite("a", 1, 901)];
    const REOPENED: &[Step] = &[Step::Overwrite("a", 1, 900), Step::Reopen];
    const REMOVED: &[Step] = &[Step::Remove("b")];
    const MORE: &[Step] = &[Step::Replace("c", 300)];
    &[
        (2, 1, &[ONE, TWO, REOPENED, REMOVED, MORE]),
        (4, 1, &[ONE, TWO, REOPENED, REMOVED]),
        (4, 2, &[ONE, REMOVED]),
    ]
};

#[test]
fn every_subset_of_what_a_cut_may_leave() {
    let made = [Step::Replace("a", 100), Step::Replace("b", 200)];
    let mut opened = 0;
    for &(data, parity, scenarios) in FEW_AT_ONCE {
        for steps in scenarios {
            let count = Run::of(data, parity, 1 << 12).enumerate(&made, steps);
            let count = count.unwrap_or_else(|e| panic!("{data}+{parity}, {steps:?}: {e}"));
            assert_eq!(count.drawn, 0, "{data}+{parity}, {steps:?}: some subsets were drawn");
            opened += count.states;
        }
    }
    assert!(opened >= 300_000, "{opened} states");
}

/// What is begun in two words, and overwritten once more.
const TWICE: &[Step] = &[
    Step::Overwrite("a", 1, 900),
    Step::Overwrite("a", 2, 901),
    Step::Overwrite("a", 1, 902),
    Step::Replace("b", 200),
];

/// What a cut left is opened, and that is cut short.
#[test]
fn cuts_of_openings() {
    // Of the states that first cuts leave, so many more are gone through behind the flag.
    let more = if std::env::var("POLYDUCT_CUTS").is_ok_and(|v| v == "all") { 40 } else { 1 };
    let mut states = 0;
    for (data, parity, most, one_of) in
        [(2, 1, 16, 121), (4, 1, 8, 201), (4, 2, 8, 441), (1, 1, 16, 41), (2, 2, 8, 441)]
    {
        let made = [Step::Replace("a", 100)];
        let steps = if data == 1 { &TWICE[..1] } else { TWICE };
        let count = Run::of(data, parity, most).enumerate_openings(&made, steps, one_of / more + 1);
        let count = count.unwrap_or_else(|e| panic!("{data}+{parity}: {e}"));
        println!("{data}+{parity}: {} states left by two cuts, {} opened", count.cuts, count.states);
        states += count.states;
    }
    assert!(states >= 30_000, "{states} states");
    let bug = Run { bug: Some(Bug::OneLogAgain), ..Run::of(2, 1, 16) };
    let error = bug.enumerate_openings(&[Step::Replace("a", 100)], TWICE, 3).expect_err("it is found");
    println!("{error}");
}

/// What has changed stands behind catalogs that are long, and in the end they are written anew.
#[test]
fn cuts_of_long_catalogs() {
    let steps = [
        Step::Replace("a", 100),
        Step::Describe("a"),
        Step::Reopen,
        Step::Replace("b", 200),
        Step::Reopen,
        Step::Remove("b"),
        Step::Overwrite("a", 1, 900),
        Step::Reopen,
        Step::Rename("a", "c"),
        Step::Reopen,
        Step::Replace("d", 300),
        Step::Reopen,
        Step::Replace("e", 400),
        Step::Reopen,
        Step::Overwrite("c", 1, 910),
    ];
    all(Run::of(2, 1, 12), 5_000, &[("catalogs", &steps)]);
    all(Run::of(2, 2, 4), 2_000, &[("catalogs", &steps)]);
    all(Run::of(2, 1, 3).healing(), 5_000, &[("catalogs", &steps)]);
}

/// Two blocks are overwritten by one change.
#[test]
fn cuts_of_runs_of_blocks() {
    let steps = [
        Step::Replace("a", 100),
        Step::OverwriteTwo("a", 0, 900),
        Step::OverwriteTwo("a", 2, 910),
        Step::Reopen,
        Step::OverwriteTwo("a", 0, 920),
        Step::Overwrite("a", 1, 930),
    ];
    for (data, parity) in [(2, 1), (2, 2)] {
        let geometry = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
        all(Run { geometry, ..Run::of(data, parity, 16) }, 5_000, &[("runs", &steps)]);
    }
}

#[test]
fn cuts_of_2_and_1() {
    all(Run::of(2, 1, 32), 35_000, &[("in use", IN_USE)]);
}

#[test]
fn cuts_of_4_and_1() {
    all(Run::of(4, 1, 8), 30_000, &[("in use", IN_USE)]);
}

#[test]
fn cuts_of_4_and_2() {
    all(Run::of(4, 2, 4), 25_000, &[("in use", IN_USE)]);
}

#[test]
fn cuts_without_parity() {
    all(Run::of(2, 0, 64), 2_000, &[("in use", IN_USE)]);
}

/// Units that have none in common are each enough, and serve by turns.
#[test]
fn cuts_of_mirrors() {
    all(Run::of(1, 1, 32), 10_000, &[("in use", MIRRORED), ("a stale unit", MIRRORED_STALE)]);
    all(Run::of(1, 2, 8), 5_000, &[("in use", MIRRORED)]);
    all(Run::of(2, 2, 8), 10_000, &[("in use", IN_USE)]);
}

#[test]
fn cuts_of_2_and_1_while_healing() {
    let scenarios = [
        ("a new unit", NEW_UNIT),
        ("a stale unit", STALE_UNIT),
        ("a flaky unit", FLAKY_UNIT),
        ("a failing unit", FAILING_UNIT),
        ("a scrub", SCRUBBED),
    ];
    all(Run::of(2, 1, 8).healing(), 50_000, &scenarios);
}

#[test]
fn cuts_of_4_and_1_while_healing() {
    let scenarios = [("a new unit", NEW_UNIT), ("a stale unit", STALE_UNIT), ("a scrub", SCRUBBED)];
    all(Run::of(4, 1, 4).healing(), 70_000, &scenarios);
}

#[test]
fn cuts_of_4_and_2_while_healing() {
    all(Run::of(4, 2, 3).healing(), 80_000, &[("a new unit", NEW_UNIT), ("a stale unit", STALE_UNIT)]);
}

#[test]
fn cuts_of_4_and_2_while_two_units_are_healing() {
    all(Run::of(4, 2, 3).healing(), 30_000, &[("two units", TWO_UNITS)]);
}

/// The checks find each of these.
#[test]
fn planted_bugs_are_found() {
    let in_use = [
        Bug::NotFinished,
        Bug::DataNotSynced,
        Bug::CommitFirst,
        Bug::BlocksNotSettled,
        Bug::SumsNotSettled,
        Bug::CatalogNotSynced,
        Bug::EpochFirst,
        Bug::EpochNotSynced,
        Bug::LogNotSynced,
        Bug::PlaceFirst,
        Bug::OneLog,
        Bug::NothingReplayed,
        Bug::TrimmedEarly,
        Bug::OneCatalog,
        Bug::NoEpoch,
        Bug::StaleRead,
    ];
    let healing = [
        (Bug::JoiningRead, FLAKY_UNIT),
        (Bug::JoiningSkipped, NEW_UNIT),
        (Bug::MarkFirst, NEW_UNIT),
        (Bug::StaleJoins, NEW_UNIT),
        (Bug::RottenParity, SCRUBBED),
    ];
    // A driver that takes it for written finds nothing wrong before another unit is lost.
    let failing = (Run { bug: Some(Bug::FailureIgnored), ..Run::of(2, 1, 32) }, &FAILING_UNIT[..3]);
    let in_use = in_use.into_iter().map(|bug| (Run { bug: Some(bug), ..Run::of(2, 1, 32) }, IN_USE));
    let healing =
        healing.into_iter().map(|(bug, steps)| (Run { bug: Some(bug), ..Run::of(2, 1, 8).healing() }, steps));
    let mirrors = [Bug::NothingRemembered, Bug::RememberedFirst];
    let mirrors = mirrors.map(|bug| (Run { bug: Some(bug), ..Run::of(1, 1, 32) }, MIRRORED));
    for (run, steps) in in_use.chain(healing).chain(mirrors).chain([failing]) {
        let bug = run.bug.unwrap();
        match run.enumerate(&[], steps) {
            Ok(count) => panic!("{bug:?} is not found in {} states", count.states),
            Err(error) => println!("{bug:?}: {error}"),
        }
    }
}
