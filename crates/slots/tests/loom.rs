//! The step protocol under every interleaving, and every order in which weak memory may show the stores, that
//! loom finds within a bound on preemptions.
//!
//! `RUSTFLAGS='--cfg loom' cargo test --profile loom --target-dir target/loom -p polyduct-slots --test loom
//! -- --test-threads=1`; `LOOM_MAX_PREEMPTIONS=4` looks further than each model asks for, and for longer.
//!
//! Each test of a planted bug shows that the models can fail: it is the same model with one rule broken.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use polyduct_os::sync::Line;
use polyduct_port::{Policy, Side, UnitName};
use polyduct_slots::bell::{ring, Sleeper};
use polyduct_slots::fault::Fault;
use polyduct_slots::geometry::Sizes;
use polyduct_slots::{Begin, Next, Slots, Stop};

/// A rule that a model breaks.
#[derive(Clone, Copy, PartialEq)]
enum Plant {
    Nothing,
    /// A writer shows its step before it has written it.
    PublishBeforeWriting,
    /// The second writer unit takes no part in the arrival, so the first shows the step for both.
    ShowBeforeAllArrived,
    /// A reader gives the slot back before it has read it.
    ReleaseBeforeReading,
    /// The second reader unit takes no part in the release.
    FreeBeforeAllReleased,
    /// A place is given out with what was in it.
    SeatWithoutCleaning,
    /// A unit that gives up records its fault before it says why.
    FaultBeforeWords,
}

/// One writer unit's part of one slot. Loom reports any access that is not ordered with a write.
struct Part {
    access: UnsafeCell<()>,
    step: AtomicU64,
}

// SAFETY: the cell holds nothing, and only loom's own record of the accesses is touched through it.
unsafe impl Sync for Part {}

impl Part {
    fn new() -> Part {
        Part { access: UnsafeCell::new(()), step: AtomicU64::new(u64::MAX) }
    }

    fn write(&self, step: u64) {
        self.access.with_mut(|_| self.step.store(step, Ordering::Relaxed));
    }

    fn read(&self) -> u64 {
        self.access.with(|_| self.step.load(Ordering::Relaxed))
    }
}

struct Pipe {
    slots: Slots,
    parts: Vec<Part>,
    steps: u64,
    plant: Plant,
    /// For more than two threads, which could yield to each other for ever: who finds nothing sleeps until
    /// told. Told only then, so that a first look finds what it finds without this lock's help.
    told: Option<(Mutex<()>, Condvar)>,
}

impl Pipe {
    fn new(writers: u32, readers: u32, depth: u32, policy: Policy, steps: u64, plant: Plant) -> Arc<Pipe> {
        let alone = |n, p| if plant == p { 1 } else { n };
        let sizes = Sizes {
            writers: alone(writers, Plant::ShowBeforeAllArrived),
            readers: (readers > 0)
                .then(|| alone(readers, Plant::FreeBeforeAllReleased))
                .into_iter()
                .collect(),
            depth,
            policy,
            words: 0,
        };
        let parts = (0..writers * depth).map(|_| Part::new()).collect();
        let told = (writers + readers > 2).then(|| (Mutex::new(()), Condvar::new()));
        Arc::new(Pipe { slots: Slots::on_heap(sizes), parts, steps, plant, told })
    }

    /// Polls until there is something. The bells are modelled on their own below.
    fn wait<T>(&self, mut poll: impl FnMut(&Slots) -> Option<T>) -> T {
        if let Some(found) = poll(&self.slots) {
            return found;
        }
        let Some((lock, told)) = &self.told else {
            return loop {
                thread::yield_now();
                if let Some(found) = poll(&self.slots) {
                    break found;
                }
            };
        };
        let mut held = lock.lock().unwrap();
        loop {
            match poll(&self.slots) {
                Some(found) => return found,
                None => held = told.wait(held).unwrap(),
            }
        }
    }

    fn tell(&self) {
        if let Some((lock, told)) = &self.told {
            drop(lock.lock().unwrap());
            told.notify_all();
        }
    }

    /// Under the lossy policies the first unit's look decides for the others.
    fn tell_decision(&self) {
        if self.slots.sizes().policy != Policy::Block {
            self.tell();
        }
    }

    fn writers(&self) -> u32 {
        self.parts.len() as u32 / self.slots.sizes().depth
    }

    fn part(&self, unit: u32, slot: u32) -> &Part {
        &self.parts[(unit * self.slots.sizes().depth + slot) as usize]
    }

    fn write(&self, unit: u32) {
        let counts = unit < self.slots.sizes().writers;
        for n in 0..self.steps {
            let begin = self.wait(|slots| slots.poll_begin(if counts { unit } else { 0 }, n).unwrap());
            match begin {
                Begin::Fill(turn) if self.plant == Plant::PublishBeforeWriting => {
                    self.slots.publish(unit, turn);
                    self.part(unit, turn.slot).write(n);
                }
                Begin::Fill(turn) => {
                    self.tell_decision();
                    self.part(unit, turn.slot).write(n);
                    if counts {
                        self.slots.publish(unit, turn);
                    }
                }
                Begin::Drop => self.slots.skip(unit, n),
            }
            self.tell();
        }
        if counts {
            self.slots.close_writer(unit, self.steps).unwrap();
        }
        self.tell();
    }

    fn read(&self, unit: u32) -> Vec<u64> {
        let counts = unit < self.slots.sizes().readers[0];
        let mut seen = Vec::new();
        for k in 0.. {
            match self.wait(|slots| {
                slots
                    .poll_next(0, if counts { unit } else { 0 }, k)
                    .expect("a word of the pipe is beyond what can be")
            }) {
                Next::End => {
                    self.tell_decision();
                    break;
                }
                Next::Step(turn) => {
                    self.tell_decision();
                    if self.plant == Plant::ReleaseBeforeReading {
                        self.slots.release(0, unit, k, turn);
                    }
                    for writer in 0..self.writers() {
                        assert_eq!(
                            self.part(writer, turn.slot).read(),
                            turn.step,
                            "the part of writer {writer}"
                        );
                    }
                    seen.push(turn.step);
                    if self.plant != Plant::ReleaseBeforeReading && counts {
                        self.slots.release(0, unit, k, turn);
                    }
                }
            }
            self.tell();
        }
        if counts {
            self.slots.close_reader(0, unit, seen.len() as u64);
        }
        seen
    }
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(f);
}

/// Runs a pipe under the model: the first reader in the main thread, everybody else in threads of their own.
fn run(
    preemptions: usize,
    (writers, readers, depth, steps): (u32, u32, u32, u64),
    policy: Policy,
    plant: Plant,
) {
    model(preemptions, move || {
        let pipe = Pipe::new(writers, readers, depth, policy, steps, plant);
        let units: Vec<_> = (0..writers)
            .map(|unit| {
                let pipe = pipe.clone();
                thread::spawn(move || pipe.write(unit))
            })
            .collect();
        let others: Vec<_> = (1..readers)
            .map(|unit| {
                let pipe = pipe.clone();
                thread::spawn(move || pipe.read(unit))
            })
            .collect();
        let seen = pipe.read(0);
        units.into_iter().for_each(|u| u.join().unwrap());
        others.into_iter().for_each(|u| assert_eq!(u.join().unwrap(), seen, "units saw different steps"));
        assert!(seen.windows(2).all(|w| w[0] < w[1]), "{seen:?}");
        match policy {
            Policy::Block => assert_eq!(seen, (0..steps).collect::<Vec<_>>()),
            // With room for all, there is nothing to drop.
            Policy::DropOldest | Policy::DropNewest if u64::from(depth) > steps => {
                assert_eq!(seen, (0..steps).collect::<Vec<_>>())
            }
            // With one slot only, the reader that holds it makes the writer drop what is newer.
            Policy::Latest | Policy::DropOldest if depth > 1 => assert_eq!(seen.last(), Some(&(steps - 1))),
            _ => assert!(!seen.is_empty()),
        }
    });
}

#[test]
fn block_one_to_one() {
    run(3, (1, 1, 1, 3), Policy::Block, Plant::Nothing);
    run(3, (1, 1, 2, 3), Policy::Block, Plant::Nothing);
}

#[test]
fn block_two_to_one() {
    run(2, (2, 1, 1, 2), Policy::Block, Plant::Nothing);
    run(2, (2, 1, 2, 3), Policy::Block, Plant::Nothing);
}

#[test]
fn block_one_to_two() {
    run(2, (1, 2, 1, 2), Policy::Block, Plant::Nothing);
    run(2, (1, 2, 2, 3), Policy::Block, Plant::Nothing);
}

#[test]
fn lossy_one_to_one() {
    for policy in [Policy::Latest, Policy::DropOldest, Policy::DropNewest] {
        run(2, (1, 1, 1, 3), policy, Plant::Nothing);
        run(2, (1, 1, 2, 3), policy, Plant::Nothing);
        run(2, (1, 1, 3, 2), policy, Plant::Nothing);
    }
}

#[test]
fn lossy_two_to_one() {
    run(1, (2, 1, 1, 2), Policy::Latest, Plant::Nothing);
    run(1, (2, 1, 2, 2), Policy::DropOldest, Plant::Nothing);
}

#[test]
fn lossy_one_to_two() {
    run(1, (1, 2, 2, 2), Policy::Latest, Plant::Nothing);
}

/// A reader program comes and leaves, twice, while the writer writes: it has the slot that it reads to
/// itself.
#[test]
fn readers_that_come_and_go() {
    model(3, || {
        let pipe = Pipe::new(1, 0, 2, Policy::Latest, 3, Plant::Nothing);
        let writer = pipe.clone();
        pipe.slots.seat(0, 1);
        let writer = thread::spawn(move || writer.write(0));
        for time in 0..2 {
            pipe.slots.enter(0);
            if let Some(Next::Step(turn)) = pipe.slots.poll_next(0, 0, 0).unwrap() {
                assert_eq!(pipe.part(0, turn.slot).read(), turn.step);
                pipe.slots.release(0, 0, 0, turn);
            }
            pipe.slots.vacate(0);
            if time == 0 {
                pipe.slots.seat(0, 1);
            }
        }
        writer.join().unwrap();
    });
}

/// A reader program was killed over the only slot. While the writer takes that, its place is given out twice
/// more: to one that leaves at once, and to one that reads what it finds.
fn a_place_is_given_out_twice_while_the_writer_takes_a_slot(plant: Plant) {
    model(3, move || {
        let pipe = Pipe::new(1, 0, 1, Policy::Latest, 2, plant);
        let write = |pipe: &Pipe, n: u64| match pipe.slots.poll_begin(0, n).unwrap() {
            Some(Begin::Fill(turn)) => {
                pipe.part(0, turn.slot).write(n);
                pipe.slots.publish(0, turn);
            }
            Some(Begin::Drop) => pipe.slots.skip(0, n),
            None => {}
        };
        pipe.slots.seat(0, 1);
        pipe.slots.enter(0);
        write(&pipe, 0);
        assert!(matches!(pipe.slots.poll_next(0, 0, 0), Ok(Some(Next::Step(turn))) if turn.step == 0));
        pipe.slots.vacate(0);
        let writer = pipe.clone();
        let writer = thread::spawn(move || write(&writer, 1));
        if plant != Plant::SeatWithoutCleaning {
            pipe.slots.seat(0, 1);
            pipe.slots.vacate(0);
            pipe.slots.seat(0, 1);
        }
        pipe.slots.enter(0);
        if let Some(Next::Step(turn)) = pipe.slots.poll_next(0, 0, 0).unwrap() {
            assert_eq!(pipe.part(0, turn.slot).read(), turn.step);
            pipe.slots.release(0, 0, 0, turn);
        }
        pipe.slots.vacate(0);
        writer.join().unwrap();
    });
}

#[test]
fn a_slot_that_the_writer_takes_is_nobody_elses_whoever_comes_meanwhile() {
    a_place_is_given_out_twice_while_the_writer_takes_a_slot(Plant::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_seat_without_cleaning() {
    a_place_is_given_out_twice_while_the_writer_takes_a_slot(Plant::SeatWithoutCleaning);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_publish_before_writing() {
    run(2, (1, 1, 1, 2), Policy::Block, Plant::PublishBeforeWriting);
}

#[test]
#[should_panic(expected = "the part of writer")]
fn planted_show_before_all_arrived() {
    run(2, (2, 1, 1, 2), Policy::Block, Plant::ShowBeforeAllArrived);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_release_before_reading() {
    run(2, (1, 1, 1, 2), Policy::Block, Plant::ReleaseBeforeReading);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_release_before_reading_lossy() {
    run(2, (1, 1, 1, 2), Policy::Latest, Plant::ReleaseBeforeReading);
}

#[test]
#[should_panic(expected = "a word of the pipe is beyond what can be")]
fn planted_free_before_all_released() {
    run(2, (1, 2, 1, 2), Policy::Block, Plant::FreeBeforeAllReleased);
}

/// Readers close because a writer was lost. Who finds them gone is told who was lost, not that they closed.
#[test]
fn a_loss_comes_before_the_closing_that_follows_from_it() {
    model(3, || {
        let pipe = Pipe::new(2, 1, 1, Policy::Block, 1, Plant::Nothing);
        let lost = Fault::Lost { unit: UnitName { side: Side::Writer, unit: 1 }, pid: 7 };
        let readers = {
            let pipe = pipe.clone();
            thread::spawn(move || {
                pipe.slots.fail(lost);
                pipe.slots.close_reader(0, 0, 0);
            })
        };
        match pipe.slots.poll_begin(0, 0) {
            Ok(_) => {}
            Err(stop) => assert_eq!(stop, Stop::Fault(lost)),
        }
        readers.join().unwrap();
    });
}

/// Words of two units, each of two words of memory.
const WHY: [&str; 2] = ["no disk is left", "no time is left"];

/// Two units give up at once, each with words of its own. Who finds a fault of one that
/// gave up finds the words of that one, and all of them.
fn two_give_up_at_once(plant: Plant) {
    model(3, move || {
        let pipe = Pipe::new(2, 1, 1, Policy::Block, 1, Plant::Nothing);
        let name = |unit| UnitName { side: Side::Writer, unit };
        let units: Vec<_> = (0..2)
            .map(|unit| {
                let pipe = pipe.clone();
                thread::spawn(move || {
                    if plant == Plant::FaultBeforeWords {
                        pipe.slots.fail(Fault::Aborted { unit: name(unit) });
                    }
                    pipe.slots.give_up(name(unit), WHY[unit as usize]);
                })
            })
            .collect();
        let words = |stop: Stop| match stop {
            Stop::Aborted { unit, reason } => {
                assert_eq!(&*reason, WHY[unit.unit as usize], "words of another");
            }
            stop => panic!("{stop:?}"),
        };
        if let Err(stop) = pipe.slots.poll_begin(0, 0) {
            words(stop);
        }
        units.into_iter().for_each(|unit| unit.join().unwrap());
        words(pipe.slots.poll_begin(0, 0).unwrap_err());
    });
}

#[test]
fn of_two_that_give_up_at_once_the_words_of_one_are_heard() {
    two_give_up_at_once(Plant::Nothing);
}

#[test]
#[should_panic(expected = "words of another")]
fn planted_fault_before_words() {
    two_give_up_at_once(Plant::FaultBeforeWords);
}

/// One gives up and says why while another is lost: whichever is first, nobody hears words that are not those
/// of the fault.
#[test]
fn who_gives_up_while_another_is_lost_says_all_or_nothing() {
    model(3, || {
        let pipe = Pipe::new(2, 1, 1, Policy::Block, 1, Plant::Nothing);
        let unit = |unit| UnitName { side: Side::Writer, unit };
        let lost = Fault::Lost { unit: unit(1), pid: 7 };
        let gives_up = {
            let pipe = pipe.clone();
            thread::spawn(move || pipe.slots.give_up(unit(0), WHY[0]))
        };
        let dies = {
            let pipe = pipe.clone();
            thread::spawn(move || pipe.slots.fail(lost))
        };
        let check = |stop| match stop {
            Stop::Fault(fault) => assert_eq!(fault, lost),
            Stop::Aborted { reason, .. } => assert_eq!(&*reason, WHY[0]),
            stop => panic!("{stop:?}"),
        };
        if let Err(stop) = pipe.slots.poll_begin(0, 0) {
            check(stop);
        }
        [gives_up, dies].into_iter().for_each(|unit| unit.join().unwrap());
        check(pipe.slots.poll_begin(0, 0).unwrap_err());
    });
}

/// A change, then the bell; and one who looks, and sleeps while the bell shows what it saw. He must have
/// found the change, or find the bell changed: else he sleeps for ever. (A futex sleeps only while the word
/// is what it was said to be, so that the word says it all.)
fn bells(sleepers: usize, ring: fn(&Line)) {
    model(3, move || {
        let bell = Arc::new((Line::new(), AtomicU64::new(0)));
        let asleep: Vec<_> = (0..sleepers)
            .map(|_| {
                let bell = bell.clone();
                thread::spawn(move || {
                    let sleeper = Sleeper::at(&bell.0);
                    let looked = sleeper.look(|| (bell.1.load(Ordering::Relaxed) == 1).then_some(()));
                    // He stays counted while he sleeps.
                    std::mem::forget(sleeper);
                    looked.err()
                })
            })
            .collect();
        bell.1.store(1, Ordering::Relaxed);
        ring(&bell.0);
        for sleeper in asleep {
            if let Some(seen) = sleeper.join().unwrap() {
                assert_ne!(bell.0.bell.load(Ordering::Relaxed), seen, "a sleeper is not woken");
            }
        }
    });
}

#[test]
fn no_bell_goes_unheard() {
    bells(1, ring);
    bells(2, ring);
}

#[test]
fn a_bell_rung_for_one_change_is_heard_for_the_next() {
    model(3, || {
        let bell = Arc::new((Line::new(), AtomicU64::new(0)));
        let rings = {
            let bell = bell.clone();
            thread::spawn(move || {
                for n in 1..=2 {
                    bell.1.store(n, Ordering::Relaxed);
                    ring(&bell.0);
                }
            })
        };
        let sleeper = Sleeper::at(&bell.0);
        let first = sleeper.look(|| (bell.1.load(Ordering::Relaxed) == 2).then_some(()));
        // Woken or not, he looks again with what the bell shows by then.
        let second = first.or_else(|_| sleeper.look(|| (bell.1.load(Ordering::Relaxed) == 2).then_some(())));
        rings.join().unwrap();
        if let Err(seen) = second {
            assert_ne!(bell.0.bell.load(Ordering::Relaxed), seen, "a sleeper is not woken");
        }
    });
}

#[test]
#[should_panic(expected = "a sleeper is not woken")]
fn planted_ring_without_fence() {
    bells(1, |bell| {
        if bell.sleepers.load(Ordering::Relaxed) > 0 {
            bell.bell.fetch_add(1, Ordering::Release);
        }
    });
}

#[test]
#[should_panic(expected = "a sleeper is not woken")]
fn planted_ring_that_only_wakes() {
    bells(1, |bell| {
        fence(Ordering::SeqCst);
        if bell.sleepers.load(Ordering::Relaxed) > 0 {
            polyduct_os::futex::wake(&bell.bell, 1);
        }
    });
}
