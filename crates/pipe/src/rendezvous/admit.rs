//! Who may join a pipe that gathers or lasts, and what the units of a program must agree on.

use super::{name, Ending, Phase, Rendezvous};
use crate::error::Refusal;
use crate::wire::{Dataset, Hello, Role, Welcome};
use polyduct_copy::Conversion;
use polyduct_port::{UnitName, MAX_UNITS, PROGRAM_BYTES};
use std::fmt::Debug;

impl<F> Rendezvous<F> {
    /// Whether this unit 0 is what the pipe's old unit 0 was.
    pub(super) fn welcomes_me(&self, w: &Welcome) -> bool {
        self.members.get(&(0, 0)).is_some_and(|me| match &me.hello.role {
            Role::Writer { dataset, depth, policy, readers } => {
                let same = dataset.as_ref().is_none_or(|d| *d == w.dataset) && *depth == w.depth;
                same && *policy == w.policy
                    && [w.readers.len(), w.reader_layouts.len()] == [*readers as usize; 2]
                    && me.hello.units == w.writers
                    && me.hello.layout == w.layout
            }
            Role::Reader { .. } => false,
        })
    }

    /// Whether a unit may join, and which place it gets: program (0 the writer, then the readers) and unit.
    pub(super) fn admit(&self, hello: &Hello, has_segment: bool) -> Result<(u32, u32), Refusal> {
        if self.phase == Phase::Over {
            return Err(self.ended.clone().unwrap_or(Refusal::Over));
        }
        if self.ending == Ending::Failed {
            return Err(Refusal::Over);
        }
        check_hello(hello)?;
        let writer = matches!(hello.role, Role::Writer { .. });
        let program = if writer {
            0
        } else {
            match self.programs.iter().position(|p| *p == hello.program) {
                Some(i) => i as u32 + 1,
                None if self.phase == Phase::Gathering => {
                    let free = (1..=self.readers).find(|&p| self.units_of(p).is_none());
                    free.ok_or_else(|| self.too_many(hello))?
                }
                // A lone lost unit may come back under another name: its program is the one that misses a
                // unit.
                None => self.program_missing(hello).ok_or_else(|| self.too_many(hello))?,
            }
        };
        let key = (program, hello.unit);
        let programs = if program == 0 { 0 } else { self.readers };
        if self.closed.contains(&key) {
            return Err(Refusal::Over);
        }
        match self.members.get(&key).filter(|m| !m.given_up) {
            Some(_) if self.ending != Ending::No => return Err(Refusal::Over),
            Some(there) => return Err(Refusal::Duplicate { unit: name(key), pid: there.pid, programs }),
            None => {}
        }
        // A unit that replaces another goes on with that one's slots, which the readers have mapped.
        let late = matches!(hello.role, Role::Writer { dataset: None, .. });
        let kept = self.segments.contains_key(&hello.unit);
        let lost = matches!(self.phase, Phase::Running | Phase::Readying) && !kept;
        if writer && (lost || !late && !has_segment && !kept) {
            let error = if lost { "its predecessor's slots are lost" } else { "none came" };
            return Err(Refusal::Segment { unit: name(key), error: error.into() });
        }
        if let Some((other, first)) = self.members.range((program, 0)..(program + 1, 0)).next() {
            agree(name(key), other.1, &first.hello, hello).map_err(|why| among(why, programs))?;
        } else if let (Some(w), Some(p)) = (&self.welcome, (program as usize).checked_sub(1)) {
            // The whole program was lost: a replacement agrees with what it said.
            disagree(name(key), hello.unit, "units", &w.readers[p], &hello.units)?;
            disagree(name(key), hello.unit, "layout", &w.reader_layouts[p], &hello.layout)?;
        }
        if let (Role::Reader { shape, elem, convert }, Some(given)) = (&hello.role, self.dataset()) {
            check_dataset(&given, shape.as_deref(), elem.as_deref(), *convert)?;
            (self.check_layout)(&hello.layout, &given, hello.units, false)
                .map_err(|e| named(e, name(key)))?;
        }
        Ok(key)
    }

    fn too_many(&self, hello: &Hello) -> Refusal {
        if self.ending != Ending::No {
            return Refusal::Over;
        }
        Refusal::TooManyPrograms { expected: self.readers, found: hello.program.clone() }
    }

    pub(super) fn program_missing(&self, hello: &Hello) -> Option<u32> {
        (1..=self.programs.len() as u32).find(|&p| {
            matches!(self.phase, Phase::Running | Phase::Readying)
                && self.welcome.as_ref().is_some_and(|w| w.readers.get(p as usize - 1) == Some(&hello.units))
                && self.members.get(&(p, hello.unit)).is_none_or(|m| m.given_up)
        })
    }
}

/// Whether what a unit says of itself is within the limits.
pub(super) fn check_hello(hello: &Hello) -> Result<(), Refusal> {
    if hello.units == 0 || hello.units > MAX_UNITS || hello.unit >= hello.units {
        return Err(Refusal::UnitRange { unit: hello.unit, units: hello.units });
    }
    if hello.program.len() > PROGRAM_BYTES {
        return Err(Refusal::Malformed);
    }
    Ok(())
}

/// Whether two survivors speak of the same pipe.
pub(super) fn same_pipe(a: &Welcome, b: &Welcome) -> bool {
    Welcome { program: 0, ..a.clone() } == Welcome { program: 0, ..b.clone() }
}

pub(super) fn named(mut why: Refusal, who: UnitName) -> Refusal {
    if let Refusal::Layout { unit, .. } = &mut why {
        *unit = who;
    }
    why
}

/// Says among how many programs of one name two units disagree.
pub(super) fn among(mut why: Refusal, number: u32) -> Refusal {
    if let Refusal::Disagree { programs, .. } = &mut why {
        *programs = number;
    }
    why
}

fn disagree(
    unit: UnitName,
    other: u32,
    what: &str,
    expected: &dyn Debug,
    found: &dyn Debug,
) -> Result<(), Refusal> {
    let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.into(), found.into());
    Err(Refusal::Disagree { unit, what: what.into(), other, expected, found, programs: 0 })
}

/// What a unit says, if it says anything.
struct Said<T>(Option<T>);

impl<T: Debug> Debug for Said<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(said) => said.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}

/// Units of one program must say the same of everything that is the program's.
pub(super) fn agree(unit: UnitName, other: u32, first: &Hello, hello: &Hello) -> Result<(), Refusal> {
    let disagree =
        |what: &str, expected: &dyn Debug, found: &dyn Debug| disagree(unit, other, what, expected, found);
    disagree("units", &first.units, &hello.units)?;
    disagree("layout", &first.layout, &hello.layout)?;
    disagree("on_loss", &first.on_loss, &hello.on_loss)?;
    match (&first.role, &hello.role) {
        (
            Role::Writer { dataset: d1, depth: n1, policy: p1, readers: r1 },
            Role::Writer { dataset: d2, depth: n2, policy: p2, readers: r2 },
        ) => {
            disagree("shape", &Said(d1.as_ref().map(|d| &d.shape)), &Said(d2.as_ref().map(|d| &d.shape)))?;
            disagree("dtype", &Said(d1.as_ref().map(|d| &d.elem)), &Said(d2.as_ref().map(|d| &d.elem)))?;
            disagree("depth", n1, n2)?;
            disagree("policy", p1, p2)?;
            disagree("readers", r1, r2)
        }
        (a, b) => disagree("expected shape and dtype", a, b),
    }
}

pub(super) fn check_dataset(
    given: &Dataset,
    shape: Option<&[u64]>,
    elem: Option<&str>,
    convert: bool,
) -> Result<(), Refusal> {
    let refuse = |what: &str, expected: String, found: String| {
        Err(Refusal::Dataset { what: what.into(), expected, found })
    };
    if let Some(shape) = shape.filter(|s| *s != given.shape) {
        return refuse("shape", format!("{:?}", given.shape), format!("{shape:?}"));
    }
    match elem {
        Some(elem) if elem != given.elem && !convert => refuse("dtype", given.elem.clone(), elem.to_owned()),
        Some(elem) if elem != given.elem => match (given.elem.parse(), elem.parse()) {
            (Ok(from), Ok(to)) if Conversion::between(from, to).is_some() => Ok(()),
            _ => Err(Refusal::Conversion { from: given.elem.clone(), to: elem.to_owned() }),
        },
        _ => Ok(()),
    }
}
