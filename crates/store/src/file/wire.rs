//! Messages between the units of a program that writes one file.
//!
//! Unit 0 listens at an abstract socket whose name is made of the user, the directory and the file's name;
//! the others connect, and all talk in the messages of [`polyduct_message::handshake`].

use crate::FileError;
use polyduct_message::handshake::Bad;
use polyduct_message::meeting::JoinRefusal as Refusal;
use polyduct_message::meeting::Unit;
use polyduct_os::{process::PidFd, Errno, OsError};
use polyduct_port::{PortError, PortName, Reached};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the messages begin with.
pub use polyduct_message::handshake::FILE as PROTOCOL;

/// A process that exits closes its connections a little before it counts as gone.
const EXIT_LAG: Duration = Duration::from_millis(20);

/// What must be the same in all units, beside their number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// `npy`, `raw`, `safetensors`, `safetensors#NAME` or `zarr`.
    pub format: String,
    pub shape: Vec<u64>,
    pub elem: String,
    /// The canonical text, cut where it is long.
    pub layout: String,
    /// A hash of all of it.
    pub layout_hash: u64,
}

impl Spec {
    /// The first thing in which another unit's differs: what it is, ours, and the other's.
    pub fn difference(&self, other: &Spec) -> Option<(&'static str, String, String)> {
        let shape = |s: &Spec| format!("{:?}", s.shape);
        let all = [
            ("format", self.format.clone(), other.format.clone()),
            ("shape", shape(self), shape(other)),
            ("dtype", self.elem.clone(), other.elem.clone()),
            ("layout", self.layout.clone(), other.layout.clone()),
        ];
        let found = all.into_iter().find(|(_, ours, theirs)| ours != theirs);
        found.or_else(|| {
            let hash = |s: &Spec| format!("{} (hash {:016x})", s.layout, s.layout_hash);
            (self.layout_hash != other.layout_hash).then(|| ("layout", hash(self), hash(other)))
        })
    }
}

/// What a unit says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHost {
    /// I want to join.
    Hello { unit: u32, units: u32, program: String, spec: Spec },
    /// All my bytes of so many steps are in the file.
    Closed { steps: u64 },
    /// I give up.
    Abort { reason: String },
    /// The file may have its name: unit 0, where others are to be complete before.
    Place,
}

/// What unit 0 says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHost {
    /// All units are there; the file comes with this. `temporary` is its name for the time being, where it has to
    /// have one.
    Welcome { temporary: Option<String> },
    /// The file will not be.
    Failed(FileFault),
    /// The file is complete under its name.
    Committed,
    /// The file is complete, and waits for its name.
    Complete,
}

/// Why a file will not be, in a form that crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFault {
    /// Units do not meet, or do not stay.
    Refused(Refusal),
    Aborted {
        unit: u32,
        reason: String,
    },
    Uneven {
        unit: u32,
        steps: u64,
        other: u32,
        other_steps: u64,
    },
    Busy,
    BadPeer {
        unit: u32,
        what: String,
    },
    NoSpace {
        needed: u64,
        available: u64,
    },
    System {
        op: String,
        errno: i32,
    },
}

impl FileFault {
    /// The error that a unit of `program` gives its caller.
    pub fn error(self, path: &str, program: &str) -> FileError {
        let path = path.to_owned();
        match self {
            FileFault::Busy => FileError::busy(&path, program),
            FileFault::Refused(why) => refused(why, path),
            FileFault::Aborted { unit, reason } => FileError::Port(PortError::PeerAborted {
                port: PortName::File(path),
                peer: unit.into(),
                reason,
            }),
            FileFault::Uneven { unit, steps, other, other_steps } => {
                FileError::Port(PortError::UnevenSteps {
                    port: PortName::File(path),
                    peer: unit.into(),
                    closed_after: steps,
                    came: Reached::Closed { unit: other, after: other_steps },
                })
            }
            FileFault::BadPeer { unit, what } => FileError::Port(PortError::BadPeer {
                port: PortName::File(path),
                peer: Some(unit.into()),
                what,
            }),
            FileFault::NoSpace { needed, available } => FileError::NoSpace { path, needed, available },
            FileFault::System { op, errno } => {
                // What is no number of an error came from no system.
                let known = (1..4096).contains(&errno);
                let errno = if known { Errno::from_raw_os_error(errno) } else { Errno::IO };
                FileError::System { path, op, errno }
            }
        }
    }

    /// Why the connection to a unit is closed, which was at the other end as this process.
    pub fn gone(unit: u32, pid: u32, process: Option<&PidFd>) -> FileFault {
        match process.is_some_and(|process| process.exited_within(EXIT_LAG).unwrap_or(true)) {
            true => FileFault::Refused(Refusal::Lost { unit: Unit(unit), pid, silent_s: None }),
            false => FileFault::Aborted { unit, reason: "it closed its connection".into() },
        }
    }

    /// What goes to the other units of a failure of unit 0's.
    pub fn of(error: &FileError) -> FileFault {
        match error {
            FileError::NoSpace { needed, available, .. } => {
                FileFault::NoSpace { needed: *needed, available: *available }
            }
            FileError::System { op, errno, .. } => {
                FileFault::System { op: op.clone(), errno: errno.raw_os_error() }
            }
            FileError::Os { source, .. } => FileFault::System {
                op: match source {
                    OsError::System { op, what, .. } => format!("{op} {what}"),
                    other => other.to_string(),
                },
                errno: source.errno().unwrap_or(Errno::IO).raw_os_error(),
            },
            other => FileFault::Aborted { unit: 0, reason: other.to_string() },
        }
    }
}

/// The error for units of the file at `path` that do not meet.
fn refused(why: Refusal, path: String) -> FileError {
    match why {
        Refusal::Lost { unit: Unit(unit), pid, .. } => FileError::Port(PortError::PeerLost {
            port: PortName::File(path),
            peer: unit.into(),
            pid,
            silence: None,
        }),
        Refusal::Disagree { unit: Unit(unit), what, expected, found, .. } => {
            let (port, what) = (PortName::File(path), what.into());
            FileError::Port(PortError::Disagree { port, unit, what, expected, found })
        }
        reason => FileError::Refused { path, reason: Box::new(reason) },
    }
}

/// What is wrong with something that is no message.
pub fn unreadable(bad: &Bad) -> String {
    match bad {
        Bad::Version(found) => format!("messages of version {found}, expected {}", PROTOCOL.version),
        Bad::NoDescriptor => "a message whose descriptor found no room".into(),
        Bad::Malformed => "an unreadable message".into(),
    }
}

/// Cuts text that goes into a message.
pub fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec {
            format: "npy".into(),
            shape: vec![12, 8],
            elem: "f32".into(),
            layout: "block,*".into(),
            layout_hash: 7,
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(spec().difference(&spec()), None);
        let other = Spec { shape: vec![8, 12], elem: "f64".into(), ..spec() };
        assert_eq!(spec().difference(&other), Some(("shape", "[12, 8]".into(), "[8, 12]".into())));
        let other = Spec { layout_hash: 8, ..spec() };
        assert!(matches!(spec().difference(&other), Some(("layout", ours, theirs)) if ours != theirs));
    }

    /// As docs/wire.md has them.
    #[test]
    fn the_bytes_are_those_of_the_document() {
        let bytes = |m: &ToHost| postcard::to_allocvec(m).unwrap();
        let hello = ToHost::Hello { unit: 300, units: 301, program: "p".into(), spec: spec() };
        let expected = b"\x00\xac\x02\xad\x02\x01p\x03npy\x02\x0c\x08\x03f32\x07block,*\x07";
        assert_eq!(bytes(&hello), expected);
        assert_eq!(bytes(&ToHost::Closed { steps: 5 }), [1, 5]);
        assert_eq!(bytes(&ToHost::Abort { reason: String::new() }), [2, 0]);
        let bytes = |m: &FromHost| postcard::to_allocvec(m).unwrap();
        assert_eq!(bytes(&FromHost::Welcome { temporary: None }), [0, 0]);
        assert_eq!(bytes(&FromHost::Welcome { temporary: Some("t".into()) }), b"\x00\x01\x01t");
        assert_eq!(bytes(&FromHost::Committed), [2]);
        for (fault, body) in [
            (
                FileFault::Refused(Refusal::Lost { unit: Unit(1), pid: 7, silent_s: None }),
                &[0, 7, 1, 7, 0][..],
            ),
            (
                FileFault::Refused(Refusal::disagree(Unit(1), "a", "c", Unit(0), "b")),
                b"\0\x03\x01\x01a\0\x01b\x01c\0",
            ),
            (FileFault::Refused(Refusal::duplicate(Unit(1), 7)), &[0, 4, 1, 7, 0]),
            (FileFault::Aborted { unit: 1, reason: "x".into() }, b"\x01\x01\x01x"),
            (FileFault::Uneven { unit: 1, steps: 2, other: 3, other_steps: 4 }, &[2, 1, 2, 3, 4]),
            (FileFault::Busy, &[3]),
            (FileFault::BadPeer { unit: 1, what: "w".into() }, b"\x04\x01\x01w"),
            (FileFault::NoSpace { needed: 5, available: 4 }, &[5, 5, 4]),
            (FileFault::System { op: "o".into(), errno: 5 }, b"\x06\x01o\x0a"),
        ] {
            assert_eq!(bytes(&FromHost::Failed(fault)), [&[1], body].concat());
        }
    }

    #[test]
    fn an_error_that_no_system_has_is_one_all_the_same() {
        for (errno, expected) in
            [(28, Errno::NOSPC), (0, Errno::IO), (-5, Errno::IO), (4096, Errno::IO), (i32::MIN, Errno::IO)]
        {
            let error = FileFault::System { op: "write".into(), errno }.error("x", "p");
            assert_eq!(error, FileError::sys("x", "write", expected), "{errno}");
        }
    }
}
