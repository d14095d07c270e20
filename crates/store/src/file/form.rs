//! What a file that is written is to look like: what comes before the data, and how long it is.

use super::slabs::Slabs;
use super::{wire, Format, Options};
use crate::npy::{Descr, Header};
use crate::{safetensors, steps, zarr, FileError};
use polyduct_layout::{Dataset, ElemType};

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
    /// [`FileError::NoForm`] for an element type that the format does not have, [`FileError::BadOption`] for a name that a
    /// tensor cannot have.
    pub fn new(format: Format, dataset: Dataset, options: &Options, path: &str) -> Result<Form, FileError> {
        let tensor = options.tensor.as_deref().unwrap_or(safetensors::DEFAULT_NAME).to_owned();
        if let Some(descr) = options.descr.as_ref().filter(|d| d.elem() != Some(dataset.elem())) {
            return Err(FileError::BadOption {
                path: path.to_owned(),
                option: "descr",
                found: wire::cut(descr.as_str(), 80),
                expected: format!("NumPy's type of elements {}", dataset.elem()),
            });
        }
        let (descr, stepped) = (options.descr.clone(), options.stepped);
        let data_at = match format {
            Format::Raw | Format::Zarr => 0,
            Format::Npy => header_of(&dataset, &descr, u64::MAX, stepped).len_bytes().max(HEADER_BYTES),
            Format::Safetensors if tensor.len() > safetensors::MAX_NAME_BYTES || tensor == "__metadata__" => {
                return Err(FileError::BadOption {
                    path: path.to_owned(),
                    option: "tensor",
                    found: wire::cut(&tensor, 40),
                    expected: format!("at most {} bytes, not __metadata__", safetensors::MAX_NAME_BYTES),
                })
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
        let slabs = (format == Format::Zarr)
            .then(|| Slabs::new(dataset, options.chunk_bytes).about(options.attributes.clone(), stepped));
        if let Some(len) = slabs.as_ref().map(|slabs| slabs.metadata(u64::MAX).len()) {
            if len > zarr::MAX_METADATA_BYTES {
                return Err(FileError::BadOption {
                    path: path.to_owned(),
                    option: "attributes",
                    found: format!("{len} bytes of zarr.json"),
                    expected: format!("at most {}", zarr::MAX_METADATA_BYTES),
                });
            }
        }
        Ok(Form { format, dataset, data_at: data_at as u64, slabs, tensor, descr, stepped })
    }

    /// Offset of a step in the file; the largest number where it cannot be counted.
    pub fn step_at(&self, step: u64) -> u64 {
        self.dataset.len_bytes().saturating_mul(step).saturating_add(self.data_at)
    }

    /// Length of the whole file.
    pub fn file_len(&self, steps: u64) -> u64 {
        self.step_at(steps)
    }

    /// What comes before the data.
    pub fn header(&self, steps: u64) -> Vec<u8> {
        match self.format {
            Format::Raw | Format::Zarr => Vec::new(),
            Format::Safetensors => {
                let shape = steps::shape_of(self.dataset.shape(), steps, self.stepped);
                let len = self.data_at as usize;
                safetensors::print(&self.tensor, self.dataset.elem(), &shape, len).unwrap_or_default()
            }
            // It fits: the room was counted for the longest number.
            Format::Npy => header_of(&self.dataset, &self.descr, steps, self.stepped)
                .print(self.data_at as usize)
                .unwrap_or_default(),
        }
    }
}

fn header_of(dataset: &Dataset, descr: &Option<Descr>, steps: u64, stepped: bool) -> Header {
    let shape = steps::shape_of(dataset.shape(), steps, stepped);
    Header { elem: dataset.elem(), descr: descr.clone(), fortran: false, shape }
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
                        (header_of(&form.dataset, &None, steps, false), form.data_at)
                    );
                }
            }
        }
        let small = npy(Dataset::new(&[512, 512], ElemType::F32).unwrap());
        assert_eq!(small.data_at, 128);
        assert_eq!(Form::new(Format::Raw, small.dataset, &Options::default(), "x").unwrap().data_at, 0);
    }
}
