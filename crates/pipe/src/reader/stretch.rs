//! Steps that are read a stretch after the other, by who has no memory for all of one: gateways.

use super::Reader;
use crate::error::PipeError;
use crate::work::Work;
use polyduct_slots::Turn;
use std::ops::Range;

/// The most stretches of a step: each has a plan of its own.
const MOST: u64 = 1 << 14;

/// How a step falls into stretches, with the plan of each, made when it is first read.
pub struct Stretches {
    len: u64,
    /// Bytes that this unit has of a step.
    own: u64,
    /// Which unit this is, of how many, that have stretches by turns.
    share: (u32, u32),
    works: Vec<Option<Box<Work>>>,
    turn: Option<Turn>,
}

impl Stretches {
    /// Bytes of a stretch, but for the last of a step.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Which stretch has these bytes, and no others.
    fn index(&self, at: &Range<u64>) -> Option<usize> {
        let whole = at.start.is_multiple_of(self.len) && at.end == (at.start + self.len).min(self.own);
        whole.then_some((at.start / self.len) as usize)
    }

    /// Which it is of the whole array's.
    fn of_all(&self, index: usize) -> u32 {
        index as u32 * self.share.1 + self.share.0
    }
}

impl Reader {
    /// Stretches of about `len` bytes of the row-major array, of a unit that has all of it; of one of several, which
    /// have stripes of that length, exactly that: `share` is which it is, of how many. `None` where only whole steps can be
    /// read: across hosts, of several arrays, and where sizes change.
    pub fn stretches(&self, len: u64, share: (u32, u32)) -> Option<Stretches> {
        let (dataset, own) = (self.dataset(), self.local_len_bytes() as u64);
        let (elem, all) = (dataset.elem().len_bytes(), dataset.len_bytes());
        let about = len.max(all.div_ceil(MOST)).div_ceil(elem).max(1) * elem;
        let len = if share.1 > 1 { len } else { about };
        if len != about {
            return None;
        }
        let mut stretches = Stretches { len, own, share, works: Vec::new(), turn: None };
        stretches.works.resize_with(own.div_ceil(len).max(1) as usize, || None);
        // The first tells whether there can be any.
        if own > 0 || share.1 == 1 {
            let first = self.work.stretch(len, stretches.of_all(0)).filter(|_| self.is_near())?.ok()?;
            stretches.works[0] = Some(Box::new(first));
        }
        Some(stretches)
    }

    /// Waits for the next step, and has its stretches be read until it is [passed](Reader::pass). Returns its number,
    /// `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`read`](Reader::read).
    pub fn open_stretches(&mut self, of: &mut Stretches) -> Result<Option<u64>, PipeError> {
        of.turn = self.take()?;
        Ok(of.turn.map(|turn| turn.step))
    }

    /// Whether a stretch of the step that is [open](Reader::open_stretches) [lies](Reader::lies) in one piece in a
    /// writer's slot. Makes its plan, the first time.
    ///
    /// # Errors
    /// [`PortError::BadPeer`](polyduct_port::PortError::BadPeer) for no stretch of an open step.
    pub fn stretch_lies(&self, of: &mut Stretches, at: &Range<u64>) -> Result<bool, PipeError> {
        let wrong = || PipeError::bad_peer(&self.port.pipe, format!("no stretch at bytes {at:?}"));
        let index = of.index(at).ok_or_else(wrong)?;
        let number = of.of_all(index);
        let known = of.works.get_mut(index).ok_or_else(wrong)?;
        if known.is_none() {
            let made = self.work.stretch(of.len, number).and_then(Result::ok).ok_or_else(wrong)?;
            *known = Some(Box::new(made));
        }
        let work = known.as_ref().ok_or_else(wrong)?;
        Ok(self.end.is_held(work, of.turn.ok_or_else(wrong)?))
    }

    /// A stretch that [lies](Reader::stretch_lies) in a writer's slot, until the step is [passed](Reader::pass); of any
    /// other no bytes.
    pub fn lies(&self, of: &Stretches, at: &Range<u64>) -> &[u8] {
        let work = of.index(at).and_then(|index| of.works.get(index)?.as_ref());
        let held = work.zip(of.turn).filter(|(work, turn)| self.end.is_held(work, *turn));
        held.map_or(&[], |(work, turn)| self.end.held(work, turn))
    }

    /// Copies a stretch, whose plan was [made](Reader::stretch_lies), into `into`, which has its length.
    ///
    /// # Errors
    /// As [`read`](Reader::read).
    pub fn copy_stretch(
        &mut self,
        of: &Stretches,
        at: &Range<u64>,
        into: &mut [u8],
    ) -> Result<(), PipeError> {
        let known = of.index(at).and_then(|index| of.works.get(index)?.as_ref()).zip(of.turn);
        let Some((work, turn)) = known else {
            return Err(PipeError::bad_peer(&self.port.pipe, format!("no stretch at bytes {at:?}")));
        };
        self.port.check_len(into.len(), work.len)?;
        let copied = self.end.copy(&mut self.port, work, turn, &mut [into]);
        copied.map_err(|e| self.port.fail(e))
    }

    /// This unit wants nothing more of the next step, even where it has read nothing of it.
    ///
    /// # Errors
    /// As [`read`](Reader::read).
    pub fn pass(&mut self) -> Result<(), PipeError> {
        self.take()?.map_or(Ok(()), |turn| self.release(turn))
    }
}
