//! Scatters a writing unit's part of a step into the file, the chunks or the drafts of an array.

use super::drafts::Drafts;
use super::io::Io;
use super::runs::{View, Window};
use super::slabs::Chunks;
use super::{stretch, Options};
use crate::FileError;
use polyduct_copy as copy;
use polyduct_layout::{Plan, Transfer};
use polyduct_port::Stats;

/// What is written of a step.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// This unit's part.
    Part(&'a [u8]),
    /// Bytes of the row-major array from a byte on.
    Stretch { at: u64, bytes: &'a [u8] },
}

impl What<'_> {
    /// Bytes of it.
    pub fn len(&self) -> u64 {
        match self {
            What::Part(bytes) | What::Stretch { bytes, .. } => bytes.len() as u64,
        }
    }
}

/// What a writing port has for it.
pub struct Scatter<'a> {
    pub plan: &'a Plan,
    pub view: View,
    /// The file; where chunks are written their directory.
    pub io: Io<'a>,
    pub buffer: &'a mut Vec<u8>,
    pub stats: &'a mut Stats,
    pub step: u64,
    /// Whether there is room for the step.
    pub reserved: &'a mut bool,
}

/// Where bytes of a step lie: in one file, or in those of its chunks. Offsets count from its first byte.
enum Place<'a> {
    File { io: Io<'a>, at: u64 },
    Chunks { chunks: &'a mut Chunks, step: u64, at: u64, path: &'a str, options: &'a Options },
}

impl<'a> Scatter<'a> {
    /// Into a file in which the step begins at `step_at` and has `len` bytes, and the array `array_at` behind that.
    ///
    /// # Errors
    /// As [`FileWriter::write`](super::FileWriter::write).
    pub fn fill_file(
        &mut self,
        what: What<'_>,
        (step_at, len): (u64, u64),
        array_at: u64,
    ) -> Result<(), FileError> {
        self.reserve(self.io, step_at, len)?;
        self.all(what, &mut Place::File { io: self.io, at: step_at + array_at })
    }

    /// Into the files of chunks that are slabs, from byte `at` of the step on.
    ///
    /// # Errors
    /// The same.
    pub fn fill_chunks(&mut self, what: What<'_>, chunks: &'a mut Chunks, at: u64) -> Result<(), FileError> {
        let Io { path, options, .. } = self.io;
        if !*self.reserved {
            chunks.reserve(self.step, path, options)?;
            *self.reserved = true;
        }
        self.all(what, &mut Place::Chunks { chunks, step: self.step, at, path, options })
    }

    /// Into files of chunks that this unit has whole, and of the others into drafts.
    ///
    /// # Errors
    /// The same.
    pub fn fill_drafts(&mut self, what: What<'_>, drafts: &mut Drafts) -> Result<(), FileError> {
        let path = self.io.path;
        let is_part = matches!(what, What::Part(_));
        let at_once = is_part || drafts.boxes.steps == 1;
        drafts.enter(self.step, at_once, path)?;
        match what {
            What::Part(part) => self.draft_part(part, drafts)?,
            What::Stretch { at, bytes } => self.draft_stretch(at, bytes, drafts)?,
        }
        match at_once {
            true => drafts.count(&mut self.stats.waited, path, self.io.options),
            false => Ok(()),
        }
    }

    fn draft_part(&mut self, part: &[u8], drafts: &mut Drafts) -> Result<(), FileError> {
        for transfer in self.plan.transfers() {
            let (chunk, bytes) = (transfer.dst_unit(), transfer.bytes());
            if !drafts.is_whole(chunk, bytes) {
                let (io, at) = self.draft(drafts)?;
                let at = at + drafts.boxes.box_at(chunk);
                self.transfer(transfer, part, &mut Place::File { io, at })?;
                drafts.wrote(chunk, bytes);
                continue;
            }
            let mut packed = Vec::new();
            stretch::resize(&mut packed, bytes as usize, self.io.path)?;
            for table in transfer.tables() {
                self.stats.runs += 1;
                let copied = copy::execute(&table, part.into(), packed.as_mut_slice().into());
                copied.map_err(|source| self.misfit(source))?;
            }
            drafts.encode(chunk, packed, self.io.path)?;
        }
        Ok(())
    }

    fn draft_stretch(&mut self, mut at: u64, mut bytes: &[u8], drafts: &mut Drafts) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let spot = drafts.boxes.locate(at);
            let now = bytes.len().min(usize::try_from(spot.left).unwrap_or(usize::MAX)).max(1);
            let (piece, rest) = bytes.split_at(now);
            self.stats.runs += 1;
            if drafts.is_whole(spot.chunk, now as u64) {
                drafts.encode(spot.chunk, piece.to_vec(), self.io.path)?;
            } else {
                let (io, step_at) = self.draft(drafts)?;
                io.write(piece, step_at + drafts.boxes.box_at(spot.chunk) + spot.at)?;
                drafts.wrote(spot.chunk, now as u64);
            }
            (bytes, at) = (rest, at + now as u64);
        }
        Ok(())
    }

    /// The draft, with room for the step, and where the step begins in it.
    fn draft<'d>(&mut self, drafts: &'d Drafts) -> Result<(Io<'d>, u64), FileError>
    where
        'a: 'd,
    {
        let (file, step_at) = drafts.draft(self.step, self.io.path)?;
        let io = Io { file, ..self.io };
        self.reserve(io, step_at, drafts.step_len())?;
        Ok((io, step_at))
    }

    /// Makes room for the step, unless that is done.
    fn reserve(&mut self, io: Io<'_>, step_at: u64, len: u64) -> Result<(), FileError> {
        if *self.reserved {
            return Ok(());
        }
        io.reserve(step_at, len)?;
        *self.reserved = true;
        Ok(())
    }

    fn all(&mut self, what: What<'_>, place: &mut Place<'_>) -> Result<(), FileError> {
        match what {
            What::Part(part) => {
                self.plan.transfers().iter().try_for_each(|transfer| self.transfer(transfer, part, place))
            }
            What::Stretch { at, bytes } => {
                self.stats.runs += 1;
                place.write(bytes, at)
            }
        }
    }

    fn transfer(&mut self, transfer: &Transfer, part: &[u8], place: &mut Place<'_>) -> Result<(), FileError> {
        let (path, view) = (self.io.path, self.view);
        for table in transfer.tables() {
            view.windows(&table, &mut |window| {
                self.stats.runs += 1;
                match window {
                    Window::Direct { file, mem, len } => {
                        let run = part.get(mem as usize..).and_then(|p| p.get(..len as usize));
                        place.write(run.ok_or_else(|| self.misfit(too_short(part, mem + len)))?, file)
                    }
                    // Without gaps each byte of it is this unit's.
                    Window::Buffered { file, mem, len, table, .. } => {
                        let len = len as usize;
                        if self.buffer.len() < len {
                            stretch::resize(self.buffer, len, path)?;
                        }
                        let window = &mut self.buffer[..len];
                        let src = copy::Source::from(part.get(mem as usize..).unwrap_or_default());
                        let copied = copy::execute(table, src, (&mut *window).into());
                        copied.map_err(|source| FileError::Plan { path: path.to_owned(), source })?;
                        place.write(window, file)
                    }
                }
            })?;
        }
        Ok(())
    }

    fn misfit(&self, source: copy::CopyError) -> FileError {
        FileError::Plan { path: self.io.path.to_owned(), source }
    }
}

impl Place<'_> {
    fn write(&mut self, bytes: &[u8], at: u64) -> Result<(), FileError> {
        match self {
            Place::File { io, at: begin } => io.write(bytes, *begin + at),
            Place::Chunks { chunks, step, at: begin, path, options } => {
                chunks.write(bytes, *step, *begin + at, path, options)
            }
        }
    }
}

fn too_short(part: &[u8], need: u64) -> copy::CopyError {
    copy::CopyError::SourceTooShort { need_bytes: need.into(), have_bytes: part.len() }
}
