//! Regions: memory that other units put to and get from directly, by their own processors.
//!
//! A region is a sealed segment. A partner asks for it when it first uses it, and maps it; from then on a put or a get is a
//! copy, and nothing else (see [`shm::Region`]).

use super::peer::lock;
use super::{host, Inner};
use crate::link::shm;
use crate::types::Address;
use crate::MessageError;
use polyduct_os::OsError;
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
