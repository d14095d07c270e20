//! A writer whose readers come and go on other hosts never waits for one of them, though its host is cut off
//! in the middle of a step.
//!
//! Where the system allows no namespaces, the test says so, and nothing is cut.

mod common;

use common::net::trust;
use common::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Options, Policy, Reader, Readers, Writer};
use polyduct_rig::hosts::{next_line, plug_in, tell, two_hosts, Other};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ARGS: [&str; 3] = ["a_writer_does_not_wait_for_a_host_that_is_cut_off", "--exact", "--nocapture"];
/// How long silence is borne.
const SILENCE: Duration = Duration::from_secs(3);
/// Longer than a step takes, on a busy machine.
const LONG: Duration = Duration::from_secs(1);

#[test]
fn a_writer_does_not_wait_for_a_host_that_is_cut_off() {
    two_hosts(&ARGS, "cut off", host_a, host_b);
}

fn place(host: &str) -> PipeAddress {
    PipeAddress::new(host, 7300, "any")
}

fn data() -> Dataset {
    Dataset::new(&[512, 1024], ElemType::U64).unwrap()
}

fn host_a(cable: bool) {
    let mut other = Other::start(&ARGS, cable);
    other.say(other.mine);
    let at = place(other.mine);
    let options = Options {
        readers: Readers::Any,
        policy: Policy::Latest,
        depth: 3,
        silence: SILENCE,
        ..writer_options(0, 1)
    };
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = std::thread::scope(|s| {
        let writes = s.spawn(|| {
            let mut w =
                Writer::open((&at, &trust(true)), &Given::Dataset(data()), "block,*", &options).unwrap();
            let (indices, mut longest) = (local_indices(w.mapping(), 0), Duration::ZERO);
            while !stop.load(Ordering::SeqCst) {
                let (start, n) = (Instant::now(), w.next_step());
                let mut slot = w.step().unwrap();
                fill(&mut slot, &indices, n);
                slot.publish().unwrap();
                longest = longest.max(start.elapsed());
                steps.store(n, Ordering::SeqCst);
            }
            w.close().unwrap();
            longest
        });
        other.hear("reads");
        if cable {
            other.cut();
            other.hear("lost");
            // It goes on, with the slots that it has.
            let until = steps.load(Ordering::SeqCst) + 100;
            while steps.load(Ordering::SeqCst) < until && !writes.is_finished() {
                std::thread::yield_now();
            }
            other.mend();
        } else {
            other.say("enough");
            other.hear("lost");
        }
        other.say("again");
        other.hear("again");
        stop.store(true, Ordering::SeqCst);
        writes.join().unwrap()
    });
    other.hear("end");
    println!("cut off, cable {cable}: a step took {longest:?} at most");
    assert!(longest < LONG, "{longest:?}");
}

fn host_b() {
    plug_in();
    let at = place(&next_line());
    let open = |program| {
        let options = Options { silence: SILENCE, ..reader_options(program, 0, 1) };
        Reader::open((&at, &trust(true)), "*,block", &Expect::default(), &options).unwrap()
    };
    let mut r = open("first");
    let indices = local_indices(r.mapping(), 0);
    let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
    let mut read = |r: &mut Reader| {
        let step = r.read(&mut part)?;
        step.into_iter().for_each(|n| fill(&mut expected, &indices, n));
        assert!(part == expected, "step {step:?} is torn");
        Ok::<_, polyduct_pipe::PipeError>(step)
    };
    read(&mut r).unwrap().expect("a step");
    tell("reads");
    // Until it notices that it is cut off, or where there is no cable is told that it has read enough.
    let said = std::thread::spawn(next_line);
    while !said.is_finished() && read(&mut r).is_ok() {}
    drop(r);
    tell("lost");
    if said.join().unwrap() == "enough" {
        assert_eq!(next_line(), "again");
    }
    let mut r = open("second");
    read(&mut r).unwrap().expect("a step");
    tell("again");
    while read(&mut r).unwrap().is_some() {}
    tell("end");
}
