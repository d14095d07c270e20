//! The handshake: what units say to the writer's unit 0 before data flows, in the messages of
//! [`polyduct_message::handshake`].

use crate::error::Refusal;
use polyduct_port::{Assembly, Changes, OnLoss, Policy};
use serde::{Deserialize, Serialize};

/// What the messages begin with.
pub use polyduct_message::handshake::PIPE as PROTOCOL;
/// The most segments that one message may ask for, so that the answers on their way stay few.
pub const SEGMENTS_AT_ONCE: usize = 64;

/// An array of the writers in a form that crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// Its name; empty for the only array of a pipe that has no name.
    pub name: String,
    /// Extents.
    pub shape: Vec<u64>,
    /// Element type as text.
    pub elem: String,
    /// The writers' layout.
    pub layout: String,
    /// Whether its size changes from step to step; the shape is the most that it has then.
    pub open: Option<Changes>,
}

/// What the array is called, the last of a pipe's, in which the values of each step lie, packed, as unit 0
/// says them. No other can have that name.
pub const VALUES: &str = "*values";

/// The numbers that a writer unit says of each step, where these arrays move.
pub fn words(arrays: &[Array]) -> usize {
    arrays.iter().filter_map(|array| Some(array.open?.words(array.shape.len()))).sum()
}

/// Of each of these arrays the first of its [numbers](words).
pub fn firsts(arrays: &[Array]) -> Vec<usize> {
    let mut next = 0;
    let first = |array: &Array| {
        let first = next;
        next += words(std::slice::from_ref(array));
        first
    };
    arrays.iter().map(first).collect()
}

/// What a writer program brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gives {
    /// These.
    Arrays(Vec<Array>),
    /// Plain bytes in this layout, for one array that the first reader describes.
    Bytes {
        /// The layout.
        layout: String,
    },
}

/// What a reader program wants of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Its layout.
    pub layout: String,
    /// The shape that it expects.
    pub shape: Option<Vec<u64>>,
    /// The element type that it expects.
    pub elem: Option<String>,
    /// Whether the element type may be converted on the way.
    pub convert: bool,
    /// What the array is put together from, where it is not one of the writers'.
    pub of: Option<Assembly>,
}

/// Which arrays a reader program takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Takes {
    /// The only one that there is.
    One(Wish),
    /// Those whose names fit: see [`polyduct_port::choose`]. What is put together has a name here that the
    /// writers need not have.
    Named(Vec<(String, Wish)>),
    /// None: it asks what there is. The answer is the refusal [`Described`](crate::Mismatch::Described).
    Ask,
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
    /// A writer: comes with its segment of slots, unless it takes the readers' dataset. Where it replaces
    /// one, that one's slots are used.
    Writer {
        /// What it brings.
        gives: Gives,
        /// Slots.
        depth: u32,
        /// Queue policy.
        policy: Policy,
        /// Reader programs to wait for; 0: any may come and go.
        readers: u32,
    },
    /// A reader.
    Reader {
        /// What it wants.
        takes: Takes,
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
    pub arrays: Vec<Array>,
    /// Whether the writers wait for a replacement of a lost unit, unit 0 included.
    pub writers_wait: bool,
    /// The same of each reader program.
    pub readers_wait: Vec<bool>,
    /// The name of each reader program.
    pub reader_programs: Vec<String>,
    /// What each reader program takes.
    pub reader_takes: Vec<Takes>,
}

impl Role {
    /// What a reader takes.
    pub fn takes(&self) -> Option<&Takes> {
        match self {
            Role::Reader { takes } => Some(takes),
            Role::Writer { .. } => None,
        }
    }
}

impl Takes {
    /// What is wanted, of whichever arrays.
    pub fn wishes(&self) -> impl Iterator<Item = &Wish> {
        let (one, named) = match self {
            Takes::One(wish) => (Some(wish), &[][..]),
            Takes::Ask => (None, &[][..]),
            Takes::Named(rules) => (None, &rules[..]),
        };
        one.into_iter().chain(named.iter().map(|(_, wish)| wish))
    }
}

impl Wish {
    /// An array in this layout, whatever it is.
    pub fn layout(layout: &str) -> Wish {
        Wish { layout: layout.to_owned(), shape: None, elem: None, convert: false, of: None }
    }
}
