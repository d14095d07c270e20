//! A unit's place in a domain of messages.

use crate::args::{bytes, fill, natural, place, put, seconds, text, unit};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use crate::guard::{lock, Guard, User};
use crate::handle::{self, Handle};
use crate::mail::{self, Mail};
use crate::options::{self, DomainOptions};
use crate::port::{busy, viewing, Port, State};
use crate::quiet::quiet;
use polyduct::host::clock;
use polyduct::message::domain::{inbox, Parcel};
use polyduct::message::{self, MessageError};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

/// One unit's place in a domain.
pub struct Domain {
    guard: Guard,
    /// Until it leaves.
    domain: Mutex<Option<message::Domain>>,
    unit: u32,
    units: u32,
}

impl Domain {
    fn new(guard: Guard, domain: message::Domain) -> Domain {
        Domain { guard, unit: domain.unit(), units: domain.units(), domain: Mutex::new(Some(domain)) }
    }

    /// The domain, unless it was left.
    pub fn joined(&self) -> Option<message::Domain> {
        lock(&self.domain).clone()
    }

    /// Runs a call.
    pub fn run<T>(&self, f: impl FnOnce(&message::Domain) -> Result<T, MessageError>) -> Result<T, Failure> {
        let domain = self.joined().ok_or_else(left)?;
        self.guard.run(|| match f(&domain) {
            // By another thread, before this one was told.
            Err(MessageError::PeerLeft { unit }) if unit == self.unit => Err(left()),
            done => Ok(done?),
        })
    }

    fn end(&self, end: impl FnOnce(&message::Domain) -> Result<(), MessageError>) -> Result<(), Failure> {
        let domain = lock(&self.domain).take().ok_or_else(left)?;
        let ended = self.guard.end(|| Ok(end(&domain)?));
        domain.wake();
        ended
    }
}

fn left() -> Failure {
    Failure::Own(Code::CLOSED, "the domain was left".to_owned(), Vec::new())
}

unsafe fn give(to: *mut Handle, guard: Guard, domain: message::Domain) -> Result<Code, Failure> {
    let handle = handle::give(Arc::new(Domain::new(guard, domain)))?;
    // SAFETY: a place of the caller's, which was looked at before.
    unsafe { to.write(handle) };
    Ok(Code::OK)
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_join(domain: *mut Handle, given: *const DomainOptions) -> c_int {
    call(|| {
        let (to, guard) = (place("domain", domain)?, Guard::new("domain"));
        // SAFETY: what the header asks of callers.
        unsafe {
            let join = options::join(given, &guard, false)?;
            let joined = quiet(|| guard.run(|| Ok(join.join()?)))?;
            give(to, guard, joined)
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_port_domain(
    port: Handle,
    given: *const DomainOptions,
    domain: *mut Handle,
) -> c_int {
    call(|| {
        let (port, to, guard) = (handle::get::<Port>(port)?, place("domain", domain)?, Guard::new("domain"));
        // SAFETY: what the header asks of callers.
        let join = unsafe { options::join(given, &guard, true) }?;
        let joined = quiet(|| {
            port.with(|state| match state {
                State::Idle(writer) => Ok(writer.domain(join)?),
                State::Reading(reader, _) => Ok(reader.domain(join)?),
                State::Filling(_) => Err(busy()),
                State::Viewing(..) => Err(viewing()),
                State::Gone => Err(port.closed()),
            })
        })?;
        // SAFETY: a place of the caller's.
        unsafe { give(to, guard, joined) }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_addresses(
    port: Handle,
    program: i32,
    first: *mut i32,
    end: *mut i32,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        let found = port.with(|state| {
            let addresses = match state {
                State::Idle(writer) => writer.addresses(),
                State::Reading(reader, _) => reader.addresses(),
                State::Filling(_) => return Err(busy()),
                State::Viewing(..) => return Err(viewing()),
                State::Gone => return Err(port.closed()),
            };
            let Some(addresses) = addresses else {
                return Err(Failure::misuse("a file has no units on another side to send messages to"));
            };
            match program {
                -1 => Ok(addresses.writers()),
                program => {
                    let none = || Failure::option("program", format!("there is no reader program {program}"));
                    let at = usize::try_from(program).map_err(|_| none())?;
                    addresses.readers().nth(at).ok_or_else(none)
                }
            }
        })?;
        // SAFETY: NULL, or numbers of the caller's.
        unsafe {
            put(first, found.start as i32);
            put(end, found.end as i32);
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_domain_unit(domain: Handle, unit: *mut i32, units: *mut i32) -> c_int {
    call(|| {
        let domain = handle::get::<Domain>(domain)?;
        // SAFETY: NULL, or numbers of the caller's.
        unsafe {
            put(unit, domain.unit as i32);
            put(units, domain.units as i32);
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_domain_set_timeout(domain: Handle, timeout: f64) -> c_int {
    call(|| handle::get::<Domain>(domain)?.guard.set_limit(timeout).map(|()| Code::OK))
}

/// A unit or a tag to receive from; -1 is any.
fn any(what: &str, n: i64) -> Result<Option<u32>, Failure> {
    match n {
        -1 => Ok(None),
        n => {
            let fits = natural(what, n)?;
            let wrong =
                |_| Failure::option(what, format!("{what} is {n}; expected 0 to 2^32-1, or -1 for any"));
            u32::try_from(fits).map(Some).map_err(wrong)
        }
    }
}

fn send(domain: Handle, to: i32, tag: u32, words: [u32; 2], payload: &[u8]) -> Result<Code, Failure> {
    let (domain, to) = (handle::get::<Domain>(domain)?, unit("to", to)?);
    domain.run(|domain| domain.send(to, tag, words, payload))?;
    Ok(Code::OK)
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_send(
    domain: Handle,
    to: i32,
    tag: u32,
    payload: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: memory of the caller's.
    call(|| send(domain, to, tag, [0; 2], unsafe { bytes("bytes", payload.cast(), len) }?))
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_send_array(
    domain: Handle,
    to: i32,
    tag: u32,
    elem: c_int,
    ndim: c_int,
    sizes: *const i64,
    column_major: c_int,
    data: *const c_void,
) -> c_int {
    call(|| {
        // SAFETY: numbers and memory of the caller's.
        let Parcel { words, payload } = unsafe { mail::parcel(elem, ndim, sizes, column_major != 0, data) }?;
        send(domain, to, tag, words, &payload)
    })
}

unsafe fn take(to: *mut Mail, mail: inbox::Mail, domain: &Domain) -> Result<Code, Failure> {
    let inbox::Mail { from, tag, words, payload, .. } = mail;
    let weak = domain.joined().ok_or_else(left)?.downgrade();
    // SAFETY: a structure of the caller's, which was looked at before.
    unsafe { mail::give(to, (from, tag), Parcel { words, payload }, weak) }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_recv(domain: Handle, from: i32, tag: i64, to: *mut Mail) -> c_int {
    call(|| {
        let (domain, from, tag) =
            (handle::get::<Domain>(domain)?, any("from", from.into())?, any("tag", tag)?);
        // SAFETY: a structure of the caller's that says its size.
        unsafe {
            mail::check(to)?;
            take(to, domain.run(|domain| domain.recv(from, tag))?, &domain)
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_try_recv(domain: Handle, from: i32, tag: i64, to: *mut Mail) -> c_int {
    call(|| {
        let (domain, from, tag) =
            (handle::get::<Domain>(domain)?, any("from", from.into())?, any("tag", tag)?);
        // SAFETY: a structure of the caller's that says its size.
        unsafe {
            mail::check(to)?;
            match domain.run(|domain| Ok(domain.try_recv(from, tag)))? {
                Some(mail) => take(to, mail, &domain),
                None => Ok(Code::NOT_YET),
            }
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_sendrecv(
    domain: Handle,
    to: i32,
    payload: *const c_void,
    len: usize,
    from: i32,
    tag: u32,
    mail: *mut Mail,
) -> c_int {
    call(|| {
        let (domain, to, from) = (handle::get::<Domain>(domain)?, unit("to", to)?, any("from", from.into())?);
        // SAFETY: memory and a structure of the caller's.
        unsafe {
            mail::check(mail)?;
            let payload = bytes("bytes", payload.cast(), len)?;
            let came = domain.run(|d| d.send_recv((to, tag), [0; 2], payload, (from, Some(tag))))?;
            take(mail, came, &domain)
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_synchronise(domain: Handle) -> c_int {
    call(|| handle::get::<Domain>(domain)?.run(message::Domain::synchronise).map(|()| Code::OK))
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_barrier(domain: Handle) -> c_int {
    call(|| handle::get::<Domain>(domain)?.run(message::Domain::barrier).map(|()| Code::OK))
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_poll(domain: Handle, handled: *mut usize) -> c_int {
    call(|| {
        let count = handle::get::<Domain>(domain)?.run(|domain| Ok(domain.poll()))?;
        // SAFETY: NULL, or a number of the caller's.
        unsafe { put(handled, count) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_serve(
    domain: Handle,
    done: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    user: *mut c_void,
    timeout: f64,
) -> c_int {
    call(|| {
        let (domain, user) = (handle::get::<Domain>(domain)?, User(user));
        let done = done.ok_or_else(|| Failure::misuse("done is NULL; expected a function that says when"))?;
        let deadline = seconds("timeout", timeout)?.map(|timeout| clock::now().saturating_add(timeout));
        let mut is_over = false;
        domain.run(|domain| {
            let ask = || {
                // SAFETY: a function of the caller's, which is called as the header says.
                is_over = unsafe { done(user.pointer()) } != 0;
                is_over
            };
            domain.serve_until(deadline, ask)
        })?;
        Ok(if is_over { Code::OK } else { Code::NOT_YET })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_wake(domain: Handle) -> c_int {
    call(|| {
        handle::get::<Domain>(domain)?.joined().ok_or_else(left)?.wake();
        Ok(Code::OK)
    })
}

/// What waits, as the header has it.
#[repr(C)]
pub struct Status {
    struct_size: usize,
    waiting_high: i64,
    waiting_low: i64,
    mails: i64,
    calls: i64,
    sends_high: i64,
    sends_low: i64,
    mail_bytes: i64,
    other_bytes: i64,
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_domain_status(domain: Handle, status: *mut Status) -> c_int {
    call(|| {
        let counted = handle::get::<Domain>(domain)?.run(|domain| match message::Domain::in_handler() {
            // The handler's own thread has what is to be counted.
            true => Err(MessageError::InHandler),
            false => Ok(domain.status()),
        })?;
        let found = Status {
            struct_size: 0,
            waiting_high: counted.waiting_high as i64,
            waiting_low: counted.waiting_low as i64,
            mails: counted.mails as i64,
            calls: counted.calls as i64,
            sends_high: counted.sends_high as i64,
            sends_low: counted.sends_low as i64,
            mail_bytes: counted.mail_bytes as i64,
            other_bytes: counted.other_bytes as i64,
        };
        // SAFETY: a structure of the caller's that says its size.
        unsafe { fill("status", status, found) }?;
        Ok(Code::OK)
    })
}

/// Four words of the caller's; NULL for zeros.
///
/// # Safety
/// There are as many.
pub unsafe fn words(at: *const u32) -> [u32; 4] {
    match at.is_null() {
        true => [0; 4],
        // SAFETY: as the caller promises.
        false => unsafe { at.cast::<[u32; 4]>().read() },
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_post(
    domain: Handle,
    to: i32,
    name: *const c_char,
    args: *const u32,
    payload: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        let (domain, to) = (handle::get::<Domain>(domain)?, unit("to", to)?);
        // SAFETY: text, words and memory of the caller's.
        let (name, args, payload) =
            unsafe { (text("name", name)?, words(args), bytes("payload", payload.cast(), len)?) };
        domain.run(|domain| domain.post(to, name, args, payload))?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_leave(domain: Handle) -> c_int {
    call(|| {
        let domain = handle::take::<Domain>(domain)?;
        quiet(|| domain.end(message::Domain::leave)).map(|()| Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_give_up(domain: Handle) -> c_int {
    call(|| {
        let domain = handle::take::<Domain>(domain)?;
        quiet(|| {
            domain.end(|domain| {
                domain.give_up();
                Ok(())
            })
        })
        .map(|()| Code::OK)
    })
}
