//! What viewers want to see, put together for the program.

use crate::client::Want;
use crate::frame::WantId;
use crate::limits::MAX_WINDOWS;
use std::collections::{BTreeMap, BTreeSet};

/// What the viewers of one program want.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// Viewers that are not paused. With none, nobody looks, and frames need not be made.
    pub viewers: usize,
    /// Distinct windows, [`MAX_WINDOWS`] at most; other viewers see what is made for everybody.
    pub windows: Vec<(WantId, Want)>,
    /// Views of which every viewer has a window of its own.
    pub own: BTreeSet<String>,
    /// Somebody waits for a file of an array as it is: [`Frame::exact`](crate::Frame::exact).
    pub file: bool,
}

/// Gives distinct wants their numbers, which stay while anybody has them.
#[derive(Debug, Default)]
pub(crate) struct WantTable {
    wants: Wants,
    next: u64,
}

impl WantTable {
    pub(crate) fn wants(&self) -> &Wants {
        &self.wants
    }

    /// The number of a want, unless there were too many.
    pub(crate) fn id(&self, want: &Want) -> Option<WantId> {
        self.wants.windows.iter().find(|(_, w)| w == want).map(|(id, _)| *id)
    }

    /// What is wanted now: by so many viewers, all that they want. Says whether that is a change.
    pub(crate) fn update<'a>(
        &mut self,
        (viewers, file): (usize, bool),
        wanted: impl Iterator<Item = &'a Want>,
    ) -> bool {
        let mut distinct: Vec<&Want> = Vec::new();
        let mut of_view: BTreeMap<&str, usize> = BTreeMap::new();
        for want in wanted {
            *of_view.entry(&want.view).or_default() += 1;
            if !distinct.contains(&want) {
                distinct.push(want);
            }
        }
        let before = (self.wants.viewers, self.wants.file, self.wants.windows.len());
        (self.wants.viewers, self.wants.file) = (viewers, file);
        self.wants.windows.retain(|(_, want)| distinct.contains(&want));
        let mut changed = before != (viewers, file, self.wants.windows.len());
        // Who does not get a window of its own sees what everybody sees.
        let all = distinct.len() <= MAX_WINDOWS;
        let own = of_view.into_iter().filter(|(_, count)| all && *count == viewers);
        self.wants.own = own.map(|(view, _)| view.to_owned()).collect();
        for want in distinct {
            if self.wants.windows.len() < MAX_WINDOWS && self.id(want).is_none() {
                self.wants.windows.push((WantId(self.next), want.clone()));
                self.next += 1;
                changed = true;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::Reduce;

    fn want(lo: u64) -> Want {
        let (lo, hi) = (vec![lo], vec![lo + 1]);
        let (axes, pixels) = (vec![0], vec![1]);
        Want { view: "u".into(), axes, lo, hi, pixels, slice: None, project: None, reduce: Reduce::Mean }
    }

    #[test]
    fn equal_wants_are_one_and_keep_their_number() {
        let mut table = WantTable::default();
        assert!(!table.update((0, false), [].iter()));
        assert!(table.update((3, false), [want(1), want(2), want(1)].iter()));
        assert_eq!((table.wants().viewers, table.wants().windows.len()), (3, 2));
        let two = table.id(&want(2));
        assert!(two.is_some() && !table.update((3, false), [want(2), want(1)].iter()));
        assert!(table.update((3, false), [want(2), want(3)].iter()));
        assert_eq!((table.id(&want(1)), table.id(&want(2))), (None, two));
        assert!(table.update((2, false), [want(2), want(3)].iter()), "viewers count");
        assert!(table.update((2, false), [want(1), want(2)].iter()), "one came as another went");
        assert_ne!(table.id(&want(1)), two);
    }

    #[test]
    fn the_ninth_sees_the_overview_until_another_goes() {
        let mut table = WantTable::default();
        let all: Vec<Want> = (0..10).map(want).collect();
        table.update((10, false), all.iter());
        assert_eq!(table.wants().windows.len(), MAX_WINDOWS);
        assert_eq!((table.id(&all[7]).is_some(), table.id(&all[8])), (true, None));
        assert!(table.update((9, false), all[1..].iter()));
        assert_eq!((table.id(&all[0]), table.id(&all[8]).is_some(), table.id(&all[9])), (None, true, None));
    }
}
