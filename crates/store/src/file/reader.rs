//! The reading port of a file.

use super::archive;
use super::chunks::{self, Chunked};
use super::found::{FoundArray, Held};
use super::io::Io;
use super::shape::{self, Contents};
use super::source::{open_regular, read_header, read_tensors, Source};
use super::stretch;
use super::work::Work;
use super::Options;
use super::{timed, Attributes, Format};
use crate::npy::{Descr, Header};
use crate::order::read_swapped;
use crate::safetensors::{self, Tensor};
use crate::zarr::Dims;
use crate::{json, FileError};
use polyduct_layout::{Dataset, Layout, Mapping, Plan};
use polyduct_os::clock;
use polyduct_port::{Expect, PortError, PortName, Stats};
use std::path::Path;
use std::time::Duration;

/// One unit's reading end of a file. Each unit reads on its own, only the bytes that it needs.
///
/// A file that polyduct writes is replaced as a whole, so what is read is one version of it. Units that open
/// it while it is being replaced may get different ones. Of a Zarr array that is replaced, later steps are an
/// error ([`FileError::BadPath`]).
pub struct FileReader {
    source: Source,
    path: String,
    options: Options,
    contents: Contents,
    descr: Option<Descr>,
    plan: Plan,
    /// The stretches of a step, once one was read.
    stretches: Option<Mapping>,
    next: u64,
    len: usize,
    /// A window of the file.
    buffer: Vec<u8>,
    gathered: Vec<u8>,
    closed: bool,
    stats: Stats,
}

impl FileReader {
    /// Opens a file to read unit `options.port.unit`'s part of each of its steps.
    ///
    /// The file's dimensions are those of the expected shape, or of the layout, and it holds one step; or it
    /// has one more, and its first dimension counts steps. A raw file holds as many steps as its length says.
    ///
    /// # Errors
    /// [`FileError::BadHeader`], [`FileError::BadSafetensors`], [`FileError::BadZarr`],
    /// [`FileError::Truncated`], [`FileError::BadLength`] for files that are not what they should be,
    /// [`FileError::NoTensor`], [`FileError::NeedsDataset`], [`FileError::ShapeDiffers`],
    /// [`FileError::ElemDiffers`], [`PortError::Layout`] for expectations that it does not meet,
    /// [`FileError::System`] when it cannot be opened.
    pub fn open(
        path: &Path,
        format: Format,
        layout: &str,
        expect: &Expect,
        options: &Options,
    ) -> Result<FileReader, FileError> {
        let start = clock::now();
        let name = path.display().to_string();
        options.check(|| PortName::File(name.clone()))?;
        let layout: Layout = layout.parse().map_err(FileError::layout(&name))?;
        let (contents, descr, source) = match format {
            Format::Zarr => of_array(path, &name, &layout, expect, options)?,
            Format::Npz => of_member(path, &name, &layout, expect, options)?,
            _ => of_file(path, &name, format, &layout, expect, options)?,
        };
        FileReader::begin(name, (contents, descr, source), options, start)
    }

    fn begin(
        name: String,
        (contents, descr, source): Found,
        options: &Options,
        start: Duration,
    ) -> Result<FileReader, FileError> {
        let unit = u64::from(options.port.unit);
        let plan =
            Plan::to_reader(&contents.file, &contents.program, unit).map_err(FileError::layout(&name))?;
        let file_elem = plan.transfers().first().map_or(1, |t| t.elem_len());
        if contents.stride > 1
            && !plan.transfers().is_empty()
            && file_elem != contents.file.dataset().elem().len_bytes()
        {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(name)),
                option: "layout",
                found: format!("{}, of bytes", contents.program.layout()),
                expected: "a layout of elements: the file is Fortran-ordered and has several steps".into(),
            }));
        }
        let len = contents.program.local_len_bytes(unit).map_err(FileError::layout(&name))?;
        let len =
            usize::try_from(len).map_err(|_| FileError::sys(&name, "allocate", polyduct_os::Errno::NOMEM))?;
        let stats = Stats { opened: clock::now().saturating_sub(start), ..Stats::default() };
        Ok(FileReader {
            source,
            path: name,
            options: options.clone(),
            descr: descr.filter(|descr| descr.elem() == Some(contents.program.dataset().elem())),
            contents,
            plan,
            stretches: None,
            next: 0,
            len,
            buffer: Vec::new(),
            gathered: Vec::new(),
            closed: false,
            stats,
        })
    }

    /// Opens one of the arrays that were found, of which there are so many steps if it has steps, to read unit
    /// `options.port.unit`'s part of each.
    ///
    /// # Errors
    /// What is wrong with the array; [`FileError::ElemDiffers`], [`PortError::Layout`] for expectations that it does
    /// not meet.
    pub fn of(
        found: FoundArray,
        steps: u64,
        layout: &str,
        expect: &Expect,
        options: &Options,
    ) -> Result<FileReader, FileError> {
        let start = clock::now();
        let name = format!("{}, array {:?}", found.path, found.name);
        let Held { mapping: file, source, stepped, fortran, .. } = found.held?;
        let (file, conversion) = shape::expected(&name, &file, expect)?;
        let dataset = Dataset::new(file.dataset().shape(), expect.elem.unwrap_or(file.dataset().elem()));
        let bound = dataset.and_then(|d| layout.parse::<Layout>()?.bind(&d, options.port.units.into()));
        let program = bound.map_err(FileError::layout(&name))?;
        let steps = if stepped { steps } else { 1 };
        let contents = Contents { file, program, steps, stepped, stride: 1, fortran, conversion };
        FileReader::begin(name, (contents, None, source), options, start)
    }

    /// Shape and element type of one step, as this unit reads it.
    pub fn dataset(&self) -> &Dataset {
        self.contents.program.dataset()
    }

    /// This program's mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.contents.program
    }

    /// The file's mapping: one unit that has everything, or the chunks of a Zarr array as units.
    pub fn source_mapping(&self) -> &Mapping {
        &self.contents.file
    }

    /// What is written down of the array: nothing where the form has no place for that.
    pub fn attributes(&self) -> Attributes {
        match &self.source {
            Source::Chunks(chunks) => chunks.attributes().clone(),
            _ => Attributes::new(),
        }
    }

    /// What the array's dimensions are called, that of the steps included; `None` where the form has no place
    /// for that.
    pub fn dims(&self) -> Option<&Dims> {
        match &self.source {
            Source::Chunks(chunks) => chunks.dims(),
            _ => None,
        }
    }

    /// What NumPy takes the elements for, where they are bytes to polyduct and a `.npy` file says it.
    pub fn descr(&self) -> Option<&Descr> {
        self.descr.as_ref()
    }

    /// Whether the steps are a dimension of the file, even if there is just one.
    pub fn stepped(&self) -> bool {
        self.contents.stepped
    }

    /// Steps in the file.
    pub fn steps(&self) -> u64 {
        self.contents.steps
    }

    /// Bytes of this unit's part, its halo included.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Reads this unit's part of the next step into `part`. Returns the number of the step, `None` after the
    /// last.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; [`PortError::Interrupted`], after which the step can be read again;
    /// [`FileError::Truncated`] when the file was cut since it was opened; [`FileError::System`]. After an
    /// error the content of `part` is undefined.
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, FileError> {
        if self.closed {
            return Err(FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) }));
        }
        if part.len() != self.len {
            return Err(FileError::Port(PortError::WrongSize {
                port: PortName::File(self.path.clone()),
                unit: Some(self.options.port.unit),
                array: Box::default(),
                expected: self.len as u64,
                found: part.len() as u64,
            }));
        }
        if self.next >= self.contents.steps {
            return Ok(None);
        }
        self.options.check_interrupt(&self.path)?;
        let mut copied = Duration::ZERO;
        timed(&mut copied, || self.gather(None, self.next, part))?;
        self.stats.copied += copied;
        self.stats.steps += 1;
        self.stats.bytes += self.len as u64;
        self.next += 1;
        Ok(Some(self.next - 1))
    }

    /// Reads the next step into a buffer of the port's own, which the next call overwrites. Returns the
    /// number of the step and this unit's part, `None` after the last.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn next_step(&mut self) -> Result<Option<(u64, &[u8])>, FileError> {
        let mut part = std::mem::take(&mut self.gathered);
        let read = stretch::resize(&mut part, self.len, &self.path).and_then(|()| self.read(&mut part));
        self.gathered = part;
        Ok(read?.map(|step| (step, self.gathered.as_slice())))
    }

    /// Bytes of a [stretch](Self::read_stretch), but for the last of a step; `None` where only whole steps
    /// can be read: the file is in Fortran's order, and each stretch would touch all of it; or elements are
    /// converted, which stretches, as bytes, are not.
    pub fn stretch_len(&self) -> Option<u64> {
        let dataset = self.contents.program.dataset();
        match &self.source {
            _ if dataset.elem() != self.contents.file.dataset().elem() => None,
            Source::Whole { .. } | Source::Inflated { .. } if self.contents.is_fortran() => None,
            Source::Whole { .. } | Source::Inflated { .. } | Source::Stored(_) => {
                Some(stretch::of_elements(dataset))
            }
            Source::Chunks(chunks) => Some(stretch::of_chunks(dataset, chunks.chunk())),
        }
    }

    /// Reads a stretch of a step, whoever's part it is: `bytes.len()` bytes of the row-major array from byte
    /// `at` on. Needs no more memory than that and, of a Zarr array, a chunk. Steps that are read so do not
    /// count as [read](Self::read).
    ///
    /// ```
    /// use polyduct_layout::{Dataset, ElemType};
    /// use polyduct_store::{FileReader, FileWriter, Format, Options};
    /// # let dir = std::env::temp_dir().join(format!("polyduct-stretch-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// let (from, to) = (dir.join("from.npy"), dir.join("to.npy"));
    /// # let some = Dataset::new(&[2, 3], ElemType::U8)?;
    /// # let mut first = FileWriter::open(&from, Format::Npy, &some, "*,*", &Options::default())?;
    /// # first.write(&[1, 2, 3, 4, 5, 6])?;
    /// # first.close()?;
    /// let options = Options::default();
    /// let mut reader = FileReader::open(&from, Format::Npy, "*,*", &Default::default(), &options)?;
    /// let dataset = *reader.dataset();
    /// let mut writer = FileWriter::open(&to, Format::Npy, &dataset, "*,*", &options)?;
    /// let (len, stretch) = (dataset.len_bytes(), reader.stretch_len().unwrap());
    /// for at in (0..len).step_by(stretch as usize) {
    ///     let mut bytes = vec![0; stretch.min(len - at) as usize];
    ///     reader.read_stretch(0, at, &mut bytes)?;
    ///     writer.write_stretch(at, &bytes)?;
    /// }
    /// writer.end_step()?;
    /// writer.close()?;
    /// assert_eq!(std::fs::read(from)?, std::fs::read(to)?);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PortError::WrongSize`] for anything but one of the stretches; then as [`read`](Self::read).
    pub fn read_stretch(&mut self, step: u64, at: u64, bytes: &mut [u8]) -> Result<(), FileError> {
        if self.closed {
            return Err(FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) }));
        }
        let dataset = *self.contents.program.dataset();
        let left = dataset.len_bytes().saturating_sub(at);
        let expected = match self.stretch_len() {
            Some(len) if step < self.contents.steps && at.is_multiple_of(len) => len.min(left),
            _ => 0,
        };
        if bytes.len() as u64 != expected {
            let (path, unit, found) = (self.path.clone(), self.options.port.unit, bytes.len() as u64);
            return Err(FileError::Port(PortError::WrongSize {
                port: PortName::File(path),
                unit: Some(unit),
                array: Box::default(),
                expected,
                found,
            }));
        }
        self.options.check_interrupt(&self.path)?;
        let mut copied = Duration::ZERO;
        timed(&mut copied, || self.gather_stretch(step, at, bytes))?;
        self.stats.copied += copied;
        self.stats.bytes += expected;
        Ok(())
    }

    fn gather_stretch(&mut self, step: u64, at: u64, bytes: &mut [u8]) -> Result<(), FileError> {
        if let (Source::Whole { file, data_at, component }, None) = (&self.source, self.contents.conversion) {
            let io = Io { file, path: &self.path, options: &self.options };
            self.stats.runs += 1;
            let step_at = data_at + self.contents.step_at(step);
            return read_swapped(bytes, at, *component, |bytes, at| io.read(bytes, step_at + at));
        }
        let Some(len) = self.stretch_len().filter(|_| !bytes.is_empty()) else { return Ok(()) };
        let path = self.path.clone();
        let bad = FileError::layout(&path);
        let stretches = match self.stretches.take() {
            Some(stretches) => stretches,
            None => stretch::mapping(self.contents.program.dataset(), len).map_err(&bad)?,
        };
        let plan = Plan::to_reader(&self.contents.file, &stretches, at / len).map_err(&bad)?;
        self.stretches = Some(stretches);
        self.gather(Some(&plan), step, bytes)
    }

    /// Closes the port; later reads fail.
    pub fn close(&mut self) -> Stats {
        self.closed = true;
        self.buffer = Vec::new();
        self.stats
    }

    /// Carries a plan out for a step: that for this unit's part if it is `None`.
    fn gather(&mut self, plan: Option<&Plan>, step: u64, part: &mut [u8]) -> Result<(), FileError> {
        let FileReader { source, path, options, contents, plan: own, buffer, stats, .. } = self;
        let plan = plan.unwrap_or(own);
        let Contents { stride, conversion, .. } = *contents;
        let work = Work { plan, stride, conversion, buffer, stats, path, options };
        source.gather((step, contents.step_at(step), 0), part, work)
    }
}

/// What a file holds, what NumPy takes its elements for, and where they are.
type Found = (Contents, Option<Descr>, Source);

/// What one file holds.
fn of_file(
    path: &Path,
    name: &str,
    format: Format,
    layout: &Layout,
    expect: &Expect,
    options: &Options,
) -> Result<Found, FileError> {
    let (file, len) = open_regular(path, name)?;
    let io = Io { file: &file, path: name, options };
    let mut component = 1;
    let (contents, descr, data_at) = match format {
        Format::Raw => (shape::of_raw(name, len, layout, options.port.units, expect)?, None, 0),
        Format::Safetensors => {
            let tensor = read_tensor(&io, len)?;
            let elem = tensor_elem(&tensor, name)?;
            let header = Header { elem, descr: None, big_endian: false, fortran: false, shape: tensor.shape };
            (shape::of_npy(name, &header, layout, options.port.units, expect)?, None, tensor.begin)
        }
        _ => {
            let (header, data_at) = read_header(&io, 0, len)?;
            component = header.component();
            (shape::of_npy(name, &header, layout, options.port.units, expect)?, header.descr, data_at as u64)
        }
    };
    let expected = contents.len_bytes().saturating_add(data_at);
    match len < expected {
        true => Err(FileError::Truncated { path: name.to_owned(), expected, found: len }),
        false => Ok((contents, descr, Source::Whole { file: file.into(), data_at, component })),
    }
}

/// What a member of an archive holds.
fn of_member(
    path: &Path,
    name: &str,
    layout: &Layout,
    expect: &Expect,
    options: &Options,
) -> Result<Found, FileError> {
    let (file, len) = open_regular(path, name)?;
    let (mut members, _) = archive::read(&file.into(), name, len, options)?;
    let at = chosen(name, options, members.iter().map(|member| member.name.as_str()))?;
    let (header, source) = members.swap_remove(at).held?;
    Ok((shape::of_npy(name, &header, layout, options.port.units, expect)?, header.descr, source))
}

/// What a Zarr array holds.
fn of_array(
    path: &Path,
    name: &str,
    layout: &Layout,
    expect: &Expect,
    options: &Options,
) -> Result<Found, FileError> {
    let (dir, array) = chunks::open(path, name, options)?;
    let header = Header {
        elem: array.elem,
        descr: None,
        big_endian: false,
        fortran: false,
        shape: array.shape.clone(),
    };
    let mut contents = shape::of_npy(name, &header, layout, options.port.units, expect)?;
    let (file, grid) = chunks::mapping(&array, contents.file.dataset(), name)?;
    contents.file = file;
    Ok((contents, None, Source::Chunks(Box::new(Chunked::new(dir.into(), String::new(), array, grid)))))
}

/// Reads the header of a .safetensors file of `len` bytes, and chooses a tensor.
fn read_tensor(io: &Io, len: u64) -> Result<Tensor, FileError> {
    let mut tensors = read_tensors(io, len)?.tensors;
    let at = chosen(io.path, io.options, tensors.iter().map(|tensor| tensor.name.as_str()))?;
    Ok(tensors.swap_remove(at))
}

/// Which of the arrays of a file is read: that of the name, or the only one.
fn chosen<'a>(
    path: &str,
    options: &Options,
    mut names: impl ExactSizeIterator<Item = &'a str> + Clone,
) -> Result<usize, FileError> {
    let asked = options.tensor.as_deref();
    let all = names.clone();
    let at = match asked {
        Some(asked) => names.position(|name| name == asked),
        None => (names.len() == 1).then_some(0),
    };
    at.ok_or_else(|| {
        let (path, asked) = (path.to_owned(), asked.map(json::shorten));
        FileError::NoTensor { path, asked, names: listed(all.collect()) }
    })
}

/// Names, for a message.
fn listed(mut names: Vec<&str>) -> String {
    if names.is_empty() {
        return "nothing".into();
    }
    names.sort_unstable();
    let listed: Vec<_> =
        names.iter().take(safetensors::NAMES_LISTED).map(|name| json::shorten(name)).collect();
    let listed = listed.join(", ");
    match names.len().saturating_sub(safetensors::NAMES_LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

fn tensor_elem(tensor: &Tensor, name: &str) -> Result<polyduct_layout::ElemType, FileError> {
    tensor.elem().map_err(|source| FileError::BadSafetensors { path: name.to_owned(), source })
}
