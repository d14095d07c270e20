//! The two ends of a copy: ports, or ordinary streams beside them.

use super::ports::of_port;
use super::{at_open, port, stream, stream_error, CpArgs, CpError};
use crate::layout::{Dataset, ElemType};
use polyduct::plain::Steps;
use polyduct::store::npy::{Descr, Header};
use polyduct::store::zarr::{Compression, Dims};
use polyduct::store::Attributes;
use polyduct::{Error, Keeps, Mode, Open, Reader, Writer};
use std::fs::File;
use std::io::{self, BufReader, Write};

/// Bytes of a stream that are carried at once.
const STRETCH_BYTES: u64 = 4 << 20;

/// Where the array comes from.
pub struct Source<'a> {
    args: &'a CpArgs,
    from: From,
}

enum From {
    Port(Box<Reader>),
    /// All of each step.
    Stream {
        steps: Box<Steps<BufReader<File>>>,
        dataset: Dataset,
        descr: Option<Descr>,
    },
}

impl<'a> Source<'a> {
    pub fn open(args: &'a CpArgs, unit: u32, purpose: &str) -> Result<Source<'a>, CpError> {
        let from = match stream::of(&args.src, Mode::Read) {
            Some(found) => {
                let (steps, dataset) = begin(args, found)?;
                let told = args.dtype.as_ref().and_then(|dtype| dtype.descr.clone());
                let descr = steps.header().map_or(told, |header| header.npy.descr.clone());
                From::Stream { steps: Box::new(steps), dataset, descr }
            }
            None => {
                let mut port = port(args, &args.src, unit, purpose);
                if let Some(shape) = &args.shape {
                    port = port.shape(&shape.0);
                }
                if let Some(dtype) = &args.dtype {
                    port = port.elem(dtype.elem).convert(args.convert);
                }
                From::Port(port.read(args.layout()).map_err(at_open(&args.src))?.into())
            }
        };
        Ok(Source { args, from })
    }

    fn failed(&self) -> impl Fn(Error) -> CpError + 'a {
        of_port(&self.args.src)
    }

    pub fn dataset(&self) -> &Dataset {
        match &self.from {
            From::Port(port) => port.dataset(),
            From::Stream { dataset, .. } => dataset,
        }
    }

    /// Steps that there are, as far as that is known.
    pub fn steps(&self) -> Option<u64> {
        match &self.from {
            From::Port(port) => port.steps(),
            From::Stream { .. } => None,
        }
    }

    pub fn is_stream(&self) -> bool {
        matches!(self.from, From::Stream { .. })
    }

    /// Whether an array comes with its first index running fastest.
    fn is_fortran(&self) -> bool {
        match &self.from {
            From::Port(_) => false,
            From::Stream { steps, .. } => steps.header().is_some_and(|header| header.npy.fortran),
        }
    }

    /// Bytes that are read at once into a target; `None` where a step comes as a whole.
    pub fn stretch_len(&self, target: &Target) -> Option<u64> {
        match &self.from {
            From::Port(port) => port.steps().and(port.stretch_len()),
            // As they stand in the stream, which no port takes in Fortran's order.
            From::Stream { .. } if self.is_fortran() && !matches!(target.to, To::Stream(_)) => None,
            From::Stream { dataset, .. } => {
                let elem = dataset.elem().len_bytes();
                Some((STRETCH_BYTES / elem).max(1) * elem)
            }
        }
    }

    /// Whether there is a step of this number, to be read in stretches.
    pub fn has_step(&mut self, step: u64) -> Result<bool, CpError> {
        match &mut self.from {
            From::Port(port) => Ok(port.steps().is_some_and(|steps| step < steps)),
            From::Stream { steps, .. } => steps.next_step().map_err(stream_error(&self.args.src)),
        }
    }

    /// Reads a stretch; those of a stream come one after the other.
    pub fn read_stretch(&mut self, step: u64, at: u64, bytes: &mut [u8]) -> Result<(), CpError> {
        let failed = self.failed();
        match &mut self.from {
            From::Port(port) => port.read_stretch(step, at, bytes).map_err(failed),
            From::Stream { steps, .. } => steps.fill(bytes).map_err(stream_error(&self.args.src)),
        }
    }

    /// Bytes of this unit's part of a step.
    pub fn local_len_bytes(&self) -> u64 {
        match &self.from {
            From::Port(port) => port.local_len_bytes() as u64,
            From::Stream { dataset, .. } => dataset.len_bytes(),
        }
    }

    /// Reads this unit's part of the next step; `false` at the end.
    pub fn read(&mut self, part: &mut [u8]) -> Result<bool, CpError> {
        let failed = self.failed();
        match &mut self.from {
            From::Port(port) => Ok(port.read(part).map_err(failed)?.is_some()),
            From::Stream { steps, .. } => {
                let failed = stream_error(&self.args.src);
                let is_there = steps.next_step().map_err(&failed)?;
                if is_there {
                    steps.fill(part).map_err(failed)?;
                }
                Ok(is_there)
            }
        }
    }

    fn attributes(&self) -> Attributes {
        match &self.from {
            From::Port(port) => port.attributes(),
            From::Stream { .. } => Attributes::new(),
        }
    }

    fn dims(&self) -> Option<Dims> {
        match &self.from {
            From::Port(port) => port.dims().cloned(),
            From::Stream { .. } => None,
        }
    }

    fn descr(&self) -> Option<&Descr> {
        match &self.from {
            From::Port(port) => port.descr(),
            From::Stream { descr, .. } => descr.as_ref(),
        }
    }

    fn stepped(&self) -> bool {
        match &self.from {
            From::Port(port) => port.stepped(),
            From::Stream { .. } => false,
        }
    }

    /// One of several arrays.
    pub fn of_array(args: &'a CpArgs, port: Reader) -> Source<'a> {
        Source { args, from: From::Port(port.into()) }
    }

    /// The port, where it is one.
    pub fn into_port(self) -> Option<Reader> {
        match self.from {
            From::Port(port) => Some(*port),
            From::Stream { .. } => None,
        }
    }

    pub fn close(self) -> Result<(), CpError> {
        let failed = self.failed();
        match self.from {
            From::Port(mut port) => port.close().map(drop).map_err(failed),
            From::Stream { .. } => Ok(()),
        }
    }
}

/// Reads what a stream begins with: the array is what it says, or what was told.
fn begin(args: &CpArgs, found: stream::Found) -> Result<(Steps<BufReader<File>>, Dataset), CpError> {
    let failed = stream_error(&args.src);
    let input = found.open(Mode::Read).map_err(|error| failed(error.into()))?;
    let mut steps = Steps::begin(BufReader::with_capacity(64 << 10, input)).map_err(&failed)?;
    let shape = args.shape.as_ref().map(|shape| shape.0.as_slice());
    let elem = args.dtype.as_ref().map(|dtype| dtype.elem);
    let (shape, elem) = match (steps.header().map(|header| &header.dataset), shape, elem) {
        (Some(found), shape, elem) => {
            let is_bf16 = (found.elem(), elem) == (ElemType::Bytes(2), Some(ElemType::Bf16));
            let elem = if is_bf16 { ElemType::Bf16 } else { found.elem() };
            let told = (shape.unwrap_or(found.shape()), args.dtype.as_ref().map_or(elem, |dtype| dtype.elem));
            if told != (found.shape(), elem) {
                let says = format!("{} of {}", shape_text(found.shape()), found.elem());
                return Err(CpError::StreamDiffers { src: args.src.clone(), says });
            }
            (found.shape(), elem)
        }
        (None, Some(shape), Some(elem)) => (shape, elem),
        (None, ..) => return Err(CpError::StreamUntold { src: args.src.clone() }),
    };
    let dataset = Dataset::new(shape, elem).map_err(CpError::Shape)?;
    steps.are_of(dataset.len_bytes());
    Ok((steps, dataset))
}

fn shape_text(shape: &[u64]) -> String {
    match shape {
        [] => "one element".into(),
        shape => shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x"),
    }
}

/// Where the array goes to.
pub struct Target<'a> {
    args: &'a CpArgs,
    to: To<'a>,
}

enum To<'a> {
    Port(Box<Writer>),
    /// One of several arrays, and which of its steps is written.
    Array {
        port: &'a mut Writer,
        array: usize,
        step: u64,
    },
    Stream(Output),
}

/// Arrays one after the other, or one array of all steps where it is known how many there are.
struct Output {
    file: File,
    /// None for the bytes of the row-major array and nothing else.
    header: Option<Header>,
    /// Whether each step is an array of its own.
    of_each: bool,
}

impl Output {
    fn begin_array(&mut self) -> io::Result<()> {
        let Some(header) = &self.header else { return Ok(()) };
        // Whatever can be copied has a header that fits in the first version of them.
        let bytes = header.print(header.len_bytes()).ok_or(io::ErrorKind::InvalidData)?;
        self.file.write_all(&bytes)
    }
}

impl<'a> Target<'a> {
    pub fn open(args: &'a CpArgs, unit: u32, source: &Source<'_>) -> Result<Target<'a>, CpError> {
        let told = args.dtype.as_ref().and_then(|dtype| dtype.descr.clone());
        let descr = source.descr().cloned().or(told);
        let Some(found) = stream::of(&args.dst, Mode::Write) else {
            let layout = match (&source.from, source.is_fortran()) {
                (From::Stream { steps, .. }, true) => steps.header().map_or(String::new(), |h| h.layout()),
                _ => args.layout().to_owned(),
            };
            let port = described(port(args, &args.dst, unit, "out"), source).descr(descr);
            let port = port.write(source.dataset(), &layout).map_err(at_open(&args.dst))?;
            let mut target = Target { args, to: To::Port(port.into()) };
            let checked =
                target.check_places().and(source.steps().map_or(Ok(()), |n| target.check_dims(source, n)));
            return match (checked, &mut target.to) {
                (Err(error), To::Port(port)) => {
                    port.abort_because(&error.to_string());
                    Err(error)
                }
                _ => Ok(target),
            };
        };
        let said = [
            ("attrs", args.attrs.is_some()),
            ("dims", args.dims.is_some()),
            ("compress", args.compress != Compression::None),
            ("chunks", args.chunks.is_some()),
        ];
        if let Some((option, _)) = said.into_iter().find(|said| said.1) {
            return Err(CpError::NoPlace { dst: args.dst.clone(), option });
        }
        let failed = output_error(&args.dst);
        let file = found.open(Mode::Write).map_err(&failed)?;
        let (steps, stepped) = (source.steps().unwrap_or(1), source.stepped());
        let mut header = Header::of_steps(source.dataset(), descr, steps, stepped);
        header.fortran = source.is_fortran();
        let of_each = source.steps().is_none();
        let mut output = Output { file, header: (!found.is_raw()).then_some(header), of_each };
        if !of_each {
            output.begin_array().map_err(failed)?;
        }
        Ok(Target { args, to: To::Stream(output) })
    }

    /// One of several arrays.
    pub fn of_array(args: &'a CpArgs, port: &'a mut Writer, array: usize) -> Target<'a> {
        Target { args, to: To::Array { port, array, step: 0 } }
    }

    fn failed(&self) -> impl Fn(Error) -> CpError + 'a {
        of_port(&self.args.dst)
    }

    /// Bytes of which what is written at once has a whole number, but at a step's end; `None` where steps are
    /// written as a whole.
    pub fn stretch_unit(&self) -> Option<u64> {
        match &self.to {
            To::Port(port) => port.stretch_unit(),
            To::Array { port, array, .. } => port.array_stretch_unit(*array),
            To::Stream(_) => Some(1),
        }
    }

    pub fn begin_step(&mut self) -> Result<(), CpError> {
        match &mut self.to {
            To::Stream(output) if output.of_each => {
                output.begin_array().map_err(output_error(&self.args.dst))
            }
            _ => Ok(()),
        }
    }

    pub fn write_stretch(&mut self, at: u64, bytes: &[u8]) -> Result<(), CpError> {
        let failed = self.failed();
        match &mut self.to {
            To::Port(port) => port.write_stretch(at, bytes).map_err(failed),
            To::Array { port, array, step } => {
                port.write_array_stretch(*array, *step, at, bytes).map_err(failed)
            }
            To::Stream(output) => output.file.write_all(bytes).map_err(output_error(&self.args.dst)),
        }
    }

    pub fn end_step(&mut self) -> Result<(), CpError> {
        let failed = self.failed();
        match &mut self.to {
            To::Port(port) => port.end_step().map_err(failed),
            To::Array { step, .. } => {
                *step += 1;
                Ok(())
            }
            To::Stream(_) => Ok(()),
        }
    }

    /// Whether a step is read straight into where it goes.
    pub fn has_slots(&self) -> bool {
        matches!(&self.to, To::Port(port) if port.addresses().is_some())
    }

    /// Writes what `source` gives for this unit's part of the next step, by way of `part` where there is no
    /// slot; `None` at the end, else the number of bytes.
    pub fn write_from(&mut self, source: &mut Source<'_>, part: &mut [u8]) -> Result<Option<usize>, CpError> {
        let (failed, has_slots) = (self.failed(), self.has_slots());
        match &mut self.to {
            To::Port(port) if has_slots => {
                let mut step = port.step().map_err(&failed)?;
                if !source.read(&mut step)? {
                    return Ok(None);
                }
                let len = step.len();
                step.publish().map_err(failed)?;
                return Ok(Some(len));
            }
            _ if !source.read(part)? => return Ok(None),
            To::Port(port) => port.write(part).map(drop).map_err(failed)?,
            To::Array { port, array, step } => {
                port.write_array(*array, *step, part).map_err(failed)?;
                *step += 1;
            }
            To::Stream(output) => {
                let failed = output_error(&self.args.dst);
                if output.of_each {
                    output.begin_array().map_err(&failed)?;
                }
                output.file.write_all(part).map_err(failed)?;
            }
        }
        Ok(Some(part.len()))
    }

    pub fn close(self) -> Result<(), CpError> {
        let failed = self.failed();
        match self.to {
            To::Port(mut port) => port.close().map(drop).map_err(failed),
            To::Array { .. } | To::Stream(_) => Ok(()),
        }
    }

    /// Has nothing appear under the target's name, and says why to units that wait for it.
    pub fn abort(self, error: &CpError) {
        if let To::Port(mut port) = self.to {
            port.abort_because(&error.to_string());
        }
    }

    /// Whether there is a place for what the user says.
    fn check_places(&self) -> Result<(), CpError> {
        let To::Port(port) = &self.to else { return Ok(()) };
        let refused = |option| Err(CpError::NoPlace { dst: self.args.dst.clone(), option });
        match self.args {
            CpArgs { attrs: Some(_), .. } if !port.keeps().attributes => refused("attrs"),
            CpArgs { dims: Some(_), .. } if !port.keeps().dims => refused("dims"),
            _ => Ok(()),
        }
    }

    /// Whether so many steps of the source have as many dimensions as the user names.
    pub fn check_dims(&self, source: &Source<'_>, steps: u64) -> Result<(), CpError> {
        let Some(named) = self.args.dims.as_ref().map(|dims| dims.0.len()) else { return Ok(()) };
        let dims = Header::of_steps(source.dataset(), None, steps, source.stepped()).shape.len();
        match named == dims {
            true => Ok(()),
            false => Err(CpError::Dims { src: self.args.src.clone(), named, dims }),
        }
    }

    /// Says what the target has no place for.
    pub fn say_what_is_lost(&self, source: &Source<'_>) {
        let (src, dst) = (&self.args.src, &self.args.dst);
        let keeps = match &self.to {
            To::Port(port) => port.keeps(),
            // It was said of all arrays at once.
            To::Array { .. } => return,
            To::Stream(output) => Keeps { descr: output.header.is_some(), ..Keeps::default() },
        };
        if !source.attributes().is_empty() && !keeps.attributes {
            crate::text::say!("polyduct: {dst} cannot store the attributes of {src}: they are not copied");
        }
        if source.dims().is_some() && !keeps.dims {
            crate::text::say!(
                "polyduct: {dst} cannot store the names of the dimensions of {src}: they are not copied"
            );
        }
        if let Some(descr) = source.descr().filter(|_| !keeps.descr) {
            crate::text::say!(
                "polyduct: {dst} cannot store NumPy's type of {src}, {descr}: its bytes are copied"
            );
        }
    }
}

/// What is said of the array that is written, by the source and by the user, who is right.
fn described(port: Open, source: &Source<'_>) -> Open {
    let mut attributes = source.attributes();
    attributes.extend(source.args.attrs.iter().flat_map(|attrs| attrs.0.clone()));
    let dims = source.args.dims.as_ref().map(|dims| dims.0.clone()).or_else(|| source.dims());
    let chunks = source.args.chunks.as_ref().map(|chunks| chunks.0.clone());
    let port = port.chunks(chunks).compress(source.args.compress);
    port.attributes(attributes).dims(dims).stepped(source.stepped())
}

/// An error of writing to a stream, whose reader may have had enough.
fn output_error(dst: &str) -> impl Fn(io::Error) -> CpError + '_ {
    move |error| match error.kind() {
        io::ErrorKind::BrokenPipe => CpError::ReaderGone,
        _ => CpError::Output { dst: stream::name(dst, Mode::Write).to_owned(), error },
    }
}
