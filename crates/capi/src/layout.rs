//! Layouts bound to an array and a number of units, and what moves between two.

use crate::args::{natural, numbers, parts, parts_mut, place, put, shape, text};
use crate::border::call;
use crate::code::Code;
use crate::error::{self, Failure};
use crate::guard::lock;
use crate::handle::{self, Handle};
use crate::info::row;
use crate::types;
use polyduct::layout::{Layout as Parsed, LayoutError, Mapping, Plan};
use std::ffi::{c_char, c_int, c_void, CString};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// Bytes of a plan's text, at most.
const MOST_TEXT: usize = 64 << 20;

/// A bound layout.
pub struct Layout {
    mapping: Mapping,
    text: CString,
    /// The text of the plan that was asked for last.
    plan: Mutex<CString>,
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_layout_new(
    layout: *mut Handle,
    words: *const c_char,
    elem: c_int,
    ndim: c_int,
    sizes: *const i64,
    units: i64,
) -> c_int {
    call(|| {
        let to = place("layout", layout)?;
        // SAFETY: text and numbers of the caller's.
        let (words, sizes) = unsafe { (text("text", words)?, shape("shape", ndim, sizes)?) };
        let dataset = types::dataset(&sizes, elem)?;
        let mapping = words.parse::<Parsed>()?.bind(&dataset, natural("units", units)?)?;
        let text = error::text(&mapping.layout().to_string());
        let made = handle::give(Arc::new(Layout { mapping, text, plan: Mutex::default() }))?;
        // SAFETY: a place of the caller's.
        unsafe { to.write(made) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_layout_text(layout: Handle, text: *mut *const c_char) -> c_int {
    call(|| {
        let layout = handle::get::<Layout>(layout)?;
        // SAFETY: a place of the caller's.
        unsafe { place("text", text)?.write(layout.text.as_ptr()) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_layout_local(
    layout: Handle,
    unit: i64,
    ndim: *mut c_int,
    sizes: *mut i64,
    strides: *mut i64,
) -> c_int {
    call(|| {
        let layout = handle::get::<Layout>(layout)?;
        let (ndim, sizes, unit) = (place("ndim", ndim)?, place("shape", sizes)?, natural("unit", unit)?);
        let local = layout.mapping.local_shape(unit)?;
        let found = match layout.mapping.local_strides(unit) {
            Ok(strides) => row(strides.as_slice()),
            Err(LayoutError::NoStrides { .. }) => row(&[1]),
            Err(e) => return Err(e.into()),
        };
        // SAFETY: places of the caller's, with room for the most dimensions.
        unsafe {
            ndim.write(local.len() as c_int);
            for (n, size) in row(local.as_slice()).into_iter().enumerate().take(local.len()) {
                sizes.add(n).write(size);
                if !strides.is_null() {
                    strides.add(n).write(found[n]);
                }
            }
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_layout_size(layout: Handle, unit: i64, len: *mut usize) -> c_int {
    call(|| {
        let layout = handle::get::<Layout>(layout)?;
        let found = layout.mapping.local_len_bytes(natural("unit", unit)?)?;
        // SAFETY: a place of the caller's.
        unsafe { place("len", len)?.write(found as usize) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_layout_boxes(
    layout: Handle,
    unit: i64,
    halo: c_int,
    capacity: usize,
    lo: *mut i64,
    hi: *mut i64,
    count: *mut usize,
) -> c_int {
    call(|| {
        let layout = handle::get::<Layout>(layout)?;
        let (count, unit) = (place("count", count)?, natural("unit", unit)?);
        let boxes = match halo {
            0 => layout.mapping.boxes(unit)?,
            _ => layout.mapping.boxes_with_halo(unit)?,
        };
        let (lo, hi) = match capacity {
            0 => (lo, hi),
            _ => (place("lo", lo)?, place("hi", hi)?),
        };
        // SAFETY: places of the caller's, with room for `capacity` boxes.
        unsafe {
            for (n, found) in boxes.iter().enumerate().take(capacity) {
                for k in 0..found.ndim() {
                    lo.add(n * found.ndim() + k).write(found.lo[k] as i64);
                    hi.add(n * found.ndim() + k).write(found.hi[k] as i64);
                }
            }
            count.write(boxes.len());
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_layout_locate(
    layout: Handle,
    index: *const i64,
    unit: *mut i64,
    offset: *mut i64,
) -> c_int {
    call(|| {
        let layout = handle::get::<Layout>(layout)?;
        let ndim = layout.mapping.dataset().shape().len();
        // SAFETY: as many numbers as the array has dimensions.
        let index = unsafe { shape("index", ndim as c_int, index) }?;
        let places = layout.mapping.locate(&index)?;
        let found = places.iter().find(|place| !place.halo);
        let found = found.ok_or_else(|| Failure::misuse(format!("no unit owns the element at {index:?}")))?;
        // SAFETY: NULL, or places of the caller's.
        unsafe {
            put(unit, found.unit as i64);
            put(offset, found.offset_elems as i64);
        }
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_plan_text(src: Handle, dst: Handle, text: *mut *const c_char) -> c_int {
    call(|| {
        let (src, dst) = (handle::get::<Layout>(src)?, handle::get::<Layout>(dst)?);
        let to = place("text", text)?;
        src.mapping.check_writer()?;
        let mut words = String::new();
        for unit in 0..dst.mapping.units() {
            for transfer in Plan::to_reader(&src.mapping, &dst.mapping, unit)?.transfers() {
                let runs: u64 = transfer.tables().map(|table| table.runs()).sum();
                let (from, bytes) = (transfer.src_unit(), transfer.bytes());
                // Memory takes all that is written there.
                let _ = writeln!(words, "{from} -> {unit}: {bytes} bytes in {runs} runs");
            }
            if words.len() > MOST_TEXT {
                return Err(Failure::misuse(format!("the plan's text has more than {MOST_TEXT} bytes")));
            }
        }
        let mut plan = lock(&src.plan);
        *plan = error::text(&words);
        // SAFETY: a place of the caller's.
        unsafe { to.write(plan.as_ptr()) };
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_redistribute(
    src: Handle,
    from: *const *const c_void,
    from_lens: *const usize,
    dst: Handle,
    to: *const *mut c_void,
    to_lens: *const usize,
) -> c_int {
    call(|| {
        let (src, dst) = (handle::get::<Layout>(src)?, handle::get::<Layout>(dst)?);
        let units = |layout: &Layout| layout.mapping.units() as usize;
        // SAFETY: memory of the caller's: a part for each unit of each side.
        let (from, mut to) = unsafe {
            numbers("from", from, units(&src))?;
            (parts(units(&src), from.cast(), from_lens)?, parts_mut(units(&dst), to.cast(), to_lens)?)
        };
        let is_apart = |part: &[u8]| {
            let one = part.as_ptr_range();
            from.iter().all(|other| {
                let other = other.as_ptr_range();
                part.is_empty() || other.end <= one.start || one.end <= other.start
            })
        };
        if !to.iter().all(|part| is_apart(part)) {
            return Err(Failure::misuse("parts to be filled share memory with those that are read"));
        }
        polyduct::redistribute(&src.mapping, &from, &dst.mapping, &mut to)?;
        Ok(Code::OK)
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_layout_close(layout: Handle) -> c_int {
    call(|| handle::take::<Layout>(layout).map(|_| Code::OK))
}
