//! What an endpoint of libfabric's does, on an endpoint of messages: finds receives for messages, sends long
//! ones when they are wanted, reads and writes registered memory, and tells what is done.
//!
//! A message up to [`SHORT_BYTES`], or fewer where [`Limits`] say so, goes at once and is kept by the
//! receiver until it is received (*eager*). Of a longer one only an offer goes; whoever receives it copies it
//! from the sender's memory, or, where it cannot, has it streamed. A sender keeps account of what it sent and
//! nobody has received: beyond [`EAGER_BYTES`] it only offers, beyond [`EAGER_MESSAGES`] messages wait at the
//! sender, and beyond [`HELD`] of these it refuses. So a receiver that receives nothing keeps a bounded
//! number of bytes for each sender.

mod arrive;
mod atomics;
mod both;
pub mod completion;
pub mod list;
mod long;
pub mod matching;
pub mod pieces;
mod receive;
mod remote;
mod send;
mod state;
pub mod wire;

pub use atomics::{
    op as atomic_op, size as atomic_size, valid as valid_atomic, AtomicWhat, Way as AtomicWay,
};
pub use remote::{Access, Region, Registry};
pub use send::Message;

use crate::abi;
use both::Push;
use completion::{Completion, Count, Failure, Queue};
use list::Slab;
use long::{Landing, Landings, Pull};
use matching::Matching;
use polyduct_message::config::Config;
use polyduct_message::endpoint::{
    Endpoint, Network, Number, Piece, Place, Sent, Stream, Waiter, SHORT_BYTES,
};
use polyduct_message::link::shm::Payload;
use polyduct_message::{Head, MessageError};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Remote;

/// Bytes that one sender has sent to a receiver that has not received them, at most, or nearly.
pub const EAGER_BYTES: u64 = 4 << 20;
/// The same of messages.
pub const EAGER_MESSAGES: u32 = 1 << 16;
/// Messages that wait at their sender, for room or until others are received, to one peer at most: more are
/// refused for now. Libraries of MPI try again then within a send, in which they receive nothing: so this is
/// far more than two ranks send to each other before they receive.
pub const HELD: usize = 1 << 18;
/// Answers that wait for room to one peer, at most: operations that lead to more are refused for now.
pub const WAITING: usize = 1024;
/// Reads, writes and atomics on one peer's memory that are not over, at most: more are refused for now.
pub const ASKED: u32 = 1 << 14;
/// What waits to be said to one peer, at most: no more than follows from the limits above. A peer that has
/// more coming to it, and takes nothing, has not kept to them.
const SAID: usize = 2 * (EAGER_MESSAGES + ASKED) as usize + 4 * WAITING;
/// Receives that wait, at most.
pub const POSTED: usize = 1 << 20;

/// How messages go, as the [configuration](Config) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages up to this size go at once: [`SHORT_BYTES`] at most.
    pub eager: usize,
    /// What a peer keeps of this one's messages before the next are only offered: [`EAGER_BYTES`] at most.
    pub kept: u64,
    /// Copies of messages from this size on both ends work on.
    pub both: usize,
}

impl Limits {
    /// Those that hold here.
    pub fn of(config: &Config) -> Limits {
        let bytes = |name| usize::try_from(config.bytes(name)).unwrap_or(usize::MAX);
        Limits { eager: bytes("eager"), kept: config.bytes("unexpected"), both: bytes("both_from") }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Messages sent.
    Send,
    /// Messages received.
    Receive,
    /// Reads done.
    Read,
    /// Writes done, atomics too.
    Write,
    /// Reads that others did, atomics that fetch too.
    RemoteRead,
    /// Writes that others did, and other atomics.
    RemoteWrite,
}

/// All that is counted.
pub const COUNTED: usize = 6;

/// What the endpoints of a domain share.
#[derive(Default)]
pub struct Shared {
    /// Completion queues by number.
    pub queues: Vec<Option<Queue>>,
    /// Counters by number.
    pub counts: Vec<Option<Count>>,
    /// Registered memory.
    pub registry: Registry,
}

/// Where an endpoint tells of what it sends, or of what it receives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bound {
    /// The queue.
    pub queue: Option<usize>,
    /// Only operations that ask for it are told of.
    pub selective: bool,
}

/// Memory that the engine gives the network, or a link, to put bytes into.
pub enum Buffer {
    /// Its own.
    Own(Vec<u8>),
    /// A program's, which waits for them.
    Landing {
        /// Where.
        to: *mut u8,
        /// How many.
        len: usize,
    },
}

// SAFETY: whoever gave the memory of a landing leaves it alone until the operation is over.
unsafe impl Send for Buffer {}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Own(bytes) => bytes,
            // SAFETY: the program's memory, which it lent for the operation.
            Buffer::Landing { to, len } => unsafe { core::slice::from_raw_parts_mut(*to, *len) },
        }
    }
}

/// What is said of an operation when it is over.
#[derive(Clone, Copy, Debug)]
pub struct After {
    /// The completion, as far as it is known before.
    pub done: Completion,
    /// Whether the program wants it.
    pub tells: bool,
    /// What it counts as.
    pub counts: Counted,
    /// The receive of several messages that it is one of.
    pub of: Option<u32>,
}

/// A receive of several messages.
#[derive(Default)]
struct Several {
    /// Messages that it takes and that are not all here.
    open: u32,
    /// It takes no more.
    is_full: bool,
}

/// An operation of this side that waits for the other end.
struct Op {
    to: Number,
    what: What,
    after: After,
    /// The other end has begun with it, and begins once.
    is_begun: bool,
    /// What it has said of it, while its bytes are still on their way.
    said: Option<u32>,
    /// What the pointers point to, where that is not the program's memory: copies of what it sends, or where
    /// the bytes of a read lie until they are put into pieces.
    kept: Option<Box<[u8]>>,
    /// The program's memory, where that is several pieces: of a message that is offered, or of a read.
    pieces: Option<Box<[Piece]>>,
}

impl Op {
    /// Whether it sends something of which the program has its memory back, and does not hear the end of.
    fn is_owed(&self) -> bool {
        let sends = matches!(self.what, What::Offered { .. } | What::Put { .. });
        sends && self.kept.is_some() && !self.after.tells
    }
}

enum What {
    /// A message that was offered.
    Offered { bytes: *const u8, len: usize },
    /// A write, whose bytes lie here.
    Put { bytes: *const u8, len: usize },
    /// A read to here.
    Get { to: *mut u8, len: usize, remote: Remote },
    /// An atomic whose result goes here.
    Atomic { to: *mut u8, len: usize },
}

/// What waits for room.
struct Waiting {
    head: Head,
    payload: Bytes,
    after: Option<After>,
}

enum Bytes {
    Own(Box<[u8]>),
    /// The program's, until it is sent.
    Lent(*const u8, usize),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            // SAFETY: the program leaves it alone until it is told that it is sent.
            Bytes::Lent(at, len) => unsafe { core::slice::from_raw_parts(*at, *len) },
        }
    }
}

/// A stream that goes to a peer.
struct Streaming {
    stream: Stream,
    bytes: *const u8,
    /// The operation that it is of, which is not over before.
    op: Option<u32>,
    /// Whose registered memory it is.
    key: Option<u64>,
}

#[derive(Default)]
struct Peer {
    /// Messages in their order.
    sends: VecDeque<Waiting>,
    /// What is said besides.
    says: VecDeque<(Head, Box<[u8]>)>,
    streams: VecDeque<Streaming>,
    /// What it keeps of this one's messages.
    kept_messages: u32,
    kept_bytes: u64,
    /// What this one keeps of its messages.
    held_messages: u32,
    held_bytes: u64,
    /// What was received of its messages and is not said yet.
    owed_messages: u32,
    owed_bytes: u64,
    gone: bool,
    /// That is told, where something has failed because of it.
    is_missed: bool,
    /// It asks for more than it may, and is about to be told as gone.
    broke: bool,
    /// Operations on its memory that are not over.
    asked: u32,
    /// Its writes that are not all here.
    puts: u32,
    /// Its memory was copied from: that is possible.
    is_copied: bool,
    /// It could not copy into this one's.
    helps_not: bool,
    /// It is in the list of those that something waits for.
    listed: bool,
    /// As the program calls it.
    called: Option<u64>,
}

/// An endpoint.
pub struct Engine {
    endpoint: Endpoint<Buffer>,
    state: State,
    /// Those of the state.
    landings: Landings,
}

struct State {
    limits: Limits,
    sends: Bound,
    receives: Bound,
    counters: [Option<usize>; COUNTED],
    tagged: Matching,
    plain: Matching,
    // In this order: the end of a copy waits until the other end stores nothing more, in memory that
    // operations may keep.
    pulls: VecDeque<Pull>,
    landings: Landings,
    ops: Slab<Op>,
    peers: Vec<Peer>,
    /// Those that something waits for.
    busy: Vec<Number>,
    pushes: Vec<Push>,
    /// The pieces of receives, by numbers.
    lists: Slab<Box<[Piece]>>,
    /// Receives of several messages, by numbers.
    several: Slab<Several>,
    least_multi: usize,
    /// Operations that have failed.
    failures: u64,
    /// One that is gone and because of which some have, where that is not said yet.
    missed: Option<Number>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// An endpoint that others may reach, over the network too where there is one, and at a port, where that
    /// is named.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open(
        network: Option<Network>,
        port: Option<&Place>,
        limits: Limits,
    ) -> Result<Engine, MessageError> {
        let landings: Landings = Arc::new(Mutex::new(Slab::default()));
        let known = landings.clone();
        let endpoint = Endpoint::open(network, port, move |unit, m| {
            let len = m.len.unwrap_or(m.at_least);
            match wire::kind(&m.head) {
                Some(wire::Kind::Land) => {
                    let mut known = lock(&known);
                    let landing: &mut Landing = known.get(m.head.args[0])?;
                    (landing.unit == Some(unit)).then(|| landing.buffer(len)).flatten()
                }
                _ if len <= SHORT_BYTES as u64 => Some(Buffer::Own(vec![0; len as usize])),
                _ => None,
            }
        })?;
        let state = State {
            limits,
            sends: Bound::default(),
            receives: Bound::default(),
            counters: [None; COUNTED],
            tagged: Matching::default(),
            plain: Matching::default(),
            ops: Slab::default(),
            landings: landings.clone(),
            peers: Vec::new(),
            busy: Vec::new(),
            pulls: VecDeque::new(),
            pushes: Vec::new(),
            lists: Slab::default(),
            several: Slab::default(),
            least_multi: 64,
            failures: 0,
            missed: None,
        };
        Ok(Engine { endpoint, state, landings })
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        self.endpoint.place()
    }

    /// Where it tells what it sends.
    pub fn bind_sends(&mut self, bound: Bound) {
        self.state.sends = bound;
    }

    /// Where it tells what it receives.
    pub fn bind_receives(&mut self, bound: Bound) {
        self.state.receives = bound;
    }

    /// Where it tells what it sends, and what it receives.
    pub fn bounds(&self) -> [Bound; 2] {
        [self.state.sends, self.state.receives]
    }

    /// What counts something.
    pub fn bind_counter(&mut self, what: Counted, counter: usize) {
        self.state.counters[what as usize] = Some(counter);
    }

    /// The number of a counter that counts something.
    pub fn counters(&self) -> [Option<usize>; COUNTED] {
        self.state.counters
    }

    /// A receive of several messages ends when less than this is left.
    pub fn set_least_multi(&mut self, bytes: usize) {
        self.state.least_multi = bytes.max(1);
    }

    /// See [`set_least_multi`](Engine::set_least_multi).
    pub fn least_multi(&self) -> usize {
        self.state.least_multi
    }

    /// The number of an endpoint that the program calls `called`.
    ///
    /// # Errors
    /// As [`Endpoint::peer`].
    pub fn peer(&mut self, place: &Place, called: u64) -> Result<Number, MessageError> {
        let number = self.endpoint.peer(place)?;
        let peer = self.state.peer(number);
        peer.called.get_or_insert(called);
        Ok(number)
    }

    /// The program does not know it any more by what it called it.
    pub fn forget(&mut self, called: u64) {
        for peer in self.state.peers.iter_mut().filter(|peer| peer.called == Some(called)) {
            peer.called = None;
        }
    }

    /// Registered memory is about to be no longer so. `false`: transfers use it.
    pub fn withdraw(&mut self, key: u64) -> bool {
        self.state.withdraw(key)
    }

    /// Does what there is to do. Returns whether something was, and was not left waiting for the other end.
    #[inline]
    pub fn progress(&mut self, shared: &mut Shared) -> bool {
        // The first is what most looks of a program that waits come to.
        !self.is_idle() && self.state.has_room(shared) && self.go_through(shared)
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        !self.state.has_work() && self.state.missed.is_none() && self.endpoint.is_idle()
    }

    fn go_through(&mut self, shared: &mut Shared) -> bool {
        let Engine { endpoint, state, landings } = self;
        let cell = std::cell::RefCell::new((state, shared));
        let found = endpoint.poll(
            &mut |from, m| {
                let mut known = lock(landings);
                let landing = known.get(m.head.args[0])?;
                match wire::kind(&m.head) {
                    Some(wire::Kind::Land) if landing.from == from => landing.buffer(m.len),
                    // Nothing else is long: there is nowhere to put it.
                    _ => None,
                }
            },
            &mut |from, m, payload| {
                let (state, shared) = &mut *cell.borrow_mut();
                // What is in a buffer is over in any case: it is told, though the queue is full.
                if matches!(payload, Payload::Bytes(_)) && !state.has_room(shared) {
                    return false;
                }
                match payload {
                    Payload::Bytes(bytes) => state.arrive(shared, from, &m.head, bytes),
                    Payload::Buffer(Buffer::Own(bytes)) => {
                        state.arrive(shared, from, &m.head, &bytes[..(m.len as usize).min(bytes.len())])
                    }
                    Payload::Buffer(Buffer::Landing { .. }) => state.landed(shared, from, &m.head),
                }
                true
            },
        );
        let (state, shared) = cell.into_inner();
        let goes_on = found > 0 || state.has_work();
        let moved = goes_on && self.go_on(shared);
        let gone = self.endpoint.take_gone();
        if let Some(gone) = gone {
            self.state.lose(shared, gone);
        }
        self.tell_missed();
        found > 0 || moved || gone.is_some()
    }

    /// Fetches and sends what waits. Returns whether any of it could be.
    fn go_on(&mut self, shared: &mut Shared) -> bool {
        let (pulled, pushed) = (self.pull(shared), self.push());
        let mut moved = pulled || pushed;
        let mut at = 0;
        while let Some(&number) = self.state.busy.get(at) {
            let is_over = self.flush(shared, number);
            let peer = &mut self.state.peers[number as usize];
            // Of a stream parts go.
            moved |= is_over || !peer.streams.is_empty();
            if is_over {
                peer.listed = false;
                self.state.busy.swap_remove(at);
            } else {
                at += 1;
            }
        }
        moved
    }

    /// Sends what waits and fetches what was matched, for an endpoint that is about to end.
    pub fn finish(&mut self, shared: &mut Shared) {
        self.progress(shared);
        self.go_on(shared);
    }

    /// Whether something waits to be sent that the program has its memory back of, or has to be said.
    pub fn owes(&self) -> bool {
        self.state.busy.iter().any(|&number| {
            let peer = &self.state.peers[number as usize];
            !peer.sends.is_empty() || !peer.says.is_empty() || !peer.streams.is_empty()
        }) || !self.state.ops.numbers(Op::is_owed).is_empty()
    }

    /// Who waits for what comes, without the engine.
    pub fn waiter(&self) -> Arc<Waiter> {
        self.endpoint.waiter()
    }

    /// What comes from now on wakes the [waiter](Engine::waiter).
    pub fn ask_for_call(&mut self) {
        self.endpoint.ask_for_call();
    }

    /// Whether there is something to do that waits for nobody to come.
    pub fn has_work(&self) -> bool {
        self.state.has_work() || self.endpoint.has_come()
    }

    /// Sends what waits to a peer, as far as there is room. Returns whether nothing waits any more.
    fn flush(&mut self, shared: &mut Shared, to: Number) -> bool {
        if std::mem::take(&mut self.state.peers[to as usize].broke) {
            tracing::warn!(peer = to, "an endpoint sends or asks without end");
            // It is told as gone next.
            self.endpoint.cut(to);
            return true;
        }
        let Engine { endpoint, state, .. } = self;
        while let Some((head, payload)) = state.peers[to as usize].says.front() {
            match endpoint.send(to, *head, payload) {
                Sent::All => drop(state.peers[to as usize].says.pop_front()),
                Sent::Later => return false,
                Sent::Gone => {
                    state.lose(shared, to);
                    return true;
                }
            }
        }
        while let Some(waiting) = state.peers[to as usize].next_send() {
            match endpoint.send(to, waiting.head, waiting.payload.get()) {
                Sent::All => {}
                Sent::Later => break,
                Sent::Gone => {
                    state.lose(shared, to);
                    return true;
                }
            }
            let peer = &mut state.peers[to as usize];
            peer.kept_messages += 1;
            let Some(waiting) = peer.sends.pop_front() else { break };
            if let Some(after) = waiting.after {
                state.is_over(shared, after);
            }
        }
        self.flush_streams(shared, to);
        let peer = &self.state.peers[to as usize];
        peer.sends.is_empty() && peer.says.is_empty() && peer.streams.is_empty()
    }
}

/// A completion that says nothing yet.
pub fn nothing(context: *mut c_void, flags: u64) -> Completion {
    let (len, buf, data, tag, from) = (0, core::ptr::null_mut(), 0, 0, abi::ADDR_NOTAVAIL);
    Completion { context, flags, len, buf, data, tag, from }
}
