//! Messages that have come, and arrays as messages: bytes, and [two words](polyduct::words) that say what they are.

use crate::args::{bytes, check_fill, fill, shape};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use crate::handle::{self, Handle};
use crate::types;
use polyduct::layout::{ElemType, MAX_DIMS};
use polyduct::message::domain::{Parcel, WeakDomain};
use polyduct::words::{words, Said, COLUMN_MAJOR, TEXT};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Payloads from so many bytes on go back to the domain when their message goes: fresh memory is slow.
const GIVEN_BACK: usize = 4096;

/// The memory of a message that has come.
pub struct Message {
    payload: Vec<u8>,
    domain: Option<WeakDomain>,
}

impl Message {
    /// One that came in a domain, which gets its memory back.
    pub fn of(payload: Vec<u8>, domain: Option<WeakDomain>) -> Message {
        Message { payload, domain }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let payload = std::mem::take(&mut self.payload);
        if payload.len() >= GIVEN_BACK {
            if let Some(domain) = self.domain.take().and_then(|domain| domain.upgrade()) {
                domain.give_back(payload);
            }
        }
    }
}

/// A message, as the header has it.
#[repr(C)]
pub struct Mail {
    struct_size: usize,
    from: i32,
    tag: u32,
    elem: i32,
    ndim: i32,
    shape: [i64; MAX_DIMS],
    column_major: i32,
    reserved: i32,
    data: *const c_void,
    len: usize,
    owner: Handle,
}

impl Mail {
    /// One that lies in somebody else's memory.
    pub fn lent(from: u32, tag: u32, words: [u32; 2], payload: &[u8]) -> Mail {
        let size = |elem| types::elem(elem as c_int).and_then(|elem| usize::try_from(elem.len_bytes()).ok());
        let said = Said::of(words, payload.len(), size).filter(|said| said.shape().len() <= MAX_DIMS);
        let said = said.unwrap_or_default();
        let mut shape = [0; MAX_DIMS];
        shape.iter_mut().zip(said.shape()).for_each(|(to, &n)| *to = n as i64);
        Mail {
            struct_size: size_of::<Mail>(),
            from: from as i32,
            tag,
            elem: said.elem as i32,
            ndim: said.shape().len() as i32,
            shape,
            column_major: said.column_major.into(),
            reserved: 0,
            data: payload.as_ptr().cast(),
            len: payload.len(),
            owner: 0,
        }
    }
}

/// Whether there is room for a message: before one is waited for.
///
/// # Safety
/// As [`check_fill`].
pub unsafe fn check(mail: *mut Mail) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    unsafe { check_fill("mail", mail) }
}

/// Gives a message to the caller, who frees it.
///
/// # Safety
/// As [`check`], which it has passed.
pub unsafe fn give(
    mail: *mut Mail,
    (from, tag): (u32, u32),
    Parcel { words, payload }: Parcel,
    domain: WeakDomain,
) -> Result<Code, Failure> {
    let mut found = Mail::lent(from, tag, words, &payload);
    // The memory of a vector stays where it is.
    found.owner = handle::give(Arc::new(Message::of(payload, Some(domain))))?;
    // SAFETY: as the caller promises.
    unsafe { fill("mail", mail, found) }?;
    Ok(Code::OK)
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_mail_free(mail: *mut Mail) -> c_int {
    call(|| {
        // SAFETY: a structure of the caller's that says its size.
        unsafe {
            check(mail)?;
            let owner = std::mem::take(&mut (*mail).owner);
            ((*mail).data, (*mail).len) = (std::ptr::null(), 0);
            match owner {
                0 => Ok(Code::OK),
                owner => handle::take::<Message>(owner).map(|_| Code::OK),
            }
        }
    })
}

/// What NumPy calls a type.
fn descr(elem: ElemType) -> Option<&'static str> {
    Some(match elem {
        ElemType::Bool => "|b1",
        ElemType::I8 => "|i1",
        ElemType::U8 => "|u1",
        ElemType::I16 => "<i2",
        ElemType::I32 => "<i4",
        ElemType::I64 => "<i8",
        ElemType::U16 => "<u2",
        ElemType::U32 => "<u4",
        ElemType::U64 => "<u8",
        ElemType::F16 => "<f2",
        ElemType::F32 => "<f4",
        ElemType::F64 => "<f8",
        ElemType::C64 => "<c8",
        ElemType::C128 => "<c16",
        ElemType::Bf16 | ElemType::Bytes(_) => return None,
    })
}

/// An array of the caller's as a message.
///
/// # Safety
/// There are as many sizes as dimensions, and as many bytes as they say.
pub unsafe fn parcel(
    number: c_int,
    ndim: c_int,
    sizes: *const i64,
    column_major: bool,
    data: *const c_void,
) -> Result<Parcel, Failure> {
    let elem = types::expect(number)?;
    // SAFETY: as the caller promises.
    let sizes = unsafe { shape("shape", ndim, sizes) }?;
    let len = types::dataset(&sizes, number)?.len_bytes() as usize;
    // SAFETY: as the caller promises.
    let mut payload = unsafe { bytes("data", data.cast(), len) }?.to_vec();
    // One dimension, or none, has no order.
    let column_major = column_major && sizes.len() > 1;
    let number = u32::try_from(number).ok().filter(|&number| number < TEXT);
    let dims: Vec<isize> = sizes.iter().map(|&n| n as isize).collect();
    if let Some(words) = number.and_then(|number| words(number, &dims, column_major)) {
        return Ok(Parcel { words, payload });
    }
    let Some(descr) = descr(elem) else {
        let text = format!("an array of {elem} in shape {sizes:?} has no form as a message; send its bytes");
        return Err(Failure::misuse(text));
    };
    let mut stored = sizes;
    if column_major {
        stored.reverse();
    }
    let text = format!("[\"{descr}\", {stored:?}]");
    payload.extend_from_slice(text.as_bytes());
    payload.extend_from_slice(&(text.len() as u32).to_le_bytes());
    let order = if column_major { COLUMN_MAJOR } else { 0 };
    Ok(Parcel { words: [TEXT | order, 0], payload })
}
