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
    assert_eq!(output(&["store", "rebuild", &s, "-q"]).status.code(), Some(1), "no unit is joining");
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
    assert!(well(&["store", "scrub", &s, "-q"]).contains("1 made good (1 of unit 1), 0 words beyond repair"));
    assert!(std::fs::read_to_string(dir.path("s/events.log"))
        .unwrap()
        .contains("was damaged and is made good"));
}

fn json(args: &[&str], status: i32) -> serde_json::Value {
    let o = output(args);
    assert_eq!(o.status.code(), Some(status), "{args:?}: {}", text(&o.stderr));
    serde_json::from_slice(&o.stdout).unwrap()
}

fn flip(path: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[5] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damage_is_named_by_unit_and_dataset_and_copies_of_the_manifest_are_made_good() {
    let dir = Scratch::new("store-scrub");
    let (s, raw) = (dir.path("s"), dir.write("a.raw", numbers()));
    well(&["store", "create", &s, "--units", "3", "--parity", "1", "--stripe", "8KiB"]);
    well(&["cp", "-q", &raw, &format!("store:{s}/a"), "--shape", "30000", "--dtype", "u4"]);
    let events = || std::fs::read_to_string(dir.path("s/events.log")).unwrap();
    assert!(!events().contains("done again"), "{}", events());
    let data = |unit: u32| {
        let objects = std::fs::read_dir(dir.path(&format!("s/unit{unit}/objects"))).unwrap().flatten();
        let mut data = objects.map(|e| e.path().display().to_string()).filter(|p| p.ends_with(".data"));
        data.next().unwrap()
    };
    flip(&dir.path("s/unit0/store.toml"));
    std::fs::remove_file(dir.path("s/unit2/store.toml")).unwrap();
    flip(&dir.path("s/unit1/superblock"));
    flip(&data(1));
    let found = json(&["store", "scrub", &s, "--json"], 0);
    assert_eq!((&found["manifests"], &found["repaired_by_unit"]), (&2.into(), &serde_json::json!({"1": 1})));
    for file in ["unit0/store.toml", "unit2/store.toml"] {
        assert_eq!(
            std::fs::read(dir.path(&format!("s/{file}"))).unwrap(),
            std::fs::read(dir.path("s/store.toml")).unwrap()
        );
    }
    assert!(events().contains("unit 1: a copy of its superblock could not be read"), "{}", events());
    assert!(events().contains("unit 0: the copy of the manifest in "), "{}", events());
    // Two units at one place are more than parity makes up for.
    flip(&data(1));
    flip(&data(2));
    let found = json(&["store", "scrub", &s, "--json"], 1);
    assert_eq!(
        (&found["damaged"], &found["beyond_repair"][0]["name"], &found["beyond_repair"][0]["block"]),
        (&1.into(), &"a".into(), &0.into())
    );
    let o = output(&["store", "scrub", &s, "-q"]);
    assert!(
        o.status.code() == Some(1)
            && text(&o.stdout).contains("beyond repair: 1 word of \"a\", the first is block 0")
    );
    ill(&["cp", "-q", &format!("store:{s}/a"), &dir.path("b.raw")], 1);
    assert!(events().contains("\"a\" is beyond repair: block "), "{}", events());
}

#[test]
fn a_scrub_counts_what_is_made_good_and_says_what_is_not() {
    let dir = Scratch::new("store-not-repaired");
    let (s, raw) = (dir.path("s"), dir.write("a.raw", numbers()));
    well(&["store", "create", &s, "--units", "3", "--parity", "1", "--stripe", "4KiB"]);
    well(&["cp", "-q", &raw, &format!("store:{s}/a"), "--dtype", "u4", "--shape", "30000"]);
    let data = dir.path("s/unit1/objects/0.data");
    let rot = |block: usize| {
        let mut bytes = std::fs::read(&data).unwrap();
        bytes[block * 4096 + 5] ^= 1;
        std::fs::write(&data, bytes).unwrap();
    };
    rot(1);
    rot(12);
    // Files may not grow, and not be written, beyond 32 KiB: there is no room for what is made good there.
    let limited = |args: &str| {
        let script = format!("trap '' XFSZ; ulimit -f 32; exec {} {args}", env!("CARGO_BIN_EXE_polyduct"));
        std::process::Command::new("bash").args(["-c", &script]).output().unwrap()
    };
    let o = limited(&format!("store scrub {s} -q"));
    let said = text(&o.stdout);
    assert!(said.contains("1 made good (1 of unit 1), 0 words beyond repair"), "{said}");
    assert!(said.contains("unit 1: 1 block damaged and could not be made good: "), "{said}");
    assert_eq!(o.status.code(), Some(1));
    assert!(well(&["store", "scrub", &s, "-q"]).contains("1 made good (1 of unit 1), 0 words beyond repair"));
    // A unit that is not there is not checked.
    std::fs::remove_dir_all(dir.path("s/unit1")).unwrap();
    let found = json(&["store", "scrub", &s, "--json"], 1);
    assert!(found["lost"]["1"].is_string() && found["not_repaired"] == serde_json::json!({}), "{found}");
}

#[test]
fn a_unit_that_works_is_replaced_where_that_is_said_and_the_status_tells_of_too_many_losses() {
    let dir = Scratch::new("store-retire");
    let (s, raw) = (dir.path("s"), dir.write("a.raw", numbers()));
    well(&["store", "create", &s, "--units", "3", "--parity", "1", "--stripe", "8KiB"]);
    let a = format!("store:{s}/a");
    well(&["cp", "-q", &raw, &a, "--shape", "30000", "--dtype", "u4"]);
    let with = dir.path("new1");
    assert!(ill(&["store", "replace", &s, "1", "--with", &with], 1).contains("--in-use"));
    // What is another's is not taken, and the refusal costs nothing.
    well(&["store", "create", &dir.path("t"), "--units", "2"]);
    let error = ill(&["store", "replace", &s, "1", "--with", &dir.path("t/unit0"), "--in-use"], 1);
    assert!(error.contains("it belongs to another store"), "{error}");
    // Nor can anything be written there.
    let error = ill(&["store", "replace", &s, "1", "--with", "/proc", "--in-use", "--force"], 1);
    assert!(error.contains("/proc"), "{error}");
    assert_eq!(json(&["store", "status", &s, "--json"], 0)["units"][1]["state"], "ok");
    well(&["store", "replace", &s, "1", "--with", &with, "--in-use"]);
    // Another place for one that is joining is looked at before it loses what it has.
    ill(&["store", "replace", &s, "1", "--with", &dir.path("t/unit0")], 1);
    let status = json(&["store", "status", &s, "--json"], 1);
    let unit = &status["units"][1];
    assert_eq!((&unit["state"], &unit["rebuilt_words"]), (&"joining".into(), &0.into()));
    assert!(unit["words"].as_u64() > Some(0) && status["spare"] == 0);
    // Not a second one meanwhile.
    let error = ill(&["store", "replace", &s, "2", "--with", &dir.path("new2"), "--in-use"], 1);
    assert!(error.contains("units that may be missing while unit 2 is rebuilt is 0"), "{error}");
    assert_eq!(output(&["cat", &a]).stdout, numbers());
    well(&["store", "rebuild", &s, "-q"]);
    std::fs::remove_dir_all(dir.path("s/unit1")).unwrap();
    assert_eq!(json(&["store", "status", &s, "--json"], 0)["units"][1]["state"], "ok");
    for unit in ["s/unit0", "s/unit2"] {
        std::fs::rename(dir.path(unit), dir.path(&format!("{unit}.away"))).unwrap();
    }
    let status = json(&["store", "status", &s, "--json"], 1);
    let states: Vec<_> = (0..3).map(|unit| status["units"][unit]["state"].as_str().unwrap()).collect();
    assert_eq!((&states[..], &status["readable"]), (&["lost", "ok", "lost"][..], &false.into()));
    let o = output(&["store", "status", &s]);
    assert!(
        text(&o.stdout).contains("Nothing can be read until 1 of the units 0, 2 are back"),
        "{}",
        text(&o.stdout)
    );
    for unit in ["s/unit0", "s/unit2"] {
        std::fs::rename(dir.path(&format!("{unit}.away")), dir.path(unit)).unwrap();
    }
    assert_eq!(output(&["cat", &a]).stdout, numbers());
}

#[test]
fn what_is_written_down_of_an_array_goes_where_it_goes() {
    let dir = Scratch::new("store-attributes");
    let (s, raw, zarr) = (dir.path("s"), dir.write("a.raw", numbers()), dir.path("a.zarr"));
    well(&["store", "create", &s, "--units", "2"]);
    well(&["cp", "-q", &raw, &zarr, "--shape", "30000", "--dtype", "u4"]);
    let meta = dir.path("a.zarr/zarr.json");
    let about = serde_json::json!({"unit": "K", "nested": {"a": [null, true, 1.5]}});
    let of = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(&meta).unwrap()).unwrap();
    let mut with = of();
    with["attributes"] = about.clone();
    std::fs::write(&meta, with.to_string()).unwrap();
    let [a, b] = ["a", "b"].map(|name| format!("store:{s}/{name}"));
    well(&["cp", "-q", &zarr, &a, "--units", "2"]);
    well(&["cp", "-q", &a, &b]);
    // Also onto itself, and back.
    well(&["cp", "-q", &a, &a]);
    std::fs::remove_dir_all(&zarr).unwrap();
    well(&["cp", "-q", &b, &zarr]);
    assert_eq!(of()["attributes"], about);
    let listed = json(&["store", "ls", &s, "--json"], 0);
    assert_eq!([&listed[0]["attributes"], &listed[1]["attributes"]], [&about; 2]);
    let o = output(&["cp", "-q", &a, &dir.path("a.npy")]);
    assert!(
        o.status.success() && text(&o.stderr).contains("cannot store the attributes"),
        "{}",
        text(&o.stderr)
    );
    // What is put in its place knows nothing of them.
    well(&["cp", "-q", &raw, &a, "--shape", "30000", "--dtype", "u4"]);
    assert_eq!(json(&["store", "ls", &s, "--json"], 0)[0]["attributes"], serde_json::json!({}));
}

#[test]
fn several_are_removed_or_none_is() {
    let dir = Scratch::new("store-rm");
    let (s, raw) = (dir.path("s"), dir.write("a.raw", numbers()));
    well(&["store", "create", &s, "--units", "2"]);
    for name in ["a", "b/c", "b/d"] {
        well(&["cp", "-q", &raw, &format!("store:{s}/{name}"), "--shape", "30000", "--dtype", "u4"]);
    }
    assert!(ill(&["store", "rm", &s, "a", "nope"], 1).contains("\"nope\""));
    assert!(ill(&["store", "rm", &s, "a", "b"], 1).contains("-r"));
    assert_eq!(well(&["store", "ls", &s]), "a\nb/c\nb/d\n");
    well(&["store", "rm", "-r", &s, "a", "b/c", "b"]);
    assert_eq!(well(&["store", "ls", &s]), "");
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
        (
            &["store", "create", &dir.path("t"), "--units", "2", "--stripe", "1000"],
            1,
            "stripe unit: 1000; expected a multiple of 4 KiB",
        ),
        (&["store", "create", &dir.path("t"), "--units", "2", "--stripe", "x"], 2, "as 1MiB or 65536"),
        (
            &["store", "create", &dir.path("t"), "--units", "1", "--parity", "1"],
            1,
            "(parity) is 1 of 1; expected at most 0, so that one",
        ),
        (&["store", "ls", &dir.path("t")], 1, "polyduct store create"),
        (&["store", "rm", &s, "nothing"], 1, "there is no dataset \"nothing\"; the store is empty"),
        (&["store", "mv", &s, "a", "../b"], 1, "a part of it is . or .."),
        (&["store", "replace", &s, "1"], 1, "it is in use"),
        (
            &["store", "replace", &s, "1", "--in-use", "--with", &dir.path("s/unit1")],
            1,
            "others, which it does not",
        ),
        (&["cat", &format!("store:{s}")], 1, "it is a store; a dataset in it is named behind that"),
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
