//! Whether the next step is there.

use super::Reader;
use crate::ready::{Wait, Watch};
use polyduct_slots::Slots;

impl Reader {
    /// Where [`read`](Reader::read) sleeps.
    pub fn watch(&self) -> Watch {
        Watch::at_bell(&self.port.slots, Slots::published_bell)
    }

    /// What the next [`read`](Reader::read) would wait for; `None` if it would not.
    pub fn would_wait(&self) -> Option<Wait> {
        let may_read = || self.port.slots.may_next(self.program, self.port.me.unit, self.next);
        (self.port.check_open().is_ok() && !may_read()).then(Wait::default)
    }
}
