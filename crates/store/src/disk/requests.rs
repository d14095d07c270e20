//! Requests to the units of a store for rows of an object, many at once: by io_uring where the system has it,
//! else by threads that wait for the disks. Simulated units are asked as the protocol asks them.

use super::disks::{failed_with, read_up_to, Disks};
use super::manifest::errno;
use crate::volume::units::{self, File as Named, Request, UnitError, Units};
use crate::volume::BLOCK;
use polyduct_os::aligned::Aligned;
use polyduct_os::ring::{Completion, Direction, Ring};
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

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

/// What one unit has of some rows in a row: blocks, and the entries of them.
#[derive(Default)]
pub(super) struct Slice {
    pub(super) chunks: Aligned,
    pub(super) sums: Aligned,
}

/// A slice to be read or written.
pub(super) struct Job {
    /// What the asker calls it; several may have the same.
    pub(super) id: u64,
    pub(super) unit: u32,
    pub(super) way: Direction,
    pub(super) slice: Slice,
    /// Its first block on the unit.
    pub(super) block: u64,
    /// Bytes of entries for each block.
    pub(super) stride: u64,
}

impl Job {
    fn places(&self) -> (u64, u64) {
        (self.block * BLOCK as u64, self.block * self.stride)
    }
}

/// What came of a job. What the files lack of a slice that is read counts as zeros, and so as never written.
pub(super) struct Done {
    pub(super) id: u64,
    pub(super) unit: u32,
    pub(super) slice: Slice,
    pub(super) came: Result<(), UnitError>,
}

/// Jobs that are under way.
pub(super) struct Requests {
    /// Those of the units that are used; of simulated units there are none.
    files: Vec<Option<Files>>,
    means: Means,
    under_way: usize,
}

enum Means {
    Ring(Box<Halves>),
    Threads { pool: Pool, told: (Sender<Done>, Receiver<Done>) },
    Units(Simulated),
}

impl Requests {
    /// For so many jobs at once on these files, by io_uring; by `threads` threads where there is none.
    pub(super) fn new(files: Vec<Option<Files>>, jobs: usize, threads: usize) -> Requests {
        let means = match Ring::new(2 * jobs as u32) {
            Ok(ring) => Means::Ring(Box::new(Halves { ring, flying: Vec::new(), free: Vec::new() })),
            Err(_) => return Requests::by_threads(files, threads),
        };
        Requests { files, means, under_way: 0 }
    }

    /// By threads alone.
    fn by_threads(files: Vec<Option<Files>>, threads: usize) -> Requests {
        let means = Means::Threads { pool: Pool::new(threads), told: channel() };
        Requests { files, means, under_way: 0 }
    }

    /// For the rows of an object on units that are `used`, which are asked one after the other: the last job
    /// first, and none before somebody waits for it.
    pub(super) fn of_units(units: Box<dyn Units + Send>, object: u64, used: Vec<bool>) -> Requests {
        let means = Means::Units(Simulated { units, object, used, jobs: Vec::new() });
        Requests { files: Vec::new(), means, under_way: 0 }
    }

    /// The files of the units that are used, where units have files.
    pub(super) fn files(&self) -> &[Option<Files>] {
        &self.files
    }

    /// The system begins with what was asked for since this was last called, or a job was waited for.
    pub(super) fn begin(&mut self) {
        if let Means::Ring(halves) = &mut self.means {
            halves.ring.submit();
        }
    }

    /// Has a job done, and does not wait for it. The system may begin only when [told](Requests::begin).
    /// Gives the slice back where its unit is not used.
    pub(super) fn ask(&mut self, job: Job) -> Option<Slice> {
        let files = self.files.get(job.unit as usize).cloned().flatten();
        match (&mut self.means, files) {
            (Means::Ring(halves), Some(files)) => halves.ask(job, files),
            (Means::Threads { pool, told }, Some(files)) => {
                let tell = told.0.clone();
                // The receiver lives as long as the pool.
                pool.run(Box::new(move || drop(tell.send(do_at_once(job, &files)))));
            }
            (Means::Units(of), _) if of.used[job.unit as usize] => of.jobs.push(job),
            _ => return Some(job.slice),
        }
        self.under_way += 1;
        None
    }

    /// Waits for the next job that is done; `None` where none is under way.
    pub(super) fn next(&mut self) -> Option<Done> {
        if self.under_way == 0 {
            return None;
        }
        let done = match &mut self.means {
            Means::Ring(halves) => halves.next(),
            Means::Threads { told, .. } => told.1.recv().ok(),
            Means::Units(of) => of.next(),
        };
        self.under_way -= 1;
        done
    }
}

/// A job as two requests of a ring.
struct Halves {
    ring: Ring,
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
}

struct Flying {
    id: u64,
    unit: u32,
    /// The half that has come.
    come: Option<Half>,
}

struct Half {
    bytes: Aligned,
    of_sums: bool,
    came: std::io::Result<()>,
}

impl Halves {
    fn ask(&mut self, job: Job, files: Files) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        let ((data, sums), tag) = (job.places(), 2 * number as u64);
        self.flying[number] = Some(Flying { id: job.id, unit: job.unit, come: None });
        self.ring.ask(job.way, files.data, job.slice.chunks, data, tag);
        self.ring.ask(job.way, files.sums, job.slice.sums, sums, tag + 1);
    }

    fn next(&mut self) -> Option<Done> {
        loop {
            let Completion { tag, mut bytes, moved } = self.ring.next()?;
            let came = moved.map(|n| {
                let there = bytes.as_mut_slice();
                let n = n.min(there.len());
                there[n..].fill(0);
            });
            let half = Half { bytes, of_sums: tag % 2 == 1, came: came.map_err(Into::into) };
            let number = (tag / 2) as usize;
            let flying = self.flying.get_mut(number)?;
            let Some(other) = flying.as_mut()?.come.take() else {
                flying.as_mut()?.come = Some(half);
                continue;
            };
            let Flying { id, unit, .. } = flying.take()?;
            self.free.push(number);
            let (data, sums) = if half.of_sums { (other, half) } else { (half, other) };
            let slice = Slice { chunks: data.bytes, sums: sums.bytes };
            let came = data.came.and(sums.came).map_err(|e| failed(unit, &e));
            return Some(Done { id, unit, slice, came });
        }
    }
}

fn failed(unit: u32, e: &std::io::Error) -> UnitError {
    failed_with(unit, e.to_string(), errno(e))
}

fn do_at_once(job: Job, files: &Files) -> Done {
    let (data, sums) = job.places();
    let Job { id, unit, way, mut slice, .. } = job;
    let moves = |file: &File, bytes: &mut [u8], at| match way {
        Direction::Write => file.write_all_at(bytes, at),
        Direction::Read => {
            let n = read_up_to(file, bytes, at)?;
            bytes[n..].fill(0);
            Ok(())
        }
    };
    let came = moves(&files.data, slice.chunks.as_mut_slice(), data)
        .and_then(|()| moves(&files.sums, slice.sums.as_mut_slice(), sums));
    Done { id, unit, slice, came: came.map_err(|e| failed(unit, &e)) }
}

/// Units that are asked as the protocol asks them, and what they are still to do.
struct Simulated {
    units: Box<dyn Units + Send>,
    object: u64,
    used: Vec<bool>,
    jobs: Vec<Job>,
}

impl Simulated {
    fn next(&mut self) -> Option<Done> {
        let job = self.jobs.pop()?;
        let places = job.places();
        let Job { id, unit, way, mut slice, .. } = job;
        let halves = [
            (Named::Data(self.object), places.0, &mut slice.chunks),
            (Named::Sums(self.object), places.1, &mut slice.sums),
        ];
        let request = |(file, at, bytes): &(Named, u64, &mut Aligned)| match (way, *file, *at) {
            (Direction::Write, file, at) => {
                Request::Write { unit, file, at, bytes: bytes.as_slice().to_vec() }
            }
            (Direction::Read, file, at) => Request::Read { unit, file, at, len: bytes.as_slice().len() },
        };
        let done = self.units.run(halves.iter().map(request).collect());
        let mut came = Ok(());
        for ((.., bytes), done) in halves.into_iter().zip(done) {
            let there = bytes.as_mut_slice();
            match done {
                Ok(units::Done::Bytes(read)) => {
                    let n = read.len().min(there.len());
                    there[..n].copy_from_slice(&read[..n]);
                    there[n..].fill(0);
                }
                Ok(_) => {}
                Err(e) => came = came.and(Err(e)),
            }
        }
        Some(Done { id, unit, slice, came })
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Threads that wait for disks.
struct Pool {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
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
                    let work = loop {
                        match queue.work.pop_front() {
                            Some(work) => break work,
                            None if queue.over => return,
                            None => queue = news.wait(queue).unwrap_or_else(PoisonError::into_inner),
                        }
                    };
                    drop(queue);
                    work();
                }
            };
            std::thread::Builder::new().name("polyduct-disk".into()).spawn(work).ok()
        };
        Pool { threads: (0..threads).filter_map(start).collect(), shared }
    }

    /// Does it on a thread; at once where the system gave none.
    fn run(&self, work: Work) {
        if self.threads.is_empty() {
            return work();
        }
        let (queue, news) = &*self.shared;
        lock(queue).work.push_back(work);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::units::Cause;
    use std::collections::BTreeMap;

    fn file() -> Arc<File> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("polyduct-requests-{}-{n}", std::process::id()));
        let file = File::options().create(true).read(true).write(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Arc::new(file)
    }

    /// Units in memory.
    #[derive(Default)]
    struct Kept {
        files: BTreeMap<(u32, Named), Vec<u8>>,
        full: Vec<(u32, Named)>,
    }

    impl Units for Kept {
        fn run(&mut self, batch: Vec<Request>) -> Vec<Result<units::Done, UnitError>> {
            let one = |request| match request {
                Request::Write { unit, file, .. } if self.full.contains(&(unit, file)) => {
                    Err(UnitError { unit, reason: "no space left on device".into(), cause: Cause::Full })
                }
                Request::Write { unit, file, at, bytes } => {
                    let there = self.files.entry((unit, file)).or_default();
                    let (at, end) = (at as usize, at as usize + bytes.len());
                    there.resize(there.len().max(end), 0);
                    there[at..end].copy_from_slice(&bytes);
                    Ok(units::Done::Yes)
                }
                Request::Read { unit, file, at, len } => {
                    let there = &self.files[&(unit, file)];
                    let at = there.len().min(at as usize);
                    Ok(units::Done::Bytes(there[at..there.len().min(at + len)].to_vec()))
                }
                other => panic!("{other:?}"),
            };
            batch.into_iter().map(one).collect()
        }
    }

    fn slice(with: u8) -> Slice {
        let mut slice = Slice::default();
        slice.chunks.resize(2 * BLOCK).unwrap();
        slice.sums.resize(2 * 8).unwrap();
        slice.chunks.as_mut_slice().fill(with);
        slice.sums.as_mut_slice().fill(with);
        slice
    }

    fn all(requests: &mut Requests) -> Vec<Done> {
        let mut all: Vec<Done> = std::iter::from_fn(|| requests.next()).collect();
        all.sort_by_key(|done| (done.id, done.unit));
        all
    }

    #[test]
    fn all_means_do_the_same() {
        let units = || (0..3).map(|_| Some(Files { data: file(), sums: file() })).chain([None]).collect();
        for mut requests in [
            Requests::new(units(), 4, 2),
            Requests::by_threads(units(), 3),
            Requests::by_threads(units(), 0),
            Requests::of_units(Box::new(Kept::default()), 7, vec![true, true, true, false]),
        ] {
            let job = |id: u64, unit: u32, way, with| Job {
                id,
                unit,
                way,
                slice: slice(with),
                block: 2 * id,
                stride: 8,
            };
            for (id, unit) in (0..5).flat_map(|id| (0..3).map(move |unit| (id, unit))) {
                assert!(requests
                    .ask(job(id, unit, Direction::Write, (10 * id) as u8 + unit as u8))
                    .is_none());
            }
            assert!(requests.ask(job(0, 3, Direction::Write, 1)).is_some(), "it is not used");
            let written = all(&mut requests);
            assert!(written.len() == 15 && written.iter().all(|done| done.came.is_ok()));
            // One more than there are: of what a file lacks, zeros.
            for (id, unit) in (0..6).flat_map(|id| (0..3).map(move |unit| (id, unit))) {
                requests.ask(job(id, unit, Direction::Read, 99));
            }
            let read = all(&mut requests);
            assert_eq!(read.len(), 18);
            for done in read {
                let want = if done.id < 5 { (10 * done.id) as u8 + done.unit as u8 } else { 0 };
                let bytes = done.slice.chunks.as_slice().iter().chain(done.slice.sums.as_slice());
                assert!(done.came.is_ok() && bytes.copied().all(|b| b == want), "{} {}", done.id, done.unit);
            }
        }
    }

    #[test]
    fn an_error_is_that_of_its_unit() {
        let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        let units = [
            Files { data: file(), sums: file() },
            Files { data: full.clone(), sums: file() },
            Files { data: file(), sums: full },
        ];
        let units = || units.iter().cloned().map(Some).collect();
        let kept = Kept { full: vec![(1, Named::Data(7)), (2, Named::Sums(7))], ..Kept::default() };
        for mut requests in [
            Requests::new(units(), 4, 2),
            Requests::by_threads(units(), 2),
            Requests::of_units(Box::new(kept), 7, vec![true; 3]),
        ] {
            for unit in 0..3 {
                requests.ask(Job {
                    id: 0,
                    unit,
                    way: Direction::Write,
                    slice: slice(1),
                    block: 0,
                    stride: 8,
                });
            }
            let causes: Vec<_> =
                all(&mut requests).iter().map(|done| done.came.as_ref().err().map(|e| e.cause)).collect();
            assert_eq!(causes, [None, Some(Cause::Full), Some(Cause::Full)]);
        }
    }
}
