//! Threads for the time of one call, which the system may refuse: it has a limit on them, and on their
//! memory.
//!
//! [`std::thread::scope`]'s own `spawn` panics then. Work that can be shared out as it comes is done by
//! [`each`], however few threads there are; parts that wait for one another are done by [`together`], all of
//! them or none.

use crate::error::{OsError, Result};
use rustix::io::Errno;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{scope, Builder, ScopedJoinHandle};

/// Does `work` for each of the jobs, on this thread and up to `most - 1` more, and gives what comes of them
/// in the order of the jobs.
///
/// Each thread takes the next job when it is through with one, so a thread that is slow to come, or that the
/// system does not give, leaves its share to the others: this one does them all if need be. With `most` below
/// 2, or one job, no thread is started. A start costs some 20 µs, which the caller weighs against the work.
///
/// # Panics
/// When `work` does: with its words, after the other threads have done what is left.
///
/// ```
/// use polyduct_os::threads;
///
/// let squares = threads::each(4, 0..5, |n| n * n);
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
///
/// // The first error, in the order of the jobs; what each thread gets may be a part of its own to write.
/// let mut parts = [[0; 2], [0; 2]];
/// let filled: Result<(), &str> = threads::each(2, parts.iter_mut().enumerate(), |(n, part)| {
///     part.fill(n);
///     if n < 1 { Ok(()) } else { Err("too many") }
/// })
/// .into_iter()
/// .collect();
/// assert_eq!((filled, parts), (Err("too many"), [[0, 0], [1, 1]]));
/// ```
pub fn each<J, T: Send>(
    most: usize,
    jobs: impl IntoIterator<Item = J, IntoIter: ExactSizeIterator + Send>,
    work: impl Fn(J) -> T + Sync,
) -> Vec<T> {
    each_on(most, jobs, work, helper)
}

/// Does `work` for each of the jobs at once, one on this thread and each other on one of its own, and gives
/// what comes of them in the order of the jobs. For parts that wait for one another.
///
/// # Errors
/// The system's, when it does not give so many threads: none of the jobs has been begun then.
///
/// # Panics
/// When `work` does: with its words, after the other jobs, which must not wait for one that has panicked.
///
/// ```
/// use polyduct_os::threads;
/// use std::sync::Barrier;
///
/// let all_there = Barrier::new(3);
/// let last = threads::together(0..3, |n| (n, all_there.wait().is_leader()))?;
/// assert_eq!(last.iter().filter(|(_, is_last)| *is_last).count(), 1);
/// # Ok::<(), polyduct_os::OsError>(())
/// ```
pub fn together<J: Send, T: Send>(
    jobs: impl IntoIterator<Item = J>,
    work: impl Fn(J) -> T + Sync,
) -> Result<Vec<T>> {
    together_on(jobs, work, helper)
}

fn helper() -> Builder {
    Builder::new().name("polyduct-helper".into())
}

fn each_on<J, T: Send>(
    most: usize,
    jobs: impl IntoIterator<Item = J, IntoIter: ExactSizeIterator + Send>,
    work: impl Fn(J) -> T + Sync,
    thread: impl Fn() -> Builder,
) -> Vec<T> {
    let jobs = jobs.into_iter();
    let count = jobs.len();
    let helpers = most.min(count).saturating_sub(1);
    if helpers == 0 {
        return jobs.map(work).collect();
    }
    let jobs = Mutex::new(jobs.enumerate());
    // Not in the loop's head, which would hold the lock while the job is done.
    let next = || lock(&jobs).next();
    let mine = || {
        let mut done = Vec::new();
        while let Some((at, job)) = next() {
            done.push((at, work(job)));
        }
        done
    };
    let mut done = Vec::with_capacity(count);
    scope(|scope| {
        let started: Vec<_> = (1..=helpers).map_while(|_| thread().spawn_scoped(scope, mine).ok()).collect();
        done.extend(mine());
        started.into_iter().for_each(|thread| done.extend(ended(thread)));
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, of)| of).collect()
}

fn together_on<J: Send, T: Send>(
    jobs: impl IntoIterator<Item = J>,
    work: impl Fn(J) -> T + Sync,
    thread: impl Fn() -> Builder,
) -> Result<Vec<T>> {
    let mut jobs = jobs.into_iter();
    let Some(mine) = jobs.next() else { return Ok(Vec::new()) };
    // Whether all threads are there. Held until that is known.
    let complete = Mutex::new(false);
    let work = |job| {
        let go = *lock(&complete);
        go.then(|| work(job))
    };
    scope(|scope| {
        let mut known = lock(&complete);
        let work = &work;
        let start = |job| thread().spawn_scoped(scope, move || work(job));
        let started: Vec<_> = jobs.map(start).collect::<std::io::Result<_>>().map_err(refused)?;
        *known = true;
        drop(known);
        let mut done = Vec::from_iter(work(mine));
        started.into_iter().for_each(|thread| done.extend(ended(thread)));
        Ok(done)
    })
}

fn ended<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn refused(e: std::io::Error) -> OsError {
    OsError::sys("start", "a thread", Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::HashSet;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Barrier;
    use std::thread::{current, ThreadId};

    /// Threads of which the system gives the first `given`, and refuses the others: no machine has memory for
    /// their stacks.
    fn given(given: usize) -> impl Fn() -> Builder {
        let left = Cell::new(given);
        move || match left.replace(left.get().saturating_sub(1)) {
            0 => Builder::new().stack_size(1 << 56),
            _ => Builder::new(),
        }
    }

    fn words(panic: Box<dyn std::any::Any + Send>) -> String {
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn each_job_is_done_once_and_answered_in_order_whatever_threads_there_are() {
        for jobs in [0, 1, 2, 7, 100] {
            for most in [0, 1, 2, 5, 200] {
                for threads in 0..4 {
                    let times: Vec<_> = (0..jobs).map(|_| AtomicUsize::new(0)).collect();
                    let work = |job: usize| (job, times[job].fetch_add(1, Ordering::Relaxed));
                    let done = each_on(most, 0..jobs, work, given(threads));
                    assert!(done.into_iter().eq((0..jobs).map(|job| (job, 0))), "{jobs}, {most}, {threads}");
                }
            }
        }
    }

    #[test]
    fn no_more_threads_work_than_are_allowed_and_given() {
        for (most, threads, expected) in [(4, 9, 4), (9, 3, 4), (4, 0, 1), (1, 9, 1)] {
            // None goes on before all have come.
            let all = Barrier::new(expected);
            let work = |_| {
                all.wait();
                current().id()
            };
            let who: HashSet<ThreadId> =
                each_on(most, 0..expected * 3, work, given(threads)).into_iter().collect();
            assert!(who.len() == expected && who.contains(&current().id()), "{who:?}");
        }
    }

    #[test]
    fn a_panic_of_any_job_comes_out_after_the_others() {
        for threads in [0, 3] {
            for bad in 0..8 {
                let others = AtomicUsize::new(0);
                let work = |job: usize| match job == bad {
                    true => panic!("job {job}"),
                    false => others.fetch_add(1, Ordering::Relaxed),
                };
                let all = || each_on(4, 0..8, work, given(threads));
                let panic = catch_unwind(AssertUnwindSafe(all)).unwrap_err();
                assert_eq!(words(panic), format!("job {bad}"));
                // Alone, this thread has nobody who goes on.
                assert_eq!(others.into_inner(), if threads == 0 { bad } else { 7 });
            }
        }
    }

    #[test]
    fn jobs_that_wait_for_one_another_are_all_begun_or_none() {
        assert_eq!(together(0..0, |n: u32| n), Ok(vec![]));
        for threads in 0..4 {
            let (all, begun) = (Barrier::new(4), AtomicUsize::new(0));
            let work = |n: u32| {
                begun.fetch_add(1, Ordering::Relaxed);
                all.wait();
                n
            };
            match together_on(0..4, work, given(threads)) {
                Ok(done) => assert_eq!((threads, done), (3, vec![0, 1, 2, 3])),
                Err(e) => {
                    assert!(threads < 3 && e.errno().is_some(), "{e}");
                    assert_eq!(begun.into_inner(), 0);
                }
            }
        }
    }

    #[test]
    fn a_panic_of_one_that_others_do_not_wait_for_comes_out() {
        for bad in 0..3 {
            let others = AtomicUsize::new(0);
            let work = |n| match n == bad {
                true => panic!("job {n}"),
                false => others.fetch_add(1, Ordering::Relaxed),
            };
            let panic = catch_unwind(AssertUnwindSafe(|| together(0..3, work))).unwrap_err();
            assert_eq!((words(panic), others.into_inner()), (format!("job {bad}"), 2));
        }
    }
}
