//! Conversions between floating-point types.

use crate::simd::Simd;
use half::{bf16, f16};
use polyduct_layout::ElemType;

/// A change of element type on the way, rounding to nearest with ties to even. What is not a number stays so
/// and becomes quiet; its payload keeps its upper bits. Subnormals and infinities are kept, overflow becomes
/// infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conversion {
    /// IEEE single to bfloat16.
    F32ToBf16,
    /// bfloat16 to IEEE single.
    Bf16ToF32,
    /// IEEE single to IEEE half.
    F32ToF16,
    /// IEEE half to IEEE single.
    F16ToF32,
    /// IEEE double to IEEE single.
    F64ToF32,
    /// IEEE single to IEEE double.
    F32ToF64,
}

impl Conversion {
    /// All conversions.
    pub const ALL: [Conversion; 6] = [
        Conversion::F32ToBf16,
        Conversion::Bf16ToF32,
        Conversion::F32ToF16,
        Conversion::F16ToF32,
        Conversion::F64ToF32,
        Conversion::F32ToF64,
    ];

    /// The conversion that turns elements of `from` into elements of `to`, if there is one.
    pub const fn between(from: ElemType, to: ElemType) -> Option<Conversion> {
        use ElemType::{Bf16, F16, F32, F64};
        Some(match (from, to) {
            (F32, Bf16) => Conversion::F32ToBf16,
            (Bf16, F32) => Conversion::Bf16ToF32,
            (F32, F16) => Conversion::F32ToF16,
            (F16, F32) => Conversion::F16ToF32,
            (F64, F32) => Conversion::F64ToF32,
            (F32, F64) => Conversion::F32ToF64,
            _ => return None,
        })
    }

    /// Bytes of an element of the source.
    pub const fn src_len(self) -> u64 {
        match self {
            Conversion::F64ToF32 => 8,
            Conversion::F32ToBf16 | Conversion::F32ToF16 | Conversion::F32ToF64 => 4,
            Conversion::Bf16ToF32 | Conversion::F16ToF32 => 2,
        }
    }

    /// Bytes of an element of the destination.
    pub const fn dst_len(self) -> u64 {
        match self {
            Conversion::F32ToF64 => 8,
            Conversion::Bf16ToF32 | Conversion::F16ToF32 | Conversion::F64ToF32 => 4,
            Conversion::F32ToBf16 | Conversion::F32ToF16 => 2,
        }
    }
}

/// A conversion as a type, so that kernels are compiled for each.
pub(crate) trait Convert: Copy {
    const KIND: Conversion;
    const SRC: usize = Self::KIND.src_len() as usize;
    const DST: usize = Self::KIND.dst_len() as usize;

    /// Converts one element: the meaning of the conversion.
    ///
    /// # Safety
    /// One element at each address; they need no alignment.
    unsafe fn one(src: *const u8, dst: *mut u8);
}

macro_rules! conversion {
    ($name:ident, $from:ty, $to:ty, $convert:expr) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        impl Convert for $name {
            const KIND: Conversion = Conversion::$name;

            #[inline(always)]
            unsafe fn one(src: *const u8, dst: *mut u8) {
                let convert: fn($from) -> $to = $convert;
                // SAFETY: the caller's; the accesses are unaligned.
                unsafe { dst.cast::<$to>().write_unaligned(convert(src.cast::<$from>().read_unaligned())) }
            }
        }
    };
}

conversion!(F32ToBf16, f32, bf16, bf16::from_f32_const);
conversion!(Bf16ToF32, bf16, f32, bf16::to_f32_const);
conversion!(F32ToF16, f32, f16, f16::from_f32_const);
conversion!(F16ToF32, f16, f32, f16::to_f32_const);
conversion!(F64ToF32, f64, f32, |x| {
    let y = x as f32;
    // The language does not promise a quiet result or the payload; this does.
    if x.is_nan() {
        let bits = x.to_bits();
        f32::from_bits((bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x003f_ffff)
    } else {
        y
    }
});
conversion!(F32ToF64, f32, f64, |x| {
    let y = x as f64;
    if x.is_nan() {
        let bits = x.to_bits() as u64;
        f64::from_bits((bits & 0x8000_0000) << 32 | 0x7ff8_0000_0000_0000 | (bits & 0x003f_ffff) << 29)
    } else {
        y
    }
});

/// Converts `n` elements that are contiguous on both sides.
///
/// # Safety
/// `n` elements at both addresses, which do not overlap; the machine has the level.
#[inline(always)]
pub(crate) unsafe fn convert_run<S: Simd, C: Convert>(src: *const u8, dst: *mut u8, n: usize, stream: bool) {
    let line = 64 / C::DST;
    // SAFETY: `at` counts the elements done; each step is checked against `n`.
    unsafe {
        let mut at = 0;
        if stream && dst.addr().is_multiple_of(C::DST) && n >= 4 * line {
            while !(dst.addr() + at * C::DST).is_multiple_of(64) {
                C::one(src.add(at * C::SRC), dst.add(at * C::DST));
                at += 1;
            }
            while n - at >= line {
                for i in (0..line * C::SRC).step_by(64) {
                    S::prefetch(src.wrapping_add(at * C::SRC + AHEAD + i));
                }
                S::convert_line::<C, true>(src.add(at * C::SRC), dst.add(at * C::DST));
                at += line;
            }
        } else {
            while n - at >= line {
                S::convert_line::<C, false>(src.add(at * C::SRC), dst.add(at * C::DST));
                at += line;
            }
        }
        while at < n {
            C::one(src.add(at * C::SRC), dst.add(at * C::DST));
            at += 1;
        }
    }
}

/// Bytes of source that are asked for ahead of a streaming conversion.
const AHEAD: usize = 1024;
