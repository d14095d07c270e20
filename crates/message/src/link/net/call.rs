//! The side that connects by datagrams, which may be lost: each message goes again until it is answered, and
//! a handshake whose end nobody answers begins anew.

use super::cookie::{answered, knock, nonce_of_first, Nonce};
use super::{datagram, LinkFault};
use crate::error::LinkError;
use crate::link::hello::{Identity, Kind, HEADER};
use crate::link::key;
use crate::link::noise::{split, Established, Initiator, Message, Terms};
use crate::types::Address;
use core::time::Duration;
use std::net::SocketAddr;

/// Messages of the handshake go again after this long without an answer, then after twice as long, and so on
/// …
pub const REPEAT: Duration = Duration::from_millis(50);
/// … up to this long.
pub const REPEAT_MAX: Duration = Duration::from_millis(200);
/// How long the last message may stay unanswered until all begins anew: the other side has forgotten it, or
/// never had it. Twice as long the next time.
const ANEW: Duration = Duration::from_secs(1);

enum Stage {
    /// Waits for a cookie.
    Knocks(Nonce, Message),
    /// Waits for the answer to its first message.
    Asks(Initiator),
    /// Waits for any frame: only that shows that the other side has the last message.
    Confirms(Box<Established>, Message),
}

/// An attempt to reach a unit by datagrams.
pub struct Call {
    /// Where it listens.
    pub addr: SocketAddr,
    terms: Terms,
    to: Address,
    stage: Stage,
    begun: Duration,
    again: Duration,
    pause: Duration,
    /// When the last stage began, and how long it may take.
    confirms: Duration,
    anew: Duration,
    timeout: Duration,
    /// What somebody answered without a proof: only told if nothing better comes.
    refused: Option<LinkError>,
}

impl Call {
    /// Begins to call unit `to`, which may take `timeout` in all. The index in `terms` is what it is to send
    /// with.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(
        terms: Terms,
        to: Address,
        addr: SocketAddr,
        now: Duration,
        timeout: Duration,
    ) -> Result<Call, LinkFault> {
        let stage = knocks(&terms, to)?;
        let (again, pause, confirms, anew) = (now, REPEAT, now, ANEW);
        Ok(Call { addr, terms, to, stage, begun: now, again, pause, confirms, anew, timeout, refused: None })
    }

    /// What the other side is to send with.
    pub fn index(&self) -> u32 {
        self.terms.me.index
    }

    /// What was answered without a proof so far.
    pub fn refused(&self) -> Option<&LinkError> {
        self.refused.as_ref()
    }

    /// Whether the other side may take the handshake for complete: it must not be given up for another way.
    pub fn confirms(&self) -> bool {
        matches!(self.stage, Stage::Confirms(..))
    }

    /// The unit that proved that it listens there, if it has come so far.
    pub fn peer(&self) -> Option<&Identity> {
        match &self.stage {
            Stage::Confirms(established, _) => Some(&established.peer),
            _ => None,
        }
    }

    /// When [`due`](Call::due) has something to say.
    pub fn deadline(&self) -> Duration {
        self.again.min(self.begun.saturating_add(self.timeout))
    }

    /// What to send now, if anything.
    ///
    /// # Errors
    /// Nothing came of it in time.
    pub fn due(&mut self, now: Duration) -> Result<Option<&Message>, LinkFault> {
        if now >= self.begun.saturating_add(self.timeout) {
            let late = LinkError::Deadline { what: "an answer", limit_ms: self.timeout.as_millis() as u64 };
            return Err(self.refused.take().unwrap_or(late).into());
        }
        if now < self.again {
            return Ok(None);
        }
        if self.confirms() && now >= self.confirms + self.anew {
            self.anew *= 2;
            self.enter(knocks(&self.terms, self.to)?, now);
        }
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(REPEAT_MAX);
        Ok(Some(match &self.stage {
            Stage::Knocks(_, message) | Stage::Confirms(_, message) => message,
            Stage::Asks(initiator) => initiator.message(),
        }))
    }

    /// Takes a message of a handshake for the side that connects. Returns whether it was of use: something is
    /// due then.
    pub fn handle(&mut self, bytes: &[u8], now: Duration) -> bool {
        match self.next(bytes) {
            Ok(Some(stage)) => {
                self.enter(stage, now);
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.refused = Some(error);
                false
            }
        }
    }

    fn next(&mut self, bytes: &[u8]) -> Result<Option<Stage>, LinkError> {
        let (header, body) = split(bytes)?;
        let nonce = match (&self.stage, header.kind) {
            (Stage::Knocks(nonce, _), Kind::Cookie) => Some(nonce),
            // The cookie was too old, or the other side is another by now.
            (Stage::Asks(initiator), Kind::Cookie) => nonce_of_first(&initiator.message().bytes()[HEADER..]),
            (Stage::Asks(_), Kind::Answer) => None,
            (_, Kind::HandshakeRefusal) => {
                let me = self.terms.header(Kind::First, self.to);
                return Err(crate::link::hello::HandshakeRefusal::decode(body)?.error(&me));
            }
            _ => return Ok(None),
        };
        if let Some(nonce) = nonce {
            let Some(cookie) = answered(body, nonce) else { return Ok(None) };
            return Initiator::with_cookie(&self.terms, self.to, &cookie).map(|i| Some(Stage::Asks(i)));
        }
        let Stage::Asks(initiator) = &mut self.stage else { return Ok(None) };
        let (established, confirm) = initiator.answer(bytes)?;
        Ok(Some(Stage::Confirms(Box::new(established), confirm)))
    }

    fn enter(&mut self, stage: Stage, now: Duration) {
        (self.stage, self.again, self.pause, self.confirms) = (stage, now, REPEAT, now);
    }

    /// Takes a datagram that came with this side's index: the frame in it, opened into `scratch`, if it is of
    /// the other side, which shows that that has come to the end. Then
    /// [`into_established`](Call::into_established) has the keys.
    pub fn proof<'a>(&mut self, number: u64, record: &'a [u8], scratch: &'a mut [u8]) -> Option<&'a [u8]> {
        let Stage::Confirms(established, _) = &mut self.stage else { return None };
        datagram::open(&mut established.opener, number, record, scratch).ok()
    }

    /// The keys, if it has come so far.
    pub fn into_established(self) -> Option<Established> {
        match self.stage {
            Stage::Confirms(established, _) => Some(*established),
            _ => None,
        }
    }
}

fn knocks(terms: &Terms, to: Address) -> Result<Stage, LinkFault> {
    let mut nonce = Nonce::default();
    key::random(&mut nonce)?;
    Ok(Stage::Knocks(nonce, knock(terms, to, &nonce)))
}
