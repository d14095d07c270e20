//! The process of a unit, as the others of its host know it.

use polyduct_os::process::{number_space, ProcessId};
use polyduct_os::OsError;
use serde::{Deserialize, Serialize};

/// The process of a unit, as it is known by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The process namespace of that number; zero where the unit cannot look numbers up.
    pub space: u32,
    /// When it started, in clock ticks since the machine did.
    pub start_time: u64,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// The system's, where it does not say.
    pub fn current() -> Result<Process, OsError> {
        let ProcessId { pid, start_time } = ProcessId::current()?;
        Ok(Process { pid, space: number_space(), start_time })
    }

    /// Whether the two mean the same process by a number.
    pub fn shares_numbers(&self, other: &Process) -> bool {
        self.space != 0 && self.space == other.space
    }

    /// The process as `me` knows it, to whom a socket says that its number is `pid`.
    pub(super) fn seen_by(self, me: &Process, pid: u32) -> Process {
        let pid = if self.shares_numbers(me) { pid } else { self.pid };
        Process { pid, ..self }
    }
}

/// The processes of a host's units, in the order of their addresses.
pub type Members = Vec<Process>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_in_another_process_namespace_has_its_own_number() {
        let me = Process { pid: 10, space: 1, start_time: 100 };
        let beside = Process { pid: 7, ..me };
        assert_eq!(beside.seen_by(&me, 12), Process { pid: 12, ..me });
        let other = Process { pid: 1, space: 2, start_time: 7 };
        assert_eq!(other.seen_by(&me, 0), other);
        let blind = Process { space: 0, ..other };
        assert!(
            !blind.shares_numbers(&blind) && !blind.shares_numbers(&other) && other.shares_numbers(&other)
        );
    }
}
