//! Plans that were made are kept, up to a limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{LayoutError, Mapping, Plan};

/// Which end of the transfers a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// [`Plan::to_reader`].
    ToReader,
    /// [`Plan::from_writer`].
    FromWriter,
}

type Key = (Mapping, Mapping, u64, Direction);

/// A bounded cache of plans: the one that was not used for longest goes first. It may be shared between
/// threads.
///
/// ```
/// use polyduct_layout::{Dataset, Direction, ElemType, Layout, PlanCache};
/// let data = Dataset::new(&[8, 8], ElemType::F32)?;
/// let rows = "block,*".parse::<Layout>()?.bind(&data, 2)?;
/// let columns = "*,block".parse::<Layout>()?.bind(&data, 4)?;
/// let cache = PlanCache::new(16);
/// let first = cache.get(&rows, &columns, 3, Direction::ToReader)?;
/// let again = cache.get(&rows, &columns, 3, Direction::ToReader)?;
/// assert!(std::sync::Arc::ptr_eq(&first, &again));
/// # Ok::<(), polyduct_layout::LayoutError>(())
/// ```
#[derive(Debug)]
pub struct PlanCache {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plans: HashMap<Key, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    plan: Arc<Plan>,
    used: u64,
}

impl PlanCache {
    /// A cache of at most `capacity` plans; 0 keeps none.
    pub fn new(capacity: usize) -> PlanCache {
        PlanCache { capacity, state: Mutex::default() }
    }

    /// The plan for a unit, made when it is not there. Errors are not kept. Other threads do not wait while
    /// one plans.
    ///
    /// # Errors
    /// As [`Plan::to_reader`].
    pub fn get(
        &self,
        src: &Mapping,
        dst: &Mapping,
        unit: u64,
        direction: Direction,
    ) -> Result<Arc<Plan>, LayoutError> {
        let key = (src.clone(), dst.clone(), unit, direction);
        if let Some(plan) = self.lock().find(&key) {
            return Ok(plan);
        }
        let plan = Arc::new(match direction {
            Direction::ToReader => Plan::to_reader(src, dst, unit)?,
            Direction::FromWriter => Plan::from_writer(src, dst, unit)?,
        });
        let mut state = self.lock();
        // Another thread may have been faster; then its plan is the one that all share.
        if let Some(plan) = state.find(&key) {
            return Ok(plan);
        }
        if self.capacity > 0 {
            if state.plans.len() >= self.capacity {
                state.evict();
            }
            let used = state.clock;
            state.plans.insert(key, Entry { plan: plan.clone(), used });
        }
        Ok(plan)
    }

    /// Number of plans kept.
    pub fn len(&self) -> usize {
        self.lock().plans.len()
    }

    /// Whether no plan is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, key: &Key) -> Option<Arc<Plan>> {
        self.clock += 1;
        let entry = self.plans.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.plan.clone())
    }

    /// A scan: evictions are rare and caches small next to the cost of planning.
    fn evict(&mut self) {
        let oldest = self.plans.iter().min_by_key(|(_, e)| e.used).map(|(k, _)| k.clone());
        if let Some(key) = oldest {
            self.plans.remove(&key);
        }
    }
}
