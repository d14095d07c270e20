//! Rows of an object between memory and the disks: many requests at once, past the system's cache where that can be.

use super::disks::{read_up_to, Disks};
use crate::file::Without;
use crate::volume::rows::{Bytes, BytesMut, Part, Rows};
use crate::volume::sums::stride;
use crate::volume::units::{File as Named, UnitError};
use crate::volume::{Geometry, BLOCK};
use rustix::fs::FallocateFlags;
use rustix::io::retry_on_intr;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes that go to, or come from, a unit with one request, where a row has less for it.
const REQUEST: usize = 1 << 20;
/// Requests of all units of a program that are under way at once.
const DEPTH: usize = 16;
/// The most of one process.
const MAX_THREADS: usize = 16;
/// What memory of direct requests is aligned to: no disk has larger sectors.
const ALIGN: usize = 4096;

/// Memory for direct requests.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(super) fn resize(&mut self, len: usize) {
        if self.bytes.len() < len + ALIGN {
            self.bytes = vec![0; len + ALIGN];
            self.start = self.bytes.as_ptr().addr().wrapping_neg() % ALIGN;
        }
        self.len = len;
    }

    pub(super) fn all(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for disks.
struct Pool {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn new(threads: usize) -> Pool {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let start = |_| {
            let shared = shared.clone();
            let work = move || {
                let (queue, news) = &*shared;
                loop {
                    let mut queue = lock(queue);
                    let job = loop {
                        match queue.jobs.pop_front() {
                            Some(job) => break job,
                            None if queue.over => return,
                            None => queue = news.wait(queue).unwrap_or_else(PoisonError::into_inner),
                        }
                    };
                    drop(queue);
                    job();
                }
            };
            std::thread::Builder::new().name("polyduct-disk".into()).spawn(work).ok()
        };
        Pool { threads: (0..threads).filter_map(start).collect(), shared }
    }

    /// Does it on a thread; at once where the system gave none.
    fn run(&self, job: Job) {
        if self.threads.is_empty() {
            return job();
        }
        let (queue, news) = &*self.shared;
        lock(queue).jobs.push_back(job);
        news.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let (queue, news) = &*self.shared;
        lock(queue).over = true;
        news.notify_all();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The two files of an object on one unit.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) data: Arc<File>,
    pub(super) sums: Arc<File>,
}

impl Files {
    /// Those of a unit.
    pub(super) fn open(disks: &Disks, unit: u32, object: u64, make: bool) -> Result<Files, UnitError> {
        let (data, _) = disks.rows(unit, Named::Data(object), make)?;
        let (sums, _) = disks.rows(unit, Named::Sums(object), make)?;
        Ok(Files { data: Arc::new(data), sums: Arc::new(sums) })
    }
}

/// What one unit has of some rows in a row.
struct Slice {
    chunks: Buffer,
    sums: Vec<u8>,
}

/// The rows of an object on the disks, as one process reads or writes its share of them.
pub struct RowIo {
    geometry: Geometry,
    object: u64,
    files: Vec<Option<Files>>,
    /// Units that failed here, and why.
    failed: Arc<Mutex<BTreeMap<u32, UnitError>>>,
    rows: Rows,
    /// Rows that go in one request of each unit.
    group: u64,
    pool: Pool,
    free: (Sender<Slice>, Receiver<Slice>),
    /// Slices that there are, and that there may be.
    slices: (usize, usize),
    /// Rows for which room was made.
    reserved: u64,
    /// Rows that were asked for, in order.
    asked: VecDeque<Asked>,
}

/// Rows that the disks were asked for: the first, how many, and where the answers come.
type Asked = (u64, u64, Receiver<Answer>);

/// What came of reading one unit's slice.
type Answer = (u32, Option<Slice>);

impl RowIo {
    /// For an object, on the units that are not `lost`. `generation` counts for rows that are written. `units` processes share the
    /// disks.
    pub fn open(
        disks: &Disks,
        geometry: Geometry,
        object: u64,
        generation: u32,
        lost: &dyn Fn(u32) -> bool,
        write: bool,
        units: u32,
    ) -> RowIo {
        let failed: Mutex<BTreeMap<u32, UnitError>> = Mutex::default();
        let files = |unit| {
            if lost(unit) {
                return None;
            }
            Files::open(disks, unit, object, write).map_err(|e| lock(&failed).insert(unit, e)).ok()
        };
        let files = (0..geometry.units()).map(files).collect();
        let n = geometry.units() as usize;
        let threads = (DEPTH / units.max(1) as usize).clamp(n.min(4), MAX_THREADS);
        let rows = Rows::new(geometry, object, generation);
        let group = (REQUEST / rows.chunk_bytes()).max(1) as u64;
        RowIo {
            geometry,
            object,
            files,
            failed: Arc::new(failed),
            rows,
            group,
            pool: Pool::new(threads),
            free: channel(),
            // As many as there are threads are written while the next are filled.
            slices: (0, threads.div_ceil(n) * n + n),
            reserved: 0,
            asked: VecDeque::new(),
        }
    }

    /// For measurements.
    pub fn leave_out(&mut self, what: Without) {
        self.rows.summed = !what.sums;
    }

    /// Units that failed here, and why.
    pub fn failed(&self) -> BTreeMap<u32, UnitError> {
        lock(&self.failed).clone()
    }

    /// Which file each unit has the blocks in; none of units that are not used.
    pub fn identities(&self) -> Vec<Option<(u64, u64)>> {
        self.files.iter().map(|files| identity(&files.as_ref()?.data)).collect()
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
        for (unit, files) in (0..).zip(&self.files) {
            let Some(files) = files else { continue };
            let (at, len) = (from.saturating_mul(chunk), (rows.end - from).saturating_mul(chunk));
            let reserved =
                retry_on_intr(|| rustix::fs::fallocate(&*files.data, FallocateFlags::empty(), at, len));
            match reserved {
                // Where it cannot be done in advance, writing tells.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
                Err(e) => {
                    let full = matches!(
                        e,
                        rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG
                    );
                    if full {
                        return Err(UnitError {
                            unit,
                            reason: format!("no room for {len} bytes: {e}"),
                            full,
                        });
                    }
                    // A unit that fails is lost, and the others go on.
                    let failed = UnitError { unit, reason: e.to_string(), full };
                    lock(&self.failed).entry(unit).or_insert(failed);
                }
            }
        }
        self.reserved = rows.end;
        Ok(())
    }

    /// A slice to fill: a new one while there may be more, else one that comes back.
    fn slice(&mut self, rows: u64) -> Slice {
        let mut slice = match self.free.1.try_recv() {
            Ok(slice) => slice,
            Err(_) if self.slices.0 < self.slices.1 => {
                self.slices.0 += 1;
                Slice { chunks: Buffer::default(), sums: Vec::new() }
            }
            // One end is held here, so that it waits for those that are under way.
            Err(_) => self.free.1.recv().unwrap_or(Slice { chunks: Buffer::default(), sums: Vec::new() }),
        };
        slice.chunks.resize(rows as usize * self.rows.chunk_bytes());
        slice.sums.resize(rows as usize * self.rows.sum_bytes(), 0);
        slice
    }

    /// Encodes rows from `data`, which begins with the first of them, and hands them to the disks. Does not wait for these; what
    /// fails there is told by [`failed`](RowIo::failed), after [`finish`](RowIo::finish) for all.
    pub fn write(&mut self, rows: Range<u64>, data: Bytes<'_>) {
        let g = self.geometry;
        let row_bytes = g.row_blocks() as usize * BLOCK;
        let (chunk, sum) = (self.rows.chunk_bytes(), self.rows.sum_bytes());
        let mut first = rows.start;
        while first < rows.end {
            let n = self.group.min(rows.end - first);
            let mut slices: Vec<Slice> = (0..g.units()).map(|_| self.slice(n)).collect();
            for row in first..first + n {
                let i = (row - first) as usize;
                let from = (row - rows.start) as usize * row_bytes;
                // In the order of the units; the row's chunks begin with another one each time.
                let mut parts: Vec<_> = slices
                    .iter_mut()
                    .map(|s| {
                        let (chunks, sums) = (s.chunks.all_mut(), &mut s.sums);
                        (&mut chunks[i * chunk..(i + 1) * chunk], &mut sums[i * sum..(i + 1) * sum])
                    })
                    .collect();
                parts.rotate_left(g.unit(row, 0) as usize);
                self.rows.encode(row, data.part(from..from + row_bytes), &mut parts);
            }
            for (unit, slice) in (0..).zip(slices) {
                let (back, failed) = (self.free.0.clone(), self.failed.clone());
                let Some(files) = self.files[unit as usize].clone() else {
                    let _ = back.send(slice);
                    continue;
                };
                let block = first * u64::from(g.chunk_blocks());
                let each = stride(g) as u64;
                self.pool.run(Box::new(move || {
                    let written = files
                        .data
                        .write_all_at(slice.chunks.all(), block * BLOCK as u64)
                        .and_then(|()| files.sums.write_all_at(&slice.sums, block * each));
                    if let Err(e) = written {
                        lock(&failed).entry(unit).or_insert_with(|| io_failed(unit, &e));
                    }
                    let _ = back.send(slice);
                }));
            }
            first += n;
        }
    }

    /// Waits until the disks have done all that they were given.
    pub fn finish(&mut self) {
        let mut idle = Vec::new();
        while idle.len() < self.slices.0 {
            match self.free.1.recv() {
                Ok(slice) => idle.push(slice),
                Err(_) => break,
            }
        }
        for slice in idle {
            let _ = self.free.0.send(slice);
        }
    }

    /// Reads rows and checks them; their data go to `to`, which begins with the first of them. Blocks that could not be had this
    /// way go through `otherwise`, which is given their number in the object and where they are wanted.
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
            // At least one was asked for.
            let Some((first, n, answers)) = self.asked.pop_front() else { return Ok(()) };
            done = first + n;
            let mut slices: Vec<Option<Slice>> = (0..g.units()).map(|_| None).collect();
            answers.iter().for_each(|(unit, slice)| slices[unit as usize] = slice);
            let mut failed = Ok(());
            for row in first..first + n {
                let i = (row - first) as usize;
                let mut parts: Vec<Option<Part<'_>>> = slices
                    .iter()
                    .map(|s| {
                        s.as_ref().map(|s| Part {
                            chunk: &s.chunks.all()[i * chunk..(i + 1) * chunk],
                            sums: &s.sums[i * sum..(i + 1) * sum],
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
            for slice in slices.into_iter().flatten() {
                let _ = self.free.0.send(slice);
            }
            failed?;
        }
        Ok(())
    }

    /// Asks the disks for as many of these rows as there is room for: they will be [read](RowIo::read) next. Others that were asked
    /// for are forgotten.
    pub fn ahead(&mut self, rows: Range<u64>) {
        if self.asked.front().is_some_and(|&(first, ..)| first != rows.start) {
            for (_, _, answers) in std::mem::take(&mut self.asked) {
                let slices = answers.iter().filter_map(|(_, slice)| slice);
                slices.for_each(|slice| drop(self.free.0.send(slice)));
            }
        }
        let most = (self.slices.1 / self.geometry.units() as usize).max(1);
        let mut next = self.asked.back().map_or(rows.start, |&(first, n, _)| first + n);
        while next < rows.end && self.asked.len() < most {
            let n = self.group.min(rows.end - next);
            let answers = self.ask(next, n);
            self.asked.push_back((next, n, answers));
            next += n;
        }
    }

    /// Asks all units for what they have of some rows.
    fn ask(&mut self, first: u64, n: u64) -> Receiver<Answer> {
        let g = self.geometry;
        let (tell, answers) = channel();
        let block = first * u64::from(g.chunk_blocks());
        let each = stride(g) as u64;
        for unit in 0..g.units() {
            let Some(files) = self.files[unit as usize].clone() else { continue };
            let mut slice = self.slice(n);
            let (tell, back, failed) = (tell.clone(), self.free.0.clone(), self.failed.clone());
            self.pool.run(Box::new(move || {
                let read = read_up_to(&files.data, slice.chunks.all_mut(), block * BLOCK as u64)
                    .and_then(|data| Ok((data, read_up_to(&files.sums, &mut slice.sums, block * each)?)));
                match read {
                    Ok((data, sums)) => {
                        // What is not there counts as zeros, and so as never written.
                        slice.chunks.all_mut()[data..].fill(0);
                        slice.sums[sums..].fill(0);
                        if let Err(unread) = tell.send((unit, Some(slice))) {
                            let _ = unread.0 .1.map(|slice| back.send(slice));
                        }
                    }
                    Err(e) => {
                        lock(&failed).entry(unit).or_insert_with(|| io_failed(unit, &e));
                        let _ = back.send(slice);
                        let _ = tell.send((unit, None));
                    }
                }
            }));
        }
        answers
    }

    /// The object.
    pub fn object(&self) -> u64 {
        self.object
    }
}

/// What tells a file from all others.
pub fn identity(file: &File) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().ok().map(|m| (m.dev(), m.ino()))
}

fn io_failed(unit: u32, e: &std::io::Error) -> UnitError {
    let full = matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    UnitError { unit, reason: e.to_string(), full }
}
