//! How programs and gateways talk: over a socket of this host, or between hosts over a connection that proves the job's key.

use crate::{url, Error};
use polyduct_message::config::Config;
use polyduct_message::handshake::{Incoming, GATEWAY, VERSION};
use polyduct_message::hash::fnv1a;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::acceptor::{Acceptor, Limits};
use polyduct_message::link::net::channel::Channel;
use polyduct_message::link::net::dial::Dial;
use polyduct_message::link::net::incarnations::Incarnations;
use polyduct_message::link::net::socket::{listen, resolve, KeepAlive};
use polyduct_message::link::net::LinkFault;
use polyduct_message::link::noise::Terms;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::{Conn, Sent, MESSAGE_LIMIT};
use polyduct_os::{clock, process, Errno, OsError};
use serde::{de::DeserializeOwned, Serialize};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a connection to another host may take, at most.
pub const CONNECTS: Duration = Duration::from_secs(10);
/// How long one wait takes, for interrupts to be seen.
const SLICE: Duration = Duration::from_millis(100);

/// Whom programs trust at a gateway, if it is at a place and not on this host.
///
/// # Errors
/// [`Error::Key`] without a key.
pub fn trust(gateway: &str, given: Option<Trust>) -> Result<Option<Trust>, Error> {
    let key = |source| Error::Key { url: format!("gateway {gateway}"), source };
    url::host_port(gateway).map(|_| given.map_or_else(|| Trust::from_env().map_err(key), Ok)).transpose()
}

/// The name of a gateway's socket on this host.
pub fn socket(gateway: &str, job: &str) -> Vec<u8> {
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
    /// To a gateway: on this host by its name, which is that of a `job` (empty for none), or where it listens
    /// (`HOST:PORT`), by the key in [`trust`]. It waits so long at most, and `again` is asked now and then: give up?
    ///
    /// # Errors
    /// There is none, or it does not know the key.
    pub fn open(
        gateway: &str,
        job: &str,
        trust: Option<&Trust>,
        (most, again): (Duration, &dyn Fn() -> bool),
    ) -> Result<Talk, LinkFault> {
        let (Some((host, port)), Some(trust)) = (url::host_port(gateway), trust) else {
            return Ok(Talk::here(gateway, job)?);
        };
        let mut last = OsError::sys("resolve", gateway, Errno::HOSTUNREACH).into();
        for addr in resolve(&host, port) {
            match Talk::there(addr, trust, (most.min(CONNECTS), again)) {
                Ok(talk) => return Ok(talk),
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    fn here(gateway: &str, job: &str) -> Result<Talk, OsError> {
        let conn = Conn::connect(&socket(gateway, job))?;
        match conn.stranger()? {
            None => Ok(Talk::of(conn)),
            Some(_) => Err(OsError::NotListening { name: gateway.to_owned() }),
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
    fn there(
        addr: SocketAddr,
        trust: &Trust,
        (most, again): (Duration, &dyn Fn() -> bool),
    ) -> Result<Talk, LinkFault> {
        let (now, borne) = (clock::now(), silence());
        let mut dial = Dial::new(&terms(trust), 0, addr, KeepAlive { dead_after: borne }, now, most)?;
        loop {
            if let Some(established) = dial.serve(clock::now())? {
                return Ok(Talk::There(Box::new(Channel::new(dial.into_stream(), established, borne))));
            }
            if again() {
                return Err(OsError::PeerClosed.into());
            }
            let (stream, writes) = dial.waits_for();
            let item = if writes { PollItem::writable(stream) } else { PollItem::readable(stream) };
            poll(&mut [item], Some(SLICE))?;
        }
    }

    /// Says something.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn say(&mut self, what: &impl Serialize) -> Result<(), LinkFault> {
        match self {
            Talk::Here(conn, _) => {
                let message = GATEWAY.encode(what)?;
                while message.send(conn, &[])? == Sent::WouldBlock {
                    poll(&mut [PollItem::writable(conn)], Some(SLICE))?;
                }
            }
            Talk::There(channel) => {
                channel.post(what)?;
                while !channel.flush()? {
                    poll(&mut [PollItem::writable(&**channel)], Some(SLICE))?;
                }
            }
        }
        Ok(())
    }

    /// The next that is said; `None` when it takes longer, or `again` says to give up.
    ///
    /// # Errors
    /// The other end is gone, or does not speak this protocol.
    pub fn hear<T: DeserializeOwned>(
        &mut self,
        most: Option<Duration>,
        again: &dyn Fn() -> bool,
    ) -> Result<Option<T>, LinkFault> {
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
            let spent = clock::now().saturating_sub(start);
            if again() || most.is_some_and(|most| spent >= most) {
                return Ok(None);
            }
            let left = most.map_or(SLICE, |most| most.saturating_sub(spent).min(SLICE));
            poll(&mut [PollItem::readable(&*self)], Some(left))?;
        }
    }

    /// The address of this end, between hosts.
    pub fn own(&self) -> Option<SocketAddr> {
        match self {
            Talk::Here(..) => None,
            Talk::There(channel) => channel.local().ok(),
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

/// How long the other end may be silent.
fn silence() -> Duration {
    Config::load().map_or(CONNECTS, |config| config.time("silence"))
}

fn terms(trust: &Trust) -> Terms {
    let domain = fnv1a(b"polyduct gateways".iter().copied().chain(VERSION.to_le_bytes()));
    let incarnation = u64::from(std::process::id());
    let me = Identity { domain, unit: 0, incarnation, features: 0, frame_limit: 0, index: 0 };
    Terms { key: trust.key.clone(), me, trusted: trust.trusted_network, carrier: Carrier::Stream }
}

/// The door of a gateway that listens for programs of other hosts, which prove the key there.
///
/// # Errors
/// The address cannot be had.
pub fn door(addr: SocketAddr, trust: &Trust) -> Result<Acceptor, OsError> {
    let alive = KeepAlive { dead_after: silence() };
    Acceptor::new(listen(addr)?, terms(trust), alive, Limits::default(), Incarnations::new(true))
}

/// A program that came there.
pub fn came(stream: TcpStream, established: polyduct_message::link::noise::Established) -> Talk {
    Talk::There(Box::new(Channel::new(stream, established, silence())))
}
