//! Endpoints that reach each other by their [places](Place): there is no name, no number of units, no meeting
//! of all. Whatever starts the programs tells them each other's places; links are made when first used.
//!
//! For those who bring a message model of their own, as MPI's libraries do: an endpoint matches nothing, keeps
//! nothing and never waits. Two endpoints of a host share memory; the one that first sends makes the link,
//! hands it over, and sends at once. Those of other hosts use the network, where a job key is set.
//!
//! Messages come in two kinds. [Short](Endpoint::send) ones go whole or not at all, in order; a
//! [stream](Endpoint::stream) of bytes of any length goes beside them as fast as the other end takes it, and
//! does not hold them up.

mod door;
mod far;
mod near;
mod place;
mod stream;

/// Copies the bytes of a message.
pub use crate::link::shm::copy_bytes;
pub use far::{Lent, Network, ADDRESS_VARIABLE, NEAR_VARIABLE};
pub use place::{Place, PLACE_BYTES};
/// The clock of deadlines.
pub use polyduct_os::clock;
/// A piece of memory.
pub use polyduct_os::remote::Piece;
/// What the system refuses.
pub use polyduct_os::OsError;
pub use stream::Stream;

use crate::domain::host_map::HostId;
use crate::engine;
use crate::link::shm::{Bell, Incoming, Link, Payload, Receiver, SendError, Sender, Sizes};
use crate::types::{ChannelId, Head, Priority};
use crate::MessageError;
use door::{Arrival, Door};
use far::Far;
use near::Lack;
use polyduct_os::process::PidFd;
use polyduct_os::spin::Spin;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What an endpoint calls another: numbered as they become known.
pub type Number = u32;

/// Payload of a short message, at most, wherever it goes.
pub const SHORT_BYTES: usize = 8 << 10;
/// Short messages go here, in order.
const SHORT: (ChannelId, Priority) = (ChannelId(0), Priority::High);
/// Streams go here.
const STREAM: (ChannelId, Priority) = (ChannelId(1), Priority::Low);
/// How long a wait spins before it sleeps, at most.
const SPIN: Duration = Duration::from_micros(50);

/// The sizes of a link between two endpoints of a host.
fn sizes() -> Sizes {
    Sizes {
        high_lines: 1024,
        low_lines: 256,
        high_bytes: 1 << 20,
        low_bytes: 4 << 20,
        whole_bytes: SHORT_BYTES as u32,
        ..Sizes::default()
    }
}

/// How another endpoint is reached.
enum Way {
    /// It is this one.
    Itself,
    /// By shared memory; the senders once there is a link.
    Near(Option<Box<Out>>),
    /// By the network, which knows it by this number.
    Far(u32),
    /// Not at all: it is on another host, and one of the two has no network.
    Nowhere,
}

struct Out {
    short: Sender,
    stream: Sender,
}

struct Peer {
    /// Not known of one that came over the network and whose place nobody has told.
    place: Option<Place>,
    way: Way,
    /// The links with it: its own, and this one's.
    links: Vec<Link>,
    process: Option<PidFd>,
    gone: Gone,
    /// It is not heard any more.
    is_cut: bool,
    /// What the system has not given for a link with it.
    lack: Lack,
}

impl Peer {
    fn new(place: Option<Place>, way: Way) -> Peer {
        let (links, process, gone, lack) = (Vec::new(), None, Gone::No, Lack::default());
        Peer { place, way, links, process, gone, is_cut: false, lack }
    }

    /// Whether it is gone and another life of it may come, as of one at a port.
    fn is_over(&self) -> bool {
        self.gone == Gone::Told && !self.is_cut
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    No,
    /// What it sent before may still lie there.
    Noticed,
    Told,
}

struct Inward<B> {
    from: Number,
    receiver: Receiver<B>,
    is_broken: bool,
    /// What is next there was refused.
    is_stuck: bool,
}

/// What came from this endpoint itself.
type Loop = VecDeque<(Head, Vec<u8>)>;

/// An endpoint. `B` is what the caller gives for long messages to be put into.
pub struct Endpoint<B: AsMut<[u8]> + Send + 'static> {
    place: Place,
    // In this order: nobody comes any more when the network ends.
    door: Option<Door>,
    net: Option<Far<B>>,
    waiter: Arc<Waiter>,
    peers: Vec<Peer>,
    by_draw: FxHashMap<u64, Number>,
    by_unit: FxHashMap<u32, Number>,
    inward: Vec<Inward<B>>,
    itself: Loop,
    gone: VecDeque<Number>,
}

/// What became of something that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it is on its way, and its memory the caller's again.
    All,
    /// Not all: again when something was received, or a moment later.
    Later,
    /// Never: the other end is gone, or cannot be reached.
    Gone,
}

impl<B: AsMut<[u8]> + Send + 'static> Drop for Endpoint<B> {
    fn drop(&mut self) {
        self.peers.iter().flat_map(|peer| &peer.links).for_each(Link::withdraw);
    }
}

impl<B: AsMut<[u8]> + Send + 'static> Endpoint<B> {
    /// An endpoint that others may reach: those who are told its place, or, where it is opened at a
    /// [port](Place::of_port), all. `give` is asked, in a thread of the network, for the buffer of what comes
    /// from other hosts.
    ///
    /// # Errors
    /// What the system refuses; the port is taken.
    pub fn open(
        network: Option<Network>,
        port: Option<&Place>,
        give: impl FnMut(u32, &engine::Incoming) -> Option<B> + Send + 'static,
    ) -> Result<Endpoint<B>, MessageError> {
        let drawn = Place::drawn()?;
        let named = port.unwrap_or(&drawn);
        let bell = Arc::new(Bell::create(1)?);
        // Where the system does not say which host this is, all others are far.
        let host = HostId::of_this_process(network.as_ref().map_or(0, |network| network.apart));
        let port = named.at.map_or(0, |at| at.port());
        let net = network.map(|network| Far::start(&network, port, named.unit, &bell, give)).transpose()?;
        let at = net.as_ref().map(Far::listens_at);
        let place = Place { host, at, ..*named };
        let _ = polyduct_os::remote::permit_readers();
        let door = host.map(|_| Door::open(&place, sizes(), bell.clone())).transpose()?;
        let waiter = Arc::new(Waiter { bell, spin: Spin::new(SPIN) });
        Ok(Endpoint {
            place,
            door,
            net,
            waiter,
            peers: Vec::new(),
            by_draw: FxHashMap::default(),
            by_unit: FxHashMap::default(),
            inward: Vec::new(),
            itself: Loop::new(),
            gone: VecDeque::new(),
        })
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The number by which the network knows a peer, where that is how it is reached.
    pub fn unit_of(&self, peer: Number) -> Option<u32> {
        match self.peers.get(peer as usize)?.way {
            Way::Far(unit) => Some(unit),
            _ => None,
        }
    }

    /// Where an endpoint of another host was, and why it is gone, where that is known.
    pub fn why_gone(&self, peer: Number) -> Option<String> {
        let why = self.net.as_ref()?.why(self.unit_of(peer)?)?;
        match self.peers.get(peer as usize)?.place?.at {
            Some(at) => Some(format!("{at}: {why}")),
            None => Some(why),
        }
    }

    /// The number of the endpoint at a place, from now on. Reaches nobody yet.
    ///
    /// # Errors
    /// [`MessageError::NameTaken`] where another has drawn the number by which the network knows it.
    pub fn peer(&mut self, place: &Place) -> Result<Number, MessageError> {
        match self.by_draw.get(&place.draw) {
            Some(&number) if self.peers[number as usize].is_over() => self.let_go(number),
            Some(&number) => return Ok(number),
            // What would be taken for this one.
            None if place.draw == self.place.draw && !self.is_at(place) => {
                return Err(MessageError::NameTaken { domain: "this endpoint".into(), unit: place.unit })
            }
            None => {}
        }
        let way = match (self.is_at(place), place.host) {
            (true, _) => Way::Itself,
            (_, Some(host)) if self.place.host == Some(host) => Way::Near(None),
            _ if self.net.is_some() && place.at.is_some() => Way::Far(place.unit),
            _ => Way::Nowhere,
        };
        if let (Way::Far(_), Some(net), Some(at)) = (&way, &self.net, place.at) {
            match self.by_unit.get(&place.unit) {
                // It came before its place was told.
                Some(&number) if self.peers[number as usize].place.is_none() => {
                    net.introduce(place.unit, at);
                    self.peers[number as usize].place = Some(*place);
                    self.by_draw.insert(place.draw, number);
                    return Ok(number);
                }
                Some(_) => {
                    return Err(MessageError::NameTaken { domain: "the network".into(), unit: place.unit })
                }
                None => {
                    net.introduce(place.unit, at);
                    self.by_unit.insert(place.unit, self.peers.len() as Number);
                }
            }
        }
        self.by_draw.insert(place.draw, self.peers.len() as Number);
        Ok(self.add(Some(*place), way))
    }

    /// Whether that is its place, as far as others are told of it.
    fn is_at(&self, place: &Place) -> bool {
        let elsewhere = place.host.zip(self.place.host).is_some_and(|(there, here)| there != here);
        place.is_same(&self.place) && !elsewhere
    }

    /// The place of a peer that is gone may be another's from now on.
    fn let_go(&mut self, number: Number) {
        self.by_draw.retain(|_, known| *known != number);
        self.by_unit.retain(|_, known| *known != number);
        if let (Way::Far(unit), Some(net)) = (&self.peers[number as usize].way, &self.net) {
            net.forget(*unit);
        }
    }

    fn add(&mut self, place: Option<Place>, way: Way) -> Number {
        self.peers.push(Peer::new(place, way));
        self.peers.len() as Number - 1
    }

    /// Whether a peer shares memory with this endpoint, or is it.
    pub fn is_near(&self, peer: Number) -> bool {
        matches!(self.peers[peer as usize].way, Way::Near(_) | Way::Itself)
    }

    /// Whether a peer is this very endpoint.
    pub fn is_itself(&self, peer: Number) -> bool {
        matches!(self.peers[peer as usize].way, Way::Itself)
    }

    /// Sends a short message, of [`SHORT_BYTES`] at most: all of it, or nothing.
    #[inline]
    pub fn send(&mut self, to: Number, head: Head, payload: &[u8]) -> Sent {
        debug_assert!(payload.len() <= SHORT_BYTES);
        let peer = &mut self.peers[to as usize];
        if let Way::Near(Some(out)) = &mut peer.way {
            if peer.gone == Gone::No {
                match out.short.send(head, payload) {
                    Ok(_) => return Sent::All,
                    Err(SendError::Full) => return Sent::Later,
                    Err(_) => self.note_gone(to),
                }
            }
        }
        self.send_first(to, head, payload)
    }

    #[cold]
    fn send_first(&mut self, to: Number, head: Head, payload: &[u8]) -> Sent {
        let peer = &mut self.peers[to as usize];
        match peer.gone {
            Gone::No => {}
            // What it sent is received first, and then it is told as gone.
            Gone::Noticed => return Sent::Later,
            Gone::Told => return Sent::Gone,
        }
        match peer.way {
            Way::Itself => {
                self.itself.push_back((head, payload.to_vec()));
                Sent::All
            }
            Way::Near(_) => match self.connect(to) {
                Sent::All => self.send(to, head, payload),
                other => other,
            },
            Way::Far(unit) => match &self.net {
                Some(net) => net.send(unit, head, payload),
                None => Sent::Gone,
            },
            Way::Nowhere => Sent::Gone,
        }
    }

    /// Whether there is nothing to do for certain, as it is for most looks of one who waits: nothing has come
    /// and nobody is gone, of endpoints of this host alone. If so, that was a look as
    /// [`poll`](Endpoint::poll) is one.
    #[inline]
    pub fn is_idle(&mut self) -> bool {
        self.net.is_none()
            && self.itself.is_empty()
            && self.gone.is_empty()
            && !self.door.as_ref().is_some_and(Door::has_news)
            && self.inward.iter_mut().all(|inward| inward.is_broken || inward.receiver.is_idle())
    }

    /// Handles what has come. Returns how much that was. `give` and `deliver` are as of
    /// [`Receiver::poll`], with who sent it.
    #[inline]
    pub fn poll(
        &mut self,
        give: &mut impl FnMut(Number, &Incoming) -> Option<B>,
        deliver: &mut impl FnMut(Number, &Incoming, Payload<'_, B>) -> bool,
    ) -> usize {
        if self.door.as_ref().is_some_and(Door::has_news) {
            self.take_news();
        }
        let (mut found, mut broken) = (0, Vec::new());
        for inward in self.inward.iter_mut().filter(|inward| !inward.is_broken) {
            let from = inward.from;
            let polled =
                inward.receiver.poll(&mut |m| give(from, m), &mut |m, payload| deliver(from, m, payload));
            match polled {
                Ok(records) => {
                    found += records;
                    inward.is_stuck = records == 0 && !inward.receiver.is_empty();
                }
                Err(error) => {
                    tracing::warn!(%error, "an endpoint broke the protocol");
                    inward.is_broken = true;
                    inward.receiver.forget_all();
                    broken.push(from);
                }
            }
        }
        broken.into_iter().for_each(|from| self.note_gone(from));
        if self.net.is_some() || !self.itself.is_empty() {
            found += self.poll_others(deliver);
        }
        found
    }

    fn poll_others(&mut self, deliver: &mut impl FnMut(Number, &Incoming, Payload<'_, B>) -> bool) -> usize {
        let mut found = 0;
        let Endpoint { itself, net, by_unit, peers, place, by_draw, .. } = self;
        while let Some((head, payload)) = itself.front() {
            let (channel, priority) = SHORT;
            let incoming =
                Incoming { channel, priority, head: *head, len: payload.len() as u64, holds_up: false };
            let Some(&me) = by_draw.get(&place.draw) else { break };
            if !deliver(me, &incoming, Payload::Bytes(payload)) {
                break;
            }
            itself.pop_front();
            found += 1;
        }
        let Some(net) = net else { return found };
        let mut number = |unit: u32| {
            match by_unit.get(&unit) {
                Some(&number) if !peers[number as usize].is_over() => number,
                known => {
                    // Another life of one that is gone is where that was.
                    let place = known.and_then(|&number| peers[number as usize].place);
                    peers.push(Peer::new(place, Way::Far(unit)));
                    let number = peers.len() as Number - 1;
                    by_unit.insert(unit, number);
                    place.map(|place| by_draw.insert(place.draw, number));
                    number
                }
            }
        };
        let mut gone = Vec::new();
        found += net
            .poll(&mut |unit, incoming, payload| deliver(number(unit), incoming, payload), &mut |unit| {
                gone.push(unit)
            });
        for unit in gone {
            if let Some(&number) = self.by_unit.get(&unit) {
                self.note_gone(number);
            }
        }
        found
    }

    fn take_news(&mut self) {
        let news = self.door.as_ref().map(Door::news).unwrap_or_default();
        for arrival in news {
            match arrival {
                // Nobody else is this endpoint.
                Arrival::Link { place, .. } if self.is_at(&place) => {}
                Arrival::Link { place, link, process } => {
                    let Ok(from) = self.peer(&place) else { continue };
                    if let Some(process) = process {
                        // Where this process may not read the partner's memory, all goes through the rings.
                        if let Ok(process) = process.try_clone() {
                            let _ = link.pull_from(process);
                        }
                        self.peers[from as usize].process = Some(process);
                    }
                    self.take_link(from, link);
                }
                Arrival::Bell { draw, bell, process } => {
                    if let Some(&number) = self.by_draw.get(&draw) {
                        let known = &mut self.peers[number as usize].process;
                        *known = known.take().or(process);
                        let bell = Arc::new(bell);
                        self.peers[number as usize]
                            .links
                            .iter()
                            .for_each(|link| link.ring_at(bell.clone(), 0));
                        // What was sent before has not rung.
                        bell.calls().ring();
                    }
                }
                // Its own is said by nobody but strangers.
                Arrival::Gone(draw) if draw == self.place.draw => {}
                Arrival::Gone(draw) => {
                    if let Some(&number) = self.by_draw.get(&draw) {
                        self.note_gone(number);
                    }
                }
            }
        }
    }

    fn note_gone(&mut self, number: Number) {
        let peer = &mut self.peers[number as usize];
        if peer.gone == Gone::No {
            peer.gone = Gone::Noticed;
            self.gone.push_back(number);
        }
    }

    /// Has nothing more to do with a peer: what it sent is not received any more, and it is told as
    /// [gone](Endpoint::take_gone).
    pub fn cut(&mut self, number: Number) {
        for inward in self.inward.iter_mut().filter(|inward| inward.from == number) {
            inward.is_broken = true;
            inward.receiver.forget_all();
        }
        let peer = &mut self.peers[number as usize];
        peer.is_cut = true;
        peer.links.iter().for_each(Link::withdraw);
        self.note_gone(number);
    }

    /// One that is gone, once, after all that came from it was received.
    pub fn take_gone(&mut self) -> Option<Number> {
        let brings_more = |number: Number| {
            let mut of_it = self.inward.iter().filter(|inward| inward.from == number && !inward.is_broken);
            of_it.any(|inward| !inward.receiver.is_empty() && !inward.is_stuck)
        };
        let at = self.gone.iter().position(|&number| !brings_more(number))?;
        let number = self.gone.remove(at)?;
        self.inward.retain(|inward| inward.from != number);
        self.peers[number as usize].gone = Gone::Told;
        Some(number)
    }

    /// Who waits for what comes here, without the endpoint.
    pub fn waiter(&self) -> Arc<Waiter> {
        self.waiter.clone()
    }

    /// Whether something lies here that was not received, though there may have been no room for it.
    pub fn has_come(&self) -> bool {
        let lies = |inward: &Inward<B>| !inward.is_broken && !inward.is_stuck && !inward.receiver.is_empty();
        !self.itself.is_empty() || !self.gone.is_empty() || self.inward.iter().any(lies)
    }

    /// What comes from now on wakes the [waiter](Endpoint::waiter). What came before must have been received.
    pub fn ask_for_call(&mut self) {
        self.inward.iter_mut().for_each(|inward| inward.receiver.ask_for_call());
        self.net.iter().for_each(Far::rest);
    }
}

/// Waits for what comes to an endpoint, which others may use meanwhile.
pub struct Waiter {
    bell: Arc<Bell>,
    spin: Spin,
}

impl Waiter {
    /// Calls `ready` until it gives something: for a moment, then after each sleep. `None` at `deadline`, a
    /// time of [`clock::now`]. `ready` [polls](Endpoint::poll) the endpoint; `arm` is called before each
    /// sleep and [asks for calls](Endpoint::ask_for_call).
    pub fn wait<T>(
        &self,
        deadline: Duration,
        mut ready: impl FnMut() -> Option<T>,
        mut arm: impl FnMut(),
    ) -> Option<T> {
        self.bell.wait(&mut (), &self.spin, deadline, |()| ready(), |()| arm())
    }
}
