//! Messages that have come, and arrays as messages: bytes, and two words that say what they are.
//!
//! | words | the bytes are |
//! |---|---|
//! | 0, 0 | plain bytes |
//! | bits 0-7 of the first: 1-15, a type as `enum polyduct_type` numbers it | an array's elements; bits 8-11 number of dimensions, bit 12 order F; all but the first dimension (the last, in order F) share the other 48 bits in equal parts |
//! | bits 0-7 of the first: 255 | elements (bit 12 as above), then JSON, `[dtype, shape]`, and its length in four bytes |
//!
//! Python's `_encode` has the same table.

use crate::args::{bytes, check_fill, fill, shape};
use crate::border::call;
use crate::code::Code;
use crate::error::Failure;
use crate::handle::{self, Handle};
use crate::types;
use polyduct::layout::{ElemType, MAX_DIMS};
use polyduct::message::domain::{Parcel, WeakDomain};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

const COLUMN_MAJOR: u32 = 1 << 12;
const TEXT: u32 = 255;
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
        let said = said(words, payload.len()).unwrap_or_default();
        Mail {
            struct_size: size_of::<Mail>(),
            from: from as i32,
            tag,
            elem: said.elem as i32,
            ndim: said.ndim as i32,
            shape: said.shape,
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

/// What a message of an array says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    elem: u32,
    ndim: usize,
    shape: [i64; MAX_DIMS],
    column_major: bool,
}

fn bits(ndim: usize) -> u32 {
    48 / ndim.saturating_sub(1).max(1) as u32
}

/// `None` for plain bytes, for what only Python can say, and where the words make no sense.
fn said([first, second]: [u32; 2], len: usize) -> Option<Said> {
    let elem = first & 0xff;
    let mut size = types::elem(elem as c_int).filter(|_| (1..TEXT).contains(&elem))?.len_bytes();
    let (ndim, column_major) = ((first >> 8 & 15) as usize, first & COLUMN_MAJOR != 0);
    let mut shape = [0; MAX_DIMS];
    if ndim > MAX_DIMS {
        return None;
    }
    let (mut packed, each) = (u64::from(first >> 16) << 32 | u64::from(second), bits(ndim));
    for dim in shape[..ndim].iter_mut().skip(1).rev() {
        let n = packed & ((1 << each) - 1);
        packed >>= each;
        *dim = n as i64;
        size = size.checked_mul(n)?;
    }
    if size == 0 || !(len as u64).is_multiple_of(size) || ndim == 0 && len as u64 != size {
        return None;
    }
    if let Some(dim) = shape[..ndim].first_mut() {
        *dim = (len as u64 / size) as i64;
    }
    if column_major {
        shape[..ndim].reverse();
    }
    Some(Said { elem, ndim, shape, column_major })
}

/// The words of an array; `None` where they have no room for its shape.
fn words(elem: u32, shape: &[u64], column_major: bool) -> Option<[u32; 2]> {
    let mut packed = 0_u64;
    let each = bits(shape.len());
    let mut pack = |&n: &u64| {
        // Nothing would tell the first dimension where another is 0.
        let fits = n > 0 && n >> each == 0;
        packed = packed << each | n;
        fits.then_some(())
    };
    match column_major {
        true => shape.iter().rev().skip(1).try_for_each(&mut pack)?,
        false => shape.iter().skip(1).try_for_each(&mut pack)?,
    }
    let order = if column_major { COLUMN_MAJOR } else { 0 };
    Some([elem | (shape.len() as u32) << 8 | order | ((packed >> 32) as u32) << 16, packed as u32])
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
    if let Some(words) = number.and_then(|number| words(number, &sizes, column_major)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_words_say_is_the_array() {
        for shape in [&[][..], &[5], &[0, 3], &[2, 3], &[4, 1, 7], &[1, 2, 3, 4, 5, 6, 7, 8]] {
            for column_major in [false, true] {
                let len = shape.iter().product::<u64>() as usize * 4;
                let Some(words) = words(11, shape, column_major) else {
                    // A first dimension of 0 is the last one in the other order.
                    assert!(column_major && shape == [0, 3]);
                    continue;
                };
                let said = said(words, len).unwrap();
                assert_eq!((said.elem, said.ndim, said.column_major), (11, shape.len(), column_major));
                assert!(said.shape.iter().zip(shape).all(|(&a, &b)| a as u64 == b), "{said:?}");
            }
        }
        assert_eq!((words(11, &[2, 0], false), words(11, &[2, 1 << 48], false)), (None, None));
        for nonsense in [[0, 0], [16, 0], [255, 0], [11 | 9 << 8, 0], [11 | 2 << 8, 0]] {
            assert_eq!(said(nonsense, 64), None, "{nonsense:?}");
        }
    }
}
