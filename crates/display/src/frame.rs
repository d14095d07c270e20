//! What is shown: views of arrays, and frames of them.

use crate::elem;
use crate::limits::{MAX_NAME_BYTES, MAX_OWNER_BOXES, MAX_VIEWS};
use crate::reduce::Reduce;
use crate::DisplayError;
use bytes::Bytes;
use polyduct_layout::{Dataset, ElemType};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::time::SystemTime;

/// A box of an array: first element and one past the last, on each axis.
pub type OwnedBox = (Vec<u64>, Vec<u64>);

/// What a unit has of an array, for those who want to see it drawn over the picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The unit's number.
    pub unit: u32,
    /// Its boxes.
    pub boxes: Vec<OwnedBox>,
}

/// An array that a program announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewInfo {
    /// Its name; empty for the only array of a program.
    pub name: String,
    /// Sizes, slowest dimension first.
    pub shape: Vec<u64>,
    /// The element type.
    pub elem: ElemType,
    /// Which unit has what; `None` when it is not known, or more than is worth telling.
    pub owners: Option<Vec<Owner>>,
}

/// A window that viewers want, for as long as they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WantId(pub(crate) u64);

/// What is sent of one array in one step: the whole of it, a slice, or a window reduced to pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// A name that was announced.
    pub name: String,
    /// The type of what is sent: that of the array, or `f32` where it is reduced.
    pub elem: ElemType,
    /// Sizes of what is sent: `[n]` or `[rows, columns]` (none for a scalar), or `[rows, columns, 3 or 4]` of a
    /// picture in colour, in `u8` (0 to 255) or in `f16` or `f32` (0 to 1).
    pub shape: Vec<u64>,
    /// Sizes of the whole array on the shown axes.
    pub full: Vec<u64>,
    /// First element of what is covered, on the shown axes.
    pub lo: Vec<u64>,
    /// One past the last element of what is covered.
    pub hi: Vec<u64>,
    /// Which slice of the axes that are not shown, counted row-major over them; `None` where there is none,
    /// or their maximum is shown.
    pub slice: Option<u64>,
    /// The shown axes of the array.
    pub axes: Vec<usize>,
    /// How it was reduced; `None` when every element is there.
    pub reduce: Option<Reduce>,
    /// The elements, row-major and little-endian. Never copied.
    pub data: Bytes,
    /// The window that this was made for; `None`: for everybody.
    pub for_want: Option<WantId>,
}

impl View {
    /// The whole of an array of at most two dimensions, for everybody.
    pub fn whole(name: impl Into<String>, elem: ElemType, shape: &[u64], data: Bytes) -> View {
        View {
            name: name.into(),
            elem,
            shape: shape.to_vec(),
            full: shape.to_vec(),
            lo: vec![0; shape.len()],
            hi: shape.to_vec(),
            slice: None,
            axes: (0..shape.len()).collect(),
            reduce: None,
            data,
            for_want: None,
        }
    }

    /// Whether every element of the array is there.
    pub(crate) fn is_whole(&self) -> bool {
        self.reduce.is_none() && self.slice.is_none() && self.shape == self.full
    }

    /// Whether it is a picture in colour.
    pub(crate) fn is_colour(&self) -> bool {
        let is_elem = matches!(self.elem, ElemType::U8 | ElemType::F16 | ElemType::F32);
        is_elem && matches!(*self.shape, [_, _, 3 | 4])
    }

    /// Rows and columns; a curve is one row.
    pub(crate) fn rows_columns(&self) -> [u64; 2] {
        match *self.shape {
            [] => [1, 1],
            [n] => [1, n],
            [rows, columns, ..] => [rows, columns],
        }
    }

    fn check(&self, name: &str) -> Result<(), DisplayError> {
        let bad = |reason| DisplayError::View { name: name.into(), view: self.name.clone(), reason };
        if elem::code(self.elem).is_none() {
            return Err(bad("its elements are only carried, and have no value"));
        }
        let same = [&self.full, &self.lo, &self.hi].iter().all(|v| v.len() == self.shape.len());
        if !same || self.axes.len() != self.shape.len() {
            return Err(bad("full, lo, hi and axes need one number for each dimension of what is sent"));
        }
        let expected = Dataset::new(&self.shape, self.elem).map_or(u64::MAX, |d| d.len_bytes());
        if expected != self.data.len() as u64 {
            return Err(DisplayError::ViewBytes {
                name: name.into(),
                view: self.name.clone(),
                shape: self.shape.clone(),
                elem: self.elem,
                expected,
                found: self.data.len() as u64,
            });
        }
        Ok(())
    }
}

/// One step: everything in it is drawn together.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The step's number.
    pub step: u64,
    /// When it was made.
    pub time: SystemTime,
    /// Small values beside the arrays.
    pub values: Map<String, Value>,
    /// The arrays; of each one for everybody, and one for each window that was made.
    pub views: Vec<View>,
    /// The arrays as they are, of any number of dimensions, for who asks for a file; of those that are left out what
    /// everybody sees.
    pub exact: Vec<View>,
}

impl Frame {
    /// Whether everything in it is as it was announced.
    pub(crate) fn check(&self, name: &str, announced: &[ViewInfo]) -> Result<(), DisplayError> {
        for view in &self.views {
            if !announced.iter().any(|a| a.name == view.name) {
                return Err(DisplayError::UnknownView { name: name.into(), view: view.name.clone() });
            }
            view.check(name)?;
            if view.shape.len() > 2 && !view.is_colour() {
                let reason = "what is sent has more than two dimensions, and is no picture in colour";
                return Err(DisplayError::View { name: name.into(), view: view.name.clone(), reason });
            }
        }
        self.exact.iter().try_for_each(|view| view.check(name))
    }
}

/// Whether such views can be shown; takes owners away where there are too many.
pub(crate) fn check_views(name: &str, views: &mut [ViewInfo]) -> Result<(), DisplayError> {
    let mut names = HashSet::new();
    let count = views.len();
    for view in views {
        let bad = |reason| Err(DisplayError::View { name: name.into(), view: view.name.clone(), reason });
        if count > MAX_VIEWS {
            return bad("there are more than 256 of them");
        }
        if view.name.len() > MAX_NAME_BYTES || view.name.chars().any(char::is_control) {
            return bad("its name has more than 200 bytes, or control characters");
        }
        if !names.insert(view.name.clone()) {
            return bad("it is there twice");
        }
        if elem::code(view.elem).is_none() {
            return bad("its elements are only carried, and have no value");
        }
        if Dataset::new(&view.shape, view.elem).is_err() {
            return bad("its shape has more than eight dimensions, or more elements than can be counted");
        }
        let boxes = |owners: &Vec<Owner>| owners.iter().map(|o| o.boxes.len()).sum::<usize>();
        view.owners = view.owners.take().filter(|owners| boxes(owners) <= MAX_OWNER_BOXES);
    }
    Ok(())
}

/// Whether a name can be part of an address.
///
/// # Errors
/// [`DisplayError::Name`] with what is wrong with it.
pub fn check_name(name: &str) -> Result<(), DisplayError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME_BYTES {
        "it has more than 200 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "browsers change addresses with empty parts, `.` and `..`"
    } else if name == "status.json" {
        "the display's own status is there"
    } else {
        return Ok(());
    };
    Err(DisplayError::Name { name: name.into(), reason })
}
