//! Regions: memory that other units put to and get from directly, by their own processors.
//!
//! A region is a sealed segment. A partner asks for it when it first uses it, and maps it; from then on a put or a get is a
//! copy, and nothing else (see [`shm::Region`]).

use super::calls::{self, CallError};
use super::peer::lock;
use super::{host, system, Inner};
use crate::link::shm;
use crate::types::{Address, HandlerId, Head};
use crate::{LinkError, MessageError};
use polyduct_os::{clock, OsError};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Regions of a unit, at most.
pub const MAX_REGIONS: usize = 4096;

/// A region of this unit. Lives as long as its handles and the domain.
#[derive(Clone, Debug)]
pub struct Region {
    id: u32,
    memory: Arc<shm::Region>,
}

impl Region {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has no bytes. There are none such.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it is mapped in this process, for as long as a handle lives. Other units may write to it at any time.
    pub fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Writes bytes into it.
    ///
    /// # Errors
    /// [`MessageError::Region`]: they lie beyond its end.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MessageError> {
        self.memory.put(offset, bytes).map_err(|e| self.error(e))
    }

    /// Reads bytes from it.
    ///
    /// # Errors
    /// As [`write`](Region::write).
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), MessageError> {
        self.memory.get(offset, bytes).map_err(|e| self.error(e))
    }

    fn error(&self, e: OsError) -> MessageError {
        match e {
            OsError::OutOfRange { start, end, len, .. } => MessageError::Region {
                id: self.id,
                reason: format!("bytes {start} to {end} are not all in its {len}"),
            },
            e => e.into(),
        }
    }
}

/// The regions that a unit has, and those of others that it has mapped.
#[derive(Default)]
pub(super) struct Regions {
    mine: Mutex<HashMap<u32, Region>>,
    theirs: Mutex<HashMap<(Address, u32), Region>>,
}

impl Regions {
    pub fn create(&self, id: u32, len: usize) -> Result<Region, MessageError> {
        let mut mine = lock(&self.mine);
        if mine.contains_key(&id) {
            return Err(MessageError::Region { id, reason: "this unit has it already".into() });
        }
        if mine.len() >= MAX_REGIONS {
            let limit = MAX_REGIONS as u64;
            return Err(MessageError::Limit { what: "regions of a unit", limit, found: limit + 1 });
        }
        let region = Region { id, memory: Arc::new(shm::Region::create(len.max(1))?) };
        mine.insert(id, region.clone());
        Ok(region)
    }

    /// A descriptor of a region, for a partner.
    pub fn fd(&self, id: u32) -> Result<OwnedFd, String> {
        let mine = lock(&self.mine);
        let region = mine.get(&id).ok_or_else(|| format!("it has no region {id}"))?;
        region.memory.fd().try_clone_to_owned().map_err(|e| e.to_string())
    }
}

impl Inner {
    /// Writes into a region of a unit on another host: its domain does, when it receives.
    pub(super) fn put_far(
        &self,
        to: Address,
        id: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), MessageError> {
        self.ask_far(to, system::PUT, id, offset, bytes.to_vec()).map(drop)
    }

    /// Bytes of a region of a unit on another host.
    pub(super) fn len_far(&self, unit: Address, id: u32) -> Result<usize, MessageError> {
        let answer = self.ask_far(unit, system::GET, id, 0, Vec::new())?;
        let len = answer.try_into().ok().and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok());
        let error = LinkError::OutOfTurn { what: "a region's length that is none" };
        len.ok_or(MessageError::BadPeer { unit, error })
    }

    /// Reads from a region of a unit on another host.
    pub(super) fn get_far(
        &self,
        from: Address,
        id: u32,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), MessageError> {
        let len = (bytes.len() as u64).to_le_bytes().to_vec();
        let got = self.ask_far(from, system::GET, id, offset, len)?;
        if got.len() != bytes.len() {
            let error = LinkError::OutOfTurn { what: "bytes of another length than was asked for" };
            return Err(MessageError::BadPeer { unit: from, error });
        }
        bytes.copy_from_slice(&got);
        Ok(())
    }

    fn ask_far(
        &self,
        to: Address,
        handler: HandlerId,
        id: u32,
        offset: usize,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, MessageError> {
        self.peer(to)?;
        let limit = calls::MAX_CALLS as u64;
        let number = lock(&self.calls).ask(to, "a region", clock::now(), None);
        let number =
            number.ok_or(MessageError::Limit { what: "calls under way", limit, found: limit + 1 })?;
        let offset = offset as u64;
        let args = [id, offset as u32, (offset >> 32) as u32, number];
        let done = self.push(to, Head { handler, args }, payload).and_then(|()| {
            self.wait("a region's unit", None, |inner| lock(&inner.calls).poll_outcome(number).map(Ok))
        });
        match done {
            Ok(Ok(answer)) => Ok(answer.payload),
            Ok(Err(CallError::Failed { error, .. })) => {
                Err(MessageError::Region { id, reason: format!("unit {to}: {error}") })
            }
            Ok(Err(e)) => Err(self.gone_error(to).unwrap_or(MessageError::Call(e))),
            Err(e) => {
                lock(&self.calls).forget(number);
                Err(e)
            }
        }
    }

    /// A unit on another host puts or gets.
    pub(super) fn answer_far(
        &self,
        handler: HandlerId,
        args: [u32; 4],
        bytes: &[u8],
    ) -> Result<Vec<u8>, String> {
        let region = lock(&self.regions.mine).get(&args[0]).cloned();
        let region = region.ok_or_else(|| format!("it has no region {}", args[0]))?;
        let offset = u64::from(args[1]) | u64::from(args[2]) << 32;
        let offset = usize::try_from(offset).map_err(|_| "an offset beyond memory".to_owned())?;
        if handler == system::PUT {
            return region.write(offset, bytes).map(|()| Vec::new()).map_err(|e| e.to_string());
        }
        if bytes.is_empty() {
            return Ok((region.len() as u64).to_le_bytes().to_vec());
        }
        let len = bytes.try_into().map(u64::from_le_bytes).map_err(|_| "no length".to_owned())?;
        // Checked before so much is allocated.
        let fits = offset.checked_add(len as usize).is_some_and(|end| end <= region.len());
        let mut got = vec![0; if fits { len as usize } else { 0 }];
        match fits {
            true => region.read(offset, &mut got).map(|()| got).map_err(|e| e.to_string()),
            false => Err(format!("bytes {offset} to {offset}+{len} are not all in its {}", region.len())),
        }
    }

    /// A unit's region, mapped now if it is the first time.
    pub(super) fn region_of(&self, unit: Address, id: u32) -> Result<Region, MessageError> {
        self.peer(unit)?;
        if unit == self.options.unit {
            let mine = lock(&self.regions.mine).get(&id).cloned();
            return mine.ok_or(MessageError::Region { id, reason: "this unit has no such region".into() });
        }
        if let Some(e) = self.gone_error(unit) {
            return Err(e);
        }
        if self.net.is_some() {
            let reason =
                format!("unit {unit} is on another host: it can be put to and got from, but not mapped");
            return Err(MessageError::Region { id, reason });
        }
        if let Some(region) = lock(&self.regions.theirs).get(&(unit, id)) {
            return Ok(region.clone());
        }
        let gone = || self.gone_error(unit).is_some();
        let asked = host::ask_for_region(&self.options.who(), unit, id, &gone);
        let fd = asked.map_err(|e| self.why(unit, e))?;
        let region = Region { id, memory: Arc::new(shm::Region::attach(fd, isize::MAX as usize)?) };
        Ok(lock(&self.regions.theirs).entry((unit, id)).or_insert(region).clone())
    }
}
