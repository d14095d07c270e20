//! Regions that this unit's processor does not reach: on other hosts, and ordinary memory that the kernel
//! keeps from it. The owner's domain copies, when it receives.
//!
//! A put or get is cut into packets, a few of them under way at once, so that neither side holds more than
//! those, and no answer is longer than a message may be.

use super::ask::out_of_turn;
use super::call::Call;
use super::pending::CallError;
use super::region::Copy;
use super::{system, Inner};
use crate::types::{Address, HandlerId, Head};
use crate::MessageError;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a packet, at most.
const PACKET: usize = 1 << 20;
/// Packets of one put or get under way at once.
const WINDOW: usize = 4;

/// A put that may be under way. Dropped, it goes on, and nobody learns what came of it.
pub struct Put {
    id: u32,
    inner: Arc<Inner>,
    packets: VecDeque<Call>,
}

impl Put {
    /// One that is done.
    pub(super) fn done(inner: Arc<Inner>, id: u32) -> Put {
        Put { id, inner, packets: VecDeque::new() }
    }

    /// Whether there is an outcome: the bytes are there, or [`wait`](Put::wait) says why not. Receives what
    /// has come.
    pub fn is_done(&self) -> bool {
        self.packets.iter().all(Call::is_done)
    }

    /// Waits until the bytes are there.
    ///
    /// # Errors
    /// As [`Domain::put`](super::Domain::put).
    pub fn wait(self) -> Result<(), MessageError> {
        self.packets.iter().try_for_each(|call| self.inner.finish_far(call, self.id).map(drop))
    }
}

/// Where each packet begins, and its length; one without bytes for a copy of none, which asks whether the
/// region is there.
fn packets(len: usize, packet: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    (0..len.div_ceil(packet).max(1)).map(move |n| (n * packet, packet.min(len - n * packet)))
}

impl Inner {
    fn packet(&self) -> usize {
        PACKET.min(usize::try_from(self.inbox.longest()).unwrap_or(PACKET)).max(1)
    }

    /// Asks the owner for one packet.
    fn ask_far(
        self: &Arc<Inner>,
        to: Address,
        handler: HandlerId,
        (id, offset): (u32, usize),
        payload: Vec<u8>,
    ) -> Result<Call, MessageError> {
        let offset = offset as u64;
        Call::begin(self.clone(), to, "a region", None, |inner, number| {
            let args = [id, offset as u32, (offset >> 32) as u32, number];
            inner.push(to, Head { handler, args }, payload)
        })
    }

    fn finish_far(&self, call: &Call, id: u32) -> Result<Vec<u8>, MessageError> {
        match call.wait_or_why() {
            Err(MessageError::Call(CallError::Failed { unit, error, .. })) => {
                Err(MessageError::Region { id, reason: format!("unit {unit}: {error}") })
            }
            other => other,
        }
    }

    /// Begins to write into a region. The last packet goes first: where it does not fit, the owner says so
    /// first.
    pub(super) fn start_put_far(
        self: &Arc<Inner>,
        to: Address,
        id: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Put, MessageError> {
        let mut put = Put::done(self.clone(), id);
        within_memory(id, offset, bytes.len())?;
        for (at, len) in packets(bytes.len(), self.packet()).rev() {
            let payload = bytes[at..at + len].to_vec();
            put.packets.push_back(self.ask_far(to, system::PUT, (id, offset + at), payload)?);
        }
        Ok(put)
    }

    /// Copies to or from a region. A put that does not fit writes nothing: its last packet is waited for
    /// first.
    pub(super) fn copy_far(
        self: &Arc<Inner>,
        unit: Address,
        id: u32,
        offset: usize,
        what: &mut Copy<'_>,
    ) -> Result<(), MessageError> {
        within_memory(id, offset, what.len())?;
        let mut under_way: VecDeque<(Call, usize, usize)> = VecDeque::new();
        let mut packets = packets(what.len(), self.packet()).rev().enumerate();
        loop {
            let next = packets.next();
            let room = match (&*what, &next) {
                (Copy::Put(_), Some((1, _))) => 0,
                (_, Some(_)) => WINDOW - 1,
                (_, None) => 0,
            };
            while under_way.len() > room {
                let Some((call, at, len)) = under_way.pop_front() else { break };
                let got = self.finish_far(&call, id)?;
                if let Copy::Get(bytes) = what {
                    if got.len() != len {
                        return Err(out_of_turn(unit, "bytes of another length than was asked for"));
                    }
                    bytes[at..at + len].copy_from_slice(&got);
                }
                self.inbox.pool().give_back(got);
            }
            let Some((_, (at, len))) = next else { return Ok(()) };
            let (handler, payload) = match what {
                Copy::Put(bytes) => (system::PUT, bytes[at..at + len].to_vec()),
                Copy::Get(_) => (system::GET, (len as u64).to_le_bytes().to_vec()),
            };
            under_way.push_back((self.ask_far(unit, handler, (id, offset + at), payload)?, at, len));
        }
    }

    /// Bytes of a region.
    pub(super) fn len_far(self: &Arc<Inner>, unit: Address, id: u32) -> Result<usize, MessageError> {
        let call = self.ask_far(unit, system::GET, (id, 0), Vec::new())?;
        let answer = self.finish_far(&call, id)?;
        let len = answer.try_into().ok().and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok());
        len.ok_or_else(|| out_of_turn(unit, "a region's length that is none"))
    }

    /// A unit that does not reach this one's memory puts or gets.
    pub(super) fn answer_far(
        &self,
        handler: HandlerId,
        args: [u32; 4],
        bytes: &[u8],
    ) -> Result<Vec<u8>, String> {
        let region = self.regions.mine(args[0]).ok_or("it has no such region")?;
        let offset = u64::from(args[1]) | u64::from(args[2]) << 32;
        let offset = usize::try_from(offset).map_err(|_| "an offset beyond memory".to_owned())?;
        if handler == system::PUT {
            let put = region.copy(offset, &mut Copy::Put(bytes));
            return put.map(|()| Vec::new()).map_err(|e| e.to_string());
        }
        if bytes.is_empty() {
            let len = region.len().map_err(|e| e.to_string())?;
            return Ok((len as u64).to_le_bytes().to_vec());
        }
        let len = bytes.try_into().map(u64::from_le_bytes).map_err(|_| "no length".to_owned())?;
        // Checked before so much is allocated.
        let limit = self.inbox.longest();
        if len > limit {
            return Err(format!("{len} bytes asked for at once; {limit} allowed"));
        }
        let (len, all) = (len as usize, region.len().map_err(|e| e.to_string())?);
        if offset.checked_add(len).is_none_or(|end| end > all) {
            return Err(format!("bytes {offset} to {offset}+{len} are not all in its {all}"));
        }
        let mut got =
            self.inbox.pool().take(len).ok_or_else(|| format!("there is no memory for {len} bytes"))?;
        region.copy(offset, &mut Copy::Get(&mut got)).map(|()| got).map_err(|e| e.to_string())
    }
}

fn within_memory(id: u32, offset: usize, len: usize) -> Result<(), MessageError> {
    let reason = || format!("{len} bytes from {offset} lie beyond any memory");
    offset.checked_add(len).map(drop).ok_or_else(|| MessageError::Region { id, reason: reason() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_all_bytes_once() {
        for len in [0, 1, 9, 10, 11, 20, 95] {
            let cut: Vec<_> = packets(len, 10).collect();
            assert_eq!(cut.len(), len.div_ceil(10).max(1));
            let mut at = 0;
            for (start, bytes) in cut {
                assert_eq!(start, at);
                at += bytes;
            }
            assert_eq!(at, len);
        }
    }
}
