//! Reading and writing the memory of others.

use super::ep::Endpoint;
use super::msg::only;
use super::{border_size, object};
use crate::abi::{self, EpFid, MsgRma, RmaOps};
use crate::engine::Access;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

pub(super) static OPS: RmaOps = RmaOps {
    size: size_of::<RmaOps>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// Flags of the calls that inject.
const QUIET: u64 = abi::INJECT | 1 << 63;

/// What a program does to another's memory.
struct Doing {
    here: *mut c_void,
    len: usize,
    peer: u64,
    address: u64,
    key: u64,
    data: Option<u64>,
    context: *mut c_void,
    /// `None`: those of the endpoint.
    flags: Option<u64>,
    writes: bool,
}

/// # Safety
/// As the manual pages have it.
#[inline]
unsafe fn access(ep: *mut EpFid, doing: &Doing) -> isize {
    border_size(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(ep) };
        let entered = ep.core.enter();
        let (this, shared, vectors) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        let flags = doing.flags.or(ep.alias).unwrap_or(this.tx_flags);
        let [sends, _] = this.engine.bounds();
        // Of what is injected by the call of that name nothing is told.
        let tells = flags != QUIET;
        let access = Access {
            peer: this.number(vectors, doing.peer)?,
            key: doing.key,
            offset: doing.address,
            here: doing.here.cast(),
            len: doing.len,
            data: doing.data,
            context: doing.context,
            tells: tells && (!sends.selective || flags & abi::COMPLETION != 0) && sends.queue.is_some(),
            injects: flags & abi::INJECT != 0,
        };
        match doing.writes {
            // SAFETY: the caller's.
            true => unsafe { this.engine.write(shared, &access) },
            false => this.engine.read(shared, &access),
        }
    })
}

unsafe extern "C" fn read(
    ep: *mut EpFid,
    here: *mut c_void,
    len: usize,
    _: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (data, flags, writes) = (None, None, false);
    // SAFETY: the caller's.
    unsafe { access(ep, &Doing { here, len, peer, address, key, data, context, flags, writes }) }
}

unsafe extern "C" fn readv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match only(iov, count) {
            Ok((here, len)) => read(ep, here, len, desc.cast(), peer, address, key, context),
            Err(error) => -(error as isize),
        }
    }
}

/// # Safety
/// As the manual pages have it.
unsafe fn of_msg(msg: *const MsgRma, flags: u64, writes: bool) -> Result<Doing, c_int> {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        let (here, len) = only(m.iov, m.iov_count)?;
        if m.rma_iov_count != 1 || (*m.rma_iov).len != len {
            return Err(abi::EINVAL);
        }
        let (address, key) = ((*m.rma_iov).addr, (*m.rma_iov).key);
        let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(m.data);
        let (peer, context, flags) = (m.addr, m.context, Some(flags));
        Ok(Doing { here, len, peer, address, key, data, context, flags, writes })
    }
}

unsafe extern "C" fn readmsg(ep: *mut EpFid, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { of_msg(msg, flags, false).map_or_else(|error| -(error as isize), |doing| access(ep, &doing)) }
}

unsafe extern "C" fn write(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    _: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (here, data, flags, writes) = (bytes.cast_mut(), None, None, true);
    // SAFETY: the caller's.
    unsafe { access(ep, &Doing { here, len, peer, address, key, data, context, flags, writes }) }
}

unsafe extern "C" fn writev(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match only(iov, count) {
            Ok((bytes, len)) => write(ep, bytes, len, desc.cast(), peer, address, key, context),
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn writemsg(ep: *mut EpFid, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { of_msg(msg, flags, true).map_or_else(|error| -(error as isize), |doing| access(ep, &doing)) }
}

unsafe extern "C" fn inject(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    peer: u64,
    address: u64,
    key: u64,
) -> isize {
    let (here, data, flags, writes, context) = (bytes.cast_mut(), None, Some(QUIET), true, null_mut());
    // SAFETY: the caller's.
    unsafe { access(ep, &Doing { here, len, peer, address, key, data, context, flags, writes }) }
}

unsafe extern "C" fn writedata(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (here, data, flags, writes) = (bytes.cast_mut(), Some(data), None, true);
    // SAFETY: the caller's.
    unsafe { access(ep, &Doing { here, len, peer, address, key, data, context, flags, writes }) }
}

unsafe extern "C" fn injectdata(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    data: u64,
    peer: u64,
    address: u64,
    key: u64,
) -> isize {
    let (here, data, flags, writes, context) = (bytes.cast_mut(), Some(data), Some(QUIET), true, null_mut());
    // SAFETY: the caller's.
    unsafe { access(ep, &Doing { here, len, peer, address, key, data, context, flags, writes }) }
}
