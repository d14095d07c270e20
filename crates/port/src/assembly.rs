//! Arrays that a reader puts together from boxes of the writers' arrays, or takes under another name.

use crate::BundleError;
use polyduct_layout::{Dims, IndexBox, Window, MAX_DIMS};
use serde::{Deserialize, Serialize};
use std::iter::repeat;

/// The most pieces of one array.
pub const MAX_PIECES: usize = 1024;

/// Which indices of a dimension a box has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Index {
    /// One; the dimension goes away, as in NumPy.
    One(u64),
    /// Those from the first up to the second, or to the end.
    Span(u64, Option<u64>),
}

/// A box of an array of the writers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The writers' name of the array.
    pub array: String,
    /// The box, an index for each dimension; of those that are not said it has all.
    pub of: Vec<Index>,
    /// Where it comes to lie, a box of the reader's array said in the same way; `None` behind the pieces that
    /// stand before it.
    pub at: Option<Vec<Index>>,
}

/// How pieces follow each other whose place is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Join {
    /// One behind the other along this dimension.
    Along(u32),
    /// As planes of a new dimension, which is this one.
    Stacked(u32),
}

/// How a reader's array is made of boxes of the writers'. Together they cover it, each element once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assembly {
    /// The boxes; one alone renames an array or takes a box of it.
    pub pieces: Vec<Piece>,
    /// How they follow each other.
    pub join: Join,
}

impl Assembly {
    /// The whole of one array.
    pub fn all_of(array: &str) -> Assembly {
        let piece = Piece { array: array.to_owned(), of: Vec::new(), at: None };
        Assembly { pieces: vec![piece], join: Join::Along(0) }
    }

    /// The array of which this is all, under another name.
    pub fn renamed(&self) -> Option<&str> {
        match &self.pieces[..] {
            [Piece { array, of, at: None }] if of.is_empty() => Some(array),
            _ => None,
        }
    }

    /// Whether it is within the limits.
    ///
    /// # Errors
    /// [`BundleError::Size`], of the array `name`.
    pub fn check(&self, name: &str) -> Result<(), BundleError> {
        match self.pieces.len() {
            1..=MAX_PIECES => Ok(()),
            found => {
                let (what, found) = ("the number of its pieces", found.to_string());
                let expected = format!("1 to {MAX_PIECES}");
                Err(BundleError::Size { name: name.to_owned(), what, found, expected })
            }
        }
    }

    /// The shape of the array, and which box of each piece's array becomes which box of it.
    ///
    /// sources
    ///   The shapes of the pieces' arrays.
    /// shape
    ///   The array's own; it may be left out where no piece says its place.
    ///
    /// # Errors
    /// [`BundleError::Size`] or [`BundleError::Layout`], of the array `name`: a box that is not within its array,
    /// pieces that do not fit each other, overlap, or leave elements out.
    pub fn resolve(
        &self,
        name: &str,
        sources: &[&[u64]],
        shape: Option<&[u64]>,
    ) -> Result<(Vec<u64>, Vec<Window>), BundleError> {
        self.check(name)?;
        let refuse = |what, found: String, expected: String| {
            Err(BundleError::Size { name: name.to_owned(), what, found, expected })
        };
        let mut taken = Vec::with_capacity(self.pieces.len());
        for (piece, &source) in self.pieces.iter().zip(sources) {
            match bounds(&piece.of, source) {
                Some(found) => taken.push(found),
                None => {
                    let found = format!("{} of {:?}", written(&piece.of), piece.array);
                    return refuse("a box", found, format!("one within its shape {source:?}"));
                }
            }
        }
        let Some((first, _)) = taken.split_first() else { return Ok((Vec::new(), Vec::new())) };
        let dims = match self.join {
            _ if self.pieces.len() == 1 => first.1.len(),
            Join::Along(_) => first.1.len(),
            Join::Stacked(_) => first.1.len() + 1,
        };
        let axis = match self.join {
            Join::Along(axis) | Join::Stacked(axis) => axis as usize,
        };
        let is_placed = self.pieces.iter().any(|piece| piece.at.is_some());
        if self.pieces.len() > 1 && axis >= dims && !is_placed {
            let expected = format!("one of the {dims} of its pieces");
            return refuse("the dimension along which it is joined", axis.to_string(), expected);
        }
        let mut boxes = Vec::with_capacity(taken.len());
        let mut next = 0;
        for (piece, (_, sizes)) in self.pieces.iter().zip(&taken) {
            let placed = match (&piece.at, shape) {
                (Some(at), Some(shape)) => match bounds(at, shape) {
                    Some((placed, _)) => placed,
                    None => {
                        let expected = format!("one within its shape {shape:?}");
                        return refuse("the place of a piece", written(at), expected);
                    }
                },
                (Some(_), None) => {
                    return refuse("its shape", "none".into(), "one, as pieces have places in it".into())
                }
                (None, _) => self.behind(sizes, axis, &mut next),
            };
            boxes.push(placed);
        }
        let shape = match shape {
            Some(shape) => shape.to_vec(),
            None => {
                let mut shape = boxes[0].hi.to_vec();
                shape.iter_mut().skip(axis).take(usize::from(boxes.len() > 1)).for_each(|n| *n = next);
                shape
            }
        };
        let mut windows = Vec::with_capacity(taken.len());
        for ((piece, (from, _)), to) in self.pieces.iter().zip(&taken).zip(&boxes) {
            if to.ndim() != shape.len() || to.hi.iter().zip(&shape).any(|(hi, size)| hi > size) {
                let found = format!("{:?} up to {:?} for {:?}", to.lo, to.hi, piece.array);
                return refuse("the place of a piece", found, format!("one within its shape {shape:?}"));
            }
            let window = Window::new(*from, *to);
            windows.push(window.map_err(|source| BundleError::Layout { name: name.to_owned(), source })?);
        }
        let count = |shape: &[u64]| shape.iter().fold(1, |count: u128, &n| count.saturating_mul(n.into()));
        let covered = boxes.iter().fold(0, |sum: u128, to| sum.saturating_add(count(&to.shape())));
        let all = count(&shape);
        if is_placed {
            if let Some((a, b)) = overlapping(&boxes) {
                let (a, b) = (&self.pieces[a].array, &self.pieces[b].array);
                let found = format!("elements both of {a:?} and of {b:?}");
                return refuse("what its pieces bring", found, "each element once".into());
            }
        }
        if covered != all {
            let expected = format!("its {all}, shape {shape:?}");
            return refuse("what its pieces bring", format!("{covered} elements"), expected);
        }
        Ok((shape, windows))
    }

    /// Where a piece of these sizes comes to lie behind the ones before it.
    fn behind(&self, sizes: &[u64], axis: usize, next: &mut u64) -> IndexBox {
        let mut sizes = sizes.to_vec();
        if let (Join::Stacked(_), true) = (self.join, self.pieces.len() > 1 && axis <= sizes.len()) {
            sizes.insert(axis, 1);
        }
        let dims = sizes.len().min(MAX_DIMS);
        let (mut lo, mut hi) = (Dims::filled(0, dims), Dims::from_fn(dims, |k| sizes[k]));
        if self.pieces.len() > 1 && axis < dims {
            lo.as_mut_slice()[axis] = *next;
            *next = next.saturating_add(sizes[axis]);
            hi.as_mut_slice()[axis] = *next;
        }
        IndexBox { lo, hi }
    }
}

/// The box that these indices are of an array of this shape, and its sizes in dimensions that stay; `None` where
/// it is not within.
fn bounds(indices: &[Index], shape: &[u64]) -> Option<(IndexBox, Vec<u64>)> {
    if indices.len() > shape.len() || shape.len() > MAX_DIMS {
        return None;
    }
    let indices = indices.iter().chain(repeat(&Index::Span(0, None)));
    let mut sizes = Vec::new();
    let (mut lo, mut hi) = (Dims::filled(0, shape.len()), Dims::filled(0, shape.len()));
    for (k, (index, &size)) in indices.zip(shape).enumerate() {
        let (from, to) = match *index {
            Index::One(at) => (at, at.checked_add(1)?),
            Index::Span(from, to) => (from, to.unwrap_or(size)),
        };
        if from > to || to > size {
            return None;
        }
        (lo.as_mut_slice()[k], hi.as_mut_slice()[k]) = (from, to);
        if let Index::Span(..) = index {
            sizes.push(to - from);
        }
    }
    Some((IndexBox { lo, hi }, sizes))
}

/// Two of these boxes that share elements.
fn overlapping(boxes: &[IndexBox]) -> Option<(usize, usize)> {
    (1..boxes.len()).find_map(|b| {
        let meets = |&a: &usize| boxes[a].intersect(&boxes[b]).is_some();
        (0..b).find(meets).map(|a| (a, b))
    })
}

/// Indices as NumPy writes them.
fn written(indices: &[Index]) -> String {
    let one = |index: &Index| match index {
        Index::One(at) => at.to_string(),
        Index::Span(from, None) => format!("{from}:"),
        Index::Span(from, Some(to)) => format!("{from}:{to}"),
    };
    format!("[{}]", indices.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Index::{One, Span};

    fn piece(array: &str, of: &[Index], at: Option<&[Index]>) -> Piece {
        Piece { array: array.into(), of: of.to_vec(), at: at.map(<[Index]>::to_vec) }
    }

    type Boxes = Vec<(Vec<u64>, Vec<u64>)>;

    /// The shape, and of each piece where the boxes begin in its array and in the one that is made.
    fn made(
        pieces: &[Piece],
        join: Join,
        sources: &[&[u64]],
        shape: Option<&[u64]>,
    ) -> Result<(Vec<u64>, Boxes), String> {
        let assembly = Assembly { pieces: pieces.to_vec(), join };
        let (shape, windows) = assembly.resolve("w", sources, shape).map_err(|e| e.to_string())?;
        let begin = |w: &Window| (w.src().lo.to_vec(), w.dst().lo.to_vec());
        Ok((shape, windows.iter().map(begin).collect()))
    }

    #[test]
    fn pieces_follow_each_other_or_lie_where_they_say() {
        let all = |name| piece(name, &[], None);
        let (along, stacked) = (Join::Along(1), Join::Stacked(1));
        let (a, b): (&[u64], &[u64]) = (&[2, 3], &[2, 5]);
        let starts = |to: [[u64; 2]; 2]| to.map(|to| (vec![0, 0], to.to_vec())).to_vec();
        assert_eq!(
            made(&[all("a"), all("b")], along, &[a, b], None),
            Ok((vec![2, 8], starts([[0, 0], [0, 3]])))
        );
        let planes = vec![(vec![0, 0], vec![0, 0, 0]), (vec![0, 0], vec![0, 1, 0])];
        assert_eq!(made(&[all("a"), all("b")], stacked, &[a, a], None), Ok((vec![2, 2, 3], planes)));
        // One array is renamed, an array without dimensions as well.
        assert_eq!(made(&[all("a")], along, &[&[]], None), Ok((vec![], vec![(vec![], vec![])])));
        assert_eq!(made(&[all("a")], stacked, &[a], None), Ok((vec![2, 3], vec![(vec![0; 2], vec![0; 2])])));
        // An index takes its dimension away, and may bring one in.
        assert_eq!(
            made(&[piece("a", &[One(1)], None)], along, &[a], None),
            Ok((vec![3], vec![(vec![1, 0], vec![0])]))
        );
        let row = piece("a", &[One(1), Span(1, None)], None);
        assert_eq!(made(&[row], along, &[a], None), Ok((vec![2], vec![(vec![1, 1], vec![0])])));
        let placed = [
            piece("b", &[Span(0, None), Span(2, Some(5))], Some(&[One(1), Span(0, None), Span(0, None)])),
            piece("a", &[], Some(&[One(0), Span(0, None), Span(0, Some(3))])),
        ];
        let planes = vec![(vec![0, 2], vec![1, 0, 0]), (vec![0, 0], vec![0, 0, 0])];
        assert_eq!(made(&placed, along, &[b, a], Some(&[2, 2, 3])), Ok((vec![2, 2, 3], planes)));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let all = |name| piece(name, &[], None);
        let along = Join::Along(0);
        let told = |pieces: &[Piece], join, sources: &[&[u64]], shape: Option<&[u64]>| {
            made(pieces, join, sources, shape).unwrap_err()
        };
        let two = [all("a"), all("b")];
        let words = told(&[piece("a", &[Span(1, Some(9))], None)], along, &[&[4]], None);
        assert_eq!(words, r#"array "w": a box is [1:9] of "a"; expected one within its shape [4]"#);
        assert!(told(&[piece("a", &[One(u64::MAX)], None)], along, &[&[4]], None).contains("a box is"));
        assert!(told(&[piece("a", &[Span(3, Some(2))], None)], along, &[&[4]], None).contains("[3:2]"));
        assert!(told(&two, along, &[&[2, 3], &[2, 4]], None).contains("shape"));
        assert!(told(&two, Join::Along(2), &[&[2, 3], &[2, 3]], None).contains("dimension along which"));
        assert!(told(&two, along, &[&[2], &[2]], Some(&[5])).contains("4 elements; expected its 5"));
        assert!(told(&two, along, &[&[2], &[2]], Some(&[3])).contains("[4]"));
        let place = |at| piece("a", &[], Some(at));
        assert!(told(&[place(&[Span(0, None)])], along, &[&[2]], None).contains("its shape is none"));
        let twice = [place(&[Span(0, Some(2))]), place(&[Span(1, Some(3))])];
        assert!(told(&twice, along, &[&[2], &[2]], Some(&[4])).contains("each element once"));
        let many = vec![all("a"); MAX_PIECES + 1];
        let sources = vec![&[1u64][..]; MAX_PIECES + 1];
        assert!(told(&many, along, &sources, None).contains("1 to 1024"));
        assert!(told(&[], along, &[], None).contains("is 0"));
    }
}
