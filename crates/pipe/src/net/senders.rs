//! The threads that send from a writer unit's slots: a few, however many reader units have a part there, each
//! with its share of their [connections](super::job), so that a slow one keeps no other waiting, and several
//! processors are used.

use super::channel::Channel;
use super::job::{Job, Serves, Stock};
use super::listener::PipeListener;
use super::near::{self, Arrival};
use super::store::Store;
use super::wire::{First, Guest};
use crate::bind::bind_writers;
use crate::error::PipeError;
use crate::port::kernels;
use crate::wire::{Takes, Welcome};
use crate::work::Work;
use polyduct_copy::Kernels;
use polyduct_os::{
    clock, cpu,
    poll::{poll, EventFd, PollItem},
    segment::Segment,
    OsError,
};
use polyduct_port::{Policy, MAX_PROGRAMS, MAX_UNITS};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of the threads' stacks.
const STACK: usize = 256 << 10;
/// So many threads send as much as the memory and the network of most machines take.
const MOST: usize = 8;

/// A writer unit's slots, and who sends from them.
pub struct Senders {
    /// The slots.
    pub store: Store,
    len: usize,
    welcome: Welcome,
    unit: u32,
    wants: bool,
    kernels: Kernels,
    stop: EventFd,
    stopped: AtomicBool,
    workers: Vec<Worker>,
}

/// What a thread is told.
struct Worker {
    wake: EventFd,
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
struct Inbox {
    jobs: Vec<Box<dyn Serves>>,
    thread: Option<JoinHandle<()>>,
}

impl Senders {
    /// The slots of writer unit `unit` of a pipe.
    pub fn new(pipe: &str, welcome: &Welcome, unit: u32) -> Result<Arc<Senders>, PipeError> {
        let src = bind_writers(&welcome.arrays, welcome.writers)?;
        let places = src.lay_out(unit)?;
        let system = crate::join::system(pipe);
        let worker = |_| Ok(Worker { wake: EventFd::new()?, inbox: Mutex::default() });
        let workers: Result<_, OsError> = (0..cpu::allowed().len().clamp(1, MOST)).map(worker).collect();
        Ok(Arc::new(Senders {
            store: Store::new(welcome.depth, places.len, places.fixed).map_err(&system)?,
            len: places.len,
            unit,
            wants: welcome.policy != Policy::Block || welcome.arrays.iter().any(|array| array.open.is_some()),
            kernels: kernels(&src),
            welcome: welcome.clone(),
            stop: EventFd::new().map_err(&system)?,
            stopped: AtomicBool::new(false),
            workers: workers.map_err(&system)?,
        }))
    }

    /// Bytes of a slot.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Takes a connection on which a unit of a reader program asks for its part of the steps from `from` on.
    /// One that makes no sense is dropped. Of two for one unit the later counts: the unit was replaced, or
    /// lost the connection.
    pub fn adopt(
        self: &Arc<Self>,
        channel: Channel,
        (program, unit): (u32, u32),
        guest: Option<&Guest>,
        from: u64,
    ) {
        let known = || {
            let takes = self.welcome.reader_takes.get(program as usize)?;
            Some((*self.welcome.readers.get(program as usize)?, takes))
        };
        let terms = guest.filter(|_| self.comes(program)).map(|g| (g.units, &g.takes)).or_else(known);
        let Some(work) = self.work_of((program, unit), terms) else { return };
        match Job::new((program, unit), channel, (work, self.unit), from) {
            Ok(job) => self.serve(Box::new(job)),
            Err(fault) => tracing::warn!(program, unit, %fault, "a lane ended"),
        }
    }

    /// Takes a reader unit of this host, which maps the slots.
    pub fn hand_out(self: &Arc<Self>, came: Arrival) {
        let (program, unit) = came.of;
        let units = self.welcome.readers.get(program as usize).copied();
        if self.comes(program) || units.is_some_and(|units| unit < units) {
            self.serve(Box::new(near::Job::new(came, &self.store)));
        }
    }

    /// Whether that is a place in which reader programs come and go.
    fn comes(&self, program: u32) -> bool {
        self.welcome.readers.is_empty() && program < MAX_PROGRAMS
    }

    /// What this unit of this reader program gets, of so many units that take these, if something of it is
    /// from here, or may be.
    fn work_of(&self, (program, unit): (u32, u32), terms: Option<(u32, &Takes)>) -> Option<Work> {
        let Welcome { arrays, writers, .. } = &self.welcome;
        let Some((units, takes)) = terms.filter(|&(units, _)| unit < units && units <= MAX_UNITS) else {
            tracing::warn!(program, unit, "turned a lane away: there is no such reader");
            return None;
        };
        let work = Work::bind(arrays, *writers, takes, (unit, units)).ok();
        let work = work.filter(|work| work.supplies.iter().any(|supply| supply.unit == self.unit));
        if work.is_none() {
            tracing::warn!(program, unit, "turned a lane away: nothing goes there");
        }
        work
    }

    fn serve(self: &Arc<Self>, job: Box<dyn Serves>) {
        let (program, unit) = job.of();
        // All lanes of one reader unit go to the same thread.
        let at = (program as usize + unit as usize) % self.workers.len();
        let worker = &self.workers[at];
        let mut inbox = worker.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        if inbox.thread.is_none() {
            let this = self.clone();
            let named = std::thread::Builder::new().name("polyduct-send".into()).stack_size(STACK);
            match named.spawn(move || this.work(at)) {
                Ok(thread) => inbox.thread = Some(thread),
                Err(e) => {
                    return tracing::warn!(program, unit, %e, "turned a lane away: the system has no thread \
                        for it")
                }
            }
        }
        inbox.jobs.push(job);
        let _ = worker.wake.signal();
    }

    /// Puts a slot back, holding this step, and has it sent.
    pub fn put(&self, slot: u32, step: u64, memory: Segment) {
        self.store.put(slot, Some(step), memory);
        self.wake();
    }

    fn wake(&self) {
        self.workers.iter().for_each(|worker| drop(worker.wake.signal()));
    }

    /// Lets readers in until stopped.
    pub fn accept(self: &Arc<Self>, mut listener: PipeListener) {
        loop {
            let mut items = vec![PollItem::readable(&self.stop)];
            listener.items(&mut items);
            let timeout = listener.deadline().map(|d| d.saturating_sub(clock::now()));
            if poll(&mut items, timeout).is_err() || items[0].is_ready() {
                return;
            }
            let Ok(came) = listener.serve(clock::now()) else { return };
            for (channel, first) in came {
                if let First::Lane { program, unit, from, guest } = first {
                    self.adopt(channel, (program, unit), guest.as_deref(), from);
                }
            }
            listener.near().into_iter().for_each(|came| self.hand_out(came));
        }
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = self.stop.signal();
        self.wake();
        for worker in &self.workers {
            let thread = worker.inbox.lock().unwrap_or_else(PoisonError::into_inner).thread.take();
            thread.into_iter().for_each(|thread| drop(thread.join()));
        }
    }

    /// A thread's life.
    fn work(&self, at: usize) {
        let Some(Worker { wake, inbox }) = self.workers.get(at) else { return };
        let Senders { store, len, wants, kernels, .. } = self;
        let stock = Stock { store, len: *len, wants: *wants, kernels: *kernels };
        let (mut jobs, mut more) = (Vec::<Box<dyn Serves>>::new(), false);
        while !self.stopped.load(Ordering::Acquire) {
            for new in std::mem::take(&mut inbox.lock().unwrap_or_else(PoisonError::into_inner).jobs) {
                // Of two for one unit the later counts: the unit was replaced, or lost the connection.
                let before = jobs.iter().position(|job| job.of() == new.of());
                before.into_iter().for_each(|i| jobs.swap_remove(i).end(store));
                jobs.push(new);
            }
            let Ok(ready) = wait(wake, &jobs, more) else { break };
            more = false;
            let (was, mut ready) = (std::mem::take(&mut jobs), ready.into_iter());
            for mut job in was {
                let is_ready = ready.next().unwrap_or_default();
                if job.is_stuck() && !is_ready {
                    jobs.push(job);
                    continue;
                }
                match job.serve(is_ready, &stock) {
                    Ok(perhaps) => {
                        more |= perhaps;
                        jobs.push(job);
                    }
                    Err(fault) => {
                        // Whether its unit is lost or has closed, unit 0 knows.
                        tracing::debug!(of = ?job.of(), %fault, "a lane ended");
                        job.end(store);
                    }
                }
            }
        }
        jobs.into_iter().for_each(|job| job.end(store));
    }
}

/// Waits until a thread is woken or one of its sockets has something new; not at all where there is `more` to
/// do. Returns which have, or are to be looked after.
fn wait(wake: &EventFd, jobs: &[Box<dyn Serves>], more: bool) -> Result<Vec<bool>, OsError> {
    let mut items = Vec::with_capacity(jobs.len() + 1);
    items.push(PollItem::readable(wake));
    items.extend(jobs.iter().map(|job| job.item()));
    let at = jobs.iter().filter_map(|job| job.deadline()).min();
    let look = at.map(|at| at.saturating_sub(clock::now()));
    poll(&mut items, if more { Some(Duration::ZERO) } else { look })?;
    let is_woken = items[0].is_ready();
    let now = clock::now();
    let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
    let ready = items[1..].iter().zip(jobs).map(|(item, job)| item.is_ready() || is_due(job.deadline()));
    let ready = ready.collect();
    if is_woken {
        wake.drain()?;
    }
    Ok(ready)
}
