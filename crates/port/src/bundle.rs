//! Bundles: several named arrays in each step of a port.

use polyduct_layout::{Dataset, LayoutError, Mapping};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::Range;

/// The most arrays of a port.
pub const MAX_ARRAYS: usize = 1 << 16;
/// Bytes of an array's name, at most.
pub const NAME_BYTES: usize = 512;
/// Parts of several arrays lie at multiples of this within what a unit holds: a cache line, and more than any
/// element needs.
const ALIGN: u64 = 64;
/// Names that an error lists.
const LISTED: usize = 20;

/// What a writer program says of one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its name, of levels between `/`; empty for the only array of a port that has no name.
    pub name: String,
    /// Shape and element type.
    pub dataset: Dataset,
    /// The program's layout, as text. Where a [dimension is open](Changes::Dim) there is none to say: `...`.
    pub layout: String,
    /// Whether its size changes from step to step; the dataset's is the most that it has then. Or whether it is
    /// [constant](Changes::Never).
    pub open: Option<Changes>,
}

/// How an array's size changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Changes {
    /// In this dimension: each writer unit brings a piece, at most of the size that the dataset has there, and
    /// the array of a step is their pieces in the order of the units.
    Dim(u32),
    /// As a whole: all writer units say the same shape, of as many dimensions, none larger than the dataset's.
    Whole,
    /// Not at all: it is constant. Writers give it with their first step, and readers have it in every step.
    Never,
}

impl Changes {
    /// How many numbers say the size of an array of so many dimensions.
    pub fn words(self, dims: usize) -> usize {
        match self {
            Changes::Dim(_) | Changes::Never => 1,
            Changes::Whole => dims,
        }
    }
}

/// An array of an open port, as one of its units has it.
#[derive(Clone, Debug)]
pub struct ArrayPart {
    /// Its name; empty for the only array of a port that has no name.
    pub name: String,
    /// The dataset, and which unit of the program holds what of it: of one whose size changes, in the step
    /// that was read last or is next to be written. Where a dimension is open, a writer unit knows its own
    /// piece alone, and this is of that piece.
    pub mapping: Mapping,
    /// Where this unit's part lies in the memory of a step, in bytes.
    pub at: Range<usize>,
    /// Whether its size changes from step to step, or nothing of it does.
    pub open: Option<Changes>,
}

/// Why a bundle is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Nothing is in it.
    #[error("a bundle has at least one array")]
    Empty,
    /// More is in it than a port carries.
    #[error("a bundle has at most {MAX_ARRAYS} arrays; this one has {found}")]
    TooMany {
        /// Arrays that were given.
        found: usize,
    },
    /// An array cannot have this name.
    #[error("an array cannot be called {name:?}: {why}")]
    Name {
        /// The name, or its beginning.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two arrays have one name.
    #[error("two arrays are called {name:?}")]
    Twice {
        /// The name.
        name: String,
    },
    /// Arrays were asked for that there are not.
    #[error("{}", missing(names, *of))]
    Missing {
        /// What was asked for, and the nearest names that there are.
        names: Vec<(String, Vec<String>)>,
        /// How many arrays there are.
        of: usize,
    },
    /// A size that cannot be: of a dimension that there is not, or more than was declared.
    #[error("{}{what} is {found}; expected {expected}", array(name))]
    Size {
        /// The array.
        name: String,
        /// What has the size.
        what: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// A layout does not parse, or does not fit its array.
    #[error("{}{source}", array(name))]
    Layout {
        /// The array; empty for the only one.
        name: String,
        /// What is wrong.
        source: LayoutError,
    },
}

/// An array as the beginning of a sentence.
fn array(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!("array {name:?}: "),
    }
}

fn missing(names: &[(String, Vec<String>)], of: usize) -> String {
    let one = |(name, near): &(String, Vec<String>)| match &near[..] {
        [] => format!("{name:?}"),
        near => {
            let near: Vec<String> = near.iter().map(|name| format!("{name:?}")).collect();
            format!("{name:?} (near: {})", near.join(", "))
        }
    };
    let mut listed: Vec<String> = names.iter().take(LISTED).map(one).collect();
    if names.len() > LISTED {
        listed.push(format!("and {} more", names.len() - LISTED));
    }
    let whose = if of == 0 {
        "there are no arrays, and none".into()
    } else {
        format!("none of the writer's {of} arrays")
    };
    format!("{whose} is called {}", listed.join("; "))
}

/// Whether arrays may have these names, each once.
///
/// # Errors
/// [`BundleError`], of the first that may not.
pub fn check_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Result<(), BundleError> {
    let found = names.len();
    match found {
        0 => return Err(BundleError::Empty),
        1..=MAX_ARRAYS => {}
        _ => return Err(BundleError::TooMany { found }),
    }
    let mut seen = HashSet::with_capacity(found);
    for name in names {
        check_name(name)?;
        if !seen.insert(name) {
            return Err(BundleError::Twice { name: name.to_owned() });
        }
    }
    Ok(())
}

/// Whether an array may have this name: 1 to 512 bytes, in levels between `/` of which none is empty, `.` or
/// `..`, so that names can become paths; no control characters, and neither `*` nor `?`, which patterns use.
///
/// # Errors
/// [`BundleError::Name`].
pub fn check_name(name: &str) -> Result<(), BundleError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_BYTES {
        "it has more than 512 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else if name.contains(['*', '?']) {
        "'*' and '?' are for patterns"
    } else if name.split('/').any(|level| matches!(level, "" | "." | "..")) {
        "a level between '/' is empty, '.' or '..'"
    } else {
        return Ok(());
    };
    Err(BundleError::Name { name: name.chars().take(80).collect(), why })
}

/// Lays parts of these lengths (bytes) one behind the other: where each lies, and the bytes of all. `None`
/// where that is more than a `usize` counts.
pub fn lay_out(lens: impl Iterator<Item = u64>) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut ranges, mut end) = (Vec::new(), 0u64);
    for len in lens {
        let start = end.checked_next_multiple_of(ALIGN)?;
        // A part of no bytes begins where it could, so that the memory ends with the last byte that counts.
        let start = if len == 0 { end } else { start };
        end = start.checked_add(len)?;
        ranges.push(usize::try_from(start).ok()?..usize::try_from(end).ok()?);
    }
    Some((ranges, usize::try_from(end).ok()?))
}

/// Where the parts of a unit lie in its memory of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Those of each array.
    pub at: Vec<Range<usize>>,
    /// Bytes of all.
    pub len: usize,
    /// Bytes of those whose size does not change, which come first.
    pub fixed: usize,
}

impl Places {
    /// [Lays](lay_out) parts of these lengths one behind the other, the `open` ones behind all others.
    pub fn of(lens: impl Iterator<Item = u64>, open: &[usize]) -> Option<Places> {
        let lens: Vec<u64> = lens.collect();
        let mut is_open = vec![false; lens.len()];
        open.iter().for_each(|&array| is_open[array] = true);
        let mut order: Vec<usize> = (0..lens.len()).filter(|&array| !is_open[array]).collect();
        let fixed = order.len();
        order.extend(open);
        let (ranges, len) = lay_out(order.iter().map(|&array| lens[array]))?;
        let fixed = if fixed == 0 { 0 } else { ranges[fixed - 1].end };
        let mut at = vec![0..0; lens.len()];
        order.into_iter().zip(ranges).for_each(|(array, range)| at[array] = range);
        Some(Places { at, len, fixed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_become_paths() {
        for good in
            ["u", "encoder/0/weight", "größe", "a b", "..a", "layers.0.weight", &"x".repeat(NAME_BYTES)]
        {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let long = "x".repeat(NAME_BYTES + 1);
        for bad in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\nb", "a*", "who?", &long] {
            assert!(matches!(check_name(bad), Err(BundleError::Name { .. })), "{bad:?}");
        }
    }

    #[test]
    fn a_bundle_has_some_arrays_of_different_names() {
        let check = |names: &[&str]| check_names(names.iter().copied());
        assert_eq!(check(&["a", "a/b"]), Ok(()));
        assert_eq!(check(&[]), Err(BundleError::Empty));
        assert_eq!(check(&["a", "b", "a"]), Err(BundleError::Twice { name: "a".into() }));
        let many: Vec<String> = (0..=MAX_ARRAYS).map(|n| n.to_string()).collect();
        let found = check_names(many.iter().map(String::as_str));
        assert_eq!(found, Err(BundleError::TooMany { found: MAX_ARRAYS + 1 }));
    }

    #[test]
    fn all_names_that_are_missing_are_listed_with_the_nearest() {
        let names = vec![("wieght".into(), vec!["weight".into(), "weights".into()]), ("zz".into(), vec![])];
        assert_eq!(
            BundleError::Missing { names, of: 3 }.to_string(),
            r#"none of the writer's 3 arrays is called "wieght" (near: "weight", "weights"); "zz""#
        );
        let names = (0..30).map(|n| (n.to_string(), vec![])).collect();
        let words = BundleError::Missing { names, of: 1 }.to_string();
        assert!(words.ends_with(r#""19"; and 10 more"#), "{words}");
    }

    #[test]
    fn parts_lie_at_cache_lines_and_the_last_ends_the_memory() {
        assert_eq!(lay_out([5, 0].into_iter()), Some((vec![0..5, 5..5], 5)));
        let parts = vec![0..5, 64..64 + 128, 192..192, 192..193, 193..193];
        assert_eq!(lay_out([5, 128, 0, 1, 0].into_iter()), Some((parts, 193)));
        assert_eq!(lay_out([u64::MAX, 1].into_iter()), None);
        assert_eq!(lay_out([u64::MAX - 3, 1].into_iter()), None);
    }
}
