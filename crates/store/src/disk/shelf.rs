//! Keeps files open between calls: so many in the whole process, whatever the number of stores and arrays.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Files that are kept open, at most; fewer where the process may have few.
const FILES: usize = 256;

/// A place for something that holds files open: empty again when others were used since, and there are too
/// many.
#[derive(Debug)]
pub(super) struct Shelf<T>(Arc<Mutex<Option<T>>>);

/// A shelf of whatever.
trait Clear: Send + Sync {
    fn clear(&self);
}

impl<T: Send> Clear for Mutex<Option<T>> {
    fn clear(&self) {
        let kept = lock(self).take();
        drop(kept);
    }
}

/// Shelves with something on them, and how many files that holds open; the one that was used last is the
/// last.
static FILLED: Mutex<VecDeque<(Weak<dyn Clear>, usize)>> = Mutex::new(VecDeque::new());

fn lock<T: ?Sized>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Clone for Shelf<T> {
    /// The same shelf.
    fn clone(&self) -> Shelf<T> {
        Shelf(Arc::clone(&self.0))
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf(Arc::default())
    }
}

impl<T: Send + 'static> Shelf<T> {
    /// What is there, taken from it.
    pub fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }

    /// What is there; nothing else is put there, or taken, meanwhile.
    pub fn get(&self) -> MutexGuard<'_, Option<T>> {
        lock(&self.0)
    }

    /// Puts something there that holds so many files open.
    pub fn put(&self, what: T, files: usize) {
        *lock(&self.0) = Some(what);
        let this: Arc<dyn Clear> = self.0.clone();
        let too_many: Vec<_> = {
            let mut filled = lock(&FILLED);
            filled.retain(|(shelf, _)| {
                shelf.strong_count() > 0 && !std::ptr::addr_eq(shelf.as_ptr(), Arc::as_ptr(&this))
            });
            filled.push_back((Arc::downgrade(&this), files));
            let mut all: usize = filled.iter().map(|(_, files)| files).sum();
            let older = filled.len() - 1;
            let n = filled.iter().take(older).take_while(|(_, files)| {
                let goes = all > most();
                all -= if goes { *files } else { 0 };
                goes
            });
            let n = n.count();
            filled.drain(..n).collect()
        };
        // Nobody waits for a shelf who holds the list.
        too_many.iter().filter_map(|(shelf, _)| shelf.upgrade()).for_each(|shelf| shelf.clear());
    }
}

fn most() -> usize {
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    allowed.map_or(FILES, |n| FILES.min(n as usize / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_cleared_first_and_the_newest_stays() {
        let shelves: Vec<Shelf<u32>> = (0..4).map(|_| Shelf::default()).collect();
        let there = || shelves.iter().map(|shelf| *shelf.get()).collect::<Vec<_>>();
        let third = most() / 3;
        (0..3).for_each(|n| shelves[n].put(n as u32, third));
        assert_eq!(there(), [Some(0), Some(1), Some(2), None]);
        // Used again: it is the newest.
        shelves[0].put(9, third);
        shelves[3].put(3, third);
        assert_eq!(there(), [Some(9), None, Some(2), Some(3)]);
        shelves[1].put(1, 2 * most());
        assert_eq!(there(), [None, Some(1), None, None]);
        assert_eq!(shelves[1].take(), Some(1));
        drop(shelves);
        Shelf::default().put(1, 1);
        assert_eq!(lock(&FILLED).len(), 1, "what is gone is forgotten");
    }
}
