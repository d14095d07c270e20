//! The ring, the alarms, the bell and the gate under every interleaving, and every order in which weak memory
//! may show the stores, that loom finds within a bound on preemptions.
//!
//! `RUSTFLAGS='--cfg loom' cargo test --profile loom --target-dir target/loom -p polyduct-ring --test loom --
//! --test-threads=1`; `LOOM_MAX_PREEMPTIONS=4` looks further than each model asks for, and for longer.
//!
//! Each test of a planted bug shows that the models can fail: it is the same model with one rule broken.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;
use polyduct_os::bell::Sleeper;
use polyduct_os::sync::{Line, Words};
use polyduct_ring::calls::Calls;
use polyduct_ring::gate;
use polyduct_ring::ring::{alarm, publish, Inlet, NoRoom, Outlet, Shape};

/// A rule that a model breaks.
#[derive(Clone, Copy, PartialEq)]
enum Plant {
    Nothing,
    /// A writer shows its record before it has written the payload.
    PublishBeforeWriting,
    /// The receiver shows its head before it has read the payload.
    ShowBeforeReading,
    /// Two writers take the tail without compare-exchange: each believes that a ring of its own lies there.
    ClaimWithoutExchange,
    /// The receiver takes the lap before for this one: it does not look at the position.
    IgnoreTheLap,
    /// A sender announces its record without looking for a sleeper that may have come since.
    LookBeforeCounting,
    /// A sleeper does not look again after it has asked for a call.
    NoSecondLook,
    /// A sleeper asks for a call before it has noted what the bell shows: one call may come in between, and
    /// be the last.
    AskBeforeTheBell,
    /// A ring at the bell without a fence.
    RingWithoutFence,
    /// A copier looks whether the gate is closed, and then counts itself in.
    LookBeforeEntering,
    /// A copier counts itself in and looks without a fence between.
    EnterWithoutFence,
    /// A copier that leaves does not ring for the owner that waits.
    LeaveWithoutRinging,
    /// The owner takes its memory back when it has closed the gate.
    CloseWithoutWaiting,
}

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.max_branches = 50_000;
    builder.check(f);
}

/// One unit of payload. Loom reports any access that is not ordered with a write.
struct Cell(UnsafeCell<u64>);

// SAFETY: that the accesses are ordered is what loom checks.
unsafe impl Sync for Cell {}

/// A lane of one unit for each line.
struct Lane {
    shape: Shape,
    outlets: [Outlet; 2],
    lines: Vec<Words>,
    payload: Vec<Cell>,
    head: AtomicU64,
    plant: Plant,
}

impl Lane {
    fn new(lines: u32, plant: Plant) -> Arc<Lane> {
        Arc::new(Lane {
            shape: Shape { lines, units: lines },
            outlets: [lines; 2].map(Outlet::new),
            lines: (0..lines).map(|_| Words::new()).collect(),
            payload: (0..lines).map(|_| Cell(UnsafeCell::new(0))).collect(),
            head: AtomicU64::new(0),
            plant,
        })
    }

    /// Sends `value` with one unit of payload, waiting for room by yielding.
    fn send(&self, writer: usize, value: u64) {
        let outlet = &self.outlets[if self.plant == Plant::ClaimWithoutExchange { writer } else { 0 }];
        let at = loop {
            match outlet.claim(self.shape, 1, &self.head, || false) {
                Ok(claim) => break claim.at,
                Err(NoRoom::Full) => thread::yield_now(),
                Err(NoRoom::Broken(head)) => panic!("an honest head is refused: {head:#x}"),
            }
        };
        let write = || {
            // SAFETY: loom checks that nobody else uses the unit.
            self.payload[self.shape.unit(at.unit)].0.with_mut(|p| unsafe { *p = value });
        };
        let show = || publish(&self.lines[self.shape.line(at.line)], at.line, 1, [value; 7]);
        if self.plant == Plant::PublishBeforeWriting {
            show();
            write();
        } else {
            write();
            show();
        }
    }

    /// Takes the next record, if it is there.
    fn take(&self, inlet: &mut Inlet) -> Option<u64> {
        let at = inlet.at();
        let line = &self.lines[self.shape.line(at.line)];
        let there = match self.plant {
            Plant::IgnoreTheLap => line.w[0].load(Ordering::Acquire) != 0,
            _ => inlet.peek(line).is_some(),
        };
        if !there {
            return None;
        }
        let unit = self.shape.unit(at.unit);
        let early = self.plant == Plant::ShowBeforeReading;
        if early {
            inlet.advance(self.shape, at.unit, 1);
            inlet.show(&self.head);
        }
        // SAFETY: loom checks that nobody writes the unit.
        let value = self.payload[unit].0.with(|p| unsafe { *p });
        assert_eq!(line.w[7].load(Ordering::Relaxed), value, "a line and its payload differ");
        if !early {
            inlet.advance(self.shape, at.unit, 1);
            inlet.show(&self.head);
        }
        Some(value)
    }
}

/// Two writers, `each` records of each through a ring of two: every one comes once, and in its writer's
/// order.
fn two_writers(each: u64, preemptions: usize, plant: Plant) {
    model(preemptions, move || {
        let lane = Lane::new(2, plant);
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let lane = lane.clone();
                thread::spawn(move || (1..=each).for_each(|n| lane.send(writer, writer as u64 * 100 + n)))
            })
            .collect();
        let (mut inlet, mut next) = (Inlet::default(), [1, 1]);
        while next.iter().sum::<u64>() < 2 * each + 2 {
            match lane.take(&mut inlet) {
                Some(value) => {
                    let next = &mut next[(value / 100) as usize];
                    assert_eq!(value % 100, *next, "a record is lost, doubled or out of order");
                    *next += 1;
                }
                None => thread::yield_now(),
            }
        }
        writers.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// One writer, three records through a ring of two: it goes round.
fn round_the_ring(plant: Plant) {
    model(3, move || {
        let lane = Lane::new(2, plant);
        let writer = {
            let lane = lane.clone();
            thread::spawn(move || (1..=3).for_each(|n| lane.send(0, n)))
        };
        let mut inlet = Inlet::default();
        for n in 1..=3 {
            let value = loop {
                match lane.take(&mut inlet) {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, n, "a record is lost, doubled or out of order");
        }
        writer.join().unwrap();
    });
}

#[test]
fn two_writers_share_a_lane() {
    two_writers(1, 3, Plant::Nothing);
    two_writers(2, 1, Plant::Nothing);
}

#[test]
fn a_lane_goes_round() {
    round_the_ring(Plant::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_publish_before_writing() {
    round_the_ring(Plant::PublishBeforeWriting);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_show_before_reading() {
    round_the_ring(Plant::ShowBeforeReading);
}

#[test]
#[should_panic(expected = "a record is lost, doubled or out of order")]
fn planted_lap_ignored() {
    round_the_ring(Plant::IgnoreTheLap);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_claim_without_exchange() {
    two_writers(1, 2, Plant::ClaimWithoutExchange);
}

/// An endpoint with its bell, and one thing that it waits for.
struct Endpoint {
    line: Line,
    bits: [Words; 1],
    alarm: AtomicU64,
    done: AtomicU32,
}

impl Endpoint {
    fn new() -> Arc<Endpoint> {
        Arc::new(Endpoint {
            line: Line::new(),
            bits: [Words::new()],
            alarm: AtomicU64::new(0),
            done: AtomicU32::new(0),
        })
    }

    fn calls(&self) -> Calls<'_> {
        Calls { line: &self.line, bits: &self.bits }
    }

    /// What a peer does that has sent, or made room.
    fn deed(&self, plant: Plant) {
        let early = plant == Plant::LookBeforeCounting;
        let seen = early && alarm::is_armed(&self.alarm);
        self.done.fetch_add(1, Ordering::Release);
        let call = match early {
            true => seen,
            false => alarm::count(&self.alarm, 1),
        };
        if call {
            match plant {
                Plant::RingWithoutFence => {
                    self.bits[0].w[0].fetch_or(1 << 3, Ordering::Release);
                    self.line.w[0].fetch_or(1, Ordering::Release);
                    if self.line.sleepers.load(Ordering::Relaxed) > 0 {
                        self.line.bell.fetch_add(1, Ordering::Release);
                    }
                }
                _ => self.calls().call(3),
            }
        }
    }
}

/// One sleeper (a receiver, or a sender that waits for room), and peers that do what it waits for: it sees
/// all that was done, or the bell wakes it.
fn sleeper(peers: u32, plant: Plant) {
    model(3, move || {
        let endpoint = Endpoint::new();
        let peers: Vec<_> = (0..peers)
            .map(|_| {
                let endpoint = endpoint.clone();
                thread::spawn(move || endpoint.deed(plant))
            })
            .collect();
        let sleeper = Sleeper::at(&endpoint.line);
        let wanted = peers.len() as u32;
        if plant == Plant::AskBeforeTheBell {
            alarm::arm(&endpoint.alarm);
        }
        let slept = sleeper.look(|| {
            if plant != Plant::AskBeforeTheBell {
                alarm::arm(&endpoint.alarm);
            }
            let found = plant != Plant::NoSecondLook && endpoint.done.load(Ordering::Relaxed) == wanted;
            found.then_some(())
        });
        peers.into_iter().for_each(|p| p.join().unwrap());
        if let Err(seen) = slept {
            let woken = endpoint.line.bell.load(Ordering::Relaxed) != seen;
            assert!(woken, "a sleeper is not woken");
            let mut links = Vec::new();
            endpoint.calls().take(|link| links.push(link));
            assert_eq!(links, [3]);
        }
    });
}

/// The owner of links that are not looked at until they call.
#[test]
fn a_link_that_is_called_for_shows_its_records() {
    model(3, || {
        let endpoint = Endpoint::new();
        alarm::arm(&endpoint.alarm);
        let peer = {
            let endpoint = endpoint.clone();
            thread::spawn(move || endpoint.deed(Plant::Nothing))
        };
        let mut called = false;
        endpoint.calls().take(|_| called = true);
        if called {
            assert_eq!(endpoint.done.load(Ordering::Relaxed), 1, "called for nothing");
        }
        peer.join().unwrap();
        endpoint.calls().take(|_| called = true);
        assert!(called, "a call is lost");
    });
}

/// A sleeper whose links were all asked to call long ago: it looks at its calls only.
fn sleeper_of_cold_links(plant: Plant) {
    model(3, move || {
        let endpoint = Endpoint::new();
        alarm::arm(&endpoint.alarm);
        let peer = {
            let endpoint = endpoint.clone();
            thread::spawn(move || endpoint.deed(plant))
        };
        let sleeper = Sleeper::at(&endpoint.line);
        let slept = sleeper.look(|| endpoint.calls().any().then_some(()));
        peer.join().unwrap();
        if let Err(seen) = slept {
            assert_ne!(endpoint.line.bell.load(Ordering::Relaxed), seen, "a sleeper is not woken");
        }
    });
}

#[test]
fn a_sleeper_hears_of_cold_links() {
    sleeper_of_cold_links(Plant::Nothing);
}

#[test]
#[should_panic(expected = "a sleeper is not woken")]
fn planted_ring_without_fence() {
    sleeper_of_cold_links(Plant::RingWithoutFence);
}

#[test]
fn no_sleeper_is_forgotten() {
    sleeper(1, Plant::Nothing);
    sleeper(2, Plant::Nothing);
}

#[test]
#[should_panic(expected = "a sleeper is not woken")]
fn planted_look_before_counting() {
    sleeper(1, Plant::LookBeforeCounting);
}

#[test]
#[should_panic(expected = "a sleeper is not woken")]
fn planted_no_second_look() {
    sleeper(1, Plant::NoSecondLook);
}

#[test]
#[should_panic(expected = "a sleeper is not woken")]
fn planted_ask_before_the_bell() {
    sleeper(2, Plant::AskBeforeTheBell);
}

/// Lent memory behind its gate.
struct Lent {
    owner: Line,
    users: [Line; 2],
    memory: Cell,
}

impl Lent {
    fn lines(&self) -> gate::Lines<'_> {
        gate::Lines { owner: &self.owner, users: &self.users }
    }

    /// What a user does that puts or gets.
    fn copy(&self, user: u32, plant: Plant) {
        let lines = self.lines();
        let seen = self.owner.w[0].load(Ordering::Acquire) == 0;
        let is_open = match plant {
            Plant::EnterWithoutFence => {
                self.users[user as usize].w[0].fetch_add(1, Ordering::Relaxed);
                self.owner.w[0].load(Ordering::Acquire) == 0
            }
            Plant::LookBeforeEntering => lines.enter(user).unwrap() || seen,
            _ => lines.enter(user).unwrap(),
        };
        if is_open {
            // SAFETY: loom checks that the owner does not use it.
            self.memory.0.with(|p| unsafe { *p });
        }
        match plant {
            Plant::LeaveWithoutRinging => {
                self.users[user as usize].w[0].fetch_sub(1, Ordering::Release);
            }
            _ => lines.leave(user),
        }
    }
}

/// Users copy, and the owner takes its memory back: nobody copies from then on, and an owner that sleeps is
/// woken.
fn withdrawn(users: u32, plant: Plant) {
    model(3, move || {
        let lent = Arc::new(Lent {
            owner: Line::new(),
            users: [Line::new(), Line::new()],
            memory: Cell(UnsafeCell::new(0)),
        });
        let copiers: Vec<_> = (0..users)
            .map(|user| {
                let lent = lent.clone();
                thread::spawn(move || lent.copy(user, plant))
            })
            .collect();
        let lines = lent.lines();
        lines.close();
        let sleeper = lines.sleeper();
        let empty = || (plant == Plant::CloseWithoutWaiting || lines.inside().next().is_none()).then_some(());
        let slept = sleeper.look(empty);
        if slept.is_ok() {
            // SAFETY: loom checks that nobody else uses it.
            lent.memory.0.with_mut(|p| unsafe { *p += 1 });
        }
        copiers.into_iter().for_each(|c| c.join().unwrap());
        if let Err(seen) = slept {
            assert_ne!(lent.owner.bell.load(Ordering::Relaxed), seen, "a sleeper is not woken");
            assert_eq!(lines.inside().count(), 0, "somebody stays inside");
        }
    });
}

#[test]
fn nobody_copies_from_memory_that_was_taken_back() {
    withdrawn(1, Plant::Nothing);
    withdrawn(2, Plant::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_look_before_entering() {
    withdrawn(1, Plant::LookBeforeEntering);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_enter_without_fence() {
    withdrawn(1, Plant::EnterWithoutFence);
}

#[test]
#[should_panic(expected = "a sleeper is not woken")]
fn planted_leave_without_ringing() {
    withdrawn(1, Plant::LeaveWithoutRinging);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn planted_close_without_waiting() {
    withdrawn(1, Plant::CloseWithoutWaiting);
}
