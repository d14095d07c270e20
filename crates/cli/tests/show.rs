//! What `show` draws and prints, and `doctor`'s shape.

mod common;
use common::*;

fn show(args: &[&str]) -> String {
    let o = output(&[&["show"], args].concat());
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
    text(&o.stdout)
}

#[test]
fn a_picture_without_colour() {
    let expected = "\
block,*  4×3 f32 (48 B) over 2 units
    0  1  2
 0  0  0  0
 1  0  0  0
 2  1  1  1
 3  1  1  1

unit  local shape  bytes  owns
   0          2×3   24 B  [0:2, 0:3]
   1          2×3   24 B  [2:4, 0:3]
";
    assert_eq!(show(&["block,*", "--shape", "4x3", "--units", "2"]), expected);
}

#[test]
fn a_strip_a_halo_and_replicas() {
    let strip = "\
block;halo=1  6 u8 (6 B) over 2 units
   0  1  2  3  4  5
   0  0  0  1  1  1

unit  local shape  bytes  owns
   0            4    4 B  [0:3]
   1            4    4 B  [3:6]
";
    assert_eq!(show(&["block;halo=1", "--shape", "6", "--units", "2", "--dtype", "uint8"]), strip);
    let replicas = show(&["block[1],*@2x2", "--shape", "2x2", "--units", "4"]);
    assert!(replicas.contains(", 2 replicas\n") && replicas.contains(" 0 0+ 0+\n 1 1+ 1+\n"), "{replicas}");
}

#[test]
fn two_layouts_and_their_traffic() {
    let shown = show(&["block,*", "*,block", "--shape", "12x8", "--units", "4,3"]);
    let tail = "\
traffic  384 B in 12 of 12 pairs of units
            → 0       → 1       → 2 
   0 →     36 B      36 B      24 B 
   1 →     36 B      36 B      24 B 
   2 →     36 B      36 B      24 B 
   3 →     36 B      36 B      24 B 
runs     36 runs: 12 of 8 B, 24 of 12 B
";
    assert!(shown.ends_with(tail), "{shown}");
}

#[test]
fn large_arrays_are_drawn_small() {
    for (layout, shape, units) in [
        ("block,block@4x4", "1000000x1000000", "16"),
        ("cyclic,*", "100000x3", "7"),
        ("block", "1000000000000", "64"),
    ] {
        let shown = show(&[layout, "--shape", shape, "--units", units]);
        assert!(shown.lines().count() < 60, "{shown}");
        assert!(shown.lines().all(|l| l.chars().count() <= 120), "{shown}");
    }
}

#[test]
fn colour_only_where_it_is_wanted() {
    let args = ["block,*", "--shape", "4x3", "--units", "2"];
    assert!(!show(&args).contains('\x1b'), "not a terminal");
    assert!(show(&[&args[..], &["--color", "always"]].concat()).contains("\x1b[48;2;66;105;208;"));
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let fails = |args: &[&str]| {
        let o = output(&[&["show"], args].concat());
        (o.status.code(), text(&o.stderr))
    };
    let (status, error) = fails(&["block,blok", "--shape", "4x3", "--units", "2"]);
    assert_eq!(status, Some(2));
    assert!(
        error.starts_with("polyduct: layout text, byte 6: ")
            && error.ends_with("\n  block,blok\n        ^\n"),
        "{error}"
    );
    let (status, error) = fails(&["block", "*,block", "--shape", "4x3", "--units", "2"]);
    assert_eq!((status, error.lines().nth(1)), (Some(2), Some("  block")), "{error}");
    let (status, error) = fails(&["block", "--shape", "", "--units", "1"]);
    assert!(status == Some(2) && error.contains("give it one: 1"), "{error}");
    let (status, error) = fails(&["block,*", "--shape", "4x3", "--units", "2,3"]);
    assert!(status == Some(2) && error.starts_with("polyduct: --units 2,3 is for two layouts"), "{error}");
    for wrong in [["--shape", "4xx"], ["--units", "0"], ["--units", "1,2,3"], ["--dtype", "f5"]] {
        let (status, error) = fails(&[&["block,*", "--shape", "4x3", "--units", "2"][..], &wrong].concat());
        assert_eq!(status, Some(2), "{error}");
    }
}

#[test]
fn every_kind_of_layout_is_in_the_help_and_can_be_shown() {
    let help = show(&["--help"]);
    for (layout, shape, units) in [
        ("block;order=F", "8", "2"),
        ("*,*,block;order=2,0,1", "2x3x4", "2"),
        ("boxes(0:4,0:8|4:8,0:4+4:8,4:8|-)", "8x8", "3"),
        ("digits(4x3x8;unit=1;offset=0,2)", "96", "3"),
        ("stripe(64KiB)", "40000", "2"),
    ] {
        let words = layout.split_once(';').filter(|_| !layout.contains('(')).map_or(layout, |(_, tail)| tail);
        assert!(help.contains(words), "{words} is not in\n{help}");
        assert!(show(&[layout, "--shape", shape, "--units", units]).starts_with(layout));
    }
    assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
}

#[test]
fn json() {
    let value: serde_json::Value =
        serde_json::from_str(&show(&["block,*", "*,block", "--shape", "4x4", "--units", "2", "--json"]))
            .unwrap();
    assert_eq!(value["shape"], serde_json::json!([4, 4]));
    assert_eq!(value["layouts"][1]["parts"][1]["boxes"], serde_json::json!([{"lo": [0, 2], "hi": [4, 4]}]));
    assert_eq!(value["traffic"]["bytes"], serde_json::json!([[16, 16], [16, 16]]));
    assert_eq!(value["traffic"]["runs"], serde_json::json!([{"len_bytes": 8, "count": 8}]));
}

#[test]
fn how_a_stream_is_taken_and_why() {
    let columns = ["*,cyclic(128)", "--shape", "4096x16384", "--dtype", "u1", "--units", "4"];
    let with = |more: &[&str]| show(&[&columns[..], more].concat());
    let many = with(&["--stream=16"]);
    assert!(
        many.contains("its units reshuffle into blocks of 16777216 bytes, since runs of 128 bytes"),
        "{many}"
    );
    assert!(with(&["--stream=2"]).contains("its gateway takes what the units have, since runs of 128 bytes"));
    let json: serde_json::Value = serde_json::from_str(&with(&["--stream=16", "--json"])).unwrap();
    assert_eq!((&json["stream"]["run"], &json["stream"]["reshuffles"]), (&128.into(), &true.into()));
}

#[test]
fn json_and_a_drawing_do_not_share_standard_output() {
    let dir = Scratch::new("both");
    let args = ["show", "block,*", "--shape", "4x3", "--units", "2", "--json", "--svg"];
    let o = output(&[&args[..], &["-"]].concat());
    assert_eq!((o.status.code(), text(&o.stdout)), (Some(2), String::new()));
    assert!(text(&o.stderr).starts_with("polyduct: --json and --svg - "), "{}", text(&o.stderr));
    // Each to its own place.
    let file = dir.path("a.svg");
    let o = output(&[&args[..], &[&file]].concat());
    assert!(o.status.success() && serde_json::from_slice::<serde_json::Value>(&o.stdout).is_ok());
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("<svg "));
}

/// Every element that opens closes, in order; attributes are quoted; text has no bare markup.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>') && open.len() < 20, "{}", &rest[..at]);
        let end = rest[at..].find('>').unwrap() + at;
        let tag = &rest[at + 1..end];
        assert!(!tag.contains('<') && tag.matches('"').count().is_multiple_of(2), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty());
}

#[test]
fn drawings_are_well_formed() {
    let dir = Scratch::new("svg");
    let file = dir.path("a.svg");
    for args in [
        &["block,*", "*,block", "--shape", "12x8", "--units", "4,3"][..],
        &["block[1],*@2x3", "cyclic,cyclic(3)@2x2", "--shape", "240x90", "--units", "6,4"],
        &["block,*,block@2x3", "--shape", "8x6x6", "--units", "6"],
        &["block", "balanced", "--shape", "1000000", "--units", "40,64"],
        &["cyclic(3),*", "--shape", "1000000x7", "--units", "5"],
        &["block,*", "--shape", "0x7", "--units", "5"],
        &["*,*,*,*", "--shape", "2x2x2x2", "--units", "1"],
    ] {
        show(&[args, &["--svg", &file]].concat());
        let svg = std::fs::read_to_string(&file).unwrap();
        assert_well_formed(&svg);
        assert!(svg.len() < 1 << 20, "{} bytes", svg.len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{args:?}");
    }
    let svg = show(&["block,*", "--shape", "4x4", "--units", "2", "--svg", "-"]);
    assert!(svg.starts_with("<svg ") && svg.contains("unit 1 [2:4, 0:4]"));
}

#[test]
fn doctor_in_two_forms() {
    let o = output(&["doctor", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let findings = value.as_array().unwrap();
    assert!(findings.iter().all(|f| f["name"].is_string() && f["found"].is_string()));
    let missing = findings.iter().any(|f| f["state"] == "missing");
    assert_eq!(o.status.code(), Some(i32::from(missing)));
    assert!(text(&output(&["doctor"]).stdout).lines().count() > 10);
}
