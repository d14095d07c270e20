//! Regions: memory that other units put to and get from directly, by their own processors.
//!
//! A region is a sealed segment. A partner asks for it when it first uses it, and maps it; from then on a put or a get is a
//! copy with the kernels of crate `copy`, and nothing else.

use super::peer::lock;
use super::{host, Inner};
use crate::types::Address;
use crate::MessageError;
use polyduct_copy::{memcpy, Dest, Source};
use polyduct_os::segment::{Access, Segment};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Regions of a unit, at most.
pub const MAX_REGIONS: usize = 4096;

/// A region of this unit. Lives as long as its handles and the domain.
#[derive(Clone, Debug)]
pub struct Region {
    id: u32,
    segment: Arc<Segment>,
}

impl Region {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.segment.len()
    }

    /// Whether it has no bytes. There are none such.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it is mapped in this process, for as long as a handle lives. Other units may write to it at any time.
    pub fn address(&self) -> u64 {
        self.segment.address()
    }

    /// Writes bytes into it.
    ///
    /// # Errors
    /// [`MessageError::Region`]: they lie beyond its end.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MessageError> {
        let place = self.place(offset, bytes.len())?;
        let copied = memcpy(Dest::from(place), Source::from(bytes));
        copied.map_err(|e| self.error(e.to_string()))
    }

    /// Reads bytes from it.
    ///
    /// # Errors
    /// As [`write`](Region::write).
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), MessageError> {
        let place = self.place(offset, bytes.len())?;
        let copied = memcpy(Dest::from(bytes), Source::from(place));
        copied.map_err(|e| self.error(e.to_string()))
    }

    fn place(&self, offset: usize, len: usize) -> Result<&[polyduct_os::sync::AtomicU8], MessageError> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len());
        let end =
            end.ok_or_else(|| self.error(format!("{len} bytes at {offset} lie beyond its {}", self.len())))?;
        Ok(self.segment.bytes(offset..end)?)
    }

    fn error(&self, reason: String) -> MessageError {
        MessageError::Region { id: self.id, reason }
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
        let segment = Segment::create("polyduct-region", len.max(1))?;
        segment.prefault(0..segment.len())?;
        let region = Region { id, segment: Arc::new(segment) };
        mine.insert(id, region.clone());
        Ok(region)
    }

    /// A descriptor of a region, for a partner.
    pub fn fd(&self, id: u32) -> Result<OwnedFd, String> {
        let mine = lock(&self.mine);
        let region = mine.get(&id).ok_or_else(|| format!("it has no region {id}"))?;
        region.segment.fd().as_fd().try_clone_to_owned().map_err(|e| e.to_string())
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
        let segment = Segment::from_fd(fd, 1, isize::MAX as usize, Access::ReadWrite)?;
        segment.prefault(0..segment.len())?;
        let region = Region { id, segment: Arc::new(segment) };
        Ok(lock(&self.regions.theirs).entry((unit, id)).or_insert(region).clone())
    }
}
