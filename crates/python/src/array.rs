//! One look at an array of NumPy, and arrays made in one go: what messages and steps of a few bytes have time
//! for.
//!
//! Only the common case is here: an array itself (of no subclass), its elements of one of NumPy's own types
//! in this machine's order, stored without gaps. For everything else there is Python.

use crate::domain::Bytes;
use numpy::npyffi::{
    get_type_object, npy_intp, NpyTypes, PyArrayObject, PyArray_CheckExact, NPY_ARRAY_ALIGNED,
    NPY_ARRAY_CARRAY, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_F_CONTIGUOUS, NPY_ARRAY_WRITEABLE, PY_ARRAY_API,
};
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};

/// A type of elements, by its number in messages (`polyduct._encode` has their names).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elem(u8);

/// NumPy's number of each type, from 1, and its bytes.
const ELEMS: [(c_int, usize); 14] = [
    (0, 1),
    (1, 1),
    (3, 2),
    (5, 4),
    (7, 8),
    (2, 1),
    (4, 2),
    (6, 4),
    (8, 8),
    (23, 2),
    (11, 4),
    (12, 8),
    (14, 8),
    (15, 16),
];
/// `long long`, which has the size of `long`, signed and not.
const LONG_LONG: [(c_int, u8); 2] = [(9, 5), (10, 9)];

impl Elem {
    /// Bytes.
    pub const BYTE: Elem = Elem(6);

    /// The type with a number in messages.
    pub fn from_number(number: u32) -> Option<Elem> {
        u8::try_from(number).ok().filter(|n| (1..=ELEMS.len()).contains(&usize::from(*n))).map(Elem)
    }

    pub fn number(self) -> u32 {
        self.0.into()
    }

    /// Bytes of an element.
    pub fn len(self) -> usize {
        ELEMS[usize::from(self.0 - 1)].1
    }

    fn of_numpy(type_num: c_int) -> Option<Elem> {
        let longest = LONG_LONG.iter().find(|(n, _)| *n == type_num).map(|&(_, elem)| elem);
        let at = || ELEMS.iter().position(|&(n, _)| n == type_num).map(|at| at as u8 + 1);
        longest.or_else(at).map(Elem)
    }

    fn to_numpy(self) -> c_int {
        ELEMS[usize::from(self.0 - 1)].0
    }
}

/// An array as it lies, for as long as the interpreter is held and nothing of Python runs.
pub struct Look<'a> {
    pub elem: Elem,
    pub shape: &'a [npy_intp],
    /// Stored in Fortran's order, and not in C's.
    pub is_fortran: bool,
    pub is_writeable: bool,
    data: *mut u8,
    len: usize,
}

impl<'a> Look<'a> {
    /// `None`: it is something else, or not stored without gaps.
    pub fn at(what: &'a Bound<'_, PyAny>) -> Option<Look<'a>> {
        let (py, at) = (what.py(), what.as_ptr());
        // SAFETY: the interpreter is held, and `what` keeps the object. Its type says that it is an array,
        // whose fields NumPy keeps valid: `nd` extents, and a dtype. They are copied, but for the extents:
        // those stay while nothing of Python runs, as this type's users see to.
        unsafe {
            if PyArray_CheckExact(py, at) == 0 {
                return None;
            }
            let fields = &(*at.cast::<PyArrayObject>()).fields;
            let descr = &(*fields.descr).fields;
            let elem = Elem::of_numpy(descr.type_num)?;
            if !matches!(descr.byteorder as u8, b'=' | b'|') {
                return None;
            }
            let flags = fields.flags;
            let is_fortran = match flags & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS) {
                0 => return None,
                NPY_ARRAY_F_CONTIGUOUS => true,
                _ => false,
            };
            let shape = match fields.nd {
                0 => &[][..],
                nd => std::slice::from_raw_parts(fields.dimensions, usize::try_from(nd).ok()?),
            };
            let len =
                shape.iter().try_fold(elem.len(), |len, &n| len.checked_mul(usize::try_from(n).ok()?))?;
            let is_writeable = flags & NPY_ARRAY_WRITEABLE != 0;
            Some(Look { elem, shape, is_fortran, is_writeable, data: fields.data.cast(), len })
        }
    }

    /// Its bytes, as they lie.
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: an array without gaps holds `len` bytes from `data` on. The thread that looks holds the
        // interpreter, and lets go of the slice before it does of that. Another thread may write to an array
        // without the interpreter, as with any call of NumPy: then the bytes are of before or after, and
        // every value is valid.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// Bytes of the array.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its bytes, to be written.
    ///
    /// # Safety
    /// The array is writeable, and the interpreter is held as long as the slice lives, which is the only one.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }

    /// Copies bytes into it, if they are as many and it may be written.
    pub fn fill(&self, bytes: &[u8]) -> bool {
        let fits = self.is_writeable && bytes.len() == self.len;
        if fits {
            // SAFETY: as above; `bytes` lie elsewhere, since they are Rust's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data, self.len) }
        }
        fits
    }

    /// Copies another array of the same elements, shape and order into it, if it may be written. `false`: it
    /// is another one.
    pub fn copy_from(&self, from: &Look<'_>) -> bool {
        // What has one dimension, or none, has no order.
        let same_order = self.shape.len() < 2 || self.is_fortran == from.is_fortran;
        let fits = self.is_writeable && self.elem == from.elem && self.shape == from.shape && same_order;
        if fits {
            // SAFETY: both hold `len` bytes, since they have the same elements and shape, and these may be
            // written. Where they overlap, `copy` minds that. Other processes may write there, too: every
            // value is valid.
            unsafe { std::ptr::copy(from.data, self.data, self.len) }
        }
        fits
    }

    /// Its bytes as elements of another type.
    ///
    /// # Safety
    /// It has as many bytes as the elements, aligned for them, and `of` is the array itself.
    pub unsafe fn as_elems<'py>(
        &self,
        elem: Elem,
        shape: &[npy_intp],
        is_fortran: bool,
        of: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: as the caller promises; the new array keeps `of`.
        unsafe { over(of.py(), elem, shape, flags_of(is_fortran), self.data, of) }
    }

    /// Its bytes as an array.
    pub fn flat<'py>(&self, of: &Bound<'py, PyAny>) -> PyResult<Bytes<'py>> {
        let py = of.py();
        let len = [self.len as npy_intp];
        let flags =
            if self.is_writeable { NPY_ARRAY_CARRAY } else { NPY_ARRAY_CARRAY & !NPY_ARRAY_WRITEABLE };
        // SAFETY: they are the bytes of `of`, which the new array keeps.
        let flat = unsafe { over(py, Elem::BYTE, &len, flags, self.data, of.clone()) }?;
        Ok(flat.cast_into()?)
    }
}

/// Makes an array read-only.
pub fn freeze(array: &Bound<'_, PyAny>) {
    // SAFETY: the interpreter is held, and it is an array, whose flags NumPy itself changes so.
    unsafe {
        if PyArray_CheckExact(array.py(), array.as_ptr()) != 0 {
            (*array.as_ptr().cast::<PyArrayObject>()).fields.flags &= !NPY_ARRAY_WRITEABLE;
        }
    }
}

/// A new array of these bytes, as many as there are elements.
pub fn copied<'py>(
    py: Python<'py>,
    elem: Elem,
    shape: &[npy_intp],
    is_fortran: bool,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let flags = if is_fortran { NPY_ARRAY_F_CONTIGUOUS } else { 0 };
    // SAFETY: without data NumPy takes memory for the array, of which it says where it lies; it holds as many
    // bytes as asked for.
    unsafe {
        let array = make(py, elem, shape, flags, std::ptr::null_mut())?;
        let fields = &(*array.as_ptr().cast::<PyArrayObject>()).fields;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), fields.data.cast(), bytes.len());
        Ok(array)
    }
}

/// An array over memory that `keeper` keeps where it is.
///
/// # Safety
/// There are as many bytes from `data` on as the array has, aligned for its elements, and they stay there
/// while `keeper` lives; no reference of Rust's is made to them meanwhile. Where `flags` let NumPy write
/// there, they may be written.
pub unsafe fn over<'py>(
    py: Python<'py>,
    elem: Elem,
    shape: &[npy_intp],
    flags: c_int,
    data: *mut u8,
    keeper: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: as the caller promises. The call takes the reference to `keeper`, however it ends.
    unsafe {
        let array = make(py, elem, shape, flags, data.cast())?;
        match PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), keeper.into_ptr()) {
            0 => Ok(array),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

/// Flags for memory of this kind of order that may be written.
pub fn flags_of(is_fortran: bool) -> c_int {
    let order = if is_fortran { NPY_ARRAY_F_CONTIGUOUS } else { NPY_ARRAY_C_CONTIGUOUS };
    order | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE
}

/// # Safety
/// As [`over`], with the memory there for as long as the array.
unsafe fn make<'py>(
    py: Python<'py>,
    elem: Elem,
    shape: &[npy_intp],
    flags: c_int,
    data: *mut c_void,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: NumPy copies the extents, `shape.len()` of them, and does not change them; without strides it
    // finds them by the flags. It gives a new reference, or NULL and an exception.
    unsafe {
        let array = PY_ARRAY_API.PyArray_New(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            shape.len() as c_int,
            shape.as_ptr().cast_mut(),
            elem.to_numpy(),
            std::ptr::null_mut(),
            data,
            0,
            flags,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    }
}
