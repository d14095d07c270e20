//! The two words of a message that say what array its bytes are, the same for all surfaces.
//!
//! | words | the bytes are |
//! |---|---|
//! | 0, 0 | plain bytes |
//! | bits 0-7 of the first: 1-15, a type | an array's elements; bits 8-11 number of dimensions, bit 12 the first index varies fastest; all but the first dimension (then the last) share the other 48 bits in equal parts |
//! | bits 0-7 of the first: 255 | elements (bit 12 as above), then JSON, `[dtype, shape]`, and its length in four bytes |
//!
//! Python's `_encode` has the same table, with the numbers of the types.

/// The first index varies fastest.
pub const COLUMN_MAJOR: u32 = 1 << 12;
/// The number of what is said in words behind the elements.
pub const TEXT: u32 = 255;
/// Dimensions that the words have room for.
pub const MOST_DIMS: usize = 15;

/// What the words of a message say of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The number of its type.
    pub elem: u32,
    /// The first index varies fastest.
    pub column_major: bool,
    dims: [isize; MOST_DIMS],
    ndim: usize,
}

impl Said {
    /// What they say of so many bytes, where an element of a type has as many as `size_of` says; `None` for
    /// plain bytes, for what is said in words behind the elements, and where they make no sense.
    ///
    /// # Examples
    /// ```
    /// use polyduct::words::{words, Said};
    /// let said = words(11, &[5, 2, 3], false).and_then(|words| Said::of(words, 120, |_| Some(4)));
    /// assert_eq!(said.unwrap().shape(), [5, 2, 3]);
    /// ```
    #[inline]
    pub fn of(
        [first, second]: [u32; 2],
        len: usize,
        size_of: impl FnOnce(u32) -> Option<usize>,
    ) -> Option<Said> {
        let elem = Some(first & 0xff).filter(|elem| (1..TEXT).contains(elem))?;
        let (ndim, column_major) = ((first >> 8 & 15) as usize, first & COLUMN_MAJOR != 0);
        let (mut dims, mut size) = ([0; MOST_DIMS], size_of(elem)?);
        if ndim == 0 {
            return (len == size).then_some(Said { elem, column_major, dims, ndim });
        }
        let (mut packed, each) = (u64::from(first >> 16) << 32 | u64::from(second), bits(ndim));
        for dim in dims[1..ndim].iter_mut().rev() {
            let n = packed & ((1 << each) - 1);
            packed >>= each;
            *dim = n as isize;
            size = size.checked_mul(n as usize)?;
        }
        if size == 0 || !len.is_multiple_of(size) {
            return None;
        }
        dims[0] = (len / size) as isize;
        if column_major {
            dims[..ndim].reverse();
        }
        Some(Said { elem, column_major, dims, ndim })
    }

    /// Its shape.
    #[inline]
    pub fn shape(&self) -> &[isize] {
        &self.dims[..self.ndim]
    }
}

/// The words of an array whose type has this number; `None` where they have no room for its shape.
#[inline]
pub fn words(elem: u32, shape: &[isize], column_major: bool) -> Option<[u32; 2]> {
    if shape.len() > MOST_DIMS {
        return None;
    }
    let (mut packed, each) = (0_u64, bits(shape.len()));
    let pack = |&n: &isize| {
        // Nothing would tell the first dimension where another is 0.
        let n = u64::try_from(n).ok().filter(|&n| n > 0 && n >> each == 0)?;
        packed = packed << each | n;
        Some(())
    };
    match column_major {
        true => shape.iter().rev().skip(1).try_for_each(pack)?,
        false => shape.iter().skip(1).try_for_each(pack)?,
    }
    let order = if column_major { COLUMN_MAJOR } else { 0 };
    Some([elem | (shape.len() as u32) << 8 | order | ((packed >> 32) as u32) << 16, packed as u32])
}

/// Bits of each dimension but the first.
#[inline]
fn bits(ndim: usize) -> u32 {
    48 / ndim.saturating_sub(1).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_words_say_is_the_array() {
        let size = |elem| (elem == 11).then_some(4);
        for shape in [&[][..], &[5], &[0, 3], &[2, 3], &[4, 1, 7], &[1, 2, 3, 4, 5, 6, 7, 8], &[1; 15]] {
            for column_major in [false, true] {
                let len = shape.iter().product::<isize>() as usize * 4;
                let Some(words) = words(11, shape, column_major) else {
                    // A first dimension of 0 is the last one in the other order.
                    assert!(column_major && shape == [0, 3]);
                    continue;
                };
                let said = Said::of(words, len, size).unwrap();
                assert_eq!((said.elem, said.shape(), said.column_major), (11, shape, column_major));
            }
        }
        for shape in [&[2, 0][..], &[2, 1 << 48], &[1; 16], &[2, -1]] {
            assert_eq!(words(11, shape, false), None, "{shape:?}");
        }
        for nonsense in [[0, 0], [16, 0], [255, 0], [11 | 2 << 8, 0], [11 | 1 << 8, 0]] {
            assert_eq!(Said::of(nonsense, 66, size), None, "{nonsense:?}");
        }
    }
}
