//! Steps in stretches: some bytes of the row-major array at a time, whoever's part they are, so that nobody
//! has to hold a step.
//!
//! A stretch of a file whose bytes are the program's own is read where it lies. Of any other it is the part
//! of one of many units, to which the row-major array is dealt in pieces of a stretch: a plan says where its
//! elements are.

use crate::FileError;
use polyduct_layout::{Dataset, Layout, LayoutError, Mapping};

/// Bytes of a stretch where nothing asks for another length: long enough for disks, short enough for caches.
const STRETCH_BYTES: u64 = 4 << 20;

/// Bytes of a stretch of `dataset` that falls between elements.
pub fn of_elements(dataset: &Dataset) -> u64 {
    let elem = dataset.elem().len_bytes().max(1);
    (STRETCH_BYTES / elem).max(1) * elem
}

/// Bytes of a stretch of an array in chunks of this shape: whole rows of chunks, so that each chunk is
/// decoded once.
pub fn of_chunks(dataset: &Dataset, chunk: &[u64]) -> u64 {
    let elem = dataset.elem().len_bytes();
    let shape = dataset.shape();
    let dim = chunk.iter().position(|&n| n > 1).unwrap_or(chunk.len().saturating_sub(1));
    let plane = shape.iter().skip(dim + 1).try_fold(elem, |plane, &n| plane.checked_mul(n));
    let rows = chunk.get(dim).zip(shape.get(dim)).map_or(1, |(&c, &n)| c.min(n));
    let band = plane.and_then(|plane| plane.checked_mul(rows)).unwrap_or(u64::MAX).max(1);
    // Rows of small chunks are taken together.
    (STRETCH_BYTES / band).max(1).saturating_mul(band)
}

/// The stretches of a step as the parts of so many units.
///
/// # Errors
/// [`LayoutError`] for more than can be counted.
pub fn mapping(dataset: &Dataset, stretch: u64) -> Result<Mapping, LayoutError> {
    let count = dataset.len_bytes().div_ceil(stretch).max(1);
    format!("stripe({stretch})").parse::<Layout>()?.bind(dataset, count)
}

/// Makes a buffer exactly so long.
///
/// # Errors
/// [`FileError::NoMemory`].
pub fn resize(buffer: &mut Vec<u8>, len: usize, path: &str) -> Result<(), FileError> {
    reserve(buffer, len.saturating_sub(buffer.len()), path)?;
    buffer.resize(len, 0);
    Ok(())
}

/// Makes room for so many bytes more, and no others.
///
/// # Errors
/// [`FileError::NoMemory`].
pub fn reserve(buffer: &mut Vec<u8>, more: usize, path: &str) -> Result<(), FileError> {
    let bytes = buffer.len().saturating_add(more) as u64;
    buffer.try_reserve_exact(more).map_err(|_| FileError::NoMemory { path: path.to_owned(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;

    #[test]
    fn stretches_fall_between_elements_and_rows_of_chunks() {
        let of = |shape: &[u64], elem, chunk: &[u64]| {
            let dataset = Dataset::new(shape, elem).unwrap();
            (of_elements(&dataset), of_chunks(&dataset, chunk))
        };
        assert_eq!(of(&[1 << 30], ElemType::F32, &[1 << 20]), (4 << 20, 4 << 20));
        assert_eq!(of(&[9], ElemType::Bytes(3), &[9]).0, (4 << 20) / 3 * 3);
        assert_eq!(of(&[9], ElemType::Bytes(5 << 20), &[9]).0, 5 << 20);
        // 128 rows of 1024 by 1024; a few rows of short chunks; chunks that cut the second dimension.
        assert_eq!(of(&[1024, 1024, 1024], ElemType::U8, &[128, 128, 128]).1, 128 << 20);
        assert_eq!(of(&[1000, 1024], ElemType::U8, &[10, 10]).1, 409 * 10 * 1024);
        assert_eq!(of(&[2, 1 << 30], ElemType::U8, &[1, 32 << 20]).1, 32 << 20);
        assert_eq!(of(&[], ElemType::F64, &[]).1, 4 << 20);
        assert!(of(&[0, 7], ElemType::F64, &[3, 3]).1 > 0);
    }
}
