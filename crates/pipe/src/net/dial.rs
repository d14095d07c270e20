//! Connections to a writer's unit, which may not be there yet.

use super::address::PipeAddress;
use super::channel::Channel;
use super::Trust;
use crate::error::PipeError;
use crate::join::{check_patience, ORDER};
use polyduct_message::link::net::{dial::Dial, socket::KeepAlive, LinkFault};
use polyduct_message::meeting::{later, RETRY, SLICE};
use polyduct_message::LinkError;
use polyduct_os::{
    clock,
    poll::{poll, PollItem},
    Errno, OsError,
};
use polyduct_port::{Options, PortError, PortName, UnitName};
use std::net::SocketAddr;
use std::time::Duration;

/// The fault of a connection, in terms of a pipe.
pub fn link(pipe: &str, unit: UnitName) -> impl Fn(LinkFault) -> PipeError + '_ {
    move |source| PipeError::Link { pipe: pipe.to_owned(), peer: unit.to_string(), source: source.into() }
}

/// Connects to a writer unit and proves the key, trying again while nobody listens there (unless it
/// `was_there`: it is gone then) and `check_in` says nothing else: an error, or where the unit is now.
pub fn dial(
    place: &PipeAddress,
    trust: &Trust,
    options: &Options,
    start: Duration,
    addrs: &[SocketAddr],
    (unit, was_there): (UnitName, bool),
    mut check_in: impl FnMut() -> Result<Option<SocketAddr>, PipeError>,
) -> Result<Channel, PipeError> {
    let pipe = place.to_string();
    let terms = place.terms(trust, options.unit);
    let patience = KeepAlive { dead_after: options.silence };
    let (mut pause, mut before) = (RETRY.0, String::new());
    for addr in addrs.iter().cycle() {
        let what = format!("{unit} to open the pipe{before}{ORDER}");
        let left = check_patience(&pipe, options, start, Duration::ZERO, &what)?;
        let addr = check_in()?.unwrap_or(*addr);
        // Whose time is over is told here what it waited for.
        let limit = left.saturating_add(SLICE);
        let begun = Dial::new(&terms, unit.unit, addr, patience, clock::now(), limit);
        // A unit that is somewhere else by now need not be waited for here.
        let mut is_there = || Ok(check_in()?.is_none_or(|now| now == addr));
        match begun.and_then(|dial| shake_hands(dial, (&pipe, addr, unit), options, start, &mut is_there)) {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(e)) => return Err(e),
            Err(fault) if was_there && is_refused(&fault) => return Err(link(&pipe, unit)(fault)),
            Err(fault) if is_passing(&fault) => before = format!(" ({addr}: {fault})"),
            Err(fault) => return Err(link(&pipe, unit)(fault)),
        }
        // Nobody is told when a port opens somewhere else: it is tried again after a while.
        std::thread::sleep(later(&mut pause));
    }
    Err(PipeError::Port(PortError::Timeout {
        port: PortName::Pipe(pipe),
        unit: None,
        what: format!("{unit}").into(),
        waited: clock::now() - start,
    }))
}

fn shake_hands(
    mut dial: Dial,
    (pipe, addr, unit): (&str, SocketAddr, UnitName),
    options: &Options,
    start: Duration,
    is_there: &mut impl FnMut() -> Result<bool, PipeError>,
) -> Result<Result<Channel, PipeError>, LinkFault> {
    loop {
        if let Some(established) = dial.serve(clock::now())? {
            return Ok(Ok(Channel::new(dial.into_stream(), established, options.silence)));
        }
        let (_, connects) = dial.waits_for();
        let how = match connects {
            true => format!("no connection to {addr} comes about; is it blocked?"),
            false => format!("{addr} takes the connection and says nothing; is it another program?"),
        };
        let what = format!("{unit} to open the pipe ({how})");
        let left = match is_there() {
            Ok(true) => check_patience(pipe, options, start, Duration::ZERO, &what),
            Ok(false) => return Err(LinkError::Closed.into()),
            Err(e) => Err(e),
        };
        let left = match left {
            Ok(left) => left,
            Err(e) => return Ok(Err(e)),
        };
        let (stream, writes) = dial.waits_for();
        let item = if writes { PollItem::writable(stream) } else { PollItem::readable(stream) };
        poll(&mut [item], Some(left.min(SLICE)))?;
    }
}

/// Whether nobody listens there: the listener is gone, or is not there yet.
pub fn is_refused(fault: &LinkFault) -> bool {
    matches!(fault, LinkFault::System(OsError::NotListening { .. }))
}

/// Whether another attempt may fare better: nobody listens yet, or the host is not up.
pub fn is_passing(fault: &LinkFault) -> bool {
    match fault {
        LinkFault::System(OsError::NotListening { .. } | OsError::PeerClosed) => true,
        LinkFault::System(OsError::System { errno, .. }) => [
            Errno::HOSTUNREACH,
            Errno::NETUNREACH,
            Errno::HOSTDOWN,
            Errno::TIMEDOUT,
            Errno::CONNRESET,
            Errno::NETDOWN,
        ]
        .contains(errno),
        LinkFault::Peer(LinkError::Closed | LinkError::Busy | LinkError::Deadline { .. }) => true,
        _ => false,
    }
}
