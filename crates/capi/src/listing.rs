//! What a port brings, without reading it.

use crate::args::{fill, place, text};
use crate::border::call;
use crate::code::Code;
use crate::error;
use crate::guard::Guard;
use crate::handle::{self, Handle};
use crate::info::{Names, Part};
use crate::options::{self, Options};
use crate::quiet::quiet;
use crate::types;
use polyduct::Array;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// The arrays of a port, as its writers say them.
pub struct Listing {
    arrays: Vec<Array>,
    names: Names,
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_describe(
    listing: *mut Handle,
    url: *const c_char,
    given: *const Options,
) -> c_int {
    call(|| {
        let (to, guard) = (place("listing", listing)?, Guard::new("port"));
        // SAFETY: what the header asks of callers.
        let (open, ..) = unsafe { options::open(text("url", url)?, given, &guard)? };
        let arrays = quiet(|| guard.run(|| Ok(open.describe()?)))?;
        let names =
            arrays.iter().map(|array| (error::text(&array.name), error::text(&array.layout))).collect();
        let found = handle::give(Arc::new(Listing { arrays, names: Names::of(names) }))?;
        // SAFETY: a place of the caller's.
        unsafe { to.write(found) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_listing_count(listing: Handle, count: *mut usize) -> c_int {
    call(|| {
        let listing = handle::get::<Listing>(listing)?;
        // SAFETY: a place of the caller's.
        unsafe { place("count", count)?.write(listing.arrays.len()) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_listing_info(listing: Handle, index: usize, part: *mut Part) -> c_int {
    call(|| {
        let listing = handle::get::<Listing>(listing)?;
        let (names, array) = (listing.names.get(index)?, &listing.arrays[index]);
        let data = array.dataset;
        let found = Part::of(names, data.shape(), types::number(data.elem()), array.open);
        // SAFETY: a structure of the caller's that says its size.
        unsafe { fill("part", part, found) }?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_listing_close(listing: Handle) -> c_int {
    call(|| handle::take::<Listing>(listing).map(|_| Code::OK))
}
