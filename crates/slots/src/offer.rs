//! Offers: a writer's part of a step lies in the writer's own memory instead of its slot, and readers copy it
//! from there.

use super::bell::ring;
use super::{Slots, Turn, OFFER, OFFERS, OFFER_STEP, REFUSED};
use polyduct_os::sync::{fence, Ordering};

impl Slots {
    /// Says that this step's part of writer `unit` does not lie in its slot but at `address` of its own
    /// memory. Before [`publish`](Self::publish).
    pub fn offer(&self, unit: u32, turn: Turn, address: u64) {
        let line = self.line(self.geometry.writer(unit));
        line.w[OFFER].store(address, Ordering::Relaxed);
        line.w[OFFER_STEP].store(turn.step + 1, Ordering::Release);
        self.line(self.geometry.slot(turn.slot)).w[OFFERS].store(turn.step + 1, Ordering::Release);
    }

    /// Takes an offer back: the part lies in its slot after all. A reader that was copying finds out
    /// [afterwards](Self::offered) and copies again.
    pub fn withdraw(&self, unit: u32) {
        self.line(self.geometry.writer(unit)).w[OFFER_STEP].store(0, Ordering::SeqCst);
        ring(self.published_bell());
    }

    /// Where writer `unit`'s part of a visible step lies in its own memory, if it is not in its slot. What
    /// was copied from there is good if the answer is still the same after the copy.
    pub fn offered(&self, unit: u32, turn: Turn) -> Option<u64> {
        if self.line(self.geometry.slot(turn.slot)).w[OFFERS].load(Ordering::Acquire) != turn.step + 1 {
            return None;
        }
        fence(Ordering::SeqCst);
        let line = self.line(self.geometry.writer(unit));
        let mine = line.w[OFFER_STEP].load(Ordering::Acquire) == turn.step + 1;
        mine.then(|| line.w[OFFER].load(Ordering::Relaxed))
    }

    /// A reader may not look into writer `unit`'s memory: asks it to withdraw this step's offer.
    pub fn refuse_offer(&self, unit: u32, turn: Turn) {
        self.line(self.geometry.writer(unit)).w[REFUSED].store(turn.step + 1, Ordering::Release);
        ring(self.freed_bell());
    }

    /// Whether a reader asked writer `unit` to withdraw this step's offer.
    pub fn is_refused(&self, unit: u32, turn: Turn) -> bool {
        self.line(self.geometry.writer(unit)).w[REFUSED].load(Ordering::Acquire) == turn.step + 1
    }
}
