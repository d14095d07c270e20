//! The time, for those who drive state machines that take it as an argument.

use core::cell::Cell;
use core::time::Duration;

use rustix::time::{clock_gettime, ClockId, Timespec};

/// Time since an arbitrary moment; never goes back, stands still while the machine sleeps, and is the same in
/// every process of one machine.
pub fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

thread_local! {
    /// When the waits of this thread's call end.
    static UNTIL: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Calls `f`, in which every wait of this thread ends after `limit` in all, whatever [timeout](left) it has
/// of its own; with `None` each has its own, though this be called in an `f`.
pub fn within<T>(limit: Option<Duration>, f: impl FnOnce() -> T) -> T {
    struct Before(Option<Duration>);
    impl Drop for Before {
        fn drop(&mut self) {
            UNTIL.set(self.0);
        }
    }
    let _before = Before(UNTIL.replace(limit.map(|limit| now().saturating_add(limit))));
    f()
}

/// What is left of a wait that began at `start` and has this timeout, unless it is [`within`] a limit.
/// `None`: for ever.
pub fn left(start: Duration, timeout: Option<Duration>) -> Option<Duration> {
    let until = UNTIL.get().or(timeout.map(|timeout| start.saturating_add(timeout)));
    until.map(|until| until.saturating_sub(now()))
}

fn duration(t: Timespec) -> Duration {
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// A timeout for the kernel; `None`, for ever, where the kernel's type cannot hold it.
pub(crate) fn timespec(timeout: Option<Duration>) -> Option<Timespec> {
    timeout.and_then(|d| Timespec::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_never_back() {
        let first = now();
        let mut last = first;
        while last == first {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn a_limit_holds_for_all_waits_within_and_for_no_others() {
        let hour = Duration::from_secs(3600);
        assert_eq!(left(now(), None), None);
        within(Some(Duration::ZERO), || {
            assert_eq!(
                (left(now(), None), left(now(), Some(hour))),
                (Some(Duration::ZERO), Some(Duration::ZERO))
            );
            within(None, || assert_eq!(left(now(), None), None));
            within(Some(Duration::MAX), || assert!(left(now(), Some(Duration::ZERO)) > Some(hour)));
            assert_eq!(left(now(), None), Some(Duration::ZERO));
        });
        assert_eq!((left(now(), None), left(now(), Some(Duration::ZERO))), (None, Some(Duration::ZERO)));
    }

    #[test]
    fn a_time_too_long_for_the_kernel_is_for_ever() {
        assert!(timespec(Some(Duration::MAX)).is_none());
        assert!(timespec(None).is_none());
        assert_eq!(timespec(Some(Duration::new(3, 7))).map(duration), Some(Duration::new(3, 7)));
    }
}
