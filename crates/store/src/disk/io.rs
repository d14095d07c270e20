//! Rows of an object between memory and the disks: many requests at once, past the system's cache where that
//! can be. Programs and the enumeration of crash states write and read rows here, and nowhere else.

use super::disks::{failed_with, Disks};
use super::requests::{Done, Files, Job, Requests, Slice};
use super::turn::{InUse, ALONG, BEING_WRITTEN};
use crate::volume::epochs::Epochs;
use crate::volume::planted::Bug;
use crate::volume::rows::{Bytes, BytesMut, Part, Rows};
use crate::volume::sums::stride;
use crate::volume::units::{Cause, UnitError, Units};
use crate::volume::{Geometry, BLOCK};
use polyduct_os::lock::Hold;
use polyduct_os::ring::Direction;
use polyduct_os::{Errno, OsError};
use rustix::fs::FallocateFlags;
use rustix::io::retry_on_intr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that go to, or come from, a unit with one request, where a row has less for it.
const REQUEST: usize = 1 << 20;
/// Requests of all units of a program that are under way at once, about.
const DEPTH: usize = 16;
/// The most of one process.
const MAX_UNDER_WAY: usize = 16;

/// The rows of an object on the disks, as one process reads or writes its share of them.
pub struct RowIo {
    geometry: Geometry,
    /// Units that failed here, and why.
    failed: BTreeMap<u32, UnitError>,
    /// Units that are written to and not read yet: one that has no room for that does not hold up the others.
    joining: Vec<u32>,
    rows: Rows,
    /// Rows that go in one request of each unit.
    group: u64,
    requests: Requests,
    free: Vec<Slice>,
    /// Slices that there are, and that there may be.
    slices: (usize, usize),
    /// Rows for which room was made.
    reserved: u64,
    /// Rows that were asked for, in order.
    asked: VecDeque<Asked>,
    /// What the next rows that are asked for are called.
    next_id: u64,
}

/// Rows that the disks were asked for.
struct Asked {
    id: u64,
    first: u64,
    n: u64,
    /// What each unit has of them, as far as it has come.
    slices: Vec<Option<Slice>>,
    /// Units that have not answered.
    waits: usize,
}

/// What jobs are called that nobody waits for.
const WRITTEN: u64 = 0;

impl RowIo {
    /// For an object, on the units that are not `lost`. `units` processes share the disks.
    ///
    /// # Errors
    /// What the system refuses this process. A unit that fails otherwise is left out.
    pub fn open(
        disks: &Disks,
        rows: Rows,
        lost: &dyn Fn(u32) -> bool,
        write: bool,
        units: u32,
    ) -> Result<RowIo, UnitError> {
        let (geometry, object) = (rows.geometry(), rows.object());
        let (mut failed, mut files) = (BTreeMap::new(), Vec::new());
        for unit in 0..geometry.units() {
            let open = || Files::open(disks, unit, object, write);
            files.push(match (!lost(unit)).then(open).transpose() {
                Ok(files) => files,
                Err(e) if matches!(e.cause, Cause::Caller(_)) => return Err(e),
                Err(e) => {
                    failed.insert(unit, e);
                    None
                }
            });
        }
        let n = geometry.units() as usize;
        let depth = (DEPTH / units.max(1) as usize).clamp(n.min(4), MAX_UNDER_WAY);
        // As many as are under way, and those that are filled meanwhile.
        let slices = depth.div_ceil(n) * n + n;
        let group = (REQUEST / rows.chunk_bytes()).max(1) as u64;
        let requests = Requests::new(files, slices, depth);
        Ok(RowIo { failed, ..RowIo::over(requests, rows, group, slices) })
    }

    /// The same on units that are simulated, and asked as the protocol asks them: for one row with each
    /// request, of which few are under way at once.
    #[doc(hidden)]
    pub fn simulated(units: Box<dyn Units + Send>, rows: Rows, lost: &dyn Fn(u32) -> bool) -> RowIo {
        let n = rows.geometry().units();
        let requests = Requests::of_units(units, rows.object(), (0..n).map(|unit| !lost(unit)).collect());
        RowIo::over(requests, rows, 1, 2 * n as usize)
    }

    fn over(requests: Requests, rows: Rows, group: u64, slices: usize) -> RowIo {
        RowIo {
            geometry: rows.geometry(),
            failed: BTreeMap::new(),
            joining: Vec::new(),
            rows,
            group,
            requests,
            free: Vec::new(),
            slices: (0, slices),
            reserved: 0,
            asked: VecDeque::new(),
            next_id: WRITTEN + 1,
        }
    }

    /// What is read and was written apart from these epochs is damaged.
    pub fn know(&mut self, epochs: Arc<Epochs>) {
        self.rows.know(epochs);
    }

    /// These units are joining: without room they fail, as for any other reason.
    pub fn join(&mut self, units: Vec<u32>) {
        self.joining = units;
    }

    /// Units that failed here, and why.
    pub fn failed(&self) -> BTreeMap<u32, UnitError> {
        self.failed.clone()
    }

    /// Which file each unit has the blocks in; none of units that are not used.
    pub fn identities(&self) -> Vec<Option<Identity>> {
        self.requests.files().iter().map(|files| identity(&files.as_ref()?.data)).collect()
    }

    /// Notes on the units that this process writes the object, and with `appends` that its program appends to
    /// it, until what is returned is dropped.
    pub(super) fn note(&self, appends: bool) -> Result<Vec<InUse>, OsError> {
        let mut held = Vec::new();
        for files in self.requests.files().iter().flatten() {
            for byte in std::iter::once(BEING_WRITTEN).chain(appends.then_some(ALONG)) {
                held.extend(InUse::hold(Arc::clone(&files.sums), byte, Hold::Shared)?);
            }
        }
        Ok(held)
    }

    /// Makes room for rows on every unit.
    ///
    /// # Errors
    /// The first unit that has none.
    pub fn reserve(&mut self, rows: Range<u64>) -> Result<(), UnitError> {
        if rows.end <= self.reserved {
            return Ok(());
        }
        let from = rows.start.max(self.reserved);
        let chunk = self.rows.chunk_bytes() as u64;
        for (unit, files) in (0..).zip(self.requests.files()) {
            let Some(files) = files else { continue };
            let (at, len) = (from.saturating_mul(chunk), (rows.end - from).saturating_mul(chunk));
            let reserved =
                retry_on_intr(|| rustix::fs::fallocate(&*files.data, FallocateFlags::empty(), at, len));
            match reserved {
                // Where it cannot be done in advance, writing tells.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
                Err(e) => {
                    let failed = failed_with(unit, format!("making room for {len} bytes: {e}"), e);
                    let holds_up = match failed.cause {
                        Cause::Full => !self.joining.contains(&unit),
                        Cause::Caller(_) => true,
                        Cause::Disk => false,
                    };
                    if holds_up {
                        return Err(failed);
                    }
                    // A unit that fails is lost, and the others go on.
                    self.failed.entry(unit).or_insert(UnitError { cause: Cause::Disk, ..failed });
                }
            }
        }
        self.reserved = rows.end;
        Ok(())
    }

    /// A slice to fill: one that is free, or a new one while there may be more, else one that comes back.
    ///
    /// # Errors
    /// [`OsError::NoMemory`].
    fn slice(&mut self, rows: u64) -> Result<Slice, OsError> {
        let mut slice = loop {
            if let Some(slice) = self.free.pop() {
                break slice;
            }
            if self.slices.0 < self.slices.1 {
                self.slices.0 += 1;
                break Slice::default();
            }
            match self.requests.next() {
                Some(done) => self.settle(done),
                // All of them are kept by what was asked for, which leaves one at least.
                None => break Slice::default(),
            }
        };
        let (chunk, sum) = (self.rows.chunk_bytes(), self.rows.sum_bytes());
        let room =
            slice.chunks.resize(rows as usize * chunk).and_then(|()| slice.sums.resize(rows as usize * sum));
        match room {
            Ok(()) => Ok(slice),
            Err(e) => {
                self.slices.0 -= 1;
                Err(e)
            }
        }
    }

    /// A job is done: a slice that was read goes to whom it was read for, all others are free.
    fn settle(&mut self, done: Done) {
        let Done { id, unit, slice, came } = done;
        let asked = self.asked.iter_mut().find(|asked| asked.id == id);
        if let Err(mut error) = came.clone() {
            if error.cause == Cause::Full && self.joining.contains(&unit) {
                error.cause = Cause::Disk;
            }
            self.failed.entry(unit).or_insert(error);
        }
        match asked {
            Some(asked) => {
                asked.waits -= 1;
                match came {
                    Ok(()) => asked.slices[unit as usize] = Some(slice),
                    Err(_) => self.free.push(slice),
                }
            }
            None => self.free.push(slice),
        }
    }

    /// Encodes rows from `data`, which begins with the first of them, and hands them to the disks. Does not
    /// wait for these; what fails there is told by [`failed`](RowIo::failed), after [`finish`](RowIo::finish)
    /// for all.
    ///
    /// # Errors
    /// There is no memory; not all rows are written.
    pub fn write(&mut self, rows: Range<u64>, data: Bytes<'_>) -> Result<(), UnitError> {
        let g = self.geometry;
        let row_bytes = g.row_blocks() as usize * BLOCK;
        let (chunk, sum) = (self.rows.chunk_bytes(), self.rows.sum_bytes());
        let mut first = rows.start;
        while first < rows.end {
            let n = self.group.min(rows.end - first);
            let mut slices = Vec::with_capacity(g.units() as usize);
            for unit in 0..g.units() {
                match self.slice(n) {
                    Ok(slice) => slices.push(slice),
                    Err(e) => {
                        self.free.append(&mut slices);
                        return Err(failed_with(unit, e.to_string(), Errno::NOMEM));
                    }
                }
            }
            for row in first..first + n {
                let i = (row - first) as usize;
                let from = (row - rows.start) as usize * row_bytes;
                // In the order of the units; the row's chunks begin with another one each time.
                let mut parts: Vec<_> = slices
                    .iter_mut()
                    .map(|s| {
                        let (chunks, sums) = (s.chunks.as_mut_slice(), s.sums.as_mut_slice());
                        (&mut chunks[i * chunk..(i + 1) * chunk], &mut sums[i * sum..(i + 1) * sum])
                    })
                    .collect();
                parts.rotate_left(g.unit(row, 0) as usize);
                self.rows.encode(row, data.part(from..from + row_bytes), &mut parts);
            }
            for (unit, slice) in (0..).zip(slices) {
                self.ask(WRITTEN, unit, Direction::Write, slice, first);
            }
            self.requests.begin();
            first += n;
        }
        Ok(())
    }

    /// Asks a unit, and says whether it is used.
    fn ask(&mut self, id: u64, unit: u32, way: Direction, slice: Slice, row: u64) -> bool {
        let block = row * u64::from(self.geometry.chunk_blocks());
        let stride = stride(self.geometry) as u64;
        let back = self.requests.ask(Job { id, unit, way, slice, block, stride });
        let is_used = back.is_none();
        self.free.extend(back);
        is_used
    }

    /// Waits until the disks have done all that they were given.
    pub fn finish(&mut self) {
        if self.rows.has(Bug::NotFinished) {
            return;
        }
        while let Some(done) = self.requests.next() {
            self.settle(done);
        }
    }

    /// Reads rows and checks them; their data go to `to`, which begins with the first of them. Blocks that
    /// could not be had this way go through `otherwise`, which is given their number in the object and where
    /// they are wanted.
    ///
    /// # Errors
    /// What `otherwise` says.
    pub fn read<E>(
        &mut self,
        rows: Range<u64>,
        mut to: BytesMut<'_>,
        otherwise: &mut dyn FnMut(u64, BytesMut<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let g = self.geometry;
        let (row_bytes, chunk_blocks) = (g.row_blocks() as usize * BLOCK, u64::from(g.chunk_blocks()));
        let (chunk, sum) = (self.rows.chunk_bytes(), self.rows.sum_bytes());
        let mut done = rows.start;
        while done < rows.end {
            self.ahead(done..rows.end);
            while self.asked.front().is_some_and(|asked| asked.waits > 0) {
                let Some(done) = self.requests.next() else { break };
                self.settle(done);
            }
            // At least one was asked for.
            let Some(Asked { first, n, slices, .. }) = self.asked.pop_front() else { return Ok(()) };
            done = first + n;
            let mut failed = Ok(());
            for row in first..first + n {
                let i = (row - first) as usize;
                let mut parts: Vec<Option<Part<'_>>> = slices
                    .iter()
                    .map(|s| {
                        s.as_ref().map(|s| Part {
                            chunk: &s.chunks.as_slice()[i * chunk..(i + 1) * chunk],
                            sums: &s.sums.as_slice()[i * sum..(i + 1) * sum],
                        })
                    })
                    .collect();
                parts.rotate_left(g.unit(row, 0) as usize);
                let from = (row - rows.start) as usize * row_bytes;
                for at in self.rows.decode(row, &parts, to.part(from..from + row_bytes)) {
                    for c in 0..u64::from(g.data()) {
                        let in_row = c * chunk_blocks + u64::from(at);
                        let place = from + in_row as usize * BLOCK;
                        let wanted = to.part(place..place + BLOCK);
                        if wanted.len() > 0 {
                            failed = failed.and_then(|()| otherwise(row * g.row_blocks() + in_row, wanted));
                        }
                    }
                }
            }
            self.free.extend(slices.into_iter().flatten());
            failed?;
        }
        Ok(())
    }

    /// Asks the disks for as many of these rows as there is room for: they will be [read](RowIo::read) next.
    /// Others that were asked for are forgotten.
    pub fn ahead(&mut self, rows: Range<u64>) {
        if self.asked.front().is_some_and(|asked| asked.first != rows.start) {
            // What is still to come for them is free when it comes.
            let slices = std::mem::take(&mut self.asked).into_iter().flat_map(|asked| asked.slices);
            self.free.extend(slices.flatten());
        }
        let most = (self.slices.1 / self.geometry.units() as usize).max(1);
        let mut next = self.asked.back().map_or(rows.start, |asked| asked.first + asked.n);
        while next < rows.end && self.asked.len() < most {
            let n = self.group.min(rows.end - next);
            self.ask_all(next, n);
            next += n;
        }
    }

    /// Asks all units for what they have of some rows.
    fn ask_all(&mut self, first: u64, n: u64) {
        let id = self.next_id;
        self.next_id += 1;
        let units = self.geometry.units();
        let slices = (0..units).map(|_| None).collect();
        self.asked.push_back(Asked { id, first, n, slices, waits: 0 });
        for unit in 0..units {
            // Without memory for what a unit has of them, they are read as if it had failed: one by one.
            let Ok(slice) = self.slice(n) else { break };
            let is_used = self.ask(id, unit, Direction::Read, slice, first);
            if let Some(asked) = self.asked.back_mut() {
                asked.waits += usize::from(is_used);
            }
        }
        self.requests.begin();
    }

    /// The object.
    pub fn object(&self) -> u64 {
        self.rows.object()
    }
}

/// What tells a file from all others.
pub type Identity = (u64, u64);

/// That of this file.
pub fn identity(file: &File) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().ok().map(|m| (m.dev(), m.ino()))
}

/// Units of the store of which some unit of the program has written into another file than there is `now`.
pub fn replaced<'a>(
    written: impl IntoIterator<Item = &'a [Option<Identity>]>,
    now: impl Fn(u32) -> Option<Identity>,
) -> BTreeSet<u32> {
    let known = |files: &'a [Option<Identity>]| (0..).zip(files).filter(|(_, id)| id.is_some());
    let written: BTreeSet<(u32, &Option<Identity>)> = written.into_iter().flat_map(known).collect();
    written.into_iter().filter(|&(unit, id)| *id != now(unit)).map(|(unit, _)| unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_wrote_into_an_old_file_is_enough() {
        let now = |unit| [Some((1, 10)), Some((1, 11)), None, Some((1, 13))][unit as usize];
        let first = [Some((1, 10)), Some((1, 11)), None, None];
        let others = [Some((1, 10)), Some((1, 21)), Some((1, 12)), None];
        assert!(replaced([&first[..], &first[..]], now).is_empty());
        assert!(replaced([&first[..], &others[..]], now).into_iter().eq([1, 2]));
    }
}
