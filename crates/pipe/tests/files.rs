//! Pipes where descriptors are few: the limit is raised as far as it may be, what is missing is said, and
//! what passes is waited for.

mod common;

use common::{reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_os::socket::{Conn, Received};
use polyduct_os::OsError;
use polyduct_pipe::{Expect, Given, Options, PipeError, Reader, Writer};
use polyduct_rig::{say, tests, Unit};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOBODY: u32 = 65534;

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            many_pipes_raise_the_limit,
            many_pipes_take_few_descriptors,
            the_limit_is_said,
            a_welcome_waits_for_others_on_their_way,
        ],
    );
}

fn unit(spec: &str) {
    match spec {
        "many" => {
            let open: Vec<_> = (0..20).map(|_| pipe(4, 2, 20).unwrap()).collect();
            say(&format!("open {}", open.len()));
        }
        "too many" => {
            let mut open = Vec::new();
            let errors = loop {
                match pipe(4, 2, 3) {
                    Ok(ports) => open.push(ports),
                    Err(errors) => break errors,
                }
            };
            errors.iter().for_each(|e| say(&format!("error {e}")));
            say(&format!("open {}", open.len()));
        }
        "in flight" => in_flight(),
        others => many(others),
    }
}

/// Pipes of 4 writers and 2 readers that are open at once.
const PIPES: usize = 50;

/// One process of them all: `host NAME` has each pipe's unit 0, `reader NAME` one of the readers, `rest NAME`
/// all other units.
fn many(spec: &str) {
    let (role, name) = spec.split_once(' ').unwrap();
    let before = used();
    let data = Dataset::new(&[8], ElemType::U8).unwrap();
    let write =
        |pipe: &str, unit| Writer::open(pipe, &Given::Dataset(data), "block", &writer_options(unit, 4));
    let read =
        |pipe: &str, unit| Reader::open(pipe, "cyclic", &Expect::default(), &reader_options("r", unit, 2));
    let mut open: (Vec<Writer>, Vec<Reader>) = Default::default();
    for pipe in 0..PIPES {
        let pipe = &format!("{name}-{pipe}");
        match role {
            "host" => open.0.push(write(pipe, 0).unwrap()),
            "reader" => open.1.push(read(pipe, 1).unwrap()),
            _ => std::thread::scope(|s| {
                let writers = [1, 2, 3].map(|unit| s.spawn(move || write(pipe, unit).unwrap()));
                open.1.push(read(pipe, 0).unwrap());
                open.0.extend(writers.map(|w| w.join().unwrap()));
            }),
        }
    }
    let after = used();
    say(&format!("uses {} {}", after.0 - before.0, after.1 - before.1));
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Descriptors and threads of this process.
fn used() -> (usize, usize) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    (count("fd"), count("task"))
}

fn many_pipes_take_few_descriptors() {
    let name = unique("many");
    let mut units = ["host", "reader", "rest"].map(|role| Unit::start(role, &format!("{role} {name}")));
    let mut uses = |n: usize| {
        assert!(units[n].wait_line("uses"), "{} has ended", units[n].name);
        let numbers = units[n].last().split(' ').skip(1).map(|n| n.parse::<usize>().unwrap());
        numbers.collect::<Vec<_>>()
    };
    let (host, reader) = (uses(0), uses(1));
    uses(2);
    // Each pipe of unit 0: its name and a spare to turn others away by, what stops its thread, its slots, and
    // a connection to each of the five others. All others: what stops the thread, and the connection. And few
    // for all pipes: the processes of the others.
    for (unit, uses, most) in [("host", host, 9), ("reader", reader, 2)] {
        assert!(uses[0] <= most * PIPES + 10, "{PIPES} pipes take {} descriptors of the {unit}", uses[0]);
        assert!(uses[1] <= PIPES, "{PIPES} pipes take {} threads of the {unit}", uses[1]);
    }
}

type Ports = (Vec<Writer>, Vec<Reader>);

/// Opens a pipe whose units are threads, or gives the errors of those that could not.
fn pipe(writers: u32, readers: u32, seconds: u64) -> Result<Ports, Vec<PipeError>> {
    let (name, data) = (unique("files"), Dataset::new(&[8], ElemType::U8).unwrap());
    let of = |options: Options| Options { open_timeout: Duration::from_secs(seconds), ..options };
    let (ports, errors) = (Mutex::new((Vec::new(), Vec::new())), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        let (name, ports, errors, of) = (&name, &ports, &errors, &of);
        for unit in 0..writers {
            s.spawn(move || {
                match Writer::open(name, &Given::Dataset(data), "block", &of(writer_options(unit, writers))) {
                    Ok(w) => ports.lock().unwrap().0.push(w),
                    Err(e) => errors.lock().unwrap().push(e),
                }
            });
        }
        for unit in 0..readers {
            s.spawn(move || {
                match Reader::open(
                    name,
                    "cyclic",
                    &Expect::default(),
                    &of(reader_options("r", unit, readers)),
                ) {
                    Ok(r) => ports.lock().unwrap().1.push(r),
                    Err(e) => errors.lock().unwrap().push(e),
                }
            });
        }
    });
    let errors = errors.into_inner().unwrap();
    if errors.is_empty() {
        Ok(ports.into_inner().unwrap())
    } else {
        Err(errors)
    }
}

fn limited(limit: &str, spec: &str) -> Unit {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit}; exec \"$0\"")]).arg(std::env::current_exe().unwrap());
    Unit::start_by(command, spec, spec)
}

fn many_pipes_raise_the_limit() {
    assert_eq!(limited("-S -n 64", "many").end(), "open 20");
}

fn the_limit_is_said() {
    let mut unit = limited("-n 100", "too many");
    let last = unit.end();
    let errors: Vec<&String> = unit.seen().iter().filter(|l| l.starts_with("error ")).collect();
    assert!(last.starts_with("open ") && !errors.is_empty(), "{last}");
    assert!(errors.iter().any(|e| e.contains("all 100 that it may have (`ulimit -n`")), "{errors:?}");
    assert!(
        errors.iter().all(|e| !e.contains("could not be read") && !e.contains("broke the protocol")),
        "{errors:?}"
    );
}

/// So many descriptors of this user are on their way that the system takes no more, until the pipe has had to
/// wait for that.
fn in_flight() {
    let (from, to) = Conn::pair().unwrap();
    let fds = [from.as_fd(); 8];
    while from.send(b"x", &fds) != Err(OsError::TooManyInFlight { limit: Some(64) }) {}
    let waits = Arc::new(AtomicBool::new(false));
    let seen = waits.clone();
    let reads = std::thread::spawn(move || {
        while !seen.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let mut buffer = [0; 8];
        while let Ok(Received::Message { .. }) = to.recv(&mut buffer) {}
    });
    let name = unique("flight");
    let data = Dataset::new(&[8], ElemType::U8).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = Writer::open(&name, &Given::Dataset(data), "*", &writer_options(0, 1)).unwrap();
            w.write(&[7; 8]).unwrap();
            w.close().unwrap();
        });
        // Asked while it waits for its welcome.
        let interrupt = move || {
            waits.store(true, Ordering::Release);
            false
        };
        let options = Options { interrupt: Some(Arc::new(interrupt)), ..reader_options("r", 0, 1) };
        let mut r = Reader::open(&name, "*", &Expect::default(), &options).unwrap();
        assert_eq!(r.read(&mut [0; 8]).unwrap(), Some(0));
    });
    reads.join().unwrap();
    say("end");
}

fn a_welcome_waits_for_others_on_their_way() {
    if polyduct_os::process::user_id() != 0 {
        eprintln!("not checked: descriptors on their way; the limit of this user may be in use");
        return;
    }
    // Root may have any number on their way. The build directory may be closed to others.
    let program = std::env::temp_dir().join(unique("flight"));
    polyduct_rig::program::copy(&program);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\""]).arg(&program).current_dir("/").uid(NOBODY);
    let last = Unit::start_by(command, "in flight", "in flight").end();
    std::fs::remove_file(&program).unwrap();
    assert_eq!(last, "end");
}
