//! Reads the limits of this machine, for `doctor` and for choosing paths.

use std::fs;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{getrlimit, Resource};

/// A limit that may be raised up to `hard`; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What counts now.
    pub soft: Option<u64>,
    /// Up to where this process may raise it.
    pub hard: Option<u64>,
}

/// Descriptors that are to stay free below the soft limit.
const ROOM: u64 = 64;

/// The soft limit of descriptors as it was seen last; 0: not yet; the largest number: it cannot be raised.
static SOFT: AtomicU64 = AtomicU64::new(0);

/// A descriptor was made here. Its number tells how many there are, since the lowest that is free is always
/// taken: where the soft limit comes near, it is raised, as far as the hard one allows. (Programs that this
/// one starts inherit that; one that uses `select` cannot do with descriptors beyond 1023, wherever the limit
/// is.)
pub(crate) fn made(fd: &impl AsFd) {
    let number = u64::from(fd.as_fd().as_raw_fd().unsigned_abs());
    if number + ROOM >= SOFT.load(Ordering::Relaxed) {
        raise(number);
    }
}

#[cold]
fn raise(number: u64) {
    let Limit { soft, hard } = descriptors();
    let highest = hard.unwrap_or(u64::MAX);
    let mut now = soft.unwrap_or(u64::MAX);
    if number + ROOM >= now && now < highest {
        let wanted = (2 * now).max(number + 2 * ROOM).min(highest);
        let limit = rustix::process::Rlimit { current: Some(wanted), maximum: hard };
        if rustix::process::setrlimit(Resource::Nofile, limit).is_ok() {
            now = wanted;
        }
    }
    SOFT.store(if number + ROOM < now { now } else { u64::MAX }, Ordering::Relaxed);
}

/// How many descriptors this process may hold now, where the refusal of one was about that and not about the
/// whole system.
pub(crate) fn descriptors_refused(errno: Errno) -> Option<u32> {
    let soft = descriptors().soft.filter(|_| errno == Errno::MFILE)?;
    Some(u32::try_from(soft).unwrap_or(u32::MAX))
}

/// How many descriptors this process may hold.
fn descriptors() -> Limit {
    let now = getrlimit(Resource::Nofile);
    Limit { soft: now.current, hard: now.maximum }
}

/// Facts about the machine, each `None` where the system does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The kernel's release.
    pub kernel: String,
    /// Descriptors.
    pub descriptors: Limit,
    /// Memory that may be locked.
    pub locked_memory: Limit,
    /// Size and free space of `/dev/shm`, in bytes.
    pub dev_shm: Option<(u64, u64)>,
    /// Unnamed shared memory with seals works.
    pub memfd: bool,
    /// Descriptors of processes work.
    pub pidfd: bool,
    /// Yama's rule on reading other processes' memory: 0 same user, 1 descendants or permitted, 2 and 3 not.
    pub ptrace_scope: Option<u32>,
    /// io_uring may be used.
    pub io_uring: bool,
    /// `transparent_hugepage/enabled`: the setting in force.
    pub huge_pages: Option<String>,
    /// `transparent_hugepage/shmem_enabled`: the setting in force for shared memory.
    pub huge_pages_shared: Option<String>,
    /// The longest queue of connections that a listener can have.
    pub connection_backlog: Option<u64>,
}

impl Facts {
    /// Looks everything up now.
    pub fn gather() -> Facts {
        let memlock = getrlimit(Resource::Memlock);
        let thp =
            |name: &str| line(&format!("/sys/kernel/mm/transparent_hugepage/{name}")).map(|l| in_force(&l));
        Facts {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            descriptors: descriptors(),
            locked_memory: Limit { soft: memlock.current, hard: memlock.maximum },
            dev_shm: rustix::fs::statvfs("/dev/shm")
                .ok()
                .map(|s| (s.f_blocks.saturating_mul(s.f_frsize), s.f_bavail.saturating_mul(s.f_frsize))),
            memfd: memfd_works(),
            pidfd: crate::process::PidFd::open(std::process::id()).is_ok(),
            ptrace_scope: line("/proc/sys/kernel/yama/ptrace_scope").and_then(|l| l.parse().ok()),
            io_uring: io_uring_works(),
            huge_pages: thp("enabled"),
            huge_pages_shared: thp("shmem_enabled"),
            connection_backlog: line("/proc/sys/net/core/somaxconn").and_then(|l| l.parse().ok()),
        }
    }
}

fn line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

/// `always [madvise] never` → `madvise`.
fn in_force(settings: &str) -> String {
    let chosen = settings.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
    chosen.unwrap_or(settings).to_owned()
}

fn memfd_works() -> bool {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    rustix::fs::memfd_create("polyduct-probe", flags).is_ok_and(|fd| rustix::fs::fcntl_get_seals(fd).is_ok())
}

/// Asks with arguments that an allowed call refuses as faulty and a forbidden one as forbidden.
fn io_uring_works() -> bool {
    let nowhere = core::ptr::null_mut::<libc::c_void>();
    // SAFETY: with a null pointer for its parameters the call fails before it does anything.
    let rc = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, nowhere) };
    rc < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_force_is_the_one_in_brackets() {
        assert_eq!(in_force("always [madvise] never"), "madvise");
        assert_eq!(in_force("always within_size advise [never] deny force"), "never");
        assert_eq!(in_force("plain"), "plain");
    }

    #[test]
    fn the_facts_of_this_machine() {
        let facts = Facts::gather();
        assert!(facts.memfd && facts.pidfd && !facts.kernel.is_empty());
        assert!(facts.connection_backlog.is_some_and(|n| n > 0));
        let Limit { soft, hard } = facts.descriptors;
        assert!(soft.unwrap_or(u64::MAX) <= hard.unwrap_or(u64::MAX));
        assert!(facts.dev_shm.is_none_or(|(size, free)| free <= size));
    }
}
