//! The reading side of a pipe.

mod end;
mod stretch;

use crate::bind::{check_rules, from_wire, PARTNER};
use crate::domain::{Addresses, DomainOptions};
use crate::error::{Mismatch, PipeError, Refusal};
use crate::join::{check_long, check_options, hello, system};
use crate::port::{Port, Share};
use crate::ready::{Wait, Watch};
use crate::wire::{self, Hello, Role, Takes, Welcome, Wish, VALUES};
use crate::work::Work;
use crate::{local, net, At};
pub(crate) use end::ReaderEnd;
use polyduct_layout::{Dataset, Layout, LayoutError, Mapping};
use polyduct_message::domain::Domain;
use polyduct_os::clock;
use polyduct_port::{
    Array, ArrayPart, Assembly, BundleError, Expect, Options, PortError, PortName, Rule, Side, Stats,
    UnitName,
};
use polyduct_slots::{Next, Turn};
use std::time::Duration;
pub use stretch::Stretches;

/// What came of a look for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It was read; its number.
    Step(u64),
    /// There are no more.
    End,
    /// It is not there yet.
    NotYet,
}

/// One unit's reading end of a pipe.
///
/// Where bytes come from another host they wait in the sockets until they are [read](Reader::read), and land
/// in the caller's array.
pub struct Reader {
    port: Port,
    end: Box<dyn ReaderEnd>,
    work: Work,
    next: u64,
    share: Share,
    /// Where [`next_step`](Reader::next_step) gathers what does not lie in one place.
    gathered: Vec<u8>,
    /// The values of the step that was read last, packed.
    values: Vec<u8>,
}

/// A reader that is about to open.
pub(crate) struct Opening<'a> {
    pub options: &'a Options,
    pub hello: Hello,
    pub start: Duration,
    pub pipe: &'a str,
}

impl Opening<'_> {
    /// What this unit of the pipe that the welcome is to reads.
    pub fn bind(&self, welcome: &Welcome) -> Result<Work, PipeError> {
        let Opening { pipe, options, hello, .. } = self;
        let takes = hello.role.takes().ok_or_else(|| PipeError::bad_peer(pipe, "a reader's welcome"))?;
        let bound = Work::bind(&welcome.arrays, welcome.writers, takes, (options.unit, options.units));
        bound.map_err(|why| PipeError::bad_peer(pipe, why.to_string()))
    }
}

/// What a reader wants of an array, said to others.
fn wish(layout: &str, expect: &Expect, of: Option<&Assembly>) -> Result<Wish, LayoutError> {
    let layout = match layout {
        PARTNER => layout.to_owned(),
        layout => layout.parse::<Layout>()?.to_string(),
    };
    Ok(Wish {
        layout,
        shape: expect.shape.clone(),
        elem: expect.elem.map(|e| e.to_string()),
        convert: expect.convert,
        of: of.cloned(),
    })
}

impl Reader {
    /// Opens the pipe at `at`, whose writers bring one array, and waits until all units of this program, of the
    /// writer and of all reader programs have come. The dataset is the writer's.
    ///
    /// # Errors
    /// [`PortError::Layout`] and [`PortError::BadOption`] before anything is done; [`PortError::Timeout`]
    /// when no writer comes within the open timeout; [`PipeError::Link`] where unit 0 on another host does
    /// not let this unit in; [`PipeError::Refused`] when the units disagree, a program is one too many, or
    /// the dataset is not what was expected.
    pub fn open<'a>(
        at: impl Into<At<'a>>,
        layout: &str,
        expect: &Expect,
        options: &Options,
    ) -> Result<Reader, PipeError> {
        Reader::enter(at.into(), options, || Ok(Takes::One(wish(layout, expect, None)?)))
    }

    /// The same for those of several arrays that the rules choose: each array as the first rule says that fits
    /// its name, and those that rules put together from boxes of the writers'. What no rule fits is not moved.
    ///
    /// # Errors
    /// As [`open`](Reader::open); [`PortError::Bundle`] for rules that cannot be, and
    /// [`Mismatch::Arrays`] with all that fit no array.
    pub fn open_arrays<'a>(
        at: impl Into<At<'a>>,
        rules: &[Rule],
        options: &Options,
    ) -> Result<Reader, PipeError> {
        Reader::enter(at.into(), options, || {
            let named = |rule: &Rule| {
                let name = || rule.pattern.clone();
                let wish = wish(&rule.layout, &rule.expect, rule.of.as_ref());
                let wish = wish.map_err(|source| BundleError::Layout { name: name(), source })?;
                Ok::<_, PipeError>((name(), wish))
            };
            let rules = rules.iter().map(named).collect::<Result<Vec<_>, _>>()?;
            check_rules(&rules)?;
            Ok(Takes::Named(rules))
        })
    }

    /// What the writers of the pipe at `at` bring, without reading it: a question that takes no place among the
    /// readers. Waits for the writers as [`open`](Reader::open) does. The layouts are theirs.
    ///
    /// # Errors
    /// As [`open`](Reader::open).
    pub fn describe<'a>(at: impl Into<At<'a>>, options: &Options) -> Result<Vec<Array>, PipeError> {
        let at = at.into();
        let pipe = at.to_string();
        match Reader::enter(at, options, || Ok(Takes::Ask)) {
            Err(PipeError::Refused { reason: Refusal::Terms(Mismatch::Described { arrays }), .. }) => {
                let given = |array: wire::Array| {
                    let dataset = from_wire(&array).ok()?;
                    Some(Array { name: array.name, dataset, layout: array.layout, open: array.open })
                };
                let named = arrays.into_iter().filter(|array| array.name != VALUES);
                let arrays: Option<Vec<Array>> = named.map(given).collect();
                arrays.ok_or_else(|| PipeError::bad_peer(&pipe, "a description of arrays that cannot be"))
            }
            Err(other) => Err(other),
            Ok(_) => Err(PipeError::bad_peer(&pipe, "a welcome to a unit that only asks")),
        }
    }

    fn enter(
        at: At<'_>,
        options: &Options,
        takes: impl FnOnce() -> Result<Takes, PipeError>,
    ) -> Result<Reader, PipeError> {
        // Which of the reader programs this is, it learns from unit 0.
        let me = check_options(options, Side::Reader(0))?;
        let pipe = at.to_string();
        let open = || {
            let start = clock::now();
            at.check_name()?;
            let hello = hello(options, Role::Reader { takes: takes()? }).map_err(system(&pipe))?;
            check_long(&hello.role)?;
            let opening = Opening { options, hello, start, pipe: &pipe };
            let (port, end, work, next) = match at {
                At::Name(name) => local::reader::open(name, &opening)?,
                At::Host(place, trust) => net::reader::open(place, trust, &opening)?,
            };
            if work.named().is_empty() {
                return Err(PipeError::bad_peer(&pipe, "a welcome to no array"));
            }
            let share = Share::new(next);
            Ok(Reader { port, end, work, next, share, gathered: Vec::new(), values: Vec::new() })
        };
        open().map_err(|e: PipeError| e.at(&pipe, me))
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

    /// Shape and element type of what this unit reads; of a bundle those of the first array.
    pub fn dataset(&self) -> &Dataset {
        self.mapping().dataset()
    }

    /// This program's mapping; of a bundle that of the first array.
    pub fn mapping(&self) -> &Mapping {
        &self.work.arrays[0].mapping
    }

    /// The arrays that this program takes, in the writers' order, and where this unit's parts of them lie in a
    /// step: at least one.
    pub fn arrays(&self) -> &[ArrayPart] {
        self.work.named()
    }

    /// The values of the step that was read last, [packed](polyduct_port::values).
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// Waits for the next step without reading it, for [`arrays`](Self::arrays) to be as they are in that one:
    /// how large those are whose size changes. Returns its number, `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(&mut self) -> Result<Option<u64>, PipeError> {
        Ok(self.take()?.map(|turn| turn.step))
    }

    /// The same, and waits until the step is within this unit's reach: whatever becomes of the writers, the next
    /// [`read`](Self::read) gives all of it, and waits for nobody. Across hosts it is received into memory of the port for
    /// that.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn hold(&mut self) -> Result<Option<u64>, PipeError> {
        let Some(turn) = self.take()? else { return Ok(None) };
        self.end.hold(&mut self.port, &self.work, turn).map_err(|e| self.port.fail(e))?;
        Ok(Some(turn.step))
    }

    /// Which unit of which program this is.
    pub fn name(&self) -> UnitName {
        self.port.me
    }

    /// Bytes of this unit's part of a step: of a bundle, of all parts and what lies between them.
    pub fn local_len_bytes(&self) -> usize {
        self.work.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.port.stats
    }

    /// Whether looking for a step takes but microseconds: all units are on this host.
    pub fn is_near(&self) -> bool {
        self.end.is_near()
    }

    /// Where [`read`](Self::read) sleeps.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn watch(&self) -> Result<Watch, PipeError> {
        self.end.watch(&self.port)
    }

    /// What the next [`read`](Self::read) would wait for; `None` if it would not. Across hosts it receives
    /// what has come of the step into memory of the port, one copy more than without it; where steps are
    /// dropped, the one that it finds is the one that is read.
    pub fn would_wait(&mut self) -> Option<Wait> {
        self.port.check_open().ok()?;
        let looked = self.end.would_wait(&mut self.port, &mut self.work, self.next);
        looked.map_err(|e| self.port.fail(e)).ok().flatten()
    }

    /// Waits for the next step and moves this unit's part of it into `part`. Returns the writer's number of
    /// the step, `None` at the end of the stream.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; [`PortError::Timeout`] and [`PortError::Interrupted`], after which the port
    /// can be used again; loss of peers, after which it cannot. After an error the content of `part` is
    /// undefined.
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError> {
        if !self.work.changes() {
            self.port.check_len(part.len(), self.work.len)?;
        }
        let Some(turn) = self.take()? else { return Ok(None) };
        self.port.check_len(part.len(), self.work.len)?;
        self.copy(turn, part)?;
        self.release(turn)?;
        Ok(Some(turn.step))
    }

    /// The same into several places in memory: this unit's part of each of the [arrays](Self::arrays), in
    /// their order.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_arrays(&mut self, parts: &mut [&mut [u8]]) -> Result<Option<u64>, PipeError> {
        let lens = |parts: &[&mut [u8]]| parts.iter().map(|part| part.len()).collect::<Vec<_>>();
        if !self.work.changes() {
            self.port.check_parts(&lens(parts), self.work.named())?;
        }
        let Some(turn) = self.take()? else { return Ok(None) };
        if self.work.changes() {
            self.port.check_parts(&lens(parts), self.work.named())?;
        }
        self.copy_parts(turn, parts)?;
        self.release(turn)?;
        Ok(Some(turn.step))
    }

    /// The same if the step is there, or comes within microseconds.
    ///
    /// # Errors
    /// As [`read`](Self::read), without the waiting.
    pub fn try_read(&mut self, part: &mut [u8]) -> Result<Tried, PipeError> {
        if !self.work.changes() {
            self.port.check_len(part.len(), self.work.len)?;
        }
        self.port.check_open()?;
        let next = self.end.try_take(&mut self.port, self.next).map_err(|e| self.port.fail(e))?;
        let turn = match next {
            None => return Ok(Tried::NotYet),
            Some(Next::End) => return Ok(Tried::End),
            Some(Next::Step(turn)) => turn,
        };
        self.size(turn)?;
        self.port.check_len(part.len(), self.work.len)?;
        let copied = match self.is_near() {
            true => self.copy(turn, part),
            false => clock::within(Some(Duration::ZERO), || self.copy(turn, part)),
        };
        match copied {
            Err(PipeError::Port(PortError::Timeout { .. })) if !self.is_near() => return Ok(Tried::NotYet),
            copied => copied?,
        }
        self.release(turn)?;
        Ok(Tried::Step(turn.step))
    }

    /// Waits for the next step and gives this unit's part of it until the [`Step`] is dropped: straight from
    /// the writer's slot when it lies there in one piece and in this layout's order, else from a buffer of
    /// the port.
    ///
    /// # Errors
    /// As [`read`](Reader::read).
    pub fn next_step(&mut self) -> Result<Option<Step<'_>>, PipeError> {
        let Some(turn) = self.take()? else { return Ok(None) };
        let held = self.end.is_held(&self.work, turn);
        if held {
            self.keep_values(turn)?;
        }
        if !held {
            let mut buffer = std::mem::take(&mut self.gathered);
            buffer.resize(self.work.len, 0);
            let copied = self.copy(turn, &mut buffer);
            self.gathered = buffer;
            copied?;
            self.release(turn)?;
        }
        Ok(Some(Step { reader: self, turn, held }))
    }

    /// Waits for the next step, and says whether [`next_step`](Self::next_step) gives it straight from the
    /// writer's slot. `None` at the end.
    ///
    /// # Errors
    /// As [`read`](Reader::read).
    pub fn is_next_mapped(&mut self) -> Result<Option<bool>, PipeError> {
        Ok(self.take()?.map(|turn| self.end.is_held(&self.work, turn)))
    }

    fn take(&mut self) -> Result<Option<Turn>, PipeError> {
        self.port.check_open()?;
        let turn = self.end.take(&mut self.port, self.next).map_err(|e| self.port.fail(e))?;
        turn.into_iter().try_for_each(|turn| self.size(turn))?;
        Ok(turn)
    }

    /// Has everything as large as it is in a step.
    fn size(&mut self, turn: Turn) -> Result<(), PipeError> {
        if !self.work.changes() {
            return Ok(());
        }
        let pipe = &self.port.pipe;
        let sized = match self.end.brought(&self.work, turn) {
            None => Err(PipeError::bad_peer(pipe, "a step whose sizes nobody has said")),
            Some(said) => self.work.at_step(&said).map(drop).map_err(|e| misfit(pipe, e)),
        };
        sized.map_err(|e| self.port.fail(e))
    }

    fn copy(&mut self, turn: Turn, part: &mut [u8]) -> Result<(), PipeError> {
        match &self.work.arrays[..] {
            [_] => self.copy_parts(turn, &mut [part]),
            _ if self.end.is_near() => {
                self.values.resize(self.work.values().map_or(0, |values| values.at.len()), 0);
                let Reader { end, port, work, values, .. } = self;
                end.copy_memory(port, work, turn, part, values).map_err(|e| self.port.fail(e))
            }
            _ => {
                let mut parts = self.work.split(part);
                self.copy_parts(turn, &mut parts)
            }
        }
    }

    fn copy_parts(&mut self, turn: Turn, parts: &mut [&mut [u8]]) -> Result<(), PipeError> {
        let copied = match self.work.values() {
            None => self.end.copy(&mut self.port, &self.work, turn, parts),
            Some(values) => {
                self.values.resize(values.at.len(), 0);
                let mut parts: Vec<&mut [u8]> = parts.iter_mut().map(|part| &mut **part).collect();
                parts.push(&mut self.values);
                self.end.copy(&mut self.port, &self.work, turn, &mut parts)
            }
        };
        copied.map_err(|e| self.port.fail(e))
    }

    /// Has the values of a step that is not copied.
    fn keep_values(&mut self, turn: Turn) -> Result<(), PipeError> {
        let Some(values) = self.work.values() else { return Ok(()) };
        self.values.resize(values.at.len(), 0);
        let Reader { end, port, work, values, .. } = self;
        end.copy_values(port, work, turn, values).map_err(|e| self.port.fail(e))
    }

    fn release(&mut self, turn: Turn) -> Result<(), PipeError> {
        let released = self.end.release(&mut self.port, self.next, turn);
        self.next += 1;
        self.share.count(&mut self.port.stats, &self.work, turn.step);
        released.map_err(|e| self.port.fail(e))
    }

    /// Leaves the pipe. When all units of all reader programs have left, the writers' next step fails with
    /// [`PipeError::ReadersGone`].
    ///
    /// # Errors
    /// The error that the port failed with before, if any.
    pub fn close(&mut self) -> Result<Stats, PipeError> {
        if !self.port.is_open() {
            return self.port.outcome(Ok(()));
        }
        self.port.shut();
        let left = self.end.leave(&mut self.port, self.next);
        self.port.outcome(left)
    }

    /// Gives the stream up: all other units get [`PortError::PeerAborted`]. Where this program
    /// [waits](crate::OnLoss::Wait) for replacements it leaves its place to another unit instead, which goes
    /// on with the next step: so a reader leaves whom another one follows.
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

/// One step, as a unit reads it. The writer cannot reuse its slot before this is dropped.
pub struct Step<'a> {
    reader: &'a mut Reader,
    turn: Turn,
    held: bool,
}

impl Step<'_> {
    /// The writer's number of the step.
    pub fn number(&self) -> u64 {
        self.turn.step
    }

    /// The arrays, and where this unit's parts of them lie in this step.
    pub fn arrays(&self) -> &[ArrayPart] {
        self.reader.arrays()
    }

    /// This program's mapping; of a bundle that of the first array.
    pub fn mapping(&self) -> &Mapping {
        self.reader.mapping()
    }

    /// The values of the step, [packed](polyduct_port::values).
    pub fn values(&self) -> &[u8] {
        self.reader.values()
    }

    /// Whether the data lie in the writer's slot: nothing was copied.
    pub fn is_mapped(&self) -> bool {
        self.held
    }
}

impl std::ops::Deref for Step<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.held {
            true => self.reader.end.held(&self.reader.work, self.turn),
            false => &self.reader.gathered,
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.held {
            // An error of it is remembered for the next call.
            let _ = self.reader.release(self.turn);
        }
    }
}

/// Why a step cannot be had as the writers say that it is: they say what cannot be, or this program's layout does not
/// fit it.
pub(crate) fn misfit(pipe: &str, error: BundleError) -> PipeError {
    match error {
        BundleError::Layout { .. } => PipeError::Port(PortError::Bundle {
            port: PortName::Pipe(pipe.to_owned()),
            source: Box::new(error),
        }),
        error => PipeError::bad_peer(pipe, error.to_string()),
    }
}
