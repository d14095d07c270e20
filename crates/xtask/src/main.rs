//! Project chores: `cargo run -p polyduct-xtask -- deps` compares the crates' dependencies with the design's
//! table.

use serde_json::Value;
use std::process::{Command, ExitCode};

/// What each crate may use of the others: the table of the design's section 4. `polyduct` and the surfaces
/// are as there; development dependencies are free. `polyduct-rig`, which tests share, is used by tests, fuzz
/// targets and the laboratory only.
const ALLOWED: &[(&str, &[&str])] = &[
    ("polyduct-layout", &[]),
    ("polyduct-copy", &["polyduct-layout"]),
    ("polyduct-os", &[]),
    // What loom checks, below those that carry it out.
    ("polyduct-ring", &["polyduct-os"]),
    ("polyduct-slots", &["polyduct-os", "polyduct-port"]),
    ("polyduct-message", &["polyduct-os", "polyduct-copy", "polyduct-ring"]),
    ("polyduct-port", &["polyduct-layout"]),
    (
        "polyduct-pipe",
        &[
            "polyduct-layout",
            "polyduct-copy",
            "polyduct-os",
            "polyduct-message",
            "polyduct-port",
            "polyduct-slots",
        ],
    ),
    (
        "polyduct-store",
        &["polyduct-layout", "polyduct-copy", "polyduct-os", "polyduct-message", "polyduct-port"],
    ),
    (
        "polyduct-stream",
        &["polyduct-layout", "polyduct-copy", "polyduct-os", "polyduct-message", "polyduct-port"],
    ),
    (
        "polyduct",
        &[
            "polyduct-layout",
            "polyduct-copy",
            "polyduct-os",
            "polyduct-message",
            "polyduct-port",
            "polyduct-pipe",
            "polyduct-store",
            "polyduct-stream",
            "polyduct-display",
        ],
    ),
    ("polyduct-display", &["polyduct-os", "polyduct-layout"]),
    ("polyduct-cli", &["polyduct"]),
    ("polyduct-python", &["polyduct"]),
    ("polyduct-capi", &["polyduct"]),
    ("polyduct-fabric-provider", &["polyduct-message"]),
    // The laboratory measures the parts apart, and prints as the command does.
    (
        "polyduct-bench",
        &[
            "polyduct",
            "polyduct-cli",
            "polyduct-copy",
            "polyduct-layout",
            "polyduct-message",
            "polyduct-os",
            "polyduct-port",
            "polyduct-rig",
            "polyduct-store",
        ],
    ),
    // Two surfaces in one package, neither of which knows the other.
    ("polyduct-wheel", &["polyduct-cli", "polyduct-python"]),
    // The third; the others are there for their features alone.
    ("polyduct-wheel-c", &["polyduct-capi", "polyduct-cli", "polyduct-python"]),
    ("polyduct-rig", &["polyduct-os"]),
    (
        "polyduct-fuzz",
        &[
            "polyduct",
            "polyduct-copy",
            "polyduct-display",
            "polyduct-layout",
            "polyduct-message",
            "polyduct-os",
            "polyduct-pipe",
            "polyduct-rig",
            "polyduct-slots",
            "polyduct-store",
            "polyduct-stream",
        ],
    ),
    ("polyduct-xtask", &[]),
];

/// Crates in which `unsafe` may stand; in `polyduct-rig` it traces the programs of tests and counts what they
/// allocate.
const MAY_BE_UNSAFE: &[&str] = &[
    "polyduct-capi",
    "polyduct-copy",
    "polyduct-fabric-provider",
    "polyduct-message",
    "polyduct-os",
    "polyduct-python",
    "polyduct-rig",
];

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("deps") => match check() {
            Ok(n) => {
                println!("{n} crates use what the design lets them use");
                ExitCode::SUCCESS
            }
            Err(faults) => {
                faults.iter().for_each(|f| eprintln!("{f}"));
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: cargo run -p polyduct-xtask -- deps");
            ExitCode::from(2)
        }
    }
}

fn check() -> Result<usize, Vec<String>> {
    let out = Command::new(std::env::var("CARGO").unwrap_or("cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|e| vec![format!("cargo metadata: {e}")])?;
    let metadata: Value =
        serde_json::from_slice(&out.stdout).map_err(|e| vec![format!("cargo metadata: {e}")])?;
    let faults = faults(&metadata);
    if faults.is_empty() {
        Ok(packages(&metadata).count())
    } else {
        Err(faults)
    }
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn faults(metadata: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages(metadata) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            faults.push(format!("{name}: not in the table of crates"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            if used.starts_with("polyduct") && dependency["kind"] != "dev" && !allowed.contains(&used) {
                faults.push(format!("{name} uses {used}; it may use {allowed:?}"));
            }
        }
        for target in package["targets"].as_array().into_iter().flatten() {
            let is_root =
                target["kind"][0] == "lib" || target["kind"][0] == "bin" || target["kind"][0] == "cdylib";
            let path = target["src_path"].as_str().unwrap_or_default();
            let forbids =
                || std::fs::read_to_string(path).is_ok_and(|s| s.contains("#![forbid(unsafe_code)]"));
            if is_root && name != "polyduct-xtask" && !MAY_BE_UNSAFE.contains(&name) && !forbids() {
                faults.push(format!("{name}: {path} does not forbid unsafe code"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_workspace_keeps_the_table() {
        assert_eq!(check().map(|n| n > 0), Ok(true));
    }

    #[test]
    fn a_forbidden_arrow_is_found() {
        let package = |name: &str, uses: &str, kind: Value| json!({"packages": [{"name": name, "dependencies": [{"name": uses, "kind": kind}], "targets": []}]});
        assert_eq!(faults(&package("polyduct-layout", "polyduct-os", Value::Null)).len(), 1);
        assert_eq!(faults(&package("polyduct-layout", "polyduct-os", json!("dev"))).len(), 0);
        assert_eq!(faults(&package("polyduct-pipe", "polyduct-store", Value::Null)).len(), 1);
        assert_eq!(faults(&package("polyduct-new", "serde", Value::Null)).len(), 1);
        for (name, _) in ALLOWED {
            let wrong = usize::from(!["polyduct-fuzz", "polyduct-bench"].contains(name));
            for kind in [Value::Null, json!("build")] {
                assert_eq!(faults(&package(name, "polyduct-rig", kind)).len(), wrong, "{name}");
            }
            assert_eq!(faults(&package(name, "polyduct-rig", json!("dev"))).len(), 0, "{name}");
        }
    }
}
