//! 128-bit vectors of aarch64. Tiles and conversions are the portable ones, which the compiler turns into
//! these vectors.

use super::{portable::Portable, Simd};
use crate::convert::Convert;
use core::arch::aarch64::{uint8x16_t, vld1q_u8, vst1q_u8};

pub(crate) struct Neon;

impl Simd for Neon {
    type V = uint8x16_t;
    const WIDTH: usize = 16;
    type Narrower = Portable;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> uint8x16_t {
        // SAFETY: the caller's.
        unsafe { vld1q_u8(p) }
    }

    #[inline(always)]
    unsafe fn store(p: *mut u8, v: uint8x16_t) {
        // SAFETY: the caller's.
        unsafe { vst1q_u8(p, v) }
    }

    #[inline(always)]
    unsafe fn stream(p: *mut u8, v: uint8x16_t) {
        // SAFETY: the caller's.
        unsafe { vst1q_u8(p, v) }
    }

    #[inline(always)]
    fn prefetch(_: *const u8) {}

    #[inline(always)]
    fn prefetch_to_write(_: *const u8) {}

    #[inline(always)]
    unsafe fn tile<const E: usize>(src: *const u8, src_step: isize, dst: *mut u8, dst_step: isize) {
        // SAFETY: the caller's.
        unsafe { Portable::tile::<E>(src, src_step, dst, dst_step) }
    }

    #[inline(always)]
    unsafe fn convert_line<C: Convert, const STREAM: bool>(src: *const u8, dst: *mut u8) {
        // SAFETY: the caller's.
        unsafe { Portable::convert_line::<C, STREAM>(src, dst) }
    }
}
