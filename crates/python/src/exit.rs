//! Ends ports that nobody closed, and domains that nobody left, when the process ends.
//!
//! Whether that is a normal end the exit status alone says. Of an uncaught `SystemExit(3)` the interpreter
//! keeps nothing but the number, in a variable of C: when it runs its `atexit` functions the exception is
//! gone, and with it the functions it came through and their ports. So a port that is dropped at that point,
//! or still open later, is left here until the C library ends the process and says the status.

use crate::guard::lock;
use polyduct::host::together;
use polyduct::message::Domain;
use polyduct::PipeError;
use polyduct::{Error, Reader, Writer};
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once};

/// A port, or a place in a domain, without its Python object.
pub enum End {
    Writer(Box<Writer>),
    Reader(Box<Reader>),
    /// A place in a domain: left in order, or with the process.
    Domain(Domain),
}

/// Ports, each with the process that opened it: a fork has copies of its parent's.
static LEFT: Mutex<Vec<(u32, End)>> = Mutex::new(Vec::new());

/// The interpreter is gone, and the process with it soon.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether the process ends. There is no interpreter to be asked then, and Ctrl-C ends the process at once.
pub fn begun() -> bool {
    BEGUN.load(Ordering::Acquire)
}

extern "C" {
    /// glibc's: `f` is called with the status when the process ends.
    fn on_exit(f: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn exit(status: c_int) -> !;
}

/// Exit status of a process that succeeded but for what it closed at its end; Python's own where flushing
/// fails there.
const NOT_CLOSED: c_int = 120;

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    BEGUN.store(true, Ordering::Release);
    // What this thread kept in thread-local variables is gone already: another one can still use its own.
    let closed = match std::thread::Builder::new().spawn(move || end_left(status == 0)) {
        Ok(thread) => thread.join().unwrap_or(false),
        Err(_) => end_left(status == 0),
    };
    if !closed {
        // SAFETY: glibc allows it in a function that it calls at exit: it calls those that are left, flushes,
        // and takes the later status.
        unsafe { exit(NOT_CLOSED) }
    }
}

/// Leaves a port to the end of the process.
pub fn leave(end: End) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: `at_exit` takes what glibc calls it with, and needs no argument. It stays in memory until
        // the process ends: Python does not unload modules.
        let registered = unsafe { on_exit(at_exit, std::ptr::null_mut()) };
        // It fails when there is no memory left. The peers then see the process end without a word.
        debug_assert_eq!(registered, 0);
    });
    lock(&LEFT).push((std::process::id(), end));
}

/// Closes the ports that were left, or aborts them. False if one should have been closed and could not be:
/// what it was to complete is not there.
fn end_left(well: bool) -> bool {
    let pid = std::process::id();
    let left = std::mem::take(&mut *lock(&LEFT));
    let (mut ours, of_parent): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|(opened_by, _)| *opened_by == pid);
    let failed = AtomicBool::new(false);
    if !well {
        for (_, end) in &mut ours {
            match end {
                End::Writer(writer) => writer.abort(),
                End::Reader(reader) => reader.abort(),
                End::Domain(domain) => domain.give_up(),
            }
        }
    } else {
        // What writers wait for may be a reader of this program.
        for (_, end) in &mut ours {
            if let End::Reader(reader) = end {
                // That the port failed before was said before.
                drop(reader.close());
            }
        }
        let mut writers: Vec<&mut Writer> = ours
            .iter_mut()
            .filter_map(|(_, end)| match end {
                End::Writer(writer) => Some(&mut **writer),
                _ => None,
            })
            .collect();
        let fault = |e: &dyn std::fmt::Display| {
            // Nobody is left to be told that standard error is closed.
            drop(writeln!(std::io::stderr(), "polyduct: when closing at exit: {e}"));
            failed.store(true, Ordering::Relaxed);
        };
        // All at once, because completing a file waits for the other units, and they may be of this process.
        // And none in this thread, whose job is the first: it may be the interpreter's main one, where alone
        // Ctrl-C would end the wait.
        let jobs = std::iter::once(None).chain(writers.iter_mut().map(Some));
        let closed = together(jobs, |writer| match writer.map_or(Ok(()), |w| w.close().map(drop)) {
            // A write said so before, and readers that want no more miss nothing.
            Ok(()) | Err(Error::Pipe(PipeError::ReadersGone { .. })) => {}
            Err(e) => fault(&e),
        });
        if let Err(e) = closed {
            fault(&e);
            writers.into_iter().for_each(Writer::abort);
        }
        for (_, end) in &mut ours {
            if let End::Domain(domain) = end {
                domain.leave().unwrap_or_else(|e| fault(&e));
            }
        }
    }
    // Arrays may still lie in the slots, and dropping the ports of a parent would close them.
    std::mem::forget((ours, of_parent));
    !failed.into_inner()
}

/// Ends the ports that were left, in a process that ends past the C library with this status. Gives the
/// status to end with.
#[pyfunction]
#[pyo3(name = "end_left")]
pub fn end_left_now(py: Python<'_>, status: c_int) -> c_int {
    match py.detach(|| end_left(status == 0)) {
        true => status,
        false => NOT_CLOSED,
    }
}

/// Whether a port that is dropped now belonged to code that ended by an exception which ends the process: no
/// code of the program is running that could have let go of it. The status of the process is not known yet.
pub fn nobody_runs(py: Python<'_>) -> bool {
    // Objects are dropped while an exception is on its way, too, and what follows must not meet it.
    let on_its_way = PyErr::take(py);
    let found = look(py).unwrap_or(false);
    if let Some(e) = on_its_way {
        e.restore(py);
    }
    found
}

fn look(py: Python<'_>) -> PyResult<bool> {
    // SAFETY: the interpreter is attached; the frame is borrowed, and there may be none.
    let frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, pyo3::ffi::PyEval_GetFrame().cast()) };
    let Some(frame) = frame else {
        // Threads that C made have no code running when they let go of something, either.
        let threading = py.import("threading")?;
        let main = threading.call_method0("main_thread")?.getattr("ident")?;
        return main.eq(threading.call_method0("get_ident")?);
    };
    // The function that catches what a child of multiprocessing raises.
    let name: String = frame.getattr("f_code")?.getattr("co_name")?.extract()?;
    if name != "_bootstrap" {
        return Ok(false);
    }
    frame.getattr("f_globals")?.get_item("__name__")?.eq("multiprocessing.process")
}
