//! Admits units to a pipe that gathers or lasts, and checks what those of a program must agree on.

use super::{Ending, Phase, Rendezvous, FIRST};
use crate::error::{name_them, Mismatch, Refusal};
use crate::wire::{Array, Gives, Hello, Role, Takes, Welcome, Wish};
use polyduct_port::{Side, UnitName, PROGRAM_BYTES};
use std::fmt::Debug;

impl<F> Rendezvous<F> {
    /// Whether this unit 0 is what the pipe's old unit 0 was.
    pub(super) fn welcomes_me(&self, w: &Welcome) -> bool {
        self.roll.get(FIRST).map(|me| &me.terms.hello).is_some_and(|me| match &me.role {
            Role::Writer { gives, depth, policy, readers } => {
                let same = match gives {
                    Gives::Arrays(arrays) => *arrays == w.arrays,
                    Gives::Bytes { layout } => w.arrays.iter().all(|array| array.layout == *layout),
                };
                same && *depth == w.depth
                    && *policy == w.policy
                    && [w.readers.len(), w.reader_takes.len()] == [*readers as usize; 2]
                    && me.units == w.writers
            }
            Role::Reader { .. } => false,
        })
    }

    /// Whether a unit says what it may say. Who only asks is told in the refusal.
    pub(super) fn check_hello(&self, hello: &Hello) -> Result<(), Refusal> {
        check_hello(hello)?;
        if let Role::Reader { takes: Takes::Ask } = &hello.role {
            let arrays = self.arrays().ok_or(Refusal::Terms(Mismatch::NoDataset))?;
            return Err(Refusal::Terms(Mismatch::Described { arrays: arrays.into_owned() }));
        }
        Ok(())
    }

    /// Whether a unit may join, and which place it gets.
    pub(super) fn admit(&self, hello: &Hello, has_segment: bool) -> Result<UnitName, Refusal> {
        if self.phase == Phase::Over {
            return Err(self.ended.clone().unwrap_or(Refusal::Over));
        }
        if self.ending == Ending::Failed {
            return Err(Refusal::Over);
        }
        self.check_hello(hello)?;
        let writer = matches!(hello.role, Role::Writer { .. });
        let program = match self.programs.iter().position(|p| *p == hello.program) {
            _ if writer => None,
            Some(i) => Some(i as u32),
            None => {
                let free = match self.phase {
                    Phase::Gathering => (0..self.readers).find(|&p| self.units_of(Side::Reader(p)).is_none()),
                    // A lone lost unit may come back under another name: its program is the one that misses
                    // a unit.
                    _ => self.program_missing(hello),
                };
                Some(free.ok_or_else(|| self.too_many(hello))?)
            }
        };
        let place = UnitName { side: program.map_or(Side::Writer, Side::Reader), unit: hello.unit };
        let programs = if writer { 0 } else { self.readers };
        if self.closed.contains(&place) {
            return Err(Refusal::Over);
        }
        match self.roll.get(place).filter(|member| !member.terms.given_up) {
            Some(_) if self.ending != Ending::No => return Err(Refusal::Over),
            Some(there) => return Err(among(Refusal::duplicate(place, there.pid), programs)),
            None => {}
        }
        // A unit that replaces another goes on with that one's slots, which the readers have mapped.
        let late = matches!(hello.role, Role::Writer { gives: Gives::Bytes { .. }, .. });
        let kept = self.segments.contains_key(&hello.unit);
        let lost = matches!(self.phase, Phase::Running | Phase::Readying) && !kept;
        if writer && (lost || !late && !has_segment && !kept) {
            let error = if lost { "its predecessor's slots are lost" } else { "none came" };
            return Err(Refusal::Terms(Mismatch::Segment { unit: place, error: error.into() }));
        }
        if let Some((other, first)) = self.first_of(place.side) {
            agree(place, other.unit, &first.terms.hello, hello).map_err(|why| among(why, programs))?;
        } else if let (Some(w), Some(p)) = (&self.welcome, program) {
            // The whole program was lost: a replacement agrees with what it said.
            disagree(place, hello.unit, "units", &w.readers[p as usize], &hello.units)?;
            if let (Some(first), Some(takes)) = (w.reader_takes.get(p as usize), hello.role.takes()) {
                agree_on_wishes(&|what, a, b| disagree(place, hello.unit, what, a, b), first, takes)?;
            }
        }
        self.check_reader(place, hello)?;
        Ok(place)
    }

    /// Whether what a unit wants fits the arrays, where it is a reader and they are known.
    pub(super) fn check_reader(&self, place: UnitName, hello: &Hello) -> Result<(), Refusal> {
        match self.arrays() {
            Some(arrays) if place.side != Side::Writer => {
                (self.check_terms)(&hello.role, &arrays, hello.units).map_err(|e| named(e, place))
            }
            _ => Ok(()),
        }
    }

    fn too_many(&self, hello: &Hello) -> Refusal {
        if self.ending != Ending::No {
            return Refusal::Over;
        }
        Refusal::Terms(Mismatch::TooManyPrograms { expected: self.readers, found: hello.program.clone() })
    }

    pub(super) fn program_missing(&self, hello: &Hello) -> Option<u32> {
        (0..self.programs.len() as u32).find(|&p| {
            let place = UnitName { side: Side::Reader(p), unit: hello.unit };
            matches!(self.phase, Phase::Running | Phase::Readying)
                && self.welcome.as_ref().is_some_and(|w| w.readers.get(p as usize) == Some(&hello.units))
                && self.roll.get(place).is_none_or(|member| member.terms.given_up)
        })
    }
}

/// Whether what a unit says of itself is within the limits.
pub(super) fn check_hello(hello: &Hello) -> Result<(), Refusal> {
    Refusal::check_range(hello.unit, hello.units)?;
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
    if let Refusal::Terms(Mismatch::Layout { unit, .. }) = &mut why {
        *unit = who;
    }
    why
}

/// Says what to do about so many programs that may have been taken for one.
pub(super) fn among(mut why: Refusal, programs: u32) -> Refusal {
    if let Refusal::Disagree { hint, .. } | Refusal::Duplicate { hint, .. } = &mut why {
        *hint = name_them(programs).into();
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
    Err(Refusal::disagree(unit, what, found, UnitName { unit: other, ..unit }, expected))
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
    disagree("on_loss", &first.on_loss, &hello.on_loss)?;
    match (&first.role, &hello.role) {
        (
            Role::Writer { gives: g1, depth: n1, policy: p1, readers: r1 },
            Role::Writer { gives: g2, depth: n2, policy: p2, readers: r2 },
        ) => {
            agree_on_arrays(&disagree, g1, g2)?;
            disagree("depth", n1, n2)?;
            disagree("policy", p1, p2)?;
            disagree("readers", r1, r2)
        }
        (Role::Reader { takes: t1 }, Role::Reader { takes: t2 }) => agree_on_wishes(&disagree, t1, t2),
        (a, b) => disagree("side", a, b),
    }
}

/// Says what two units said of something, where that is not the same.
type Disagree<'a> = dyn Fn(&str, &dyn Debug, &dyn Debug) -> Result<(), Refusal> + 'a;

fn agree_on_arrays(disagree: &Disagree<'_>, first: &Gives, gives: &Gives) -> Result<(), Refusal> {
    if first == gives {
        return Ok(());
    }
    let (a, b) = match (first, gives) {
        (Gives::Arrays(a), Gives::Arrays(b)) => (a, b),
        (Gives::Bytes { layout: a }, Gives::Bytes { layout: b }) => return disagree("layout", a, b),
        (a, b) => {
            let only = |gives: &Gives| match gives {
                Gives::Arrays(arrays) => Said(arrays.first().map(|array| array.shape.clone())),
                Gives::Bytes { .. } => Said(None),
            };
            return disagree("shape", &only(a), &only(b));
        }
    };
    disagree("number of arrays", &a.len(), &b.len())?;
    let of = |what: &str, array: &Array| match &array.name[..] {
        "" => what.to_owned(),
        name => format!("{what} of {name:?}"),
    };
    a.iter().zip(b).filter(|(a, b)| a != b).try_for_each(|(a, b)| {
        disagree("name of an array", &a.name, &b.name)?;
        disagree(&of("layout", a), &a.layout, &b.layout)?;
        disagree(&of("shape", a), &a.shape, &b.shape)?;
        disagree(&of("dtype", a), &a.elem, &b.elem)?;
        disagree(&of("open dimension", a), &a.open, &b.open)
    })
}

fn agree_on_wishes(disagree: &Disagree<'_>, first: &Takes, takes: &Takes) -> Result<(), Refusal> {
    if first == takes {
        return Ok(());
    }
    let agree = |of: &str, a: &Wish, b: &Wish| {
        disagree(&format!("layout{of}"), &a.layout, &b.layout)?;
        let expects = |wish: &Wish| (Said(wish.shape.clone()), Said(wish.elem.clone()), wish.convert);
        disagree(&format!("expected shape and dtype{of}"), &expects(a), &expects(b))?;
        disagree(&format!("pieces{of}"), &Said(a.of.clone()), &Said(b.of.clone()))
    };
    match (first, takes) {
        (Takes::One(a), Takes::One(b)) => agree("", a, b),
        (Takes::Named(a), Takes::Named(b)) => {
            disagree("number of layouts", &a.len(), &b.len())?;
            a.iter().zip(b).filter(|(a, b)| a != b).try_for_each(|((name, a), (other, b))| {
                disagree("name of an array", name, other)?;
                agree(&format!(" of {name:?}"), a, b)
            })
        }
        (a, b) => {
            let way = |takes: &Takes| matches!(takes, Takes::Named(_));
            disagree("layouts by name", &way(a), &way(b))
        }
    }
}
