//! Steps that are read where they lie: without a copy, until they are given back.

use crate::args::{place, put};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use crate::guard::lock;
use crate::handle::{self, Handle};
use crate::port::{viewing, writes, Port, State};
use polyduct::{Reader, Step};
use self_cell::{self_cell, MutBorrow};
use std::ffi::{c_int, c_void};

self_cell!(
    /// A reader together with the step that it looks at.
    pub struct Viewing {
        owner: MutBorrow<Box<Reader>>,
        #[not_covariant]
        dependent: Step,
    }
);

impl Viewing {
    /// Calls `f` with the step.
    pub fn with<T>(&self, f: impl FnOnce(&Step<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        self.with_dependent(|_, step| f(step))
    }
}

/// Gives a step back that is looked at; the port reads then.
pub fn give_back(state: &mut State) {
    *state = match std::mem::replace(state, State::Gone) {
        State::Viewing(view, memory) => State::Reading(view.into_owner().into_inner(), memory),
        other => other,
    };
}

/// Where the next step lies, how long it is, and its number; `None` at the end.
fn look(port: &Port, state: &mut State) -> Result<Option<(*const u8, usize, u64)>, Failure> {
    let (reader, memory) = match std::mem::replace(state, State::Gone) {
        State::Reading(reader, memory) => (reader, memory),
        other => {
            let failure = match &other {
                State::Viewing(..) => viewing(),
                State::Idle(_) | State::Filling(_) => writes(),
                _ => port.closed(),
            };
            *state = other;
            return Err(failure);
        }
    };
    let viewed = Viewing::try_new_or_recover(MutBorrow::new(reader), |r| match r.borrow_mut().view() {
        Ok(Some(step)) => Ok(step),
        Ok(None) => Err(None),
        Err(e) => Err(Some(e)),
    });
    match viewed {
        Ok(view) => {
            let found = view.with(|step| {
                lock(&port.values).came(step.values());
                Ok((step.as_ptr(), step.len(), step.number()))
            });
            *state = State::Viewing(view, memory);
            found.map(Some)
        }
        Err((reader, e)) => {
            *state = State::Reading(reader.into_inner(), memory);
            Ok(e.map_or(Ok(None), Err)?)
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_view(
    port: Handle,
    memory: *mut *const c_void,
    len: *mut usize,
    step: *mut i64,
) -> c_int {
    call(|| {
        let (port, to) = (handle::get::<Port>(port)?, place("memory", memory)?);
        let Some((at, bytes, number)) = port.with(|state| look(&port, state))? else {
            return Ok(Code::END);
        };
        // SAFETY: places of the caller's, of which the last two may be NULL.
        unsafe {
            to.write(at.cast());
            put(len, bytes);
            put(step, number as i64);
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_view_end(port: Handle) -> c_int {
    call(|| {
        handle::get::<Port>(port)?.with(|state| match state {
            State::Viewing(..) => {
                give_back(state);
                Ok(Code::OK)
            }
            _ => Err(Failure::misuse("the port looks at no step: polyduct_view gives one")),
        })
    })
}
