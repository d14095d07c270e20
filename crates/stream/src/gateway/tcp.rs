//! Lanes of ordinary TCP connections: the other end is any program that reads or writes a socket.

use super::lanes::{Lanes, Went};
use crate::execution::Send;
use crate::{Place, StreamError};
use polyduct_message::meeting::{Within, SLICE};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::{clock, socket::tcp};
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How soon a place where nobody listens is tried again: first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How long the end of a stream waits for a receiver to take what is left.
pub const FINISH: Duration = Duration::from_secs(60);

/// Connects as many lanes as the place has: calls there, again and again where nobody listens yet, or waits for calls.
///
/// # Errors
/// [`StreamError::Connect`] with what came of the last try; [`StreamError::Listen`].
pub fn connect(place: &Place, within: Within<'_>) -> Result<Vec<TcpStream>, StreamError> {
    match &place.host {
        Some(hosts) => {
            // Lanes are spread over several hosts, or names of one in several networks.
            let hosts: Vec<&str> = hosts.split(',').collect();
            (0..place.lanes as usize).map(|lane| call(place, hosts[lane % hosts.len()], within)).collect()
        }
        None => Listening::at(place)?.accept(place.lanes, within),
    }
}

/// The same, for lanes that are written: one that ends before all has arrived is reset, whatever ends it, so that what came
/// does not look like a whole.
///
/// # Errors
/// As [`connect`].
pub fn connect_out(place: &Place, within: Within<'_>) -> Result<Vec<TcpStream>, StreamError> {
    let sockets = connect(place, within)?;
    for socket in &sockets {
        let set = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
        set.map_err(|source| StreamError::Listen { place: place.to_string(), source })?;
    }
    Ok(sockets)
}

fn call(place: &Place, host: &str, within: Within<'_>) -> Result<TcpStream, StreamError> {
    let (start, mut pause) = (clock::now(), RETRY.0);
    loop {
        let tried = resolve(host, place.port)
            .and_then(|addrs| one_of(&addrs, within.left(start).map(|left| left.most)));
        let error = match tried {
            Ok(socket) => return prepared(place, socket),
            Err(error) => error,
        };
        let passing = matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
        );
        let Some(left) = within.left(start).filter(|_| passing) else {
            let waited = clock::now().saturating_sub(start);
            return Err(StreamError::Connect { place: place.to_string(), waited, source: error });
        };
        // Nobody tells when somebody listens.
        let _ = poll(&mut [], Some(pause.min(left.most)));
        pause = (pause * 2).min(RETRY.1);
    }
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

fn one_of(addrs: &[SocketAddr], left: Option<Duration>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addrs {
        match TcpStream::connect_timeout(addr, left.unwrap_or(SLICE).max(SLICE)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn prepared(place: &Place, socket: TcpStream) -> Result<TcpStream, StreamError> {
    let set = socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true));
    set.map_err(|source| StreamError::Listen { place: place.to_string(), source })?;
    Ok(socket)
}

/// A place where this side listens.
#[derive(Debug)]
pub struct Listening {
    place: Place,
    socket: TcpListener,
}

impl Listening {
    /// Listens at the place's port, on all addresses.
    ///
    /// # Errors
    /// [`StreamError::Listen`].
    pub fn at(place: &Place) -> Result<Listening, StreamError> {
        let listen = || {
            // Both kinds of addresses, where the system has both.
            let socket = TcpListener::bind(("::", place.port))
                .or_else(|_| TcpListener::bind(("0.0.0.0", place.port)))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = listen().map_err(|source| StreamError::Listen { place: place.to_string(), source })?;
        Ok(Listening { place: place.clone(), socket })
    }

    /// Waits for so many calls.
    ///
    /// # Errors
    /// [`StreamError::Connect`] when they do not come; [`StreamError::Listen`].
    pub fn accept(&self, lanes: u32, within: Within<'_>) -> Result<Vec<TcpStream>, StreamError> {
        let (start, mut came) = (clock::now(), Vec::new());
        while came.len() < lanes as usize {
            match self.socket.accept() {
                Ok((socket, _)) => came.push(prepared(&self.place, socket)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Some(left) = within.left(start) else {
                        let waited = clock::now().saturating_sub(start);
                        let source = io::Error::new(io::ErrorKind::TimedOut, "nobody called");
                        return Err(StreamError::Connect { place: self.place.to_string(), waited, source });
                    };
                    let _ = poll(&mut [PollItem::readable(&self.socket)], Some(left.slice()));
                }
                // One that was gone again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(source) => return Err(StreamError::Listen { place: self.place.to_string(), source }),
            }
        }
        Ok(came)
    }
}

/// Ordinary connections as lanes: what the system has taken has arrived, as far as this end can know.
#[derive(Debug)]
pub struct TcpLanes {
    place: String,
    /// Each with the bytes of its unit that are in the socket, its header's included.
    lanes: Vec<(TcpStream, usize)>,
}

impl TcpLanes {
    /// Over connections that do not block.
    pub fn new(place: String, sockets: Vec<TcpStream>) -> TcpLanes {
        TcpLanes { place, lanes: sockets.into_iter().map(|socket| (socket, 0)).collect() }
    }

    fn broken(&self, step: u64, source: io::Error) -> StreamError {
        let place = self.place.clone();
        match source.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => StreamError::Closed { place, step },
            _ => StreamError::Broken { place, step, source },
        }
    }
}

impl Lanes for TcpLanes {
    fn count(&self) -> u32 {
        self.lanes.len() as u32
    }

    fn go_on(&mut self, lane: u32, send: &Send, header: &[u8], data: &[u8]) -> Result<Went, StreamError> {
        let (socket, gone) = &mut self.lanes[lane as usize];
        while *gone < header.len() + data.len() {
            let head = &header[(*gone).min(header.len())..];
            let rest = &data[gone.saturating_sub(header.len())..];
            match socket.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]) {
                Ok(0) => return Err(self.broken(send.adu, io::ErrorKind::WriteZero.into())),
                Ok(len) => *gone += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Went::Partly),
                Err(error) => return Err(self.broken(send.adu, error)),
            }
        }
        *gone = 0;
        Ok(Went::Arrived)
    }

    fn items<'a>(&'a self, busy: &dyn Fn(u32) -> bool, items: &mut Vec<PollItem<'a>>) {
        let busy = (0..).zip(&self.lanes).filter(|(lane, _)| busy(*lane));
        items.extend(busy.map(|(_, (socket, _))| PollItem::writable(socket)));
    }

    fn finish(&mut self, steps: u64, again: &dyn Fn() -> bool) -> Result<(), StreamError> {
        for (socket, _) in &self.lanes {
            match finish(socket, again) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(StreamError::Stalled {
                        place: self.place.clone(),
                        step: steps,
                        waited: FINISH,
                    })
                }
                Err(source) => return Err(self.broken(steps, source)),
            }
        }
        Ok(())
    }

    fn abort(&mut self, _: &str) {
        for (socket, _) in &self.lanes {
            // Those too over which all has arrived. One that cannot be told is gone already.
            let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Says that no more comes, and waits until the other end's system has all of it. `false` when it takes longer.
fn finish(socket: &TcpStream, again: &dyn Fn() -> bool) -> io::Result<bool> {
    socket.shutdown(Shutdown::Write)?;
    let (start, mut pause) = (clock::now(), Duration::from_micros(50));
    loop {
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        let acks = tcp::acks(socket).map_err(|e| io::Error::other(e.to_string()))?;
        if !acks.missing && !acks.unsent {
            socket2::SockRef::from(socket).set_linger(None)?;
            return Ok(true);
        }
        if clock::now().saturating_sub(start) >= FINISH || again() {
            return Ok(false);
        }
        // The system tells nobody of acknowledgements.
        let _ = poll(&mut [], Some(pause));
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
