//! A [libfabric](https://ofiwg.github.io/libfabric/) provider on polyduct's messages: what MPI libraries that use
//! libfabric load to run over polyduct, unchanged.
//!
//! The layers, from below:
//!
//! * [`engine`]: what an endpoint of libfabric's does: matching, long messages, remote memory, completions.
//! * [`abi`]: libfabric's structures and tables of functions, as its headers declare them.
//! * `surface`: the functions in those tables. No panic leaves them.
//!
//! Nothing of libfabric is linked: it loads this library and calls [`fi_prov_ini`].

#[allow(missing_docs)]
pub mod abi;
pub mod engine;
mod info;
mod names;
mod surface;
mod version;
mod warn;

use abi::Provider;
use std::ptr::null_mut;

/// What libfabric knows of the provider. It writes to it.
struct Known(std::cell::UnsafeCell<Provider>);

// SAFETY: only libfabric uses it, under a lock of its own.
unsafe impl Sync for Known {}

static KNOWN: Known = Known(std::cell::UnsafeCell::new(Provider {
    version: abi::version(0, 1),
    fi_version: abi::NEWEST,
    context: [null_mut(); 4],
    name: c"polyduct".as_ptr(),
    getinfo: info::getinfo,
    fabric: surface::open_fabric,
    cleanup,
}));

// SAFETY of the pointers in it: they point to what is never changed or freed.

unsafe extern "C" fn cleanup() {}

/// Where libfabric begins, when it has loaded this library.
///
/// # Safety
/// Called by libfabric, by one thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_prov_ini() -> *mut Provider {
    warn::begin();
    let known = KNOWN.0.get();
    // SAFETY: the caller's. A library takes no provider of a version newer than its own.
    unsafe { (*known).fi_version = abi::NEWEST.min(version::of_library()) };
    known
}
