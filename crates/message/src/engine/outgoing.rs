//! A message on its way out.
//!
//! It keeps its payload until its receipt (taken or done) comes. What of it is in flight is known to the
//! frames' records (see `path`); what was lost comes back here and goes out before anything new.

mod stream;

pub(crate) use stream::OutStream;

use super::config::Config;
use super::planted::Bug;
use super::ranges::Ranges;
use crate::types::Head;
use bytes::Bytes;

/// What the user has handed over of a payload.
pub(crate) enum Payload {
    Whole(Bytes),
    /// Chunks with the offset at which each starts.
    Chunks(Vec<(u64, Bytes)>),
}

impl std::fmt::Debug for Payload {
    /// Without the bytes: they are many, and the user's own.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Payload::Whole(bytes) => write!(f, "{} bytes", bytes.len()),
            Payload::Chunks(chunks) => write!(f, "{} chunks", chunks.len()),
        }
    }
}

impl Payload {
    /// The bytes from `start`, up to `end` or the end of the chunk.
    fn slice(&self, start: u64, end: u64) -> Bytes {
        let (offset, chunk) = match self {
            Payload::Whole(bytes) => (0, bytes),
            Payload::Chunks(chunks) => {
                let at = chunks.partition_point(|c| c.0 <= start);
                match at.checked_sub(1).and_then(|at| chunks.get(at)) {
                    Some((offset, chunk)) => (*offset, chunk),
                    None => return Bytes::new(),
                }
            }
        };
        let from = ((start - offset) as usize).min(chunk.len());
        let to = ((end - offset) as usize).min(chunk.len());
        chunk.slice(from..to.max(from))
    }
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    pub head: Head,
    payload: Payload,
    /// Bytes handed over so far.
    pub injected: u64,
    /// Bytes of the whole payload, once known.
    pub total: Option<u64>,
    /// Bytes that went out in this attempt at least once.
    sent: u64,
    /// The fragment that says where the payload ends went out in this attempt.
    end_sent: bool,
    lost: Ranges,
    /// An empty last fragment was lost.
    lost_end: bool,
    /// How often it was refused.
    pub attempt: u8,
    /// The user has not polled the last refusal.
    pub refusal_untold: bool,
    /// The receiver has this attempt's head.
    pub accepted: bool,
    /// The path on which the head went, where paths lose nothing.
    head_path: Option<u8>,
    next_fragment: usize,
    /// Its receipt came, or it was given up.
    pub over: bool,
    pub cancelled: bool,
    /// A token was given to a user who is still to hear of it.
    pub begun: bool,
}

impl Outgoing {
    pub fn new(head: Head, payload: Payload, injected: u64, total: Option<u64>, config: &Config) -> Outgoing {
        Outgoing {
            head,
            payload,
            injected,
            total,
            sent: 0,
            end_sent: false,
            lost: Ranges::default(),
            lost_end: false,
            attempt: 0,
            refusal_untold: false,
            accepted: false,
            head_path: None,
            next_fragment: config.first_fragment.max(1),
            over: false,
            cancelled: false,
            begun: false,
        }
    }

    pub fn extend(&mut self, bytes: Bytes) {
        let len = bytes.len() as u64;
        if let Payload::Chunks(chunks) = &mut self.payload {
            if len > 0 {
                chunks.push((self.injected, bytes));
                self.injected += len;
            }
        }
    }

    fn has_lost(&self) -> bool {
        !self.over && (self.lost_end || !self.lost.is_empty())
    }

    /// Whether there is something that did not go out in this attempt.
    fn has_new(&self) -> bool {
        if self.over {
            return false;
        }
        if self.cancelled {
            return !self.end_sent;
        }
        // Tried again after a refusal, the first fragment asks whether there is a buffer now.
        if self.attempt > 0 && !self.accepted && (self.sent > 0 || self.end_sent) {
            return false;
        }
        self.sent < self.injected || self.end_due()
    }

    fn end_due(&self) -> bool {
        self.total == Some(self.sent) && !self.end_sent
    }

    /// Everything went out in this attempt.
    fn all_sent(&self) -> bool {
        self.over || self.end_sent
    }

    /// Starts over: the receiver keeps nothing of it.
    fn reset(&mut self, config: &Config) {
        self.attempt = self.attempt.wrapping_add(1);
        self.accepted = false;
        self.head_path = None;
        if config.planted(Bug::RefusedNotReset) {
            return;
        }
        self.sent = 0;
        self.end_sent = false;
        self.lost.clear();
        self.lost_end = false;
        self.next_fragment = config.first_fragment.max(1);
    }
}
