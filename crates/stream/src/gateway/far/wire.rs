//! What gateways say to each other over the lanes of a stream.
//!
//! The side that calls says [`Call`] first, on each lane. From then on the gateway that transmits says [`Give`], and the one
//! that receives says [`Take`]. Each is a message of its lane's [channel](polyduct_message::link::net::channel);
//! the bytes of a unit follow behind [`Give::Unit`].

use polyduct_port::Changes;
use serde::{Deserialize, Serialize};

/// What this speaks: raised by every change.
pub const VERSION: u32 = 4;
/// The longest reason that is taken from the other end.
pub const TEXT_BYTES: usize = 1024;

/// Two gateways know a stream by this, when a lane is made again: drawn by each for itself.
pub type Session = u128;

/// The first words of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// [`VERSION`].
    pub version: u32,
    /// The stream's name.
    pub name: String,
    /// Whether who calls transmits.
    pub transmits: bool,
    /// Who calls, and whom it met before, if it did: 0 for nobody.
    pub session: Session,
    /// The other end, as far as the caller knows it.
    pub met: Session,
    /// Which lane, of how many.
    pub lane: u32,
    /// How many, of all gateways of the caller's side.
    pub lanes: u32,
    /// Which of these the caller is, each with as many lanes.
    pub gateway: u32,
    /// How many there are.
    pub gateways: u32,
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Welcome, by this session.
    Welcome(Session),
    /// Not here, or not now.
    Refused(String),
}

/// What a stream has: one array without a name, whose bytes a step is, or arrays with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The arrays.
    pub arrays: Vec<Offered>,
}

/// An array of an [`Offer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Its name; empty for the only one that has none.
    pub name: String,
    /// Its shape; the most of one whose size changes.
    pub shape: Vec<u64>,
    /// Its element type.
    pub elem: String,
    /// Whether its size changes from step to step, or it is constant.
    pub open: Option<Changes>,
}

/// From the gateway that transmits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Give {
    /// What the stream has: once on each lane, before anything else.
    Offer(Offer),
    /// A unit, whose `len` bytes follow.
    Unit {
        /// The step.
        adu: u64,
        /// Bytes of the step.
        adu_len: u64,
        /// The unit's first byte in it.
        at: u64,
        /// Bytes of the unit.
        len: u32,
    },
    /// There are so many steps, and no more.
    End {
        /// How many.
        steps: u64,
    },
    /// The stream broke.
    Broke(String),
    /// The other end's last word was heard.
    Heard,
}

/// From the gateway that receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Take {
    /// There is room for the steps below this: the last of what is said on a new lane.
    Room(u64),
    /// A unit is here.
    Taken {
        /// The step.
        adu: u64,
        /// The unit's first byte in it.
        at: u64,
        /// Bytes of the unit.
        len: u32,
    },
    /// The program has all steps.
    Done,
    /// The stream broke.
    Broke(String),
    /// The other end's last word was heard.
    Heard,
    /// The steps below this are here, whatever was said of their units over lanes that broke.
    Past(u64),
    /// So are these bytes, of whatever units.
    Here {
        /// The step.
        adu: u64,
        /// The first byte.
        at: u64,
        /// How many.
        len: u64,
    },
}
