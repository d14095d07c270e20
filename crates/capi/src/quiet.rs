//! Calls that start threads, or write where a partner may have gone: no SIGPIPE comes of them, whatever the
//! program does with that signal, which by default ends it.

use libc::{pthread_sigmask, sigaddset, sigemptyset, sigpending, sigset_t, sigtimedwait, timespec};
use libc::{SIGPIPE, SIG_BLOCK, SIG_SETMASK};
use std::mem::MaybeUninit;
use std::ptr;

struct Blocked {
    before: sigset_t,
    pipe: sigset_t,
    was_pending: bool,
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: a set of this function's, which is filled before it is looked at.
    unsafe { sigpending(pending.as_mut_ptr()) == 0 && libc::sigismember(pending.as_ptr(), SIGPIPE) == 1 }
}

impl Blocked {
    fn new() -> Option<Blocked> {
        let (mut pipe, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let was_pending = is_pending();
        // SAFETY: sets of this function's, each filled before it is used.
        unsafe {
            sigemptyset(pipe.as_mut_ptr());
            sigaddset(pipe.as_mut_ptr(), SIGPIPE);
            let done = pthread_sigmask(SIG_BLOCK, pipe.as_ptr(), before.as_mut_ptr()) == 0;
            done.then(|| Blocked { before: before.assume_init(), pipe: pipe.assume_init(), was_pending })
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: sets and a time of this function's; the mask is what it was before.
        unsafe {
            // One that came of this call; one that was there before is the program's.
            if !self.was_pending && is_pending() {
                sigtimedwait(&self.pipe, ptr::null_mut(), &now);
            }
            pthread_sigmask(SIG_SETMASK, &self.before, ptr::null_mut());
        }
    }
}

/// Runs `f`, in which this thread and all that it starts get no SIGPIPE.
pub fn quiet<T>(f: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::new();
    f()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::FromRawFd;

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_no_signal() {
        let mut ends = [0; 2];
        // SAFETY: descriptors that are made here and owned from here on. The default of SIGPIPE, which Rust's
        // test programs ignore, ends the process: so would a failure of this test.
        let mut to = unsafe {
            libc::signal(SIGPIPE, libc::SIG_DFL);
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            drop(File::from_raw_fd(ends[0]));
            File::from_raw_fd(ends[1])
        };
        let written = quiet(|| to.write_all(b"x"));
        assert_eq!(written.map_err(|e| e.kind()), Err(std::io::ErrorKind::BrokenPipe));
        assert!(!is_pending());
    }
}
