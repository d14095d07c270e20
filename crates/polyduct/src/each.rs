//! Several arrays in files, each opened for itself: what is copied need not be in memory.

use crate::files::arrays_file;
use crate::reader::ReadEnd;
use crate::{stats, Error, Mode, Reader, Target};
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::Expect;
use polyduct_store::file::{is_group, is_index, Found, FoundArray};
use polyduct_store::zarr::Dims;
use polyduct_store::{self as store, Attributes, FileReader};

/// The arrays of a file, of a set of files or of a group: see [`Open::each`](crate::Open::each).
pub struct Each {
    target: Target,
    options: store::Options,
    expect: Expect,
    arrays: Vec<FoundArray>,
    steps: u64,
    values: Vec<Vec<u8>>,
}

impl Each {
    pub(crate) fn find(target: Target, options: store::Options, expect: Expect) -> Result<Each, Error> {
        let (path, format) = arrays_file(&target)?;
        options.check(|| polyduct_port::PortName::File(path.display().to_string()))?;
        let found = Found::of(path, format, &options)?;
        let steps = found.steps();
        let values = (0..steps).map(|step| found.values(step).to_vec()).collect();
        Ok(Each { target, options, expect, arrays: found.into_arrays(), steps, values })
    }

    /// Steps of those arrays that have steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What the writer said of a step, [packed](crate::values).
    pub fn values(&self, step: u64) -> &[u8] {
        usize::try_from(step).ok().and_then(|step| self.values.get(step)).map_or(&[], Vec::as_slice)
    }

    /// Leaves those that are not wanted.
    pub fn retain(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        self.arrays.retain(|array| wanted(array.name()));
    }

    /// Each with its name, one step of it as it is read, and whether it has steps: one that has none is the same in all.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn arrays(&self) -> Result<Vec<(&str, Dataset, bool)>, Error> {
        let of = |array: &FoundArray| -> Result<_, Error> {
            let found = array.dataset()?;
            let elem = self.expected(found).elem.unwrap_or(found.elem());
            Ok(Dataset::new(found.shape(), elem)?)
        };
        self.arrays.iter().map(|array| Ok((array.name(), of(array)?, array.stepped()))).collect()
    }

    /// What is written down of each, and what its dimensions are called, without that of the steps.
    pub fn about(&self) -> impl Iterator<Item = (Attributes, Option<Dims>)> + '_ {
        self.arrays.iter().map(FoundArray::about)
    }

    /// What is expected of an array: the type that was asked for, where elements of its own can become that.
    fn expected(&self, found: &Dataset) -> Expect {
        let wanted = self.expect.elem.filter(|&wanted| {
            let two_bytes = (found.elem(), wanted) == (ElemType::Bytes(2), ElemType::Bf16);
            wanted == found.elem() || two_bytes || Conversion::between(found.elem(), wanted).is_some()
        });
        Expect { elem: wanted, shape: None, convert: self.expect.convert }
    }

    /// The arrays as ports of their own, in the order of [`arrays`](Self::arrays), each in the layout that is told of it.
    /// A port holds a file open from when it is first read.
    pub fn read(
        self,
        layout: impl Fn(&str, &Dataset) -> String,
    ) -> impl Iterator<Item = Result<Reader, Error>> {
        let Each { arrays, target, options, expect, steps, values } = self;
        let own = Each { target, options, expect, arrays: Vec::new(), steps, values };
        arrays.into_iter().map(move |array| {
            let found = *array.dataset()?;
            let (layout, expect) = (layout(array.name(), &found), own.expected(&found));
            let port = FileReader::of(array, steps, &layout, &expect, &own.options)?;
            let told = stats::Sink::new(&own.target, Mode::Read, &own.options.port);
            Ok(Reader { end: ReadEnd::File(Box::new(port)), told })
        })
    }
}

/// Whether what a target names has several arrays, with names; `None` where that is not known before it is opened.
pub(crate) fn has_names(target: &Target) -> Result<Option<bool>, Error> {
    match target {
        Target::Npz(_, None) => Ok(Some(true)),
        Target::Set(path) => Ok(Some(is_index(path))),
        Target::Zarr(path) => Ok(Some(is_group(path)?)),
        Target::Safetensors(path, None) => {
            let found = Found::of(path, store::Format::Safetensors, &store::Options::default())?;
            Ok(Some(found.into_arrays().len() != 1))
        }
        Target::Pipe(_) | Target::Net(_) => Ok(None),
        _ => Ok(Some(false)),
    }
}
