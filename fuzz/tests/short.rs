//! Each target survives a short run from fixed seeds, all at once.

use std::process::{Command, Stdio};

const TARGETS: [&str; 21] = [
    env!("CARGO_BIN_EXE_fuzz-layout-text"),
    env!("CARGO_BIN_EXE_fuzz-handshake"),
    env!("CARGO_BIN_EXE_fuzz-noise"),
    env!("CARGO_BIN_EXE_fuzz-npy-header"),
    env!("CARGO_BIN_EXE_fuzz-safetensors"),
    env!("CARGO_BIN_EXE_fuzz-zarr"),
    env!("CARGO_BIN_EXE_fuzz-file-words"),
    env!("CARGO_BIN_EXE_fuzz-store-manifest"),
    env!("CARGO_BIN_EXE_fuzz-store-unit"),
    env!("CARGO_BIN_EXE_fuzz-frame"),
    env!("CARGO_BIN_EXE_fuzz-config"),
    env!("CARGO_BIN_EXE_fuzz-url"),
    env!("CARGO_BIN_EXE_fuzz-shm"),
    env!("CARGO_BIN_EXE_fuzz-domain-words"),
    env!("CARGO_BIN_EXE_fuzz-domain-unit"),
    env!("CARGO_BIN_EXE_fuzz-pipe-words"),
    env!("CARGO_BIN_EXE_fuzz-pipe-stream"),
    env!("CARGO_BIN_EXE_fuzz-bundle"),
    env!("CARGO_BIN_EXE_fuzz-display-head"),
    env!("CARGO_BIN_EXE_fuzz-display-client"),
    env!("CARGO_BIN_EXE_fuzz-stream-words"),
];

#[test]
fn every_target_survives_a_short_run() {
    let start = |target| {
        let mut command = Command::new(target);
        command.args(["--seconds", "5"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for (target, run) in TARGETS.map(|target| (target, start(target))) {
        let output = run.wait_with_output().unwrap();
        let [said, error] = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
        assert!(output.status.success(), "{target}: {said}{error}");
        assert!(said.ends_with("inputs, no finding\n"), "{target}: {said}");
        println!("{target}: {said}");
    }
}
