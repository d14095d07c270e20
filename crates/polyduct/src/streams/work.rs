//! What a gateway does for one stream, be it a thread of the program or a process of its own.

use super::called::GatewayAt;
use super::control::Sought;
use super::inward::receive_steps;
use super::meet::Pipe;
use super::program::Written;
use super::reach::{self, Inward, Outward};
use super::screen::Screen;
use super::{bundles, page, show, StreamTarget};
use crate::Error;
use polyduct_layout::{Dataset, ElemType, LayoutError};
use polyduct_message::link::key::Trust;
use polyduct_message::meeting::Within;
use polyduct_pipe::{PipeError, Reader};
use polyduct_port::{Array, Changes, Expect, Interrupt, Options, Policy, MAX_ARRAYS, MAX_UNITS};
use polyduct_store::npy::descr;
use polyduct_stream::format::MAX_LANES;
use polyduct_stream::gateway::lanes::Lanes;
use polyduct_stream::gateway::tcp::TcpLanes;
use polyduct_stream::gateway::transmit::Transmit;
use polyduct_stream::gateway::udp::{UdpLanes, Video, VIDEO_MOST};
use polyduct_stream::gateway::window::{Head, Window};
use polyduct_stream::gateway::{Lease, CAPACITY};
use polyduct_stream::{Adu, Direction, Format, Gateway, Protocol, Share, StreamError};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes that move as a unit: what lies in a processor's cache between its copies.
pub(super) const TU_BYTES: u64 = 256 << 10;
/// The same, and buffers of that, between sites: what long lanes have on the way is kept until it is confirmed.
const FAR: (u64, u32) = (1 << 20, 16);
/// Bytes of a striping unit, at most.
const MOST_SU: u64 = 64 << 20;
/// How one unit sees all bytes of an array.
pub(super) const WHOLE: &str = "stripe(1024MiB)";
/// The gateway of this process.
pub fn gateway() -> &'static Gateway {
    static GATEWAY: OnceLock<Gateway> = OnceLock::new();
    GATEWAY.get_or_init(|| Gateway::new(CAPACITY))
}

/// An array: name, shape, type, layout, what changes.
type Brings = (String, Vec<u64>, String, String, Option<Changes>);

/// A stream that a gateway is to carry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Where, and how.
    pub target: StreamTarget,
    /// Whether the program writes.
    pub transmits: bool,
    /// The pipe between the program and the gateway.
    pub pipe: String,
    /// The job that its name belongs to.
    pub job: String,
    /// How long the other end, and the program, are waited for.
    pub open: Duration,
    /// What the program brings, where that is known: name, shape, type, layout, what changes.
    pub brings: Vec<Brings>,
    /// Whether the program waits for each of its steps to be taken: none is dropped.
    pub blocks: bool,
    /// The program's units.
    pub units: u32,
    /// What of it the gateway carries.
    pub share: Share,
    /// The gateway that says where that pipe is, if both need not be on one host, and what unit 0 has drawn.
    pub meets: Option<(GatewayAt, Option<u64>)>,
}

/// The other end, which has been reached.
enum Way {
    /// Where steps go.
    Out(Outward),
    /// Where they are shown.
    Show(Screen),
    /// Where they come from.
    In(Inward),
}

/// A stream whose other end has been reached, and that has its place among the others.
pub struct Reached {
    way: Way,
    /// That place.
    pub lease: Lease,
}

impl Job {
    /// Of a program with these options.
    pub fn new(
        target: &StreamTarget,
        transmits: bool,
        pipe: &str,
        arrays: &[Array],
        options: &Options,
    ) -> Job {
        let one = |array: &Array| {
            let Array { name, dataset, layout, open } = array.clone();
            (name, dataset.shape().to_vec(), dataset.elem().to_string(), layout, open)
        };
        Job {
            target: target.clone(),
            transmits,
            pipe: pipe.to_owned(),
            job: options.job.clone(),
            open: options.open_timeout,
            brings: arrays.iter().map(one).collect(),
            blocks: options.policy == Policy::Block,
            units: options.units,
            share: Share::ALL,
            meets: None,
        }
    }

    /// The pipe between the program and the gateway.
    ///
    /// # Errors
    /// [`StreamError::NoGatewayThere`]; [`StreamError::System`] for a gateway without a key.
    pub(super) fn between(&self, again: &dyn Fn() -> bool) -> Result<Pipe, StreamError> {
        let Some((meets, drawn)) = &self.meets else { return Ok(Pipe::Here(self.pipe.clone())) };
        let trust = Trust::from_env();
        let trust =
            trust.map_err(|e| StreamError::System { what: format!("the gateway has no key: {e}") })?;
        let place = self.target.to_string();
        let sought = Sought { job: self.job.clone(), pipe: self.pipe.clone(), drawn: *drawn };
        Pipe::there(sought, (meets, &place), &trust, Within { most: self.open, gives_up: again })
    }

    /// The shares of so many gateways, each with as many lanes: of as many as can have one. One gateway has what is not cut
    /// into stripes for lanes that this side makes, and what has to do with other streams.
    pub fn shares(&self, gateways: u32) -> Vec<Share> {
        let StreamTarget { place, ties, .. } = &self.target;
        let elem = match &self.brings[..] {
            [(name, _, elem, _, None)] if name.is_empty() => elem.parse::<ElemType>().ok(),
            _ => None,
        };
        let tied = ties.group.is_some() || ties.connection.is_some() || ties.after.is_some();
        let cut = matches!(place.protocol, Protocol::Tcp | Protocol::Far) && place.host.is_some();
        let Some(elem) = elem.filter(|_| self.transmits && cut && !tied) else { return vec![Share::ALL] };
        let block = |of: u32| match place.protocol {
            // Where the other end counts, a block is a unit for each lane.
            Protocol::Tcp => place.su * u64::from(place.lanes / of),
            _ => (FAR.0 / place.su).max(1) * place.su,
        };
        let can = |of: &u32| place.lanes.is_multiple_of(*of) && block(*of).is_multiple_of(elem.len_bytes());
        let of = (2..=gateways.min(place.lanes)).rev().find(can).unwrap_or(1);
        match of {
            1 => vec![Share::ALL],
            of => (0..of).map(|index| Share { index, of, block: block(of) }).collect(),
        }
    }

    /// Whether a gateway can carry it: what a program says may be anything.
    ///
    /// # Errors
    /// [`StreamError::System`] with what cannot be.
    pub fn check(&self) -> Result<(), StreamError> {
        let Job { target: StreamTarget { place, ties, .. }, share, units, brings, .. } = self;
        let apart = self.transmits && matches!(place.protocol, Protocol::Tcp | Protocol::Far);
        let shared = (2..=place.lanes).contains(&share.of) && place.lanes.is_multiple_of(share.of);
        let wrong = if !(1..=MAX_LANES).contains(&place.lanes) || !(1..=MOST_SU).contains(&place.su) {
            "its lanes and striping units"
        } else if *share != Share::ALL && !(apart && shared && share.index < share.of && share.block > 0) {
            "its share among gateways"
        } else if !(1..=MAX_UNITS).contains(units) || brings.len() > MAX_ARRAYS || ties.quantum == 0 {
            "its units and arrays"
        } else if place.protocol == Protocol::Window {
            "a window, which is of its program's own host"
        } else {
            return self.arrays().map(drop);
        };
        Err(StreamError::System { what: format!("{}: the gateway cannot carry this: {wrong}", self.target) })
    }

    pub(super) fn arrays(&self) -> Result<Vec<Array>, StreamError> {
        let wrong = |e: LayoutError| StreamError::System { what: format!("{}: {e}", self.target) };
        let one = |(name, shape, elem, layout, open): &Brings| {
            let dataset = Dataset::new(shape, elem.parse().map_err(wrong)?).map_err(wrong)?;
            Ok(Array { name: name.clone(), dataset, layout: layout.clone(), open: *open })
        };
        self.brings.iter().map(one).collect()
    }

    /// Options of the gateway's end of the pipe.
    pub(super) fn options(&self, pipe: &Pipe) -> Result<Options, StreamError> {
        let Job { job, open, share: Share { index: unit, of: units, .. }, .. } = self;
        let (program, job) = ("gateway".to_owned(), job.clone());
        let own =
            Options { unit: *unit, units: *units, program, job, open_timeout: *open, ..Options::default() };
        pipe.options(own).map_err(|e| StreamError::System { what: e.to_string() })
    }

    /// Reaches the other end. `again` is asked now and then: give up?
    ///
    /// # Errors
    /// [`Error::Stream`] where nobody is there in time, [`Error::Key`] without a key, [`Error::Misuse`].
    pub fn reach(&self, trust: Option<Trust>, again: &dyn Fn() -> bool) -> Result<Reached, Error> {
        let within = Within { most: self.open, gives_up: again };
        let (way, direction) = match self.transmits {
            true => (Way::Out(reach::outward(&self.target, self.share, trust, within)?), Direction::Transmit),
            false => (Way::In(reach::inward(&self.target, trust, within)?), Direction::Receive),
        };
        let (place, ties) = (self.target.to_string(), page::ties(&self.target));
        let lease = gateway().enter(&place, direction, &ties).map_err(StreamError::from)?;
        let way = match way {
            // It is there before people are told where.
            Way::Out(Outward::Display(display)) => {
                let screen = Screen::enter(self, display, &lease);
                // Another program has its name, and what that shows goes on.
                Way::Show(screen.inspect_err(|_| lease.withdraw())?)
            }
            way => way,
        };
        Ok(Reached { way, lease })
    }

    /// What people are to know of the other end: where something is shown.
    pub fn note(&self, reached: &Reached) -> Option<String> {
        match &reached.way {
            Way::Show(screen) => Some(screen.note(self)),
            Way::Out(_) | Way::In(_) => None,
        }
    }

    /// Carries until the stream ends, or `stop` is set.
    ///
    /// # Errors
    /// What ended it before.
    pub fn run(&self, reached: Reached, stop: &Arc<AtomicBool>) -> Result<(), StreamError> {
        let Reached { way, lease } = reached;
        let (stop, stopped) = (stop.clone(), lease.watch());
        let again: Interrupt = Arc::new(move || stop.load(Ordering::Relaxed) || stopped());
        let carried = match way {
            Way::Show(screen) => screen.run(self, &lease, &again),
            Way::Out(outward) => transmit(self, outward, &lease, &again),
            Way::In(inward) => receive_steps(self, inward, &lease, &again),
        };
        // Whatever came of it is for that reason.
        let carried = carried.or_else(|error| lease.check_given_up().and(Err(error)));
        lease.end(&carried);
        carried
    }
}

fn transmit(job: &Job, outward: Outward, lease: &Lease, again: &Interrupt) -> Result<(), StreamError> {
    let (target, pipe) = (&job.target, &job.between(&**again)?);
    let mut options = job.options(pipe)?;
    options.interrupt = Some(again.clone());
    let arrays = job.arrays()?;
    let named = arrays.iter().any(|array| !array.name.is_empty());
    let opened = match named {
        true => Reader::open_arrays(pipe, &show::everything(), &options),
        false => {
            let blocks = format!("stripe({})", job.share.block);
            let layout = if job.share.is_all() { WHOLE } else { &blocks };
            Reader::open(pipe, layout, &Expect::default(), &options)
        }
    };
    let mut reader = opened.map_err(program)?;
    let dataset = *reader.dataset();
    let fixed = Adu::Fixed(reader.local_len_bytes() as u64);
    match outward {
        Outward::Display(_) => Ok(()),
        Outward::Tcp(sockets) => {
            let lanes = TcpLanes::new(target.to_string(), sockets);
            // One that has a name may change its size.
            let all = bundles::given(&bundles::offer(&arrays, job.units)).map(|(_, all)| all);
            let all = all
                .map_err(|e| program(PipeError::from(e)))
                .inspect_err(|e| give_up(&mut reader, lease, e))?;
            let adu = if named { Adu::Changing { most: all.most() } } else { fixed };
            carry(job, reader, lanes, (adu, TU_BYTES, 2), (lease, &**again))
        }
        Outward::Udp(sockets) => {
            let video = video(target, &dataset).inspect_err(|e| give_up(&mut reader, lease, e))?;
            let packet = target.place.su;
            let source = u32::from_le_bytes(reach::draw()?);
            let lanes = UdpLanes::new(target.to_string(), sockets, packet, video, source);
            // Packets do not go across units, whose pixels would be cut.
            let mut job = job.clone();
            job.target.place.su = lanes.unit();
            let whole = (TU_BYTES / lanes.unit()).max(1) * lanes.unit();
            carry(&job, reader, lanes, (fixed, whole, 2), (lease, &**again))
        }
        Outward::Window => {
            let (shape, dtype) = (dataset.shape().to_vec(), descr(dataset.elem()));
            let head = Head { shape, dtype, frame: dataset.len_bytes() };
            let window =
                Window::create(target.name.as_ref(), head).inspect_err(|e| give_up(&mut reader, lease, e))?;
            carry(job, reader, window, (fixed, TU_BYTES, 2), (lease, &**again))
        }
        Outward::Far(mut lanes) => {
            let offer = bundles::offer(&arrays, job.units);
            let checked = bundles::given(&offer).map_err(|e| program(PipeError::from(e)));
            let (_, all) = checked.inspect_err(|e| give_up(&mut reader, lease, e))?;
            let shared = !job.share.is_all();
            lanes.offer(offer, shared.then_some(dataset.len_bytes()));
            carry(job, reader, *lanes, (if shared { fixed } else { all }, FAR.0, FAR.1), (lease, &**again))
        }
    }
}

/// How raw video says what an array is; nothing where the target takes none.
///
/// # Errors
/// [`StreamError::System`] with what it takes.
pub fn video(target: &StreamTarget, dataset: &Dataset) -> Result<Option<Video>, StreamError> {
    if target.place.protocol != Protocol::Rtp {
        return Ok(None);
    }
    match (dataset.shape(), dataset.elem().to_string().as_str()) {
        (&[lines, width, pixel @ 3..=4], "u8" | "u1")
            if lines < VIDEO_MOST.1.into()
                && width < VIDEO_MOST.0.into()
                && target.place.su.is_multiple_of(pixel) =>
        {
            Ok(Some(Video { width: width as u32, pixel: pixel as u32 }))
        }
        (shape, elem) => {
            let what = format!(
                "{target}: raw video has steps of (height, width, 3 or 4) bytes, and packets of whole pixels; this is \
                {elem} of {shape:?} in packets of {}",
                target.place.su
            );
            Err(StreamError::System { what })
        }
    }
}

fn carry<L: Lanes>(
    job: &Job,
    reader: Reader,
    lanes: L,
    (adu, tu, buffers): (Adu, u64, u32),
    (lease, again): (&Lease, &dyn Fn() -> bool),
) -> Result<(), StreamError> {
    let Job { target, share, .. } = job;
    let su = target.place.su;
    let count = lanes.count();
    // It is in front of the first byte.
    let says = (target.place.protocol == Protocol::Tcp && share.index == 0).then_some(target.form);
    let mut source = Written::new(reader, tu.max(su), *share, says);
    let tu = source.tu_bytes();
    // One connection has a unit as a whole.
    let whole = count == 1 && matches!(target.place.protocol, Protocol::Tcp | Protocol::Window);
    let su = if whole { tu } else { su };
    let format = Format::new(adu, tu, su, count).map_err(StreamError::from);
    let ready = format.and_then(|format| lease.ready(format, buffers).map(|()| format));
    let format = ready.inspect_err(|e| give_up(source.reader(), lease, e))?;
    let mut transmit = Transmit::new((source, lanes), lease, (format, buffers), again);
    let moved = transmit.run();
    match &moved {
        Ok(_) => drop(transmit.source.reader().close()),
        Err(error) => give_up(transmit.source.reader(), lease, error),
    }
    moved.map(drop)
}

/// Leaves the program, all of whose units hear why.
fn give_up(reader: &mut Reader, lease: &Lease, error: &StreamError) {
    reader.abort_because(&why(lease, error));
}

/// What a program is told of an error: that its stream is to be given up, if it is, since whatever came is for that
/// reason.
pub(super) fn why(lease: &Lease, error: &StreamError) -> String {
    lease.check_given_up().err().map_or_else(|| error.to_string(), |e| e.to_string())
}

pub(super) fn program(error: PipeError) -> StreamError {
    StreamError::Program(error.into())
}
