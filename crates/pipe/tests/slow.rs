//! Slow and stopped readers, by a real SIGSTOP: memory stays what was declared, and the policy decides who
//! waits.

mod common;

use common::{reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_os::process::{PidFd, ProcessId};
use polyduct_pipe::{Expect, Given, Options, PipeError, Policy, Reader, Writer};
use polyduct_port::PortError;
use polyduct_rig::{say, tests, Unit};
use rustix::process::Signal;
use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const LEN: u64 = 4096;

/// Longest wait for a step: who misses it then has missed it.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a rate is measured over.
const SLICE: Duration = Duration::from_millis(40);
/// How often rates are measured, at most.
const ATTEMPTS: u32 = 15;

fn main() {
    // One at a time: they look at the memory of this process, and at rates.
    polyduct_rig::main(
        read,
        tests![
            under_block_a_stopped_reader_holds_the_writer_within_the_depth,
            under_the_lossy_policies_a_stopped_reader_holds_nobody,
            a_slow_reader_gets_the_newest_or_the_oldest,
        ],
    );
}

/// A reader process. Each line that it is told names a step; it is answered by the number of steps read, when
/// none before that one is to come any more. The end of its input ends it.
fn read(spec: &str) {
    let (pipe, program) = spec.split_once(' ').unwrap();
    let mut r = Reader::open(pipe, "*", &Expect::default(), &reader_options(program, 0, 1)).unwrap();
    // Steps read, and the number of the next that may come.
    let progress = Arc::new((Mutex::new((0, 0)), Condvar::new()));
    let read = progress.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let until: u64 = line.unwrap().parse().unwrap();
            let held = progress.0.lock().unwrap();
            let (held, _) = progress.1.wait_timeout_while(held, PATIENCE, |(_, next)| *next < until).unwrap();
            say(&held.0.to_string());
        }
        std::process::exit(0);
    });
    let mut part = vec![0; LEN as usize];
    while let Ok(Some(step)) = r.read(&mut part) {
        assert!(part.chunks(8).all(|c| c == step.to_le_bytes()), "step {step} is torn");
        let mut held = read.0.lock().unwrap();
        *held = (held.0 + 1, step + 1);
        read.1.notify_one();
    }
    loop {
        std::thread::park(); // the count may still be asked for
    }
}

fn start(pipe: &str, program: &str) -> Unit {
    Unit::start(format!("reader {program}"), &format!("{pipe} {program}"))
}

/// Steps that a reader has read, once it has got beyond all steps before `until`.
fn count_at(reader: &mut Unit, until: u64) -> u64 {
    let count = reader.ask(&until.to_string());
    count.expect("a reader ended early").parse().unwrap()
}

/// Stops a reader where it is, and waits until it has stopped.
fn stop(reader: &Unit) {
    signal(reader, Signal::STOP);
    let stat = format!("/proc/{}/stat", reader.pid());
    let stopped = || std::fs::read_to_string(&stat).unwrap().rsplit(") ").next().unwrap().starts_with('T');
    while !stopped() {
        std::thread::yield_now();
    }
}

fn go_on(reader: &Unit) {
    signal(reader, Signal::CONT);
}

fn signal(reader: &Unit, signal: Signal) {
    let process = PidFd::of(ProcessId::of(reader.pid()).unwrap()).unwrap();
    process.send_signal(signal).unwrap();
}

/// Bytes of this process that lie in memory.
fn resident() -> u64 {
    let mut statm = String::new();
    std::fs::File::open("/proc/self/statm").unwrap().read_to_string(&mut statm).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn open(pipe: &str, policy: Policy, depth: u32, readers: u32, timeout: Duration) -> Writer {
    let data = Dataset::new(&[LEN / 8], ElemType::U64).unwrap();
    let timeout = Some(timeout);
    let readers = readers.into();
    let options = Options { policy, depth, readers, timeout, ..writer_options(0, 1) };
    Writer::open(pipe, &Given::Dataset(data), "*", &options).unwrap()
}

fn write(w: &mut Writer) -> Result<bool, PipeError> {
    let step = w.next_step().to_le_bytes();
    let mut slot = w.step()?;
    slot.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&step));
    slot.publish()
}

/// Writes for some time, at the pace of a reader that goes on (flat out, three processes on two cores would
/// mostly measure the scheduler); returns the steps a second that were written, and those that the reader
/// got.
fn write_for(w: &mut Writer, reader: &mut Unit, time: Duration) -> (f64, f64) {
    let (start, first) = (Instant::now(), w.next_step());
    let before = count_at(reader, 0);
    let mut after = before;
    while start.elapsed() < time {
        write(w).unwrap();
        after = count_at(reader, w.next_step());
    }
    let rate = |steps: u64| steps as f64 / start.elapsed().as_secs_f64();
    (rate(w.next_step() - first), rate(after - before))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn under_block_a_stopped_reader_holds_the_writer_within_the_depth() {
    for depth in [1, 2, 5] {
        let pipe = unique("hold");
        let mut readers = ["a", "b"].map(|program| start(&pipe, program));
        let mut w = open(&pipe, Policy::Block, depth, 2, Duration::from_millis(100));
        for _ in 0..200 {
            while write(&mut w).is_err() {}
        }
        stop(&readers[0]);
        let (before, memory) = (w.next_step(), resident());
        let held = loop {
            if let Err(e) = write(&mut w) {
                break e;
            }
            assert!(w.next_step() <= before + u64::from(depth), "the writer runs beyond its {depth} slots");
        };
        assert!(matches!(held, PipeError::Port(PortError::Timeout { .. })), "{held}");
        for _ in 0..3 {
            assert!(matches!(write(&mut w), Err(PipeError::Port(PortError::Timeout { .. }))));
        }
        assert!(resident() < memory + (1 << 20), "memory grew while the reader was stopped");
        // The other program gets all that there is.
        assert_eq!(count_at(&mut readers[1], w.next_step()), w.next_step(), "the other program misses steps");
        go_on(&readers[0]);
        for _ in 0..200 {
            while write(&mut w).is_err() {}
        }
        let all = w.close().unwrap().steps;
        assert!(readers.iter_mut().all(|r| count_at(r, all) == all), "steps are missing");
    }
}

fn under_the_lossy_policies_a_stopped_reader_holds_nobody() {
    for policy in [Policy::Latest, Policy::DropOldest, Policy::DropNewest] {
        for depth in [2, 4] {
            let pipe = unique("free");
            let mut readers = ["a", "b"].map(|program| start(&pipe, program));
            let mut w = open(&pipe, policy, depth, 2, Duration::from_secs(20));
            write_for(&mut w, &mut readers[1], SLICE);
            let memory = resident();
            // Others use this machine, too: a rate that does not fall is seen once, one that falls never.
            let rates = (0..ATTEMPTS).map(|_| rates_while_one_is_stopped(&mut w, &mut readers));
            let rates: Vec<_> = rates.scan(false, until_it_holds).collect();
            println!(
                "{policy}, {depth} slots, one of two programs stopped: writer, other reader {rates:.2?}"
            );
            assert!(
                rates.iter().any(holds),
                "{policy}, {depth} slots: they fall to {rates:.2?} of their rates"
            );
            assert!(resident() < memory + (1 << 20), "memory grew while a reader was stopped");
        }
    }
}

fn holds((writer, reader): &(f64, f64)) -> bool {
    *writer >= 0.9 && *reader >= 0.9
}

/// All up to the first that holds.
fn until_it_holds(over: &mut bool, rates: (f64, f64)) -> Option<(f64, f64)> {
    (!std::mem::replace(over, *over || holds(&rates))).then_some(rates)
}

/// The rates of the writer and of the other reader while one is stopped, in parts of those while none is.
fn rates_while_one_is_stopped(w: &mut Writer, readers: &mut [Unit; 2]) -> (f64, f64) {
    let (mut with, mut without) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for _ in 0..9 {
        for stopped in [false, true] {
            if stopped {
                stop(&readers[0]);
            }
            let (written, read) = write_for(w, &mut readers[1], SLICE);
            let (rates, reads) = if stopped { &mut without } else { &mut with };
            rates.push(written);
            reads.push(read);
            go_on(&readers[0]);
        }
    }
    let ratio = |a: Vec<f64>, b: Vec<f64>| median(a) / median(b).max(1.0);
    (ratio(without.0, with.0), ratio(without.1, with.1))
}

/// A reader that takes its time, in the same process: it gets what the policy says.
fn a_slow_reader_gets_the_newest_or_the_oldest() {
    for (policy, depth) in [(Policy::Latest, 2), (Policy::DropOldest, 3), (Policy::DropNewest, 3)] {
        let pipe = unique("slow");
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            let (pipe, done) = (&pipe, &done);
            s.spawn(move || {
                let mut w = open(pipe, policy, depth, 1, Duration::from_secs(20));
                let taken: Vec<bool> = (0..100).map(|_| write(&mut w).unwrap()).collect();
                assert_eq!(taken.iter().filter(|t| **t).count() as u64, w.stats().steps);
                if policy == Policy::DropNewest {
                    assert!(
                        taken[..depth as usize].iter().all(|t| *t)
                            && !taken[depth as usize..].contains(&true)
                    );
                } else {
                    assert!(!taken.contains(&false), "{policy}: what is new has room");
                }
                done.store(true, Ordering::Release);
                w.close().unwrap();
            });
            let mut r = Reader::open(pipe, "*", &Expect::default(), &reader_options("r", 0, 1)).unwrap();
            while !done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let mut part = vec![0; LEN as usize];
            let got: Vec<u64> = std::iter::from_fn(|| r.read(&mut part).unwrap()).collect();
            let expected = match policy {
                Policy::Latest => vec![99],
                Policy::DropOldest => vec![97, 98, 99],
                _ => vec![0, 1, 2],
            };
            assert_eq!(got, expected, "{policy}");
        });
    }
}
