//! A pipe of four units on two hosts: of each program one on each. What lies on a unit's own host it maps,
//! the rest it gets from the network, within one step.
//!
//! Where the system allows no namespaces, the test says so and all four are on this host.

mod common;

use common::net::trust;
use common::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Options, PipeError, Reader, Writer};
use polyduct_port::PortError;
use polyduct_rig::hosts::{next_line, plug_in, tell, two_hosts, Other};

const NAME: &str = "units_of_both_hosts";
const ARGS: [&str; 3] = [NAME, "--exact", "--nocapture"];
const SHAPE: [u64; 2] = [256, 384];
/// Whether the other host is killed, the queue's policy, and whether the network is trusted.
const CASES: [(bool, &str, bool); 6] = [
    (false, "block", true),
    (false, "block", false),
    (false, "latest", true),
    (false, "drop_oldest", false),
    (true, "block", true),
    (true, "block", false),
];
const STEPS: u64 = 60;

#[test]
fn units_of_both_hosts() {
    two_hosts(&ARGS, "mixed", host_a, host_b);
}

fn place(host: &str, port: u16) -> PipeAddress {
    PipeAddress::new(host, port, "field")
}

fn host_a(cable: bool) {
    for (case, (killed, policy, trusted)) in CASES.into_iter().enumerate() {
        let mut other = Other::start(&ARGS, cable);
        let port = 7200 + case as u16;
        other.say(&format!("{policy} {trusted} {port} {} {killed}", other.mine));
        let at = place(other.mine, port);
        std::thread::scope(|s| {
            let writer = s.spawn(|| write(&at, policy, trusted, 0, killed));
            let reader = s.spawn(|| read(&at, trusted, 0, killed));
            if killed {
                other.hear("step");
                other.kill();
            }
            let (writer, reader) = (writer.join().unwrap(), reader.join().unwrap());
            for end in [writer, reader] {
                match end {
                    Err(PipeError::Port(PortError::PeerLost { peer, .. })) if killed => {
                        assert_eq!(peer.unit, 1)
                    }
                    end => assert!(!killed && end.is_ok(), "{end:?}"),
                }
            }
            if !killed {
                (0..2).for_each(|_| drop(other.hear("end")));
            }
        });
    }
    println!("mixed: {} pipes, cable: {cable}", CASES.len());
}

fn host_b() {
    plug_in();
    let line = next_line();
    let words: Vec<&str> = line.split(' ').collect();
    let (policy, trusted, killed) = (words[0], words[1] == "true", words[4] == "true");
    let at = place(words[3], words[2].parse().unwrap());
    std::thread::scope(|s| {
        s.spawn(|| {
            write(&at, policy, trusted, 1, killed).unwrap();
            tell("end");
        });
        s.spawn(|| {
            read(&at, trusted, 1, killed).unwrap();
            tell("end");
        });
    });
}

fn write(at: &PipeAddress, policy: &str, trusted: bool, unit: u32, endless: bool) -> Result<(), PipeError> {
    let given = Given::Dataset(Dataset::new(&SHAPE, ElemType::U64).unwrap());
    let options = Options { policy: policy.parse().unwrap(), near: true, ..writer_options(unit, 2) };
    let mut w = Writer::open((at, &trust(trusted)), &given, "block,*", &options)?;
    let indices = local_indices(w.mapping(), unit.into());
    while endless || w.next_step() < STEPS {
        let n = w.next_step();
        let mut slot = w.step()?;
        fill(&mut slot, &indices, n);
        slot.publish()?;
    }
    w.close().map(drop)
}

fn read(at: &PipeAddress, trusted: bool, unit: u32, endless: bool) -> Result<(), PipeError> {
    let options = Options { near: true, ..reader_options("r", unit, 2) };
    let mut r = Reader::open((at, &trust(trusted)), "*,block", &Expect::default(), &options)?;
    let indices = local_indices(r.mapping(), unit.into());
    let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
    let mut last = None;
    while let Some(step) = r.read(&mut part)? {
        fill(&mut expected, &indices, step);
        assert!(part == expected, "step {step} is torn");
        assert!(last < Some(step));
        last = Some(step);
        if endless && step == 20 && unit == 1 {
            tell("step");
        }
    }
    Ok(())
}
