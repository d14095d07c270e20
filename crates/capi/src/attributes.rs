//! What is written down of arrays, as JSON; and what their dimensions are called.

use crate::args::{maybe_text, place};
use crate::border::call;
use crate::code::Code;
use crate::error::{text, Failure};
use crate::handle::{self, Handle};
use crate::port::Port;
use polyduct::store::file::{Attributes, Notes};
use polyduct::store::zarr::Dims;
use polyduct::Reader;
use std::ffi::{c_char, c_int, CString};
use std::sync::OnceLock;

/// Text of a port's that does not change, from when it was first asked for.
pub type Kept = OnceLock<CString>;

/// Attributes as C says them: a JSON object.
///
/// # Safety
/// As [`maybe_text`].
pub unsafe fn attributes(given: *const c_char) -> Result<Option<Attributes>, Failure> {
    // SAFETY: as the caller promises.
    let Some(json) = (unsafe { maybe_text("attributes", given) })? else { return Ok(None) };
    let wrong = |e: serde_json::Error| {
        Failure::option("attributes", format!("attributes: expected the text of a JSON object: {e}"))
    };
    serde_json::from_str(json).map(Some).map_err(wrong)
}

/// Names of dimensions as C says them, with commas between them; one that is empty is none.
///
/// # Safety
/// As [`maybe_text`].
pub unsafe fn dims(given: *const c_char) -> Result<Option<Dims>, Failure> {
    // SAFETY: as the caller promises.
    let names = unsafe { maybe_text("dims", given) }?;
    let name = |name: &str| Some(name.trim().to_owned()).filter(|name| !name.is_empty());
    Ok(names.map(|names| names.split(',').map(name).collect()))
}

/// Both, of one of several arrays; `None` where nothing is said.
///
/// # Safety
/// As [`maybe_text`], of both.
pub unsafe fn notes(json: *const c_char, names: *const c_char) -> Result<Option<Notes>, Failure> {
    // SAFETY: as the caller promises.
    let (said, dims) = unsafe { (attributes(json)?, dims(names)?) };
    let is_said = said.is_some() || dims.is_some();
    Ok(is_said.then(|| Notes { attributes: said.unwrap_or_default(), dims, descr: None }))
}

unsafe fn ask(
    port: Handle,
    to: *mut *const c_char,
    kept: fn(&Port) -> &Kept,
    find: fn(&Reader) -> String,
) -> c_int {
    call(|| {
        let (port, to) = (handle::get::<Port>(port)?, place("text", to)?);
        let found = port.reading(|reader, _| Ok(find(reader)))?;
        let at = kept(&port).get_or_init(|| text(&found)).as_ptr();
        // SAFETY: a place of the caller's. The text lives as long as the port.
        unsafe { to.write(at) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_attributes(port: Handle, json: *mut *const c_char) -> c_int {
    let find = |reader: &Reader| serde_json::Value::from(reader.attributes()).to_string();
    // SAFETY: what the header asks of callers.
    unsafe { ask(port, json, |port| &port.attributes, find) }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_dims(port: Handle, names: *mut *const c_char) -> c_int {
    let find = |reader: &Reader| {
        let names = reader.dims().into_iter().flatten().map(|name| name.as_deref().unwrap_or_default());
        names.collect::<Vec<_>>().join(",")
    };
    // SAFETY: what the header asks of callers.
    unsafe { ask(port, names, |port| &port.dims, find) }
}
