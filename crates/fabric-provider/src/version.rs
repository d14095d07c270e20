//! Which version of libfabric has loaded this library.

use crate::abi;
use std::ffi::{c_int, c_void, CStr};

type Version = unsafe extern "C" fn() -> u32;

/// Its version; the newest known where that is not found out.
pub fn of_library() -> u32 {
    // SAFETY: a name, and a handle that is always there.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fi_version".as_ptr()) };
    let found = if found.is_null() { in_private() } else { found };
    if found.is_null() {
        return abi::NEWEST;
    }
    // SAFETY: libfabric's function of this name has this form in all its versions.
    let ask: Version = unsafe { core::mem::transmute::<*mut c_void, Version>(found) };
    // SAFETY: as above; it only returns a number.
    unsafe { ask() }
}

/// The function in a libfabric that was loaded for one library alone, as those in Python packages are.
fn in_private() -> *mut c_void {
    let mut found: *mut c_void = core::ptr::null_mut();
    // SAFETY: `look` is called before this returns, with the pointer that is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the system gives a structure with a name, or none.
    let name = unsafe { (*info).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: as above.
    let is_it = unsafe { CStr::from_ptr(name) }
        .to_bytes()
        .windows(10)
        .any(|part| part == b"libfabric-" || part == b"libfabric.");
    if !is_it {
        return 0;
    }
    // SAFETY: the name of a library that is loaded, which is not loaded again; the handle is given back.
    let symbol = unsafe {
        let library = libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return 0;
        }
        let symbol = libc::dlsym(library, c"fi_version".as_ptr());
        libc::dlclose(library);
        symbol
    };
    if symbol.is_null() {
        return 0;
    }
    // SAFETY: what `in_private` gave.
    unsafe { data.cast::<*mut c_void>().write(symbol) };
    1
}
