//! Whether there is room for the next step.

use super::Writer;
use crate::ready::{Wait, Watch};
use polyduct_slots::Slots;

impl Writer {
    /// Where [`step`](Writer::step) sleeps.
    pub fn watch(&self) -> Watch {
        Watch::at_bell(&self.port.slots, Slots::freed_bell)
    }

    /// What the next [`step`](Writer::step) would wait for; `None` if it would not.
    pub fn would_wait(&self) -> Option<Wait> {
        let may_begin = || self.port.slots.may_begin(self.port.me.unit, self.next);
        (self.check_writing().is_ok() && !may_begin()).then(Wait::default)
    }
}
