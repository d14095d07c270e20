//! The form of a file that is written: what comes before the data, and how long it is.

use super::beside::Kept;
use super::packed::Packed;
use super::slabs::Slabs;
use super::target::Target;
use super::{wire, Format, Options, COMPRESSED_CHUNK_BYTES};
use crate::npy::{Descr, Header};
use crate::zarr::{Compression, Version};
use crate::{safetensors, steps, zarr, FileError};
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::{Array, PortError, PortName};
use std::sync::{Arc, Mutex, PoisonError};

/// The least number of bytes set aside for a .npy header; NumPy itself writes that many for small arrays.
const HEADER_BYTES: usize = 128;

/// What the file is to look like.
#[derive(Clone, Debug)]
pub struct Form {
    pub format: Format,
    pub dataset: Dataset,
    /// Where the data begin.
    pub data_at: u64,
    /// The chunks of a Zarr array.
    pub slabs: Option<Slabs>,
    /// The other tensors of a safetensors file.
    pub kept: Option<Kept>,
    /// The arrays of a file of several; the dataset is then their bytes.
    pub packed: Option<Packed>,
    /// All of a file without data, which unit 0 knows when it closes.
    text: Option<Arc<Mutex<String>>>,
    /// The name of the tensor of a safetensors file.
    tensor: String,
    /// What NumPy takes the elements for.
    descr: Option<Descr>,
    /// Whether the steps are a dimension even if there is just one.
    stepped: bool,
}

impl Form {
    /// Sets aside room for the header before the number of steps is known.
    ///
    /// # Errors
    /// [`FileError::NoForm`] for an element type that the format does not have, [`PortError::BadOption`] for
    /// a name that a tensor cannot have.
    pub fn new(format: Format, dataset: Dataset, options: &Options, path: &str) -> Result<Form, FileError> {
        let tensor = options.tensor.as_deref().unwrap_or(safetensors::DEFAULT_NAME).to_owned();
        if let Some(descr) = options.descr.as_ref().filter(|d| d.elem() != Some(dataset.elem())) {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(path.to_owned())),
                option: "descr",
                found: wire::cut(descr.as_str(), 80),
                expected: format!("NumPy's type of elements {}", dataset.elem()).into(),
            }));
        }
        if format != Format::Zarr {
            options.check_unchunked(path)?;
        }
        let (descr, stepped) = (options.descr.clone(), options.stepped);
        let data_at = match format {
            Format::Raw | Format::Zarr => 0,
            Format::Npy => {
                Header::of_steps(&dataset, descr.clone(), u64::MAX, stepped).len_bytes().max(HEADER_BYTES)
            }
            Format::Safetensors if tensor.len() > safetensors::MAX_NAME_BYTES || tensor == "__metadata__" => {
                return Err(FileError::Port(PortError::BadOption {
                    port: Some(PortName::File(path.to_owned())),
                    option: "tensor",
                    found: wire::cut(&tensor, 40),
                    expected: format!("at most {} bytes, not __metadata__", safetensors::MAX_NAME_BYTES)
                        .into(),
                }))
            }
            Format::Safetensors => {
                let len = safetensors::len_bytes_of(
                    &tensor,
                    dataset.elem(),
                    &steps::shape_of(dataset.shape(), u64::MAX, stepped),
                );
                len.ok_or_else(|| FileError::NoForm {
                    path: path.to_owned(),
                    format: "safetensors",
                    elem: dataset.elem(),
                })?
            }
        };
        if let (Format::Zarr, ElemType::Bytes(zarr::MAX_RAW_BYTES..)) = (format, dataset.elem()) {
            return Err(FileError::NoForm { path: path.to_owned(), format: "Zarr", elem: dataset.elem() });
        }
        let slabs = match format {
            Format::Zarr => Some(slabs(dataset, options, path)?),
            _ => None,
        };
        if let Some(len) = slabs.as_ref().map(|slabs| slabs.metadata(u64::MAX).len()) {
            if len > zarr::MAX_METADATA_BYTES {
                return Err(FileError::Port(PortError::BadOption {
                    port: Some(PortName::File(path.to_owned())),
                    option: "attributes",
                    found: format!("{len} bytes of zarr.json"),
                    expected: format!("at most {}", zarr::MAX_METADATA_BYTES).into(),
                }));
            }
        }
        Ok(Form {
            format,
            dataset,
            data_at: data_at as u64,
            slabs,
            kept: None,
            packed: None,
            text: None,
            tensor,
            descr,
            stepped,
        })
    }

    /// Of a `.safetensors` file of several arrays.
    ///
    /// # Errors
    /// As [`Packed::new`]; more bytes than can be counted.
    pub fn of_arrays(arrays: &[Array], path: &str) -> Result<Form, FileError> {
        let packed = Packed::new(arrays, path)?;
        let dataset = Dataset::new(&[packed.len], ElemType::U8).map_err(FileError::layout(path))?;
        Ok(Form {
            format: Format::Safetensors,
            dataset,
            data_at: packed.data_at,
            slabs: None,
            kept: None,
            packed: Some(packed),
            text: None,
            tensor: String::new(),
            descr: None,
            stepped: false,
        })
    }

    /// Of a file of text alone, which may be said until the file is closed.
    ///
    /// # Errors
    /// None that are the caller's.
    pub fn of_text(path: &str) -> Result<(Form, Arc<Mutex<String>>), FileError> {
        let nothing = Dataset::new(&[0], ElemType::U8).map_err(FileError::layout(path))?;
        let text = Arc::default();
        let form = Form::new(Format::Raw, nothing, &Options::default(), path)?;
        Ok((Form { text: Some(Arc::clone(&text)), ..form }, text))
    }

    /// The same beside what stays of the file that is there.
    ///
    /// # Errors
    /// As [`Kept::of`]; [`FileError::BadSafetensors`] for a header that would be too long.
    pub fn beside(self, target: &Target, options: &Options) -> Result<Form, FileError> {
        if (target.version, self.dataset.elem()) == (Some(Version::V2), ElemType::Bf16) {
            let (path, elem) = (target.path.clone(), ElemType::Bf16);
            return Err(FileError::NoForm { path, format: "Zarr version 2", elem });
        }
        if self.format != Format::Safetensors || self.packed.is_some() {
            return Ok(self);
        }
        let (elem, shape) =
            (self.dataset.elem(), steps::shape_of(self.dataset.shape(), u64::MAX, self.stepped));
        let Some(kept) = Kept::of(target, elem, options)? else { return Ok(self) };
        let header = kept.beside.len_bytes_of(&self.tensor, elem, &shape).unwrap_or(usize::MAX);
        if header > safetensors::MAX_HEADER_BYTES {
            let (len, limit) = (header as u64, safetensors::MAX_HEADER_BYTES);
            let source = safetensors::SafetensorsError::TooLong { len, limit };
            return Err(FileError::BadSafetensors { path: target.path.clone(), source });
        }
        let data_at = (header as u64).saturating_add(kept.len_bytes().0);
        Ok(Form { data_at, kept: Some(kept), ..self })
    }

    /// Where the other tensors begin that stand before this one.
    pub fn kept_at(&self) -> u64 {
        self.data_at - self.kept.as_ref().map_or(0, |kept| kept.len_bytes().0)
    }

    /// Offset of a step in the file; the largest number where it cannot be counted.
    pub fn step_at(&self, step: u64) -> u64 {
        self.dataset.len_bytes().saturating_mul(step).saturating_add(self.data_at)
    }

    /// Length of the whole file.
    pub fn file_len(&self, steps: u64) -> u64 {
        self.step_at(steps).saturating_add(self.kept.as_ref().map_or(0, |kept| kept.len_bytes().1))
    }

    /// What comes before the data.
    pub fn header(&self, steps: u64) -> Vec<u8> {
        if let Some(packed) = &self.packed {
            return packed.header();
        }
        if let Some(text) = &self.text {
            return text.lock().unwrap_or_else(PoisonError::into_inner).clone().into_bytes();
        }
        match self.format {
            Format::Raw | Format::Zarr => Vec::new(),
            Format::Safetensors => {
                let shape = steps::shape_of(self.dataset.shape(), steps, self.stepped);
                let (elem, len) = (self.dataset.elem(), self.kept_at() as usize);
                match &self.kept {
                    Some(kept) => kept.beside.print(&self.tensor, elem, &shape, len),
                    None => safetensors::print(&self.tensor, elem, &shape, len),
                }
                .unwrap_or_default()
            }
            // It fits: the room was counted for the longest number.
            Format::Npy => Header::of_steps(&self.dataset, self.descr.clone(), steps, self.stepped)
                .print(self.data_at as usize)
                .unwrap_or_default(),
        }
    }
}

/// The chunks of an array that is written.
fn slabs(dataset: Dataset, options: &Options, path: &str) -> Result<Slabs, FileError> {
    let is_compressed = options.compression != Compression::None;
    let most = if is_compressed { COMPRESSED_CHUNK_BYTES } else { u64::MAX };
    let slabs = Slabs::new(dataset, options.chunk_bytes.min(most)).about(options.about(), options.stepped);
    match (&options.chunks, is_compressed) {
        (None, false) => Ok(slabs),
        (shape, _) => slabs.boxed(shape.as_deref(), path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_room_for_any_number_of_steps() {
        let npy = |dataset| Form::new(Format::Npy, dataset, &Options::default(), "x").unwrap();
        for dims in 0..=8 {
            for size in [0, 1, 7, 1 << 40] {
                let shape: Vec<u64> = (0..dims).map(|k| if k == 0 { size } else { 3 }).collect();
                let form = npy(Dataset::new(&shape, ElemType::Bytes(99)).unwrap());
                for steps in [0, 1, 2, u64::MAX] {
                    let header = form.header(steps);
                    assert_eq!(header.len() as u64, form.data_at);
                    let (parsed, at) = Header::parse(&header).unwrap();
                    assert_eq!(
                        (parsed, at as u64),
                        (Header::of_steps(&form.dataset, None, steps, false), form.data_at)
                    );
                }
            }
        }
        let small = npy(Dataset::new(&[512, 512], ElemType::F32).unwrap());
        assert_eq!(small.data_at, 128);
        assert_eq!(Form::new(Format::Raw, small.dataset, &Options::default(), "x").unwrap().data_at, 0);
    }
}
