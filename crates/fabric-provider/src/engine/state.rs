//! What an engine knows of its operations and peers, and how their ends are told.

use super::completion::{Failure, Queue};
use super::long::{Landing, Pull};
use super::{lock, After, Counted, Engine, Limits, Peer, Shared, State, Waiting, EAGER_MESSAGES, SAID};
use crate::abi;
use polyduct_message::endpoint::Number;
use polyduct_message::Head;
use std::collections::VecDeque;
use std::ffi::c_int;

impl Peer {
    /// Whether it may keep the bytes of one more message. Those that are injected are copied in any case.
    #[inline]
    pub(super) fn may_keep(&self, limits: &Limits, len: usize, injects: bool) -> bool {
        len == 0 || (injects || len <= limits.eager) && self.kept_bytes < limits.kept
    }

    /// Whether a message to it goes at once: nothing waits before it, and it keeps fewer than it may.
    #[inline]
    pub(super) fn takes_at_once(&self) -> bool {
        self.sends.is_empty() && self.says.is_empty() && self.kept_messages < EAGER_MESSAGES
    }

    /// The message that waits first, where it keeps fewer than it may.
    pub(super) fn next_send(&self) -> Option<&Waiting> {
        self.sends.front().filter(|_| self.kept_messages < EAGER_MESSAGES)
    }
}

impl Engine {
    /// Says once of a peer that is gone that operations with it have failed: whoever starts the processes may find
    /// another first that ends because of that.
    #[inline]
    pub(super) fn tell_missed(&mut self) {
        if let Some(number) = self.state.missed.take() {
            match (self.endpoint.process_of(number), self.endpoint.why_gone(number)) {
                (Some(pid), _) => tracing::warn!(pid, "a process is gone, or closed its link to this one"),
                (None, Some(why)) => tracing::warn!("another process is gone, or cannot be reached: {why}"),
                (None, None) => tracing::warn!("another process is gone, or cannot be reached"),
            }
        }
    }
}

impl State {
    #[inline]
    pub(super) fn peer(&mut self, number: Number) -> &mut Peer {
        let at = number as usize;
        if self.peers.len() <= at {
            self.peers.resize_with(at + 1, Peer::default);
        }
        &mut self.peers[at]
    }

    /// Whether what comes can be told.
    #[inline]
    pub(super) fn has_room(&self, shared: &Shared) -> bool {
        [self.sends, self.receives].iter().all(|bound| match bound.queue {
            Some(queue) => shared.queues[queue].as_ref().is_none_or(Queue::has_room),
            None => true,
        })
    }

    /// Whether there is something to do that nobody else begins.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.busy.is_empty() || !self.pulls.is_empty() || !self.pushes.is_empty()
    }

    /// What a peer is called by the program.
    pub(super) fn called(&self, number: Number) -> u64 {
        self.peers.get(number as usize).and_then(|peer| peer.called).unwrap_or(abi::ADDR_NOTAVAIL)
    }

    pub(super) fn count(&self, shared: &mut Shared, what: Counted, failed: bool) {
        let Some(counter) = self.counters[what as usize] else { return };
        if let Some(Some(count)) = shared.counts.get_mut(counter) {
            count.events += 1;
            match failed {
                false => count.done += 1,
                true => count.failed += 1,
            }
        }
    }

    pub(super) fn queue<'a>(&self, shared: &'a mut Shared, what: Counted) -> Option<&'a mut Queue> {
        let bound = if what == Counted::Receive { self.receives } else { self.sends };
        shared.queues.get_mut(bound.queue?)?.as_mut()
    }

    /// One message less is open of a receive of several. With the last of one that takes no more the program has its
    /// memory back, and is told whether or not it wanted to know of this message.
    #[inline]
    fn one_less(&mut self, mut after: After) -> After {
        let Some(of) = after.of else { return after };
        let Some(several) = self.several.get(of) else { return after };
        several.open = several.open.saturating_sub(1);
        if several.is_full && several.open == 0 {
            self.several.remove(of);
            after.done.flags |= abi::MULTI_RECV;
            after.tells = true;
        }
        after
    }

    /// An operation is over.
    #[inline]
    pub(super) fn is_over(&mut self, shared: &mut Shared, after: After) {
        let after = self.one_less(after);
        if self.counters[after.counts as usize].is_some() {
            self.count(shared, after.counts, false);
        }
        if after.tells {
            if let Some(queue) = self.queue(shared, after.counts) {
                queue.push(after.done);
            }
        }
    }

    /// An operation has failed. That is told whether or not the program wants to know.
    pub(super) fn failed(&mut self, shared: &mut Shared, after: After, error: c_int, lacking: usize) {
        let after = self.one_less(after);
        self.failures += 1;
        self.count(shared, after.counts, true);
        if let Some(queue) = self.queue(shared, after.counts) {
            queue.fail(Failure { of: after.done, lacking, error });
        }
    }

    /// Something waits for a peer.
    #[inline]
    pub(super) fn list(&mut self, number: Number) {
        let peer = self.peer(number);
        if !std::mem::replace(&mut peer.listed, true) {
            self.busy.push(number);
        }
    }

    /// Says something to a peer, when there is room.
    pub(super) fn say(&mut self, to: Number, head: Head, payload: &[u8]) {
        let peer = self.peer(to);
        if peer.says.len() >= SAID {
            peer.broke = true;
        } else if !peer.gone {
            peer.says.push_back((head, payload.into()));
        }
        self.list(to);
    }

    /// Something has failed because a peer is gone, which is said of it once.
    pub(super) fn miss(&mut self, number: Number) {
        if !std::mem::replace(&mut self.peer(number).is_missed, true) {
            self.missed = Some(number);
        }
    }

    /// A peer is gone: what it had to do with has failed.
    pub(super) fn lose(&mut self, shared: &mut Shared, number: Number) {
        let failures = self.failures;
        let peer = self.peer(number);
        peer.gone = true;
        let sends = std::mem::take(&mut peer.sends);
        peer.says.clear();
        peer.streams.clear();
        for waiting in sends {
            if let Some(after) = waiting.after {
                self.failed(shared, after, abi::EHOSTUNREACH, 0);
            }
        }
        // Copies first: their end waits until the other end stores nothing more.
        let (lost, rest) = std::mem::take(&mut self.pulls).into_iter().partition(|pull| pull.from == number);
        self.pulls = rest;
        let lost: VecDeque<Pull> = lost;
        for Pull { after, both, .. } in lost {
            drop(both);
            if let Some(after) = after {
                self.failed(shared, after, abi::EHOSTUNREACH, 0);
            }
        }
        let landings = lock(&self.landings).numbers(|landing| landing.from == number);
        for landing in landings {
            let landing = lock(&self.landings).remove(landing);
            if let Some(Landing { after: Some(after), .. }) = landing {
                self.failed(shared, after, abi::EHOSTUNREACH, 0);
            }
        }
        for number in self.ops.numbers(|op| op.to == number) {
            if let Some(op) = self.ops.remove(number) {
                self.failed(shared, op.after, abi::EHOSTUNREACH, 0);
            }
        }
        self.pushes.retain(|push| push.to != number);
        self.tagged.forget(number);
        self.plain.forget(number);
        self.give_back_of(shared, number);
        if self.failures > failures {
            self.miss(number);
        }
    }
}
