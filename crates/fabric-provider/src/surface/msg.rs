//! Messages, with tags and without: what both have in common, and the functions of those without.

use super::av::Vector;
use super::ep::{on, Asked, Flags};
use super::Ep;
use crate::abi::{self, EpFid, Msg, MsgOps};
use crate::engine::matching::{Posted, ANYBODY};
use crate::engine::{Message, Shared};
use polyduct_message::endpoint::Piece;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

pub(super) static OPS: MsgOps = MsgOps {
    size: size_of::<MsgOps>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

/// A message that a program sends.
pub(super) struct Outgoing {
    pub bytes: *const c_void,
    pub len: usize,
    pub to: u64,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub context: *mut c_void,
    pub flags: Flags,
}

/// Memory that a program receives into.
pub(super) struct Incoming {
    pub to: *mut c_void,
    pub len: usize,
    pub from: u64,
    /// Tag, and bits of it that do not matter; `None` without tags.
    pub tag: Option<(u64, u64)>,
    pub context: *mut c_void,
    pub flags: Flags,
}

/// The pieces of a vector.
///
/// # Safety
/// So many pieces are at `iov`.
pub(super) unsafe fn pieces<'a>(iov: *const libc::iovec, count: usize) -> &'a [Piece] {
    match count {
        0 => &[],
        // SAFETY: the caller's; both are an address and a length.
        _ => unsafe { core::slice::from_raw_parts(iov.cast(), count) },
    }
}

/// The only piece of memory of a vector; none of an empty one.
///
/// # Safety
/// So many pieces are at `iov`.
pub(super) unsafe fn only(iov: *const libc::iovec, count: usize) -> Result<(*mut c_void, usize), c_int> {
    match count {
        0 => Ok((null_mut(), 0)),
        // SAFETY: the caller's.
        1 => unsafe { Ok(((*iov).iov_base, (*iov).iov_len)) },
        _ => Err(abi::EINVAL),
    }
}

/// Sends what lies in a vector. `out` makes the message of one piece.
///
/// # Safety
/// As the manual pages have it.
#[inline]
pub(super) unsafe fn send_vector(
    ep: *mut EpFid,
    (iov, count): (*const libc::iovec, usize),
    out: impl Fn((*mut c_void, usize)) -> Outgoing,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match count {
            0 | 1 => send_out(ep, only(iov, count).map(out), &[]),
            _ => send_out(ep, Ok(out((null_mut(), 0))), pieces(iov, count)),
        }
    }
}

/// Receives into a vector. `incoming` makes the receive of one piece.
///
/// # Safety
/// As the manual pages have it.
#[inline]
pub(super) unsafe fn receive_vector(
    ep: *mut EpFid,
    (iov, count): (*const libc::iovec, usize),
    incoming: impl Fn((*mut c_void, usize)) -> Incoming,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match count {
            0 | 1 => receive_in(ep, only(iov, count).map(incoming), &[]),
            _ => receive_in(ep, Ok(incoming((null_mut(), 0))), pieces(iov, count)),
        }
    }
}

/// Sends, from pieces where there are any.
///
/// # Safety
/// As the manual pages have it.
#[inline]
pub(super) unsafe fn send_out(ep: *mut EpFid, out: Result<Outgoing, c_int>, pieces: &[Piece]) -> isize {
    let flags = out.as_ref().map_or(Flags::Own, |out| out.flags);
    let send = |this: &mut Ep, shared: &mut Shared, vectors: &[Option<Vector>], asked: Asked| {
        let Outgoing { bytes, len, to, tag, data, context, .. } = out?;
        let (to, Asked { flags, tells }) = (this.number(vectors, to)?, asked);
        let message = Message { to, tag, data, bytes: bytes.cast(), len, context, flags, tells };
        match pieces {
            // SAFETY: the caller's.
            [] => unsafe { this.engine.send(shared, &message) },
            // SAFETY: as above.
            _ => unsafe { this.engine.send_pieces(shared, &message, pieces) },
        }
    };
    // SAFETY: the caller's.
    unsafe { on(ep, flags, true, send) }
}

/// Receives, into pieces where there are any.
///
/// # Safety
/// As the manual pages have it.
#[inline]
pub(super) unsafe fn receive_in(
    ep: *mut EpFid,
    incoming: Result<Incoming, c_int>,
    pieces: &[Piece],
) -> isize {
    let flags = incoming.as_ref().map_or(Flags::Own, |incoming| incoming.flags);
    let receive = |this: &mut Ep, shared: &mut Shared, vectors: &[Option<Vector>], asked: Asked| {
        let Incoming { to, len, from, tag, context, .. } = incoming?;
        let Asked { flags, tells } = asked;
        let from = match from {
            abi::ADDR_UNSPEC => ANYBODY,
            _ if !this.directed => ANYBODY,
            from => this.number(vectors, from)?,
        };
        let tagged = tag.is_some();
        let multi = (flags & abi::MULTI_RECV != 0 && !tagged).then(|| this.engine.least_multi());
        let (tag, ignore) = tag.unwrap_or((0, u64::MAX));
        let posted =
            Posted { from, tag, ignore, to: to.cast(), len, context, tells, multi, of: None, list: None };
        if !pieces.is_empty() {
            return this.engine.receive_pieces(shared, tagged, posted, flags, pieces);
        }
        if flags & abi::PEEK != 0 {
            this.engine.peek(shared, tagged, posted, flags);
            return Ok(());
        }
        if flags & (abi::CLAIM | abi::DISCARD) != 0 {
            return this.engine.claim(shared, tagged, posted, flags);
        }
        this.engine.receive(shared, tagged, posted)
    };
    // SAFETY: the caller's.
    unsafe { on(ep, flags, false, receive) }
}

unsafe extern "C" fn recv(
    ep: *mut EpFid,
    to: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe { receive_in(ep, Ok(Incoming { to, len, from, tag: None, context, flags: Flags::Own }), &[]) }
}

unsafe extern "C" fn recvv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    let incoming = |(to, len)| Incoming { to, len, from, tag: None, context, flags: Flags::Own };
    // SAFETY: the caller's.
    unsafe { receive_vector(ep, (iov, count), incoming) }
}

unsafe extern "C" fn recvmsg(ep: *mut EpFid, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller's.
    let m = unsafe { &*msg };
    let (from, context, flags) = (m.addr, m.context, Flags::Said(flags));
    let incoming = |(to, len)| Incoming { to, len, from, tag: None, context, flags };
    // SAFETY: the caller's.
    unsafe { receive_vector(ep, (m.iov, m.iov_count), incoming) }
}

unsafe extern "C" fn send(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        send_out(ep, Ok(Outgoing { bytes, len, to, tag: None, data: None, context, flags: Flags::Own }), &[])
    }
}

unsafe extern "C" fn sendv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    let (tag, data, flags) = (None, None, Flags::Own);
    let out = |(bytes, len): (*mut _, _)| Outgoing { bytes, len, to, tag, data, context, flags };
    // SAFETY: the caller's.
    unsafe { send_vector(ep, (iov, count), out) }
}

unsafe extern "C" fn sendmsg(ep: *mut EpFid, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller's.
    let m = unsafe { &*msg };
    let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(m.data);
    let (to, tag, context, flags) = (m.addr, None, m.context, Flags::Said(flags));
    let out = |(bytes, len): (*mut _, _)| Outgoing { bytes, len, to, tag, data, context, flags };
    // SAFETY: the caller's.
    unsafe { send_vector(ep, (m.iov, m.iov_count), out) }
}

unsafe extern "C" fn inject(ep: *mut EpFid, bytes: *const c_void, len: usize, to: u64) -> isize {
    let (tag, data, context, flags) = (None, None, null_mut(), Flags::Quiet);
    // SAFETY: the caller's.
    unsafe { send_out(ep, Ok(Outgoing { bytes, len, to, tag, data, context, flags }), &[]) }
}

unsafe extern "C" fn senddata(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    let (tag, data, flags) = (None, Some(data), Flags::Own);
    // SAFETY: the caller's.
    unsafe { send_out(ep, Ok(Outgoing { bytes, len, to, tag, data, context, flags }), &[]) }
}

unsafe extern "C" fn injectdata(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    let (tag, data, context, flags) = (None, Some(data), null_mut(), Flags::Quiet);
    // SAFETY: the caller's.
    unsafe { send_out(ep, Ok(Outgoing { bytes, len, to, tag, data, context, flags }), &[]) }
}
