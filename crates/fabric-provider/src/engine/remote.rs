//! Reading and writing the registered memory of others.

use super::long::{Of, Pull};
use super::pieces::{put_together, total, MOST as PIECES};
use super::send::slice;
use super::wire::{self, Kind, Remote, HAS_DATA, STREAMED};
use super::{nothing, After, Counted, Engine, Op, Shared, State, What, ASKED, WAITING};
use crate::abi;
use polyduct_message::endpoint::{copy_bytes, Number, Piece, SHORT_BYTES};
use polyduct_message::Head;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};

/// Bytes of a write or a read that go with the question, or the answer.
const FEW: usize = SHORT_BYTES - Remote::BYTES;

/// Memory that others may read or write.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Where it begins.
    pub base: *mut u8,
    /// Its bytes.
    pub len: usize,
    /// What others may do.
    pub access: u64,
    /// Others say where by the owner's addresses, and not from 0.
    pub by_address: bool,
}

/// All of that, by its keys.
#[derive(Default)]
pub struct Registry {
    regions: HashMap<u64, Region>,
    next: u64,
    /// The keys of regions with counters of their own, and those counters.
    counted: Vec<(u64, usize)>,
}

impl Registry {
    /// Registers memory under a key, or, without one, under a free one.
    ///
    /// # Errors
    /// The key is another's.
    pub fn register(&mut self, key: Option<u64>, region: Region) -> Result<u64, c_int> {
        let key = key.unwrap_or_else(|| loop {
            self.next += 1;
            if !self.regions.contains_key(&self.next) {
                break self.next;
            }
        });
        match self.regions.contains_key(&key) {
            true => Err(abi::ENOKEY),
            false => {
                self.regions.insert(key, region);
                Ok(key)
            }
        }
    }

    /// The key names nothing any more.
    pub fn remove(&mut self, key: u64) {
        self.regions.remove(&key);
        self.counted.retain(|&(counted, _)| counted != key);
    }

    /// A counter of this number is to count what others write to the memory of this key.
    pub fn count(&mut self, key: u64, counter: usize) {
        if !self.counted.contains(&(key, counter)) {
            self.counted.push((key, counter));
        }
    }

    /// Whether a counter counts what is written to any memory.
    pub fn is_counting(&self, counter: usize) -> bool {
        self.counted.iter().any(|&(_, other)| other == counter)
    }

    /// The counters of the memory of a key.
    pub fn counters(&self, key: u64) -> impl Iterator<Item = usize> + '_ {
        self.counted.iter().filter(move |(counted, _)| *counted == key).map(|&(_, counter)| counter)
    }

    /// Where such a part is, if it may be accessed so.
    pub fn part(&self, key: u64, offset: u64, len: u64, access: u64) -> Result<*mut u8, c_int> {
        let region = self.regions.get(&key).ok_or(libc::EKEYREJECTED)?;
        if region.access & access != access {
            return Err(abi::EACCES);
        }
        let from = if region.by_address { region.base as u64 } else { 0 };
        let offset = offset.checked_sub(from).ok_or(abi::EINVAL)?;
        let end = offset.checked_add(len).ok_or(abi::EINVAL)?;
        match end <= region.len as u64 {
            true => Ok(region.base.wrapping_add(offset as usize)),
            false => Err(abi::EINVAL),
        }
    }
}

/// A read or a write.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Of whom.
    pub peer: Number,
    /// Of which memory,
    pub key: u64,
    /// and from where in it.
    pub offset: u64,
    /// This side's memory.
    pub here: *mut u8,
    /// Bytes.
    pub len: usize,
    /// Data for the other end.
    pub data: Option<u64>,
    /// What the program gave with it.
    pub context: *mut c_void,
    /// The program wants to know when it is done.
    pub tells: bool,
    /// The program has its memory back at once.
    pub injects: bool,
}

impl Engine {
    /// Writes into a peer's memory.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    ///
    /// # Safety
    /// As [`send`](Engine::send).
    pub unsafe fn write(&mut self, shared: &mut Shared, access: &Access) -> Result<(), c_int> {
        let Access { here, len, injects, .. } = *access;
        // SAFETY: the caller's.
        let kept = (injects && len > FEW).then(|| unsafe { slice(here, len) }.into());
        // SAFETY: as above.
        unsafe { self.put(shared, access, kept) }
    }

    /// Writes what lies in pieces: they are put together first.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    ///
    /// # Safety
    /// The pieces can be read.
    pub unsafe fn write_pieces(
        &mut self,
        shared: &mut Shared,
        access: &Access,
        pieces: &[Piece],
    ) -> Result<(), c_int> {
        let (len, mut whole) = self.room_for(access.peer, pieces)?;
        // SAFETY: the caller's.
        unsafe { put_together(pieces, &mut whole) };
        let access = Access { here: whole.as_mut_ptr(), len, ..*access };
        // SAFETY: they are kept.
        unsafe { self.put(shared, &access, Some(whole)) }
    }

    /// Writes from memory of this side, or from bytes that are kept for that.
    ///
    /// # Safety
    /// As [`write`](Engine::write).
    unsafe fn put(
        &mut self,
        shared: &mut Shared,
        access: &Access,
        kept: Option<Box<[u8]>>,
    ) -> Result<(), c_int> {
        let Access { peer, here, len, context, tells, data, .. } = *access;
        let after =
            After { done: nothing(context, abi::RMA | abi::WRITE), tells, counts: Counted::Write, of: None };
        let bytes = kept.as_ref().map_or(here.cast_const(), |kept| kept.as_ptr());
        let address = if len > FEW { bytes as u64 } else { 0 };
        let number = self.begin(
            peer,
            Op {
                to: peer,
                what: What::Put { bytes, len },
                after,
                is_begun: false,
                said: None,
                kept,
                pieces: None,
            },
        )?;
        let flags = if data.is_some() { HAS_DATA } else { 0 };
        let head = wire::head(Kind::Put, flags, [number, data.unwrap_or(0) as u32, 0, 0]);
        // SAFETY: the caller's, or kept with the operation, which is not over before they are said.
        let few = if len <= FEW { unsafe { slice(bytes, len) } } else { &[] };
        self.ask(shared, access, head, address, few);
        Ok(())
    }

    /// Reads from a peer's memory.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    pub fn read(&mut self, shared: &mut Shared, access: &Access) -> Result<(), c_int> {
        self.get(shared, access, None, None)
    }

    /// Reads into pieces: what comes is put apart when all is here.
    ///
    /// # Errors
    /// An error number: nothing was taken.
    pub fn read_pieces(
        &mut self,
        shared: &mut Shared,
        access: &Access,
        pieces: &[Piece],
    ) -> Result<(), c_int> {
        let (len, mut whole) = self.room_for(access.peer, pieces)?;
        let access = Access { here: whole.as_mut_ptr(), len, ..*access };
        self.get(shared, &access, Some(whole), Some(pieces.into()))
    }

    fn get(
        &mut self,
        shared: &mut Shared,
        access: &Access,
        kept: Option<Box<[u8]>>,
        pieces: Option<Box<[Piece]>>,
    ) -> Result<(), c_int> {
        let Access { peer, key, offset, here, len, context, tells, .. } = *access;
        let after =
            After { done: nothing(context, abi::RMA | abi::READ), tells, counts: Counted::Read, of: None };
        let remote = Remote { key, offset, len: len as u64, address: 0 };
        let number = self.begin(
            peer,
            Op {
                to: peer,
                what: What::Get { to: here, len, remote },
                after,
                is_begun: false,
                said: None,
                kept,
                pieces,
            },
        )?;
        let head = wire::head(Kind::Get, 0, [number, 0, 0, 0]);
        self.ask(shared, access, head, 0, &[]);
        Ok(())
    }

    /// Memory for the bytes of pieces, where an operation with them may begin.
    fn room_for(&mut self, to: Number, pieces: &[Piece]) -> Result<(usize, Box<[u8]>), c_int> {
        let len = total(pieces).filter(|_| pieces.len() <= PIECES).ok_or(abi::EINVAL)?;
        self.may_begin(to)?;
        let mut whole = Vec::new();
        whole.try_reserve_exact(len).map_err(|_| libc::ENOMEM)?;
        whole.resize(len, 0);
        Ok((len, whole.into()))
    }

    /// Whether an operation on a peer's memory may begin now.
    fn may_begin(&mut self, to: Number) -> Result<(), c_int> {
        if self.state.peer(to).gone {
            self.state.miss(to);
            self.tell_missed();
            return Err(abi::EHOSTUNREACH);
        }
        let peer = self.state.peer(to);
        match peer.says.len() >= WAITING || peer.asked >= ASKED {
            true => Err(abi::EAGAIN),
            false => Ok(()),
        }
    }

    /// Keeps account of an operation on a peer's memory.
    pub(super) fn begin(&mut self, to: Number, op: Op) -> Result<u32, c_int> {
        self.may_begin(to)?;
        let number = self.state.ops.insert(op).ok_or(abi::EAGAIN)?;
        self.state.peers[to as usize].asked += 1;
        Ok(number)
    }

    fn ask(&mut self, shared: &mut Shared, access: &Access, head: Head, address: u64, few: &[u8]) {
        let Access { key, offset, len, peer, .. } = *access;
        let remote = Remote { key, offset, len: len as u64, address }.to_bytes();
        self.say_now(shared, peer, head, &[&remote, few]);
    }

    /// Says something at once, if there is room.
    pub(super) fn say_now(&mut self, shared: &mut Shared, to: Number, head: Head, parts: &[&[u8]]) {
        self.state.say(to, head, &parts.concat());
        self.flush(shared, to);
    }
}

impl State {
    /// A peer has used registered memory: that is counted for the endpoint, as what it is, and for the memory
    /// of this key, where that has changed.
    pub(super) fn is_changed(&self, shared: &mut Shared, what: Counted, key: Option<u64>) {
        self.count(shared, what, false);
        let Shared { registry, counts, .. } = shared;
        for counter in key.into_iter().flat_map(|key| registry.counters(key)) {
            if let Some(Some(count)) = counts.get_mut(counter) {
                count.done += 1;
            }
        }
    }

    /// A peer writes.
    pub(super) fn put_here(&mut self, shared: &mut Shared, from: Number, head: &Head, bytes: &[u8]) {
        let Some((remote, few)) = Remote::split(bytes) else { return };
        let number = head.args[0];
        let to = match shared.registry.part(remote.key, remote.offset, remote.len, abi::REMOTE_WRITE) {
            Ok(to) => to,
            Err(error) => {
                return self.say(from, wire::head(Kind::Done, 0, [number, error as u32, 0, 0]), &[])
            }
        };
        let data = (head.handler.0 & HAS_DATA != 0).then_some(head.args[1]);
        let after = data.map(|data| {
            let flags = abi::RMA | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA;
            let mut done = nothing(core::ptr::null_mut(), flags);
            (done.len, done.data, done.from) = (remote.len as usize, data.into(), self.called(from));
            After { done, tells: true, counts: Counted::Receive, of: None }
        });
        let len = remote.len as usize;
        if remote.address != 0 {
            let peer = self.peer(from);
            peer.puts += 1;
            peer.broke |= peer.puts > ASKED;
            self.list(from);
            let pull = Pull::new(from, Of::Put(number), remote.address, (to, len));
            let pull = Pull { after, key: Some(remote.key), ..pull };
            return self.pulls.push_back(pull);
        }
        if few.len() == len {
            // SAFETY: within the registered memory, as was checked.
            unsafe { copy_bytes(few.as_ptr(), to, len) };
            self.say(from, wire::head(Kind::Done, 0, [number, 0, 0, 0]), &[]);
            self.is_changed(shared, Counted::RemoteWrite, Some(remote.key));
            if let Some(After { done, .. }) = after {
                if let Some(queue) = self.queue(shared, Counted::Receive) {
                    queue.push(done);
                }
            }
        }
    }

    /// A peer reads.
    pub(super) fn get_here(&mut self, shared: &mut Shared, from: Number, head: &Head, bytes: &[u8]) {
        let Some((remote, _)) = Remote::split(bytes) else { return };
        let (number, landing) = (head.args[0], head.args[1]);
        let part = shared.registry.part(remote.key, remote.offset, remote.len, abi::REMOTE_READ);
        let at = match part {
            Ok(at) => at,
            Err(error) => return self.say(from, wire::head(Kind::Got, 0, [number, error as u32, 0, 0]), &[]),
        };
        let len = remote.len as usize;
        if head.handler.0 & STREAMED != 0 {
            return self.start_stream(from, landing, at, len, None, Some(remote.key));
        }
        self.count(shared, Counted::RemoteRead, false);
        // SAFETY: within the registered memory, as was checked.
        let few = if len <= FEW { unsafe { slice(at, len) } } else { &[] };
        let address = if len <= FEW { 0 } else { at as u64 };
        let args = [number, 0, address as u32, (address >> 32) as u32];
        self.say(from, wire::head(Kind::Got, 0, args), few);
    }

    /// The answer to a read.
    pub(super) fn got(&mut self, shared: &mut Shared, from: Number, head: &Head, bytes: &[u8]) {
        let [number, error, low, high] = head.args;
        let Some(op) = self.ops.get(number).filter(|op| op.to == from) else { return };
        let What::Get { to, len, .. } = op.what else { return };
        if std::mem::replace(&mut op.is_begun, true) {
            return self.is_not_streamed(shared, from, number, error);
        }
        let address = wire::wide(low, high);
        let is_read = |what: &What| matches!(what, What::Get { .. });
        if error != 0 {
            return self.finish(shared, from, number, error, is_read);
        }
        if address == 0 {
            if bytes.len() != len {
                return self.finish(shared, from, number, abi::EIO as u32, is_read);
            }
            if len > 0 {
                // SAFETY: the program's memory, which it gave for this.
                unsafe { copy_bytes(bytes.as_ptr(), to, len) };
            }
            return self.finish(shared, from, number, 0, is_read);
        }
        self.pulls.push_back(Pull::new(from, Of::Get(number), address, (to, len)));
    }
}
