//! The epochs of a store, as far as its history tells, for those who read without the protocol: what a copy
//! of the store wrote that went on apart is none of this one's, however right it looks.

use super::state::Relation;
use super::sums::Stamp;
use std::collections::BTreeSet;

/// The lowest generation that was written in each epoch, and its mark.
pub(super) type History = BTreeSet<(u32, u32)>;

/// Whether the epoch in which something was written is one of these. None that is older has to be; and what
/// is newer and not in it was written by a copy of the store that has gone on apart.
pub(super) fn relation(history: &History, of: Stamp) -> Relation {
    // Generations tell epochs: mostly it is the last of these.
    let before = history.range(..=(of.generation, u32::MAX));
    match before.clone().rev().any(|&(_, mark)| mark == of.mark) {
        true => Relation::Known,
        false if before.clone().next().is_some() => Relation::Apart,
        false => Relation::Unknown,
    }
}

/// What was known of them when somebody opened a dataset.
#[derive(Clone, Debug, Default)]
pub struct Epochs(History);

impl Epochs {
    pub(super) fn of(history: &History) -> Epochs {
        Epochs(history.clone())
    }

    /// As [`pairs`](Epochs::pairs) gives them.
    pub fn from_pairs(pairs: Vec<(u32, u32)>) -> Epochs {
        Epochs(pairs.into_iter().collect())
    }

    /// All of them, to be told to others.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        self.0.iter().copied().collect()
    }

    /// Whether something was certainly written apart. Of what is newer than these it cannot be said: the
    /// store may have gone on since.
    pub fn is_apart(&self, of: Stamp) -> bool {
        let is_known_of = self.0.last().is_some_and(|&(last, _)| of.generation <= last);
        is_known_of && of.generation != 0 && relation(&self.0, of) == Relation::Apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_within_what_is_known_is_apart() {
        let epochs = Epochs::from_pairs(vec![(10, 7), (20, 8), (30, 9)]);
        for (generation, mark, apart) in [
            (5, 1, false),
            (10, 7, false),
            (15, 7, false),
            (15, 1, true),
            // One that began later than that was written.
            (15, 8, true),
            (30, 8, false),
            (30, 1, true),
            (31, 1, false),
            (0, 1, false),
        ] {
            assert_eq!(epochs.is_apart(Stamp { generation, mark }), apart, "{generation} {mark}");
        }
        assert!(!Epochs::default().is_apart(Stamp { generation: 3, mark: 1 }));
        assert_eq!(Epochs::from_pairs(epochs.pairs()).pairs(), epochs.pairs());
    }
}
