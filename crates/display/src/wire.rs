//! Messages to pages, one behind the other in the body that a viewer fetches. Each is its length (eight bytes),
//! the length of its text (four bytes), the text (JSON), and of a frame the arrays: a few bytes before an
//! array are all that is made for it. Numbers are little-endian.

use crate::elem;
use crate::frame::{Frame, View, ViewInfo, WantId};
use crate::limits::MAX_VALUES_BYTES;
use bytes::Bytes;
use serde_json::{json, Map, Value};
use std::time::{SystemTime, UNIX_EPOCH};

/// Arrays start at multiples of that, from the first byte behind their message's length.
const ALIGN: usize = 8;
/// Bytes before a message's text.
const BEFORE: usize = 8 + 4;
static ZEROS: [u8; ALIGN] = [0; ALIGN];

/// Whether a program is there, as pages are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Ended,
    Lost(String),
}

impl State {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            State::Running => "running",
            State::Ended => "ended",
            State::Lost(_) => "lost",
        }
    }

    fn why(&self) -> &str {
        match self {
            State::Running => "",
            State::Ended => "the program has ended",
            State::Lost(why) => why,
        }
    }
}

/// A frame with its number, and its small values as text.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) id: u64,
    pub(crate) frame: Frame,
    pub(crate) values: String,
}

impl Published {
    pub(crate) fn new(id: u64, frame: Frame) -> Published {
        let values = serde_json::to_string(&frame.values).unwrap_or_default();
        let fits = !values.is_empty() && values.len() <= MAX_VALUES_BYTES;
        Published { id, frame, values: if fits { values } else { "{}".into() } }
    }

    /// One view of each name: the one made for what is wanted, or for everybody.
    pub(crate) fn choose(&self, wanted: impl Fn(&str) -> Option<WantId>) -> Vec<&View> {
        let mut chosen: Vec<&View> = Vec::new();
        for view in &self.frame.views {
            let is_wanted = view.for_want.is_some() && view.for_want == wanted(&view.name);
            match chosen.iter_mut().find(|c| c.name == view.name) {
                Some(other) if is_wanted => *other = view,
                None if is_wanted || view.for_want.is_none() => chosen.push(view),
                _ => {}
            }
        }
        chosen
    }

    /// A view as it is: brought for that, or because it is small.
    pub(crate) fn exact(&self, name: &str) -> Option<&View> {
        let whole = |view: &&View| view.name == name && view.for_want.is_none() && view.is_whole();
        self.frame
            .exact
            .iter()
            .find(|exact| exact.name == name)
            .or_else(|| self.frame.views.iter().find(whole))
    }

    /// Whether it has a view made for that.
    pub(crate) fn is_for(&self, want: WantId) -> bool {
        self.frame.views.iter().any(|v| v.for_want == Some(want))
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64())
}

/// A message without arrays, ready to go out.
fn text(message: &Value) -> Bytes {
    begin(&message.to_string(), 0, 0).into()
}

/// The beginning of a message: its lengths, its text, and so many zeros; `data` bytes are to follow.
fn begin(text: &str, zeros: usize, data: usize) -> Vec<u8> {
    let len = BEFORE + text.len() + zeros;
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&((len - 8 + data) as u64).to_le_bytes());
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.resize(len, 0);
    out
}

/// The first message to a page.
pub(crate) fn hello(name: &str, views: &[ViewInfo]) -> Bytes {
    let owners = |view: &ViewInfo| {
        let all = view.owners.as_ref()?;
        Some(all.iter().map(|o| json!({"unit": o.unit, "boxes": o.boxes})).collect::<Vec<_>>())
    };
    let view = |v: &ViewInfo| {
        let dtype = elem::code(v.elem);
        json!({"name": v.name, "shape": v.shape, "dtype": dtype, "owners": owners(v)})
    };
    let views: Vec<Value> = views.iter().map(view).collect();
    text(&json!({"type": "hello", "name": name, "views": views, "group": null}))
}

/// Tells a page whether the program is there, what else there is to say of one that is, and how it is to look.
pub(crate) fn state(state: &State, note: &str, look: &Map<String, Value>) -> Bytes {
    let why = if *state == State::Running { note } else { state.why() };
    let mut message = json!({"type": "state", "state": state.name(), "why": why});
    if !look.is_empty() {
        message["look"] = look.clone().into();
    }
    text(&message)
}

/// A frame as the pieces of one message. Of the arrays nothing is copied.
pub(crate) fn frame(published: &Published, views: &[&View]) -> Vec<Bytes> {
    let mut at = 0;
    let mut heads = Vec::with_capacity(views.len());
    for view in views {
        heads.push(json!({
            "name": view.name, "dtype": elem::code(view.elem), "shape": view.shape, "full": view.full,
            "lo": view.lo, "hi": view.hi, "slice": view.slice, "axes": view.axes,
            "reduce": view.reduce.map(|r| r.name()), "at": at, "len": view.data.len(),
        }));
        at += view.data.len().next_multiple_of(ALIGN);
    }
    let Published { id, frame: Frame { step, time, .. }, values } = published;
    let head = format!(
        r#"{{"type":"frame","id":{id},"step":{step},"time":{},"values":{values},"views":{}}}"#,
        json!(seconds(*time)),
        Value::Array(heads),
    );
    // Nothing follows the last array.
    let data = views.last().map_or(0, |last| at - padding(last.data.len()));
    let mut pieces = vec![Bytes::from(begin(&head, padding(4 + head.len()), data))];
    for (n, view) in views.iter().enumerate() {
        pieces.push(view.data.clone());
        if n + 1 < views.len() {
            pieces.push(Bytes::from_static(&ZEROS[..padding(view.data.len())]));
        }
    }
    pieces
}

fn padding(len: usize) -> usize {
    len.next_multiple_of(ALIGN) - len
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;
    use proptest::prelude::*;
    use std::time::Duration;

    fn published(views: Vec<View>) -> Published {
        let mut values = serde_json::Map::new();
        values.insert("x".into(), json!("\u{1F600}"));
        let time = UNIX_EPOCH + Duration::from_millis(1_732_800_000_123);
        Published::new(7, Frame { step: 41, time, values, views, exact: Vec::new() })
    }

    fn view(name: &str, len: usize, want: Option<u64>) -> View {
        let data = Bytes::from(vec![len as u8; len]);
        let whole = View::whole(name, ElemType::U8, &[len as u64], data);
        View { for_want: want.map(WantId), ..whole }
    }

    #[test]
    fn of_each_name_the_wanted_one_is_chosen() {
        let all = vec![view("a", 1, None), view("b", 2, Some(1)), view("a", 3, Some(5)), view("b", 4, None)];
        let frame = published(all);
        let chosen = |a: Option<u64>, b: Option<u64>| {
            let wanted = |name: &str| if name == "a" { a } else { b }.map(WantId);
            frame.choose(wanted).iter().map(|v| v.data.len()).collect::<Vec<_>>()
        };
        assert_eq!(chosen(None, None), [1, 4]);
        assert_eq!(chosen(Some(5), None), [3, 4]);
        assert_eq!(chosen(Some(6), Some(1)), [1, 2]);
        assert!(frame.is_for(WantId(5)) && !frame.is_for(WantId(6)));
    }

    #[test]
    fn values_beyond_the_limit_are_left_out() {
        let mut values = serde_json::Map::new();
        values.insert("x".into(), json!("y".repeat(MAX_VALUES_BYTES)));
        let frame = Frame { step: 0, time: UNIX_EPOCH, values, views: vec![], exact: Vec::new() };
        assert_eq!(Published::new(0, frame).values, "{}");
    }

    proptest! {
        #[test]
        fn a_frame_says_where_its_arrays_are(lens in prop::collection::vec(0usize..70_000, 0..5)) {
            let all = lens.iter().enumerate();
            let views: Vec<View> = all.map(|(n, len)| view(&n.to_string(), *len, None)).collect();
            let frame = published(views.clone());
            let bytes = super::frame(&frame, &frame.choose(|_| None)).concat();
            let (len, message) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(u64::from_le_bytes(*len), message.len() as u64);
            let head_len = u32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
            let head: Value = serde_json::from_slice(&message[4..4 + head_len]).unwrap();
            let fields = ["id", "step", "time"].map(|name| head[name].clone());
            prop_assert_eq!(fields, [json!(7), json!(41), json!(1_732_800_000.123)]);
            prop_assert_eq!(&head["values"]["x"], "\u{1F600}");
            let data = (4 + head_len).next_multiple_of(8);
            for (view, said) in views.iter().zip(head["views"].as_array().unwrap()) {
                let [at, len] = ["at", "len"].map(|name| said[name].as_u64().unwrap() as usize);
                prop_assert!(at % 8 == 0 && said["dtype"] == "u1" && said["reduce"].is_null());
                prop_assert_eq!(&message[data + at..data + at + len], &view.data[..]);
            }
        }
    }
}
