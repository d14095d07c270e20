//! Functions of the caller's that messages and calls of other units run.

use crate::args::{bytes, text};
use crate::border::call;
use crate::code::Code;
use crate::domain::Domain;
use crate::error::Failure;
use crate::guard::User;
use crate::handle::{self, Handle};
use crate::mail::{self, Mail};
use polyduct::message::domain::Parcel;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};

type Handler = unsafe extern "C" fn(*mut c_void, i32, *const u32, *const c_void, usize);
type Function = unsafe extern "C" fn(*mut c_void, *const Mail, *mut Reply) -> c_int;

/// The answer of a function, while it runs.
#[derive(Default)]
pub struct Reply {
    parcel: Parcel,
    error: Option<String>,
}

thread_local! {
    /// Those of the functions that this thread runs.
    static REPLIES: RefCell<Vec<*mut Reply>> = const { RefCell::new(Vec::new()) };
}

fn missing() -> Failure {
    Failure::misuse("the function is NULL; expected one that is run")
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_handle(
    domain: Handle,
    name: *const c_char,
    version: u32,
    handler: Option<Handler>,
    user: *mut c_void,
) -> c_int {
    call(|| {
        let (domain, handler, user) =
            (handle::get::<Domain>(domain)?, handler.ok_or_else(missing)?, User(user));
        // SAFETY: text of the caller's.
        let name = unsafe { text("name", name) }?;
        domain.run(|domain| {
            domain.handler(name, version, move |_, m| {
                let (args, payload) = (m.args.as_ptr(), m.payload.as_ptr().cast());
                // SAFETY: a function of the caller's, which is called as the header says.
                unsafe { handler(user.pointer(), m.from as i32, args, payload, m.payload.len()) }
            })
        })?;
        Ok(Code::OK)
    })
}

/// Runs a function of the caller's.
fn answer(
    function: Function,
    user: User,
    from: u32,
    words: [u32; 2],
    argument: &[u8],
) -> Result<Parcel, String> {
    let mut reply = Reply::default();
    let mail = Mail::lent(from, 0, words, argument);
    let at = &raw mut reply;
    REPLIES.with_borrow_mut(|replies| replies.push(at));
    // SAFETY: a function of the caller's, which is called as the header says.
    let code = unsafe { function(user.pointer(), &raw const mail, at) };
    REPLIES.with_borrow_mut(|replies| replies.pop());
    match (code, reply.error) {
        (0, None) => Ok(reply.parcel),
        (_, Some(words)) => Err(words),
        (code, None) => Err(format!("the function returned {code}")),
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_offer(
    domain: Handle,
    name: *const c_char,
    version: u32,
    function: Option<Function>,
    user: *mut c_void,
) -> c_int {
    call(|| {
        let (domain, function, user) =
            (handle::get::<Domain>(domain)?, function.ok_or_else(missing)?, User(user));
        // SAFETY: text of the caller's.
        let name = unsafe { text("name", name) }?;
        domain.run(|domain| {
            domain.function_of_parcels(name, version, move |context, words, argument| {
                answer(function, user, context.from(), words, argument)
            })
        })?;
        Ok(Code::OK)
    })
}

/// Calls `f` with the reply of the function that this thread runs.
fn with(reply: *mut Reply, f: impl FnOnce(&mut Reply) -> Result<(), Failure>) -> c_int {
    call(|| {
        let mine = REPLIES.with_borrow(|replies| replies.last() == Some(&reply));
        if !mine {
            return Err(Failure::misuse(
                "there is no such reply: it is for the function that runs, and its thread",
            ));
        }
        // SAFETY: it is in `answer` of this very thread, which does not look at it while the function runs.
        f(unsafe { &mut *reply })?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_reply_bytes(
    reply: *mut Reply,
    payload: *const c_void,
    len: usize,
) -> c_int {
    with(reply, |reply| {
        // SAFETY: memory of the caller's.
        reply.parcel = unsafe { bytes("bytes", payload.cast(), len) }?.to_vec().into();
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_reply_array(
    reply: *mut Reply,
    elem: c_int,
    ndim: c_int,
    sizes: *const i64,
    column_major: c_int,
    data: *const c_void,
) -> c_int {
    with(reply, |reply| {
        // SAFETY: numbers and memory of the caller's.
        reply.parcel = unsafe { mail::parcel(elem, ndim, sizes, column_major != 0, data) }?;
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_reply_error(reply: *mut Reply, words: *const c_char) -> c_int {
    with(reply, |reply| {
        // SAFETY: text of the caller's.
        reply.error = Some(unsafe { text("text", words) }?.to_owned());
        Ok(())
    })
}
