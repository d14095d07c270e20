//! Messages with tags.

use super::ep::Flags;
use super::msg::{receive_in, receive_vector, send_out, send_vector, Incoming, Outgoing};
use crate::abi::{self, EpFid, MsgTagged, TaggedOps};
use std::ffi::c_void;
use std::ptr::null_mut;

pub(super) static OPS: TaggedOps = TaggedOps {
    size: size_of::<TaggedOps>(),
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

unsafe extern "C" fn recv(
    ep: *mut EpFid,
    to: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let (tag, flags) = (Some((tag, ignore)), Flags::Own);
    // SAFETY: the caller's.
    unsafe { receive_in(ep, Ok(Incoming { to, len, from, tag, context, flags }), &[]) }
}

unsafe extern "C" fn recvv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let (tag, flags) = (Some((tag, ignore)), Flags::Own);
    // SAFETY: the caller's.
    unsafe { receive_vector(ep, (iov, count), |(to, len)| Incoming { to, len, from, tag, context, flags }) }
}

unsafe extern "C" fn recvmsg(ep: *mut EpFid, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller's.
    let m = unsafe { &*msg };
    let (from, tag, context, flags) = (m.addr, Some((m.tag, m.ignore)), m.context, Flags::Said(flags));
    let incoming = |(to, len)| Incoming { to, len, from, tag, context, flags };
    // SAFETY: the caller's.
    unsafe { receive_vector(ep, (m.iov, m.iov_count), incoming) }
}

unsafe extern "C" fn send(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    _: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (tag, data, flags) = (Some(tag), None, Flags::Own);
    // SAFETY: the caller's.
    unsafe { send_out(ep, Ok(Outgoing { bytes, len, to, tag, data, context, flags }), &[]) }
}

unsafe extern "C" fn sendv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (tag, data, flags) = (Some(tag), None, Flags::Own);
    let out = |(bytes, len): (*mut _, _)| Outgoing { bytes, len, to, tag, data, context, flags };
    // SAFETY: the caller's.
    unsafe { send_vector(ep, (iov, count), out) }
}

unsafe extern "C" fn sendmsg(ep: *mut EpFid, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller's.
    let m = unsafe { &*msg };
    let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(m.data);
    let (to, tag, context, flags) = (m.addr, Some(m.tag), m.context, Flags::Said(flags));
    let out = |(bytes, len): (*mut _, _)| Outgoing { bytes, len, to, tag, data, context, flags };
    // SAFETY: the caller's.
    unsafe { send_vector(ep, (m.iov, m.iov_count), out) }
}

unsafe extern "C" fn inject(ep: *mut EpFid, bytes: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    let (tag, data, context, flags) = (Some(tag), None, null_mut(), Flags::Quiet);
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (tag, data, flags) = (Some(tag), Some(data), Flags::Own);
    // SAFETY: the caller's.
    unsafe { send_out(ep, Ok(Outgoing { bytes, len, to, tag, data, context, flags }), &[]) }
}

unsafe extern "C" fn injectdata(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    let (tag, data, context, flags) = (Some(tag), Some(data), null_mut(), Flags::Quiet);
    // SAFETY: the caller's.
    unsafe { send_out(ep, Ok(Outgoing { bytes, len, to, tag, data, context, flags }), &[]) }
}
