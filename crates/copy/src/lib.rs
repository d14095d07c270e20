//! Kernels that carry out plan operations between two memories.
//!
//! [`execute`] carries out an [`OpTable`]; [`execute_convert`] changes the element type on the way,
//! [`execute_crc`] takes a checksum, and [`execute_part`] carries out one of several parts, for threads.
//! [`memcpy`] is the kernel for one long run, alone. [`Kernels`] has the same as methods, for a chosen
//! [`Level`] of vector instructions.
//!
//! ```
//! use polyduct_copy::{execute, Dest, Source};
//! use polyduct_layout::{Loop, OpTable};
//!
//! // Two rows of three f32 in C order, to Fortran order.
//! let mut table = OpTable::new(4);
//! let rows = Loop { count: 2, src_step: 3, dst_step: 1 };
//! let cols = Loop { count: 3, src_step: 1, dst_step: 2 };
//! table.push(0, 0, &[rows, cols]);
//! let from: Vec<u8> = [11f32, 12.0, 13.0, 21.0, 22.0, 23.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! let mut to = vec![0u8; 24];
//! execute(&table, Source::from(&from[..]), Dest::from(&mut to[..]))?;
//! assert_eq!(to[4..8], 21f32.to_ne_bytes());
//! # Ok::<(), polyduct_copy::CopyError>(())
//! ```
//!
//! Laws, which the tests check at every level against [`OpTable::for_each_run`]:
//!
//! 1. Each byte that the table reaches is written exactly as the table says, and no other byte of the
//!    destination is.
//! 2. A call that returns an error other than [`CopyError::Malformed`] has written nothing.
//! 3. Which write stays where a table writes a byte twice, is not specified.
//!
//! Where a transfer is larger than its share of the last-level cache, stores bypass the caches wherever a
//! line is written whole: an ordinary store would first read the line. Below that size the destination stays
//! cached for whoever reads it next.
//!
//! All code that does not run on every machine is behind [`Level`]; `unsafe` is in the modules of this crate
//! alone, and every access rests on one check (`Nest::lower`).

mod bulk;
mod cache;
mod convert;
mod error;
mod exec;
mod level;
mod memory;
mod nest;
mod rows;
mod simd;
mod table;
mod transpose;

pub use cache::LastCache;
pub use convert::Conversion;
pub use error::CopyError;
pub use level::{Kernels, Level};
pub use memory::{as_shared, Dest, Source};
pub use simd::{prefetch, prefetch_far, prefetch_to_write};

use polyduct_layout::OpTable;

/// Carries out a table; see [`Kernels::execute`].
#[inline]
pub fn execute(table: &OpTable, src: Source<'_>, dst: Dest<'_>) -> Result<(), CopyError> {
    Kernels::detect().execute(table, src, dst)
}

/// Carries out one part of a table; see [`Kernels::execute_part`].
pub fn execute_part(
    table: &OpTable,
    part: usize,
    parts: usize,
    src: Source<'_>,
    dst: Dest<'_>,
) -> Result<(), CopyError> {
    Kernels::detect().execute_part(table, part, parts, src, dst)
}

/// Carries out a table and changes the element type; see [`Kernels::execute_convert`].
pub fn execute_convert(
    table: &OpTable,
    conversion: Conversion,
    src: Source<'_>,
    dst: Dest<'_>,
) -> Result<(), CopyError> {
    Kernels::detect().execute_convert(table, conversion, src, dst)
}

/// Carries out a table and returns the CRC32C of its bytes; see [`Kernels::execute_crc`].
pub fn execute_crc(table: &OpTable, src: Source<'_>, dst: Dest<'_>) -> Result<u32, CopyError> {
    Kernels::detect().execute_crc(table, src, dst)
}

/// Copies all of the source to the start of the destination; see [`Kernels::memcpy`].
pub fn memcpy(dst: Dest<'_>, src: Source<'_>) -> Result<(), CopyError> {
    Kernels::detect().memcpy(dst, src)
}

/// Copies all of the source to the start of the destination, for another processor; see
/// [`Kernels::hand_over`].
pub fn hand_over(dst: Dest<'_>, src: Source<'_>) -> Result<(), CopyError> {
    Kernels::detect().hand_over(dst, src)
}
