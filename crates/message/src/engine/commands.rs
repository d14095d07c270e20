//! Commands of a session's user: messages to send, whole or in pieces, and the session's end.

use super::outgoing::{Outgoing, Payload};
use super::path::Control;
use super::time::LEAST_FRAME;
use super::{number_of, rank, stream_of, token, Broken, Config, PathId, Phase, Send, Session};
use crate::error::MessageError;
use crate::types::{ChannelId, Order, Priority, Token, MAX_PAYLOAD};
use crate::wire::StreamId;
use bytes::Bytes;
use std::time::Duration;

impl<B: AsMut<[u8]>> Session<B> {
    /// Takes a message to send. The payload is kept, not copied, until the peer has taken it. Returns the
    /// token that [`Event::Delivered`](super::Event::Delivered) will name.
    ///
    /// # Errors
    ///
    /// `Full` if this stream or priority keeps as many messages or bytes as it may, or if too many were
    /// delivered since events were polled: nothing was taken, send again later. `Limit` for a channel or a
    /// payload beyond the session's limits. `PeerLost` or `PeerLeft` if it is over.
    pub fn send(&mut self, now: Duration, channel: ChannelId, message: Send) -> Result<Token, MessageError> {
        let len = message.payload.len() as u64;
        let payload = Payload::Whole(message.payload);
        let out = |config: &Config| Outgoing::new(message.head, payload, len, Some(len), config);
        self.enqueue(now, channel, message.priority, message.order, len, out)
    }

    /// Begins a message whose payload comes in pieces: each goes out as soon as it is handed over, while the
    /// rest is still being made. `len` is the length of the payload if it is known already; the receiver can
    /// then give out one buffer for all of it. Messages of the same stream wait behind it until it is
    /// [finished](Session::finish).
    ///
    /// # Errors
    ///
    /// As [`send`](Session::send).
    pub fn begin(
        &mut self,
        now: Duration,
        channel: ChannelId,
        message: Send,
        len: Option<u64>,
    ) -> Result<Token, MessageError> {
        let first = message.payload.len() as u64;
        if len.is_some_and(|len| len < first) {
            return Err(MessageError::Limit { what: "payload bytes", limit: len.unwrap_or(0), found: first });
        }
        let chunks = Payload::Chunks(if first > 0 { vec![(0, message.payload)] } else { Vec::new() });
        let out = |config: &Config| {
            let mut out = Outgoing::new(message.head, chunks, first, len, config);
            out.begun = true;
            out
        };
        self.enqueue(now, channel, message.priority, message.order, len.unwrap_or(first), out)
    }

    /// Hands over more of a payload.
    ///
    /// # Errors
    ///
    /// `NoMessage` if no message with this token is being handed over; `Limit` if it becomes longer than was
    /// said or is allowed: nothing was taken.
    pub fn extend(&mut self, token: Token, bytes: Bytes) -> Result<(), MessageError> {
        let max = self.config.max_payload.min(MAX_PAYLOAD);
        let (stream, message) = self.begun(token)?;
        let limit = message.total.unwrap_or(max);
        let found = message.injected.saturating_add(bytes.len() as u64);
        if found > limit {
            return Err(MessageError::Limit { what: "payload bytes", limit, found });
        }
        // Not refused for the bytes that are kept: two begun messages could each wait for the end of the
        // other.
        let len = bytes.len() as u64;
        message.extend(bytes);
        self.kept_bytes[rank(stream.priority())] += len;
        self.wake(stream);
        Ok(())
    }

    /// Says that all of a payload has been handed over.
    ///
    /// # Errors
    ///
    /// `NoMessage` as above; `Limit` if it is shorter than was said.
    pub fn finish(&mut self, token: Token) -> Result<(), MessageError> {
        let (stream, message) = self.begun(token)?;
        let found = message.injected;
        if let Some(limit) = message.total.filter(|&total| total != found) {
            return Err(MessageError::Limit { what: "payload bytes", limit, found });
        }
        message.total = Some(found);
        message.begun = false;
        self.wake(stream);
        Ok(())
    }

    /// Gives up a message that is being handed over: the receiver never hears of it.
    ///
    /// # Errors
    ///
    /// `NoMessage` as above.
    pub fn abandon(&mut self, now: Duration, token: Token) -> Result<(), MessageError> {
        let (stream, message) = self.begun(token)?;
        message.begun = false;
        let held = message.injected;
        self.kept_bytes[rank(stream.priority())] -= held;
        let number = number_of(token);
        if self.out[stream.index()].give_up(number) {
            self.urgent.push_back(Control::Cancel(stream, number));
        }
        self.wake(stream);
        self.now = self.now.max(now);
        Ok(())
    }

    /// The receiver has buffers again: the peer is told to go ahead with what was refused. Without it the
    /// peer tries by itself after a while.
    pub fn retry_refused(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for (at, stream) in self.inn.iter_mut() {
            if stream.refused == 0 {
                continue;
            }
            if !stream.go_queued {
                stream.go_queued = true;
                self.urgent.push_back(Control::Go(StreamId::from_index(at)));
            }
        }
        self.refused_waiting = false;
    }

    /// Frames of a path have at most so many bytes from now on, but enough for something.
    pub fn limit_frames(&mut self, path: PathId, max_frame: usize) {
        if let Some(known) = self.path_mut(path) {
            known.max_frame = max_frame.clamp(LEAST_FRAME, crate::wire::MAX_FRAME);
        }
    }

    /// Asks the peer for a sign of life with the next frame.
    pub fn ask(&mut self) {
        self.ping = true;
    }

    /// No more sends: when all that was sent is delivered, the peer is told, and
    /// [`Event::Closed`](super::Event::Closed) comes.
    pub fn close(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            self.try_close();
        }
    }

    /// Ends the session at once; the peer is told, if a frame gets through.
    pub fn abort(&mut self, code: u16) {
        if !self.is_broken() && self.phase != Phase::Closed {
            self.abort = Some(code);
            self.aborts_left = 3;
            self.break_off(Broken::Here);
        }
    }

    fn enqueue(
        &mut self,
        now: Duration,
        channel: ChannelId,
        priority: Priority,
        order: Order,
        len: u64,
        message: impl FnOnce(&Config) -> Outgoing,
    ) -> Result<Token, MessageError> {
        match self.phase {
            Phase::Open => {}
            Phase::Broken(why) => {
                let reason = match why {
                    Broken::Silent(time) => format!("not heard for {time:.1?}"),
                    Broken::Aborted(code) => format!("it ended the session with code {code}"),
                    Broken::Here => "the session was ended here".to_string(),
                };
                return Err(MessageError::PeerLost { unit: self.peer, reason });
            }
            Phase::Closing | Phase::CloseSent | Phase::Closed => {
                return Err(MessageError::PeerLeft { unit: self.peer })
            }
        }
        if channel.0 >= self.config.channels {
            return Err(MessageError::Limit {
                what: "channel number",
                limit: u64::from(self.config.channels).saturating_sub(1),
                found: channel.0.into(),
            });
        }
        let limit = self.config.max_payload.min(MAX_PAYLOAD);
        if len > limit {
            return Err(MessageError::Limit { what: "payload bytes", limit, found: len });
        }
        let (stream, rank) = (StreamId::new(channel, priority, order), rank(priority));
        let message = message(&self.config);
        let held = message.injected;
        if self.room(channel, priority, order) == 0 || !self.has_room_for(rank, held) {
            return Err(MessageError::Full { to: self.peer });
        }
        if !self.expects() {
            // The silence begins to count now.
            self.heard = now;
            self.pinged = now;
        }
        let number = self.out.make(stream.index()).push(message);
        self.kept[rank] += 1;
        self.kept_bytes[rank] += held;
        self.counters.messages_sent += 1;
        self.wake(stream);
        Ok(token(stream, number))
    }

    /// Whether so many more bytes may be kept of a priority.
    fn has_room_for(&self, rank: usize, bytes: u64) -> bool {
        let kept = self.kept_bytes[rank];
        bytes == 0 || kept == 0 || kept.saturating_add(bytes) <= self.config.queue_bytes
    }

    fn begun(&mut self, token: Token) -> Result<(StreamId, &mut Outgoing), MessageError> {
        let found =
            self.out.get_mut(stream_of(token).index()).and_then(|stream| stream.get_mut(number_of(token)));
        match found.filter(|message| message.begun) {
            Some(message) => Ok((stream_of(token), message)),
            None => Err(MessageError::NoMessage { token }),
        }
    }
}
