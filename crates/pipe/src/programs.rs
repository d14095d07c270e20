//! Names of the reader programs of a pipe, for texts that speak of their units.

use crate::wire::Welcome;
use polyduct_port::{Peer, Side, UnitName};

/// What the reader programs are called, where there are several: their numbers say only who came first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs(Vec<String>);

impl Programs {
    /// Those of a pipe, as unit `me` of the program `mine` knows them.
    pub fn new(welcome: &Welcome, me: UnitName, mine: &str) -> Programs {
        match (welcome.readers.len(), me.side) {
            // Of those who come and go a unit knows its own.
            (0, Side::Reader(place)) => {
                let mut names = vec![String::new(); place as usize];
                names.push(mine.to_owned());
                Programs(names)
            }
            (0 | 1, _) => Programs::default(),
            _ => Programs(welcome.reader_programs.clone()),
        }
    }

    /// A unit as errors speak of it: with its program, where others of that side have one, too.
    pub fn peer(&self, unit: UnitName) -> Peer {
        Peer { program: self.name_of(unit), ..unit.into() }
    }

    /// The name that somebody has given to a unit's program.
    pub fn name_of(&self, unit: UnitName) -> Option<Box<str>> {
        let Side::Reader(program) = unit.side else { return None };
        let name = self.0.get(program as usize)?;
        let given = !name.is_empty() && !polyduct_os::process::is_unnamed(name);
        given.then(|| name.as_str().into())
    }
}
