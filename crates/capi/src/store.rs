//! Stores: made here, and read and written by ports.

use crate::args::{natural, text, unit};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use polyduct::store::disk::{Create, Store};
use std::ffi::{c_char, c_int};
use std::path::Path;

/// Bytes of a stripe unit where none are said.
const STRIPE: u64 = 1 << 20;

#[no_mangle]
pub unsafe extern "C" fn polyduct_store_create(
    dir: *const c_char,
    units: i32,
    parity: i32,
    stripe: i64,
) -> c_int {
    call(|| {
        // SAFETY: text of the caller's.
        let dir = Path::new(unsafe { text("dir", dir) }?);
        let (units, parity) = (unit("units", units)?, unit("parity", parity)?);
        if units > polyduct::MAX_UNITS {
            return Err(Failure::option("units", format!("{units} units are more than a store can have")));
        }
        let stripe = match natural("stripe", stripe)? {
            0 => STRIPE,
            stripe => stripe,
        };
        let units = (0..units).map(|unit| vec![format!("unit{unit}").into()]).collect();
        Store::create(dir, &Create { units, parity, stripe })?;
        Ok(Code::OK)
    })
}
