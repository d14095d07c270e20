//! Calls from the peers of an endpoint: a line where it sleeps, and a bit for each link.
//!
//! Every peer may write all of it. A faulty one can call for nothing, which costs a look, or erase the calls
//! of others, which is why nobody sleeps long at a time, and then looks at everything.

use polyduct_os::sync::{AtomicU64, Line, Ordering, Words};

/// The lines of a bell: the futex, then words of one bit for each link.
///
/// Word 0 of the first line says which of the others have bits: bit `i` stands for line 1 + `i`.
#[derive(Clone, Copy)]
pub struct Calls<'a> {
    /// The futex, the sleepers and the summary.
    pub line: &'a Line,
    /// The bits.
    pub bits: &'a [Words],
}

/// Links that one line of bits stands for.
pub const LINKS_PER_LINE: u32 = 512;

impl Calls<'_> {
    fn summary(&self) -> &AtomicU64 {
        &self.line.w[0]
    }

    /// Calls the owner for its link `slot`. What was stored before is visible to it when it takes the call.
    pub fn call(&self, slot: u32) {
        let Some(bits) = self.bits.get((slot / LINKS_PER_LINE) as usize) else { return };
        bits.w[(slot / 64 % 8) as usize].fetch_or(1 << (slot % 64), Ordering::Release);
        self.summary().fetch_or(1 << (slot / LINKS_PER_LINE % 64), Ordering::Release);
        self.ring();
    }

    /// Wakes all who sleep.
    pub fn ring(&self) {
        polyduct_os::bell::ring(self.line);
    }

    /// Whether there are calls.
    #[inline]
    pub fn any(&self) -> bool {
        self.summary().load(Ordering::Relaxed) != 0
    }

    /// Takes all calls: `link` gets each link's number once, and sees what was stored before it was called.
    pub fn take(&self, mut link: impl FnMut(u32)) {
        let lines = self.summary().swap(0, Ordering::AcqRel);
        for (i, line) in self.bits.iter().enumerate().filter(|(i, _)| lines >> (i % 64) & 1 != 0) {
            for (j, word) in line.w.iter().enumerate() {
                let mut bits = match word.load(Ordering::Relaxed) {
                    0 => continue,
                    _ => word.swap(0, Ordering::AcqRel),
                };
                while bits != 0 {
                    link(i as u32 * LINKS_PER_LINE + j as u32 * 64 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }
}
