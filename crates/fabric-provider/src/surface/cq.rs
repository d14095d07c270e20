//! Completion queues.

use super::domain::Domain;
use super::{border, fid_ops, give, object, Core, Ep, Inner};
use crate::abi::{self, CqAttr, CqErrEntry, CqFid, CqOps, CqTaggedEntry, DomainFid, Fid, FidOps};
use crate::engine::completion::Queue;
use polyduct_message::endpoint::clock;
use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

static FID: FidOps = FidOps { control, ..fid_ops(close) };
static OPS: CqOps =
    CqOps { size: size_of::<CqOps>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

/// Entries of a queue whose size the program leaves open.
const USUAL: usize = 1 << 16;
/// The longest sleep at a time: what other threads of the program do wakes nobody.
const SLICE: Duration = Duration::from_millis(1);

/// A queue, as it is given out.
#[repr(C)]
pub(super) struct Cq {
    fid: CqFid,
    pub core: Arc<Core>,
    pub index: usize,
    signalled: AtomicBool,
    /// Poll sets that it is in.
    pub sets: AtomicU32,
}

pub unsafe extern "C" fn open(
    domain: *mut DomainFid,
    attr: *const CqAttr,
    cq: *mut *mut CqFid,
    context: *mut c_void,
) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let (core, attr) = unsafe { (object::<Domain>(domain).core.clone(), attr.as_ref()) };
        let entry = match attr.map_or(abi::CQ_FORMAT_UNSPEC, |attr| attr.format) {
            abi::CQ_FORMAT_UNSPEC | abi::CQ_FORMAT_CONTEXT => offset_of!(CqTaggedEntry, flags),
            abi::CQ_FORMAT_MSG => offset_of!(CqTaggedEntry, buf),
            abi::CQ_FORMAT_DATA => offset_of!(CqTaggedEntry, tag),
            abi::CQ_FORMAT_TAGGED => size_of::<CqTaggedEntry>(),
            _ => return -abi::EINVAL,
        };
        if !attr.is_none_or(|attr| waits(attr.wait_obj)) {
            return -abi::ENOSYS;
        }
        let size = attr.map(|attr| attr.size).filter(|&size| size > 0).unwrap_or(USUAL);
        let index = super::keep(&mut core.enter().inner.shared.queues, Queue::new(size, entry));
        let fid = Fid { class: abi::CLASS_CQ, context, ops: &raw const FID };
        let fid = CqFid { fid, ops: &raw const OPS };
        // SAFETY: the caller's.
        unsafe {
            give(Cq { fid, core, index, signalled: AtomicBool::new(false), sets: AtomicU32::new(0) }, cq)
        }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    border(|| {
        // SAFETY: what `open` gave out.
        let cq = unsafe { object::<Cq>(fid) };
        let entered = cq.core.enter();
        let is_in_set = cq.sets.load(Ordering::Acquire) > 0;
        if is_in_set || entered.inner.eps.iter().flatten().any(|ep| uses(ep, cq.index)) {
            return -abi::EBUSY;
        }
        entered.inner.shared.queues[cq.index] = None;
        drop(entered);
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(fid.cast::<Cq>()) });
        0
    })
}

/// Whether programs may wait so: by calls alone.
pub(super) fn waits(wait_obj: c_int) -> bool {
    matches!(wait_obj, abi::WAIT_NONE | abi::WAIT_UNSPEC | abi::WAIT_YIELD)
}

/// There is no descriptor that a program could wait on.
unsafe extern "C" fn control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    -abi::ENOSYS
}

#[inline]
fn uses(ep: &Ep, queue: usize) -> bool {
    ep.engine.bounds().iter().any(|bound| bound.queue == Some(queue))
}

impl Cq {
    /// Whether something is to be read, after a look where there was nothing.
    pub(super) fn has_some(&self) -> bool {
        let is_empty = |inner: &Inner| inner.shared.queues[self.index].as_ref().is_none_or(Queue::is_empty);
        let entered = self.core.enter();
        if is_empty(entered.inner) {
            entered.inner.progress(|ep| uses(ep, self.index));
        }
        let has_some = !is_empty(entered.inner);
        drop(entered);
        self.core.patience.looked(has_some);
        has_some
    }

    /// Asks the endpoint that tells here, where it is one alone.
    fn alone<T>(&self, ask: impl FnOnce(&mut Ep) -> T) -> Option<T> {
        let entered = self.core.enter();
        let mut of_it = entered.inner.eps.iter_mut().flatten().filter(|ep| uses(ep, self.index));
        match (of_it.next(), of_it.next()) {
            (Some(ep), None) => Some(ask(ep)),
            _ => None,
        }
    }

    fn has_work(&self) -> bool {
        self.alone(|ep| ep.engine.has_work()).unwrap_or(true)
    }
}

unsafe extern "C" fn read(cq: *mut CqFid, to: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller's.
    unsafe { readfrom(cq, to, count, null_mut()) }
}

unsafe extern "C" fn readfrom(cq: *mut CqFid, to: *mut c_void, count: usize, from: *mut u64) -> isize {
    border(|| {
        // SAFETY: the caller's.
        let cq = unsafe { object::<Cq>(cq) };
        let entered = cq.core.enter();
        let is_empty = entered.inner.shared.queues[cq.index].as_ref().is_some_and(Queue::is_empty);
        let moved = is_empty && entered.inner.progress(|ep| uses(ep, cq.index));
        let Some(queue) = &mut entered.inner.shared.queues[cq.index] else { return -(abi::EINVAL as isize) };
        // SAFETY: the caller's.
        let read = unsafe { queue.read(to, count, from) };
        drop(entered);
        // A probe that finds nothing is an error in the queue, and no find.
        cq.core.patience.looked(moved || read > 0);
        read
    })
}

unsafe extern "C" fn readerr(cq: *mut CqFid, to: *mut CqErrEntry, _: u64) -> isize {
    border(|| {
        // SAFETY: the caller's.
        let cq = unsafe { object::<Cq>(cq) };
        let entered = cq.core.enter();
        let Some(queue) = &mut entered.inner.shared.queues[cq.index] else { return -(abi::EINVAL as isize) };
        // SAFETY: the caller's.
        unsafe { queue.read_error(to) }
    })
}

unsafe extern "C" fn sread(
    cq: *mut CqFid,
    to: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the caller's.
    unsafe { sreadfrom(cq, to, count, null_mut(), cond, timeout) }
}

unsafe extern "C" fn sreadfrom(
    fid: *mut CqFid,
    to: *mut c_void,
    count: usize,
    from: *mut u64,
    _: *const c_void,
    timeout: c_int,
) -> isize {
    border(|| {
        // SAFETY: the caller's.
        let cq = unsafe { object::<Cq>(fid) };
        let deadline = deadline(timeout);
        let nothing = -(abi::EAGAIN as isize);
        // SAFETY: the caller's.
        let look = || unsafe { readfrom(fid, to, count, from) };
        loop {
            let found = look();
            let is_over = || cq.signalled.swap(false, Ordering::AcqRel) || clock::now() >= deadline;
            if found != nothing || is_over() {
                return found;
            }
            // Several endpoints are looked at in turns.
            let Some(waiter) = cq.alone(|ep| ep.engine.waiter()) else { continue };
            let ready = || Some(look()).filter(|&found| found != nothing || cq.has_work());
            let arm = || cq.alone(|ep| ep.engine.ask_for_call()).unwrap_or_default();
            match waiter.wait(deadline.min(clock::now() + SLICE), ready, arm) {
                Some(found) if found != nothing => return found,
                _ => {}
            }
        }
    })
}

/// When a wait of so many milliseconds is over; a negative number is for ever.
pub(super) fn deadline(timeout: c_int) -> Duration {
    match u64::try_from(timeout) {
        Ok(ms) => clock::now() + Duration::from_millis(ms),
        Err(_) => Duration::MAX,
    }
}

unsafe extern "C" fn signal(cq: *mut CqFid) -> c_int {
    // SAFETY: the caller's.
    unsafe { object::<Cq>(cq) }.signalled.store(true, Ordering::Release);
    0
}

unsafe extern "C" fn strerror(
    _: *mut CqFid,
    error: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    words(error, buf, len)
}

/// What an error means, for people; also at `buf`, where that is not null.
pub(super) fn words(error: c_int, buf: *mut c_char, len: usize) -> *const c_char {
    let words = match error.abs() {
        abi::EHOSTUNREACH => c"the other end is gone, or cannot be reached",
        abi::ETRUNC => c"the message is longer than the memory for it",
        abi::ECANCELED => c"the operation was taken back",
        abi::ENOMSG => c"there is no such message",
        libc::EKEYREJECTED => c"no memory is registered under this key",
        abi::EACCES => c"the memory is not registered for that",
        abi::EINVAL => c"the memory is not all registered, or the operation makes no sense",
        _ => c"polyduct: an error of the system",
    };
    if !buf.is_null() && len > 0 {
        // SAFETY: the caller's memory, of this length.
        unsafe { libc::strncpy(buf, words.as_ptr(), len - 1) };
        // SAFETY: as above.
        unsafe { buf.add(len - 1).write(0) };
    }
    words.as_ptr()
}
