//! What C gives, looked at: text, shapes, memory, structures, places for results.

use crate::error::Failure;
use polyduct::layout::MAX_DIMS;
use std::ffi::{c_char, c_int, CStr};
use std::time::Duration;

/// Text of the caller's, `None` for NULL.
///
/// # Safety
/// The text ends with 0, and stays as it is as long as it is used.
pub unsafe fn maybe_text<'a>(what: &str, text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|e| Failure::option(what, format!("{what} is no text in UTF-8: {e}")))
}

/// The same where there must be some.
///
/// # Safety
/// As [`maybe_text`].
pub unsafe fn text<'a>(what: &str, given: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: as the caller promises.
    unsafe { maybe_text(what, given) }?.ok_or_else(|| Failure::option(what, format!("{what} is NULL")))
}

/// So many numbers.
///
/// # Safety
/// There are as many, unless it is NULL, and they stay as they are as long as they are used.
pub unsafe fn numbers<'a, T>(what: &str, at: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(Failure::option(what, format!("{what} is NULL; expected {count} of them")));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// How many dimensions.
pub fn dims(what: &str, ndim: c_int) -> Result<usize, Failure> {
    let most = MAX_DIMS;
    let fits = usize::try_from(ndim).ok().filter(|&ndim| ndim <= most);
    fits.ok_or_else(|| Failure::option(what, format!("{what} has {ndim} dimensions; expected 0 to {most}")))
}

/// A shape or an index: so many numbers that are not negative.
///
/// # Safety
/// As [`numbers`].
pub unsafe fn shape(what: &str, ndim: c_int, at: *const i64) -> Result<Vec<u64>, Failure> {
    // SAFETY: as the caller promises.
    let given = unsafe { numbers(what, at, dims(what, ndim)?) }?;
    given.iter().map(|&n| natural(what, n)).collect()
}

/// A number that is not negative.
pub fn natural(what: &str, n: i64) -> Result<u64, Failure> {
    u64::try_from(n).map_err(|_| Failure::option(what, format!("{what} is {n}; expected 0 or more")))
}

/// A unit.
pub fn unit(what: &str, n: i32) -> Result<u32, Failure> {
    u32::try_from(n).map_err(|_| Failure::option(what, format!("{what} is {n}; expected 0 or more")))
}

/// Seconds; 0 is none.
pub fn seconds(what: &str, given: f64) -> Result<Option<Duration>, Failure> {
    let wrong = || Failure::option(what, format!("{what} is {given}; expected seconds from 0 to 1e9"));
    let limited = (0.0..=1e9).contains(&given).then(|| Duration::try_from_secs_f64(given).ok()).flatten();
    limited.map(|time| (!time.is_zero()).then_some(time)).ok_or_else(wrong)
}

/// Bytes to be read.
///
/// # Safety
/// There are as many, and nobody writes there as long as they are used.
pub unsafe fn bytes<'a>(what: &str, at: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::misuse(format!("{what} is NULL; expected {len} bytes"))),
        // SAFETY: as the caller promises.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, len) }),
    }
}

/// Bytes to be filled.
///
/// # Safety
/// There are as many, and nobody reads or writes there as long as they are used.
pub unsafe fn bytes_mut<'a>(what: &str, at: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::misuse(format!("{what} is NULL; expected {len} bytes"))),
        // SAFETY: as the caller promises.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(at, len) }),
    }
}

/// The parts of several arrays, to be read.
///
/// # Safety
/// As [`bytes`], of each; there are `count` pointers and lengths.
pub unsafe fn parts<'a>(
    count: usize,
    at: *const *const u8,
    lens: *const usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: as the caller promises.
    let (at, lens) = unsafe { (numbers("parts", at, count)?, numbers("lens", lens, count)?) };
    // SAFETY: as the caller promises.
    at.iter().zip(lens).map(|(&at, &len)| unsafe { bytes("a part", at, len) }).collect()
}

/// The same to be filled. None may share memory with another.
///
/// # Safety
/// As [`bytes_mut`], of each; there are `count` pointers and lengths.
pub unsafe fn parts_mut<'a>(
    count: usize,
    at: *const *mut u8,
    lens: *const usize,
) -> Result<Vec<&'a mut [u8]>, Failure> {
    // SAFETY: as the caller promises.
    let (at, lens) = unsafe { (numbers("parts", at, count)?, numbers("lens", lens, count)?) };
    let mut order: Vec<(usize, usize)> = at.iter().zip(lens).map(|(&at, &len)| (at as usize, len)).collect();
    order.retain(|(_, len)| *len > 0);
    order.sort_unstable();
    if order.windows(2).any(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0) {
        return Err(Failure::misuse("two parts to be filled share memory"));
    }
    // SAFETY: as the caller promises; they do not overlap, as was just seen.
    at.iter().zip(lens).map(|(&at, &len)| unsafe { bytes_mut("a part", at, len) }).collect()
}

/// A place for a result that the caller must give.
pub fn place<T>(what: &str, at: *mut T) -> Result<*mut T, Failure> {
    match at.is_null() {
        true => Err(Failure::misuse(format!("{what} is NULL; expected a place for the result"))),
        false => Ok(at),
    }
}

/// Writes a result, unless its place is NULL.
///
/// # Safety
/// The place is NULL or the caller's to be written.
pub unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: as the caller promises.
        unsafe { at.write(value) };
    }
}

/// A structure that begins with its size, as the caller was compiled with it: what lies behind that is 0.
///
/// # Safety
/// `T` may have any bytes; there are as many as the structure says, or it is NULL.
pub unsafe fn sized<T: Sized>(what: &str, at: *const T) -> Result<Option<T>, Failure> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: it begins with its size, as the caller promises.
    let given = unsafe { at.cast::<usize>().read() };
    let (least, most) = (size_of::<usize>(), 4096);
    if !(least..=most).contains(&given) {
        let text = format!("{what}: struct_size is {given}; expected sizeof, {}", size_of::<T>());
        return Err(Failure::option("struct_size", text));
    }
    let mut whole = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both have as many bytes, and do not overlap; zeros, and whatever bytes the caller has, are a `T`.
    unsafe {
        let len = given.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(at.cast::<u8>(), whole.as_mut_ptr().cast::<u8>(), len);
        Ok(Some(whole.assume_init()))
    }
}

/// Several of these, one behind the other by the size that the first one says.
///
/// # Safety
/// As [`sized`], of each.
pub unsafe fn several<T: Sized>(what: &str, at: *const T, count: usize) -> Result<Vec<T>, Failure> {
    let mut found = Vec::new();
    for n in 0..count {
        // SAFETY: the first has been looked at before, and so has its size.
        let step = if n == 0 { 0 } else { unsafe { at.cast::<usize>().read() } };
        // SAFETY: as the caller promises.
        let one = unsafe { sized(what, at.cast::<u8>().add(n * step).cast::<T>()) }?;
        found.push(one.ok_or_else(|| Failure::misuse(format!("{what} is NULL; expected {count} of them")))?);
    }
    Ok(found)
}

/// Fills a structure of the caller's that begins with its size: no more of it than there is.
///
/// # Safety
/// `T` has no padding that matters; there are as many bytes as the structure says.
pub unsafe fn fill<T: Sized>(what: &str, at: *mut T, mut value: T) -> Result<(), Failure> {
    place(what, at)?;
    // SAFETY: it begins with its size, as the caller promises.
    let given = unsafe { at.cast::<usize>().read() };
    if given < size_of::<usize>() || given > 4096 {
        let text = format!("{what}: struct_size is {given}; expected sizeof, {}", size_of::<T>());
        return Err(Failure::option("struct_size", text));
    }
    // SAFETY: both have as many bytes, and do not overlap; the first word is the size, which stays.
    unsafe {
        (&raw mut value).cast::<usize>().write(given);
        let len = given.min(size_of::<T>());
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast::<u8>(), len);
    }
    Ok(())
}

/// Whether what is to be filled says its size rightly: before anything is waited for.
///
/// # Safety
/// As [`fill`].
pub unsafe fn check_fill<T>(what: &str, at: *mut T) -> Result<(), Failure> {
    place(what, at)?;
    // SAFETY: it begins with its size, as the caller promises.
    match unsafe { at.cast::<usize>().read() } {
        8..=4096 => Ok(()),
        given => {
            let text = format!("{what}: struct_size is {given}; expected sizeof, {}", size_of::<T>());
            Err(Failure::option("struct_size", text))
        }
    }
}
