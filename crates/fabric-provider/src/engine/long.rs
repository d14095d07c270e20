//! Long messages: fetched by who receives them, or streamed to there.

use super::both::Both;
use super::list::Slab;
use super::pieces::{put_apart, put_together, Here, Lists};
use super::wire::{self, Kind};
use super::{
    lock, After, Buffer, Counted, Engine, Op, Shared, State, Streaming, What, ASKED, EAGER_MESSAGES,
};
use crate::abi;
use polyduct_message::endpoint::{Number, Sent, Stream};
use polyduct_message::Head;
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

/// So many bytes are fetched at least before other things are looked at, and no piece is longer.
pub(super) const PIECE: usize = 1 << 20;

/// Where streams land, by numbers that the senders are told.
pub type Landings = Arc<Mutex<Slab<Landing>>>;

/// Memory that waits for a stream.
pub struct Landing {
    /// From whom,
    pub from: Number,
    /// and what the network calls it.
    pub unit: Option<u32>,
    to: *mut u8,
    len: usize,
    /// A stream lands there: no other does.
    is_given: bool,
    lacking: usize,
    of: Of,
    /// What is told when it has come.
    pub after: Option<After>,
    /// Whose registered memory it is.
    pub key: Option<u64>,
    /// Where the bytes belong, if not there.
    pub here: Option<Here>,
}

// SAFETY: whoever gave its memory leaves it alone until the operation is over.
unsafe impl Send for Landing {}

impl Landing {
    /// Its memory, once, for a stream of so many bytes.
    pub fn buffer(&mut self, len: u64) -> Option<Buffer> {
        if len != self.len as u64 || std::mem::replace(&mut self.is_given, true) {
            return None;
        }
        Some(Buffer::Landing { to: self.to, len: self.len })
    }
}

/// Which operation bytes are of.
#[derive(Clone, Copy)]
pub enum Of {
    /// The peer's message of this number.
    Offer(u32),
    /// The peer's write of this number.
    Put(u32),
    /// This side's read of this number.
    Get(u32),
}

/// Bytes that are fetched from a peer's memory.
pub struct Pull {
    /// From whom,
    pub from: Number,
    /// to where.
    pub to: *mut u8,
    /// How many bytes,
    pub len: usize,
    /// and how many of them are here.
    pub done: usize,
    /// Where they are there.
    pub address: u64,
    /// Bytes of the message that there is no room for.
    pub lacking: usize,
    /// Of what they are.
    pub of: Of,
    /// What the program is told.
    pub after: Option<After>,
    /// Whose registered memory it goes to.
    pub key: Option<u64>,
    /// Whether both ends copy.
    pub both: Both,
    /// Where the bytes belong, where that is several pieces.
    pub here: Option<Here>,
    /// What is copied from piece to piece.
    pub lists: Option<Box<Lists>>,
}

impl Pull {
    /// Nothing is here yet of so many bytes, which lie in one piece on both sides; nobody is told.
    pub fn new(from: Number, of: Of, address: u64, (to, len): (*mut u8, usize)) -> Pull {
        let (both, key, after, here, lists) = (Both::No, None, None, None, None);
        Pull { from, to, len, done: 0, address, lacking: 0, of, after, key, both, here, lists }
    }
}

/// How far something is.
pub(super) enum Step {
    /// It is done.
    Over,
    /// More of it is to be done.
    Later,
    /// The other end is to do something.
    Waits,
    /// It cannot be done so.
    Fails,
}

impl Engine {
    /// Fetches what is offered: a piece of the first that is not all here. Returns whether there was one.
    pub(super) fn pull(&mut self, shared: &mut Shared) -> bool {
        let (mut at, mut moved) = (0, false);
        while let Some(mut pull) = self.state.pulls.remove(at) {
            match self.pull_some(&mut pull) {
                Step::Over => {
                    let Pull { from, of, after, lacking, here, key, .. } = pull;
                    self.state.is_here(shared, from, of, key, after, lacking, here);
                }
                Step::Fails => {
                    let unit = self.endpoint.unit_of(pull.from);
                    self.state.have_streamed(shared, pull, unit);
                }
                Step::Later => {
                    self.state.pulls.insert(at, pull);
                    return true;
                }
                Step::Waits => {
                    self.state.pulls.insert(at, pull);
                    at += 1;
                    continue;
                }
            }
            moved = true;
        }
        moved
    }

    fn pull_some(&mut self, pull: &mut Pull) -> Step {
        if pull.lists.is_some() {
            return self.pull_lists(pull);
        }
        if let Some(step) = self.pull_both(pull) {
            return step;
        }
        let n = PIECE.min(pull.len - pull.done);
        if n > 0 && !self.fetch(pull, pull.done, n) {
            return Step::Fails;
        }
        pull.done += n;
        match pull.done < pull.len {
            true => Step::Later,
            false => Step::Over,
        }
    }

    /// Fetches so many bytes from there on.
    pub(super) fn fetch(&mut self, pull: &Pull, at: usize, n: usize) -> bool {
        let address = pull.address.wrapping_add(at as u64);
        let is_copied = self.fetch_into(pull.from, pull.to.wrapping_add(at), address, n);
        self.state.peer(pull.from).is_copied |= is_copied;
        is_copied
    }

    pub(super) fn fetch_into(&mut self, from: Number, to: *mut u8, address: u64, n: usize) -> bool {
        if self.endpoint.is_itself(from) {
            // SAFETY: both are this program's, and belong to operations under way; they may overlap.
            unsafe { core::ptr::copy(address as *const u8, to, n) };
            return true;
        }
        // SAFETY: the program's memory, which it gave for this, or the engine's.
        let to = unsafe { core::slice::from_raw_parts_mut(to, n) };
        self.endpoint.fetch(from, to, address)
    }

    /// Sends more of the streams to a peer.
    pub(super) fn flush_streams(&mut self, shared: &mut Shared, to: Number) {
        let Engine { endpoint, state, .. } = self;
        while let Some(streaming) = state.peers[to as usize].streams.front_mut() {
            // SAFETY: its operation is not over before the other end has all.
            match unsafe { endpoint.stream(to, &mut streaming.stream, streaming.bytes) } {
                Sent::All => {
                    let streamed = state.peers[to as usize].streams.pop_front();
                    let number = streamed.and_then(|streaming| streaming.op).unwrap_or(u32::MAX);
                    if let Some(error) = state.ops.get(number).and_then(|op| op.said) {
                        state.finish(shared, to, number, error, |_| true);
                    }
                }
                Sent::Later => return,
                Sent::Gone => return state.lose(shared, to),
            }
        }
    }
}

impl State {
    /// What cannot be fetched is streamed.
    fn have_streamed(&mut self, shared: &mut Shared, pull: Pull, unit: Option<u32>) {
        let Pull { from, mut to, len, lacking, of, after, key, mut here, .. } = pull;
        if let Some(here) = &mut here {
            to = here.whole.get_or_insert_with(|| vec![0; len].into()).as_mut_ptr();
        }
        let landing = Landing { from, unit, to, len, is_given: false, lacking, of, after, key, here };
        let number = lock(&self.landings).insert(landing);
        let Some(landing) = number else {
            let error = libc::ENOMEM;
            if let Some(after) = after {
                self.failed(shared, after, error, 0);
            }
            let args = |number| [number, error as u32, 0, 0];
            return match of {
                Of::Offer(number) => self.say(from, wire::head(Kind::Taken, 0, args(number)), &[]),
                Of::Put(number) => self.say(from, wire::head(Kind::Done, 0, args(number)), &[]),
                Of::Get(number) => self.finish(shared, from, number, error as u32, |_| true),
            };
        };
        match of {
            Of::Offer(number) | Of::Put(number) => {
                let args = [number, landing, len as u32, (len as u64 >> 32) as u32];
                self.say(from, wire::head(Kind::Take, 0, args), &[]);
            }
            Of::Get(number) => {
                let Some(Op { what: What::Get { remote, .. }, .. }) = self.ops.get(number) else { return };
                let remote = remote.to_bytes();
                self.say(from, wire::head(Kind::Get, wire::STREAMED, [number, landing, 0, 0]), &remote);
            }
        }
    }

    /// A peer wants an operation's bytes streamed.
    pub(super) fn stream(&mut self, to: Number, [number, landing, low, high]: [u32; 4]) {
        let wanted = wire::wide(low, high) as usize;
        let Some(op) = self.ops.get(number).filter(|op| op.to == to && !op.is_begun) else { return };
        let (What::Offered { bytes, len } | What::Put { bytes, len }) = op.what else { return };
        if wanted > len {
            return;
        }
        let bytes = match &op.pieces {
            None => bytes,
            Some(pieces) => {
                let mut whole: Box<[u8]> = vec![0; wanted].into();
                // SAFETY: the program leaves them alone until it is told that they are sent.
                unsafe { put_together(pieces, &mut whole) };
                op.kept.insert(whole).as_ptr()
            }
        };
        op.is_begun = true;
        self.start_stream(to, landing, bytes, wanted, Some(number), None);
    }

    /// Streams bytes to where a peer waits for them.
    pub(super) fn start_stream(
        &mut self,
        to: Number,
        landing: u32,
        bytes: *const u8,
        len: usize,
        op: Option<u32>,
        key: Option<u64>,
    ) {
        let stream = Stream::new(wire::head(Kind::Land, 0, [landing, 0, 0, 0]), len);
        let peer = self.peer(to);
        peer.broke |= peer.streams.len() >= (EAGER_MESSAGES + ASKED) as usize;
        peer.streams.push_back(Streaming { stream, bytes, op, key });
        self.list(to);
    }

    /// A read of this side is not streamed, as it has asked for: the memory is not registered any more.
    pub(super) fn is_not_streamed(&mut self, shared: &mut Shared, from: Number, number: u32, error: u32) {
        let waits = |landing: &Landing| {
            let is_of = matches!(landing.of, Of::Get(of) if of == number);
            is_of && landing.from == from && !landing.is_given
        };
        let landing = {
            let mut known = lock(&self.landings);
            let found = known.numbers(waits).first().copied();
            found.filter(|_| error != 0).and_then(|found| known.remove(found))
        };
        if landing.is_some() {
            self.finish(shared, from, number, error, |what| matches!(what, What::Get { .. }));
        }
    }

    /// A stream has landed.
    pub(super) fn landed(&mut self, shared: &mut Shared, from: Number, head: &Head) {
        let landing = {
            let mut known = lock(&self.landings);
            let is_from = known.get(head.args[0]).is_some_and(|landing| landing.from == from);
            known.remove(head.args[0]).filter(|_| is_from)
        };
        let Some(Landing { after, lacking, of, here, key, .. }) = landing else { return };
        self.is_here(shared, from, of, key, after, lacking, here);
    }

    /// All bytes are here that there is room for.
    #[expect(clippy::too_many_arguments)]
    fn is_here(
        &mut self,
        shared: &mut Shared,
        from: Number,
        of: Of,
        key: Option<u64>,
        after: Option<After>,
        lacking: usize,
        here: Option<Here>,
    ) {
        here.iter().for_each(Here::put_apart);
        match of {
            Of::Offer(number) => self.say(from, wire::head(Kind::Taken, 0, [number, 0, 0, 0]), &[]),
            Of::Put(number) => {
                let peer = self.peer(from);
                peer.puts = peer.puts.saturating_sub(1);
                self.say(from, wire::head(Kind::Done, 0, [number, 0, 0, 0]), &[]);
                self.is_changed(shared, Counted::RemoteWrite, key);
            }
            Of::Get(number) => self.finish(shared, from, number, 0, |what| matches!(what, What::Get { .. })),
        }
        // What a write brings is told, and is no message received.
        if let (Of::Put(_), Some(after)) = (of, after) {
            if let Some(queue) = self.queue(shared, Counted::Receive) {
                queue.push(after.done);
            }
            return;
        }
        match (after, lacking) {
            (None, _) => {}
            (Some(after), 0) => self.is_over(shared, after),
            (Some(after), lacking) => self.failed(shared, after, abi::ETRUNC, lacking),
        }
    }

    /// The other end is done with an operation, if it is one of those that it may be.
    pub(super) fn finish(
        &mut self,
        shared: &mut Shared,
        from: Number,
        number: u32,
        error: u32,
        may_be: impl Fn(&What) -> bool,
    ) {
        let is_it = self.ops.get(number).is_some_and(|op| op.to == from && may_be(&op.what));
        if !is_it {
            return;
        }
        // Not while its bytes are still on their way.
        if self.peer(from).streams.iter().any(|streaming| streaming.op == Some(number)) {
            if let Some(op) = self.ops.get(number) {
                op.said = Some(error);
            }
            return;
        }
        self.pushes.retain(|push| push.to != from || push.of != Some(number));
        let Some(op) = self.ops.remove(number) else { return };
        if !matches!(op.what, What::Offered { .. }) {
            let peer = self.peer(from);
            peer.asked = peer.asked.saturating_sub(1);
        }
        if let (0, What::Get { .. } | What::Atomic { .. }, Some(kept), Some(pieces)) =
            (error, &op.what, &op.kept, &op.pieces)
        {
            // SAFETY: the program's memory, which it gave for this.
            unsafe { put_apart(kept, pieces) };
        }
        match error as c_int {
            0 => self.is_over(shared, op.after),
            error => self.failed(shared, op.after, if error > 0 { error } else { abi::EIO }, 0),
        }
    }
}
