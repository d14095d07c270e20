//! Readers that come and go while the writer writes, as processes of their own: `readers="any"`.

mod common;

use common::at::At;
use common::net::{trust, Across, Near};
use common::{fill, local_indices, reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_os::process::{PidFd, ProcessId};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{
    DomainOptions, Expect, Given, Mismatch, OnLoss, Options, PipeError, Policy, Reader, Readers, Refusal,
    Writer,
};
use polyduct_port::PortError;
use polyduct_rig::kills::kills;
use polyduct_rig::{kill_all, say, Random, Unit};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Reader programs that one pipe takes at once.
const MOST: u32 = 8;

/// The same tests on one host and across hosts.
macro_rules! everywhere {
    ($($test:ident),+ $(,)?) => {
        &[$((stringify!($test), $test::<Here> as fn()),
            (concat!(stringify!($test), " across hosts"), $test::<Far>)),+]
    };
}
/// Where a test has its pipe, in words that its processes are told.
trait Place {
    /// Steps for which a writer stays so long that a reader that comes may find it.
    const STAYS: u64;
    fn name() -> String;
}

/// On this host, by name.
struct Here;

impl Place for Here {
    const STAYS: u64 = 1;
    fn name() -> String {
        unique("any")
    }
}

/// Across hosts; which units map the slots of others all the same, depends on the last number.
struct Far;

impl Place for Far {
    const STAYS: u64 = 2000;
    fn name() -> String {
        let place = common::net::place();
        format!("{}:{}", place.host, place.port)
    }
}

/// The place that is meant by these words.
fn at(pipe: &str) -> Box<dyn At> {
    match pipe.split_once(':') {
        None => Box::new(pipe.to_owned()),
        Some((host, port)) => {
            let place = PipeAddress::new(host, port.parse().unwrap(), "any");
            let near = Near::at(&place);
            Box::new(Across { place, trust: trust(true), near })
        }
    }
}

fn main() {
    polyduct_rig::main(
        read,
        everywhere![
            readers_come_leave_and_come_again_while_the_writer_writes,
            who_comes_gets_the_newest_step_at_once,
            a_stopped_program_holds_nobody,
            a_lost_unit_is_the_loss_of_its_program_alone,
            a_lost_unit_is_replaced_where_its_program_waits,
            one_program_too_many_comes_when_another_has_left,
            the_end_comes_to_those_that_are_there,
            who_has_yet_to_take_the_newest_step_has_it_when_the_writer_has_closed,
            who_does_not_read_does_not_keep_a_writer_from_closing,
            who_looked_in_vain_gets_what_is_the_newest_when_it_reads,
            who_comes_to_a_writer_that_leaves_waits_for_the_next,
            who_asks_is_told_and_takes_no_place,
            what_is_held_is_read_whatever_becomes_of_the_writer,
            what_cannot_be_is_said_at_once,
            programs_that_come_and_are_killed_at_any_moment,
        ],
    );
}

fn data() -> Dataset {
    Dataset::new(&[24, 20], ElemType::U64).unwrap()
}

/// A reader process: `pipe program unit units layout wait`. Each line that it is told has it read a step,
/// which it checks and says; `close` has it leave, `hold` map a step and keep it, and `run` read until
/// something ends it. The end of its input ends it.
fn read(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let number = |i: usize| f[i].parse::<u32>().unwrap();
    let on_loss = if f[5] == "wait" { OnLoss::Wait } else { OnLoss::Raise };
    let options = Options { on_loss, ..reader_options(f[1], number(2), number(3)) };
    let mut r = match at(f[0]).reader(f[4], &Expect::default(), &options) {
        Ok(r) => r,
        Err(PipeError::Refused { reason: Refusal::Terms(Mismatch::Full { programs, .. }), .. }) => {
            return say(&format!("full {programs}"))
        }
        Err(e) => return say(&format!("error {e}")),
    };
    let indices = local_indices(r.mapping(), number(2).into());
    say("open");
    let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
    let mut last = None;
    let mut step = |r: &mut Reader| match r.read(&mut part) {
        Ok(Some(n)) => {
            fill(&mut expected, &indices, n);
            assert!(part == expected, "step {n} is torn");
            assert!(last < Some(n), "step {n} after {last:?}");
            last = Some(n);
            Ok(format!("step {n}"))
        }
        Ok(None) => Err("end".to_owned()),
        Err(PipeError::Port(PortError::PeerLost { peer, pid, .. })) => Err(format!("lost {peer} {pid}")),
        Err(e) => Err(format!("error {e}")),
    };
    for line in std::io::stdin().lines() {
        let said = match &*line.unwrap() {
            "close" => {
                r.close().unwrap();
                "closed".to_owned()
            }
            "look" => match polyduct_os::clock::within(Some(Duration::ZERO), || r.peek()) {
                Err(PipeError::Port(PortError::Timeout { .. })) => "nothing".to_owned(),
                looked => format!("{looked:?}"),
            },
            "take" => format!("took {:?}", r.hold().unwrap()),
            "run" => {
                say("runs");
                loop {
                    if let Err(end) = step(&mut r) {
                        break end;
                    }
                }
            }
            _ => step(&mut r).unwrap_or_else(|end| end),
        };
        say(&said);
    }
    std::process::exit(0);
}

/// A unit of a reader program that has been started, but may not be open yet.
fn start_as(pipe: &str, program: &str, (unit, units): (u32, u32), layout: &str, on_loss: &str) -> Unit {
    let spec = format!("{pipe} {program} {unit} {units} {layout} {on_loss}");
    Unit::start(format!("{program} unit {unit}"), &spec)
}

fn start(pipe: &str, program: &str, units: u32, layout: &str) -> Vec<Unit> {
    (0..units).map(|unit| start_as(pipe, program, (unit, units), layout, "raise")).collect()
}

fn opened(units: &mut [Unit]) {
    units.iter_mut().for_each(|unit| assert!(unit.wait_line("open"), "{}: {}", unit.name, unit.last()));
}

/// A reader program that is open.
fn open(pipe: &str, program: &str, units: u32, layout: &str) -> Vec<Unit> {
    let mut program = start(pipe, program, units, layout);
    opened(&mut program);
    program
}

fn ask(unit: &mut Unit, what: &str) -> String {
    unit.ask(what).unwrap_or_else(|| panic!("{} has ended", unit.name))
}

/// The step that all units of a program get next.
fn next(program: &mut [Unit]) -> u64 {
    let said: Vec<String> = program.iter_mut().map(|unit| ask(unit, "step")).collect();
    assert!(said.iter().all(|s| *s == said[0]), "{said:?}");
    said[0].strip_prefix("step ").unwrap_or_else(|| panic!("{}", said[0])).parse().unwrap()
}

fn close(program: &mut [Unit]) {
    program.iter_mut().for_each(|unit| assert_eq!(ask(unit, "close"), "closed"));
}

fn any(unit: u32, units: u32) -> Options {
    let silence = Duration::from_secs(2);
    Options {
        readers: Readers::Any,
        policy: Policy::Latest,
        depth: 4,
        silence,
        ..writer_options(unit, units)
    }
}

fn open_writer(pipe: &str, options: &Options) -> Writer {
    at(pipe).writer(&Given::Dataset(data()), "block,*", options).unwrap()
}

fn write_step(w: &mut Writer, indices: &[u64]) -> bool {
    let n = w.next_step();
    let mut step = w.step().unwrap();
    fill(&mut step, indices, n);
    step.publish().unwrap()
}

/// Two writer units that write as fast as they can until they are told to end, after as many steps.
struct Writing {
    threads: Vec<std::thread::JoinHandle<()>>,
    steps: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
}

impl Writing {
    fn to(pipe: &str) -> Writing {
        let (steps, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let last = Arc::new(AtomicU64::new(u64::MAX));
        let unit = |unit: u32| {
            let (pipe, steps, end, last) = (pipe.to_owned(), steps.clone(), end.clone(), last.clone());
            std::thread::spawn(move || {
                let mut w = open_writer(&pipe, &any(unit, 2));
                let indices = local_indices(w.mapping(), unit.into());
                while w.next_step() < last.load(Ordering::SeqCst) {
                    if unit == 0 && end.load(Ordering::SeqCst) {
                        // Unit 1 cannot be further than unit 0 has decided.
                        last.store(w.next_step() + 1, Ordering::SeqCst);
                    }
                    write_step(&mut w, &indices);
                    if unit == 0 {
                        steps.store(w.next_step(), Ordering::SeqCst);
                    }
                }
                w.close().unwrap();
            })
        };
        let threads = vec![unit(0), unit(1)];
        Writing { threads, steps, end }
    }

    fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Waits until it has written so many steps more.
    fn goes_on(&self, steps: u64) {
        let until = self.steps() + steps;
        while self.steps() < until {
            assert!(!self.threads.iter().any(|t| t.is_finished()), "the writer has ended");
            std::thread::yield_now();
        }
    }

    fn end(self) {
        self.end.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

fn readers_come_leave_and_come_again_while_the_writer_writes<P: Place>() {
    let pipe = P::name();
    let writing = Writing::to(&pipe);
    // Nobody is there.
    writing.goes_on(100);
    let mut rows = open(&pipe, "rows", 2, "block,*");
    let first = next(&mut rows);
    // Another beside it, in another layout.
    let mut columns = open(&pipe, "columns", 3, "*,block");
    for _ in 0..20 {
        next(&mut columns);
        next(&mut rows);
    }
    // One leaves, and the other reads on.
    close(&mut rows);
    next(&mut columns);
    // One is killed.
    kill_all(&mut columns);
    writing.goes_on(100);
    // Both come again.
    let mut rows = open(&pipe, "rows", 2, "block,*");
    let mut columns = open(&pipe, "columns", 2, "*,cyclic");
    assert!(next(&mut rows) > first + 20);
    for _ in 0..20 {
        next(&mut rows);
        next(&mut columns);
    }
    drop(columns);
    next(&mut rows);
    writing.goes_on(100);
    close(&mut rows);
    writing.end();
}

fn who_comes_gets_the_newest_step_at_once<P: Place>() {
    let pipe = P::name();
    let mut w = open_writer(&pipe, &any(0, 1));
    let indices = local_indices(w.mapping(), 0);
    // More than there are slots, with nobody there.
    (0..11).for_each(|_| assert!(write_step(&mut w, &indices)));
    for program in ["a", "b", "a"] {
        let mut reader = open(&pipe, program, 2, "*,block");
        assert_eq!(next(&mut reader), 10);
        close(&mut reader);
    }
    let mut a = open(&pipe, "a", 1, "*,*");
    assert_eq!(next(&mut a), 10);
    (0..3).for_each(|_| assert!(write_step(&mut w, &indices)));
    assert_eq!(next(&mut a), 13);
    // More programs than there are places, also such as read nothing.
    for n in 0..=2 * MOST {
        let mut reader = open(&pipe, &format!("r{n}"), 1, "*,*");
        if n % 3 != 1 {
            assert_eq!(next(&mut reader), 13, "{n}");
        }
        close(&mut reader);
    }
    w.close().unwrap();
    assert_eq!(ask(&mut a[0], "step"), "end");
}

fn signal(unit: &Unit, signal: Signal) {
    PidFd::of(ProcessId::of(unit.pid()).unwrap()).unwrap().send_signal(signal).unwrap();
}

fn a_stopped_program_holds_nobody<P: Place>() {
    let pipe = P::name();
    let mut w = open_writer(&pipe, &any(0, 1));
    let indices = local_indices(w.mapping(), 0);
    let mut stopped = open(&pipe, "stopped", 2, "*,block");
    let mut other = open(&pipe, "other", 1, "*,*");
    // One unit has read more steps than the other, which is stopped.
    write_step(&mut w, &indices);
    next(&mut stopped);
    ask(&mut stopped[1], "run");
    signal(&stopped[1], Signal::STOP);
    for _ in 0..20 {
        let n = w.next_step();
        assert!(write_step(&mut w, &indices), "step {n} is dropped");
        assert_eq!(next(&mut other), n);
    }
    signal(&stopped[1], Signal::CONT);
    w.close().unwrap();
    assert_eq!(ask(&mut other[0], "step"), "end");
}

fn a_lost_unit_is_the_loss_of_its_program_alone<P: Place>() {
    let pipe = P::name();
    let writing = Writing::to(&pipe);
    let mut other = open(&pipe, "other", 2, "block,*");
    let mut program = open(&pipe, "program", 2, "*,block");
    next(&mut program);
    program[0].kill();
    // The other unit of that program hears of it, the other program does not.
    let said = ask(&mut program[1], "run");
    assert_eq!(said, "runs");
    assert!(program[1].wait_line("lost"), "{}", program[1].last());
    let lost = format!("unit 0 of reader program \"program\" {}", program[0].pid());
    assert_eq!(program[1].last(), format!("lost {lost}"));
    (0..20).for_each(|_| _ = next(&mut other));
    // The program comes again while one of its units has yet to leave.
    let mut again = open(&pipe, "program", 2, "*,block");
    (0..20).for_each(|_| _ = next(&mut again));
    writing.end();
}

fn a_lost_unit_is_replaced_where_its_program_waits<P: Place>() {
    let pipe = P::name();
    let writing = Writing::to(&pipe);
    let unit = |unit| start_as(&pipe, "program", (unit, 2), "*,block", "wait");
    let mut program = vec![unit(0), unit(1)];
    opened(&mut program);
    next(&mut program);
    program[1].kill();
    program[1].end();
    program[1] = unit(1);
    opened(&mut program[1..]);
    (0..20).for_each(|_| _ = next(&mut program));
    // Where nobody is left, the next begins anew, in another layout.
    kill_all(&mut program);
    let mut program = open(&pipe, "program", 1, "*,*");
    next(&mut program);
    writing.end();
}

fn one_program_too_many_comes_when_another_has_left<P: Place>() {
    let pipe = P::name();
    let writing = Writing::to(&pipe);
    let mut programs: Vec<_> = (0..MOST).map(|p| open(&pipe, &format!("p{p}"), 1, "*,block")).collect();
    programs.iter_mut().for_each(|program| _ = next(program));
    let mut late = start(&pipe, "late", 1, "*,*");
    assert_eq!(late[0].end(), format!("full {MOST}"));
    // One that is killed is as good as one that leaves.
    kill_all(&mut programs[3]);
    let mut late = open(&pipe, "late", 1, "*,*");
    close(&mut programs[5]);
    let mut later = open(&pipe, "later", 1, "*,*");
    for _ in 0..5 {
        next(&mut late);
        next(&mut later);
        next(&mut programs[4]);
    }
    writing.end();
}

fn the_end_comes_to_those_that_are_there<P: Place>() {
    let pipe = P::name();
    let writing = Writing::to(&pipe);
    let mut a = open(&pipe, "a", 2, "block,*");
    let mut b = open(&pipe, "b", 1, "*,*");
    a.iter_mut().chain(&mut b).for_each(|unit| assert_eq!(ask(unit, "run"), "runs"));
    writing.goes_on(20);
    writing.end();
    a.iter_mut()
        .chain(&mut b)
        .for_each(|unit| assert!(unit.wait_line("end"), "{}: {}", unit.name, unit.last()));
}

fn who_has_yet_to_take_the_newest_step_has_it_when_the_writer_has_closed<P: Place>() {
    let pipe = P::name();
    let mut w = open_writer(&pipe, &any(0, 1));
    let indices = local_indices(w.mapping(), 0);
    let mut slow = open(&pipe, "slow", 2, "*,block");
    let mut quick = open(&pipe, "quick", 1, "*,*");
    (0..3).for_each(|_| assert!(write_step(&mut w, &indices)));
    assert_eq!(next(&mut quick), 2);
    let closes = std::thread::spawn(move || w.close().unwrap());
    assert_eq!(ask(&mut quick[0], "step"), "end");
    assert_eq!(next(&mut slow), 2);
    slow.iter_mut().for_each(|unit| assert_eq!(ask(unit, "step"), "end"));
    closes.join().unwrap();
}

fn who_does_not_read_does_not_keep_a_writer_from_closing<P: Place>() {
    let pipe = P::name();
    let mut w = open_writer(&pipe, &any(0, 1));
    let indices = local_indices(w.mapping(), 0);
    let [mut stopped, mut idle] = ["stopped", "idle"].map(|name| open(&pipe, name, 1, "*,*"));
    assert!(write_step(&mut w, &indices));
    signal(&stopped[0], Signal::STOP);
    w.close().unwrap();
    signal(&stopped[0], Signal::CONT);
    // On this host the step lies where they find it; across hosts it went with the writer.
    for unit in [&mut stopped[0], &mut idle[0]] {
        let said = ask(unit, "step");
        assert!(said == "step 0" || said == "end", "{said}");
    }
}

fn who_asks_is_told_and_takes_no_place<P: Place>() {
    let pipe = P::name();
    let mut w = open_writer(&pipe, &any(0, 1));
    for _ in 0..=MOST {
        let told = at(&pipe).describe(&reader_options("asks", 0, 1)).unwrap();
        assert_eq!(told.iter().map(|array| array.dataset).collect::<Vec<_>>(), [data()]);
    }
    // All places are free.
    let mut programs: Vec<_> = (0..MOST).map(|n| open(&pipe, &format!("r{n}"), 1, "*,block")).collect();
    programs.iter_mut().for_each(|program| close(program));
    w.close().unwrap();
}

fn what_is_held_is_read_whatever_becomes_of_the_writer<P: Place>() {
    let pipe = P::name();
    let mut w = open_writer(&pipe, &any(0, 1));
    let indices = local_indices(w.mapping(), 0);
    let mut program = open(&pipe, "r", 2, "*,block");
    write_step(&mut w, &indices);
    for unit in &mut program {
        assert_eq!(ask(unit, "take"), "took Some(0)");
    }
    w.abort();
    assert_eq!(next(&mut program), 0);
    for unit in &mut program {
        let end = ask(unit, "step");
        assert!(end.starts_with("error") && end.contains("gave up"), "{end}");
    }
}

fn who_looked_in_vain_gets_what_is_the_newest_when_it_reads<P: Place>() {
    let pipe = P::name();
    let mut w = open_writer(&pipe, &any(0, 1));
    let indices = local_indices(w.mapping(), 0);
    let mut reader = open(&pipe, "r", 2, "*,block");
    write_step(&mut w, &indices);
    assert_eq!(next(&mut reader), 0);
    // Across hosts a look may be answered when some of the steps are there already, and then that one is read.
    let (mut newest, rounds) = (0, 20);
    for round in 1..=rounds {
        // As often as it may, also before the answer is there.
        for _ in 0..3 {
            reader.iter_mut().for_each(|unit| assert_eq!(ask(unit, "look"), "nothing"));
        }
        (0..4).for_each(|_| assert!(write_step(&mut w, &indices)));
        let mut step = next(&mut reader);
        newest += u32::from(step == 4 * round);
        while step < 4 * round {
            step = next(&mut reader);
        }
    }
    assert!(newest > rounds as u32 / 2, "{newest} of {rounds}");
}

fn who_comes_to_a_writer_that_leaves_waits_for_the_next<P: Place>() {
    let pipe = P::name();
    let stop = Arc::new(AtomicBool::new(false));
    let writers = {
        let (pipe, stop) = (pipe.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let mut w = open_writer(&pipe, &any(0, 1));
                let indices = local_indices(w.mapping(), 0);
                (0..P::STAYS).for_each(|_| _ = write_step(&mut w, &indices));
                w.close().unwrap();
            }
        })
    };
    // Whichever writer they meet, and in whatever moment of it.
    for _ in 0..40 {
        let mut r = at(&pipe).reader("*,*", &Expect::default(), &reader_options("r", 0, 1)).unwrap();
        let mut part = vec![0; r.local_len_bytes()];
        let read = r.read(&mut part).unwrap();
        assert!(read.is_none_or(|n| n < P::STAYS), "{read:?}");
    }
    stop.store(true, Ordering::SeqCst);
    writers.join().unwrap();
}

fn what_cannot_be_is_said_at_once<P: Place>() {
    let pipe = P::name();
    let open = |given: &Given, options: Options| {
        at(&pipe).writer(given, "*,*", &options).err().expect("it opens").to_string()
    };
    let given = Given::Dataset(data());
    for (policy, name) in [(Policy::Block, "block"), (Policy::DropOldest, "drop_oldest")] {
        let said = open(&given, Options { policy, ..any(0, 1) });
        assert_eq!(said, format!("policy is {name}; expected latest where readers is any"));
    }
    let said = open(&given, Options { on_loss: OnLoss::Wait, ..any(0, 1) });
    assert_eq!(said, "on_loss is wait; expected raise in a writer whose readers is any");
    let said = open(&Given::ByReader, any(0, 1));
    assert_eq!(said, "readers is any; expected a number where the first reader says what the steps are");
    let mut w = open_writer(&pipe, &any(0, 1));
    let said = w.domain(&DomainOptions::default()).err().expect("it has a domain").to_string();
    assert!(
        said.starts_with("readers is any; expected a number in a pipe whose units have a domain"),
        "{said}"
    );
    // Two units of a reader program that disagree, and a dataset that is not the writer's.
    let expect = Expect { shape: Some(vec![3]), ..Expect::default() };
    let said = at(&pipe).reader("*,*", &expect, &reader_options("r", 0, 1)).err().unwrap().to_string();
    assert!(said.contains("the reader expects shape [3]"), "{said}");
    let brief = Options { open_timeout: Duration::from_millis(50), ..reader_options("half", 0, 2) };
    let said = at(&pipe).reader("*,block", &Expect::default(), &brief).err().unwrap().to_string();
    assert!(said.contains("waiting for all other units"), "{said}");
    // It left its place, and harms nobody.
    let indices = local_indices(w.mapping(), 0);
    write_step(&mut w, &indices);
    let mut half = self::open(&pipe, "half", 1, "*,*");
    assert_eq!(next(&mut half), 0);
}

fn programs_that_come_and_are_killed_at_any_moment<P: Place>() {
    let pipe = P::name();
    let writing = Writing::to(&pipe);
    let mut steady = open(&pipe, "steady", 2, "*,block");
    let mut random = Random::new(u64::from(std::process::id()));
    for time in 0..kills(24) {
        let units = 1 + random.below(3) as u32;
        let mut program = start(&pipe, &format!("p{}", time % 3), units, "cyclic,*");
        if random.below(2) == 0 {
            opened(&mut program);
            program.iter_mut().for_each(|unit| assert_eq!(ask(unit, "run"), "runs"));
        }
        random.linger(Duration::from_millis(6));
        kill_all(&mut program);
        next(&mut steady);
    }
    writing.goes_on(10);
    close(&mut steady);
    writing.end();
}
