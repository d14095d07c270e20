//! Messages, with tags and without: what both have in common, and the functions of those without.

use super::ep::Endpoint;
use super::{border_size, object};
use crate::abi::{self, EpFid, Msg, MsgOps};
use crate::engine::matching::{Posted, ANYBODY};
use crate::engine::Message;
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
    /// `None`: those of the endpoint.
    pub flags: Option<u64>,
}

/// Memory that a program receives into.
pub(super) struct Incoming {
    pub to: *mut c_void,
    pub len: usize,
    pub from: u64,
    /// Tag, and bits of it that do not matter; `None` without tags.
    pub tag: Option<(u64, u64)>,
    pub context: *mut c_void,
    /// `None`: those of the endpoint.
    pub flags: Option<u64>,
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

/// Sends.
///
/// # Safety
/// As the manual pages have it.
#[inline]
pub(super) unsafe fn send_out(ep: *mut EpFid, out: &Outgoing) -> isize {
    border_size(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(ep) };
        let entered = ep.core.enter();
        let (this, shared, vectors) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        let flags = out.flags.or(ep.alias).unwrap_or(this.tx_flags);
        let [sends, _] = this.engine.bounds();
        let tells = (!sends.selective || flags & abi::COMPLETION != 0) && sends.queue.is_some();
        let message = Message {
            to: this.number(vectors, out.to)?,
            tag: out.tag,
            data: out.data,
            bytes: out.bytes.cast(),
            len: out.len,
            context: out.context,
            flags,
            tells,
        };
        // SAFETY: the caller's.
        unsafe { this.engine.send(shared, &message) }
    })
}

/// Sends, with the memory the program's again at once and nothing told.
///
/// # Safety
/// As [`send_out`].
#[inline]
pub(super) unsafe fn inject_out(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    to: u64,
    tag: Option<u64>,
    data: Option<u64>,
) -> isize {
    border_size(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(ep) };
        let entered = ep.core.enter();
        let (this, shared, vectors) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        let (to, context, flags, tells) = (this.number(vectors, to)?, null_mut(), abi::INJECT, false);
        let message = Message { to, tag, data, bytes: bytes.cast(), len, context, flags, tells };
        // SAFETY: the caller's.
        unsafe { this.engine.send(shared, &message) }
    })
}

/// Receives.
///
/// # Safety
/// As the manual pages have it.
#[inline]
pub(super) unsafe fn receive_in(ep: *mut EpFid, incoming: &Incoming) -> isize {
    border_size(|| {
        // SAFETY: the caller's.
        let ep = unsafe { object::<Endpoint>(ep) };
        let entered = ep.core.enter();
        let (this, shared, vectors) = entered.inner.ep(ep.index).ok_or(abi::EINVAL)?;
        let flags = incoming.flags.or(ep.alias).unwrap_or(this.rx_flags);
        let [_, receives] = this.engine.bounds();
        let from = match incoming.from {
            abi::ADDR_UNSPEC => ANYBODY,
            _ if !this.directed => ANYBODY,
            from => this.number(vectors, from)?,
        };
        let tells = (!receives.selective || flags & abi::COMPLETION != 0) && receives.queue.is_some();
        let several = flags & abi::MULTI_RECV != 0 && incoming.tag.is_none();
        let (tag, ignore) = incoming.tag.unwrap_or((0, u64::MAX));
        let posted = Posted {
            from,
            tag,
            ignore,
            to: incoming.to.cast(),
            len: incoming.len,
            context: incoming.context,
            tells,
            multi: several.then(|| this.engine.least_multi()),
        };
        let tagged = incoming.tag.is_some();
        if flags & abi::PEEK != 0 {
            this.engine.peek(shared, tagged, posted, flags);
            return Ok(());
        }
        if flags & (abi::CLAIM | abi::DISCARD) != 0 {
            return this.engine.claim(shared, tagged, posted, flags);
        }
        this.engine.receive(shared, tagged, posted)
    })
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
    unsafe { receive_in(ep, &Incoming { to, len, from, tag: None, context, flags: None }) }
}

unsafe extern "C" fn recvv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match only(iov, count) {
            Ok((to, len)) => receive_in(ep, &Incoming { to, len, from, tag: None, context, flags: None }),
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn recvmsg(ep: *mut EpFid, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        match only(m.iov, m.iov_count) {
            Ok((to, len)) => {
                let (from, context, flags) = (m.addr, m.context, Some(flags));
                receive_in(ep, &Incoming { to, len, from, tag: None, context, flags })
            }
            Err(error) => -(error as isize),
        }
    }
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
    unsafe { send_out(ep, &Outgoing { bytes, len, to, tag: None, data: None, context, flags: None }) }
}

unsafe extern "C" fn sendv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match only(iov, count) {
            Ok((bytes, len)) => {
                send_out(ep, &Outgoing { bytes, len, to, tag: None, data: None, context, flags: None })
            }
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn sendmsg(ep: *mut EpFid, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        match only(m.iov, m.iov_count) {
            Ok((bytes, len)) => {
                let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(m.data);
                let (to, context, flags) = (m.addr, m.context, Some(flags));
                send_out(ep, &Outgoing { bytes, len, to, tag: None, data, context, flags })
            }
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn inject(ep: *mut EpFid, bytes: *const c_void, len: usize, to: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { inject_out(ep, bytes, len, to, None, None) }
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
    // SAFETY: the caller's.
    unsafe { send_out(ep, &Outgoing { bytes, len, to, tag: None, data: Some(data), context, flags: None }) }
}

unsafe extern "C" fn injectdata(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    // SAFETY: the caller's.
    unsafe { inject_out(ep, bytes, len, to, None, Some(data)) }
}
