//! Reaching the other end of a stream, before anything is carried.

use super::{show, StreamTarget};
use crate::Error;
use polyduct_display::Display;
use polyduct_message::config::Config;
use polyduct_message::link::key::{self, Trust};
use polyduct_message::meeting::Within;
use polyduct_stream::gateway::far::{FarLanes, Side};
use polyduct_stream::gateway::{tcp, window};
use polyduct_stream::{Place, Protocol, Share, StreamError};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

/// Where a program's steps go.
pub enum Outward {
    /// Ordinary connections.
    Tcp(Vec<TcpStream>),
    /// Datagrams.
    Udp(Vec<UdpSocket>),
    /// A file, which is made when it is known of what.
    Window,
    /// Lanes to another site.
    Far(Box<FarLanes>),
    /// Browsers.
    Display(Arc<Display>),
}

/// Where a program's steps come from.
pub enum Inward {
    /// An ordinary connection.
    Tcp(TcpStream),
    /// Datagrams.
    Udp(UdpSocket),
    /// Lanes from another site, whose program may open its port after this one.
    Far(Box<Side>),
}

/// Reaches where steps go, with the lanes of one gateway's share.
///
/// # Errors
/// [`Error::Stream`] where nobody is there in time, [`Error::Key`] without a key.
pub fn outward(
    target: &StreamTarget,
    share: Share,
    trust: Option<Trust>,
    within: Within<'_>,
) -> Result<Outward, Error> {
    let place = Place { lanes: target.place.lanes / share.of, ..target.place.clone() };
    Ok(match place.protocol {
        Protocol::Tcp => Outward::Tcp(tcp::connect_out(&place, within)?),
        Protocol::Udp | Protocol::Rtp => {
            Outward::Udp((0..target.place.lanes).map(|_| datagrams(target)).collect::<Result<_, _>>()?)
        }
        Protocol::Window => {
            window::check(target.name.as_ref())?;
            Outward::Window
        }
        Protocol::Far => {
            let side = Side { place, share, ..side(target, true, trust)? };
            Outward::Far(Box::new(FarLanes::meet(side, within)?))
        }
        Protocol::Display => Outward::Display(show::display(target)?),
    })
}

/// Reaches where steps come from; another site is met later.
///
/// # Errors
/// As [`outward`].
pub fn inward(target: &StreamTarget, trust: Option<Trust>, within: Within<'_>) -> Result<Inward, Error> {
    Ok(match target.place.protocol {
        Protocol::Tcp => {
            let mut sockets = tcp::connect(&target.place, within)?;
            match (sockets.pop(), sockets.is_empty()) {
                (Some(socket), true) => Inward::Tcp(socket),
                _ => {
                    return Err(Error::Misuse {
                        what: format!("{target}: plain bytes are read from one lane"),
                    })
                }
            }
        }
        Protocol::Udp => Inward::Udp(datagrams(target)?),
        Protocol::Rtp | Protocol::Window => {
            return Err(Error::Misuse { what: format!("{target}: this is written, and not read") });
        }
        Protocol::Far => Inward::Far(Box::new(side(target, false, trust)?)),
        Protocol::Display => {
            return Err(Error::Misuse { what: format!("{target}: a display is written, and not read") });
        }
    })
}

/// A socket for datagrams: to a host, or where there is none, for those that come.
fn datagrams(target: &StreamTarget) -> Result<UdpSocket, Error> {
    let place = &target.place;
    let open = || match &place.host {
        Some(host) => {
            let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address");
            for addr in (&host[..], place.port).to_socket_addrs()? {
                let any = if addr.is_ipv4() { "0.0.0.0" } else { "::" };
                let socket = UdpSocket::bind((any, 0))?;
                match socket.connect(addr) {
                    Ok(()) => return Ok(socket),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
        None => UdpSocket::bind(("::", place.port)).or_else(|_| UdpSocket::bind(("0.0.0.0", place.port))),
    };
    let socket = open().and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    let socket = socket.map_err(|source| StreamError::Listen { place: target.to_string(), source })?;
    // As much as the system gives: what does not fit is lost.
    let sized = socket2::SockRef::from(&socket);
    let _ = sized.set_recv_buffer_size(ROOM).and_then(|()| sized.set_send_buffer_size(ROOM));
    Ok(socket)
}

/// Bytes that wait in a socket of datagrams, where the system allows it.
const ROOM: usize = 8 << 20;

/// So many bytes that nobody can guess.
///
/// # Errors
/// [`StreamError::System`].
pub fn draw<const N: usize>() -> Result<[u8; N], StreamError> {
    let mut bytes = [0; N];
    key::random(&mut bytes).map_err(|e| StreamError::System { what: e.to_string() })?;
    Ok(bytes)
}

fn side(target: &StreamTarget, transmits: bool, trust: Option<Trust>) -> Result<Side, Error> {
    let key = |source| Error::Key { what: target.to_string(), source };
    let trust = trust.map_or_else(|| Trust::from_env().map_err(key), Ok)?;
    let config = Config::load().map_err(polyduct_message::MessageError::from)?;
    Ok(Side {
        place: target.place.clone(),
        name: target.name.clone(),
        transmits,
        trust,
        borne: config.time("silence"),
        session: u128::from_le_bytes(draw()?).max(1),
        share: Share::ALL,
    })
}
