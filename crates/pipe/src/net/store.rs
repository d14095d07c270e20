//! The slots of a writer unit: filled by the program's thread, sent from by the threads of its readers.
//!
//! A slot belongs to one of them: it is taken out to be filled, and comes back shared. It is taken out again
//! only when nobody sends from it any more.

use polyduct_message::meeting::Shared;
use polyduct_os::{segment::Segment, Errno, OsError};
use std::slice::from_ref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The slots.
pub struct Store {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Of the slots, for readers of this host, whoever has them.
    descriptors: Vec<Shared>,
}

struct Inner {
    slots: Vec<Slot>,
}

struct Slot {
    step: Option<u64>,
    /// `None` while it is being filled.
    memory: Option<Arc<Segment>>,
}

impl Store {
    /// `depth` slots of `len` bytes, of which the first `fixed` are backed by memory from the start.
    pub fn new(depth: u32, len: usize, fixed: usize) -> Result<Store, OsError> {
        let slot = || {
            let fixed = 0..fixed.max(1);
            let mut memory = Segment::create_partly("polyduct-slot", len.max(1), from_ref(&fixed))?;
            memory.prefault(fixed)?;
            memory.keep_from_children();
            Ok(Slot { step: None, memory: Some(Arc::new(memory)) })
        };
        let slots = (0..depth).map(|_| slot()).collect::<Result<Vec<_>, OsError>>()?;
        let copy = |memory: &Arc<Segment>| match memory.fd().try_clone_to_owned() {
            Ok(fd) => Ok(Shared::new(fd)),
            Err(e) => Err(OsError::sys("dup", "a slot", Errno::from_io_error(&e).unwrap_or(Errno::MFILE))),
        };
        let descriptors = slots.iter().filter_map(|slot| slot.memory.as_ref()).map(copy);
        let descriptors = descriptors.collect::<Result<_, OsError>>()?;
        Ok(Store { inner: Mutex::new(Inner { slots }), changed: Condvar::new(), descriptors })
    }

    /// The memory of the slots, in their order.
    pub fn descriptors(&self) -> &[Shared] {
        &self.descriptors
    }

    /// How many slots there are.
    pub fn depth(&self) -> u32 {
        self.lock().slots.len() as u32
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot out to fill it, if nobody sends from it; waits for that no longer than `patience`.
    pub fn take(&self, slot: u32, patience: Duration) -> Option<Segment> {
        let mut inner = self.lock();
        let mut left = Some(patience);
        loop {
            let slot = inner.slots.get_mut(slot as usize)?;
            slot.step = None;
            let memory = slot.memory.take()?;
            match Arc::try_unwrap(memory) {
                Ok(memory) => return Some(memory),
                Err(shared) => slot.memory = Some(shared),
            }
            let waited = left.take()?;
            inner = self.changed.wait_timeout(inner, waited).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Puts a slot back, holding this step; `None` where nothing was made of it.
    pub fn put(&self, slot: u32, step: Option<u64>, memory: Segment) {
        if let Some(slot) = self.lock().slots.get_mut(slot as usize) {
            *slot = Slot { step, memory: Some(Arc::new(memory)) };
        }
        self.changed.notify_all();
    }

    /// A step that is there.
    pub fn find(&self, step: u64) -> Option<Arc<Segment>> {
        self.lock().slots.iter().find(|s| s.step == Some(step)).and_then(|s| s.memory.clone())
    }

    /// Whether a step is there.
    pub fn has(&self, step: u64) -> bool {
        self.lock().slots.iter().any(|s| s.step == Some(step) && s.memory.is_some())
    }

    /// Ends a use of a slot.
    pub fn done(&self, memory: Arc<Segment>) {
        let inner = self.lock();
        drop(memory);
        drop(inner);
        self.changed.notify_all();
    }
}
