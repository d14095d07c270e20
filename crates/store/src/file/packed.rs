//! A file of several arrays, `.safetensors` or `.npz`: where each of them lies, and what stands around them.

use super::archive::{self, Slot};
use super::io::Io;
use super::said::Said;
use super::{Attributes, Format, Options};
use crate::npy::{Descr, Header};
use crate::safetensors::{dtype, print_all, SafetensorsError, Tensor, MAX_HEADER_BYTES, MAX_NAME_BYTES};
use crate::FileError;
use polyduct_message::hash::fnv1a;
use polyduct_port::{Array, BundleError, Changes, PortError, PortName};
use serde_json::Value;
use std::collections::BTreeMap;

/// Bytes of the header of a `.safetensors` file in which what the writer says of a step has room: it says so when the
/// place of the arrays is settled already.
pub const VALUES_ROOM: usize = 4096;
/// What the values of a step are called in that header.
pub const VALUES_KEY: &str = "polyduct";

/// Whose tensors a file has, as libraries expect it there, and what is said where nothing else was.
pub const FORMAT_KEY: &str = "format";
/// See [`FORMAT_KEY`].
pub const FORMAT: &str = "pt";

/// The arrays of a file, and what it says of them.
#[derive(Clone, Debug)]
pub struct Packed {
    around: Around,
    /// Where the data of each array that was given begin, from `data_at`.
    pub at: Vec<u64>,
    /// Bytes from `data_at` to the end of the last data.
    pub len: u64,
    /// Bytes before the first that the arrays' places are counted from.
    pub data_at: u64,
    pub said: Said,
    /// Names, types and shapes.
    hash: u64,
}

/// What stands around the data.
#[derive(Clone, Debug)]
enum Around {
    /// A header, which lists the arrays in the order of their data; and what is written down of the whole.
    Safetensors(Vec<Tensor>, Attributes),
    /// A header before each, and those of the archive.
    Npz(Vec<(Slot, Vec<u8>)>),
}

impl Packed {
    /// Lays arrays out.
    ///
    /// # Errors
    /// [`PortError::Bundle`] for names that cannot be; [`FileError::NoForm`] for an element type that the format
    /// does not have; [`FileError::BadSafetensors`] for a header that would be too long.
    pub fn new(format: Format, arrays: &[Array], options: &Options, path: &str) -> Result<Packed, FileError> {
        if let Some(array) = arrays.iter().find(|array| changes(array)) {
            return Err(refused(
                path,
                &array.name,
                "its size changes from step to step; a file has one step",
            ));
        }
        // The place of what follows an array depends on how it is described.
        let of = |a: &Array| {
            let descr = options.descr_of(a).map_or("", Descr::as_str);
            format!("{:?} {} {descr} {:?};", a.name, a.dataset.elem(), a.dataset.shape())
        };
        let mut said: String = arrays.iter().map(of).collect();
        match format {
            Format::Npz => Ok(Packed::npz(arrays, options, fnv1a(said.bytes()))),
            _ => {
                said += &Value::Object(options.attributes_of("")).to_string();
                Packed::safetensors(arrays, options, fnv1a(said.bytes()), path)
            }
        }
    }

    /// Those of large elements first, as the format's own library has them, so that each begins at a multiple of its
    /// element's size.
    fn safetensors(arrays: &[Array], options: &Options, hash: u64, path: &str) -> Result<Packed, FileError> {
        let mut order: Vec<usize> = (0..arrays.len()).collect();
        order.sort_by_key(|&n| (std::cmp::Reverse(arrays[n].dataset.elem().len_bytes()), &arrays[n].name));
        let (mut tensors, mut at, mut len) = (Vec::with_capacity(arrays.len()), vec![0; arrays.len()], 0u64);
        for n in order {
            let Array { name, dataset, .. } = &arrays[n];
            if name.len() > MAX_NAME_BYTES || name == "__metadata__" {
                return Err(refused(path, name, "no tensor of a safetensors file has that name"));
            }
            let elem = dataset.elem();
            let Some(dtype) = dtype(elem) else {
                return Err(FileError::NoForm { path: path.to_owned(), format: "safetensors", elem });
            };
            at[n] = len;
            let (begin, end) = (len, len.saturating_add(dataset.len_bytes()));
            let (name, dtype, shape) = (name.clone(), dtype.to_owned(), dataset.shape().to_vec());
            tensors.push(Tensor { name, dtype, elem: Some(elem), shape, begin, end });
            len = end;
        }
        let whole = options.attributes_of("");
        let header =
            print_all(&tensors, &metadata(&whole, ""), None).map_or(usize::MAX, |header| header.len());
        let header = header.saturating_add(VALUES_ROOM);
        if header > MAX_HEADER_BYTES {
            let (len, limit) = (header as u64, MAX_HEADER_BYTES);
            let source = SafetensorsError::TooLong { len, limit };
            return Err(FileError::BadSafetensors { path: path.to_owned(), source });
        }
        let (around, said) = (Around::Safetensors(tensors, whole), Said::default());
        Ok(Packed { around, at, len, data_at: header as u64, said, hash })
    }

    /// One behind the other.
    fn npz(arrays: &[Array], options: &Options, hash: u64) -> Packed {
        let (mut slots, mut at, mut end) = (Vec::with_capacity(arrays.len()), Vec::new(), 0u64);
        for array in arrays {
            let header = Header::of_steps(&array.dataset, options.descr_of(array).cloned(), 1, false);
            let header = header.print(header.len_bytes()).unwrap_or_default();
            let len = array.dataset.len_bytes().saturating_add(header.len() as u64);
            let slot = Slot::behind(end, &array.name, len);
            at.push(slot.at.saturating_add(header.len() as u64));
            end = slot.at.saturating_add(slot.len);
            slots.push((slot, header));
        }
        Packed { around: Around::Npz(slots), at, len: end, data_at: 0, said: Said::default(), hash }
    }

    /// Has the file say this of its step: JSON. That of unit 0 counts.
    ///
    /// # Errors
    /// [`PortError::BadOption`] for more than there is room for.
    pub fn say(&self, values: &str, options: &Options, path: &str) -> Result<(), FileError> {
        // As text in JSON it takes more.
        let escaped = serde_json::to_string(values).map_or(usize::MAX, |text| text.len());
        let room = VALUES_ROOM - VALUES_KEY.len() - 8;
        if matches!(self.around, Around::Safetensors(..)) && escaped > room {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(path.to_owned())),
                option: "values",
                found: format!("{escaped} bytes of JSON"),
                expected: format!("at most {room} in a safetensors file").into(),
            }));
        }
        if options.port.unit == 0 {
            self.said.say(0, values);
        }
        Ok(())
    }

    /// Writes what stands around the data.
    ///
    /// # Errors
    /// [`FileError::NoSpace`], [`FileError::System`].
    pub fn finish(&self, io: &Io<'_>) -> Result<(), FileError> {
        let said = self.said.all().into_iter().next().unwrap_or_default();
        match &self.around {
            Around::Safetensors(tensors, whole) => {
                // Room was kept for all that can be said.
                let header = print_all(tensors, &metadata(whole, &said), Some(self.data_at as usize));
                io.write(&header.unwrap_or_default(), 0)
            }
            Around::Npz(slots) => {
                slots.iter().try_for_each(|(slot, header)| io.write(header, slot.at))?;
                let slots: Vec<Slot> = slots.iter().map(|(slot, _)| slot.clone()).collect();
                archive::finish(io, &slots, &said)
            }
        }
    }

    /// What all units must agree on besides the layouts.
    pub fn text(&self) -> String {
        let format = match self.around {
            Around::Safetensors(..) => "safetensors",
            Around::Npz(_) => "npz",
        };
        format!("{format} of {} arrays ({:x})", self.at.len(), self.hash)
    }
}

/// What a `.safetensors` file says besides its tensors: text, or JSON where it is something else.
fn metadata(whole: &Attributes, values: &str) -> BTreeMap<String, String> {
    let mut metadata = BTreeMap::from([(FORMAT_KEY.to_owned(), FORMAT.to_owned())]);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    metadata.extend(whole.iter().map(|(key, value)| (key.clone(), text(value))));
    if !values.is_empty() {
        metadata.insert(VALUES_KEY.to_owned(), values.to_owned());
    }
    metadata
}

/// Whether the size of an array changes from step to step.
pub fn changes(array: &Array) -> bool {
    !matches!(array.open, None | Some(Changes::Never))
}

/// A bundle's error, of a file.
pub fn bundle(path: &str) -> impl Fn(BundleError) -> FileError + '_ {
    move |source| {
        let (port, source) = (PortName::File(path.to_owned()), Box::new(source));
        FileError::Port(PortError::Bundle { port, source })
    }
}

/// Why an array cannot be in a file.
pub fn refused(path: &str, name: &str, why: &'static str) -> FileError {
    bundle(path)(BundleError::Name { name: crate::json::shorten(name), why })
}
