//! The writing side of a pipe.

mod end;

use crate::bind::{bind_writers, check_words, to_wire, EVERYTHING};
use crate::brings::Brings;
use crate::domain::{Addresses, DomainOptions};
use crate::error::PipeError;
use crate::join::{check_long, check_options, hello, system};
use crate::port::{kernels, Port};
use crate::ready::{Wait, Watch};
use crate::wire::{Array as WireArray, Gives, Hello, Role, VALUES};
use crate::{local, net, At};
pub(crate) use end::{Parts, WriterEnd};
use polyduct_copy::Kernels;
use polyduct_layout::{Dataset, ElemType, Layout, Mapping};
use polyduct_message::domain::Domain;
use polyduct_os::{clock, segment::Segment};
use polyduct_port::{
    check_names, Array, ArrayPart, BundleError, Changes, OnLoss, Options, PortError, Readers, Scope, Side,
    Stats, VALUES_BYTES,
};
use polyduct_slots::Begin;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// One unit's writing end of a pipe.
///
/// Steps are filled [in place](Writer::step), or [copied in](Writer::write). The port is
/// [closed](Writer::close), or closes when it is dropped; dropped in a panic it [aborts](Writer::abort).
pub struct Writer {
    port: Port,
    end: Box<dyn WriterEnd>,
    /// At least one array.
    brings: Brings,
    /// Bytes of the parts in a slot, and of that.
    len: usize,
    slot_len: usize,
    next: u64,
    /// Where a step is written that the queue drops; made when first needed.
    scratch: Option<Segment>,
    kernels: Kernels,
    /// The stream has been ended, and the readers are waited for.
    closing: bool,
}

/// What a writer brings, or that this is left to the readers.
#[derive(Clone, Debug)]
pub enum Given {
    /// One array without a name, in the layout that goes with it.
    Dataset(Dataset),
    /// Arrays with names, and a layout each.
    Bundle(Vec<Array>),
    /// The one that the first reader expects: for a single unit that passes plain bytes on.
    ByReader,
}

/// A writer that is about to open.
pub(crate) struct Opening<'a> {
    pub options: &'a Options,
    /// What the program brings, if that is known before a reader has said it.
    pub arrays: Option<&'a [WireArray]>,
    pub hello: Hello,
    pub start: Duration,
}

/// One that has opened: its port, its end, the arrays that move, and the step at which the unit goes on.
pub(crate) type Opened = (Port, Box<dyn WriterEnd>, Vec<WireArray>, u64);

impl Writer {
    /// Opens the pipe at `at` for what is `given`, a single array in this `layout` (bundles have theirs), and
    /// waits until all units of this program and of the expected reader programs
    /// have come; where [any](Readers::Any) may come, for none of them. Across hosts unit 0 listens there.
    ///
    /// # Errors
    /// [`PortError::Layout`], [`PortError::Bundle`] and [`PortError::BadOption`] before anything is allocated;
    /// [`PipeError::NameTaken`]; [`PipeError::Link`] where unit 0 on another host does not let this unit in;
    /// [`PipeError::Refused`] when units disagree or do not come within the open timeout; the system's
    /// refusals.
    pub fn open<'a>(
        at: impl Into<At<'a>>,
        given: &Given,
        layout: &str,
        options: &Options,
    ) -> Result<Writer, PipeError> {
        let (at, me) = (at.into(), check_options(options, Side::Writer)?);
        let pipe = at.to_string();
        let open = || {
            let start = clock::now();
            at.check_name()?;
            check_any(given, options)?;
            let gives = gives(given, layout, options)?;
            let arrays = match &gives {
                Gives::Arrays(arrays) => Some(arrays.clone()),
                Gives::Bytes { .. } => None,
            };
            if let Some(arrays) = &arrays {
                bind_writers(arrays, options.units)?;
                check_words(arrays, options.units)?;
            }
            let (depth, policy) = (options.depth, options.policy);
            let role = Role::Writer { gives, depth, policy, readers: options.readers.to_wire() };
            let hello = hello(options, role).map_err(system(&pipe))?;
            check_long(&hello.role)?;
            let opening = Opening { options, arrays: arrays.as_deref(), hello, start };
            let (port, end, arrays, next) = match at {
                At::Name(name) => local::writer::open(name, me, opening)?,
                At::Host(place, trust) => net::writer::open(place, trust, me, opening)?,
            };
            let bound = bind_writers(&arrays, options.units)?;
            let (slot_len, kernels) = (bound.lay_out(options.unit)?.len, kernels(&bound));
            // As large as they can be, without the values.
            let named = arrays.iter().filter(|array| array.name != VALUES);
            let parts = bound.parts(named.map(|array| (&array.name[..], array.open)), options.unit)?;
            let len = parts.iter().map(|part| part.at.end).max().unwrap_or(0);
            let brings = Brings::new(&arrays, &bound, (options.unit, options.units))?;
            let (scratch, closing) = (None, false);
            Ok(Writer { port, end, brings, len, slot_len, next, scratch, kernels, closing })
        };
        open().map_err(|e: PipeError| e.at(&pipe, me))
    }

    /// The dataset and who owns what of it; of a bundle that of the first array.
    pub fn mapping(&self) -> &Mapping {
        &self.brings.arrays[0].mapping
    }

    /// The arrays, and where this unit's parts of them lie in a step: at least one.
    pub fn arrays(&self) -> &[ArrayPart] {
        &self.brings.arrays
    }

    /// Says how large an array is in the next step, and in those after it until it is said again: where a
    /// dimension is open the shape of this unit's piece, which may be empty, else that of the whole array,
    /// which all units say alike. Before the first time it has no elements, and again when a
    /// [step](Self::step) did not begin for want of memory.
    ///
    /// # Errors
    /// [`PortError::Bundle`] for an array whose size does not change, another number of dimensions, or more
    /// than was declared. Then nothing has changed.
    pub fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), PipeError> {
        let sized = self.brings.size(array, shape);
        sized.map_err(|e| PipeError::from(e).at(&self.port.pipe, self.port.me))
    }

    /// Has these values, [packed](polyduct_port::values), go with the next step, of a bundle. Those of unit 0
    /// count.
    ///
    /// # Errors
    /// [`PortError::Bundle`]: more than [`VALUES_BYTES`], or no bundle.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), PipeError> {
        let set = self.brings.set_values(packed);
        set.map_err(|e| PipeError::from(e).at(&self.port.pipe, self.port.me))
    }

    /// Number of the next step, from 0.
    pub fn next_step(&self) -> u64 {
        self.next
    }

    /// Bytes of this unit's part of a step: of a bundle, of all parts and what lies between them.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Where the units of all programs are in the port's [domain](Self::domain).
    pub fn addresses(&self) -> &Addresses {
        self.port.domain.addresses()
    }

    /// The message domain of this port: all units of the writer program and of all reader programs of the
    /// pipe, at their [addresses](Self::addresses). The first call joins it, and waits until all of them have
    /// asked; later ones give the same again, whatever they wish. Messages are independent of steps. Closing
    /// the port leaves the domain, unless the caller has a clone of it; aborting gives it up. A unit that
    /// replaces another does not get into a domain that exists.
    ///
    /// # Errors
    /// [`PipeError::Domain`] with who did not come within the open timeout, after which it can be asked for
    /// again; [`PortError::PeerLost`] and the like when somebody is gone who would have to come;
    /// [`PortError::Interrupted`].
    pub fn domain(&mut self, wishes: &DomainOptions) -> Result<Domain, PipeError> {
        if let Some(domain) = self.port.domain.joined() {
            return Ok(domain);
        }
        self.port.check_open()?;
        let joined = self.end.domain(&mut self.port, wishes, self.next);
        joined.map_err(|e| self.port.told(e))
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.port.stats
    }

    /// Waits for a slot and gives this unit's part of the next step, to be filled in place and
    /// [published](StepMut::publish). Its content is undefined (an older step's). Dropped without publishing,
    /// the step is not written and the next call gives it again. What a child that is forked meanwhile writes
    /// there, it has for itself.
    ///
    /// # Errors
    /// [`PortError::Timeout`] and [`PortError::Interrupted`], after which the port can be used again; loss of
    /// peers, after which it cannot.
    pub fn step(&mut self) -> Result<StepMut<'_>, PipeError> {
        let begin = self.begin()?;
        self.begun(begin)
    }

    /// The same if there is a slot, or one is free within microseconds; `None` if not. Makes no system call
    /// on one host, unless arrays whose size changes need more memory than they had.
    ///
    /// # Errors
    /// Loss of peers, as [`step`](Self::step).
    pub fn try_step(&mut self) -> Result<Option<StepMut<'_>>, PipeError> {
        self.check_writing()?;
        let begin = self.end.try_begin(&mut self.port, self.next).map_err(|e| self.port.fail(e))?;
        begin.map(|begin| self.begun(begin)).transpose()
    }

    fn begun(&mut self, begin: Begin) -> Result<StepMut<'_>, PipeError> {
        if let Err(error) = self.make_room(begin, true) {
            // For as much as in the step before, of which less may be brought in this one: asked for again, the
            // step begins with nothing.
            self.brings.size_nothing(None);
            return Err(error);
        }
        if let (Begin::Fill(turn), true) = (begin, self.brings.has_constants()) {
            if !self.brings.lie_in(turn.slot) {
                self.brings.place_constants(self.end.slot_mut(turn));
            }
        }
        if begin == Begin::Drop && self.scratch.is_none() {
            // Has memory for what is written there, and not for the most that may be.
            let scratch = Segment::create_partly("polyduct-dropped", self.slot_len.max(1), &[]);
            let scratch = scratch.map_err(|e| system(&self.port.pipe)(e));
            self.scratch = Some(scratch.map_err(|e| self.port.fail(e))?);
        }
        Ok(StepMut { writer: self, begin })
    }

    /// Has memory for what this unit brings of the step.
    fn make_room(&mut self, begin: Begin, begins: bool) -> Result<(), PipeError> {
        let Writer { port, end, brings, .. } = self;
        let (Begin::Fill(turn), used @ [_, ..]) = (begin, brings.used()) else { return Ok(()) };
        end.make_room(port, turn, used, begins).map_err(|e| port.fail(e))
    }

    /// Whether looking for room takes but microseconds: all units are on this host.
    pub fn is_near(&self) -> bool {
        self.end.is_near()
    }

    /// Where [`step`](Self::step) sleeps.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn watch(&self) -> Result<Watch, PipeError> {
        self.end.watch(&self.port)
    }

    /// What the next [`step`](Self::step) would wait for; `None` if it would not.
    pub fn would_wait(&mut self) -> Option<Wait> {
        self.check_writing().ok()?;
        let looked = self.end.would_wait(&mut self.port, self.next);
        looked.map_err(|e| self.port.fail(e)).ok().flatten()
    }

    /// Writes this unit's part of the next step from memory of the caller's: one copy more than
    /// [`step`](Self::step). Returns whether the step was taken (`false`: the queue dropped it, and nothing
    /// was copied).
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; otherwise as [`step`](Self::step).
    pub fn write(&mut self, part: &[u8]) -> Result<bool, PipeError> {
        self.port.check_len(part.len(), self.len)?;
        match &self.brings.arrays[..] {
            [array] => self.write_parts(&[&part[array.at.clone()]]),
            arrays => {
                let parts: Vec<&[u8]> = arrays.iter().map(|array| &part[array.at.clone()]).collect();
                self.write_parts(&parts)
            }
        }
    }

    /// The same from several places in memory: this unit's part of each of the [arrays](Self::arrays), in
    /// their order. Of an open dimension the length of the part says how much it is; constant arrays may be left
    /// out, as parts of no bytes, after the first step, and stay as they were in that.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_arrays(&mut self, parts: &[&[u8]]) -> Result<bool, PipeError> {
        let mut lens: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        self.brings.fill_in(&mut lens);
        let fitted = self.brings.fit(&lens);
        fitted.map_err(|e| PipeError::from(e).at(&self.port.pipe, self.port.me))?;
        self.port.check_parts(&lens, &self.brings.arrays)?;
        self.write_parts(parts)
    }

    fn write_parts(&mut self, parts: &[&[u8]]) -> Result<bool, PipeError> {
        let begin = self.begin()?;
        self.make_room(begin, true)?;
        let Writer { port, end, brings, len, kernels, next, .. } = self;
        let constants = brings.has_constants();
        if constants {
            brings.keep_constants(|array| parts[array]);
        }
        let written = match begin {
            Begin::Drop => end.finish(port, *next, begin, &[]),
            Begin::Fill(turn) => {
                if brings.has_values() {
                    brings.place_values(end.slot_mut(turn));
                }
                let lie_there = constants && brings.lie_in(turn.slot);
                let all;
                let parts = match constants {
                    true => {
                        all = brings.with_constants(parts);
                        &all
                    }
                    false => parts,
                };
                let (arrays, said, len, kernels) = (&brings.arrays[..], &brings.words[..], *len, *kernels);
                let parts = Parts { parts, arrays, said, len, kernels, constants, lie_there };
                end.write(port, *next, turn, &parts)
            }
        };
        self.count(begin);
        written.map_err(|e| self.port.fail(e)).map(|()| begin != Begin::Drop)
    }

    /// Keeps the constants of the first step.
    fn keep_constants(&mut self, begin: Begin) {
        let Writer { brings, end, scratch, .. } = self;
        let places: Vec<_> = brings.arrays.iter().map(|array| array.at.clone()).collect();
        let slot = match begin {
            Begin::Drop => dropped(scratch),
            Begin::Fill(turn) => end.slot(turn),
        };
        brings.keep_constants(|array| slot.get(places[array].clone()).unwrap_or_default());
        if let Begin::Fill(turn) = begin {
            brings.lie_in(turn.slot);
        }
    }

    fn check_writing(&self) -> Result<(), PipeError> {
        self.port.check_open()?;
        match self.closing {
            true => Err(self.port.closed()),
            false => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<Begin, PipeError> {
        self.check_writing()?;
        self.end.begin(&mut self.port, self.next).map_err(|e| self.port.fail(e))
    }

    fn count(&mut self, begin: Begin) {
        self.next += 1;
        match begin {
            Begin::Fill(_) => {
                self.port.stats.steps += 1;
                self.port.stats.bytes += self.brings.bytes();
            }
            Begin::Drop => self.port.stats.dropped += 1,
        }
        self.brings.written();
    }

    /// Ends the stream: readers get every step published so far, then its end. All units must have written
    /// the same number of steps.
    ///
    /// On one host it does not wait for the readers to fetch them, but where lost units may be
    /// [replaced](crate::OnLoss::Wait) unit 0 stays until all writers have closed and all readers have closed
    /// or read every step; and so it does where units live in different process namespaces, as in the
    /// containers of a pod, since it alone sees all of them end: of the writers only, where readers come and
    /// go. Across hosts the data are in this process: it waits until the readers have fetched them, and unit
    /// 0 until all other units have left.
    ///
    /// Leaves the port's [domain](Self::domain) if nobody else has it, which waits until others have what
    /// this unit sent there.
    ///
    /// # Errors
    /// The error that the port failed with before, if any; [`PortError::UnevenSteps`] where another unit
    /// closed after more or fewer steps; loss of a reader before it had all; [`PortError::Timeout`] and
    /// [`PortError::Interrupted`] while it waits, after which it can be called again; [`PipeError::Domain`]
    /// where others did not take what was sent in the domain.
    pub fn close(&mut self) -> Result<Stats, PipeError> {
        if !self.port.is_open() {
            return self.port.outcome(Ok(()));
        }
        if self.port.failure().is_none() {
            self.closing = true;
            if let Err(e) = self.end.close(&mut self.port, self.next) {
                let error = self.port.fail(e);
                if error.scope() == Scope::Operation {
                    return Err(error);
                }
            }
        }
        let left = self.leave();
        self.port.outcome(left)
    }

    /// Gives the stream up: all other units get [`PortError::PeerAborted`].
    pub fn abort(&mut self) {
        self.abort_because("");
    }

    /// The same, and says why: the others' errors have `reason`, of which
    /// [`MAX_REASON`](crate::MAX_REASON) bytes are kept.
    pub fn abort_because(&mut self, reason: &str) {
        if self.port.is_open() {
            self.port.shut();
            self.end.abort(&mut self.port, reason);
        }
    }

    fn leave(&mut self) -> Result<(), PipeError> {
        self.port.shut();
        self.end.leave(&mut self.port)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        } else if self.close().is_err() && self.port.is_open() {
            // A unit that has not closed by now, or has not fetched its steps, had its time.
            let _ = self.leave();
        }
    }
}

/// This unit's part of one step, to be filled in place.
pub struct StepMut<'a> {
    writer: &'a mut Writer,
    begin: Begin,
}

impl StepMut<'_> {
    /// Makes the part visible, together with those of all other units. Returns whether the queue took the
    /// step.
    ///
    /// # Errors
    /// The loss of unit 0 on another host.
    pub fn publish(self) -> Result<bool, PipeError> {
        let StepMut { writer, begin } = self;
        writer.make_room(begin, false)?;
        if writer.brings.has_constants() {
            writer.keep_constants(begin);
        }
        if let (Begin::Fill(turn), true) = (begin, writer.brings.has_values()) {
            writer.brings.place_values(writer.end.slot_mut(turn));
        }
        let finished = writer.end.finish(&mut writer.port, writer.next, begin, &writer.brings.words);
        writer.count(begin);
        finished.map_err(|e| writer.port.fail(e)).map(|()| begin != Begin::Drop)
    }

    /// Number of the step, from 0.
    pub fn number(&self) -> u64 {
        self.writer.next
    }

    /// The arrays, and where this unit's parts of them lie in the step.
    pub fn arrays(&self) -> &[ArrayPart] {
        self.writer.arrays()
    }

    /// Says how large an array is in this step: see [`Writer::bring`].
    ///
    /// # Errors
    /// As there; [`PipeError::System`] where there is no memory for it, after which it has no elements.
    pub fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), PipeError> {
        self.writer.bring(array, shape)?;
        let made = self.writer.make_room(self.begin, false);
        if made.is_err() {
            self.writer.brings.size_nothing(Some(array));
        }
        made
    }

    /// Has these values go with this step: see [`Writer::set_values`].
    ///
    /// # Errors
    /// As there.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), PipeError> {
        self.writer.set_values(packed)
    }
}

impl Deref for StepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.begin {
            Begin::Drop => dropped(&self.writer.scratch),
            Begin::Fill(turn) => self.writer.end.slot(turn),
        }
    }
}

impl DerefMut for StepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.begin {
            Begin::Drop => {
                let scratch = self.writer.scratch.as_mut();
                scratch.and_then(|scratch| scratch.slice_mut(0..scratch.len()).ok()).unwrap_or_default()
            }
            Begin::Fill(turn) => self.writer.end.slot_mut(turn),
        }
    }
}

/// Where a step is filled that the queue drops.
fn dropped(scratch: &Option<Segment>) -> &[u8] {
    scratch.as_ref().and_then(|scratch| scratch.slice(0..scratch.len()).ok()).unwrap_or_default()
}

/// What a writer says that it brings.
fn gives(given: &Given, layout: &str, options: &Options) -> Result<Gives, PipeError> {
    let normal = |layout: &str| Ok::<_, PipeError>(layout.parse::<Layout>()?.to_string());
    match given {
        Given::Dataset(data) => Ok(Gives::Arrays(vec![to_wire("", data, &normal(layout)?, None)])),
        Given::Bundle(arrays) => {
            // Names that cannot be are told as such, and the empty one is that of an array alone.
            check_names(arrays.iter().map(|array| array.name.as_str()))?;
            let array = |array: &Array| {
                let layout = match (array.open, &array.layout[..]) {
                    (Some(Changes::Dim(_)), "") => EVERYTHING,
                    (_, layout) => layout,
                };
                let named = |source| BundleError::Layout { name: array.name.clone(), source };
                let layout = layout.parse::<Layout>().map_err(named)?.to_string();
                Ok(to_wire(&array.name, &array.dataset, &layout, array.open))
            };
            let mut given = arrays.iter().map(array).collect::<Result<Vec<_>, PipeError>>()?;
            let values = Dataset::new(&[VALUES_BYTES as u64], ElemType::U8)?;
            given.push(to_wire(VALUES, &values, EVERYTHING, Some(Changes::Dim(0))));
            Ok(Gives::Arrays(given))
        }
        Given::ByReader if options.units == 1 => Ok(Gives::Bytes { layout: normal(layout)? }),
        Given::ByReader => Err(PipeError::Port(PortError::BadOption {
            port: None,
            option: "units",
            found: options.units.to_string(),
            expected: "1 where the reader says the shape".into(),
        })),
    }
}

/// What a writer cannot have that waits for no readers.
fn check_any(given: &Given, options: &Options) -> Result<(), PipeError> {
    let bad = |option, found: &str, expected: &'static str| {
        Err(PipeError::Port(PortError::BadOption {
            port: None,
            option,
            found: found.into(),
            expected: expected.into(),
        }))
    };
    match (options.readers, given, options.on_loss) {
        (Readers::Programs(_) | Readers::Sole, ..) => Ok(()),
        (Readers::Any, Given::ByReader, _) => {
            bad("readers", "any", "a number where the first reader says what the steps are")
        }
        (Readers::Any, _, OnLoss::Wait) => bad("on_loss", "wait", "raise in a writer whose readers is any"),
        (Readers::Any, ..) => Ok(()),
    }
}
