//! Finds the leaves of a part's nests that may share something with the stripes of one unit.

use crate::comb::Comb;
use crate::linear::{Nest, Stripes};

/// A leaf in its place, and loops that repeat it while what it shares with the stripes stays the same.
pub(crate) struct Leaf {
    pub comb: Comb,
    /// Offset in the part's memory of the comb's place 0.
    pub offset: u64,
    /// Rounds, step in the part's memory, step in the stripe's.
    pub loops: Vec<(u64, u64, u64)>,
}

impl Leaf {
    pub fn new() -> Leaf {
        Leaf { comb: Comb::EMPTY, offset: 0, loops: Vec::new() }
    }

    pub fn place(&mut self, nest: &Nest, at: u64, offset: u64) {
        self.comb = nest.leaf;
        self.comb.start += at;
        self.comb.end += at;
        self.offset = offset;
    }

    pub fn repeat(&mut self, rounds: u64, local: u64, in_stripes: u64) {
        if rounds > 1 {
            self.loops.push((rounds, local, in_stripes));
        }
    }

    pub fn repeats(&self) -> u64 {
        self.loops.iter().map(|l| l.0).product()
    }
}

/// The leaves of a nest that may share something with the stripes of a unit.
pub(crate) enum Leaves {
    /// Start by start: the picture repeats from there.
    Starts { next: u64 },
    /// The stripe is one interval: what of the loops lies in it whole is one leaf, however much that is, and
    /// where it cuts a round the rounds within are looked at. So there are some two leaves for each loop.
    Clip { lo: u64, hi: u64, looks: Vec<Look> },
}

/// A place in the nest: the loops from `level` on, of those outside of it one round.
pub(crate) struct Look {
    level: usize,
    at: u64,
    offset: u64,
}

impl Leaves {
    pub fn of(nest: &Nest, stripes: &Stripes, stripe: &Comb) -> Leaves {
        match stripes.once {
            false => Leaves::Starts { next: 0 },
            true => {
                let (lo, hi) = stripe.block(0);
                Leaves::Clip { lo, hi, looks: vec![Look { level: 0, at: nest.at, offset: nest.offset }] }
            }
        }
    }

    /// The next leaf; `false` after the last.
    pub fn next(&mut self, nest: &Nest, stripes: &Stripes, into: &mut Leaf) -> bool {
        match self {
            Leaves::Starts { next } if *next == nest.starts() => false,
            Leaves::Starts { next } => {
                nest.start(*next, stripes, into);
                *next += 1;
                true
            }
            Leaves::Clip { lo, hi, looks } => {
                while let Some(look) = looks.pop() {
                    if clip(nest, look, (*lo, *hi), looks, into) {
                        return true;
                    }
                }
                false
            }
        }
    }
}

/// Looks at a place of a nest: gives what of it lies in the interval whole, if anything, and notes what else
/// is to be looked at.
fn clip(nest: &Nest, look: Look, (lo, hi): (u64, u64), looks: &mut Vec<Look>, into: &mut Leaf) -> bool {
    let Look { level, at, offset } = look;
    let (start, end) = nest.span(level);
    if at + end <= lo || at + start >= hi {
        return false;
    }
    into.loops.clear();
    let within = at + start >= lo && at + end <= hi;
    let Some(l) = nest.loops.get(level).filter(|_| !within) else {
        nest.loops[level..].iter().for_each(|l| into.repeat(l.count, l.local, l.step));
        into.place(nest, at, offset);
        return true;
    };
    // Round i covers low + i·step ..+ len. Those that meet the interval, and of them those that lie in it.
    let (start, end) = nest.span(level + 1);
    let (low, len) = (at + start, end - start);
    let first = if low + len > lo { 0 } else { (lo - low - len) / l.step + 1 };
    let after = hi.saturating_sub(low).div_ceil(l.step).min(l.count);
    let first_in = lo.saturating_sub(low).div_ceil(l.step);
    let after_in = hi.checked_sub(low + len).map_or(0, |room| (room / l.step + 1).min(l.count));
    let (first_in, after_in) = if first_in < after_in { (first_in, after_in) } else { (after, after) };
    let round = |i: u64| Look { level: level + 1, at: at + i * l.step, offset: offset + i * l.local };
    looks.extend((first..first_in).chain(after_in..after).map(round));
    if first_in == after_in {
        return false;
    }
    into.repeat(after_in - first_in, l.local, l.step);
    nest.loops[level + 1..].iter().for_each(|l| into.repeat(l.count, l.local, l.step));
    into.place(nest, at + first_in * l.step, offset + first_in * l.local);
    true
}
