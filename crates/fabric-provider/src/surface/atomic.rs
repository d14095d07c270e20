//! Atomic operations.

use super::av::Vector;
use super::ep::{on, Asked, Flags};
use super::{border_or, Ep};
use crate::abi::{self, AtomicOps, EpFid, Ioc, MsgAtomic};
use crate::engine::{self, AtomicWay, AtomicWhat, Shared};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

pub(super) static OPS: AtomicOps = AtomicOps {
    size: size_of::<AtomicOps>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// What a program does.
struct Doing {
    operands: *const c_void,
    count: usize,
    compare: Option<*const c_void>,
    result: Option<*mut c_void>,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
    flags: Flags,
}

/// # Safety
/// As the manual pages have it.
unsafe fn act(ep: *mut EpFid, doing: Result<Doing, c_int>) -> isize {
    let flags = doing.as_ref().map_or(Flags::Own, |doing| doing.flags);
    let act = |this: &mut Ep, shared: &mut Shared, vectors: &[Option<Vector>], asked: Asked| {
        let Doing {
            operands, count, compare, result, peer, address: offset, key, datatype, op, context, ..
        } = doing?;
        let what = AtomicWhat {
            peer: this.number(vectors, peer)?,
            key,
            offset,
            datatype,
            op,
            count,
            operands: operands.cast(),
            compare: compare.map(|compare| compare.cast()),
            result: result.map(|result| result.cast()),
            context,
            tells: asked.tells,
        };
        // SAFETY: the caller's.
        unsafe { this.engine.atomic(shared, &what) }
    };
    // SAFETY: the caller's.
    unsafe { on(ep, flags, true, act) }
}

/// The only piece of a vector.
///
/// # Safety
/// So many pieces are at `ioc`.
unsafe fn only(ioc: *const Ioc, count: usize) -> Result<(*mut c_void, usize), c_int> {
    match count {
        0 => Ok((null_mut(), 0)),
        // SAFETY: the caller's.
        1 => unsafe { Ok(((*ioc).addr, (*ioc).count)) },
        _ => Err(abi::EINVAL),
    }
}

/// # Safety
/// As the manual pages have it.
unsafe fn of_msg(
    msg: *const MsgAtomic,
    compare: Option<(*const Ioc, usize)>,
    result: Option<(*const Ioc, usize)>,
    flags: u64,
) -> Result<Doing, c_int> {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        if m.rma_iov_count != 1 {
            return Err(abi::EINVAL);
        }
        let (operands, count) = only(m.iov, m.iov_count)?;
        let remote = &*m.rma_iov;
        let compare = compare.map(|(ioc, count)| only(ioc, count)).transpose()?;
        let result = result.map(|(ioc, count)| only(ioc, count)).transpose()?;
        Ok(Doing {
            operands,
            // Of a read there are no operands.
            count: if m.iov_count == 0 { remote.len } else { count },
            compare: compare.map(|(at, _)| at.cast_const()),
            result: result.map(|(at, _)| at),
            peer: m.addr,
            address: remote.addr,
            key: remote.key,
            datatype: m.datatype,
            op: m.op,
            context: m.context,
            flags: Flags::Said(flags),
        })
    }
}

unsafe extern "C" fn write(
    ep: *mut EpFid,
    operands: *const c_void,
    count: usize,
    _: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (compare, result, flags) = (None, None, Flags::Own);
    // SAFETY: the caller's.
    unsafe {
        act(
            ep,
            Ok(Doing { operands, count, compare, result, peer, address, key, datatype, op, context, flags }),
        )
    }
}

unsafe extern "C" fn writev(
    ep: *mut EpFid,
    iov: *const Ioc,
    desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match only(iov, count) {
            Ok((at, count)) => write(ep, at, count, desc.cast(), peer, address, key, datatype, op, context),
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn writemsg(ep: *mut EpFid, msg: *const MsgAtomic, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { act(ep, of_msg(msg, None, None, flags)) }
}

unsafe extern "C" fn inject(
    ep: *mut EpFid,
    operands: *const c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let (compare, result, context, flags) = (None, None, null_mut(), Flags::Quiet);
    // SAFETY: the caller's.
    unsafe {
        act(
            ep,
            Ok(Doing { operands, count, compare, result, peer, address, key, datatype, op, context, flags }),
        )
    }
}

unsafe extern "C" fn readwrite(
    ep: *mut EpFid,
    operands: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (compare, result, flags) = (None, Some(result), Flags::Own);
    // SAFETY: the caller's.
    unsafe {
        act(
            ep,
            Ok(Doing { operands, count, compare, result, peer, address, key, datatype, op, context, flags }),
        )
    }
}

unsafe extern "C" fn readwritev(
    ep: *mut EpFid,
    iov: *const Ioc,
    desc: *mut *mut c_void,
    count: usize,
    results: *const Ioc,
    result_desc: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match (only(iov, count), only(results, result_count)) {
            (Ok((at, n)), Ok((to, there))) => {
                let n = if count == 0 { there } else { n };
                let (desc, result_desc) = (desc.cast(), result_desc.cast());
                readwrite(ep, at, n, desc, to, result_desc, peer, address, key, datatype, op, context)
            }
            _ => -(abi::EINVAL as isize),
        }
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut EpFid,
    msg: *const MsgAtomic,
    results: *const Ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the caller's.
    unsafe { act(ep, of_msg(msg, None, Some((results, result_count)), flags)) }
}

unsafe extern "C" fn compwrite(
    ep: *mut EpFid,
    operands: *const c_void,
    count: usize,
    _: *mut c_void,
    compare: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (compare, result, flags) = (Some(compare), Some(result), Flags::Own);
    // SAFETY: the caller's.
    unsafe {
        act(
            ep,
            Ok(Doing { operands, count, compare, result, peer, address, key, datatype, op, context, flags }),
        )
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut EpFid,
    iov: *const Ioc,
    _: *mut *mut c_void,
    count: usize,
    compares: *const Ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    results: *const Ioc,
    _: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let parts = (only(iov, count), only(compares, compare_count), only(results, result_count));
        match parts {
            (Ok((operands, count)), Ok((compare, _)), Ok((result, _))) => {
                let (compare, result, flags) = (Some(compare.cast_const()), Some(result), Flags::Own);
                #[rustfmt::skip]
                let doing = Doing {
                    operands, count, compare, result, peer, address, key, datatype, op, context, flags,
                };
                act(ep, Ok(doing))
            }
            _ => -(abi::EINVAL as isize),
        }
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut EpFid,
    msg: *const MsgAtomic,
    compares: *const Ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    results: *const Ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: the caller's.
    unsafe { act(ep, of_msg(msg, Some((compares, compare_count)), Some((results, result_count)), flags)) }
}

fn valid(datatype: c_int, op: c_int, count: *mut usize, way: AtomicWay) -> c_int {
    border_or(|| {
        let most = engine::valid_atomic(datatype, op, way).ok_or(abi::EOPNOTSUPP)?;
        if !count.is_null() {
            // SAFETY: the caller's.
            unsafe { count.write(most) };
        }
        Ok(())
    })
}

unsafe extern "C" fn writevalid(_: *mut EpFid, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    valid(datatype, op, count, AtomicWay::Plain)
}

unsafe extern "C" fn readwritevalid(_: *mut EpFid, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    valid(datatype, op, count, AtomicWay::Fetches)
}

unsafe extern "C" fn compwritevalid(_: *mut EpFid, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    valid(datatype, op, count, AtomicWay::Compares)
}
