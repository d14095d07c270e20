//! Datagrams: lanes that lose what does not fit, and a receiver that gives a program only steps that came whole.
//!
//! `udp://` has a header of its own, [`Header`]; `rtp://` is raw video of RFC 4175, which GStreamer's `rtpvrawdepay` and others
//! read. A striping unit is a packet, or as many as the system cuts apart itself.

use super::lanes::{Lanes, Went};
use super::receive::Sink;
use super::Lease;
use crate::execution::Send;
use crate::StreamError;
use polyduct_message::meeting::SLICE;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::udp;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a [`Header`].
pub const HEADER: usize = 40;
/// What every datagram of `udp://` begins with: a name, and the version.
const MAGIC: [u8; 5] = *b"PDUD\x02";
/// How often the end of a stream is said, since datagrams are lost.
const ENDS: usize = 3;
/// Bytes of datagrams that go at once, at most.
const LARGEST_SENT: usize = 65_000;
/// The largest datagram.
const LARGEST: usize = 65_536;

/// What a datagram says of itself. Numbers go with the lowest byte first.
///
/// | at | bytes | what |
/// |---|---|---|
/// | 0 | 4 | `PDUD` |
/// | 4 | 1 | the version, 2 |
/// | 5 | 1 | 1: the stream has ended, and there were so many steps; else 0 |
/// | 6 | 2 | the number of the stream, which the sender draws: of another one steps begin anew |
/// | 8 | 8 | the step, from 0 |
/// | 16 | 8 | where in the step the payload belongs |
/// | 24 | 8 | bytes of the step |
/// | 32 | 4 | bytes of the payload |
/// | 36 | 4 | CRC-32C of the 36 bytes before, and of the payload |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether the stream has ended.
    pub end: bool,
    /// The stream's number.
    pub stream: u16,
    /// The step; at the end how many there were.
    pub step: u64,
    /// Where the payload belongs.
    pub at: u64,
    /// Bytes of the step.
    pub step_len: u64,
}

impl Header {
    /// The bytes before a payload.
    pub fn encode(&self, payload: &[u8]) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5] = self.end.into();
        bytes[6..8].copy_from_slice(&self.stream.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.step.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.at.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.step_len.to_le_bytes());
        bytes[32..36].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..36]), payload);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// A datagram taken apart; `None` for any that is no whole one of this form.
    ///
    /// ```
    /// use polyduct_stream::gateway::udp::Header;
    ///
    /// let header = Header { end: false, stream: 3, step: 7, at: 2, step_len: 5 };
    /// let datagram = [&header.encode(b"abc")[..], b"abc"].concat();
    /// assert_eq!(Header::decode(&datagram), Some((header, &b"abc"[..])));
    /// assert_eq!(Header::decode(&datagram[..datagram.len() - 1]), None);
    /// ```
    pub fn decode(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (head, payload) = datagram.split_at_checked(HEADER)?;
        let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..36]), payload);
        let stream = u16::from_le_bytes([head[6], head[7]]);
        let (step, at, step_len) = (number(8)?, number(16)?, number(24)?);
        let header = Header { end: head[5] == 1, stream, step, at, step_len };
        let fits = header.at.checked_add(payload.len() as u64).is_some_and(|end| end <= header.step_len);
        let whole = head[..5] == MAGIC && head[5] <= 1 && word(32)? as usize == payload.len();
        (whole && fits && word(36)? == crc).then_some((header, payload))
    }
}

/// A frame of raw video: what RFC 4175 has to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Video {
    /// Pixels of a line.
    pub width: u32,
    /// Bytes of a pixel: 3 for RGB, 4 for RGBA.
    pub pixel: u32,
}

/// The most bytes of a line, and the most lines, that RFC 4175 can say.
pub const VIDEO_MOST: (u32, u32) = (1 << 15, 1 << 15);

impl Video {
    /// What goes before the payload: the header of RTP (RFC 3550), the sequence number's upper half, and a line
    /// header for each line that the payload has something of (RFC 4175, section 4.3).
    pub fn header(&self, send: &Send, sequence: u32, timestamp: u32, source: u32) -> Vec<u8> {
        let last = send.at.end == send.adu_len;
        let mut bytes = vec![0x80, 96 | if last { 0x80 } else { 0 }];
        bytes.extend((sequence as u16).to_be_bytes());
        bytes.extend(timestamp.to_be_bytes());
        bytes.extend(source.to_be_bytes());
        bytes.extend(((sequence >> 16) as u16).to_be_bytes());
        let line = u64::from(self.width * self.pixel).max(1);
        let mut at = send.at.start;
        while at < send.at.end {
            let end = (at / line + 1) * line;
            let len = end.min(send.at.end) - at;
            let more = if at + len < send.at.end { 0x8000 } else { 0 };
            bytes.extend((len as u16).to_be_bytes());
            bytes.extend(((at / line) as u16 & 0x7fff).to_be_bytes());
            bytes.extend(((at % line / u64::from(self.pixel)) as u16 & 0x7fff | more).to_be_bytes());
            at += len;
        }
        bytes
    }
}

/// Lanes of datagrams.
#[derive(Debug)]
pub struct UdpLanes {
    place: String,
    /// Each with the packets of its unit that are gone.
    sockets: Vec<(UdpSocket, usize)>,
    /// Bytes of data in a packet.
    packet: usize,
    /// Packets that go at once.
    batch: usize,
    video: Option<Video>,
    sequence: u32,
    source: u32,
    /// The step that is being sent, and when it began, in the clock of video.
    frame: Option<(u64, u32)>,
}

impl UdpLanes {
    /// Over sockets that are connected and do not block, in packets of so many bytes of data; `source`, which is drawn,
    /// tells streams apart.
    pub fn new(
        place: String,
        sockets: Vec<UdpSocket>,
        packet: u64,
        video: Option<Video>,
        source: u32,
    ) -> UdpLanes {
        let packet = packet as usize;
        // Headers of video differ in length.
        let batch = (LARGEST_SENT / (packet + HEADER)).clamp(1, udp::MOST);
        let mut cuts = |socket| udp::cut(socket, (packet + HEADER) as u16).is_ok();
        let batch = if video.is_none() && sockets.iter().all(&mut cuts) { batch } else { 1 };
        let sockets = sockets.into_iter().map(|socket| (socket, 0)).collect();
        UdpLanes { place, sockets, packet, batch, video, sequence: 0, source, frame: None }
    }

    /// The number that receivers know the stream by.
    fn stream(&self) -> u16 {
        (self.source ^ self.source >> 16) as u16
    }

    /// Bytes of a striping unit.
    pub fn unit(&self) -> u64 {
        (self.packet * self.batch) as u64
    }

    fn header(&mut self, send: &Send, data: &[u8]) -> Vec<u8> {
        let Some(video) = self.video else {
            let header = Header {
                end: false,
                stream: self.stream(),
                step: send.adu,
                at: send.at.start,
                step_len: send.adu_len,
            };
            return header.encode(data).to_vec();
        };
        let timestamp = match self.frame {
            Some((step, timestamp)) if step == send.adu => timestamp,
            _ => {
                let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                // 90 kHz, from any beginning.
                (time.as_micros() * 9 / 100) as u32
            }
        };
        self.frame = Some((send.adu, timestamp));
        video.header(send, self.sequence, timestamp, self.source)
    }
}

impl Lanes for UdpLanes {
    fn count(&self) -> u32 {
        self.sockets.len() as u32
    }

    fn go_on(&mut self, lane: u32, send: &Send, _: &[u8], data: &[u8]) -> Result<Went, StreamError> {
        let packets: Vec<&[u8]> = match data.is_empty() {
            true => vec![data],
            false => data.chunks(self.packet).collect(),
        };
        loop {
            let gone = self.sockets[lane as usize].1;
            let now = &packets[gone..(gone + self.batch).min(packets.len())];
            let mut at = send.at.start + (gone * self.packet) as u64;
            let mut headers = Vec::with_capacity(now.len());
            for packet in now {
                let end = at + packet.len() as u64;
                headers.push(self.header(&Send { at: at..end, ..send.clone() }, packet));
                at = end;
            }
            let slices = headers.iter().zip(now).flat_map(|(header, data)| [&header[..], data]);
            let slices: Vec<IoSlice<'_>> = slices.map(IoSlice::new).collect();
            match socket2::SockRef::from(&self.sockets[lane as usize].0).send_vectored(&slices) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Went::Partly),
                // Nobody is there yet, or any more: what is sent to nobody is lost, as datagrams are.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                // This way cannot have packets cut apart.
                Err(_) if self.batch > 1 => {
                    self.batch = 1;
                    self.sockets.iter().for_each(|(socket, _)| drop(udp::cut(socket, 0)));
                }
                Err(source) => {
                    let (place, step) = (self.place.clone(), send.adu);
                    return Err(StreamError::Broken { place, step, source });
                }
                Ok(_) => {
                    self.sequence = self.sequence.wrapping_add(now.len() as u32);
                    let gone = &mut self.sockets[lane as usize].1;
                    *gone += now.len();
                    if *gone == packets.len() {
                        *gone = 0;
                        return Ok(Went::Arrived);
                    }
                }
            }
        }
    }

    fn items<'a>(&'a self, busy: &dyn Fn(u32) -> bool, items: &mut Vec<PollItem<'a>>) {
        let busy = (0..).zip(&self.sockets).filter(|(lane, _)| busy(*lane));
        items.extend(busy.map(|(_, (socket, _))| PollItem::writable(socket)));
    }

    fn finish(&mut self, steps: u64, _: &dyn Fn() -> bool) -> Result<(), StreamError> {
        let end = Header { end: true, stream: self.stream(), step: steps, at: 0, step_len: 0 }.encode(&[]);
        for (socket, _) in self.sockets.iter().filter(|_| self.video.is_none()) {
            for _ in 0..ENDS {
                let _ = poll(&mut [PollItem::writable(socket)], Some(SLICE));
                // What is lost here is lost as the rest may be.
                let _ = socket.send(&end);
            }
        }
        Ok(())
    }

    fn abort(&mut self, _: &str) {}
}

/// A step that is being put together of packets: how many bytes came, and which.
#[derive(Debug, Default)]
struct Gathered {
    /// The stream's number, and the step's.
    step: Option<(u16, u64)>,
    bytes: u64,
    /// From where to where the packets go that came: one may come twice, and of another sender's, cut otherwise, none counts
    /// that lies on one that is here.
    here: BTreeMap<u64, u64>,
}

impl Gathered {
    /// Takes a packet of a step; whether it is new. Of an older step than that at hand none is, and with one of a newer
    /// step, or of another stream, that begins.
    fn take(&mut self, header: &Header, payload: &[u8], into: &mut [u8]) -> bool {
        let is_old = |(stream, step)| header.stream == stream && header.step < step;
        if header.step_len != into.len() as u64 || self.step.is_some_and(is_old) {
            return false;
        }
        if self.step != Some((header.stream, header.step)) {
            *self = Gathered { step: Some((header.stream, header.step)), ..Gathered::default() };
        }
        let (start, end) = (header.at, header.at + payload.len() as u64);
        let before = self.here.range(..end).next_back();
        if start == end || before.is_some_and(|(_, before)| *before > start) {
            return false;
        }
        self.here.insert(start, end);
        self.bytes += end - start;
        let at = header.at as usize;
        into[at..at + payload.len()].copy_from_slice(payload);
        true
    }

    fn is_whole(&self, len: usize) -> bool {
        self.step.is_some() && self.bytes == len as u64
    }
}

/// Gives a program the steps that come whole, until the end of the stream; returns how many. Steps of which a packet was
/// lost are left out.
///
/// # Errors
/// [`StreamError`]: the program's, or the system's.
pub fn receive(
    socket: &UdpSocket,
    sink: &mut dyn Sink,
    lease: &Lease,
    (place, len): (&str, u64),
    again: &dyn Fn() -> bool,
) -> Result<u64, StreamError> {
    let (mut count, mut after, mut datagram) = (0, (0, 0), vec![0; LARGEST]);
    loop {
        let Some(first) = next(socket, place, &mut datagram, again)? else { continue };
        let Some((header, _)) = Header::decode(&datagram[..first]) else { continue };
        if header.end {
            break;
        }
        if header.step_len != len || header.stream == after.0 && header.step < after.1 {
            continue;
        }
        lease.offer(len)?;
        lease.wait_begun(again)?;
        let (mut gathered, mut length, mut ended) = (Gathered::default(), first, false);
        let filled = sink.step(len, &mut |slot| loop {
            if let Some((header, payload)) = Header::decode(&datagram[..length]) {
                if header.end {
                    ended = true;
                    return Err(StreamError::stopped(place, "the stream ended within a step"));
                }
                gathered.take(&header, payload, slot);
                if gathered.is_whole(slot.len()) {
                    return Ok(());
                }
            }
            length = loop {
                if let Some(length) = next(socket, place, &mut datagram, again)? {
                    break length;
                }
            };
        });
        if ended {
            break;
        }
        filled?;
        lease.moved()?;
        count += 1;
        after = gathered.step.map_or(after, |(stream, step)| (stream, step.saturating_add(1)));
    }
    Ok(count)
}

/// The length of the next datagram; `None` where none has come for a while.
fn next(
    socket: &UdpSocket,
    place: &str,
    into: &mut [u8],
    again: &dyn Fn() -> bool,
) -> Result<Option<usize>, StreamError> {
    match socket.recv(into) {
        Ok(len) => Ok(Some(len)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            if again() {
                return Err(StreamError::stopped(place, "the program gave up"));
            }
            poll(&mut [PollItem::readable(socket)], Some(SLICE))
                .map_err(|e| StreamError::System { what: e.to_string() })?;
            Ok(None)
        }
        Err(source) => Err(StreamError::Listen { place: place.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(step: u64, at: u64, len: usize) -> (Header, Vec<u8>) {
        (Header { end: false, stream: 1, step, at, step_len: 10 }, vec![step as u8; len])
    }

    #[test]
    fn only_whole_steps_come_together() {
        let (mut gathered, mut slot) = (Gathered::default(), [0; 10]);
        let mut take = |g: &mut Gathered, step, at, len| {
            let (header, payload) = packet(step, at, len);
            g.take(&header, &payload, &mut slot)
        };
        assert!(take(&mut gathered, 3, 5, 5) && !take(&mut gathered, 3, 5, 5), "one came twice");
        assert!(!gathered.is_whole(10));
        assert!(take(&mut gathered, 4, 0, 5), "a newer step begins");
        assert!(!take(&mut gathered, 3, 0, 5), "the older is given up");
        assert!(take(&mut gathered, 4, 5, 5) && gathered.is_whole(10));
        assert_eq!(slot, [4; 10]);
    }

    proptest! {
        /// Two senders cut their packets otherwise: whole is a step of which every byte has come.
        #[test]
        fn no_step_is_whole_with_a_hole(packets in proptest::collection::vec((0u64..10, 0usize..6), 0..12)) {
            let (mut gathered, mut slot, mut here) = (Gathered::default(), [0; 10], [false; 10]);
            for (at, len) in packets {
                let len = len.min(10 - at as usize);
                let (header, payload) = packet(1, at, len);
                let new = &mut here[at as usize..at as usize + len];
                let free = len > 0 && new.iter().all(|here| !*here);
                prop_assert_eq!(gathered.take(&header, &payload, &mut slot), free);
                new.iter_mut().for_each(|here| *here |= free);
                prop_assert_eq!(gathered.is_whole(10), here == [true; 10]);
                prop_assert_eq!(slot.map(|byte| byte == 1), here);
            }
        }

        #[test]
        fn damaged_datagrams_are_none(step: u64, payload in proptest::collection::vec(any::<u8>(), 0..99), flip in 0usize..800) {
            let header = Header { end: false, stream: 1, step, at: 5, step_len: 5 + payload.len() as u64 };
            let mut datagram = [&header.encode(&payload)[..], &payload].concat();
            prop_assert_eq!(Header::decode(&datagram), Some((header, &payload[..])));
            let bit = flip % (datagram.len() * 8);
            datagram[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::decode(&datagram), None);
        }

        #[test]
        fn any_bytes_are_taken_apart_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((header, payload)) = Header::decode(&bytes) {
                prop_assert!(header.at + payload.len() as u64 <= header.step_len);
            }
        }
    }

    #[test]
    fn lines_of_video_say_where_they_are() {
        let video = Video { width: 4, pixel: 3 };
        let send = Send { buffer: 0, adu: 0, adu_len: 36, tu: 0..36, at: 9..30 };
        let header = video.header(&send, 0x0001_0002, 90_000, 7);
        assert_eq!(header[..2], [0x80, 96]);
        assert_eq!(header[2..4], [0, 2], "the lower half of the number");
        assert_eq!(header[12..14], [0, 1], "the upper half");
        // The last pixel of line 0, all of line 1, two pixels of line 2.
        assert_eq!(header[14..20], [0, 3, 0, 0, 0x80, 3]);
        assert_eq!(header[20..26], [0, 12, 0, 1, 0x80, 0]);
        assert_eq!(header[26..], [0, 6, 0, 2, 0, 0]);
        let last = video.header(&Send { at: 30..36, ..send }, 0, 0, 7);
        assert_eq!(last[1], 96 | 0x80, "the frame's last packet has the marker");
    }
}
