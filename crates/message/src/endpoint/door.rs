//! The thread of an endpoint: others of its host come to its socket and hand over links, and it sees who ends.

use super::place::{Place, PLACE_BYTES};
use crate::domain::host_map::HostId;
use crate::domain::lock;
use crate::handshake::{no_descriptor, Bad, ENDPOINT};
use crate::link::shm::{Bell, Link, Sizes};
use crate::meeting::{ConnId, Connections, Heard, Shared as SharedFd};
use crate::MessageError;
use polyduct_os::poll::{EventFd, PollItem};
use polyduct_os::process::PidFd;
use polyduct_os::socket::{Conn, Listener, Sent};
use polyduct_os::{Errno, OsError};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The largest segment of a link that is taken.
const MAX_SEGMENT: usize = 1 << 30;

/// What endpoints of a host say to each other.
#[derive(Debug, Serialize, Deserialize)]
enum Say {
    /// Who comes; with it, its bell and the segment of its link. It sends at once, and waits for no answer.
    Link(Vec<u8>),
    /// The bell of who was come to.
    Bell,
}

/// What is new to the endpoint.
pub(super) enum Arrival {
    /// Another endpoint has come, and sends by this link.
    Link {
        /// Which.
        place: Place,
        /// The link.
        link: Link,
        /// Its process, where the system gives a descriptor of it.
        process: Option<PidFd>,
    },
    /// One that was come to has answered.
    Bell {
        /// By the number that it drew.
        draw: u64,
        /// Where it sleeps.
        bell: Bell,
        /// Its process, where the system gives a descriptor of it.
        process: Option<PidFd>,
    },
    /// One has ended.
    Gone(u64),
}

/// What the endpoint and its thread share.
struct Common {
    wake: EventFd,
    over: AtomicBool,
    has_news: AtomicBool,
    news: Mutex<Vec<Arrival>>,
    /// Connections that the endpoint has made.
    made: Mutex<Vec<(Conn, u64)>>,
    bell: Arc<Bell>,
}

/// The running thread; ends when dropped.
pub(super) struct Door {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Listens where others of this host look for the endpoint.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn open(place: &Place, sizes: Sizes, bell: Arc<Bell>) -> Result<Door, MessageError> {
        let connections = Connections::new(Listener::bind(&place.socket())?, ENDPOINT);
        let common = Arc::new(Common {
            wake: EventFd::new()?,
            over: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            news: Mutex::default(),
            made: Mutex::default(),
            bell,
        });
        let server =
            Server { common: common.clone(), connections, sizes, host: place.host, known: HashMap::new() };
        let spawned = std::thread::Builder::new().name("polyduct-door".into()).spawn(move || server.run());
        let thread = spawned.map_err(|e| OsError::System {
            op: "spawn",
            what: "an endpoint's thread".into(),
            errno: Errno::from_io_error(&e).unwrap_or(Errno::AGAIN),
        })?;
        Ok(Door { common, thread: Some(thread) })
    }

    /// Comes to another endpoint of this host, and hands over a link. `false`: too many wait there; later.
    ///
    /// # Errors
    /// Nobody is there, or not of this user; what the system refuses.
    pub fn call(&self, me: &Place, to: &Place, link: &Link) -> Result<bool, OsError> {
        let conn = match Conn::connect(&to.socket()) {
            Err(OsError::ListenerBusy { .. }) => return Ok(false),
            conn => conn?,
        };
        if conn.stranger()?.is_some() {
            return Err(OsError::NotListening { name: format!("endpoint {:016x}", to.draw) });
        }
        let hello = ENDPOINT.encode(&Say::Link(me.to_bytes().to_vec()))?;
        match hello.send(&conn, &[self.common.bell.fd(), link.fd()]) {
            Ok(Sent::Done) => {}
            Ok(Sent::WouldBlock) | Err(OsError::TooManyInFlight { .. }) => return Ok(false),
            Err(e) => return Err(e),
        }
        lock(&self.common.made).push((conn, to.draw));
        let _ = self.common.wake.signal();
        Ok(true)
    }

    /// Whether there is something new.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.common.has_news.load(Ordering::Relaxed)
    }

    /// What is new.
    pub fn news(&self) -> Vec<Arrival> {
        self.common.has_news.store(false, Ordering::Relaxed);
        std::mem::take(&mut *lock(&self.common.news))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.common.over.store(true, Ordering::Release);
        let _ = self.common.wake.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    common: Arc<Common>,
    connections: Connections,
    sizes: Sizes,
    host: Option<HostId>,
    /// Who is at the other end.
    known: HashMap<ConnId, u64>,
}

impl Server {
    fn run(mut self) {
        loop {
            let items = vec![PollItem::readable(&self.common.wake)];
            // A failing poll (no memory) ends the watch: nobody comes any more.
            let Ok(ready) = self.connections.wait(items, None) else { return };
            if self.common.over.load(Ordering::Acquire) {
                return;
            }
            if ready.others[0] {
                let _ = self.common.wake.drain();
                let made = std::mem::take(&mut *lock(&self.common.made));
                for (conn, draw) in made {
                    let id = self.connections.adopt(conn);
                    self.connections.admit(id);
                    self.known.insert(id, draw);
                    self.serve(id);
                }
            }
            ready.conns.into_iter().for_each(|id| self.serve(id));
            if ready.knocked {
                // Who finds no descriptor left is hung up on, and counts as one that has ended.
                let refuse = |error: &OsError| tracing::warn!(%error, "another process was hung up on");
                while let Some(id) = self.connections.accept(refuse) {
                    self.serve(id);
                }
            }
        }
    }

    fn serve(&mut self, id: ConnId) {
        loop {
            let arrival = match self.connections.hear::<Say>(id) {
                Heard::Message(say, fds) => match self.take(id, say, fds) {
                    Some(arrival) => arrival,
                    None => return self.end(id),
                },
                Heard::Nothing => return,
                Heard::Gone => return self.end(id),
                Heard::Bad(bad) => {
                    match bad {
                        Bad::NoDescriptor => {
                            let error = no_descriptor();
                            tracing::warn!(%error, "a link of another process is not taken");
                        }
                        _ => tracing::warn!("what another process says is not understood"),
                    }
                    return self.end(id);
                }
            };
            self.tell(arrival);
        }
    }

    fn take(&mut self, id: ConnId, say: Say, fds: Vec<OwnedFd>) -> Option<Arrival> {
        let mut fds = fds.into_iter();
        let bell = Bell::attach(fds.next()?).ok()?;
        match (say, fds.next()) {
            (Say::Link(place), Some(segment)) if place.len() == PLACE_BYTES => {
                let place = Place::from_bytes(&place).filter(|place| place.host == self.host)?;
                let link = Link::attach(segment, MAX_SEGMENT, &self.sizes);
                let refuse = |error: &_| tracing::warn!(%error, "a link of another process is not taken");
                let link = link.inspect_err(refuse).ok()?;
                link.ring_at(Arc::new(bell), 0);
                let own = self.common.bell.fd().as_fd().try_clone_to_owned().ok()?;
                self.connections.send(id, &Say::Bell, vec![SharedFd::new(own)]);
                self.connections.admit(id);
                self.known.insert(id, place.draw);
                Some(Arrival::Link { place, link, process: self.process(id) })
            }
            (Say::Bell, None) => {
                Some(Arrival::Bell { draw: *self.known.get(&id)?, bell, process: self.process(id) })
            }
            _ => None,
        }
    }

    fn process(&self, id: ConnId) -> Option<PidFd> {
        self.connections.process(id).and_then(|process| process.try_clone().ok())
    }

    fn end(&mut self, id: ConnId) {
        self.connections.drop(id);
        if let Some(draw) = self.known.remove(&id) {
            self.tell(Arrival::Gone(draw));
        }
    }

    fn tell(&self, arrival: Arrival) {
        let mut news = lock(&self.common.news);
        news.push(arrival);
        self.common.has_news.store(true, Ordering::Relaxed);
        drop(news);
        self.common.bell.calls().ring();
    }
}
