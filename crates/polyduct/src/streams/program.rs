//! The parallel program as a gateway sees it: a pipe, whose one reader or writer on the other side the gateway is.

use super::work::why;
use super::{bundles, Form};
use polyduct_layout::Dataset;
use polyduct_pipe::reader::Stretches;
use polyduct_pipe::{PipeError, Reader, Writer};
use polyduct_stream::gateway::receive::Sink;
use polyduct_stream::gateway::transmit::{Opened, ProgramError, Source};
use polyduct_stream::gateway::Lease;
use polyduct_stream::{Share, StreamError};
use std::ops::Range;

/// A program that writes.
pub struct Written {
    reader: Reader,
    /// Where steps are read a stretch after the other.
    stretches: Option<Stretches>,
    /// Else a step lies here.
    whole: Vec<u8>,
    /// How a step says how large it is, of one array for an ordinary program.
    form: Option<Form>,
    /// That of the open step, and of what it is.
    prefix: (Vec<u8>, Option<Dataset>),
    tu: u64,
    /// Steps that were read.
    steps: u64,
}

impl Written {
    /// Reads about `tu` bytes at a time, where that is possible; of one of several gateways the blocks of its share.
    /// Steps of one array say how large they are in this form.
    pub fn new(reader: Reader, tu: u64, share: Share, form: Option<Form>) -> Written {
        let len = if share.is_all() { tu } else { share.block };
        let stretches = reader.stretches(len, (share.index, share.of));
        Written { reader, stretches, whole: Vec::new(), form, prefix: (Vec::new(), None), tu, steps: 0 }
    }

    /// Bytes that move as a unit.
    pub fn tu_bytes(&self) -> u64 {
        self.stretches.as_ref().map_or(self.tu, Stretches::len_bytes)
    }

    /// The pipe.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }
}

impl Source for Written {
    fn open(&mut self, waits: bool) -> Result<Opened, ProgramError> {
        let Written { reader, stretches, whole, form, prefix: (prefix, of), steps, .. } = self;
        if !waits && reader.would_wait().is_some() {
            return Ok(Opened::NotYet);
        }
        let (step, len) = match stretches {
            Some(stretches) => (reader.open_stretches(stretches)?, reader.local_len_bytes()),
            None => {
                let step = match form {
                    Some(_) => bundles::whole(reader, whole)?,
                    None => bundles::pack(reader, *steps == 0, whole)?,
                };
                (step, whole.len())
            }
        };
        let dataset = reader.arrays()[0].mapping.dataset();
        if let Some(form) = form.filter(|_| *of != Some(*dataset)) {
            (*prefix, *of) = (form.prefix(dataset), Some(*dataset));
        }
        *steps += 1;
        Ok(step.map_or(Opened::End, |_| Opened::Step(len as u64)))
    }

    fn prefix(&self) -> &[u8] {
        &self.prefix.0
    }

    fn lies(&mut self, at: &Range<u64>) -> Result<bool, ProgramError> {
        match &mut self.stretches {
            Some(stretches) => Ok(self.reader.stretch_lies(stretches, at)?),
            None => Ok(true),
        }
    }

    fn lie(&self, at: &Range<u64>) -> &[u8] {
        match &self.stretches {
            Some(stretches) => self.reader.lies(stretches, at),
            None => self.whole.get(at.start as usize..at.end as usize).unwrap_or_default(),
        }
    }

    fn copy(&mut self, at: &Range<u64>, into: &mut [u8]) -> Result<(), ProgramError> {
        match &self.stretches {
            Some(stretches) => self.reader.copy_stretch(stretches, at, into)?,
            None => into.copy_from_slice(self.lie(at)),
        }
        Ok(())
    }

    fn pass(&mut self) -> Result<(), ProgramError> {
        match &self.stretches {
            Some(_) => Ok(self.reader.pass()?),
            None => Ok(()),
        }
    }
}

/// A program that reads.
pub struct Read(pub Writer);

impl Read {
    /// Ends the pipe: with all steps, or as one that broke, whose readers hear why.
    pub fn end<T>(&mut self, moved: &Result<T, StreamError>, lease: &Lease) {
        match moved {
            Ok(_) => drop(self.0.close()),
            Err(error) => self.0.abort_because(&why(lease, error)),
        }
    }
}

impl Sink for Read {
    fn step(
        &mut self,
        _: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let program = |error: PipeError| StreamError::Program(error.into());
        let mut slot = self.0.step().map_err(program)?;
        fill(&mut slot)?;
        slot.publish().map(drop).map_err(program)
    }
}
