//! What a store keeps in its own directory for the protocol: which epoch was served last.

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
pub(super) struct Home {
    dir: Arc<OwnedFd>,
    served: Option<File>,
    /// Whether its name is known to be durable.
    named: bool,
}

impl Home {
    pub fn new(dir: Arc<OwnedFd>) -> Home {
        Home { dir, served: None, named: false }
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
            let how = if make { Open::Make } else { Open::Write };
            match dir::open_beneath(self.dir.as_fd(), SERVED, how, false) {
                Ok((file, _)) => self.served = Some(file.into()),
                Err(OsError::System { errno: Errno::NOENT, .. }) if !make => {}
                Err(e) => return Err(broken(HOME, &e)),
            }
        }
        Ok(self.served.as_ref())
    }
}
