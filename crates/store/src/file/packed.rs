//! A `.safetensors` file of several arrays: where each of them lies, and what the header says.

use super::Options;
use crate::safetensors::{dtype, print_all, SafetensorsError, Tensor, MAX_HEADER_BYTES, MAX_NAME_BYTES};
use crate::FileError;
use polyduct_message::hash::fnv1a;
use polyduct_port::{check_names, Array, BundleError, PortError, PortName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the header in which what the writer says of a step has room: it says so when the place of the arrays
/// is settled already.
pub const VALUES_ROOM: usize = 4096;
/// What the values of a step are called in the header.
pub const VALUES_KEY: &str = "polyduct";

/// The arrays of a file, and what it says of them.
#[derive(Clone, Debug)]
pub struct Packed {
    /// In the order of their data.
    tensors: Vec<Tensor>,
    /// Where the data of each array that was given begin, from the first one's.
    pub at: Vec<u64>,
    /// Bytes of all data.
    pub len: u64,
    /// Bytes before them.
    pub data_at: u64,
    /// What is written down of the arrays: text by name. Set by unit 0 before the header is printed.
    metadata: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Packed {
    /// Lays arrays out: those of large elements first, as the format's own library has them, so that each begins
    /// at a multiple of its element's size.
    ///
    /// # Errors
    /// [`PortError::Bundle`] for names that cannot be; [`FileError::NoForm`] for an element type that the format
    /// does not have; [`FileError::BadSafetensors`] for a header that would be too long.
    pub fn new(arrays: &[Array], path: &str) -> Result<Packed, FileError> {
        let bundle = |source: BundleError| {
            FileError::Port(PortError::Bundle {
                port: PortName::File(path.to_owned()),
                source: Box::new(source),
            })
        };
        check_names(arrays.iter().map(|array| array.name.as_str())).map_err(bundle)?;
        let mut order: Vec<usize> = (0..arrays.len()).collect();
        order.sort_by_key(|&n| (std::cmp::Reverse(arrays[n].dataset.elem().len_bytes()), &arrays[n].name));
        let (mut tensors, mut at, mut len) = (Vec::with_capacity(arrays.len()), vec![0; arrays.len()], 0u64);
        for n in order {
            let Array { name, dataset, open, .. } = &arrays[n];
            let refuse = |why| Err(bundle(BundleError::Name { name: name.clone(), why }));
            if name.len() > MAX_NAME_BYTES || name == "__metadata__" {
                return refuse("no tensor of a safetensors file has that name");
            }
            if open.is_some() {
                return refuse("its size changes, or it is constant; a safetensors file has one step");
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
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        let header = print_all(&tensors, &metadata, None).map_or(usize::MAX, |header| header.len());
        let header = header.saturating_add(VALUES_ROOM);
        if header > MAX_HEADER_BYTES {
            let (len, limit) = (header as u64, MAX_HEADER_BYTES);
            let source = SafetensorsError::TooLong { len, limit };
            return Err(FileError::BadSafetensors { path: path.to_owned(), source });
        }
        let metadata = Arc::new(Mutex::new(metadata));
        Ok(Packed { tensors, at, len, data_at: header as u64, metadata })
    }

    /// Has the file say this of its step: JSON.
    ///
    /// # Errors
    /// [`PortError::BadOption`] for more than there is room for.
    pub fn say(&self, values: &str, options: &Options, path: &str) -> Result<(), FileError> {
        // As text in JSON it takes more.
        let escaped = serde_json::to_string(values).map_or(usize::MAX, |text| text.len());
        if escaped + VALUES_KEY.len() + 8 > VALUES_ROOM {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(path.to_owned())),
                option: "values",
                found: format!("{escaped} bytes of JSON"),
                expected: format!("at most {} in a safetensors file", VALUES_ROOM - VALUES_KEY.len() - 8)
                    .into(),
            }));
        }
        // Those of unit 0 count.
        if options.port.unit == 0 {
            let mut metadata = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
            match values.is_empty() {
                true => metadata.remove(VALUES_KEY),
                false => metadata.insert(VALUES_KEY.to_owned(), values.to_owned()),
            };
        }
        Ok(())
    }

    /// The header.
    pub fn header(&self) -> Vec<u8> {
        let metadata = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        // Room was kept for all that can be said.
        print_all(&self.tensors, &metadata, Some(self.data_at as usize)).unwrap_or_default()
    }

    /// What all units must agree on besides the layouts.
    pub fn text(&self) -> String {
        let of = |t: &Tensor| format!("{:?} {} {:?};", t.name, t.dtype, t.shape);
        let all: String = self.tensors.iter().map(of).collect();
        format!("safetensors of {} arrays ({:x})", self.tensors.len(), fnv1a(all.bytes()))
    }
}
