//! Locks of a store: its processes hold bytes of one file, and wait there for their turn to change it.

use super::Store;
use crate::disk::disks::Disks;
use crate::disk::manifest;
use crate::disk::turn::{self, InUse};
use crate::disk::StoreError;
use polyduct_os::lock::{hold, is_held, Hold};
use polyduct_os::{clock, dir, process, Errno, OsError};
use polyduct_port::{PortError, PortName};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The file whose bytes are locked: byte 0 by who changes the store, byte 1 + n by who uses object n, and
/// others by who appends to it, and by who waits.
const LOCK: &str = "lock";
/// Numbers of objects are below this.
const APPENDING: u64 = 1 << 50;
/// The same for all units of a program that appends.
const APPENDERS: u64 = 1 << 51;
/// Processes that wait to become the one that changes the store.
const WAITING: u64 = 1 << 52;
/// Pauses between attempts to become that one.
const RETRY: Duration = Duration::from_millis(1);
/// How long another leaves those who wait alone with it.
const POLITE: Duration = Duration::from_millis(3);
/// How long a turn may be that of a process that is stopped.
const STOPPED: Duration = Duration::from_secs(3);

impl Store {
    /// Waits for the lock of byte 0, over a description of its own: this process's threads exclude each
    /// other, too.
    pub(super) fn turn(&self, how: Hold) -> Result<InUse, StoreError> {
        let lock = self.lock_file()?;
        let os = StoreError::os(&self.shown);
        // A process that comes again and again gives way to those that wait, which look now and then: it
        // would have the lock again each time they do.
        if is_held(&lock, WAITING).map_err(&os)? {
            std::thread::sleep(POLITE);
        }
        let start = clock::now();
        let mut waits = None;
        while !hold(&lock, 0, how).map_err(&os)? {
            self.goes_on_waiting(start, &mut || turn::holder(&lock))?;
            if waits.is_none() {
                waits = Some(self.share(WAITING)?);
            }
            std::thread::sleep(RETRY);
        }
        Ok(InUse { lock: Arc::new(lock), byte: 0 })
    }

    /// Whether a wait since `start` is to go on; `holder` tells which process has the turn. A stopped process
    /// comes to no end by itself: a caller that would wait as long as it lives gets an error after a while.
    fn goes_on_waiting(
        &self,
        start: Duration,
        holder: &mut dyn FnMut() -> Option<u32>,
    ) -> Result<(), StoreError> {
        if self.interrupt.as_ref().is_some_and(|ask| ask()) {
            return Err(StoreError::Port(PortError::Interrupted {
                port: PortName::Store(self.shown.clone()),
                unit: None,
            }));
        }
        let waited = clock::now().saturating_sub(start);
        let is_over = match self.timeout {
            Some(limit) => waited >= limit,
            None => waited >= STOPPED && holder().is_some_and(process::is_stopped),
        };
        match is_over {
            true => Err(StoreError::Busy { store: self.shown.clone(), waited, by: who_is(holder()) }),
            false => Ok(()),
        }
    }

    /// Takes the units for a turn: a process that came by another directory may have them.
    pub(super) fn take_units(&self, disks: &mut Disks) -> Result<(), StoreError> {
        disks.share(self.geometry().parity());
        if disks.are_wanted() {
            std::thread::sleep(POLITE);
        }
        let start = clock::now();
        while !disks.take() {
            self.goes_on_waiting(start, &mut || disks.holder())?;
            std::thread::sleep(RETRY);
        }
        disks.taken();
        Ok(())
    }

    /// Notes that an object is in use, until what is returned is dropped.
    pub(in crate::disk) fn use_object(&self, object: u64) -> Result<InUse, StoreError> {
        self.share(1 + object)
    }

    /// Holds a byte that nobody ever holds alone.
    fn share(&self, byte: u64) -> Result<InUse, StoreError> {
        let lock = self.lock_file()?;
        hold(&lock, byte, Hold::Shared).map_err(StoreError::os(&self.shown))?;
        Ok(InUse { lock: Arc::new(lock), byte })
    }

    /// The same as [`use_object`](Store::use_object), by the file of locks that this store has open: of one
    /// object only.
    pub(in crate::disk) fn use_here(&self, object: u64) -> Result<InUse, StoreError> {
        hold(&self.lock, 1 + object, Hold::Shared).map_err(StoreError::os(&self.shown))?;
        Ok(InUse { lock: Arc::clone(&self.lock), byte: 1 + object })
    }

    /// Becomes the only program that appends to an object, until what is returned is dropped. Nobody of
    /// another that did is left: what such a one still wrote would go where this one writes.
    pub(in crate::disk) fn append_alone(&self, object: u64, name: &str) -> Result<InUse, StoreError> {
        let (lock, os) = (self.lock_file()?, StoreError::os(&self.shown));
        let alone = hold(&lock, APPENDING + object, Hold::Alone).map_err(&os)?
            && !is_held(&lock, APPENDERS + object).map_err(&os)?;
        match alone {
            true => Ok(InUse { lock: Arc::new(lock), byte: APPENDING + object }),
            false => Err(self.appends(name)),
        }
    }

    /// Another program appends.
    pub(in crate::disk) fn appends(&self, name: &str) -> StoreError {
        let what = format!("another program that appends to {name:?}");
        StoreError::Exists { store: self.shown.clone(), what }
    }

    /// Notes that this unit's program appends to an object, until what is returned is dropped.
    pub(in crate::disk) fn append_along(&self, object: u64) -> Result<InUse, StoreError> {
        self.share(APPENDERS + object)
    }

    /// The file of locks, opened anew: what holds a lock lets it go when it is closed.
    pub(super) fn lock_file(&self) -> Result<File, StoreError> {
        Ok(open_lock(&self.fd).map_err(StoreError::os(&self.shown))?.0)
    }
}

/// A process, for people.
fn who_is(process: Option<u32>) -> String {
    let Some((pid, line)) = process.and_then(|pid| Some((pid, process::command_line(pid)?))) else {
        return "another process".into();
    };
    let stopped = if process::is_stopped(pid) { ", which is stopped," } else { "" };
    format!("process {pid} ({line}){stopped}")
}

/// Opens the file of locks of a store, and says why it cannot be written, if so. Where it is not there then,
/// nobody else can hold anything either: the manifest stands in for it.
pub(super) fn open_lock(dir: &OwnedFd) -> Result<(File, Option<Errno>), OsError> {
    let open = |name, how| Ok::<_, OsError>(File::from(dir::open_beneath(dir.as_fd(), name, how, false)?.0));
    let why = match open(LOCK, dir::Open::Make) {
        Ok(lock) => return Ok((lock, None)),
        Err(e) => match e.errno() {
            Some(errno @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => errno,
            _ => return Err(e),
        },
    };
    let lock = match open(LOCK, dir::Open::Read) {
        Err(e) if e.errno() == Some(Errno::NOENT) => open(manifest::NAME, dir::Open::Read)?,
        lock => lock?,
    };
    Ok((lock, Some(why)))
}
