//! Children that are forked and go on as they are, as Python's `multiprocessing` makes them.

/// A child that was forked. It ends by itself after a minute.
pub struct Forked(libc::pid_t);

impl Forked {
    /// Forks this process. The child sleeps, and has all that this process has, but for its standard input
    /// and output.
    pub fn sleeper() -> Forked {
        // SAFETY: the child makes system calls only.
        match unsafe { libc::fork() } {
            // SAFETY: system calls.
            0 => unsafe {
                for fd in 0..3 {
                    libc::close(fd);
                }
                libc::sleep(60);
                libc::_exit(0)
            },
            pid => {
                assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
                Forked(pid)
            }
        }
    }

    /// Forks this process. The child calls `f` and ends, well if that says so. As this process may have
    /// threads, `f` makes system calls and uses memory that is there.
    pub fn call(f: impl FnOnce() -> bool) -> Forked {
        // SAFETY: the child does no more than it says above.
        match unsafe { libc::fork() } {
            0 => {
                let well = f();
                // SAFETY: a system call.
                unsafe { libc::_exit(libc::c_int::from(!well)) }
            }
            pid => {
                assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
                Forked(pid)
            }
        }
    }

    /// Waits for its end; whether it ended well.
    pub fn ends_well(self) -> bool {
        let mut status = 0;
        // SAFETY: a system call that fills in a number.
        unsafe { libc::waitpid(self.0, &mut status, 0) == self.0 && status == 0 }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0 as u32
    }
}

/// Ends a child of another process that [`Forked::sleeper`] has made.
pub fn end(pid: u32) {
    // SAFETY: a system call.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}
