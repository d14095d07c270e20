//! What the units of a program share that write files together, however many files a set has.

use super::coordinator::Placed;
use super::staged::Staged;
use super::Options;
use crate::staging::Staging;
use crate::team::Team;
use crate::FileError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The other units, where they are needed. Clones share them: the files of a set.
#[derive(Clone, Default)]
pub struct Together {
    shared: Arc<Mutex<Shared>>,
    placed: Placed,
    /// Whether one of the files will not be, as unit 0 knows.
    failed: Arc<AtomicBool>,
}

#[derive(Default)]
struct Shared {
    /// Bytes of the longest window of all files.
    longest: u64,
    meeting: Option<Meeting>,
}

/// The other units, and the memory of all.
pub struct Meeting {
    pub team: Team,
    /// From the first window on.
    staging: Option<Staging>,
    /// Rounds of windows so far: they use the halves of the memory in turn.
    pub rounds: u64,
}

impl Together {
    /// Of the files of a set: none gets its name before all are complete.
    pub fn of_set() -> Together {
        Together { placed: Placed::Together, ..Together::default() }
    }

    /// When the files get their names.
    pub fn placed(&self) -> Placed {
        self.placed
    }

    /// One of the files that were open will not be: so none of a set will.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Options for the time until a file is open, with waits that end where another one will not be.
    pub fn options(&self, options: &Options) -> Options {
        let (failed, before) = (Arc::clone(&self.failed), options.port.interrupt.clone());
        let mut options = options.clone();
        let is_over =
            move || failed.load(Ordering::Relaxed) || before.as_ref().is_some_and(|before| before());
        options.port.interrupt = Some(Arc::new(is_over));
        options
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the others, unless that is done; `name` is the same in all of them.
    ///
    /// # Errors
    /// As [`Team::join`].
    pub fn join<'a>(
        &self,
        staged: impl Iterator<Item = &'a Staged>,
        (path, name): (&str, &str),
        options: &Options,
    ) -> Result<(), FileError> {
        let mut shared = self.lock();
        shared.longest = staged.map(Staged::window_bytes).fold(shared.longest, u64::max);
        if shared.meeting.is_none() {
            let team = Team::join(path, name, options)?;
            shared.meeting = Some(Meeting { team, staging: None, rounds: 0 });
        }
        Ok(())
    }

    /// The others, for as long as something is done with them; they are to be [given back](Self::give).
    pub fn take(&self) -> Option<Meeting> {
        self.lock().meeting.take()
    }

    /// Has them for what comes next.
    pub fn give(&self, meeting: Meeting) {
        self.lock().meeting = Some(meeting);
    }

    /// Leaves them, for all files.
    pub fn leave(&self) {
        self.lock().meeting = None;
    }

    /// Bytes of the longest window of all files.
    pub fn longest(&self) -> u64 {
        self.lock().longest
    }
}

impl Meeting {
    /// The memory of all, of which each has two windows of so many bytes.
    ///
    /// # Errors
    /// As [`Staging::new`].
    pub fn staging(&mut self, name: &str, units: u32, longest: u64) -> Result<&mut Staging, FileError> {
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => Staging::new(name, &self.team, units, longest)?,
        };
        Ok(self.staging.insert(staging))
    }
}
