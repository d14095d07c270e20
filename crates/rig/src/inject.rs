//! A program of which one system call fails: the Nth since it said that it begins, or since its `main` began.
//! It is traced, so that nothing stands between it and the kernel but this, whichever library makes the call.
//! x86-64 only.
//!
//! Left alone are calls of the allocator and of threads that Rust answers by an abort whatever a program does
//! (anonymous memory, signal stacks), and what goes to the standard streams.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// It fails as it does where the system has no more to give, or a device fails.
    Error,
    /// A signal has interrupted it; calls that none can interrupt are left alone.
    Interrupted,
    /// It moves half of the bytes; calls that move all or none are left alone.
    Short,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Calls that could have failed.
    pub calls: u64,
    /// The call that did: its number in the system's table.
    pub hit: Option<u64>,
    /// Its exit status; `None` after a signal.
    pub status: Option<i32>,
    /// It did not end and had to be killed, or something that it started did not end.
    pub hung: bool,
    /// What it wrote.
    pub output: String,
}

const MARK: u64 = 77;

/// Says that from here on calls may fail.
pub fn begin() {
    // SAFETY: no memory is passed; a call that always fails, and that nobody else makes.
    unsafe { libc::syscall(libc::SYS_getpriority, MARK, MARK) };
}

/// Says that from here on none fails any more.
pub fn end() {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_getpriority, MARK, 0) };
}

/// From where on calls may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The program says so: [`begin`].
    Mark,
    /// Its `main`: a Rust program has asked for a signal stack by then, and not much before.
    Main,
}

/// Runs `command`, with its `nth` call (from 1) failing if there is one. What it starts in its turn goes on
/// untouched.
pub fn run(
    command: &mut Command,
    from: Start,
    fault: InjectedFault,
    nth: Option<u64>,
    limit: Duration,
) -> Outcome {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("RUST_BACKTRACE", "0");
    // SAFETY: it only makes a system call.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let (ended, end) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let late = end.recv_timeout(limit).is_err();
        if late {
            let _ = kill(pid, Signal::SIGKILL);
        }
        late
    });
    let said = [read(child.stdout.take().unwrap()), read(child.stderr.take().unwrap())];
    let (calls, hit, status) = trace(pid, from, fault, nth);
    ended.send(()).ok();
    // The tracer has reaped it.
    let _ = child.wait();
    let mut hung = watchdog.join().unwrap();
    // Its output ends when nothing that it has started holds it any more.
    let mut output = String::new();
    for text in said {
        match text.recv_timeout(limit) {
            Ok(text) => output += &text,
            Err(_) => hung = true,
        }
    }
    Outcome { calls, hit, status, hung, output }
}

/// All that comes from a stream, when it has ended.
fn read(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (tell, all) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        tell.send(String::from_utf8_lossy(&bytes).into_owned())
    });
    all
}

fn trace(pid: Pid, from: Start, fault: InjectedFault, nth: Option<u64>) -> (u64, Option<u64>, Option<i32>) {
    waitpid(pid, None).unwrap();
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(pid, options).unwrap();
    let (mut begun, mut over) = (false, false);
    // What is over goes on at full speed.
    let go_on = |over: bool, tid: Pid, signal: Option<Signal>| match over {
        true => drop(ptrace::cont(tid, signal)),
        false => drop(ptrace::syscall(tid, signal)),
    };
    let (mut calls, mut hit, mut status) = (0, None, None);
    let mut inside = HashSet::new();
    let mut failing = HashMap::new();
    let _ = ptrace::syscall(pid, None);
    loop {
        // Only this thread's: another one may trace another program.
        match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Ok(WaitStatus::PtraceSyscall(tid)) => {
                if inside.insert(tid) {
                    if let Ok(mut regs) = ptrace::getregs(tid) {
                        if regs.orig_rax == libc::SYS_getpriority as u64 && regs.rdi == MARK {
                            (begun, over) = (regs.rsi == MARK, regs.rsi != MARK);
                        } else if regs.orig_rax == libc::SYS_sigaltstack as u64 && from == Start::Main {
                            begun = true;
                        } else if let Some(how) = spoil(&regs, fault).filter(|_| begun) {
                            calls += 1;
                            if nth == Some(calls) {
                                hit = Some(regs.orig_rax);
                                match how {
                                    How::Fails(errno) => {
                                        failing.insert(tid, errno);
                                        regs.orig_rax = u64::MAX;
                                    }
                                    How::Halved => regs.rdx /= 2,
                                }
                                let _ = ptrace::setregs(tid, regs);
                            }
                        }
                    }
                } else {
                    inside.remove(&tid);
                    if let Some(errno) = failing.remove(&tid) {
                        if let Ok(mut regs) = ptrace::getregs(tid) {
                            regs.rax = -(errno as i64) as u64;
                            let _ = ptrace::setregs(tid, regs);
                        }
                    }
                }
                go_on(over, tid, None);
            }
            // A thread begins with a stop that is nobody's signal.
            Ok(WaitStatus::Stopped(tid, Signal::SIGSTOP | Signal::SIGTRAP))
            | Ok(WaitStatus::PtraceEvent(tid, ..)) => {
                go_on(over, tid, None);
            }
            Ok(WaitStatus::Stopped(tid, signal)) => go_on(over, tid, Some(signal)),
            Ok(WaitStatus::Exited(tid, code)) if tid == pid => status = Some(code),
            Ok(_) => {}
            Err(Errno::EINTR) => {}
            Err(_) => return (calls, hit, status),
        }
    }
}

enum How {
    Fails(Errno),
    Halved,
}

/// How a call fails, if it can.
fn spoil(regs: &libc::user_regs_struct, fault: InjectedFault) -> Option<How> {
    use Errno::{EAGAIN, EINTR, EIO, EMFILE, ENOBUFS, ENOMEM, ENOSPC, EPERM};
    let call = regs.orig_rax as i64;
    let on_file = matches!(
        call,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_recvfrom
            | libc::SYS_sendto
    );
    let moves = on_file
        || matches!(
            call,
            libc::SYS_readv
                | libc::SYS_writev
                | libc::SYS_recvmsg
                | libc::SYS_sendmsg
                | libc::SYS_recvmmsg
                | libc::SYS_sendmmsg
        );
    if moves && regs.rdi <= 2 {
        return None;
    }
    let errno = match call {
        _ if moves => EIO,
        libc::SYS_socket
        | libc::SYS_socketpair
        | libc::SYS_accept4
        | libc::SYS_openat
        | libc::SYS_memfd_create
        | libc::SYS_eventfd2
        | libc::SYS_pidfd_open
        | libc::SYS_pipe2
        | libc::SYS_dup => EMFILE,
        libc::SYS_fcntl if regs.rsi == libc::F_DUPFD_CLOEXEC as u64 => EMFILE,
        libc::SYS_fcntl => EPERM,
        libc::SYS_mmap if regs.r10 & libc::MAP_ANONYMOUS as u64 == 0 => ENOMEM,
        libc::SYS_madvise if regs.rdx != libc::MADV_DONTNEED as u64 => ENOMEM,
        libc::SYS_ftruncate | libc::SYS_fallocate => ENOSPC,
        libc::SYS_bind
        | libc::SYS_listen
        | libc::SYS_connect
        | libc::SYS_getsockname
        | libc::SYS_getpeername => ENOBUFS,
        libc::SYS_getsockopt | libc::SYS_setsockopt => ENOBUFS,
        libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => EPERM,
        libc::SYS_clone | libc::SYS_clone3 => EAGAIN,
        libc::SYS_io_uring_setup => ENOMEM,
        libc::SYS_io_uring_enter if fault == InjectedFault::Error => EAGAIN,
        libc::SYS_io_uring_enter => EINTR,
        libc::SYS_poll | libc::SYS_ppoll if fault == InjectedFault::Error => ENOMEM,
        libc::SYS_poll | libc::SYS_ppoll => EINTR,
        // Only a wait: nothing interrupts a wake.
        libc::SYS_futex if matches!(regs.rsi as i32 & 0x7f, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
            EINTR
        }
        libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_getdents64 | libc::SYS_lseek => {
            EIO
        }
        libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_renameat2
        | libc::SYS_unlinkat
        | libc::SYS_linkat => EIO,
        _ => return None,
    };
    match fault {
        InjectedFault::Error => Some(How::Fails(errno)),
        InjectedFault::Interrupted => {
            let waits = moves
                || matches!(
                    call,
                    libc::SYS_accept4
                        | libc::SYS_openat
                        | libc::SYS_fallocate
                        | libc::SYS_io_uring_enter
                        | libc::SYS_poll
                        | libc::SYS_ppoll
                        | libc::SYS_futex
                );
            waits.then_some(How::Fails(EINTR))
        }
        InjectedFault::Short => (on_file && regs.rdx > 1).then_some(How::Halved),
    }
}
