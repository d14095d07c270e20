//! The reading port of whatever a URL names.

use crate::at::{At, Rows};
use crate::files::{find_arrays, no_arrays, standard_file};
use crate::open::Taken;
use crate::streams::{why, Carrier};
use crate::{stats, Error, Join, Mode, Target};
use polyduct_layout::{Dataset, Mapping};
use polyduct_message::Domain;
use polyduct_pipe as pipe;
use polyduct_pipe::net::Trust;
use polyduct_pipe::ready::{Wait, Watch};
use polyduct_pipe::{Addresses, Tried};
use polyduct_port::{Array, ArrayPart, PortName, Stats};
use polyduct_store::file::ArraysReader;
use polyduct_store::npy::Descr;
use polyduct_store::zarr::Dims;
use polyduct_store::{self as store, disk, Attributes};

/// One unit's reading port.
pub struct Reader {
    pub(crate) end: ReadEnd,
    /// Where the other end is beyond a gateway.
    pub(crate) carrier: Option<Carrier>,
    pub(crate) told: stats::Sink,
}

pub(crate) enum ReadEnd {
    Pipe(Box<pipe::Reader>),
    File(Box<store::FileReader>),
    Arrays(Box<ArraysReader>),
    Store(Box<disk::StoreReader>),
}

/// Why a step of a pipe cannot be had without a copy.
const NOT_IN_A_SLOT: &str =
    "this unit's part does not lie in one writer's slot on this host, in one piece and in this \
    layout's order; read the step, which copies it, or take the writers' layout";

/// What a pipe brings, or a file of several arrays has.
pub(crate) fn describe(
    target: &Target,
    options: &store::Options,
    trust: Option<Trust>,
) -> Result<Vec<Array>, Error> {
    match target {
        Target::Pipe(name) => Ok(pipe::Reader::describe(name, &options.port)?),
        Target::Net(place) => {
            let trust = trust.map_or_else(|| place.trust_from_env(), Ok)?;
            Ok(pipe::Reader::describe((place, &trust), &crate::open::across(&options.port)?)?)
        }
        Target::Stream(target) => {
            let what = format!("{target}: what a stream brings is known only to who reads it");
            Err(Error::Misuse { what })
        }
        file => Ok(find_arrays(file, options)?.1.describe()?),
    }
}

impl Reader {
    pub(crate) fn open(
        target: &Target,
        taken: &Taken<'_>,
        options: &store::Options,
        trust: Option<Trust>,
    ) -> Result<Reader, Error> {
        let pipe = |at: pipe::At<'_>, options| match taken {
            Taken::One(layout, expect) => pipe::Reader::open(at, layout, expect, options),
            Taken::Named(rules) => pipe::Reader::open_arrays(at, rules, options),
        };
        let mut carrier = None;
        let end = match (target, taken) {
            (Target::Stream(target), _) => {
                let carrier = carrier.insert(Carrier::receive(target, &options.port, trust)?);
                let opened = pipe(carrier.pipe().into(), &carrier.own(&options.port)?);
                ReadEnd::Pipe(Box::new(carrier.opened(opened)?))
            }
            (Target::Pipe(name), _) => ReadEnd::Pipe(Box::new(pipe(name.into(), &options.port)?)),
            (Target::Net(place), _) => {
                let trust = trust.map_or_else(|| place.trust_from_env(), Ok)?;
                ReadEnd::Pipe(Box::new(pipe((place, &trust).into(), &crate::open::across(&options.port)?)?))
            }
            (file, Taken::Named(rules)) => {
                let (path, found) = find_arrays(file, options)?;
                ReadEnd::Arrays(Box::new(ArraysReader::open(path, found, rules, options)?))
            }
            (Target::Store(path), Taken::One(layout, expect)) => {
                options.check(|| PortName::Store(path.display().to_string()))?;
                let (dir, name) = disk::split(path)?;
                ReadEnd::Store(Box::new(disk::StoreReader::open(&dir, &name, layout, expect, options)?))
            }
            (file, Taken::One(layout, expect)) => {
                let (path, format, options) = standard_file(file, options)?;
                ReadEnd::File(Box::new(store::FileReader::open(path, format, layout, expect, &options)?))
            }
        };
        Ok(Reader { end, carrier, told: stats::Sink::new(target, Mode::Read, &options.port) })
    }

    /// Shape and element type of what this unit reads.
    pub fn dataset(&self) -> &Dataset {
        self.mapping().dataset()
    }

    /// What is written down of the array: in a store, or in Zarr; elsewhere there is no place for that.
    pub fn attributes(&self) -> Attributes {
        match &self.end {
            ReadEnd::Pipe(_) | ReadEnd::Arrays(_) => Attributes::new(),
            ReadEnd::File(r) => r.attributes().clone(),
            ReadEnd::Store(r) => r.meta().attributes.clone(),
        }
    }

    /// What the dimensions of the array are called, that of the steps included; `None` where nothing says it.
    pub fn dims(&self) -> Option<&Dims> {
        match &self.end {
            ReadEnd::File(r) => r.dims(),
            ReadEnd::Pipe(_) | ReadEnd::Arrays(_) | ReadEnd::Store(_) => None,
        }
    }

    /// What NumPy takes the elements for, where they are bytes to polyduct: in a store, or in a `.npy` file.
    pub fn descr(&self) -> Option<&Descr> {
        match &self.end {
            ReadEnd::Pipe(_) | ReadEnd::Arrays(_) => None,
            ReadEnd::File(r) => r.descr(),
            ReadEnd::Store(r) => r.meta().descr.as_ref(),
        }
    }

    /// The same of each of the [arrays](Self::arrays); none where nothing is known of any.
    pub fn descrs(&self) -> &[Option<Descr>] {
        match &self.end {
            ReadEnd::Arrays(r) => r.descrs(),
            ReadEnd::Pipe(_) | ReadEnd::File(_) | ReadEnd::Store(_) => &[],
        }
    }

    /// Whether the steps are a dimension of what is read even if there is just one: it was made so.
    pub fn stepped(&self) -> bool {
        match &self.end {
            ReadEnd::Pipe(_) | ReadEnd::Arrays(_) => false,
            ReadEnd::File(r) => r.stepped(),
            ReadEnd::Store(r) => r.meta().stepped,
        }
    }

    /// The arrays that this program takes, and where this unit's parts of them lie in a step; none where there is
    /// one that has no name.
    pub fn arrays(&self) -> &[ArrayPart] {
        match &self.end {
            ReadEnd::Pipe(r) => r.arrays(),
            ReadEnd::Arrays(r) => r.arrays(),
            ReadEnd::File(_) | ReadEnd::Store(_) => &[],
        }
    }

    /// Waits for the next step without reading it, for [`arrays`](Self::arrays) to be as they are in that one:
    /// how large those are whose size changes. Returns its number, `None` at the end.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Misuse`] where this carries one array without a name.
    pub fn peek(&mut self) -> Result<Option<u64>, Error> {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.peek().map_err(|e| why(&mut self.carrier, e)),
            ReadEnd::Arrays(r) => Ok(r.peek()?),
            ReadEnd::File(_) | ReadEnd::Store(_) => Err(no_arrays()),
        }
    }

    /// The same, and waits until the next [`read`](Self::read) gives all of the step whatever becomes of the writers, and
    /// waits for nobody: across hosts it is received into memory of the port for that.
    ///
    /// # Errors
    /// As there.
    pub fn hold(&mut self) -> Result<Option<u64>, Error> {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.hold().map_err(|e| why(&mut self.carrier, e)),
            _ => self.peek(),
        }
    }

    /// The [values](crate::values) of the step that was read last, packed.
    pub fn values(&self) -> &[u8] {
        match &self.end {
            ReadEnd::Pipe(r) => r.values(),
            ReadEnd::Arrays(r) => r.values(),
            ReadEnd::File(_) | ReadEnd::Store(_) => &[],
        }
    }

    /// This program's mapping; of several arrays that of the first.
    pub fn mapping(&self) -> &Mapping {
        match &self.end {
            ReadEnd::Pipe(r) => r.mapping(),
            ReadEnd::File(r) => r.mapping(),
            ReadEnd::Arrays(r) => r.mapping(),
            ReadEnd::Store(r) => r.mapping(),
        }
    }

    /// Bytes of this unit's part of a step: of several arrays, of all parts and what lies between them.
    pub fn local_len_bytes(&self) -> usize {
        match &self.end {
            ReadEnd::Pipe(r) => r.local_len_bytes(),
            ReadEnd::File(r) => r.local_len_bytes(),
            ReadEnd::Arrays(r) => r.local_len_bytes(),
            ReadEnd::Store(r) => r.local_len_bytes(),
        }
    }

    /// Waits for the next step and copies this unit's part of each of the [arrays](Self::arrays) into its place
    /// in `parts`, which may lie anywhere in memory. Returns the writer's number of the step, `None` at the
    /// end.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Misuse`] where this carries one array without a name.
    pub fn read_arrays(&mut self, parts: &mut [&mut [u8]]) -> Result<Option<u64>, Error> {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.read_arrays(parts).map_err(|e| why(&mut self.carrier, e)),
            ReadEnd::Arrays(r) => Ok(r.read_arrays(parts)?),
            ReadEnd::File(_) | ReadEnd::Store(_) => Err(no_arrays()),
        }
    }

    /// Waits for the next step and copies this unit's part of it into `part`. Returns the writer's number of
    /// the step, `None` at the end.
    ///
    /// # Errors
    /// A part of the wrong size; timeouts and interrupts, after which the port can be used again; loss of
    /// peers, after which it cannot. After an error the content of `part` is undefined.
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, Error> {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.read(part).map_err(|e| why(&mut self.carrier, e)),
            ReadEnd::File(r) => Ok(r.read(part)?),
            ReadEnd::Arrays(r) => Ok(r.read(part)?),
            ReadEnd::Store(r) => Ok(r.read(part)?),
        }
    }

    /// Waits for the next step and gives this unit's part of it where it lies, in the writer's slot, without a
    /// copy: the writer cannot use the slot again before it is dropped. `None` at the end.
    ///
    /// ```no_run
    /// # use polyduct::open;
    /// let mut input = open("pipe:field").read("block,*")?;
    /// while let Some(step) = input.view()? {
    ///     println!("step {}: {} bytes", step.number(), step.len());
    /// }
    /// # Ok::<(), polyduct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] where the part does not lie in one slot of this host, in one piece and in this layout's
    /// order; the step is still to be read then. Else as [`read`](Self::read).
    pub fn view(&mut self) -> Result<Option<pipe::Step<'_>>, Error> {
        let misuse = |what: &str| Err(Error::Misuse { what: what.into() });
        match &mut self.end {
            ReadEnd::Pipe(r) => {
                if r.is_next_mapped().map_err(|e| why(&mut self.carrier, e))? == Some(false) {
                    return misuse(NOT_IN_A_SLOT);
                }
                match r.next_step() {
                    Ok(step) => Ok(step),
                    Err(error) => Err(why(&mut self.carrier, error)),
                }
            }
            ReadEnd::File(_) | ReadEnd::Arrays(_) | ReadEnd::Store(_) => {
                misuse("only steps of pipes lie in slots that can be looked at without a copy; read this one")
            }
        }
    }

    /// Steps that there are; `None` for a pipe, which does not know.
    pub fn steps(&self) -> Option<u64> {
        match &self.end {
            ReadEnd::Pipe(_) => None,
            ReadEnd::File(r) => Some(r.steps()),
            ReadEnd::Arrays(_) => Some(1),
            ReadEnd::Store(r) => Some(r.steps()),
        }
    }

    /// Bytes of a [stretch](Self::read_stretch), but for the last of a step; `None` where only whole steps
    /// can be read: from a pipe, a file in Fortran's order, and a store with conversion.
    pub fn stretch_len(&self) -> Option<u64> {
        match &self.end {
            ReadEnd::Pipe(_) | ReadEnd::Arrays(_) => None,
            ReadEnd::File(r) => r.stretch_len(),
            ReadEnd::Store(r) => {
                (r.meta().dataset == *r.dataset()).then(|| Rows::of(r.dataset()).len_bytes())
            }
        }
    }

    /// Reads a stretch of a step, whoever's part it is: `bytes.len()` bytes of the row-major array from byte
    /// `at` on, which is a multiple of [`stretch_len`](Self::stretch_len). Needs no memory for the step. Does
    /// not count as [`read`](Self::read).
    ///
    /// # Errors
    /// [`Error::Misuse`] where only whole steps can be read, and for anything but a stretch; then as
    /// [`read`](Self::read).
    pub fn read_stretch(&mut self, step: u64, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let wrong =
            || Error::Misuse { what: format!("no stretch of {} bytes begins at byte {at}", bytes.len()) };
        match &mut self.end {
            ReadEnd::File(r) => Ok(r.read_stretch(step, at, bytes)?),
            ReadEnd::Store(r) if r.meta().dataset == *r.dataset() => {
                let (lo, hi) = Rows::of(r.dataset()).at(r.dataset(), at).ok_or_else(wrong)?;
                At::new(r.array()?, &lo, &hi)?.read(step, bytes)
            }
            _ => Err(Error::Misuse { what: "only whole steps can be read here".into() }),
        }
    }

    /// As [`read`](Self::read) if the step is there; a file's always are.
    ///
    /// # Errors
    /// As [`read`](Self::read), without the waiting.
    pub fn try_read(&mut self, part: &mut [u8]) -> Result<Tried, Error> {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.try_read(part).map_err(|e| why(&mut self.carrier, e)),
            _ => Ok(self.read(part)?.map_or(Tried::End, Tried::Step)),
        }
    }

    /// Whether looking for a step takes but microseconds: all units are on this host.
    pub fn is_near(&self) -> bool {
        matches!(&self.end, ReadEnd::Pipe(r) if r.is_near())
    }

    /// Where [`read`](Self::read) sleeps, for a [`Ready`](polyduct_pipe::ready::Ready); `None` for a file,
    /// which waits for nobody.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn watch(&self) -> Result<Option<Watch>, Error> {
        match &self.end {
            ReadEnd::Pipe(r) => Ok(Some(r.watch()?)),
            ReadEnd::File(_) | ReadEnd::Arrays(_) | ReadEnd::Store(_) => Ok(None),
        }
    }

    /// What the next [`read`](Self::read) would wait for; `None` if it would not.
    pub fn would_wait(&mut self) -> Option<Wait> {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.would_wait(),
            ReadEnd::File(_) | ReadEnd::Arrays(_) | ReadEnd::Store(_) => None,
        }
    }

    /// A box of a dataset in a store, `lo` to below `hi` in each dimension, to be read and overwritten by
    /// this unit alone, whatever its part is and whichever steps it has read.
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
    /// [`Error::Misuse`] for what is no store, and for a port that converts; a box that is not within the
    /// dataset; a closed port.
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

    /// Where the units of all programs are in the port's [domain](Self::domain); `None` for a file, which has
    /// none.
    pub fn addresses(&self) -> Option<&Addresses> {
        match &self.end {
            ReadEnd::Pipe(p) => Some(p.addresses()),
            ReadEnd::File(_) | ReadEnd::Arrays(_) | ReadEnd::Store(_) => None,
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
            ReadEnd::Pipe(p) => Ok(p.domain(&wishes)?),
            ReadEnd::File(_) | ReadEnd::Arrays(_) | ReadEnd::Store(_) => {
                Err(Error::Misuse { what: "a file has no units on another side to send messages to".into() })
            }
        }
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        match &self.end {
            ReadEnd::Pipe(r) => r.stats(),
            ReadEnd::File(r) => r.stats(),
            ReadEnd::Arrays(r) => r.stats(),
            ReadEnd::Store(r) => r.stats(),
        }
    }

    /// Leaves. When all units of all readers of a pipe have left, its writers' next step fails.
    ///
    /// # Errors
    /// The error that the port failed with before.
    pub fn close(&mut self) -> Result<Stats, Error> {
        let closed = match &mut self.end {
            ReadEnd::Pipe(r) => r.close().map_err(|e| why(&mut self.carrier, e)),
            ReadEnd::File(r) => Ok(r.close()),
            ReadEnd::Arrays(r) => Ok(r.close()),
            ReadEnd::Store(r) => Ok(r.close()),
        };
        self.told.tell(&self.stats());
        closed
    }

    /// Gives up: the other units get an error, or where this program waits for replacements of lost units
    /// (`on_loss`), wait for one that takes its place. So a reader leaves whom another one follows.
    pub fn abort(&mut self) {
        self.abort_because("");
    }

    /// The same, and says why: the others' errors have `reason`, cut where it is longer than
    /// [`MAX_REASON`](crate::MAX_REASON) bytes.
    pub fn abort_because(&mut self, reason: &str) {
        match &mut self.end {
            ReadEnd::Pipe(r) => r.abort_because(reason),
            // Nobody else is concerned by who reads a file.
            ReadEnd::File(r) => {
                r.close();
            }
            ReadEnd::Arrays(r) => {
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
