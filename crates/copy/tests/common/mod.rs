//! What the tests share: random tables, the obvious way to carry them out, and all kernels to compare with
//! it.
#![allow(dead_code)]

use polyduct_copy::{Kernels, Level};
use polyduct_layout::{Loop, OpTable};

/// A generator of numbers that is good enough for tests (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(n).collect()
    }
}

/// Every available level, once with all stores through the caches and once with all past them.
pub fn all_kernels() -> impl Iterator<Item = Kernels> {
    Level::ALL.into_iter().filter_map(Kernels::at).flat_map(|k| [k.stream_from(usize::MAX), k.stream_from(0)])
}

/// A loop.
pub fn l(count: u64, src_step: i64, dst_step: i64) -> Loop {
    Loop { count, src_step, dst_step }
}

/// Strides for the extents in a given order of storage, fastest first, with random padding.
fn strides(rng: &mut Rng, extents: &[u64], order: &[usize]) -> Vec<i64> {
    let mut steps = vec![0; extents.len()];
    let mut step = 1 + if rng.below(6) == 0 { rng.below(3) } else { 0 };
    for &k in order {
        steps[k] = step as i64;
        step *= extents[k];
        step += rng.pick(&[0, 0, 0, 1, 3, 16]);
    }
    steps
}

fn shuffle(rng: &mut Rng, order: &mut [usize]) {
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

/// Appends a random nest whose destination lies at or past `dst`; returns one past its last destination
/// element.
fn push_nest(rng: &mut Rng, table: &mut OpTable, dst: u64, most: u64) -> u64 {
    let mut extents = Vec::new();
    let mut elems = 1;
    for _ in 0..rng.below(6) {
        let n = rng.pick(&[1, 2, 3, 4, 5, 8, 13, 16, 17, 32, 33, 64, 65, 100, 300]).min(most / elems).max(1);
        extents.push(n);
        elems *= n;
    }
    let mut order: Vec<usize> = (0..extents.len()).collect();
    shuffle(rng, &mut order);
    let dst_steps = strides(rng, &extents, &order);
    if rng.below(3) > 0 {
        shuffle(rng, &mut order);
    }
    let src_steps = strides(rng, &extents, &order);
    let (mut src, mut dst) = (rng.below(40), dst + rng.below(20));
    let end = dst + 1 + extents.iter().zip(&dst_steps).map(|(n, step)| (n - 1) * *step as u64).sum::<u64>();
    let mut nest = Vec::new();
    for (k, &n) in extents.iter().enumerate() {
        let (mut s, mut d) = (src_steps[k], dst_steps[k]);
        match rng.below(16) {
            0 => {
                src += (n - 1) * s as u64;
                s = -s;
            }
            1 => {
                dst += (n - 1) * d as u64;
                d = -d;
            }
            2 => s = 0,
            _ => {}
        }
        nest.push(l(n, s, d));
    }
    // Now and then as two families that share their other loops.
    match (0..nest.len()).max_by_key(|&k| nest[k].count) {
        Some(k) if nest[k].count > 3 && rng.below(3) == 0 => {
            let whole = nest[k];
            let cut = 1 + rng.below(whole.count - 1);
            nest[k].count = cut;
            table.push(src, dst, &nest);
            nest[k].count = whole.count - cut;
            let moved = |at: u64, step: i64| (at as i64 + cut as i64 * step) as u64;
            table.push(moved(src, whole.src_step), moved(dst, whole.dst_step), &nest);
        }
        _ => table.push(src, dst, &nest),
    }
    end
}

/// A random table whose destinations do not overlap.
pub fn random_table(rng: &mut Rng, elem_len: u64, most: u64) -> OpTable {
    let mut table = OpTable::new(elem_len);
    let mut end = 0;
    for _ in 0..1 + rng.below(4) {
        end = push_nest(rng, &mut table, end, most);
    }
    if rng.below(2) == 0 {
        table.sort();
    }
    table
}

/// Bytes that reach the end of the table's source, and where in them the source starts.
pub fn source(rng: &mut Rng, table: &OpTable) -> (Vec<u8>, usize) {
    let at = rng.pick(&[0, 0, 1, 4, 13, 32, 63]);
    (rng.bytes(at + (table.src_extent() * table.elem_len()) as usize), at)
}

/// A destination for so many bytes, and where in it the part starts: on a line or off by something.
pub fn dest(rng: &mut Rng, bytes: usize) -> (Vec<u8>, usize) {
    let filled = vec![0xa5; bytes + 256];
    let line = filled.as_ptr().addr().wrapping_neg() % 64;
    (filled, line + rng.pick(&[0, 0, 0, 1, 4, 8, 24, 61]))
}

/// The table carried out in the obvious way; also the CRC32C of its runs.
pub fn naive(table: &OpTable, src: &[u8], dst: &mut [u8]) -> u32 {
    let e = table.elem_len();
    let mut crc = 0;
    table.for_each_run(|s, d, run| {
        let range = |at: u64| (at * e) as usize..((at + run) * e) as usize;
        dst[range(d)].copy_from_slice(&src[range(s)]);
        crc = crc32c::crc32c_append(crc, &src[range(s)]);
    });
    crc
}
