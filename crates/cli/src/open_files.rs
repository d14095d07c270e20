//! The limit of open files.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Sets the soft limit, as far as the hard one allows, and gives the one before.
pub fn set_open_files(soft: u64) -> Option<u64> {
    let old = getrlimit(Resource::Nofile);
    let new = Rlimit { current: Some(soft.min(old.maximum.unwrap_or(u64::MAX))), maximum: old.maximum };
    setrlimit(Resource::Nofile, new).ok()?;
    old.current
}

/// Makes room for so many, and gives the soft limit before where that was lower.
pub fn make_room(need: u64) -> Option<u64> {
    let soft = getrlimit(Resource::Nofile).current?;
    (need > soft).then(|| set_open_files(need))?
}
