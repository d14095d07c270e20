//! A reader's end of a connection to a writer unit: [frames](super::frames) that bring the unit's bytes of a
//! step, or, on one host, slots that hold them.

use super::client::Moved;
use super::frames::Frames;
use super::near::Mapping;
use super::redial::Redial;
use super::route::{End, Route};
use crate::threads::Threads;
use crate::work::Supply;
use polyduct_copy::Kernels;
use polyduct_message::link::net::LinkFault;
use polyduct_message::LinkError;
use polyduct_os::poll::PollItem;
use polyduct_slots::Turn;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// How the bytes come.
pub enum Delivery {
    /// The writer sends them.
    Frames(Box<Frames>),
    /// The reader copies them from the writer's slots.
    Slots(Mapping),
}

/// A connection to a writer unit.
pub struct Lane {
    /// The writer unit.
    pub unit: u32,
    /// Where it was when this unit joined.
    pub addr: SocketAddr,
    /// Slots of the writer, bytes of each, and the first of those, of arrays whose size does not change.
    pub slots: (u32, usize, usize),
    way: Delivery,
    supply: Supply,
    route: Route,
    /// Sizes change from step to step.
    changes: bool,
    waits: bool,
    open: bool,
    /// The writer's slots could not be mapped: their bytes are asked for.
    unmapped: bool,
    /// Connections that brought nothing, one after the other.
    fruitless: u32,
    /// The connection is gone, and another is made.
    pub(super) redial: Option<Redial>,
    /// Where unit 0 had said that the writer unit is when the connection was made, if it had replaced
    /// another.
    pub(super) moved: Option<Moved>,
}

impl Lane {
    /// A lane for what a writer has, which has been told what for and has `depth` slots. Whether what it has
    /// `changes` from step to step.
    pub fn new(addr: SocketAddr, way: Delivery, supply: Supply, depth: u32, changes: bool) -> Lane {
        let route = Route::new(&supply, End::Scatter);
        Lane {
            unit: supply.unit,
            addr,
            slots: (depth, supply.slot_len, supply.fixed),
            way,
            supply,
            route,
            changes,
            waits: false,
            open: false,
            unmapped: false,
            fruitless: 0,
            redial: None,
            moved: None,
        }
    }

    /// Goes on with another connection, to whoever has replaced the writer unit: what has come of a step
    /// comes again.
    pub fn replace(&mut self, way: Delivery) {
        (self.way, self.open) = (way, false);
        self.fruitless += 1;
        if self.waits {
            self.begin();
        }
    }

    /// How many connections have been made in vain since bytes came last.
    pub fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// Whether the writer has opened its end; looks for that.
    pub fn is_open(&mut self) -> Result<bool, LinkFault> {
        if !self.open {
            self.open = match &mut self.way {
                Delivery::Frames(frames) => frames.is_open(Some(&self.route).filter(|_| !self.changes))?,
                Delivery::Slots(slots) => match slots.is_open() {
                    Ok(open) => open,
                    Err(fault) => {
                        tracing::warn!(unit = self.unit, %fault, "slots of this host cannot be mapped");
                        self.unmapped = true;
                        return Err(LinkError::Closed.into());
                    }
                },
            };
        }
        Ok(self.open)
    }

    /// Whether the next connection may ask for slots to map.
    pub fn may_map(&self) -> bool {
        !self.unmapped
    }

    /// Whether the writer's slots are mapped.
    pub fn is_mapped(&self) -> bool {
        matches!(self.way, Delivery::Slots(_)) && self.open
    }

    /// What to wait for.
    pub fn item(&self) -> PollItem<'_> {
        match &self.way {
            Delivery::Frames(frames) => PollItem::readable(frames.channel()),
            Delivery::Slots(slots) => slots.item(),
        }
    }

    /// Asks for a step, of which the writers said this.
    pub fn want(&mut self, step: u64, said: &[u64]) -> Result<(), LinkFault> {
        match &mut self.way {
            Delivery::Frames(frames) => frames.want(step, said),
            Delivery::Slots(slots) => slots.want(step),
        }
    }

    /// What the writer has from now on.
    pub fn supplies(&mut self, supply: &Supply) {
        self.route = Route::new(supply, End::Scatter);
        self.supply = supply.clone();
    }

    /// From now on the next step's bytes are awaited, if there are some.
    pub fn begin(&mut self) {
        self.waits = self.supply.bytes > 0;
        if let Delivery::Frames(frames) = &mut self.way {
            frames.begin();
        }
    }

    /// Whether bytes of the step are missing.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Takes what has come of `step` into `parts`, one for each array. Returns whether there may be more at
    /// once.
    pub fn receive(
        &mut self,
        Turn { step, slot, .. }: Turn,
        parts: &mut [&mut [u8]],
        tools: (Kernels, Threads),
    ) -> Result<bool, LinkFault> {
        // It is one that was opened anew where the writer has yet to say so.
        if !self.waits || !self.is_open()? {
            return Ok(false);
        }
        let (all, more) = match &mut self.way {
            Delivery::Frames(frames) => {
                let more = frames.receive(&self.route, step, parts, tools.0, &mut self.fruitless)?;
                (frames.is_done(), more)
            }
            Delivery::Slots(slots) => match slots.slot(step, slot)? {
                None => (false, false),
                Some(slot) => {
                    let copied = self.supply.copy(tools, slot, parts);
                    copied.map_err(|_| LinkError::OutOfTurn { what: "a route that leaves its array" })?;
                    self.fruitless = 0;
                    (true, false)
                }
            },
        };
        self.waits = !all;
        Ok(more && self.waits)
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Delivery::Frames(frames) => frames.channel().as_fd(),
            Delivery::Slots(slots) => slots.as_fd(),
        }
    }
}
