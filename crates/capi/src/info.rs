//! What the arrays of a port are.

use crate::args::{fill, place};
use crate::border::call;
use crate::code::Code;
use crate::error::{text, Failure};
use crate::handle::{self, Handle};
use crate::port::{Port, State};
use crate::types;
use polyduct::layout::{LayoutError, Mapping, MAX_DIMS};
use polyduct::{ArrayPart, Changes};
use std::ffi::{c_char, c_int, CString};

/// Names and layouts of arrays, as text for C that stays where it is.
#[derive(Default)]
pub struct Names {
    all: Vec<(CString, CString)>,
}

impl Names {
    /// Those of a port: of its arrays, or of the one that has no name.
    pub fn new(arrays: &[ArrayPart], only: &Mapping) -> Names {
        let of = |name: &str, mapping: &Mapping| (text(name), text(&mapping.layout().to_string()));
        let all = match arrays {
            [] => vec![of("", only)],
            arrays => arrays.iter().map(|part| of(&part.name, &part.mapping)).collect(),
        };
        Names { all }
    }

    /// Those that are given.
    pub fn of(all: Vec<(CString, CString)>) -> Names {
        Names { all }
    }

    /// How many arrays there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Those of one array.
    pub fn get(&self, index: usize) -> Result<&(CString, CString), Failure> {
        let most = self.all.len();
        let wrong = || Failure::misuse(format!("there is no array {index}; there are {most}"));
        self.all.get(index).ok_or_else(wrong)
    }
}

/// What an array of a port is, as the header has it.
#[repr(C)]
pub struct Part {
    pub struct_size: usize,
    pub name: *const c_char,
    pub layout: *const c_char,
    pub elem: i32,
    pub ndim: i32,
    pub shape: [i64; MAX_DIMS],
    pub local_ndim: i32,
    pub changes: i32,
    pub local_shape: [i64; MAX_DIMS],
    pub local_strides: [i64; MAX_DIMS],
    pub lo: [i64; MAX_DIMS],
    pub hi: [i64; MAX_DIMS],
    pub offset: usize,
    pub len: usize,
    pub open_dim: i32,
}

/// So many numbers, and zeros.
pub fn row(numbers: &[u64]) -> [i64; MAX_DIMS] {
    let mut row = [0; MAX_DIMS];
    row.iter_mut().zip(numbers).for_each(|(to, &n)| *to = n as i64);
    row
}

/// How a size changes, as the header numbers it, and the open dimension.
pub fn changes(of: Option<Changes>) -> (i32, i32) {
    match of {
        None => (0, -1),
        Some(Changes::Dim(dim)) => (1, dim as i32),
        Some(Changes::Whole) => (2, -1),
        Some(Changes::Never) => (3, -1),
    }
}

impl Part {
    /// What is known of an array wherever it is.
    pub fn of(names: &(CString, CString), shape: &[u64], elem: c_int, open: Option<Changes>) -> Part {
        let (changes, open_dim) = changes(open);
        Part {
            struct_size: 0,
            name: names.0.as_ptr(),
            layout: names.1.as_ptr(),
            elem,
            ndim: shape.len() as i32,
            shape: row(shape),
            local_ndim: 0,
            changes,
            local_shape: [0; MAX_DIMS],
            local_strides: [0; MAX_DIMS],
            lo: [0; MAX_DIMS],
            hi: [0; MAX_DIMS],
            offset: 0,
            len: 0,
            open_dim,
        }
    }

    fn of_unit(mut self, mapping: &Mapping, unit: u32, at: std::ops::Range<usize>) -> Result<Part, Failure> {
        let local = mapping.local_shape(unit.into())?;
        (self.local_ndim, self.local_shape) = (local.len() as i32, row(local.as_slice()));
        match mapping.local_strides(unit.into()) {
            Ok(strides) => self.local_strides = row(strides.as_slice()),
            Err(LayoutError::NoStrides { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        // Of layouts that deal elements round a unit may have any number.
        if mapping.boxes_iter(unit.into())?.take(2).count() == 1 {
            if let [only] = &mapping.boxes_with_halo(unit.into())?[..] {
                (self.lo, self.hi) = (row(only.lo.as_slice()), row(only.hi.as_slice()));
            }
        }
        (self.offset, self.len) = (at.start, at.len());
        Ok(self)
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_count(port: Handle, count: *mut usize) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        // SAFETY: a number of the caller's.
        unsafe { place("count", count)?.write(port.names.len()) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_info(port: Handle, index: usize, part: *mut Part) -> c_int {
    call(|| {
        let port = handle::get::<Port>(port)?;
        let names = port.names.get(index)?;
        let unit = port.place.unit;
        let one = |arrays: &[ArrayPart], only: &Mapping, len: usize| {
            let (mapping, open, at) = match arrays.get(index) {
                Some(array) => (&array.mapping, array.open, array.at.clone()),
                None => (only, None, 0..len),
            };
            let data = mapping.dataset();
            Part::of(names, data.shape(), types::number(data.elem()), open).of_unit(mapping, unit, at)
        };
        let found = port.with(|state| match state {
            State::Idle(writer) => one(writer.arrays(), writer.mapping(), writer.local_len_bytes()),
            State::Reading(reader, _) => one(reader.arrays(), reader.mapping(), reader.local_len_bytes()),
            // Whose step is open, it has the arrays as they are in it.
            State::Filling(filling) => match filling.arrays(index) {
                Some(array) => {
                    let data = array.mapping.dataset();
                    Part::of(names, data.shape(), types::number(data.elem()), array.open).of_unit(
                        &array.mapping,
                        unit,
                        array.at.clone(),
                    )
                }
                None => Err(crate::port::busy()),
            },
            State::Viewing(view, _) => view.with(|step| one(step.arrays(), step.mapping(), step.len())),
            State::Gone => Err(port.closed()),
        })?;
        // SAFETY: a structure of the caller's that says its size.
        unsafe { fill("part", part, found) }?;
        Ok(Code::OK)
    })
}
