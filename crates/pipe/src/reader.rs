//! The reading side of a pipe.

mod ready;

use crate::bind::{from_wire, slot_stride};
use crate::domain::{Addresses, DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::join::{check_name, check_options, hello, system, Joining};
use crate::port::{kernels, Port, Share, TIMED_FROM};
use crate::serve::attach;
use crate::threads::Threads;
use crate::watch::{spawn, Keepsake};
use crate::wire::Role;
use polyduct_copy::{as_shared, Conversion, Dest, Kernels, Source};
use polyduct_layout::{Dataset, ElemType, Layout, Mapping, Plan};
use polyduct_message::domain::Domain;
use polyduct_os::{
    clock,
    poll::EventFd,
    process::{PidFd, ProcessId},
    remote::RemoteReader,
    segment::{Access, Segment},
    OsError,
};
use polyduct_port::{Expect, Options, PortError, PortName, Side, Stats, UnitName};
use polyduct_slots::{Next, Slots, Turn};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

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
pub struct Reader {
    port: Port,
    program: u32,
    dataset: Dataset,
    src: Mapping,
    dst: Mapping,
    plan: Plan,
    conversion: Option<Conversion>,
    kernels: Kernels,
    threads: Threads,
    /// The slots of the writer unit of each transfer.
    parts: Vec<Part>,
    /// Where this unit's whole part lies in the slot of the one writer that has all of it.
    direct: Option<Range<usize>>,
    next: u64,
    len: usize,
    share: Share,
    /// Where [`next_step`](Reader::next_step) gathers what does not lie in one place.
    gathered: Vec<u8>,
}

struct Part {
    unit: u32,
    segment: Segment<()>,
    stride: usize,
    len: usize,
}

impl Reader {
    /// Opens the pipe `pipe` and waits until all units of this program, of the writer and of all reader
    /// programs have come. The dataset is the writer's.
    ///
    /// # Errors
    /// [`PortError::Layout`] and [`PortError::BadOption`] before anything is done; [`PortError::Timeout`]
    /// when no writer comes within the open timeout; [`PipeError::Refused`] when the units disagree, a
    /// program is one too many, or the dataset is not what was expected.
    pub fn open(pipe: &str, layout: &str, expect: &Expect, options: &Options) -> Result<Reader, PipeError> {
        // Which of the reader programs this is, it learns from unit 0.
        let me = check_options(options, Side::Reader(0))?;
        Reader::join(pipe, layout, expect, options).map_err(|e| e.at(pipe, me))
    }

    fn join(pipe: &str, layout: &str, expect: &Expect, options: &Options) -> Result<Reader, PipeError> {
        let start = clock::now();
        check_name(pipe)?;
        let layout: Layout = layout.parse()?;
        let role = Role::Reader {
            shape: expect.shape.clone(),
            elem: expect.elem.map(|e| e.to_string()),
            convert: expect.convert,
        };
        let hello = hello(options, &layout.to_string(), role).map_err(system(pipe))?;
        let (joined, conn) = Joining::with(pipe, options, |joining| {
            let (welcome, control, _) = joining.welcome(&hello, &[])?;
            let (control, slots) = attach(pipe, control, &welcome)?;
            if welcome.program >= slots.sizes().programs() {
                return Err(joining.bad("a welcome without a place"));
            }
            let given = from_wire(&welcome.dataset)?;
            let elem = expect.elem.unwrap_or(given.elem());
            let conversion = conversion(pipe, &given, elem)?;
            let dataset = Dataset::new(given.shape(), elem)?;
            let src = welcome.layout.parse::<Layout>()?.bind(&given, u64::from(welcome.writers))?;
            let dst = layout.bind(&dataset, u64::from(options.units))?;
            let plan = Plan::to_reader(&src, &dst, u64::from(options.unit))?;
            let (parts, fds) = segments(joining, &plan, &src, welcome.depth)?;
            let keepsake = Keepsake::new(joining, &hello, &welcome, control, fds)?;
            joining.ready()?;
            Ok((welcome, slots, keepsake, (dataset, given, conversion), (src, dst, plan, parts)))
        })?;
        let (welcome, slots, keepsake, (dataset, given, conversion), (src, dst, plan, parts)) = joined;
        let me = UnitName { side: Side::Reader(welcome.program), unit: options.unit };
        let len = dst.local_len_bytes(u64::from(options.unit))? as usize;
        let direct = direct_range(&plan, conversion, len);
        let next = slots.resume_at(me);
        let stop = Arc::new(EventFd::new().map_err(system(pipe))?);
        let (watched, stopped) = (slots.clone(), stop.clone());
        let thread = spawn(pipe, move || crate::watch::run(conn, me, watched, keepsake, stopped))?;
        let domain = PortDomain::new(pipe, me, &welcome, options, None);
        let port = Port::new(pipe, me, (slots, domain), options, clock::now() - start, (stop, thread));
        let (program, share) = (welcome.program, Share::new(&plan, len, next));
        let (kernels, gathered) = (kernels(&given), Vec::new());
        Ok(Reader {
            port,
            program,
            dataset,
            src,
            dst,
            plan,
            conversion,
            kernels,
            threads: Threads::of(options.units),
            parts,
            direct,
            next,
            len,
            share,
            gathered,
        })
    }

    /// Where the units of all programs are in the port's [domain](Self::domain).
    pub fn addresses(&self) -> &Addresses {
        self.port.addresses()
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
        self.port.domain(wishes, self.next)
    }

    /// Shape and element type of what this unit reads.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The writers' mapping.
    pub fn source_mapping(&self) -> &Mapping {
        &self.src
    }

    /// This program's mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.dst
    }

    /// What is copied from whom.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.port.stats
    }

    /// Waits for the next step and copies this unit's part of it into `part`. Returns the writer's number of
    /// the step, `None` at the end of the stream.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; [`PortError::Timeout`] and [`PortError::Interrupted`], after which the port
    /// can be used again; loss of peers, after which it cannot. After an error the content of `part` is
    /// undefined.
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError> {
        self.check_len(part)?;
        let Some(turn) = self.take()? else { return Ok(None) };
        self.copy(turn, part)?;
        self.release(turn);
        Ok(Some(turn.step))
    }

    /// The same if the step is there, or comes within microseconds.
    ///
    /// # Errors
    /// As [`read`](Self::read), without the waiting.
    pub fn try_read(&mut self, part: &mut [u8]) -> Result<Tried, PipeError> {
        self.check_len(part)?;
        self.port.check_open()?;
        let (program, unit, k) = (self.program, self.port.me.unit, self.next);
        match self.port.look(k, |slots| slots.poll_next(program, unit, k))? {
            None => Ok(Tried::NotYet),
            Some(Next::End) => Ok(Tried::End),
            Some(Next::Step(turn)) => {
                self.copy(turn, part)?;
                self.release(turn);
                Ok(Tried::Step(turn.step))
            }
        }
    }

    /// Waits for the next step and gives this unit's part of it until the [`Step`] is dropped: straight from
    /// the writer's slot when it lies there in one piece and in this layout's order, else from a buffer of
    /// the port.
    ///
    /// # Errors
    /// As [`read`](Reader::read).
    pub fn next_step(&mut self) -> Result<Option<Step<'_>>, PipeError> {
        let Some(turn) = self.take()? else { return Ok(None) };
        let offered = self.parts.first().and_then(|p| self.port.slots.offered(p.unit, turn));
        let held = self.direct.is_some() && offered.is_none();
        if !held {
            let mut buffer = std::mem::take(&mut self.gathered);
            buffer.resize(self.len, 0);
            let copied = self.copy(turn, &mut buffer);
            self.gathered = buffer;
            copied?;
            self.release(turn);
        }
        Ok(Some(Step { reader: self, turn, held }))
    }

    fn check_len(&self, part: &[u8]) -> Result<(), PipeError> {
        match part.len() == self.len {
            true => Ok(()),
            false => Err(PipeError::Port(PortError::WrongSize {
                port: PortName::Pipe(self.port.pipe.clone()),
                unit: Some(self.port.me.unit),
                expected: self.len as u64,
                found: part.len() as u64,
            })),
        }
    }

    fn take(&mut self) -> Result<Option<Turn>, PipeError> {
        self.port.check_open()?;
        let (program, unit, k) = (self.program, self.port.me.unit, self.next);
        let next =
            self.port.wait(Slots::published_bell, k, "step", |slots| slots.poll_next(program, unit, k))?;
        match next {
            Next::End => Ok(None),
            Next::Step(turn) => Ok(Some(turn)),
        }
    }

    fn copy(&mut self, turn: Turn, part: &mut [u8]) -> Result<(), PipeError> {
        let start = (part.len() >= TIMED_FROM).then(clock::now);
        self.copy_parts(turn, part)?;
        self.port.stats.copied += start.map_or(Duration::ZERO, |start| clock::now() - start);
        Ok(())
    }

    fn copy_parts(&mut self, turn: Turn, part: &mut [u8]) -> Result<(), PipeError> {
        for i in 0..self.parts.len() {
            if let Some(address) = self.port.slots.offered(self.parts[i].unit, turn) {
                if self.fetch(i, turn, address, part)? {
                    continue;
                }
            }
            self.copy_slot(i, turn, part)?;
        }
        Ok(())
    }

    /// Copies what one writer has for this unit from its slot.
    fn copy_slot(&self, i: usize, turn: Turn, part: &mut [u8]) -> Result<(), PipeError> {
        let (pipe, from) = (&self.port.pipe, &self.parts[i]);
        let at = turn.slot as usize * from.stride;
        let slot = from.segment.slice(at..at + from.len);
        let slot = slot.map_err(|e| system(pipe)(e).at(pipe, self.port.me))?;
        let (transfer, part) = (&self.plan.transfers()[i], as_shared(part));
        let copied = self.threads.share(transfer.bytes() as usize, |piece, pieces| {
            transfer.tables().try_for_each(|table| {
                let (src, dst) = (Source::from(slot), Dest::from(part));
                match self.conversion {
                    None => self.kernels.execute_part(&table, piece, pieces, src, dst),
                    Some(to) => self.kernels.execute_convert_part(&table, to, piece, pieces, src, dst),
                }
            })
        });
        copied.map_err(|e| {
            PipeError::Port(PortError::BadPeer {
                port: PortName::Pipe(pipe.clone()),
                peer: None,
                what: e.to_string(),
            })
        })
    }

    /// Copies what one writer has for this unit from that one's own memory. `false` when it lies in the slot
    /// after all.
    fn fetch(&mut self, i: usize, turn: Turn, address: u64, part: &mut [u8]) -> Result<bool, PipeError> {
        let writer = self.parts[i].unit;
        let unit = UnitName { side: Side::Writer, unit: writer };
        let (pid, start_time) = self.port.slots.process(unit);
        let fetched = match self.port.slots.share_numbers(self.port.me, unit) {
            true => self.fetch_runs(i, ProcessId { pid, start_time }, address, part),
            // Its number is another process's here, or nobody's.
            false => Err(OsError::RemoteDenied { pid }),
        };
        if self.port.slots.offered(writer, turn) != Some(address) {
            return Ok(false);
        }
        match fetched {
            Ok(()) => Ok(true),
            Err(OsError::PeerGone { pid }) => {
                let pipe = self.port.pipe.clone();
                Err(self.port.fail(PipeError::Port(PortError::PeerLost {
                    port: PortName::Pipe(pipe),
                    peer: unit.into(),
                    pid,
                    silence: None,
                })))
            }
            // Not allowed here, or not to be had: the writer is asked to use its slot.
            Err(_) => {
                self.port.slots.refuse_offer(writer, turn);
                self.port.wait(
                    Slots::published_bell,
                    turn.step,
                    "the writer's slot for step",
                    |slots| match (slots.offered(writer, turn), slots.fault()) {
                        (None, _) => Ok(Some(false)),
                        (Some(_), Some(fault)) => Err(slots.stop(fault)),
                        _ => Ok(None),
                    },
                )
            }
        }
    }

    fn fetch_runs(&self, i: usize, from: ProcessId, address: u64, part: &mut [u8]) -> Result<(), OsError> {
        // Not whoever has its number by now.
        let remote = RemoteReader::of(PidFd::of(from)?);
        let (transfer, part) = (&self.plan.transfers()[i], as_shared(part));
        for table in transfer.tables() {
            let elem = table.elem_len();
            let bytes = (table.elems() * elem) as usize;
            self.threads.share(bytes, |piece, pieces| {
                // The bytes of this piece, counted along the runs.
                let (from, to) = (bytes / pieces * piece, bytes / pieces * (piece + 1));
                let mine = from..if piece + 1 == pieces { bytes } else { to };
                let (mut at, mut runs) = (0, Vec::new());
                table.for_each_run(|src, dst, run| {
                    let len = (run * elem) as usize;
                    let (lo, hi) = (mine.start.clamp(at, at + len), mine.end.clamp(at, at + len));
                    if lo < hi {
                        let skip = lo - at;
                        runs.push((
                            (dst * elem) as usize + skip,
                            address.wrapping_add(src * elem + skip as u64),
                            hi - lo,
                        ));
                    }
                    at += len;
                });
                remote.read_runs_shared(part, runs).map(|_| ())
            })?;
        }
        Ok(())
    }

    fn release(&mut self, turn: Turn) {
        self.port.slots.release(self.program, self.port.me.unit, self.next, turn);
        self.next += 1;
        self.share.count(&mut self.port.stats, turn.step);
    }

    /// Leaves the pipe. When all units of all reader programs have left, the writers' next step fails with
    /// [`PipeError::ReadersGone`].
    ///
    /// # Errors
    /// The error that the port failed with before, if any.
    pub fn close(&mut self) -> Result<Stats, PipeError> {
        let failed =
            self.port.check_open().err().filter(|e| !matches!(e, PipeError::Port(PortError::Closed { .. })));
        if self.port.is_open() {
            self.port.slots.close_reader(self.program, self.port.me.unit, self.next);
            let left = self.port.leave();
            return failed.map_or(left, Err).map(|()| self.port.stats);
        }
        failed.map_or(Ok(self.port.stats), Err)
    }

    /// Gives the stream up: all other units get [`PortError::PeerAborted`]. Where this program
    /// [waits](crate::OnLoss::Wait) for replacements it leaves its place to another unit instead, which goes
    /// on with the next step: so a reader leaves whom another one follows, now or later.
    pub fn abort(&mut self) {
        self.port.abort();
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

    /// Whether the data lie in the writer's slot: nothing was copied.
    pub fn is_mapped(&self) -> bool {
        self.held
    }
}

impl std::ops::Deref for Step<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match (&self.reader.direct, self.reader.parts.first()) {
            (Some(range), Some(from)) if self.held => {
                let at = self.turn.slot as usize * from.stride;
                from.segment.slice(at + range.start..at + range.end).unwrap_or_default()
            }
            _ => &self.reader.gathered,
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.held {
            self.reader.release(self.turn);
        }
    }
}

/// The slots of writer units, by their descriptors.
type Kept = Vec<(u32, OwnedFd)>;

/// Asks unit 0 for the segments of the writers that this plan reads, and maps them. Gives their descriptors,
/// too.
fn segments(
    joining: &mut Joining<'_>,
    plan: &Plan,
    src: &Mapping,
    depth: u32,
) -> Result<(Vec<Part>, Kept), PipeError> {
    let units: Vec<u32> = plan.transfers().iter().map(|t| t.src_unit() as u32).collect();
    let (mut parts, mut fds) = (Vec::with_capacity(units.len()), Vec::with_capacity(units.len()));
    for (unit, fd) in units.iter().copied().zip(joining.slots(&units)?) {
        let len = src.local_len_bytes(u64::from(unit))?;
        let stride = slot_stride(len);
        let total = stride.and_then(|s| s.checked_mul(u64::from(depth))).filter(|&n| n <= isize::MAX as u64);
        let (Some(stride), Some(total)) = (stride, total) else {
            return Err(joining.bad("slots too large"));
        };
        let total = total as usize;
        let segment = Segment::from_fd(fd, total, total, Access::ReadOnly)
            .map_err(|e| joining.bad(&format!("slots of writer unit {unit}: {e}")))?;
        segment.prefault(0..total).map_err(|e| joining.bad(&e.to_string()))?;
        let (segment, fd) = segment.into_parts();
        fds.push((unit, fd));
        parts.push(Part { unit, segment, stride: stride as usize, len: len as usize });
    }
    Ok((parts, fds))
}

/// The conversion from the writer's element type, if one is needed.
pub(crate) fn conversion(
    pipe: &str,
    given: &Dataset,
    elem: ElemType,
) -> Result<Option<Conversion>, PipeError> {
    if given.elem() == elem {
        return Ok(None);
    }
    // Unit 0 refuses others before the welcome.
    Conversion::between(given.elem(), elem).map(Some).ok_or_else(|| {
        PipeError::Port(PortError::BadPeer {
            port: PortName::Pipe(pipe.to_owned()),
            peer: None,
            what: format!("a welcome to a pipe of {}, which does not convert to {elem}", given.elem()),
        })
    })
}

/// Where the whole part lies in one slot, if a single run carries all of it.
fn direct_range(plan: &Plan, conversion: Option<Conversion>, len: usize) -> Option<Range<usize>> {
    let [transfer] = plan.transfers() else { return None };
    let table = transfer.table()?;
    let [op] = table.ops() else { return None };
    let whole = op.loops == 0 && op.dst == 0 && (op.run * table.elem_len()) as usize == len;
    let start = (op.src * table.elem_len()) as usize;
    (whole && conversion.is_none()).then_some(start..start + len)
}
