//! One peer: its session and the ways to it.

use super::datagram::Datagrams;
use super::events::{Events, Interest};
use super::pace::Pace;
use super::record::{Piece, RecordWriter};
use super::socket::set_unsent;
use super::stream::{FrameSink, StreamReader};
use super::LinkFault;
use crate::engine::{Begun, Incoming, PathId, Session, Transmit};
use crate::error::{LinkError, MessageError};
use crate::link::seal::{Opener, Sealer};
use crate::types::Address;
use crate::wire::Frame;
use core::time::Duration;
use std::net::{SocketAddr, TcpStream};

/// Ways between two units: one that the lower address began, one that the higher did, where both began at
/// once.
pub(crate) const WAYS: usize = 2;
pub(crate) struct Conn {
    pub stream: TcpStream,
    pub reader: StreamReader,
    pub writer: RecordWriter,
    pub number: u64,
    pub waits_to_write: bool,
    /// Bytes of a frame, at most.
    pub frame: usize,
    pub pace: Pace,
}

pub(crate) struct Route {
    pub to: SocketAddr,
    /// What the peer knows this side's datagrams by, and the other way round.
    pub theirs: u32,
    pub mine: u32,
    pub sealer: Sealer,
    pub opener: Opener,
}

pub(crate) enum PeerLink {
    Conn(Box<Conn>),
    Route(Box<Route>),
}

pub(crate) struct Peer<B> {
    pub incarnation: u64,
    pub session: Session<B>,
    pub ways: [Option<PeerLink>; WAYS],
    /// It said that it sends no more, and the user knows.
    pub left: bool,
    /// Its place at the door is free, as it has ended.
    pub freed: bool,
    /// Its last connection broke, so, and is to be made again.
    pub broken: Option<LinkFault>,
    /// It is over; the user is told after what had come.
    pub gone: Option<MessageError>,
    /// It stands in the queue of those who may have something to tell.
    pub ready: bool,
}

/// Gives buffers for payloads.
pub(crate) type Give<B> = Box<dyn FnMut(Address, &Incoming) -> Option<B> + Send>;

/// What is reused from call to call.
pub(crate) struct Scratch {
    pub transmit: Transmit,
    /// Where bytes go that nobody needs.
    pub waste: Vec<u8>,
}

impl<B: AsMut<[u8]>> Peer<B> {
    /// Sends what the session has to say, as far as sockets take it. Returns the first way that failed.
    pub fn pump(
        &mut self,
        now: Duration,
        events: &Events,
        mut datagrams: Option<&mut Datagrams>,
        scratch: &mut Scratch,
    ) -> Result<(), (usize, LinkFault)> {
        for (at, way) in self.ways.iter_mut().enumerate() {
            let (path, session) = (PathId(at as u8), &mut self.session);
            let sent = match (way, &mut datagrams) {
                (Some(PeerLink::Conn(conn)), _) => {
                    pump_conn(conn, session, path, now, events, &mut scratch.transmit)
                }
                (Some(PeerLink::Route(route)), Some(datagrams)) => {
                    pump_route(route, session, path, now, datagrams, &mut scratch.transmit)
                }
                _ => Ok(()),
            };
            sent.map_err(|fault| (at, fault))?;
        }
        Ok(())
    }

    /// Reads what came over a connection. Returns whether anything did.
    pub fn read(
        &mut self,
        at: usize,
        now: Duration,
        give: &mut dyn FnMut(&Incoming) -> Option<B>,
        waste: &mut Vec<u8>,
    ) -> Result<bool, LinkFault> {
        let Some(Some(PeerLink::Conn(conn))) = self.ways.get_mut(at) else { return Ok(false) };
        let path = PathId(at as u8);
        let mut sink = Sink { session: &mut self.session, path, now, give, waste };
        conn.reader.read(&conn.stream, &mut sink)
    }

    /// Whether a connection has bytes that its socket did not take.
    pub fn waits_to_write(&self) -> bool {
        self.ways.iter().any(|way| matches!(way, Some(PeerLink::Conn(conn)) if conn.waits_to_write))
    }

    /// Whether it says no more, though the user may not know yet.
    pub fn has_ended(&self) -> bool {
        self.left || self.session.is_peer_closed() || self.session.is_broken()
    }

    /// How long an answer takes, by the slowest way.
    pub fn round_trip(&self) -> Duration {
        let times = (0..WAYS).filter_map(|at| self.session.rtt(PathId(at as u8)));
        times.max().unwrap_or_default()
    }

    pub fn has_way(&self) -> bool {
        self.ways.iter().any(Option::is_some)
    }
}

fn pump_conn<B: AsMut<[u8]>>(
    conn: &mut Conn,
    session: &mut Session<B>,
    path: PathId,
    now: Duration,
    events: &Events,
    transmit: &mut Transmit,
) -> Result<(), LinkFault> {
    let all = loop {
        let mut more = true;
        while conn.writer.queued_bytes() < conn.pace.at_once() {
            more = session.poll_transmit(now, path, transmit);
            if !more {
                break;
            }
            conn.writer.push(transmit.len_bytes(), pieces(transmit))?;
        }
        let queued = conn.writer.queued_bytes();
        let all = queued == 0 || conn.writer.write(&conn.stream)?;
        // Sealing makes a little more of it.
        if conn.pace.wrote(now, queued.saturating_sub(conn.writer.queued_bytes()), all) {
            session.limit_frames(path, conn.pace.at_once().min(conn.frame));
            conn.writer.apart = conn.pace.at_once() < super::pace::FIRST;
            set_unsent(&conn.stream, conn.pace.at_once())?;
        }
        if !all || !more {
            break all;
        }
    };
    if conn.waits_to_write == all {
        conn.waits_to_write = !all;
        let interest = if all { Interest::Readable } else { Interest::Both };
        events.change(&conn.stream, conn.number, interest)?;
    }
    Ok(())
}

fn pieces(transmit: &Transmit) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    let end = transmit.parts.last().map_or(0, |(position, _)| *position);
    let parts = transmit.parts.iter().flat_map(move |(position, bytes)| {
        let head = &transmit.bytes[at..*position];
        at = *position;
        [Piece::Copy(head), Piece::Share(bytes.clone())]
    });
    parts.chain([Piece::Copy(&transmit.bytes[end..])])
}

fn pump_route<B: AsMut<[u8]>>(
    route: &mut Route,
    session: &mut Session<B>,
    path: PathId,
    now: Duration,
    datagrams: &mut Datagrams,
    transmit: &mut Transmit,
) -> Result<(), LinkFault> {
    while datagrams.has_room() && session.poll_transmit(now, path, transmit) {
        datagrams.send(route.to, route.theirs, &mut route.sealer, transmit.slices())?;
        if !datagrams.has_room() {
            datagrams.flush()?;
        }
    }
    Ok(())
}

/// Brings the frames of a connection to its session, and the bytes of long ones straight into the buffers of
/// messages.
struct Sink<'a, B> {
    session: &'a mut Session<B>,
    path: PathId,
    now: Duration,
    give: &'a mut dyn FnMut(&Incoming) -> Option<B>,
    waste: &'a mut Vec<u8>,
}

impl<B: AsMut<[u8]>> FrameSink for Sink<'_, B> {
    fn frame(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        self.session.handle_frame(self.now, self.path, frame, self.give)
    }

    fn begin(&mut self, start: &[u8], len: usize) -> Result<bool, LinkError> {
        match Frame::parse_start(start) {
            // More than one fragment, or checksummed: it is taken as a whole.
            Err(LinkError::Truncated { .. }) => return Ok(false),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        match self.session.begin_frame(self.now, self.path, start, self.give)? {
            Begun::Needs(missing) if missing == len - start.len() => Ok(true),
            other => {
                let found =
                    if let Begun::Needs(missing) = other { missing + start.len() } else { start.len() };
                let expected = "the length in front of it";
                Err(LinkError::BadField { what: "length in a frame", found: found as u64, expected })
            }
        }
    }

    fn body(&mut self) -> &mut [u8] {
        if self.session.body_mut(self.path).is_empty() {
            let len = self.session.body_left(self.path).min(64 << 10);
            if self.waste.len() < len {
                self.waste.resize(len, 0);
            }
            return &mut self.waste[..len];
        }
        self.session.body_mut(self.path)
    }

    fn filled(&mut self, n: usize) -> Result<(), LinkError> {
        self.session.body_filled(self.now, self.path, n);
        Ok(())
    }
}
