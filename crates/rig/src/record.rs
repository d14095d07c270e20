//! Records what a program does to the files below a directory, call by call, by tracing it, so that nothing
//! stands in for the program or for the order of its calls. x86-64 only.
//!
//! It is refused io_uring, whose writes no call tells of. Calls that are not known here, and would change a
//! file, are a panic.

use crate::cuts::{Event, NodeId, Recording, Tree};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// No user or process, to which `getpriority` can be asked for.
const MARK: u64 = 78;
/// The longest path.
const PATH: usize = 4096;

/// Says, in the program, that from here on what it does is recorded: what is there is durable.
pub fn begin() {
    told(0);
}

/// Says, in the program, that it knows something to be durable: the number is in the recording.
pub fn told(what: u32) {
    // SAFETY: no memory is passed; a call that always fails, and that nobody else makes.
    unsafe { libc::syscall(libc::SYS_getpriority, MARK, u64::from(what)) };
}

/// Runs a program to its end and records what it does below `root`, a path without links, once it has
/// [begun](begin).
///
/// # Panics
/// If it does not begin, or ends in an error.
pub fn record(command: &mut Command, root: &Path) -> Recording {
    command.stdin(Stdio::null());
    // SAFETY: it only makes a system call.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    waitpid(pid, None).unwrap();
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(pid, options).unwrap();
    let mut tracer = Tracer {
        pid,
        root: root.to_owned(),
        memory: File::open(format!("/proc/{pid}/mem")).unwrap(),
        nodes: HashMap::new(),
        next: 0,
        recording: None,
    };
    let _ = ptrace::syscall(pid, None);
    let (mut inside, mut status) = (HashMap::new(), None);
    let mut refused = HashSet::new();
    loop {
        // Only this thread's: another one may trace another program.
        match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Ok(WaitStatus::PtraceSyscall(tid)) => {
                let Ok(mut regs) = ptrace::getregs(tid) else { continue };
                match inside.remove(&tid) {
                    None => {
                        inside.insert(tid, tracer.enters(&regs));
                        if regs.orig_rax as i64 == libc::SYS_io_uring_setup {
                            refused.insert(tid);
                            regs.orig_rax = u64::MAX;
                            let _ = ptrace::setregs(tid, regs);
                        }
                    }
                    Some(call) => {
                        if refused.remove(&tid) {
                            regs.rax = -i64::from(libc::ENOSYS) as u64;
                            let _ = ptrace::setregs(tid, regs);
                        }
                        tracer.leaves(call, regs.rax as i64);
                    }
                }
                let _ = ptrace::syscall(tid, None);
            }
            // A thread begins with a stop that is nobody's signal.
            Ok(WaitStatus::Stopped(tid, Signal::SIGSTOP | Signal::SIGTRAP))
            | Ok(WaitStatus::PtraceEvent(tid, ..)) => drop(ptrace::syscall(tid, None)),
            Ok(WaitStatus::Stopped(tid, signal)) => drop(ptrace::syscall(tid, Some(signal))),
            Ok(WaitStatus::Exited(tid, code)) if tid == pid => {
                status = Some(code);
                break;
            }
            Ok(WaitStatus::Signaled(tid, ..)) if tid == pid => break,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => panic!("{e}"),
        }
    }
    // The tracer has reaped it.
    let _ = child.wait();
    assert_eq!(status, Some(0), "the program that was recorded");
    tracer.recording.expect("it has begun")
}

/// A call that changes files, as far as it is known when it begins.
enum Call {
    Other,
    /// The file that is open under this number, and how many bytes; at the place that the file is at where
    /// none is said.
    Write {
        fd: u64,
        bytes: Vec<u8>,
        at: Option<u64>,
    },
    /// A file or a directory comes to be.
    Make {
        path: PathBuf,
    },
    /// A file that is there has nothing in it any more.
    Empty {
        path: PathBuf,
    },
    /// A further name, or the first one, of a file that is there.
    Link {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        swaps: bool,
    },
    Unname {
        path: PathBuf,
    },
    Length {
        fd: u64,
        len: u64,
        grows: bool,
    },
    Sync {
        fd: u64,
        seen: usize,
    },
}

struct Tracer {
    pid: Pid,
    root: PathBuf,
    memory: File,
    /// Devices and inodes.
    nodes: HashMap<(u64, u64), NodeId>,
    next: NodeId,
    recording: Option<Recording>,
}

impl Tracer {
    fn enters(&mut self, regs: &libc::user_regs_struct) -> Call {
        let (number, a, b, c, d) = (regs.orig_rax as i64, regs.rdi, regs.rsi, regs.rdx, regs.r10);
        if number == libc::SYS_getpriority && a == MARK {
            match &mut self.recording {
                Some(recording) => recording.events.push(Event::Told(b as u32)),
                None => {
                    let root = self.root.clone();
                    let base = self.read_tree(&root);
                    self.recording = Some(Recording { base, events: Vec::new() });
                }
            }
        }
        let Some(recording) = &self.recording else { return Call::Other };
        let seen = recording.events.len();
        let cwd = libc::AT_FDCWD as u64;
        let opens = |path: Option<PathBuf>, flags: u64| match path {
            Some(path) if flags & libc::O_CREAT as u64 != 0 && path.symlink_metadata().is_err() => {
                Call::Make { path }
            }
            Some(path) if flags & libc::O_TRUNC as u64 != 0 => Call::Empty { path },
            _ => Call::Other,
        };
        let made = |path: Option<PathBuf>| path.map_or(Call::Other, |path| Call::Make { path });
        let linked = |path: Option<PathBuf>| path.map_or(Call::Other, |path| Call::Link { path });
        let unnamed = |path: Option<PathBuf>| path.map_or(Call::Other, |path| Call::Unname { path });
        let renamed = |from: Option<PathBuf>, to: Option<PathBuf>, flags: u64| match (from, to) {
            (Some(from), Some(to)) => Call::Rename { from, to, swaps: flags & 2 != 0 },
            (None, None) => Call::Other,
            moved => panic!("moved out of the directory or into it: {moved:?}"),
        };
        match number {
            libc::SYS_write if self.is_watched(a) => Call::Write { fd: a, bytes: self.bytes(b, c), at: None },
            libc::SYS_pwrite64 if self.is_watched(a) => {
                Call::Write { fd: a, bytes: self.bytes(b, c), at: Some(d) }
            }
            libc::SYS_open => opens(self.path(cwd, a), b),
            libc::SYS_openat => opens(self.path(a, b), c),
            libc::SYS_openat2 => {
                let flags = self.bytes(c, 8).try_into().map_or(0, u64::from_ne_bytes);
                opens(self.path(a, b), flags)
            }
            libc::SYS_mkdir => made(self.path(cwd, a)),
            libc::SYS_mkdirat => made(self.path(a, b)),
            libc::SYS_link => linked(self.path(cwd, b)),
            libc::SYS_linkat => linked(self.path(c, d)),
            libc::SYS_rename => renamed(self.path(cwd, a), self.path(cwd, b), 0),
            libc::SYS_renameat => renamed(self.path(a, b), self.path(c, d), 0),
            libc::SYS_renameat2 => renamed(self.path(a, b), self.path(c, d), regs.r8),
            libc::SYS_unlink | libc::SYS_rmdir => unnamed(self.path(cwd, a)),
            libc::SYS_unlinkat => unnamed(self.path(a, b)),
            libc::SYS_fsync | libc::SYS_fdatasync if self.is_watched(a) => Call::Sync { fd: a, seen },
            libc::SYS_ftruncate if self.is_watched(a) => Call::Length { fd: a, len: b, grows: false },
            libc::SYS_fallocate if self.is_watched(a) && b == 0 => {
                Call::Length { fd: a, len: c + d, grows: true }
            }
            libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendfile
            | libc::SYS_splice
                if self.is_watched(a) =>
            {
                panic!("call {number} is not recorded")
            }
            libc::SYS_copy_file_range if self.is_watched(c) => panic!("call {number} is not recorded"),
            _ => Call::Other,
        }
    }

    fn leaves(&mut self, call: Call, came: i64) {
        if came < 0 {
            return;
        }
        let event = match call {
            Call::Other => return,
            Call::Write { fd, mut bytes, at } => {
                bytes.truncate(came as usize);
                let node = self.open_node(fd);
                let at = at.unwrap_or_else(|| self.position(fd) - came as u64);
                Event::Write { node, at, bytes }
            }
            Call::Length { fd, len, grows } => Event::Length { node: self.open_node(fd), len, grows },
            Call::Sync { fd, seen } => Event::Sync { node: self.open_node(fd), seen },
            Call::Empty { path } => {
                let there = path.metadata().unwrap();
                Event::Length { node: self.node(&there), len: 0, grows: false }
            }
            Call::Make { path } => {
                let there = path.symlink_metadata().unwrap();
                // Numbers of inodes that are gone are given again.
                self.nodes.remove(&(there.dev(), there.ino()));
                self.named(&path, &there)
            }
            Call::Link { path } => {
                let there = path.symlink_metadata().unwrap();
                self.named(&path, &there)
            }
            Call::Rename { from, to, swaps } => {
                let path = to.clone();
                let ((dir, from), (other, to)) = (self.place(&from), self.place(&to));
                if dir != other {
                    assert!(!swaps, "places in two directories are changed");
                    // Each directory has its half, and may have it without the other.
                    let named = self.named(&path, &path.symlink_metadata().unwrap());
                    self.note(named);
                    return self.note(Event::Unname { dir, name: from });
                }
                Event::Rename { dir, from, to, swaps }
            }
            Call::Unname { path } => {
                let (dir, name) = self.place(&path);
                Event::Unname { dir, name }
            }
        };
        self.note(event);
    }

    fn note(&mut self, event: Event) {
        if let Some(recording) = &mut self.recording {
            recording.events.push(event);
        }
    }

    fn named(&mut self, path: &Path, there: &Metadata) -> Event {
        let (dir, name) = self.place(path);
        Event::Name { dir, name, node: self.node(there), is_dir: there.is_dir() }
    }

    fn bytes(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        let n = self.memory.read_at(&mut bytes, at).unwrap_or(0);
        bytes.truncate(n);
        bytes
    }

    fn descriptor(&self, fd: u64) -> PathBuf {
        match fd as i32 {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.pid).into(),
            fd => format!("/proc/{}/fd/{fd}", self.pid).into(),
        }
    }

    fn is_watched(&self, fd: u64) -> bool {
        std::fs::read_link(self.descriptor(fd)).is_ok_and(|path| path.starts_with(&self.root))
    }

    /// The path that a call names, if it is of what is watched.
    fn path(&self, dir: u64, at: u64) -> Option<PathBuf> {
        let mut bytes = self.bytes(at, PATH as u64);
        // What lies behind it may not be there.
        if bytes.is_empty() {
            bytes = self.bytes(at, PATH as u64 - at % PATH as u64);
        }
        let end = bytes.iter().position(|&byte| byte == 0)?;
        bytes.truncate(end);
        let path = std::fs::read_link(self.descriptor(dir)).ok()?.join(OsString::from_vec(bytes));
        let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
        path.starts_with(&self.root).then_some(path)
    }

    fn position(&self, fd: u64) -> u64 {
        let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.pid)).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("pos:")).unwrap();
        line.trim().parse().unwrap()
    }

    fn open_node(&mut self, fd: u64) -> NodeId {
        let there = std::fs::metadata(self.descriptor(fd)).unwrap();
        self.node(&there)
    }

    fn node(&mut self, of: &Metadata) -> NodeId {
        *self.nodes.entry((of.dev(), of.ino())).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// The directory of a path, and its name there.
    fn place(&mut self, path: &Path) -> (NodeId, OsString) {
        let dir = path.parent().unwrap().metadata().unwrap();
        (self.node(&dir), path.file_name().unwrap().to_owned())
    }

    fn read_tree(&mut self, root: &Path) -> Tree {
        let mut tree = Tree::new(self.node(&root.metadata().unwrap()));
        let mut left = vec![root.to_owned()];
        while let Some(dir) = left.pop() {
            let id = self.node(&dir.metadata().unwrap());
            for entry in std::fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let there = path.symlink_metadata().unwrap();
                let name = path.file_name().unwrap().to_owned();
                let node = self.node(&there);
                match there.is_dir() {
                    true => {
                        tree.add_dir(id, name, node);
                        left.push(path);
                    }
                    false => tree.add_file(id, name, node, std::fs::read(&path).unwrap()),
                }
            }
        }
        tree
    }
}
