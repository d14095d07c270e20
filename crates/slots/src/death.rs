//! Points between two changes of the shared state at which the simulation in `sim` kills a unit. Nothing
//! elsewhere.

#[cfg(not(test))]
#[inline(always)]
pub fn may_come() {}

#[cfg(test)]
pub use planned::{may_come, within};

#[cfg(test)]
mod planned {
    use std::cell::Cell;
    use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

    thread_local!(static LEFT: Cell<u64> = const { Cell::new(u64::MAX) });

    struct Killed;

    /// Counts down to the death that [`within`] planned.
    pub fn may_come() {
        match LEFT.get() {
            u64::MAX => {}
            0 => {
                LEFT.set(u64::MAX);
                resume_unwind(Box::new(Killed))
            }
            n => LEFT.set(n - 1),
        }
    }

    /// Runs `f` up to the `n`-th place where death may come; `None` when it came.
    pub fn within<T>(n: u64, f: impl FnOnce() -> T) -> Option<T> {
        LEFT.set(n);
        let done = catch_unwind(AssertUnwindSafe(f));
        LEFT.set(u64::MAX);
        match done {
            Ok(value) => Some(value),
            Err(e) if e.is::<Killed>() => None,
            Err(e) => resume_unwind(e),
        }
    }
}
