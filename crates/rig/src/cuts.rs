//! The states in which a power cut may leave the files of a program that was [recorded](crate::record).
//!
//! What a program wrote to a file is durable once the file was synced, and names are once their directory
//! was: so little is promised where programs run. Of all that is not durable a cut leaves anything: each
//! write whole, in part or not at all, each name or not, whatever came before or after it in another file.
//! Only within one directory, or one file, what is left took effect in its order.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A file or a directory, whatever it is called.
pub(crate) type NodeId = u32;

/// Bytes that are written whole or not at all.
const SECTOR: usize = 512;
/// Bytes that are left out of a file where all are zeros.
const HOLE: usize = 4096;

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Bytes were written.
    Write { node: NodeId, at: u64, bytes: Vec<u8> },
    /// A file became so long; if it only `grows`, no shorter.
    Length { node: NodeId, len: u64, grows: bool },
    /// A name came to be, and mostly what it is of.
    Name { dir: NodeId, name: OsString, node: NodeId, is_dir: bool },
    /// A name became another, in place of what had that; or the two changed places.
    Rename { dir: NodeId, from: OsString, to: OsString, swaps: bool },
    /// A name is gone.
    Unname { dir: NodeId, name: OsString },
    /// A file or a directory was synced: of what happened to it before event `seen` all is durable.
    Sync { node: NodeId, seen: usize },
    /// The program knows something to be durable.
    Told(u32),
}

impl Event {
    /// Whose sync makes it durable.
    fn of(&self) -> Option<NodeId> {
        match *self {
            Event::Write { node, .. } | Event::Length { node, .. } => Some(node),
            Event::Name { dir, .. } | Event::Rename { dir, .. } | Event::Unname { dir, .. } => Some(dir),
            Event::Sync { .. } | Event::Told(_) => None,
        }
    }
}

/// What a program did.
#[derive(Debug)]
pub struct Recording {
    /// What was there when it began.
    pub(crate) base: Tree,
    /// What it did then, in order.
    pub(crate) events: Vec<Event>,
}

/// Directories and files.
#[derive(Clone, Debug)]
pub struct Tree {
    root: NodeId,
    dirs: HashMap<NodeId, BTreeMap<OsString, NodeId>>,
    files: HashMap<NodeId, Arc<Vec<u8>>>,
}

impl Tree {
    pub(crate) fn new(root: NodeId) -> Tree {
        Tree { root, dirs: HashMap::from([(root, BTreeMap::new())]), files: HashMap::new() }
    }

    pub(crate) fn add_dir(&mut self, dir: NodeId, name: OsString, node: NodeId) {
        self.dirs.entry(dir).or_default().insert(name, node);
        self.dirs.entry(node).or_default();
    }

    pub(crate) fn add_file(&mut self, dir: NodeId, name: OsString, node: NodeId, bytes: Vec<u8>) {
        self.dirs.entry(dir).or_default().insert(name, node);
        self.files.insert(node, Arc::new(bytes));
    }

    /// Does what happened; of a write only the first so many sectors.
    fn apply(&mut self, event: &Event, sectors: usize) {
        match event {
            Event::Write { node, at, bytes } => {
                let bytes = &bytes[..bytes.len().min(sectors.saturating_mul(SECTOR))];
                let file = Arc::make_mut(self.files.entry(*node).or_default());
                let (at, end) = (*at as usize, *at as usize + bytes.len());
                file.resize(file.len().max(end), 0);
                file[at..end].copy_from_slice(bytes);
            }
            Event::Length { node, len, grows } => {
                let file = Arc::make_mut(self.files.entry(*node).or_default());
                let least = if *grows { file.len() } else { 0 };
                file.resize((*len as usize).max(least), 0);
            }
            Event::Name { dir, name, node, is_dir } => {
                self.dirs.entry(*dir).or_default().insert(name.clone(), *node);
                if *is_dir {
                    self.dirs.entry(*node).or_default();
                }
            }
            Event::Rename { dir, from, to, swaps } => {
                let names = self.dirs.entry(*dir).or_default();
                let (old, new) = (names.remove(from), names.get(to).copied());
                names.extend(old.map(|node| (to.clone(), node)));
                names.extend(new.filter(|_| *swaps).map(|node| (from.clone(), node)));
            }
            Event::Unname { dir, name } => drop(self.dirs.entry(*dir).or_default().remove(name)),
            Event::Sync { .. } | Event::Told(_) => {}
        }
    }

    /// Makes it what an empty directory holds.
    pub fn put(&self, place: &Path) {
        self.put_dir(self.root, place);
    }

    fn put_dir(&self, dir: NodeId, place: &Path) {
        for (name, node) in self.dirs.get(&dir).into_iter().flatten() {
            let path = place.join(name);
            if self.dirs.contains_key(node) {
                std::fs::create_dir(&path).unwrap();
                self.put_dir(*node, &path);
                continue;
            }
            let file = File::create(&path).unwrap();
            let bytes = self.files.get(node).map_or(&[][..], |bytes| bytes);
            file.set_len(bytes.len() as u64).unwrap();
            for (n, part) in bytes.chunks(HOLE).enumerate().filter(|(_, part)| part.iter().any(|&b| b != 0)) {
                file.write_all_at(part, (n * HOLE) as u64).unwrap();
            }
        }
    }
}

/// A moment at which the power is cut.
pub struct Cut<'a> {
    events: &'a [Event],
    /// How much happened before it.
    pub len: usize,
    /// What the program knew to be durable: the last number.
    pub told: u32,
    durable: Tree,
    /// What is not durable: where it stands among the events.
    open: Vec<usize>,
}

impl<'a> Cut<'a> {
    /// Before anything happens.
    pub fn new(of: &'a Recording) -> Cut<'a> {
        Cut { events: &of.events, len: 0, told: 0, durable: of.base.clone(), open: Vec::new() }
    }

    /// One moment later; `false` when there is none.
    pub fn advance(&mut self) -> bool {
        let Some(event) = self.events.get(self.len) else { return false };
        match *event {
            Event::Told(what) => self.told = what,
            Event::Sync { node, seen } => {
                let (events, durable) = (self.events, &mut self.durable);
                self.open.retain(|&i| {
                    let closes = i < seen && events[i].of() == Some(node);
                    if closes {
                        durable.apply(&events[i], usize::MAX);
                    }
                    !closes
                });
            }
            _ => self.open.push(self.len),
        }
        self.len += 1;
        true
    }

    /// How much is not durable.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// What the cut leaves, where `kept` says of each of these how many of its sectors, of so many, are
    /// there; what is no write has one.
    pub fn leaves(&self, mut kept: impl FnMut(usize, usize) -> usize) -> Tree {
        let mut tree = self.durable.clone();
        for (i, &event) in self.open.iter().enumerate() {
            let event = &self.events[event];
            let sectors =
                if let Event::Write { bytes, .. } = event { bytes.len().div_ceil(SECTOR) } else { 1 };
            let some = kept(i, sectors.max(1));
            if some > 0 {
                tree.apply(event, some);
            }
        }
        tree
    }
}
