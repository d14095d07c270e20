//! A unit's connection to unit 0.

use super::wire::{unreadable, FileFault, FromHost, ToHost, PROTOCOL};
use super::{wire, Options};
use crate::FileError;
use polyduct_message::handshake::{other_version, Bad};
use polyduct_message::meeting::{Connection, Failure, Patience, GRACE};
use polyduct_os::socket::Conn;
use polyduct_os::{clock, process};
use polyduct_port::{PortError, PortName};
use std::fs::File;
use std::time::Duration;

/// A place among the units that write a file.
pub struct Membership {
    conn: Connection,
    path: String,
    program: String,
}

/// The time that a unit waits.
struct Wait<'a> {
    options: &'a Options,
    path: &'a str,
    start: Duration,
    limit: Option<Duration>,
    what: &'static str,
}

impl<'a> Wait<'a> {
    fn new(path: &'a str, options: &'a Options, limit: Option<Duration>, what: &'static str) -> Self {
        Wait { options, path, start: clock::now(), limit, what }
    }

    /// Until the file is open. Unit 0 keeps the time for all and says who is missing: the others wait a
    /// little longer for its word.
    fn opening(path: &'a str, options: &'a Options, what: &'static str) -> Self {
        Wait::new(path, options, Some(options.port.open_timeout.saturating_add(GRACE)), what)
    }
}

impl Patience for Wait<'_> {
    type Error = Ended;

    fn left(&self, _: &str) -> Result<Duration, Ended> {
        self.options.patience(self.path, self.start, self.limit, self.what).map_err(Ended::Error)
    }

    fn failed(&self, why: Failure) -> Ended {
        let path = || self.path.to_owned();
        Ended::Error(match why {
            Failure::HungUp => return Ended::HungUp,
            Failure::System(e) => FileError::os(self.path)(e),
            Failure::Stranger(found) => {
                FileError::Stranger { path: path(), expected: process::user_id(), found }
            }
            Failure::Version(found) => {
                FileError::Refused { path: path(), reason: Box::new(other_version(found)) }
            }
            Failure::Malformed => bad_peer(self.path, unreadable(&Bad::Malformed)),
        })
    }
}

/// Unit 0 does not speak as it should.
fn bad_peer(path: &str, what: String) -> FileError {
    FileError::Port(PortError::BadPeer { port: PortName::File(path.to_owned()), peer: Some(0.into()), what })
}

/// How a wait ends without an answer.
enum Ended {
    /// Unit 0 is gone.
    HungUp,
    Error(FileError),
}

/// The file, and how to write it.
pub struct Welcome {
    pub file: File,
    /// The file's name for the time being, where it has one.
    pub temporary: Option<String>,
}

impl Membership {
    /// Unit 0's own place.
    ///
    /// # Errors
    /// The system's, where it does not say who is at the other end.
    pub fn own(conn: Conn, path: &str, options: &Options) -> Result<Membership, FileError> {
        let wait = Wait::opening(path, options, "unit 0 to open the file");
        let conn = Connection::over(conn, PROTOCOL).map_err(|why| wait.failed(why));
        Membership::over(conn, path, options)
    }

    fn over(conn: Result<Connection, Ended>, path: &str, options: &Options) -> Result<Membership, FileError> {
        match conn {
            Ok(conn) => Ok(Membership { conn, path: path.to_owned(), program: options.port.program.clone() }),
            Err(Ended::Error(error)) => Err(error),
            Err(Ended::HungUp) => {
                let what = "unit 0 is gone".into();
                Err(bad_peer(path, what))
            }
        }
    }

    /// Finds unit 0 at `name`, waiting for it to come, and says `hello`.
    ///
    /// # Errors
    /// [`PortError::Timeout`], [`PortError::Interrupted`], [`FileError::Stranger`], [`FileError::System`].
    pub fn connect(
        name: &[u8],
        hello: &ToHost,
        path: &str,
        options: &Options,
    ) -> Result<Membership, FileError> {
        let wait = Wait::opening(path, options, "unit 0 to open the file");
        let conn = Connection::open(PROTOCOL, name, &wait, wait.what, &|| true);
        let member = Membership::over(conn, path, options)?;
        member.say(hello, &wait)?;
        Ok(member)
    }

    fn say(&self, message: &ToHost, wait: &Wait<'_>) -> Result<(), FileError> {
        self.conn.send(message, &[], wait, wait.what).map_err(|ended| self.ended(ended))
    }

    /// Waits until all units have come, and gets the file.
    ///
    /// # Errors
    /// What unit 0 says; [`PortError::PeerLost`]; [`PortError::Timeout`], [`PortError::Interrupted`].
    pub fn welcome(&mut self, options: &Options, waited: &mut Duration) -> Result<Welcome, FileError> {
        let path = self.path.clone();
        match self.wait(&Wait::opening(&path, options, "all other units to open the file"), waited)? {
            (FromHost::Welcome { temporary }, Some(file)) => Ok(Welcome { file, temporary }),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Looks, without waiting, whether the file has failed.
    ///
    /// # Errors
    /// Why it has.
    pub fn check(&mut self, options: &Options) -> Result<(), FileError> {
        let ended = self.conn.has_ended();
        match self.conn.try_receive() {
            Ok(None) if ended => Err(self.lost()),
            Ok(None) => Ok(()),
            Ok(Some((FromHost::Failed(fault), _))) => Err(fault.error(&self.path, &self.program)),
            Ok(Some(_)) => Err(self.out_of_turn()),
            Err(why) => {
                let path = self.path.clone();
                let ended = Wait::opening(&path, options, "unit 0").failed(why);
                Err(self.ended(ended))
            }
        }
    }

    /// Says that this unit's bytes of so many steps are in the file. That unit 0 does not hear it is known
    /// when it does not [commit](Self::committed).
    ///
    /// # Errors
    /// The system's refusals; [`PortError::Timeout`] and [`PortError::Interrupted`].
    pub fn say_closed(&self, steps: u64, options: &Options) -> Result<(), FileError> {
        let wait = Wait::new(&self.path, options, options.port.timeout, "unit 0 to listen");
        self.say(&ToHost::Closed { steps }, &wait)
    }

    /// Waits until the file is complete but for its name: of unit 0, of a file that is placed with others.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
    pub fn completed(&mut self, options: &Options, waited: &mut Duration) -> Result<(), FileError> {
        self.closed(options, waited, &FromHost::Complete)
    }

    /// Has a file that is complete get its name.
    ///
    /// # Errors
    /// As [`say_closed`](Self::say_closed).
    pub fn place(&self, options: &Options) -> Result<(), FileError> {
        self.say(&ToHost::Place, &Wait::new(&self.path, options, options.port.timeout, "unit 0 to listen"))
    }

    /// Waits until the file is there under its name.
    ///
    /// # Errors
    /// Why it will not be; [`PortError::Timeout`] and [`PortError::Interrupted`], after which one may wait
    /// again.
    pub fn committed(&mut self, options: &Options, waited: &mut Duration) -> Result<(), FileError> {
        self.closed(options, waited, &FromHost::Committed)
    }

    fn closed(
        &mut self,
        options: &Options,
        waited: &mut Duration,
        expected: &FromHost,
    ) -> Result<(), FileError> {
        let path = self.path.clone();
        let wait = Wait::new(&path, options, options.port.timeout, "all other units to close the file");
        match self.wait(&wait, waited)?.0 {
            found if found == *expected => Ok(()),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Says that this unit gives up.
    pub fn abort(self, reason: &str) {
        self.conn.post(&ToHost::Abort { reason: wire::cut(reason, 1000) });
    }

    /// Unit 0's process, as the kernel saw it.
    pub fn host_pid(&self) -> u32 {
        self.conn.pid()
    }

    fn wait(&mut self, wait: &Wait<'_>, total: &mut Duration) -> Result<(FromHost, Option<File>), FileError> {
        let heard = self.conn.receive(wait, wait.what);
        *total += clock::now().saturating_sub(wait.start);
        match heard {
            Ok((FromHost::Failed(fault), _)) => Err(fault.error(&self.path, &self.program)),
            Ok((message, fds)) => Ok((message, fds.into_iter().next().map(File::from))),
            Err(ended) => Err(self.ended(ended)),
        }
    }

    fn ended(&self, ended: Ended) -> FileError {
        match ended {
            Ended::HungUp => self.lost(),
            Ended::Error(error) => error,
        }
    }

    fn lost(&self) -> FileError {
        let fault = FileFault::gone(0, self.host_pid(), self.conn.process());
        fault.error(&self.path, &self.program)
    }

    fn out_of_turn(&self) -> FileError {
        bad_peer(&self.path, "a message out of turn".into())
    }
}
