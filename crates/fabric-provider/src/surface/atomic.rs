//! Atomic operations.

use super::av::Vector;
use super::ep::{on, Asked, Flags};
use super::{border_or, Ep};
use crate::abi::{self, AtomicOps, EpFid, Ioc, MsgAtomic};
use crate::engine::pieces::{put_together, total};
use crate::engine::{self, AtomicWay, AtomicWhat, Shared};
use polyduct_message::endpoint::{Piece, SHORT_BYTES};
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

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

/// What of that lies in several pieces.
#[derive(Default)]
struct InPieces {
    /// Elements put together, to which the operands and what is compared with point.
    _together: [Vec<u8>; 2],
    /// Where results belong.
    apart: Option<Box<[Piece]>>,
}

/// # Safety
/// As the manual pages have it.
unsafe fn act(ep: *mut EpFid, doing: Result<Doing, c_int>) -> isize {
    // SAFETY: the caller's.
    unsafe { act_on_pieces(ep, doing.map(|doing| (doing, InPieces::default()))) }
}

/// # Safety
/// As the manual pages have it.
unsafe fn act_on_pieces(ep: *mut EpFid, doing: Result<(Doing, InPieces), c_int>) -> isize {
    let flags = doing.as_ref().map_or(Flags::Own, |(doing, _)| doing.flags);
    let act = |this: &mut Ep, shared: &mut Shared, vectors: &[Option<Vector>], asked: Asked| {
        let (doing, mut pieces) = doing?;
        let Doing { operands, count, compare, result, peer, address: offset, key, .. } = doing;
        let Doing { datatype, op, context, .. } = doing;
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
        unsafe { this.engine.atomic(shared, &what, pieces.apart.take()) }
    };
    // SAFETY: the caller's.
    unsafe { on(ep, flags, true, act) }
}

/// A vector of elements, and its pieces.
type Vectored = (*const Ioc, usize);

/// The pieces of a vector, whose elements have so many bytes; and how many elements these are.
///
/// # Safety
/// So many pieces are at it.
unsafe fn pieces_of((ioc, count): Vectored, size: usize) -> Result<(Vec<Piece>, usize), c_int> {
    // SAFETY: the caller's.
    let iocs = if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(ioc, count) } };
    let piece = |ioc: &Ioc| Some(Piece { at: ioc.addr as usize, len: ioc.count.checked_mul(size)? });
    let pieces: Vec<_> = iocs.iter().map(piece).collect::<Option<_>>().ok_or(abi::EINVAL)?;
    let bytes = total(&pieces).filter(|&bytes| bytes <= SHORT_BYTES).ok_or(abi::EINVAL)?;
    Ok((pieces, bytes / size))
}

/// The elements of a vector, in one piece of memory: its own, or another.
///
/// # Safety
/// So many pieces are at it, and can be read.
unsafe fn elements(vector: Vectored, size: usize) -> Result<(*const c_void, usize, Vec<u8>), c_int> {
    // SAFETY: the caller's.
    let (pieces, count) = unsafe { pieces_of(vector, size)? };
    if let [] | [_] = pieces[..] {
        return Ok((pieces.first().map_or(null_mut(), |piece| piece.at as *mut c_void), count, Vec::new()));
    }
    let mut whole = vec![0; count * size];
    // SAFETY: as above.
    unsafe { put_together(&pieces, &mut whole) };
    Ok((whole.as_ptr().cast(), count, whole))
}

/// What is done with vectors: operands, what is compared with, results.
///
/// # Safety
/// As the manual pages have it.
unsafe fn of_vectors(
    (operands, compare, result): (Vectored, Option<Vectored>, Option<Vectored>),
    (peer, address, key): (u64, u64, u64),
    (datatype, op): (c_int, c_int),
    context: *mut c_void,
    flags: Flags,
) -> Result<(Doing, InPieces), c_int> {
    let size = engine::atomic_size(datatype).ok_or(abi::EOPNOTSUPP)?;
    // SAFETY: the caller's.
    unsafe {
        let results = result.map(|result| pieces_of(result, size)).transpose()?;
        let (operands, count, first) = match (op, &results) {
            // What are given as operands of a read is no matter.
            (engine::atomic_op::READ, Some((_, count))) => (null(), *count, Vec::new()),
            _ if operands.1 == 0 => return Err(abi::EINVAL),
            _ => elements(operands, size)?,
        };
        let compare = compare.map(|compare| elements(compare, size)).transpose()?;
        let is_other = |there: usize| there != count;
        if results.as_ref().is_some_and(|(_, there)| is_other(*there))
            || compare.as_ref().is_some_and(|(_, there, _)| is_other(*there))
        {
            return Err(abi::EINVAL);
        }
        let (compare, second) = compare.map_or((None, Vec::new()), |(at, _, kept)| (Some(at), kept));
        let result = results.as_ref().map(|(pieces, _)| pieces.first().map_or(0, |piece| piece.at) as *mut _);
        let apart = results.map(|(pieces, _)| pieces).filter(|pieces| pieces.len() > 1).map(Into::into);
        let doing =
            Doing { operands, count, compare, result, peer, address, key, datatype, op, context, flags };
        Ok((doing, InPieces { _together: [first, second], apart }))
    }
}

/// # Safety
/// As the manual pages have it.
unsafe fn of_msg(
    msg: *const MsgAtomic,
    compare: Option<Vectored>,
    result: Option<Vectored>,
    flags: u64,
) -> Result<(Doing, InPieces), c_int> {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        if m.rma_iov_count != 1 {
            return Err(abi::EINVAL);
        }
        let remote = &*m.rma_iov;
        let vectors = ((m.iov, m.iov_count), compare, result);
        let (at, what) = ((m.addr, remote.addr, remote.key), (m.datatype, m.op));
        of_vectors(vectors, at, what, m.context, Flags::Said(flags))
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
    _: *mut *mut c_void,
    count: usize,
    peer: u64,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (vectors, at) = (((iov, count), None, None), (peer, address, key));
    // SAFETY: the caller's.
    unsafe { act_on_pieces(ep, of_vectors(vectors, at, (datatype, op), context, Flags::Own)) }
}

unsafe extern "C" fn writemsg(ep: *mut EpFid, msg: *const MsgAtomic, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { act_on_pieces(ep, of_msg(msg, None, None, flags)) }
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
    _: *mut *mut c_void,
    count: usize,
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
    let vectors = ((iov, count), None, Some((results, result_count)));
    // SAFETY: the caller's.
    unsafe {
        act_on_pieces(ep, of_vectors(vectors, (peer, address, key), (datatype, op), context, Flags::Own))
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
    unsafe { act_on_pieces(ep, of_msg(msg, None, Some((results, result_count)), flags)) }
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
    let vectors = ((iov, count), Some((compares, compare_count)), Some((results, result_count)));
    // SAFETY: the caller's.
    unsafe {
        act_on_pieces(ep, of_vectors(vectors, (peer, address, key), (datatype, op), context, Flags::Own))
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
    unsafe {
        act_on_pieces(ep, of_msg(msg, Some((compares, compare_count)), Some((results, result_count)), flags))
    }
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
