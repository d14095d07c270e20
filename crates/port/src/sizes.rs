//! Sizes that change from step to step: what a writer unit may say of its own, and what follows from what all say.

use crate::{BundleError, Changes};
use polyduct_layout::{Dataset, Layout, LayoutError, Mapping};

/// The layout of a piece that one unit has whole.
const WHOLE: &str = "...";

/// An array whose size changes, as the units of the program that writes it have it.
#[derive(Clone, Debug)]
pub struct Sizes {
    name: String,
    most: Dataset,
    open: Changes,
    /// The program's; where a dimension is open each unit has its piece as it is.
    layout: Layout,
    units: u32,
}

/// What an array is in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSize {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Where a dimension is open, the index in it at which the piece of each unit begins; else nothing.
    pub starts: Vec<u64>,
}

impl Sizes {
    /// Of an array that is `most` at most (in its open dimension: each unit's piece) and has this layout as text,
    /// among `units` units.
    ///
    /// # Errors
    /// [`BundleError::Layout`] for what is no layout.
    pub fn new(
        name: &str,
        most: Dataset,
        layout: &str,
        open: Changes,
        units: u32,
    ) -> Result<Sizes, BundleError> {
        let text = if let Changes::Dim(_) = open { WHOLE } else { layout };
        let parsed = text.parse();
        let layout = parsed.map_err(|source| BundleError::Layout { name: name.to_owned(), source })?;
        Ok(Sizes { name: name.to_owned(), most, open, layout, units })
    }

    /// How it changes.
    pub fn open(&self) -> Changes {
        self.open
    }

    /// The most that it is.
    pub fn most(&self) -> &Dataset {
        &self.most
    }

    /// What a unit brings before anything is said: no elements.
    pub fn nothing(&self) -> Vec<u64> {
        let mut shape = self.most.shape().to_vec();
        match self.open {
            Changes::Dim(dim) => shape.iter_mut().skip(dim as usize).take(1).for_each(|n| *n = 0),
            Changes::Whole => shape.fill(0),
            Changes::Never => {}
        }
        shape
    }

    /// What a unit has in a step in which it says this shape: where a dimension is open that of its piece, else that of
    /// the whole. Gives the mapping of what the shape is of, and the bytes of the unit's part.
    ///
    /// # Errors
    /// [`BundleError::Size`]: it is another or more than was declared. [`BundleError::Layout`] where the layout does
    /// not fit it.
    pub fn part(&self, shape: &[u64], unit: u32) -> Result<(Mapping, u64), BundleError> {
        let most = self.most.shape();
        let fits = |(dim, (n, most)): (usize, (&u64, &u64))| match self.open {
            Changes::Dim(open) if open as usize != dim => n == most,
            Changes::Never => n == most,
            _ => n <= most,
        };
        if shape.len() != most.len() || !shape.iter().zip(most).enumerate().all(fits) {
            let expected = match self.open {
                Changes::Dim(dim) => format!("{most:?} with at most so many in dimension {dim}"),
                _ => format!("at most {most:?}"),
            };
            return Err(self.wrong(format!("{shape:?}"), expected));
        }
        let bind = || -> Result<(Mapping, u64), LayoutError> {
            let mapping = self.layout.bind(&Dataset::new(shape, self.most.elem())?, self.units.into())?;
            let len = mapping.local_len_bytes(unit.into())?;
            Ok((mapping, len))
        };
        bind().map_err(|source| BundleError::Layout { name: self.name.clone(), source })
    }

    /// Bytes of a unit's part, at most.
    ///
    /// # Errors
    /// [`BundleError::Layout`] where the layout does not fit the most.
    pub fn most_len(&self, unit: u32) -> Result<u64, BundleError> {
        let (mapping, len) = self.part(self.most.shape(), unit)?;
        match self.open {
            Changes::Whole => most_of_all(&mapping)
                .map_err(|source| BundleError::Layout { name: self.name.clone(), source }),
            Changes::Dim(_) | Changes::Never => Ok(len),
        }
    }

    /// The numbers by which a unit tells others of a shape.
    pub fn words<'a>(&self, shape: &'a [u64]) -> &'a [u64] {
        match self.open {
            Changes::Dim(dim) => shape.get(dim as usize..).and_then(|rest| rest.get(..1)).unwrap_or(&[]),
            Changes::Whole => shape,
            Changes::Never => &[],
        }
    }

    /// The shape of a piece of so many bytes, where a dimension is open.
    pub fn shape_of(&self, len: u64) -> Option<Vec<u64>> {
        let Changes::Dim(dim) = self.open else { return None };
        let mut shape = self.most.shape().to_vec();
        *shape.get_mut(dim as usize)? = 1;
        let row = shape.iter().product::<u64>() * self.most.elem().len_bytes();
        shape[dim as usize] = len.checked_div(row).filter(|n| n * row == len)?;
        Some(shape)
    }

    /// What the array is in a step of which each unit has said these [numbers](Sizes::words).
    ///
    /// # Errors
    /// [`BundleError::Size`]: more than was declared, or different shapes where there is one.
    pub fn step(&self, said: &[&[u64]]) -> Result<StepSize, BundleError> {
        let (most, mut shape) = (self.most.shape(), self.most.shape().to_vec());
        let mut starts = Vec::new();
        match self.open {
            Changes::Never => {}
            Changes::Whole => {
                let first = said.first().copied().unwrap_or_default();
                if let Some(other) = said.iter().position(|said| *said != first) {
                    let (found, expected) =
                        (format!("{:?}", said[other]), format!("{first:?}, as unit 0 says"));
                    return Err(self.beyond(other, found, expected));
                }
                if first.len() != most.len() || first.iter().zip(most).any(|(n, most)| n > most) {
                    return Err(self.beyond(0, format!("{first:?}"), format!("at most {most:?}")));
                }
                shape.copy_from_slice(first);
            }
            Changes::Dim(dim) => {
                let (dim, mut end) = (dim as usize, 0u64);
                for (unit, said) in said.iter().enumerate() {
                    let [n] = **said else {
                        return Err(self.beyond(unit, format!("{said:?}"), "one number".into()));
                    };
                    if n > most[dim] {
                        return Err(self.beyond(unit, n.to_string(), format!("at most {}", most[dim])));
                    }
                    starts.push(end);
                    end = end.saturating_add(n);
                }
                shape[dim] = end;
            }
        }
        Ok(StepSize { shape, starts })
    }

    /// What unit `unit` of the writers said is not what it may be.
    pub fn beyond(&self, unit: usize, found: String, expected: String) -> BundleError {
        self.wrong(found, format!("{expected} (unit {unit} of the writers said it)"))
    }

    fn wrong(&self, found: String, expected: String) -> BundleError {
        BundleError::Size { name: self.name.clone(), what: "its size in a step", found, expected }
    }
}

/// The error for a size that is said of an array whose size does not change.
pub fn fixed(name: &str, shape: &[u64]) -> BundleError {
    let (what, found) = ("its size in a step", format!("{shape:?}"));
    BundleError::Size { name: name.to_owned(), what, found, expected: "what it always is".into() }
}

/// Bytes of the longest part of any unit: where an array is smaller, a unit that has nothing of the most may have
/// something, but never more than this.
///
/// # Errors
/// [`LayoutError::PartTooLarge`].
pub fn most_of_all(mapping: &Mapping) -> Result<u64, LayoutError> {
    (0..mapping.units()).try_fold(0, |most, unit| Ok(mapping.local_len_bytes(unit)?.max(most)))
}

impl StepSize {
    /// The layout of the array among the writer units: their pieces in their order, or `layout` where no dimension is
    /// open.
    ///
    /// # Errors
    /// As [`Layout::cut`].
    pub fn layout(&self, sizes: &Sizes) -> Result<Layout, LayoutError> {
        match sizes.open {
            Changes::Dim(dim) => Layout::cut(self.shape.len(), dim as usize, &self.starts),
            Changes::Whole | Changes::Never => Ok(sizes.layout.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;

    fn sizes(open: Changes, layout: &str) -> Sizes {
        Sizes::new("x", Dataset::new(&[5, 3], ElemType::F32).unwrap(), layout, open, 3).unwrap()
    }

    #[test]
    fn pieces_follow_each_other_in_the_order_of_units() {
        let sizes = sizes(Changes::Dim(0), "");
        assert_eq!((sizes.nothing(), sizes.words(&[4, 3])), (vec![0, 3], &[4][..]));
        assert_eq!(sizes.part(&[4, 3], 1).unwrap().1, 48);
        let step = sizes.step(&[&[2][..], &[0], &[5]]).unwrap();
        assert_eq!(step, StepSize { shape: vec![7, 3], starts: vec![0, 2, 2] });
        assert_eq!(step.layout(&sizes).unwrap(), "cut(0,2,2),*".parse().unwrap());
        assert_eq!((sizes.shape_of(36), sizes.shape_of(37)), (Some(vec![3, 3]), None));
        let told = sizes.step(&[&[2][..], &[6], &[0]]).unwrap_err().to_string();
        assert!(told.contains("is 6; expected at most 5 (unit 1 of the writers said it)"), "{told}");
        for bad in [&[6, 3][..], &[4, 2], &[4]] {
            assert!(matches!(sizes.part(bad, 0), Err(BundleError::Size { .. })), "{bad:?}");
        }
    }

    #[test]
    fn no_unit_ever_has_more_than_the_most() {
        for (layout, units) in [("block,*", 4), ("*,balanced", 3), ("cyclic(2),*", 3), ("block,block@2x2", 4)]
        {
            for most in [[5, 3], [1, 9], [7, 7]] {
                let dataset = Dataset::new(&most, ElemType::U8).unwrap();
                let sizes = Sizes::new("x", dataset, layout, Changes::Whole, units).unwrap();
                for shape in (0..=most[0]).flat_map(|n| (0..=most[1]).map(move |m| [n, m])) {
                    for unit in 0..units {
                        let (len, limit) =
                            (sizes.part(&shape, unit).unwrap().1, sizes.most_len(unit).unwrap());
                        assert!(len <= limit, "{layout} of {shape:?}, unit {unit}: {len} of {limit}");
                    }
                }
            }
        }
    }

    #[test]
    fn all_units_say_the_same_shape_of_the_whole() {
        let sizes = sizes(Changes::Whole, "block,*");
        assert_eq!((sizes.nothing(), sizes.shape_of(12)), (vec![0, 0], None));
        // Rows 0 and 1, 2 and 3, none.
        let lens: Vec<u64> = (0..3).map(|unit| sizes.part(&[4, 2], unit).unwrap().1).collect();
        assert_eq!(lens, [16, 16, 0]);
        let step = sizes.step(&[&[4, 2][..]; 3]).unwrap();
        assert_eq!(step, StepSize { shape: vec![4, 2], starts: vec![] });
        for (said, words) in [
            ([&[4, 2][..], &[4, 1], &[4, 2]], "is [4, 1]; expected [4, 2], as unit 0 says (unit 1"),
            ([&[6, 2], &[6, 2], &[6, 2]], "at most [5, 3]"),
            ([&[4], &[4], &[4]], "at most [5, 3]"),
        ] {
            let told = sizes.step(&said).unwrap_err().to_string();
            assert!(told.contains(words), "{told}");
        }
    }
}
