//! Arrays that are pictures, of which the last dimension is the channels of a pixel: what is shown of one is
//! a picture of each channel, made as of any slice, and all of them together.

use super::pictures::{encoded, Pool, Shot};
use super::StreamTarget;
use crate::Error;
use bytes::Bytes;
use polyduct_display::reduce::Picture;
use polyduct_display::{View, Want, WantId};
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::Array;
use serde::{Deserialize, Serialize};

/// The axes of rows and of columns; that of channels follows them.
const AXES: [usize; 2] = [0, 1];

/// What the channels of a pixel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Colour {
    /// Red, green, blue.
    Rgb,
    /// And how opaque it is.
    Rgba,
}

impl Colour {
    /// The one of that name.
    pub fn of_name(name: &str) -> Option<Colour> {
        [Colour::Rgb, Colour::Rgba].into_iter().find(|colour| colour.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Colour::Rgb => "rgb",
            Colour::Rgba => "rgba",
        }
    }

    /// How many of them.
    pub fn channels(self) -> u64 {
        self.name().len() as u64
    }

    /// Whether an array has pixels of such channels.
    pub fn fits(self, dataset: &Dataset) -> bool {
        let is_elem = matches!(dataset.elem(), ElemType::U8 | ElemType::F32);
        is_elem && matches!(*dataset.shape(), [_, _, channels] if channels == self.channels())
    }

    /// What is wanted of such an array, for each of its channels; nothing where it is not rows and columns.
    pub fn split(self, want: &Want) -> Vec<Want> {
        let of = |channel| Want { slice: Some(channel), project: None, ..want.clone() };
        let channels = if want.axes == AXES { self.channels() } else { 0 };
        (0..channels).map(of).collect()
    }
}

/// The colours of one of a target's arrays, if it has any.
pub fn of(target: &StreamTarget, dataset: &Dataset) -> Option<Colour> {
    target.colour.filter(|colour| colour.fits(dataset))
}

/// # Errors
/// [`Error::Misuse`] where a target is to show colours, and none of the arrays has them.
pub fn check(target: &StreamTarget, arrays: &[Array]) -> Result<(), Error> {
    let Some(colour) = target.colour else { return Ok(()) };
    if arrays.iter().any(|array| colour.fits(&array.dataset)) {
        return Ok(());
    }
    let found: Vec<String> = arrays
        .iter()
        .map(|array| format!("{}{:?} of {}", array.name, array.dataset.shape(), array.dataset.elem()))
        .collect();
    let (name, channels) = (colour.name(), colour.channels());
    let what = format!(
        "{target}: colour={name} shows arrays of shape [rows, columns, {channels}] of u8 (0 to 255) or f32 \
        (0 to 1), and there is {}",
        found.join(", ")
    );
    Err(Error::Misuse { what })
}

/// The pictures of all channels as one; of a picture of bytes it has bytes.
pub fn view(
    name: &str,
    elem: ElemType,
    channels: Vec<(Shot, Picture)>,
    id: Option<WantId>,
    pool: &Pool,
) -> Option<View> {
    let count = channels.len();
    let mut all = channels.into_iter();
    let (shot, first) = all.next()?;
    let values: Vec<Vec<f32>> =
        std::iter::once(first).chain(all.map(|(_, p)| p)).map(Picture::finish).collect();
    let pixels = values.first().map_or(0, Vec::len);
    let mixed: Vec<f32> = (0..pixels).flat_map(|at| values.iter().map(move |channel| channel[at])).collect();
    let (elem, data) = match elem {
        ElemType::U8 => (elem, Bytes::from_iter(mixed.iter().map(|value| value.round() as u8))),
        _ => encoded(&mixed, pool),
    };
    let mut view = View { elem, data, slice: None, ..shot.blank(name, id) };
    let end = count as u64;
    view.shape.push(end);
    view.full.push(end);
    view.lo.push(0);
    view.hi.push(end);
    view.axes.push(AXES.len());
    Some(view)
}
