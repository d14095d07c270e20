//! A pipe between two hosts: what arrives, and who learns what when the cable is cut or a process is killed.
//!
//! Where the system allows no namespaces, the test says so and runs between two processes of this host.

mod common;

use common::net::trust;
use common::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Options, PipeError, Reader, Writer};
use polyduct_port::PortError;
use polyduct_rig::hosts::{next_line, plug_in, tell, two_hosts, Other};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const NAME: &str = "two_hosts_and_a_cable";
const ARGS: [&str; 3] = [NAME, "--exact", "--nocapture"];
const SHAPE: [u64; 2] = [512, 512];
/// What happens to each pipe, and whether the network is trusted.
const CASES: [(&str, bool); 8] = [
    ("end", true),
    ("end", false),
    ("kill", true),
    ("kill", false),
    ("cut", true),
    ("cut", false),
    ("break", true),
    ("break", false),
];
/// How long the cable is cut in a break, which nobody is to notice.
const BREAK: Duration = Duration::from_millis(1500);

#[test]
fn two_hosts_and_a_cable() {
    two_hosts(&ARGS, "across hosts", host_a, host_b);
}

fn place(host: &str, port: u16) -> PipeAddress {
    PipeAddress::new(host, port, "field")
}

/// Two writer units here, two reader units there.
fn host_a(cable: bool) {
    for (case, (what, trusted)) in CASES.into_iter().enumerate() {
        let mut other = Other::start(&ARGS, cable);
        let port = 7100 + case as u16;
        other.say(&format!("{what} {trusted} {port} {}", other.mine));
        let at = place(other.mine, port);
        let (told, at) = ((Mutex::new(Vec::new()), Condvar::new()), &at);
        let (all, (ended, changed)) = (std::sync::Barrier::new(3), &told);
        std::thread::scope(|s| {
            for unit in 0..2 {
                let all = &all;
                s.spawn(move || {
                    let end = write(at, (what, trusted), unit, all);
                    ended.lock().unwrap().push((polyduct_os::clock::now(), end));
                    changed.notify_all();
                });
            }
            all.wait();
            other.hear("step");
            let cut = polyduct_os::clock::now();
            let (limit, begun) = match what {
                "cut" => (Duration::from_secs(3), {
                    other.cut();
                    Instant::now()
                }),
                // It has two reader units in one process.
                "kill" => (Duration::from_millis(500), {
                    other.kill();
                    Instant::now()
                }),
                _ => {
                    if what == "break" && cable {
                        other.cut();
                        let none = |ended: &mut Vec<_>| ended.is_empty();
                        let waited = changed.wait_timeout_while(ended.lock().unwrap(), BREAK, none).unwrap();
                        assert!(waited.1.timed_out(), "the break came too late");
                        drop(waited);
                        other.mend();
                    }
                    for unit in 0..2 {
                        assert_eq!(
                            other.hear("end"),
                            steps(what).to_string(),
                            "{what}, trusted {trusted}, {unit}"
                        );
                    }
                    return;
                }
            };
            let left = Duration::from_secs(20).saturating_sub(begun.elapsed());
            let few = |ended: &mut Vec<_>| ended.len() < 2;
            let waited = changed.wait_timeout_while(ended.lock().unwrap(), left, few).unwrap();
            assert!(!waited.1.timed_out(), "{what}: a writer hangs");
            drop(waited);
            for (when, end) in ended.lock().unwrap().iter() {
                let (took, error) = (*when - cut, end.as_ref().unwrap_err());
                println!("across hosts: {what}, trusted {trusted}: known after {took:.1?}: {error}");
                let PipeError::Port(PortError::PeerLost { peer, silence, .. }) = error else {
                    panic!("{error:?}")
                };
                assert!(matches!(peer.side, Some(polyduct_pipe::Side::Reader(0))), "{error}");
                let silent = (what == "cut" && cable).then_some(SILENCE);
                let words = if silent.is_some() { "was not heard for 2 s" } else { "died" };
                assert!(*silence == silent && error.to_string().ends_with(words), "{error}");
                assert!(took < limit, "{what}, trusted {trusted}: {took:?}");
            }
            let errors: Vec<String> =
                ended.lock().unwrap().iter().map(|e| e.1.as_ref().unwrap_err().to_string()).collect();
            assert_eq!(errors[0], errors[1]);
            if what == "cut" && cable {
                // The other side knows it, too.
                for _ in 0..2 {
                    let words = other.hear("lost");
                    let (when, error) = words.split_once(' ').unwrap();
                    let took = Duration::from_secs_f64(when.parse::<f64>().unwrap()).saturating_sub(cut);
                    println!(
                        "across hosts: {what}, trusted {trusted}: known there after {took:.1?}: {error}"
                    );
                    let words = error.contains("writer unit") && error.contains("was not heard for 2 s");
                    assert!(words, "{error}");
                    assert!(took < Duration::from_secs(3), "{took:?}");
                }
            }
        });
        if matches!(what, "end" | "break") {
            told.0.into_inner().unwrap().into_iter().for_each(|(_, end)| end.unwrap());
        }
    }
}

/// How long a host may be silent where the cable is cut for good.
const SILENCE: Duration = Duration::from_secs(2);

fn options(what: &str, of: Options) -> Options {
    let silence = if what == "cut" { SILENCE } else { of.silence };
    Options { timeout: Some(Duration::from_secs(20)), silence, ..of }
}

/// Steps of a stream that comes to its end.
fn steps(what: &str) -> u64 {
    if what == "break" {
        400
    } else {
        20
    }
}

fn write(
    at: &PipeAddress,
    (what, trusted): (&str, bool),
    unit: u32,
    all: &std::sync::Barrier,
) -> Result<(), PipeError> {
    let data = Dataset::new(&SHAPE, ElemType::U64).unwrap();
    let given = Given::Dataset(data);
    let options = options(what, writer_options(unit, 2));
    let opened = Writer::open((at, &trust(trusted)), &given, "block,*", &options);
    all.wait();
    let mut w = opened?;
    let indices = local_indices(w.mapping(), unit.into());
    while !matches!(what, "end" | "break") || w.next_step() < steps(what) {
        let n = w.next_step();
        let mut slot = w.step()?;
        fill(&mut slot, &indices, n);
        slot.publish()?;
    }
    w.close().map(drop)
}

fn host_b() {
    plug_in();
    let line = next_line();
    let words: Vec<&str> = line.split(' ').collect();
    let (what, trusted) = (words[0], words[1] == "true");
    let at = place(words[3], words[2].parse().unwrap());
    std::thread::scope(|s| {
        for unit in 0..2 {
            let at = &at;
            s.spawn(move || match read(at, (what, trusted), unit) {
                Ok(steps) => tell(&format!("end {steps}")),
                Err(e) => tell(&format!("lost {:.6} {e}", polyduct_os::clock::now().as_secs_f64())),
            });
        }
    });
    assert!(what != "kill");
}

fn read(at: &PipeAddress, (what, trusted): (&str, bool), unit: u32) -> Result<u64, PipeError> {
    let options = options(what, reader_options("r", unit, 2));
    let mut r = Reader::open((at, &trust(trusted)), "*,block", &Expect::default(), &options)?;
    let indices = local_indices(r.mapping(), unit.into());
    let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
    let mut steps = 0;
    while let Some(step) = r.read(&mut part)? {
        fill(&mut expected, &indices, step);
        assert!(part == expected, "step {step} is torn");
        steps += 1;
        if steps == 5 && unit == 0 {
            tell("step");
        }
    }
    Ok(steps)
}
