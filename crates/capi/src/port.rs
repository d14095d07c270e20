//! A unit's port: how it is opened, and how it ends.

use crate::args::{fill, maybe_text, place, put, shape, text};
use crate::attributes::Kept;
use crate::border::{call, Done};
use crate::code::Code;
use crate::error::Failure;
use crate::guard::{lock, Guard};
use crate::handle::{self, Handle};
use crate::info::Names;
use crate::memory::Memory;
use crate::options::{self, layout_of, Options};
use crate::quiet::quiet;
use crate::types;
use crate::values::Values;
use crate::view::Viewing;
use crate::write::Filling;
use polyduct::{Error, JobUnit, Reader, Stats as Counted, Writer};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

/// What a port is at the moment.
pub enum State {
    /// A writer without an open step.
    Idle(Box<Writer>),
    /// A step is being filled.
    Filling(Filling),
    /// A reader, and memory for what it maps.
    Reading(Box<Reader>, Memory),
    /// The same while it looks at a step where that lies.
    Viewing(Viewing, Memory),
    /// It has ended; or, for a moment, one of the others becomes another.
    Gone,
}

/// One unit's port.
pub struct Port {
    pub guard: Guard,
    url: String,
    pub place: JobUnit,
    pub state: Mutex<State>,
    pub values: Mutex<Values>,
    /// For who asks what it is: text that lives as long as the port.
    pub names: Names,
    /// What is written down of the array, once it was asked for; and what its dimensions are called.
    pub attributes: Kept,
    pub dims: Kept,
}

impl Port {
    fn new(guard: Guard, url: &str, place: JobUnit, state: State) -> Port {
        let names = match &state {
            State::Idle(writer) => Names::new(writer.arrays(), writer.mapping()),
            State::Reading(reader, _) => Names::new(reader.arrays(), reader.mapping()),
            _ => Names::default(),
        };
        let url = url.to_owned();
        Port {
            guard,
            url,
            place,
            state: Mutex::new(state),
            values: Mutex::default(),
            names,
            attributes: Kept::new(),
            dims: Kept::new(),
        }
    }

    /// An error of a port that is no longer there.
    pub fn closed(&self) -> Failure {
        Error::closed(&self.url).into()
    }

    /// Runs a call with what the port is.
    pub fn with<T>(&self, f: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
        self.guard.run(|| f(&mut lock(&self.state)))
    }

    /// Runs a call with an idle writer.
    pub fn writing<T>(&self, f: impl FnOnce(&mut Writer) -> Result<T, Failure>) -> Result<T, Failure> {
        self.with(|state| match state {
            State::Idle(writer) => f(writer),
            State::Filling(_) => Err(busy()),
            State::Reading(..) | State::Viewing(..) => Err(wrong_way()),
            State::Gone => Err(self.closed()),
        })
    }

    /// Runs a call with a reader.
    pub fn reading<T>(
        &self,
        f: impl FnOnce(&mut Reader, &mut Memory) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with(|state| match state {
            State::Reading(reader, memory) => f(reader, memory),
            State::Viewing(..) => Err(viewing()),
            State::Idle(_) | State::Filling(_) => Err(writes()),
            State::Gone => Err(self.closed()),
        })
    }

    /// Ends the port, after the calls of other threads.
    fn end(&self, end: impl FnOnce(State) -> Result<(), Failure>) -> Result<(), Failure> {
        self.guard.end(|| {
            let mut state = lock(&self.state);
            crate::write::drop_step(&mut state);
            crate::view::give_back(&mut state);
            end(std::mem::replace(&mut state, State::Gone))
        })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // The last handle has gone, and so has everybody who used it: of a port that was closed nothing is left.
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        quiet(|| *state = State::Gone);
    }
}

/// An error of a port that reads where one is to write.
pub fn wrong_way() -> Failure {
    Failure::misuse("the port reads; this is for one that writes")
}

/// An error of a port that writes where one is to read.
pub fn writes() -> Failure {
    Failure::misuse("the port writes; this is for one that reads")
}

/// An error of a port whose step has not ended.
pub fn busy() -> Failure {
    Failure::misuse("the port has a step open: end or cancel it first")
}

/// An error of a port whose step has not been given back.
pub fn viewing() -> Failure {
    Failure::misuse("the port looks at a step where it lies: give that back first, by polyduct_view_end")
}

/// Closes for good. What cannot be completed now is given up: to drop it would be to wait once more.
fn close(state: State) -> Result<(), Failure> {
    let closed = match state {
        State::Idle(mut writer) => {
            let closed = writer.close().map(drop);
            if closed.is_err() {
                writer.abort();
            }
            closed
        }
        // That it failed before was said before.
        State::Reading(mut reader, _) => {
            drop(reader.close());
            Ok(())
        }
        State::Filling(_) | State::Viewing(..) | State::Gone => Ok(()),
    };
    Ok(closed?)
}

fn abort(state: State, reason: &str) {
    match state {
        State::Idle(mut writer) => writer.abort_because(reason),
        State::Reading(mut reader, _) => reader.abort_because(reason),
        State::Filling(_) | State::Viewing(..) | State::Gone => {}
    }
}

/// A port of whatever `open` opens, as a handle.
pub unsafe fn give(
    to: *mut Handle,
    url: &str,
    guard: Guard,
    place_of: JobUnit,
    open: impl FnOnce() -> Result<State, Error>,
) -> Done {
    let to = place("port", to)?;
    let state = quiet(|| guard.run(|| Ok(open()?)))?;
    let handle = handle::give(Arc::new(Port::new(guard, url, place_of, state)))?;
    // SAFETY: a place of the caller's.
    unsafe { to.write(handle) };
    Ok(Code::OK)
}

/// What errors and jobs call a URL.
pub fn real_url(url: &str, variable: &str) -> String {
    match url {
        "-" => std::env::var(variable).unwrap_or_else(|_| url.to_owned()),
        url => url.to_owned(),
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_open_write(
    port: *mut Handle,
    url: *const c_char,
    elem: c_int,
    ndim: c_int,
    sizes: *const i64,
    layout: *const c_char,
    given: *const Options,
) -> c_int {
    call(|| {
        let guard = Guard::new("port");
        // SAFETY: what the header asks of callers, here and below.
        unsafe {
            let url = text("url", url)?;
            let layout = maybe_text("layout", layout)?;
            let dataset = types::dataset(&shape("shape", ndim, sizes)?, elem)?;
            let (open, place, _) = options::open(url, given, &guard)?;
            let layout = layout_of(layout, &place)?;
            let url = real_url(url, polyduct::Mode::Write.variable());
            give(port, &url, guard, place, || Ok(State::Idle(Box::new(open.write(&dataset, layout)?))))
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_open_read(
    port: *mut Handle,
    url: *const c_char,
    layout: *const c_char,
    given: *const Options,
) -> c_int {
    call(|| {
        let guard = Guard::new("port");
        // SAFETY: what the header asks of callers, here and below.
        unsafe {
            let url = text("url", url)?;
            let layout = maybe_text("layout", layout)?;
            let (open, place, expected) = options::open(url, given, &guard)?;
            let (layout, open) = (layout_of(layout, &place)?, expected.of(open)?);
            let url = real_url(url, polyduct::Mode::Read.variable());
            let read = || Ok(State::Reading(Box::new(open.read(layout)?), Memory::default()));
            give(port, &url, guard, place, read)
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_unit(port: Handle, unit: *mut i32, units: *mut i32) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: NULL, or numbers of the caller's.
        unsafe {
            put(unit, port.place.unit as i32);
            put(units, port.place.units as i32);
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_set_timeout(port: Handle, timeout: f64) -> c_int {
    call(|| handle::get::<Port>(port)?.guard.set_limit(timeout).map(|()| Code::OK))
}

/// Counters, as the header has them.
#[repr(C)]
pub struct Stats {
    struct_size: usize,
    steps: i64,
    dropped: i64,
    bytes: i64,
    runs: i64,
    waited: f64,
    copied: f64,
    opened: f64,
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_port_stats(port: Handle, stats: *mut Stats) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        let counted: Counted = port.with(|state| match state {
            State::Idle(writer) => Ok(writer.stats()),
            State::Reading(reader, _) => Ok(reader.stats()),
            State::Filling(_) => Err(busy()),
            State::Viewing(..) => Err(viewing()),
            State::Gone => Err(port.closed()),
        })?;
        let found = Stats {
            struct_size: 0,
            steps: counted.steps as i64,
            dropped: counted.dropped as i64,
            bytes: counted.bytes as i64,
            runs: counted.runs as i64,
            waited: counted.waited.as_secs_f64(),
            copied: counted.copied.as_secs_f64(),
            opened: counted.opened.as_secs_f64(),
        };
        // SAFETY: a structure of the caller's that says its size.
        unsafe { fill("stats", stats, found) }?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_close(port: Handle) -> c_int {
    call(|| {
        let port = handle::take::<Port>(port)?;
        quiet(|| port.end(close))?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_abort(port: Handle, reason: *const c_char) -> c_int {
    call(|| {
        // SAFETY: text of the caller's.
        let reason = unsafe { maybe_text("reason", reason) }?.unwrap_or_default();
        let port = handle::take::<Port>(port)?;
        quiet(|| {
            port.end(|state| {
                abort(state, reason);
                Ok(())
            })
        })?;
        Ok(Code::OK)
    })
}
