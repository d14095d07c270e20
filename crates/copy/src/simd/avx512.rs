//! 512-bit vectors. A vector is one cache line, so that a tile reads and writes whole lines.

use super::{avx2::Avx2, Simd};
use crate::convert::{Conversion, Convert};
use core::arch::x86_64::*;

pub(crate) struct Avx512;

impl Simd for Avx512 {
    type V = __m512i;
    const WIDTH: usize = 64;
    type Narrower = Avx2;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut u8, v: __m512i) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }

    #[inline(always)]
    unsafe fn stream(p: *mut u8, v: __m512i) {
        // SAFETY: the caller's, who also says that `p` is aligned and who fences.
        unsafe { _mm512_stream_si512(p.cast(), v) }
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
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
    unsafe fn tile<const E: usize>(src: *const u8, src_step: isize, dst: *mut u8, dst_step: isize) {
        // SAFETY: the caller's: as many rows of 64 bytes as a row has elements, on both sides.
        unsafe {
            let load = |j: usize| Self::load(src.wrapping_offset(j as isize * src_step));
            let store = |i: usize, v| Self::store(dst.wrapping_offset(i as isize * dst_step), v);
            match E {
                1 => tile8(load, store),
                2 => tile16(load, store),
                4 => tile32(load, store),
                8 => tile64(load, store),
                _ => tile128(load, store),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
    unsafe fn convert_line<C: Convert, const STREAM: bool>(src: *const u8, dst: *mut u8) {
        // SAFETY: the caller's: 64 bytes of destination and as many elements of source.
        unsafe {
            let wide = |i: usize| Self::load(src.add(64 * i));
            let half = || _mm256_loadu_si256(src.cast());
            let line = match C::KIND {
                Conversion::F32ToBf16 => join(bf16(wide(0)), bf16(wide(1))),
                Conversion::F32ToF16 => join(
                    _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(wide(0))),
                    _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(wide(1))),
                ),
                Conversion::Bf16ToF32 => {
                    let x = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half()));
                    let f = _mm512_castsi512_ps(x);
                    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(f, f);
                    _mm512_mask_or_epi32(x, nan, x, _mm512_set1_epi32(0x0040_0000))
                }
                Conversion::F16ToF32 => _mm512_castps_si512(_mm512_cvtph_ps(half())),
                Conversion::F64ToF32 => join(
                    _mm256_castps_si256(_mm512_cvtpd_ps(_mm512_castsi512_pd(wide(0)))),
                    _mm256_castps_si256(_mm512_cvtpd_ps(_mm512_castsi512_pd(wide(1)))),
                ),
                Conversion::F32ToF64 => _mm512_castpd_si512(_mm512_cvtps_pd(_mm256_castsi256_ps(half()))),
            };
            if STREAM {
                Self::stream(dst, line);
            } else {
                Self::store(dst, line);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// Sixteen f32 rounded to nearest even; not `vcvtneps2bf16`, which flushes subnormals.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn bf16(x: __m512i) -> __m256i {
    let f = _mm512_castsi512_ps(x);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(f, f);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(x), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
    let kept = _mm512_mask_or_epi32(rounded, nan, x, _mm512_set1_epi32(0x0040_0000));
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(kept))
}

/// 16 rows of 16 elements of four bytes.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn tile32(load: impl Fn(usize) -> __m512i, store: impl Fn(usize, __m512i)) {
    let zero = _mm512_setzero_si512();
    let (mut a, mut b) = ([zero; 16], [zero; 16]);
    for i in 0..8 {
        let (x, y) = (load(2 * i), load(2 * i + 1));
        b[2 * i] = _mm512_unpacklo_epi32(x, y);
        b[2 * i + 1] = _mm512_unpackhi_epi32(x, y);
    }
    for i in 0..4 {
        for k in 0..2 {
            a[4 * i + 2 * k] = _mm512_unpacklo_epi64(b[4 * i + k], b[4 * i + 2 + k]);
            a[4 * i + 2 * k + 1] = _mm512_unpackhi_epi64(b[4 * i + k], b[4 * i + 2 + k]);
        }
    }
    // a[4 i + c] holds rows 4 i.. of the columns c, 4 + c, 8 + c, 12 + c, one in each quarter.
    for c in 0..4 {
        quarters([a[c], a[4 + c], a[8 + c], a[12 + c]], |q, v| store(4 * q + c, v));
    }
}

/// Transposes a square of four by four quarters of a vector.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn quarters(rows: [__m512i; 4], store: impl Fn(usize, __m512i)) {
    let x0 = _mm512_shuffle_i32x4::<0x88>(rows[0], rows[1]);
    let x1 = _mm512_shuffle_i32x4::<0xdd>(rows[0], rows[1]);
    let y0 = _mm512_shuffle_i32x4::<0x88>(rows[2], rows[3]);
    let y1 = _mm512_shuffle_i32x4::<0xdd>(rows[2], rows[3]);
    store(0, _mm512_shuffle_i32x4::<0x88>(x0, y0));
    store(1, _mm512_shuffle_i32x4::<0x88>(x1, y1));
    store(2, _mm512_shuffle_i32x4::<0xdd>(x0, y0));
    store(3, _mm512_shuffle_i32x4::<0xdd>(x1, y1));
}

/// 8 rows of 8 elements of eight bytes.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn tile64(load: impl Fn(usize) -> __m512i, store: impl Fn(usize, __m512i)) {
    let mut a = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        let (x, y) = (load(2 * i), load(2 * i + 1));
        a[2 * i] = _mm512_unpacklo_epi64(x, y);
        a[2 * i + 1] = _mm512_unpackhi_epi64(x, y);
    }
    for c in 0..2 {
        quarters([a[c], a[2 + c], a[4 + c], a[6 + c]], |q, v| store(2 * q + c, v));
    }
}

/// 4 rows of 4 elements of sixteen bytes.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn tile128(load: impl Fn(usize) -> __m512i, store: impl Fn(usize, __m512i)) {
    quarters([load(0), load(1), load(2), load(3)], store)
}

/// 32 rows of 32 elements of two bytes: pairs of rows become elements of four.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn tile16(load: impl Fn(usize) -> __m512i, store: impl Fn(usize, __m512i)) {
    let zero = _mm512_setzero_si512();
    let (mut low, mut high) = ([zero; 16], [zero; 16]);
    for k in 0..16 {
        let (x, y) = (load(2 * k), load(2 * k + 1));
        low[k] = _mm512_unpacklo_epi16(x, y);
        high[k] = _mm512_unpackhi_epi16(x, y);
    }
    // Each quarter had eight columns; four went low and four high.
    tile32(|k| low[k], |j, v| store(j / 4 * 8 + j % 4, v));
    tile32(|k| high[k], |j, v| store(j / 4 * 8 + 4 + j % 4, v));
}

/// 64 rows of 64 bytes: pairs of rows become elements of two.
#[inline]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
fn tile8(load: impl Fn(usize) -> __m512i, store: impl Fn(usize, __m512i)) {
    let zero = _mm512_setzero_si512();
    let (mut low, mut high) = ([zero; 32], [zero; 32]);
    for k in 0..32 {
        let (x, y) = (load(2 * k), load(2 * k + 1));
        low[k] = _mm512_unpacklo_epi8(x, y);
        high[k] = _mm512_unpackhi_epi8(x, y);
    }
    // Each quarter had sixteen columns; eight went low and eight high.
    tile16(|k| low[k], |j, v| store(j / 8 * 16 + j % 8, v));
    tile16(|k| high[k], |j, v| store(j / 8 * 16 + 8 + j % 8, v));
}
