//! Functions of the machine and of processes for the command and the Python module: all that they get of the
//! layers below.

pub use polyduct_copy::{LastCache, Level};
pub use polyduct_os::dir::room;
pub use polyduct_os::groups::{tasks, Tasks};
pub use polyduct_os::limits::Facts;
pub use polyduct_os::remote::RemoteReader;
pub use polyduct_os::threads::together;
pub use polyduct_os::{Errno, OsError};

/// Time, and limits on what a thread waits.
pub mod clock {
    pub use polyduct_os::clock::{now, within};
}

/// Processors that this process may use.
pub mod cpu {
    pub use polyduct_os::cpu::{allowed, pin_to};
}

/// Memory that is to be had.
pub mod memory {
    pub use polyduct_os::memory::{cgroup, machine, obtainable_bytes};
}

/// This process, and those that it is to watch.
pub mod process {
    pub use polyduct_os::process::{
        adopt_orphans, children, exited_child, has_children, own_pid, reap, Kid, PidFd, ProcessId, Signal,
    };
}
