//! Mappings as digits: an element's row-major number in mixed radix, where each digit counts towards the unit
//! or the offset. Digit layouts are this by definition, and regular layouts when everything divides.

use crate::dims::Dims;
use crate::regular::{BoundDist, Regular};
use crate::text::{DigitsText, Halo};
use crate::LayoutError;

/// Digits, most significant first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digits {
    pub digits: Vec<Digit>,
}

/// One digit: its radix (≥ 1) and what it counts for. One of the two strides is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digit {
    pub radix: u64,
    /// What one more adds to the unit's number.
    pub unit: u64,
    /// What one more adds to the offset, in elements.
    pub offset: u64,
}

impl Digits {
    pub fn bind(text: &DigitsText, elems: u64, units: u64) -> Result<Digits, LayoutError> {
        let all = product(text.radices.iter().copied());
        if all != elems {
            return Err(LayoutError::DigitElems { product: all, elems });
        }
        let unit = product(text.unit.iter().map(|&d| text.radices[d as usize]));
        if unit != units {
            return Err(LayoutError::DigitUnits { product: unit, units });
        }
        let mut digits: Vec<Digit> =
            text.radices.iter().map(|&radix| Digit { radix, unit: 0, offset: 0 }).collect();
        let mut stride = 1;
        for &d in text.unit.iter().rev() {
            digits[d as usize].unit = stride;
            stride *= text.radices[d as usize];
        }
        let mut stride = 1;
        for &d in text.offset.iter().rev() {
            digits[d as usize].offset = stride;
            stride *= text.radices[d as usize];
        }
        Ok(Digits { digits })
    }

    /// A regular layout as digits; `None` when a size does not divide, or there are halos, cuts or empty
    /// dimensions.
    pub fn from_regular(r: &Regular) -> Option<Digits> {
        let shape = Dims::from_fn(r.dims.len(), |k| r.dims[k].size / r.dims[k].parts.max(1));
        let strides = r.order.strides(&shape);
        let mut digits = Vec::new();
        for (k, d) in r.dims.iter().enumerate() {
            if d.size == 0 || d.size % d.parts != 0 || d.halo != Halo::NONE {
                return None;
            }
            let each = d.size / d.parts;
            let inner = match d.dist {
                BoundDist::Block(b) if b == each => each,
                BoundDist::Balanced { .. } => each,
                BoundDist::Cyclic { block, .. } if each % block == 0 => block,
                _ => return None,
            };
            digits.push(Digit { radix: each / inner, unit: 0, offset: strides[k] * inner });
            digits.extend(d.axes.iter().map(|a| Digit { radix: a.size, unit: a.stride, offset: 0 }));
            digits.push(Digit { radix: inner, unit: 0, offset: strides[k] });
        }
        digits.retain(|d| d.radix > 1);
        Some(Digits { digits })
    }

    /// The unit that holds an element and its offset there.
    pub fn locate(&self, mut element: u64) -> (u64, u64) {
        let (mut unit, mut offset) = (0, 0);
        for d in self.digits.iter().rev() {
            let value = element % d.radix;
            element /= d.radix;
            unit += value * d.unit;
            offset += value * d.offset;
        }
        (unit, offset)
    }

    /// The value of a unit digit for a unit.
    pub fn value(d: &Digit, unit: u64) -> u64 {
        unit / d.unit % d.radix
    }
}

/// The product, or the largest `u64` when it overflows.
fn product(mut radices: impl Iterator<Item = u64>) -> u64 {
    radices.try_fold(1u64, |p, r| p.checked_mul(r)).unwrap_or(u64::MAX)
}

/// Cuts the digits of both so that both have the same radices; `None` when they do not divide.
pub(crate) fn refine(a: &Digits, b: &Digits) -> Option<(Digits, Digits)> {
    let (mut ra, mut rb) = (Digits { digits: Vec::new() }, Digits { digits: Vec::new() });
    let (mut ia, mut ib) = (a.digits.iter().rev(), b.digits.iter().rev());
    let (mut da, mut db) = (ia.next().copied(), ib.next().copied());
    loop {
        match (&mut da, &mut db) {
            (Some(x), _) if x.radix == 1 => da = ia.next().copied(),
            (_, Some(y)) if y.radix == 1 => db = ib.next().copied(),
            (None, None) => break,
            (Some(x), Some(y)) => {
                let radix = x.radix.min(y.radix);
                ra.digits.push(low_part(x, radix)?);
                rb.digits.push(low_part(y, radix)?);
            }
            _ => return None,
        }
    }
    ra.digits.reverse();
    rb.digits.reverse();
    Some((ra, rb))
}

/// Takes the lowest `radix` values off a digit, leaving the rest; `None` when it does not divide.
fn low_part(d: &mut Digit, radix: u64) -> Option<Digit> {
    if !d.radix.is_multiple_of(radix) {
        return None;
    }
    let low = Digit { radix, ..*d };
    *d = Digit { radix: d.radix / radix, unit: d.unit * radix, offset: d.offset * radix };
    Some(low)
}
