//! What the two sides of a pipe may choose.

use crate::error::PipeError;
use crate::slots::geometry::{MAX_DEPTH, MAX_PROGRAMS};
pub use crate::slots::{bell::Interrupt, names::Policy};
use polyduct_message::domain::HostId;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};

/// Bytes of a program's name, at most.
pub(crate) const PROGRAM_BYTES: usize = 256;

const POLICIES: [(&str, Policy); 4] = [
    ("block", Policy::Block),
    ("latest", Policy::Latest),
    ("drop_oldest", Policy::DropOldest),
    ("drop_newest", Policy::DropNewest),
];

impl FromStr for Policy {
    type Err = PipeError;

    fn from_str(s: &str) -> Result<Policy, PipeError> {
        POLICIES.iter().find(|(name, _)| *name == s).map(|(_, p)| *p).ok_or_else(|| PipeError::BadOption {
            option: "policy",
            found: format!("{s:?}"),
            expected: "block, latest, drop_oldest or drop_newest".into(),
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(POLICIES.iter().find(|(_, p)| p == self).map_or("?", |(name, _)| name))
    }
}

/// What happens to a program when one of its units is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnLoss {
    /// Every survivor, on both sides, gets [`PipeError::PeerLost`].
    #[default]
    Raise,
    /// The survivors wait, within their timeouts, for a unit that opens with the lost unit's number. It finds the pipe through
    /// unit 0 of the writers, which therefore stays until all others have closed, or read every step. On one host any units may be
    /// lost, unit 0 included and several together: what is needed to go on is kept by every unit, so one that lives is enough.
    ///
    /// Across hosts unit 0 itself cannot be replaced, and a lost writer's steps are gone with it: one that replaces it begins
    /// with the first step that some reader has yet to get, and must write the same again, since other readers may have it
    /// already. That takes a queue that drops none ([`Policy::Block`]).
    Wait,
}

impl FromStr for OnLoss {
    type Err = PipeError;

    fn from_str(s: &str) -> Result<OnLoss, PipeError> {
        match s {
            "raise" => Ok(OnLoss::Raise),
            "wait" => Ok(OnLoss::Wait),
            _ => Err(PipeError::BadOption {
                option: "on_loss",
                found: format!("{s:?}"),
                expected: "raise or wait".into(),
            }),
        }
    }
}

/// Which reader programs a writer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Readers {
    /// So many, 1 to 8: the writer waits for them when it opens, and ends when all have closed.
    Programs(u32),
    /// Any, up to 8 at once: each may come, leave and come again while the writer writes, and each begins
    /// with the newest step that is there. The writer neither waits for them nor hears of their ends: how one
    /// program ends, or is killed, is that program's. Only under [`Policy::Latest`], and on one host. A
    /// program holds one slot at most: with a [`depth`](Options::depth) above their number no slow or stopped
    /// one keeps others from the newest steps.
    Any,
}

impl From<u32> for Readers {
    fn from(programs: u32) -> Readers {
        Readers::Programs(programs)
    }
}

impl fmt::Display for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Readers::Programs(n) => n.fmt(f),
            Readers::Any => f.write_str("any"),
        }
    }
}

impl FromStr for Readers {
    type Err = PipeError;

    fn from_str(s: &str) -> Result<Readers, PipeError> {
        match (s, s.parse()) {
            ("any", _) => Ok(Readers::Any),
            (_, Ok(programs)) => Ok(Readers::Programs(programs)),
            _ => Err(PipeError::BadOption {
                option: "readers",
                found: format!("{s:?}"),
                expected: format!("1 to {MAX_PROGRAMS}, or any").into(),
            }),
        }
    }
}

impl Readers {
    /// As it crosses the wire: 0 is any.
    pub(crate) fn to_wire(self) -> u32 {
        match self {
            Readers::Programs(n) => n,
            Readers::Any => 0,
        }
    }
}

/// What a unit says when it opens its side of a pipe.
#[derive(Clone)]
pub struct Options {
    /// Number of this unit, from 0.
    pub unit: u32,
    /// Units of this program.
    pub units: u32,
    /// Name of this program, the same in all its units and no other's: tells several reader programs apart.
    pub program: String,
    /// The job that the pipe's name belongs to: programs of different jobs on one host do not meet. Empty for none.
    pub job: String,
    /// Slots of each writer unit (writers only), 1 to 64.
    pub depth: u32,
    /// Policy for a full queue (writers only).
    pub policy: Policy,
    /// Reader programs that the writer waits for when it opens, or whether any may come and go (writers
    /// only).
    pub readers: Readers,
    /// Longest wait of any later call; `None` waits as long as the peers live.
    pub timeout: Option<Duration>,
    /// Longest wait for the other units when opening.
    pub open_timeout: Duration,
    /// What the loss of a unit of this program means.
    pub on_loss: OnLoss,
    /// Across hosts: a host that says nothing for so long is given up. Who hangs up is known to be gone at once.
    pub silence: Duration,
    /// Across hosts: units of one host share memory. Otherwise they use the network to each other, too: for tests and
    /// comparisons.
    pub near: bool,
    /// Asked during blocking calls.
    pub interrupt: Option<Interrupt>,
}

impl Options {
    /// Where this process runs, if units of its host are to share memory with it.
    pub(crate) fn host(&self) -> Option<HostId> {
        if self.near {
            HostId::of_this_process(0)
        } else {
            None
        }
    }

    /// Checks depth, readers and policy, which have the same limits whatever is opened.
    ///
    /// # Errors
    /// [`PipeError::BadOption`].
    pub fn check_counts(&self) -> Result<(), PipeError> {
        let bad = |option, found: String, expected: String| {
            Err(PipeError::BadOption { option, found, expected: expected.into() })
        };
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return bad("depth", self.depth.to_string(), format!("1 to {MAX_DEPTH}"));
        }
        match self.readers {
            Readers::Programs(1..=MAX_PROGRAMS) => Ok(()),
            Readers::Programs(n) => bad("readers", n.to_string(), format!("1 to {MAX_PROGRAMS}, or any")),
            // Who may not be there cannot be waited for.
            Readers::Any if self.policy != Policy::Latest => {
                bad("policy", self.policy.to_string(), "latest where readers is any".to_owned())
            }
            Readers::Any => Ok(()),
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            unit: 0,
            units: 1,
            program: String::new(),
            job: String::new(),
            depth: 2,
            policy: Policy::Block,
            readers: Readers::Programs(1),
            timeout: None,
            open_timeout: Duration::from_secs(60),
            on_loss: OnLoss::Raise,
            silence: Duration::from_secs(10),
            near: true,
            interrupt: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unit {} of {} of program {:?}, depth {}, policy {}, readers {}, timeout {:?}",
            self.unit, self.units, self.program, self.depth, self.policy, self.readers, self.timeout
        )
    }
}
