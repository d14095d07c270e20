//! Event queues: there is nothing that would come there.

use super::{border, fid_ops, give};
use crate::abi::{self, EqAttr, EqFid, EqOps, FabricFid, Fid, FidOps};
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

static FID: FidOps = fid_ops(close);
static OPS: EqOps = EqOps { size: size_of::<EqOps>(), read, readerr, write: abi::none, sread, strerror };

pub unsafe extern "C" fn open(
    _: *mut FabricFid,
    attr: *const EqAttr,
    eq: *mut *mut EqFid,
    context: *mut c_void,
) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        if !unsafe { attr.as_ref() }.is_none_or(|attr| super::cq::waits(attr.wait_obj)) {
            return -abi::ENOSYS;
        }
        let fid = Fid { class: abi::CLASS_EQ, context, ops: &raw const FID };
        // SAFETY: the caller's.
        unsafe { give(EqFid { fid, ops: &raw const OPS }, eq) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: what `open` gave out.
    border(|| unsafe {
        drop(Box::from_raw(fid.cast::<EqFid>()));
        0
    })
}

unsafe extern "C" fn read(_: *mut EqFid, _: *mut u32, _: *mut c_void, _: usize, _: u64) -> isize {
    -(abi::EAGAIN as isize)
}

unsafe extern "C" fn readerr(_: *mut EqFid, _: *mut c_void, _: u64) -> isize {
    -(abi::EAGAIN as isize)
}

unsafe extern "C" fn sread(
    _: *mut EqFid,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    timeout: c_int,
    _: u64,
) -> isize {
    match u64::try_from(timeout) {
        Ok(ms) => std::thread::sleep(Duration::from_millis(ms)),
        // For ever, for nothing.
        Err(_) => return -(abi::EOPBADSTATE as isize),
    }
    -(abi::EAGAIN as isize)
}

unsafe extern "C" fn strerror(
    _: *mut EqFid,
    error: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    super::cq::words(error, buf, len)
}
