//! Messages over links that carry frames: a state machine without thread, clock, random source or descriptor.
//!
//! A [`Session`] stands between two endpoints. Its methods come in four kinds, in this order in each file:
//!
//! * getters;
//! * commands of the user: [`send`](Session::send), [`begin`](Session::begin),
//!   [`retry_refused`](Session::retry_refused) …;
//! * `handle_*`: frames, time and the state of paths go in;
//! * `poll_*`: frames, events and the next deadline come out.
//!
//! After any command or `handle_*`, call `poll_transmit` for each path that can take a frame, until it says
//! that there is none, then `poll_event` likewise, and `handle_time` when
//! [`next_deadline`](Session::next_deadline) has come. Time is a duration since any fixed point and must not
//! go back.
//!
//! What the session guarantees, whatever the paths do to frames:
//!
//! 1. A message is delivered once or, after [`Event::Broken`], not at all.
//! 2. Messages of one channel and priority that are [ordered](Order::Ordered) are delivered in the order of
//!    their sends.
//! 3. A message is [`Delivered`](Event::Delivered) only after the peer's session has all of it, and its turn
//!    has come: the peer's user gets it with one of the next events, in this order.
//! 4. High priority waits for at most one fragment of low priority, in the frame that is being sent.
//! 5. As long as frames get through now and then and buffers are given out now and then, every message
//!    arrives.
//! 6. Nothing that the peer sends makes it panic, or grow beyond what its [`Config`] allows.

#![forbid(unsafe_code)]

mod assemble;
mod commands;
mod config;
mod incoming;
mod outgoing;
mod path;
#[doc(hidden)]
pub mod planted;
mod ranges;
mod rate;
mod receive;
mod rtt;
mod send;
mod streams;
mod time;
mod transmit;

pub use config::{Config, SessionId};
pub use incoming::{Incoming, Message};
pub use path::PathCounters;
pub use receive::Begun;
pub use transmit::Transmit;

use crate::types::{Address, ChannelId, Head, Order, Priority, Token};
use crate::wire::StreamId;
use bytes::Bytes;
use incoming::InLane;
use outgoing::OutStream;
use path::{Carried, Control, Path};
use std::collections::VecDeque;
use std::time::Duration;
use streams::Streams;

/// A way to the peer, by a number that both sides use: 0 up to [`Config::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u8);

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// Low or high.
    pub priority: Priority,
    /// Whether it keeps its place among the others of its channel and priority.
    pub order: Order,
    /// What it says beside its payload.
    pub head: Head,
    /// Its payload: kept, not copied, until the peer has taken the message.
    pub payload: Bytes,
}

/// Why a session ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The peer was not heard for so long although something was expected of it.
    Silent(Duration),
    /// The peer ended it, with its user's number.
    Aborted(u16),
    /// This side ended it.
    Here,
}

/// What a session tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<B> {
    /// A message came.
    Message(Message<B>),
    /// A message that was sent has been delivered.
    Delivered(Token),
    /// A message that was sent had no buffer at the peer; it is kept and sent again. Once for all refusals
    /// since the last such event of this message was polled.
    Refused(Token),
    /// The peer will send no more; all of its messages have been given out.
    PeerClosed,
    /// All that was sent before [`close`](Session::close) is delivered and the peer knows.
    Closed,
    /// The session is over. The last event; messages on their way may or may not have been delivered.
    Broken(Broken),
}

/// Exact counts of one priority, as in StarT-X: one look tells a user what can be done without asking again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Messages that wait for [`poll_event`](Session::poll_event).
    pub waiting: usize,
    /// Sends without payload that are sure not to be refused, as long as each stream's [own
    /// room](Session::room) allows. A message counts until its [`Delivered`](Event::Delivered) is polled.
    pub sends: usize,
    /// Messages sent and not yet known to be delivered.
    pub unconfirmed: usize,
}

/// Counts since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages accepted from the user.
    pub messages_sent: u64,
    /// Messages given to the user.
    pub messages_received: u64,
    /// Fragments sent.
    pub fragments_sent: u64,
    /// … again, because they were lost or refused.
    pub fragments_again: u64,
    /// Fragments that came and were not needed.
    pub fragments_spare: u64,
    /// Messages refused for lack of a buffer.
    pub refused: u64,
    /// Buffers taken back from messages that waited for others.
    pub evicted: u64,
    /// Frames that were refused whole.
    pub bad_frames: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// No more sends; what there is goes out.
    Closing,
    /// The last word stands in the queue or flies.
    CloseSent,
    Closed,
    Broken(Broken),
}

/// A conversation between two endpoints over one or more paths. `B` is the buffer type that the user gives
/// out.
#[derive(Debug)]
pub struct Session<B> {
    config: Config,
    peer: Address,
    id: SessionId,
    phase: Phase,
    peer_closed: bool,

    // -- out --
    out: Streams<OutStream>,
    /// Streams with work, by priority and order.
    ready: [[VecDeque<u16>; 2]; 2],
    /// Streams whose next message may not begin yet, by priority.
    starved: [Vec<u16>; 2],
    /// Whose turn it is between ordered and any, by priority.
    turn: [bool; 2],
    /// Messages kept, by priority; the bytes of their payloads that are here, and those that are delivered,
    /// which the user has not polled.
    kept: [usize; 2],
    kept_bytes: [u64; 2],
    untold: [usize; 2],
    /// Messages begun and not done.
    in_flight: u64,
    /// Streams that wait for time or a go-ahead, and the earliest of those times.
    gated: Vec<u16>,
    gate_at: Option<Duration>,

    // -- in --
    inn: Streams<InLane<B>>,
    /// Slots over all streams.
    slots: u64,
    /// Messages delivered since the last receipts went out.
    unreported: u64,
    /// Messages for the user, by priority.
    received: [VecDeque<Message<B>>; 2],
    /// Some message was refused because the user did not poll.
    refused_waiting: bool,

    // -- both --
    /// Small pieces that must go soon, and those that may wait for traffic.
    urgent: VecDeque<Control>,
    lazy: VecDeque<Control>,
    lazy_at: Option<Duration>,
    pong: bool,
    ping: bool,
    paths: Vec<Option<Path>>,
    /// The latest time that was said.
    now: Duration,
    events: VecDeque<Event<B>>,
    heard: Duration,
    pinged: Duration,
    abort: Option<u16>,
    aborts_left: u8,
    counters: Counters,
    scratch: (Vec<Carried>, Vec<Carried>),
}

fn rank(priority: Priority) -> usize {
    usize::from(priority == Priority::High)
}

fn token(stream: StreamId, number: u64) -> Token {
    Token((stream.index() as u64) << 48 | (number & ((1 << 48) - 1)))
}

fn stream_of(token: Token) -> StreamId {
    StreamId::from_index((token.0 >> 48) as usize)
}

fn number_of(token: Token) -> u64 {
    token.0 & ((1 << 48) - 1)
}

impl<B: AsMut<[u8]>> Session<B> {
    /// A session with `peer` (named in errors), which the handshake has given this `id`. It has no path yet.
    pub fn new(config: Config, peer: Address, id: SessionId, now: Duration) -> Session<B> {
        Session {
            config,
            peer,
            id,
            phase: Phase::Open,
            peer_closed: false,
            out: Streams::new(),
            ready: Default::default(),
            starved: Default::default(),
            turn: [false; 2],
            kept: [0; 2],
            kept_bytes: [0; 2],
            untold: [0; 2],
            in_flight: 0,
            gated: Vec::new(),
            gate_at: None,
            inn: Streams::new(),
            slots: 0,
            unreported: 0,
            received: Default::default(),
            refused_waiting: false,
            urgent: VecDeque::new(),
            lazy: VecDeque::new(),
            lazy_at: None,
            pong: false,
            ping: false,
            paths: Vec::new(),
            now,
            events: VecDeque::new(),
            heard: now,
            pinged: now,
            abort: None,
            aborts_left: 0,
            counters: Counters::default(),
            scratch: Default::default(),
        }
    }

    // -- getters --

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counts of one priority.
    pub fn status(&self, priority: Priority) -> Status {
        let rank = rank(priority);
        Status {
            waiting: self.received[rank].len(),
            sends: if self.phase == Phase::Open {
                self.config.queue_per_priority.saturating_sub(self.kept[rank] + self.untold[rank])
            } else {
                0
            },
            unconfirmed: self.kept[rank],
        }
    }

    /// Bytes of payloads of a priority that were handed over and are kept until the peer has taken their
    /// messages.
    pub fn bytes_kept(&self, priority: Priority) -> u64 {
        self.kept_bytes[rank(priority)]
    }

    /// Sends without payload on this channel, priority and order that are sure not to be refused.
    pub fn room(&self, channel: ChannelId, priority: Priority, order: Order) -> usize {
        let stream = StreamId::new(channel, priority, order);
        let kept = self.out.get(stream.index()).map_or(0, |stream| stream.messages.len());
        self.config.queue_per_stream.saturating_sub(kept).min(self.status(priority).sends)
    }

    /// Counts since the beginning.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Counts of one path.
    pub fn path_counters(&self, path: PathId) -> Option<PathCounters> {
        self.path(path).map(|p| p.counters)
    }

    /// Smoothed round-trip time of one path.
    pub fn rtt(&self, path: PathId) -> Option<Duration> {
        self.path(path).map(|p| p.rtt.smoothed())
    }

    /// Whether it still takes sends.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether it is over: broken, or closed by both sides and nothing left to say.
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Broken(_) => self.abort.is_none(),
            Phase::Closed => self.peer_closed && self.urgent.is_empty() && self.lazy.is_empty(),
            _ => false,
        }
    }

    /// Whether all that was sent before [`close`](Session::close) is delivered and the peer knows that no
    /// more comes.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether the peer will send no more, and all that it sent is here.
    pub fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Messages sent and not yet known to be delivered.
    pub fn unconfirmed(&self) -> usize {
        self.kept.iter().sum()
    }

    /// Buffers that the session holds: of messages under way and of those not polled.
    pub fn buffers_held(&self) -> usize {
        let streams =
            self.inn.iter().flat_map(|stream| &stream.slots).filter(|slot| slot.holds_buffer()).count();
        let waiting = self.received.iter().flatten().filter(|m| m.payload.is_some()).count();
        streams + waiting
    }

    /// Whether all that was sent is known to be delivered, and nothing waits to go out.
    pub fn is_idle(&self) -> bool {
        self.kept == [0; 2] && self.urgent.is_empty() && self.lazy.is_empty()
    }

    /// Whether a fragment of this priority could go out on this path now, were there a frame for it and room
    /// in the window.
    pub fn has_ready(&mut self, path: PathId, priority: Priority) -> bool {
        let begin = self.may_begin(priority);
        let ordered = self.primary() == Some(path);
        let [in_order, any] = &self.ready[rank(priority)];
        let out = &mut self.out;
        let streams = any.iter().chain(in_order.iter().filter(|_| ordered));
        streams.into_iter().any(|&stream| out[usize::from(stream)].has_work(begin))
    }

    fn path(&self, path: PathId) -> Option<&Path> {
        self.paths.get(usize::from(path.0))?.as_ref()
    }

    fn path_mut(&mut self, path: PathId) -> Option<&mut Path> {
        self.paths.get_mut(usize::from(path.0))?.as_mut()
    }

    /// Whether it ended before its time.
    pub fn is_broken(&self) -> bool {
        matches!(self.phase, Phase::Broken(_))
    }

    /// Whether something is expected of the peer.
    fn expects(&self) -> bool {
        self.config.keepalive || self.kept != [0; 2] || self.phase == Phase::CloseSent
    }

    /// Lets a stream be served if it has work.
    fn wake(&mut self, stream: StreamId) {
        let rank = rank(stream.priority());
        let Some(out) = self.out.get_mut(stream.index()) else { return };
        if out.starved && out.has_work(false) {
            // It waits for leave to begin a message, but has something else to send now.
            out.starved = false;
            out.queued = false;
            self.starved[rank].retain(|&index| usize::from(index) != stream.index());
        }
        if !out.queued && out.has_work(true) {
            out.queued = true;
            let any = usize::from(stream.order() == Order::Any);
            self.ready[rank][any].push_back(stream.index() as u16);
        }
    }

    /// Whether another message of this priority may be begun. Low leaves a quarter to high.
    fn may_begin(&self, priority: Priority) -> bool {
        let limit = u64::from(self.config.messages_in_flight);
        match priority {
            Priority::High => self.in_flight < limit,
            Priority::Low => self.in_flight < limit - limit / 4,
        }
    }

    fn break_off(&mut self, why: Broken) {
        if self.is_broken() {
            return;
        }
        self.phase = Phase::Broken(why);
        self.out.clear();
        self.inn.clear();
        (self.slots, self.unreported, self.in_flight) = (0, 0, 0);
        self.ready = Default::default();
        self.starved = Default::default();
        self.gated.clear();
        self.gate_at = None;
        (self.kept, self.kept_bytes) = ([0; 2], [0; 2]);
        self.urgent.clear();
        self.lazy.clear();
        self.lazy_at = None;
        self.events.push_back(Event::Broken(why));
    }

    fn try_close(&mut self) {
        if self.phase == Phase::Closing && self.kept == [0; 2] {
            self.phase = Phase::CloseSent;
            self.urgent.push_back(Control::Close);
        }
    }

    // -- output --

    /// What happened, high priority before low; `None` when nothing did since.
    pub fn poll_event(&mut self) -> Option<Event<B>> {
        for rank in [1, 0] {
            if let Some(message) = self.received[rank].pop_front() {
                self.counters.messages_received += 1;
                if self.refused_waiting && self.received[rank].len() <= self.config.waiting / 2 {
                    self.retry_refused(self.now);
                }
                return Some(Event::Message(message));
            }
        }
        let event = self.events.pop_front();
        match event {
            Some(Event::Delivered(token)) => self.untold[rank(stream_of(token).priority())] -= 1,
            Some(Event::Refused(token)) => {
                let message =
                    self.out.get_mut(stream_of(token).index()).and_then(|out| out.get_mut(number_of(token)));
                message.into_iter().for_each(|message| message.refusal_untold = false);
            }
            _ => {}
        }
        event
    }
}
