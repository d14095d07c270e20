//! The epochs of a store, as far as its history tells, for those who read without the protocol: what a copy
//! of the store wrote that went on apart is none of this one's, however right it looks.

use super::sealed::unseal;
use super::state::{Relation, Superblock, SLOT, SUPERBLOCK};
use super::sums::Stamp;
use super::units::{Done, File, Request, Units};
use super::Geometry;
use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

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

/// Asks the superblocks which epochs there are.
pub type Ask = Box<dyn Fn() -> Vec<(u32, u32)> + Send + Sync>;

/// Marks that are known to be of no epoch of the store, at most; then they are asked for again.
const REFUSED: usize = 1 << 10;

/// What is known of them to somebody who has a dataset open, and how more is learned: where something was
/// written in an epoch that is newer than all of these, the superblocks say whether it is one of the store.
/// Units have their superblocks before anything is written in an epoch.
#[derive(Default)]
pub struct Epochs {
    known: RwLock<Known>,
    ask: Option<Ask>,
}

#[derive(Default)]
struct Known {
    history: History,
    /// What the superblocks did not have.
    refused: BTreeSet<(u32, u32)>,
}

impl Known {
    /// Whether something was written apart; `None` where it is newer than what is known.
    fn is_apart(&self, of: Stamp) -> Option<bool> {
        match relation(&self.history, of) {
            _ if of.generation == 0 || self.history.is_empty() => Some(false),
            Relation::Known | Relation::Unknown => Some(false),
            _ if self.refused.contains(&(of.generation, of.mark)) => Some(true),
            Relation::Apart => {
                let is_known_of = self.history.last().is_some_and(|&(last, _)| of.generation <= last);
                is_known_of.then_some(true)
            }
        }
    }
}

impl Epochs {
    pub(super) fn of(history: &History) -> Epochs {
        Epochs { known: RwLock::new(Known { history: history.clone(), ..Known::default() }), ask: None }
    }

    /// As [`pairs`](Epochs::pairs) gives them.
    pub fn from_pairs(pairs: Vec<(u32, u32)>) -> Epochs {
        Epochs::of(&pairs.into_iter().collect())
    }

    /// With a way to learn of newer ones.
    pub fn asking(self, ask: Ask) -> Epochs {
        Epochs { ask: Some(ask), ..self }
    }

    /// All of them, to be told to others.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        self.read().history.iter().copied().collect()
    }

    /// Whether something was certainly written apart. Of what is newer than these the superblocks are asked,
    /// once; where nobody can be asked it cannot be said: the store may have gone on since.
    pub fn is_apart(&self, of: Stamp) -> bool {
        if let Some(known) = self.read().is_apart(of) {
            return known;
        }
        let Some(ask) = &self.ask else { return false };
        let told = ask();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.history.extend(told);
        let apart = known.is_apart(of).unwrap_or(true);
        if apart {
            if known.refused.len() >= REFUSED {
                known.refused.clear();
            }
            known.refused.insert((of.generation, of.mark));
        }
        apart
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Epochs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Epochs").field(&self.read().history).finish()
    }
}

/// The epochs that the superblocks of all units tell of but those that are `lost`: what of the store's past
/// each of them knows. Nobody has to own the store: an epoch is in all of them before anything is written in
/// it. None where one of them does not answer.
pub fn told_by(units: &mut impl Units, id: [u8; 16], geometry: Geometry, lost: &[u32]) -> Vec<(u32, u32)> {
    let mut common: Option<History> = None;
    for unit in (0..geometry.units()).filter(|unit| !lost.contains(unit)) {
        let read = Request::Read { unit, file: File::Superblock, at: 0, len: 2 * SLOT };
        let Some(Ok(Done::Bytes(bytes))) = units.run(vec![read]).pop() else { return Vec::new() };
        let slots = bytes.chunks(SLOT).filter_map(|slot| unseal::<Superblock>(SUPERBLOCK, slot));
        let own = |block: &Superblock| block.volume == id && block.unit == unit && block.is_possible();
        let newest = slots.map(|(block, _)| block).filter(own).max_by_key(|block| block.seq);
        let Some(newest) = newest else { return Vec::new() };
        let before = newest.line.iter().map(|past| (past.generation, past.epoch.mark()));
        let all = before.chain([(newest.generation, newest.epoch.mark())]);
        let all: History = all.filter(|&(generation, _)| generation != 0).collect();
        common = Some(common.map_or_else(|| all.clone(), |common| &common & &all));
    }
    common.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

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
        assert!(!epochs.is_apart(Stamp { generation: 31, mark: 1 }), "nobody can be asked");
        assert_eq!(Epochs::from_pairs(epochs.pairs()).pairs(), epochs.pairs());
    }

    #[test]
    fn of_what_is_newer_the_superblocks_are_asked_once() {
        let asked = Arc::new(AtomicU32::new(0));
        let ask = asked.clone();
        let told = move || {
            ask.fetch_add(1, Ordering::Relaxed);
            vec![(30, 9), (40, 6)]
        };
        let epochs = Epochs::from_pairs(vec![(10, 7), (30, 9)]).asking(Box::new(told));
        let is_apart = |generation, mark| epochs.is_apart(Stamp { generation, mark });
        assert!(!is_apart(35, 9) && is_apart(15, 1));
        assert_eq!(asked.load(Ordering::Relaxed), 0, "that is known");
        assert!(!is_apart(41, 6) && !is_apart(44, 6));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(is_apart(45, 5) && is_apart(45, 5) && is_apart(36, 5));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert_eq!(epochs.pairs(), [(10, 7), (30, 9), (40, 6)]);
    }
}
