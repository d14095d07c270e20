//! Both sides prove that they know the job's key. No I/O and no clock: messages in, messages out.
//!
//! Noise `NNpsk0`: no keys but the job's, so nothing is to be distributed or stored beside it. The key is
//! mixed in before the first message, so whoever does not know it is told apart at once, at the cost of a few
//! hashes. The first message can be recorded and replayed; the answer carries a fresh secret, so only the
//! third message, which nobody can replay, makes the side that listens believe. Over datagrams it has a
//! cookie from the side that listens as well, so that it can be replayed from the same address alone, and
//! only for seconds. AES-256-GCM by `ring`, which has the processor's instructions for it (5 GB/s and more
//! here), builds with a C compiler alone, and is the fastest that `snow` offers; the curve and what `ring`
//! lacks come from `snow`'s own choice.

use crate::error::LinkError;
use crate::link::hello::{
    Carrier, HandshakeRefusal, Header, Identity, Kind, BODY_LIMIT, HEADER, MESSAGE_LIMIT,
};
use crate::link::key::JobKey;
use crate::link::seal::{pair, Opener, Sealer};
use crate::types::Address;
use snow::HandshakeState;

/// Shows that its owner can be reached at the address that it gives: over datagrams part of the first
/// message.
pub type Cookie = [u8; COOKIE];
/// Bytes of a cookie.
pub const COOKIE: usize = 16;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// What this side stands for in every handshake.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The job's key.
    pub key: JobKey,
    /// The identity of this side.
    pub me: Identity,
    /// This side declares the network trusted.
    pub trusted: bool,
    /// What carries the link.
    pub carrier: Carrier,
}

impl Terms {
    /// The header of a message to unit `to` whose length is not yet known.
    pub(crate) fn header(&self, kind: Kind, to: Address) -> Header {
        Header { kind, trusted: self.trusted, carrier: self.carrier, from: self.me.unit, to, len: 0 }
    }
}

/// One message of the handshake, as it goes over the wire.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: [u8; MESSAGE_LIMIT],
    len: usize,
}

impl Message {
    /// Of a body of [`BODY_LIMIT`] bytes at most.
    pub(crate) fn new(mut header: Header, body: &[u8]) -> Message {
        header.len = body.len() as u16; // At most `BODY_LIMIT`.
        let mut bytes = [0; MESSAGE_LIMIT];
        bytes[..HEADER].copy_from_slice(&header.encode());
        bytes[HEADER..HEADER + body.len()].copy_from_slice(body);
        Message { bytes, len: HEADER + body.len() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What both sides have after the handshake.
#[derive(Debug)]
pub struct Established {
    /// The identity that the other side proved.
    pub peer: Identity,
    /// Makes what goes out.
    pub sealer: Sealer,
    /// Reads what comes in.
    pub opener: Opener,
}

/// The side that connects.
pub struct Initiator {
    /// Until the answer has come.
    noise: Option<Box<HandshakeState>>,
    header: Header,
    domain: u64,
    message: Message,
}

impl Initiator {
    /// Begins a handshake with unit `to` over a stream; its first [message](Initiator::message) is ready.
    ///
    /// # Errors
    /// [`LinkError::Unauthentic`] where the system has no random bytes.
    pub fn new(terms: &Terms, to: Address) -> Result<Initiator, LinkError> {
        Initiator::with(terms, to, &[])
    }

    /// The same over datagrams, with a cookie that the other side gave.
    ///
    /// # Errors
    /// As [`new`](Initiator::new).
    pub fn with_cookie(terms: &Terms, to: Address, cookie: &Cookie) -> Result<Initiator, LinkError> {
        Initiator::with(terms, to, cookie)
    }

    fn with(terms: &Terms, to: Address, cookie: &[u8]) -> Result<Initiator, LinkError> {
        let header = terms.header(Kind::First, to);
        let mut noise = state(terms, &header, cookie, true)?;
        let mut body = [0; BODY_LIMIT];
        let (clear, secret) = body.split_at_mut(cookie.len());
        clear.copy_from_slice(cookie);
        let len = noise.write_message(&terms.me.encode(), secret).map_err(unproven)?;
        let message = Message::new(header, &body[..cookie.len() + len]);
        Ok(Initiator { noise: Some(noise), header, domain: terms.me.domain, message })
    }

    /// What to send: over datagrams again and again until an answer comes.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Takes the answer, once; returns the link and the last message, which the other side waits for. A wrong
    /// answer changes nothing, so that over datagrams the right one may still come.
    ///
    /// # Errors
    /// What the other side refused, [`LinkError::Unauthentic`], or what is malformed.
    pub fn answer(&mut self, bytes: &[u8]) -> Result<(Established, Message), LinkError> {
        let peer = self.read(bytes)?;
        let noise = self.noise.take().ok_or(ANSWERED)?;
        let keys = noise.into_stateless_transport_mode().map_err(unproven)?;
        let (mut sealer, opener) = pair(keys, self.header.trusted, true);
        let mut body = [0; BODY_LIMIT];
        let len = sealer.confirmation(&mut body)?;
        let confirm = Message::new(Header { kind: Kind::Confirm, ..self.header }, &body[..len]);
        Ok((Established { peer, sealer, opener }, confirm))
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Identity, LinkError> {
        let (header, body) = split(bytes)?;
        match header.kind {
            Kind::Answer => {}
            Kind::HandshakeRefusal => return Err(HandshakeRefusal::decode(body)?.error(&self.header)),
            _ => {
                return Err(LinkError::OutOfTurn { what: "a message that only the side that connects sends" })
            }
        }
        let expected = Header { kind: Kind::Answer, len: header.len, ..self.header };
        if header != expected {
            return Err(LinkError::Unauthentic);
        }
        let peer = open(self.noise.as_mut().ok_or(ANSWERED)?, body)?;
        check(&peer, self.domain, self.header.to)?;
        Ok(peer)
    }
}

/// A stranger that knows the key, or repeats what one who knows it once sent: it has yet to confirm.
pub struct Pending {
    /// Until it has confirmed.
    keys: Option<(Sealer, Opener)>,
    header: Header,
    peer: Identity,
    answer: Message,
}

impl Pending {
    /// Takes the first message of a stranger. Nothing is kept where it fails. Over datagrams the caller has
    /// checked its cookie.
    ///
    /// # Errors
    /// What is wrong with it; [`HandshakeRefusal::of`] says what to tell it.
    pub fn new(terms: &Terms, bytes: &[u8]) -> Result<Pending, LinkError> {
        let (header, body) = split(bytes)?;
        if header.kind != Kind::First {
            return Err(LinkError::OutOfTurn { what: "a message that is not the first" });
        }
        if header.carrier != terms.carrier {
            let found = u64::from(header.carrier == Carrier::Datagrams);
            return Err(LinkError::BadField { what: "carrier", found, expected: "the one it came over" });
        }
        if header.trusted != terms.trusted {
            return Err(LinkError::Trust { mine: terms.trusted });
        }
        let cookie = if header.carrier == Carrier::Datagrams { COOKIE } else { 0 };
        let (cookie, body) = body.split_at_checked(cookie).ok_or(LinkError::Unauthentic)?;
        let mut noise = state(terms, &header, cookie, false)?;
        let peer = open(&mut noise, body)?;
        check(&peer, terms.me.domain, header.from)?;
        if header.to != terms.me.unit {
            return Err(LinkError::WrongUnit { asked: header.to, found: terms.me.unit });
        }
        let mut body = [0; BODY_LIMIT];
        let len = noise.write_message(&terms.me.encode(), &mut body).map_err(unproven)?;
        let answer = Message::new(Header { kind: Kind::Answer, ..header }, &body[..len]);
        let keys = noise.into_stateless_transport_mode().map_err(unproven)?;
        let keys = Some(pair(keys, terms.trusted, false));
        Ok(Pending { keys, header, peer, answer })
    }

    /// What to send it; over datagrams again whenever its first message comes again.
    pub fn message(&self) -> &Message {
        &self.answer
    }

    /// The identity that it states. Believe it only when it has confirmed.
    pub fn claims(&self) -> &Identity {
        &self.peer
    }

    /// Takes its confirmation, once. A wrong one changes nothing.
    ///
    /// # Errors
    /// [`LinkError::Unauthentic`], or what is malformed.
    pub fn confirm(&mut self, bytes: &[u8]) -> Result<Established, LinkError> {
        let (header, body) = split(bytes)?;
        if header.kind != Kind::Confirm {
            return Err(LinkError::OutOfTurn { what: "a message that is not a confirmation" });
        }
        if header != (Header { kind: Kind::Confirm, len: header.len, ..self.header }) {
            return Err(LinkError::Unauthentic);
        }
        let (_, opener) = self.keys.as_mut().ok_or(ANSWERED)?;
        opener.check_confirmation(body)?;
        let (sealer, opener) = self.keys.take().ok_or(ANSWERED)?;
        Ok(Established { peer: self.peer, sealer, opener })
    }
}

/// The handshake was over already.
const ANSWERED: LinkError = LinkError::OutOfTurn { what: "a second answer or confirmation" };

fn state(
    terms: &Terms,
    header: &Header,
    cookie: &[u8],
    initiator: bool,
) -> Result<Box<HandshakeState>, LinkError> {
    let pattern = PATTERN.parse().map_err(unproven)?;
    // The header holds version, trust, carrier and both addresses: whoever changes one on the way makes the
    // proof fail. With the cookie in it, a first message counts at the address and in the seconds that it was
    // made for.
    let prologue = [&Header { kind: Kind::First, len: 0, ..*header }.encode(), cookie].concat();
    let builder = snow::Builder::new(pattern);
    let builder = builder.psk(0, terms.key.bytes()).map_err(unproven)?;
    let builder = builder.prologue(&prologue).map_err(unproven)?;
    let built = if initiator { builder.build_initiator() } else { builder.build_responder() };
    Ok(Box::new(built.map_err(unproven)?))
}

fn open(noise: &mut HandshakeState, body: &[u8]) -> Result<Identity, LinkError> {
    let mut payload = [0; BODY_LIMIT];
    let len = noise.read_message(body, &mut payload).map_err(unproven)?;
    Identity::decode(&payload[..len])
}

fn check(peer: &Identity, domain: u64, unit: Address) -> Result<(), LinkError> {
    if peer.domain != domain {
        return Err(LinkError::WrongDomain);
    }
    if peer.unit != unit {
        return Err(LinkError::WrongUnit { asked: unit, found: peer.unit });
    }
    Ok(())
}

/// One message and nothing behind it.
pub(crate) fn split(bytes: &[u8]) -> Result<(Header, &[u8]), LinkError> {
    let header = Header::decode(bytes)?;
    let (body, len) = (&bytes[HEADER..], usize::from(header.len));
    if body.len() != len {
        let (expected, found) = (len as u64, body.len() as u64);
        return Err(LinkError::Truncated { what: "handshake message", at: HEADER, expected, found });
    }
    Ok((header, body))
}

/// Every failure of the proof looks the same from outside.
fn unproven(_: snow::Error) -> LinkError {
    LinkError::Unauthentic
}
