//! Binds the datasets and layouts that units say to what this side computes with, and sizes the slots of a
//! writer's unit.

use crate::error::{Mismatch, PipeError, Refusal};
use crate::wire::{self, Role, Welcome};
use polyduct_layout::{Dataset, ElemType, Layout, LayoutError, Mapping};
use polyduct_os::segment::{Access, Segment};
use polyduct_port::{Options, PortError};
use std::os::fd::BorrowedFd;

/// Slots start at pages, so that a reader can map one by itself.
const SLOT_ALIGN: u64 = 4096;

/// The slots of a writer that learns its dataset from a reader.
pub(crate) fn late_segment(welcome: &Welcome, options: &Options) -> Result<Segment, String> {
    let mapping = from_wire(&welcome.dataset)
        .and_then(|dataset| bind_writer(&welcome.layout.parse()?, &dataset, options.units))
        .map_err(|e| e.to_string())?;
    let (_, total) = slot_sizes(&mapping, options).map_err(|e| e.to_string())?;
    Segment::create("polyduct-slots", total).map_err(|e| e.to_string())
}

/// Bytes of one slot of this unit and of all its slots.
pub(crate) fn slot_sizes(mapping: &Mapping, options: &Options) -> Result<(usize, usize), PipeError> {
    let len = mapping.local_len_bytes(u64::from(options.unit))?;
    let slot = slot_stride(len);
    let total = slot.and_then(|s| s.checked_mul(u64::from(options.depth)));
    match (slot, total) {
        (Some(slot), Some(total)) if total <= isize::MAX as u64 => Ok((slot as usize, total as usize)),
        _ => Err(PipeError::Port(PortError::BadOption {
            port: None,
            option: "depth",
            found: options.depth.to_string(),
            expected: format!("slots that fit the address space, of {len} bytes each").into(),
        })),
    }
}

/// Whether the slots that a writer unit hands over are what it says of itself asks for.
pub(crate) fn check_slots(hello: &wire::Hello, fd: BorrowedFd<'_>) -> Result<(), String> {
    let Role::Writer { dataset: Some(dataset), depth, .. } = &hello.role else { return Ok(()) };
    let options = Options { unit: hello.unit, units: hello.units, depth: *depth, ..Options::default() };
    let total = || -> Result<usize, PipeError> {
        let mapping = bind_writer(&hello.layout.parse()?, &from_wire(dataset)?, hello.units)?;
        Ok(slot_sizes(&mapping, &options)?.1)
    };
    // What else is wrong with it, the rendezvous says.
    let Ok(total) = total() else { return Ok(()) };
    let fd = fd.try_clone_to_owned().map_err(|e| e.to_string())?;
    Segment::from_fd(fd, total, total, Access::ReadOnly).map(drop).map_err(|e| e.to_string())
}

/// Bytes from one slot to the next in the segment of a writer unit.
pub(crate) fn slot_stride(local_len: u64) -> Option<u64> {
    local_len.max(1).checked_next_multiple_of(SLOT_ALIGN)
}

pub(crate) fn bind_writer(layout: &Layout, dataset: &Dataset, units: u32) -> Result<Mapping, LayoutError> {
    let mapping = layout.bind(dataset, u64::from(units))?;
    mapping.check_writer()?;
    Ok(mapping)
}

pub(crate) fn to_wire(d: &Dataset) -> wire::Dataset {
    wire::Dataset { shape: d.shape().to_vec(), elem: d.elem().to_string() }
}

pub(crate) fn from_wire(d: &wire::Dataset) -> Result<Dataset, LayoutError> {
    let elem: ElemType = d.elem.parse()?;
    Dataset::new(&d.shape, elem)
}

/// See [`crate::rendezvous::CheckLayout`].
pub(crate) fn check_layout(
    layout: &str,
    dataset: &wire::Dataset,
    units: u32,
    writer: bool,
) -> Result<(), Refusal> {
    let check = || -> Result<(), LayoutError> {
        let (layout, dataset) = (layout.parse::<Layout>()?, from_wire(dataset)?);
        if writer {
            bind_writer(&layout, &dataset, units).map(|_| ())
        } else {
            layout.bind(&dataset, u64::from(units)).map(|_| ())
        }
    };
    let unit = crate::serve::HOST;
    check().map_err(|e| Refusal::Terms(Mismatch::Layout { unit, error: e.to_string() }))
}
