//! The form of a file that is written: what comes before the data, and how long it is.

use super::beside::Kept;
use super::io::Io;
use super::members::Members;
use super::packed::{bundle, refused, Packed};
use super::slabs::Slabs;
use super::target::Target;
use super::{wire, Format, Options, COMPRESSED_CHUNK_BYTES};
use crate::npy::{Descr, Header};
use crate::ragged::Growing;
use crate::zarr::{About, Compression, Version};
use crate::{safetensors, steps, zarr, FileError};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::hash::fnv1a;
use polyduct_port::{Array, Changes, PortError, PortName};
use std::sync::{Arc, Mutex, PoisonError};

/// The least number of bytes set aside for a .npy header; NumPy itself writes that many for small arrays.
const HEADER_BYTES: usize = 128;

/// What the file is to look like.
#[derive(Clone, Debug)]
pub struct Form {
    pub format: Format,
    /// One step; of a file of several arrays their bytes.
    pub dataset: Dataset,
    /// Where the data begin.
    pub data_at: u64,
    pub body: Body,
}

/// What the file holds.
#[derive(Clone, Debug)]
pub enum Body {
    /// One array.
    One(Box<One>),
    /// Several arrays in a file.
    Packed(Packed),
    /// Several Zarr arrays in a group.
    Group(Members),
    /// An array whose size changes, in a `.npy` file, and what NumPy takes its elements for.
    Growing(Growing, Option<Descr>),
    /// Text without data, which unit 0 knows when it closes.
    Text(Arc<Mutex<String>>),
}

/// One array of a file.
#[derive(Clone, Debug)]
pub struct One {
    /// Its chunks, if it is a Zarr array.
    slabs: Option<Slabs>,
    /// The other tensors of a safetensors file.
    kept: Option<Kept>,
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
    /// a name that a tensor cannot have, and for one array where the format has names for several.
    pub fn new(format: Format, dataset: Dataset, options: &Options, path: &str) -> Result<Form, FileError> {
        let bad = |option, found: String, expected: String| {
            let port = Some(PortName::File(path.to_owned()));
            Err(FileError::Port(PortError::BadOption { port, option, found, expected: expected.into() }))
        };
        let tensor = options.tensor.as_deref().unwrap_or(safetensors::DEFAULT_NAME).to_owned();
        if let Some(descr) = options.descr.as_ref().filter(|d| d.elem() != Some(dataset.elem())) {
            let expected = format!("NumPy's type of elements {}", dataset.elem());
            return bad("descr", wire::cut(descr.as_str(), 80), expected);
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
            Format::Npz => {
                return bad("arrays", "one without a name".into(), "arrays with names, in a .npz file".into())
            }
            Format::Safetensors if tensor.len() > safetensors::MAX_NAME_BYTES || tensor == "__metadata__" => {
                let expected = format!("at most {} bytes, not __metadata__", safetensors::MAX_NAME_BYTES);
                return bad("tensor", wire::cut(&tensor, 40), expected);
            }
            Format::Safetensors => {
                let shape = steps::shape_of(dataset.shape(), u64::MAX, stepped);
                let len = safetensors::len_bytes_of(&tensor, dataset.elem(), &shape);
                len.ok_or_else(|| FileError::NoForm {
                    path: path.to_owned(),
                    format: "safetensors",
                    elem: dataset.elem(),
                })?
            }
        };
        let slabs = match format {
            Format::Zarr => Some(slabs(dataset, options.about(), options, path)?),
            _ => None,
        };
        let body = Body::One(Box::new(One { slabs, kept: None, tensor, descr, stepped }));
        Ok(Form { format, dataset, data_at: data_at as u64, body })
    }

    /// Of several arrays: in a `.safetensors` or a `.npz` file, or in a group of Zarr; or of one whose size changes, in
    /// a `.npy` file.
    ///
    /// # Errors
    /// As [`Packed::new`] and [`Members::new`]; more bytes than can be counted; [`PortError::Bundle`] for others in a
    /// `.npy` file.
    pub fn of_arrays(
        format: Format,
        arrays: &[Array],
        options: &Options,
        path: &str,
    ) -> Result<Form, FileError> {
        let (len, data_at, body) = match format {
            Format::Zarr => (0, 0, Body::Group(Members::new(arrays, options, path)?)),
            Format::Npy => {
                options.check_unchunked(path)?;
                let [array] = arrays else {
                    return Err(refused(path, &arrays[1].name, "a .npy file has one array"));
                };
                let growing = Growing::of(array, options.port.units).map_err(bundle(path))?;
                let growing = growing.ok_or_else(|| {
                    refused(
                        path,
                        &array.name,
                        "its size does not change; open the file with shape= and dtype=",
                    )
                })?;
                let descr = options.descr_of(array).cloned();
                let header = npy_header(&growing, descr.as_ref(), u64::MAX);
                (0, header.len_bytes().max(HEADER_BYTES) as u64, Body::Growing(growing, descr))
            }
            _ => {
                options.check_unchunked(path)?;
                let packed = Packed::new(format, arrays, options, path)?;
                (packed.len, packed.data_at, Body::Packed(packed))
            }
        };
        let dataset = Dataset::new(&[len], ElemType::U8).map_err(FileError::layout(path))?;
        Ok(Form { format, dataset, data_at, body })
    }

    /// Of a file of text alone, which may be said until the file is closed.
    ///
    /// # Errors
    /// None that are the caller's.
    pub fn of_text(path: &str) -> Result<(Form, Arc<Mutex<String>>), FileError> {
        let dataset = Dataset::new(&[0], ElemType::U8).map_err(FileError::layout(path))?;
        let text = Arc::default();
        let body = Body::Text(Arc::clone(&text));
        Ok((Form { format: Format::Raw, dataset, data_at: 0, body }, text))
    }

    /// The same beside what stays of the file that is there.
    ///
    /// # Errors
    /// As [`Kept::of`]; [`FileError::BadSafetensors`] for a header that would be too long.
    pub fn beside(mut self, target: &Target, options: &Options) -> Result<Form, FileError> {
        let Form { format, dataset, data_at, body: Body::One(one) } = &mut self else { return Ok(self) };
        let elem = dataset.elem();
        if (target.version, elem) == (Some(Version::V2), ElemType::Bf16) {
            let path = target.path.clone();
            return Err(FileError::NoForm { path, format: "Zarr version 2", elem });
        }
        if *format != Format::Safetensors {
            return Ok(self);
        }
        let shape = steps::shape_of(dataset.shape(), u64::MAX, one.stepped);
        let Some(kept) = Kept::of(target, elem, options)? else { return Ok(self) };
        let header = kept.beside.len_bytes_of(&one.tensor, elem, &shape).unwrap_or(usize::MAX);
        if header > safetensors::MAX_HEADER_BYTES {
            let (len, limit) = (header as u64, safetensors::MAX_HEADER_BYTES);
            let source = safetensors::SafetensorsError::TooLong { len, limit };
            return Err(FileError::BadSafetensors { path: target.path.clone(), source });
        }
        *data_at = (header as u64).saturating_add(kept.len_bytes().0);
        one.kept = Some(kept);
        Ok(self)
    }

    /// The chunks of the only array.
    pub fn slabs(&self) -> Option<&Slabs> {
        match &self.body {
            Body::One(one) => one.slabs.as_ref(),
            _ => None,
        }
    }

    /// The chunks of an array: of the only one, or of one of a group.
    pub fn slabs_of(&self, array: usize) -> Option<&Slabs> {
        match &self.body {
            Body::Group(members) => members.arrays.get(array).map(|member| &member.slabs),
            _ => self.slabs(),
        }
    }

    /// What stays of a safetensors file beside the tensor that is written.
    pub fn kept(&self) -> Option<&Kept> {
        match &self.body {
            Body::One(one) => one.kept.as_ref(),
            _ => None,
        }
    }

    /// Whether it is a directory.
    pub fn is_tree(&self) -> bool {
        self.format == Format::Zarr
    }

    /// Whether an array is written with the first step alone.
    pub fn is_constant(&self, array: usize) -> bool {
        match &self.body {
            Body::Group(members) => members.arrays.get(array).is_some_and(|member| member.constant),
            _ => false,
        }
    }

    /// An array whose size changes.
    pub fn growing(&self, array: usize) -> Option<&Growing> {
        match &self.body {
            Body::Growing(growing, _) => Some(growing),
            Body::Group(members) => members.arrays.get(array)?.growing.as_ref(),
            _ => None,
        }
    }

    /// How the size of an array changes, or that nothing of it does.
    pub fn changes(&self, array: usize) -> Option<Changes> {
        match self.growing(array) {
            Some(growing) => Some(growing.sizes.open()),
            None => self.is_constant(array).then_some(Changes::Never),
        }
    }

    /// Whether its arrays have names.
    pub fn has_names(&self) -> bool {
        matches!(self.body, Body::Packed(_) | Body::Group(_) | Body::Growing(..))
    }

    /// What all units must agree on besides shape, type and layout.
    pub fn text(&self, options: &Options) -> String {
        match &self.body {
            Body::Packed(packed) => packed.text(),
            Body::Group(members) => format!("{}{}", options.format_text(self.format), members.text()),
            Body::Growing(growing, descr) => {
                let descr = descr.as_ref().map_or("", Descr::as_str);
                format!("npy of {:x}", fnv1a((growing.text() + descr).bytes()))
            }
            _ => options.format_text(self.format) + &self.kept().map_or(String::new(), Kept::text),
        }
    }

    /// Where the other tensors begin that stand before this one.
    pub fn kept_at(&self) -> u64 {
        self.data_at - self.kept().map_or(0, |kept| kept.len_bytes().0)
    }

    /// Offset of a step in the file; the largest number where it cannot be counted.
    pub fn step_at(&self, step: u64) -> u64 {
        self.dataset.len_bytes().saturating_mul(step).saturating_add(self.data_at)
    }

    /// Length of the whole file.
    pub fn file_len(&self, steps: u64) -> u64 {
        if let Body::Growing(growing, _) = &self.body {
            return self.data_at.saturating_add(growing.len_bytes());
        }
        self.step_at(steps).saturating_add(self.kept().map_or(0, |kept| kept.len_bytes().1))
    }

    /// Writes what there is besides the data.
    ///
    /// # Errors
    /// [`FileError::NoSpace`], [`FileError::System`]; [`FileError::Truncated`] where what stays is not there any more.
    pub fn finish(&self, io: &Io<'_>, steps: u64) -> Result<(), FileError> {
        match &self.body {
            Body::Packed(packed) => return packed.finish(io),
            Body::Text(text) => {
                io.write(text.lock().unwrap_or_else(PoisonError::into_inner).as_bytes(), 0)?;
            }
            Body::One(one) => {
                io.write(&self.header(one, steps), 0)?;
                if let Some(kept) = &one.kept {
                    kept.copy(io, self.kept_at(), self.step_at(steps))?;
                }
            }
            Body::Growing(growing, descr) => {
                let all = growing.steps();
                let header = npy_header(growing, descr.as_ref(), all.end());
                io.write(&header.print(self.data_at as usize).unwrap_or_default(), 0)?;
                // Files of several arrays, one saved behind the other, are as NumPy has them.
                let (shape, numbers) = all.to_array();
                let header =
                    Header { elem: ElemType::I64, descr: None, big_endian: false, fortran: false, shape };
                let mut begins = header.print(header.len_bytes()).unwrap_or_default();
                begins.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
                io.write(&begins, self.file_len(steps))?;
            }
            Body::Group(_) => {}
        }
        Ok(())
    }

    /// What comes before the data of one array.
    fn header(&self, one: &One, steps: u64) -> Vec<u8> {
        match self.format {
            Format::Raw | Format::Npz | Format::Zarr => Vec::new(),
            Format::Safetensors => {
                let shape = steps::shape_of(self.dataset.shape(), steps, one.stepped);
                let (elem, len) = (self.dataset.elem(), self.kept_at() as usize);
                match &one.kept {
                    Some(kept) => kept.beside.print(&one.tensor, elem, &shape, len),
                    None => safetensors::print(&one.tensor, elem, &shape, len),
                }
                .unwrap_or_default()
            }
            // It fits: the room was counted for the longest number.
            Format::Npy => Header::of_steps(&self.dataset, one.descr.clone(), steps, one.stepped)
                .print(self.data_at as usize)
                .unwrap_or_default(),
        }
    }
}

/// The header of an array of so many indices of a first dimension that grows.
fn npy_header(growing: &Growing, descr: Option<&Descr>, indices: u64) -> Header {
    let (elem, shape) = (growing.sizes.most().elem(), growing.steps().shape_of(indices));
    Header { elem, descr: descr.cloned(), big_endian: false, fortran: false, shape }
}

/// The chunks of an array that is written, of which its users say this.
///
/// # Errors
/// [`FileError::NoForm`] for elements that are too long; [`PortError::BadOption`] for chunks that do not fit, and more
/// attributes than metadata may have.
pub fn slabs(dataset: Dataset, about: About, options: &Options, path: &str) -> Result<Slabs, FileError> {
    if let ElemType::Bytes(zarr::MAX_RAW_BYTES..) = dataset.elem() {
        return Err(FileError::NoForm { path: path.to_owned(), format: "Zarr", elem: dataset.elem() });
    }
    let is_compressed = options.compression != Compression::None;
    let most = if is_compressed { COMPRESSED_CHUNK_BYTES } else { u64::MAX };
    let slabs = Slabs::new(dataset, options.chunk_bytes.min(most)).about(about, options.stepped);
    let len = slabs.metadata(u64::MAX).len();
    if len > zarr::MAX_METADATA_BYTES {
        return Err(FileError::Port(PortError::BadOption {
            port: Some(PortName::File(path.to_owned())),
            option: "attributes",
            found: format!("{len} bytes of zarr.json"),
            expected: format!("at most {}", zarr::MAX_METADATA_BYTES).into(),
        }));
    }
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
                    let Body::One(one) = &form.body else { unreachable!() };
                    let header = form.header(one, steps);
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
