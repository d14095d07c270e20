//! Views of a segment, and how they are kept from crossing.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::PoisonError;

use super::{Access, Segment};
use crate::error::{OsError, Result};
use crate::sync::Line;

impl<D> Segment<D> {
    /// The bytes `range` as control lines. Both ends must be multiples of 64 and the mapping writable.
    pub fn lines(&self, range: Range<usize>) -> Result<&[Line]> {
        self.check_lines(&range)?;
        self.claim_atomic(&range)?;
        // SAFETY: in bounds and aligned (the base is page-aligned), writable, all bit patterns are valid
        // lines; the claim above keeps these bytes from being given as plain memory while `self` is shared.
        Ok(unsafe { core::slice::from_raw_parts(self.at(range.start).cast(), range.len() / 64) })
    }

    /// The bytes `range` as atomics.
    pub fn bytes(&self, range: Range<usize>) -> Result<&[AtomicU8]> {
        self.check(&range)?;
        self.check_writable()?;
        self.claim_atomic(&range)?;
        // SAFETY: in bounds, writable; the claim keeps these bytes from being given as plain memory.
        Ok(unsafe { core::slice::from_raw_parts(self.at(range.start).cast(), range.len()) })
    }

    /// The bytes `range` as plain memory, without a copy. See the module for what peers can do to it.
    pub fn slice(&self, range: Range<usize>) -> Result<&[u8]> {
        self.check(&range)?;
        self.claim_plain(&range)?;
        // SAFETY: in bounds and mapped; no byte of it is given as an atomic, and `slice_mut` needs the
        // segment alone.
        Ok(unsafe { core::slice::from_raw_parts(self.at(range.start), range.len()) })
    }

    /// The bytes `range`, to fill in place. Only in a segment that this process created.
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<&mut [u8]> {
        self.check(&range)?;
        self.check_created()?;
        self.release_views();
        // SAFETY: in bounds and writable; the exclusive borrow says that no other view of this mapping lives.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.at(range.start), range.len()) })
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len);
        // SAFETY: every caller has checked `offset <= len`, so the result is within the mapping or one past
        // its end.
        unsafe { self.base.as_ptr().add(offset) }
    }

    pub(super) fn check(&self, range: &Range<usize>) -> Result<()> {
        if range.start <= range.end && range.end <= self.len {
            return Ok(());
        }
        Err(OsError::OutOfRange {
            what: "a segment".into(),
            start: range.start,
            end: range.end,
            len: self.len,
        })
    }

    fn check_lines(&self, range: &Range<usize>) -> Result<()> {
        self.check(range)?;
        // The words of a model lie in no segment.
        let align = size_of::<Line>();
        if !range.start.is_multiple_of(64) || !range.end.is_multiple_of(64) || align != 64 {
            let what = "a segment".into();
            return Err(OsError::Misaligned { what, start: range.start, end: range.end, align });
        }
        self.check_writable()
    }

    fn check_writable(&self) -> Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => {
                Err(OsError::AccessDenied { op: "written", what: "a read-only segment".into() })
            }
        }
    }

    fn check_created(&self) -> Result<()> {
        if self.created {
            return Ok(());
        }
        Err(OsError::AccessDenied { op: "filled in place", what: "a segment of another process".into() })
    }

    fn claim_atomic(&self, range: &Range<usize>) -> Result<()> {
        if range.is_empty() || range.end <= self.atomic_end.load(Relaxed) {
            return Ok(());
        }
        let _dividing = self.dividing.lock().unwrap_or_else(PoisonError::into_inner);
        if range.end > self.plain_start.load(Relaxed) {
            return Err(self.conflict(range));
        }
        self.atomic_end.fetch_max(range.end, Relaxed);
        Ok(())
    }

    fn claim_plain(&self, range: &Range<usize>) -> Result<()> {
        if range.is_empty() || range.start >= self.plain_start.load(Relaxed) {
            return Ok(());
        }
        let _dividing = self.dividing.lock().unwrap_or_else(PoisonError::into_inner);
        if range.start < self.atomic_end.load(Relaxed) {
            return Err(self.conflict(range));
        }
        self.plain_start.fetch_min(range.start, Relaxed);
        Ok(())
    }

    fn conflict(&self, range: &Range<usize>) -> OsError {
        let (atomic_end, plain_start) = (self.atomic_end.load(Relaxed), self.plain_start.load(Relaxed));
        OsError::ViewConflict {
            what: "a segment".into(),
            start: range.start,
            end: range.end,
            atomic_end,
            plain_start,
        }
    }

    /// With the segment borrowed alone no view lives, so the next ones may divide it anew.
    fn release_views(&mut self) {
        *self.atomic_end.get_mut() = 0;
        *self.plain_start.get_mut() = usize::MAX;
    }
}
