//! Chunks that are boxes, on their way into files.
//!
//! A chunk is encoded once, by one unit. A unit that has all of it does that at once. Parts of others go to a
//! draft, a file in the array's directory that holds the steps of one chunk; beside it stand counts of the
//! bytes that are there of each chunk, and the unit that brings a chunk's last bytes encodes it. So nobody
//! waits for others, and a draft is gone when its chunks are files.

use super::boxes::Boxes;
use super::io::Io;
use super::slabs::open_chunk;
use super::Options;
use crate::FileError;
use polyduct_layout::Dataset;
use polyduct_os::Errno;
use polyduct_port::{PortError, PortName};
use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

/// Bytes of a count.
const COUNT: u64 = 8;

/// One unit's view of the drafts of an array.
pub struct Drafts {
    pub boxes: Boxes,
    dataset: Dataset,
    dir: File,
    /// Where the array is in it: empty, or names each with a `/`.
    at: String,
    group: Option<Group>,
    /// Bytes of chunks that this unit has written and not counted, and chunks that it has encoded.
    wrote: BTreeMap<u64, u64>,
    encoded: u64,
}

/// The steps of a chunk.
struct Group {
    number: u64,
    draft: File,
    /// How many chunks are files, and for each the bytes that are there.
    counts: File,
}

fn draft_name(group: u64) -> String {
    format!("draft.{group}")
}

fn counts_name(group: u64) -> String {
    format!("counts.{group}")
}

impl Drafts {
    /// Those of an array in a directory or a place in it.
    ///
    /// # Errors
    /// [`FileError::System`].
    pub fn new(
        boxes: &Boxes,
        dataset: Dataset,
        (dir, at): (&File, &str),
        path: &str,
    ) -> Result<Drafts, FileError> {
        let dir = dir.try_clone().map_err(|e| FileError::io(path, "duplicate its descriptor", &e))?;
        Ok(Drafts {
            boxes: boxes.clone(),
            dataset,
            dir,
            at: at.to_owned(),
            group: None,
            wrote: BTreeMap::new(),
            encoded: 0,
        })
    }

    /// Begins with a part or a stretch of a step. One that is `counted` when it is written takes the place of
    /// what was not.
    ///
    /// # Errors
    /// [`FileError::System`].
    pub fn enter(&mut self, step: u64, counted: bool, path: &str) -> Result<(), FileError> {
        if counted {
            (self.wrote, self.encoded) = (BTreeMap::new(), 0);
        }
        let number = step / self.boxes.steps;
        if self.group.as_ref().is_none_or(|group| group.number != number) {
            let open = |name: String| {
                open_chunk(&self.dir, &format!("{}{name}", self.at))
                    .map_err(|e| FileError::sys(path, "create a draft", e))
            };
            self.group =
                Some(Group { number, draft: open(draft_name(number))?, counts: open(counts_name(number))? });
        }
        Ok(())
    }

    /// The file that holds parts of a step, and where the step begins in it.
    ///
    /// # Errors
    /// [`PortError::Closed`] where no step was [entered](Self::enter).
    pub fn draft(&self, step: u64, path: &str) -> Result<(&File, u64), FileError> {
        let at = step % self.boxes.steps * self.dataset.len_bytes();
        Ok((&self.group(path)?.draft, at))
    }

    /// Bytes of a step in a draft.
    pub fn step_len(&self) -> u64 {
        self.dataset.len_bytes()
    }

    fn group(&self, path: &str) -> Result<&Group, FileError> {
        self.group
            .as_ref()
            .ok_or_else(|| FileError::Port(PortError::Closed { port: PortName::File(path.to_owned()) }))
    }

    /// Whether so many bytes are all that a chunk has.
    pub fn is_whole(&self, chunk: u64, bytes: u64) -> bool {
        self.boxes.steps == 1 && bytes == self.boxes.box_len(chunk)
    }

    /// Notes bytes of a chunk that are in the draft.
    pub fn wrote(&mut self, chunk: u64, bytes: u64) {
        *self.wrote.entry(chunk).or_default() += bytes;
    }

    /// Encodes a chunk that this unit has whole.
    ///
    /// # Errors
    /// [`FileError::NoSpace`], [`FileError::System`].
    pub fn encode(&mut self, chunk: u64, packed: Vec<u8>, path: &str) -> Result<(), FileError> {
        let number = self.group(path)?.number;
        self.write_chunk(number, chunk, packed, 1, path)?;
        self.encoded += 1;
        Ok(())
    }

    /// Counts what was written, and encodes the chunks of which all is there. To be called when the bytes
    /// will not be written again.
    ///
    /// # Errors
    /// [`PortError::Timeout`] and [`PortError::Interrupted`] while nothing is counted; then
    /// [`FileError::NoSpace`], [`FileError::System`]: also where bytes came twice, so that a chunk would be
    /// taken for whole that is not.
    pub fn count(&mut self, waited: &mut Duration, path: &str, options: &Options) -> Result<(), FileError> {
        let Some((first, last)) =
            self.wrote.first_key_value().map(|f| *f.0).zip(self.wrote.last_key_value().map(|l| *l.0))
        else {
            return self.finish(self.encoded, waited, path, options);
        };
        let mut full = Vec::new();
        {
            let counts = Io { file: &self.group(path)?.counts, path, options };
            let _turn = counts.turn(waited)?;
            let end = (last + 2) * COUNT;
            counts.extend(end)?;
            let mut words = vec![0; ((last - first + 1) * COUNT) as usize];
            counts.read(&mut words, (first + 1) * COUNT)?;
            for (&chunk, &bytes) in &self.wrote {
                let word = &mut words[((chunk - first) * COUNT) as usize..][..COUNT as usize];
                let count = number(word) + bytes;
                word.copy_from_slice(&count.to_le_bytes());
                let whole = self.boxes.box_len(chunk) * self.boxes.steps;
                if count > whole {
                    // Something was written twice, and was taken for what others have yet to bring.
                    let what = "count the bytes of a chunk, of which some were written twice";
                    return Err(FileError::sys(path, what, Errno::INVAL));
                }
                if count == whole {
                    full.push(chunk);
                }
            }
            // A unit that is told to stop from here on would leave chunks to nobody.
            let counts = Io { options: &Options::default(), ..counts };
            counts.write(&words, (first + 1) * COUNT)?;
        }
        let number = self.group(path)?.number;
        for &chunk in &full {
            let encoded = self.encode_drafted(number, chunk, self.boxes.steps, self.boxes.steps, path);
            // What was counted cannot be written again.
            encoded.map_err(|e| match e {
                FileError::NoMemory { .. } => FileError::sys(path, "encode a chunk", Errno::NOMEM),
                e => e,
            })?;
        }
        match self.finish(self.encoded + full.len() as u64, waited, path, options) {
            // The commit of the file takes the draft away.
            Err(FileError::Port(PortError::Timeout { .. } | PortError::Interrupted { .. })) => {
                (self.wrote, self.encoded) = (BTreeMap::new(), 0);
                Ok(())
            }
            finished => finished,
        }
    }

    /// Notes that so many chunks more are files; the last takes the draft away.
    fn finish(
        &mut self,
        more: u64,
        waited: &mut Duration,
        path: &str,
        options: &Options,
    ) -> Result<(), FileError> {
        if more > 0 {
            let group = self.group(path)?;
            let counts = Io { file: &group.counts, path, options };
            let _turn = counts.turn(waited)?;
            counts.extend(COUNT)?;
            let mut word = [0; COUNT as usize];
            counts.read(&mut word, 0)?;
            let done = number(&word) + more;
            counts.write(&done.to_le_bytes(), 0)?;
            if done == self.boxes.per_step() {
                for name in [draft_name(group.number), counts_name(group.number)] {
                    let name = format!("{}{name}", self.at);
                    let removed = rustix::fs::unlinkat(&self.dir, name, rustix::fs::AtFlags::empty());
                    removed.map_err(|e| FileError::sys(path, "remove a draft", e))?;
                }
            }
        }
        (self.wrote, self.encoded) = (BTreeMap::new(), 0);
        Ok(())
    }

    /// Encodes a chunk of which a draft holds so many steps, and which has room for `room`.
    ///
    /// # Errors
    /// [`FileError::Truncated`] where no draft holds it, [`FileError::NoMemory`], [`FileError::NoSpace`],
    /// [`FileError::System`].
    pub fn encode_drafted(
        &self,
        group: u64,
        chunk: u64,
        steps: u64,
        room: u64,
        path: &str,
    ) -> Result<(), FileError> {
        let opened;
        let draft = match &self.group {
            Some(entered) if entered.number == group => &entered.draft,
            _ => {
                opened = open_chunk(&self.dir, &format!("{}{}", self.at, draft_name(group)))
                    .map_err(|e| FileError::sys(path, "open a draft", e))?;
                &opened
            }
        };
        let (len, at) = (self.boxes.box_len(chunk), self.boxes.box_at(chunk));
        let mut packed = Vec::new();
        super::stretch::resize(&mut packed, (len * room) as usize, path)?;
        let io = Io { file: draft, path, options: &Options::default() };
        for (step, piece) in packed.chunks_exact_mut((len as usize).max(1)).take(steps as usize).enumerate() {
            io.read(piece, step as u64 * self.dataset.len_bytes() + at)?;
        }
        self.write_chunk(group, chunk, packed, room, path)
    }

    fn write_chunk(
        &self,
        group: u64,
        chunk: u64,
        packed: Vec<u8>,
        steps: u64,
        path: &str,
    ) -> Result<(), FileError> {
        let padded = self.boxes.padded(chunk, packed, steps);
        let encoded = self.boxes.compression.encode(&padded, self.dataset.elem());
        let encoded = encoded.map_err(|e| FileError::io(path, "compress", &e))?;
        let name = format!("{}{}", self.at, passing_name(&self.boxes.coords(chunk), group));
        let file = open_chunk(&self.dir, &name).map_err(|e| FileError::sys(path, "create a chunk", e))?;
        Io { file: &file, path, options: &Options::default() }.write(&encoded, 0)?;
        // It may have been written before, by a call that did not come to its end.
        file.set_len(encoded.len() as u64).map_err(|e| FileError::io(path, "truncate a chunk", &e))
    }
}

/// The name of a chunk while it is not known how many steps there will be.
pub fn passing_name(coords: &[u64], group: u64) -> String {
    let group = (group > 0).then_some(group);
    group.iter().chain(coords).fold("new".to_owned(), |name, n| format!("{name}.{n}"))
}

fn number(word: &[u8]) -> u64 {
    word.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte))
}
