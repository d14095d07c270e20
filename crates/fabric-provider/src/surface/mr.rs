//! Registered memory.

use super::cntr::Cntr;
use super::domain::Domain;
use super::{border, fid_ops, give, object, Core, Inner};
use crate::abi::{self, Fid, FidOps, MrAttr, MrFid, MrOps};
use crate::engine::Region;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID: FidOps = FidOps { bind, control, ..fid_ops(close) };
pub(super) static OPS: MrOps = MrOps { size: size_of::<MrOps>(), reg, regv, regattr };

/// A region, as it is given out.
#[repr(C)]
struct Mr {
    fid: MrFid,
    core: Arc<Core>,
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    mr: *mut *mut MrFid,
    context: *mut c_void,
) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let core = unsafe { object::<Domain>(domain) }.core.clone();
        let region = Region { base: buf.cast_mut().cast(), len, access, by_address: core.virtual_addresses };
        // Where addresses are the owner's, so are the keys of the provider's choice.
        let asked = (!core.virtual_addresses && key != abi::KEY_NOTAVAIL).then_some(key);
        let registered = core.enter().inner.shared.registry.register(asked, region);
        let key = match registered {
            Ok(key) => key,
            Err(error) => return -error,
        };
        let fid = Fid { class: abi::CLASS_MR, context, ops: &raw const FID };
        // SAFETY: the caller's.
        unsafe { give(Mr { fid: MrFid { fid, mem_desc: core::ptr::null_mut(), key }, core }, mr) }
    })
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    iov: *const libc::iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut MrFid,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return -abi::EINVAL;
    }
    // SAFETY: the caller's.
    unsafe { reg(domain, (*iov).iov_base, (*iov).iov_len, access, offset, key, flags, mr, context) }
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    flags: u64,
    mr: *mut *mut MrFid,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let a = &*attr;
        regv(domain, a.mr_iov, a.iov_count, a.access, a.offset, a.requested_key, flags, mr, a.context)
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    border(|| {
        // SAFETY: what `reg` gave out.
        let mr = unsafe { object::<Mr>(fid) };
        let key = mr.fid.key;
        let entered = mr.core.enter();
        let Inner { eps, shared, .. } = entered.inner;
        // What is as good as over ends first.
        eps.iter_mut().flatten().for_each(|ep| ep.engine.finish(shared));
        if !eps.iter_mut().flatten().all(|ep| ep.engine.withdraw(key)) {
            return -abi::EBUSY;
        }
        entered.inner.shared.registry.remove(key);
        drop(entered);
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(fid.cast::<Mr>()) });
        0
    })
}

/// Memory of a domain is that of all its endpoints. A counter counts what others write there.
unsafe extern "C" fn bind(fid: *mut Fid, to: *mut Fid, flags: u64) -> c_int {
    // SAFETY: the caller's: an object.
    match unsafe { (*to).class } {
        abi::CLASS_EP => 0,
        abi::CLASS_CNTR if flags == abi::REMOTE_WRITE => border(|| {
            // SAFETY: of these classes.
            let (mr, counter) = unsafe { (object::<Mr>(fid), object::<Cntr>(to)) };
            if !Arc::ptr_eq(&mr.core, &counter.core) {
                return -abi::EINVAL;
            }
            mr.core.enter().inner.shared.registry.count(mr.fid.key, counter.index);
            0
        }),
        abi::CLASS_CNTR => -abi::EBADFLAGS,
        _ => -abi::ENOSYS,
    }
}

unsafe extern "C" fn control(_: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    match command {
        // It is from the beginning.
        abi::CMD_ENABLE => 0,
        _ => -abi::ENOSYS,
    }
}
