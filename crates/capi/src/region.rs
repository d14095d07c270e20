//! Memory that other units put into and get from.

use crate::args::{bytes, bytes_mut, place, text, unit};
use crate::border::call;
use crate::code::Code;
use crate::domain::{words, Domain};
use crate::error::Failure;
use crate::handle::{self, Handle};
use polyduct::message::domain::{self, Notice};
use polyduct::message::link::shm::Memory;
use polyduct::message::MessageError;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// Shared memory of this unit.
pub struct Region {
    /// Held for its drop alone: the memory is mapped as long.
    _region: domain::Region,
}

/// Memory of the program's own, lent.
pub struct Lent {
    domain: Arc<Domain>,
    lent: domain::Lent,
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_region_new(
    region: *mut Handle,
    domain: Handle,
    id: u32,
    len: usize,
    memory: *mut *mut c_void,
) -> c_int {
    call(|| {
        let (to, memory) = (place("region", region)?, place("memory", memory)?);
        let made = handle::get::<Domain>(domain)?.run(|domain| domain.region(id, len))?;
        let address = made.address() as *mut c_void;
        let handle = handle::give(Arc::new(Region { _region: made }))?;
        // SAFETY: places of the caller's.
        unsafe {
            to.write(handle);
            memory.write(address);
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_region_close(region: Handle) -> c_int {
    call(|| handle::take::<Region>(region).map(|_| Code::OK))
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_region_size(domain: Handle, of: i32, id: u32, len: *mut usize) -> c_int {
    call(|| {
        let (domain, of, to) = (handle::get::<Domain>(domain)?, unit("unit", of)?, place("len", len)?);
        let found = domain.run(|domain| domain.region_len(of, id))?;
        // SAFETY: a place of the caller's.
        unsafe { to.write(found) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_lend(
    lent: *mut Handle,
    domain: Handle,
    id: u32,
    memory: *mut c_void,
    len: usize,
) -> c_int {
    call(|| {
        let (to, domain) = (place("lent", lent)?, handle::get::<Domain>(domain)?);
        let base = place("memory", memory)?.cast::<u8>();
        // SAFETY: the header has the caller leave the memory where it is until it was withdrawn.
        let memory = unsafe { Memory::of(base, len, Box::new(())) };
        let made = domain.run(|domain| domain.lend(id, memory))?;
        let handle = handle::give(Arc::new(Lent { domain, lent: made }))?;
        // SAFETY: a place of the caller's.
        unsafe { to.write(handle) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_withdraw(lent: Handle) -> c_int {
    call(|| {
        let this = handle::get::<Lent>(lent)?;
        let withdraw = || match this.lent.withdraw() {
            Err(MessageError::Region { .. }) => Ok(()),
            other => other.map(drop),
        };
        match this.domain.joined() {
            Some(_) => this.domain.run(|_| withdraw())?,
            // After the domain was left, others may still be in the midst of a copy.
            None => withdraw().map_err(Failure::from)?,
        }
        handle::take::<Lent>(lent).map(|_| Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_put(
    domain: Handle,
    to: i32,
    id: u32,
    offset: usize,
    from: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        let (domain, to) = (handle::get::<Domain>(domain)?, unit("to", to)?);
        // SAFETY: memory of the caller's.
        let from = unsafe { bytes("bytes", from.cast(), len) }?;
        domain.run(|domain| domain.put(to, id, offset, from))?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_get(
    domain: Handle,
    from: i32,
    id: u32,
    offset: usize,
    to: *mut c_void,
    len: usize,
) -> c_int {
    call(|| {
        let (domain, from) = (handle::get::<Domain>(domain)?, unit("from", from)?);
        // SAFETY: memory of the caller's.
        let to = unsafe { bytes_mut("bytes", to.cast(), len) }?;
        domain.run(|domain| domain.get(from, id, offset, to))?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_put_notify(
    domain: Handle,
    to: i32,
    id: u32,
    offset: usize,
    from: *const c_void,
    len: usize,
    handler: *const c_char,
    args: *const u32,
) -> c_int {
    call(|| {
        let (domain, to) = (handle::get::<Domain>(domain)?, unit("to", to)?);
        // SAFETY: text, words and memory of the caller's.
        let (handler, args, from) =
            unsafe { (text("handler", handler)?, words(args), bytes("bytes", from.cast(), len)?) };
        domain.run(|domain| domain.put_notify(to, id, offset, from, Notice { handler, args }))?;
        Ok(Code::OK)
    })
}
