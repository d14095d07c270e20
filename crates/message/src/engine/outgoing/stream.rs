//! Messages on their way out in order: one [`OutStream`] for each channel, priority and order. It says which
//! of them gives the next fragment, and whether any may after refusals.

use super::{Outgoing, Payload};
use crate::engine::config::Config;
use crate::engine::planted::Bug;
use crate::types::Head;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// A fragment to send.
pub(crate) struct Cut {
    pub number: u64,
    pub attempt: u8,
    pub offset: u64,
    pub bytes: Bytes,
    pub last: bool,
    pub head: Option<Head>,
    pub total: Option<u64>,
    /// This went out before and got lost.
    pub again: bool,
    /// The message was given up before anything of it went out: only that is to be said.
    pub cancel: bool,
}

/// Whether a stream may send, after refusals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Admission {
    Open,
    /// Nothing new until then, or until the receiver says so.
    Paused(Duration),
    /// Only the message of this number, until it is known to be accepted or that time comes.
    Probing(u64, Duration),
}

#[derive(Debug)]
pub(crate) struct OutStream {
    /// Number of the first message in `messages`.
    pub base: u64,
    pub messages: VecDeque<Outgoing>,
    /// Number of the first message that may have something new to send and was not refused.
    cursor: u64,
    /// Messages below this number have been begun.
    pub begun: u64,
    /// Messages with something lost.
    resend: BTreeSet<u64>,
    /// Messages refused and not known to be accepted since.
    retry: BTreeSet<u64>,
    /// Messages refused before and accepted now, with more to send. They go on whatever the admission says:
    /// they hold buffers.
    active: BTreeSet<u64>,
    pub admission: Admission,
    backoff: Duration,
    /// It stands in a queue of streams to serve, or is starved.
    pub queued: bool,
    /// It waits until another message may begin.
    pub starved: bool,
}

impl Default for OutStream {
    fn default() -> Self {
        OutStream {
            base: 0,
            messages: VecDeque::new(),
            cursor: 0,
            begun: 0,
            resend: BTreeSet::new(),
            retry: BTreeSet::new(),
            active: BTreeSet::new(),
            admission: Admission::Open,
            backoff: Duration::ZERO,
            queued: false,
            starved: false,
        }
    }
}

impl OutStream {
    pub fn get(&self, number: u64) -> Option<&Outgoing> {
        self.messages.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Outgoing> {
        self.messages.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Messages begun whose receipt is not complete: what counts against `messages_in_flight`.
    pub fn in_flight(&self) -> u64 {
        self.begun - self.base.min(self.begun)
    }

    pub fn push(&mut self, message: Outgoing) -> u64 {
        self.messages.push_back(message);
        self.base + self.messages.len() as u64 - 1
    }

    fn move_cursor(&mut self) {
        self.cursor = self.cursor.max(self.base);
        while self.get(self.cursor).is_some_and(Outgoing::all_sent)
            || self.retry.contains(&self.cursor)
            || self.active.contains(&self.cursor)
        {
            self.cursor += 1;
        }
    }

    /// Whether a fragment can be cut now; `begin` says whether another message may be begun.
    pub fn has_work(&mut self, begin: bool) -> bool {
        !self.resend.is_empty() || self.next_new(begin).is_some()
    }

    /// The message whose next new fragment is due.
    fn next_new(&mut self, begin: bool) -> Option<u64> {
        while let Some(&number) = self.active.first() {
            match self.get(number) {
                Some(m) if m.has_new() => return Some(number),
                Some(m) if !m.all_sent() => break,
                _ => self.active.remove(&number),
            };
        }
        self.move_cursor();
        let cursor = self.cursor;
        let ready = self.get(cursor).is_some_and(Outgoing::has_new);
        if ready && cursor < self.begun {
            return Some(cursor);
        }
        match self.admission {
            Admission::Paused(_) => return None,
            Admission::Probing(number, _) => {
                return self.get(number).is_some_and(Outgoing::has_new).then_some(number)
            }
            Admission::Open => {}
        }
        while let Some(&number) = self.retry.first() {
            match self.get(number) {
                Some(m) if m.has_new() => return Some(number),
                Some(m) if !m.all_sent() => return None,
                _ => self.retry.remove(&number),
            };
        }
        (ready && begin).then_some(cursor)
    }

    /// Whether the only obstacle to new work is that no further message may be begun.
    pub fn wants_to_begin(&mut self) -> bool {
        self.next_new(true).is_some() && self.next_new(false).is_none()
    }

    /// Cuts the next fragment: at most `room` bytes with its header, which is at least the greatest header
    /// and a byte.
    pub fn cut(&mut self, room: usize, path: u8, begin: bool, config: &Config) -> Option<Cut> {
        while let Some(&number) = self.resend.first() {
            match self.get(number) {
                Some(message) if message.has_lost() => {
                    return self.cut_from(number, true, room, path, config)
                }
                _ => self.resend.remove(&number),
            };
        }
        let number = self.next_new(begin)?;
        self.cut_from(number, false, room, path, config)
    }

    fn cut_from(&mut self, number: u64, again: bool, room: usize, path: u8, config: &Config) -> Option<Cut> {
        let m = self.get_mut(number)?;
        if m.cancelled {
            m.end_sent = true;
            let (attempt, offset, bytes) = (m.attempt, 0, Bytes::new());
            let (last, head, total, again) = (true, None, None, false);
            self.begun = self.begun.max(number + 1);
            return Some(Cut { number, attempt, offset, bytes, last, head, total, again, cancel: true });
        }
        let probe = m.attempt > 0 && !m.accepted;
        let start = if again { m.lost.first().map_or(m.sent, |r| r.0) } else { m.sent };
        // The head goes along until the receiver is known to have it. A path that loses nothing carries it
        // once.
        let sure = m.accepted || config.lossless && m.head_path == Some(path);
        let head = (start == 0 || !sure).then_some(m.head);
        let header = 12 + if start == 0 { 0 } else { 8 } + if head.is_some() { 28 } else { 0 };
        let most = room.checked_sub(header)?;
        let limit = if probe { config.first_fragment.max(1) } else { m.next_fragment };
        let most = most.min(limit).min(config.max_fragment.max(1)).min(0xff_ffff) as u64;
        let bytes = if again && m.lost.is_empty() {
            Bytes::new()
        } else {
            let until = if again { m.lost.first().map_or(start, |r| r.1) } else { m.injected };
            m.payload.slice(start, until.min(start + most))
        };
        let end = start + bytes.len() as u64;
        let last = m.total == Some(end);
        if bytes.is_empty() && !last {
            return None;
        }
        if again {
            match bytes.len() {
                0 => m.lost_end = false,
                len => {
                    if config.planted(Bug::HalfResent) {
                        m.lost.take_first(u64::MAX);
                    }
                    m.lost.take_first(len as u64);
                }
            }
        } else {
            m.sent = end;
            m.next_fragment = m.next_fragment.saturating_mul(config.growth.max(1)).min(config.max_fragment);
        }
        m.end_sent |= last && end >= m.sent;
        if head.is_some() {
            m.head_path = Some(path);
        }
        let cut = Cut {
            number,
            attempt: m.attempt,
            offset: start,
            bytes,
            last,
            head,
            total: if last || head.is_none() { None } else { m.total },
            again,
            cancel: false,
        };
        let more_lost = m.has_lost();
        self.begun = self.begun.max(number + 1);
        if again && !more_lost {
            self.resend.remove(&number);
        }
        Some(cut)
    }

    /// A fragment was lost. Returns whether there is something to send again.
    pub fn lost(&mut self, number: u64, attempt: u8, offset: u64, len: u32, head: bool) -> bool {
        let Some(m) = self.get_mut(number) else { return false };
        if m.over || m.attempt != attempt {
            return false;
        }
        if len == 0 {
            m.lost_end = true;
        } else {
            m.lost.insert(offset, offset + u64::from(len));
        }
        if head && !m.accepted {
            m.head_path = None;
        }
        self.resend.insert(number);
        true
    }

    /// A path went down without saying what arrived: all that went out may be lost.
    pub fn all_lost(&mut self) {
        for at in 0..self.messages.len() {
            let number = self.base + at as u64;
            let m = &mut self.messages[at];
            if m.over || m.cancelled || number >= self.begun {
                continue;
            }
            m.head_path = None;
            let sent = m.sent;
            m.lost.insert(0, sent);
            m.lost_end = m.end_sent && sent == 0;
            if m.has_lost() {
                self.resend.insert(number);
            }
        }
    }

    /// The receiver has the head of this attempt.
    pub fn accepted(&mut self, number: u64, attempt: u8) {
        if let Some(m) = self.get_mut(number) {
            if m.attempt != attempt || m.accepted {
                return;
            }
            m.accepted = true;
            let more = !m.all_sent();
            if self.retry.remove(&number) && more {
                self.active.insert(number);
            }
            if matches!(self.admission, Admission::Probing(n, _) if n == number) {
                self.admission = Admission::Open;
            }
        }
    }

    /// The receiver had no buffer. Returns whether that is news.
    pub fn refused(&mut self, now: Duration, number: u64, attempt: u8, config: &Config) -> bool {
        let begun = self.begun;
        let Some(m) = self.get_mut(number) else { return false };
        if m.over || m.attempt != attempt || number >= begun {
            return false;
        }
        m.reset(config);
        self.resend.remove(&number);
        self.active.remove(&number);
        self.retry.insert(number);
        if !matches!(self.admission, Admission::Paused(_)) {
            self.backoff = (self.backoff * 2).clamp(config.retry_first, config.retry_max);
            self.admission = Admission::Paused(now + self.backoff);
        }
        true
    }

    /// The receiver has buffers again, or the pause is over.
    pub fn go(&mut self, now: Duration, config: &Config) {
        if let Admission::Paused(_) = self.admission {
            self.admission = match self.retry.first() {
                Some(&number) => Admission::Probing(number, now + config.retry_max),
                None => Admission::Open,
            };
        }
    }

    /// When the admission changes by itself.
    pub fn gate_deadline(&self) -> Option<Duration> {
        match self.admission {
            Admission::Open => None,
            Admission::Paused(at) | Admission::Probing(_, at) => Some(at),
        }
    }

    /// The admission's time has come.
    pub fn gate_time(&mut self, now: Duration, config: &Config) {
        match self.admission {
            Admission::Paused(at) if at <= now => self.go(now, config),
            // Not a word about it: others of the stream may try. The message itself waits until its head is
            // known to be there; what follows without a head would be of no use before.
            Admission::Probing(_, at) if at <= now => self.admission = Admission::Open,
            _ => {}
        }
    }

    /// A receipt for one message. Returns whether that is news.
    pub fn done(&mut self, number: u64) -> bool {
        let Some(m) = self.get_mut(number) else { return false };
        if m.over {
            return false;
        }
        m.over = true;
        // A peer may say so of what is still being handed over.
        (m.begun, m.injected) = (false, 0);
        m.payload = Payload::Whole(Bytes::new());
        m.lost.clear();
        self.drop_from_sets(number);
        self.backoff = Duration::ZERO;
        if matches!(self.admission, Admission::Probing(n, _) if n == number) {
            self.admission = Admission::Open;
        }
        true
    }

    /// Takes away the messages at the front whose receipts came.
    pub fn pop_front(&mut self) -> Option<(u64, Outgoing)> {
        if !self.messages.front()?.over {
            return None;
        }
        let number = self.base;
        self.base += 1;
        self.begun = self.begun.max(self.base);
        Some((number, self.messages.pop_front()?))
    }
}

impl OutStream {
    /// Forgets the content of a message that its sender gave up; its number stays until the receiver has
    /// passed it. Returns whether the receiver may know of it already; if not, it hears when the message's
    /// turn comes.
    pub fn give_up(&mut self, number: u64) -> bool {
        let known = number < self.begun;
        if let Some(m) = self.get_mut(number) {
            m.payload = Payload::Whole(Bytes::new());
            m.lost.clear();
            m.lost_end = false;
            m.injected = 0;
            m.total = None;
            m.sent = 0;
            m.cancelled = true;
            m.end_sent = known;
            m.attempt = m.attempt.wrapping_add(1);
        }
        self.drop_from_sets(number);
        if matches!(self.admission, Admission::Probing(n, _) if n == number) {
            self.admission = Admission::Open;
        }
        known
    }

    fn drop_from_sets(&mut self, number: u64) {
        self.resend.remove(&number);
        self.retry.remove(&number);
        self.active.remove(&number);
    }

    /// Numbers of the messages given up whose end the receiver has not confirmed.
    pub fn cancelled(&self) -> Vec<u64> {
        let numbered = self.messages.iter().zip(self.base..);
        numbered.filter(|(m, _)| m.cancelled && m.end_sent && !m.over).map(|(_, n)| n).collect()
    }
}
