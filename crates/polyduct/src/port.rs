//! Ports: the two ends of whatever a URL names, with one interface.

use crate::{stats, Error, Join, Mode, Target};
use polyduct_layout::{Dataset, Mapping};
use polyduct_message::Domain;
use polyduct_pipe as pipe;
use polyduct_pipe::net::{NetReader, NetStepMut, NetWriter, Trust};
use polyduct_pipe::{Addresses, Expect, Given, Stats};
use polyduct_store::{self as store, disk, Format};
use std::ops::{Deref, DerefMut};
use std::path::Path;

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
    Net(Box<NetWriter>),
    File(Box<store::FileWriter>),
    Store(Box<disk::StoreWriter>),
}

impl Writer {
    pub(crate) fn open(
        target: &Target,
        given: &Given,
        layout: &str,
        append: bool,
        options: &pipe::Options,
        trust: Option<Trust>,
    ) -> Result<Writer, Error> {
        if append && !matches!(target, Target::Store(_)) {
            let what = "only what is in a store can be appended to (store:DIR/NAME)";
            return Err(Error::Misuse { what: what.into() });
        }
        let end = match target {
            Target::Pipe(name) => WriteEnd::Pipe(Box::new(pipe::Writer::open(name, given, layout, options)?)),
            Target::Net(place) => {
                let trust = trust.map_or_else(|| place.trust_from_env(), Ok)?;
                WriteEnd::Net(Box::new(NetWriter::open(place, &trust, given, layout, options)?))
            }
            Target::Store(path) => {
                let Given::Dataset(data) = given else { return Err(needs_dataset()) };
                let (dir, name) = disk::split(path)?;
                let options = file_options(options, None);
                WriteEnd::Store(Box::new(disk::StoreWriter::open(
                    &dir, &name, data, layout, append, &options,
                )?))
            }
            file => WriteEnd::File(Box::new(write_file(&standard_file(file)?, given, layout, options)?)),
        };
        Ok(Writer { end, told: stats::Sink::new(target, Mode::Write, options) })
    }

    /// The dataset and who owns what of it.
    pub fn mapping(&self) -> &Mapping {
        match &self.end {
            WriteEnd::Pipe(w) => w.mapping(),
            WriteEnd::Net(w) => w.mapping(),
            WriteEnd::File(w) => w.mapping(),
            WriteEnd::Store(w) => w.mapping(),
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
            WriteEnd::Net(w) => w.local_len_bytes(),
            WriteEnd::File(w) => w.local_len_bytes(),
            WriteEnd::Store(w) => w.local_len_bytes(),
        }
    }

    /// Number of the next step, from 0. A replacement's first is the one where the lost unit stopped.
    pub fn next_step(&self) -> u64 {
        match &self.end {
            WriteEnd::Pipe(w) => w.next_step(),
            WriteEnd::Net(w) => w.next_step(),
            WriteEnd::File(w) => w.next_step(),
            WriteEnd::Store(w) => w.next_step(),
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
            WriteEnd::Net(w) => Ok(StepMut(StepEnd::Net(w.step()?))),
            WriteEnd::File(w) => Ok(StepMut(StepEnd::File(w.step_mut()?))),
            WriteEnd::Store(w) => Ok(StepMut(StepEnd::Store(w.step_mut()?))),
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
            WriteEnd::Net(w) => Ok(w.write(part)?),
            WriteEnd::File(w) => Ok(w.write(part).map(|()| true)?),
            WriteEnd::Store(w) => Ok(w.write(part).map(|()| true)?),
        }
    }

    /// Where the units of all programs are in the port's [domain](Self::domain); `None` for a file, which has none.
    pub fn addresses(&self) -> Option<&Addresses> {
        match &self.end {
            WriteEnd::Pipe(p) => Some(p.addresses()),
            WriteEnd::Net(p) => Some(p.addresses()),
            WriteEnd::File(_) | WriteEnd::Store(_) => None,
        }
    }

    /// The message domain of this port: all units of the writer program and of all reader programs, at their
    /// [addresses](Self::addresses). The first call joins it, and waits until all of them have asked; later ones give the
    /// same again. What [`Join`] leaves open is as for the port. Messages are independent of steps. Closing the port leaves
    /// the domain, unless the caller has a clone of it; aborting gives it up.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a file, and where `join` says a name or a unit; what [`pipe::Writer::domain`] fails with.
    pub fn domain(&mut self, join: Join) -> Result<Domain, Error> {
        let wishes = join.of_port()?;
        match &mut self.end {
            WriteEnd::Pipe(p) => Ok(p.domain(&wishes)?),
            WriteEnd::Net(p) => Ok(p.domain(&wishes)?),
            WriteEnd::File(_) | WriteEnd::Store(_) => {
                Err(Error::Misuse { what: "a file has no units on another side to send messages to".into() })
            }
        }
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        match &self.end {
            WriteEnd::Pipe(w) => w.stats(),
            WriteEnd::Net(w) => w.stats(),
            WriteEnd::File(w) => file_stats(w.stats()),
            WriteEnd::Store(w) => file_stats(w.stats()),
        }
    }

    /// Ends the stream, or completes the file under its name. Every unit must have written the same number of steps. Across
    /// hosts it waits until the readers have fetched them.
    ///
    /// # Errors
    /// The error that the port failed with before, or that completing the file met.
    pub fn close(&mut self) -> Result<Stats, Error> {
        let closed = match &mut self.end {
            WriteEnd::Pipe(w) => w.close().map_err(Error::from),
            WriteEnd::Net(w) => w.close().map_err(Error::from),
            WriteEnd::File(w) => w.close().map(file_stats).map_err(Error::from),
            WriteEnd::Store(w) => w.close().map(file_stats).map_err(Error::from),
        };
        self.told.tell(&self.stats());
        closed
    }

    /// Gives up: the other units get an error, and no file appears.
    pub fn abort(&mut self) {
        match &mut self.end {
            WriteEnd::Pipe(w) => w.abort(),
            WriteEnd::Net(w) => w.abort(),
            WriteEnd::File(w) => w.abort(""),
            WriteEnd::Store(w) => w.abort(),
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
    Net(NetStepMut<'a>),
    File(store::StepMut<'a>),
    Store(disk::StoreStepMut<'a>),
}

impl StepMut<'_> {
    /// Makes the part visible together with those of the other units. Returns `false` when a lossy queue dropped it.
    ///
    /// # Errors
    /// Those of writing a file, and the loss of unit 0 on another host.
    pub fn publish(self) -> Result<bool, Error> {
        match self.0 {
            StepEnd::Pipe(step) => Ok(step.publish()),
            StepEnd::Net(step) => Ok(step.publish()?),
            StepEnd::File(step) => Ok(step.publish().map(|()| true)?),
            StepEnd::Store(step) => Ok(step.publish().map(|()| true)?),
        }
    }
}

impl Deref for StepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            StepEnd::Pipe(step) => step,
            StepEnd::Net(step) => step,
            StepEnd::File(step) => step,
            StepEnd::Store(step) => step,
        }
    }
}

impl DerefMut for StepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            StepEnd::Pipe(step) => step,
            StepEnd::Net(step) => step,
            StepEnd::File(step) => step,
            StepEnd::Store(step) => step,
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
    Net(Box<NetReader>),
    File(Box<store::FileReader>),
    Store(Box<disk::StoreReader>),
}

impl Reader {
    pub(crate) fn open(
        target: &Target,
        layout: &str,
        expect: &Expect,
        options: &pipe::Options,
        trust: Option<Trust>,
    ) -> Result<Reader, Error> {
        let end = match target {
            Target::Pipe(name) => ReadEnd::Pipe(Box::new(pipe::Reader::open(name, layout, expect, options)?)),
            Target::Net(place) => {
                let trust = trust.map_or_else(|| place.trust_from_env(), Ok)?;
                ReadEnd::Net(Box::new(NetReader::open(place, &trust, layout, expect, options)?))
            }
            Target::Store(path) => {
                let (dir, name) = disk::split(path)?;
                let options = file_options(options, None);
                let port = disk::StoreReader::open(&dir, &name, layout, &file_expect(expect), &options)?;
                ReadEnd::Store(Box::new(port))
            }
            file => ReadEnd::File(Box::new(read_file(&standard_file(file)?, layout, expect, options)?)),
        };
        Ok(Reader { end, told: stats::Sink::new(target, Mode::Read, options) })
    }

    /// Shape and element type of what this unit reads.
    pub fn dataset(&self) -> &Dataset {
        match &self.end {
            ReadEnd::Pipe(r) => r.dataset(),
            ReadEnd::Net(r) => r.dataset(),
            ReadEnd::File(r) => r.dataset(),
            ReadEnd::Store(r) => r.dataset(),
        }
    }

    /// This program's mapping.
    pub fn mapping(&self) -> &Mapping {
        match &self.end {
            ReadEnd::Pipe(r) => r.mapping(),
            ReadEnd::Net(r) => r.mapping(),
            ReadEnd::File(r) => r.mapping(),
            ReadEnd::Store(r) => r.mapping(),
        }
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        match &self.end {
            ReadEnd::Pipe(r) => r.local_len_bytes(),
            ReadEnd::Net(r) => r.local_len_bytes(),
            ReadEnd::File(r) => r.local_len_bytes(),
            ReadEnd::Store(r) => r.local_len_bytes(),
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
            ReadEnd::Net(r) => Ok(r.read(part)?),
            ReadEnd::File(r) => Ok(r.read(part)?),
            ReadEnd::Store(r) => Ok(r.read(part)?),
        }
    }

    /// Where the units of all programs are in the port's [domain](Self::domain); `None` for a file, which has none.
    pub fn addresses(&self) -> Option<&Addresses> {
        match &self.end {
            ReadEnd::Pipe(p) => Some(p.addresses()),
            ReadEnd::Net(p) => Some(p.addresses()),
            ReadEnd::File(_) | ReadEnd::Store(_) => None,
        }
    }

    /// The message domain of this port: all units of the writer program and of all reader programs, at their
    /// [addresses](Self::addresses). The first call joins it, and waits until all of them have asked; later ones give the
    /// same again. What [`Join`] leaves open is as for the port. Messages are independent of steps. Closing the port leaves
    /// the domain, unless the caller has a clone of it; aborting gives it up.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a file, and where `join` says a name or a unit; what [`pipe::Writer::domain`] fails with.
    pub fn domain(&mut self, join: Join) -> Result<Domain, Error> {
        let wishes = join.of_port()?;
        match &mut self.end {
            ReadEnd::Pipe(p) => Ok(p.domain(&wishes)?),
            ReadEnd::Net(p) => Ok(p.domain(&wishes)?),
            ReadEnd::File(_) | ReadEnd::Store(_) => {
                Err(Error::Misuse { what: "a file has no units on another side to send messages to".into() })
            }
        }
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        match &self.end {
            ReadEnd::Pipe(r) => r.stats(),
            ReadEnd::Net(r) => r.stats(),
            ReadEnd::File(r) => file_stats(r.stats()),
            ReadEnd::Store(r) => file_stats(r.stats()),
        }
    }

    /// Leaves. When all units of all readers of a pipe have left, its writers' next step fails.
    ///
    /// # Errors
    /// The error that the port failed with before.
    pub fn close(&mut self) -> Result<Stats, Error> {
        let closed = match &mut self.end {
            ReadEnd::Pipe(r) => r.close().map_err(Error::from),
            ReadEnd::Net(r) => r.close().map_err(Error::from),
            ReadEnd::File(r) => Ok(file_stats(r.close())),
            ReadEnd::Store(r) => Ok(file_stats(r.close())),
        };
        self.told.tell(&self.stats());
        closed
    }

    /// Gives up: the other units get an error.
    pub fn abort(&mut self) {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.abort(),
            ReadEnd::Net(r) => r.abort(),
            // Nobody else is concerned by who reads a file.
            ReadEnd::File(r) => {
                r.close();
            }
            ReadEnd::Store(r) => {
                r.close();
            }
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

/// A file, its form, and what of it.
struct StandardFile<'a> {
    path: &'a Path,
    format: Format,
    tensor: Option<&'a str>,
}

fn standard_file(target: &Target) -> Result<StandardFile<'_>, Error> {
    let (path, format, tensor) = match target {
        Target::Npy(path) => (path, Format::Npy, None),
        Target::Raw(path) => (path, Format::Raw, None),
        Target::Safetensors(path, tensor) => (path, Format::Safetensors, tensor.as_deref()),
        Target::Zarr(path) => (path, Format::Zarr, None),
        Target::Pipe(_) | Target::Net(_) | Target::Store(_) => {
            return Err(Error::Misuse { what: "a pipe or a store is no file".into() })
        }
    };
    Ok(StandardFile { path, format, tensor })
}

fn file_options(options: &pipe::Options, tensor: Option<&str>) -> store::Options {
    store::Options {
        tensor: tensor.map(str::to_owned),
        unit: options.unit,
        units: options.units,
        program: options.program.clone(),
        timeout: options.timeout,
        open_timeout: options.open_timeout,
        interrupt: options.interrupt.clone(),
        ..store::Options::default()
    }
}

fn write_file(
    file: &StandardFile<'_>,
    given: &Given,
    layout: &str,
    options: &pipe::Options,
) -> Result<store::FileWriter, Error> {
    match given {
        Given::Dataset(data) => {
            let options = file_options(options, file.tensor);
            Ok(store::FileWriter::open(file.path, file.format, data, layout, &options)?)
        }
        Given::ByReader => Err(needs_dataset()),
    }
}

fn needs_dataset() -> Error {
    Error::Misuse { what: "a file needs the shape and dtype of what is written".into() }
}

fn read_file(
    file: &StandardFile<'_>,
    layout: &str,
    expect: &Expect,
    options: &pipe::Options,
) -> Result<store::FileReader, Error> {
    let options = file_options(options, file.tensor);
    Ok(store::FileReader::open(file.path, file.format, layout, &file_expect(expect), &options)?)
}

fn file_expect(expect: &Expect) -> store::Expect {
    store::Expect { shape: expect.shape.clone(), elem: expect.elem, convert: expect.convert }
}

fn file_stats(s: store::Stats) -> Stats {
    let store::Stats { steps, dropped, bytes, runs, waited, copied, opened } = s;
    Stats { steps, dropped, bytes, runs, waited, copied, opened }
}
