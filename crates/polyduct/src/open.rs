//! Opening a port.

use crate::{each::Each, env, stats::Opening, url, Error, Mode, Reader, Target, Writer};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::config::Config;
use polyduct_pipe::net::Trust;
use polyduct_pipe::Given;
use polyduct_port::{Array, Expect, Interrupt, OnLoss, Options, Policy, Readers, Rule};
use polyduct_store::file::Notes;
use polyduct_store::npy::Descr;
use polyduct_store::zarr::{Compression, Dims};
use polyduct_store::Attributes;
use std::time::Duration;

/// A port about to be opened: says what is not usual, then [`write`](Open::write) or [`read`](Open::read).
///
/// ```no_run
/// use polyduct::{open, layout::{Dataset, ElemType}};
///
/// let field = Dataset::new(&[4096, 4096], ElemType::F32)?;
/// let mut out = open("pipe:field").depth(3).write(&field, "block,*")?;
/// let mut step = out.step()?;
/// step.fill(0); // this unit's part, in the slot: no copy
/// step.publish()?;
/// out.close()?;
/// # Ok::<(), polyduct::Error>(())
/// ```
#[derive(Clone)]
pub struct Open {
    url: String,
    unit: Option<u32>,
    units: Option<u32>,
    program: Option<String>,
    job: Option<String>,
    shape: Option<Vec<u64>>,
    elem: Option<ElemType>,
    convert: bool,
    append: bool,
    trust: Option<Trust>,
    policy: Option<Policy>,
    options: polyduct_store::Options,
}

/// A port at `url`: `pipe:NAME`, `pipe://HOST:PORT/NAME`, a standard file, `store:DIR/NAME`, or `-` for what
/// the pipeline gave.
///
/// A standard file is `PATH.npy`, `PATH.raw` (the bytes of the row-major array and nothing else),
/// `PATH.safetensors` (a file of one tensor, `data`, or of [several arrays](Open::write_arrays)),
/// `PATH.safetensors.index.json` (a set of such files), `PATH.safetensors#NAME` (a tensor of several; written,
/// it replaces that one, and the others stay) or `PATH.zarr` (a directory, Zarr version 3 or 2; written, in
/// the version of the group or array that is there, with chunks of up to 32 MiB that are not compressed, or
/// as [`Open::chunks`] and [`Open::compress`] say). It is there under its name when every unit has closed it,
/// whole, and not before.
///
/// ```
/// use polyduct::{open, layout::{Dataset, ElemType}};
/// # let dir = std::env::temp_dir().join(format!("polyduct-open-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let dir = dir.display();
///
/// let weights = Dataset::new(&[4, 2], ElemType::Bf16)?;
/// let mut out = open(&format!("{dir}/model.safetensors#w")).unit(0).units(1).write(&weights, "block,*")?;
/// out.write(&[7; 16])?;
/// out.close()?;
///
/// // The second of two units has the second column.
/// let mut column = open(&format!("{dir}/model.safetensors")).unit(1).units(2).read("*,block")?;
/// let mut part = [0; 8];
/// assert_eq!(column.read(&mut part)?, Some(0));
///
/// let mut out = open(&format!("{dir}/column.zarr")).unit(0).units(1).write(&Dataset::new(&[4], ElemType::Bf16)?, "*")?;
/// out.write(&part)?;
/// out.close()?;
/// # std::fs::remove_dir_all(dir.to_string())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With `pipe://HOST:PORT/NAME` the programs may be on several hosts. Unit 0 of the writers listens at
/// HOST:PORT, all other units connect there; writers with more than one unit also listen at ports that the
/// system picks. Every unit needs the job's key in `POLYDUCT_JOB_KEY` (64 hexadecimal digits), or from
/// [`trust`](Open::trust). All that goes over the network is encrypted, unless every unit has
/// `POLYDUCT_TRUSTED_NETWORK=1`. Closing a writer waits until the readers have fetched its steps.
pub fn open(url: &str) -> Open {
    Open {
        url: url.to_owned(),
        unit: None,
        units: None,
        program: None,
        job: None,
        shape: None,
        elem: None,
        convert: false,
        append: false,
        trust: None,
        policy: None,
        options: polyduct_store::Options::default(),
    }
}

impl Open {
    /// Number of this unit, instead of the launcher's.
    pub fn unit(mut self, unit: u32) -> Open {
        self.unit = Some(unit);
        self
    }

    /// Units of this program, instead of the launcher's.
    pub fn units(mut self, units: u32) -> Open {
        self.units = Some(units);
        self
    }

    /// Name of this program, the same in all its units: tells several reader programs of one pipe apart.
    pub fn program(mut self, name: &str) -> Open {
        self.program = Some(name.to_owned());
        self
    }

    /// The job that the name of a pipe on this host belongs to, instead of the one that the environment says:
    /// programs of different jobs do not meet. Empty for none.
    pub fn job(mut self, job: &str) -> Open {
        self.job = Some(job.to_owned());
        self
    }

    /// Slots of each writer unit (1 to 64, default 2). A file has none, and only the limits count.
    pub fn depth(mut self, depth: u32) -> Open {
        self.options.port.depth = depth;
        self
    }

    /// What a writer does when all slots are full (default: wait, for readers that are there). A file has
    /// none.
    pub fn policy(mut self, policy: Policy) -> Open {
        self.policy = Some(policy);
        self
    }

    /// Reader programs that a writer waits for when it opens (1 to 8, default 1), or [`Readers::Any`]: they
    /// may come, leave and come again, and the policy is [`Policy::Latest`]. A file waits for none, and only
    /// the limits count.
    pub fn readers(mut self, readers: impl Into<Readers>) -> Open {
        self.options.port.readers = readers.into();
        self
    }

    /// Longest wait of any call, opening included. Without it a step is waited for as long as the peers live,
    /// and the other program for 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Open {
        self.options.port.timeout = Some(timeout);
        self.options.port.open_timeout = timeout;
        self
    }

    /// What the loss of a unit of this program means (default: an error for everybody). A lost unit can be
    /// replaced in pipes: for files and stores [`OnLoss::Wait`] is refused.
    pub fn on_loss(mut self, on_loss: OnLoss) -> Open {
        self.options.port.on_loss = on_loss;
        self
    }

    /// The shape that a reader expects. Needed where the other end gives plain bytes.
    pub fn shape(mut self, shape: &[u64]) -> Open {
        self.shape = Some(shape.to_vec());
        self
    }

    /// The element type that a reader expects. Needed where the other end gives plain bytes.
    pub fn elem(mut self, elem: ElemType) -> Open {
        self.elem = Some(elem);
        self
    }

    /// Lets a reader convert another element type into [`elem`](Open::elem) on the way: f32↔bf16, f32↔f16,
    /// f64↔f32.
    pub fn convert(mut self, convert: bool) -> Open {
        self.convert = convert;
        self
    }

    /// Lets the steps of a writer follow those that are there, in a store.
    pub fn append(mut self, append: bool) -> Open {
        self.append = append;
        self
    }

    /// The most bytes of data of each file of a set that is written (default 5 GB, 10⁹ each), unless it has one array
    /// of more. All units say the same.
    pub fn shard_bytes(mut self, most: u64) -> Open {
        self.options.shard_bytes = most;
        self
    }

    /// What is written down of the array that a writer makes: kept by a store (not where it is appended to)
    /// and by Zarr, and nowhere else. Unit 0's count.
    pub fn attributes(mut self, attributes: Attributes) -> Open {
        self.options.attributes = attributes;
        self
    }

    /// What the dimensions of an array that is written are called, that of the steps included, where its form
    /// has a place for that: Zarr.
    pub fn dims(mut self, dims: Option<Dims>) -> Open {
        self.options.dims = dims;
        self
    }

    /// What is written down of one of several arrays that are written, or of a group that they are in, where there is a
    /// place for it; the empty name is that of the whole.
    pub fn note_array(mut self, name: &str, notes: Notes) -> Open {
        self.options.notes.insert(name.to_owned(), notes);
        self
    }

    /// The sizes of a chunk of a Zarr array that is written: one for each dimension of a step, and maybe one
    /// of steps before them. Refused for everything else. All units say the same.
    pub fn chunks(mut self, chunks: Option<Vec<u64>>) -> Open {
        self.options.chunks = chunks;
        self
    }

    /// What the chunks of a Zarr array that is written are compressed with; they have up to 2 MiB then, where
    /// [`chunks`](Open::chunks) does not say more. Refused for everything else. All units say the same.
    pub fn compress(mut self, compression: Compression) -> Open {
        self.options.compression = compression;
        self
    }

    /// What NumPy takes the elements of what a writer makes for, where they are [`ElemType::Bytes`]: kept by
    /// a `.npy` file and by a store, and nowhere else. All units say the same.
    pub fn descr(mut self, descr: Option<Descr>) -> Open {
        self.options.descr = descr;
        self
    }

    /// Makes the steps of a writer the first dimension even if there is just one, in a file or a store. Unit
    /// 0's counts.
    pub fn stepped(mut self, stepped: bool) -> Open {
        self.options.stepped = stepped;
        self
    }

    /// The job's key, and whether the network is trusted, instead of what the environment says: for pipes
    /// across hosts.
    pub fn trust(mut self, trust: Trust) -> Open {
        self.trust = Some(trust);
        self
    }

    /// A question asked during blocking calls: give up?
    pub fn interrupt(mut self, ask: Interrupt) -> Open {
        self.options.port.interrupt = Some(ask);
        self
    }

    fn place(&mut self) -> Result<(), Error> {
        let get = |name: &str| std::env::var(name).ok();
        let place = env::place(self.unit, self.units, self.program.as_deref(), get)?;
        let port = &mut self.options.port;
        let usual = if port.readers == Readers::Any { Policy::Latest } else { Policy::Block };
        port.policy = self.policy.unwrap_or(usual);
        (port.unit, port.units, port.program) = (place.unit, place.units, place.program);
        port.job = self.job.clone().unwrap_or_else(|| env::job(get));
        Ok(())
    }

    fn target(&self, mode: Mode) -> Result<Target, Error> {
        url::parse(&self.url, mode, |name| std::env::var(name).ok())
    }

    /// Opens for writing: this program holds `dataset` in `layout`.
    ///
    /// # Errors
    /// Layouts, options and the environment are checked before anything is allocated; then see
    /// [`polyduct_pipe::Writer::open`].
    pub fn write(self, dataset: &Dataset, layout: &str) -> Result<Writer, Error> {
        self.write_given(&Given::Dataset(*dataset), layout)
    }

    /// Opens for writing several arrays in each step: a bundle.
    ///
    /// ```no_run
    /// use polyduct::{layout::{Dataset, ElemType}, open, Array};
    ///
    /// let array = |name: &str, shape: &[u64]| {
    ///     let dataset = Dataset::new(shape, ElemType::F32)?;
    ///     let (name, layout) = (name.into(), "block".into());
    ///     Ok::<_, polyduct::layout::LayoutError>(Array { name, dataset, layout, open: None })
    /// };
    /// let arrays = [array("weight", &[4096])?, array("bias", &[16])?];
    /// let mut out = open("pipe:model").unit(0).units(1).write_arrays(&arrays)?;
    /// out.write_arrays(&[&[0; 4096 * 4], &[0; 16 * 4]])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`write`](Open::write); [`Error::Misuse`] for other ends than pipes, `.safetensors` files, sets of
    /// them, `.npz` files, groups of Zarr and folders of stores, and, for one array whose size changes, `.npy`.
    pub fn write_arrays(self, arrays: &[Array]) -> Result<Writer, Error> {
        self.write_given(&Given::Bundle(arrays.to_vec()), "")
    }

    /// Opens a pipe for writing as a single unit that takes the dataset from the first reader: for passing on
    /// plain bytes whose meaning only the reader knows.
    ///
    /// # Errors
    /// As [`write`](Open::write); [`Error::Misuse`] when the other end is no pipe.
    pub fn write_what_is_read(self) -> Result<Writer, Error> {
        // One unit holds all bytes of the standard file, whatever their shape will be.
        self.write_given(&Given::ByReader, "stripe(1024MiB)")
    }

    fn write_given(mut self, given: &Given, layout: &str) -> Result<Writer, Error> {
        self.place()?;
        let target = self.target(Mode::Write)?;
        if self.policy.is_none() && target.shows_newest() {
            // Who looks never delays the program.
            self.options.port.policy = Policy::Latest;
        }
        if !matches!(target, Target::Zarr(_)) {
            self.options.check_unchunked(&self.url)?;
        }
        let opening = Opening::begin(&target, Mode::Write);
        let port = Writer::open(&target, given, layout, self.append, &self.options, self.trust);
        opening.end(port.is_ok());
        port
    }

    /// Opens for reading in this program's `layout`; what the dataset is, the other end says.
    ///
    /// # Errors
    /// As [`write`](Open::write), and [`polyduct_pipe::Reader::open`].
    pub fn read(self, layout: &str) -> Result<Reader, Error> {
        let expect = Expect { shape: self.shape.clone(), elem: self.elem, convert: self.convert };
        self.read_taken(&Taken::One(layout, &expect))
    }

    /// Opens for reading those of several arrays that the rules choose, each as the first rule says that fits
    /// its name, and those that rules put together from boxes of several.
    ///
    /// ```no_run
    /// use polyduct::{open, Assembly, JoinPieces, Piece, Rule};
    ///
    /// // One array of the rows of three, and the biases as they are.
    /// let pieces = ["q", "k", "v"].map(|name| Piece { array: name.into(), of: Vec::new(), at: None }).to_vec();
    /// let of = Some(Assembly { pieces, join: JoinPieces::Along(0) });
    /// let fused = Rule { pattern: "qkv".into(), layout: "block,*".into(), of, ..Rule::default() };
    /// let biases = Rule { pattern: "*.bias".into(), layout: "*".into(), ..Rule::default() };
    /// let mut model = open("pipe:model").unit(0).units(2).read_arrays(&[fused, biases])?;
    /// let mut step = vec![0; model.local_len_bytes()];
    /// model.read(&mut step)?;
    /// # Ok::<(), polyduct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Open::read), and [`polyduct_pipe::Reader::open_arrays`]; [`Error::Misuse`] where several arrays
    /// cannot be.
    pub fn read_arrays(self, rules: &[Rule]) -> Result<Reader, Error> {
        self.read_taken(&Taken::Named(rules))
    }

    /// What the writers bring, without reading it: their arrays in their layouts. Waits for them as
    /// [`read`](Open::read) does, and takes no place among the readers. An array without a name, as a `.npy` file or
    /// an array of a store is one, has the name `""`.
    ///
    /// # Errors
    /// As [`read`](Open::read), and [`Error::Misuse`] for a stream.
    pub fn describe(mut self) -> Result<Vec<Array>, Error> {
        self.place()?;
        let target = self.target(Mode::Read)?;
        let is_alone = match target {
            // Its array has a name.
            Target::Safetensors(_, None) => false,
            _ => crate::each::has_names(&target)? == Some(false),
        };
        if is_alone {
            let dataset = *self.unit(0).units(1).read("...")?.dataset();
            return Ok(vec![Array { name: String::new(), dataset, layout: "...".into(), open: None }]);
        }
        crate::reader::describe(&target, &self.options, self.trust)
    }

    /// The arrays of a file, of a set of files or of a group, to be read each for itself: in any order, and in stretches,
    /// so that none need be in memory. With an [expected type](Open::elem) those are converted that can be.
    ///
    /// # Errors
    /// As [`describe`](Open::describe); [`Error::Misuse`] for a pipe.
    pub fn each(mut self) -> Result<Each, Error> {
        self.place()?;
        let target = self.target(Mode::Read)?;
        Each::find(target, self.options, Expect { shape: None, elem: self.elem, convert: self.convert })
    }

    /// Whether the other end, which is to be read, has several arrays, with names; `None` for a pipe, whose writers
    /// [say](Open::describe) it.
    ///
    /// # Errors
    /// Where it is not there, or not what it should be.
    pub fn has_names(&self) -> Result<Option<bool>, Error> {
        crate::each::has_names(&self.target(Mode::Read)?)
    }

    fn read_taken(mut self, taken: &Taken<'_>) -> Result<Reader, Error> {
        self.place()?;
        let target = self.target(Mode::Read)?;
        let opening = Opening::begin(&target, Mode::Read);
        let port = Reader::open(&target, taken, &self.options, self.trust);
        opening.end(port.is_ok());
        port
    }
}

/// What a reader takes.
pub(crate) enum Taken<'a> {
    /// The only array, in a layout.
    One(&'a str, &'a Expect),
    /// Those that rules choose.
    Named(&'a [Rule]),
}

/// Options of a pipe across hosts: how long hosts may be silent, and whether units of one share memory, are
/// settings of each.
///
/// # Errors
/// [`Error::Message`] with what is wrong with the settings.
pub(crate) fn across(options: &Options) -> Result<Options, Error> {
    let config = Config::load().map_err(polyduct_message::MessageError::from)?;
    let near = config.bytes("near") != 0;
    Ok(Options { silence: config.time("silence"), near, ..options.clone() })
}
