//! A disk for each unit that forgets what was not synced, and the states in which a cut may leave it.

use polyduct_store::volume::units::{Cause, Done, File, Request, UnitError, Units};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What all disks hold.
pub type Disks = BTreeMap<(u32, File), Arc<Vec<u8>>>;

/// What happened, in order.
#[derive(Clone, Debug)]
pub enum Event {
    Write {
        unit: u32,
        file: File,
        at: u64,
        bytes: Vec<u8>,
    },
    Sync {
        unit: u32,
        file: File,
    },
    /// A sync failed: what was written before it may never be durable, whatever is synced later.
    NotSynced {
        unit: u32,
        file: File,
    },
    Remove {
        unit: u32,
        object: u64,
    },
    /// The unit has a new directory, with nothing in it.
    Wipe {
        unit: u32,
    },
    /// What the disk holds has changed by itself.
    Rot {
        unit: u32,
        file: File,
        at: u64,
        byte: u8,
    },
}

/// What a disk does with a write, and says that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Lost,
    /// It writes it one block, or one entry, further on.
    Elsewhere(u64),
}

/// What becomes of a sync, or of a change for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The sync fails, once: nobody knows what it left out. To sync again would seem to go well.
    Sync,
    /// The log has no room for the change, once.
    Full,
}

/// Disks that do all that is asked of them, and remember it.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    pub disks: Disks,
    pub history: Vec<Event>,
    /// Units that do nothing any more.
    pub dead: Vec<u32>,
    /// Units that have no room any more.
    pub full: Vec<u32>,
    /// Files of units that have no room any more.
    pub full_files: Vec<(u32, File)>,
    /// Blocks of 4 KiB of units' files that cannot be read until they are written as a whole.
    pub unreadable: BTreeSet<(u32, File, u64)>,
    /// Blocks of 4 KiB of units' files that cannot be written.
    pub unwritable: BTreeSet<(u32, File, u64)>,
    /// Blocks of 4 KiB of units' files that rot again whenever they are written.
    pub rotting: BTreeSet<(u32, File, u64)>,
    /// Units fail when they are to take a record out of their log.
    pub stuck: bool,
    /// A write of this unit's data or checksums, after so many others, goes wrong.
    pub fault: Option<(u32, u64, Fault)>,
    /// A sync or a change for a log, after so many others, fails.
    pub failing: Option<(u64, Failure)>,
    /// The one that did.
    pub failed: Option<(u32, File)>,
    /// Units that readers were told not to read.
    pub told: u128,
    /// Readers cannot be told.
    pub deaf: bool,
}

fn write(disks: &mut Disks, key: (u32, File), at: u64, bytes: &[u8]) {
    let file = Arc::make_mut(disks.entry(key).or_default());
    let (at, end) = (at as usize, at as usize + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

/// The blocks of 4 KiB that so many bytes meet.
fn blocks_of(at: u64, len: usize) -> std::ops::Range<u64> {
    at / 4096..(at + len as u64).div_ceil(4096)
}

/// Returns whether there was anything.
fn remove(disks: &mut Disks, unit: u32, object: u64) -> bool {
    let files = [File::Data(object), File::Sums(object)];
    files.into_iter().filter(|&file| disks.remove(&(unit, file)).is_some()).count() > 0
}

impl Sim {
    pub fn of(disks: Disks, dead: &[u32]) -> Sim {
        Sim { disks, dead: dead.to_vec(), ..Sim::default() }
    }

    /// Gives a unit a new directory, with nothing in it.
    pub fn wipe(&mut self, unit: u32) {
        self.disks.retain(|key, _| key.0 != unit);
        self.history.push(Event::Wipe { unit });
    }

    /// Gives a unit the directory that another, maybe of another store, has.
    pub fn swap(&mut self, unit: u32, from: &Disks, theirs: u32) {
        self.wipe(unit);
        let files = from.iter().filter(|(key, _)| key.0 == theirs);
        self.disks.extend(files.map(|(key, bytes)| ((unit, key.1), bytes.clone())));
    }

    /// Changes a byte of what a disk holds.
    pub fn rot(&mut self, unit: u32, file: File, at: u64) {
        let byte = self.disks[&(unit, file)][at as usize] ^ 0x40;
        write(&mut self.disks, (unit, file), at, &[byte]);
        self.history.push(Event::Rot { unit, file, at, byte });
    }

    /// Where a write goes, if it goes anywhere.
    fn place(&mut self, unit: u32, file: File, at: u64) -> Option<u64> {
        let of_object = matches!(file, File::Data(_) | File::Sums(_));
        match &mut self.fault {
            Some((whose, after, fault)) if *whose == unit && of_object => {
                match (after.checked_sub(1), *fault) {
                    (Some(left), _) => {
                        *after = left;
                        Some(at)
                    }
                    (None, fault) => {
                        self.fault = None;
                        match fault {
                            Fault::Lost => None,
                            Fault::Elsewhere(sums) => {
                                Some(at + if matches!(file, File::Sums(_)) { sums } else { 4096 })
                            }
                        }
                    }
                }
            }
            _ => Some(at),
        }
    }

    /// Whether this one is to fail, of those that may in this way.
    fn fails(&mut self, how: Failure, unit: u32, file: File) -> bool {
        match &mut self.failing {
            Some((after, which)) if *which == how => match after.checked_sub(1) {
                Some(left) => {
                    *after = left;
                    false
                }
                None => {
                    (self.failing, self.failed) = (None, Some((unit, file)));
                    true
                }
            },
            _ => false,
        }
    }

    fn meets_unreadable(&self, unit: u32, file: File, at: u64, len: usize) -> bool {
        let blocks = blocks_of(at, len);
        let range = (unit, file, blocks.start)..(unit, file, blocks.end);
        self.unreadable.range(range).next().is_some()
    }

    /// Whether a write changes a part of what cannot be read.
    fn is_torn(&self, unit: u32, file: File, at: u64, len: usize) -> bool {
        let end = at + len as u64;
        !at.is_multiple_of(4096) && self.meets_unreadable(unit, file, at, 1)
            || !end.is_multiple_of(4096) && self.meets_unreadable(unit, file, end, 1)
    }

    fn one(&mut self, request: Request) -> Result<Done, UnitError> {
        let unit = request.unit();
        if self.dead.contains(&unit) {
            return Err(UnitError { unit, reason: "it is gone".to_owned(), cause: Cause::Disk });
        }
        let error = || UnitError { unit, reason: "input/output error".to_owned(), cause: Cause::Disk };
        match request {
            Request::ReadBack { file, at, len, .. } => self.one(Request::Read { unit, file, at, len }),
            Request::Write { file, at, ref bytes, .. }
                if blocks_of(at, bytes.len()).any(|b| self.unwritable.contains(&(unit, file, b))) =>
            {
                Err(error())
            }
            Request::Read { file, at, len, .. } if self.meets_unreadable(unit, file, at, len) => Err(error()),
            Request::Write { file, at, ref bytes, .. } if self.is_torn(unit, file, at, bytes.len()) => {
                Err(error())
            }
            Request::Log { bytes, .. } if self.stuck && bytes.iter().all(|&b| b == 0) => Err(error()),
            Request::Log { .. } if self.fails(Failure::Full, unit, File::Log) => {
                Err(UnitError { unit, reason: "no space left on device".to_owned(), cause: Cause::Full })
            }
            Request::Log { at, bytes, .. } => self.one(Request::Write { unit, file: File::Log, at, bytes }),
            Request::Read { file, at, len, .. } => {
                let bytes = self.disks.get(&(unit, file)).map_or(&[][..], |b| &b[..]);
                let from = bytes.len().min(at as usize);
                Ok(Done::Bytes(bytes[from..bytes.len().min(from + len)].to_vec()))
            }
            Request::Write { file, .. }
                if self.full.contains(&unit) || self.full_files.contains(&(unit, file)) =>
            {
                Err(UnitError { unit, reason: "no space left on device".to_owned(), cause: Cause::Full })
            }
            Request::Write { file, at, bytes, .. } => {
                let whole = blocks_of(at, bytes.len());
                self.unreadable.retain(|&(u, f, block)| (u, f) != (unit, file) || !whole.contains(&block));
                if let Some(at) = self.place(unit, file, at) {
                    write(&mut self.disks, (unit, file), at, &bytes);
                    self.history.push(Event::Write { unit, file, at, bytes });
                    if let Some(bad) = whole.into_iter().find(|&b| self.rotting.contains(&(unit, file, b))) {
                        self.rot(unit, file, bad * 4096);
                    }
                }
                Ok(Done::Yes)
            }
            Request::Sync { file, .. } if self.fails(Failure::Sync, unit, file) => {
                self.history.push(Event::NotSynced { unit, file });
                Err(error())
            }
            Request::Sync { file, .. } => {
                self.history.push(Event::Sync { unit, file });
                Ok(Done::Yes)
            }
            Request::List { .. } => {
                let objects = self.disks.keys().filter(|key| key.0 == unit).filter_map(|key| match key.1 {
                    File::Data(object) | File::Sums(object) => Some(object),
                    _ => None,
                });
                let mut objects: Vec<u64> = objects.collect();
                objects.sort_unstable();
                objects.dedup();
                Ok(Done::Objects(objects))
            }
            Request::Remove { object, .. } => {
                // What removes nothing no cut undoes.
                if remove(&mut self.disks, unit, object) {
                    self.history.push(Event::Remove { unit, object });
                }
                Ok(Done::Yes)
            }
        }
    }
}

impl Units for Sim {
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>> {
        let log = |r: &Request| matches!(r, Request::Log { .. }).then_some(r.unit());
        let logs: Vec<Option<u32>> = batch.iter().map(log).collect();
        // Logs are all written before the first is durable: so a cut may find any of them, or none.
        let mut answers: Vec<_> = batch.into_iter().map(|request| self.one(request)).collect();
        for (unit, answer) in logs.into_iter().zip(&mut answers) {
            if let Some(unit) = unit.filter(|_| answer.is_ok()) {
                *answer = self.one(Request::Sync { unit, file: File::Log });
            }
        }
        answers
    }

    fn tell(&mut self, not_read: u128) -> Result<(), String> {
        if self.deaf {
            return Err("input/output error".to_owned());
        }
        self.told = not_read;
        Ok(())
    }
}

impl Units for &mut Sim {
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>> {
        Sim::run(self, batch)
    }

    fn tell(&mut self, not_read: u128) -> Result<(), String> {
        Sim::tell(self, not_read)
    }
}

/// What a cut leaves: what was synced before it, and any of the writes and removals that were not, writes
/// whole or in part. A removal is durable when anything of its unit is synced after it.
pub struct Cut<'a> {
    history: &'a [Event],
    /// Events before the cut.
    pub len: usize,
    /// What was synced.
    synced: Disks,
    /// What may be missing: where it stands in the history.
    pub open: Vec<usize>,
    /// Of these, writes that no later sync makes durable, since one failed; and those that came after them to
    /// the same files and are not missing.
    doubtful: BTreeSet<usize>,
    certain: BTreeSet<usize>,
}

impl<'a> Cut<'a> {
    /// Before the first event of a history that begins with `base`.
    pub fn new(base: Disks, history: &'a [Event]) -> Cut<'a> {
        Cut {
            history,
            len: 0,
            synced: base,
            open: Vec::new(),
            doubtful: BTreeSet::new(),
            certain: BTreeSet::new(),
        }
    }

    /// One event later; `false` when there is none.
    pub fn advance(&mut self) -> bool {
        let Some(event) = self.history.get(self.len) else { return false };
        match *event {
            Event::Write { .. } | Event::Remove { .. } => self.open.push(self.len),
            Event::Sync { unit, file } => self.close(unit, file),
            Event::NotSynced { unit, file } => {
                let of_it = self.open.iter().filter(|&&i| writes(&self.history[i], unit, file));
                self.doubtful.extend(of_it.filter(|&i| !self.certain.contains(i)));
            }
            Event::Wipe { unit } => {
                self.synced.retain(|key, _| key.0 != unit);
                let history = self.history;
                self.open.retain(|&i| match &history[i] {
                    Event::Write { unit: u, .. } | Event::Remove { unit: u, .. } => *u != unit,
                    _ => true,
                });
                self.doubtful.retain(|i| self.open.contains(i));
            }
            Event::Rot { unit, file, at, byte } => {
                self.close(unit, file);
                write(&mut self.synced, (unit, file), at, &[byte]);
            }
        }
        self.len += 1;
        true
    }

    /// What was written to a file, and what was removed of its unit, is durable.
    fn close(&mut self, unit: u32, file: File) {
        let Cut { history, synced, open, doubtful, certain, .. } = self;
        // Behind a write that may be missing the order must stay as it was.
        let behind = doubtful.iter().any(|&i| writes(&history[i], unit, file));
        let mut closed = Vec::new();
        open.retain(|&i| {
            if behind && writes(&history[i], unit, file) {
                if !doubtful.contains(&i) {
                    certain.insert(i);
                }
                return true;
            }
            let removes = matches!(history[i], Event::Remove { unit: u, .. } if u == unit);
            let closes = removes || writes(&history[i], unit, file);
            if closes {
                closed.push(i);
            }
            !closes
        });
        for i in closed {
            apply(synced, &history[i], usize::MAX);
            if let Event::Remove { unit, object } = history[i] {
                let of_it = |earlier: usize| {
                    [File::Data(object), File::Sums(object)]
                        .iter()
                        .any(|&f| writes(&history[earlier], unit, f))
                };
                open.retain(|&earlier| earlier > i || !of_it(earlier));
            }
        }
        doubtful.retain(|i| open.contains(i));
    }

    /// The disks, where of each open write `kept` says how many of its parts of 512 bytes, of so many, are
    /// there.
    pub fn disks(&self, kept: impl Fn(usize, usize) -> usize) -> Disks {
        let mut disks = self.synced.clone();
        for (i, &event) in self.open.iter().enumerate() {
            let is_there = self.certain.contains(&event);
            let event = &self.history[event];
            let parts = if let Event::Write { bytes, .. } = event { bytes.len().div_ceil(512) } else { 1 };
            apply(&mut disks, event, if is_there { parts } else { kept(i, parts) });
        }
        disks
    }
}

/// Whether this is a write to a file.
fn writes(event: &Event, unit: u32, file: File) -> bool {
    matches!(event, Event::Write { unit: u, file: f, .. } if (*u, *f) == (unit, file))
}

/// Does of a write so many parts of 512 bytes; a removal if it is not none.
fn apply(disks: &mut Disks, event: &Event, parts: usize) {
    match event {
        Event::Write { unit, file, at, bytes } if parts > 0 => {
            let n = bytes.len().min(parts.saturating_mul(512));
            write(disks, (*unit, *file), *at, &bytes[..n]);
        }
        Event::Remove { unit, object } if parts > 0 => drop(remove(disks, *unit, *object)),
        _ => {}
    }
}
