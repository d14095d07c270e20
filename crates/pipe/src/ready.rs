//! A descriptor that can be read for as long as a port's next call would not wait, for programs that poll.
//!
//! Ports of one host wait at futexes, which nothing can poll, so a thread does. It sleeps where the port
//! would, looks at the port when something has happened, and makes the descriptor readable; then it sleeps
//! until a call of the port's owner has left a port that would wait, and made the descriptor unreadable
//! again. Ports of whom nobody wants a descriptor have neither.

use crate::watch::no_thread;
use crate::PipeError;
use polyduct_os::poll::{poll, EventFd, PollItem};
use polyduct_os::sync::Line;
use polyduct_os::{fork, process::own_pid, OsError};
use polyduct_slots::{bell::ring, bell::Sleeper, Slots};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How soon a port is looked at again where the system gives no descriptor to sleep at.
const AGAIN: Duration = Duration::from_millis(10);

/// What a port waits for, if its next call would.
#[derive(Default)]
pub struct Wait {
    /// Connections, each with whether it is to be written to, too.
    sockets: Vec<(OwnedFd, bool)>,
    /// After this time the port is to be looked at, whatever happens.
    most: Option<Duration>,
}

impl Wait {
    /// Has the port looked at when a connection can be read, or written if `writes`. The port may close it
    /// meanwhile.
    pub(crate) fn at(&mut self, socket: &impl AsFd, writes: bool) {
        match socket.as_fd().try_clone_to_owned() {
            Ok(copy) => {
                // A child of this process must not keep the connection.
                fork::keep(&copy);
                self.sockets.push((copy, writes));
            }
            Err(_) => self.within(Some(AGAIN)),
        }
    }

    /// Has the port looked at after this time at the latest.
    pub(crate) fn within(&mut self, most: Option<Duration>) {
        self.most = self.most.into_iter().chain(most).min();
    }
}

/// Where a port's waits end.
pub struct Watch(Kind);

enum Kind {
    /// The units ring where they share memory.
    Bell(Slots, fn(&Slots) -> &Line),
    /// At the connections of a [`Wait`]; or this process calls.
    Sockets(EventFd),
}

impl Watch {
    pub(crate) fn at_bell(slots: &Slots, bell: fn(&Slots) -> &Line) -> Watch {
        Watch(Kind::Bell(slots.clone(), bell))
    }

    pub(crate) fn at_sockets() -> Result<Watch, OsError> {
        EventFd::new().map(|woken| Watch(Kind::Sockets(woken)))
    }

    /// Looks, and sleeps if the port would wait, until something has happened since the look began. It may
    /// end early.
    fn sleep_unless(&self, look: impl FnOnce() -> Option<Wait>) {
        match &self.0 {
            Kind::Bell(slots, bell) => {
                let sleeper = Sleeper::at(bell(slots));
                let mut most = None;
                let looked = sleeper.look(|| match look() {
                    Some(wait) => {
                        most = wait.most;
                        None
                    }
                    None => Some(()),
                });
                if let Err(seen) = looked {
                    sleeper.sleep(seen, most);
                }
            }
            Kind::Sockets(woken) => {
                let Some(wait) = look() else { return };
                let mut items: Vec<_> = wait
                    .sockets
                    .iter()
                    .map(|(fd, writes)| if *writes { PollItem::both(fd) } else { PollItem::readable(fd) })
                    .chain([PollItem::readable(woken)])
                    .collect();
                // One that fails is an early end.
                let _ = poll(&mut items, wait.most);
                let _ = woken.drain();
            }
        }
    }

    /// Ends the sleep.
    fn wake(&self) {
        match &self.0 {
            Kind::Bell(slots, bell) => ring(bell(slots)),
            Kind::Sockets(woken) => drop(woken.signal()),
        }
    }
}

/// The descriptor of one port.
pub struct Ready {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// A fork has no copy of the thread.
    pid: u32,
}

struct Shared {
    fd: EventFd,
    /// `None` for a port that never waits.
    watch: Option<Watch>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_set: bool,
    is_over: bool,
}

impl Ready {
    /// Of a port in a `Mutex`, of which `would_wait` says what it would wait for now. Without a [`Watch`] it
    /// never waits.
    ///
    /// After each call that may have changed the answer the port's owner calls [`look`](Ready::look), while
    /// it has the lock, and in the end [`end`](Ready::end).
    ///
    /// # Errors
    /// The system's refusal of a descriptor or a thread.
    pub fn new<P: Send + 'static>(
        url: &str,
        watch: Option<Watch>,
        port: Arc<Mutex<P>>,
        would_wait: fn(&mut P) -> Option<Wait>,
    ) -> Result<Ready, PipeError> {
        let fd = EventFd::new().map_err(crate::join::system(url))?;
        let shared = Arc::new(Shared { fd, watch, state: Mutex::default(), changed: Condvar::new() });
        let watched = shared.clone();
        let thread = match &shared.watch {
            Some(_) => {
                let named = Builder::new().name("polyduct-ready".into());
                Some(named.spawn(move || watched.run(&port, would_wait)).map_err(no_thread(url))?)
            }
            None => {
                shared.set(true);
                None
            }
        };
        Ok(Ready { shared, thread: Mutex::new(thread), pid: own_pid() })
    }

    /// The number of the descriptor, which is there for as long as this is. To be polled, not read.
    pub fn fd(&self) -> RawFd {
        self.shared.fd.as_fd().as_raw_fd()
    }

    /// Notes whether the port's next call would wait.
    pub fn look(&self, would_wait: impl FnOnce() -> Option<Wait>) {
        let Some(watch) = self.shared.watch.as_ref().filter(|_| self.is_ours()) else { return };
        let wait = would_wait();
        self.shared.set(wait.is_none());
        // The thread may sleep at what the port waited for before. At a bell everything is heard, but the
        // time.
        let is_other = |wait: Wait| wait.most.is_some() || matches!(watch.0, Kind::Sockets(_));
        if wait.is_some_and(is_other) {
            watch.wake();
        }
    }

    /// The port has ended: its calls fail at once, and the descriptor stays readable.
    pub fn end(&self) {
        if !self.is_ours() {
            return;
        }
        lock(&self.shared.state).is_over = true;
        self.shared.set(true);
        self.shared.changed.notify_all();
        if let Some(watch) = &self.shared.watch {
            watch.wake();
        }
        let thread = lock(&self.thread).take();
        drop(thread.map(JoinHandle::join));
    }

    fn is_ours(&self) -> bool {
        self.pid == own_pid()
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.end();
        if !self.is_ours() {
            std::mem::forget(lock(&self.thread).take());
        }
    }
}

impl Shared {
    /// Makes the descriptor readable, or not.
    fn set(&self, is_ready: bool) {
        let mut state = lock(&self.state);
        if state.is_over && !is_ready || state.is_set == is_ready {
            return;
        }
        state.is_set = is_ready;
        // These fail only where the program has closed the descriptor.
        let _ = match is_ready {
            true => self.fd.signal(),
            false => self.fd.drain().map(drop),
        };
        self.changed.notify_all();
    }

    /// Watches the port.
    fn run<P>(&self, port: &Mutex<P>, would_wait: fn(&mut P) -> Option<Wait>) {
        while self.wait_for_work() {
            let Some(watch) = &self.watch else { return };
            watch.sleep_unless(|| {
                let mut port = lock(port);
                if lock(&self.state).is_over {
                    return None;
                }
                let wait = would_wait(&mut port);
                self.set(wait.is_none());
                wait
            });
        }
    }

    /// Waits until the descriptor is not readable; false once the port has ended.
    fn wait_for_work(&self) -> bool {
        let state = self.changed.wait_while(lock(&self.state), |state| state.is_set && !state.is_over);
        !state.unwrap_or_else(PoisonError::into_inner).is_over
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
