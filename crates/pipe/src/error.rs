//! Everything that can go wrong with a pipe, sorted by who is at fault.

use crate::domain::Addresses;
use crate::programs::Programs;
use polyduct_layout::LayoutError;
use polyduct_message::link::{key::KeyError, net};
use polyduct_message::{meeting, MessageError};
use polyduct_os::{socket::whose, OsError};
use polyduct_port::{BundleError, PortError, PortName, Scope, UnitName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What can go wrong with a pipe.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PipeError {
    /// What can go wrong with any port.
    #[error(transparent)]
    Port(#[from] PortError),

    // -- the caller's misuse --
    /// The pipe has this name already.
    #[error("{name}: {} is already its writer", holder(*pid, program), name = named(pipe))]
    NameTaken {
        /// The pipe.
        pipe: String,
        /// The process that has it; 0 where that is not known.
        pid: u32,
        /// Its command line, as far as it is known.
        program: String,
    },
    /// A pipe across hosts has no key that its units could know each other by.
    #[error("{name}: {source}; a pipe across hosts needs one secret in all its units: make it with `openssl \
        rand -hex 32` and put it into POLYDUCT_JOB_KEY", name = named(pipe))]
    Key {
        /// The pipe.
        pipe: String,
        /// What is wrong with the key.
        source: KeyError,
    },

    // -- the peers --
    /// A unit on another host could not be reached, or did not let this one in.
    #[error("{name}: {peer}: {source}", name = named(pipe))]
    Link {
        /// The pipe.
        pipe: String,
        /// Whom this unit spoke to.
        peer: String,
        /// What went wrong.
        source: Box<net::LinkFault>,
    },
    /// The process that says where the pipe is was not reached.
    #[error("{name}: the process that says where it is was not reached: {source}", name = named(pipe))]
    NoDirectory {
        /// The pipe.
        pipe: String,
        /// What went wrong.
        source: Box<net::LinkFault>,
    },
    /// All reader programs have closed; nobody will take further steps.
    #[error("{name}: every reader has closed; no reader is left for step {step} (open the writer with \
        readers=\"any\" where readers come and go; a reader that another one is to follow is opened with on_loss=\"wait\" and leaves by abort() instead of close())", name = named(pipe))]
    ReadersGone {
        /// The pipe.
        pipe: String,
        /// The step, from 0.
        step: u64,
    },
    /// The other units did not agree to this one joining.
    #[error("{port}: {reason}")]
    Refused {
        /// The pipe, or the stream that goes by it.
        port: Box<PortName>,
        /// Why.
        reason: Refusal,
    },
    /// The process at the other end belongs to another user.
    #[error("{name}: the process serving it {}", whose(*found, *expected), name = named(pipe))]
    Stranger {
        /// The pipe.
        pipe: String,
        /// This user.
        expected: u32,
        /// The other's user.
        found: u32,
    },
    /// The domain of this port could not be joined. The port is as it was.
    #[error("{name}: {source} (addresses of its units: {addresses})", name = named(pipe))]
    Domain {
        /// The pipe.
        pipe: String,
        /// Whom the addresses mean that the error speaks of.
        addresses: Addresses,
        /// What went wrong.
        source: Box<MessageError>,
    },

    // -- time and the system --
    /// The system refused something.
    #[error("{name}: {}{source}", this(unit), name = named(pipe))]
    System {
        /// The pipe.
        pipe: String,
        /// This unit.
        unit: Option<UnitName>,
        /// What it refused.
        source: OsError,
    },
}

impl PipeError {
    /// A peer sends what makes no sense.
    pub(crate) fn bad_peer(pipe: &str, what: impl Into<String>) -> PipeError {
        let port = PortName::Pipe(pipe.to_owned());
        PipeError::Port(PortError::BadPeer { port, peer: None, what: what.into() })
    }

    /// The caller wants a wait to stop.
    pub(crate) fn interrupted(pipe: &str, unit: Option<UnitName>) -> PipeError {
        PipeError::Port(PortError::Interrupted { port: named(pipe), unit })
    }

    /// What a unit is told that may not join, or not any more: a death is the same error as at any other
    /// moment.
    pub(crate) fn refused(pipe: &str, reason: Refusal) -> PipeError {
        let lost = |unit: UnitName, pid, silence| PortError::PeerLost {
            port: PortName::Pipe(pipe.to_owned()),
            peer: unit.into(),
            pid,
            silence,
        };
        match reason {
            Refusal::Lost { unit, pid, silent_s } => lost(unit, pid, silent_s.and_then(silence)).into(),
            reason => PipeError::Refused { port: Box::new(named(pipe)), reason },
        }
    }

    /// How far the error reaches.
    pub fn scope(&self) -> Scope {
        match self {
            PipeError::Port(e) => e.scope(),
            PipeError::Domain { .. } | PipeError::System { source: OsError::NoMemory { .. }, .. } => {
                Scope::Operation
            }
            _ => Scope::Port,
        }
    }

    /// The pipe's name, as in `pipe:NAME`; none for an option, which is wrong whatever the pipe.
    pub fn pipe<'a>(&'a self) -> Option<&'a str> {
        use PipeError::*;
        let of = |port: &'a PortName| match port {
            PortName::Pipe(pipe) => Some(&pipe[..]),
            PortName::File(_) | PortName::Store(_) | PortName::Stream(_) => None,
        };
        match self {
            Port(e) => of(e.port()?),
            Refused { port, .. } => of(port),
            NameTaken { pipe, .. } | Key { pipe, .. } | Link { pipe, .. } | ReadersGone { pipe, .. } => {
                Some(pipe)
            }
            Stranger { pipe, .. } | Domain { pipe, .. } | System { pipe, .. } => Some(pipe),
            NoDirectory { pipe, .. } => Some(pipe),
        }
    }

    /// The error with the name of the program that the unit belongs to of which it speaks.
    pub(crate) fn of(mut self, programs: &Programs) -> PipeError {
        if let PipeError::Port(e) = &mut self {
            if let Some(peer) = e.peer_mut() {
                peer.program = peer.name().and_then(|unit| programs.name_of(unit));
            }
        }
        self
    }

    /// The error as it leaves unit `me` of the pipe `of`: with their names, where what met it did not know
    /// them.
    pub(crate) fn at(mut self, of: &str, me: UnitName) -> PipeError {
        match &mut self {
            PipeError::Port(
                PortError::Layout { port: PortName::Pipe(pipe), .. }
                | PortError::Bundle { port: PortName::Pipe(pipe), .. },
            ) if pipe.is_empty() => of.clone_into(pipe),
            PipeError::Port(PortError::Timeout { unit, .. } | PortError::Interrupted { unit, .. })
            | PipeError::System { unit, .. } => *unit = unit.or(Some(me)),
            _ => {}
        }
        self
    }
}

/// Layouts know of no pipe: the caller that opens one names it, with `PipeError::at`.
impl From<LayoutError> for PipeError {
    fn from(source: LayoutError) -> PipeError {
        PortError::Layout { port: named(""), source }.into()
    }
}

/// Nor do bundles.
impl From<BundleError> for PipeError {
    fn from(source: BundleError) -> PipeError {
        match source {
            // The only array of a pipe has no name to be called by.
            BundleError::Layout { name, source } if name.is_empty() => source.into(),
            source => PortError::Bundle { port: named(""), source: Box::new(source) }.into(),
        }
    }
}

/// The process that has the name of a pipe, in words.
fn holder(pid: u32, program: &str) -> String {
    match (pid, program) {
        (0, _) => "another program of this user".to_owned(),
        (pid, "") => format!("process {pid} of this user"),
        (pid, program) => format!("process {pid} of this user ({program})"),
    }
}

/// How long nothing was heard, if that is what happened.
pub(crate) fn silence(seconds: u8) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

fn named(pipe: &str) -> PortName {
    PortName::Pipe(pipe.to_owned())
}

/// Whose error it is, in words.
fn this(unit: &Option<UnitName>) -> String {
    unit.map_or_else(String::new, |unit| format!("{unit}: "))
}

/// What to do about a reader program that the writer does not expect.
fn one_too_many(expected: u32, program: &str) -> String {
    let more = format!("open the writer with readers={}", u64::from(expected) + 1);
    match polyduct_os::process::is_unnamed(program) {
        true => {
            format!("give units that were started by hand the same program= or POLYDUCT_PROGRAM, or {more}")
        }
        false => more,
    }
}

/// Why a unit may not join a pipe, or the pipe does not open. Crosses the wire.
pub type Refusal = meeting::Refusal<UnitName, Mismatch>;

/// What does not fit in what the units of a pipe ask for. Crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Mismatch {
    /// The reader expects another dataset than the writer gives.
    #[error("the reader expects {what} {found}; the writer gives {expected}")]
    Dataset {
        /// Shape or element type.
        what: String,
        /// The writer's.
        expected: String,
        /// The reader's.
        found: String,
    },
    /// The reader wants an element type that the writer's does not convert to.
    #[error("the reader wants {from} converted to {to}; there are f32↔bf16, f32↔f16 and f64↔f32")]
    Conversion {
        /// The writer's element type.
        from: String,
        /// The reader's.
        to: String,
    },
    /// The writer expects fewer reader programs.
    #[error("the writer expects {expected} reader program(s) and has them; program {found:?} is one too many \
        ({})", one_too_many(*expected, found))]
    TooManyPrograms {
        /// Programs that the writer expects.
        expected: u32,
        /// The name of the one too many.
        found: String,
    },
    /// Reader programs come and go, and no more can be there at once.
    #[error(
        "{programs} reader programs read it already, which is the most at once; program {found:?} can \
        come when one of them has left"
    )]
    Full {
        /// Programs that are there.
        programs: u32,
        /// The name of the one too many.
        found: String,
    },
    /// The layout does not fit the dataset and the units.
    #[error("{unit}: {error}")]
    Layout {
        /// The unit.
        unit: UnitName,
        /// The layout error in words.
        error: String,
    },
    /// Neither side said what the dataset is.
    #[error(
        "the writer passes plain bytes: the reader must say what they are, by shape and dtype when it opens"
    )]
    NoDataset,
    /// The segment handed over is not what it must be.
    #[error("{unit} handed over a bad segment: {error}")]
    Segment {
        /// The unit.
        unit: UnitName,
        /// What was wrong.
        error: String,
    },
    /// The reader asks for arrays that there are not, or for none of several.
    #[error("{error}")]
    Arrays {
        /// What is wrong.
        error: String,
    },
    /// What the writer brings, for a reader that asks; it has no place in the pipe.
    #[error("the writer brings {} array(s); this unit only asked for them", arrays.len())]
    Described {
        /// All of them, in the writer's order.
        arrays: Vec<crate::wire::Array>,
    },
}

/// Whether a unit was refused for what its program takes, which no other unit of that program will mend.
pub fn is_of_terms(why: &Refusal) -> bool {
    use Mismatch::{Arrays, Conversion, Dataset, Layout};
    let of_arrays = |mismatch: &Mismatch| {
        matches!(mismatch, Arrays { .. } | Conversion { .. } | Dataset { .. } | Layout { .. })
    };
    match why {
        Refusal::Terms(mismatch) => of_arrays(mismatch),
        why => matches!(why, Refusal::Disagree { .. }),
    }
}

/// What to do about programs that were taken for one because they have the same name.
pub(crate) fn name_them(programs: u32) -> String {
    match programs {
        0 | 1 => String::new(),
        n => format!(" (the writer takes {n} reader programs: open each with its own program name)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_is_told_what_to_do() {
        let unnamed = polyduct_os::process::unnamed_program();
        let told = |found: &str| Mismatch::TooManyPrograms { expected: 1, found: found.into() }.to_string();
        assert!(
            told("viewer").ends_with("one too many (open the writer with readers=2)"),
            "{}",
            told("viewer")
        );
        assert!(told(&unnamed).contains("POLYDUCT_PROGRAM"), "{}", told(&unnamed));
    }
}
