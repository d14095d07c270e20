//! An array whose size changes, while it is written: each step follows those before it.

use super::Steps;
use crate::disk::StoreError;
use crate::file::shape::file_mapping;
use crate::team::{Stage, Team};
use polyduct_layout::{Dataset, LayoutError, Plan};
use polyduct_port::{Array, BundleError, Changes, Sizes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that such an array never reaches, so that where a byte of it lies does not depend on how many there are.
const ROOM_BYTES: u64 = 1 << 60;

/// What is known of it. Clones share the steps.
#[derive(Clone, Debug)]
pub struct Growing {
    name: String,
    pub sizes: Sizes,
    /// Bytes of one index of the first dimension of the array of all steps.
    row_bytes: u64,
    steps: Arc<Mutex<Steps>>,
}

/// What a unit has of a step, and where.
pub struct Placed {
    /// From the unit's part to the step, row-major.
    pub plan: Arc<Plan>,
    /// Where the step begins in the array, and how long it is, in bytes.
    pub base: u64,
    pub len: u64,
    shape: Vec<u64>,
}

impl Growing {
    /// Of an array that `units` units write, if its size changes.
    ///
    /// # Errors
    /// [`BundleError`] for a layout that is none.
    pub fn of(array: &Array, units: u32) -> Result<Option<Growing>, BundleError> {
        let Some(open) = array.open.filter(|open| *open != Changes::Never) else { return Ok(None) };
        let sizes = Sizes::new(&array.name, array.dataset, &array.layout, open, units)?;
        let steps = Steps::of(&array.dataset, open);
        let row_bytes = steps.shape_of(1).iter().product::<u64>() * array.dataset.elem().len_bytes();
        let steps = Arc::new(Mutex::new(steps));
        Ok(Some(Growing { name: array.name.clone(), sizes, row_bytes, steps }))
    }

    /// The steps so far.
    pub fn steps(&self) -> Steps {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes so far.
    pub fn len_bytes(&self) -> u64 {
        self.lock().end() * self.row_bytes
    }

    /// The array of all steps so far.
    ///
    /// # Errors
    /// [`LayoutError::DatasetTooLarge`].
    pub fn whole(&self) -> Result<Dataset, LayoutError> {
        let steps = self.lock();
        Dataset::new(&steps.shape_of(steps.end()), self.sizes.most().elem())
    }

    /// An array of as many as will ever be.
    ///
    /// # Errors
    /// None that are the caller's.
    pub fn room(&self) -> Result<Dataset, LayoutError> {
        let indices = ROOM_BYTES / self.row_bytes.max(1);
        Dataset::new(&self.lock().shape_of(indices), self.sizes.most().elem())
    }

    /// What unit `unit` has of the next step, of which all units have said these numbers.
    ///
    /// # Errors
    /// [`BundleError`]: what was said cannot be, or there is no room for another step.
    pub fn place(&self, said: &[&[u64]], unit: u32) -> Result<Placed, BundleError> {
        let named = |source| BundleError::Layout { name: self.name.clone(), source };
        let size = self.sizes.step(said)?;
        let make = || -> Result<Plan, LayoutError> {
            let dataset = Dataset::new(&size.shape, self.sizes.most().elem())?;
            let mapping = size.layout(&self.sizes)?.bind(&dataset, said.len() as u64)?;
            mapping.check_writer()?;
            Plan::from_writer(&mapping, &file_mapping(&dataset, false)?, unit.into())
        };
        let plan = Arc::new(make().map_err(named)?);
        let (base, elem) = (self.len_bytes(), self.sizes.most().elem().len_bytes());
        let len = size.shape.iter().product::<u64>() * elem;
        let has_room = base.checked_add(len).is_some_and(|end| end < ROOM_BYTES);
        let (count, has_steps) = {
            let steps = self.lock();
            (steps.count(), steps.has_room())
        };
        if !has_room || !has_steps {
            let (name, what) = (self.name.clone(), "the number of its steps");
            let found = format!("more than {count}");
            let expected = "as many as can be said where they begin".into();
            return Err(BundleError::Size { name, what, found, expected });
        }
        Ok(Placed { plan, base, len, shape: size.shape })
    }

    /// That step is written.
    pub fn push(&self, placed: &Placed) {
        self.lock().push(&placed.shape);
    }

    /// What all units must agree on.
    pub fn text(&self) -> String {
        format!("{:?}", self.sizes)
    }
}

/// Why there is no next step.
pub enum Unsettled {
    /// What units have said cannot be. All come to the same, and may say something else.
    Said(BundleError),
    /// Not all have said something.
    Lost(StoreError),
}

/// What this unit has of the next step of each array, once all units have said what they bring; it brings pieces of
/// these shapes, or says that the whole has them.
///
/// # Errors
/// [`Unsettled`].
pub fn settle(team: &Team, arrays: &[(&Growing, &[u64])]) -> Result<Vec<Placed>, Unsettled> {
    let mine: Vec<Vec<u64>> =
        arrays.iter().map(|(growing, shape)| growing.sizes.words(shape).to_vec()).collect();
    let all = team.agree(Stage::Step, Ok(mine), Ok).map_err(Unsettled::Lost)?;
    let place = |(n, (growing, _)): (usize, &(&Growing, &[u64]))| {
        let said: Vec<&[u64]> = all.iter().map(|said| said.get(n).map_or(&[][..], Vec::as_slice)).collect();
        growing.place(&said, team.unit()).map_err(Unsettled::Said)
    };
    arrays.iter().enumerate().map(place).collect()
}
