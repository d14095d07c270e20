//! What viewers say: text messages of JSON, each checked before anything comes of it.

use crate::frame::ViewInfo;
use crate::limits::MAX_CLIENT_BYTES;
use crate::reduce::{Grid, Reduce, ReduceError, MAX_PIXELS};
use serde_json::{Map, Value};
use thiserror::Error;

/// A message from a viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// This frame, and those before it, were drawn (or never will be).
    Ack(u64),
    /// Nothing is to be sent.
    Pause,
    /// Frames are to be sent again, the newest at once.
    Play,
    /// What is on the screen of one view.
    Want(Want),
}

/// What of an array is on a screen, and with how many pixels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Want {
    /// The view's name.
    pub view: String,
    /// The one or two axes that are shown, rows first.
    pub axes: Vec<usize>,
    /// First element, on each of these axes.
    pub lo: Vec<u64>,
    /// One past the last element.
    pub hi: Vec<u64>,
    /// Pixels on each of these axes, 1 to [`MAX_PIXELS`].
    pub pixels: Vec<u32>,
    /// Which slice of the other axes, counted row-major over them; `None`: whichever the program likes, or
    /// [`project`](Want::project).
    pub slice: Option<u64>,
    /// What becomes of the other axes instead of a slice.
    pub project: Option<Project>,
    /// What becomes of the elements that one pixel covers.
    pub reduce: Reduce,
}

/// What becomes of axes that are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Project {
    /// The largest value along them.
    Max,
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// It is not one of those that a viewer sends.
    #[error("this is no message of a viewer: {0}")]
    Malformed(&'static str),
    /// It wants what this program does not have; it may be about the one before.
    #[error("this cannot be shown: {0}")]
    Want(&'static str),
}

impl ClientMessage {
    /// Reads a message.
    ///
    /// # Errors
    /// [`ClientError::Malformed`].
    pub fn parse(text: &str) -> Result<ClientMessage, ClientError> {
        use ClientError::Malformed;
        if text.len() > MAX_CLIENT_BYTES {
            return Err(Malformed("it is too long"));
        }
        let value: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| Malformed("it is no object"))?;
        match value.get("type").and_then(Value::as_str) {
            Some("ack") => value.get("id").and_then(index).map(ClientMessage::Ack).ok_or(Malformed("id")),
            Some("pause") => Ok(ClientMessage::Pause),
            Some("play") => Ok(ClientMessage::Play),
            Some("want") => want(&value).map(ClientMessage::Want),
            _ => Err(Malformed("its type is not known")),
        }
    }
}

fn want(value: &Map<String, Value>) -> Result<Want, ClientError> {
    use ClientError::Malformed;
    let numbers = |name: &'static str| {
        let list = value.get(name).and_then(Value::as_array).filter(|list| (1..=2).contains(&list.len()));
        list.and_then(|list| list.iter().map(index).collect::<Option<Vec<u64>>>()).ok_or(Malformed(name))
    };
    let (axes, lo, hi, pixels) = (numbers("axes")?, numbers("lo")?, numbers("hi")?, numbers("pixels")?);
    if [&lo, &hi, &pixels].iter().any(|list| list.len() != axes.len()) {
        return Err(Malformed("axes, lo, hi and pixels have different lengths"));
    }
    if pixels.iter().any(|p| !(1..=u64::from(MAX_PIXELS)).contains(p)) {
        return Err(Malformed("pixels"));
    }
    let optional = |name: &str| value.get(name).filter(|v| !v.is_null());
    Ok(Want {
        view: value.get("view").and_then(Value::as_str).ok_or(Malformed("view"))?.to_owned(),
        axes: axes
            .iter()
            .map(|a| usize::try_from(*a))
            .collect::<Result<_, _>>()
            .or(Err(Malformed("axes")))?,
        lo,
        hi,
        pixels: pixels.iter().map(|p| *p as u32).collect(),
        slice: match optional("slice") {
            Some(slice) => Some(index(slice).ok_or(Malformed("slice"))?),
            None => None,
        },
        project: match optional("project") {
            Some(Value::String(name)) if name == "max" => Some(Project::Max),
            Some(_) => return Err(Malformed("project")),
            None => None,
        },
        reduce: match optional("reduce") {
            Some(how) => how.as_str().and_then(Reduce::of_name).ok_or(Malformed("reduce"))?,
            None => Reduce::Mean,
        },
    })
}

/// A whole number that JavaScript's numbers hold exactly, however it is written.
fn index(value: &Value) -> Option<u64> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let number = value.as_f64().filter(|n| (0.0..=EXACT).contains(n) && n.fract() == 0.0)?;
    Some(number as u64)
}

impl Want {
    /// Whether a program that announced `views` has that.
    ///
    /// # Errors
    /// [`ClientError::Want`].
    pub fn check(&self, views: &[ViewInfo]) -> Result<(), ClientError> {
        let no = |what| Err(ClientError::Want(what));
        let Some(view) = views.iter().find(|v| v.name == self.view) else {
            return no("no view of that name");
        };
        if self.axes.len() == 2 && self.axes[0] == self.axes[1] {
            return no("an axis is there twice");
        }
        for ((axis, lo), hi) in self.axes.iter().zip(&self.lo).zip(&self.hi) {
            let Some(size) = view.shape.get(*axis) else { return no("there is no such axis") };
            if lo >= hi || hi > size {
                return no("the window is empty, or not within the array");
            }
        }
        let others = view.shape.iter().enumerate().filter(|(axis, _)| !self.axes.contains(axis));
        // A shape's elements can be counted, so these can be.
        let slices: u64 = others.map(|(_, size)| *size).product();
        if self.slice.is_some_and(|slice| slice >= slices) {
            return no("there is no such slice");
        }
        if self.slice.is_some() && self.project.is_some() {
            return no("a slice and a projection exclude one another");
        }
        Ok(())
    }

    /// The pixels over the window; of one axis they are one row.
    ///
    /// # Errors
    /// [`ReduceError`] for an empty window, which [`check`](Want::check) refuses.
    pub fn grid(&self) -> Result<Grid, ReduceError> {
        match (&self.lo[..], &self.hi[..], &self.pixels[..]) {
            (&[lo], &[hi], &[pixels]) => Grid::new([0, lo], [1, hi], [1, pixels]),
            (&[r0, c0], &[r1, c1], &[height, width]) => Grid::new([r0, c0], [r1, c1], [height, width]),
            _ => Err(ReduceError::Window { lo: [0; 2], hi: [0; 2] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(value: &Value) -> Result<ClientMessage, ClientError> {
        ClientMessage::parse(&value.to_string())
    }

    fn full() -> Value {
        json!({"type": "want", "view": "u", "axes": [0, 2], "lo": [0, 5], "hi": [10, 30.0],
            "pixels": [480, 640], "slice": 3, "project": null, "reduce": "max"})
    }

    fn info(shape: &[u64]) -> ViewInfo {
        ViewInfo { name: "u".into(), shape: shape.to_vec(), elem: ElemType::F32, owners: None }
    }

    #[test]
    fn each_kind_is_read() {
        assert_eq!(parse(&json!({"type": "ack", "id": 7})), Ok(ClientMessage::Ack(7)));
        assert_eq!(parse(&json!({"type": "pause", "more": []})), Ok(ClientMessage::Pause));
        assert_eq!(parse(&json!({"type": "play"})), Ok(ClientMessage::Play));
        let Ok(ClientMessage::Want(want)) = parse(&full()) else { panic!("no want") };
        assert_eq!((&want.axes[..], &want.hi[..], want.slice), (&[0, 2][..], &[10, 30][..], Some(3)));
        assert_eq!((want.pixels.as_slice(), want.reduce, want.project), (&[480, 640][..], Reduce::Max, None));
        assert_eq!(want.grid().unwrap().shape(), [10, 25]);
        assert_eq!(want.check(&[info(&[10, 4, 30])]), Ok(()));
    }

    #[test]
    fn a_member_that_cannot_be_is_refused() {
        let bad = [
            ("type", json!("wants")),
            ("view", json!(1)),
            ("axes", json!([])),
            ("axes", json!([0, 1, 2])),
            ("axes", json!([1])),
            ("lo", json!([0, -1])),
            ("lo", json!([0, 0.5])),
            ("hi", json!([1, 1e300])),
            ("hi", json!([1, "2"])),
            ("pixels", json!([0, 1])),
            ("pixels", json!([1, 4097])),
            ("slice", json!(-1)),
            ("project", json!("min")),
            ("reduce", json!("median")),
        ];
        for (name, value) in bad {
            let mut message = full();
            message[name] = value;
            assert!(matches!(parse(&message), Err(ClientError::Malformed(_))), "{message}");
        }
        for text in ["", "[]", "7", "{\"type\":\"ack\"}", "{\"type\":\"ack\",\"id\":18446744073709551615}"] {
            assert!(ClientMessage::parse(text).is_err(), "{text}");
        }
        let deep = "[".repeat(MAX_CLIENT_BYTES);
        assert!(ClientMessage::parse(&format!("{{\"type\":{deep}")).is_err());
    }

    #[test]
    fn what_a_program_does_not_have_is_refused() {
        let Ok(ClientMessage::Want(want)) = parse(&full()) else { panic!("no want") };
        for shape in [&[10, 4, 29][..], &[10, 3, 30], &[10, 30], &[10, 4, 30, 0]] {
            assert!(want.check(&[info(shape)]).is_err(), "{shape:?}");
        }
        assert!(want.check(&[]).is_err());
        let not = |change: fn(&mut Want)| {
            let mut other = want.clone();
            change(&mut other);
            assert!(other.check(&[info(&[10, 4, 30])]).is_err(), "{other:?}");
        };
        not(|w| w.axes[1] = 0);
        not(|w| w.lo[0] = 10);
        not(|w| w.project = Some(Project::Max));
    }

    proptest! {
        #[test]
        fn text_never_panics_and_what_passes_has_a_grid(
            text: String,
            axes in prop::collection::vec(0u64..4, 0..3),
            lo in prop::collection::vec(0u64..9, 0..3),
            hi in prop::collection::vec(0u64..9, 0..3), pixels in prop::collection::vec(0u64..5000, 0..3),
            slice: Option<u64>,
        ) {
            let _ = ClientMessage::parse(&text);
            let message = json!({"type": "want", "view": "u", "axes": axes, "lo": lo, "hi": hi,
                "pixels": pixels, "slice": slice});
            if let Ok(ClientMessage::Want(want)) = parse(&message) {
                if want.check(&[info(&[8, 8, 8])]).is_ok() {
                    let shape = want.grid().unwrap().shape();
                    prop_assert!(shape[0] * shape[1] > 0);
                }
            }
        }
    }
}
