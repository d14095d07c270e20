//! Joining a pipe: how a unit that is not the writer's unit 0 comes in.

use crate::error::{PipeError, Refusal};
use crate::serve::HOST;
use crate::wire::{self, FromHost, Hello, ToHost, Welcome, PROTOCOL, SEGMENTS_AT_ONCE};
use polyduct_message::handshake::{no_descriptor, Bad, Incoming};
use polyduct_message::link::key::random;
use polyduct_os::{
    clock,
    poll::{poll, PollItem},
    process::{number_space, ProcessId},
    socket::{Conn, Sent, MESSAGE_LIMIT},
    Errno, OsError,
};
use polyduct_port::{Options, PortError, PortName, UnitName};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// How often the name is tried while nobody serves it, at first and at most.
pub(crate) const RETRY: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(20));
/// Why two programs may wait for each other, as the end of a sentence.
pub(crate) const ORDER: &str = "; programs that open several pipes must all open them in the same order";
/// How often a wait looks for an interrupt.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// How much longer than unit 0 the others wait.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// A connection to unit 0 in the time before data flows.
pub struct Joining<'a> {
    conn: Conn,
    pipe: &'a str,
    options: &'a Options,
    start: Duration,
    buffer: Vec<u8>,
    /// What unit 0 has said of whether another may come in its place; nothing before it has noted this unit.
    writers_wait: Option<bool>,
    hung_up: bool,
}

/// The abstract socket name of a pipe of a job; an empty job is none.
pub fn socket_name(uid: u32, job: &str, pipe: &str) -> Vec<u8> {
    if job.is_empty() {
        return format!("polyduct/{uid}/{pipe}").into_bytes();
    }
    // FNV-1a of both: jobs may be called anything. As much of the name as has room follows, for people who look.
    let bytes = job.bytes().chain([0]).chain(pipe.bytes());
    let both = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let shown = &pipe[..pipe.len().min(SHOWN)];
    format!("polyduct/{uid}/@{both:016x}/{shown}").into_bytes()
}

/// Characters of a pipe's name that its socket shows in a job.
const SHOWN: usize = 60;

/// Names that begin so are those of domains and files, whose sockets stand beside those of pipes.
const TAKEN: [&str; 2] = ["domain/", "file/"];

/// Whether a pipe may have this name: 1 to 80 letters, digits, `.`, `_`, `-`, `/`, and not that of a domain or a file.
pub fn check_name(pipe: &str) -> Result<(), PipeError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let taken = TAKEN.iter().any(|taken| pipe.starts_with(taken));
    if (1..=80).contains(&pipe.len()) && pipe.chars().all(good) && !taken {
        return Ok(());
    }
    Err(PipeError::Port(PortError::BadOption {
        port: None,
        option: "pipe name",
        found: format!("{:?}", pipe.chars().take(100).collect::<String>()),
        expected: "1 to 80 letters, digits, '.', '_', '-' or '/', that begin with neither domain/ nor file/"
            .into(),
    }))
}

/// What tells this pipe from others of its name, before and after it: see [`Welcome::id`](crate::wire::Welcome::id).
pub fn fresh_id() -> Result<[u8; 16], OsError> {
    let mut id = [0; 16];
    random(&mut id)?;
    Ok(id)
}

/// The system's refusal, in terms of a pipe.
pub fn system(pipe: &str) -> impl Fn(OsError) -> PipeError + '_ {
    move |source| PipeError::System { pipe: pipe.to_owned(), unit: None, source }
}

/// No descriptor is left to keep `what` with.
pub fn not_duplicated(pipe: &str, what: &str, error: &std::io::Error) -> PipeError {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    system(pipe)(OsError::sys("dup", what, errno))
}

/// What a unit says of itself.
pub fn hello(options: &Options, layout: &str, role: wire::Role) -> Result<Hello, OsError> {
    Ok(Hello {
        program: options.program.clone(),
        unit: options.unit,
        units: options.units,
        layout: layout.to_owned(),
        pid: std::process::id(),
        space: number_space(),
        start_time: ProcessId::current()?.start_time,
        on_loss: options.on_loss,
        role,
        rejoin: None,
    })
}

impl<'a> Joining<'a> {
    /// Connects to unit 0 of the writers, waiting for it to serve the name, and joins by what `join` says to it. Where that one
    /// was about to leave, or is lost and may be replaced, it is said again to the next.
    pub fn with<T>(
        pipe: &'a str,
        options: &'a Options,
        mut join: impl FnMut(&mut Joining<'a>) -> Result<T, PipeError>,
    ) -> Result<(T, Conn), PipeError> {
        let start = clock::now();
        let (mut pause, mut before) = (RETRY.0, String::new());
        loop {
            let job = match options.job.is_empty() {
                true => String::new(),
                false => format!(" in job {:?} (see POLYDUCT_JOB)", options.job),
            };
            let what = format!("{HOST} to open the pipe{job}{before}{ORDER}");
            let conn = connect(pipe, options, start, &what, &mut pause)?;
            let pid = conn.peer().map_or(0, |p| p.pid);
            let buffer = vec![0; MESSAGE_LIMIT];
            let mut joining =
                Joining { conn, pipe, options, start, buffer, writers_wait: None, hung_up: false };
            match join(&mut joining) {
                Ok(joined) => return Ok((joined, joining.conn)),
                Err(error) if joining.comes_again(&error) => {
                    before = format!(" (process {pid} had it open, and has ended it)");
                    check_patience(pipe, options, start, Duration::ZERO, &what)?;
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(RETRY.1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether another unit 0 may come that takes this unit in.
    fn comes_again(&self, error: &PipeError) -> bool {
        let over = matches!(error, PipeError::Refused { reason: Refusal::Over, .. });
        over || self.hung_up && self.writers_wait != Some(false)
    }

    /// Says hello, and waits until all units have come: what unit 0 says of the pipe, its control segment, and whatever else
    /// comes along.
    pub fn welcome(
        &mut self,
        hello: &Hello,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Welcome, OwnedFd, Vec<OwnedFd>), PipeError> {
        self.send(&ToHost::Hello(hello.clone()), fds)?;
        loop {
            match self.receive("all other units")? {
                (FromHost::Noted { writers_wait }, _) => self.writers_wait = Some(writers_wait),
                (FromHost::Welcome(welcome), mut fds) if !fds.is_empty() => {
                    // Writers whose readers come and go may leave in good order at any time.
                    self.writers_wait = (!welcome.readers.is_empty()).then_some(welcome.writers_wait);
                    return Ok((welcome, fds.remove(0), fds));
                }
                (FromHost::Welcome(_), _) => {
                    return Err(self.bad("a welcome without a control segment"));
                }
                _ => return Err(self.bad("no welcome")),
            }
        }
    }

    /// The slots of these writer units.
    pub fn slots(&mut self, units: &[u32]) -> Result<Vec<OwnedFd>, PipeError> {
        let mut slots = Vec::with_capacity(units.len());
        // Few at a time, so that what is on its way stays small.
        for chunk in units.chunks(SEGMENTS_AT_ONCE) {
            self.send(&ToHost::Segments(chunk.to_vec()), &[])?;
            for &unit in chunk {
                let (message, mut fds) = self.receive("the slots of the writers")?;
                let fd = match message {
                    FromHost::Segment(got) if got == unit => fds.pop(),
                    _ => None,
                };
                slots.push(fd.ok_or_else(|| self.bad("a segment that was not asked for"))?);
            }
        }
        Ok(slots)
    }

    /// Says that this unit has all it needs, and waits until all have.
    pub fn ready(&mut self) -> Result<(), PipeError> {
        self.send(&ToHost::Ready, &[])?;
        match self.receive("all other units to be ready")? {
            (FromHost::Go, _) => Ok(()),
            _ => Err(self.bad("no go")),
        }
    }

    /// Sends a message.
    fn send(&mut self, message: &ToHost, fds: &[BorrowedFd<'_>]) -> Result<(), PipeError> {
        let encoded = PROTOCOL.encode(message).map_err(system(self.pipe))?;
        loop {
            match encoded.send(&self.conn, fds) {
                Ok(Sent::Done) => return Ok(()),
                Ok(Sent::WouldBlock) => self.wait("the writer's unit 0 to listen", PollItem::writable)?,
                // They arrive as their receivers read.
                Err(OsError::TooManyInFlight { .. }) => {
                    let what = "descriptors that are on their way to other processes";
                    check_patience(self.pipe, self.options, self.start, Duration::ZERO, what)?;
                    std::thread::sleep(RETRY.1);
                }
                // It may have said why before it hung up.
                Err(OsError::PeerClosed) => loop {
                    self.receive("an answer")?;
                },
                Err(e) => return Err(system(self.pipe)(e)),
            }
        }
    }

    /// Waits for the next message; a refusal is an error.
    fn receive(&mut self, what: &str) -> Result<(FromHost, Vec<OwnedFd>), PipeError> {
        loop {
            match PROTOCOL.receive::<FromHost>(&self.conn, &mut self.buffer) {
                Incoming::Message(FromHost::Refused(reason), _) => {
                    return Err(PipeError::refused(self.pipe, reason))
                }
                Incoming::Message(message, fds) => return Ok((message, fds)),
                Incoming::Nothing => self.wait(what, PollItem::readable)?,
                Incoming::Closed => return Err(self.lost()),
                Incoming::Bad(Bad::Version(found)) => {
                    let reason = Refusal::Version { expected: found.into(), found: PROTOCOL.version.into() };
                    return Err(PipeError::Refused { pipe: self.pipe.to_owned(), reason });
                }
                Incoming::Bad(Bad::NoDescriptor) => return Err(system(self.pipe)(no_descriptor())),
                Incoming::Bad(Bad::Malformed) => return Err(self.bad("an unreadable message")),
            }
        }
    }

    /// The name at which unit 0 listens.
    pub fn socket(&self) -> Vec<u8> {
        socket_name(polyduct_os::process::user_id(), &self.options.job, self.pipe)
    }

    /// A descriptor for later.
    pub fn keep(&self, fd: BorrowedFd<'_>) -> Result<OwnedFd, PipeError> {
        fd.try_clone_to_owned().map_err(|e| not_duplicated(self.pipe, "the memory of the pipe", &e))
    }

    /// An error for a peer that answered something else than it should.
    pub fn bad(&self, what: &str) -> PipeError {
        PipeError::Port(PortError::BadPeer {
            port: PortName::Pipe(self.pipe.to_owned()),
            peer: None,
            what: what.to_owned(),
        })
    }

    /// Says that this unit goes, so that the others do not take it for dead. If that cannot be said, they do.
    fn give_up(&self) {
        if let Ok(encoded) = PROTOCOL.encode(&ToHost::GiveUp) {
            let _ = encoded.send(&self.conn, &[]);
        }
    }

    fn lost(&mut self) -> PipeError {
        self.hung_up = true;
        let pid = self.conn.peer().map_or(0, |p| p.pid);
        PipeError::Port(PortError::PeerLost {
            port: PortName::Pipe(self.pipe.to_owned()),
            peer: HOST.into(),
            pid,
            silence: None,
        })
    }

    fn wait<'c>(&'c self, what: &str, item: impl Fn(&'c Conn) -> PollItem<'c>) -> Result<(), PipeError> {
        loop {
            // Unit 0 keeps the time for all and says who is missing: the others wait a little longer for its word.
            let left = check_patience(self.pipe, self.options, self.start, GRACE, what)
                .inspect_err(|_| self.give_up())?;
            let n = poll(&mut [item(&self.conn)], Some(left.min(SLICE))).map_err(system(self.pipe))?;
            if n > 0 {
                return Ok(());
            }
        }
    }
}

/// Connects to who serves the name of a pipe, waiting for `what`.
fn connect(
    pipe: &str,
    options: &Options,
    start: Duration,
    what: &str,
    pause: &mut Duration,
) -> Result<Conn, PipeError> {
    let uid = polyduct_os::process::user_id();
    let name = socket_name(uid, &options.job, pipe);
    let conn = loop {
        match Conn::connect(&name) {
            Ok(conn) => break conn,
            Err(OsError::NotListening { .. } | OsError::ListenerBusy { .. }) => {}
            Err(e) => return Err(system(pipe)(e)),
        }
        check_patience(pipe, options, start, Duration::ZERO, what)?;
        std::thread::sleep(*pause);
        *pause = (*pause * 2).min(RETRY.1);
    };
    match conn.stranger().map_err(system(pipe))? {
        Some(found) => Err(PipeError::Stranger { pipe: pipe.to_owned(), expected: uid, found }),
        None => Ok(conn),
    }
}

/// The time left for opening; an error when there is none, or when the caller wants to stop.
pub(crate) fn check_patience(
    pipe: &str,
    options: &Options,
    start: Duration,
    grace: Duration,
    what: &str,
) -> Result<Duration, PipeError> {
    if options.interrupt.as_ref().is_some_and(|ask| ask()) {
        return Err(PipeError::Port(PortError::Interrupted {
            port: PortName::Pipe(pipe.to_owned()),
            unit: None,
        }));
    }
    let waited = clock::now() - start;
    let patience = options.open_timeout.saturating_add(grace);
    if waited >= patience {
        return Err(PipeError::Port(PortError::Timeout {
            port: PortName::Pipe(pipe.to_owned()),
            unit: None,
            what: what.to_owned().into(),
            waited,
        }));
    }
    Ok(patience - waited)
}

/// Checks the options that both sides share, and names this unit.
pub fn check_options(options: &Options, side: polyduct_port::Side) -> Result<UnitName, PipeError> {
    options.check()?;
    Ok(UnitName { side, unit: options.unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_domains_and_files_are_theirs() {
        for good in ["a", "run/7/field", "domains/x", "file", "my/domain/x"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "domain/x", "file/1-2/x", &"x".repeat(81)] {
            assert!(matches!(check_name(bad), Err(PipeError::Port(PortError::BadOption { .. }))), "{bad}");
        }
    }
}
