//! Options of a unit that opens a port.

use crate::PortError;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// The most units of a program.
pub const MAX_UNITS: u32 = 4096;
/// The most slots of each writer unit of a pipe.
pub const MAX_DEPTH: u32 = 64;
/// The most reader programs on one writer.
pub const MAX_PROGRAMS: u32 = 8;
/// Bytes of a program's name, at most.
pub const PROGRAM_BYTES: usize = 256;

/// A question asked now and then by every blocking call: shall it give up?
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// Blocking calls ask this often whether they shall stop, since a signal may arrive just before they fall
/// asleep.
pub const INTERRUPT_SLICE: Duration = Duration::from_millis(100);

/// What happens when a step is ready and every slot is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// The writer waits for the slowest reader: every step arrives.
    #[default]
    Block,
    /// The writer never waits; a reader gets the newest complete step, older ones are dropped.
    Latest,
    /// The writer never waits; the oldest step that no reader has begun is dropped.
    DropOldest,
    /// The writer never waits; the step that found no room is dropped. With several reader programs, one that
    /// holds all slots but one misses it alone.
    DropNewest,
}

/// An option that has a value which it cannot have, whatever is opened.
fn bad<T>(
    option: &'static str,
    found: String,
    expected: impl Into<std::borrow::Cow<'static, str>>,
) -> Result<T, PortError> {
    Err(PortError::BadOption { port: None, option, found, expected: expected.into() })
}

const POLICIES: [(&str, Policy); 4] = [
    ("block", Policy::Block),
    ("latest", Policy::Latest),
    ("drop_oldest", Policy::DropOldest),
    ("drop_newest", Policy::DropNewest),
];

impl FromStr for Policy {
    type Err = PortError;

    fn from_str(s: &str) -> Result<Policy, PortError> {
        match POLICIES.iter().find(|(name, _)| *name == s) {
            Some((_, policy)) => Ok(*policy),
            None => bad("policy", format!("{s:?}"), "block, latest, drop_oldest or drop_newest"),
        }
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
    /// Every survivor, on both sides, gets [`PortError::PeerLost`].
    #[default]
    Raise,
    /// The survivors wait, within their timeouts, for a unit that opens with the lost unit's number. It finds
    /// the pipe through unit 0 of the writers, which therefore stays until all others have closed, or read
    /// every step. Any units may be lost, unit 0 included and several together: what is needed to go on is
    /// kept by every unit, so one that lives is enough.
    ///
    /// Across hosts a lost writer's steps are gone with it: one that replaces it begins with the first step
    /// that some reader has yet to get, and must write the same again, since other readers may have it
    /// already. One that replaces unit 0 comes to the same address, and goes on when all units that live have
    /// come back to it, which those do that wait for a step or write one. Of a reader that is lost together
    /// with unit 0 nobody may know what it had read: its replacement begins with the first step that the
    /// writers still have, or where steps are dropped, with the first that a unit of its program lacks.
    Wait,
}

impl FromStr for OnLoss {
    type Err = PortError;

    fn from_str(s: &str) -> Result<OnLoss, PortError> {
        match s {
            "raise" => Ok(OnLoss::Raise),
            "wait" => Ok(OnLoss::Wait),
            _ => bad("on_loss", format!("{s:?}"), "raise or wait"),
        }
    }
}

/// Which reader programs a writer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Readers {
    /// So many, 1 to 8: the writer waits for them when it opens, and ends when all have closed.
    Programs(u32),
    /// One that no other can follow: where what it takes does not fit what the writer gives, the opening ends
    /// with that at once. One of several [programs](Readers::Programs) that does not fit is turned away, and the
    /// writer waits for a better one.
    Sole,
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
            Readers::Sole => f.write_str("1"),
            Readers::Any => f.write_str("any"),
        }
    }
}

impl FromStr for Readers {
    type Err = PortError;

    fn from_str(s: &str) -> Result<Readers, PortError> {
        match (s, s.parse()) {
            ("any", _) => Ok(Readers::Any),
            (_, Ok(programs)) => Ok(Readers::Programs(programs)),
            _ => bad("readers", format!("{s:?}"), format!("1 to {MAX_PROGRAMS}, or any")),
        }
    }
}

impl Readers {
    /// As it crosses the wire: 0 is any.
    pub fn to_wire(self) -> u32 {
        match self {
            Readers::Programs(n) => n,
            Readers::Sole => 1,
            Readers::Any => 0,
        }
    }
}

/// What a unit says when it opens a port. What only pipes have a use for is checked and left alone by others.
#[derive(Clone)]
pub struct Options {
    /// Number of this unit, from 0.
    pub unit: u32,
    /// Units of this program.
    pub units: u32,
    /// Name of this program, the same in all its units and no other's: tells several reader programs apart,
    /// and keeps two programs apart that write one file by mistake.
    pub program: String,
    /// The job that the pipe's name belongs to: programs of different jobs on one host do not meet. Empty for
    /// none.
    pub job: String,
    /// Slots of each writer unit (writers only), 1 to 64.
    pub depth: u32,
    /// Policy for a full queue (writers only).
    pub policy: Policy,
    /// Reader programs that the writer waits for when it opens, or whether any may come and go (writers
    /// only).
    pub readers: Readers,
    /// Longest wait of any later call; `None` waits as long as the peers live. Of files: of the call that
    /// closes them.
    pub timeout: Option<Duration>,
    /// Longest wait for the other units when opening.
    pub open_timeout: Duration,
    /// What the loss of a unit of this program means.
    pub on_loss: OnLoss,
    /// Across hosts: a host that says nothing for so long is given up. A closed connection is noticed at
    /// once.
    pub silence: Duration,
    /// Across hosts: units of one host share memory. Otherwise they use the network to each other, too: for
    /// tests and comparisons.
    pub near: bool,
    /// Asked every 100 ms during blocking calls, and between pieces of large transfers.
    pub interrupt: Option<Interrupt>,
}

impl Options {
    /// Checks what has the same limits whatever is opened: a program that writes a file today may be given a
    /// pipe tomorrow.
    ///
    /// # Errors
    /// [`PortError::BadOption`], which does not name the port.
    pub fn check(&self) -> Result<(), PortError> {
        if self.units == 0 || self.units > MAX_UNITS {
            return bad("units", self.units.to_string(), format!("1 to {MAX_UNITS}"));
        }
        if self.unit >= self.units {
            return bad("unit", self.unit.to_string(), format!("below units, {}", self.units));
        }
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return bad("depth", self.depth.to_string(), format!("1 to {MAX_DEPTH}"));
        }
        match self.readers {
            Readers::Programs(1..=MAX_PROGRAMS) | Readers::Sole => {}
            Readers::Programs(n) => {
                return bad("readers", n.to_string(), format!("1 to {MAX_PROGRAMS}, or any"));
            }
            // Programs that may not be there cannot be waited for.
            Readers::Any if self.policy != Policy::Latest => {
                return bad("policy", self.policy.to_string(), "latest where readers is any");
            }
            Readers::Any => {}
        }
        if self.program.len() > PROGRAM_BYTES {
            let found = format!("{:?}…", self.program.chars().take(40).collect::<String>());
            return bad("program", found, format!("at most {PROGRAM_BYTES} bytes"));
        }
        Ok(())
    }

    /// Whether blocking calls shall give up.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|ask| ask())
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
