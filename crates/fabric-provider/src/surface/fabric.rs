//! Fabrics.

use super::{border, domain, eq, fid_ops, give};
use crate::abi::{self, FabricAttr, FabricFid, FabricOps, Fid, FidOps};
use std::ffi::{c_int, c_void};

static FID: FidOps = fid_ops(close);
static OPS: FabricOps = FabricOps {
    size: size_of::<FabricOps>(),
    domain: domain::open,
    passive_ep: abi::none,
    eq_open: eq::open,
    wait_open: abi::none,
    trywait,
    domain2: domain::open2,
};

/// `fi_fabric`.
///
/// # Safety
/// As the manual page has it.
pub unsafe extern "C" fn open_fabric(
    attr: *const FabricAttr,
    fabric: *mut *mut FabricFid,
    context: *mut c_void,
) -> c_int {
    border(|| {
        // SAFETY: libfabric's attributes.
        let api_version = unsafe { attr.as_ref() }.map_or(abi::NEWEST, |attr| attr.api_version);
        let fid = Fid { class: abi::CLASS_FABRIC, context, ops: &raw const FID };
        // SAFETY: the caller's.
        unsafe { give(FabricFid { fid, ops: &raw const OPS, api_version }, fabric) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: what `open_fabric` gave out.
    border(|| unsafe {
        drop(Box::from_raw(fid.cast::<FabricFid>()));
        0
    })
}

/// There is nothing that a program could wait on by itself.
unsafe extern "C" fn trywait() -> isize {
    0
}
