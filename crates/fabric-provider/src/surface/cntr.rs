//! Counters.

use super::domain::Domain;
use super::{border, border_or, cq, fid_ops, give, object, Core, Ep};
use crate::abi::{self, CntrAttr, CntrFid, CntrOps, DomainFid, Fid, FidOps};
use crate::engine::completion::Count;
use polyduct_message::endpoint::clock;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

static FID: FidOps = fid_ops(close);
static OPS: CntrOps = CntrOps { size: size_of::<CntrOps>(), read, readerr, add, set, wait, adderr, seterr };

/// A counter, as it is given out.
#[repr(C)]
pub(super) struct Cntr {
    fid: CntrFid,
    pub(super) core: Arc<Core>,
    pub index: usize,
    /// Poll sets that it is in.
    pub sets: AtomicU32,
}

pub unsafe extern "C" fn open(
    domain: *mut DomainFid,
    attr: *const CntrAttr,
    cntr: *mut *mut CntrFid,
    context: *mut c_void,
) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let (core, attr) = unsafe { (object::<Domain>(domain).core.clone(), attr.as_ref()) };
        if !attr.is_none_or(|attr| cq::waits(attr.wait_obj)) {
            return -abi::ENOSYS;
        }
        let index = super::keep(&mut core.enter().inner.shared.counts, Count::default());
        let fid = Fid { class: abi::CLASS_CNTR, context, ops: &raw const FID };
        // SAFETY: the caller's.
        unsafe {
            give(
                Cntr { fid: CntrFid { fid, ops: &raw const OPS }, core, index, sets: AtomicU32::new(0) },
                cntr,
            )
        }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    border(|| {
        // SAFETY: what `open` gave out.
        let cntr = unsafe { object::<Cntr>(fid) };
        let entered = cntr.core.enter();
        let is_in_set = cntr.sets.load(Ordering::Acquire) > 0;
        let of_memory = entered.inner.shared.registry.is_counting(cntr.index);
        if is_in_set || of_memory || entered.inner.eps.iter().flatten().any(|ep| uses(ep, cntr.index)) {
            return -abi::EBUSY;
        }
        entered.inner.shared.counts[cntr.index] = None;
        drop(entered);
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(fid.cast::<Cntr>()) });
        0
    })
}

fn uses(ep: &Ep, counter: usize) -> bool {
    ep.engine.counters().contains(&Some(counter))
}

impl Cntr {
    pub(super) fn get(&self) -> Count {
        let entered = self.core.enter();
        // What is written to memory comes by any endpoint.
        let of_memory = entered.inner.shared.registry.is_counting(self.index);
        let found = entered.inner.progress(|ep| of_memory || uses(ep, self.index));
        let count = entered.inner.shared.counts[self.index].unwrap_or_default();
        drop(entered);
        self.core.patience.looked(found);
        count
    }

    fn change(&self, change: impl FnOnce(&mut Count)) -> c_int {
        border_or(|| {
            self.core.enter().inner.shared.counts[self.index].as_mut().map(change).ok_or(abi::EINVAL)
        })
    }
}

/// # Safety
/// It was given out, and not closed.
unsafe fn of<'a>(cntr: *mut CntrFid) -> &'a Cntr {
    // SAFETY: the caller's.
    unsafe { object::<Cntr>(cntr) }
}

unsafe extern "C" fn read(cntr: *mut CntrFid) -> u64 {
    // SAFETY: the caller's.
    let cntr = unsafe { of(cntr) };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cntr.get().done)).unwrap_or(0)
}

unsafe extern "C" fn readerr(cntr: *mut CntrFid) -> u64 {
    // SAFETY: the caller's.
    let cntr = unsafe { of(cntr) };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cntr.get().failed)).unwrap_or(0)
}

unsafe extern "C" fn add(cntr: *mut CntrFid, n: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { of(cntr) }.change(|count| count.done = count.done.wrapping_add(n))
}

unsafe extern "C" fn set(cntr: *mut CntrFid, n: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { of(cntr) }.change(|count| count.done = n)
}

unsafe extern "C" fn adderr(cntr: *mut CntrFid, n: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { of(cntr) }.change(|count| count.failed = count.failed.wrapping_add(n))
}

unsafe extern "C" fn seterr(cntr: *mut CntrFid, n: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { of(cntr) }.change(|count| count.failed = n)
}

unsafe extern "C" fn wait(cntr: *mut CntrFid, threshold: u64, timeout: c_int) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let cntr = unsafe { of(cntr) };
        let deadline = cq::deadline(timeout);
        let failed = cntr.get().failed;
        loop {
            let count = cntr.get();
            if count.done >= threshold {
                return 0;
            }
            if count.failed != failed {
                return -abi::EAVAIL;
            }
            if clock::now() >= deadline {
                return -abi::ETIMEDOUT;
            }
        }
    })
}
