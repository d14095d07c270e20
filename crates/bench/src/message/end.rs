//! One of two processes that send each other messages, whatever carries them.

use super::error::BenchError;
use super::tally::{words, Kind, Seen, Tally, LANES, WHOLE};
use polyduct_os::clock::now;
use std::time::Duration;

/// How long nothing may come before a measurement is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// What carries messages: a domain's channels, a shared-memory link itself, or a network link.
pub trait Carrier {
    /// Steps between two looks at the clock.
    const STEPS: u32;
    /// Sends a message without payload. False: there is no room now.
    fn short(&mut self, lane: usize, args: [u32; 4]) -> Result<bool, BenchError>;
    /// Sends a part of the source, waiting for room.
    fn bulk(&mut self, lane: usize, args: [u32; 4], at: usize, len: usize) -> Result<(), BenchError>;
    /// The same, with `work` done while the other side fetches it, where the carrier can.
    fn bulk_while(
        &mut self,
        lane: usize,
        args: [u32; 4],
        at: usize,
        len: usize,
        work: &mut dyn FnMut(),
    ) -> Result<(), BenchError>;
    /// Handles what has come, without waiting.
    fn poll(&mut self) -> Result<(), BenchError>;
    /// Handles what has come; where spinning would keep the carrier from working, sleeps until something
    /// does.
    fn step(&mut self) -> Result<(), BenchError>;
    /// Handles what comes until `done` says so, as programs wait with this carrier.
    #[inline]
    fn wait(&mut self, what: &'static str, mut done: impl FnMut(&Seen) -> bool) -> Result<(), BenchError>
    where
        Self: Sized,
    {
        let mut steps = 0;
        let mut since = None;
        while !done(&self.tally().seen()) {
            self.step()?;
            late::<Self>(what, &mut steps, &mut since)?;
        }
        Ok(())
    }
    /// Counts of what came.
    fn tally(&self) -> &Tally;
    /// Leaves in order, with all that was sent delivered.
    fn finish(self) -> Result<(), BenchError>;
}

/// One end: a carrier, and the numbers of what it sends.
pub struct End<C> {
    carrier: C,
    /// The process that asks, and whose clock counts.
    pub first: bool,
    numbers: [u32; LANES],
    met: u64,
}

impl<C: Carrier> End<C> {
    /// An end that has sent nothing yet.
    pub fn new(carrier: C, first: bool) -> End<C> {
        End { carrier, first, numbers: [0; LANES], met: 0 }
    }

    /// The carrier itself.
    pub fn carrier(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// Counts of what came.
    #[inline]
    pub fn seen(&self) -> Seen {
        self.carrier.tally().seen()
    }

    /// A part of the source.
    pub fn part(&self, at: usize, len: usize) -> &[u8] {
        self.carrier.tally().source().part(at, len)
    }

    /// Bytes of the source.
    pub fn source_len(&self) -> usize {
        self.carrier.tally().source().len()
    }

    /// A short message, if there is room.
    #[inline]
    pub fn try_short(&mut self, kind: Kind, lane: usize) -> Result<bool, BenchError> {
        let args = words(kind, lane, self.numbers[lane], 0, 0);
        let sent = self.carrier.short(lane, args)?;
        self.numbers[lane] = self.numbers[lane].wrapping_add(u32::from(sent));
        Ok(sent)
    }

    /// A short message, waiting for room.
    #[inline]
    pub fn short(&mut self, kind: Kind, lane: usize) -> Result<(), BenchError> {
        let mut steps = 0;
        let mut since = None;
        while !self.try_short(kind, lane)? {
            self.carrier.step()?;
            late::<C>("room for a short message", &mut steps, &mut since)?;
        }
        Ok(())
    }

    /// A message of `len` bytes from `at` on; without any, a short one.
    #[inline]
    pub fn send(&mut self, kind: Kind, lane: usize, at: usize, len: usize) -> Result<(), BenchError> {
        if len == 0 {
            return self.short(kind, lane);
        }
        self.bulk(words(kind, lane, self.numbers[lane], at, len), lane, at, len)
    }

    /// The same, compared whole where it comes.
    pub fn send_compared(&mut self, lane: usize, at: usize, len: usize) -> Result<(), BenchError> {
        let mut args = words(Kind::Data, lane, self.numbers[lane], at, len);
        args[0] |= WHOLE;
        self.bulk(args, lane, at, len)
    }

    /// A message that the other side fetches while `work` is done.
    pub fn send_while(
        &mut self,
        lane: usize,
        at: usize,
        len: usize,
        work: &mut dyn FnMut(),
    ) -> Result<(), BenchError> {
        let args = words(Kind::Data, lane, self.numbers[lane], at, len);
        self.numbers[lane] = self.numbers[lane].wrapping_add(1);
        self.carrier.bulk_while(lane, args, at, len, work)
    }

    #[inline]
    fn bulk(&mut self, args: [u32; 4], lane: usize, at: usize, len: usize) -> Result<(), BenchError> {
        self.numbers[lane] = self.numbers[lane].wrapping_add(1);
        self.carrier.bulk(lane, args, at, len)
    }

    /// Handles what comes until `done` says so.
    #[inline]
    pub fn until(&mut self, what: &'static str, done: impl FnMut(&Seen) -> bool) -> Result<(), BenchError> {
        self.carrier.wait(what, done)
    }

    /// Both are here. Returns the counts of what came before.
    pub fn meet(&mut self) -> Result<Seen, BenchError> {
        let before = self.seen();
        self.met += 1;
        let met = self.met;
        self.short(Kind::Meet, 0)?;
        self.until("the other process", |seen| seen.meets >= met)?;
        Ok(before)
    }

    /// Leaves in order.
    pub fn finish(self) -> Result<(), BenchError> {
        self.carrier.finish()
    }

    /// Fails if anything that came was not what was sent.
    pub fn verified(&self, what: &'static str) -> Result<(), BenchError> {
        match self.carrier.tally().bad() {
            0 => Ok(()),
            count => Err(BenchError::Wrong { what, count }),
        }
    }
}

/// Fails once nothing has been done for so long. Looks at the clock now and then only.
#[inline]
fn late<C: Carrier>(
    what: &'static str,
    steps: &mut u32,
    since: &mut Option<Duration>,
) -> Result<(), BenchError> {
    *steps += 1;
    if !(*steps).is_multiple_of(C::STEPS) {
        return Ok(());
    }
    let began = *since.get_or_insert_with(now);
    match now() - began > PATIENCE {
        true => Err(BenchError::Silent { what, seconds: PATIENCE.as_secs() }),
        false => Ok(()),
    }
}
