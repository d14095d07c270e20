//! No kernel touches a byte outside of what the table reaches: memories that end, or start, at a page that
//! may not be touched.
#![cfg(target_os = "linux")]

mod common;

use common::{all_kernels, naive, random_table, Rng};
use polyduct_copy::{Conversion, Dest, Source};
use std::ffi::c_void;

const PAGE: usize = 4096;

extern "C" {
    fn mmap(at: *mut c_void, len: usize, protection: i32, flags: i32, file: i32, offset: i64) -> *mut c_void;
    fn mprotect(at: *mut c_void, len: usize, protection: i32) -> i32;
    fn munmap(at: *mut c_void, len: usize) -> i32;
}

/// Memory between two pages that may not be touched.
struct Fenced {
    base: *mut u8,
    len: usize,
}

impl Fenced {
    fn new(len: usize) -> Fenced {
        let len = len.div_ceil(PAGE) * PAGE;
        // SAFETY: a new private anonymous mapping (2 | 32), readable and writable (1 | 2), then its middle
        // alone.
        unsafe {
            let base = mmap(std::ptr::null_mut(), len + 2 * PAGE, 3, 0x22, -1, 0).cast::<u8>();
            assert!(base.addr() != usize::MAX, "no memory");
            assert_eq!(mprotect(base.cast(), PAGE, 0), 0);
            assert_eq!(mprotect(base.add(PAGE + len).cast(), PAGE, 0), 0);
            Fenced { base, len }
        }
    }

    /// The first or the last `n` bytes.
    fn at(&mut self, end: bool, n: usize) -> &mut [u8] {
        let from = PAGE + if end { self.len - n } else { 0 };
        // SAFETY: the middle of the mapping is `len` bytes, and borrowed from `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(from), n) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; no borrow of it is left.
        unsafe { munmap(self.base.cast(), self.len + 2 * PAGE) };
    }
}

#[test]
fn nothing_outside_is_touched() {
    let (mut from, mut to) = (Fenced::new(1 << 22), Fenced::new(1 << 22));
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let conversion = rng.pick(&Conversion::ALL);
        let elem = rng.pick(&[1, 2, 3, 4, 8, 12, 16, 24, conversion.src_len()]);
        let most = rng.pick(&[40, 3000]);
        let table = random_table(&mut rng, elem, most);
        let (reads, writes) = ((table.src_extent() * elem) as usize, (table.dst_extent() * elem) as usize);
        if reads.max(2 * writes) > from.len {
            continue;
        }
        for end in [false, true] {
            let src = from.at(end, reads);
            src.copy_from_slice(&rng.bytes(reads));
            let mut want = vec![0; writes];
            let crc = naive(&table, src, &mut want);
            for k in all_kernels() {
                let dst = to.at(end, writes);
                dst.fill(0);
                k.execute(&table, Source::from(&*src), Dest::from(&mut *dst)).unwrap();
                assert!(*dst == want[..]);
                assert_eq!(k.execute_crc(&table, Source::from(&*src), Dest::from(dst)), Ok(crc));
                if elem == conversion.src_len() {
                    let dst = to.at(end, (table.dst_extent() * conversion.dst_len()) as usize);
                    k.execute_convert(&table, conversion, Source::from(&*src), Dest::from(dst)).unwrap();
                }
            }
        }
    }
}
