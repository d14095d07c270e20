//! Steps that are written: in place, or from elsewhere.

use crate::args::{bytes, parts, place, put, shape};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use crate::guard::lock;
use crate::handle::{self, Handle};
use crate::port::{busy, wrong_way, Port, State};
use polyduct::{ArrayPart, StepMut, Writer};
use self_cell::{self_cell, MutBorrow};
use std::ffi::{c_int, c_void};
use std::ops::DerefMut;

type OpenStep<'a> = Option<StepMut<'a>>;

self_cell!(
    /// A writer together with the step that it has open.
    pub struct Filling {
        owner: MutBorrow<Box<Writer>>,
        #[not_covariant]
        dependent: OpenStep,
    }
);

impl Filling {
    /// One of the arrays, as it is in the step.
    pub fn arrays(&self, index: usize) -> Option<ArrayPart> {
        self.with_dependent(|_, step| step.as_ref()?.arrays().get(index).cloned())
    }

    /// Calls `f` with the step.
    pub fn with<T>(&mut self, f: impl FnOnce(&mut StepMut<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        self.with_dependent_mut(|_, step| step.as_mut().map_or_else(|| Err(none_open()), f))
    }
}

fn none_open() -> Failure {
    Failure::misuse("the port has no step open: begin one first")
}

/// Forgets a step that is being filled; the writer is idle then.
pub fn drop_step(state: &mut State) {
    *state = match std::mem::replace(state, State::Gone) {
        State::Filling(filling) => State::Idle(filling.into_owner().into_inner()),
        other => other,
    };
}

/// Begins a step, if `step` gives one: where it lies, and its bytes.
fn begin(
    port: &Port,
    step: impl for<'a> FnOnce(&'a mut Writer) -> Result<OpenStep<'a>, polyduct::Error>,
) -> Result<Option<(*mut u8, usize)>, Failure> {
    port.with(|state| {
        let writer = match std::mem::replace(state, State::Gone) {
            State::Idle(writer) => writer,
            other => {
                let failure = match &other {
                    State::Filling(_) => busy(),
                    State::Reading(..) | State::Viewing(..) => wrong_way(),
                    _ => port.closed(),
                };
                *state = other;
                return Err(failure);
            }
        };
        let begun = Filling::try_new_or_recover(MutBorrow::new(writer), |w| match step(w.borrow_mut()) {
            Ok(Some(step)) => Ok(Some(step)),
            Ok(None) => Err(None),
            Err(e) => Err(Some(e)),
        });
        match begun {
            Ok(mut filling) => {
                let at = filling.with(|step| {
                    let memory = step.deref_mut();
                    Ok((memory.as_mut_ptr(), memory.len()))
                });
                *state = State::Filling(filling);
                at.map(Some)
            }
            Err((writer, e)) => {
                *state = State::Idle(writer.into_inner());
                Ok(e.map_or(Ok(None), Err)?)
            }
        }
    })
}

unsafe fn begun(found: Option<(*mut u8, usize)>, memory: *mut *mut c_void, len: *mut usize) -> Code {
    let Some((at, bytes)) = found else { return Code::NOT_YET };
    // SAFETY: places of the caller's, of which the second may be NULL.
    unsafe {
        memory.write(at.cast());
        put(len, bytes);
    }
    Code::OK
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_step_begin(
    port: Handle,
    memory: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        let (port, memory) = (handle::get::<Port>(port)?, place("memory", memory)?);
        let found = begin(&port, |writer| writer.step().map(Some))?;
        // SAFETY: what the header asks of callers.
        Ok(unsafe { begun(found, memory, len) })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_try_step_begin(
    port: Handle,
    memory: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        let (port, memory) = (handle::get::<Port>(port)?, place("memory", memory)?);
        let found = begin(&port, Writer::try_step)?;
        // SAFETY: what the header asks of callers.
        Ok(unsafe { begun(found, memory, len) })
    })
}

/// What a step that was given to a queue has become of. Values are of one step.
fn written(port: &Port, taken: bool) -> Code {
    lock(&port.values).begin();
    match taken {
        true => Code::OK,
        false => Code::DROPPED,
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_step_end(port: Handle) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        let taken = port.with(|state| {
            let State::Filling(filling) = state else { return Err(none_open()) };
            let step = filling.with_dependent_mut(|_, step| step.take());
            let published = step.ok_or_else(none_open).and_then(|step| Ok(step.publish()?));
            drop_step(state);
            published
        })?;
        Ok(written(&port, taken))
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_step_cancel(port: Handle) -> c_int {
    call(|| {
        handle::get::<Port>(port)?.with(|state| match state {
            State::Filling(_) => {
                drop_step(state);
                Ok(Code::OK)
            }
            _ => Err(none_open()),
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_write(port: Handle, part: *const c_void, len: usize) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: memory of the caller's.
        let part = unsafe { bytes("part", part.cast(), len) }?;
        let taken = port.writing(|writer| Ok(writer.write(part)?))?;
        Ok(written(&port, taken))
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_write_arrays(
    port: Handle,
    count: usize,
    at: *const *const c_void,
    lens: *const usize,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        check_count(&port, count)?;
        // SAFETY: memory of the caller's.
        let parts = unsafe { parts(count, at.cast(), lens) }?;
        let taken = port.writing(|writer| Ok(writer.write_arrays(&parts)?))?;
        Ok(written(&port, taken))
    })
}

/// Whether there is a part for each array.
pub fn check_count(port: &Port, count: usize) -> Result<(), Failure> {
    match port.names.len() {
        expected if expected == count => Ok(()),
        expected => Err(Failure::misuse(format!("{count} parts were given; the port has {expected} arrays"))),
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_bring(port: Handle, index: usize, ndim: c_int, sizes: *const i64) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        port.names.get(index)?;
        // SAFETY: as many numbers as the caller says.
        let sizes = unsafe { shape("shape", ndim, sizes) }?;
        port.with(|state| match state {
            State::Idle(writer) => Ok(writer.bring(index, &sizes)?),
            State::Filling(filling) => filling.with(|step| Ok(step.bring(index, &sizes)?)),
            State::Reading(..) | State::Viewing(..) => Err(wrong_way()),
            State::Gone => Err(port.closed()),
        })?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_next_step(port: Handle, step: *mut i64) -> c_int {
    call(|| {
        let (port, step) = (handle::get::<Port>(port)?, place("step", step)?);
        let next = port.with(|state| match state {
            State::Idle(writer) => Ok(writer.next_step()),
            State::Filling(_) => Err(busy()),
            State::Reading(..) | State::Viewing(..) => Err(wrong_way()),
            State::Gone => Err(port.closed()),
        })?;
        // SAFETY: a number of the caller's.
        unsafe { step.write(next as i64) };
        Ok(Code::OK)
    })
}
