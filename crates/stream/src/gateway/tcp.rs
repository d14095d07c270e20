//! Lanes of ordinary TCP connections: the other end is any program that reads or writes a socket.

use crate::{Place, StreamError};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::{clock, socket::tcp};
use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How soon a place where nobody listens is tried again: first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How long one look at the other end takes, for interrupts to be seen.
const SLICE: Duration = Duration::from_millis(100);

/// How long to wait, and what may end a wait before.
pub struct Patience<'a> {
    /// The longest wait for the other end to be there.
    pub open: Duration,
    /// Asked now and then: give up?
    pub again: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    fn left(&self, since: Duration) -> Option<Duration> {
        let left = self.open.checked_sub(clock::now().saturating_sub(since))?;
        (!(self.again)()).then_some(left)
    }
}

/// Connects as many lanes as the place has: calls there, again and again where nobody listens yet, or waits for calls.
///
/// # Errors
/// [`StreamError::Connect`] with what came of the last try; [`StreamError::Listen`].
pub fn connect(place: &Place, patience: &Patience<'_>) -> Result<Vec<TcpStream>, StreamError> {
    match &place.host {
        Some(host) => (0..place.lanes).map(|_| call(place, host, patience)).collect(),
        None => Listening::at(place)?.accept(place.lanes, patience),
    }
}

fn call(place: &Place, host: &str, patience: &Patience<'_>) -> Result<TcpStream, StreamError> {
    let (start, mut pause) = (clock::now(), RETRY.0);
    loop {
        let tried = resolve(host, place.port).and_then(|addrs| one_of(&addrs, patience.left(start)));
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
        let Some(left) = patience.left(start).filter(|left| passing && !left.is_zero()) else {
            let waited = clock::now().saturating_sub(start);
            return Err(StreamError::Connect { place: place.to_string(), waited, source: error });
        };
        // Nobody tells when somebody listens.
        let _ = poll(&mut [], Some(pause.min(left)));
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

/// Has a connection end in a way that does not look like the end of a stream, when it is closed.
pub fn reset(socket: &TcpStream) {
    // One that cannot be told is gone already.
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
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
    pub fn accept(&self, lanes: u32, patience: &Patience<'_>) -> Result<Vec<TcpStream>, StreamError> {
        let (start, mut came) = (clock::now(), Vec::new());
        while came.len() < lanes as usize {
            match self.socket.accept() {
                Ok((socket, _)) => came.push(prepared(&self.place, socket)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let Some(left) = patience.left(start).filter(|left| !left.is_zero()) else {
                        let waited = clock::now().saturating_sub(start);
                        let source = io::Error::new(io::ErrorKind::TimedOut, "nobody called");
                        return Err(StreamError::Connect { place: self.place.to_string(), waited, source });
                    };
                    let _ = poll(&mut [PollItem::readable(&self.socket)], Some(left.min(SLICE)));
                }
                // One that was gone again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(source) => return Err(StreamError::Listen { place: self.place.to_string(), source }),
            }
        }
        Ok(came)
    }
}

/// A lane that sends: at most one unit at a time is on its way into the socket.
#[derive(Debug)]
pub struct Lane {
    socket: TcpStream,
    /// Bytes of the unit that are in the socket, its header's included.
    gone: usize,
}

impl Lane {
    /// Over a connection that does not block.
    pub fn new(socket: TcpStream) -> Lane {
        Lane { socket, gone: 0 }
    }

    /// The connection.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Goes on with a unit: `true` when all of it is in the socket.
    ///
    /// # Errors
    /// The system's; a receiver that has closed is a broken pipe.
    pub fn go_on(&mut self, header: &[u8], data: &[u8]) -> io::Result<bool> {
        let all = header.len() + data.len();
        while self.gone < all {
            let head = &header[self.gone.min(header.len())..];
            let rest = &data[self.gone.saturating_sub(header.len())..];
            match self.socket.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => self.gone += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.gone = 0;
        Ok(true)
    }

    /// Says that no more comes, and waits until the other end's system has all of it. `false` when it takes longer.
    ///
    /// # Errors
    /// The system's: the other end did not get all of it.
    pub fn finish(&mut self, most: Duration, again: &dyn Fn() -> bool) -> io::Result<bool> {
        self.socket.shutdown(Shutdown::Write)?;
        let (start, mut pause) = (clock::now(), Duration::from_micros(50));
        loop {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            let acks = tcp::acks(&self.socket).map_err(|e| io::Error::other(e.to_string()))?;
            if !acks.missing && !acks.unsent {
                return Ok(true);
            }
            if clock::now().saturating_sub(start) >= most || again() {
                return Ok(false);
            }
            // The system tells nobody of acknowledgements.
            let _ = poll(&mut [], Some(pause));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}
