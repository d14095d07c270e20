//! Messages with tags.

use super::msg::{inject_out, only, receive_in, send_out, Incoming, Outgoing};
use crate::abi::{self, EpFid, MsgTagged, TaggedOps};
use std::ffi::c_void;

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
    // SAFETY: the caller's.
    unsafe { receive_in(ep, &Incoming { to, len, from, tag: Some((tag, ignore)), context, flags: None }) }
}

unsafe extern "C" fn recvv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    desc: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match only(iov, count) {
            Ok((to, len)) => recv(ep, to, len, desc.cast(), from, tag, ignore, context),
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn recvmsg(ep: *mut EpFid, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        match only(m.iov, m.iov_count) {
            Ok((to, len)) => {
                let (from, tag, context) = (m.addr, Some((m.tag, m.ignore)), m.context);
                receive_in(ep, &Incoming { to, len, from, tag, context, flags: Some(flags) })
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
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe { send_out(ep, &Outgoing { bytes, len, to, tag: Some(tag), data: None, context, flags: None }) }
}

unsafe extern "C" fn sendv(
    ep: *mut EpFid,
    iov: *const libc::iovec,
    desc: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe {
        match only(iov, count) {
            Ok((bytes, len)) => send(ep, bytes, len, desc.cast(), to, tag, context),
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn sendmsg(ep: *mut EpFid, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let m = &*msg;
        match only(m.iov, m.iov_count) {
            Ok((bytes, len)) => {
                let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(m.data);
                let (to, tag, context) = (m.addr, Some(m.tag), m.context);
                send_out(ep, &Outgoing { bytes, len, to, tag, data, context, flags: Some(flags) })
            }
            Err(error) => -(error as isize),
        }
    }
}

unsafe extern "C" fn inject(ep: *mut EpFid, bytes: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    // SAFETY: the caller's.
    unsafe { inject_out(ep, bytes, len, to, Some(tag), None) }
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
    let (tag, data) = (Some(tag), Some(data));
    // SAFETY: the caller's.
    unsafe { send_out(ep, &Outgoing { bytes, len, to, tag, data, context, flags: None }) }
}

unsafe extern "C" fn injectdata(
    ep: *mut EpFid,
    bytes: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY: the caller's.
    unsafe { inject_out(ep, bytes, len, to, Some(tag), Some(data)) }
}
