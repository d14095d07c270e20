//! The datagram socket of an endpoint: one for all peers, many datagrams in a system call.
//!
//! Datagrams of one length to one address go out as one segmented send where the kernel splits it (UDP GSO),
//! else as one `sendmmsg`; what comes is read by `recvmmsg`, joined where the kernel joins it (UDP GRO). A
//! datagram is a header of [`HEADER`] bytes and a frame, sealed or plain. Hosts on the way may cut it (IPv4's
//! DF is not set), so that a path for shorter ones carries it, too, if more slowly.

use super::ports;
use super::socket::sys;
use crate::error::LinkError;
use crate::link::seal::{Opener, Sealer, TAG};
use polyduct_os::{Errno, OsError};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{self, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;

/// What a datagram with a frame starts with.
pub const MAGIC: [u8; 4] = *b"PDND";
/// Bytes before the frame: magic, the receiver's index, the record's number.
pub const HEADER: usize = 16;
/// Bytes of a datagram that nearly every path carries whole (RFC 9000 assumes the same).
pub const SAFE: usize = 1200;
/// Bytes of a datagram to this machine.
pub const LOCAL: usize = 16_000;
/// Bytes of a datagram, at most.
pub const LIMIT: usize = 65_000;
/// Bytes that wait to be sent, at most.
const BATCH: usize = 256 << 10;
/// One segmented send, at most (the kernel's limit for a datagram).
const SEGMENTED: usize = 65_000;
/// Reads in one call, and the room of each.
const READS: usize = 8;
const READ: usize = 64 << 10;
/// Datagrams in one `sendmmsg`.
const MANY: usize = 32;
/// Socket buffers asked for, in bytes; the kernel gives what its limits allow.
const SOCKET_BUFFER: usize = 4 << 20;

/// Datagrams of one length (the last may be shorter) to one address.
struct Run {
    to: SocketAddr,
    segment: usize,
    bytes: Range<usize>,
    /// The last one was shorter: nothing can follow.
    closed: bool,
}

/// The socket and what waits to go out.
pub struct Datagrams {
    socket: UdpSocket,
    state: UdpSocketState,
    segments: usize,
    out: Vec<u8>,
    runs: Vec<Run>,
    read: Vec<u8>,
    scratch: Vec<u8>,
}

impl Datagrams {
    /// Binds a socket; port 0 takes a free one, of those that the [environment](super::ports) allows.
    /// `offload` lets the kernel cut and join where it can.
    ///
    /// # Errors
    /// [`OsError::AddrInUse`], or the system's.
    pub fn bind(addr: SocketAddr, offload: bool) -> Result<Datagrams, OsError> {
        ports::bind_in(addr, ports::range()?, |addr| Datagrams::bind_at(addr, offload))
    }

    fn bind_at(addr: SocketAddr, offload: bool) -> Result<Datagrams, OsError> {
        let fail = |op, e: std::io::Error| match Errno::from_io_error(&e).unwrap_or(Errno::IO) {
            Errno::ADDRINUSE => OsError::AddrInUse { name: addr.to_string() },
            e => sys(op, addr.to_string(), e),
        };
        let socket = UdpSocket::bind(addr).map_err(|e| fail("bind", e))?;
        polyduct_os::fork::keep(&socket);
        let state = UdpSocketState::new((&socket).into()).map_err(|e| fail("setsockopt", e))?;
        // Where a path carries less than a datagram has, the system may cut it.
        let _ = match addr {
            SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DONT),
            SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DONT),
        };
        // Less than asked for is no failure.
        let _ = state.set_send_buffer_size((&socket).into(), SOCKET_BUFFER);
        let _ = state.set_recv_buffer_size((&socket).into(), SOCKET_BUFFER);
        let segments = if offload { state.max_gso_segments() } else { 1 };
        let (out, runs, read, scratch) =
            (Vec::with_capacity(BATCH), Vec::new(), vec![0; READS * READ], vec![0; READ]);
        Ok(Datagrams { socket, state, segments, out, runs, read, scratch })
    }

    /// The socket, to wait for.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Where it is bound.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> Result<SocketAddr, OsError> {
        let errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        self.socket.local_addr().map_err(|e| sys("getsockname", "a UDP socket", errno(e)))
    }

    /// Whether another frame may be given to [`send`](Datagrams::send) before [`flush`](Datagrams::flush).
    pub fn has_room(&self) -> bool {
        self.out.len() + LIMIT <= BATCH
    }

    /// Takes a frame of `pieces` for the peer that knows this side's frames by `index`.
    ///
    /// # Errors
    /// [`LinkError::BadField`] where it is too long, or 2⁶⁴ were sent.
    pub fn send<'a>(
        &mut self,
        to: SocketAddr,
        index: u32,
        sealer: &mut Sealer,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), LinkError> {
        let start = self.out.len();
        self.out.extend_from_slice(&MAGIC);
        self.out.extend_from_slice(&index.to_le_bytes());
        self.out.extend_from_slice(&[0; 8]);
        if sealer.is_plain() {
            pieces.for_each(|p| self.out.extend_from_slice(p));
        } else {
            let mut len = 0;
            for piece in pieces {
                let room = self.scratch.get_mut(len..len + piece.len()).ok_or(TOO_LONG)?;
                room.copy_from_slice(piece);
                len += piece.len();
            }
            self.out.resize(start + HEADER + len + TAG, 0);
            match sealer.seal(&self.scratch[..len], &mut self.out[start + HEADER..]) {
                Ok((number, _)) => self.out[start + 8..start + HEADER].copy_from_slice(&number.to_le_bytes()),
                Err(error) => {
                    self.out.truncate(start);
                    return Err(error);
                }
            }
        }
        if self.out.len() - start > LIMIT {
            self.out.truncate(start);
            return Err(TOO_LONG);
        }
        self.queue(to, start);
        Ok(())
    }

    /// Takes a datagram as it is, for the handshake.
    pub fn send_raw(&mut self, to: SocketAddr, bytes: &[u8]) {
        let start = self.out.len();
        self.out.extend_from_slice(bytes);
        self.queue(to, start);
    }

    fn queue(&mut self, to: SocketAddr, start: usize) {
        let (end, len) = (self.out.len(), self.out.len() - start);
        if let Some(run) = self.runs.last_mut() {
            let count = run.bytes.len() / run.segment;
            let fits = count < self.segments && run.bytes.len() + len <= SEGMENTED;
            if run.to == to && !run.closed && len <= run.segment && fits {
                run.closed = len < run.segment;
                run.bytes.end = end;
                return;
            }
        }
        self.runs.push(Run { to, segment: len, bytes: start..end, closed: false });
    }

    /// Sends what waits. Returns whether nothing is left; what the system or a peer's host refuses counts as
    /// lost on the way, and is of no matter to the others.
    ///
    /// # Errors
    /// The system's: the socket is of no further use.
    pub fn flush(&mut self) -> Result<bool, OsError> {
        let (mut sent, mut failed) = (0, None);
        while sent < self.runs.len() {
            let run = &self.runs[sent];
            let segmented = run.bytes.len() > run.segment;
            let result = match segmented || sent + 1 == self.runs.len() {
                true => self.send_run(run).map(|()| 1),
                false => self.send_many(sent),
            };
            match result {
                Ok(n) => sent += n,
                Err(Errno::AGAIN) => break,
                Err(e) if is_fatal(e) => {
                    failed = Some(sys("sendmsg", "a UDP socket", e));
                    sent = self.runs.len();
                }
                // It may be that the way there does not take several in one: they go one by one.
                Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO) if segmented => {
                    self.take_apart(sent);
                    self.segments = self.segments.min(self.state.max_gso_segments());
                }
                // A full device queue, a route that refuses, an answer to an earlier datagram: this one is
                // lost, as datagrams are.
                Err(_) => sent += 1,
            }
        }
        self.runs.drain(..sent);
        if self.runs.is_empty() {
            self.out.clear();
        }
        failed.map_or(Ok(self.runs.is_empty()), Err)
    }

    /// Makes a run for each datagram of a run.
    fn take_apart(&mut self, at: usize) {
        let Run { to, segment, bytes, .. } = &self.runs[at];
        let single = |start: usize| {
            let bytes = start..(start + segment).min(bytes.end);
            Run { to: *to, segment: bytes.len(), bytes, closed: true }
        };
        let apart: Vec<_> = bytes.clone().step_by(*segment).map(single).collect();
        self.runs.splice(at..=at, apart);
    }

    fn send_run(&self, run: &Run) -> Result<(), Errno> {
        let contents = &self.out[run.bytes.clone()];
        let segment_size = (contents.len() > run.segment).then_some(run.segment);
        let transmit = Transmit { destination: run.to, ecn: None, contents, segment_size, src_ip: None };
        self.state.try_send((&self.socket).into(), &transmit).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => Errno::AGAIN,
            _ => Errno::from_io_error(&e).unwrap_or(Errno::IO),
        })
    }

    /// Sends runs of one datagram each, from number `first` on; returns how many.
    fn send_many(&self, first: usize) -> Result<usize, Errno> {
        let single = |run: &&Run| run.bytes.len() <= run.segment;
        let runs = self.runs[first..].iter().take_while(single).take(MANY);
        let parts: Vec<_> = runs
            .map(|run| (SocketAddrAny::from(run.to), [IoSlice::new(&self.out[run.bytes.clone()])]))
            .collect();
        let mut controls: Vec<_> = parts.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<_> = parts
            .iter()
            .zip(&mut controls)
            .map(|((to, bytes), control)| MMsgHdr::new_with_addr(to, bytes, control))
            .collect();
        rustix::io::retry_on_intr(|| net::sendmmsg(&self.socket, &mut messages, SendFlags::DONTWAIT))
    }

    /// Reads what has come, one system call's worth, and gives out each datagram with where it came from.
    /// Returns whether there may be more.
    ///
    /// # Errors
    /// The system's: the socket is of no further use.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) -> Result<bool, OsError> {
        let mut meta = [RecvMeta::default(); READS];
        let mut parts = self.read.chunks_mut(READ).map(IoSliceMut::new);
        let mut parts: [IoSliceMut<'_>; READS] =
            core::array::from_fn(|_| parts.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        match self.state.recv((&self.socket).into(), &mut parts, &mut meta) {
            Ok(count) => {
                for (meta, part) in meta[..count].iter().zip(&parts) {
                    for datagram in part[..meta.len.min(READ)].chunks(meta.stride.max(1)) {
                        take(meta.addr, datagram);
                    }
                }
                Ok(count > 0)
            }
            Err(e) => match Errno::from_io_error(&e).unwrap_or(Errno::IO) {
                Errno::AGAIN => Ok(false),
                Errno::NOMEM => Ok(false),
                // Answers of hosts to what was sent before.
                e if !is_fatal(e) => Ok(true),
                e => Err(sys("recvmmsg", "a UDP socket", e)),
            },
        }
    }
}

/// Whether it is about the socket, and not about one datagram.
fn is_fatal(error: Errno) -> bool {
    matches!(error, Errno::BADF | Errno::NOTSOCK | Errno::FAULT | Errno::OPNOTSUPP)
}

const TOO_LONG: LinkError =
    LinkError::BadField { what: "length of a datagram", found: LIMIT as u64 + 1, expected: "at most 65000" };

/// A datagram with a frame: the receiver's index, the record's number, and the record.
pub fn split(datagram: &[u8]) -> Option<(u32, u64, &[u8])> {
    let (header, record) = datagram.split_first_chunk::<HEADER>()?;
    let [m0, m1, m2, m3, i0, i1, i2, i3, n @ ..] = *header;
    let frame = [m0, m1, m2, m3] == MAGIC;
    frame.then(|| (u32::from_le_bytes([i0, i1, i2, i3]), u64::from_le_bytes(n), record))
}

/// The frame of a record, opened into `scratch` where it is sealed.
///
/// # Errors
/// [`LinkError::Unauthentic`], [`LinkError::OutOfTurn`]: the datagram is dropped, nothing else.
pub fn open<'a>(
    opener: &mut Opener,
    number: u64,
    record: &'a [u8],
    scratch: &'a mut [u8],
) -> Result<&'a [u8], LinkError> {
    if opener.is_plain() {
        return Ok(record);
    }
    let len = opener.open_at(number, record, &mut scratch[..record.len()])?;
    Ok(&scratch[..len])
}

/// Bytes of a frame in datagrams of `datagram` bytes.
pub fn frame_limit(datagram: usize) -> usize {
    datagram.saturating_sub(HEADER + TAG)
}
