//! The level without instructions of its own: what the compiler makes of plain loads and stores.

use super::Simd;
use crate::convert::Convert;

pub(crate) struct Portable;

impl Simd for Portable {
    type V = [u8; 16];
    const WIDTH: usize = 16;
    type Narrower = Portable;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> [u8; 16] {
        // SAFETY: the caller's; an array of bytes has no alignment.
        unsafe { p.cast::<[u8; 16]>().read() }
    }

    #[inline(always)]
    unsafe fn store(p: *mut u8, v: [u8; 16]) {
        // SAFETY: the caller's; an array of bytes has no alignment.
        unsafe { p.cast::<[u8; 16]>().write(v) }
    }

    #[inline(always)]
    unsafe fn stream(p: *mut u8, v: [u8; 16]) {
        // SAFETY: the caller's.
        unsafe { Self::store(p, v) }
    }

    #[inline(always)]
    fn prefetch(_: *const u8) {}

    #[inline(always)]
    fn prefetch_to_write(_: *const u8) {}

    #[inline(always)]
    unsafe fn tile<const E: usize>(src: *const u8, src_step: isize, dst: *mut u8, dst_step: isize) {
        let side = Self::tile_side(E) as isize;
        for j in 0..side {
            for i in 0..side {
                let s = src.wrapping_offset(j * src_step + i * E as isize);
                let d = dst.wrapping_offset(i * dst_step + j * E as isize);
                // SAFETY: the caller's: the square lies within both memories.
                unsafe { d.cast::<[u8; E]>().write(s.cast::<[u8; E]>().read()) }
            }
        }
    }

    #[inline(always)]
    unsafe fn convert_line<C: Convert, const STREAM: bool>(src: *const u8, dst: *mut u8) {
        for i in 0..64 / C::DST {
            // SAFETY: the caller's: 64 bytes of destination and as many elements of source.
            unsafe { C::one(src.add(i * C::SRC), dst.add(i * C::DST)) }
        }
    }
}
