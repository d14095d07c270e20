//! Regions: memory that other units put to and get from directly, by their own processors.
//!
//! A region is a sealed segment, or [lent](super::lent) memory. A partner asks where it lies when it first
//! uses it. A segment it maps; from then on a put or a get is a copy, and nothing else (see [`shm::Region`]).

use super::ask::ask_for_region;
use super::host::Whereabouts;
use super::lent::{Borrowed, Lending, NoCopy};
use super::peer::lock;
use super::Inner;
use crate::link::shm;
use crate::types::Address;
use crate::MessageError;
use polyduct_os::OsError;
use std::collections::HashMap;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex};

/// Regions of a unit, at most.
pub const MAX_REGIONS: usize = 4096;

/// How often a put or get asks anew where a region lies that was withdrawn and lent again meanwhile.
const ASK_ANEW: u32 = 3;

/// A region of shared memory. Lives as long as its handles and the domain.
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

    /// Where it is mapped in this process, for as long as a handle lives. Other units may write to it at any
    /// time.
    pub fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// The same as bytes that other units may write at any time.
    pub fn bytes(&self) -> &[AtomicU8] {
        self.memory.bytes()
    }

    /// Writes bytes into it.
    ///
    /// # Errors
    /// [`MessageError::Region`]: they lie beyond its end.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MessageError> {
        self.memory.put(offset, bytes).map_err(|e| out_of_range(self.id, e))
    }

    /// Reads bytes from it.
    ///
    /// # Errors
    /// As [`write`](Region::write).
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), MessageError> {
        self.memory.get(offset, bytes).map_err(|e| out_of_range(self.id, e))
    }

    fn copy(&self, offset: usize, what: &mut Copy<'_>) -> Result<(), MessageError> {
        match what {
            Copy::Put(bytes) => self.write(offset, bytes),
            Copy::Get(bytes) => self.read(offset, bytes),
        }
    }
}

/// The caller's error for bytes that lie beyond the end of a region.
pub(super) fn out_of_range(id: u32, e: OsError) -> MessageError {
    match e {
        OsError::OutOfRange { start, end, len, .. } => {
            MessageError::Region { id, reason: format!("bytes {start} to {end} are not all in its {len}") }
        }
        e => e.into(),
    }
}

/// What is copied, and in which direction.
pub(super) enum Copy<'a> {
    /// From here into a region.
    Put(&'a [u8]),
    /// From a region to here.
    Get(&'a mut [u8]),
}

impl Copy<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Copy::Put(bytes) => bytes.len(),
            Copy::Get(bytes) => bytes.len(),
        }
    }
}

/// A region of this unit.
#[derive(Clone, Debug)]
pub(super) enum Mine {
    /// Shared memory.
    Shared(Region),
    /// Ordinary memory.
    Lent(Arc<Lending>),
}

impl Mine {
    pub fn copy(&self, offset: usize, what: &mut Copy<'_>) -> Result<(), MessageError> {
        match self {
            Mine::Shared(region) => region.copy(offset, what),
            Mine::Lent(lending) => lending.copy(offset, what),
        }
    }

    pub fn len(&self) -> Result<usize, MessageError> {
        match self {
            Mine::Shared(region) => Ok(region.len()),
            Mine::Lent(lending) => lending.len(),
        }
    }
}

/// A region of another unit, as this one reaches it.
#[derive(Clone, Debug)]
enum Theirs {
    /// Mapped here.
    Shared(Region),
    /// Reached by the kernel.
    Lent(Arc<Borrowed>),
}

/// The regions that a unit has, and those of others that it has used.
#[derive(Default)]
pub(super) struct Regions {
    mine: Mutex<HashMap<u32, Mine>>,
    theirs: Mutex<HashMap<(Address, u32), Theirs>>,
}

impl Regions {
    pub fn create(&self, id: u32, len: usize) -> Result<Region, MessageError> {
        // Before so much memory is taken.
        self.check_free(&lock(&self.mine), id)?;
        let region = Region { id, memory: Arc::new(shm::Region::create(len.max(1))?) };
        self.add(id, Mine::Shared(region.clone()))?;
        Ok(region)
    }

    pub fn add(&self, id: u32, region: Mine) -> Result<(), MessageError> {
        let mut mine = lock(&self.mine);
        self.check_free(&mine, id)?;
        mine.insert(id, region);
        Ok(())
    }

    fn check_free(&self, mine: &HashMap<u32, Mine>, id: u32) -> Result<(), MessageError> {
        if mine.contains_key(&id) {
            return Err(MessageError::Region { id, reason: "this unit has it already".into() });
        }
        if mine.len() >= MAX_REGIONS {
            let limit = MAX_REGIONS as u64;
            return Err(MessageError::Limit { what: "regions of a unit", limit, found: limit + 1 });
        }
        Ok(())
    }

    /// A region of this unit.
    pub fn mine(&self, id: u32) -> Option<Mine> {
        lock(&self.mine).get(&id).cloned()
    }

    /// Lent memory is not found any more, if the region is still this one.
    pub fn remove(&self, id: u32, lending: &Arc<Lending>) {
        let mut mine = lock(&self.mine);
        if matches!(mine.get(&id), Some(Mine::Lent(there)) if Arc::ptr_eq(there, lending)) {
            mine.remove(&id);
        }
    }

    /// Where a region lies, for a partner.
    pub fn whereabouts(&self, id: u32) -> Result<Whereabouts, String> {
        match lock(&self.mine).get(&id).ok_or("it has no such region")? {
            Mine::Shared(region) => {
                let fd = region.memory.fd().try_clone_to_owned();
                fd.map(Whereabouts::Segment).map_err(|e| e.to_string())
            }
            Mine::Lent(lending) => lending.whereabouts(),
        }
    }

    /// What a unit has withdrawn is asked for anew.
    fn forget(&self, unit: Address, id: u32, old: &Arc<Borrowed>) {
        let mut theirs = lock(&self.theirs);
        if matches!(theirs.get(&(unit, id)), Some(Theirs::Lent(there)) if Arc::ptr_eq(there, old)) {
            theirs.remove(&(unit, id));
        }
    }
}

impl Inner {
    /// Copies to or from a region, in whichever way it is reached.
    pub(super) fn copy(
        self: &Arc<Inner>,
        unit: Address,
        id: u32,
        offset: usize,
        what: &mut Copy<'_>,
    ) -> Result<(), MessageError> {
        match self.copy_near(unit, id, offset, what)? {
            true => Ok(()),
            false => self.copy_far(unit, id, offset, what),
        }
    }

    /// Copies where this process reaches the memory. `false`: it does not, and nothing was copied.
    pub(super) fn copy_near(
        &self,
        unit: Address,
        id: u32,
        offset: usize,
        what: &mut Copy<'_>,
    ) -> Result<bool, MessageError> {
        self.units.peer(unit)?;
        if unit == self.units.me() {
            return self.my_region(id)?.copy(offset, what).map(|()| true);
        }
        if self.units.hosts().is_far(unit) {
            return Ok(false);
        }
        for _ in 0..ASK_ANEW {
            let borrowed = match self.their_region(unit, id)? {
                Theirs::Shared(region) => return region.copy(offset, what).map(|()| true),
                Theirs::Lent(borrowed) => borrowed,
            };
            match borrowed.copy(self.units.me(), offset, what) {
                Ok(()) => return Ok(true),
                Err(NoCopy::Denied) => return Ok(false),
                Err(NoCopy::Withdrawn) => self.regions.forget(unit, id, &borrowed),
                Err(NoCopy::Error(e @ OsError::OutOfRange { .. })) => return Err(out_of_range(id, e)),
                Err(NoCopy::Error(e)) => return Err(self.why(unit, self.dead_or(unit, e))),
            }
        }
        Err(MessageError::Region { id, reason: format!("unit {unit} has withdrawn it") })
    }

    fn my_region(&self, id: u32) -> Result<Mine, MessageError> {
        self.regions
            .mine(id)
            .ok_or(MessageError::Region { id, reason: "this unit has no such region".into() })
    }

    /// A region of another unit, asked for now if it is the first time.
    fn their_region(&self, unit: Address, id: u32) -> Result<Theirs, MessageError> {
        if let Some(e) = self.units.gone_error(unit) {
            return Err(e);
        }
        if let Some(region) = lock(&self.regions.theirs).get(&(unit, id)) {
            return Ok(region.clone());
        }
        let gone = || self.units.gone_error(unit).is_some();
        let asked = ask_for_region(&self.units.who(), unit, id, &gone);
        let region = match asked.map_err(|e| self.why(unit, e))? {
            Whereabouts::Segment(fd) => {
                Theirs::Shared(Region { id, memory: Arc::new(shm::Region::attach(fd, isize::MAX as usize)?) })
            }
            Whereabouts::Memory { address, len, gate } => {
                Theirs::Lent(Arc::new(Borrowed::new(self, unit, (address, len), gate)?))
            }
        };
        Ok(lock(&self.regions.theirs).entry((unit, id)).or_insert(region).clone())
    }

    /// Bytes of a region.
    pub(super) fn region_len(self: &Arc<Inner>, unit: Address, id: u32) -> Result<usize, MessageError> {
        self.units.peer(unit)?;
        if unit == self.units.me() {
            return self.my_region(id)?.len();
        }
        if self.units.hosts().is_far(unit) {
            return self.len_far(unit, id);
        }
        if let Theirs::Lent(old) = self.their_region(unit, id)? {
            // It may have been withdrawn, and lent again with another length.
            self.regions.forget(unit, id, &old);
        }
        match self.their_region(unit, id)? {
            Theirs::Shared(region) => Ok(region.len()),
            Theirs::Lent(borrowed) => Ok(borrowed.len()),
        }
    }

    /// A unit's region in place.
    pub(super) fn region_of(&self, unit: Address, id: u32) -> Result<Region, MessageError> {
        self.units.peer(unit)?;
        if self.units.hosts().is_far(unit) {
            if let Some(e) = self.units.gone_error(unit) {
                return Err(e);
            }
            let reason =
                format!("unit {unit} is on another host: it can be put to and got from, but not mapped");
            return Err(MessageError::Region { id, reason });
        }
        let shared = match unit == self.units.me() {
            true => match self.my_region(id)? {
                Mine::Shared(region) => Some(region),
                Mine::Lent(_) => None,
            },
            false => match self.their_region(unit, id)? {
                Theirs::Shared(region) => Some(region),
                Theirs::Lent(_) => None,
            },
        };
        let reason = || format!("unit {unit} lends ordinary memory, which is reached by put and get only");
        shared.ok_or_else(|| MessageError::Region { id, reason: reason() })
    }
}
