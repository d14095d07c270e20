//! How programs and gateways talk: over a socket of this host, or between hosts over a connection that proves the job's key.

use super::called::GatewayAt;
use super::control::{Answer, Ask};
use crate::Error;
use polyduct_message::config::Config;
use polyduct_message::handshake::{Incoming, GATEWAY, VERSION};
use polyduct_message::hash::fnv1a;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::acceptor::{Acceptor, Limits};
use polyduct_message::link::net::channel::Channel;
use polyduct_message::link::net::dial::Dial;
use polyduct_message::link::net::incarnations::Incarnations;
use polyduct_message::link::net::socket::{listen, local_addr, resolve, KeepAlive};
use polyduct_message::link::net::LinkFault;
use polyduct_message::link::noise::Terms;
use polyduct_message::meeting::{Within, SLICE};
use polyduct_message::LinkError;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::{Conn, Sent, MESSAGE_LIMIT};
use polyduct_os::{clock, process, Errno, OsError};
use serde::{de::DeserializeOwned, Serialize};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How soon a gateway that has no room is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the other end may take to take what is said.
const TAKES: Duration = Duration::from_secs(5);
/// How long it may be silent, and a connection take, where no setting says so.
const SILENCE: Duration = Duration::from_secs(10);

/// Whom programs trust at a gateway, if it is at a place and not on this host.
///
/// # Errors
/// [`Error::Key`] without a key.
pub fn trust(gateway: &GatewayAt, given: Option<Trust>) -> Result<Option<Trust>, Error> {
    let key = |source| Error::Key { what: format!("gateway {gateway}"), source };
    gateway.place().map(|_| given.map_or_else(|| Trust::from_env().map_err(key), Ok)).transpose()
}

/// The name of a gateway's socket on this host.
pub fn socket(gateway: &GatewayAt, job: &str) -> Vec<u8> {
    polyduct_pipe::socket_name(process::user_id(), job, &format!("gateway/{gateway}"))
}

/// A connection between a program and a gateway.
pub enum Talk {
    /// On one host, whose processes of the same user are heard.
    Here(Conn, Vec<u8>),
    /// Between hosts.
    There(Box<Channel>),
}

impl Talk {
    /// To a gateway: on this host by its name, which is that of a `job` (empty for none), or where it listens, by the key
    /// in [`trust`].
    ///
    /// # Errors
    /// There is none, or it does not know the key; the time is over.
    pub fn open(
        gateway: &GatewayAt,
        job: &str,
        trust: Option<&Trust>,
        within: Within<'_>,
    ) -> Result<Talk, LinkFault> {
        let (Some((host, port)), Some(trust)) = (gateway.place(), trust) else {
            return Ok(Talk::here(gateway, job)?);
        };
        let (start, mut last) = (clock::now(), OsError::sys("resolve", host, Errno::HOSTUNREACH).into());
        for addr in resolve(host, port) {
            let Some(left) = within.left(start) else { break };
            match Talk::there(addr, trust, left) {
                Ok(talk) => return Ok(talk),
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    /// Asks a gateway, which is tried again while it has no room: gives the answer, `None` where it takes longer, and the
    /// connection that it came over.
    ///
    /// # Errors
    /// As [`open`](Talk::open).
    pub fn ask(
        gateway: &GatewayAt,
        job: &str,
        trust: Option<&Trust>,
        ask: &Ask,
        within: Within<'_>,
    ) -> Result<(Talk, Option<Answer>), LinkFault> {
        let (start, mut left) = (clock::now(), within);
        loop {
            let mut talk = Talk::open(gateway, job, trust, left)?;
            // A gateway without room for one more hangs up, or says so where it can.
            let answer = talk.say(ask).and_then(|()| match within.left(start) {
                Some(left) => talk.hear(left),
                None => Ok(None),
            });
            left = match (answer, within.left(start)) {
                (Ok(Some(Answer::Full)) | Err(_), Some(left)) => left,
                (Ok(Some(Answer::Full)), None) => {
                    let limit_ms = within.most.as_millis() as u64;
                    return Err(
                        LinkError::Deadline { what: "room in a gateway that is full", limit_ms }.into()
                    );
                }
                (Err(fault), None) => return Err(fault),
                (Ok(answer), _) => return Ok((talk, answer)),
            };
            poll(&mut [], Some(AGAIN.min(left.most)))?;
        }
    }

    fn here(gateway: &GatewayAt, job: &str) -> Result<Talk, OsError> {
        let conn = Conn::connect(&socket(gateway, job))?;
        match conn.stranger()? {
            None => Ok(Talk::of(conn)),
            Some(_) => Err(OsError::NotListening { name: gateway.to_string() }),
        }
    }

    /// Over a connection that came.
    pub fn of(conn: Conn) -> Talk {
        Talk::Here(conn, vec![0; MESSAGE_LIMIT])
    }

    /// To the gateway that listens there.
    ///
    /// # Errors
    /// There is none, or it does not know the key.
    fn there(addr: SocketAddr, trust: &Trust, within: Within<'_>) -> Result<Talk, LinkFault> {
        let (now, borne) = (clock::now(), silence());
        let most = within.most.min(borne);
        let mut dial = Dial::new(&terms(trust), 0, addr, KeepAlive { dead_after: borne }, now, most)?;
        loop {
            if let Some(established) = dial.serve(clock::now())? {
                return Ok(Talk::There(Box::new(Channel::new(dial.into_stream(), established, borne))));
            }
            if (within.gives_up)() {
                return Err(OsError::PeerClosed.into());
            }
            let (stream, writes) = dial.waits_for();
            let item = if writes { PollItem::writable(stream) } else { PollItem::readable(stream) };
            poll(&mut [item], Some(SLICE.min(most)))?;
        }
    }

    /// Says something.
    ///
    /// # Errors
    /// The other end is gone, or does not take it.
    pub fn say(&mut self, what: &impl Serialize) -> Result<(), LinkFault> {
        let within = (clock::now(), Within::time(TAKES));
        match self {
            Talk::Here(conn, _) => {
                let message = GATEWAY.encode(what)?;
                while message.send(conn, &[])? == Sent::WouldBlock {
                    takes(within, conn)?;
                }
            }
            Talk::There(channel) => {
                channel.post(what)?;
                while !channel.flush()? {
                    takes(within, &**channel)?;
                }
            }
        }
        Ok(())
    }

    /// The next that is said; `None` when it takes longer, or the caller gives up.
    ///
    /// # Errors
    /// The other end is gone, or does not speak this protocol.
    pub fn hear<T: DeserializeOwned>(&mut self, within: Within<'_>) -> Result<Option<T>, LinkFault> {
        let start = clock::now();
        loop {
            match self {
                Talk::Here(conn, buffer) => match GATEWAY.receive(conn, buffer) {
                    Incoming::Message(said, _) => return Ok(Some(said)),
                    Incoming::Nothing => {}
                    Incoming::Closed | Incoming::Bad(_) => return Err(OsError::PeerClosed.into()),
                },
                Talk::There(channel) => {
                    if let Some(said) = channel.hear()? {
                        return Ok(Some(said));
                    }
                }
            }
            let Some(left) = within.left(start) else { return Ok(None) };
            poll(&mut [PollItem::readable(&*self)], Some(left.slice()))?;
        }
    }

    /// The address of this end, between hosts.
    pub fn own(&self) -> Option<SocketAddr> {
        match self {
            Talk::Here(..) => None,
            Talk::There(channel) => {
                channel.local().ok().map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()))
            }
        }
    }

    /// Tells, for whoever has no hold of it, whether the other end is gone.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn watch(&self) -> Result<impl Fn() -> bool + Send + Sync + 'static, OsError> {
        let errno = |e| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        let fd = self.as_fd().try_clone_to_owned();
        let fd: OwnedFd = fd.map_err(|e| OsError::sys("dup", "a connection", errno(e)))?;
        Ok(move || hung_up(&fd))
    }
}

impl AsFd for Talk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Talk::Here(conn, _) => conn.as_fd(),
            Talk::There(channel) => channel.as_fd(),
        }
    }
}

fn hung_up(conn: &impl AsFd) -> bool {
    let mut items = [PollItem::hangup(conn)];
    poll(&mut items, Some(Duration::ZERO)).is_ok() && items[0].is_hangup()
}

/// Waits for the other end to take what is said.
fn takes((start, within): (Duration, Within<'_>), conn: &impl AsFd) -> Result<(), LinkFault> {
    let limit_ms = TAKES.as_millis() as u64;
    let left = within.left(start).ok_or(LinkError::Deadline { what: "room for a message", limit_ms })?;
    Ok(poll(&mut [PollItem::writable(conn)], Some(left.slice())).map(drop)?)
}

/// How long the other end may be silent.
fn silence() -> Duration {
    Config::load().map_or(SILENCE, |config| config.time("silence"))
}

fn terms(trust: &Trust) -> Terms {
    let domain = fnv1a(b"polyduct gateways".iter().copied().chain(VERSION.to_le_bytes()));
    let incarnation = u64::from(std::process::id());
    let me = Identity { domain, unit: 0, incarnation, features: 0, frame_limit: 0, index: 0 };
    Terms { key: trust.key.clone(), me, trusted: trust.trusted_network, carrier: Carrier::Stream }
}

/// The door of a gateway that listens for programs of other hosts, which prove the key there, and where it is.
///
/// # Errors
/// The address cannot be had.
pub fn door(addr: SocketAddr, trust: &Trust) -> Result<(Acceptor, SocketAddr), OsError> {
    let (alive, listener) = (KeepAlive { dead_after: silence() }, listen(addr)?);
    let at = local_addr(&listener)?;
    Ok((Acceptor::new(listener, terms(trust), alive, Limits::default(), Incarnations::new(true))?, at))
}

/// A program that came there.
pub fn came(stream: TcpStream, established: polyduct_message::link::noise::Established) -> Talk {
    Talk::There(Box::new(Channel::new(stream, established, silence())))
}
