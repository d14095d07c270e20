//! Keeps the other tensors of a `.safetensors` file in which one is written.
//!
//! The new file gets their bytes from the old one, which is held open meanwhile, when the one that is written
//! is complete. An old file that another program has replaced by then is not replaced: what came in between
//! would be lost.

use super::io::Io;
use super::target::Target;
use super::Options;
use crate::safetensors::{Beside, Tensor};
use crate::FileError;
use polyduct_layout::ElemType;
use polyduct_message::hash::fnv1a;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::sync::Arc;

/// Bytes that are copied at once.
const PIECE: u64 = 4 << 20;

/// The file that is to be replaced, and what stays of it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// None where there is no such file yet, or an empty one.
    file: Option<Arc<File>>,
    pub beside: Beside,
    /// Of all that the file's header says.
    hash: u64,
}

impl Kept {
    /// What stays where a tensor is written, `None` where the file is written as a whole.
    ///
    /// # Errors
    /// [`FileError::BadPath`] for a file of several tensors where none is named;
    /// [`FileError::BadSafetensors`], [`FileError::Truncated`] for one that is not what it should be.
    pub fn of(target: &Target, elem: ElemType, options: &Options) -> Result<Option<Kept>, FileError> {
        let file = match target.existing() {
            // What is replaced as a whole need not be read.
            Err(_) if options.tensor.is_none() => None,
            file => file?,
        };
        let path = target.path.as_str();
        let len = match &file {
            Some(file) => file.metadata().map_err(|e| FileError::io(path, "stat", &e))?.len(),
            None => 0,
        };
        let header = match &file {
            Some(file) if len > 0 => super::source::read_tensors(&Io { file, path, options }, len),
            _ => Ok(Default::default()),
        };
        let Some(name) = &options.tensor else {
            return match header {
                Ok(header) if header.tensors.len() > 1 => Err(FileError::BadPath {
                    path: path.to_owned(),
                    problem:
                        "it holds several tensors; name the one to be written, PATH#NAME, or remove the file",
                }),
                // Nothing of it stays.
                _ => Ok(None),
            };
        };
        let header = header?;
        let hash = fnv1a(format!("{header:?}").bytes());
        Ok(Some(Kept { file: file.map(Arc::new), beside: Beside::new(header, name, elem), hash }))
    }

    /// What all units must agree on.
    pub fn text(&self) -> String {
        match self.beside.before().len() + self.beside.behind().len() {
            0 => String::new(),
            others => format!(" beside {others} ({:x})", self.hash),
        }
    }

    /// Bytes of the others before the one that is written, and behind it.
    pub fn len_bytes(&self) -> (u64, u64) {
        let of = |tensors: &[Tensor]| tensors.iter().map(|t| t.end - t.begin).sum();
        (of(self.beside.before()), of(self.beside.behind()))
    }

    /// Copies the others.
    ///
    /// # Errors
    /// [`FileError::Truncated`], [`FileError::NoSpace`], [`FileError::System`].
    pub fn copy(&self, to: &Io<'_>, before_at: u64, behind_at: u64) -> Result<(), FileError> {
        let Some(file) = &self.file else { return Ok(()) };
        let from = Io { file, ..*to };
        let mut buffer = Vec::new();
        for (tensors, mut at) in [(self.beside.before(), before_at), (self.beside.behind(), behind_at)] {
            for t in tensors {
                let mut begin = t.begin;
                while begin < t.end {
                    let now = PIECE.min(t.end - begin);
                    buffer.resize(now as usize, 0);
                    from.read(&mut buffer, begin)?;
                    to.write(&buffer, at)?;
                    (begin, at) = (begin + now, at + now);
                }
            }
        }
        Ok(())
    }

    /// Makes sure that the name still means the file that was read; nobody who asks the same changes that
    /// until this is dropped.
    ///
    /// # Errors
    /// [`FileError::BadPath`].
    pub fn check(&self, target: &Target) -> Result<(), FileError> {
        let still = match &self.file {
            None => target.existing()?.is_none(),
            Some(file) => {
                rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
                    && target.holds(file)
            }
        };
        match still {
            true => Ok(()),
            false => Err(FileError::BadPath {
                path: target.path.clone(),
                problem: "another program replaced it meanwhile; the tensor was not written",
            }),
        }
    }
}
