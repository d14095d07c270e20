//! The page of figures has every row, with figures, and leaves nothing behind. What the figures are is not
//! for a busy machine.

mod common;
use common::*;
use serde_json::Value;

#[test]
fn every_part_of_the_page_has_figures_and_the_directory_is_left_as_it_was() {
    let dir = Scratch::new("bench");
    let program = env!("CARGO_BIN_EXE_polyduct");
    let mut command = std::process::Command::new("timeout");
    command.args(["200", program, "bench", "--json", "--rounds", "1", "--dir", &dir.path("")]);
    let o = command.output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
    let Value::Array(rows) = serde_json::from_slice(&o.stdout).unwrap() else {
        panic!("{}", text(&o.stdout))
    };
    let mut parts: Vec<&str> = rows.iter().filter_map(|row| row["part"].as_str()).collect();
    parts.dedup();
    assert_eq!(parts, ["memory", "pipe", "messages", "loopback", "disk"]);
    for row in &rows {
        assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        assert_eq!(row["limit"].is_null(), row["ratio"].is_null(), "{row}");
    }
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0, "nothing is left");
}

#[test]
fn what_cannot_be_measured_is_named() {
    let o = output(&["bench-unit", "{}"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).starts_with("polyduct: bench-unit: "), "{}", text(&o.stderr));
    let o = output(&["bench", "--rounds", "1", "--dir", "/nonexistent/dir"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("/nonexistent/dir: there is no such directory"), "{}", text(&o.stderr));
}
