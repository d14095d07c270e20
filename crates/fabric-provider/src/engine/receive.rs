//! Receiving messages.

use super::long::{Of, Pull};
use super::matching::{Arrived, Body, Matching, Posted, Unexpected};
use super::pieces::{are_few, put_apart, total, Here, Lists, MOST};
use super::wire::{self, Kind};
use super::{nothing, After, Counted, Engine, Several, Shared, State, EAGER_MESSAGES, POSTED};
use crate::abi;
use polyduct_message::endpoint::{copy_bytes, Number, Piece};
use std::ffi::c_int;

impl Engine {
    /// Receives a message: one that is there, or the next that fits.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    #[inline]
    pub fn receive(&mut self, shared: &mut Shared, tagged: bool, posted: Posted) -> Result<(), c_int> {
        let mut posted = posted;
        if posted.multi.is_some() {
            // Not when it has taken some.
            if self.state.matching(tagged).waiting() >= POSTED {
                return Err(abi::EAGAIN);
            }
            posted.of = Some(self.state.several.insert(Several::default()).ok_or(abi::EAGAIN)?);
        }
        loop {
            let Some(found) = self.state.matching(tagged).message_for(&posted) else {
                if posted.multi.is_none() && self.state.matching(tagged).waiting() >= POSTED {
                    return Err(abi::EAGAIN);
                }
                match self.state.is_gone(posted.from) {
                    true => self.state.give_back(shared, tagged, posted, abi::EHOSTUNREACH),
                    false => self.state.matching(tagged).post(posted),
                }
                return Ok(());
            };
            let mut this = posted;
            if let Some(least) = posted.multi {
                let taken = found.arrived.len.min(posted.len);
                posted.to = posted.to.wrapping_add(taken);
                posted.len -= taken;
                if posted.len < least {
                    this.multi = Some(usize::MAX);
                }
            }
            self.state.take(shared, tagged, this, found);
            if this.multi.is_none_or(|least| least == usize::MAX) {
                break;
            }
        }
        self.go_on(shared);
        Ok(())
    }

    /// Receives, looks or claims as `flags` say, into memory in pieces.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    pub fn receive_pieces(
        &mut self,
        shared: &mut Shared,
        tagged: bool,
        posted: Posted,
        flags: u64,
        pieces: &[Piece],
    ) -> Result<(), c_int> {
        let len = total(pieces).filter(|_| pieces.len() <= MOST && posted.multi.is_none());
        let mut posted = Posted { len: len.ok_or(abi::EINVAL)?, ..posted };
        if flags & abi::PEEK != 0 {
            self.peek(shared, tagged, posted, flags);
            return Ok(());
        }
        if flags & abi::DISCARD != 0 {
            return self.claim(shared, tagged, posted, flags);
        }
        posted.list = Some(self.state.lists.insert(pieces.into()).ok_or(abi::EAGAIN)?);
        let received = match flags & abi::CLAIM {
            0 => self.receive(shared, tagged, posted),
            _ => self.claim(shared, tagged, posted, flags),
        };
        if received.is_err() {
            posted.list.and_then(|list| self.state.lists.remove(list));
        }
        received
    }

    /// Looks whether a message is there for a receive, and tells as if it was received; with
    /// [`CLAIM`](abi::CLAIM) it is kept for this context, with [`DISCARD`](abi::DISCARD) it is thrown away.
    pub fn peek(&mut self, shared: &mut Shared, tagged: bool, posted: Posted, flags: u64) {
        // What has not been looked at yet is found by the next look. MPICH, which asks for messages of its own
        // process after this, and receives those first, would take one for the other more often.
        let state = &mut self.state;
        let what = if tagged { abi::TAGGED } else { abi::MSG };
        let mut done = nothing(posted.context, what | abi::RECV);
        let after = |done| After { done, tells: posted.tells, counts: Counted::Receive, of: None };
        let found = match flags & abi::DISCARD {
            0 => state.matching(tagged).peek(&posted, flags & abi::CLAIM != 0),
            _ => {
                let found = state.matching(tagged).message_for(&posted);
                let arrived = found.as_ref().map(|found| found.arrived);
                found.into_iter().for_each(|found| state.throw_away(found));
                arrived
            }
        };
        // A look is no receive: it is not counted.
        let queue = state.receives.queue;
        let queue = queue.and_then(|queue| shared.queues.get_mut(queue)?.as_mut());
        let Some(queue) = queue else { return };
        match found {
            Some(Arrived { from, tag, data, len }) => {
                (done.len, done.tag, done.data, done.from) =
                    (len, tag, data.unwrap_or(0), state.called(from));
                done.flags |= data.map_or(0, |_| abi::REMOTE_CQ_DATA);
                queue.push(after(done).done);
            }
            None => {
                done.tag = posted.tag;
                queue.fail(super::Failure { of: done, lacking: 0, error: abi::ENOMSG });
                self.progress(shared);
            }
        }
        self.go_on(shared);
    }

    /// Receives the message that was kept for this context, or throws it away.
    ///
    /// # Errors
    /// There is none.
    pub fn claim(
        &mut self,
        shared: &mut Shared,
        tagged: bool,
        posted: Posted,
        flags: u64,
    ) -> Result<(), c_int> {
        let found = self.state.matching(tagged).claimed(posted.context).ok_or(abi::ENOENT)?;
        match flags & abi::DISCARD {
            0 => self.state.take(shared, tagged, posted, found),
            _ => {
                let Arrived { from, tag, data, len } = found.arrived;
                let what = if tagged { abi::TAGGED } else { abi::MSG };
                let mut done = nothing(posted.context, what | abi::RECV);
                (done.len, done.tag, done.data, done.from) =
                    (len, tag, data.unwrap_or(0), self.state.called(from));
                self.state.throw_away(found);
                self.state
                    .is_over(shared, After { done, tells: posted.tells, counts: Counted::Receive, of: None });
            }
        }
        self.go_on(shared);
        Ok(())
    }

    /// Takes back the receive of this context, which fails with that; nothing where it is under way or over.
    pub fn cancel(&mut self, shared: &mut Shared, context: *mut std::ffi::c_void) {
        for tagged in [true, false] {
            let found = self.state.matching(tagged).take_back(|posted| posted.context == context);
            if let Some(posted) = found {
                return self.state.give_back(shared, tagged, posted, abi::ECANCELED);
            }
        }
    }
}

impl State {
    pub(super) fn matching(&mut self, tagged: bool) -> &mut Matching {
        if tagged {
            &mut self.tagged
        } else {
            &mut self.plain
        }
    }

    fn is_gone(&self, from: Number) -> bool {
        self.peers.get(from as usize).is_some_and(|peer| peer.gone)
    }

    /// A receive ends without a message.
    fn give_back(&mut self, shared: &mut Shared, tagged: bool, posted: Posted, error: c_int) {
        posted.list.and_then(|list| self.lists.remove(list));
        let mut done = nothing(posted.context, abi::RECV | if tagged { abi::TAGGED } else { abi::MSG });
        done.tag = posted.tag;
        if let Some(several) = posted.of.and_then(|of| self.several.get(of)) {
            (several.open, several.is_full) = (several.open + 1, true);
        }
        let after = After { done, tells: true, counts: Counted::Receive, of: posted.of };
        self.failed(shared, after, error, 0);
    }

    /// Receives from a peer that is gone end: nobody else would end them where its host is cut off.
    pub(super) fn give_back_of(&mut self, shared: &mut Shared, from: Number) {
        for tagged in [true, false] {
            while let Some(posted) = self.matching(tagged).take_back(|posted| posted.from == from) {
                self.give_back(shared, tagged, posted, abi::EHOSTUNREACH);
            }
        }
    }

    /// What is told of a message that is received there.
    #[inline]
    fn told(&mut self, tagged: bool, posted: &Posted, arrived: &Arrived) -> After {
        let mut done = nothing(posted.context, abi::RECV | if tagged { abi::TAGGED } else { abi::MSG });
        if let Some(data) = arrived.data {
            done.flags |= abi::REMOTE_CQ_DATA;
            done.data = data;
        }
        (done.len, done.tag) = (arrived.len.min(posted.len), arrived.tag);
        (done.buf, done.from) = (posted.to.cast(), self.called(arrived.from));
        if let Some(several) = posted.of.and_then(|of| self.several.get(of)) {
            several.open += 1;
            several.is_full |= posted.multi == Some(usize::MAX);
        }
        After { done, tells: posted.tells, counts: Counted::Receive, of: posted.of }
    }

    /// A message that was kept is received.
    fn take(&mut self, shared: &mut Shared, tagged: bool, posted: Posted, found: Unexpected) {
        self.let_go(&found);
        let Unexpected { arrived, body, .. } = found;
        match body.bytes(arrived.len) {
            Some(bytes) => {
                self.receive_bytes(shared, tagged, &posted, &arrived, bytes);
                self.owe(arrived.from, arrived.len as u64);
            }
            None => self.receive_offered(shared, tagged, &posted, &arrived, &body),
        }
    }

    /// Bytes that are here are received.
    #[inline]
    pub(super) fn receive_bytes(
        &mut self,
        shared: &mut Shared,
        tagged: bool,
        posted: &Posted,
        arrived: &Arrived,
        bytes: &[u8],
    ) {
        let after = self.told(tagged, posted, arrived);
        let fits = bytes.len().min(posted.len);
        match posted.list {
            // SAFETY: the program's memory, which it gave for this.
            None if fits > 0 => unsafe { copy_bytes(bytes.as_ptr(), posted.to, fits) },
            None => {}
            Some(list) => {
                let pieces = self.lists.remove(list).unwrap_or_default();
                // SAFETY: as above.
                unsafe { put_apart(&bytes[..fits], &pieces) };
            }
        }
        match bytes.len() - fits {
            0 => self.is_over(shared, after),
            lacking => self.failed(shared, after, abi::ETRUNC, lacking),
        }
    }

    /// A message that the sender has is received: it is fetched from there.
    pub(super) fn receive_offered(
        &mut self,
        shared: &mut Shared,
        tagged: bool,
        posted: &Posted,
        arrived: &Arrived,
        body: &Body,
    ) {
        let Body::Offered(offer) = *body else { return };
        let after = self.told(tagged, posted, arrived);
        let mut here = posted.list.and_then(|list| self.lists.remove(list)).map(Here::new);
        self.owe(arrived.from, 0);
        if self.peer(arrived.from).gone {
            return self.failed(shared, after, abi::EHOSTUNREACH, 0);
        }
        let len = arrived.len.min(posted.len);
        let mut to = posted.to;
        let lists = match &mut here {
            Some(here) if are_few(&here.pieces, len) => {
                to = here.whole.insert(vec![0; len].into()).as_mut_ptr();
                None
            }
            Some(here) => Some(here.first(len)),
            None => None,
        };
        let lists = lists.or_else(|| (offer.pieces > 0).then(|| vec![Piece { at: to as usize, len }]));
        let there = (offer.address, offer.pieces, arrived.len);
        let pull = Pull::new(arrived.from, Of::Offer(offer.number), offer.address, (to, len));
        let lists = lists.map(|here| Box::new(Lists::new(here, there)));
        let lacking = arrived.len - len;
        self.pulls.push_back(Pull { after: Some(after), lacking, here, lists, ..pull });
    }

    /// A message was kept, and is no more.
    fn let_go(&mut self, Unexpected { arrived, body, .. }: &Unexpected) {
        let peer = self.peer(arrived.from);
        peer.held_messages -= 1;
        peer.held_bytes -= body.held(arrived.len);
    }

    fn throw_away(&mut self, found: Unexpected) {
        self.let_go(&found);
        let Arrived { from, len, .. } = found.arrived;
        match found.body {
            Body::Offered(offer) => {
                self.say(from, wire::head(Kind::Taken, 0, [offer.number, 0, 0, 0]), &[]);
                self.owe(from, 0);
            }
            _ => self.owe(from, len as u64),
        }
    }

    /// A message of a peer is kept no more, which it is told now and then.
    #[inline]
    pub(super) fn owe(&mut self, to: Number, bytes: u64) {
        let enough = self.limits.kept / 4;
        let peer = self.peer(to);
        peer.owed_messages += 1;
        peer.owed_bytes += bytes;
        if peer.owed_messages >= EAGER_MESSAGES / 4 || peer.owed_bytes >= enough {
            self.say_owed(to);
        }
    }

    /// A peer has only offered what it might have sent at once: it may think that too much is kept of it.
    pub(super) fn is_short(&mut self, to: Number) {
        if self.peer(to).owed_bytes > 0 {
            self.say_owed(to);
        }
    }

    fn say_owed(&mut self, to: Number) {
        let peer = self.peer(to);
        let said =
            [std::mem::take(&mut peer.owed_messages), std::mem::take(&mut peer.owed_bytes) as u32, 0, 0];
        self.say(to, wire::head(Kind::Credit, 0, said), &[]);
    }
}
