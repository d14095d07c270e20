//! Units that are only read. What the protocol writes when it opens a store, and when it repairs, stays in
//! memory: what stood in the logs is done again there, and nothing on the disks changes.

use super::{lacks, Disks};
use crate::volume::units::{Cause, Done, File as Named, Request, UnitError, HOME};
use crate::volume::BLOCK;
use std::collections::HashMap;

/// Blocks that are kept, at most: 1 GiB.
const MOST: usize = 1 << 18;

/// Blocks of objects' files that are to be others than the disks have.
#[derive(Debug, Default)]
pub(super) struct Shadow(HashMap<(u32, Named, u64), Box<[u8]>>);

impl Disks {
    /// Whether something of an object is not as it lies on the disks: it is read by way of the protocol only.
    pub(in crate::disk) fn is_shadowed(&self, object: u64) -> bool {
        let of = |file: Named| matches!(file, Named::Data(n) | Named::Sums(n) if n == object);
        self.shadow.as_ref().is_some_and(|shadow| shadow.0.keys().any(|&(_, file, _)| of(file)))
    }

    /// Does a request in memory.
    pub(super) fn in_shadow(&mut self, request: &Request) -> Result<Done, UnitError> {
        let unit = request.unit();
        match *request {
            Request::Read { file, at, len, .. } | Request::ReadBack { file, at, len, .. } if unit != HOME => {
                self.read_shadowed(unit, file, at, len).map(Done::Bytes)
            }
            Request::Write { file: file @ (Named::Data(_) | Named::Sums(_)), at, ref bytes, .. } => {
                self.write_shadowed(unit, file, at, bytes)?;
                Ok(Done::Yes)
            }
            Request::Read { .. } if unit == HOME => match &mut self.home {
                Some(home) => home.one(request),
                None => Ok(Done::Bytes(Vec::new())),
            },
            Request::List { .. } => self.of_disk(unit, request),
            // Nobody reads them again.
            _ => Ok(Done::Yes),
        }
    }

    fn of_disk(&mut self, unit: u32, request: &Request) -> Result<Done, UnitError> {
        match self.units.get_mut(unit as usize) {
            Some(Ok(of)) => of.one(unit, request),
            Some(Err(unopened)) => Err(unopened.error(unit)),
            None => Err(lacks(unit, Named::Superblock)),
        }
    }

    fn disk_bytes(&mut self, unit: u32, file: Named, at: u64, len: usize) -> Result<Vec<u8>, UnitError> {
        match self.of_disk(unit, &Request::Read { unit, file, at, len })? {
            Done::Bytes(bytes) => Ok(bytes),
            _ => Ok(Vec::new()),
        }
    }

    fn read_shadowed(&mut self, unit: u32, file: Named, at: u64, len: usize) -> Result<Vec<u8>, UnitError> {
        let found = self.disk_bytes(unit, file, at, len);
        let Some(shadow) = &self.shadow else { return found };
        let end = at.saturating_add(len as u64);
        let of_object = matches!(file, Named::Data(_) | Named::Sums(_));
        let blocks = if of_object { at / BLOCK as u64..end.div_ceil(BLOCK as u64) } else { 0..0 };
        let over: Vec<(u64, &[u8])> = blocks
            .clone()
            .filter_map(|block| Some((block * BLOCK as u64, &shadow.0.get(&(unit, file, block))?[..])))
            .collect();
        // What cannot be read is not missing where all of it was written anew.
        let mut bytes = match found {
            Err(error) if over.is_empty() || over.len() as u64 != blocks.end - blocks.start => {
                return Err(error)
            }
            found => found.unwrap_or_default(),
        };
        for (from, block) in over {
            let (first, last) = (from.max(at), (from + BLOCK as u64).min(end));
            let to = (last - at) as usize;
            bytes.resize(bytes.len().max(to), 0);
            bytes[(first - at) as usize..to]
                .copy_from_slice(&block[(first - from) as usize..(last - from) as usize]);
        }
        Ok(bytes)
    }

    fn write_shadowed(&mut self, unit: u32, file: Named, at: u64, bytes: &[u8]) -> Result<(), UnitError> {
        let end = at.saturating_add(bytes.len() as u64);
        for block in at / BLOCK as u64..end.div_ceil(BLOCK as u64) {
            let from = block * BLOCK as u64;
            let there = self.disk_bytes(unit, file, from, BLOCK).ok();
            let mut now = self.read_shadowed(unit, file, from, BLOCK).unwrap_or_default();
            now.resize(BLOCK, 0);
            let (first, last) = (from.max(at), (from + BLOCK as u64).min(end));
            now[(first - from) as usize..(last - from) as usize]
                .copy_from_slice(&bytes[(first - at) as usize..(last - at) as usize]);
            let Some(shadow) = &mut self.shadow else { continue };
            // Most of what stands in the logs has come to its place.
            let same = there.is_some_and(|there| {
                now.starts_with(&there) && now[there.len()..].iter().all(|&byte| byte == 0)
            });
            if same {
                shadow.0.remove(&(unit, file, block));
            } else if shadow.0.len() < MOST {
                shadow.0.insert((unit, file, block), now.into());
            } else {
                let reason =
                    format!("more than {MOST} blocks are to be made good, and the store can only be read");
                return Err(UnitError { unit, reason, cause: Cause::Full });
            }
        }
        Ok(())
    }
}
