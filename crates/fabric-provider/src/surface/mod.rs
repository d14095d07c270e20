//! The functions that libfabric, and through it programs, call.
//!
//! Objects are allocated here and given out as pointers to what they begin with. Everything of a domain is under
//! one lock, which a domain that only one thread uses at a time does without.

mod atomic;
mod av;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod mr;
mod msg;
mod patience;
mod poll;
mod rma;
mod tagged;

pub use fabric::open_fabric;

use crate::abi::{self, Fid, FidOps};
use crate::engine::{Engine, Shared};
use av::Vector;
use patience::Patience;
use polyduct_message::endpoint::Number;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// No peer.
const NOBODY: Number = Number::MAX - 1;

/// What is in a domain.
#[derive(Default)]
struct Inner {
    shared: Shared,
    eps: Vec<Option<Box<Ep>>>,
    vectors: Vec<Option<Vector>>,
}

/// An endpoint.
struct Ep {
    engine: Engine,
    /// Its address vector.
    vector: Option<usize>,
    /// Flags of calls that bring none.
    tx_flags: u64,
    rx_flags: u64,
    /// The engine's numbers of those in the vector.
    numbers: Vec<Number>,
    directed: bool,
    enabled: bool,
}

/// A domain, which everything in it keeps.
struct Core {
    lock: Option<Mutex<()>>,
    inner: UnsafeCell<Inner>,
    /// Addresses in registered memory are those of its owner.
    virtual_addresses: bool,
    patience: Patience,
}

// SAFETY: `inner` is used under the lock, or, without one, by one thread at a time, as the program has said.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

/// The domain, as long as this lives.
struct Entered<'a> {
    inner: &'a mut Inner,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl Core {
    #[inline]
    fn enter(&self) -> Entered<'_> {
        let lock = self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: see the type.
        Entered { inner: unsafe { &mut *self.inner.get() }, _lock: lock }
    }
}

impl Inner {
    /// Moves on the endpoints that `is_of` says. Returns whether anything was to do.
    #[inline]
    fn progress(&mut self, is_of: impl Fn(&Ep) -> bool) -> bool {
        let Inner { eps, shared, .. } = self;
        let mut found = false;
        for ep in eps.iter_mut().flatten().filter(|ep| is_of(ep)) {
            found |= ep.engine.progress(shared);
        }
        found
    }

    fn ep(&mut self, index: usize) -> Option<(&mut Ep, &mut Shared, &mut [Option<Vector>])> {
        let Inner { eps, shared, vectors, .. } = self;
        Some((eps.get_mut(index)?.as_mut()?, shared, vectors))
    }
}

impl Ep {
    /// The engine's number of an address.
    #[inline]
    fn number(&mut self, vectors: &[Option<Vector>], address: u64) -> Result<Number, c_int> {
        match self.numbers.get(address as usize) {
            Some(&number) if number != NOBODY => Ok(number),
            _ => self.look_up(vectors, address),
        }
    }

    #[cold]
    fn look_up(&mut self, vectors: &[Option<Vector>], address: u64) -> Result<Number, c_int> {
        let vector = self.vector.and_then(|vector| vectors.get(vector)?.as_ref()).ok_or(abi::ENOAV)?;
        let place = vector.place(address).ok_or(abi::EINVAL)?;
        let number = self.engine.peer(place, address).map_err(|_| abi::EHOSTUNREACH)?;
        let at = address as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, NOBODY);
        }
        self.numbers[at] = number;
        Ok(number)
    }
}

/// Keeps something in the first free place.
fn keep<T>(places: &mut Vec<Option<T>>, value: T) -> usize {
    match places.iter().position(Option::is_none) {
        Some(free) => {
            places[free] = Some(value);
            free
        }
        None => {
            places.push(Some(value));
            places.len() - 1
        }
    }
}

/// Calls what a function is made of: a panic is an error.
#[inline]
fn border<T: From<i16>>(call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| T::from(-(abi::EOTHER as i16)))
}

/// The same for what may fail.
#[inline]
fn border_or(call: impl FnOnce() -> Result<(), c_int>) -> c_int {
    border(|| call().map_or_else(|error| -error, |()| 0))
}

/// The same of functions on messages.
#[inline]
fn border_size(call: impl FnOnce() -> Result<(), c_int>) -> isize {
    border(|| call().map_or_else(|error| -(error as isize), |()| 0))
}

/// Functions of objects that have nothing but an end.
const fn fid_ops(close: unsafe extern "C" fn(*mut Fid) -> c_int) -> FidOps {
    FidOps {
        size: size_of::<FidOps>(),
        close,
        bind: no_bind,
        control: no_control,
        ops_open: abi::none,
        tostr: abi::none,
        ops_set: abi::none,
    }
}

unsafe extern "C" fn no_bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn no_control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    -abi::ENOSYS
}

/// The object that begins at this pointer.
///
/// # Safety
/// It was given out as a pointer to a `T`, and not closed.
#[inline]
unsafe fn object<'a, T>(fid: *mut impl Sized) -> &'a T {
    // SAFETY: the caller's.
    unsafe { &*fid.cast::<T>() }
}

/// Gives out an object.
///
/// # Safety
/// `to` may be written.
unsafe fn give<T, F>(object: T, to: *mut *mut F) -> c_int {
    // SAFETY: the caller's.
    unsafe { to.write(Box::into_raw(Box::new(object)).cast()) };
    0
}
