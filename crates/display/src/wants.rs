//! What viewers want to see, put together for the program.

use crate::client::Want;
use crate::frame::WantId;
use crate::limits::MAX_WINDOWS;

/// What the viewers of one program want.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// Viewers that are not paused. With none, nobody looks, and frames need not be made.
    pub viewers: usize,
    /// Distinct windows, [`MAX_WINDOWS`] at most; other viewers see what is made for everybody.
    pub windows: Vec<(WantId, Want)>,
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
    pub(crate) fn update<'a>(&mut self, viewers: usize, wanted: impl Iterator<Item = &'a Want>) -> bool {
        let mut distinct: Vec<&Want> = Vec::new();
        for want in wanted {
            if !distinct.contains(&want) {
                distinct.push(want);
            }
        }
        let before = (self.wants.viewers, self.wants.windows.len());
        self.wants.viewers = viewers;
        self.wants.windows.retain(|(_, want)| distinct.contains(&want));
        let mut changed = before != (viewers, self.wants.windows.len());
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
        assert!(!table.update(0, [].iter()));
        assert!(table.update(3, [want(1), want(2), want(1)].iter()));
        assert_eq!((table.wants().viewers, table.wants().windows.len()), (3, 2));
        let two = table.id(&want(2));
        assert!(two.is_some() && !table.update(3, [want(2), want(1)].iter()));
        assert!(table.update(3, [want(2), want(3)].iter()));
        assert_eq!((table.id(&want(1)), table.id(&want(2))), (None, two));
        assert!(table.update(2, [want(2), want(3)].iter()), "viewers count");
        assert!(table.update(2, [want(1), want(2)].iter()), "one came as another went");
        assert_ne!(table.id(&want(1)), two);
    }

    #[test]
    fn the_ninth_sees_the_overview_until_another_goes() {
        let mut table = WantTable::default();
        let all: Vec<Want> = (0..10).map(want).collect();
        table.update(10, all.iter());
        assert_eq!(table.wants().windows.len(), MAX_WINDOWS);
        assert_eq!((table.id(&all[7]).is_some(), table.id(&all[8])), (true, None));
        assert!(table.update(9, all[1..].iter()));
        assert_eq!((table.id(&all[0]), table.id(&all[8]).is_some(), table.id(&all[9])), (None, true, None));
    }
}
