//! One other unit, as this one sees it: the link, made when first used, and what waits to be sent to it.

use super::channel::RawChannel;
use super::net::Net;
use super::room::OVERHEAD;
use super::system;
use crate::link::shm::{Link, SendError, Sender, Sizes};
use crate::types::{Address, ChannelId, Head, Priority};
use crate::MessageError;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Channels from this number on are the library's.
pub const LIBRARY_CHANNEL: u16 = 4095;

/// Bytes that may wait for room on the library's channel to one unit, apart those for `recv` there, at most
/// (and one message however large).
pub const BACKLOG: usize = 64 << 20;

/// Locks; what a panic left behind is as good as ever, since every change is complete.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, if no other thread holds it.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The priority of what the library sends. What waits at its receiver until a program takes it must not hold
/// up the rest.
fn pushed_priority(head: &Head) -> Priority {
    match head.handler {
        system::MAIL => Priority::Low,
        _ => Priority::High,
    }
}

/// Where a unit has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It left in order.
    Left,
    /// Its process ended without a word.
    Lost,
}

/// Another unit.
#[derive(Default)]
pub struct Peer {
    /// The link, once it stands.
    link: OnceLock<Link>,
    /// Held while the link is made.
    connecting: Mutex<Option<Link>>,
    gone: AtomicU8,
    numbers: Arc<Numbers>,
    /// The channel that [`super::Domain::send`] uses.
    mail: Mutex<Option<RawChannel>>,
    /// What the library sends: answers, barriers, and what handlers send. Never waits, so that handlers may
    /// use it. Apart is what is for `recv`: it may wait until the receiver's program takes it, and must not
    /// hold up the rest.
    outboxes: [Mutex<Outbox>; 2],
    /// Of a message for `recv` that a handler sent, only a part is sent.
    mail_begun: AtomicBool,
}

/// Which numbers of channels are in use, and the next to be looked at.
type Numbers = Mutex<(BTreeSet<u16>, u16)>;

/// The number of a channel; free again when this goes.
pub struct Number {
    /// The number.
    pub id: ChannelId,
    of: Arc<Numbers>,
}

impl Drop for Number {
    fn drop(&mut self) {
        lock(&self.of).0.remove(&self.id.0);
    }
}

#[derive(Default)]
struct Outbox {
    sender: Option<Sender>,
    queue: VecDeque<(Head, Bytes)>,
    /// Of the first in the queue: begun, and so many bytes of it sent.
    begun: Option<usize>,
    bytes: usize,
}

impl Outbox {
    /// The first in the queue is sent, or nobody is there to take it.
    fn pop(&mut self) {
        self.begun = None;
        self.bytes -= self.queue.pop_front().map_or(0, |(_, payload)| payload.len() + OVERHEAD as usize);
    }
}

/// How a unit of another host is reached: by the network, and its address there.
pub type FarWay<'a> = (&'a Net, Address);

impl Peer {
    /// Whether the unit has gone.
    pub fn gone(&self) -> Option<Gone> {
        match self.gone.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Gone::Left),
            _ => Some(Gone::Lost),
        }
    }

    /// The unit has gone. What it sent before can still be received.
    pub fn set_gone(&self, how: Gone) {
        self.gone.store(if how == Gone::Left { 1 } else { 2 }, Ordering::Release);
        if let Some(link) = self.link.get() {
            link.close();
        }
    }

    /// The link, once it stands.
    #[inline]
    pub fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    /// The link that stands, or is made for the unit: by this one where nobody has yet.
    ///
    /// # Errors
    /// The system's refusals.
    pub fn made(&self, sizes: &Sizes) -> Result<Link, MessageError> {
        // Under the lock: another thread may just have made it stand.
        let mut making = lock(&self.connecting);
        Ok(match (self.link.get(), &*making) {
            (Some(link), _) | (None, Some(link)) => link.clone(),
            (None, None) => making.insert(Link::create(sizes)?).clone(),
        })
    }

    /// Has the link stand that `join` gives, which gets what was [made](Peer::made) for the unit. `None`: it
    /// stood before. What was made is kept until then: the unit may have taken it, and has no use for
    /// another.
    ///
    /// # Errors
    /// Those of `join`.
    pub fn stand<T>(
        &self,
        join: impl FnOnce(Option<&Link>) -> Result<(Link, T), MessageError>,
    ) -> Result<Option<T>, MessageError> {
        let mut making = lock(&self.connecting);
        if self.link.get().is_some() {
            return Ok(None);
        }
        let (link, with) = join(making.as_ref())?;
        let _ = self.link.set(link);
        *making = None;
        Ok(Some(with))
    }

    /// The channel of [`Domain::send`](super::Domain::send), in this thread's turn: `None` while another
    /// sends there, or a message for `recv` that a handler sent is under way. Two side by side in one ring
    /// could each wait for the room that the other holds.
    pub fn mail_turn(&self) -> Option<MutexGuard<'_, Option<RawChannel>>> {
        try_lock(&self.mail).filter(|_| !self.mail_begun.load(Ordering::Acquire))
    }

    /// A number for a new channel to this unit, after that which was taken last; `None` where all are in use.
    pub fn next_channel(&self) -> Option<Number> {
        let (taken, next) = &mut *lock(&self.numbers);
        for _ in 0..LIBRARY_CHANNEL {
            let number = *next;
            *next = (number + 1) % LIBRARY_CHANNEL;
            if taken.insert(number) {
                return Some(Number { id: ChannelId(number), of: self.numbers.clone() });
            }
        }
        None
    }

    /// Sends on the library's channel, now or when there is room: by its link, which stands, or the way to
    /// another host.
    ///
    /// # Errors
    /// [`MessageError::Limit`] when too much waits already, unless it [must find a
    /// place](system::must_find_a_place). What is for a unit that has gone is dropped.
    pub fn push(&self, far: Option<FarWay<'_>>, head: Head, payload: Vec<u8>) -> Result<(), MessageError> {
        let priority = pushed_priority(&head);
        let mut out = lock(&self.outboxes[usize::from(priority == Priority::Low)]);
        let bytes = out.bytes.saturating_add(payload.len() + OVERHEAD as usize);
        let must = system::must_find_a_place(&head, payload.len());
        if !out.queue.is_empty() && bytes > BACKLOG && !must {
            let (limit, found) = (BACKLOG as u64, bytes as u64);
            return Err(MessageError::Limit { what: "bytes that wait to be sent to a unit", limit, found });
        }
        out.bytes = bytes;
        out.queue.push_back((head, payload.into()));
        self.flush_out(far, &mut out, priority);
        Ok(())
    }

    /// Sends what waits, as far as there is room. Returns whether anything still waits.
    pub fn flush(&self, far: Option<FarWay<'_>>) -> bool {
        let mut waits = self.link.get().is_some_and(|link| !link.say_abandoned());
        for (outbox, priority) in self.outboxes.iter().zip([Priority::High, Priority::Low]) {
            waits |= match try_lock(outbox) {
                Some(mut out) => self.flush_out(far, &mut out, priority),
                // The thread that holds it flushes.
                None => true,
            };
        }
        waits
    }

    /// Whether a message of this kind waits to be sent.
    pub fn owes(&self, is_kind: impl Fn(&Head) -> bool) -> bool {
        self.outboxes.iter().any(|outbox| lock(outbox).queue.iter().any(|(head, _)| is_kind(head)))
    }

    fn flush_out(&self, far: Option<FarWay<'_>>, out: &mut Outbox, priority: Priority) -> bool {
        if let Some((net, to)) = far {
            while let Some((head, payload)) = out.queue.front() {
                if self.gone().is_none() && !net.offer(to, priority, *head, payload.clone()) {
                    return true;
                }
                out.pop();
            }
            return false;
        }
        let Some(link) = self.link.get() else { return !out.queue.is_empty() };
        while let Some((head, payload)) = out.queue.front() {
            let apart = priority == Priority::Low;
            // Held while it is begun, behind all that `send` has begun.
            let turn = if apart && out.begun.is_none() {
                match try_lock(&self.mail) {
                    Some(turn) if link.say_abandoned() => Some(turn),
                    _ => return true,
                }
            } else {
                None
            };
            if out.sender.is_none() {
                out.sender = link.sender(ChannelId(LIBRARY_CHANNEL), priority);
            }
            let Some(sender) = &mut out.sender else { return true };
            let step = match out.begun {
                None => sender.send(*head, payload),
                Some(sent) => sender.extend(&payload[sent..]),
            };
            match step {
                Ok(n) => {
                    let sent = out.begun.unwrap_or(0) + n;
                    out.begun = Some(sent);
                    if sent < payload.len() {
                        if apart {
                            self.mail_begun.store(true, Ordering::Release);
                        }
                        continue;
                    }
                }
                // Arms the alarm, and looks once more before somebody sleeps.
                Err(SendError::Full) if self.gone().is_none() => {
                    sender.ask_for_call();
                    return true;
                }
                // Nobody is there to take it.
                Err(_) => {}
            }
            if apart {
                self.mail_begun.store(false, Ordering::Release);
            }
            drop(turn);
            out.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::shm::Payload;
    use crate::types::HandlerId;

    #[test]
    fn what_finds_no_room_waits_its_turn() {
        let sizes = Sizes::least();
        let link = Link::create(&sizes).unwrap();
        let fd = link.fd().try_clone_to_owned().unwrap();
        let other = Link::attach(fd, 1 << 20, &sizes).unwrap();
        let mut receiver = other.receiver::<Vec<u8>>().unwrap();
        let peer = Peer::default();
        let head = |n| Head { handler: HandlerId(n), args: [n; 4] };
        peer.push(None, head(0), vec![0; 10]).unwrap();
        assert!(peer.flush(None), "there is no link yet");
        assert!(peer.link.set(link).is_ok());
        for n in 1..40 {
            peer.push(None, head(n), vec![n as u8; n as usize * 100]).unwrap();
        }
        let mut got = Vec::new();
        while got.len() < 40 {
            let mut deliver = |m: &crate::link::shm::Incoming, payload: Payload<'_, Vec<u8>>| {
                let bytes = match payload {
                    Payload::Bytes(b) => b.to_vec(),
                    Payload::Buffer(b) => b,
                };
                assert!(bytes.iter().all(|&b| u32::from(b) == m.head.handler.0));
                got.push((m.head.handler.0, bytes.len()));
                true
            };
            receiver.poll(&mut |m| Some(vec![0; m.len as usize]), &mut deliver).unwrap();
            peer.flush(None);
        }
        let want: Vec<_> = (0..40).map(|n| (n, if n == 0 { 10 } else { n as usize * 100 })).collect();
        assert_eq!(got, want);
        assert!(!peer.flush(None));
        peer.set_gone(Gone::Lost);
        for _ in 0..100 {
            peer.push(None, head(1), vec![0; 1000]).unwrap();
        }
        assert!(!peer.flush(None), "nothing waits for the dead");
    }
}
