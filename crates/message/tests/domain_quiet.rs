//! The path of small messages calls nobody: no system call, no memory from the allocator, no lock that
//! another thread holds.
//!
//! Both threads are forbidden all system calls but reading and writing before they begin (`seccomp`, strict:
//! the kernel ends a thread that makes one), so the program runs as a child. Meanwhile a third thread uses
//! everything of the domain that has a lock: whoever waited for one would call the kernel.

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Options};
use polyduct_message::{MessageError, Priority};
use polyduct_rig::memory::{most_bytes, Counting};
use rustix::thread::{set_secure_computing_mode, SecureComputingMode};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHILD: &str = "POLYDUCT_TEST_QUIET";
/// What the threads do that are to be quiet; a planted noise shows that the test can fail.
const CASES: [(&str, bool); 5] =
    [("short", true), ("bulk", true), ("system call", false), ("memory", false), ("lock", false)];
const MESSAGES: u64 = 100_000;
const WATCHDOG: Duration = Duration::from_secs(20);
const QUIET: &str = "all was quiet";

fn main() {
    if let Ok(case) = std::env::var(CHILD) {
        return child(&case);
    }
    println!("\nrunning {} tests", CASES.len());
    for (case, quiet) in CASES {
        let output = Command::new(std::env::current_exe().unwrap()).env(CHILD, case).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.contains(QUIET), quiet, "{case}: {said}{}", String::from_utf8_lossy(&output.stderr));
        println!("test {case} ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n", CASES.len());
}

/// Bytes taken from the allocator by the two threads, once they are done.
static TAKEN: [AtomicU64; 2] = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];

/// From here on this thread may not call the system; it never ends.
fn quietly(at: usize, work: impl FnOnce()) -> ! {
    set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
    let ((), bytes) = most_bytes(work);
    TAKEN[at].store(bytes as u64, Ordering::Release);
    loop {
        std::hint::spin_loop();
    }
}

fn join(unit: u32, count: &Arc<AtomicU64>) -> Domain {
    let name = format!("test-quiet-{}", std::process::id());
    let mut options = Options::new(&name, unit, 2);
    // A ring that grows asks the system for memory: this one need not, since it begins with room for four
    // such messages.
    options.config =
        Config::from_sources(None, |name| name.ends_with("_WHOLE").then(|| "1MiB".into())).unwrap();
    let d = Domain::join(options).unwrap();
    let count = count.clone();
    d.handler("count", 1, move |_, m| {
        count.fetch_add(u64::from(m.args[0]), Ordering::Relaxed);
    })
    .unwrap();
    d.synchronise().unwrap();
    d
}

fn child(case: &str) {
    let count = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = std::thread::scope(|s| {
        let other = s.spawn(|| join(1, &count));
        (join(0, &count), other.join().unwrap())
    });
    let (busy, locks) = ([sender.clone(), receiver.clone()], Arc::new(std::sync::Mutex::new(())));
    let mut channel = sender.channel(1, Priority::Low).unwrap();
    let handler = sender.lookup("count", 1).unwrap();
    // The first message makes what both sides need for more.
    channel.bulk(handler, [0; 4], b"first").unwrap();
    receiver.serve_until(Some(polyduct_os::clock::now() + Duration::from_millis(1)), || false).unwrap();
    let (noise, lock) = (case.to_owned(), locks.clone());
    std::thread::spawn(move || {
        let (noise, payload) = (&noise[..], [7; 64]);
        quietly(0, || {
            for _ in 0..MESSAGES {
                // A bulk message would wait for room, asleep in the end.
                while noise == "bulk" && channel.sends_guaranteed().unwrap() < 2 {
                    sender.poll();
                }
                let mut send = || match noise {
                    "bulk" => channel.bulk(handler, [1, 0, 0, 0], &payload),
                    _ => channel.short(handler, [1, 0, 0, 0]),
                };
                while let Err(error) = send() {
                    assert!(matches!(error, MessageError::Full { .. }));
                    sender.poll();
                }
                match noise {
                    "system call" => std::thread::yield_now(),
                    "memory" => drop(std::hint::black_box(vec![0_u8; 100])),
                    "lock" => drop(lock.lock()),
                    _ => {}
                }
            }
        })
    });
    let all = count.clone();
    std::thread::spawn(move || {
        quietly(1, || {
            while all.load(Ordering::Relaxed) < MESSAGES {
                receiver.poll();
            }
        })
    });
    // A thread that makes a call is ended for it, and the other waits in vain.
    let quiet = CASES.iter().any(|&(name, quiet)| name == case && quiet);
    let end = Instant::now() + if quiet { WATCHDOG } else { WATCHDOG / 10 };
    while TAKEN.iter().any(|bytes| bytes.load(Ordering::Acquire) == u64::MAX) && Instant::now() < end {
        for d in &busy {
            let _ = (d.status(), d.lookup("count", 0), d.try_recv(None, None));
        }
        let _held = locks.lock();
        std::thread::yield_now();
    }
    let taken = [&TAKEN[0], &TAKEN[1]].map(|bytes| bytes.load(Ordering::Acquire));
    println!("bytes taken by sender and receiver: {taken:?}");
    if taken == [0, 0] && count.load(Ordering::Relaxed) == MESSAGES {
        println!("{QUIET}");
    }
    // The threads do not end by themselves.
    std::process::exit(0);
}
