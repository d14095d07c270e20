//! Handlers by name: what each unit has, and the numbers that the whole domain agreed on.
//!
//! A unit [installs](Installed::install) handlers whenever it likes. A synchronise is collective: every unit
//! sends its [offer](Installed::offer) to unit 0, which [merges](Directory::merge) them into the next
//! [`Directory`] and sends that to all. Numbers once given stay; new names get the next ones in the order of
//! the alphabet, so that the result does not depend on who came first. The mechanism is GRIM's: a string
//! name, an integer id, known across the cluster.

pub use crate::error::HandlerError;
use crate::types::{Address, HandlerId};
pub use crate::types::{Kind, MAX_HANDLERS, MAX_NAME};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Checks a name.
fn check_name(name: &str) -> Result<(), HandlerError> {
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(HandlerError::BadName { name: name.chars().take(40).collect() });
    }
    Ok(())
}

/// What a unit tells of a handler of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// Its version: messages mean the same only between equal ones.
    pub version: u32,
    /// What it stands for.
    pub kind: Kind,
}

/// The handlers that this unit has installed. `H` is what is called.
#[derive(Clone, Debug)]
pub struct Installed<H> {
    by_name: BTreeMap<String, (u32, Kind, H)>,
    /// What each number calls; empty where this unit has no such handler.
    by_id: Vec<Option<H>>,
}

impl<H> Default for Installed<H> {
    fn default() -> Self {
        Installed { by_name: BTreeMap::new(), by_id: Vec::new() }
    }
}

impl<H: Clone> Installed<H> {
    /// Adds a handler; the domain knows it after the next synchronise.
    ///
    /// # Errors
    /// [`HandlerError::Duplicate`], [`HandlerError::BadName`], [`HandlerError::TooMany`].
    pub fn install(&mut self, name: &str, version: u32, kind: Kind, handler: H) -> Result<(), HandlerError> {
        check_name(name)?;
        if self.by_name.contains_key(name) {
            return Err(HandlerError::Duplicate { name: name.to_owned() });
        }
        if self.by_name.len() >= MAX_HANDLERS {
            return Err(HandlerError::TooMany { found: self.by_name.len() + 1 });
        }
        self.by_name.insert(name.to_owned(), (version, kind, handler));
        Ok(())
    }

    /// What this unit brings to a synchronise.
    pub fn offer(&self) -> Vec<Offered> {
        let offered = |(name, &(version, kind, _)): (&String, &(u32, Kind, H))| Offered {
            name: name.clone(),
            version,
            kind,
        };
        self.by_name.iter().map(offered).collect()
    }

    /// Takes the numbers of a new directory.
    pub fn number(&mut self, directory: &Directory) {
        let call = |e: &Entry| self.by_name.get(&e.name).map(|(_, _, handler)| handler.clone());
        self.by_id = directory.entries.iter().map(call).collect();
    }

    /// The handler of this number, if this unit has it.
    #[inline]
    pub fn get(&self, id: HandlerId) -> Option<&H> {
        self.by_id.get(id.0 as usize)?.as_ref()
    }
}

/// A handler as the domain knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    version: u32,
    kind: Kind,
    /// The unit that has it.
    units: BTreeSet<Address>,
}

/// The handlers that a domain has agreed on: the index of an entry is its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    entries: Vec<Entry>,
}

impl Directory {
    /// The next directory: this one with what the units offer. Unit `i` offers `offers[i]`.
    ///
    /// # Errors
    /// [`HandlerError::Kinds`], [`HandlerError::Versions`] naming two units that disagree,
    /// [`HandlerError::BadName`], [`HandlerError::TooMany`]. What was agreed before stays.
    pub fn merge(&self, offers: &[Vec<Offered>]) -> Result<Directory, HandlerError> {
        let mut known: BTreeMap<&str, Entry> = BTreeMap::new();
        for (unit, offer) in (0..).zip(offers) {
            for Offered { name, version, kind } in offer {
                check_name(name)?;
                let fresh =
                    || Entry { name: name.clone(), version: *version, kind: *kind, units: BTreeSet::new() };
                let entry = known.entry(name).or_insert_with(fresh);
                let first_unit = entry.units.first().copied().unwrap_or(unit);
                if entry.kind != *kind {
                    return Err(HandlerError::Kinds {
                        name: name.clone(),
                        first: entry.kind,
                        first_unit,
                        second: *kind,
                        second_unit: unit,
                    });
                }
                if entry.version != *version {
                    return Err(HandlerError::Versions {
                        name: name.clone(),
                        first: entry.version,
                        first_unit,
                        second: *version,
                        second_unit: unit,
                    });
                }
                entry.units.insert(unit);
            }
        }
        // A name that nobody offers any more keeps its number: a replaced unit may bring it again.
        let mut entries: Vec<Entry> = self
            .entries
            .iter()
            .map(|old| match known.remove(&*old.name) {
                Some(new) => new,
                None => Entry { units: BTreeSet::new(), ..old.clone() },
            })
            .collect();
        entries.extend(known.into_values());
        match entries.len() {
            0..=MAX_HANDLERS => Ok(Directory { entries }),
            found => Err(HandlerError::TooMany { found }),
        }
    }

    /// The number of a name at a unit, for what the name stands for.
    ///
    /// # Errors
    /// [`HandlerError::Unknown`], [`HandlerError::WrongKind`], [`HandlerError::NotThere`].
    pub fn lookup(&self, name: &str, unit: Address, kind: Kind) -> Result<HandlerId, HandlerError> {
        let id = self.entries.iter().position(|e| e.name == name && !e.units.is_empty());
        let id = id.ok_or_else(|| HandlerError::Unknown { name: name.to_owned() })?;
        let found = self.entries[id].kind;
        if found != kind {
            return Err(HandlerError::WrongKind { name: name.to_owned(), expected: kind, found });
        }
        if !self.entries[id].units.contains(&unit) {
            return Err(HandlerError::NotThere { name: name.to_owned(), unit });
        }
        Ok(HandlerId(id as u32))
    }

    /// The name of a number.
    pub fn name(&self, id: HandlerId) -> Option<&str> {
        self.entries.get(id.0 as usize).map(|e| &*e.name)
    }

    /// Handlers in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was agreed yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Kind::{Calls, Messages};
    use super::*;
    use proptest::prelude::*;

    fn offered(names: &[(&str, u32)]) -> Vec<Offered> {
        names.iter().map(|&(name, version)| Offered { name: name.into(), version, kind: Messages }).collect()
    }

    #[test]
    fn a_name_gets_a_number_and_keeps_it() {
        let first =
            Directory::default().merge(&[offered(&[("m", 1)]), offered(&[("b", 1), ("m", 1)])]).unwrap();
        assert_eq!(
            (first.lookup("b", 1, Messages), first.lookup("m", 0, Messages)),
            (Ok(HandlerId(0)), Ok(HandlerId(1)))
        );
        let next = first.merge(&[offered(&[("a", 1), ("m", 1)]), offered(&[("b", 1)])]).unwrap();
        assert_eq!(
            (next.lookup("b", 1, Messages), next.lookup("a", 0, Messages)),
            (Ok(HandlerId(0)), Ok(HandlerId(2)))
        );
        assert_eq!(next.name(HandlerId(2)), Some("a"));
    }

    #[test]
    fn every_mistake_has_its_name() {
        let both = Directory::default().merge(&[offered(&[("f", 1)]), offered(&[])]).unwrap();
        assert_eq!(both.lookup("g", 0, Messages), Err(HandlerError::Unknown { name: "g".into() }));
        assert_eq!(both.lookup("f", 1, Messages), Err(HandlerError::NotThere { name: "f".into(), unit: 1 }));
        assert_eq!(
            both.merge(&[offered(&[("f", 1)]), offered(&[]), offered(&[("f", 2)])]),
            Err(HandlerError::Versions {
                name: "f".into(),
                first: 1,
                first_unit: 0,
                second: 2,
                second_unit: 2
            })
        );
        let mut mine = Installed::default();
        mine.install("f", 1, Messages, ()).unwrap();
        assert_eq!(mine.install("f", 2, Messages, ()), Err(HandlerError::Duplicate { name: "f".into() }));
        for bad in ["", "a\nb", &"x".repeat(129)] {
            assert!(matches!(mine.install(bad, 1, Messages, ()), Err(HandlerError::BadName { .. })));
            assert!(matches!(both.merge(&[offered(&[(bad, 1)])]), Err(HandlerError::BadName { .. })));
        }
        assert_eq!(mine.get(HandlerId(0)), None, "not known before a synchronise");
        mine.number(&both);
        assert_eq!(mine.get(HandlerId(0)), Some(&()));
        assert_eq!(mine.get(HandlerId(7)), None);
    }

    #[test]
    fn a_name_stands_for_one_thing() {
        let function = |version| vec![Offered { name: "f".into(), version, kind: Calls }];
        let agreed = Directory::default().merge(&[function(1), vec![]]).unwrap();
        assert_eq!(agreed.lookup("f", 0, Calls), Ok(HandlerId(0)));
        // Also where it is not: what it is matters more.
        for unit in [0, 1] {
            let wrong = agreed.lookup("f", unit, Messages).unwrap_err();
            let name = "f".to_owned();
            assert_eq!(wrong, HandlerError::WrongKind { name, expected: Messages, found: Calls });
            assert_eq!(wrong.to_string(), "\"f\" is a function, not a handler of messages: call it");
        }
        assert_eq!(
            agreed.merge(&[vec![], offered(&[("f", 1)]), function(2)]),
            Err(HandlerError::Kinds {
                name: "f".into(),
                first: Messages,
                first_unit: 1,
                second: Calls,
                second_unit: 2
            })
        );
    }

    proptest! {
        /// Whatever units offer, round after round: all numbers stay, and each unit calls what it installed.
        #[test]
        fn numbers_stay(rounds in prop::collection::vec(prop::collection::vec(prop::collection::btree_set(0u8..20, 0..6), 3), 1..5)) {
            let mut directory = Directory::default();
            for round in rounds {
                let offers: Vec<_> = round
                    .iter()
                    .map(|names| names.iter().map(|n| Offered { name: format!("h{n}"), version: 1, kind: Messages }).collect())
                    .collect();
                let next = directory.merge(&offers).unwrap();
                for id in 0..directory.len() as u32 {
                    prop_assert_eq!(directory.name(HandlerId(id)), next.name(HandlerId(id)));
                }
                for (unit, names) in (0..).zip(&round) {
                    let mut mine = Installed::default();
                    for n in names {
                        mine.install(&format!("h{n}"), 1, Messages, *n).unwrap();
                    }
                    mine.number(&next);
                    for n in 0..20u8 {
                        let found = next.lookup(&format!("h{n}"), unit, Messages).ok().and_then(|id| mine.get(id));
                        prop_assert_eq!(found, names.get(&n));
                    }
                }
                directory = next;
            }
        }
    }
}
