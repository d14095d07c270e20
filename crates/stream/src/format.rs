//! How the data of a stream are cut: application data units, transfer units and striping units (iWarp's network
//! interface, section 5.2).

use crate::ControlError;
use std::ops::Range;

/// The most buffers of a stream, and the most lanes.
pub const MAX_BUFFERS: u32 = 64;
/// The most lanes of a stream.
pub const MAX_LANES: u32 = 64;

/// The size of application data units: a step of an array, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adu {
    /// All have so many bytes.
    Fixed(u64),
    /// Each has its own size.
    Changing {
        /// Bytes of the largest.
        most: u64,
    },
}

impl Adu {
    /// Bytes of the largest.
    pub fn most(self) -> u64 {
        match self {
            Adu::Fixed(len) | Adu::Changing { most: len } => len,
        }
    }

    /// Whether one may have so many bytes.
    pub fn fits(self, len: u64) -> bool {
        match self {
            Adu::Fixed(all) => len == all,
            Adu::Changing { most } => len <= most,
        }
    }
}

/// How a stream's application data units (ADUs) move: as transfer units (TUs), each in a buffer, whose striping units
/// (SUs) are dealt to the lanes.
///
/// ```
/// use polyduct_stream::{Adu, Format};
///
/// // Figure 8 of the paper: 128 KiB in two transfer units, over four lanes.
/// let format = Format::new(Adu::Fixed(128 << 10), 64 << 10, 8 << 10, 4)?;
/// assert_eq!(format.tus(128 << 10), 2);
/// let second: Vec<_> = format.sus(64 << 10..128 << 10).map(|su| su.lane).collect();
/// assert_eq!(second, [0, 1, 2, 3, 0, 1, 2, 3]);
/// # Ok::<(), polyduct_stream::ControlError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    adu: Adu,
    tu: u64,
    su: u64,
    lanes: u32,
}

/// A striping unit: bytes of an application data unit, and the lane that they are dealt to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Su {
    /// The lane.
    pub lane: u32,
    /// Where in the application data unit.
    pub at: Range<u64>,
}

impl Format {
    /// Of a stream of which it is not known yet what comes.
    pub(crate) const UNKNOWN: Format = Format { adu: Adu::Fixed(0), tu: 1, su: 1, lanes: 1 };

    /// Transfer units of `tu` bytes, striping units of `su` bytes.
    ///
    /// # Errors
    /// [`ControlError::Format`] for sizes of no bytes, and lanes that are none or too many.
    pub fn new(adu: Adu, tu: u64, su: u64, lanes: u32) -> Result<Format, ControlError> {
        let wrong = |what, found, expected| Err(ControlError::Format { what, found, expected });
        let tu = tu.min(adu.most().max(1));
        if tu == 0 {
            return wrong("bytes of a transfer unit", tu, "at least 1");
        }
        if su == 0 {
            return wrong("bytes of a striping unit", su, "at least 1");
        }
        if !(1..=MAX_LANES).contains(&lanes) {
            return wrong("lanes", lanes.into(), "1 to 64");
        }
        Ok(Format { adu, tu, su, lanes })
    }

    /// The size of the ADUs.
    pub fn adu(&self) -> Adu {
        self.adu
    }

    /// Bytes of a transfer unit, but for the last of an ADU; and the most that a buffer holds.
    pub fn tu_bytes(&self) -> u64 {
        self.tu
    }

    /// Bytes of a striping unit, but for the last of a transfer unit.
    pub fn su_bytes(&self) -> u64 {
        self.su
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Whether an ADU may have so many bytes.
    pub fn fits(&self, len: u64) -> bool {
        self.adu.fits(len)
    }

    /// How many transfer units an ADU of `len` bytes has: one of no bytes has one, which tells of it.
    pub fn tus(&self, len: u64) -> u64 {
        len.div_ceil(self.tu).max(1)
    }

    /// The bytes of the transfer unit `index` of an ADU of `len` bytes.
    pub fn tu(&self, len: u64, index: u64) -> Range<u64> {
        let lo = index.saturating_mul(self.tu).min(len);
        lo..lo.saturating_add(self.tu).min(len)
    }

    /// The striping units of a transfer unit, dealt round the lanes. One of no bytes goes to the first lane.
    pub fn sus(&self, tu: Range<u64>) -> impl Iterator<Item = Su> + use<> {
        let Format { su, lanes, .. } = *self;
        let count = (tu.end - tu.start).div_ceil(su).max(1);
        // Transfer units that are no multiple would else begin at the same lane, and leave the last ones less.
        let first = tu.start.div_ceil(su);
        (0..count).map(move |i| {
            let lo = tu.start + i * su;
            Su { lane: ((first + i) % u64::from(lanes)) as u32, at: lo..(lo + su).min(tu.end) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_in_one_striping_unit(
            len in 0u64..5000, tu in 1u64..700, su in 1u64..300, lanes in 1u32..9, changing: bool,
        ) {
            let adu = if changing { Adu::Changing { most: len } } else { Adu::Fixed(len) };
            let format = Format::new(adu, tu, su, lanes).unwrap();
            prop_assert!(format.fits(len) && (changing || !format.fits(len + 1)));
            let mut at = 0;
            for i in 0..format.tus(len) {
                let tu = format.tu(len, i);
                prop_assert!(tu.end - tu.start <= format.tu_bytes());
                let mut taken = vec![0u64; lanes as usize];
                for part in format.sus(tu.clone()) {
                    prop_assert_eq!(part.at.start, at);
                    prop_assert!(part.at.end - part.at.start <= su);
                    at = part.at.end;
                    taken[part.lane as usize] += 1;
                }
                let (most, least) = (taken.iter().max().unwrap(), taken.iter().min().unwrap());
                prop_assert!(most - least <= 1, "lanes have the same work, but for one unit");
                prop_assert_eq!(at, tu.end);
            }
            prop_assert_eq!(at, len);
        }
    }

    #[test]
    fn what_changes_is_cut_as_far_as_it_goes() {
        let format = Format::new(Adu::Changing { most: 1 << 20 }, 4096, 1024, 2).unwrap();
        assert_eq!((format.tus(9000), format.tu(9000, 2)), (3, 8192..9000));
        assert_eq!(format.tus(0), 1);
        assert_eq!(format.sus(0..0).collect::<Vec<_>>(), [Su { lane: 0, at: 0..0 }]);
    }

    #[test]
    fn sizes_that_cannot_be() {
        for (tu, su, lanes) in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, MAX_LANES + 1)] {
            assert!(matches!(Format::new(Adu::Fixed(8), tu, su, lanes), Err(ControlError::Format { .. })));
        }
    }
}
