//! What a port of a stream has besides its pipe: the gateway that carries it.

use super::control::{self, Sought};
use super::meet::Pipe;
use super::work::{self, Job};
use super::{colour, reach, reducers, reshuffle, show, talk, Form, GatewayAt, StreamTarget};
use crate::Error;
use polyduct_message::hash::fnv1a;
use polyduct_message::link::key::Trust;
use polyduct_message::meeting::Within;
use polyduct_os::clock;
use polyduct_os::process::own_pid;
use polyduct_pipe::{is_of_terms, Given, PipeError};
use polyduct_port::{
    Array, Changes, Interrupt, Options, Peer, Policy, PortError, PortName, Readers, Side, INTERRUPT_SLICE,
};
use polyduct_stream::control::{State, WaitsFor};
use polyduct_stream::{Direction, Protocol, StreamError};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long an error of the pipe waits for the gateway to say why.
const REASON: Duration = Duration::from_secs(2);
/// How long a wait that is over waits for that: the gateway waited as long, and then tells the other units.
const WORD: Duration = Duration::from_secs(1);

/// A stream of this port's program, and in unit 0 the thread that moves it.
pub(crate) struct Carrier {
    place: String,
    direction: Direction,
    pipe: Pipe,
    /// A process of its own that carries the stream, and the job that its name belongs to.
    gateway: Option<(GatewayAt, String)>,
    /// Where gateways listen: by which number its own know the pipe.
    drawn: Option<u64>,
    thread: Option<Thread>,
    /// What the thread came to.
    outcome: Option<Result<(), Arc<StreamError>>>,
    unit: u32,
    /// The program's port has opened.
    opened: bool,
    /// Its units make pictures.
    reduces: bool,
    /// What the unit does for its gateway.
    helper: Option<Thread>,
    pid: u32,
}

struct Thread {
    stop: Arc<AtomicBool>,
    ended: Receiver<Result<(), StreamError>>,
}

/// What a thread does, until it is done or the flag is set.
type Work = Box<dyn FnOnce(&Arc<AtomicBool>) -> Result<(), StreamError> + Send>;

impl Thread {
    /// What it came to, `Some(None)` where it failed without a word; `None` when it takes longer, or `again` says to give
    /// up.
    fn wait(
        &self,
        most: Option<Duration>,
        again: impl Fn() -> bool,
    ) -> Option<Option<Result<(), StreamError>>> {
        let start = clock::now();
        loop {
            let left =
                most.map_or(INTERRUPT_SLICE, |most| most.saturating_sub(clock::now().saturating_sub(start)));
            match self.ended.recv_timeout(left.min(INTERRUPT_SLICE)) {
                Ok(outcome) => return Some(Some(outcome)),
                Err(RecvTimeoutError::Disconnected) => return Some(None),
                Err(RecvTimeoutError::Timeout) if left.is_zero() && most.is_some() || again() => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
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
        check(target, Direction::Transmit, options)?;
        let shows = target.place.protocol == Protocol::Display;
        let several = shows || target.place.protocol == Protocol::Far;
        if let (Given::Bundle(arrays), false) = (given, several) {
            check_plain(target, arrays)?;
        }
        let arrays = show::arrays(given, layout);
        colour::check(target, &arrays)?;
        if let (Given::Dataset(dataset), Protocol::Rtp) = (given, target.place.protocol) {
            work::video(target, dataset).map_err(|e| Error::Misuse { what: e.to_string() })?;
        }
        let mut carrier = Carrier::of(target, Direction::Transmit, options, trust.clone())?;
        let known = show::reduced(&arrays, options.units, target).filter(|_| shows);
        carrier.reduces = known.is_some();
        let blocks = match given {
            Given::Dataset(dataset) if !shows => {
                let known = reshuffle::decide(target, dataset, layout, options.units);
                known.block.map(|block| (*dataset, block))
            }
            _ => None,
        };
        let pipe = carrier.pipe.clone();
        let taken = blocks.map_or_else(|| pipe.clone(), |_| reshuffle::blocks(&pipe));
        if options.unit == 0 {
            carrier.carry(Job::new(target, true, taken.name(), &arrays, options), options, trust)?;
        }
        let own = pipe.options(Options { timeout: None, interrupt: None, ..options.clone() })?;
        let stopped = |stop: &Arc<AtomicBool>| -> Interrupt {
            let asked = stop.clone();
            Arc::new(move || asked.load(Ordering::Relaxed))
        };
        // What goes wrong there the gateway sees, and says.
        let helper: Option<Work> = match (known, blocks) {
            (Some(known), _) => Some(Box::new(move |stop| {
                reducers::answer(&pipe, &known, &Options { interrupt: Some(stopped(stop)), ..own })
            })),
            (None, Some((dataset, block))) => Some(Box::new(move |stop| {
                let own = Options { interrupt: Some(stopped(stop)), ..own };
                reshuffle::forward(&pipe, &dataset, block, &own)
            })),
            (None, None) => None,
        };
        carrier.helper = helper.map(|work| carrier.start("polyduct-unit", work)).transpose()?;
        Ok(carrier)
    }

    /// Of a port that reads. What comes, the other end says, or else the reader.
    ///
    /// # Errors
    /// As [`transmit`](Carrier::transmit).
    pub fn receive(target: &StreamTarget, options: &Options, trust: Option<Trust>) -> Result<Carrier, Error> {
        check(target, Direction::Receive, options)?;
        let mut carrier = Carrier::of(target, Direction::Receive, options, trust.clone())?;
        if options.unit == 0 {
            carrier.carry(Job::new(target, false, carrier.pipe.name(), &[], options), options, trust)?;
        }
        Ok(carrier)
    }

    /// Has the job done: by a thread of this process, or by a gateway that is one of its own.
    fn carry(&mut self, job: Job, options: &Options, trust: Option<Trust>) -> Result<(), Error> {
        let again = || options.interrupt.as_ref().is_some_and(|ask| ask());
        match &job.target.gateways[..] {
            [] => {
                let reached = job.reach(trust, &again)?;
                tell(job.note(&reached));
                let work: Work = Box::new(move |stop| job.run(reached, stop));
                self.thread = Some(self.start("polyduct-gateway", work)?);
            }
            [first, ..] => {
                let trust = talk::trust(first, trust)?;
                let meets = meets(&job.target).map(|gateway| (gateway.clone(), self.drawn));
                let (handed, note) = control::hand_over(&Job { meets, ..job }, trust.as_ref(), &again)?;
                tell(note);
                let work: Work = Box::new(move |stop| handed.wait(&|| stop.load(Ordering::Relaxed)));
                self.thread = Some(self.start("polyduct-gateway", work)?);
            }
        }
        Ok(())
    }

    fn of(
        target: &StreamTarget,
        direction: Direction,
        options: &Options,
        trust: Option<Trust>,
    ) -> Result<Carrier, Error> {
        let place = target.to_string();
        let meets = meets(target);
        let trust = meets.map_or(Ok(None), |gateway| talk::trust(gateway, trust))?;
        let again = || options.interrupt.as_ref().is_some_and(|ask| ask());
        let drawn =
            (meets.is_some() && options.unit == 0).then(reach::draw).transpose()?.map(u64::from_le_bytes);
        let named = |pipe: String| match meets.zip(trust.as_ref()) {
            None => Ok(Pipe::Here(pipe)),
            Some((gateway, trust)) => {
                let within = Within { most: options.open_timeout, gives_up: &again };
                let sought = Sought { job: options.job.clone(), pipe: pipe.clone(), drawn };
                let there = Pipe::there(sought, (gateway, &place), trust, within);
                there.inspect_err(|_| leave(&pipe, options.unit))
            }
        };
        let pipe = named(pipe_name(&place, options))?;
        Ok(Carrier {
            place,
            direction,
            pipe,
            gateway: target.gateways.first().map(|gateway| (gateway.clone(), options.job.clone())),
            drawn,
            thread: None,
            outcome: None,
            unit: options.unit,
            opened: false,
            reduces: false,
            helper: None,
            pid: own_pid(),
        })
    }

    /// The pipe between the program and its gateway.
    pub fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// Options of the program's own end of the pipe.
    ///
    /// # Errors
    /// [`Error::Message`] with what is wrong with the settings.
    pub fn own(&self, options: &Options) -> Result<Options, Error> {
        self.pipe.options(match self.reduces {
            // The units that make pictures, and the gateway, each hold a step.
            true => Options { readers: 2.into(), depth: options.depth.max(3), ..options.clone() },
            false => options.clone(),
        })
    }

    fn start(&self, name: &str, work: Work) -> Result<Thread, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, (tell, ended)) = (stop.clone(), mpsc::sync_channel(1));
        let spawned = Builder::new().name(name.into()).spawn(move || drop(tell.send(work(&stopped))));
        spawned.map_err(|e| StreamError::System { what: format!("{}: no thread: {e}", self.place) })?;
        Ok(Thread { stop, ended })
    }

    /// Waits for the end of the thread; `None` where that takes longer.
    fn ended(
        &mut self,
        most: Option<Duration>,
        again: impl Fn() -> bool,
    ) -> Option<Result<(), Arc<StreamError>>> {
        let Some(thread) = &self.thread else { return self.outcome.clone() };
        let outcome = thread.wait(most, again)?.unwrap_or_else(|| {
            Err(StreamError::System { what: format!("{}: the gateway's thread failed", self.place) })
        });
        (self.thread, self.outcome) = (None, Some(outcome.map_err(Arc::new)));
        self.outcome.clone()
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

    /// Says of an error of the pipe what it means for the stream. Unit 0 asks who carries it; the others have what the
    /// gateway said when it gave up, and know at least where it was going.
    pub fn explain(&mut self, error: PipeError) -> Error {
        let error = match (error, &self.pipe) {
            (PipeError::NoDirectory { source, .. }, Pipe::There(at, _)) => {
                let (place, gateway) =
                    (self.place.clone(), GatewayAt::Place(at.host.clone(), at.port).to_string());
                return StreamError::NoGatewayThere { place, gateway, source: source.into() }.into();
            }
            (error, _) => error,
        };
        let gateway = |peer: &Peer| peer.name().is_some_and(|unit| self.is_gateway(unit.side));
        let (gone, said) = match &error {
            PipeError::ReadersGone { .. } => (true, ""),
            PipeError::Port(PortError::PeerAborted { peer, reason, .. }) if gateway(peer) => {
                (true, &reason[..])
            }
            PipeError::Port(PortError::PeerLost { peer, .. }) => (gateway(peer), ""),
            _ => (false, ""),
        };
        let told = (!said.is_empty()).then(|| StreamError::Told {
            place: self.place.clone(),
            reached: true,
            what: said.to_owned(),
        });
        let most = match &error {
            _ if gone => REASON,
            // One that waits for its gateway while it opens waits for the other end, and both as long.
            PipeError::Port(PortError::Timeout { .. }) if !self.opened => WORD,
            PipeError::Refused { .. } | PipeError::Link { .. } => REASON,
            PipeError::Port(PortError::PeerLost { .. } | PortError::PeerAborted { .. }) if !self.opened => {
                REASON
            }
            _ => Duration::ZERO,
        };
        // The gateway heard that from this program.
        let settled = matches!(&error, PipeError::Refused { reason, .. } if is_of_terms(reason));
        let own = match self.ended(Some(most), || false) {
            // What it has from the program tells that nothing new.
            _ if settled => None,
            Some(Err(why)) if gone || !matches!(*why, StreamError::Program(_)) => Some(why),
            _ => None,
        };
        match (own, told) {
            // Of several gateways each may say something else: all units have the words of the pipe.
            (Some(why), Some(told)) if !why.to_string().starts_with(said) => Error::Stream(Arc::new(told)),
            (Some(why), _) => Error::Stream(why),
            (None, Some(told)) => Error::Stream(Arc::new(told)),
            (None, None) if !gone => self.in_words(error).into(),
            (None, None) => {
                Error::Stream(Arc::new(StreamError::Lost { place: self.place.clone(), source: error.into() }))
            }
        }
    }

    /// For people, who know the stream and not its pipe: of a wait that took too long they are told what keeps it.
    fn in_words(&self, error: PipeError) -> PipeError {
        let (unit, what, waited) = match error {
            PipeError::Port(PortError::Timeout { port: PortName::Pipe(_), unit, what, waited }) => {
                (unit, what, waited)
            }
            PipeError::Refused { reason, .. } => {
                return PipeError::Refused { port: PortName::Stream(self.place.clone()).into(), reason }
            }
            error => return error,
        };
        let status = match &self.gateway {
            None => Some(work::gateway().status()),
            Some((gateway, job)) => control::status_within(gateway, job, WORD).ok(),
        };
        let streams = status.into_iter().flat_map(|status| status.streams);
        let mut kept =
            streams.filter(|stream| stream.name == self.place).filter_map(|stream| match stream.state {
                State::Inactive(WaitsFor::Data) => None,
                State::Inactive(why) => Some(format!(" (the stream: {why})")),
                _ => None,
            });
        let what = match (self.direction, self.opened) {
            (Direction::Receive, false) => "the other end to send something".into(),
            _ => what,
        };
        let what = format!("{what}{}", kept.next().unwrap_or_default()).into();
        PipeError::Port(PortError::Timeout { port: PortName::Stream(self.place.clone()), unit, what, waited })
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
        // What a unit brings its gateway is brought before it leaves; a display has what was shown.
        if let Some(helper) = self.helper.as_ref().filter(|_| !self.reduces) {
            helper.wait(options.timeout, interrupted);
        }
        match self.ended(options.timeout, interrupted) {
            Some(Err(why)) if !matches!(*why, StreamError::Program(_)) => Err(Error::Stream(why)),
            Some(_) => Ok(()),
            None if self.thread.is_none() => Ok(()),
            None => {
                self.stop();
                let what = "the other end to take all steps".into();
                let (port, unit) = (PortName::Stream(self.place.clone()), None);
                let waited = options.timeout.unwrap_or_default();
                Err(PortError::Timeout { port, unit, what, waited }.into())
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
        // It ends with its pipes.
        if let Some(helper) = self.helper.as_ref().filter(|_| self.pid == own_pid()) {
            helper.stop.store(true, Ordering::Relaxed);
        }
        leave(self.pipe.name(), self.unit);
    }
}

/// The gateway that all units know, if it is at a place: they are told there where others are.
fn meets(target: &StreamTarget) -> Option<&GatewayAt> {
    target.gateways.first().filter(|gateway| gateway.place().is_some())
}

/// Says where something is shown: whoever started the program looks there.
fn tell(note: Option<String>) {
    note.into_iter().for_each(|note| eprintln!("polyduct: {note}"));
}

/// What every stream needs of its port's options.
fn check(target: &StreamTarget, direction: Direction, options: &Options) -> Result<(), Error> {
    let misuse = |what: String| Err(Error::Misuse { what });
    if options.readers != Readers::Programs(1) {
        return misuse(format!("{target}: a stream has one reader, its gateway"));
    }
    if matches!(direction, Direction::Transmit)
        && matches!(target.place.protocol, Protocol::Udp | Protocol::Rtp)
        && target.place.host.is_none()
    {
        return misuse(format!(
            "{target}: datagrams go to a host: expected udp://HOST:PORT or rtp://HOST:PORT"
        ));
    }
    if target.part.is_some() && options.policy != Policy::Block {
        return misuse(format!(
            "{target}: parts of a page are in lock step, so that each shows every step: policy \"block\""
        ));
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

/// A stream of plain bytes has one array. Where its size may change each step says how large it is.
fn check_plain(target: &StreamTarget, arrays: &[Array]) -> Result<(), Error> {
    let says = target.place.protocol == Protocol::Tcp && target.form != Form::Raw;
    let why = match arrays {
        [Array { open: Some(Changes::Never), .. }] => "a stream of plain bytes has steps, and no array that is constant",
        [_] if says && target.place.lanes > 1 => "steps whose size may change go over one lane, or by stream://",
        [_] if says => return Ok(()),
        _ => {
            "a stream of plain bytes carries one array without a name, or with a name, so that its size may change, where \
            form=npy or form=length of tcp:// says how large a step is; stream:// and display:// carry several"
        }
    };
    Err(Error::Misuse { what: format!("{target}: {why}") })
}
