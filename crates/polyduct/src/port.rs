//! Ports: the two ends of whatever a URL names, with one interface.

use crate::{stats, Error, Target};
use polyduct_layout::{Dataset, Mapping};
use polyduct_pipe as pipe;
use polyduct_pipe::{Expect, Given, Stats};
use std::ops::{Deref, DerefMut};

/// One unit's writing port.
///
/// Closed by [`close`](Writer::close) or when dropped; dropped in a panic, or [aborted](Writer::abort), it leaves no
/// complete stream or file behind, and the other units learn it.
pub struct Writer {
    end: WriteEnd,
    told: stats::Sink,
}

enum WriteEnd {
    Pipe(Box<pipe::Writer>),
}

impl Writer {
    pub(crate) fn open(target: &Target, given: &Given, layout: &str, options: &pipe::Options) -> Result<Writer, Error> {
        let end = match target {
            Target::Pipe(name) => WriteEnd::Pipe(Box::new(pipe::Writer::open(name, given, layout, options)?)),
            Target::Npy(_) | Target::Raw(_) => return Err(Error::Misuse { what: "files are not there yet".into() }),
        };
        Ok(Writer { end, told: stats::Sink::new(target, "w", options) })
    }

    /// The dataset and who owns what of it.
    pub fn mapping(&self) -> &Mapping {
        match &self.end {
            WriteEnd::Pipe(w) => w.mapping(),
        }
    }

    /// Shape and element type.
    pub fn dataset(&self) -> &Dataset {
        self.mapping().dataset()
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        match &self.end {
            WriteEnd::Pipe(w) => w.local_len_bytes(),
        }
    }

    /// Waits for room and gives this unit's part of the next step, to fill in place and [publish](StepMut::publish).
    /// Its content is undefined. Dropped without publishing, the step is not written and the next call gives it again.
    ///
    /// # Errors
    /// After a timeout or an interrupt the port can be used again; after the loss of a peer it cannot.
    pub fn step(&mut self) -> Result<StepMut<'_>, Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => Ok(StepMut(StepEnd::Pipe(w.step()?))),
        }
    }

    /// Writes this unit's part of the next step: one copy more than [`step`](Writer::step). Returns `false` when a lossy
    /// queue dropped the step.
    ///
    /// # Errors
    /// A part of the wrong size, and as [`step`](Writer::step).
    pub fn write(&mut self, part: &[u8]) -> Result<bool, Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => Ok(w.write(part)?),
        }
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        match &self.end {
            WriteEnd::Pipe(w) => w.stats(),
        }
    }

    /// Ends the stream, or completes the file under its name. Every unit must have written the same number of steps.
    ///
    /// # Errors
    /// The error that the port failed with before, or that completing the file met.
    pub fn close(&mut self) -> Result<Stats, Error> {
        let closed = match &mut self.end {
            WriteEnd::Pipe(w) => w.close().map_err(Error::from),
        };
        self.told.tell(&self.stats());
        closed
    }

    /// Gives up: the other units get an error, and no file appears.
    pub fn abort(&mut self) {
        match &mut self.end {
            WriteEnd::Pipe(w) => w.abort(),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        } else {
            let _ = self.close();
        }
    }
}

/// This unit's part of one step, to be filled in place.
pub struct StepMut<'a>(StepEnd<'a>);

enum StepEnd<'a> {
    Pipe(pipe::StepMut<'a>),
}

impl StepMut<'_> {
    /// Makes the part visible together with those of the other units. Returns `false` when a lossy queue dropped it.
    ///
    /// # Errors
    /// Those of writing a file.
    pub fn publish(self) -> Result<bool, Error> {
        match self.0 {
            StepEnd::Pipe(step) => Ok(step.publish()),
        }
    }
}

impl Deref for StepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            StepEnd::Pipe(step) => step,
        }
    }
}

impl DerefMut for StepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            StepEnd::Pipe(step) => step,
        }
    }
}

/// One unit's reading port.
pub struct Reader {
    end: ReadEnd,
    told: stats::Sink,
}

enum ReadEnd {
    Pipe(Box<pipe::Reader>),
}

impl Reader {
    pub(crate) fn open(target: &Target, layout: &str, expect: &Expect, options: &pipe::Options) -> Result<Reader, Error> {
        let end = match target {
            Target::Pipe(name) => ReadEnd::Pipe(Box::new(pipe::Reader::open(name, layout, expect, options)?)),
            Target::Npy(_) | Target::Raw(_) => return Err(Error::Misuse { what: "files are not there yet".into() }),
        };
        Ok(Reader { end, told: stats::Sink::new(target, "r", options) })
    }

    /// Shape and element type of what this unit reads.
    pub fn dataset(&self) -> &Dataset {
        match &self.end {
            ReadEnd::Pipe(r) => r.dataset(),
        }
    }

    /// This program's mapping.
    pub fn mapping(&self) -> &Mapping {
        match &self.end {
            ReadEnd::Pipe(r) => r.mapping(),
        }
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        match &self.end {
            ReadEnd::Pipe(r) => r.local_len_bytes(),
        }
    }

    /// Waits for the next step and copies this unit's part of it into `part`. Returns the writer's number of the step,
    /// `None` at the end.
    ///
    /// # Errors
    /// A part of the wrong size; timeouts and interrupts, after which the port can be used again; loss of peers, after
    /// which it cannot. After an error the content of `part` is undefined.
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, Error> {
        match &mut self.end {
            ReadEnd::Pipe(r) => Ok(r.read(part)?),
        }
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        match &self.end {
            ReadEnd::Pipe(r) => r.stats(),
        }
    }

    /// Leaves. When all units of all readers of a pipe have left, its writers' next step fails.
    ///
    /// # Errors
    /// The error that the port failed with before.
    pub fn close(&mut self) -> Result<Stats, Error> {
        let closed = match &mut self.end {
            ReadEnd::Pipe(r) => r.close().map_err(Error::from),
        };
        self.told.tell(&self.stats());
        closed
    }

    /// Gives up: the other units get an error.
    pub fn abort(&mut self) {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.abort(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        } else {
            let _ = self.close();
        }
    }
}
