//! A reader's end of a pipe on one host: copies from the writers' slots, which it has mapped.

use super::{spin_time, Local};
use crate::bind::slot_stride;
use crate::domain::{DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::join::{system, Joining};
use crate::port::Port;
use crate::reader::{Opening, ReaderEnd};
use crate::ready::{Wait, Watch};
use crate::serve::attach;
use crate::threads::Threads;
use crate::watch::{spawn, Keepsake};
use crate::work::{Leg, Supply, Work};
use polyduct_copy::as_shared;
use polyduct_message::domain::Domain;
use polyduct_os::{
    poll::EventFd,
    process::{PidFd, ProcessId},
    remote::RemoteReader,
    segment::{Access, Segment},
    OsError,
};
use polyduct_port::{PortError, PortName, Side, UnitName};
use polyduct_slots::{Next, Slots, Turn};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A reader unit's view of the writers' slots.
struct Mapped {
    local: Local,
    program: u32,
    /// The slots of the writer unit of each supply.
    parts: Vec<Part>,
}

struct Part {
    unit: u32,
    segment: Segment<()>,
    stride: usize,
    len: usize,
}

/// Joins the pipe of this name, and gives where the unit goes on.
pub(crate) fn open(
    pipe: &str,
    opening: &Opening<'_>,
) -> Result<(Port, Box<dyn ReaderEnd>, Work, u64), PipeError> {
    let Opening { options, hello, start, .. } = opening;
    let ((welcome, slots, keepsake, work, parts), conn) = Joining::with(pipe, options, |joining| {
        let (welcome, control, _) = joining.welcome(hello, &[])?;
        let (control, slots) = attach(pipe, control, &welcome)?;
        if welcome.program >= slots.sizes().programs() {
            return Err(joining.bad("a welcome without a place"));
        }
        let work = opening.bind(&welcome)?;
        let (parts, fds) = segments(joining, &work.supplies, welcome.depth)?;
        let keepsake = Keepsake::new(joining, hello, &welcome, control, fds)?;
        joining.ready()?;
        Ok((welcome, slots, keepsake, work, parts))
    })?;
    let me = UnitName { side: Side::Reader(welcome.program), unit: options.unit };
    let next = slots.resume_at(me);
    let stop = Arc::new(EventFd::new().map_err(system(pipe))?);
    let (watched, stopped) = (slots.clone(), stop.clone());
    let thread = spawn(pipe, move || crate::watch::run(conn, me, watched, keepsake, stopped))?;
    let domain = PortDomain::new(pipe, me, &welcome, options, None);
    let port = Port::new(pipe, me, domain, options, (*start, spin_time(&slots)));
    let local = Local::new(slots, stop, thread);
    Ok((port, Box::new(Mapped { local, program: welcome.program, parts }), work, next))
}

impl ReaderEnd for Mapped {
    fn take(&mut self, port: &mut Port, k: u64) -> Result<Option<Turn>, PipeError> {
        let (program, unit) = (self.program, port.me.unit);
        let look = |slots: &Slots| slots.poll_next(program, unit, k);
        match self.local.wait(port, Slots::published_bell, ("step", k), look)? {
            Next::End => Ok(None),
            Next::Step(turn) => Ok(Some(turn)),
        }
    }

    fn try_take(&mut self, port: &mut Port, k: u64) -> Result<Option<Next>, PipeError> {
        let (program, unit) = (self.program, port.me.unit);
        self.local.look(port, k, |slots| slots.poll_next(program, unit, k))
    }

    fn would_wait(&mut self, port: &mut Port, _: &mut Work, k: u64) -> Result<Option<Wait>, PipeError> {
        Ok((!self.local.slots.may_next(self.program, port.me.unit, k)).then(Wait::default))
    }

    fn watch(&self, _: &Port) -> Result<Watch, PipeError> {
        Ok(Watch::at_bell(&self.local.slots, Slots::published_bell))
    }

    fn is_near(&self) -> bool {
        true
    }

    fn copy(
        &mut self,
        port: &mut Port,
        work: &Work,
        turn: Turn,
        parts: &mut [&mut [u8]],
    ) -> Result<(), PipeError> {
        port.timed(work.len, |port| {
            for i in 0..work.supplies.len() {
                if let Some(address) = self.local.slots.offered(work.supplies[i].unit, turn) {
                    if self.fetch(port, work, (i, turn, address), parts)? {
                        continue;
                    }
                }
                self.copy_slot(port, work, (i, turn), parts)?;
            }
            Ok(())
        })
    }

    fn brought(&mut self, _: &Work, turn: Turn) -> Option<Vec<u64>> {
        self.local.slots.brought(turn)
    }

    fn is_held(&self, work: &Work, turn: Turn) -> bool {
        let offered = work.supplies.first().and_then(|supply| self.local.slots.offered(supply.unit, turn));
        work.direct.is_some() && offered.is_none()
    }

    fn copy_memory(
        &mut self,
        port: &mut Port,
        work: &Work,
        turn: Turn,
        memory: &mut [u8],
        values: &mut [u8],
    ) -> Result<(), PipeError> {
        port.timed(work.len, |port| {
            for (supply, from) in work.supplies.iter().zip(&self.parts) {
                let at = turn.slot as usize * from.stride;
                let slot = from.segment.slice(at..at + from.len).map_err(system(&port.pipe))?;
                let copied = supply.copy_memory(work, slot, memory, values);
                copied.map_err(|e| PipeError::bad_peer(&port.pipe, e.to_string()))?;
            }
            Ok(())
        })
    }

    fn copy_values(
        &mut self,
        port: &mut Port,
        work: &Work,
        turn: Turn,
        values: &mut [u8],
    ) -> Result<(), PipeError> {
        let (Some(supply), Some(from)) = (work.supplies.first(), self.parts.first()) else { return Ok(()) };
        let at = turn.slot as usize * from.stride;
        let slot = from.segment.slice(at..at + from.len).map_err(system(&port.pipe))?;
        let copied = supply.copy_array(work.arrays.len() - 1, work.kernels, slot, values);
        copied.map_err(|e| PipeError::bad_peer(&port.pipe, e.to_string()))
    }

    fn held(&self, work: &Work, turn: Turn) -> &[u8] {
        let from = work.supplies.first().and_then(|supply| self.part(supply.unit));
        let (Some(range), Some(from)) = (&work.direct, from) else { return &[] };
        let at = turn.slot as usize * from.stride;
        from.segment.slice(at + range.start..at + range.end).unwrap_or_default()
    }

    fn release(&mut self, port: &mut Port, k: u64, turn: Turn) -> Result<(), PipeError> {
        self.local.slots.release(self.program, port.me.unit, k, turn);
        Ok(())
    }

    fn domain(&mut self, port: &mut Port, wishes: &DomainOptions, k: u64) -> Result<Domain, PipeError> {
        port.join_domain(&self.local.slots, wishes, k)
    }

    fn leave(&mut self, port: &mut Port, k: u64) -> Result<(), PipeError> {
        self.local.slots.close_reader(self.program, port.me.unit, k);
        self.local.leave(port)
    }

    fn abort(&mut self, port: &mut Port, reason: &str) {
        self.local.give_up(port, reason);
    }
}

impl Mapped {
    /// The slots of a writer unit: those of each supply, which are by rising unit.
    fn part(&self, unit: u32) -> Option<&Part> {
        self.parts.binary_search_by_key(&unit, |part| part.unit).ok().map(|i| &self.parts[i])
    }

    /// Copies what one writer has for this unit from its slot.
    fn copy_slot(
        &self,
        port: &Port,
        work: &Work,
        (i, turn): (usize, Turn),
        parts: &mut [&mut [u8]],
    ) -> Result<(), PipeError> {
        let pipe = &port.pipe;
        let from = self
            .part(work.supplies[i].unit)
            .ok_or_else(|| PipeError::bad_peer(pipe, "a step without a slot"))?;
        let at = turn.slot as usize * from.stride;
        let slot = from.segment.slice(at..at + from.len).map_err(system(pipe))?;
        let copied = work.supplies[i].copy((work.kernels, work.threads), slot, parts);
        copied.map_err(|e| PipeError::bad_peer(pipe, e.to_string()))
    }

    /// Copies what one writer has for this unit from that one's own memory. `false` when it lies in the slot
    /// after all.
    fn fetch(
        &self,
        port: &mut Port,
        work: &Work,
        (i, turn, address): (usize, Turn, u64),
        parts: &mut [&mut [u8]],
    ) -> Result<bool, PipeError> {
        let (slots, writer) = (&self.local.slots, work.supplies[i].unit);
        let unit = UnitName { side: Side::Writer, unit: writer };
        let (pid, start_time) = slots.process(unit);
        let fetched = match slots.share_numbers(port.me, unit) {
            true => fetch_runs(work, i, (ProcessId { pid, start_time }, address), parts),
            // Its number is another process's here, or nobody's.
            false => Err(OsError::RemoteDenied { pid }),
        };
        if slots.offered(writer, turn) != Some(address) {
            return Ok(false);
        }
        match fetched {
            Ok(()) => Ok(true),
            Err(OsError::PeerGone { pid }) => Err(PipeError::Port(PortError::PeerLost {
                port: PortName::Pipe(port.pipe.clone()),
                peer: unit.into(),
                pid,
                silence: None,
            })),
            // Not allowed here, or not to be had: the writer is asked to use its slot.
            Err(_) => {
                slots.refuse_offer(writer, turn);
                let what = ("the writer's slot for step", turn.step);
                self.local.wait(port, Slots::published_bell, what, |slots| {
                    match (slots.offered(writer, turn), slots.fault()) {
                        (None, _) => Ok(Some(false)),
                        (Some(_), Some(fault)) => Err(slots.stop(fault)),
                        _ => Ok(None),
                    }
                })
            }
        }
    }
}

/// Copies the runs of a supply from the memory of another process.
fn fetch_runs(
    work: &Work,
    i: usize,
    (from, address): (ProcessId, u64),
    parts: &mut [&mut [u8]],
) -> Result<(), OsError> {
    // Not whoever has its number by now.
    let remote = RemoteReader::of(PidFd::of(from)?);
    work.supplies[i].legs.iter().try_for_each(|leg| {
        let address = address.wrapping_add(leg.slot.start as u64);
        let part = parts.get_mut(leg.array).map(|part| &mut **part).unwrap_or_default();
        fetch_leg(work.threads, leg, (&remote, address), part)
    })
}

fn fetch_leg(
    threads: Threads,
    leg: &Leg,
    (remote, address): (&RemoteReader, u64),
    part: &mut [u8],
) -> Result<(), OsError> {
    let part = as_shared(part);
    for table in leg.transfer().tables() {
        let elem = table.elem_len();
        let bytes = (table.elems() * elem) as usize;
        threads.share(bytes, |piece, pieces| {
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

/// The slots of writer units, by their descriptors.
type Kept = Vec<(u32, OwnedFd)>;

/// Asks unit 0 for the segments of these writers, and maps them. Gives their descriptors, too.
fn segments(
    joining: &mut Joining<'_>,
    supplies: &[Supply],
    depth: u32,
) -> Result<(Vec<Part>, Kept), PipeError> {
    let units: Vec<u32> = supplies.iter().map(|supply| supply.unit).collect();
    let (mut parts, mut fds) = (Vec::with_capacity(units.len()), Vec::with_capacity(units.len()));
    for (&Supply { unit, slot_len: len, fixed, .. }, fd) in supplies.iter().zip(joining.slots(&units)?) {
        let stride = slot_stride(len as u64);
        let total = stride.and_then(|s| s.checked_mul(u64::from(depth))).filter(|&n| n <= isize::MAX as u64);
        let (Some(stride), Some(total)) = (stride, total) else {
            return Err(joining.bad("slots too large"));
        };
        let total = total as usize;
        let least = fixed * depth as usize;
        let segment = Segment::from_fd_partly(fd, total, total, least, Access::ReadOnly)
            .map_err(|e| joining.bad(&format!("slots of writer unit {unit}: {e}")))?;
        for slot in 0..depth as usize {
            let at = slot * stride as usize;
            segment.prefault(at..at + fixed.max(1)).map_err(|e| joining.bad(&e.to_string()))?;
        }
        let (segment, fd) = segment.into_parts();
        fds.push((unit, fd));
        parts.push(Part { unit, segment, stride: stride as usize, len });
    }
    Ok((parts, fds))
}
