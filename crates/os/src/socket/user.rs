//! Decides whether a peer belongs to the same user, in user namespaces too.
//!
//! A user namespace maps some users of its parent to numbers of its own; all others look like one, the
//! overflow user. Where this process looks so itself, a peer that does may be anybody: then only a process of
//! this very user namespace, which nobody enters who is not its owner or privileged, is of this user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use super::Conn;
use crate::error::Result;
use crate::process::user_id;

/// Numbers of users that there can be.
const ALL: u64 = u32::MAX as u64;
/// What users without a number look like where the system does not say.
const OVERFLOW: u32 = 65534;

impl Conn {
    /// The user at the other end, if that is not this process's. It may look the same, and still be none of
    /// this process's business.
    ///
    /// # Errors
    /// The system's, where it does not say who is there.
    pub fn stranger(&self) -> Result<Option<u32>> {
        let found = self.peer()?.uid;
        let same = found == user_id() && (!looks_like_anybody() || self.shares_users());
        Ok((!same).then_some(found))
    }

    /// Whether the process at the other end lives in this one's user namespace.
    fn shares_users(&self) -> bool {
        let Ok(process) = self.peer_pidfd() else { return false };
        let theirs = users_of(&process.pid().to_string());
        // Looked at before: if it lives now, it had its number then.
        theirs.is_some() && theirs == users_of("self") && process.is_alive()
    }
}

fn users_of(process: &str) -> Option<[u64; 2]> {
    let there = fs::metadata(format!("/proc/{process}/ns/user")).ok()?;
    Some([there.dev(), there.ino()])
}

/// Whether this process is of a user that all look like who have no number here.
fn looks_like_anybody() -> bool {
    static OVERFLOWS: OnceLock<u32> = OnceLock::new();
    let overflow = *OVERFLOWS.get_or_init(|| {
        let said = fs::read_to_string("/proc/sys/kernel/overflowuid");
        said.ok().and_then(|n| n.trim().parse().ok()).unwrap_or(OVERFLOW)
    });
    user_id() == overflow && !fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_all(&map))
}

/// Whether a user namespace has a number for everybody: lines of first number inside, first outside, how
/// many.
fn maps_all(map: &str) -> bool {
    let counts = map.lines().map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<Option<u64>>() == Some(ALL)
}

/// The user of a process that is not of this user, as the end of a sentence.
pub fn whose(found: u32, expected: u32) -> String {
    match found == expected {
        false => format!("belongs to user {found}, not to user {expected}"),
        true => format!(
            "may belong to any user: this process and that one both appear as user {found}, as do all users that a user \
             namespace does not map; run both in one user namespace that maps their user (`unshare --map-current-user`)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_whole_or_leaves_somebody_out() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(maps_all("0 100000 65536\n65536 200000 4294901759\n"));
        for part in ["", "0 1000 1\n", "0 100000 65536\n", "0 0 4294967294\n", "0 0 x\n", "0 0\n"] {
            assert!(!maps_all(part), "{part:?}");
        }
    }
}
