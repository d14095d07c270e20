//! Many requests to files at once, from one thread: io_uring.
//!
//! Memory goes to the kernel with a request and comes back with its answer, so nobody can look at or free
//! what the kernel still reads or writes. A ring that is dropped waits for what is under way.
//!
//! After J. Axboe, Efficient IO with io_uring (2019); the queues themselves are of the crate io-uring.

use crate::aligned::Aligned;
use crate::error::{OsError, Result};
use io_uring::{opcode, squeue, types, IoUring, Probe};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// How often a request that the kernel gave up without an error of the file is made again.
const TRIES: u32 = 16;
/// How often the kernel may refuse to be entered: after the first time it is left alone for 1 ms, and then
/// for twice as long each time.
const REFUSALS: u32 = 10;
/// Requests of a ring, at most.
const MOST: u32 = 1 << 12;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

/// What came of a request.
#[derive(Debug)]
pub struct Completion {
    /// What it was called.
    pub tag: u64,
    /// Its memory. Of a request that failed it is empty where the kernel may still use what it was given.
    pub bytes: Aligned,
    /// How many bytes moved: all of them, or those up to the end of a file that is read.
    pub moved: core::result::Result<usize, Errno>,
}

struct Flight {
    tag: u64,
    way: Direction,
    file: Arc<File>,
    bytes: Aligned,
    at: u64,
    moved: usize,
    tries: u32,
}

/// Requests to files and their answers.
///
/// ```
/// use polyduct_os::{aligned::Aligned, ring::{Ring, Direction}};
/// use std::{fs::File, sync::Arc};
///
/// # let path = std::env::temp_dir().join(format!("polyduct-ring-doc-{}", std::process::id()));
/// let file = Arc::new(File::options().create(true).read(true).write(true).truncate(true).open(&path)?);
/// # std::fs::remove_file(&path)?;
/// // Systems may forbid it.
/// if let Ok(mut ring) = Ring::new(8) {
///     for (tag, text) in [(0, "one layout, "), (1, "another one")] {
///         let mut bytes = Aligned::default();
///         bytes.resize(text.len())?;
///         bytes.as_mut_slice().copy_from_slice(text.as_bytes());
///         ring.ask(Direction::Write, file.clone(), bytes, tag * 12, tag);
///     }
///     while let Some(answer) = ring.next() {
///         assert!(answer.moved.is_ok());
///     }
///     let mut bytes = Aligned::default();
///     bytes.resize(100)?;
///     ring.ask(Direction::Read, file, bytes, 0, 7);
///     let answer = ring.next().expect("one that was asked for");
///     assert_eq!((answer.tag, answer.moved), (7, Ok(23)));
///     assert_eq!(&answer.bytes.as_slice()[..23], b"one layout, another one");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ring {
    ring: IoUring,
    /// What the kernel has, or gets with the next call, by the number that it knows it by.
    flights: Vec<Option<Flight>>,
    /// Numbers that are free.
    free: Vec<usize>,
    /// What waits for a place: there are as many as the kernel's queues hold, so that neither of them is ever
    /// full.
    waiting: VecDeque<Flight>,
    places: usize,
    /// Answers to requests that the kernel will not answer.
    refused: Vec<Completion>,
    /// The kernel does not take requests any more.
    broken: Option<Errno>,
    /// Another process, forked from this one, has nothing to do with what is under way.
    pid: u32,
}

impl Ring {
    /// A ring for so many requests at once, up to 4096; more wait for one another.
    ///
    /// # Errors
    /// [`OsError::System`] where the kernel has none that reads and writes (before Linux 5.6), or does not
    /// allow it.
    pub fn new(most: u32) -> Result<Ring> {
        let entries = most.clamp(2, MOST).next_power_of_two();
        Ring::with(entries).map_err(|e| OsError::System {
            op: "io_uring_setup",
            what: format!("a ring of {entries} requests"),
            errno: Errno::from_io_error(&e).unwrap_or(Errno::NOSYS),
        })
    }

    fn with(entries: u32) -> std::io::Result<Ring> {
        // Answers need not interrupt a thread that is computing: it looks when it has nothing else to do.
        let ring = IoUring::builder().setup_coop_taskrun().build(entries);
        let ring = ring.or_else(|_| IoUring::new(entries))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if ![opcode::Read::CODE, opcode::Write::CODE].iter().all(|&code| probe.is_supported(code)) {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        let (flights, free, waiting, refused) = (Vec::new(), Vec::new(), VecDeque::new(), Vec::new());
        let (places, pid) = (entries as usize, std::process::id());
        Ok(Ring { ring, flights, free, waiting, places, refused, broken: None, pid })
    }

    /// Asks for all of `bytes` to be read from the file or written to it, from byte `at` on. The answer has
    /// the same tag. The kernel begins with it at the next [`submit`](Ring::submit) or [`next`](Ring::next),
    /// or when it has room for no more.
    pub fn ask(&mut self, way: Direction, file: Arc<File>, bytes: Aligned, at: u64, tag: u64) {
        self.launch(Flight { tag, way, file, bytes, at, moved: 0, tries: 0 });
    }

    /// Has the kernel begin with what was asked for: one system call for all of it.
    pub fn submit(&mut self) {
        let mut refusals = 0;
        while self.is_ours() && !self.ring.submission().is_empty() {
            if let Err(errno) = self.enter(0, &mut refusals) {
                return self.give_up(errno);
            }
        }
    }

    /// Requests without an answer so far.
    pub fn len(&self) -> usize {
        self.flying() + self.waiting.len() + self.refused.len()
    }

    /// Whether all requests were answered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the kernel, or this process as a child of the one that made the ring, has no use for it any
    /// more: all that is asked for is answered with an error.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    fn flying(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Waits for the next answer, in whatever order they come. `None` when all requests were answered.
    // No iterator: who asks meanwhile gets more.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Completion> {
        let mut refusals = 0;
        loop {
            if let Some(answer) = self.refused.pop() {
                return Some(answer);
            }
            if self.is_empty() {
                return None;
            }
            if !self.is_ours() {
                continue;
            }
            let landed = self.ring.completion().next();
            if let Some(entry) = landed {
                let answer = self.land(entry.user_data(), entry.result());
                if let Some(flight) = self.waiting.pop_front() {
                    self.launch(flight);
                }
                match answer {
                    None => continue,
                    answer => return answer,
                }
            }
            if let Err(errno) = self.enter(1, &mut refusals) {
                self.give_up(errno);
            }
        }
    }

    /// Whether the queues are this process's: a forked one shares them with its parent and must not touch
    /// them. In a broken ring nobody does.
    fn is_ours(&mut self) -> bool {
        if self.broken.is_none() && self.pid != std::process::id() {
            self.give_up(Errno::OWNERDEAD);
        }
        self.broken.is_none()
    }

    /// Hands the kernel what is asked for, and waits for so many answers.
    fn enter(&mut self, answers: usize, refusals: &mut u32) -> core::result::Result<(), Errno> {
        match self.ring.submit_and_wait(answers) {
            Ok(_) => Ok(()),
            Err(e) => match Errno::from_io_error(&e).unwrap_or(Errno::IO) {
                Errno::INTR => Ok(()),
                errno if *refusals >= REFUSALS => Err(errno),
                // It may be short of memory for a moment.
                _ => {
                    if *refusals > 0 {
                        std::thread::sleep(Duration::from_millis(1 << (*refusals - 1)));
                    }
                    *refusals += 1;
                    Ok(())
                }
            },
        }
    }

    fn launch(&mut self, flight: Flight) {
        if !self.is_ours() {
            let moved = Err(self.broken.unwrap_or(Errno::IO));
            self.refused.push(Completion { tag: flight.tag, bytes: flight.bytes, moved });
            return;
        }
        if self.flying() >= self.places {
            self.waiting.push_back(flight);
            return;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        let flight = self.flights[number].insert(flight);
        let entry = entry(flight).user_data(number as u64);
        // SAFETY: the file is open and the memory where it is until the answer: both are in `flights`, which
        // gives them back with the answer, or never. `Aligned` does not move its bytes.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            // There are no more flights than places.
            self.give_up(Errno::BUSY);
        }
    }

    /// Takes an answer of the kernel's; `None` where it is not the last one of its request.
    fn land(&mut self, number: u64, result: i32) -> Option<Completion> {
        let mut flight = self.flights.get_mut(number as usize)?.take()?;
        self.free.push(number as usize);
        let left = flight.bytes.as_slice().len() - flight.moved;
        let again = |errno| [Errno::CANCELED, Errno::INTR, Errno::AGAIN].contains(&errno);
        let moved = match usize::try_from(result) {
            Ok(n) => {
                flight.moved += n.min(left);
                match (n.min(left), flight.way) {
                    (n, _) if n == left => Ok(flight.moved),
                    (0, Direction::Read) => Ok(flight.moved),
                    (0, Direction::Write) => Err(Errno::NOSPC),
                    _ => {
                        self.launch(flight);
                        return None;
                    }
                }
            }
            Err(_) => match Errno::from_raw_os_error(-result) {
                // The thread that asked may have ended, which takes back what it asked for.
                errno if again(errno) && flight.tries < TRIES => {
                    flight.tries += 1;
                    self.launch(flight);
                    return None;
                }
                errno => Err(errno),
            },
        };
        Some(Completion { tag: flight.tag, bytes: flight.bytes, moved })
    }

    /// The kernel does not answer any more: what it has it may go on to use.
    fn give_up(&mut self, errno: Errno) {
        self.broken = Some(errno);
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            self.refused.push(Completion { tag: flight.tag, bytes: Aligned::default(), moved: Err(errno) });
            let _ = ManuallyDrop::new(flight);
        }
        for flight in self.waiting.drain(..) {
            self.refused.push(Completion { tag: flight.tag, bytes: flight.bytes, moved: Err(errno) });
        }
        self.flights.clear();
        self.free.clear();
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("unanswered", &self.len()).field("broken", &self.broken).finish()
    }
}

/// What of a request is still to be done.
fn entry(flight: &mut Flight) -> squeue::Entry {
    let fd = types::Fd(flight.file.as_raw_fd());
    let at = flight.at + flight.moved as u64;
    let left = &mut flight.bytes.as_mut_slice()[flight.moved..];
    // What is longer is moved in several.
    let (memory, len) = (left.as_mut_ptr(), left.len().min(1 << 30) as u32);
    match flight.way {
        Direction::Read => opcode::Read::new(fd, memory, len).offset(at).build(),
        Direction::Write => opcode::Write::new(fd, memory, len).offset(at).build(),
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // What was under way is so in the other process. Here its memory is a copy, of which the kernel
            // knows nothing.
            return;
        }
        while self.next().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Arc<File> {
        let path = std::env::temp_dir().join(format!("polyduct-ring-{name}-{}", std::process::id()));
        let file = File::options().create(true).read(true).write(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Arc::new(file)
    }

    fn filled(len: usize, with: u8) -> Aligned {
        let mut bytes = Aligned::default();
        bytes.resize(len).unwrap();
        bytes.as_mut_slice().fill(with);
        bytes
    }

    fn answers(ring: &mut Ring) -> Vec<Completion> {
        let mut all: Vec<Completion> = std::iter::from_fn(|| ring.next()).collect();
        all.sort_by_key(|a| a.tag);
        all
    }

    #[test]
    fn more_requests_than_places_are_all_answered() {
        let (mut ring, file) = (Ring::new(2).unwrap(), file("many"));
        (0..100).for_each(|i| {
            ring.ask(Direction::Write, file.clone(), filled(5000, i), u64::from(i) * 5000, i.into())
        });
        assert_eq!(ring.len(), 100);
        let written = answers(&mut ring);
        assert!(written.iter().zip(0..).all(|(a, i)| (a.tag, a.moved) == (i, Ok(5000))));
        (0..100).for_each(|i| ring.ask(Direction::Read, file.clone(), filled(5000, 0), i * 5000, i));
        let read = answers(&mut ring);
        assert_eq!(read.len(), 100);
        for (a, i) in read.iter().zip(0..) {
            assert!(a.tag == u64::from(i) && a.bytes.as_slice().iter().all(|&b| b == i), "{i}");
        }
        assert!(ring.is_empty());
    }

    #[test]
    fn what_a_file_lacks_is_not_read() {
        let (mut ring, file) = (Ring::new(4).unwrap(), file("short"));
        ring.ask(Direction::Write, file.clone(), filled(10_000, 3), 0, 0);
        answers(&mut ring);
        [(0, 20_000), (9_999, 100), (10_000, 100), (1 << 40, 1)]
            .iter()
            .zip(0..)
            .for_each(|(&(at, len), tag)| ring.ask(Direction::Read, file.clone(), filled(len, 1), at, tag));
        let moved: Vec<_> = answers(&mut ring).iter().map(|a| a.moved).collect();
        assert_eq!(moved, [Ok(10_000), Ok(1), Ok(0), Ok(0)]);
    }

    #[test]
    fn each_request_has_its_own_error() {
        let mut ring = Ring::new(4).unwrap();
        let read_only = Arc::new(File::open("/dev/null").unwrap());
        ring.ask(Direction::Write, read_only, filled(10, 0), 0, 0);
        ring.ask(Direction::Write, file("fine"), filled(10, 0), 0, 1);
        ring.ask(
            Direction::Write,
            Arc::new(File::options().write(true).open("/dev/full").unwrap()),
            filled(10, 0),
            0,
            2,
        );
        let moved: Vec<_> = answers(&mut ring).iter().map(|a| a.moved).collect();
        assert_eq!(moved, [Err(Errno::BADF), Ok(10), Err(Errno::NOSPC)]);
    }

    #[test]
    fn a_ring_outlives_the_thread_that_asked() {
        let (mut ring, file) = (Ring::new(64).unwrap(), file("thread"));
        let asked = file.clone();
        let mut ring = std::thread::spawn(move || {
            (0..64).for_each(|i| {
                ring.ask(Direction::Write, asked.clone(), filled(1 << 16, i), u64::from(i) << 16, 0)
            });
            // Handed over, and not waited for.
            ring.submit();
            ring
        })
        .join()
        .unwrap();
        let all = answers(&mut ring);
        assert!(all.len() == 64 && all.iter().all(|a| a.moved == Ok(1 << 16)), "{all:?}");
        drop(ring);
        assert_eq!(file.metadata().unwrap().len(), 64 << 16);
    }

    #[test]
    fn dropping_a_ring_waits_for_it() {
        let (mut ring, file) = (Ring::new(8).unwrap(), file("drop"));
        (0..8).for_each(|i| ring.ask(Direction::Write, file.clone(), filled(1 << 20, 1), i << 20, i));
        drop(ring);
        assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    }
}
