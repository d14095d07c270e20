//! A disk for each unit that forgets what was not synced, and the states in which a cut may leave it.

use polyduct_store::volume::units::{Done, File, Request, UnitError, Units};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all disks hold.
pub type Disks = BTreeMap<(u32, File), Arc<Vec<u8>>>;

/// What happened, in order.
#[derive(Clone, Debug)]
pub enum Event {
    Write { unit: u32, file: File, at: u64, bytes: Vec<u8> },
    Sync { unit: u32, file: File },
    Remove { unit: u32, object: u64 },
}

/// Disks that do all that is asked of them, and remember it.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    pub disks: Disks,
    pub history: Vec<Event>,
    /// Units that do nothing any more.
    pub dead: Vec<u32>,
}

fn write(disks: &mut Disks, key: (u32, File), at: u64, bytes: &[u8]) {
    let file = Arc::make_mut(disks.entry(key).or_default());
    let (at, end) = (at as usize, at as usize + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

impl Sim {
    pub fn of(disks: Disks, dead: &[u32]) -> Sim {
        Sim { disks, history: Vec::new(), dead: dead.to_vec() }
    }

    fn one(&mut self, request: Request) -> Result<Done, UnitError> {
        if self.dead.contains(&request.unit()) {
            return Err(UnitError { unit: request.unit(), reason: "it is gone".to_owned(), full: false });
        }
        match request {
            Request::Read { unit, file, at, len } => {
                let bytes = self.disks.get(&(unit, file)).map_or(&[][..], |b| &b[..]);
                let from = bytes.len().min(at as usize);
                Ok(Done::Bytes(bytes[from..bytes.len().min(from + len)].to_vec()))
            }
            Request::Write { unit, file, at, bytes } => {
                write(&mut self.disks, (unit, file), at, &bytes);
                self.history.push(Event::Write { unit, file, at, bytes });
                Ok(Done::Yes)
            }
            Request::Sync { unit, file } => {
                self.history.push(Event::Sync { unit, file });
                Ok(Done::Yes)
            }
            Request::List { unit } => {
                let objects = self.disks.keys().filter(|key| key.0 == unit).filter_map(|key| match key.1 {
                    File::Data(object) | File::Sums(object) => Some(object),
                    _ => None,
                });
                let mut objects: Vec<u64> = objects.collect();
                objects.sort_unstable();
                objects.dedup();
                Ok(Done::Objects(objects))
            }
            Request::Remove { unit, object } => {
                self.disks.remove(&(unit, File::Data(object)));
                self.disks.remove(&(unit, File::Sums(object)));
                self.history.push(Event::Remove { unit, object });
                Ok(Done::Yes)
            }
        }
    }
}

impl Units for Sim {
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>> {
        batch.into_iter().map(|request| self.one(request)).collect()
    }
}

impl Units for &mut Sim {
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>> {
        Sim::run(self, batch)
    }
}

/// What a cut leaves: what was synced before it, and any of the writes that were not, each whole or in part.
pub struct Cut<'a> {
    base: &'a Disks,
    history: &'a [Event],
    /// The writes that may be missing: where they stand in the history.
    pub open: Vec<usize>,
}

impl<'a> Cut<'a> {
    /// After the first `len` events of a history that began with `base`.
    pub fn after(base: &'a Disks, history: &'a [Event], len: usize) -> Cut<'a> {
        let history = &history[..len];
        let open = (0..len).filter(|&i| match &history[i] {
            Event::Write { unit, file, .. } => !history[i..]
                .iter()
                .any(|e| matches!(e, Event::Sync { unit: u, file: f } if (u, f) == (unit, file))),
            _ => false,
        });
        Cut { base, history, open: open.collect() }
    }

    /// The disks, where of each open write `kept` says how many of its parts of 512 bytes, of so many, are there.
    pub fn disks(&self, kept: impl Fn(usize, usize) -> usize) -> Disks {
        let mut disks = self.base.clone();
        for (i, event) in self.history.iter().enumerate() {
            match event {
                Event::Write { unit, file, at, bytes } => {
                    let open = self.open.iter().position(|&o| o == i);
                    let n = open.map_or(bytes.len(), |i| kept(i, bytes.len().div_ceil(512)) * 512);
                    if n > 0 {
                        write(&mut disks, (*unit, *file), *at, &bytes[..n.min(bytes.len())]);
                    }
                }
                Event::Remove { unit, object } => {
                    disks.remove(&(*unit, File::Data(*object)));
                    disks.remove(&(*unit, File::Sums(*object)));
                }
                Event::Sync { .. } => {}
            }
        }
        disks
    }
}
