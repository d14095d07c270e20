//! Identifies processes, and watches whether they live.
//!
//! A bare process number is reused; a process here is (number, start time), or a descriptor of it.

use core::time::Duration;
use std::fmt::Display;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitIdOptions};

use crate::error::{OsError, Result};
use crate::poll::{poll, PollItem};

pub use rustix::process::Signal;

/// A process, told from every other that had or will have its number since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did.
    pub start_time: u64,
}

impl ProcessId {
    /// This process, by the number that it has for itself.
    pub fn current() -> Result<ProcessId> {
        // Its number may be another's in a /proc that shows another process namespace.
        read_stat("self").map(|stat| ProcessId { pid: std::process::id(), start_time: stat.start_time })
    }

    /// The process that has this number now, dead but unreaped ones included.
    ///
    /// # Errors
    /// [`OsError::PeerGone`] where there is none.
    pub fn of(pid: u32) -> Result<ProcessId> {
        stat_of(pid).map(|stat| ProcessId { pid, start_time: stat.start_time })
    }

    /// Whether this very process still runs.
    pub fn is_alive(&self) -> bool {
        stat_of(self.pid).is_ok_and(|s| s.start_time == self.start_time && !s.has_exited())
    }
}

/// The process namespace of this process, which its numbers of processes belong to: two processes that say
/// the same one, and not zero, mean the same by a number. Zero where /proc shows another namespace's numbers,
/// or nothing: then no number says anything.
pub fn number_space() -> u32 {
    let own = fs::read_link("/proc/self").ok().and_then(|own| own.to_str()?.parse::<u32>().ok());
    let space = || fs::metadata("/proc/self/ns/pid").map(|space| space.ino());
    match own == Some(std::process::id()) {
        true => space().ok().and_then(|inode| inode.try_into().ok()).unwrap_or(0),
        false => 0,
    }
}

/// The number of this process, without a system call: asked before every call of a port whether it is a
/// fork's copy.
pub fn own_pid() -> u32 {
    static PID: AtomicU32 = AtomicU32::new(0);
    static WATCHED: OnceLock<bool> = OnceLock::new();
    extern "C" fn in_child() {
        PID.store(0, Ordering::Relaxed);
    }
    match PID.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: `in_child` only stores to an atomic, which is allowed in a child of a program with
            // threads. A library that is unloaded takes back what it registered.
            let watch = || unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0;
            let watched = *WATCHED.get_or_init(watch);
            let pid = std::process::id();
            if watched {
                PID.store(pid, Ordering::Relaxed);
            }
            pid
        }
        pid => pid,
    }
}

/// Whether a process is stopped, as by Ctrl-Z or a debugger: it goes on only when somebody lets it.
pub fn is_stopped(pid: u32) -> bool {
    stat_of(pid).is_ok_and(|stat| matches!(stat.state, b'T' | b't'))
}

/// How a process was started, words with spaces between them, for people: 80 characters at most.
pub fn command_line(pid: u32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|words| !words.is_empty())?;
    let text = String::from_utf8_lossy(words.strip_suffix(b"\0").unwrap_or(&words)).replace('\0', " ");
    Some(text.chars().map(|c| if c.is_control() { '?' } else { c }).take(80).collect())
}

const UNNAMED: &str = "children-of-";

/// The name of the program that this process is a unit of, where nobody gave it one: units started by the
/// same process have the same.
pub fn unnamed_program() -> String {
    format!("{UNNAMED}{}", std::os::unix::process::parent_id())
}

/// Whether a program's name is of those that nobody gave.
pub fn is_unnamed(program: &str) -> bool {
    program.starts_with(UNNAMED)
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: u32,
    group: u32,
    start_time: u64,
}

impl Stat {
    fn has_exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

fn stat_of(pid: u32) -> Result<Stat> {
    read_stat(pid).map_err(|e| match e {
        OsError::System { errno: Errno::NOENT | Errno::SRCH, .. } => OsError::PeerGone { pid },
        e => e,
    })
}

fn read_stat(process: impl Display) -> Result<Stat> {
    let path = format!("/proc/{process}/stat");
    let bytes = fs::read(&path)
        .map_err(|e| OsError::sys("read", path.clone(), Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
    parse_stat(&bytes)
        .ok_or(OsError::NotUnderstood { path, reason: "fields 3, 4, 5 and 22 after the last ')'" })
}

/// The name of the program (field 2) may hold anything, parentheses, spaces and newlines too, so count from
/// its end.
fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let after = bytes.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = bytes[after..].split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
    let &[state] = fields.next()? else { return None };
    let mut number = |skip| core::str::from_utf8(fields.nth(skip)?).ok()?.parse::<u64>().ok();
    let parent = number(0)?.try_into().ok()?;
    let group = number(0)?.try_into().ok()?;
    Some(Stat { state, parent, group, start_time: number(16)? })
}

/// A descriptor of a process: it stays with that process whatever becomes of the number, and polls readable
/// (see [`PollItem::readable`]) once the process has exited.
#[derive(Clone, Debug)]
pub struct PidFd {
    fd: Arc<OwnedFd>,
    pid: u32,
}

impl PidFd {
    /// The process that has this number now.
    ///
    /// # Errors
    /// [`OsError::PeerGone`] where there is none.
    pub fn open(pid: u32) -> Result<PidFd> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(OsError::PeerGone { pid })?;
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => Ok(PidFd::from_fd(fd, pid)),
            Err(Errno::SRCH) => Err(OsError::PeerGone { pid }),
            Err(e) => Err(OsError::sys("pidfd_open", format!("process {pid}"), e)),
        }
    }

    /// This very process, and not a later one with the same number.
    ///
    /// # Errors
    /// [`OsError::PeerGone`] where it is no more.
    pub fn of(process: ProcessId) -> Result<PidFd> {
        let fd = PidFd::open(process.pid)?;
        // Looked at after opening: if it is the one now, it was the one then.
        match ProcessId::of(process.pid)? == process {
            true => Ok(fd),
            false => Err(OsError::PeerGone { pid: process.pid }),
        }
    }

    /// This process, to be handed to others, whatever numbers processes have for them.
    pub fn own() -> Result<PidFd> {
        PidFd::open(std::process::id())
    }

    /// A process that somebody handed over. It has no number here, so that nothing can be done by it.
    ///
    /// # Errors
    /// [`OsError::NotUnderstood`] where the descriptor is none of a process.
    pub fn handed(fd: OwnedFd) -> Result<PidFd> {
        let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
        let said = fs::read_to_string(&path)
            .map_err(|e| OsError::sys("read", path.clone(), Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
        match said.lines().any(|line| line.starts_with("Pid:")) {
            true => Ok(PidFd::from_fd(fd, 0)),
            false => Err(OsError::NotUnderstood { path, reason: "a process's has a line Pid:" }),
        }
    }

    /// One descriptor for all in this process that watch the same process so: the one that there is already,
    /// or this.
    pub fn shared(self) -> PidFd {
        static SHARED: Mutex<Vec<(u32, Weak<OwnedFd>)>> = Mutex::new(Vec::new());
        // Of a process in another namespace there may be no number.
        if self.pid == 0 {
            return self;
        }
        let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, fd)| fd.strong_count() > 0);
        let (pid, known) = (self.pid, all.iter().filter(|(pid, _)| *pid == self.pid));
        let mut known = known.filter_map(|(_, fd)| Some(PidFd { fd: fd.upgrade()?, pid }));
        // While both live they cannot be two processes of one number.
        match known.find(|known| known.is_alive() && self.is_alive()) {
            Some(known) => known,
            None => {
                all.push((self.pid, Arc::downgrade(&self.fd)));
                self
            }
        }
    }

    /// The descriptor itself, to be handed to another process.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        self.fd.clone()
    }

    /// Another descriptor of the same process.
    pub fn try_clone(&self) -> Result<PidFd> {
        let fd = self.fd.try_clone().map_err(|e| {
            OsError::sys("dup", "a process", Errno::from_io_error(&e).unwrap_or(Errno::MFILE))
        })?;
        Ok(PidFd::from_fd(fd, self.pid))
    }

    pub(crate) fn from_fd(fd: OwnedFd, pid: u32) -> PidFd {
        crate::limits::made(&fd);
        PidFd { fd: Arc::new(fd), pid }
    }

    /// Its number, of use only while it lives; zero where it was [handed](PidFd::handed) over.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not exited yet.
    pub fn is_alive(&self) -> bool {
        !self.exited_within(Duration::ZERO).unwrap_or(false)
    }

    /// Waits until it has exited or `timeout` is over; returns whether it has.
    pub fn exited_within(&self, timeout: Duration) -> Result<bool> {
        poll(&mut [PollItem::readable(self)], Some(timeout)).map(|n| n > 0)
    }

    /// Sends a signal to this very process.
    pub fn send_signal(&self, signal: Signal) -> Result<()> {
        rustix::process::pidfd_send_signal(&self.fd, signal).map_err(|e| match e {
            Errno::SRCH => OsError::PeerGone { pid: self.pid },
            e => OsError::sys("pidfd_send_signal", format!("process {}", self.pid), e),
        })
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&self) -> Result<()> {
        self.send_signal(Signal::KILL)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Asks for `signal` when the *thread* that started this process ends (`None`: no signal). The parent may be
/// gone already: the caller compares [`parent_id`] with what it expects afterwards.
pub fn set_parent_death_signal(signal: Option<Signal>) -> Result<()> {
    rustix::process::set_parent_process_death_signal(signal)
        .map_err(|e| OsError::sys("prctl", "PDEATHSIG", e))
}

/// The number of the parent now; another than before once the parent has exited.
pub fn parent_id() -> u32 {
    std::os::unix::process::parent_id()
}

/// Has the orphans among the descendants of this process, of any depth, become its own children, and not the
/// system's. Programs that ask for that have to [`reap`] them.
pub fn adopt_orphans() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| OsError::sys("prctl", "CHILD_SUBREAPER", e))
}

/// A child of this process, own or adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kid {
    /// Which process.
    pub id: ProcessId,
    /// Its process group.
    pub group: u32,
}

/// The children of this process that have not exited, as /proc has them. It takes a look at every process
/// there is.
pub fn children() -> Result<Vec<Kid>> {
    let entries = fs::read_dir("/proc")
        .map_err(|e| OsError::sys("read", "/proc", Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    // One that ends in between is none any more.
    let stats = numbers.filter_map(|pid: u32| Some((pid, stat_of(pid).ok()?)));
    let me = std::process::id();
    let kids = stats.filter(|(_, stat)| stat.parent == me && !stat.has_exited());
    let kid = |(pid, Stat { group, start_time, .. })| Kid { id: ProcessId { pid, start_time }, group };
    Ok(kids.map(kid).collect())
}

/// A child of this process that has exited and is not reaped. It stays so, for whoever waits for it.
pub fn exited_child() -> Option<u32> {
    // SAFETY: an all-zero siginfo_t is a valid one.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: `info` is ours to write to for the length of the call.
    let done =
        unsafe { libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) };
    if done != 0 {
        return None;
    }
    // SAFETY: waitid has filled it in for a child, or left the number 0 where there is none.
    u32::try_from(unsafe { info.si_pid() }).ok().filter(|&pid| pid > 0)
}

/// Whether this process has children, exited ones that are not reaped included.
pub fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(rustix::process::WaitId::All, options), Err(Errno::CHILD))
}

/// Has the kernel forget a child that has exited; nothing happens where it has not. Nobody else may wait for
/// it.
pub fn reap(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let id = rustix::process::WaitId::Pid(pid);
        let _ = rustix::process::waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// The effective user of this process: what peers see of it.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str) -> Vec<u8> {
        let fields: Vec<String> = (4..=52).map(|n| (n * 10).to_string()).collect();
        format!("42 ({name}) S {}\n", fields.join(" ")).into_bytes()
    }

    #[test]
    fn a_program_may_call_itself_anything() {
        for name in ["cat", "", ") R 1 2 3", "(((", "a b\nc", "))))", "\u{fffd}"] {
            assert_eq!(
                parse_stat(&stat(name)),
                Some(Stat { state: b'S', parent: 40, group: 50, start_time: 220 }),
                "{name:?}"
            );
        }
        let mut bytes = stat("x");
        bytes[4] = 0xFF;
        assert!(parse_stat(&bytes).is_some(), "a name need not be UTF-8");
    }

    #[test]
    fn what_is_cut_short_is_not_understood() {
        let whole = stat("x");
        let end = whole.windows(5).position(|w| w == b" 220 ").unwrap() + 2;
        for len in 0..end {
            assert_eq!(parse_stat(&whole[..len]), None, "{len}");
        }
        assert_eq!(parse_stat(b"1 (x) SS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"), None);
    }
}
