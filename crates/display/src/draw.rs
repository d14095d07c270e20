//! The newest frame as a file: a picture, an array, or what is to be said of it. The long ones are made by a
//! thread of their own, so that no viewer waits for them.

use crate::connection::Ticket;
use crate::elem::{self, Element, Half, Range};
use crate::frame::View;
use crate::hub::Hub;
use crate::limits::MAX_PNG_EDGE;
use crate::reduce::{Grid, Part, Reduce, Tile};
use crate::wire::{seconds, Published};
use bytes::Bytes;
use polyduct_layout::ElemType;
use serde_json::{json, value::RawValue, Value};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Weak};

/// 256 colours of red, green and blue.
static VIRIDIS: &[u8; 768] = include_bytes!("viridis.rgb");
/// What the infinities get, which no table has: pink and cyan, as on the page.
const OVER: [u8; 4] = [0xff, 0x4f, 0xd8, 0xff];
const UNDER: [u8; 4] = [0x00, 0xe5, 0xff, 0xff];
/// Rows and columns of a curve's picture.
const CURVE: [usize; 2] = [240, 640];
/// Results that are kept for others who ask for the same.
const KEPT: usize = 4;

/// What a frame becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Png,
    Npy,
    Json,
}

/// Work for the drawing thread.
pub(crate) struct Job {
    /// Of whom asked for it.
    pub(crate) ticket: Ticket,
    pub(crate) published: Arc<Published>,
    /// Which of the frame's views.
    pub(crate) view: usize,
    pub(crate) form: Form,
}

/// What came of it.
pub(crate) struct Drawn {
    pub(crate) ticket: Ticket,
    pub(crate) form: Form,
    pub(crate) bytes: Bytes,
}

/// Does jobs until nobody can send more.
pub(crate) fn work(jobs: &Receiver<Job>, done: &Sender<Drawn>, hub: &Hub) {
    let mut kept: Vec<(Weak<Published>, usize, Form, Bytes)> = Vec::new();
    while let Ok(Job { ticket, published, view, form }) = jobs.recv() {
        let is_same = |(frame, v, f, _): &&(Weak<Published>, usize, Form, Bytes)| {
            std::ptr::eq(frame.as_ptr(), Arc::as_ptr(&published)) && (*v, *f) == (view, form)
        };
        let bytes = match kept.iter().find(is_same) {
            Some((.., bytes)) => bytes.clone(),
            None => {
                let bytes = match (form, published.frame.views.get(view)) {
                    (Form::Png, Some(view)) => Bytes::from(png(view)),
                    _ => Bytes::from(json(&published)),
                };
                kept.retain(|(frame, ..)| frame.strong_count() > 0);
                kept.truncate(KEPT - 1);
                kept.insert(0, (Arc::downgrade(&published), view, form, bytes.clone()));
                bytes
            }
        };
        drop(published);
        if done.send(Drawn { ticket, form, bytes }).is_err() {
            return;
        }
        hub.signal();
    }
}

/// What is to be said of a frame.
fn json(published: &Published) -> String {
    let view = |v: &View| {
        let known = Range::of(v.elem, &v.data).known();
        json!({
            "name": v.name, "dtype": elem::code(v.elem), "shape": v.shape, "full": v.full,
            "lo": v.lo, "hi": v.hi, "slice": v.slice, "axes": v.axes, "reduce": v.reduce.map(|r| r.name()),
            "min": known.map(|k| k.0), "max": known.map(|k| k.1), "mean": known.map(|k| k.2),
        })
    };
    #[derive(serde::Serialize)]
    struct Said<'a> {
        step: u64,
        time: f64,
        values: &'a RawValue,
        views: Vec<Value>,
    }
    let frame = &published.frame;
    let views = frame.views.iter().filter(|v| v.for_want.is_none()).map(view).collect();
    let Ok(values) = serde_json::from_str(&published.values) else { return String::new() };
    let said = Said { step: frame.step, time: seconds(frame.time), values, views };
    serde_json::to_string(&said).unwrap_or_default()
}

/// A view as an `.npy` file: what goes before its bytes. NumPy has no bfloat16; it is carried as two bytes.
pub(crate) fn npy_head(view: &View) -> Vec<u8> {
    let kind = match view.elem {
        ElemType::Bf16 => "|V2".into(),
        one if one.len_bytes() == 1 => format!("|{}", elem::code(one).unwrap_or_default()),
        other => format!("<{}", elem::code(other).unwrap_or_default()),
    };
    let shape: String = view.shape.iter().map(|n| format!("{n},")).collect();
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    let len = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.push_str(&" ".repeat(len - 1 - text.len()));
    text.push('\n');
    let mut head = b"\x93NUMPY\x01\x00".to_vec();
    head.extend((len as u16).to_le_bytes());
    head.extend(text.bytes());
    head
}

/// A view as a picture: coloured over its own range, not-a-number transparent; of one dimension a curve.
fn png(view: &View) -> Vec<u8> {
    let [rows, columns] = view.rows_columns();
    if view.is_colour() && rows * columns > 0 {
        return in_colour(view, [rows, columns].map(|n| n as usize));
    }
    let most = MAX_PNG_EDGE as u32;
    let grid = Grid::new([0, 0], [rows, columns], [most, most]);
    let tile = grid.and_then(|grid| {
        let part = Part::new(view.elem, [0, 0], [rows, columns], &view.data)?;
        Tile::of(&grid, Reduce::Sample, &part)
    });
    match tile {
        Ok(tile) if view.shape.len() == 1 => encode(CURVE, curve(tile.values())),
        Ok(tile) => encode(tile.shape(), tile.values().iter().flat_map(colours(tile.values())).collect()),
        // Nothing is in it.
        Err(_) => encode([1, 1], vec![0; 4]),
    }
}

/// A picture in colour as it is, rounded as on the page; of a large one some pixels.
fn in_colour(view: &View, [rows, columns]: [usize; 2]) -> Vec<u8> {
    let (channels, len) = (view.shape[2] as usize, view.elem.len_bytes() as usize);
    let step = rows.max(columns).div_ceil(MAX_PNG_EDGE);
    let value = |bytes: &[u8]| match *bytes {
        [byte] => f64::from(byte),
        [a, b] => Half::value(&[a, b]) * 255.0,
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])) * 255.0,
        _ => 0.0,
    };
    let mut rgba = Vec::new();
    for row in view.data.chunks_exact(columns * channels * len).step_by(step) {
        for pixel in row.chunks_exact(channels * len).step_by(step) {
            let mut all = [255.0; 4];
            all.iter_mut().zip(pixel.chunks_exact(len)).for_each(|(to, bytes)| *to = value(bytes));
            if all.iter().take(3).sum::<f64>().is_nan() {
                all[3] = 0.0;
            }
            rgba.extend(all.map(|v| v.round_ties_even() as u8));
        }
    }
    encode([rows.div_ceil(step), columns.div_ceil(step)], rgba)
}

fn range(values: &[f32]) -> (f32, f32) {
    let finite = values.iter().filter(|v| v.is_finite());
    finite.fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), v| (lo.min(*v), hi.max(*v)))
}

fn colours(values: &[f32]) -> impl Fn(&f32) -> [u8; 4] {
    let (lo, hi) = range(values);
    let (lo, span) = (f64::from(lo), f64::from(hi) - f64::from(lo));
    let factor = if span > 0.0 { 256.0 / span } else { 0.0 };
    move |v| match *v {
        f32::INFINITY => OVER,
        f32::NEG_INFINITY => UNDER,
        v if v.is_nan() => [0; 4],
        v => {
            let entry = (((f64::from(v) - lo) * factor) as usize).min(255);
            [VIRIDIS[3 * entry], VIRIDIS[3 * entry + 1], VIRIDIS[3 * entry + 2], 0xff]
        }
    }
}

/// A line through the values, in the middle colour of the table on nothing.
fn curve(values: &[f32]) -> Vec<u8> {
    let [rows, columns] = CURVE;
    let mut out = vec![0; rows * columns * 4];
    let (lo, hi) = range(values);
    let (lo, span) = (f64::from(lo), f64::from(hi) - f64::from(lo));
    let row = |v: f32| {
        let part = if span > 0.0 { (f64::from(v) - lo) / span } else { 0.5 };
        ((1.0 - part) * (rows - 1) as f64).round() as usize
    };
    let mut last = None;
    for column in 0..columns {
        let value = values[column * values.len() / columns];
        if !value.is_finite() {
            last = None;
            continue;
        }
        let here = row(value);
        let from = last.replace(here).unwrap_or(here);
        for row in here.min(from)..=here.max(from) {
            let at = (row * columns + column) * 4;
            out[at..at + 4].copy_from_slice(&[VIRIDIS[384], VIRIDIS[385], VIRIDIS[386], 0xff]);
        }
    }
    out
}

fn encode([rows, columns]: [usize; 2], rgba: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&rgba));
    if let Err(e) = written {
        tracing::warn!("a picture of {rows}×{columns} pixels: {e}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(values: &[f32], shape: &[u64]) -> View {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        View::whole("u", ElemType::F32, shape, bytes.into())
    }

    fn decode(bytes: &[u8]) -> (Vec<u8>, [u32; 2]) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut out = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut out).unwrap();
        assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgba, png::BitDepth::Eight));
        (out, [info.height, info.width])
    }

    #[test]
    fn a_picture_has_the_range_of_its_values_and_what_is_no_number_apart() {
        let values = [-1.0, 3.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0];
        let (pixels, shape) = decode(&png(&view(&values, &[2, 3])));
        assert_eq!(shape, [2, 3]);
        let colour = |n: usize| [VIRIDIS[3 * n], VIRIDIS[3 * n + 1], VIRIDIS[3 * n + 2], 0xff];
        let expected = [colour(0), colour(255), [0; 4], OVER, UNDER, colour(128)].concat();
        assert_eq!(pixels, expected);
        let (one, _) = decode(&png(&view(&[7.0; 4], &[2, 2])));
        assert_eq!(one, colour(0).repeat(4));
    }

    #[test]
    fn a_picture_in_colour_is_as_it_is() {
        let three: Vec<u8> = (0..18).collect();
        let whole = View::whole("u", ElemType::U8, &[2, 3, 3], three.clone().into());
        let expected: Vec<u8> = three.chunks(3).flat_map(|p| [p[0], p[1], p[2], 0xff]).collect();
        assert_eq!(decode(&png(&whole)), (expected, [2, 3]));
        let (four, shape) = decode(&png(&view(&[0.0, 1.0, -2.0, 7.0, 0.5, 0.25, 0.1, 0.9], &[1, 2, 4])));
        assert_eq!((&four[..], shape), (&[0, 255, 0, 255, 128, 64, 26, 229][..], [1, 2]));
        let (nothing, _) = decode(&png(&view(&[1.0, f32::NAN, 1.0], &[1, 1, 3])));
        assert_eq!(nothing, [255, 0, 255, 0]);
        let wide = View::whole("u", ElemType::U8, &[1, 4100, 4], vec![9; 16400].into());
        assert_eq!(decode(&png(&wide)), (vec![9; 4 * 1367], [1, 1367]));
    }

    #[test]
    fn whatever_is_sent_has_some_picture() {
        assert_eq!(decode(&png(&view(&[], &[0, 3]))).1, [1, 1]);
        assert_eq!(decode(&png(&view(&[5.0], &[]))).1, [1, 1]);
        for values in [&[1.0][..], &[1.0, f32::NAN, 2.0], &[f32::NAN], &[0.0, 1.0, 0.5, 7.0]] {
            let (pixels, shape) = decode(&png(&view(values, &[values.len() as u64])));
            assert_eq!(shape, CURVE.map(|n| n as u32));
            let drawn = pixels.chunks_exact(4).filter(|p| p[3] == 0xff).count();
            assert_eq!(drawn > 0, values.iter().any(|v| v.is_finite()), "{values:?}");
        }
        let wide = vec![1.0; 3 * (MAX_PNG_EDGE + 9)];
        assert_eq!(decode(&png(&view(&wide, &[3, MAX_PNG_EDGE as u64 + 9]))).1, [3, MAX_PNG_EDGE as u32]);
    }

    #[test]
    fn an_npy_head_is_what_numpy_writes() {
        let head = npy_head(&view(&[0.0; 6], &[2, 3]));
        assert!(head.len() == 128 && head.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', "));
        assert!(head.ends_with(b"\n") && head.windows(8).any(|w| w == b"(2,3,), "));
        for (elem, descr) in [(ElemType::U8, "'|u1'"), (ElemType::Bf16, "'|V2'"), (ElemType::C128, "'<c16'")]
        {
            let head = npy_head(&View::whole("", elem, &[], Bytes::new()));
            let text = String::from_utf8_lossy(&head);
            assert!(text.contains(descr) && text.contains("'shape': ()"), "{text}");
        }
    }

    #[test]
    fn a_frame_is_described_with_what_is_finite_in_it() {
        let mut frame = crate::Frame {
            step: 4,
            time: std::time::UNIX_EPOCH,
            values: Default::default(),
            views: vec![view(&[1.0, f32::NAN, 3.0], &[3]), view(&[f32::NAN], &[1])],
            exact: Vec::new(),
        };
        frame.values.insert("t".into(), json!(0.25));
        frame.views[1].name = "w".into();
        let said: Value = serde_json::from_str(&json(&Published::new(1, frame))).unwrap();
        assert_eq!((&said["step"], &said["values"]["t"]), (&json!(4), &json!(0.25)));
        let of = |n: usize, name: &str| said["views"][n][name].clone();
        assert_eq!([of(0, "min"), of(0, "max"), of(0, "mean")], [json!(1.0), json!(3.0), json!(2.0)]);
        assert_eq!([of(1, "min"), of(1, "name"), of(1, "shape")], [Value::Null, json!("w"), json!([1])]);
    }
}
