//! One lane between gateways: a connection that proves the job's key, and is made again when it breaks.

use super::wire::{Answer, Call, Session, VERSION};
use crate::{Place, Share, StreamError};
use polyduct_message::hash::fnv1a;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::acceptor::{Acceptor, Limits, Visit};
use polyduct_message::link::net::channel::Channel;
use polyduct_message::link::net::dial::Dial;
use polyduct_message::link::net::incarnations::Incarnations;
use polyduct_message::link::net::socket::{listen, resolve, KeepAlive};
use polyduct_message::link::net::LinkFault;
use polyduct_message::link::noise::Terms;
use polyduct_os::clock;
use polyduct_os::poll::PollItem;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// How soon a lane is made again: first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Callers that have not said who they are, at most, and how long they may take.
const WAITING: (usize, Duration) = (64, Duration::from_secs(5));

/// What both ends of a stream stand for.
#[derive(Clone)]
pub struct Side {
    /// Where.
    pub place: Place,
    /// The stream's name.
    pub name: String,
    /// Whether this end transmits.
    pub transmits: bool,
    /// Whom it trusts.
    pub trust: Trust,
    /// How long the other end may be silent, and lanes be down.
    pub borne: Duration,
    /// This end.
    pub session: Session,
    /// What of each step this gateway transmits, with lanes of its own.
    pub share: Share,
}

impl Side {
    fn terms(&self) -> Terms {
        let domain = fnv1a(b"polyduct streams".iter().copied().chain(VERSION.to_le_bytes()));
        // The number of a life: the other end takes any.
        let incarnation = self.session as u64;
        let me = Identity { domain, unit: 0, incarnation, features: 0, frame_limit: 0, index: 0 };
        Terms {
            key: self.trust.key.clone(),
            me,
            trusted: self.trust.trusted_network,
            carrier: Carrier::Stream,
        }
    }

    fn alive(&self) -> KeepAlive {
        KeepAlive { dead_after: self.borne }
    }

    /// An error of this stream's.
    pub fn broken(&self, step: u64, why: impl std::fmt::Display) -> StreamError {
        StreamError::Broken { place: self.to_string(), step, source: std::io::Error::other(why.to_string()) }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.place, self.name)
    }
}

/// How a lane comes to be.
enum State {
    /// Nothing is done until then.
    Rests(Duration),
    /// It is being dialled.
    Dials(Box<Dial>),
    /// The other end is to answer a call.
    Asked(Box<Channel>, Duration),
    /// The other end is to call.
    Awaits,
    Up(Box<Channel>),
}

/// A lane.
pub struct Lane {
    state: State,
    pause: Duration,
    next_addr: usize,
    /// Since when it is down.
    pub down_since: Duration,
    /// What came of the last attempt.
    pub why: String,
}

/// All lanes of a stream, and the door where the other end comes in, if this end listens.
pub struct Ways {
    /// Both ends.
    pub side: Side,
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// The gateways of the other end, once they are known: 0 for one that has not come. Of a side that listens the other
    /// end says how many there are.
    pub met: Vec<Session>,
    door: Option<Door>,
    addrs: Vec<SocketAddr>,
    /// Lanes that came up, and were not told of.
    came: VecDeque<u32>,
}

struct Door {
    acceptor: Acceptor,
    waiting: Vec<(Channel, Duration)>,
}

impl Ways {
    /// Lanes that are about to come.
    ///
    /// # Errors
    /// [`StreamError::Listen`] where this side cannot; [`StreamError::Connect`] for a host without an address.
    pub fn new(side: Side) -> Result<Ways, StreamError> {
        let now = clock::now();
        let failed =
            |e: String| StreamError::Listen { place: side.to_string(), source: std::io::Error::other(e) };
        let (mut door, mut addrs) = (None, Vec::new());
        match &side.place.host {
            None => {
                let at = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, side.place.port));
                let all = SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, side.place.port));
                let socket = listen(at).or_else(|_| listen(all)).map_err(|e| failed(e.to_string()))?;
                let lives = Incarnations::new(true);
                let acceptor = Acceptor::new(socket, side.terms(), side.alive(), Limits::default(), lives);
                door = Some(Door {
                    acceptor: acceptor.map_err(|e| failed(e.to_string()))?,
                    waiting: Vec::new(),
                });
            }
            // Several hosts, or names of one in several networks: lanes are spread over them.
            Some(hosts) => addrs = hosts.split(',').flat_map(|host| resolve(host, side.place.port)).collect(),
        }
        if door.is_none() && addrs.is_empty() {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address");
            return Err(StreamError::Connect { place: side.to_string(), waited: Duration::ZERO, source });
        }
        let lanes =
            (0..side.place.lanes as usize).map(|n| Lane { next_addr: n, ..Lane::new(door.is_some(), now) });
        let lanes = lanes.collect();
        Ok(Ways { side, lanes, met: vec![0], door, addrs, came: VecDeque::new() })
    }

    /// A lane that is up.
    pub fn channel(&mut self, lane: u32) -> Option<&mut Channel> {
        match self.lanes.get_mut(lane as usize).map(|lane| &mut lane.state) {
            Some(State::Up(channel)) => Some(channel),
            _ => None,
        }
    }

    /// Whether a lane is up.
    pub fn is_up(&self, lane: u32) -> bool {
        matches!(self.lanes.get(lane as usize), Some(Lane { state: State::Up(_), .. }))
    }

    /// Says something on a lane, if it is up and takes it.
    pub fn say(&mut self, lane: u32, word: &impl serde::Serialize) -> bool {
        let Some(channel) = self.channel(lane) else { return false };
        match channel.post(word).and_then(|()| channel.flush()) {
            Ok(_) => true,
            Err(fault) => {
                self.broke(lane, &fault);
                false
            }
        }
    }

    /// A lane broke: it is made again.
    pub fn broke(&mut self, lane: u32, why: &LinkFault) {
        let (now, listens) = (clock::now(), self.door.is_some());
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            // Another address may be better off.
            *lane = Lane { why: why.to_string(), next_addr: lane.next_addr, ..Lane::new(listens, now) };
        }
    }

    /// Since when all lanes are down, if they are, and why.
    pub fn all_down(&self) -> Option<(Duration, &str)> {
        let any_up = (0..self.lanes.len() as u32).any(|lane| self.is_up(lane));
        let last = self.lanes.iter().max_by_key(|lane| lane.down_since)?;
        (!any_up).then_some((last.down_since, &last.why[..]))
    }

    /// Goes on with what is coming about; a lane that came up, maybe instead of one that was taken for up.
    ///
    /// # Errors
    /// The other end refuses the stream, or is not what it was.
    pub fn poll(&mut self, now: Duration) -> Result<Option<u32>, StreamError> {
        self.let_in(now)?;
        for number in 0..self.lanes.len() {
            if self.advance(number, now)? {
                self.came.push_back(number as u32);
            }
        }
        Ok(self.came.pop_front())
    }

    /// Goes on with a lane that this side makes; whether it came up.
    fn advance(&mut self, number: usize, now: Duration) -> Result<bool, StreamError> {
        let lanes = self.lanes.len() as u32;
        let Ways { side, lanes: all, met, addrs, .. } = self;
        let met = &mut met[0];
        let lane = &mut all[number];
        loop {
            let state = std::mem::replace(&mut lane.state, State::Awaits);
            match state {
                State::Rests(until) if now >= until => {
                    let addr = addrs[lane.next_addr % addrs.len()];
                    lane.next_addr += 1;
                    match Dial::new(&side.terms(), 0, addr, side.alive(), now, ATTEMPT) {
                        Ok(dial) => lane.state = State::Dials(Box::new(dial)),
                        Err(fault) => lane.rest(&fault.to_string(), now),
                    }
                }
                State::Dials(mut dial) => match dial.serve(now) {
                    Ok(None) => {
                        lane.state = State::Dials(dial);
                        return Ok(false);
                    }
                    Ok(Some(established)) => {
                        let mut channel = Channel::new(dial.into_stream(), established, side.borne);
                        let call = Call {
                            version: VERSION,
                            name: side.name.clone(),
                            transmits: side.transmits,
                            session: side.session,
                            met: *met,
                            lane: side.share.index * lanes + number as u32,
                            lanes: side.share.of * lanes,
                            gateway: side.share.index,
                            gateways: side.share.of,
                        };
                        match channel.post(&call).and_then(|()| channel.flush()) {
                            Ok(_) => lane.state = State::Asked(Box::new(channel), now),
                            Err(fault) => lane.rest(&fault.to_string(), now),
                        }
                    }
                    Err(fault) if is_final(&fault) => return Err(side.broken(0, fault)),
                    Err(fault) => lane.rest(&fault.to_string(), now),
                },
                State::Asked(mut channel, since) => match channel.hear::<Answer>() {
                    Ok(None) if now.saturating_sub(since) < ATTEMPT => {
                        lane.state = State::Asked(channel, since);
                        return Ok(false);
                    }
                    Ok(None) => lane.rest("no answer", now),
                    Ok(Some(Answer::Welcome(session))) if *met == 0 || *met == session => {
                        *met = session;
                        (lane.state, lane.pause) = (State::Up(channel), RETRY.0);
                        return Ok(true);
                    }
                    Ok(Some(Answer::Welcome(_))) => {
                        return Err(side.broken(0, "the other end has been started anew"))
                    }
                    // It may come to be there.
                    Ok(Some(Answer::Refused(why))) => lane.rest(&why, now),
                    Err(fault) => lane.rest(&fault.to_string(), now),
                },
                other => {
                    lane.state = other;
                    return Ok(false);
                }
            }
        }
    }

    /// Lets in who calls.
    fn let_in(&mut self, now: Duration) -> Result<(), StreamError> {
        let Ways { side, lanes, met, door: Some(door), came, .. } = self else { return Ok(()) };
        let Door { acceptor, waiting } = door;
        let served = acceptor.serve(now, |visit| match visit {
            Visit::Arrival(arrival) => {
                if waiting.len() == WAITING.0 {
                    waiting.remove(0);
                }
                waiting.push((Channel::new(arrival.stream, arrival.established, side.borne), now));
            }
            Visit::TurnedAway(from, fault) => {
                tracing::warn!(%from, %fault, "turned a connection away");
                turned_away((lanes, met), Some(from), &fault.to_string());
            }
        });
        served.map_err(|e| side.broken(0, e))?;
        for (mut channel, since) in std::mem::take(waiting) {
            match channel.next::<Call>() {
                Ok(None) if now.saturating_sub(since) < WAITING.1 => waiting.push((channel, since)),
                Ok(Some(call)) => {
                    let refused = refusal(side, met, &call);
                    refused.iter().for_each(|why| turned_away((lanes, met), channel.peer(), why));
                    let answer = match refused {
                        None => Answer::Welcome(side.session),
                        Some(why) => Answer::Refused(why),
                    };
                    let welcome = matches!(answer, Answer::Welcome(_));
                    if channel.post(&answer).and_then(|()| channel.flush()).is_err() || !welcome {
                        continue;
                    }
                    if met.iter().all(|session| *session == 0) {
                        // Who calls says how many lanes there are, and gateways.
                        *met = vec![0; call.gateways as usize];
                        *lanes = (0..call.lanes).map(|_| Lane::new(true, now)).collect();
                    }
                    let Some(lane) = lanes.get_mut(call.lane as usize) else { continue };
                    met[call.gateway as usize] = call.session;
                    lane.state = State::Up(Box::new(channel));
                    came.push_back(call.lane);
                }
                Ok(None) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Adds what to wait for.
    pub fn items<'a>(&'a self, busy: &dyn Fn(u32) -> bool, items: &mut Vec<PollItem<'a>>) {
        for (number, lane) in (0..).zip(&self.lanes) {
            match &lane.state {
                State::Up(channel) if busy(number) || channel.is_backed_up() => {
                    items.push(PollItem::both(&**channel))
                }
                State::Up(channel) | State::Asked(channel, _) => items.push(PollItem::readable(&**channel)),
                State::Dials(dial) => {
                    let (socket, writes) = dial.waits_for();
                    items.push(if writes { PollItem::writable(socket) } else { PollItem::readable(socket) });
                }
                State::Rests(_) | State::Awaits => {}
            }
        }
        if let Some(door) = &self.door {
            items.push(PollItem::readable(&door.acceptor));
            items.extend(door.waiting.iter().map(|(channel, _)| PollItem::readable(channel)));
        }
    }

    /// When [`poll`](Ways::poll) is to be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let lanes = self.lanes.iter().filter_map(|lane| match &lane.state {
            State::Rests(until) => Some(*until),
            State::Dials(dial) => Some(dial.deadline()),
            State::Asked(_, since) => Some(*since + ATTEMPT),
            State::Up(channel) => channel.deadline(),
            State::Awaits => None,
        });
        let door = self.door.iter().filter_map(|door| door.acceptor.next_deadline());
        lanes.chain(door).min()
    }
}

impl Lane {
    fn new(awaits: bool, now: Duration) -> Lane {
        let state = if awaits { State::Awaits } else { State::Rests(now) };
        Lane { state, pause: RETRY.0, next_addr: 0, down_since: now, why: "nobody came".into() }
    }

    fn rest(&mut self, why: &str, now: Duration) {
        why.clone_into(&mut self.why);
        self.state = State::Rests(now + self.pause);
        self.pause = (self.pause * 2).min(RETRY.1);
    }
}

/// Why a call is not for this end; none if it is.
fn refusal(side: &Side, met: &[Session], call: &Call) -> Option<String> {
    let Call { version, name, transmits, session, lanes, lane, gateway, gateways, .. } = call;
    if *version != VERSION {
        return Some(format!("version {version} of the protocol; this is {VERSION}"));
    }
    if *name != side.name {
        return Some(format!("nobody here has a stream {name:?}; there is {:?}", side.name));
    }
    if *transmits == side.transmits {
        return Some(format!("both ends {}", if *transmits { "write" } else { "read" }));
    }
    let known = met.iter().any(|session| *session != 0);
    if known && met.len() != *gateways as usize
        || met.get(*gateway as usize).is_some_and(|met| ![0, *session].contains(met))
    {
        return Some("the stream has another end".into());
    }
    if call.met != 0 && call.met != side.session {
        return Some("this end has been started anew".into());
    }
    let all = 1..=crate::format::MAX_LANES;
    let can_be = all.contains(lanes)
        && all.contains(gateways)
        && lanes.is_multiple_of(*gateways)
        && lane < lanes
        && lane / (lanes / gateways) == *gateway
        && *session != 0;
    (!can_be).then(|| "lanes that cannot be".into())
}

/// Somebody was not let in: whoever waits for the first that is hears of that.
fn turned_away((lanes, met): (&mut [Lane], &[Session]), from: Option<SocketAddr>, why: &str) {
    let from = from.map_or_else(|| "somebody".into(), |from| from.to_string());
    for lane in lanes.iter_mut().filter(|_| met.iter().all(|session| *session == 0)) {
        lane.why = format!("{from} came, and was turned away: {why}");
    }
}

/// Whether no other attempt can fare better.
fn is_final(fault: &LinkFault) -> bool {
    use polyduct_message::LinkError::{Trust, Unauthentic, Version, WrongDomain};
    matches!(fault, LinkFault::Peer(Trust { .. } | Unauthentic | Version { .. } | WrongDomain))
}
