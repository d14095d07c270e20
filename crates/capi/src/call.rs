//! Calls of functions of other units.

use crate::args::{bytes, place, seconds, text, unit};
use crate::border::call;
use crate::code::Code;
use crate::domain::Domain;
use crate::error::Failure;
use crate::handle::{self, Handle};
use crate::mail::{self, Mail};
use polyduct::message::domain::{self, Parcel};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A call under way.
pub struct Call {
    domain: Arc<Domain>,
    call: domain::Call,
    to: u32,
    /// Its result was given, or is being waited for.
    fetched: AtomicBool,
}

unsafe fn begin(
    to: *mut Handle,
    domain: Handle,
    unit_of: i32,
    name: *const c_char,
    argument: Parcel,
    timeout: f64,
) -> Result<Code, Failure> {
    let (to, domain, unit) = (place("call", to)?, handle::get::<Domain>(domain)?, unit("to", unit_of)?);
    // SAFETY: text of the caller's.
    let (name, timeout) = (unsafe { text("name", name) }?, seconds("timeout", timeout)?);
    let call = domain.run(|domain| domain.call_with(unit, name, argument, timeout))?;
    let handle = handle::give(Arc::new(Call { domain, call, to: unit, fetched: AtomicBool::new(false) }))?;
    // SAFETY: a place of the caller's.
    unsafe { to.write(handle) };
    Ok(Code::OK)
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_call_begin(
    to: *mut Handle,
    domain: Handle,
    unit: i32,
    name: *const c_char,
    argument: *const c_void,
    len: usize,
    timeout: f64,
) -> c_int {
    // SAFETY: what the header asks of callers.
    call(|| unsafe {
        let argument = bytes("argument", argument.cast(), len)?.to_vec().into();
        begin(to, domain, unit, name, argument, timeout)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_call_array(
    to: *mut Handle,
    domain: Handle,
    unit: i32,
    name: *const c_char,
    elem: c_int,
    ndim: c_int,
    sizes: *const i64,
    column_major: c_int,
    data: *const c_void,
    timeout: f64,
) -> c_int {
    // SAFETY: what the header asks of callers.
    call(|| unsafe {
        let argument = mail::parcel(elem, ndim, sizes, column_major != 0, data)?;
        begin(to, domain, unit, name, argument, timeout)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_call_result(this: Handle, result: *mut Mail) -> c_int {
    call(|| {
        let this = handle::get::<Call>(this)?;
        // SAFETY: a structure of the caller's that says its size.
        unsafe { mail::check(result) }?;
        // What was fetched would be waited for in vain.
        if this.fetched.swap(true, Ordering::AcqRel) {
            return Err(Failure::misuse(
                "the call's result was fetched before, or another thread waits for it",
            ));
        }
        let mut weak = None;
        let waited = this.domain.run(|domain| {
            weak = Some(domain.downgrade());
            this.call.wait_until(None)
        });
        let is_over = match &waited {
            Ok(_) => true,
            Err(failure) => this.call.is_done() || !is_wait(failure),
        };
        this.fetched.store(is_over, Ordering::Release);
        let (parcel, weak) = (waited?, weak.ok_or_else(|| Failure::misuse("the domain was left"))?);
        // SAFETY: as above.
        unsafe { mail::give(result, (this.to, 0), parcel, weak) }
    })
}

/// Whether a wait ended, and what was waited for did not.
fn is_wait(failure: &Failure) -> bool {
    use polyduct::message::MessageError::{InHandler, Interrupted, Timeout};
    matches!(failure, Failure::Polyduct(polyduct::Error::Message(e))
        if matches!(**e, Timeout { .. } | Interrupted | InHandler))
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_call_done(this: Handle, done: *mut c_int) -> c_int {
    call(|| {
        let (this, to) = (handle::get::<Call>(this)?, place("done", done)?);
        let fetched = this.fetched.load(Ordering::Acquire);
        let is_done = fetched || this.domain.run(|_| Ok(this.call.is_done()))?;
        // SAFETY: a number of the caller's.
        unsafe { to.write(is_done.into()) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_call_cancel(this: Handle) -> c_int {
    call(|| {
        let this = handle::get::<Call>(this)?;
        this.domain.run(|_| {
            this.call.cancel();
            Ok(Code::OK)
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_call_close(this: Handle) -> c_int {
    call(|| handle::take::<Call>(this).map(|_| Code::OK))
}
