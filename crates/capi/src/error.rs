//! The last error of each thread.

use crate::code::{self, Code};
use polyduct::class::Value;
use polyduct::layout::LayoutError;
use polyduct::message::MessageError;
use polyduct::store::disk::StoreError;
use polyduct::{Error, PortError};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, CStr, CString};

/// Why a call has no result.
#[derive(Debug)]
pub enum Failure {
    /// What the façade says.
    Polyduct(Error),
    /// What no error of the façade stands behind.
    Own(Code, String, Vec<(&'static str, Value)>),
}

impl Failure {
    /// The caller asked for something that cannot be.
    pub fn misuse(text: impl Into<String>) -> Failure {
        Failure::Own(Code::MISUSE, text.into(), Vec::new())
    }

    /// An option or an argument has a value that it cannot have.
    pub fn option(option: &str, text: String) -> Failure {
        Failure::Own(Code::BAD_OPTION, text, vec![("option", Value::Text(option.to_owned()))])
    }
}

macro_rules! from {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Failure {
            fn from(e: $kind) -> Failure {
                Failure::Polyduct(e.into())
            }
        })*
    };
}

from!(Error, LayoutError, MessageError, PortError, StoreError);

struct Last {
    code: Code,
    text: CString,
    attributes: Vec<(CString, Value, CString)>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Text for C: what is behind a zero byte would not be seen.
pub fn text(words: &str) -> CString {
    CString::new(words.replace('\0', "\u{fffd}")).unwrap_or_default()
}

fn written(value: &Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::Text(text) => text.clone(),
        Value::Seconds(s) => s.to_string(),
        Value::Ints(numbers) => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
    }
}

/// Keeps an error for who asks, and gives its code.
pub fn keep(failure: &Failure) -> Code {
    let (code, words, attributes) = match failure {
        Failure::Polyduct(e) => {
            let (class, attributes) = e.class();
            (code::of_class(class), e.to_string(), attributes)
        }
        Failure::Own(code, words, attributes) => (*code, words.clone(), attributes.clone()),
    };
    let attribute = |(name, value): (&str, Value)| {
        let shown = text(&written(&value));
        (text(name), value, shown)
    };
    let attributes = attributes.into_iter().map(attribute).collect();
    LAST.set(Some(Last { code, text: text(&words), attributes }));
    code
}

fn last<T>(none: T, f: impl FnOnce(&Last) -> T) -> T {
    // Where a thread ends, its last error has ended before.
    let found = LAST.try_with(|last| last.borrow().as_ref().map(f));
    found.ok().flatten().unwrap_or(none)
}

/// The code of the thread's last error.
#[no_mangle]
pub extern "C" fn polyduct_error_code() -> c_int {
    last(Code::OK, |last| last.code).0
}

/// Its text.
#[no_mangle]
pub extern "C" fn polyduct_error_text() -> *const c_char {
    last(c"".as_ptr(), |last| last.text.as_ptr())
}

fn found<T>(name: *const c_char, f: impl FnOnce(&Value, &CString) -> Option<T>) -> Option<T> {
    if name.is_null() {
        return None;
    }
    // SAFETY: text of the caller's, which ends with 0.
    let name = unsafe { CStr::from_ptr(name) };
    last(None, |last| {
        let (_, value, shown) = last.attributes.iter().find(|(found, ..)| **found == *name)?;
        f(value, shown)
    })
}

/// One of its attributes as text.
#[no_mangle]
pub unsafe extern "C" fn polyduct_error_attribute(name: *const c_char) -> *const c_char {
    found(name, |_, shown| Some(shown.as_ptr())).unwrap_or(std::ptr::null())
}

/// One of its attributes as a number.
#[no_mangle]
pub unsafe extern "C" fn polyduct_error_int(name: *const c_char, value: *mut i64) -> c_int {
    let number = found(name, |value, _| match value {
        Value::Int(n) => i64::try_from(*n).ok(),
        _ => None,
    });
    match number.filter(|_| !value.is_null()) {
        Some(number) => {
            // SAFETY: a number of the caller's, and not NULL.
            unsafe { value.write(number) };
            Code::OK.0
        }
        None => Code::MISUSE.0,
    }
}

/// The name of a code.
#[no_mangle]
pub extern "C" fn polyduct_code_name(code: c_int) -> *const c_char {
    code::name(code).as_ptr()
}

/// Whether an error is one of a class.
#[no_mangle]
pub extern "C" fn polyduct_code_is(code: c_int, of: c_int) -> c_int {
    code::is(code, of).into()
}
