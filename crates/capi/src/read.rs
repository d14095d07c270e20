//! Steps that are read: into the caller's memory, or into the port's own.

use crate::args::{bytes_mut, parts_mut, place, put};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use crate::guard::lock;
use crate::handle::{self, Handle};
use crate::port::Port;
use crate::write::check_count;
use polyduct::{Reader, Tried};
use std::ffi::{c_int, c_void};

/// What reading gave. Values are of the step that was read last.
fn done(port: &Port, reader: &Reader, found: Option<u64>, step: *mut i64) -> Code {
    let Some(number) = found else { return Code::END };
    lock(&port.values).came(reader.values());
    // SAFETY: NULL, or a number of the caller's.
    unsafe { put(step, number as i64) };
    Code::OK
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_read(port: Handle, part: *mut c_void, len: usize, step: *mut i64) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: memory of the caller's.
        let part = unsafe { bytes_mut("part", part.cast(), len) }?;
        port.reading(|reader, _| {
            let found = reader.read(part)?;
            Ok(done(&port, reader, found, step))
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_try_read(
    port: Handle,
    part: *mut c_void,
    len: usize,
    step: *mut i64,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: memory of the caller's.
        let part = unsafe { bytes_mut("part", part.cast(), len) }?;
        port.reading(|reader, _| match reader.try_read(part)? {
            Tried::NotYet => Ok(Code::NOT_YET),
            Tried::End => Ok(Code::END),
            Tried::Step(number) => Ok(done(&port, reader, Some(number), step)),
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_read_arrays(
    port: Handle,
    count: usize,
    at: *const *mut c_void,
    lens: *const usize,
    step: *mut i64,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        check_count(&port, count)?;
        // SAFETY: memory of the caller's.
        let mut parts = unsafe { parts_mut(count, at.cast(), lens) }?;
        port.reading(|reader, _| {
            let found = reader.read_arrays(&mut parts)?;
            Ok(done(&port, reader, found, step))
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_map(
    port: Handle,
    memory: *mut *const c_void,
    len: *mut usize,
    step: *mut i64,
) -> c_int {
    call(|| {
        let (port, to) = (handle::get::<Port>(port)?, place("memory", memory)?);
        port.reading(|reader, memory| {
            // How large arrays are whose size changes is known when their step is there.
            if reader.arrays().iter().any(|part| part.open.is_some()) && reader.peek()?.is_none() {
                return Ok(Code::END);
            }
            let part = memory.bytes(reader.local_len_bytes())?;
            let found = reader.read(part)?;
            let (at, bytes) = (part.as_ptr(), part.len());
            let code = done(&port, reader, found, step);
            if code == Code::OK {
                // SAFETY: places of the caller's, of which the second may be NULL.
                unsafe {
                    to.write(at.cast());
                    put(len, bytes);
                }
            }
            Ok(code)
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_peek(port: Handle, step: *mut i64) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        port.reading(|reader, _| match reader.peek()? {
            Some(number) => {
                // SAFETY: NULL, or a number of the caller's.
                unsafe { put(step, number as i64) };
                Ok(Code::OK)
            }
            None => Ok(Code::END),
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_steps(port: Handle, steps: *mut i64) -> c_int {
    call(|| {
        let (port, to) = (handle::get::<Port>(port)?, place("steps", steps)?);
        port.reading(|reader, _| match reader.steps() {
            Some(steps) => {
                // SAFETY: a number of the caller's.
                unsafe { to.write(steps as i64) };
                Ok(Code::OK)
            }
            None => Ok(Code::NOT_YET),
        })
    })
}

fn boxed<T>(
    port: &Port,
    step: i64,
    (lo, hi): (*const i64, *const i64),
    act: impl FnOnce(polyduct::At<'_>, u64) -> Result<T, polyduct::Error>,
) -> Result<T, Failure> {
    let step = crate::args::natural("step", step)?;
    port.reading(|reader, _| {
        let ndim = reader.dataset().shape().len() as c_int;
        // SAFETY: as many numbers as the array has dimensions, as the header asks of callers.
        let (lo, hi) = unsafe { (crate::args::shape("lo", ndim, lo)?, crate::args::shape("hi", ndim, hi)?) };
        Ok(act(reader.at(&lo, &hi)?, step)?)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_read_box(
    port: Handle,
    step: i64,
    lo: *const i64,
    hi: *const i64,
    out: *mut c_void,
    len: usize,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: memory of the caller's.
        let out = unsafe { bytes_mut("out", out.cast(), len) }?;
        boxed(&port, step, (lo, hi), |at, step| at.read(step, out))?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_write_box(
    port: Handle,
    step: i64,
    lo: *const i64,
    hi: *const i64,
    from: *const c_void,
    len: usize,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: memory of the caller's.
        let from = unsafe { crate::args::bytes("from", from.cast(), len) }?;
        boxed(&port, step, (lo, hi), |at, step| at.write(step, from))?;
        Ok(Code::OK)
    })
}
