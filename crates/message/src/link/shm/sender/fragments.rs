//! Messages that need not go as one piece.

use super::{SendError, Sender};
use crate::link::shm::cut::{left_to_the_receiver, Plan, Way};
use crate::link::shm::layout::{HAS_READ, SAYS_TIME};
use crate::link::shm::record::{has_read, pack_head, Kind, Tag};
use crate::link::shm::ring::{alarm, Place};
use crate::types::{Head, MAX_PAYLOAD};
use polyduct_os::clock;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a sender that has written the beginning of a message waits for its receiver to have read the end. Longer than that
/// takes, and no more than what a receiver that was interrupted costs in any case.
const READING: Duration = Duration::from_micros(20);

/// A message that is not complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub head: Head,
    pub len: u64,
    pub sent: u64,
    /// How long the next fragment shall be.
    pub fragment: u32,
    plan: Plan,
    /// When it was begun, nanoseconds; 0 where it is not timed.
    since: u64,
    /// Its first record was sent.
    begun: bool,
    /// Bytes at its end that the receiver may read itself, and the record that says so.
    offered: Option<(u64, u32)>,
}

impl Sender {
    /// Begins a message of `len` bytes, which [`extend`](Sender::extend) brings. Nothing is sent yet, unless it has none.
    pub fn begin(&mut self, head: Head, len: u64) -> Result<(), SendError> {
        self.check_closed_message()?;
        if len > MAX_PAYLOAD {
            return Err(SendError::TooLong { len });
        }
        if len == 0 {
            return self.inline(head, &[]);
        }
        let plan = match self.cut.overlaps(len) && self.receiver_waits() {
            true => {
                // SAFETY: `shared` keeps the area mapped.
                let said = unsafe { &self.lane.receiver()[SAYS_TIME] }.load(Ordering::Relaxed);
                let can_read = self.can_post();
                self.pace.plan(said, can_read)
            }
            false => Plan::CACHED,
        };
        let since = if plan.timed { clock::now().as_nanos() as u64 } else { 0 };
        let fragment = self.cut.first_fragment;
        self.open = Some(Open { head, len, sent: 0, fragment, plan, since, begun: false, offered: None });
        Ok(())
    }

    /// Sends the next bytes of the message begun, as fragments: the receiver copies one while the next is being written.
    /// Returns how many were taken; at most what the message lacks. Give many at a time: each call ends a fragment.
    ///
    /// # Errors
    /// [`SendError::Full`] and the others: nothing was taken.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        let Some(mut open) = self.open else { return Ok(0) };
        if self.owes {
            // It may have been said since that it is given up.
            return Err(SendError::Unfinished { left: open.len - open.sent });
        }
        let was_begun = open.begun;
        if open.plan.way == Way::Shared && !was_begun {
            self.offer(&mut open, bytes)?;
        }
        let want = u64::min(bytes.len() as u64, open.len - open.sent) as usize;
        let mut taken = 0;
        let max = self.cut.longest(open.len);
        while taken < want {
            let left = match open.offered {
                Some((end, _)) => want - taken - end as usize,
                None => want - taken,
            };
            let n = left.min(open.fragment as usize);
            let at = match self.write(&bytes[taken..taken + n], open.plan.way) {
                Ok(at) => at,
                // What it lacks may lie elsewhere when there is room.
                Err(e) => {
                    open.offered = None;
                    self.open = Some(open);
                    let sent = taken > 0 || open.begun != was_begun;
                    return if sent && e == SendError::Full { Ok(taken) } else { Err(e) };
                }
            };
            // The end need not be sent if the receiver has it by now: it copies what was written only after that.
            let read = match open.offered {
                Some((end, first)) if n == left => {
                    open.offered = None;
                    if self.has_read(first) {
                        end
                    } else {
                        0
                    }
                }
                _ => 0,
            };
            let ends = open.sent + n as u64 + read == open.len;
            self.fragment(&mut open, at, n, read, ends);
            taken += n + read as usize;
            open.sent += n as u64 + read;
            open.fragment = open.fragment.saturating_mul(2).min(max);
            self.open = (!ends).then_some(open);
        }
        Ok(taken)
    }

    /// Sends the first record of a message, of which the receiver may read the end in `bytes`. Where these are not all of it, it
    /// is streamed.
    fn offer(&mut self, open: &mut Open, bytes: &[u8]) -> Result<(), SendError> {
        let end = match bytes.len() as u64 >= open.len {
            true => left_to_the_receiver(bytes.as_ptr() as usize, open.len as usize),
            false => 0,
        };
        if end == 0 {
            open.plan.way = Way::Streamed;
            return Ok(());
        }
        let at = self.claim(0)?;
        let address = bytes.as_ptr() as u64 + open.len - end as u64;
        self.first(open, at, 0, (address, end as u64), false);
        open.offered = Some((end as u64, at.line));
        self.open = Some(*open);
        Ok(())
    }

    /// Shows a fragment that is written: the first record of its message, or one that says that `read` bytes at the end are not
    /// sent.
    fn fragment(&mut self, open: &mut Open, at: Place, n: usize, read: u64, ends: bool) {
        if !open.begun {
            return self.first(open, at, n, (0, 0), ends);
        }
        let [a, b, c] = pack_head(&open.head, n as u32);
        let tag = Tag::pack(self.channel.0, Kind::Next, 0);
        self.publish(at, tag, [a, b, c, read, 0, 0, 0], u64::from(ends));
    }

    fn first(&mut self, open: &mut Open, at: Place, n: usize, (address, end): (u64, u64), ends: bool) {
        open.begun = true;
        if open.since > 0 {
            self.pace.ask(at.line, open.plan.way, open.len);
        }
        let [a, b, c] = pack_head(&open.head, n as u32);
        let tag = Tag::pack(self.channel.0, Kind::First, 0);
        self.publish(at, tag, [a, b, c, open.len, address, end, open.since], u64::from(ends));
    }

    /// Waits a little for the receiver to read the end of a message, of which this is the first record. Returns whether it has.
    fn has_read(&self, first: u32) -> bool {
        // SAFETY: `shared` keeps the area mapped.
        let whose = unsafe { &self.lane.receiver()[HAS_READ] };
        let mut until = None;
        loop {
            for _ in 0..16 {
                // Acquire: who sent it may write there again.
                if whose.load(Ordering::Acquire) == has_read(first) {
                    return true;
                }
                core::hint::spin_loop();
            }
            let now = clock::now();
            if now > *until.get_or_insert(now + READING) {
                return false;
            }
        }
    }

    /// Gives up the message begun. The receiver forgets what it has of it.
    ///
    /// # Errors
    /// [`SendError::Full`]: try again before anything else is sent, or leave it to
    /// [`Link::say_abandoned`](super::Link::say_abandoned); and the others.
    pub fn abandon(&mut self) -> Result<(), SendError> {
        if self.open.is_some_and(|open| open.begun) {
            match self.shared.abandon(self.channel, self.priority, self.owes) {
                Ok(last) => self.last = last.unwrap_or(self.last),
                Err(reason) => {
                    self.owes = true;
                    return Err(self.no_room(reason));
                }
            }
        }
        (self.open, self.owes) = (None, false);
        Ok(())
    }

    /// Whether the receiver has taken all that was sent, found nothing since, and looks for what comes next, awake.
    fn receiver_waits(&self) -> bool {
        // SAFETY: `shared` keeps the area mapped.
        let (head, sent) = unsafe { (&self.lane.receiver()[0], self.lane.sent()) };
        self.outlet().is_empty(head) && !alarm::is_armed(sent)
    }

    /// The message begun goes so, whoever waits.
    #[cfg(test)]
    pub(in crate::link::shm) fn go(&mut self, way: Way) {
        if let Some(open) = &mut self.open {
            open.plan = Plan { way, timed: false };
        }
    }

    /// How the message begun goes.
    #[cfg(test)]
    pub(in crate::link::shm) fn plan(&self) -> Option<Plan> {
        self.open.map(|open| open.plan)
    }
}
