//! Sets of numbers as sorted, disjoint, half-open ranges.

/// The set. How many ranges it may have is for its owner to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|r| r.1 <= number);
        self.0.get(at).is_some_and(|r| r.0 <= number)
    }

    /// Whether all of `start..end` is in the set.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let at = self.0.partition_point(|r| r.1 < end);
        start >= end || self.0.get(at).is_some_and(|r| r.0 <= start)
    }

    /// Whether [`insert`](Self::insert) would add a range rather than extend one.
    pub fn would_grow(&self, start: u64, end: u64) -> bool {
        let at = self.0.partition_point(|r| r.1 < start);
        self.0.get(at).is_none_or(|r| r.0 > end)
    }

    /// Adds `start..end`.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let from = self.0.partition_point(|r| r.1 < start);
        let to = self.0.partition_point(|r| r.0 <= end);
        if from == to {
            self.0.insert(from, (start, end));
        } else {
            let merged = (start.min(self.0[from].0), end.max(self.0[to - 1].1));
            self.0[from] = merged;
            self.0.drain(from + 1..to);
        }
    }

    /// Takes away all below `end`.
    pub fn remove_below(&mut self, end: u64) {
        let gone = self.0.partition_point(|r| r.1 <= end);
        self.0.drain(..gone);
        if let Some(first) = self.0.first_mut() {
            first.0 = first.0.max(end);
        }
    }

    /// Takes the first `max` numbers of the first range.
    pub fn take_first(&mut self, max: u64) -> Option<(u64, u64)> {
        let first = self.0.first_mut()?;
        let (start, end) = (first.0, first.1.min(first.0.saturating_add(max)));
        if end == first.1 {
            self.0.remove(0);
        } else {
            first.0 = end;
        }
        Some((start, end))
    }

    pub fn first(&self) -> Option<(u64, u64)> {
        self.0.first().copied()
    }

    pub fn last(&self) -> Option<(u64, u64)> {
        self.0.last().copied()
    }

    /// Drops the lowest range.
    pub fn pop_lowest(&mut self) {
        self.0.remove(0);
    }

    /// From the highest range down.
    pub fn descending(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().rev().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a set of single numbers.
        #[test]
        fn same_as_a_set(steps in proptest::collection::vec((0u64..60, 0u64..12, any::<u8>()), 0..60)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, len, what) in steps {
                let end = start + len;
                match what % 4 {
                    0 => {
                        ranges.remove_below(start);
                        set.retain(|&n| n >= start);
                    }
                    1 => {
                        if let Some((a, b)) = ranges.take_first(len.max(1)) {
                            prop_assert_eq!(Some(&a), set.first());
                            for n in a..b {
                                prop_assert!(set.remove(&n));
                            }
                        }
                    }
                    _ => {
                        let before = ranges.len();
                        let grows = ranges.would_grow(start, end);
                        ranges.insert(start, end);
                        if len > 0 {
                            prop_assert_eq!(grows, ranges.len() > before);
                        }
                        set.extend(start..end);
                    }
                }
                for n in 0..80 {
                    prop_assert_eq!(ranges.contains(n), set.contains(&n));
                    prop_assert_eq!(ranges.covers(n, n + 3), (n..n + 3).all(|n| set.contains(&n)));
                }
                prop_assert!(ranges.0.windows(2).all(|w| w[0].1 < w[1].0));
            }
        }
    }
}
