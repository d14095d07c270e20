//! The time, for those who drive state machines that take it as an argument.

use core::time::Duration;

use rustix::time::{clock_gettime, ClockId, Timespec};

/// Time since an arbitrary moment; never goes back, stands still while the machine sleeps, and is the same in every
/// process of one machine.
pub fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
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
    fn a_time_too_long_for_the_kernel_is_for_ever() {
        assert!(timespec(Some(Duration::MAX)).is_none());
        assert!(timespec(None).is_none());
        assert_eq!(timespec(Some(Duration::new(3, 7))).map(duration), Some(Duration::new(3, 7)));
    }
}
