//! What a port of a stream has besides its pipe: the gateway that carries it.

use super::work::Job;
use super::{control, reducers, show, StreamTarget};
use crate::Error;
use polyduct_message::hash::fnv1a;
use polyduct_message::link::key::Trust;
use polyduct_os::clock;
use polyduct_os::process::own_pid;
use polyduct_pipe::{Given, PipeError};
use polyduct_port::{Array, Interrupt, Options, PortError, Readers, Side, INTERRUPT_SLICE};
use polyduct_stream::{Direction, Protocol, StreamError};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long an error of the pipe waits for the gateway to say why.
const REASON: Duration = Duration::from_secs(2);

/// A stream of this port's program, and in unit 0 the thread that moves it.
pub(crate) struct Carrier {
    place: String,
    direction: Direction,
    name: String,
    thread: Option<Thread>,
    /// What the thread came to.
    outcome: Option<Result<(), Arc<StreamError>>>,
    unit: u32,
    /// The program's port has opened.
    opened: bool,
    /// Its units make pictures.
    reduces: bool,
    helper: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    pid: u32,
}

struct Thread {
    stop: Arc<AtomicBool>,
    ended: Receiver<Result<(), StreamError>>,
}

impl Carrier {
    /// Of a port that writes: unit 0 has a gateway reach the other end, and begin to carry.
    ///
    /// # Errors
    /// [`Error::Stream`] where the other end is not reached; [`Error::Misuse`].
    pub fn transmit(
        target: &StreamTarget,
        (given, layout): (&Given, &str),
        options: &Options,
        trust: Option<Trust>,
    ) -> Result<Carrier, Error> {
        check(target, options)?;
        let shows = target.place.protocol == Protocol::Display;
        if let (Given::Bundle(arrays), false) = (given, shows) {
            return Err(one_array(&target.to_string(), arrays));
        }
        let mut carrier = Carrier::of(target, Direction::Transmit, options);
        let arrays = show::arrays(given, layout);
        let known = show::reduced(&arrays, options.units).filter(|_| shows);
        carrier.reduces = known.is_some();
        if options.unit == 0 {
            carrier.carry(Job::new(target, true, &carrier.name, &arrays, options), options, trust)?;
        }
        if let Some(known) = known {
            let (name, own) =
                (carrier.name.clone(), Options { timeout: None, interrupt: None, ..options.clone() });
            carrier.spawn("polyduct-reduce", move |stop| {
                let asked = stop.clone();
                let interrupt: Interrupt = Arc::new(move || asked.load(Ordering::Relaxed));
                // What goes wrong the gateway sees, and says.
                drop(reducers::answer(&name, &known, &Options { interrupt: Some(interrupt), ..own }));
            })?;
        }
        Ok(carrier)
    }

    /// Of a port that reads. What comes, the other end says, or else the reader.
    ///
    /// # Errors
    /// As [`transmit`](Carrier::transmit).
    pub fn receive(target: &StreamTarget, options: &Options, trust: Option<Trust>) -> Result<Carrier, Error> {
        check(target, options)?;
        let mut carrier = Carrier::of(target, Direction::Receive, options);
        if options.unit == 0 {
            carrier.carry(Job::new(target, false, &carrier.name, &[], options), options, trust)?;
        }
        Ok(carrier)
    }

    /// Has the job done: by a thread of this process, or by a gateway that is one of its own.
    fn carry(&mut self, job: Job, options: &Options, trust: Option<Trust>) -> Result<(), Error> {
        let again = || options.interrupt.as_ref().is_some_and(|ask| ask());
        match &job.target.gateway {
            None => {
                let reached = job.reach(trust, &again)?;
                tell(job.note(&reached));
                self.start(move |stop| job.run(reached, stop))
            }
            Some(gateway) => {
                let (handed, note) = control::hand_over(gateway, &job, &again)?;
                tell(note);
                self.start(move |stop| handed.wait(&|| stop.load(Ordering::Relaxed)))
            }
        }
    }

    fn of(target: &StreamTarget, direction: Direction, options: &Options) -> Carrier {
        let place = target.to_string();
        let name = pipe_name(&place, options);
        Carrier {
            place,
            direction,
            name,
            thread: None,
            outcome: None,
            unit: options.unit,
            opened: false,
            reduces: false,
            helper: None,
            pid: own_pid(),
        }
    }

    /// The pipe between the program and its gateway.
    pub fn pipe(&self) -> &str {
        &self.name
    }

    /// Options of the program's own end of the pipe.
    pub fn own(&self, options: &Options) -> Options {
        match self.reduces {
            // The units that make pictures, and the gateway, each hold a step.
            true => Options { readers: 2.into(), depth: options.depth.max(3), ..options.clone() },
            false => options.clone(),
        }
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&Arc<AtomicBool>) + Send + 'static,
    ) -> Result<(), Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let spawned = Builder::new().name(name.into()).spawn(move || work(&stopped));
        let thread =
            spawned.map_err(|e| StreamError::System { what: format!("{}: no thread: {e}", self.place) })?;
        self.helper = Some((stop, thread));
        Ok(())
    }

    fn start(
        &mut self,
        carry: impl FnOnce(&Arc<AtomicBool>) -> Result<(), StreamError> + Send + 'static,
    ) -> Result<(), Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, (tell, ended)) = (stop.clone(), mpsc::sync_channel(1));
        let named = Builder::new().name("polyduct-gateway".into());
        let spawned = named.spawn(move || drop(tell.send(carry(&stopped))));
        spawned.map_err(|e| StreamError::System { what: format!("{}: no thread: {e}", self.place) })?;
        self.thread = Some(Thread { stop, ended });
        Ok(())
    }

    /// Waits for the end of the thread; `None` where that takes longer.
    fn ended(
        &mut self,
        most: Option<Duration>,
        again: impl Fn() -> bool,
    ) -> Option<Result<(), Arc<StreamError>>> {
        let (start, Some(thread)) = (clock::now(), &self.thread) else { return self.outcome.clone() };
        loop {
            let left =
                most.map_or(INTERRUPT_SLICE, |most| most.saturating_sub(clock::now().saturating_sub(start)));
            match thread.ended.recv_timeout(left.min(INTERRUPT_SLICE)) {
                Ok(outcome) => self.outcome = Some(outcome.map_err(Arc::new)),
                Err(RecvTimeoutError::Disconnected) => {
                    let what = format!("{}: the gateway's thread failed", self.place);
                    self.outcome.get_or_insert(Err(Arc::new(StreamError::System { what })));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() || again() => return None,
                Err(RecvTimeoutError::Timeout) => continue,
            }
            self.thread = None;
            return self.outcome.clone();
        }
    }

    /// The program's port has opened, or has not: says then why.
    ///
    /// # Errors
    /// As [`explain`](Carrier::explain).
    pub fn opened<T>(&mut self, port: Result<T, PipeError>) -> Result<T, Error> {
        let port = port.map_err(|error| self.explain(error))?;
        self.opened = true;
        Ok(port)
    }

    /// Says of an error of the pipe what it means for the stream: units that are not told why by their gateway know
    /// at least where it was going.
    pub fn explain(&mut self, error: PipeError) -> Error {
        let gone = match &error {
            PipeError::ReadersGone { .. } => true,
            PipeError::Port(PortError::PeerAborted { peer, .. } | PortError::PeerLost { peer, .. }) => {
                peer.name().is_some_and(|unit| self.is_gateway(unit.side))
            }
            _ => false,
        };
        // One that waits for its gateway while it opens waits for the other end.
        let opening = matches!(error, PipeError::Refused { .. }) || !self.opened;
        let most = if gone || opening { REASON } else { Duration::ZERO };
        match self.ended(Some(most), || false) {
            // What it has from the program tells that nothing new.
            Some(Err(why)) if gone || !matches!(*why, StreamError::Program(_)) => Error::Stream(why),
            _ if !gone => error.into(),
            _ => {
                Error::Stream(Arc::new(StreamError::Lost { place: self.place.clone(), source: error.into() }))
            }
        }
    }

    fn is_gateway(&self, side: Side) -> bool {
        // The program's own units are on the other side.
        matches!(side, Side::Reader(_)) == (self.direction == Direction::Transmit)
    }

    /// Waits until the gateway has moved everything, after the program's last step.
    ///
    /// # Errors
    /// What kept it from that; [`PortError::Timeout`] and [`PortError::Interrupted`].
    pub fn finish(&mut self, options: &Options) -> Result<(), Error> {
        if self.pid != own_pid() {
            return Ok(());
        }
        let interrupted = || options.interrupt.as_ref().is_some_and(|ask| ask());
        match self.ended(options.timeout, interrupted) {
            Some(Err(why)) if !matches!(*why, StreamError::Program(_)) => Err(Error::Stream(why)),
            Some(_) => Ok(()),
            None if self.thread.is_none() => Ok(()),
            None => {
                self.stop();
                Err(Error::Stream(Arc::new(StreamError::Stopped {
                    why: format!("{}: not all was taken in time", self.place),
                })))
            }
        }
    }

    /// Has the thread end, with whatever it has.
    pub fn stop(&mut self) {
        if let Some(thread) = self.thread.as_ref().filter(|_| self.pid == own_pid()) {
            thread.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop();
        if let Some((stop, thread)) = self.helper.take().filter(|_| self.pid == own_pid()) {
            stop.store(true, Ordering::Relaxed);
            // It ends with its pipes.
            drop(thread);
        }
        leave(&self.name, self.unit);
    }
}

/// Says where something is shown: whoever started the program looks there.
fn tell(note: Option<String>) {
    note.into_iter().for_each(|note| eprintln!("polyduct: {note}"));
}

/// What every stream needs of its port's options.
fn check(target: &StreamTarget, options: &Options) -> Result<(), Error> {
    let misuse = |what: String| Err(Error::Misuse { what });
    if options.readers != Readers::Programs(1) {
        return misuse(format!("{target}: a stream has one reader, its gateway"));
    }
    Ok(())
}

/// Pipes to gateways that units in this process have open: name and unit.
fn open_pipes() -> &'static Mutex<BTreeSet<(String, u32)>> {
    static OPEN: OnceLock<Mutex<BTreeSet<(String, u32)>>> = OnceLock::new();
    OPEN.get_or_init(Mutex::default)
}

/// A name that all units of a program come to and no other program: the second port of a program at one place has
/// another.
fn pipe_name(place: &str, options: &Options) -> String {
    let program = format!("{}\0{place}", options.program);
    let base = format!("stream-{:016x}", fnv1a(program.bytes()));
    let mut open = open_pipes().lock().unwrap_or_else(PoisonError::into_inner);
    let mut names = (0..).map(|n| (format!("{base}-{n}"), options.unit));
    let name = names.find(|name| !open.contains(name)).unwrap_or_default();
    open.insert(name.clone());
    name.0
}

fn leave(name: &str, unit: u32) {
    open_pipes().lock().unwrap_or_else(PoisonError::into_inner).remove(&(name.to_owned(), unit));
}

/// One array without a name is what a stream of plain bytes has.
fn one_array(place: &str, arrays: &[Array]) -> Error {
    let what = format!("{place}: a stream of plain bytes carries one array, not {} with names", arrays.len());
    Error::Misuse { what }
}
