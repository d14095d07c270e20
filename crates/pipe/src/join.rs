//! Joining a pipe: how a unit that is not the writer's unit 0 comes in.

use crate::error::{PipeError, Refusal};
use crate::serve::HOST;
use crate::wire::{self, FromHost, Hello, ToHost, Welcome, PROTOCOL, SEGMENTS_AT_ONCE};
use polyduct_message::handshake::{len_bytes, other_version, BODY_LIMIT};
use polyduct_message::hash::fnv1a;
use polyduct_message::link::key::random;
use polyduct_message::meeting::{pause, Connection, Failure, Patience, GRACE, RETRY};
use polyduct_os::{
    clock,
    process::{number_space, ProcessId},
    Errno, OsError,
};
use polyduct_port::{BundleError, Options, PortError, PortName, UnitName, MAX_PROGRAMS};
use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Why two programs may wait for each other, as the end of a sentence.
pub(crate) const ORDER: &str = "; programs that open several pipes must all open them in the same order";
/// A connection to unit 0 in the time before data flows.
pub struct Joining<'a> {
    conn: Connection,
    opening: Opening<'a>,
    /// What unit 0 has said of whether another may come in its place; nothing before it has noted this unit.
    writers_wait: Option<bool>,
}

/// The time that a unit has to join.
struct Opening<'a> {
    pipe: &'a str,
    options: &'a Options,
    start: Duration,
    /// Unit 0 keeps the time for all and says who is missing: the others wait a little longer for its word.
    grace: Duration,
    /// The process of unit 0.
    pid: Cell<u32>,
    hung_up: Cell<bool>,
}

impl Patience for Opening<'_> {
    type Error = PipeError;

    fn left(&self, what: &str) -> Result<Duration, PipeError> {
        check_patience(self.pipe, self.options, self.start, self.grace, what)
    }

    fn failed(&self, why: Failure) -> PipeError {
        let pipe = self.pipe.to_owned();
        let port = PortName::Pipe(pipe.clone());
        match why {
            Failure::System(e) => system(self.pipe)(e),
            Failure::Stranger(found) => {
                PipeError::Stranger { pipe, expected: polyduct_os::process::user_id(), found }
            }
            Failure::HungUp => {
                self.hung_up.set(true);
                PipeError::Port(PortError::PeerLost {
                    port,
                    peer: HOST.into(),
                    pid: self.pid.get(),
                    silence: None,
                })
            }
            Failure::Version(found) => PipeError::Refused { port: port.into(), reason: other_version(found) },
            Failure::Malformed => PipeError::bad_peer(&pipe, "an unreadable message"),
        }
    }
}

/// The abstract socket name of a pipe of a job; an empty job is none.
pub fn socket_name(uid: u32, job: &str, pipe: &str) -> Vec<u8> {
    if job.is_empty() {
        return format!("polyduct/{uid}/{pipe}").into_bytes();
    }
    // A hash of both: jobs may be called anything. As much of the name as has room follows, for people who
    // look.
    let both = fnv1a(job.bytes().chain([0]).chain(pipe.bytes()));
    let shown = &pipe[..pipe.len().min(SHOWN)];
    format!("polyduct/{uid}/@{both:016x}/{shown}").into_bytes()
}

/// Characters of a pipe's name that its socket shows in a job.
const SHOWN: usize = 60;

/// Names that begin so are those of domains and files, whose sockets stand beside those of pipes.
const TAKEN: [&str; 3] = ["domain/", "file/", "gateway/"];

/// Whether a pipe may have this name: 1 to 80 letters, digits, `.`, `_`, `-`, `/`, and not that of a domain
/// or a file.
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

/// What tells this pipe from others of its name, before and after it: see
/// [`Welcome::id`](crate::wire::Welcome::id).
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

/// Bytes of what a program says of its arrays, at most: what all programs of a pipe say goes into one message.
const ROLE_BYTES: usize = BODY_LIMIT / (MAX_PROGRAMS as usize + 2);

/// Whether what a unit says of its arrays is not too long.
///
/// # Errors
/// [`BundleError::Size`].
pub fn check_long(role: &wire::Role) -> Result<(), BundleError> {
    match len_bytes(role) {
        0..=ROLE_BYTES => Ok(()),
        found => Err(BundleError::Size {
            name: String::new(),
            what: "what this program says of its arrays",
            found: format!("{found} bytes long"),
            expected: format!("at most {ROLE_BYTES}: fewer arrays, or shorter names and layouts"),
        }),
    }
}

/// What a unit says of itself.
pub fn hello(options: &Options, role: wire::Role) -> Result<Hello, OsError> {
    Ok(Hello {
        program: options.program.clone(),
        unit: options.unit,
        units: options.units,
        pid: std::process::id(),
        space: number_space(),
        start_time: ProcessId::current()?.start_time,
        on_loss: options.on_loss,
        role,
        rejoin: None,
    })
}

impl<'a> Joining<'a> {
    /// Connects to unit 0 of the writers, waiting for it to serve the name, and joins by what `join` says to
    /// it. Where that one was about to leave, or is lost and may be replaced, it is said again to the next.
    pub fn with<T>(
        pipe: &'a str,
        options: &'a Options,
        mut join: impl FnMut(&mut Joining<'a>) -> Result<T, PipeError>,
    ) -> Result<(T, Connection), PipeError> {
        let name = socket_name(polyduct_os::process::user_id(), &options.job, pipe);
        let start = clock::now();
        let (mut rest, mut before) = (RETRY.0, String::new());
        loop {
            let job = match options.job.is_empty() {
                true => String::new(),
                false => format!(" in job {:?} (see POLYDUCT_JOB)", options.job),
            };
            let what = format!("{HOST} to open the pipe{job}{before}{ORDER}");
            let (grace, pid, hung_up) = (Duration::ZERO, Cell::new(0), Cell::new(false));
            let mut opening = Opening { pipe, options, start, grace, pid, hung_up };
            let conn = Connection::open(PROTOCOL, &name, &opening, &what, &|| true)?;
            let pid = conn.pid();
            opening.pid.set(pid);
            opening.grace = GRACE;
            let mut joining = Joining { conn, opening, writers_wait: None };
            match join(&mut joining) {
                Ok(joined) => return Ok((joined, joining.conn)),
                Err(error) if joining.comes_again(&error) => {
                    before = format!(" (process {pid} had it open, and has ended it)");
                    joining.opening.grace = Duration::ZERO;
                    pause(&joining.opening, &mut rest, &what)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether another unit 0 may come that takes this unit in.
    fn comes_again(&self, error: &PipeError) -> bool {
        let over = matches!(error, PipeError::Refused { reason: Refusal::Over, .. });
        over || self.opening.hung_up.get() && self.writers_wait != Some(false)
    }

    /// Says hello, and waits until all units have come: what unit 0 says of the pipe, its control segment,
    /// and whatever else comes along.
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
    fn send(&self, message: &ToHost, fds: &[BorrowedFd<'_>]) -> Result<(), PipeError> {
        self.conn.send(message, fds, &self.opening, "the writer's unit 0 to listen")
    }

    /// Waits for the next message; a refusal is an error.
    fn receive(&mut self, what: &str) -> Result<(FromHost, Vec<OwnedFd>), PipeError> {
        match self.conn.receive(&self.opening, what) {
            Ok((FromHost::Refused(reason), _)) => Err(PipeError::refused(self.opening.pipe, reason)),
            Err(error @ PipeError::Port(PortError::Timeout { .. } | PortError::Interrupted { .. })) => {
                // So that the others do not take this unit for dead.
                self.conn.post(&ToHost::GiveUp);
                Err(error)
            }
            heard => heard,
        }
    }

    /// The name at which unit 0 listens.
    pub fn socket(&self) -> Vec<u8> {
        let Opening { pipe, options, .. } = self.opening;
        socket_name(polyduct_os::process::user_id(), &options.job, pipe)
    }

    /// A descriptor for later.
    pub fn keep(&self, fd: BorrowedFd<'_>) -> Result<OwnedFd, PipeError> {
        fd.try_clone_to_owned().map_err(|e| not_duplicated(self.opening.pipe, "the memory of the pipe", &e))
    }

    /// An error for a peer that answered something else than it should.
    pub fn bad(&self, what: &str) -> PipeError {
        PipeError::bad_peer(self.opening.pipe, what)
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
    if options.is_interrupted() {
        return Err(PipeError::interrupted(pipe, None));
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
