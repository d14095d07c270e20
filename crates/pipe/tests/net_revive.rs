//! The writers' unit 0 of a pipe across hosts is killed, and another comes in its place: the others go on
//! with it, and no step is torn, doubled or lost. Real processes and real `kill -9`.
//!
//! `POLYDUCT_KILLS=500` runs more seeds than the default.

mod common;

use common::kill::{loss_of, LAYOUTS};
use common::lasting::{steps, Lasting, STEPS};
use common::net::{place, trust};
use common::{fill, local_indices, reader_options};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, OnLoss, Options, Reader};
use polyduct_port::PortError;
use polyduct_rig::kills::{error_of, kills, survivors};
use polyduct_rig::{tests, Random, Unit};
use std::time::{Duration, Instant};

const SHAPE: [u64; 2] = [96, 80];
/// The longest pause before a kill: less than a step takes.
const PAUSE: Duration = Duration::from_micros(500);
const LOSSY: [&str; 3] = ["latest", "drop_oldest", "drop_newest"];

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            unit_0_is_replaced_in_the_middle_of_a_run,
            unit_0_is_replaced_where_steps_are_dropped,
            unit_0_is_replaced_twice_in_a_row,
            unit_0_is_lost_with_another_writer,
            unit_0_is_lost_with_a_reader,
            unit_0_is_replaced_when_it_is_about_to_close,
            unit_0_is_lost_while_a_reader_computes,
            a_reader_that_waits_in_vain_says_for_whom,
            a_unit_0_of_other_terms_is_refused,
            who_is_left_of_an_earlier_pipe_ends_and_harms_no_later_one,
            writers_that_do_not_wait_end_all_at_once,
        ],
    );
}

fn unit(spec: &str) {
    common::kill::unit_across("revive", &SHAPE, spec);
}

fn pipe(random: &mut Random, policy: &'static str) -> Lasting {
    let readers = (1 + random.below(3), random.one_of(&LAYOUTS));
    // Readers that may not be lost themselves map slots, where they can.
    let on_loss = ["wait", random.one_of(&["wait", "raise"])];
    let bundle = random.below(3) == 0;
    Lasting { policy, readers, on_loss, bundle, ..Lasting::new(random, 2) }
}

/// Lets a pipe run to some moment of its first half.
fn run_a_while(pipe: &Lasting, units: &mut [Unit], random: &mut Random, case: &str) {
    let reader = &mut units[pipe.writers.0 as usize];
    match pipe.policy {
        "block" => (0..random.below(50)).for_each(|_| assert!(reader.wait_line("step"), "{case}")),
        // A reader gets as few of the steps as its writers are fast.
        _ => assert!(reader.wait_line("step"), "{case}"),
    }
    (0..random.below(4)).for_each(|_| random.linger(PAUSE));
}

/// Kills units together, and starts others in their places, not always in that order.
fn replace(pipe: &Lasting, units: &mut [Unit], victims: &[usize], random: &mut Random) {
    victims.iter().for_each(|&v| units[v].kill());
    let mut order = victims.to_vec();
    if random.below(2) == 0 {
        order.reverse();
    }
    for v in order {
        units[v].end();
        units[v] = pipe.start(v as u64);
        random.linger(PAUSE);
    }
}

/// All of these units, from the `first` on, end well; readers that were not replaced got every step, where
/// none is dropped.
fn check(pipe: &Lasting, units: &mut [Unit], first: usize, replaced: &[usize], case: &str) {
    units.iter_mut().for_each(Unit::let_go);
    let ended: Vec<String> = units
        .iter_mut()
        .map(|unit| {
            let last = unit.end();
            format!("{} after {:?}: {last}", unit.name, unit.seen())
        })
        .collect();
    assert!(ended.iter().all(|end| end.ends_with(": end")), "{case}: {ended:#?}");
    let readers = (first..).zip(units.iter()).filter(|(i, _)| *i >= pipe.writers.0 as usize);
    for (i, unit) in readers {
        let got = steps(unit);
        match pipe.policy {
            "block" if replaced.contains(&i) => {
                let first = got.first().copied().unwrap_or(STEPS);
                assert_eq!(got, (first..STEPS).collect::<Vec<_>>(), "{case}: {}", unit.name);
            }
            "block" => assert_eq!(got, (0..STEPS).collect::<Vec<_>>(), "{case}: {}", unit.name),
            // What of it came in order and whole, it has checked itself. The newest is not dropped.
            "drop_newest" => {}
            _ => assert_eq!(got.last(), Some(&(STEPS - 1)), "{case}: {}", unit.name),
        }
    }
}

fn case(seed: u64, pipe: &Lasting) -> String {
    let Lasting { writers, readers, policy, trusted, on_loss, bundle, .. } = pipe;
    format!(
        "seed {seed}: {writers:?} to {readers:?}, {policy}, trusted {trusted}, {on_loss:?}, bundle {bundle}"
    )
}

/// Runs so many pipes in which units are killed together, so often.
fn replace_in_many(
    seeds: u64,
    times: u64,
    choose: impl Fn(&mut Random) -> Lasting,
    victims: impl Fn(&Lasting, &mut Random) -> Vec<usize>,
) {
    for seed in 1..=kills(seeds) {
        let mut random = Random::new(seed);
        let pipe = choose(&mut random);
        let (case, mut units) = (case(seed, &pipe), pipe.start_all());
        let mut replaced = Vec::new();
        for _ in 0..times {
            run_a_while(&pipe, &mut units, &mut random, &case);
            let victims = victims(&pipe, &mut random);
            replace(&pipe, &mut units, &victims, &mut random);
            replaced.extend(victims);
        }
        check(&pipe, &mut units, 0, &replaced, &case);
    }
}

fn unit_0_is_replaced_in_the_middle_of_a_run() {
    replace_in_many(40, 1, |random| pipe(random, "block"), |_, _| vec![0]);
}

fn unit_0_is_replaced_where_steps_are_dropped() {
    let choose = |random: &mut Random| {
        let policy = random.one_of(&LOSSY);
        pipe(random, policy)
    };
    replace_in_many(40, 1, choose, |_, _| vec![0]);
}

/// The second may not have got as far as to know who is there.
fn unit_0_is_replaced_twice_in_a_row() {
    for seed in 1..=kills(30) {
        let mut random = Random::new(seed);
        let policy = random.one_of(&["block", "block", "latest"]);
        let pipe = pipe(&mut random, policy);
        let (case, mut units) = (case(seed, &pipe), pipe.start_all());
        run_a_while(&pipe, &mut units, &mut random, &case);
        // One that waits to be let go does not come back before.
        units[1..].iter_mut().for_each(Unit::let_go);
        replace(&pipe, &mut units, &[0], &mut random);
        let says = random.one_of(&["start", "start", "open"]);
        assert!(units[0].wait_line(says), "{case}: {}", units[0].last());
        (0..random.below(8)).for_each(|_| random.linger(PAUSE));
        units[0].kill();
        check_without_unit_0(&pipe, units, &case);
    }
}

/// Unit 0 was killed. It may have had time to end; whether anybody needs another then, the others know.
fn check_without_unit_0(pipe: &Lasting, mut units: Vec<Unit>, case: &str) {
    if units[0].end() != "end" {
        units[0] = pipe.start(0);
        units[0].let_go();
    }
    check(pipe, &mut units[1..], 1, &[], case);
    units[0].kill();
    units[0].end();
}

fn unit_0_is_lost_with_another_writer() {
    let choose = |random: &mut Random| {
        let policy = random.one_of(&["block", "block", "latest", "drop_oldest"]);
        pipe(random, policy)
    };
    let victims =
        |pipe: &Lasting, random: &mut Random| vec![0, 1 + random.below(pipe.writers.0 - 1) as usize];
    replace_in_many(30, 1, choose, victims);
}

fn unit_0_is_lost_with_a_reader() {
    let choose = |random: &mut Random| Lasting { on_loss: ["wait"; 2], ..pipe(random, "block") };
    let victims = |pipe: &Lasting, random: &mut Random| {
        vec![0, (pipe.writers.0 + random.below(pipe.readers.0)) as usize]
    };
    replace_in_many(30, 1, choose, victims);
}

fn unit_0_is_replaced_when_it_is_about_to_close() {
    for seed in 1..=kills(40) {
        let mut random = Random::new(seed);
        let pipe = pipe(&mut random, "block");
        let (case, mut units) = (case(seed, &pipe), pipe.start_all());
        units[1..].iter_mut().for_each(Unit::let_go);
        let last = STEPS - 1 - random.below(3);
        units[0].let_go();
        (0..=last).for_each(|_| assert!(units[0].wait_line("step"), "{case}"));
        (0..random.below(4)).for_each(|_| random.linger(PAUSE));
        units[0].kill();
        check_without_unit_0(&pipe, units, &case);
    }
}

/// A reader of this process, beside the units of a pipe of one writer more.
struct Here {
    reader: Reader,
    indices: Vec<u64>,
    next: u64,
}

impl Here {
    fn open(pipe: &Lasting, timeout: Duration) -> Here {
        let at = PipeAddress { name: "revive".into(), ..pipe.place.clone() };
        let of = reader_options("r", 0, 1);
        let options = Options { on_loss: OnLoss::Raise, timeout: Some(timeout), ..of };
        let opened = Reader::open((&at, &trust(pipe.trusted)), "*,block", &Expect::default(), &options);
        let reader = opened.unwrap();
        let indices = local_indices(reader.mapping(), 0);
        Here { reader, indices, next: 0 }
    }

    /// Reads the next step, which is that; returns whether there was one.
    fn read(&mut self) -> bool {
        let (mut part, mut expected) =
            (vec![0; self.reader.local_len_bytes()], vec![0; self.reader.local_len_bytes()]);
        let Some(step) = self.reader.read(&mut part).unwrap() else { return false };
        fill(&mut expected, &self.indices, step);
        assert!(part == expected && step == self.next, "step {step}, not {}", self.next);
        self.next += 1;
        true
    }
}

fn alone(random: &mut Random) -> Lasting {
    let pipe = pipe(random, "block");
    Lasting { writers: (2, "block,*"), readers: (1, "*,block"), bundle: false, ..pipe }
}

/// Nobody can know where it is but itself: another unit 0 waits for it.
fn unit_0_is_lost_while_a_reader_computes() {
    for seed in 1..=kills(30) {
        let mut random = Random::new(seed);
        let pipe = alone(&mut random);
        let mut writers = [pipe.start(0), pipe.start(1)];
        let mut here = Here::open(&pipe, Duration::from_secs(20));
        (0..random.below(40)).for_each(|_| assert!(here.read(), "seed {seed}"));
        writers[0].kill();
        writers[0].end();
        writers[0] = pipe.start(0);
        assert!(writers[0].wait_line("waits"));
        (0..20).for_each(|_| random.linger(PAUSE));
        assert!(
            writers[0].last() == "waits",
            "seed {seed}: goes on without the reader: {}",
            writers[0].last()
        );
        writers.iter_mut().for_each(Unit::let_go);
        while here.read() {}
        assert_eq!(here.next, STEPS, "seed {seed}");
        here.reader.close().unwrap();
        assert_eq!(writers.map(|mut w| w.end()), ["end", "end"], "seed {seed}");
    }
}

fn a_reader_that_waits_in_vain_says_for_whom() {
    let pipe = alone(&mut Random::new(1));
    let mut writers = [pipe.start(0), pipe.start(1)];
    let mut here = Here::open(&pipe, Duration::from_millis(300));
    (0..3).for_each(|_| assert!(here.read()));
    let lost = writers[0].pid();
    writers[0].kill();
    writers[0].end();
    let error = loop {
        match here.reader.read(&mut vec![0; here.reader.local_len_bytes()]) {
            Ok(step) => here.next = 1 + step.unwrap(),
            Err(error) => break error,
        }
    };
    let says = format!("writer unit 0 (pid {lost}) is lost, and nothing has taken its place");
    assert!(error.to_string().contains(&says), "{error}");
    assert!(matches!(error, polyduct_pipe::PipeError::Port(PortError::Timeout { .. })), "{error:?}");
    writers[0] = pipe.start(0);
    writers.iter_mut().for_each(Unit::let_go);
    let mut part = vec![0; here.reader.local_len_bytes()];
    loop {
        match here.reader.read(&mut part) {
            Ok(Some(step)) => here.next = step + 1,
            Ok(None) => break,
            Err(polyduct_pipe::PipeError::Port(PortError::Timeout { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(here.next, STEPS);
    here.reader.close().unwrap();
    assert_eq!(writers.map(|mut w| w.end()), ["end", "end"]);
}

fn a_unit_0_of_other_terms_is_refused() {
    for seed in 1..=kills(30) / 10 {
        let mut random = Random::new(seed);
        let right = Lasting { writers: (2, "block,*"), ..pipe(&mut random, "block") };
        let (case, mut units) = (case(seed, &right), right.start_all());
        run_a_while(&right, &mut units, &mut random, &case);
        units[0].kill();
        units[0].end();
        let place = right.place.clone();
        let writers = (2, "cyclic,*");
        let wrong =
            Lasting { writers, place, open_ms: 300, trusted: right.trusted, ..pipe(&mut random, "block") };
        let mut wrong = wrong.start(0);
        let end = wrong.end();
        assert_eq!(error_of(&end).map(|(_, error)| error), Some("refused"), "{case}: {end}");
        units[0] = right.start(0);
        check(&right, &mut units, 0, &[], &case);
    }
}

fn who_is_left_of_an_earlier_pipe_ends_and_harms_no_later_one() {
    for seed in 1..=kills(30) / 10 {
        let mut random = Random::new(seed);
        let mut earlier = Lasting { writers: (2, "block,*"), ..pipe(&mut random, "block") };
        earlier.on_loss = ["wait"; 2];
        let (case, mut units) = (case(seed, &earlier), earlier.start_all());
        // The unit that is left has been with a second unit 0.
        run_a_while(&earlier, &mut units, &mut random, &case);
        replace(&earlier, &mut units, &[0], &mut random);
        assert!(units[2].wait_line("step"), "{case}");
        for writer in &mut units[..2] {
            writer.kill();
            writer.end();
        }
        let (place, trusted) = (earlier.place.clone(), earlier.trusted);
        let later = Lasting { writers: (2, "cyclic,*"), place, trusted, ..pipe(&mut random, "block") };
        let mut others = later.start_all();
        run_a_while(&later, &mut others, &mut random, &case);
        for left in &mut units[2..] {
            let last = left.end();
            assert!(error_of(&last).is_some(), "{case}: {} says {last}", left.name);
        }
        check(&later, &mut others, 0, &[], &case);
    }
}

fn writers_that_do_not_wait_end_all_at_once() {
    for seed in 1..=kills(30) / 3 {
        let mut random = Random::new(seed);
        let pipe = Lasting { place: place(), on_loss: ["raise", "wait"], ..pipe(&mut random, "block") };
        let (case, mut units) = (case(seed, &pipe), pipe.start_all());
        run_a_while(&pipe, &mut units, &mut random, &case);
        let lost = loss_of(&units[0]);
        units[0].kill();
        let killed = Instant::now();
        for unit in survivors(&mut units, &[0]) {
            let last = unit.end();
            assert_eq!(error_of(&last).map(|e| e.1), Some(&lost[..]), "{case}: {} says {last}", unit.name);
        }
        assert!(killed.elapsed() < Duration::from_secs(5), "{case}: {:?}", killed.elapsed());
    }
}
