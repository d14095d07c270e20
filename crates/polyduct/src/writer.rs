//! The writing port of whatever a URL names.

mod step;

use crate::files::{fixed_size, needs_dataset, no_arrays, standard_file, write_arrays};
use crate::streams::{why, Carrier};
use crate::{stats, Error, Join, Keeps, Mode, Target};
use polyduct_layout::{Dataset, Mapping};
use polyduct_message::Domain;
use polyduct_pipe as pipe;
use polyduct_pipe::net::Trust;
use polyduct_pipe::ready::{Wait, Watch};
use polyduct_pipe::{Addresses, Given};
use polyduct_port::{ArrayPart, PortName, Stats};
use polyduct_store::file::WriteArrays;
use polyduct_store::{self as store, disk};
use step::StepEnd;

pub use step::StepMut;

/// One unit's writing port.
///
/// Closed by [`close`](Writer::close) or when dropped; dropped in a panic, or [aborted](Writer::abort), it
/// leaves no complete stream or file behind, and the other units learn it.
pub struct Writer {
    end: WriteEnd,
    /// Where the other end is beyond a gateway.
    carrier: Option<Carrier>,
    options: polyduct_port::Options,
    keeps: Keeps,
    told: stats::Sink,
}

enum WriteEnd {
    Pipe(Box<pipe::Writer>),
    File(Box<store::FileWriter>),
    Arrays(Box<dyn WriteArrays>),
    Store(Box<disk::StoreWriter>),
}

impl Writer {
    pub(crate) fn open(
        target: &Target,
        given: &Given,
        layout: &str,
        append: bool,
        options: &store::Options,
        trust: Option<Trust>,
    ) -> Result<Writer, Error> {
        if append && !matches!(target, Target::Store(_)) {
            let what = "only what is in a store can be appended to (store:DIR/NAME)";
            return Err(Error::Misuse { what: what.into() });
        }
        let mut carrier = None;
        let end = match target {
            Target::Stream(target) => {
                let carrier =
                    carrier.insert(Carrier::transmit(target, (given, layout), &options.port, trust)?);
                let opened = pipe::Writer::open(carrier.pipe(), given, layout, &carrier.own(&options.port)?);
                WriteEnd::Pipe(Box::new(carrier.opened(opened)?))
            }
            Target::Pipe(name) => {
                WriteEnd::Pipe(Box::new(pipe::Writer::open(name, given, layout, &options.port)?))
            }
            Target::Net(place) => {
                let trust = trust.map_or_else(|| place.trust_from_env(), Ok)?;
                let options = crate::open::across(&options.port)?;
                WriteEnd::Pipe(Box::new(pipe::Writer::open((place, &trust), given, layout, &options)?))
            }
            _ if matches!(given, Given::Bundle(_)) => {
                let Given::Bundle(arrays) = given else { return Err(needs_dataset()) };
                WriteEnd::Arrays(write_arrays(target, arrays, append, options)?)
            }
            Target::Store(path) => {
                let data = single(given)?;
                options.check(|| PortName::Store(path.display().to_string()))?;
                let (dir, name) = disk::split(path)?;
                let port = disk::StoreWriter::open(&dir, &name, data, layout, append, options)?;
                WriteEnd::Store(Box::new(port))
            }
            file => {
                let (path, format, options) = standard_file(file, options)?;
                let data = single(given)?;
                WriteEnd::File(Box::new(store::FileWriter::open(path, format, data, layout, &options)?))
            }
        };
        let (told, keeps) = (stats::Sink::new(target, Mode::Write, &options.port), target.keeps());
        Ok(Writer { end, carrier, options: options.port.clone(), keeps, told })
    }

    /// What there is a place for besides data.
    pub fn keeps(&self) -> Keeps {
        self.keeps
    }

    /// The arrays, and where this unit's parts of them lie in a step; none where there is one that has no name.
    pub fn arrays(&self) -> &[ArrayPart] {
        match &self.end {
            WriteEnd::Pipe(w) => w.arrays(),
            WriteEnd::Arrays(w) => w.arrays(),
            WriteEnd::File(_) | WriteEnd::Store(_) => &[],
        }
    }

    /// The dataset and who owns what of it; of several arrays those of the first.
    pub fn mapping(&self) -> &Mapping {
        match &self.end {
            WriteEnd::Pipe(w) => w.mapping(),
            WriteEnd::File(w) => w.mapping(),
            WriteEnd::Arrays(w) => w.mapping(),
            WriteEnd::Store(w) => w.mapping(),
        }
    }

    /// Shape and element type.
    pub fn dataset(&self) -> &Dataset {
        self.mapping().dataset()
    }

    /// Bytes of this unit's part of a step: of several arrays, of all parts and what lies between them.
    pub fn local_len_bytes(&self) -> usize {
        match &self.end {
            WriteEnd::Pipe(w) => w.local_len_bytes(),
            WriteEnd::File(w) => w.local_len_bytes(),
            WriteEnd::Arrays(w) => w.local_len_bytes(),
            WriteEnd::Store(w) => w.local_len_bytes(),
        }
    }

    /// Number of the next step, from 0. A replacement's first is the one where the lost unit stopped.
    pub fn next_step(&self) -> u64 {
        match &self.end {
            WriteEnd::Pipe(w) => w.next_step(),
            WriteEnd::File(w) => w.next_step(),
            WriteEnd::Arrays(w) => w.next_step(),
            WriteEnd::Store(w) => w.next_step(),
        }
    }

    /// Waits for room and gives this unit's part of the next step, to fill in place and
    /// [publish](StepMut::publish). Its content is undefined. Dropped without publishing, the step is not
    /// written and the next call gives it again.
    ///
    /// # Errors
    /// After a timeout or an interrupt the port can be used again; after the loss of a peer it cannot.
    pub fn step(&mut self) -> Result<StepMut<'_>, Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => match w.step() {
                Ok(step) => Ok(StepMut(StepEnd::Pipe(step))),
                Err(error) => Err(why(&mut self.carrier, error)),
            },
            WriteEnd::File(w) => Ok(StepMut(StepEnd::File(w.step_mut()?))),
            WriteEnd::Arrays(w) => Ok(StepMut(StepEnd::Arrays(w.step_mut()?))),
            WriteEnd::Store(w) => Ok(StepMut(StepEnd::Store(w.step_mut()?))),
        }
    }

    /// The same if there is room; a file always has.
    ///
    /// # Errors
    /// As [`step`](Self::step), without the waiting.
    pub fn try_step(&mut self) -> Result<Option<StepMut<'_>>, Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => match w.try_step() {
                Ok(step) => Ok(step.map(|step| StepMut(StepEnd::Pipe(step)))),
                Err(error) => Err(why(&mut self.carrier, error)),
            },
            WriteEnd::File(w) => Ok(Some(StepMut(StepEnd::File(w.step_mut()?)))),
            WriteEnd::Arrays(w) => Ok(Some(StepMut(StepEnd::Arrays(w.step_mut()?)))),
            WriteEnd::Store(w) => Ok(Some(StepMut(StepEnd::Store(w.step_mut()?)))),
        }
    }

    /// Whether looking for room takes but microseconds: all units are on this host.
    pub fn is_near(&self) -> bool {
        matches!(&self.end, WriteEnd::Pipe(w) if w.is_near())
    }

    /// Whether [`step`](Self::step) gives memory that is not copied again by this unit: a slot, and not of a file.
    pub fn is_filled_in_place(&self) -> bool {
        matches!(&self.end, WriteEnd::Pipe(_))
    }

    /// Where [`step`](Self::step) sleeps, for a [`Ready`](polyduct_pipe::ready::Ready); `None` for a file,
    /// which waits for nobody.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn watch(&self) -> Result<Option<Watch>, Error> {
        match &self.end {
            WriteEnd::Pipe(w) => Ok(Some(w.watch()?)),
            WriteEnd::File(_) | WriteEnd::Arrays(_) | WriteEnd::Store(_) => Ok(None),
        }
    }

    /// What the next [`step`](Self::step) would wait for; `None` if it would not.
    pub fn would_wait(&mut self) -> Option<Wait> {
        match &mut self.end {
            WriteEnd::Pipe(w) => w.would_wait(),
            WriteEnd::File(_) | WriteEnd::Arrays(_) | WriteEnd::Store(_) => None,
        }
    }

    /// Writes this unit's part of the next step: one copy more than [`step`](Writer::step). Returns `false`
    /// when a lossy queue dropped the step.
    ///
    /// # Errors
    /// A part of the wrong size, and as [`step`](Writer::step).
    pub fn write(&mut self, part: &[u8]) -> Result<bool, Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => w.write(part).map_err(|e| why(&mut self.carrier, e)),
            WriteEnd::File(w) => Ok(w.write(part).map(|()| true)?),
            WriteEnd::Arrays(w) => Ok(w.write(part).map(|()| true)?),
            WriteEnd::Store(w) => Ok(w.write(part).map(|()| true)?),
        }
    }

    /// Writes this unit's part of each of the [arrays](Self::arrays) of the next step, from wherever in memory
    /// they lie. Returns `false` when a lossy queue dropped the step.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`Error::Misuse`] where this carries one array without a name.
    pub fn write_arrays(&mut self, parts: &[&[u8]]) -> Result<bool, Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => w.write_arrays(parts).map_err(|e| why(&mut self.carrier, e)),
            WriteEnd::Arrays(w) => Ok(w.write_arrays(parts).map(|()| true)?),
            WriteEnd::File(_) | WriteEnd::Store(_) => Err(no_arrays()),
        }
    }

    /// Says how large an array is in the next step, and in those after it until it is said again: where a
    /// dimension is open the shape of this unit's piece, which may be empty, else that of the whole array,
    /// which all units say alike. Before the first time it has no elements.
    ///
    /// # Errors
    /// For an array whose size does not change, another number of dimensions, or more than was declared.
    pub fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => Ok(w.bring(array, shape)?),
            WriteEnd::Arrays(w) => Ok(w.bring(array, shape)?),
            WriteEnd::File(_) | WriteEnd::Store(_) => Err(fixed_size()),
        }
    }

    /// Has these [values](crate::values) go with the next step of several arrays. Those of unit 0 count.
    ///
    /// # Errors
    /// Values that are too large; [`Error::Misuse`] where this carries one array without a name.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), Error> {
        match &mut self.end {
            WriteEnd::Pipe(w) => Ok(w.set_values(packed)?),
            WriteEnd::Arrays(w) => Ok(w.set_values(packed)?),
            WriteEnd::File(_) | WriteEnd::Store(_) => Err(no_arrays()),
        }
    }

    /// Bytes of which a [stretch](Self::write_stretch) has a whole number, and begins at one; `None` where
    /// only whole steps can be written: to a pipe, and to a store that has several steps in a row of its
    /// blocks.
    pub fn stretch_unit(&self) -> Option<u64> {
        match &self.end {
            WriteEnd::Pipe(_) | WriteEnd::Arrays(_) => None,
            WriteEnd::File(w) => Some(w.stretch_unit()),
            WriteEnd::Store(w) => w.stretch_unit(),
        }
    }

    /// Writes a stretch of the next step, whoever's part it is: bytes of the row-major array from byte `at`
    /// on, which is a multiple of [`stretch_unit`](Self::stretch_unit), up to another or to the step's end.
    /// Together the units write each byte of it, and then each [ends](Self::end_step) the step. Needs no
    /// memory for the step.
    ///
    /// # Errors
    /// [`Error::Misuse`] where only whole steps can be written; then as [`write`](Self::write).
    pub fn write_stretch(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.end {
            WriteEnd::File(w) => Ok(w.write_stretch(at, bytes)?),
            WriteEnd::Store(w) => Ok(w.write_stretch(at, bytes)?),
            _ => Err(only_whole_steps()),
        }
    }

    /// Ends a step that was written in [stretches](Self::write_stretch).
    ///
    /// # Errors
    /// As [`write_stretch`](Self::write_stretch).
    pub fn end_step(&mut self) -> Result<(), Error> {
        match &mut self.end {
            WriteEnd::File(w) => Ok(w.end_step()?),
            WriteEnd::Store(w) => Ok(w.end_step()?),
            _ => Err(only_whole_steps()),
        }
    }

    /// Writes a stretch of one of several arrays, of a step that has not been ended: as
    /// [`write_stretch`](Self::write_stretch), of arrays and steps in any order. At the end the units
    /// [end](Self::end_steps) all steps.
    ///
    /// # Errors
    /// [`Error::Misuse`] for other ends than files of several arrays; then as [`write`](Self::write).
    ///
    /// # Panics
    /// Where there is no such array.
    pub fn write_array_stretch(
        &mut self,
        array: usize,
        step: u64,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        Ok(self.files_of_arrays()?.write_stretch(array, step, at, bytes)?)
    }

    /// The same of this unit's part of one of several arrays.
    ///
    /// # Errors
    /// As [`write_array_stretch`](Self::write_array_stretch).
    ///
    /// # Panics
    /// Where there is no such array.
    pub fn write_array(&mut self, array: usize, step: u64, part: &[u8]) -> Result<(), Error> {
        Ok(self.files_of_arrays()?.write_array(array, step, part)?)
    }

    /// Bytes of which a [stretch](Self::write_array_stretch) of one of several arrays should have a whole number; `None`
    /// where only [parts](Self::write_array) of it can be written.
    ///
    /// # Panics
    /// Where there is no such array.
    pub fn array_stretch_unit(&self, array: usize) -> Option<u64> {
        match &self.end {
            WriteEnd::Arrays(w) => w.stretch_unit(array),
            _ => None,
        }
    }

    /// Ends so many steps, of which all arrays have been written in [stretches](Self::write_array_stretch) or parts.
    ///
    /// # Errors
    /// As [`write_array_stretch`](Self::write_array_stretch).
    pub fn end_steps(&mut self, steps: u64) -> Result<(), Error> {
        Ok(self.files_of_arrays()?.end_steps(steps)?)
    }

    /// Has values go with any step of files of several arrays: see [`set_values`](Self::set_values).
    ///
    /// # Errors
    /// As there, and [`Error::Misuse`] for other ends.
    pub fn set_values_of(&mut self, step: u64, packed: &[u8]) -> Result<(), Error> {
        Ok(self.files_of_arrays()?.set_values_of(step, packed)?)
    }

    fn files_of_arrays(&mut self) -> Result<&mut dyn WriteArrays, Error> {
        match &mut self.end {
            WriteEnd::Arrays(w) => Ok(&mut **w),
            _ => Err(only_whole_steps()),
        }
    }

    /// Where the units of all programs are in the port's [domain](Self::domain); `None` for a file, which has
    /// none.
    pub fn addresses(&self) -> Option<&Addresses> {
        match &self.end {
            WriteEnd::Pipe(p) => Some(p.addresses()),
            WriteEnd::File(_) | WriteEnd::Arrays(_) | WriteEnd::Store(_) => None,
        }
    }

    /// The message domain of this port: all units of the writer program and of all reader programs, at their
    /// [addresses](Self::addresses). The first call joins it, and waits until all of them have asked; later
    /// ones give the same again. What [`Join`] leaves open is as for the port. Messages are independent of
    /// steps. Closing the port leaves the domain, unless the caller has a clone of it; aborting gives it up.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a file, and where `join` says a name or a unit; what [`pipe::Writer::domain`]
    /// fails with.
    pub fn domain(&mut self, join: Join) -> Result<Domain, Error> {
        let wishes = join.of_port()?;
        match &mut self.end {
            WriteEnd::Pipe(p) => Ok(p.domain(&wishes)?),
            WriteEnd::File(_) | WriteEnd::Arrays(_) | WriteEnd::Store(_) => {
                Err(Error::Misuse { what: "a file has no units on another side to send messages to".into() })
            }
        }
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        match &self.end {
            WriteEnd::Pipe(w) => w.stats(),
            WriteEnd::File(w) => w.stats(),
            WriteEnd::Arrays(w) => w.stats(),
            WriteEnd::Store(w) => w.stats(),
        }
    }

    /// Ends the stream, or completes the file under its name. Every unit must have written the same number of
    /// steps. Across hosts it waits until the readers have fetched them.
    ///
    /// # Errors
    /// The error that the port failed with before, or that completing the file met.
    pub fn close(&mut self) -> Result<Stats, Error> {
        let closed = match &mut self.end {
            WriteEnd::Pipe(w) => {
                let closed = w.close().map_err(|e| why(&mut self.carrier, e));
                let carried = self.carrier.take().map_or(Ok(()), |mut carrier| carrier.finish(&self.options));
                closed.and_then(|stats| carried.map(|()| stats))
            }
            WriteEnd::File(w) => w.close().map_err(Error::from),
            WriteEnd::Arrays(w) => w.close().map_err(Error::from),
            WriteEnd::Store(w) => w.close().map_err(Error::from),
        };
        self.told.tell(&self.stats());
        closed
    }

    /// Gives up: the other units get an error, and no file appears.
    pub fn abort(&mut self) {
        self.abort_because("");
    }

    /// The same, and says why: the others' errors have `reason`, cut where it is longer than
    /// [`MAX_REASON`](crate::MAX_REASON) bytes. Of a store nobody is told it.
    pub fn abort_because(&mut self, reason: &str) {
        match &mut self.end {
            WriteEnd::Pipe(w) => {
                w.abort_because(reason);
                self.carrier = None;
            }
            WriteEnd::File(w) => w.abort(reason),
            WriteEnd::Arrays(w) => w.abort(reason),
            WriteEnd::Store(w) => w.abort(),
        }
    }
}

fn only_whole_steps() -> Error {
    Error::Misuse { what: "only whole steps can be written here".into() }
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

/// The one array that a file or a store can be given.
fn single(given: &Given) -> Result<&Dataset, Error> {
    match given {
        Given::Dataset(data) => Ok(data),
        Given::Bundle(_) => Err(no_arrays()),
        Given::ByReader => Err(needs_dataset()),
    }
}
