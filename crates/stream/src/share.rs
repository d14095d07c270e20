//! What one of several gateways carries of a stream: blocks of each step, by turns.

use serde::{Deserialize, Serialize};

/// The share of gateway `index` of `of`: of a step's blocks of `block` bytes every `of`-th, beginning with number `index`.
/// Gateways of an nCUBE with several network interfaces share a transfer so (paper on its parallel I/O, figure 10).
///
/// ```
/// use polyduct_stream::Share;
///
/// let second = Share { index: 1, of: 3, block: 10 };
/// assert_eq!((second.of_step(0), second.of_step(14)), (10, 44));
/// assert_eq!(second.own(44), Some(14));
/// assert_eq!(second.own(20), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Which gateway.
    pub index: u32,
    /// Of how many.
    pub of: u32,
    /// Bytes of a block.
    pub block: u64,
}

impl Share {
    /// All of a stream.
    pub const ALL: Share = Share { index: 0, of: 1, block: u64::MAX };

    /// Whether that is all.
    pub fn is_all(&self) -> bool {
        self.of == 1
    }

    /// Where in the step the gateway's byte number `at` belongs.
    pub fn of_step(&self, at: u64) -> u64 {
        if self.is_all() {
            return at;
        }
        let number = (at / self.block).saturating_mul(self.of.into()).saturating_add(self.index.into());
        number.saturating_mul(self.block).saturating_add(at % self.block)
    }

    /// How many bytes of the gateway's lie before byte `at` of a step.
    pub fn own_before(&self, at: u64) -> u64 {
        if self.is_all() {
            return at;
        }
        let (blocks, of, index) = (at / self.block, u64::from(self.of), u64::from(self.index));
        let whole = blocks / of + u64::from(blocks % of > index);
        let part = if blocks % of == index { at % self.block } else { 0 };
        whole * self.block + part
    }

    /// Which byte of the gateway's that of a step is; `None` where it is another's.
    pub fn own(&self, at: u64) -> Option<u64> {
        if self.is_all() {
            return Some(at);
        }
        let number = at / self.block;
        let mine = number % u64::from(self.of) == self.index.into();
        mine.then(|| number / u64::from(self.of) * self.block + at % self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_bytes_are_counted_as_one_by_one() {
        for (index, of, block) in [(0, 1, 7), (0, 3, 4), (1, 3, 4), (2, 3, 4), (1, 2, 1)] {
            let (share, mut own) = (Share { index, of, block }, 0);
            for at in 0..50 {
                assert_eq!(share.own_before(at), own, "{share:?} {at}");
                own += u64::from(share.own(at).is_some());
            }
        }
    }
}
