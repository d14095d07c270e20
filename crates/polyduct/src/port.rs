//! Ports: the two ends of whatever a URL names, with one interface.

use crate::at::At;
use crate::files::{
    file_expect, file_options, file_stats, needs_dataset, read_file, standard_file, write_file,
};
use crate::open::About;
use crate::{stats, Error, Join, Mode, Target};
use polyduct_layout::{Dataset, Mapping};
use polyduct_message::Domain;
use polyduct_pipe as pipe;
use polyduct_pipe::net::{NetReader, NetStepMut, NetWriter, Trust};
use polyduct_pipe::{Addresses, Expect, Given, Stats};
use polyduct_store::{self as store, disk, Attributes};
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
    Net(Box<NetWriter>),
    File(Box<store::FileWriter>),
    Store(Box<disk::StoreWriter>),
}

impl Writer {
    pub(crate) fn open(
        target: &Target,
        given: &Given,
        layout: &str,
        about: &About,
        options: &pipe::Options,
        trust: Option<Trust>,
    ) -> Result<Writer, Error> {
        if about.append && !matches!(target, Target::Store(_)) {
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
                let options = file_options(path, options, None, &about.attributes)?;
                let (dir, name) = disk::split(path)?;
                WriteEnd::Store(Box::new(disk::StoreWriter::open(
                    &dir,
                    &name,
                    data,
                    layout,
                    about.append,
                    &options,
                )?))
            }
            file => WriteEnd::File(Box::new(write_file(
                &standard_file(file)?,
                given,
                layout,
                &about.attributes,
                options,
            )?)),
        };
        Ok(Writer { end, told: stats::Sink::new(target, Mode::Write, options) })
    }

    /// Whether there is a place for what is written down of the array ([`Open::attributes`](crate::Open::attributes)).
    pub fn keeps_attributes(&self) -> bool {
        match &self.end {
            WriteEnd::Pipe(_) | WriteEnd::Net(_) => false,
            WriteEnd::File(w) => w.format() == store::Format::Zarr,
            WriteEnd::Store(_) => true,
        }
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
                let options = file_options(path, options, None, &Attributes::new())?;
                let (dir, name) = disk::split(path)?;
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

    /// What is written down of the array: in a store, or in Zarr; elsewhere there is no place for that.
    pub fn attributes(&self) -> Attributes {
        match &self.end {
            ReadEnd::Pipe(_) | ReadEnd::Net(_) => Attributes::new(),
            ReadEnd::File(r) => r.attributes().clone(),
            ReadEnd::Store(r) => r.meta().attributes.clone(),
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

    /// A box of a dataset in a store, `lo` to below `hi` in each dimension, to be read and overwritten by this unit alone, whatever
    /// its part is and whichever steps it has read.
    ///
    /// ```
    /// use polyduct::{open, layout::{Dataset, ElemType}, store::disk::{Create, Store}};
    /// # let dir = std::env::temp_dir().join(format!("polyduct-at-doc-{}", std::process::id()));
    /// let units = (0..3).map(|u| vec![format!("unit{u}").into()]).collect();
    /// Store::create(&dir, &Create { units, parity: 1, stripe: 4096 })?;
    /// let url = format!("store:{}/table", dir.display());
    /// let mut out = open(&url).unit(0).units(1).write(&Dataset::new(&[100, 100], ElemType::U8)?, "*,*")?;
    /// out.write(&[1; 10_000])?;
    /// out.close()?;
    ///
    /// let table = open(&url).unit(0).units(1).read("block,*")?;
    /// table.at(&[10, 10], &[12, 12])?.write(0, &[2; 4])?; // durable when it returns
    /// let corner = table.at(&[9, 9], &[12, 12])?;
    /// let mut bytes = vec![0; corner.len_bytes()];
    /// corner.read(0, &mut bytes)?;
    /// assert_eq!(bytes, [1, 1, 1, 1, 2, 2, 1, 2, 2]);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] for what is no store, and for a port that converts; a box that is not within the dataset; a closed port.
    pub fn at(&self, lo: &[u64], hi: &[u64]) -> Result<At<'_>, Error> {
        let misuse = |what: &str| Err(Error::Misuse { what: what.into() });
        let ReadEnd::Store(port) = &self.end else {
            return misuse("only the datasets of a store are read and overwritten in boxes");
        };
        if port.dataset().elem() != port.meta().dataset.elem() {
            return misuse(
                "a port that converts cannot overwrite; open it with the element type that is stored",
            );
        }
        At::new(port.array()?, lo, hi)
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
