//! Sending messages.

use super::pieces::{are_few, put_together, total, MOST};
use super::wire::{self, Kind, Offer};
use super::{nothing, After, Bytes, Counted, Engine, Op, Shared, Waiting, What, HELD};
use crate::abi;
use polyduct_message::endpoint::{Number, Piece, Sent, SHORT_BYTES};
use polyduct_message::Head;
use std::ffi::{c_int, c_void};

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// To whom.
    pub to: Number,
    /// Its tag; `None` for one without.
    pub tag: Option<u64>,
    /// Its data.
    pub data: Option<u64>,
    /// Its bytes.
    pub bytes: *const u8,
    /// How many.
    pub len: usize,
    /// What the program gave with it.
    pub context: *mut c_void,
    /// What it asks for.
    pub flags: u64,
    /// The program wants to know when it is done.
    pub tells: bool,
}

impl Engine {
    /// Sends a message.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    ///
    /// # Safety
    /// The bytes are there, and stay until the program is told that it has them back: at once where it
    /// [injects](abi::INJECT) them.
    #[inline]
    pub unsafe fn send(&mut self, shared: &mut Shared, message: &Message) -> Result<(), c_int> {
        let Message { to, tag, data, bytes, len, context, flags, tells } = *message;
        let injects = flags & abi::INJECT != 0;
        if injects && len > SHORT_BYTES {
            return Err(abi::EINVAL);
        }
        let what = if tag.is_some() { abi::TAGGED } else { abi::MSG };
        let after =
            After { done: nothing(context, what | abi::SEND), tells, counts: Counted::Send, of: None };
        let short = len <= SHORT_BYTES && flags & (abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE) == 0;
        let limits = self.state.limits;
        let peer = self.state.peer(to);
        let kind = match (tag, short && peer.may_keep(&limits, len, injects)) {
            (Some(_), true) => Kind::Tagged,
            (None, true) => Kind::Plain,
            (Some(_), false) => Kind::TaggedOffer,
            (None, false) => Kind::PlainOffer,
        };
        let head = wire::matched(kind, tag.unwrap_or(0), data);
        if matches!(kind, Kind::Tagged | Kind::Plain) {
            // SAFETY: the caller's.
            let payload = unsafe { slice(bytes, len) };
            if peer.takes_at_once() {
                match self.endpoint.send(to, head, payload) {
                    Sent::All => {
                        let peer = &mut self.state.peers[to as usize];
                        peer.kept_messages += 1;
                        peer.kept_bytes += len as u64;
                        self.state.is_over(shared, after);
                        return Ok(());
                    }
                    Sent::Gone => return self.is_gone(shared, to, after),
                    Sent::Later => {}
                }
            }
            let payload = match injects {
                true => Bytes::Own(payload.into()),
                false => Bytes::Lent(bytes, len),
            };
            self.queue_send(shared, to, head, payload, Some(after))?;
            // Of the bytes those count that wait: how the next one goes is decided before these have gone.
            self.state.peers[to as usize].kept_bytes += len as u64;
            return Ok(());
        }
        // SAFETY: the caller's.
        let kept: Option<Box<[u8]>> = injects.then(|| unsafe { slice(bytes, len) }.into());
        let bytes = kept.as_ref().map_or(bytes, |kept| kept.as_ptr());
        self.offer(
            shared,
            to,
            head,
            Op {
                to,
                what: What::Offered { bytes, len },
                after,
                is_begun: false,
                said: None,
                kept,
                pieces: None,
            },
        )
    }

    /// Sends a message that lies in pieces.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    ///
    /// # Safety
    /// As [`send`](Engine::send).
    pub unsafe fn send_pieces(
        &mut self,
        shared: &mut Shared,
        message: &Message,
        pieces: &[Piece],
    ) -> Result<(), c_int> {
        let len = total(pieces).filter(|_| pieces.len() <= MOST).ok_or(abi::EINVAL)?;
        let Message { to, tag, data, context, flags, tells, .. } = *message;
        if len <= SHORT_BYTES {
            let mut whole = [0; SHORT_BYTES];
            // SAFETY: the caller's.
            unsafe { put_together(pieces, &mut whole[..len]) };
            let (bytes, flags) = (whole.as_ptr(), flags | abi::INJECT);
            // SAFETY: they are copied before this returns.
            return unsafe { self.send(shared, &Message { bytes, len, flags, ..*message }) };
        }
        if flags & abi::INJECT != 0 {
            return Err(abi::EINVAL);
        }
        let (what, kind) = match tag {
            Some(_) => (abi::TAGGED, Kind::TaggedOffer),
            None => (abi::MSG, Kind::PlainOffer),
        };
        let after =
            After { done: nothing(context, what | abi::SEND), tells, counts: Counted::Send, of: None };
        let (mut kept, mut list, mut bytes) = (None, None, core::ptr::null());
        if are_few(pieces, len) {
            let whole: &mut Box<[u8]> = kept.insert(vec![0; len].into());
            // SAFETY: the caller's.
            unsafe { put_together(pieces, whole) };
            bytes = whole.as_ptr();
        } else {
            list = Some(pieces.into());
        }
        let what = What::Offered { bytes, len };
        let op = Op { to, what, after, is_begun: false, said: None, kept, pieces: list };
        self.offer(shared, to, wire::matched(kind, tag.unwrap_or(0), data), op)
    }

    /// Offers a long message.
    fn offer(&mut self, shared: &mut Shared, to: Number, head: Head, op: Op) -> Result<(), c_int> {
        let peer = self.state.peer(to);
        if peer.gone {
            return self.is_gone(shared, to, op.after);
        }
        if peer.sends.len() >= HELD {
            return Err(abi::EAGAIN);
        }
        let What::Offered { bytes, len } = op.what else { return Err(abi::EINVAL) };
        let op_pieces = op.pieces.as_ref().map(|pieces| (pieces.as_ptr(), pieces.len()));
        let number = self.state.ops.insert(op).ok_or(abi::EAGAIN)?;
        let in_pieces = op_pieces.map(|(at, count)| (at as u64, count as u32));
        let (address, pieces) = in_pieces.unwrap_or((bytes as u64, 0));
        let offer = Offer { len: len as u64, address, number, pieces }.to_bytes();
        if self.state.peer(to).takes_at_once() {
            match self.endpoint.send(to, head, &offer) {
                Sent::All => {
                    self.state.peers[to as usize].kept_messages += 1;
                    return Ok(());
                }
                Sent::Gone => {
                    self.state.lose(shared, to);
                    return Ok(());
                }
                Sent::Later => {}
            }
        }
        self.queue_send(shared, to, head, Bytes::Own(Box::from(offer)), None)
    }

    fn queue_send(
        &mut self,
        shared: &mut Shared,
        to: Number,
        head: Head,
        payload: Bytes,
        after: Option<After>,
    ) -> Result<(), c_int> {
        let peer = self.state.peer(to);
        if peer.gone {
            return after.map_or(Ok(()), |after| self.is_gone(shared, to, after));
        }
        if peer.sends.len() >= HELD {
            return Err(abi::EAGAIN);
        }
        peer.sends.push_back(Waiting { head, payload, after });
        self.state.list(to);
        Ok(())
    }

    /// The peer is gone: so is the message.
    fn is_gone(&mut self, shared: &mut Shared, to: Number, after: After) -> Result<(), c_int> {
        self.state.lose(shared, to);
        self.state.miss(to);
        self.tell_missed();
        match after.tells {
            true => {
                self.state.failed(shared, after, abi::EHOSTUNREACH, 0);
                Ok(())
            }
            // Nobody waits to be told.
            false => Err(abi::EHOSTUNREACH),
        }
    }
}

/// Bytes of the program, which may have none at no address.
///
/// # Safety
/// They are there.
pub(super) unsafe fn slice<'a>(bytes: *const u8, len: usize) -> &'a [u8] {
    match len {
        0 => &[],
        // SAFETY: the caller's.
        _ => unsafe { core::slice::from_raw_parts(bytes, len) },
    }
}
