//! Rates of reading and writing one file of 256 MiB by two units, beside `dd` and `cp` in the same directory.
//!
//! `cargo run --release -p polyduct-store --example file_speed [DIRECTORY]`

use polyduct_layout::{Dataset, ElemType};
use polyduct_store::{Expect, FileReader, FileWriter, Format, Options};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const UNITS: u32 = 2;
const MIB: f64 = 256.0;

fn both<T: Send>(f: impl Fn(u32, &Barrier) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(UNITS as usize);
    std::thread::scope(|scope| {
        let (f, barrier) = (&f, &barrier);
        let threads: Vec<_> = (0..UNITS).map(|u| scope.spawn(move || f(u, barrier))).collect();
        threads.into_iter().map(|t| t.join().expect("a unit")).collect()
    })
}

fn rate(what: &str, seconds: f64) {
    println!("{what:<44} {:>8.0} MiB/s", MIB / seconds);
}

/// Seconds of a command.
fn command(program: &str, args: &[&str]) -> f64 {
    let start = Instant::now();
    let output = Command::new(program).args(args).output().expect("the command");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    start.elapsed().as_secs_f64()
}

fn main() {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "/tmp".into());
    let dataset = Dataset::new(&[8192, 8192], ElemType::F32).expect("a dataset");
    let file = |name: &str| format!("{dir}/polyduct-speed-{name}");
    let path = file("a.npy");
    let (src, dst) = (file("src"), file("dst"));
    let longest = |all: Vec<Duration>| all.into_iter().max().unwrap_or_default().as_secs_f64();
    for layout in ["block,*", "*,block", "block,*;order=F", "cyclic(64),cyclic(64)", "*,cyclic"] {
        for round in 0..2 {
            let times = both(|unit, barrier| {
                let options = Options::of(unit, UNITS);
                let mut port = FileWriter::open(Path::new(&path), Format::Npy, &dataset, layout, &options)
                    .expect("a port");
                // The part is warm, as a program's own array is.
                let part = vec![unit as u8 + 1; port.local_len_bytes()];
                barrier.wait();
                let start = Instant::now();
                port.write(&part).expect("a step");
                let written = start.elapsed();
                let waited = port.stats().waited;
                barrier.wait();
                let start = Instant::now();
                let stats = port.close().expect("a file");
                (written, start.elapsed(), waited, stats.runs)
            });
            if round == 1 {
                rate(&format!("write {layout}"), longest(times.iter().map(|t| t.0).collect()));
                println!(
                    "    close with fsync {:.3} s; turns waited {:.3} s; {} calls",
                    longest(times.iter().map(|t| t.1).collect()),
                    longest(times.iter().map(|t| t.2).collect()),
                    times[0].3
                );
            }
        }
    }
    command("dd", &["if=/dev/zero", &format!("of={src}"), "bs=1M", "count=256"]);
    for _ in 0..2 {
        let _ = std::fs::remove_file(&dst);
        let seconds = command("dd", &[&format!("if={src}"), &format!("of={dst}"), "bs=1M"]);
        rate("dd bs=1M, file to new file", seconds);
        let _ = std::fs::remove_file(&dst);
        rate("cp, file to new file", command("cp", &["--reflink=never", &src, &dst]));
        rate("dd bs=1M, file to /dev/null", command("dd", &[&format!("if={src}"), "of=/dev/null", "bs=1M"]));
        let _ = std::fs::remove_file(&dst);
        let sync = ["bs=1M", "conv=fsync"];
        let seconds = command("dd", &[&format!("if={src}"), &format!("of={dst}"), sync[0], sync[1]]);
        rate("dd bs=1M conv=fsync", seconds);
    }
    for layout in ["block,*", "*,block", "block,*;order=F", "cyclic(64),cyclic(64)", "*,cyclic"] {
        let times = both(|unit, barrier| {
            let options = Options::of(unit, UNITS);
            let mut best = Duration::MAX;
            let mut part = Vec::new();
            for _ in 0..3 {
                let mut port =
                    FileReader::open(Path::new(&path), Format::Npy, layout, &Expect::default(), &options)
                        .expect("a port");
                part.resize(port.local_len_bytes(), 0);
                barrier.wait();
                let start = Instant::now();
                port.read(&mut part).expect("a step");
                best = best.min(start.elapsed());
            }
            best
        });
        rate(&format!("read {layout} (best of 3)"), longest(times));
    }
    for name in [path, src, dst] {
        let _ = std::fs::remove_file(name);
    }
}
