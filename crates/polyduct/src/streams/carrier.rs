//! The gateway that a port brings along: a thread of unit 0.

use super::program::{Read, Written};
use super::reach::{self, Inward, Outward};
use super::reducers::{self, Asking, Known};
use super::{show, Form, StreamTarget};
use crate::plain::Steps;
use crate::Error;
use polyduct_display::{Display, DisplayError, ViewInfo};
use polyduct_layout::{Dataset, LayoutError};
use polyduct_message::hash::fnv1a;
use polyduct_message::link::key::Trust;
use polyduct_os::clock;
use polyduct_os::process::own_pid;
use polyduct_pipe::{Given, PipeError, Reader, Writer};
use polyduct_port::{Array, Expect, Interrupt, Options, PortError, Readers, Side, INTERRUPT_SLICE};
use polyduct_store::npy::Header;
use polyduct_stream::gateway::far::wire::Offer;
use polyduct_stream::gateway::lanes::Lanes;
use polyduct_stream::gateway::receive;
use polyduct_stream::gateway::tcp::TcpLanes;
use polyduct_stream::gateway::transmit::{ProgramError, Transmit};
use polyduct_stream::gateway::CAPACITY;
use polyduct_stream::{Adu, Direction, Format, Gateway, Protocol, Spec, StreamError};
use std::collections::BTreeSet;
use std::io::BufReader;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Bytes that move as a unit: what lies in a processor's cache between its copies.
const TU_BYTES: u64 = 256 << 10;
/// The same, and buffers of that, between sites: what long lanes have on the way is kept until it is confirmed.
const FAR: (u64, u32) = (1 << 20, 16);
/// How one unit sees all bytes of an array.
const WHOLE: &str = "stripe(1024MiB)";
/// How long a gateway waits for a program that it has nothing for.
const TELL: Duration = Duration::from_millis(500);
/// How long an error of the pipe waits for the gateway to say why.
const REASON: Duration = Duration::from_secs(2);

/// The gateway of this process.
fn gateway() -> &'static Gateway {
    static GATEWAY: OnceLock<Gateway> = OnceLock::new();
    GATEWAY.get_or_init(|| Gateway::new(CAPACITY))
}

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
    /// Of a port that writes: unit 0 reaches the other end, and begins to carry.
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
        let views = show::announced(given, layout, options);
        if let (Given::Bundle(arrays), true) = (given, target.place.protocol != Protocol::Display) {
            return Err(one_array(&target.to_string(), arrays));
        }
        let mut carrier = Carrier::of(target, Direction::Transmit, options);
        let shows = target.place.protocol == Protocol::Display;
        let known = || show::reduced(given, layout, options.units).filter(|_| shows);
        carrier.reduces = known().is_some();
        if options.unit == 0 {
            let other = reach::outward(target, options, trust)?;
            let (target, options, name) = (target.clone(), gateway_options(options), carrier.name.clone());
            let known = known();
            carrier.start(move |stop| transmit(&target, options, &name, (other, views, known), stop))?;
        }
        if let Some(known) = known() {
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
            let other = reach::inward(target, options, trust)?;
            let (target, options, name) = (target.clone(), gateway_options(options), carrier.name.clone());
            carrier.start(move |stop| receive_steps(&target, options, &name, other, stop))?;
        }
        Ok(carrier)
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

/// What every stream needs of its port's options.
fn check(target: &StreamTarget, options: &Options) -> Result<(), Error> {
    let misuse = |what: String| Err(Error::Misuse { what });
    if options.readers != Readers::Programs(1) {
        return misuse(format!("{target}: a stream has one reader, its gateway"));
    }
    Ok(())
}

/// Options of the gateway's end of the pipe.
fn gateway_options(options: &Options) -> Options {
    Options {
        unit: 0,
        units: 1,
        program: "gateway".into(),
        depth: 2,
        timeout: None,
        interrupt: None,
        ..options.clone()
    }
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

/// What goes before each step.
fn prefix(form: Form, dataset: &Dataset) -> Vec<u8> {
    match form {
        Form::Raw => Vec::new(),
        Form::Npy => {
            let header = Header::of_steps(dataset, None, 1, false);
            header.print(header.len_bytes()).unwrap_or_default()
        }
        Form::Length => dataset.len_bytes().to_le_bytes().to_vec(),
    }
}

fn transmit(
    target: &StreamTarget,
    mut options: Options,
    name: &str,
    (outward, views, known): (Outward, Vec<ViewInfo>, Option<Vec<Known>>),
    stop: &Arc<AtomicBool>,
) -> Result<(), StreamError> {
    let asked = stop.clone();
    options.interrupt = Some(Arc::new(move || asked.load(Ordering::Relaxed)));
    let again = || stop.load(Ordering::Relaxed);
    let outward = match outward {
        Outward::Display(display) => {
            return display_steps(target, &options, name, (&display, views, known), &again)
        }
        lanes => lanes,
    };
    let reader = Reader::open(name, WHOLE, &Expect::default(), &options).map_err(program)?;
    let dataset = *reader.dataset();
    match outward {
        Outward::Display(_) => Ok(()),
        Outward::Tcp(sockets) => {
            let lanes = TcpLanes::new(target.to_string(), sockets);
            carry(target, reader, lanes, (TU_BYTES, 2), &again)
        }
        Outward::Far(mut lanes) => {
            lanes.offer(Offer { shape: dataset.shape().to_vec(), elem: dataset.elem().to_string() });
            carry(target, reader, *lanes, FAR, &again)
        }
    }
}

fn display_steps(
    target: &StreamTarget,
    options: &Options,
    name: &str,
    (display, views, known): (&Display, Vec<ViewInfo>, Option<Vec<Known>>),
    again: &dyn Fn() -> bool,
) -> Result<(), StreamError> {
    let place = target.to_string();
    let listen = |e: DisplayError| StreamError::Listen {
        place: place.clone(),
        source: std::io::Error::other(e.to_string()),
    };
    let one = views.iter().any(|view| view.name.is_empty());
    let opened = match one {
        true => Reader::open(name, WHOLE, &Expect::default(), options),
        false => Reader::open_arrays(name, &show::everything(), options),
    };
    let mut reader = opened.map_err(program)?;
    let entered = display.enter(&target.name, views).map_err(listen);
    let screen = entered.inspect_err(|_| reader.abort())?;
    let most = if known.is_some() { reducers::MOST } else { reader.local_len_bytes() as u64 };
    let format = Format::new(Adu::Changing { most }, 1, 1, 1)?;
    // Two frames of it may be on the way to each viewer, and are shared by all.
    let lease = gateway().register(&place, Gateway::usual(Direction::Transmit, format));
    let shown = lease.map_err(Into::into).and_then(|lease| match known {
        None => show::run(&mut reader, &screen, &lease, again),
        Some(known) => {
            let mut asking = Asking::open(name, known, options)?;
            let shown = show::run_reduced(&mut reader, &mut asking, &screen, &lease, again);
            match &shown {
                Ok(()) => asking.close(),
                Err(_) => asking.abort(),
            }
            shown
        }
    });
    match &shown {
        Ok(()) => drop(reader.close()),
        Err(error) => {
            screen.lost(&error.to_string());
            reader.abort();
        }
    }
    shown
}

fn carry<L: Lanes>(
    target: &StreamTarget,
    reader: Reader,
    lanes: L,
    (tu, buffers): (u64, u32),
    again: &dyn Fn() -> bool,
) -> Result<(), StreamError> {
    let (dataset, su) = (*reader.dataset(), target.place.su);
    let count = lanes.count();
    let source = Written::new(reader, tu.max(su * u64::from(count)));
    let tu = source.tu_bytes();
    // One lane has a unit as a whole.
    let su = if count == 1 && !lanes.confirms() { tu } else { su };
    let format = Format::new(Adu::Fixed(dataset.len_bytes()), tu, su, count)?;
    let lease = gateway().register(&target.to_string(), |connection| Spec {
        buffers,
        ..Spec::new(connection, Direction::Transmit, format)
    })?;
    let prefix = prefix(target.form, &dataset);
    let mut transmit = Transmit::new((source, lanes), lease, prefix, (format, buffers), again);
    let moved = transmit.run();
    match &moved {
        Ok(_) => drop(transmit.source.reader().close()),
        Err(_) => transmit.source.reader().abort(),
    }
    moved.map(drop)
}

fn program(error: PipeError) -> StreamError {
    StreamError::Program(error.into())
}

fn receive_steps(
    target: &StreamTarget,
    mut options: Options,
    name: &str,
    inward: Inward,
    stop: &Arc<AtomicBool>,
) -> Result<(), StreamError> {
    let (place, asked) = (target.to_string(), stop.clone());
    options.interrupt = Some(Arc::new(move || asked.load(Ordering::Relaxed)));
    let again = || stop.load(Ordering::Relaxed);
    let register = |len| {
        let format = Format::new(Adu::Fixed(len), TU_BYTES, TU_BYTES, 1)?;
        gateway().register(&place, Gateway::usual(Direction::Receive, format))
    };
    match inward {
        Inward::Tcp(socket) => {
            let input =
                BufReader::with_capacity(64 << 10, receive::Incoming::new(socket, place.clone(), &again));
            let begun = match target.form {
                Form::Length => Ok(Steps::with_lengths(input)),
                Form::Raw | Form::Npy => Steps::begin(input),
            };
            let mut steps = begun.map_err(|e| {
                give_up(name, &options);
                StreamError::Content { place: place.clone(), step: 0, source: e.into() }
            })?;
            let (given, layout) = match steps.header() {
                Some(header) => (Given::Dataset(header.dataset), header.layout()),
                None => (Given::ByReader, WHOLE.to_owned()),
            };
            let mut sink = Read(Writer::open(name, &given, &layout, &options).map_err(program)?);
            let len = sink.0.local_len_bytes() as u64;
            steps.are_of(len);
            let moved = receive::run(&mut Plain(steps), &mut sink, &register(len)?, (&place, len), &again);
            sink.end(moved.is_ok());
            moved.map(drop)
        }
        Inward::Far(meets) => {
            let met = meets(&again).and_then(|steps| Ok((offered(&place, steps.offer())?, steps)));
            let (dataset, mut steps) = met.inspect_err(|_| give_up(name, &options))?;
            let opened = Writer::open(name, &Given::Dataset(dataset), WHOLE, &options).map_err(program);
            let mut sink = Read(opened.inspect_err(|e| steps.abort(&e.to_string()))?);
            steps.are_of(dataset.len_bytes());
            let moved = steps.run(&mut sink, &register(dataset.len_bytes())?, &again);
            sink.end(moved.is_ok());
            if moved.is_ok() {
                steps.done();
            }
            moved.map(drop)
        }
    }
}

/// The array that the other site says it brings.
fn offered(place: &str, offer: Option<&Offer>) -> Result<Dataset, StreamError> {
    let wrong = |why: String| StreamError::Content { place: place.to_owned(), step: 0, source: why.into() };
    let offer = offer.ok_or_else(|| wrong("no array".into()))?;
    let elem = offer.elem.parse().map_err(|e: LayoutError| wrong(e.to_string()))?;
    Dataset::new(&offer.shape, elem).map_err(|e| wrong(e.to_string()))
}

/// Tells a program that waits for its gateway that nothing will come.
fn give_up(name: &str, options: &Options) {
    // Those that cannot be told have an error of their own.
    let options = Options { open_timeout: TELL, ..options.clone() };
    if let Ok(mut writer) = Writer::open(name, &Given::ByReader, WHOLE, &options) {
        writer.abort();
    }
}

struct Plain<R>(Steps<R>);

impl<R: std::io::BufRead> receive::Steps for Plain<R> {
    fn open(&mut self) -> Result<bool, ProgramError> {
        Ok(self.0.next_step()?)
    }

    fn fill(&mut self, part: &mut [u8]) -> Result<(), ProgramError> {
        Ok(self.0.fill(part)?)
    }
}

/// One array without a name is what a stream of plain bytes has.
fn one_array(place: &str, arrays: &[Array]) -> Error {
    let what = format!("{place}: a stream of plain bytes carries one array, not {} with names", arrays.len());
    Error::Misuse { what }
}
