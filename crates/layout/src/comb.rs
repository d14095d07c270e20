//! One dimension of one unit's part: equal blocks at equal distances, and what two such sets share.

/// A periodic set of indices of one dimension, and where they lie in a unit's part.
///
/// Block `i < count` covers `start + i·period ..+ width`, cut off at `end`; its first index lies at `base +
/// i·width` in the part (counted along this dimension). An interval is a comb of one block.
///
/// Invariants: `width ≥ 1`; `width ≤ period` when `count > 1`; every block starts below `end`. `count == 0`
/// is the empty comb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comb {
    pub(crate) start: u64,
    pub(crate) width: u64,
    pub(crate) period: u64,
    pub(crate) count: u64,
    pub(crate) end: u64,
    pub(crate) base: u64,
}

/// Elements along one dimension that two combs share: `count` runs of `len`, at equal steps on all three
/// sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Family {
    /// Place of the first element in the source part, along the dimension.
    pub src: u64,
    /// Place of the first element in the destination part, along the dimension.
    pub dst: u64,
    /// Elements of each run, at least 1.
    pub len: u64,
    /// Number of runs, at least 1.
    pub count: u64,
    /// From one run to the next in the source part.
    pub src_step: u64,
    /// From one run to the next in the destination part.
    pub dst_step: u64,
}

impl Family {
    /// Elements in the family.
    pub fn len_elems(&self) -> u64 {
        self.len * self.count
    }
}

impl Comb {
    /// No index at all.
    pub const EMPTY: Comb = Comb { start: 0, width: 1, period: 1, count: 0, end: 0, base: 0 };

    /// The indices `lo..hi`, with `lo` at place `base` of the part.
    pub fn interval(lo: u64, hi: u64, base: u64) -> Comb {
        match lo < hi {
            true => Comb { start: lo, width: hi - lo, period: hi - lo, count: 1, end: hi, base },
            false => Comb::EMPTY,
        }
    }

    /// Blocks of `width` (≥ 1) from `start` at distances of `period` (≥ `width`), as far as they start below
    /// `end`.
    pub fn periodic(start: u64, width: u64, period: u64, end: u64) -> Comb {
        if start >= end {
            return Comb::EMPTY;
        }
        let count = (end - start).div_ceil(period);
        if count == 1 {
            return Comb::interval(start, end.min(start.saturating_add(width)), 0);
        }
        Comb { start, width, period, count, end, base: 0 }
    }

    /// Whether there is no index in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of indices.
    pub fn len_elems(&self) -> u64 {
        match self.count {
            0 => 0,
            n => (n - 1) * self.width + self.block_end(n - 1) - self.block_start(n - 1),
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.count
    }

    /// The half-open range of indices that block `i` covers.
    ///
    /// # Panics
    /// May overflow when `i` is not below [`blocks`](Comb::blocks).
    pub fn block(&self, i: u64) -> (u64, u64) {
        (self.block_start(i), self.block_end(i))
    }

    /// Place of an index in the part, along this dimension; `None` when it is not in the comb.
    pub fn place(&self, index: u64) -> Option<u64> {
        let from = index.checked_sub(self.start).filter(|_| index < self.end)?;
        let (i, rest) = (from / self.period, from % self.period);
        (i < self.count && rest < self.width).then(|| self.base + i * self.width + rest)
    }

    /// What lies in `lo..hi` (`lo ≤ hi`), counted from `to` on instead of from `lo`: a first block that is cut,
    /// and the others. Empty combs stand behind.
    pub(crate) fn carried(&self, lo: u64, hi: u64, to: u64) -> [Comb; 2] {
        let (first, after) = if lo < hi && self.count > 0 { self.blocks_meeting(lo, hi) } else { (0, 0) };
        if first == after {
            return [Comb::EMPTY; 2];
        }
        let begin = self.block_start(first);
        let cut = begin < lo || after - first == 1;
        let whole = if cut { first + 1 } else { first };
        let rest = match after - whole {
            0 => Comb::EMPTY,
            1 => {
                let (a, b) = self.block(whole);
                Comb::interval(a - lo + to, b.min(hi) - lo + to, self.base + whole * self.width)
            }
            count => {
                let (start, end) = (self.block_start(whole) - lo + to, self.end.min(hi) - lo + to);
                Comb { start, count, end, base: self.base + whole * self.width, ..*self }
            }
        };
        if !cut {
            return [rest, Comb::EMPTY];
        }
        let (from, until) = (begin.max(lo), self.block_end(first).min(hi));
        let place = self.base + first * self.width + (from - begin);
        match Comb::interval(from - lo + to, until - lo + to, place) {
            none if none.is_empty() => [rest, Comb::EMPTY],
            part => [part, rest],
        }
    }

    fn block_start(&self, i: u64) -> u64 {
        self.start + i * self.period
    }

    fn block_end(&self, i: u64) -> u64 {
        self.end.min(self.block_start(i).saturating_add(self.width))
    }

    /// One past the last index; 0 when empty.
    pub(crate) fn upper(&self) -> u64 {
        match self.count {
            0 => 0,
            n => self.block_end(n - 1),
        }
    }

    /// The blocks that meet `lo..hi` (`lo < hi`), as a range of their numbers.
    fn blocks_meeting(&self, lo: u64, hi: u64) -> (u64, u64) {
        let first = match lo.checked_sub(self.start.saturating_add(self.width)) {
            None => 0,
            Some(past) => past / self.period + 1,
        };
        let after =
            if hi <= self.start { 0 } else { ((hi - self.start - 1) / self.period + 1).min(self.count) };
        (first, after.max(first))
    }
}

/// Appends what `src` and `dst` share, in the order of places in the destination part for the first run of
/// each family.
///
/// The families are disjoint and cover the intersection. Their number, and the time taken, depend on how the
/// two periods fit together (at most the overlaps within one common period), never on extents.
pub fn intersect(src: &Comb, dst: &Comb, out: &mut Vec<Family>) {
    match (src.count, dst.count) {
        (0, _) | (_, 0) => {}
        (_, 1) => with_interval(src, dst, false, out),
        (1, _) => with_interval(dst, src, true, out),
        _ => {
            let from = out.len();
            periodic(src, dst, out);
            out[from..].sort_unstable_by_key(|f| f.dst);
        }
    }
}

/// A comb and an interval: a first block cut short, whole ones, a last one cut short. `swap`: the comb is the
/// destination.
fn with_interval(comb: &Comb, interval: &Comb, swap: bool, out: &mut Vec<Family>) {
    let (lo, hi) = interval.block(0);
    let (first, after) = comb.blocks_meeting(lo, hi);
    let mut push = |from: u64, to: u64, comb_place: u64, count: u64| {
        let (a, b) = (comb_place, interval.base + from - lo);
        let (a_step, b_step) = if count > 1 { (comb.width, comb.period) } else { (0, 0) };
        out.push(match swap {
            false => Family { src: a, dst: b, len: to - from, count, src_step: a_step, dst_step: b_step },
            true => Family { src: b, dst: a, len: to - from, count, src_step: b_step, dst_step: a_step },
        });
    };
    // Blocks from `whole` on, `n` of them, are not cut.
    let (mut whole, mut n) = (first, after - first);
    let cut = |i: u64| {
        let (a, b) = comb.block(i);
        (a < lo || b > hi || b - a < comb.width).then(|| (a.max(lo), b.min(hi), a))
    };
    if n == 0 {
        return;
    }
    if let Some((from, to, a)) = cut(first) {
        push(from, to, comb.base + first * comb.width + from - a, 1);
        (whole, n) = (whole + 1, n - 1);
    }
    let last = if n > 0 { cut(after - 1) } else { None };
    n -= u64::from(last.is_some());
    if n > 0 {
        let (a, b) = comb.block(whole);
        push(a, b, comb.base + whole * comb.width, n);
    }
    if let Some((from, to, a)) = last {
        push(from, to, comb.base + (after - 1) * comb.width + from - a, 1);
    }
}

/// Two combs of several blocks each (so that both periods are below 2^63).
fn periodic(src: &Comb, dst: &Comb, out: &mut Vec<Family>) {
    let (a, b) = (src.period as i128, dst.period as i128);
    let (g, inverse) = gcd_inverse(a, b);
    let lcm = a / g * b;
    let (r, w) = (src.width as i128, dst.width as i128);
    // Differences d of block starts that overlap: -r < d < w, and only those with d ≡ c (mod g) occur.
    let c = src.start as i128 - dst.start as i128;
    let families = (r + w - 2) / g + 1;
    let within = |comb: &Comb| (comb.count as i128).min(lcm / comb.period as i128);
    if within(src).min(within(dst)) < families {
        return walk(src, dst, lcm, out);
    }
    let mut d = c + (-r + 1 - c).div_euclid(g) * g;
    if d <= -r {
        d += g;
    }
    while d < w {
        // i·a - j·b = d - c: i follows from the modular inverse, j from i; take the first with both not
        // negative.
        let (m, n) = (b / g, a / g);
        let mut i = ((d - c) / g).rem_euclid(m) * inverse % m;
        let mut j = (i * a - (d - c)) / b;
        if j < 0 {
            let up = (-j + n - 1) / n;
            (i, j) = (i + up * m, j + up * n);
        }
        family(src, dst, i, j, lcm, out);
        d += g;
    }
}

/// The family that begins with source block `i` and destination block `j`, cut at the ends.
fn family(src: &Comb, dst: &Comb, i: i128, j: i128, lcm: i128, out: &mut Vec<Family>) {
    let (a, b) = (src.period as i128, dst.period as i128);
    let left =
        |count: u64, first: i128, step: i128| (count as i128 - first + step - 1).div_euclid(step).max(0);
    let count = left(src.count, i, lcm / a).min(left(dst.count, j, lcm / b));
    if count == 0 {
        return;
    }
    let (x, y) = (src.start as i128 + i * a, dst.start as i128 + j * b);
    let (lo, hi) = (x.max(y), (x + src.width as i128).min(y + dst.width as i128));
    let (src_step, dst_step) = (lcm / a * src.width as i128, lcm / b * dst.width as i128);
    let src_place = src.base as i128 + i * src.width as i128 + lo - x;
    let dst_place = dst.base as i128 + j * dst.width as i128 + lo - y;
    let mut push = |k: i128, len: i128, count: i128| {
        if count > 0 && len > 0 {
            let steps = if count > 1 { (src_step as u64, dst_step as u64) } else { (0, 0) };
            out.push(Family {
                src: (src_place + k * src_step) as u64,
                dst: (dst_place + k * dst_step) as u64,
                len: len as u64,
                count: count as u64,
                src_step: steps.0,
                dst_step: steps.1,
            });
        }
    };
    // Only the last run can be cut by the end of the dimension: runs are less than a period long.
    let end = src.end.min(dst.end) as i128;
    let last = (hi + (count - 1) * lcm).min(end) - (lo + (count - 1) * lcm);
    if last == hi - lo {
        push(0, hi - lo, count);
    } else {
        push(0, hi - lo, count - 1);
        push(count - 1, last, 1);
    }
}

/// As [`periodic`], by looking at each block of the side with fewer of them: cheaper when extents are short.
fn walk(src: &Comb, dst: &Comb, lcm: i128, out: &mut Vec<Family>) {
    let (src_blocks, dst_blocks) = (lcm / src.period as i128, lcm / dst.period as i128);
    let by_src = (src.count as i128).min(src_blocks) < (dst.count as i128).min(dst_blocks);
    let (own, other) = if by_src { (src, dst) } else { (dst, src) };
    // The first run of a family lies in a block that begins within a common period of where both combs have
    // begun.
    let from = src.start.max(dst.start);
    let width = src.width.max(dst.width) as i128;
    let to = (from as i128 + lcm + width).min(u64::MAX as i128) as u64;
    let (first, after) = own.blocks_meeting(from, to);
    for k in first..after {
        // Blocks that the end of the dimension cuts are taken as whole: `family` does the cutting.
        let lo = own.block_start(k);
        let (first, after) = other.blocks_meeting(lo, lo + own.width);
        for m in first..after {
            let (i, j) = if by_src { (k as i128, m as i128) } else { (m as i128, k as i128) };
            if i < src_blocks || j < dst_blocks {
                family(src, dst, i, j, lcm, out);
            }
        }
    }
}

/// `(g, x)` with `g = gcd(a, b)` and `x·(a/g) ≡ 1 (mod b/g)`, `0 ≤ x < b/g` (0 when `b/g` is 1).
fn gcd_inverse(a: i128, b: i128) -> (i128, i128) {
    let (mut r0, mut r1, mut x0, mut x1) = (a, b, 1i128, 0i128);
    while r1 != 0 {
        let q = r0 / r1;
        (r0, r1) = (r1, r0 - q * r1);
        (x0, x1) = (x1, x0 - q * x1);
    }
    (r0, x0.rem_euclid(b / r0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(families: &[Family]) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for f in families {
            for k in 0..f.count {
                all.extend((0..f.len).map(|o| (f.src + k * f.src_step + o, f.dst + k * f.dst_step + o)));
            }
        }
        all.sort_unstable();
        all
    }

    fn naive(src: &Comb, dst: &Comb) -> Vec<(u64, u64)> {
        let mut all: Vec<_> =
            (0..src.end.max(dst.end)).filter_map(|x| Some((src.place(x)?, dst.place(x)?))).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn families_are_the_intersection() {
        for end in [0u64, 1, 2, 7, 24, 61, 144] {
            for (r, p, s, q) in [
                (1u64, 2u64, 1u64, 3u64),
                (3, 4, 2, 5),
                (4, 3, 6, 2),
                (5, 7, 3, 1),
                (2, 2, 2, 2),
                (9, 2, 4, 9),
            ] {
                for (u, v) in (0..p).flat_map(|u| (0..q).map(move |v| (u, v))) {
                    let (a, b) = (Comb::periodic(u * r, r, p * r, end), Comb::periodic(v * s, s, q * s, end));
                    let mut out = Vec::new();
                    intersect(&a, &b, &mut out);
                    assert_eq!(elements(&out), naive(&a, &b), "{a:?} {b:?} {out:?}");
                    for (lo, hi) in [(0, end), (3, 9), (5, 6), (10, 50)] {
                        let i = Comb::interval(lo.min(end), hi.min(end), 2);
                        let (mut out, mut back) = (Vec::new(), Vec::new());
                        intersect(&a, &i, &mut out);
                        intersect(&i, &a, &mut back);
                        assert_eq!(elements(&out), naive(&a, &i), "{a:?} {i:?} {out:?}");
                        assert_eq!(elements(&back), naive(&i, &a), "{a:?} {i:?} {back:?}");
                        assert!(out.len() <= 3 && back.len() <= 3);
                    }
                }
            }
        }
    }

    #[test]
    fn cost_does_not_depend_on_extents_or_periods() {
        let end = 1 << 60;
        let (a, b) = (Comb::periodic(5, 1, 1_000_000, end), Comb::periodic(7, 1, 1_000_003, end));
        let mut out = Vec::new();
        intersect(&a, &b, &mut out);
        assert_eq!(out.len(), 1);
        let x = a.start + out[0].src * a.period;
        assert_eq!((a.place(x), b.place(x)), (Some(out[0].src), Some(out[0].dst)));
    }
}
