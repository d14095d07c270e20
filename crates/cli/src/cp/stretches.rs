//! A copy in stretches: while one is written the next is read, and no more than a few are in memory.
//!
//! The two ends have lengths of their own: what is read at once is a stretch of the source, what is written
//! at once a whole number of the target's units. Where the two do not meet, the stretch that was read last is
//! kept for what comes of it next.

use super::ends::{Source, Target};
use super::ports::room;
use super::{CpArgs, CpError, Moved};
use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

/// Bytes that are written at once, where the target's unit is smaller.
const WRITE_BYTES: u64 = 4 << 20;
/// Bytes that a unit copies in a row, in stretches of the source: what two of them share is read twice.
const IN_A_ROW: u64 = 8;

/// How the steps are cut.
#[derive(Clone, Copy)]
pub struct Stretches<'a> {
    args: &'a CpArgs,
    unit: u32,
    len_bytes: u64,
    /// Bytes of a stretch of the source, and of what is written at once.
    read: u64,
    write: u64,
}

/// What comes of the source, in order. The bytes are in a buffer that is given back.
enum Event {
    Step,
    Bytes { at: u64, len: usize, buffer: Vec<u8> },
    End,
}

/// Takes what comes, and gives a buffer for more of it; breaks off where nobody wants any.
type Give<'a> = dyn FnMut(Event) -> Result<ControlFlow<(), Vec<u8>>, CpError> + 'a;

impl<'a> Stretches<'a> {
    /// Of a copy by one of the units; `None` where an end has only whole steps.
    pub fn between(
        args: &'a CpArgs,
        unit: u32,
        source: &Source<'_>,
        target: &Target<'_>,
    ) -> Option<Stretches<'a>> {
        let (read, of) = (source.stretch_len(target)?.max(1), target.stretch_unit()?);
        let write = if of == 1 { read } else { (WRITE_BYTES / of).max(1).saturating_mul(of) };
        Some(Stretches { args, unit, len_bytes: source.dataset().len_bytes(), read, write })
    }

    /// Where the pieces of a step begin that this unit copies, and how long they are: dealt round.
    fn pieces(self) -> impl Iterator<Item = (u64, u64)> {
        let row = match self.args.units {
            1 => u64::MAX,
            _ if self.write == self.read => self.write,
            _ => (self.read.saturating_mul(IN_A_ROW) / self.write).max(1).saturating_mul(self.write),
        };
        let apart = row.saturating_mul(self.args.units.into());
        std::iter::successors(row.checked_mul(self.unit.into()), move |at| at.checked_add(apart))
            .take_while(move |&at| at < self.len_bytes)
            .map(move |at| (at, row.min(self.len_bytes - at)))
    }

    /// Copies all steps; gives their number.
    pub fn copy(
        self,
        source: &mut Source<'_>,
        target: &mut Target<'_>,
        moved: &Moved,
    ) -> Result<u64, CpError> {
        let buffer = || room(self.write.min(self.len_bytes), &self.args.src);
        let (first, second) = (buffer()?, buffer()?);
        let mut write = |came| -> Result<Vec<u8>, CpError> {
            match came {
                Event::Step => target.begin_step()?,
                Event::End => target.end_step()?,
                Event::Bytes { at, len, buffer } => {
                    target.write_stretch(at, buffer.get(..len).unwrap_or_default())?;
                    moved.add(len as u64);
                    return Ok(buffer);
                }
            }
            Ok(Vec::new())
        };
        if source.is_stream() {
            // The program that writes it is ahead by itself; and nobody should have to wait for more of it
            // once the target has failed.
            return self.read(source, first, &mut |next| write(next).map(ControlFlow::Continue));
        }
        // Of whichever of the two threads there is.
        let from = Mutex::new((source, first));
        let read = &|give: &mut Give<'_>| {
            let mut from = from.lock().unwrap_or_else(PoisonError::into_inner);
            let (source, first) = &mut *from;
            self.read(source, std::mem::take(first), give)
        };
        std::thread::scope(|scope| {
            let (send, came) = sync_channel::<Event>(1);
            let (give, free) = sync_channel::<Vec<u8>>(2);
            let _ = give.send(second);
            // What is read goes to the other thread, and a buffer that is free comes from there. Where that
            // one is not there any more, it has failed.
            let mut hand = move |next: Event| {
                let has_buffer = matches!(next, Event::Bytes { .. });
                let sent = send.send(next).ok();
                let free = sent.and_then(|()| if has_buffer { free.recv().ok() } else { Some(Vec::new()) });
                Ok(free.map_or(ControlFlow::Break(()), ControlFlow::Continue))
            };
            let Ok(reader) = Builder::new().spawn_scoped(scope, move || read(&mut hand)) else {
                // One after the other, then.
                return read(&mut |next| write(next).map(ControlFlow::Continue));
            };
            let mut written = Ok(());
            for next in came.iter() {
                let has_buffer = matches!(next, Event::Bytes { .. });
                match write(next) {
                    Ok(buffer) if has_buffer => drop(give.send(buffer)),
                    Ok(_) => {}
                    Err(error) => {
                        written = Err(error);
                        break;
                    }
                }
            }
            // The reader notices that nobody takes what it reads.
            drop((came, give));
            let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(read)
        })
    }

    /// Reads all steps and gives what comes away, for a buffer that is free each time; gives the number of
    /// steps.
    fn read(self, source: &mut Source<'_>, mut buffer: Vec<u8>, give: &mut Give<'_>) -> Result<u64, CpError> {
        let (mut kept, mut step) = (Kept::default(), 0);
        while source.has_step(step)? {
            if give(Event::Step)?.is_break() {
                return Ok(step);
            }
            for (begin, len) in self.pieces() {
                let mut at = begin;
                while at < begin + len {
                    let now = self.write.min(begin + len - at) as usize;
                    self.fill(source, &mut kept, step, at, buffer.get_mut(..now).unwrap_or_default())?;
                    match give(Event::Bytes { at, len: now, buffer })? {
                        ControlFlow::Continue(free) => buffer = free,
                        ControlFlow::Break(()) => return Ok(step),
                    }
                    at += now as u64;
                }
            }
            if give(Event::End)?.is_break() {
                return Ok(step);
            }
            step += 1;
        }
        Ok(step)
    }

    /// Fills `bytes` with what there is from `at` on: where whole stretches lie in it, these are read in
    /// place.
    fn fill(
        self,
        source: &mut Source<'_>,
        kept: &mut Kept,
        step: u64,
        mut at: u64,
        bytes: &mut [u8],
    ) -> Result<(), CpError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let begin = at - at % self.read;
            let len = self.read.min(self.len_bytes - begin) as usize;
            let within = (at - begin) as usize;
            let now = (len - within).min(rest.len());
            let (to, later) = rest.split_at_mut(now);
            if now == len {
                source.read_stretch(step, at, to)?;
            } else {
                let from = kept.stretch(source, (step, begin), len, &self.args.src)?;
                to.copy_from_slice(from.get(within..within + now).unwrap_or_default());
            }
            (rest, at) = (later, at + now as u64);
        }
        Ok(())
    }
}

/// The stretch that was read last, of those that do not lie in one buffer.
#[derive(Default)]
struct Kept {
    of: Option<(u64, u64)>,
    bytes: Vec<u8>,
}

impl Kept {
    fn stretch(
        &mut self,
        source: &mut Source<'_>,
        of: (u64, u64),
        len: usize,
        url: &str,
    ) -> Result<&[u8], CpError> {
        if self.of != Some(of) {
            self.of = None;
            if self.bytes.capacity() < len {
                self.bytes = room(len as u64, url)?;
            }
            self.bytes.resize(len, 0);
            source.read_stretch(of.0, of.1, &mut self.bytes)?;
            self.of = Some(of);
        }
        Ok(&self.bytes)
    }
}
