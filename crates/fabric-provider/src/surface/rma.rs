//! Reading and writing the memory of others.

use super::av::Vector;
use super::ep::{on, Asked, Flags};
use super::msg::{only, pieces};
use super::Ep;
use crate::abi::{self, EpFid, MsgRma, RmaOps};
use crate::engine::pieces::total;
use crate::engine::{Access, Shared};
use polyduct_message::endpoint::Piece;
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

/// What a program does to another's memory.
struct Doing {
    here: *mut c_void,
    len: usize,
    peer: u64,
    address: u64,
    key: u64,
    data: Option<u64>,
    context: *mut c_void,
    flags: Flags,
    writes: bool,
}

/// # Safety
/// As the manual pages have it.
#[inline]
unsafe fn access(ep: *mut EpFid, doing: Result<Doing, c_int>, pieces: &[Piece]) -> isize {
    let flags = doing.as_ref().map_or(Flags::Own, |doing| doing.flags);
    let act = |this: &mut Ep, shared: &mut Shared, vectors: &[Option<Vector>], asked: Asked| {
        let Doing { here, len, peer, address: offset, key, data, context, writes, .. } = doing?;
        let (peer, here) = (this.number(vectors, peer)?, here.cast());
        let (tells, injects) = (asked.tells, asked.flags & abi::INJECT != 0);
        let access = Access { peer, key, offset, here, len, data, context, tells, injects };
        match (writes, pieces) {
            // SAFETY: the caller's.
            (true, []) => unsafe { this.engine.write(shared, &access) },
            // SAFETY: as above.
            (true, _) => unsafe { this.engine.write_pieces(shared, &access, pieces) },
            (false, []) => this.engine.read(shared, &access),
            (false, _) => this.engine.read_pieces(shared, &access, pieces),
        }
    };
    // SAFETY: the caller's.
    unsafe { on(ep, flags, true, act) }
}

/// Accesses from or to what lies in a vector. `doing` makes the access of one piece.
///
/// # Safety
/// As the manual pages have it.
unsafe fn access_vector(
    ep: *mut EpFid,
    (iov, count): (*const libc::iovec, usize),
    doing: impl Fn((*mut c_void, usize)) -> Doing,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match count {
            0 | 1 => access(ep, only(iov, count).map(doing), &[]),
            _ => access(ep, Ok(doing((null_mut(), 0))), pieces(iov, count)),
        }
    }
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
    let (data, flags, writes) = (None, Flags::Own, false);
    // SAFETY: the caller's.
    unsafe { access(ep, Ok(Doing { here, len, peer, address, key, data, context, flags, writes }), &[]) }
}

unsafe extern "C" fn readv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (data, flags, writes) = (None, Flags::Own, false);
    let doing = |(here, len)| Doing { here, len, peer, address, key, data, context, flags, writes };
    // SAFETY: the caller's.
    unsafe { access_vector(ep, (iov, count), doing) }
}

/// # Safety
/// As the manual pages have it.
unsafe fn access_msg(ep: *mut EpFid, msg: *const MsgRma, flags: u64, writes: bool) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        let pieces = pieces(m.iov, m.iov_count);
        if m.rma_iov_count != 1 || total(pieces) != Some((*m.rma_iov).len) {
            return -(abi::EINVAL as isize);
        }
        let (address, key) = ((*m.rma_iov).addr, (*m.rma_iov).key);
        let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(m.data);
        let (peer, context, flags) = (m.addr, m.context, Flags::Said(flags));
        let doing = |(here, len)| Doing { here, len, peer, address, key, data, context, flags, writes };
        access_vector(ep, (m.iov, m.iov_count), doing)
    }
}

unsafe extern "C" fn readmsg(ep: *mut EpFid, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { access_msg(ep, msg, flags, false) }
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
    let (here, data, flags, writes) = (bytes.cast_mut(), None, Flags::Own, true);
    // SAFETY: the caller's.
    unsafe { access(ep, Ok(Doing { here, len, peer, address, key, data, context, flags, writes }), &[]) }
}

unsafe extern "C" fn writev(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (data, flags, writes) = (None, Flags::Own, true);
    let doing = |(here, len)| Doing { here, len, peer, address, key, data, context, flags, writes };
    // SAFETY: the caller's.
    unsafe { access_vector(ep, (iov, count), doing) }
}

unsafe extern "C" fn writemsg(ep: *mut EpFid, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { access_msg(ep, msg, flags, true) }
}

unsafe extern "C" fn inject(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    peer: u64,
    address: u64,
    key: u64,
) -> isize {
    let (here, data, flags, writes, context) = (bytes.cast_mut(), None, Flags::Quiet, true, null_mut());
    // SAFETY: the caller's.
    unsafe { access(ep, Ok(Doing { here, len, peer, address, key, data, context, flags, writes }), &[]) }
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
    let (here, data, flags, writes) = (bytes.cast_mut(), Some(data), Flags::Own, true);
    // SAFETY: the caller's.
    unsafe { access(ep, Ok(Doing { here, len, peer, address, key, data, context, flags, writes }), &[]) }
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
    let (here, data, flags, writes, context) = (bytes.cast_mut(), Some(data), Flags::Quiet, true, null_mut());
    // SAFETY: the caller's.
    unsafe { access(ep, Ok(Doing { here, len, peer, address, key, data, context, flags, writes }), &[]) }
}
