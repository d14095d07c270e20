//! The shared-memory link itself, without the domain around it: what the domain adds is the difference.

use super::end::Carrier;
use super::error::BenchError;
use super::tally::{words, Kind, Source, Tally, HIGH};
use polyduct_message::link::shm::{Bell, Cut, Incoming, Link, Payload, Receiver, SendError, Sender, Sizes};
use polyduct_message::{ChannelId, HandlerId, Head, Priority};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::process::PidFd;
use polyduct_os::socket::{Conn, Received, Sent};
use std::cell::RefCell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// One end of a link.
pub struct LinkCarrier {
    low: Vec<Sender>,
    high: Sender,
    receiver: Receiver<Vec<u8>>,
    /// Buffers that go round.
    spare: RefCell<Vec<Vec<u8>>>,
    answered: u32,
    tally: Arc<Tally>,
    // Where the other side would ring; it must outlast the link.
    _bell: Arc<Bell>,
}

/// Tells the other process something.
pub fn tell(conn: &Conn, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), BenchError> {
    match conn.send(bytes, fds)? {
        Sent::Done => Ok(()),
        Sent::WouldBlock => Err(BenchError::Disagree { what: "a word finds no room" }),
    }
}

/// What the other process tells.
pub fn hear(conn: &Conn) -> Result<(Vec<u8>, Vec<OwnedFd>), BenchError> {
    let mut buffer = [0; 256];
    loop {
        if poll(&mut [PollItem::readable(conn)], Some(PATIENCE))? == 0 {
            let seconds = PATIENCE.as_secs();
            return Err(BenchError::Silent { what: "the other process", seconds });
        }
        match conn.recv(&mut buffer)? {
            Received::Message { len, fds } => return Ok((buffer[..len].to_vec(), fds)),
            Received::WouldBlock => {}
            Received::Closed => return Err(BenchError::Disagree { what: "the other process has gone" }),
        }
    }
}

impl LinkCarrier {
    /// Makes a link with the process at the other end of `conn`.
    pub fn new(
        conn: &Conn,
        unit: u32,
        channels: usize,
        first_fragment: Option<u64>,
        source: Source,
    ) -> Result<LinkCarrier, BenchError> {
        let none = || BenchError::Disagree { what: "descriptors are missing" };
        // Where it cannot be permitted, all goes through the rings.
        let _ = polyduct_os::remote::permit_readers();
        let bell = Arc::new(Bell::create(2)?);
        let me = std::process::id().to_le_bytes();
        let (link, theirs) = if unit == 0 {
            let link = Link::create(&Sizes::default())?;
            tell(conn, &me, &[link.fd(), bell.fd()])?;
            (link, hear(conn)?)
        } else {
            let (pid, mut fds) = hear(conn)?;
            tell(conn, &me, &[bell.fd()])?;
            if fds.is_empty() {
                return Err(none());
            }
            let link = Link::attach(fds.remove(0), 1 << 30, &Sizes::default())?;
            (link, (pid, fds))
        };
        let (pid, fds) = theirs;
        let pid = u32::from_le_bytes(pid.try_into().map_err(|_| none())?);
        link.ring_at(Arc::new(Bell::attach(fds.into_iter().next().ok_or_else(none)?)?), 0);
        if unit == 0 {
            tell(conn, &[1], &[])?;
            hear(conn)?;
        } else {
            hear(conn)?;
            tell(conn, &[1], &[])?;
        }
        // Both have mapped the segment, so each can see that the other's memory can be read.
        link.pull_from(PidFd::open(pid)?)?;
        let sender = |c: usize, priority| link.sender(ChannelId(c as u16), priority);
        let low: Option<Vec<Sender>> = (0..channels).map(|c| sender(c, Priority::Low)).collect();
        let mut low = low.ok_or_else(none)?;
        if let Some(first_fragment) = first_fragment {
            let first_fragment = u32::try_from(first_fragment).unwrap_or(u32::MAX);
            low.iter_mut().for_each(|s| s.set_cut(Cut { first_fragment, ..s.cut() }));
        }
        let high = sender(HIGH, Priority::High).ok_or_else(none)?;
        let receiver = link.receiver().ok_or_else(none)?;
        let tally = Tally::new(source);
        if unit == 0 {
            tally.no_answers();
        }
        Ok(LinkCarrier { low, high, receiver, spare: RefCell::default(), answered: 0, tally, _bell: bell })
    }

    fn look(&mut self) -> Result<usize, BenchError> {
        let LinkCarrier { high, receiver, spare, answered, tally, .. } = self;
        let give = &mut |m: &Incoming| {
            let len = m.len as usize;
            let mut spare = spare.borrow_mut();
            match spare.iter().position(|b| b.len() >= len) {
                Some(i) => Some(spare.swap_remove(i)),
                None => Some(vec![0; len]),
            }
        };
        let deliver = &mut |m: &Incoming, payload: Payload<'_, Vec<u8>>| {
            let answer = match &payload {
                Payload::Bytes(bytes) => tally.take(m.priority, m.head.args, bytes),
                Payload::Buffer(buffer) => {
                    tally.take(m.priority, m.head.args, &buffer[..buffer.len().min(m.len as usize)])
                }
            };
            if let Payload::Buffer(buffer) = payload {
                spare.borrow_mut().push(buffer);
            }
            if answer {
                // One that is not sent is missed where it is waited for.
                let _ = high.short(head(words(Kind::Data, HIGH, *answered, 0, 0)));
                *answered = answered.wrapping_add(1);
            }
            true
        };
        Ok(receiver.poll(give, deliver)?)
    }
}

fn head(args: [u32; 4]) -> Head {
    Head { handler: HandlerId(7), args }
}

impl Carrier for LinkCarrier {
    const STEPS: u32 = 1 << 14;

    #[inline]
    fn short(&mut self, lane: usize, args: [u32; 4]) -> Result<bool, BenchError> {
        let sender = self.low.get_mut(lane).unwrap_or(&mut self.high);
        match sender.short(head(args)) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn bulk(&mut self, lane: usize, args: [u32; 4], at: usize, len: usize) -> Result<(), BenchError> {
        let (mut begun, mut taken) = (false, 0);
        let mut deadline = None;
        while !begun || taken < len {
            let (sender, payload) = (&mut self.low[lane], self.tally.source().part(at, len));
            let sent = match begun {
                false => sender.send(head(args), payload),
                true => sender.extend(&payload[taken..]),
            };
            match sent {
                Ok(n) => (begun, taken) = (true, taken + n),
                Err(SendError::Full) => {
                    self.step()?;
                    let now = polyduct_os::clock::now();
                    if now > *deadline.get_or_insert(now + PATIENCE) {
                        return Err(BenchError::Silent { what: "room", seconds: PATIENCE.as_secs() });
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn bulk_while(
        &mut self,
        lane: usize,
        args: [u32; 4],
        at: usize,
        len: usize,
        work: &mut dyn FnMut(),
    ) -> Result<(), BenchError> {
        let tally = self.tally.clone();
        let ticket = self.low[lane].post(head(args), tally.source().part(at, len))?;
        work();
        let deadline = polyduct_os::clock::now() + PATIENCE;
        while !self.low[lane].is_taken(ticket) {
            self.step()?;
            if polyduct_os::clock::now() > deadline {
                return Err(BenchError::Silent { what: "the receiver", seconds: PATIENCE.as_secs() });
            }
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<(), BenchError> {
        self.look().map(drop)
    }

    #[inline]
    fn step(&mut self) -> Result<(), BenchError> {
        if self.look()? == 0 {
            polyduct_os::sync::spin_hint();
        }
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn finish(self) -> Result<(), BenchError> {
        Ok(())
    }
}
