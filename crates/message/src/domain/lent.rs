//! Ordinary memory as a region: what a unit lends to the others, and how they reach it.
//!
//! The owner tells a partner that asks where the memory lies, once; from then on the partner copies to and
//! from it by the kernel (`process_vm_readv`, `process_vm_writev`), without the owner's doing. The partner
//! checks the bounds, since it is the one who copies, and the kernel would let it reach more. Where the
//! kernel lets it reach nothing (another namespace, Yama, a filter), and across hosts, the owner is asked by
//! messages and checks the bounds itself. So nothing that a peer says has this process touch any byte of its
//! own but those of a region that it registered.
//!
//! Memory that is taken back is not copied to or from any more: see [`Gate`].

use super::ask::out_of_turn;
use super::host::Whereabouts;
use super::host_map::Processes;
use super::region::{out_of_range, Copy, Mine};
use super::wait::SLICE;
use super::Inner;
use crate::link::shm::{Gate, Memory, RemoteMemory};
use crate::types::Address;
use crate::{LinkError, MessageError};
use polyduct_os::process::own_pid;
use polyduct_os::remote::RemoteReader;
use polyduct_os::{clock, OsError};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

/// How long a dropped handle waits for those who copy.
const LAST_COPIES: Duration = Duration::from_secs(5);

/// Memory that this unit lends to the others, until it is withdrawn or the handle dropped.
///
/// It may outlive the domain. A unit that goes while others may still use its memory leaves the domain first:
/// they learn that it left, and not only that it has no such region any more.
#[derive(Debug)]
pub struct Lent {
    lending: Arc<Lending>,
    inner: Weak<Inner>,
    timeout: Option<Duration>,
    /// The process that lends: to a fork of it the memory that others reach is not its own.
    process: u32,
}

/// What the domain knows of lent memory.
#[derive(Debug)]
pub(super) struct Lending {
    id: u32,
    /// Until it is withdrawn. Copies by this process hold it for reading.
    memory: RwLock<Option<Memory>>,
    gate: Gate,
    processes: Arc<Processes>,
}

impl Lending {
    fn withdrawn(&self) -> MessageError {
        MessageError::Region { id: self.id, reason: "it was withdrawn".into() }
    }

    /// Runs `f` with the memory, which stays meanwhile.
    fn with<T>(&self, f: impl FnOnce(&Memory) -> T) -> Result<T, MessageError> {
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map(f).ok_or_else(|| self.withdrawn())
    }

    /// A copy by this process.
    pub fn copy(&self, offset: usize, what: &mut Copy<'_>) -> Result<(), MessageError> {
        let copied = self.with(|memory| match what {
            Copy::Put(bytes) => memory.put(offset, bytes),
            Copy::Get(bytes) => memory.get(offset, bytes),
        })?;
        copied.map_err(|e| out_of_range(self.id, e))
    }

    /// Bytes.
    pub fn len(&self) -> Result<usize, MessageError> {
        self.with(Memory::len)
    }

    /// What a partner is told.
    pub fn whereabouts(&self) -> Result<Whereabouts, String> {
        let at = self.with(|memory| (memory.address(), memory.len() as u64));
        let (address, len) = at.map_err(|e| e.to_string())?;
        let gate = self.gate.fd().try_clone_to_owned().map_err(|e| e.to_string())?;
        Ok(Whereabouts::Memory { address, len, gate })
    }

    /// Whether the process of a unit has ended.
    fn is_dead(&self, unit: Address) -> bool {
        self.processes.watch(unit).is_none_or(|process| match process {
            Ok(process) => !process.is_alive(),
            Err(e) => e.is_peer_gone(),
        })
    }
}

impl Lent {
    pub(super) fn new(inner: &Arc<Inner>, id: u32, memory: Memory) -> Result<Lent, MessageError> {
        // Where that cannot be permitted, partners ask for the bytes.
        let _ = polyduct_os::remote::permit_readers();
        let units = &inner.units;
        let (gate, processes) = (Gate::create(units.hosts().users())?, units.processes().clone());
        let lending = Arc::new(Lending { id, memory: RwLock::new(Some(memory)), gate, processes });
        inner.regions.add(id, Mine::Lent(lending.clone()))?;
        let timeout = units.options().timeout;
        Ok(Lent { lending, inner: Arc::downgrade(inner), timeout, process: own_pid() })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.lending.id
    }

    /// Bytes; none once it is withdrawn.
    pub fn len(&self) -> usize {
        self.lending.len().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes bytes into it.
    ///
    /// # Errors
    /// [`MessageError::Region`]: they lie beyond its end, or it was withdrawn.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MessageError> {
        self.lending.copy(offset, &mut Copy::Put(bytes))
    }

    /// Reads bytes from it.
    ///
    /// # Errors
    /// As [`write`](Lent::write).
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), MessageError> {
        self.lending.copy(offset, &mut Copy::Get(bytes))
    }

    /// Takes the memory back: from now on nobody finds the region, and the number is free. Waits for the
    /// copies of others that are under way, which need nothing of this unit; of those who died in one it is
    /// known. So it may be called in a handler.
    ///
    /// # Errors
    /// [`MessageError::Timeout`] after the domain's timeout, while another process is stopped in the midst of
    /// a copy, and [`MessageError::Interrupted`]: it can be called again. [`MessageError::Region`]: it was
    /// withdrawn before, or this process is a fork of the one that lends, and nothing was done.
    pub fn withdraw(&self) -> Result<Memory, MessageError> {
        self.withdraw_within(self.timeout)
    }

    fn withdraw_within(&self, timeout: Option<Duration>) -> Result<Memory, MessageError> {
        let lending = &self.lending;
        if own_pid() != self.process {
            // The gate is the parent's, too, and so are those who copy.
            let reason = format!("process {} lends it, and this one is a fork", self.process);
            return Err(MessageError::Region { id: lending.id, reason });
        }
        let inner = self.inner.upgrade();
        if let Some(inner) = &inner {
            inner.regions.remove(lending.id, lending);
        }
        let interrupt = inner.and_then(|inner| inner.units.options().interrupt.clone());
        lending.gate.close();
        let start = clock::now();
        let deadline = timeout.map_or(Duration::MAX, |t| start.saturating_add(t));
        while !lending.gate.wait_empty(deadline.min(clock::now() + SLICE), |unit| lending.is_dead(unit)) {
            let now = clock::now();
            if now >= deadline {
                let what = "another unit's copy from or to lent memory".to_owned();
                return Err(MessageError::Timeout { what, waited: now - start });
            }
            if interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(MessageError::Interrupted);
            }
        }
        let memory = lending.memory.write().unwrap_or_else(PoisonError::into_inner).take();
        memory.ok_or_else(|| lending.withdrawn())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let time = self.timeout.map_or(LAST_COPIES, |t| t.min(LAST_COPIES));
        match self.withdraw_within(Some(time)) {
            Ok(_) | Err(MessageError::Region { .. }) => {}
            Err(error) => {
                // Somebody may still copy: the memory is lost to this process rather than used for something
                // else.
                tracing::warn!(id = self.id(), %error, "lent memory is not freed");
                let memory = self.lending.memory.write().unwrap_or_else(PoisonError::into_inner).take();
                std::mem::forget(memory);
            }
        }
    }
}

/// Memory that another unit of this host lends.
#[derive(Debug)]
pub(super) struct Borrowed {
    memory: RemoteMemory,
    len: usize,
    gate: Gate,
    /// The kernel does not let this process reach it.
    denied: AtomicBool,
}

/// Why a copy did not come to be that may be tried in another way.
pub(super) enum NoCopy {
    /// The owner has taken the memory back.
    Withdrawn,
    /// The kernel does not let this process reach it.
    Denied,
    /// Something else.
    Error(OsError),
}

impl Borrowed {
    /// What a unit told of its memory.
    pub fn new(
        inner: &Inner,
        unit: Address,
        (address, len): (u64, u64),
        gate: OwnedFd,
    ) -> Result<Borrowed, MessageError> {
        let gate = Gate::attach(gate, inner.units.hosts().users())
            .map_err(|_| out_of_turn(unit, "a gate that is none"))?;
        let len = usize::try_from(len).map_err(|_| {
            let (what, expected) = ("a region's length", "less than memory has");
            MessageError::BadPeer { unit, error: LinkError::BadField { what, found: len, expected } }
        })?;
        let process = inner.units.processes().watch(unit).ok_or(MessageError::PeerLeft { unit })?;
        let process = process.map_err(|e| inner.why(unit, inner.dead_or(unit, e)))?;
        let memory = RemoteMemory::new(RemoteReader::of(process), address, len);
        Ok(Borrowed { memory, len, gate, denied: AtomicBool::new(false) })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A copy by the unit `me`, through the kernel.
    pub fn copy(&self, me: Address, offset: usize, what: &mut Copy<'_>) -> Result<(), NoCopy> {
        if self.denied.load(Ordering::Relaxed) {
            return Err(NoCopy::Denied);
        }
        let inside = self.gate.enter(me).ok_or(NoCopy::Withdrawn)?;
        let copied = match what {
            Copy::Put(bytes) => self.memory.put(offset, bytes),
            Copy::Get(bytes) => self.memory.get(offset, bytes),
        };
        drop(inside);
        copied.map_err(|e| match e {
            OsError::RemoteDenied { .. } => {
                self.denied.store(true, Ordering::Relaxed);
                NoCopy::Denied
            }
            e => NoCopy::Error(e),
        })
    }
}

impl Inner {
    /// The error for what the system said of a unit's process or its memory.
    pub(super) fn dead_or(&self, unit: Address, e: OsError) -> MessageError {
        match e {
            e if e.is_peer_gone() => MessageError::PeerLost { unit, reason: e.to_string() },
            // Its memory goes before its process is known to be dead.
            OsError::BadAddress { .. } if self.units.is_dying(unit) => {
                MessageError::PeerLost { unit, reason: "its process died".to_owned() }
            }
            OsError::BadAddress { addr, .. } => {
                let error = LinkError::Unknown { what: "memory of a region at address", found: addr };
                MessageError::BadPeer { unit, error }
            }
            e => e.into(),
        }
    }
}
