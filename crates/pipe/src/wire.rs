//! The handshake: what units say to the writer's unit 0 before data flows, in the messages of
//! [`polyduct_message::handshake`].

use crate::error::Refusal;
use polyduct_port::{OnLoss, Policy};
use serde::{Deserialize, Serialize};

/// What the messages begin with.
pub use polyduct_message::handshake::PIPE as PROTOCOL;
/// The most segments that one message may ask for, so that the answers on their way stay few.
pub const SEGMENTS_AT_ONCE: usize = 64;

/// Shape and element type in a form that crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// Extents.
    pub shape: Vec<u64>,
    /// Element type as text.
    pub elem: String,
}

/// What a unit says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name of its program.
    pub program: String,
    /// Its number.
    pub unit: u32,
    /// Units of its program.
    pub units: u32,
    /// Layout of its program.
    pub layout: String,
    /// Its process, by the number that it has for itself.
    pub pid: u32,
    /// The process namespace of that number; zero where the unit cannot look numbers up.
    pub space: u32,
    /// Start time of its process.
    pub start_time: u64,
    /// What losing this unit means.
    pub on_loss: OnLoss,
    /// The rest depends on the side.
    pub role: Role,
    /// Set by a survivor that comes to the replacement of unit 0 of the writers: what it was told when it
    /// joined. With it comes the control segment.
    pub rejoin: Option<Welcome>,
}

/// What only one side says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A writer: comes with its segment of slots, except as a replacement that takes the readers' dataset.
    /// Where it replaces one, that one's slots are used.
    Writer {
        /// The dataset; `None` takes the readers'.
        dataset: Option<Dataset>,
        /// Slots.
        depth: u32,
        /// Queue policy.
        policy: Policy,
        /// Reader programs to wait for; 0: any may come and go.
        readers: u32,
    },
    /// A reader.
    Reader {
        /// The shape it expects.
        shape: Option<Vec<u64>>,
        /// The element type it expects.
        elem: Option<String>,
        /// Whether the element type may be converted on the way.
        convert: bool,
    },
}

/// What a unit may ask of unit 0.
// One at a time, and never kept: not worth a box.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHost {
    /// I want to join.
    Hello(Hello),
    /// A reader: send me the segments of these writers, at most [`SEGMENTS_AT_ONCE`].
    Segments(Vec<u32>),
    /// I have all I need.
    Ready,
    /// I do not wait any longer for the others to come: my place is free.
    GiveUp,
    /// A survivor, after its hello: slots of these writers, which come along, in this order.
    Slots(Vec<u32>),
}

/// What unit 0 answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHost {
    /// You may not join.
    Refused(Refusal),
    /// You have joined; the control segment comes with this, and for a replaced writer its predecessor's
    /// slots.
    Welcome(Welcome),
    /// The segment of this writer.
    Segment(u32),
    /// All units are ready.
    Go,
    /// You are awaited no more: the others are. A unit that hears nothing after this has lost unit 0; one
    /// that had not heard it had come to a unit 0 that was leaving.
    Noted {
        /// Whether another unit 0 may come in the place of this one.
        writers_wait: bool,
    },
}

/// Everything that a unit must know of the pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Drawn at random when the pipe opens: tells it from every other one, and from itself opened again.
    pub id: [u8; 16],
    /// For a reader: which of the reader programs it belongs to.
    pub program: u32,
    /// Units of the writer program.
    pub writers: u32,
    /// Units of each reader program; none where any may come and go.
    pub readers: Vec<u32>,
    /// Slots.
    pub depth: u32,
    /// Queue policy.
    pub policy: Policy,
    /// What moves.
    pub dataset: Dataset,
    /// The writers' layout.
    pub layout: String,
    /// Whether the writers wait for a replacement of a lost unit, unit 0 included.
    pub writers_wait: bool,
    /// The same of each reader program.
    pub readers_wait: Vec<bool>,
    /// The name of each reader program.
    pub reader_programs: Vec<String>,
    /// The layout of each reader program.
    pub reader_layouts: Vec<String>,
    /// Whether a reader may convert the element type.
    pub converts: bool,
}
