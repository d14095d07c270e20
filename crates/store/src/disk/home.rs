//! Keeps a store's own directory for the protocol: the epoch that was served last; and for those who read
//! without it, a number that changes with the units that are read, or where they are.

use super::disks::{broken, failed_with, read_up_to};
use super::manifest::errno;
use crate::volume::units::{Done, File as Named, Request, UnitError, HOME};
use polyduct_os::dir::{self, Open};
use polyduct_os::{Errno, OsError};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The file.
pub(super) const SERVED: &str = "served";

/// The directory of a store.
#[derive(Debug)]
pub(super) struct StoreDir {
    dir: Arc<OwnedFd>,
    served: Option<File>,
    /// Nothing is written.
    read_only: bool,
    /// Whether its name is known to be durable.
    named: bool,
    /// The file of locks, and what tells where units lie; none while a store is made, which nobody reads.
    told: Option<(File, [u8; 32])>,
}

/// Where the file of locks has the number, and what it is the number of.
const NUMBER: u64 = 24;

/// The number in a file of locks that changes with who is read, or where that is. It means nothing after a
/// cut.
pub(super) fn number(lock: &File) -> std::io::Result<u64> {
    // A file that is new is empty.
    let mut number = [0; 8];
    read_up_to(lock, &mut number, NUMBER)?;
    Ok(u64::from_le_bytes(number))
}

impl StoreDir {
    pub fn new(dir: Arc<OwnedFd>) -> StoreDir {
        StoreDir { dir, served: None, read_only: false, named: false, told: None }
    }

    /// The same, of which nothing is written.
    pub fn to_read(dir: Arc<OwnedFd>) -> StoreDir {
        StoreDir { read_only: true, ..StoreDir::new(dir) }
    }

    /// The same, for units that are where `places` says, and for readers who look at this file of locks.
    pub fn telling(self, lock: File, places: [u8; 32]) -> StoreDir {
        StoreDir { told: Some((lock, places)), ..self }
    }

    /// Units are elsewhere now.
    pub fn moved(&mut self, now: [u8; 32]) {
        if let Some((_, places)) = &mut self.told {
            *places = now;
        }
    }

    /// Raises the number where it is that of others than these, or of other places.
    pub fn tell(&self, not_read: u128) -> std::io::Result<()> {
        let Some((lock, places)) = &self.told else { return Ok(()) };
        let of = blake3::Hasher::new().update(&not_read.to_le_bytes()).update(places).finalize();
        let of = &of.as_bytes()[..16];
        let mut there = [0; 24];
        read_up_to(lock, &mut there, NUMBER)?;
        if there[8..] != *of {
            let (number, rest) = there.split_at_mut(8);
            rest.copy_from_slice(of);
            let next = number.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)).wrapping_add(1);
            number.copy_from_slice(&next.to_le_bytes());
            lock.write_all_at(&there, NUMBER)?;
        }
        Ok(())
    }

    /// Does one of the requests that there are for [`HOME`].
    pub fn one(&mut self, request: &Request) -> Result<Done, UnitError> {
        let io = |e: std::io::Error| failed_with(HOME, e.to_string(), errno(&e));
        match *request {
            Request::Read { file: Named::Served, at, len, .. } => {
                let Some(file) = self.served(false)? else { return Ok(Done::Bytes(Vec::new())) };
                let mut bytes = vec![0; len];
                let done = read_up_to(file, &mut bytes, at).map_err(io)?;
                bytes.truncate(done);
                Ok(Done::Bytes(bytes))
            }
            Request::Write { file: Named::Served, at, ref bytes, .. } => {
                if let Some(file) = self.served(true)? {
                    file.write_all_at(bytes, at).map_err(io)?;
                }
                Ok(Done::Yes)
            }
            Request::Sync { file: Named::Served, .. } => {
                if let Some(file) = &self.served {
                    file.sync_data().map_err(io)?;
                }
                if !self.named {
                    retry_on_intr(|| rustix::fs::fsync(self.dir.as_fd())).map_err(|e| broken(HOME, &e))?;
                    self.named = true;
                }
                Ok(Done::Yes)
            }
            _ => Err(broken(HOME, &"it has no such file")),
        }
    }

    fn served(&mut self, make: bool) -> Result<Option<&File>, UnitError> {
        if self.served.is_none() {
            let how = match make {
                true => Open::Make,
                false if self.read_only => Open::Read,
                false => Open::Write,
            };
            match dir::open_beneath(self.dir.as_fd(), SERVED, how, false) {
                Ok((file, _)) => self.served = Some(file.into()),
                Err(OsError::System { errno: Errno::NOENT, .. }) if !make => {}
                Err(e) => return Err(broken(HOME, &e)),
            }
        }
        Ok(self.served.as_ref())
    }
}
