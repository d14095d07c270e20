//! Poll sets: which of several queues and counters have something new.

use super::cntr::Cntr;
use super::cq::Cq;
use super::domain::Domain;
use super::{border, border_or, fid_ops, give, object, Core};
use crate::abi::{self, DomainFid, Fid, FidOps, PollAttr, PollFid, PollOps};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

static FID: FidOps = fid_ops(close);
static OPS: PollOps = PollOps { size: size_of::<PollOps>(), poll, poll_add: add, poll_del: remove };

/// Something that a set looks at: it is not closed before it is taken out.
enum Watched {
    Queue(*const Cq),
    /// A counter, and the events that it had when it was told last.
    Counter(*const Cntr, u64),
}

// SAFETY: what they point to may be used by any thread.
unsafe impl Send for Watched {}

/// A set, as it is given out.
#[repr(C)]
struct Poll {
    fid: PollFid,
    core: Arc<Core>,
    watched: Mutex<Vec<Watched>>,
}

impl Watched {
    /// # Safety
    /// A queue or a counter that was given out, and not closed.
    unsafe fn of(fid: *const Fid) -> Option<Watched> {
        // SAFETY: the caller's.
        match unsafe { (*fid).class } {
            abi::CLASS_CQ => Some(Watched::Queue(fid.cast())),
            abi::CLASS_CNTR => Some(Watched::Counter(fid.cast(), 0)),
            _ => None,
        }
    }

    fn fid(&self) -> *const Fid {
        match self {
            Watched::Queue(cq) => cq.cast(),
            Watched::Counter(cntr, _) => cntr.cast(),
        }
    }

    /// The sets that it is in.
    fn sets(&self) -> &AtomicU32 {
        // SAFETY: see the type.
        unsafe {
            match self {
                Watched::Queue(cq) => &(**cq).sets,
                Watched::Counter(cntr, _) => &(**cntr).sets,
            }
        }
    }

    fn core(&self) -> &Arc<Core> {
        // SAFETY: see the type.
        unsafe {
            match self {
                Watched::Queue(cq) => &(**cq).core,
                Watched::Counter(cntr, _) => &(**cntr).core,
            }
        }
    }

    /// Moves on what it is of. Returns whether there is something new, which is old from now on where it is
    /// `told`.
    fn has_news(&mut self, told: bool) -> bool {
        // SAFETY: see the type.
        unsafe {
            match self {
                Watched::Queue(cq) => (**cq).has_some(),
                Watched::Counter(cntr, last) => {
                    let now = (**cntr).get().events;
                    let is_new = now != *last;
                    if told {
                        *last = now;
                    }
                    is_new
                }
            }
        }
    }
}

pub unsafe extern "C" fn open(
    domain: *mut DomainFid,
    attr: *const PollAttr,
    poll: *mut *mut PollFid,
) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let (core, attr) = unsafe { (object::<Domain>(domain).core.clone(), attr.as_ref()) };
        if attr.is_some_and(|attr| attr.flags != 0) {
            return -abi::EBADFLAGS;
        }
        let fid = Fid { class: abi::CLASS_POLL, context: null_mut(), ops: &raw const FID };
        let fid = PollFid { fid, ops: &raw const OPS };
        // SAFETY: the caller's.
        unsafe { give(Poll { fid, core, watched: Mutex::default() }, poll) }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    border(|| {
        // SAFETY: what `open` gave out.
        let poll = unsafe { Box::from_raw(fid.cast::<Poll>()) };
        let watched = poll.watched.into_inner().unwrap_or_else(PoisonError::into_inner);
        for one in watched {
            one.sets().fetch_sub(1, Ordering::AcqRel);
        }
        0
    })
}

impl Poll {
    fn watched(&self) -> std::sync::MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn add(poll: *mut PollFid, fid: *mut Fid, flags: u64) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let (poll, one) = unsafe { (object::<Poll>(poll), Watched::of(fid)) };
        let one = one.filter(|one| flags == 0 && Arc::ptr_eq(one.core(), &poll.core)).ok_or(abi::EINVAL)?;
        let mut watched = poll.watched();
        if watched.iter().all(|other| other.fid() != one.fid()) {
            one.sets().fetch_add(1, Ordering::AcqRel);
            watched.push(one);
        }
        Ok(())
    })
}

unsafe extern "C" fn remove(poll: *mut PollFid, fid: *mut Fid, flags: u64) -> c_int {
    border_or(|| {
        // SAFETY: the caller's.
        let poll = unsafe { object::<Poll>(poll) };
        let mut watched = poll.watched();
        let at = watched.iter().position(|one| flags == 0 && one.fid() == fid.cast_const());
        let one = watched.swap_remove(at.ok_or(abi::EINVAL)?);
        one.sets().fetch_sub(1, Ordering::AcqRel);
        Ok(())
    })
}

unsafe extern "C" fn poll(poll: *mut PollFid, contexts: *mut *mut c_void, count: c_int) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let poll = unsafe { object::<Poll>(poll) };
        let (mut found, mut behind) = (0, 0);
        let mut watched = poll.watched();
        for (at, one) in watched.iter_mut().enumerate() {
            let has_room = found < count;
            if one.has_news(has_room) && has_room {
                // SAFETY: it is not closed; the caller has room for so many.
                unsafe { contexts.add(found as usize).write((*one.fid()).context) };
                (found, behind) = (found + 1, at + 1);
            }
        }
        // The others come first the next time.
        watched.rotate_left(behind);
        found
    })
}
