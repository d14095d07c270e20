//! The ledger of a simulated run: every message arrives once, whole, and in order, unless it was given up.

use super::{Buffer, Random};
use crate::engine::Message;
use crate::types::{Order, Priority, Token};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

/// How a message is told apart: session life, sender, receiver, channel, priority, order.
pub(super) type Stream = (u32, usize, usize, u16, bool, bool);

struct Sent {
    len: usize,
    seed: u32,
    token: Token,
    abandoned: bool,
    taken: bool,
    confirmed: bool,
}

/// All messages of a run.
#[derive(Default)]
pub(super) struct Ledger {
    sent: BTreeMap<Stream, Vec<Sent>>,
    tokens: HashMap<(u32, usize, usize, Token), (Stream, usize)>,
    /// Of each stream in order, the next message that may come.
    last: HashMap<Stream, usize>,
}

/// The bytes of a message by its seed.
pub(super) fn payload(seed: u32, len: usize) -> Bytes {
    let mut random = Random::new(seed.into());
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

impl Ledger {
    /// Messages of a stream.
    pub fn count(&self, stream: &Stream) -> usize {
        self.sent.get(stream).map_or(0, Vec::len)
    }

    /// A message was sent. Returns how many were in all.
    pub fn note(&mut self, stream: Stream, token: Token, seed: u32, len: usize) -> u64 {
        let (life, at, to, ..) = stream;
        self.tokens.insert((life, at, to, token), (stream, self.count(&stream)));
        let sent = Sent { len, seed, token, abandoned: false, taken: false, confirmed: false };
        self.sent.entry(stream).or_default().push(sent);
        self.tokens.len() as u64
    }

    fn sent(&mut self, stream: &Stream, number: usize) -> Option<&mut Sent> {
        self.sent.get_mut(stream)?.get_mut(number)
    }

    /// Its sender gave a message up.
    pub fn abandon(&mut self, (life, at, to): (u32, usize, usize), token: Token) {
        let (stream, number) = self.tokens[&(life, at, to, token)];
        if let Some(sent) = self.sent(&stream, number) {
            sent.abandoned = true;
        }
    }

    /// The sender hears that a message was delivered: once, and after it came.
    pub fn delivered(&mut self, (life, at, to): (u32, usize, usize), token: Token) -> Result<(), String> {
        let Some(&(stream, number)) = self.tokens.get(&(life, at, to, token)) else {
            return Err(format!("{token:?} was never given"));
        };
        let sent = self.sent(&stream, number).ok_or("a delivery of nothing")?;
        if !sent.taken || sent.confirmed {
            return Err(format!("message {number} of {stream:?} said to be delivered: {}", sent.taken));
        }
        sent.confirmed = true;
        Ok(())
    }

    /// A message came.
    pub fn came(&mut self, at: usize, from: usize, message: &Message<Buffer>) -> Result<(), String> {
        let [life, number, seed, len] = message.head.args;
        let high = message.priority == Priority::High;
        let any = message.order == Order::Any;
        let stream = (life, from, at, message.channel.0, high, any);
        let number = number as usize;
        let Some(sent) = self.sent(&stream, number) else {
            return Err(format!("message {number} of {stream:?} was never sent"));
        };
        if sent.taken {
            return Err(format!("message {number} of {stream:?} came twice"));
        }
        sent.taken = true;
        if (sent.seed, sent.len) != (seed, len as usize) || message.len != u64::from(len) {
            return Err(format!("message {number} of {stream:?} came with another head or length"));
        }
        let bytes = message.payload.as_ref().map_or(&[][..], |b| &b.bytes()[..sent.len]);
        if bytes != payload(seed, sent.len) {
            return Err(format!("message {number} of {stream:?} came with other bytes"));
        }
        if !any {
            let last = self.last.entry(stream).or_default();
            if number < *last {
                return Err(format!("message {number} of {stream:?} came after {last}"));
            }
            // Only messages given up may be missing between.
            let missing = &self.sent[&stream][*last..number];
            if let Some(gap) = missing.iter().position(|s| !s.abandoned) {
                return Err(format!("message {} of {stream:?} was passed over", *last + gap));
            }
            *last = number + 1;
        }
        Ok(())
    }

    /// The messages of `current` streams whose senders wait for word of them.
    fn open(&self, current: impl Fn(&Stream) -> bool) -> impl Iterator<Item = (&Stream, usize, &Sent)> {
        let of = self.sent.iter().filter(move |(stream, _)| current(stream));
        let all = of.flat_map(|(stream, sent)| sent.iter().enumerate().map(move |(n, s)| (stream, n, s)));
        all.filter(|(.., s)| !s.abandoned && !s.confirmed)
    }

    /// Whether no sender waits for word of a message.
    pub fn is_settled(&self, current: impl Fn(&Stream) -> bool) -> bool {
        self.open(current).next().is_none()
    }

    /// Which messages have not been confirmed, in words.
    pub fn unsettled(&self, current: impl Fn(&Stream) -> bool) -> String {
        let words = self.open(current).map(|(stream, number, Sent { len, taken, token, .. })| {
            format!(" [message {number} of {stream:?}, {len} bytes, {token:?}, taken {taken}]")
        });
        words.collect()
    }

    /// What holds in the end: all have come that were not given up.
    pub fn check_all_came(&self, current: impl Fn(&Stream) -> bool) -> Result<(), String> {
        match self.open(current).find(|(.., s)| !s.taken) {
            Some((stream, number, _)) => Err(format!("message {number} of {stream:?} never came")),
            None => Ok(()),
        }
    }
}
