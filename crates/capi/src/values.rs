//! Values of a step of a bundle: those that a writer says, and those that have come.

use crate::args::{bytes, place, text};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use crate::guard::lock;
use crate::handle::{self, Handle};
use crate::port::{wrong_way, Port, State};
use polyduct::values::{pack, unpack, Value};
use std::ffi::{c_char, c_int, c_void, CString};

/// Those of the step at hand.
#[derive(Default)]
pub struct Values {
    /// Of a writer: of the step to come.
    said: Vec<(String, Value)>,
    /// Of a reader: packed, and as they were looked at.
    packed: Vec<u8>,
    found: Option<Vec<(String, Value)>>,
    /// Text that was asked for, for as long as the step is.
    texts: Vec<CString>,
}

impl Values {
    /// A step was written: the next one has none yet.
    pub fn begin(&mut self) {
        self.said.clear();
    }

    /// A step was read with these.
    pub fn came(&mut self, packed: &[u8]) {
        self.packed.clear();
        self.packed.extend_from_slice(packed);
        self.found = None;
        self.texts.clear();
    }

    fn find(&mut self, name: &str) -> Result<&Value, Failure> {
        if self.found.is_none() {
            let bad =
                |e: polyduct::values::ValuesError| Failure::Own(Code::BAD_PEER, e.to_string(), Vec::new());
            self.found = Some(unpack(&self.packed).map_err(bad)?);
        }
        let found = self.found.iter().flatten().find(|(found, _)| found == name);
        let none = || Failure::misuse(format!("the step that was read last has no value {name:?}"));
        found.map(|(_, value)| value).ok_or_else(none)
    }
}

unsafe fn set(port: Handle, name: *const c_char, value: impl FnOnce() -> Result<Value, Failure>) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: text of the caller's.
        let name = unsafe { text("name", name) }?;
        let value = value()?;
        port.with(|state| {
            let mut values = lock(&port.values);
            let mut all = values.said.clone();
            all.retain(|(said, _)| said != name);
            all.push((name.to_owned(), value));
            let packed = pack(all.clone()).map_err(|e| Failure::misuse(e.to_string()))?;
            match state {
                State::Idle(writer) => writer.set_values(&packed)?,
                State::Filling(filling) => filling.with(|step| Ok(step.set_values(&packed)?))?,
                State::Reading(..) | State::Viewing(..) => return Err(wrong_way()),
                State::Gone => return Err(port.closed()),
            }
            values.said = all;
            Ok(Code::OK)
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_set_int(port: Handle, name: *const c_char, value: i64) -> c_int {
    // SAFETY: what the header asks of callers.
    unsafe { set(port, name, || Ok(value.into())) }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_set_real(port: Handle, name: *const c_char, value: f64) -> c_int {
    // SAFETY: what the header asks of callers.
    unsafe { set(port, name, || Ok(value.into())) }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_set_text(port: Handle, name: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: what the header asks of callers.
    unsafe { set(port, name, || Ok(text("text", value)?.into())) }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_set_bytes(
    port: Handle,
    name: *const c_char,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: what the header asks of callers.
    unsafe { set(port, name, || Ok(Value::Binary(bytes("bytes", value.cast(), len)?.to_vec()))) }
}

/// What `read` makes of a value of the step that was read last.
fn value_of<T>(
    values: &mut Values,
    name: &str,
    expected: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<T, Failure> {
    let found = values.find(name)?;
    read(found).ok_or_else(|| {
        let text = format!("the value {name:?} is {}; expected {expected}", kind(found));
        Failure::Own(Code::WRONG_TYPE, text, Vec::new())
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Boolean(_) => "a truth value",
        Value::Integer(_) => "an integer",
        Value::F32(_) | Value::F64(_) => "a real number",
        Value::String(_) => "text",
        Value::Binary(_) | Value::Ext(..) => "bytes",
        Value::Array(_) => "a list",
        Value::Map(_) => "a map",
    }
}

unsafe fn get<T>(
    port: Handle,
    name: *const c_char,
    to: *mut T,
    expected: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: text of the caller's.
        let name = unsafe { text("name", name) }?;
        let to = place("value", to)?;
        let value = value_of(&mut lock(&port.values), name, expected, read)?;
        // SAFETY: a place of the caller's.
        unsafe { to.write(value) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_get_int(port: Handle, name: *const c_char, value: *mut i64) -> c_int {
    let read = |value: &Value| value.as_i64().or(value.as_bool().map(i64::from));
    // SAFETY: what the header asks of callers.
    unsafe { get(port, name, value, "an integer of 64 bits", read) }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_get_real(port: Handle, name: *const c_char, value: *mut f64) -> c_int {
    // SAFETY: what the header asks of callers.
    unsafe { get(port, name, value, "a number", Value::as_f64) }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_get_text(
    port: Handle,
    name: *const c_char,
    value: *mut *const c_char,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: text of the caller's.
        let name = unsafe { text("name", name) }?;
        let to = place("text", value)?;
        let mut values = lock(&port.values);
        let found = value_of(&mut values, name, "text", |value| value.as_str().map(crate::error::text))?;
        values.texts.push(found);
        let kept = values.texts.last().map_or(std::ptr::null(), |text| text.as_ptr());
        // SAFETY: a place of the caller's. The text stays where it is when others come.
        unsafe { to.write(kept) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_get_bytes(
    port: Handle,
    name: *const c_char,
    value: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: text of the caller's.
        let name = unsafe { text("name", name) }?;
        let (to, len) = (place("bytes", value)?, place("len", len)?);
        let read = |value: &Value| value.as_slice().map(|bytes| (bytes.as_ptr(), bytes.len()));
        let (at, found) = value_of(&mut lock(&port.values), name, "bytes", read)?;
        // SAFETY: places of the caller's. The bytes stay where they are until the next step comes.
        unsafe {
            to.write(at.cast());
            len.write(found);
        }
        Ok(Code::OK)
    })
}
