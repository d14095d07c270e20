//! `store`, and `cp`, `cat` and `run` with stores at their ends.

mod common;
use common::*;

fn well(args: &[&str]) -> String {
    let o = output(args);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{args:?}");
    text(&o.stdout)
}

fn ill(args: &[&str], status: i32) -> String {
    let o = output(args);
    let error = text(&o.stderr);
    assert!(
        o.status.code() == Some(status) && error.starts_with("polyduct: "),
        "{args:?}: {:?} {error}",
        o.status
    );
    error
}

fn numbers() -> Vec<u8> {
    (0..30_000_u32).flat_map(u32::to_le_bytes).collect()
}

#[test]
fn a_store_from_its_making_to_the_loss_of_a_unit_and_back() {
    let dir = Scratch::new("store");
    let (s, raw) = (dir.path("s"), dir.write("a.raw", numbers()));
    let made = well(&["store", "create", &s, "--units", "4", "--parity", "1", "--stripe", "8KiB"]);
    assert!(made.ends_with("3 data and 1 parity units\n"), "{made}");
    let [a, b] = [format!("store:{s}/runs/a"), format!("store:{s}/runs/b")];
    well(&["cp", "-q", &raw, &a, "--shape", "100x300", "--dtype", "u4", "--units", "3", "--verify"]);
    well(&["cp", "-q", &a, &b, "--layout", "*,block", "--units", "2"]);
    assert_eq!(well(&["store", "ls", &s]), "runs/a\nruns/b\n");
    assert_eq!(output(&["cat", &b]).stdout, numbers());
    let long = well(&["store", "ls", &s, "runs", "-l"]);
    assert!(long.contains("100x300") && long.contains("u32"), "{long}");
    well(&["store", "mv", &s, "runs/b", "c"]);
    well(&["store", "rm", &s, "runs/a"]);
    let listed: serde_json::Value = serde_json::from_str(&well(&["store", "ls", &s, "--json"])).unwrap();
    assert_eq!((listed[0]["name"].as_str(), listed[0]["steps"].as_u64()), (Some("c"), Some(1)));

    std::fs::remove_dir_all(dir.path("s/unit2")).unwrap();
    let o = output(&["store", "status", &s, "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!((o.status.code(), status["units"][2]["state"].as_str()), (Some(1), Some("lost")));
    assert_eq!(output(&["cat", &format!("store:{s}/c")]).stdout, numbers(), "degraded");
    let with = dir.path("new2");
    well(&["store", "replace", &s, "2", "--with", &with]);
    let rebuilt = well(&["store", "rebuild", &s, "-q"]);
    assert!(rebuilt.starts_with("unit 2 is rebuilt"), "{rebuilt}");
    assert!(well(&["store", "status", &s]).contains(&with));
    assert!(well(&["store", "scrub", &s, "-q"]).contains("0 made good, 0 words beyond repair"));
    let mut objects = std::fs::read_dir(dir.path("s/unit1/objects")).unwrap().flatten().map(|e| e.path());
    let data = objects.find(|p| p.extension().is_some_and(|e| e == "data")).unwrap();
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    assert!(well(&["store", "scrub", &s, "-q"]).contains("1 made good, 0 words beyond repair"));
    assert!(std::fs::read_to_string(dir.path("s/events.log"))
        .unwrap()
        .contains("was damaged and is made good"));
}

#[test]
fn a_pipeline_ends_in_a_store_and_begins_with_one() {
    let dir = Scratch::new("store-run");
    let (s, raw) = (dir.path("s"), dir.write("a.raw", numbers()));
    well(&["store", "create", &s, "--units", "2"]);
    let x = format!("store:{s}/x");
    well(&["cp", "-q", &raw, &x, "--shape", "30000", "--dtype", "u4"]);
    let o = output(&["run", &format!("< {x} cat")]);
    assert_eq!((o.status.code(), o.stdout == numbers()), (Some(0), true), "{}", text(&o.stderr));
    // An .npy array on an ordinary pipe says what it is.
    let npy = dir.path("a.npy");
    well(&["cp", "-q", &x, &npy]);
    let o = output(&["run", &format!("cat {npy} > store:{s}/y")]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
    assert_eq!(output(&["cat", &format!("store:{s}/y")]).stdout, numbers());
    // Units write one themselves; what was there before is no proof that they have.
    let writer =
        dir.write("writer", format!("{} pump-in $POLYDUCT_OUT < {npy}", env!("CARGO_BIN_EXE_polyduct")));
    let pipeline = format!("-n 2 sh {writer} > store:{s}/z");
    for _ in 0..2 {
        let o = output(&["run", &pipeline]);
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
        assert_eq!(output(&["cat", &format!("store:{s}/z")]).stdout, numbers());
    }
    let error = ill(&["run", &format!("-n 2 true > store:{s}/z")], 1);
    assert!(error.contains("each unit of stage 0 must open") || error.contains("did not write"), "{error}");
    let error = ill(&["run", &format!("< store:{}/x cat", dir.path("t"))], 1);
    assert!(error.contains("no directory on this path is a store"), "{error}");
}

#[test]
fn what_makes_no_sense_is_said_with_what_would() {
    let dir = Scratch::new("store-errors");
    let (s, raw) = (dir.path("s"), dir.write("a.raw", numbers()));
    well(&["store", "create", &s, "--units", "3", "--parity", "1"]);
    for (args, status, says) in [
        (&["store", "create", &s, "--units", "3"][..], 1, "a store is there already"),
        (&["store", "create", &dir.path("t"), "--units", "0"], 2, "expected 1 to 128"),
        (&["store", "create", &dir.path("t"), "--units", "2", "--stripe", "1000"], 1, "multiple of 4 KiB"),
        (&["store", "create", &dir.path("t"), "--units", "2", "--stripe", "x"], 2, "as 1MiB or 65536"),
        (&["store", "create", &dir.path("t"), "--units", "1", "--parity", "1"], 1, "data units: 0"),
        (&["store", "ls", &dir.path("t")], 1, "polyduct store create"),
        (&["store", "rm", &s, "nothing"], 1, "there is no dataset \"nothing\"; the store is empty"),
        (&["store", "mv", &s, "a", "../b"], 1, "a part of it is . or .."),
        (&["store", "replace", &s, "1"], 1, "it is in use"),
        (&["store", "replace", &s, "9"], 1, "there is no unit 9"),
        (&["cat", &format!("store:{s}/x")], 1, "there is no dataset \"x\""),
        (&["cat", &format!("store:{}/x", dir.path("t"))], 1, "no directory on this path is a store"),
        (
            &["cp", &raw, &format!("store:{s}/x"), "--shape", "30000", "--dtype", "u4", "--layout", "blok"],
            2,
            "--layout",
        ),
    ] {
        let error = ill(args, status);
        assert!(error.contains(says), "{args:?}: {error}");
    }
    assert!(!std::path::Path::new(&dir.path("t")).exists());
}
