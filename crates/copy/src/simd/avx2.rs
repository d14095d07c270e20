//! 256-bit vectors.

use super::{portable::Portable, Simd};
use crate::convert::{Conversion, Convert};
use core::arch::x86_64::*;

pub(crate) struct Avx2;

impl Simd for Avx2 {
    type V = __m256i;
    const WIDTH: usize = 32;
    type Narrower = Portable;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256i {
        // SAFETY: the caller's.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut u8, v: __m256i) {
        // SAFETY: the caller's.
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }

    #[inline(always)]
    unsafe fn stream(p: *mut u8, v: __m256i) {
        // SAFETY: the caller's, who also says that `p` is aligned and who fences.
        unsafe { _mm256_stream_si256(p.cast(), v) }
    }

    #[inline(always)]
    fn prefetch(p: *const u8) {
        super::prefetch(p);
    }

    #[inline(always)]
    fn prefetch_to_write(p: *const u8) {
        super::prefetch_to_write(p);
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn tile<const E: usize>(src: *const u8, src_step: isize, dst: *mut u8, dst_step: isize) {
        // SAFETY: the caller's: as many rows of 32 bytes as a row has elements, on both sides.
        unsafe {
            let load = |j: usize| Self::load(src.wrapping_offset(j as isize * src_step));
            let store = |i: usize, v| Self::store(dst.wrapping_offset(i as isize * dst_step), v);
            match E {
                1 => tile8(load, store),
                2 => tile16(load, store),
                4 => tile32(load, store),
                8 => tile64(load, store),
                _ => halves(load(0), load(1), store),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn convert_line<C: Convert, const STREAM: bool>(src: *const u8, dst: *mut u8) {
        for half in 0..2 {
            // SAFETY: the caller's: 64 bytes of destination and as many elements of source.
            unsafe {
                let src = src.add(half * 32 / C::DST * C::SRC);
                let wide = |i: usize| Self::load(src.add(32 * i));
                let narrow = || _mm_loadu_si128(src.cast());
                let v = match C::KIND {
                    Conversion::F32ToBf16 => {
                        // Packing works within each half: put the quarters back in order.
                        let packed = _mm256_packus_epi32(bf16(wide(0)), bf16(wide(1)));
                        _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
                    }
                    Conversion::F32ToF16 => _mm256_set_m128i(
                        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(wide(1))),
                        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(wide(0))),
                    ),
                    Conversion::Bf16ToF32 => {
                        let x = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(narrow()));
                        _mm256_or_si256(x, quiet(x))
                    }
                    Conversion::F16ToF32 => _mm256_castps_si256(_mm256_cvtph_ps(narrow())),
                    Conversion::F64ToF32 => _mm256_castps_si256(_mm256_set_m128(
                        _mm256_cvtpd_ps(_mm256_castsi256_pd(wide(1))),
                        _mm256_cvtpd_ps(_mm256_castsi256_pd(wide(0))),
                    )),
                    Conversion::F32ToF64 => _mm256_castpd_si256(_mm256_cvtps_pd(_mm_castsi128_ps(narrow()))),
                };
                if STREAM {
                    Self::stream(dst.add(32 * half), v);
                } else {
                    Self::store(dst.add(32 * half), v);
                }
            }
        }
    }
}

/// The quiet bit in each element that is not a number.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn quiet(x: __m256i) -> __m256i {
    let f = _mm256_castsi256_ps(x);
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(f, f));
    _mm256_and_si256(nan, _mm256_set1_epi32(0x0040_0000))
}

/// Eight f32 rounded to nearest even, in the low halves of eight 32-bit elements.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn bf16(x: __m256i) -> __m256i {
    let quiet = quiet(x);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(x), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7fff)), odd);
    let is_number = _mm256_cmpeq_epi32(quiet, _mm256_setzero_si256());
    _mm256_srli_epi32::<16>(_mm256_blendv_epi8(_mm256_or_si256(x, quiet), rounded, is_number))
}

/// Transposes a square of two by two halves of a vector.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves(a: __m256i, b: __m256i, store: impl Fn(usize, __m256i)) {
    store(0, _mm256_permute2x128_si256::<0x20>(a, b));
    store(1, _mm256_permute2x128_si256::<0x31>(a, b));
}

/// 4 rows of 4 elements of eight bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn tile64(load: impl Fn(usize) -> __m256i, store: impl Fn(usize, __m256i)) {
    let (a, b, c, d) = (load(0), load(1), load(2), load(3));
    halves(_mm256_unpacklo_epi64(a, b), _mm256_unpacklo_epi64(c, d), |h, v| store(2 * h, v));
    halves(_mm256_unpackhi_epi64(a, b), _mm256_unpackhi_epi64(c, d), |h, v| store(2 * h + 1, v));
}

/// 8 rows of 8 elements of four bytes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn tile32(load: impl Fn(usize) -> __m256i, store: impl Fn(usize, __m256i)) {
    let zero = _mm256_setzero_si256();
    let (mut a, mut b) = ([zero; 8], [zero; 8]);
    for i in 0..4 {
        let (x, y) = (load(2 * i), load(2 * i + 1));
        b[2 * i] = _mm256_unpacklo_epi32(x, y);
        b[2 * i + 1] = _mm256_unpackhi_epi32(x, y);
    }
    for i in 0..2 {
        for k in 0..2 {
            a[4 * i + 2 * k] = _mm256_unpacklo_epi64(b[4 * i + k], b[4 * i + 2 + k]);
            a[4 * i + 2 * k + 1] = _mm256_unpackhi_epi64(b[4 * i + k], b[4 * i + 2 + k]);
        }
    }
    for c in 0..4 {
        halves(a[c], a[4 + c], |h, v| store(4 * h + c, v));
    }
}

/// 16 rows of 16 elements of two bytes: pairs of rows become elements of four.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn tile16(load: impl Fn(usize) -> __m256i, store: impl Fn(usize, __m256i)) {
    let zero = _mm256_setzero_si256();
    let (mut low, mut high) = ([zero; 8], [zero; 8]);
    for k in 0..8 {
        let (x, y) = (load(2 * k), load(2 * k + 1));
        low[k] = _mm256_unpacklo_epi16(x, y);
        high[k] = _mm256_unpackhi_epi16(x, y);
    }
    tile32(|k| low[k], |j, v| store(j / 4 * 8 + j % 4, v));
    tile32(|k| high[k], |j, v| store(j / 4 * 8 + 4 + j % 4, v));
}

/// 32 rows of 32 bytes: pairs of rows become elements of two.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn tile8(load: impl Fn(usize) -> __m256i, store: impl Fn(usize, __m256i)) {
    let zero = _mm256_setzero_si256();
    let (mut low, mut high) = ([zero; 16], [zero; 16]);
    for k in 0..16 {
        let (x, y) = (load(2 * k), load(2 * k + 1));
        low[k] = _mm256_unpacklo_epi8(x, y);
        high[k] = _mm256_unpackhi_epi8(x, y);
    }
    tile16(|k| low[k], |j, v| store(j / 8 * 16 + j % 8, v));
    tile16(|k| high[k], |j, v| store(j / 8 * 16 + 8 + j % 8, v));
}
