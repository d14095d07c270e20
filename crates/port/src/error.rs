//! Errors of any port. Pipes, files and stores add what only they meet.

use crate::{BundleError, Peer, PortName, UnitName};
use polyduct_layout::LayoutError;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// How far an error reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This call did nothing that counts; the port is as it was.
    Operation,
    /// The port is of no further use and should be closed. A file that was being written does not appear.
    Port,
}

/// What can go wrong with any port, sorted by who is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    // -- the caller's misuse --
    /// A layout does not parse, or does not fit the dataset and the units.
    #[error("{port}: {source}")]
    Layout {
        /// The port.
        port: PortName,
        /// What is wrong.
        source: LayoutError,
    },
    /// The arrays of a port are no bundle, or one that is asked for is not among them.
    #[error("{port}: {source}")]
    Bundle {
        /// The port.
        port: PortName,
        /// What is wrong.
        source: Box<BundleError>,
    },
    /// An option has a value that it cannot have.
    #[error("{}{option} is {found}; expected {expected}", at(port))]
    BadOption {
        /// The port; `None` where the value is wrong whatever is opened.
        port: Option<PortName>,
        /// The option's name.
        option: &'static str,
        /// Its value as it is shown: text stands in quotes.
        found: String,
        /// What it may be.
        expected: Cow<'static, str>,
    },
    /// An array of the wrong size was given to a write or a read.
    #[error("{port}: the array{} has {found} bytes; {} {expected}", called(array), part(*unit))]
    WrongSize {
        /// The port.
        port: PortName,
        /// This unit, where it is its part.
        unit: Option<u32>,
        /// The array's name, where it has one.
        array: Box<str>,
        /// Bytes of the part.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// The port has failed or was closed before.
    #[error("{port}: the port is closed")]
    Closed {
        /// The port.
        port: PortName,
    },

    // -- the peers --
    /// A unit's process ended without closing its port, or is given up since nothing was heard of it.
    #[error("{port}: {peer}{} {}{}", process(*pid), how_lost(*silence), outcome(port))]
    PeerLost {
        /// The port.
        port: PortName,
        /// The unit that was lost.
        peer: Peer,
        /// Its process; 0 where it is not known.
        pid: u32,
        /// Nothing was heard of it, across hosts, for so long; it may live. `None`: it has ended.
        silence: Option<Duration>,
    },
    /// A unit gave up, because of an error of its own, in the middle of its work.
    #[error("{port}: {peer} gave up{}{}", because(reason), outcome(port))]
    PeerAborted {
        /// The port.
        port: PortName,
        /// The unit that gave up.
        peer: Peer,
        /// Why, in its words; empty if it did not say.
        reason: String,
    },
    /// The units of a program closed after different numbers of steps.
    #[error("{port}: {peer} closed after {closed_after} steps, {came}{}", outcome(port))]
    UnevenSteps {
        /// The port.
        port: PortName,
        /// The unit that closed.
        peer: Peer,
        /// Steps it took part in.
        closed_after: u64,
        /// How far another came.
        came: Reached,
    },
    /// Units of one program disagree.
    #[error("{port}: unit {unit} says {what} {found}; unit 0{} says {expected}", of_program(port))]
    Disagree {
        /// The port.
        port: PortName,
        /// The unit that disagrees with unit 0.
        unit: u32,
        /// What they disagree on.
        what: Cow<'static, str>,
        /// What unit 0 said.
        expected: Box<str>,
        /// What this unit said.
        found: Box<str>,
    },
    /// A peer broke the protocol, or shared memory holds what it cannot hold.
    #[error("{port}: {} broke the protocol: {what}", by(peer))]
    BadPeer {
        /// The port.
        port: PortName,
        /// The unit, where it is known.
        peer: Option<Peer>,
        /// What was found, and where.
        what: String,
    },

    // -- time --
    /// A wait came to its deadline.
    #[error("{port}: {}timed out after {waited:.1?} waiting for {what}", this(*unit))]
    Timeout {
        /// The port.
        port: PortName,
        /// This unit, of a pipe.
        unit: Option<UnitName>,
        /// What was waited for.
        what: Cow<'static, str>,
        /// How long.
        waited: Duration,
    },
    /// The caller asked blocking calls to stop (Ctrl-C).
    #[error("{port}: {}interrupted", this(*unit))]
    Interrupted {
        /// The port.
        port: PortName,
        /// This unit, of a pipe.
        unit: Option<UnitName>,
    },
}

/// How far a unit came that did not close where another did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// This unit asked for this step, from 0.
    ToStep(u64),
    /// It closed, too.
    Closed {
        /// The unit.
        unit: u32,
        /// Its steps.
        after: u64,
    },
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reached::ToStep(step) => write!(f, "while this unit came to step {step}"),
            Reached::Closed { unit, after } => write!(f, "unit {unit} after {after}"),
        }
    }
}

impl PortError {
    /// How far the error reaches.
    pub fn scope(&self) -> Scope {
        match self {
            // What is wrong whatever is opened was found before anything was.
            PortError::BadOption { port: None, .. }
            | PortError::WrongSize { .. }
            | PortError::Timeout { .. }
            | PortError::Interrupted { .. } => Scope::Operation,
            _ => Scope::Port,
        }
    }

    /// The port, where the error names one.
    pub fn port(&self) -> Option<&PortName> {
        use PortError::*;
        match self {
            BadOption { port, .. } => port.as_ref(),
            Layout { port, .. }
            | Bundle { port, .. }
            | WrongSize { port, .. }
            | Closed { port }
            | PeerLost { port, .. } => Some(port),
            PeerAborted { port, .. } | UnevenSteps { port, .. } | Disagree { port, .. } => Some(port),
            BadPeer { port, .. } | Timeout { port, .. } | Interrupted { port, .. } => Some(port),
        }
    }

    /// A bad option with the port that it is of.
    pub fn of(mut self, of: PortName) -> PortError {
        if let PortError::BadOption { port, .. } = &mut self {
            *port = Some(of);
        }
        self
    }

    /// The unit that is named as lost, gone or at fault, if one is.
    pub fn peer(&self) -> Option<&Peer> {
        use PortError::*;
        match self {
            PeerLost { peer, .. } | PeerAborted { peer, .. } | UnevenSteps { peer, .. } => Some(peer),
            BadPeer { peer, .. } => peer.as_ref(),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn peer_mut(&mut self) -> Option<&mut Peer> {
        use PortError::*;
        match self {
            PeerLost { peer, .. } | PeerAborted { peer, .. } | UnevenSteps { peer, .. } => Some(peer),
            BadPeer { peer, .. } => peer.as_mut(),
            _ => None,
        }
    }
}

fn at(port: &Option<PortName>) -> String {
    port.as_ref().map_or_else(String::new, |port| format!("{port}: "))
}

/// The name of an array, where it has one.
fn called(array: &str) -> String {
    match array {
        "" => String::new(),
        name => format!(" {name:?}"),
    }
}

fn part(unit: Option<u32>) -> String {
    unit.map_or_else(|| "it must have".into(), |unit| format!("unit {unit}'s part has"))
}

/// A unit's process, where it is known.
fn process(pid: u32) -> String {
    match pid {
        0 => String::new(),
        pid => format!(" (pid {pid})"),
    }
}

fn how_lost(silence: Option<Duration>) -> String {
    match silence {
        None => "died".into(),
        Some(time) => format!("was not heard for {} s", time.as_secs()),
    }
}

fn because(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

/// What becomes of the work when a unit fails in it.
fn outcome(port: &PortName) -> &'static str {
    match port {
        PortName::Pipe(_) | PortName::Stream(_) => "",
        PortName::File(_) => "; the file was not written",
        PortName::Store(_) => "; nothing was changed",
    }
}

fn of_program(port: &PortName) -> &'static str {
    match port {
        PortName::Store(_) => "",
        PortName::Pipe(_) | PortName::Stream(_) | PortName::File(_) => " of the same program",
    }
}

fn by(peer: &Option<Peer>) -> String {
    peer.as_ref().map_or_else(|| "a peer".into(), Peer::to_string)
}

/// Whose error it is, in words.
fn this(unit: Option<UnitName>) -> String {
    unit.map_or_else(String::new, |unit| format!("{unit}: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Side;

    fn ports() -> [PortName; 3] {
        [PortName::Pipe("p".into()), PortName::File("f.npy".into()), PortName::Store("s".into())]
    }

    #[test]
    fn each_port_says_what_becomes_of_its_work() {
        let lost = |port| PortError::PeerLost { port, peer: 3.into(), pid: 7, silence: None }.to_string();
        assert_eq!(
            ports().map(lost),
            [
                "pipe p: unit 3 (pid 7) died",
                "f.npy: unit 3 (pid 7) died; the file was not written",
                "s: unit 3 (pid 7) died; nothing was changed",
            ]
        );
        let differ = |port| {
            let (what, expected, found) = ("units".into(), "2".into(), "3".into());
            PortError::Disagree { port, unit: 1, what, expected, found }.to_string()
        };
        let [_, file, store] = ports().map(differ);
        assert_eq!(file, "f.npy: unit 1 says units 3; unit 0 of the same program says 2");
        assert_eq!(store, "s: unit 1 says units 3; unit 0 says 2");
    }

    #[test]
    fn a_unit_of_a_pipe_has_a_side_and_may_have_a_program() {
        let [port, file, _] = ports();
        let unit = UnitName { side: Side::Reader(1), unit: 2 };
        let mut error = PortError::UnevenSteps {
            port: port.clone(),
            peer: unit.into(),
            closed_after: 4,
            came: Reached::ToStep(5),
        };
        let rest = "closed after 4 steps, while this unit came to step 5";
        assert_eq!(error.to_string(), format!("pipe p: unit 2 of reader program 2 {rest}"));
        error.peer_mut().unwrap().program = Some("view".into());
        assert_eq!(error.to_string(), format!("pipe p: unit 2 of reader program \"view\" {rest}"));
        let waited = Duration::from_millis(1500);
        let late = PortError::Timeout { port, unit: Some(unit), what: "step 3".into(), waited };
        assert_eq!(
            late.to_string(),
            "pipe p: unit 2 of reader program 2: timed out after 1.5s waiting for step 3"
        );
        let came = Reached::Closed { unit: 0, after: 2 };
        let uneven = PortError::UnevenSteps { port: file, peer: 1.into(), closed_after: 3, came };
        let words = "f.npy: unit 1 closed after 3 steps, unit 0 after 2; the file was not written";
        assert_eq!(uneven.to_string(), words);
    }

    #[test]
    fn what_is_wrong_whatever_is_opened_names_no_port_and_ends_none() {
        let bad = || "sometimes".parse::<crate::Policy>().unwrap_err();
        let words = "policy is \"sometimes\"; expected block, latest, drop_oldest or drop_newest";
        assert_eq!((bad().to_string(), bad().scope()), (words.to_owned(), Scope::Operation));
        let [_, file, _] = ports();
        let of_file = bad().of(file);
        assert_eq!((of_file.to_string(), of_file.scope()), (format!("f.npy: {words}"), Scope::Port));
    }
}
