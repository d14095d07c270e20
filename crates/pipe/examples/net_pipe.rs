//! How fast a pipe across two hosts is: rows to columns, 2 units to 2, steps of 64 MiB, as a ratio to iperf3
//! and to bare TCP connections between the same two in the same run. The hosts are network namespaces with a
//! veth pair; without those, two processes.
//!
//! `cargo run --release -p polyduct-pipe --example net_pipe [-- --json]`
//!
//! iperf3 is the one that `make bench` puts beside the other peers (`.peers`), one stream; without it, its
//! rows are missing.
//!
//! What arrives is checked: the first and the last step element by element, of the others one element in each
//! run. Bias: the writers stamp those elements and the readers look at them, which the bare connections do
//! not do; the bare connections take the better of one and two streams, from a buffer of 128 KiB that stays
//! in the cache.

use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::{JobKey, Place, Trust};
use polyduct_pipe::{Expect, Given, Options, Reader, Writer};
use polyduct_rig::hosts::{next_line, plug_in, role, run_a, tell, Other, Role};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// 64 MiB of f32.
const SIDE: u64 = 4096;
const STEP: u64 = SIDE * SIDE * 4;
/// Steps before the clock starts: as many as fit into the slots, and one more.
const WARM: u64 = 3;
const STEPS: u64 = 30;
const ROUNDS: usize = 5;

/// Ports of host B.
const SINK: u16 = 7900;
const IPERF: u16 = 7901;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match role() {
        Role::A => host_a(true),
        Role::B => host_b(),
        Role::Outside => match run_a(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
            Ok(output) => print!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(why) => {
                println!("no network namespaces here ({why}): two processes of this host");
                host_a(false);
            }
        },
    }
}

/// What a row of the table is compared with, and what has to be reached.
struct Case {
    trusted: bool,
    baseline: &'static str,
    target: Option<f64>,
    /// Rates of the pipe and of the other, in GB/s.
    rounds: Vec<(f64, f64)>,
}

fn cases(with_iperf: bool) -> Vec<Case> {
    let of = |trusted, baseline, target| Case { trusted, baseline, target, rounds: Vec::new() };
    let iperf = [of(true, "iperf3, one stream", Some(0.8)), of(false, "iperf3, one stream", None)];
    let bare = [of(true, "bare TCP", None), of(false, "bare TCP", None)];
    iperf.into_iter().filter(|_| with_iperf).chain(bare).collect()
}

fn host_a(cable: bool) {
    let mut other = Other::start(&[], cable);
    other.hear("sink");
    let mut cases = cases(iperf3().is_some());
    for round in 0..ROUNDS {
        let at = |port| format!("{}:{port}", other.theirs);
        let bare = [1, 2].map(|streams| bare(&at(SINK), streams)).into_iter().fold(0.0, f64::max);
        let iperf = iperf3().map_or(0.0, |program| iperf(&program, &mut other));
        for (i, trusted) in [true, false].into_iter().enumerate() {
            let port = 7200 + (2 * round + i) as u16;
            other.say(&format!("{trusted} {port} {}", other.mine));
            pipe(other.mine, port, trusted);
            let took = [other.hear("read"), other.hear("read")].map(|t| t.parse::<f64>().unwrap());
            let pipe = STEPS as f64 * STEP as f64 / took[0].max(took[1]) / 1e9;
            for case in cases.iter_mut().filter(|c| c.trusted == trusted) {
                case.rounds.push((pipe, if case.baseline == "bare TCP" { bare } else { iperf }));
            }
        }
    }
    other.say("over");
    print(&mut cases, cable, std::env::args().any(|a| a == "--json"));
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The rows of all cases, as `polyduct-bench` prints them.
fn print(cases: &mut [Case], cable: bool, json: bool) {
    let place = if cable { "two namespaces" } else { "two processes" };
    let mut rows = Vec::new();
    for Case { trusted, baseline, target, rounds } in cases {
        let kind = if *trusted { "trusted" } else { "encrypted" };
        let name = format!("pipe across {place}, rows→columns, 64 MiB steps, {kind}");
        let (value, base) = (median(rounds.iter().map(|r| r.0)), median(rounds.iter().map(|r| r.1)));
        let ratio = median(rounds.iter().map(|r| r.0 / r.1));
        let wanted = target.map_or("right".to_owned(), |t| format!("≥ {t} x"));
        let ok = target.is_none_or(|t| ratio >= t);
        rows.push(match json {
            true => format!(
                r#"  {{"name": "{name}", "value": {value:.3}, "unit": "GB/s", "baseline": "{baseline}", "baseline_value": {base:.3}, "ratio": {ratio:.3}, "target": "{wanted}", "ok": {ok}}}"#
            ),
            false => {
                let mark = if ok { "ok" } else { "short" };
                format!("{name:<70} {value:>6.2} GB/s  {baseline:<18} {base:>6.2}  {ratio:>5.2}  {wanted:<8} {mark}")
            }
        });
    }
    match json {
        true => println!("[\n{}\n]", rows.join(",\n")),
        false => println!("{}", rows.join("\n")),
    }
}

fn iperf3() -> Option<PathBuf> {
    let program = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.peers/bin/iperf3"));
    program.exists().then_some(program)
}

/// What iperf3 receives on one stream, in GB/s.
fn iperf(program: &PathBuf, other: &mut Other) -> f64 {
    other.say("iperf3");
    other.hear("iperf3");
    let (at, port, bytes) = (other.theirs, IPERF.to_string(), (16 * STEP).to_string());
    let done = Command::new(program).args(["-J", "-c", at, "-p", &port, "-n", &bytes]).output().unwrap();
    let report = String::from_utf8_lossy(&done.stdout);
    let received =
        report.split("\"sum_received\"").nth(1).and_then(|r| r.split("\"bits_per_second\":").nth(1));
    let number = received.and_then(|r| r.split([',', '}']).next()).map(str::trim);
    let rate = number.and_then(|n| n.parse::<f64>().ok());
    rate.unwrap_or_else(|| panic!("iperf3 says {report}")) / 8e9
}

/// Host B serves one client of iperf3.
fn serve_iperf(mine: &str) {
    let Some(program) = iperf3() else { return };
    let mut command = Command::new(program);
    command.args(["-s", "-1", "--forceflush", "-B", mine, "-p", &IPERF.to_string()]).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("listening")).unwrap();
    tell("iperf3");
    lines.for_each(drop);
    server.wait().unwrap();
}

fn bare(at: &str, streams: usize) -> f64 {
    let each = 16 * STEP as usize / streams;
    let begun = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..streams {
            s.spawn(|| {
                let mut stream = TcpStream::connect(at).unwrap();
                let block = vec![1; 128 << 10];
                (0..each / block.len()).for_each(|_| stream.write_all(&block).unwrap());
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                stream.read_exact(&mut [0]).unwrap();
            });
        }
    });
    16.0 * STEP as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn place(host: &str, port: u16) -> Place {
    Place { host: host.into(), port, name: "figure".into() }
}

fn trust(trusted_network: bool) -> Trust {
    Trust { key: JobKey::from_bytes([9; 32]).unwrap(), trusted_network }
}

fn options(unit: u32, program: &str) -> Options {
    let timeout = Some(Duration::from_secs(60));
    Options { unit, units: 2, program: program.into(), timeout, ..Options::default() }
}

fn data() -> Dataset {
    Dataset::new(&[SIDE, SIDE], ElemType::F32).unwrap()
}

/// The value of an element that is not stamped, as a function of its row and column.
fn value(row: u64, column: u64) -> u32 {
    (row * 65_537 + column * 31) as u32
}

fn pipe(host: &str, port: u16, trusted: bool) {
    std::thread::scope(|s| {
        for unit in [0u32, 1] {
            s.spawn(move || {
                let given = Given::Dataset(data());
                let opened = Writer::open(
                    (&place(host, port), &trust(trusted)),
                    &given,
                    "block,*",
                    &options(unit, "w"),
                );
                let mut w = opened.unwrap();
                let rows = SIDE / 2;
                for step in 0..WARM + STEPS {
                    let mut slot = w.step().unwrap();
                    if step < WARM {
                        for (i, e) in slot.chunks_exact_mut(4).enumerate() {
                            let (row, column) = (i as u64 / SIDE + u64::from(unit) * rows, i as u64 % SIDE);
                            e.copy_from_slice(&value(row, column).to_le_bytes());
                        }
                    }
                    // The first element of each run, of which a row has two.
                    for run in slot.chunks_exact_mut(SIDE as usize * 2) {
                        run[..4].copy_from_slice(&(step as u32).to_le_bytes());
                    }
                    slot.publish().unwrap();
                }
                w.close().unwrap();
            });
        }
    });
}

fn host_b() {
    let (_, mine) = plug_in();
    let sink = TcpListener::bind((&mine[..], SINK)).unwrap();
    tell("sink");
    std::thread::spawn(move || loop {
        let (mut stream, _) = sink.accept().unwrap();
        std::thread::spawn(move || {
            let mut block = vec![0; 128 << 10];
            while stream.read(&mut block).unwrap() > 0 {}
            stream.write_all(&[1]).unwrap();
        });
    });
    loop {
        let line = next_line();
        let words: Vec<&str> = line.split(' ').collect();
        if words == ["iperf3"] {
            serve_iperf(&mine);
            continue;
        }
        let [trusted, port, host] = words[..] else { return };
        let (trusted, at) = (trusted == "true", place(host, port.parse().unwrap()));
        std::thread::scope(|s| {
            for unit in 0..2 {
                let at = &at;
                s.spawn(move || read(at, trusted, unit));
            }
        });
    }
}

fn read(at: &Place, trusted: bool, unit: u32) {
    let opened = Reader::open((at, &trust(trusted)), "*,block", &Expect::default(), &options(unit, "r"));
    let mut r = opened.unwrap();
    let mut part = vec![0; r.local_len_bytes()];
    let columns = SIDE / 2;
    let (mut begun, mut ended) = (Instant::now(), Instant::now());
    while let Some(step) = r.read(&mut part).unwrap() {
        ended = Instant::now();
        for run in part.chunks_exact(columns as usize * 4) {
            assert_eq!(run[..4], (step as u32).to_le_bytes(), "step {step}");
        }
        if step == 0 || step + 1 == WARM + STEPS {
            for (i, e) in
                part.chunks_exact(4).enumerate().filter(|(i, _)| !(*i as u64).is_multiple_of(columns))
            {
                let (row, column) = (i as u64 / columns, i as u64 % columns + u64::from(unit) * columns);
                assert_eq!(e, value(row, column).to_le_bytes(), "step {step}, element {row}, {column}");
            }
        }
        if step + 1 == WARM {
            begun = Instant::now();
        }
    }
    tell(&format!("read {}", (ended - begun).as_secs_f64()));
}
