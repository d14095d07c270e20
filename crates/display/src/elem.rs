//! Element types: their NumPy-like codes, and their values as numbers.

use polyduct_layout::ElemType;

/// NumPy's code without the byte order, as pages and `.json` have it; `None` for bytes that are only carried,
/// which cannot be shown.
pub(crate) fn code(elem: ElemType) -> Option<&'static str> {
    Some(match elem {
        ElemType::Bool => "b1",
        ElemType::I8 => "i1",
        ElemType::I16 => "i2",
        ElemType::I32 => "i4",
        ElemType::I64 => "i8",
        ElemType::U8 => "u1",
        ElemType::U16 => "u2",
        ElemType::U32 => "u4",
        ElemType::U64 => "u8",
        ElemType::F16 => "f2",
        ElemType::Bf16 => "bf16",
        ElemType::F32 => "f4",
        ElemType::F64 => "f8",
        ElemType::C64 => "c8",
        ElemType::C128 => "c16",
        ElemType::Bytes(_) => return None,
    })
}

/// An element type of `N` bytes. Implementors are the types themselves where Rust has them, or stand for one.
pub(crate) trait Element<const N: usize> {
    /// The value of one element; of a complex number its magnitude, of a `bool` 0 or 1.
    fn value(bytes: &[u8; N]) -> f64;

    /// The mean of four. Where that is faster it is rounded as an element of the type is, but never beyond
    /// what the type holds.
    fn mean4(four: [&[u8; N]; 4]) -> f64 {
        let [a, b, c, d] = four.map(Self::value);
        ((a + b) + (c + d)) * 0.25
    }

    /// The largest of four, as [`largest`] has it.
    fn largest4(four: [&[u8; N]; 4]) -> f64 {
        let [a, b, c, d] = four.map(Self::value);
        largest(largest(a, b), largest(c, d))
    }
}

/// The larger of two; NaN only where both are. Unlike `f64::max` it is one comparison and a choice, which
/// vectorises.
pub(crate) fn largest<T: PartialOrd + Copy>(so_far: T, value: T) -> T {
    // What is not equal to itself is no number.
    #[allow(clippy::eq_op)]
    if value > so_far || so_far != so_far {
        value
    } else {
        so_far
    }
}

macro_rules! numbers {
    ($($t:ty, $n:literal;)*) => {$(
        impl Element<$n> for $t {
            fn value(bytes: &[u8; $n]) -> f64 {
                <$t>::from_le_bytes(*bytes) as f64
            }
        }
    )*};
}

numbers! { i32, 4; i64, 8; u32, 4; u64, 8; f64, 8; }

/// Four of them are put together as they are, and become an `f64` once.
macro_rules! small_numbers {
    ($($t:ty, $n:literal;)*) => {$(
        impl Element<$n> for $t {
            fn value(bytes: &[u8; $n]) -> f64 {
                <$t>::from_le_bytes(*bytes) as f64
            }

            fn mean4(four: [&[u8; $n]; 4]) -> f64 {
                let [a, b, c, d] = four.map(|bytes| i32::from(<$t>::from_le_bytes(*bytes)));
                f64::from((a + b) + (c + d)) * 0.25
            }

            fn largest4(four: [&[u8; $n]; 4]) -> f64 {
                let [a, b, c, d] = four.map(|bytes| <$t>::from_le_bytes(*bytes));
                f64::from(a.max(b).max(c.max(d)))
            }
        }
    )*};
}

small_numbers! { i8, 1; i16, 2; u8, 1; u16, 2; }

impl Element<4> for f32 {
    fn value(bytes: &[u8; 4]) -> f64 {
        f64::from(f32::from_le_bytes(*bytes))
    }

    fn mean4(four: [&[u8; 4]; 4]) -> f64 {
        // Quarters are exact, and four of them are never too large.
        let [a, b, c, d] = four.map(|bytes| f32::from_le_bytes(*bytes) * 0.25);
        f64::from((a + b) + (c + d))
    }

    fn largest4(four: [&[u8; 4]; 4]) -> f64 {
        let [a, b, c, d] = four.map(|bytes| f32::from_le_bytes(*bytes));
        f64::from(largest(largest(a, b), largest(c, d)))
    }
}

/// `bool`, whatever its byte is.
pub(crate) struct Truth;
/// IEEE half precision.
pub(crate) struct Half;
/// The upper half of an `f32`.
pub(crate) struct Brain;
/// Two `f32`.
pub(crate) struct Complex64;
/// Two `f64`.
pub(crate) struct Complex128;

impl Element<1> for Truth {
    fn value(bytes: &[u8; 1]) -> f64 {
        f64::from(u8::from(bytes[0] != 0))
    }
}

impl Element<2> for Half {
    /// Without a branch, so that rows of them are converted many at a time, which `half`'s own is not.
    fn value(bytes: &[u8; 2]) -> f64 {
        let bits = u32::from(u16::from_le_bytes(*bytes));
        let magnitude = (bits & 0x7fff) << 13;
        // Exponents differ by 112; a multiplication sets subnormal ones right as well.
        let finite = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
        let unbounded = f32::from_bits(magnitude | 0x7f80_0000);
        let size = if bits & 0x7c00 == 0x7c00 { unbounded } else { finite };
        f64::from(f32::from_bits(size.to_bits() | (bits & 0x8000) << 16))
    }
}

impl Element<2> for Brain {
    fn value(bytes: &[u8; 2]) -> f64 {
        f64::from(f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16))
    }
}

impl Element<8> for Complex64 {
    fn value(&[a, b, c, d, e, f, g, h]: &[u8; 8]) -> f64 {
        let [re, im] = [[a, b, c, d], [e, f, g, h]].map(|part| f64::from(f32::from_le_bytes(part)));
        (re * re + im * im).sqrt()
    }
}

impl Element<16> for Complex128 {
    fn value(bytes: &[u8; 16]) -> f64 {
        let (parts, _) = bytes.as_chunks::<8>();
        f64::from_le_bytes(parts[0]).hypot(f64::from_le_bytes(parts[1]))
    }
}

/// Work that is the same for every element type.
pub(crate) trait ForElement {
    /// What comes of it.
    type Output;

    /// Does it for one type.
    fn run<E: Element<N>, const N: usize>(self) -> Self::Output;
}

/// Does `work` for the type; `None` for bytes that are only carried.
pub(crate) fn for_element<W: ForElement>(elem: ElemType, work: W) -> Option<W::Output> {
    Some(match elem {
        ElemType::Bool => work.run::<Truth, 1>(),
        ElemType::I8 => work.run::<i8, 1>(),
        ElemType::I16 => work.run::<i16, 2>(),
        ElemType::I32 => work.run::<i32, 4>(),
        ElemType::I64 => work.run::<i64, 8>(),
        ElemType::U8 => work.run::<u8, 1>(),
        ElemType::U16 => work.run::<u16, 2>(),
        ElemType::U32 => work.run::<u32, 4>(),
        ElemType::U64 => work.run::<u64, 8>(),
        ElemType::F16 => work.run::<Half, 2>(),
        ElemType::Bf16 => work.run::<Brain, 2>(),
        ElemType::F32 => work.run::<f32, 4>(),
        ElemType::F64 => work.run::<f64, 8>(),
        ElemType::C64 => work.run::<Complex64, 8>(),
        ElemType::C128 => work.run::<Complex128, 16>(),
        ElemType::Bytes(_) => return None,
    })
}

/// The finite values' smallest, largest and sum, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

impl Range {
    /// Of `bytes`, elements of the type one behind another.
    pub(crate) fn of(elem: ElemType, bytes: &[u8]) -> Range {
        for_element(elem, RangeOf(bytes)).unwrap_or(Range::NONE)
    }

    const NONE: Range = Range { min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0, count: 0 };

    /// Smallest, largest and mean, unless no value is finite.
    pub(crate) fn known(self) -> Option<(f64, f64, f64)> {
        (self.count > 0).then(|| (self.min, self.max, self.sum / self.count as f64))
    }
}

struct RangeOf<'a>(&'a [u8]);

impl ForElement for RangeOf<'_> {
    type Output = Range;

    fn run<E: Element<N>, const N: usize>(self) -> Range {
        self.0.as_chunks::<N>().0.iter().fold(Range::NONE, |r, bytes| match E::value(bytes) {
            v if v.is_finite() => {
                Range { min: r.min.min(v), max: r.max.max(v), sum: r.sum + v, count: r.count + 1 }
            }
            _ => r,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_as_the_library_has_them() {
        for bits in 0..=u16::MAX {
            let bytes = bits.to_le_bytes();
            let (half, brain) = (half::f16::from_le_bytes(bytes), half::bf16::from_le_bytes(bytes));
            for (ours, theirs) in
                [(Half::value(&bytes), half.to_f64()), (Brain::value(&bytes), brain.to_f64())]
            {
                assert!(ours == theirs || ours.is_nan() && theirs.is_nan(), "{bits:04x}: {ours} {theirs}");
                assert!(ours.is_nan() || ours.is_sign_negative() == theirs.is_sign_negative(), "{bits:04x}");
            }
        }
    }

    #[test]
    fn a_range_is_of_what_is_finite() {
        let values = [f32::NAN, 2.0, -1.0, f32::INFINITY, 5.0];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(Range::of(ElemType::F32, &bytes).known(), Some((-1.0, 5.0, 2.0)));
        assert_eq!(Range::of(ElemType::F32, &bytes[..4]).known(), None);
        assert_eq!(Range::of(ElemType::Bool, &[0, 7, 1]).known(), Some((0.0, 1.0, 2.0 / 3.0)));
        let [three, four] = [3f32, 4.0].map(f32::to_le_bytes);
        assert_eq!(Range::of(ElemType::C64, &[three, four].concat()).known(), Some((5.0, 5.0, 5.0)));
        assert_eq!(Range::of(ElemType::Bytes(3), &bytes).known(), None);
    }
}
