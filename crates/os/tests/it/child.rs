//! A second process for a test: the same test again, in a process of its own, joined to the first by a
//! connection.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::{Conn, Listener, Received, Sent};

const NAME: &str = "POLYDUCT_OS_TEST_NAME";
/// Nothing here takes long; who waits longer waits for ever.
pub const WATCHDOG: Duration = Duration::from_secs(30);

/// A process of this test, killed when the test is over.
pub struct Kid {
    process: Child,
    pub conn: Conn,
}

/// A name that no other test has.
pub fn fresh_name() -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("polyduct-os-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).into_bytes()
}

/// Between its fork and its exec a new process holds a copy of every descriptor of this one: a test that asks
/// whether its last copy is gone keeps other tests from starting processes meanwhile.
pub fn no_new_process() -> MutexGuard<'static, ()> {
    static STARTS: Mutex<()> = Mutex::new(());
    STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts `test` (its full name) in a process of its own, where [`here`] answers.
pub fn start(test: &str) -> Kid {
    let name = fresh_name();
    let listener = Listener::bind(&name).unwrap();
    let starting = no_new_process();
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(NAME, std::str::from_utf8(&name).unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop(starting);
    assert_eq!(poll(&mut [PollItem::readable(&listener)], Some(WATCHDOG)), Ok(1), "the child never came");
    Kid { process, conn: listener.accept().unwrap().unwrap() }
}

/// In a process made by [`start`], the connection to the test that made it.
pub fn here() -> Option<Conn> {
    let name = std::env::var(NAME).ok()?;
    Some(Conn::connect(name.as_bytes()).unwrap())
}

impl Kid {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL, and the zombie reaped.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// SIGKILL, and the zombie left.
    pub fn kill_unreaped(&mut self) {
        self.process.kill().unwrap();
        assert_eq!(poll(&mut [PollItem::hangup(&self.conn)], Some(WATCHDOG)), Ok(1));
    }

    /// How it ended, or ends.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }

    /// Waits for the child's own end, which must be a success.
    pub fn join(mut self) {
        assert!(hear(&self.conn).is_none(), "the child had more to say");
        assert!(self.process.wait().unwrap().success(), "the child failed");
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn say(conn: &Conn, message: &[u8], fds: &[BorrowedFd<'_>]) {
    assert_eq!(conn.send(message, fds), Ok(Sent::Done));
}

/// The next message, waiting for it; `None` at the end.
pub fn hear(conn: &Conn) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut buffer = vec![0; 4096];
    loop {
        match conn.recv(&mut buffer).unwrap() {
            Received::Message { len, fds } => return Some((buffer[..len].to_vec(), fds)),
            Received::Closed => return None,
            Received::WouldBlock => {
                assert_eq!(poll(&mut [PollItem::readable(conn)], Some(WATCHDOG)), Ok(1), "nothing came");
            }
        }
    }
}
