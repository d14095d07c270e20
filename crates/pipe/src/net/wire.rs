//! Messages between units of a pipe across hosts, beside the handshake of every pipe and the bytes of the
//! steps.

use super::session::SessionId;
use crate::wire::{words, FromHost, Takes, ToHost, Welcome};
use polyduct_port::{Policy, UnitName, MAX_DEPTH};
use polyduct_slots::{fault::Fault, reason::cut, rebuild::Stands, Begin, Next, Stop};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What was drawn when the pipe opened: see [`Welcome::id`](crate::wire::Welcome::id). Zeros until a unit has
/// been told.
pub type PipeId = [u8; 16];

/// The first message on a connection.
// One at a time, and never kept: not worth a box.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum First {
    /// To unit 0 of the writers: I am a unit of the pipe.
    Join {
        /// My process.
        pid: u32,
        /// My name for what is said on this connection, and on those that follow it should it break.
        session: SessionId,
        /// Where I listen for as long as I take part, as I see it: a writer's readers find it at this port.
        door: Option<SocketAddr>,
        /// The first message of the handshake.
        hello: ToHost,
        /// What a unit knows that comes from an earlier unit 0.
        knows: Option<Box<Knows>>,
    },
    /// To any writer unit: I am this unit of this reader program; send what you have for me.
    Lane {
        /// The reader program.
        program: u32,
        /// The unit.
        unit: u32,
        /// The first step that it needs, where the queue drops none.
        from: u64,
        /// What the writer unit was not told when the pipe opened: set where reader programs come and go.
        guest: Option<Box<Guest>>,
    },
    /// To unit 0 of the writers: the connection broke, here I am again. The answer is a [`Back`].
    Again {
        /// The session.
        session: SessionId,
        /// Messages of unit 0's that I have heard in it.
        heard: u64,
        /// How many unit 0s there had been before that one.
        life: u32,
        /// The pipe's id: one of its name that was opened earlier or later is another.
        pipe: PipeId,
    },
}

/// A reader program that has come while the writers write, to a writer unit that is not unit 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Guest {
    /// Its units.
    pub units: u32,
    /// What it takes.
    pub takes: Takes,
}

/// What a unit brings to a new unit 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Knows {
    /// Where it stands.
    pub stands: Stands,
    /// What it was told of others.
    pub others: Vec<(UnitName, KnownUnit)>,
}

impl Knows {
    /// How many others had the place of the unit that knows this, `name`, before it.
    pub fn life_of(&self, name: UnitName) -> u32 {
        let own = self.others.iter().find(|(other, _)| *other == name);
        own.map_or(0, |(_, known)| known.life)
    }

    /// Whether no unit of that pipe is said to have more steps than there are slots.
    pub fn fits(&self, welcome: &Welcome) -> bool {
        let most = if welcome.policy == Policy::Block { 0 } else { welcome.depth.min(MAX_DEPTH) as usize };
        let words = words(&welcome.arrays);
        let left = self.others.iter().filter_map(|(_, known)| known.left.as_ref());
        left.chain([&self.stands]).all(|stands| {
            let said = &stands.brought;
            stands.turns.len() <= most
                && said.len() <= welcome.depth.min(MAX_DEPTH) as usize
                && said.iter().all(|(turn, said)| turn.slot < welcome.depth && said.len() == words)
        })
    }
}

/// What all units are told of each, where unit 0 may be replaced: the new one finds them by that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownUnit {
    /// How many others had its place before.
    pub life: u32,
    /// Its process.
    pub pid: u32,
    /// Where it listens for as long as it takes part, if it can be reached there.
    pub door: Option<SocketAddr>,
    /// It has left in good order, and stood there.
    pub left: Option<Stands>,
}

/// To a unit that comes again: whether its session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Back {
    /// It does, after so many messages that unit 0 has heard in it.
    On(u64),
    /// Nobody here knows it.
    Unknown,
    /// Nothing was heard of the unit for too long, and another has its place.
    Replaced,
    /// A pipe opens here: maybe in the place of the one that the session was with, whose units may join.
    Opens,
}

/// To a reader: its lane is open, and steps follow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneOpen {
    /// Bytes that each step will have here; where sizes change, those of the rest.
    pub bytes: u64,
}

/// To a writer, where the queue may drop steps or sizes change: this one is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Want {
    /// The step.
    pub step: u64,
    /// What the writer units said of it.
    pub said: Vec<u64>,
}

/// What a unit says to another of its host to prove that it knows the key.
pub type Proof = [u8; 32];

/// From a reader unit to a writer unit of its host, over a Unix socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NearAsk {
    /// I am this unit of this reader program: hand me your slots, and tell me of the steps from this one on.
    Lane {
        /// That I know the key.
        proof: Proof,
        /// The reader program.
        program: u32,
        /// The unit.
        unit: u32,
        /// The first step that it needs, where the queue drops none.
        from: u64,
    },
    /// Where the queue may drop steps, or sizes change: this one is wanted.
    Want(u64),
}

/// From a writer unit to a reader unit of its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NearTell {
    /// The descriptors of this message are slots.
    Slots {
        /// That I know the key.
        proof: Proof,
        /// How many slots came before.
        before: u32,
    },
    /// This step lies in its slot.
    Step(u64),
}

/// From a unit to unit 0 of the writers.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The handshake.
    Meet(ToHost),
    /// A writer: may I fill my next step?
    Begin,
    /// A writer, before it publishes, where sizes change from step to step: these are those of my part.
    Bring(Vec<u64>),
    /// A writer: my part of the step is filled.
    Publish,
    /// A writer: I know that the queue drops the step.
    Skip,
    /// A reader: what is my next step?
    Next,
    /// A reader, where steps are dropped: I do not wait for my next step now. It is not to be kept for me.
    Withdraw,
    /// A reader: I have my part of the step.
    Release,
    /// I write or read no more.
    Close,
    /// I give up, for this reason, of at most [`MAX_REASON`](polyduct_slots::reason::MAX_REASON) bytes; it may be
    /// empty. The rest of a longer one is cut off.
    Abort(String),
    /// I know why the stream ended badly, and go.
    Leave,
    /// The connection to this unit is gone: hung up, or nothing was heard for so many seconds.
    Lost(UnitName, u8),
}

/// From unit 0 of the writers.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Tell {
    /// The handshake. With a welcome comes unit 0's process, where it listens for the domain of the port, and
    /// the step at which the unit goes on; with a "segment" the address of that writer unit.
    Meet(FromHost, u32, Option<SocketAddr>, u64),
    /// This unit, whose process was this one, is lost and may be replaced.
    Lost(UnitName, u32),
    /// It is replaced; of a writer, where the new one is.
    Replaced(UnitName, Option<SocketAddr>),
    /// What is known of these units.
    Units(Vec<(UnitName, KnownUnit)>),
    /// What to do with your next step.
    Begin(Begin),
    /// To a reader, before its next step, where sizes change: what the writer units said of it, one behind the
    /// other.
    Brought(Vec<u64>),
    /// Your next step.
    Next(Next),
    /// To a reader that does not wait any more: there was no next step yet.
    NotYet,
    /// There is no next step, since this happened.
    Stop(Halt),
    /// This happened. Steps that were complete before can still be read.
    Notice(Halt),
    /// Nobody needs you any more.
    Bye,
}

/// A [`Stop`] as it crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halt {
    /// See [`Stop::Fault`] and [`Stop::Aborted`], with the reason of the latter.
    Fault(Fault, String),
    /// See [`Stop::Uneven`].
    Uneven {
        /// That unit.
        unit: UnitName,
        /// Its steps.
        closed_after: u64,
    },
    /// See [`Stop::ReadersGone`].
    ReadersGone,
    /// See [`Stop::Corrupt`].
    Corrupt,
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        match stop {
            Stop::Fault(fault) => Halt::Fault(fault, String::new()),
            Stop::Aborted { unit, reason } => Halt::Fault(Fault::Aborted { unit }, reason.into()),
            Stop::Uneven { unit, closed_after } => Halt::Uneven { unit, closed_after },
            Stop::ReadersGone => Halt::ReadersGone,
            Stop::Corrupt(_) => Halt::Corrupt,
        }
    }
}

impl From<Halt> for Stop {
    fn from(halt: Halt) -> Stop {
        match halt {
            Halt::Fault(Fault::Aborted { unit }, reason) => {
                Stop::Aborted { unit, reason: cut(&reason).into() }
            }
            Halt::Fault(fault, _) => Stop::Fault(fault),
            Halt::Uneven { unit, closed_after } => Stop::Uneven { unit, closed_after },
            Halt::ReadersGone => Stop::ReadersGone,
            Halt::Corrupt => Stop::Corrupt("the state of the steps at the writer's unit 0"),
        }
    }
}
