//! The bell of an endpoint: it sleeps there, and its peers call it there.
//!
//! Each endpoint has one bell, a small segment that all its peers map: a line with the futex, and a bit for
//! each link. A peer that finds a link's alarm armed sets the bit and rings. So an endpoint with thousands of
//! links looks at those few that are busy, and at one word for all the others.
//!
//! Every peer may write all of it. A faulty one can call for nothing, which costs a look, or erase the calls
//! of others, which is why nobody sleeps longer than [`SLICE`] at a time and then looks at everything.

use polyduct_os::bell::Sleeper;
use polyduct_os::segment::{Access, Segment};
use polyduct_os::spin::Spin;
use polyduct_os::sync::Line;
use polyduct_ring::calls::{Calls, LINKS_PER_LINE};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// The longest sleep at a time.
pub const SLICE: Duration = Duration::from_millis(100);

/// The bell of an endpoint: its own, or a peer's.
#[derive(Debug)]
pub struct Bell {
    segment: Segment,
}

impl Bell {
    /// A bell for `links` links, at most 32768.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn create(links: u32) -> polyduct_os::Result<Bell> {
        let lines = links.clamp(1, 64 * LINKS_PER_LINE).div_ceil(LINKS_PER_LINE) as usize + 1;
        let segment = Segment::create("polyduct bell", lines * 64)?;
        segment.prefault(0..segment.len())?;
        Ok(Bell { segment })
    }

    /// A peer's bell, by the descriptor that it handed over.
    ///
    /// # Errors
    /// It is no such segment, or cannot be mapped.
    pub fn attach(fd: OwnedFd) -> polyduct_os::Result<Bell> {
        let segment = Segment::from_fd(fd, 128, 65 * 64, Access::ReadWrite)?;
        segment.prefault(0..segment.len())?;
        Ok(Bell { segment })
    }

    /// The descriptor, to hand to peers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.segment.fd()
    }

    /// Its lines.
    #[inline]
    pub fn calls(&self) -> Calls<'_> {
        let base = self.segment.address() as *const Line;
        let bits = self.segment.len() / 64 - 1;
        // SAFETY: the mapping lives as long as `self`, is writable, page-aligned and holds 1 + `bits` lines
        // (at least two, checked when it was made); both types are 64 bytes of atomics, and no other view is
        // ever made of it.
        unsafe { Calls { line: &*base, bits: core::slice::from_raw_parts(base.add(1).cast(), bits) } }
    }

    /// Calls `ready` until it gives something: for as long as `spin` says, then asleep at this bell until
    /// `deadline` (a time of [`polyduct_os::clock::now`]). `arm` is called before each sleep: it says to the
    /// senders that they must call.
    ///
    /// `ready` must have taken all that is there when it gives `None`: nobody calls for it again.
    ///
    /// Returns `None` at the deadline. No system call where something comes while it spins.
    pub fn wait<S, T>(
        &self,
        state: &mut S,
        spin: &Spin,
        deadline: Duration,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        arm: impl FnMut(&mut S),
    ) -> Option<T> {
        let start = polyduct_os::clock::now();
        let found = match polyduct_os::bell::spin(start, spin.time(), || ready(state)) {
            Some(found) => Some(found),
            None => self.sleep(state, deadline, ready, arm),
        };
        spin.handle_answer(polyduct_os::clock::now() - start);
        found
    }

    fn sleep<S, T>(
        &self,
        state: &mut S,
        deadline: Duration,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        mut arm: impl FnMut(&mut S),
    ) -> Option<T> {
        let sleeper = Sleeper::at(self.calls().line);
        loop {
            let ask = || {
                arm(state);
                ready(state)
            };
            let seen = match sleeper.look(ask) {
                Ok(found) => return Some(found),
                Err(seen) => seen,
            };
            let left = deadline.saturating_sub(polyduct_os::clock::now());
            if left.is_zero() {
                return None;
            }
            sleeper.sleep(seen, Some(left.min(SLICE)));
        }
    }
}
