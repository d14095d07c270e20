//! What programs use: a display, and the place of one of them on it.

use crate::draw;
use crate::error::DisplayError;
use crate::frame::{Frame, ViewInfo};
use crate::head;
use crate::hub::Hub;
use crate::server::Server;
use crate::status::Status;
use crate::trust::{is_token, random_token, Trust};
use crate::wants::Wants;
use crate::wire::State;
use polyduct_os::poll::EventFd;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{mpsc, Arc};
use std::thread::{Builder, JoinHandle};

/// Where a display listens.
#[derive(Clone, Default)]
pub struct Options {
    /// A name or an address; `None`: 127.0.0.1, which others cannot reach.
    pub host: Option<String>,
    /// The port; 0 for any that is free.
    pub port: u16,
    /// What every request has to bring as `?token=…`: 32 hexadecimal digits. `None`: none on loopback, and a
    /// random one elsewhere.
    pub token: Option<String>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Options { host, port, token } = self;
        let token = token.as_ref().map(|_| "…");
        f.debug_struct("Options").field("host", host).field("port", port).field("token", &token).finish()
    }
}

/// A server to which browsers come. Clones are handles of the same one; with the last of them it ends, after
/// what is on the way has gone out, for which it waits [`CATCH_UP`](crate::limits::CATCH_UP) and
/// [`LINGER`](crate::limits::LINGER) at most.
#[derive(Clone)]
pub struct Display(Arc<Inner>);

struct Inner {
    hub: Arc<Hub>,
    address: SocketAddr,
    trust: Trust,
    server: Option<JoinHandle<()>>,
    drawer: Option<JoinHandle<()>>,
}

impl Display {
    /// Listens, and serves from threads of its own: one for all connections, and one that makes pictures.
    ///
    /// # Errors
    /// [`DisplayError::Host`], [`DisplayError::Listen`], [`DisplayError::Token`]; [`DisplayError::System`]
    /// when there are no descriptors or threads.
    pub fn listen(options: &Options) -> Result<Display, DisplayError> {
        let host = options.host.as_deref().unwrap_or("127.0.0.1");
        let unbracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let no_host = |source| DisplayError::Host { host: host.into(), source };
        let mut addresses = (unbracketed, options.port).to_socket_addrs().map_err(no_host)?;
        let address = addresses.next().ok_or_else(|| no_host(io::ErrorKind::NotFound.into()))?;
        let refused = |source| DisplayError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let token = match &options.token {
            Some(token) if is_token(token) => Some(token.clone()),
            Some(token) => return Err(DisplayError::Token { found: token.len() }),
            None if address.ip().is_loopback() => None,
            None => Some(random_token()?),
        };
        let trust = Trust::new(token, options.host.clone());
        let hub = Arc::new(Hub::new()?);
        let (jobs, to_draw) = mpsc::channel();
        let (done, drawn) = mpsc::channel();
        let mut inner = Inner { hub: hub.clone(), address, trust: trust.clone(), server: None, drawer: None };
        let drawing = hub.clone();
        inner.drawer = Some(thread("polyduct-draw", move || draw::work(&to_draw, &done, &drawing))?);
        let server = Server::new(hub, listener, trust, jobs, drawn);
        inner.server = Some(thread("polyduct-display", move || server.serve())?);
        Ok(Display(Arc::new(inner)))
    }

    /// Where a name is looked at, with the token where one is needed: a secret. Where the display listens on
    /// all addresses, this machine's name stands there.
    pub fn address(&self, name: &str) -> String {
        let ip = self.0.address.ip();
        let host = match ip {
            _ if ip.is_unspecified() => this_host().unwrap_or_else(|| "localhost".into()),
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let token = self.0.trust.token().map_or(String::new(), |token| format!("?token={token}"));
        format!("http://{host}:{}/{}{token}", self.0.address.port(), head::encode(name))
    }

    /// The address that it listens at, with the port that it got.
    pub fn socket_address(&self) -> SocketAddr {
        self.0.address
    }

    /// A program takes a name. Viewers of a program before it that had the name stay, and see the new one.
    ///
    /// # Errors
    /// [`DisplayError::NameTaken`] when a program that lives has the name, [`DisplayError::TooManyNames`];
    /// [`DisplayError::Name`] and [`DisplayError::View`] for what cannot be shown; [`DisplayError::System`]
    /// without descriptors.
    pub fn enter(&self, name: &str, views: Vec<ViewInfo>) -> Result<Show, DisplayError> {
        let (program, changed) = self.0.hub.enter(name, views)?;
        Ok(Show { hub: self.0.hub.clone(), name: name.into(), program, changed })
    }

    /// What colours mean from now on to who looks at a name, of the arrays of a part of its page (of all: no name):
    /// `table`, `scale`, `mode` and `hand` of the page's looks. `false` where nothing is shown under the name.
    pub fn look(&self, name: &str, part: &str, look: serde_json::Map<String, serde_json::Value>) -> bool {
        self.0.hub.look(name, part, look)
    }

    /// What is shown, to how many, and how much of it.
    pub fn status(&self) -> Status {
        Status::of(&self.0.hub.lock())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub.lock().is_over = true;
        self.hub.signal();
        // The drawer ends when the server, which has its queue, does.
        for thread in [self.server.take(), self.drawer.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

/// One program's place on a display. Dropping it tells viewers that the program has ended; they keep what
/// they see.
pub struct Show {
    hub: Arc<Hub>,
    name: String,
    program: u64,
    changed: Arc<EventFd>,
}

impl Show {
    /// Shows a frame from now on. Never waits for a viewer, and copies no array: who is slow gets a later
    /// frame instead.
    ///
    /// # Errors
    /// [`DisplayError::UnknownView`], [`DisplayError::View`] and [`DisplayError::ViewBytes`] for a frame that
    /// is not as it was announced. Nothing of it is shown then.
    pub fn publish(&self, frame: Frame) -> Result<(), DisplayError> {
        self.hub.publish(&self.name, self.program, frame)
    }

    /// Tells viewers something of the program, which goes on.
    pub fn note(&self, what: &str) {
        self.hub.note(&self.name, self.program, what);
    }

    /// The program has died; viewers keep the last frame, and are told why.
    pub fn lost(self, why: &str) {
        self.hub.leave(&self.name, self.program, State::Lost(why.into()));
    }

    /// What viewers want to see now. [`changed`](Show::changed) is no longer readable after that.
    pub fn wants(&self) -> Wants {
        if let Err(e) = self.changed.drain() {
            tracing::warn!("what viewers want: {e}");
        }
        let places = self.hub.lock();
        let place = places.all.get(self.name.as_str()).filter(|p| p.program == self.program);
        place.map_or_else(Wants::default, |p| p.wants.wants().clone())
    }

    /// Becomes readable when what [`wants`](Show::wants) says has changed.
    pub fn changed(&self) -> BorrowedFd<'_> {
        self.changed.as_fd()
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        // After `lost` this changes nothing.
        self.hub.leave(&self.name, self.program, State::Ended);
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DisplayError> {
    let refused = |e: io::Error| {
        let errno = polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::AGAIN);
        DisplayError::System(polyduct_os::OsError::sys("start", format!("the thread {name}"), errno))
    };
    Builder::new().name(name.into()).spawn(work).map_err(refused)
}

/// This machine's name, if it leads to an address.
fn this_host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    let mut addresses = (name, 0).to_socket_addrs().ok()?;
    addresses.any(|a| a.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED)).then(|| name.to_owned())
}
