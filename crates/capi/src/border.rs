//! The one way in and out: panics end here.

use crate::code::Code;
use crate::error::{keep, Failure};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

/// What a call gives.
pub type Done = Result<Code, Failure>;

thread_local! {
    /// How many calls this thread is inside of: a callback may call again.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    /// Where the last panic of this thread was.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Has panics inside of calls keep their place and print nothing; others are as before. This is the hook of the
/// library's own copy of Rust's standard library, and of nothing else in the program.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            let inside = INSIDE.try_with(Cell::get).unwrap_or(0) > 0;
            match inside {
                true => {
                    let place = panic.location().map(ToString::to_string).unwrap_or_default();
                    let _ = PLACE.try_with(|kept| *kept.borrow_mut() = place);
                }
                false => others(panic),
            }
        }));
    });
}

/// Runs a call of C's, and gives its code. An error is kept for the thread.
pub fn call(f: impl FnOnce() -> Done) -> c_int {
    hush();
    INSIDE.set(INSIDE.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(f));
    INSIDE.set(INSIDE.get() - 1);
    let done = done.unwrap_or_else(|cause| Err(internal(&*cause)));
    done.unwrap_or_else(|failure| keep(&failure)).0
}

fn internal(cause: &(dyn Any + Send)) -> Failure {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words");
    let place = PLACE.with_borrow(Clone::clone);
    Failure::Own(Code::INTERNAL, format!("a fault of the library: {text}, at {place}"), Vec::new())
}

/// The version of the library.
#[no_mangle]
pub extern "C" fn polyduct_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version of the interface.
#[no_mangle]
pub extern "C" fn polyduct_abi() -> c_int {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{polyduct_error_code, polyduct_error_text};
    use std::ffi::CStr;

    #[test]
    fn a_panic_is_a_code_with_words() {
        assert_eq!(call(|| panic!("no {}", "way")), Code::INTERNAL.0);
        // SAFETY: the text is this thread's, and no other error comes between.
        let text = unsafe { CStr::from_ptr(polyduct_error_text()) }.to_str().unwrap();
        assert!(text.contains("no way, at crates/capi/src/border.rs:"), "{text}");
        assert_eq!(call(|| Ok(Code::END)), 1);
        assert_eq!(polyduct_error_code(), Code::INTERNAL.0, "what succeeds leaves the last error");
    }
}
