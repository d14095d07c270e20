//! How a writing port ends: closed by all units, given up by one, or failed.

use super::{Completion, FileWriter, State};
use crate::file::coordinator::Placed;
use crate::file::link::WriteEnd;
use crate::{FileError, Scope};
use polyduct_os::clock;
use polyduct_port::{Peer, PortError, PortName, Stats};
use std::time::Duration;

/// How long a unit whose write failed waits for news of another that had failed before.
const NEWS: Duration = Duration::from_millis(500);

impl FileWriter {
    /// Ends the file and waits until all units have: then it is there under its name, safe from a power cut.
    /// All must have written the same number of steps.
    ///
    /// # Errors
    /// [`PortError::UnevenSteps`]; [`PortError::PeerLost`], [`PortError::PeerAborted`];
    /// [`FileError::System`]: there will be no file, and what was there is unchanged. [`PortError::Timeout`]
    /// and [`PortError::Interrupted`], after which one may close again, to go on waiting.
    pub fn close(&mut self) -> Result<Stats, FileError> {
        self.chunks = None;
        self.together.leave();
        if self.form.has_names() && self.next == 0 && matches!(self.state, State::Open(_)) {
            self.abort("it wrote nothing");
            let problem = "its arrays were not written, and there is no file";
            self.state = State::Failed(FileError::BadPath { path: self.path.clone(), problem });
        }
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Closed => return Ok(self.stats),
            State::Failed(e) => {
                self.state = State::Failed(e.clone());
                return Err(e);
            }
            State::Open(WriteEnd::Alone(draft)) => {
                let committed = match self.completion {
                    Completion::Not => draft.commit(&self.form, self.next),
                    _ => draft.place(),
                };
                if let Err(e) = committed {
                    self.state = State::Failed(e.clone());
                    return Err(e);
                }
            }
            State::Open(link) => {
                self.state = State::Open(link);
                self.begin_close()?;
                return self.close();
            }
            State::Closing(mut link) => {
                if let (Completion::Complete, WriteEnd::Among { member, .. }) = (self.completion, &mut link) {
                    if let Err(e) = member.place(&self.options) {
                        self.state = State::Closing(link);
                        return Err(self.fail(e));
                    }
                    self.completion = Completion::Placing;
                }
                let end = match &mut link {
                    WriteEnd::Among { member, target, welcome, .. } => {
                        match (member.committed(&self.options, &mut self.stats.waited), target) {
                            // It had done all but say so.
                            (
                                Err(FileError::Port(PortError::PeerLost {
                                    peer: Peer { unit: 0, .. }, ..
                                })),
                                Some(t),
                            ) if t.names(&welcome.file) => {
                                t.sweep(welcome.temporary.as_deref(), Some(&welcome.file));
                                Ok(())
                            }
                            (end, _) => end,
                        }
                    }
                    WriteEnd::Alone(_) => Ok(()),
                };
                if let Err(e) = end {
                    self.state = State::Closing(link);
                    return Err(self.fail(e));
                }
                if let WriteEnd::Among { host: Some(host), .. } = link {
                    let _ = host.join();
                }
            }
        }
        (self.buffer, self.part) = (Vec::new(), Vec::new());
        Ok(self.stats)
    }

    /// Says that this unit has ended the file, without waiting for the others: unit 0 makes it last and names it while
    /// this one does something else. The only unit [does](Self::close) that itself.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub(in crate::file) fn begin_close(&mut self) -> Result<(), FileError> {
        let State::Open(WriteEnd::Among { member, .. }) = &mut self.state else { return Ok(()) };
        let said = member.say_closed(self.next, &self.options);
        if let State::Open(link) = std::mem::replace(&mut self.state, State::Closed) {
            self.state = State::Closing(link);
        }
        said.map_err(|e| self.fail(e))
    }

    /// Waits until the file is complete but for its name, in unit 0 of a file that is [placed](Placed) with others; to
    /// be called again after a wait that was in vain.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub(in crate::file) fn complete(&mut self) -> Result<(), FileError> {
        if self.completion != Completion::Not || self.together.placed() == Placed::Alone {
            return Ok(());
        }
        let completed = match &mut self.state {
            State::Open(WriteEnd::Alone(draft)) => draft.complete(&self.form, self.next),
            State::Closing(WriteEnd::Among { member, host: Some(_), .. }) => {
                member.completed(&self.options, &mut self.stats.waited)
            }
            State::Failed(e) => return Err(e.clone()),
            _ => return Ok(()),
        };
        completed.map_err(|e| self.fail(e))?;
        self.completion = Completion::Complete;
        Ok(())
    }

    /// Gives the file up: all other units get [`PortError::PeerAborted`] with this reason, which may be
    /// empty.
    pub fn abort(&mut self, reason: &str) {
        let error = FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) });
        self.chunks = None;
        self.together.leave();
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(link) | State::Closing(link) => {
                link.abort(reason);
                self.state = State::Failed(error);
            }
            other => self.state = other,
        }
    }

    /// Why a write has failed: files of an array that another unit has given up are gone, and the news may be
    /// on its way.
    pub(super) fn reason(&mut self, error: FileError) -> FileError {
        match self.form.is_tree() && matches!(error, FileError::System { .. }) {
            true => self.news(error),
            false => error,
        }
    }

    /// What another unit has given up for, if the news of it comes soon, and else this error.
    pub(super) fn news(&mut self, error: FileError) -> FileError {
        let State::Open(WriteEnd::Among { member, .. }) = &mut self.state else { return error };
        let start = clock::now();
        while clock::now().saturating_sub(start) < NEWS {
            if let Err(reason) = member.check(&self.options) {
                return reason;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        error
    }

    /// An error if nothing can be written any more.
    pub(in crate::file) fn check_open(&mut self) -> Result<(), FileError> {
        self.options.check_interrupt(&self.path)?;
        let checked = match &mut self.state {
            State::Open(WriteEnd::Alone(_)) => Ok(()),
            State::Open(WriteEnd::Among { member, .. }) => member.check(&self.options),
            State::Failed(e) => return Err(e.clone()),
            State::Closing(_) | State::Closed => {
                return Err(FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) }))
            }
        };
        checked.map_err(|e| self.fail(e))
    }

    /// Remembers an error that ends the port, and tells the others of it.
    pub(super) fn fail(&mut self, error: FileError) -> FileError {
        if error.scope() == Scope::Port {
            self.chunks = None;
            // Whoever waits for this unit learns it.
            self.together.leave();
            match std::mem::replace(&mut self.state, State::Failed(error.clone())) {
                State::Open(link) | State::Closing(link) => link.leave(&error),
                State::Closed | State::Failed(_) => {}
            }
        }
        error
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        self.abort(if std::thread::panicking() {
            "it panicked"
        } else {
            "it was dropped without being closed"
        });
    }
}
