//! Any box of a dataset, read and overwritten by one process without the others of its program.

use super::boxes::{pieces, run, Piece, Slice};
use super::fetch::{Blocks, Memory};
use super::mender::Mender;
use super::meta::Meta;
use super::owned::Owned;
use super::shelf::Shelf;
use super::store::nonce;
use super::turn::InUse;
use super::{Store, StoreError};
use crate::volume::epochs::Epochs;
use crate::volume::parity::zeros;
use crate::volume::{Entry, BLOCK};
use polyduct_layout::Dataset;
use polyduct_port::{PortError, PortName};
use serde_json::{Map, Value};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Blocks that are read together.
const TOGETHER: usize = 2048;
/// Pieces of them, which may be smaller than blocks.
const PIECES: usize = 1 << 16;

/// Memory of the process's last read, for the next one: new memory is slow.
fn idle() -> MutexGuard<'static, Option<Memory>> {
    static IDLE: Mutex<Option<Memory>> = Mutex::new(None);
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A dataset of a store, to be read and overwritten in boxes: the version that was there when it was opened.
///
/// That version stays readable when its name is removed, or comes to stand for another; steps that are
/// appended are not seen. What is overwritten is, by everybody who has the dataset open. Any number of
/// threads may use one at once.
///
/// ```
/// use polyduct_layout::{Dataset, ElemType};
/// use polyduct_store::{disk::{Create, Store, StoreWriter, StoredArray}, Options};
/// # let dir = std::env::temp_dir().join(format!("polyduct-array-doc-{}", std::process::id()));
/// let units = (0..3).map(|u| vec![format!("unit{u}").into()]).collect();
/// Store::create(&dir, &Create { units, parity: 1, stripe: 4096 })?;
/// let table = Dataset::new(&[100, 100], ElemType::U8)?;
/// let mut out = StoreWriter::open(&dir, "table", &table, "*,*", false, &Options::default())?;
/// out.write(&[1; 10_000])?;
/// out.close()?;
///
/// let array = StoredArray::open(&dir, "table")?;
/// array.write_box(0..1, &[10, 10], &[12, 12], &[2; 4])?;
/// let mut corner = [0; 9];
/// array.read_box(0..1, &[9, 9], &[12, 12], &mut corner)?;
/// assert_eq!(corner, [1, 1, 1, 1, 2, 2, 1, 2, 2]);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StoredArray {
    store: Store,
    name: String,
    object: u64,
    meta: Meta,
    known: Mutex<Option<Known>>,
    blocks: Shelf<(u64, Arc<Blocks>)>,
    _in_use: InUse,
}

/// Which units were read under one [number](Store::number). With units that are lost or replaced, and those
/// that are whole again, comes another; what lies in the old files is no older version then, but one that
/// nobody keeps.
#[derive(Clone)]
struct Known {
    under: u64,
    lost: Vec<u32>,
    epochs: Arc<Epochs>,
}

impl Known {
    fn of(store: &Store, object: u64, owned: &Owned<'_>) -> Result<Known, StoreError> {
        // Nobody changes it meanwhile.
        let lost = owned.lost_of(object);
        Ok(Known { under: store.number()?, epochs: store.knows(owned.epochs(), &lost)?, lost })
    }
}

impl StoredArray {
    /// Opens a dataset.
    ///
    /// # Errors
    /// [`StoreError::NotThere`], [`StoreError::BadName`]; as [`Store::open`] and [`Store::own`].
    pub fn open(dir: &Path, name: &str) -> Result<StoredArray, StoreError> {
        StoredArray::of(Store::open(dir)?, name)
    }

    /// Opens a dataset of a store, whose timeout and interrupt stay.
    ///
    /// # Errors
    /// As [`open`](StoredArray::open).
    pub fn of(store: Store, name: &str) -> Result<StoredArray, StoreError> {
        let owned = store.own_to_read()?;
        let (entry, meta) = owned.find(name)?;
        let in_use = store.use_here(entry.object)?;
        let known = Known::of(&store, entry.object, &owned)?;
        drop(owned);
        let array = StoredArray::over(store, name, entry.object, meta, in_use);
        *array.known() = Some(known);
        Ok(array)
    }

    /// All datasets of a folder as they are now, by their names in it.
    ///
    /// # Errors
    /// As [`of`](StoredArray::of).
    pub(super) fn all_of(store: &Store, folder: &str) -> Result<Vec<(String, StoredArray)>, StoreError> {
        let owned = store.own_to_read()?;
        let inside = if folder.is_empty() { 0 } else { folder.len() + 1 };
        let open = |name: String| {
            let (entry, meta) = owned.find(&name)?;
            let own = store.again()?;
            let in_use = own.use_here(entry.object)?;
            let known = Known::of(&own, entry.object, &owned)?;
            let array = StoredArray::over(own, &name, entry.object, meta, in_use);
            *array.known() = Some(known);
            Ok((name[inside..].to_owned(), array))
        };
        owned.in_folder(folder).into_iter().map(open).collect()
    }

    /// A version that somebody has open.
    pub(super) fn over(store: Store, name: &str, object: u64, meta: Meta, in_use: InUse) -> StoredArray {
        StoredArray {
            name: name.to_owned(),
            object,
            meta,
            known: Mutex::default(),
            blocks: Shelf::default(),
            _in_use: in_use,
            store,
        }
    }

    /// The name that it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the store knew of it then.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Shape and element type of a step.
    pub fn dataset(&self) -> &Dataset {
        &self.meta.dataset
    }

    /// Steps that there were then.
    pub fn steps(&self) -> u64 {
        self.meta.steps
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Bytes of the box `lo..hi` of a step.
    ///
    /// # Errors
    /// [`StoreError::Bad`] for what is not within the dataset.
    pub fn box_len_bytes(&self, lo: &[u64], hi: &[u64]) -> Result<u64, StoreError> {
        let (_, of) = self.slices(0..0, lo, hi)?;
        self.len_bytes(Slice::from(0..1), &of)
    }

    /// Reads the box `lo..hi` of each of some steps, as [`read`](StoredArray::read) does.
    ///
    /// # Errors
    /// As [`read`](StoredArray::read).
    pub fn read_box(
        &self,
        steps: Range<u64>,
        lo: &[u64],
        hi: &[u64],
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        let (steps, of) = self.slices(steps, lo, hi)?;
        self.read(steps, &of, out)
    }

    /// Reads what some slices, one of each dimension, choose of some steps: in row-major order, one step
    /// after the other. Only the blocks in which that lies are read; of those of lost units the rest of their
    /// rows. What is damaged goes through the protocol, and is repaired.
    ///
    /// While others overwrite it each block is as before or after; after, if they have been told that it is
    /// written.
    ///
    /// # Errors
    /// [`StoreError::Bad`] for what is not within the dataset, [`PortError::WrongSize`];
    /// [`StoreError::Volume`] where more is damaged or lost than there is parity: wrong bytes are never
    /// given; [`PortError::Interrupted`], [`StoreError::Busy`]. After an error the content of `out` is
    /// undefined.
    pub fn read(&self, steps: Slice, of: &[Slice], out: &mut [u8]) -> Result<(), StoreError> {
        self.check(steps, of, out.len())?;
        self.read_pieces(pieces(&self.meta, self.store.geometry(), steps, of), out)
    }

    /// Reads bytes of a step, as it lies row-major, from byte `at` on.
    ///
    /// # Errors
    /// As [`read`](StoredArray::read).
    pub(super) fn read_bytes(&self, step: u64, at: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.within(0, Slice::from(step..step + 1))?;
        let (end, len) = (at.saturating_add(out.len() as u64), self.meta.dataset.len_bytes());
        if end > len {
            return Err(StoreError::Bad {
                store: self.store.shown.clone(),
                what: format!("the end of what is read of a step of {:?}", self.name),
                found: end.to_string(),
                expected: format!("at most {len}"),
            });
        }
        self.read_pieces(run(&self.meta, self.store.geometry(), step, at..end), out)
    }

    fn read_pieces(&self, pieces: impl Iterator<Item = Piece>, out: &mut [u8]) -> Result<(), StoreError> {
        let files = self.blocks()?;
        let mut memory = idle().take().unwrap_or_default();
        let mut mender = Mender::new(&self.store, &files);
        let mut pieces = pieces.peekable();
        let (mut blocks, mut batch): (Vec<u64>, Vec<(Piece, usize)>) = (Vec::new(), Vec::new());
        while pieces.peek().is_some() {
            self.check_interrupt()?;
            blocks.clear();
            batch.clear();
            let fits = |blocks: &[u64], batch: &[_], piece: &Piece| {
                batch.len() < PIECES && (blocks.len() < TOGETHER || blocks.last() == Some(&piece.block))
            };
            while let Some(piece) = pieces.next_if(|piece| fits(&blocks, &batch, piece)) {
                if blocks.last() != Some(&piece.block) {
                    blocks.push(piece.block);
                }
                batch.push((piece, blocks.len() - 1));
            }
            files.read(&blocks, &mut memory);
            for &(piece, index) in &batch {
                let bytes = match memory.block(index) {
                    Some(bytes) => bytes,
                    None => mender.block(piece.block)?,
                };
                out[piece.at..][..piece.len].copy_from_slice(&bytes[piece.from..][..piece.len]);
            }
            mender.pause();
        }
        *idle() = Some(memory);
        Ok(())
    }

    /// Overwrites the box `lo..hi` of each of some steps, as [`write`](StoredArray::write) does.
    ///
    /// # Errors
    /// As [`write`](StoredArray::write).
    pub fn write_box(
        &self,
        steps: Range<u64>,
        lo: &[u64],
        hi: &[u64],
        from: &[u8],
    ) -> Result<(), StoreError> {
        let (steps, of) = self.slices(steps, lo, hi)?;
        self.write(steps, &of, from)
    }

    /// Overwrites what some slices, one of each dimension, choose of some steps with `from`, which is in the
    /// order in which [`read`](StoredArray::read) gives it. When this returns it survives any cut, and the
    /// loss of as many units as there is parity; until then each block of 4 KiB may be there or not. It is
    /// for a few blocks: each is written twice and waited for. Large parts are written faster by a
    /// [`StoreWriter`](super::StoreWriter).
    ///
    /// # Errors
    /// As [`read`](StoredArray::read); [`StoreError::NotThere`] when the dataset was removed or replaced
    /// meanwhile.
    pub fn write(&self, steps: Slice, of: &[Slice], from: &[u8]) -> Result<(), StoreError> {
        self.check(steps, of, from.len())?;
        let mut pieces = pieces(&self.meta, self.store.geometry(), steps, of).peekable();
        if pieces.peek().is_none() {
            return Ok(());
        }
        let volume = StoreError::volume(&self.store.shown);
        let mut owned = self.store.own()?;
        self.entry(&owned)?;
        while let Some(first) = pieces.next() {
            self.check_interrupt()?;
            let mut block = match first.len {
                BLOCK => zeros(),
                _ => owned.read(self.object, first.block).map_err(&volume)?,
            };
            let mut next = Some(first);
            while let Some(piece) = next {
                block[piece.from..][..piece.len].copy_from_slice(&from[piece.at..][..piece.len]);
                next = pieces.next_if(|piece| piece.block == first.block);
            }
            owned.overwrite(self.object, first.block, &block, nonce()).map_err(&volume)?;
        }
        let lost: Vec<u32> = owned.lost().map(|(unit, _)| unit).collect();
        owned.goes_on();
        // Nobody waits for the store with the files in hand, or the other way round.
        drop(owned);
        if let Some((_, blocks)) = &*self.blocks.get() {
            blocks.lose(lost.into_iter());
        }
        Ok(())
    }

    /// Changes what is written down of the dataset, durably; returns what it is then. What others changed
    /// meanwhile stays.
    ///
    /// # Errors
    /// [`StoreError::NotThere`] when the dataset was removed or replaced; as [`Store::set_attributes`].
    pub fn change_attributes(
        &self,
        change: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Map<String, Value>, StoreError> {
        let mut owned = self.store.own()?;
        let (name, mut entry) = self.entry(&owned)?;
        let mut meta = Meta::parse(&self.store.shown, &name, self.store.geometry(), &entry.about)?;
        change(&mut meta.attributes);
        entry.about = meta.to_bytes(&self.store.shown)?;
        owned.commit_names(vec![(name, Some(entry))])?;
        Ok(meta.attributes)
    }

    /// The blocks on the units as they are now.
    fn blocks(&self) -> Result<Arc<Blocks>, StoreError> {
        loop {
            let now = self.store.number()?;
            let there = self.blocks.take().filter(|(under, _)| *under == now);
            let known = self.known().clone().filter(|known| known.under == now);
            let blocks = match (there, known) {
                (Some((_, blocks)), _) => blocks,
                (None, Some(Known { lost, epochs, .. })) => {
                    let (store, of) = (&self.store, self.store.object(self.object));
                    let blocks = Blocks::open(&store.disks_to_read()?, store.geometry(), of, &lost, epochs);
                    Arc::new(blocks.map_err(StoreError::refused(&store.shown))?)
                }
                (None, None) => {
                    let owned = self.store.own_to_read()?;
                    let fresh = Known::of(&self.store, self.object, &owned)?;
                    *self.known() = Some(fresh);
                    continue;
                }
            };
            // Those of units that were replaced meanwhile may be old.
            if self.store.number()? == now {
                let files = 2 * self.store.geometry().units() as usize;
                self.blocks.put((now, Arc::clone(&blocks)), files);
                return Ok(blocks);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name that stands for the dataset now, and what it stands for.
    fn entry(&self, owned: &Owned<'_>) -> Result<(String, Entry), StoreError> {
        let found = owned.names().iter().find(|(_, entry)| entry.object == self.object);
        found.map(|(name, entry)| (name.clone(), entry.clone())).ok_or_else(|| StoreError::NotThere {
            store: self.store.shown.clone(),
            name: self.name.clone(),
            hint: " any more: it was removed or written anew since it was opened".into(),
        })
    }

    fn slices(&self, steps: Range<u64>, lo: &[u64], hi: &[u64]) -> Result<(Slice, Vec<Slice>), StoreError> {
        let dims = self.meta.dataset.shape().len();
        if lo.len() != dims || hi.len() != dims {
            return Err(self.other_dims(format!("{} and {}", lo.len(), hi.len())));
        }
        if let Some(d) = (0..dims).find(|&d| lo[d] > hi[d]) {
            return Err(self.outside(d + 1, format!("{}..{}", lo[d], hi[d])));
        }
        if steps.start > steps.end {
            return Err(self.outside(0, format!("{}..{}", steps.start, steps.end)));
        }
        Ok((steps.into(), lo.iter().zip(hi).map(|(&lo, &hi)| Slice::from(lo..hi)).collect()))
    }

    fn check(&self, steps: Slice, of: &[Slice], len: usize) -> Result<(), StoreError> {
        if of.len() != self.meta.dataset.shape().len() {
            return Err(self.other_dims(of.len().to_string()));
        }
        self.within(0, steps)?;
        let expected = self.len_bytes(steps, of)?;
        match expected == len as u64 {
            true => Ok(()),
            false => Err(StoreError::Port(PortError::WrongSize {
                port: PortName::Store(self.store.shown.clone()),
                unit: None,
                array: Box::default(),
                expected,
                found: len as u64,
            })),
        }
    }

    /// Bytes of what slices choose of some steps.
    fn len_bytes(&self, steps: Slice, of: &[Slice]) -> Result<u64, StoreError> {
        let mut sizes = vec![self.meta.dataset.elem().len_bytes(), steps.count];
        for (at, slice) in (1..).zip(of) {
            self.within(at, *slice)?;
            sizes.push(slice.count);
        }
        // Nothing of something is nothing, however much that is.
        Ok(match sizes.contains(&0) {
            true => 0,
            false => sizes.into_iter().try_fold(1, u64::checked_mul).unwrap_or(u64::MAX),
        })
    }

    fn within(&self, at: usize, slice: Slice) -> Result<(), StoreError> {
        if slice.is_within(self.extent(at)) {
            return Ok(());
        }
        Err(self.outside(
            at,
            match slice.step {
                1 => format!("{}..{}", slice.start, slice.start.saturating_add(slice.count)),
                step => format!("{} from {} on by {step}", slice.count, slice.start),
            },
        ))
    }

    /// Number of the steps, or that of the indices of a dimension, from 1.
    fn extent(&self, at: usize) -> u64 {
        match at {
            0 => self.meta.steps,
            at => self.meta.dataset.shape().get(at - 1).copied().unwrap_or(0),
        }
    }

    fn other_dims(&self, found: String) -> StoreError {
        let expected = self.meta.dataset.shape().len().to_string();
        let what = "the number of dimensions of a box".into();
        StoreError::Bad { store: self.store.shown.clone(), what, found, expected }
    }

    fn outside(&self, at: usize, found: String) -> StoreError {
        let what = match at {
            0 => "the range of steps".into(),
            at => format!("the range of a box in dimension {}", at - 1),
        };
        let expected = format!("a range within 0..{}", self.extent(at));
        StoreError::Bad { store: self.store.shown.clone(), what, found, expected }
    }

    fn check_interrupt(&self) -> Result<(), StoreError> {
        match self.store.interrupt.as_ref().is_some_and(|ask| ask()) {
            true => Err(StoreError::Port(PortError::Interrupted {
                port: PortName::Store(self.store.shown.clone()),
                unit: None,
            })),
            false => Ok(()),
        }
    }
}
