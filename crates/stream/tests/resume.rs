//! Lanes that are cut again and again: what has arrived does not go over them a second time.

mod sites;

use polyduct_rig::{free_address, Middle};
use polyduct_stream::gateway::receive::Sink;
use polyduct_stream::gateway::transmit::{Opened, ProgramError, Source};
use polyduct_stream::StreamError;
use sites::Stream;
use std::ops::Range;
use std::time::Duration;

const STEP: u64 = 1 << 20;
const STEPS: u64 = 8;
/// Bytes of a connection before it is cut.
const CUT_AFTER: u64 = 200_000;

fn byte(step: u64, at: u64) -> u8 {
    (step * 31 + at * 7 + (at >> 9)) as u8
}

/// A program of some steps.
struct Steps(u64);

impl Source for Steps {
    fn open(&mut self, _: bool) -> Result<Opened, ProgramError> {
        Ok(if self.0 < STEPS { Opened::Step(STEP) } else { Opened::End })
    }

    fn lies(&mut self, _: &Range<u64>) -> Result<bool, ProgramError> {
        Ok(false)
    }

    fn lie(&self, _: &Range<u64>) -> &[u8] {
        &[]
    }

    fn copy(&mut self, at: &Range<u64>, into: &mut [u8]) -> Result<(), ProgramError> {
        at.clone().zip(into).for_each(|(at, into)| *into = byte(self.0, at));
        Ok(())
    }

    fn pass(&mut self) -> Result<(), ProgramError> {
        self.0 += 1;
        Ok(())
    }
}

/// One that sees whether they are right.
struct Checks(u64);

impl Sink for Checks {
    fn step(
        &mut self,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let mut step = vec![0; len as usize];
        fill(&mut step)?;
        assert!((0..).zip(step).all(|(at, found)| found == byte(self.0, at)), "step {}", self.0);
        self.0 += 1;
        Ok(())
    }
}

/// Bytes that went over the network for each byte of the steps.
fn cost(sender_listens: bool, lanes: u32, delay: Duration, unit: u64) -> f64 {
    let door = free_address();
    let middle = Middle::cutting(door, delay, CUT_AFTER);
    let stream = Stream { addrs: [door, middle.addr], sender_listens, lanes, sizes: [STEP, STEP, unit] };
    let moved = stream.carry(Steps(0), Checks(0));
    assert_eq!(moved.map(|end| end.unwrap()), [STEPS; 2]);
    middle.carried()[usize::from(sender_listens)] as f64 / (STEP * STEPS) as f64
}

#[test]
fn what_has_arrived_goes_once() {
    for (listens, lanes, millis) in [(false, 1, 0), (true, 1, 0), (false, 1, 4), (true, 1, 4), (false, 3, 4)]
    {
        let cost = cost(listens, lanes, Duration::from_millis(millis), 64 << 10);
        println!("sender listens: {listens}, {lanes} lanes, {millis} ms: {cost:.2}");
        // What one of several lanes had not confirmed goes over the others at once, and more of it the later that comes.
        let most = if lanes == 1 { 1.5 } else { f64::from(lanes) + 1.0 };
        assert!(cost < most, "sender listens: {listens}, {lanes} lanes, {millis} ms: {cost:.2}");
    }
}

#[test]
fn cuts_within_every_unit_are_borne() {
    for listens in [false, true] {
        let cost = cost(listens, 1, Duration::ZERO, STEP);
        println!("units of a whole step, sender listens: {listens}: {cost:.2}");
        assert!(cost < 2.0, "sender listens: {listens}: {cost:.2}");
    }
}
