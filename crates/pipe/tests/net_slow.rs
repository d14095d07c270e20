//! Pipes across hosts whose units compute for longer than a host may be silent: nobody is taken for dead. The
//! processes are of one host, whose kernel counts a window that is shut as one between two hosts would.

mod common;

use common::net::{place, trust, Across, Near, NetPipe};
use common::{reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_os::process::{parent_id, PidFd, ProcessId};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Options, Reader, Writer};
use polyduct_rig::{say, tests, Unit};
use std::time::Duration;

const STEPS: u64 = 4;
/// Megabytes of a part, and how long the reader computes between two steps.
const CASES: [(u64, u64); 3] = [(16, 3000), (6, 4000), (64, 3000)];

fn main() {
    polyduct_rig::main(
        unit,
        tests![a_reader_that_computes_is_not_taken_for_dead, few_threads_send_to_many_readers],
    );
}

/// One process: `role host port trusted megabytes pause`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let number = |i: usize| f[i].parse::<u64>().unwrap();
    let place = PipeAddress::new(f[1], number(2) as u16, "slow");
    let trust = trust(f[3] == "true");
    if f[0] == "t" {
        return many(&Across { place, trust, near: Near::None });
    }
    let timeout = Some(Duration::from_secs(60));
    if f[0] == "w" {
        let data = Dataset::new(&[number(4) << 17], ElemType::U64).unwrap();
        let options = Options { timeout, ..writer_options(0, 1) };
        let mut w = Writer::open((&place, &trust), &Given::Dataset(data), "*", &options).unwrap();
        for step in 0..STEPS {
            let mut slot = w.step().unwrap();
            slot.fill(step as u8 + 1);
            slot.publish().unwrap();
        }
        w.close().unwrap();
    } else {
        let options = Options { timeout, ..reader_options("r", 0, 1) };
        let mut r = Reader::open((&place, &trust), "*", &Expect::default(), &options).unwrap();
        let test = PidFd::of(ProcessId::of(parent_id()).unwrap()).unwrap();
        let mut part = vec![0; r.local_len_bytes()];
        while let Some(step) = r.read(&mut part).unwrap() {
            assert!(part.iter().all(|&b| b == step as u8 + 1), "step {step} is torn");
            // It computes, for as long as the test is there.
            assert!(!test.exited_within(Duration::from_millis(number(5))).unwrap(), "the test has ended");
        }
        assert_eq!(r.stats().steps, STEPS);
    }
    say("end");
}

fn a_reader_that_computes_is_not_taken_for_dead() {
    let mut units = Vec::new();
    for (case, trusted) in CASES.iter().flat_map(|case| [(case, true), (case, false)]) {
        let (at, (megabytes, pause)) = (place(), case);
        for role in ["w", "r"] {
            let spec = format!("{role} {} {} {trusted} {megabytes} {pause}", at.host, at.port);
            let name = format!("{role} of {megabytes} MiB every {pause} ms, trusted {trusted}");
            units.push(Unit::start(name, &spec));
        }
    }
    for unit in &mut units {
        assert_eq!(unit.end(), "end", "{}", unit.name);
    }
}

/// Readers of one writer.
const READERS: u32 = 24;

/// A writer and many readers in this process, which says how many threads send.
fn many(at: &Across) {
    let data = Dataset::new(&[u64::from(READERS)], ElemType::U64).unwrap();
    let readers = [("block", READERS)];
    let mut pipe = NetPipe::new(&data, "block", 1, &readers);
    (pipe.at.place, pipe.at.trust, pipe.at.near) = (at.place.clone(), at.trust.clone(), Near::None);
    pipe.run(
        |mut w, _| {
            (0..STEPS).for_each(|step| assert!(w.write(&[step as u8; 8 * READERS as usize]).unwrap()));
            let named = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let names = tasks.filter_map(|task| named(task.ok()?));
            say(&format!("threads {}", names.filter(|name| name.starts_with("polyduct-send")).count()));
            w.close().unwrap();
        },
        |mut r, _, _| {
            let mut part = [0; 8];
            (0..STEPS).for_each(|step| {
                assert_eq!((r.read(&mut part).unwrap(), part), (Some(step), [step as u8; 8]));
            });
        },
    );
    say("end");
}

fn few_threads_send_to_many_readers() {
    let at = place();
    let mut unit = Unit::start("many", &format!("t {} {} true", at.host, at.port));
    assert!(unit.wait_line("threads"));
    let threads: usize = unit.last().split(' ').nth(1).unwrap().parse().unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!((1..=processors.min(8)).contains(&threads), "{threads} threads for {READERS} readers");
    assert_eq!(unit.end(), "end");
}
