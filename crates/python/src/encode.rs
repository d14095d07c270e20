//! Arrays as messages, and back: the common ones here, all others by `polyduct._encode`. [`words`] says
//! what the words mean.

use crate::array::{self, Elem, Look};
use crate::bytes;
use crate::domain::Bytes;
use crate::received::payload_array;
use numpy::npyffi::npy_intp;
use polyduct::message::domain::WeakDomain;
use polyduct::words::{self, words};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};

/// Payloads up to this size are copied into an array of their own; longer ones are the array's memory.
const COPIED: usize = 4096;

/// A message to be sent, before anything of Python runs.
pub enum Given<'a, 'py> {
    /// Where it lies.
    Here([u32; 2], &'a [u8], Option<Look<'a>>),
    /// As Python has it: the array of bytes keeps what they lie in.
    Flat([u32; 2], Bytes<'py>),
}

/// What an object is as a message.
pub fn look<'a, 'py>(what: &'a Bound<'py, PyAny>) -> PyResult<Given<'a, 'py>> {
    if let Ok(given) = what.cast_exact::<PyBytes>() {
        return Ok(Given::Here([0; 2], given.as_bytes(), None));
    }
    if let Some(look) = Look::at(what) {
        if let Some(words) = words_of(&look) {
            return Ok(Given::Here(words, look.bytes(), Some(look)));
        }
    }
    let encode = what.py().import("polyduct._encode")?.getattr("encode")?;
    let (words, flat): ([u32; 2], Bytes<'py>) = encode.call1((what,))?.extract()?;
    Ok(Given::Flat(words, flat))
}

/// The bytes of an object: those of an array in C's order, without what it is.
pub fn bytes_of<'a, 'py>(what: &'a Bound<'py, PyAny>) -> PyResult<Given<'a, 'py>> {
    if let Ok(given) = what.cast_exact::<PyBytes>() {
        return Ok(Given::Here([0; 2], given.as_bytes(), None));
    }
    match Look::at(what).filter(|look| !look.is_fortran) {
        Some(look) => Ok(Given::Here([0; 2], look.bytes(), Some(look))),
        None => {
            let flat = what.py().import("polyduct._encode")?.call_method1("payload", (what,))?;
            Ok(Given::Flat([0; 2], flat.cast_into()?))
        }
    }
}

impl<'py> Given<'_, 'py> {
    pub fn words(&self) -> [u32; 2] {
        match self {
            Given::Here(words, ..) | Given::Flat(words, _) => *words,
        }
    }

    /// What is sent, where that can be had without a look at who else uses it: while the interpreter is held.
    pub fn here(&self) -> Option<&[u8]> {
        match self {
            Given::Here(_, payload, _) => Some(payload),
            Given::Flat(..) => None,
        }
    }

    /// Calls `f` with what is sent, which may let go of the interpreter: nobody else in Rust writes there
    /// meanwhile.
    pub fn with<T>(&self, what: &Bound<'py, PyAny>, f: impl FnOnce(&[u8]) -> PyResult<T>) -> PyResult<T> {
        let flat = match self {
            // The caller keeps the object, and its bytes never change.
            Given::Here(_, payload, None) => return f(payload),
            Given::Here(_, _, Some(look)) => &look.flat(what)?,
            Given::Flat(_, flat) => flat,
        };
        let payload = bytes::readable(flat)?;
        f(bytes::slice(&payload)?)
    }

    /// A copy of what is sent.
    pub fn to_vec(&self) -> PyResult<Vec<u8>> {
        match self {
            Given::Here(_, payload, _) => Ok(payload.to_vec()),
            Given::Flat(_, flat) => Ok(bytes::slice(&bytes::readable(flat)?)?.to_vec()),
        }
    }
}

/// The words of an array; `None` where they have no room for its shape.
fn words_of(look: &Look<'_>) -> Option<[u32; 2]> {
    words(look.elem.number(), look.shape, look.is_fortran)
}

/// What a message of a common array says: its elements, shape and order.
struct Said {
    elem: Elem,
    said: words::Said,
}

impl Said {
    /// `None` for everything else, and where the words make no sense.
    fn of(words: [u32; 2], len: usize) -> Option<Said> {
        let said = words::Said::of(words, len, |elem| Elem::from_number(elem).map(Elem::len))?;
        Some(Said { elem: Elem::from_number(said.elem)?, said })
    }

    fn shape(&self) -> &[npy_intp] {
        self.said.shape()
    }

    fn is_fortran(&self) -> bool {
        self.said.column_major
    }
}

/// What a message of `unit` is: bytes, or an array in its memory.
pub fn decode<'py>(
    py: Python<'py>,
    words: [u32; 2],
    payload: Vec<u8>,
    unit: u32,
    domain: impl FnOnce() -> Option<WeakDomain>,
) -> PyResult<Bound<'py, PyAny>> {
    if words == [0; 2] {
        return Ok(PyBytes::new(py, &payload).into_any());
    }
    let said = Said::of(words, payload.len());
    match &said {
        Some(said) if payload.len() <= COPIED => {
            return array::copied(py, said.elem, said.shape(), said.is_fortran(), &payload)
        }
        _ => {}
    }
    let flat = payload_array(py, payload, domain)?;
    match said.zip(Look::at(&flat)) {
        Some((said, look)) => {
            // SAFETY: `flat` has as many bytes as were said, in memory of Rust's, which is aligned for every
            // element.
            unsafe { look.as_elems(said.elem, said.shape(), said.is_fortran(), flat.clone().into_any()) }
        }
        None => py.import("polyduct._encode")?.call_method1("decode", (words_tuple(words), flat, unit)),
    }
}

/// The same of bytes that are somebody else's.
pub fn decode_copy<'py>(
    py: Python<'py>,
    words: [u32; 2],
    payload: &[u8],
    unit: u32,
) -> PyResult<Bound<'py, PyAny>> {
    if words == [0; 2] {
        return Ok(PyBytes::new(py, payload).into_any());
    }
    match Said::of(words, payload.len()) {
        Some(said) => array::copied(py, said.elem, said.shape(), said.is_fortran(), payload),
        None => decode(py, words, payload.to_vec(), unit, || None),
    }
}

fn words_tuple([first, second]: [u32; 2]) -> (u32, u32) {
    (first, second)
}

/// Fills `out` with what a message is, if it is just such an array, which is the common case.
pub fn fill(out: &Bound<'_, PyAny>, words: [u32; 2], payload: &[u8]) -> bool {
    let (Some(look), Some(said)) = (Look::at(out), Said::of(words, payload.len())) else { return false };
    let same = look.elem == said.elem && look.shape == said.shape();
    // What has one dimension, or none, has no order.
    same && (said.shape().len() < 2 || look.is_fortran == said.is_fortran()) && look.fill(payload)
}

/// The number of a unit, a tag, a word: an error that says `what` it was for where it is none.
pub fn number(what: &str, given: &Bound<'_, PyAny>) -> PyResult<u32> {
    if given.is_exact_instance_of::<PyInt>() {
        if let Ok(n) = given.extract() {
            return Ok(n);
        }
    }
    let py = given.py();
    py.import("polyduct._domain")?.call_method1("_number", (what, given))?.extract()
}

/// The same of what may be `None`: any.
pub fn maybe_number(what: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u32>> {
    given.map(|given| number(what, given)).transpose()
}
