//! Domains.

use super::patience::Patience;
use super::{av, border, cntr, cq, ep, fid_ops, give, mr, object, poll, Core, Inner};
use crate::abi::{self, AtomicAttr, DomainFid, DomainOps, FabricFid, Fid, FidOps, Info};
use crate::engine::{self, AtomicWay};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

static FID: FidOps = FidOps { bind, ..fid_ops(close) };
static OPS: DomainOps = DomainOps {
    size: size_of::<DomainOps>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    scalable_ep: abi::none,
    cntr_open: cntr::open,
    poll_open: poll::open,
    stx_ctx: abi::none,
    srx_ctx: abi::none,
    query_atomic,
    query_collective: abi::none,
    endpoint2: ep::open2,
};

/// A domain, as it is given out.
#[repr(C)]
pub(super) struct Domain {
    fid: DomainFid,
    pub core: Arc<Core>,
}

pub unsafe extern "C" fn open(
    fabric: *mut FabricFid,
    info: *const Info,
    domain: *mut *mut DomainFid,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { open2(fabric, info, domain, 0, context) }
}

pub unsafe extern "C" fn open2(
    _: *mut FabricFid,
    info: *const Info,
    domain: *mut *mut DomainFid,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    border(|| {
        if flags != 0 {
            return -abi::EBADFLAGS;
        }
        // SAFETY: what `getinfo` made, or the program after it.
        let attr = unsafe { info.as_ref().and_then(|info| info.domain_attr.as_ref()) };
        let Some(attr) = attr else { return -abi::EINVAL };
        let safe = matches!(attr.threading, abi::THREAD_UNSPEC | abi::THREAD_SAFE);
        // What one thread at a time uses is one of its queues, or endpoints, in other models: all are together.
        let alone = attr.threading == abi::THREAD_DOMAIN;
        let core = Arc::new(Core {
            lock: (safe || !alone).then(|| Mutex::new(())),
            inner: UnsafeCell::new(Inner::default()),
            virtual_addresses: attr.mr_mode == abi::MR_BASIC,
            patience: Patience::default(),
        });
        let fid = Fid { class: abi::CLASS_DOMAIN, context, ops: &raw const FID };
        let fid = DomainFid { fid, ops: &raw const OPS, mr: &raw const mr::OPS };
        // SAFETY: the caller's.
        unsafe { give(Domain { fid, core }, domain) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    border(|| {
        // SAFETY: what `open` gave out.
        let domain = unsafe { object::<Domain>(fid) };
        if Arc::strong_count(&domain.core) > 1 {
            return -abi::EBUSY;
        }
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(fid.cast::<Domain>()) });
        0
    })
}

/// Nothing is told of a domain.
unsafe extern "C" fn bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn query_atomic(
    _: *mut DomainFid,
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    border(|| {
        let way = match flags {
            0 => AtomicWay::Plain,
            abi::FETCH_ATOMIC => AtomicWay::Fetches,
            abi::COMPARE_ATOMIC => AtomicWay::Compares,
            _ => return -abi::EBADFLAGS,
        };
        match (engine::valid_atomic(datatype, op, way), engine::atomic_size(datatype)) {
            (Some(count), Some(size)) => {
                // SAFETY: the caller's.
                unsafe { attr.write(AtomicAttr { count, size }) };
                0
            }
            _ => -abi::EOPNOTSUPP,
        }
    })
}
