//! A unit's connection to unit 0.

use super::wire::{self, Fault, FromHost, Incoming, ToHost};
use super::Options;
use crate::FileError;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::process::PidFd;
use polyduct_os::socket::{Conn, MESSAGE_LIMIT};
use polyduct_os::{clock, OsError};
use polyduct_port::{PortError, PortName};
use std::fs::File;
use std::time::Duration;

/// The first and the longest pause between attempts to find unit 0.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Unit 0 keeps the time for all and says who is missing: the others wait a little longer for its word.
const GRACE: Duration = Duration::from_millis(500);
/// A process that exits closes its connections a little before it counts as gone.
const EXIT_LAG: Duration = Duration::from_millis(20);

/// A place among the units that write a file.
pub struct Member {
    conn: Conn,
    /// Unit 0's process; `None` in unit 0 itself.
    host: Option<PidFd>,
    host_pid: u32,
    path: String,
    program: String,
    buffer: Vec<u8>,
}

/// The file, and how to write it.
pub struct Welcome {
    pub file: File,
    /// Units write whole windows in turns.
    pub shared: bool,
    /// The file's name for the time being, where it has one.
    pub temporary: Option<String>,
}

impl Member {
    /// Unit 0's own place.
    pub fn own(conn: Conn, path: &str, program: &str) -> Member {
        Member::over(conn, None, std::process::id(), path, program)
    }

    fn over(conn: Conn, host: Option<PidFd>, host_pid: u32, path: &str, program: &str) -> Member {
        let (path, program) = (path.to_owned(), program.to_owned());
        Member { conn, host, host_pid, path, program, buffer: vec![0; MESSAGE_LIMIT] }
    }

    /// Finds unit 0 at `name`, waiting for it to come, and says `hello`.
    ///
    /// # Errors
    /// [`PortError::Timeout`], [`PortError::Interrupted`], [`FileError::Stranger`], [`FileError::System`].
    pub fn connect(name: &[u8], hello: &ToHost, path: &str, options: &Options) -> Result<Member, FileError> {
        let start = clock::now();
        let mut pause = RETRY.0;
        let conn = loop {
            match Conn::connect(name) {
                Ok(conn) => break conn,
                Err(OsError::NotListening { .. } | OsError::ListenerBusy { .. }) => {}
                Err(e) => return Err(FileError::os(path)(e)),
            }
            let left = options.patience(
                path,
                start,
                Some(options.port.open_timeout.saturating_add(GRACE)),
                "unit 0 to open the file",
            )?;
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(RETRY.1);
        };
        let peer = conn.peer().map_err(FileError::os(path))?;
        if let Some(found) = conn.stranger().map_err(FileError::os(path))? {
            let expected = polyduct_os::process::user_id();
            return Err(FileError::Stranger { path: path.to_owned(), expected, found });
        }
        let host = conn.peer_pidfd().ok();
        let member = Member::over(conn, host, peer.pid, path, &options.port.program);
        match wire::send(&member.conn, hello, &[]) {
            // If it has hung up, it may have said why; the welcome is waited for next.
            Ok(()) | Err(OsError::PeerClosed) => Ok(member),
            Err(e) => Err(FileError::os(path)(e)),
        }
    }

    /// Waits until all units have come, and gets the file.
    ///
    /// # Errors
    /// What unit 0 says; [`PortError::PeerLost`]; [`PortError::Timeout`], [`PortError::Interrupted`].
    pub fn welcome(&mut self, options: &Options, waited: &mut Duration) -> Result<Welcome, FileError> {
        let limit = Some(options.port.open_timeout.saturating_add(GRACE));
        match self.wait(options, limit, "all other units to open the file", waited)? {
            (FromHost::Welcome { shared, temporary }, Some(file)) => Ok(Welcome { file, shared, temporary }),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Looks, without waiting, whether the file has failed.
    ///
    /// # Errors
    /// Why it has.
    pub fn check(&mut self) -> Result<(), FileError> {
        match self.receive()? {
            None => Ok(()),
            Some(_) => Err(self.out_of_turn()),
        }
    }

    /// Says that this unit's bytes of so many steps are in the file.
    ///
    /// # Errors
    /// Why unit 0 does not hear it.
    pub fn say_closed(&mut self, steps: u64) -> Result<(), FileError> {
        match wire::send(&self.conn, &ToHost::Closed { steps }, &[]) {
            Ok(()) => Ok(()),
            Err(OsError::PeerClosed) => Err(match self.check() {
                Err(e) => e,
                Ok(()) => self.lost(),
            }),
            Err(e) => Err(FileError::os(&self.path)(e)),
        }
    }

    /// Waits until the file is there under its name.
    ///
    /// # Errors
    /// Why it will not be; [`PortError::Timeout`] and [`PortError::Interrupted`], after which one may wait again.
    pub fn committed(&mut self, options: &Options, waited: &mut Duration) -> Result<(), FileError> {
        match self.wait(options, options.port.timeout, "all other units to close the file", waited)?.0 {
            FromHost::Committed => Ok(()),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Says that this unit gives up.
    pub fn abort(self, reason: &str) {
        let _ = wire::send(&self.conn, &ToHost::Abort { reason: wire::cut(reason, 1000) }, &[]);
    }

    /// Unit 0's process, as the kernel saw it.
    pub fn host_pid(&self) -> u32 {
        self.host_pid
    }

    fn wait(
        &mut self,
        options: &Options,
        limit: Option<Duration>,
        what: &'static str,
        total: &mut Duration,
    ) -> Result<(FromHost, Option<File>), FileError> {
        let start = clock::now();
        let end = loop {
            match self.receive() {
                Ok(None) => {}
                Ok(Some(message)) => break Ok(message),
                Err(e) => break Err(e),
            }
            // Looked at before sleeping, but after the last message was taken: it may have died after that.
            let left = match options.patience(&self.path, start, limit, what) {
                Ok(left) => left.min(polyduct_port::INTERRUPT_SLICE),
                Err(e) => break Err(e),
            };
            let mut items = vec![PollItem::readable(&self.conn)];
            items.extend(self.host.as_ref().map(PollItem::readable));
            if let Err(e) = poll(&mut items, Some(left)) {
                break Err(FileError::os(&self.path)(e));
            }
        };
        *total += clock::now().saturating_sub(start);
        end
    }

    /// The next message, if there is one; a failure is an error.
    fn receive(&mut self) -> Result<Option<(FromHost, Option<File>)>, FileError> {
        // A process that has exited says no more than what it has said.
        let gone = self.host.as_ref().is_some_and(|h| !h.is_alive());
        match wire::receive::<FromHost>(&self.conn, &mut self.buffer) {
            Incoming::Message(FromHost::Failed(fault), _) => Err(fault.error(&self.path, &self.program)),
            Incoming::Message(message, fds) => Ok(Some((message, fds.into_iter().next().map(File::from)))),
            Incoming::Nothing if gone => Err(self.lost()),
            Incoming::Nothing => Ok(None),
            Incoming::Closed => Err(self.lost()),
            Incoming::Bad(what) => Err(FileError::Port(PortError::BadPeer {
                port: PortName::File(self.path.clone()),
                peer: Some(0.into()),
                what,
            })),
        }
    }

    fn lost(&self) -> FileError {
        let exited = self.host.as_ref().is_some_and(|p| p.exited_within(EXIT_LAG).unwrap_or(true));
        let fault = match exited {
            true => Fault::Lost { unit: 0, pid: self.host_pid },
            false => Fault::Aborted { unit: 0, reason: "it closed its connection".into() },
        };
        fault.error(&self.path, &self.program)
    }

    fn out_of_turn(&self) -> FileError {
        FileError::Port(PortError::BadPeer {
            port: PortName::File(self.path.clone()),
            peer: Some(0.into()),
            what: "a message out of turn".into(),
        })
    }
}
