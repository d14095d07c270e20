//! Large arrays that are left where they are: readers that wait fetch them from the writer's own memory.

use super::writer::Slotted;
use crate::error::PipeError;
use crate::port::Port;
use crate::wire::Welcome;
use crate::writer::{fill, WriterEnd};
use polyduct_copy::Kernels;
use polyduct_layout::{Layout, LayoutError, Mapping, Plan};
use polyduct_os::{clock, spin::Spin};
use polyduct_port::{OnLoss, Options, Policy, Scope};
use polyduct_slots::bell::{wait_for, WaitLimits};
use polyduct_slots::{Begin, Slots, Turn};
use std::time::Duration;

/// Parts from this size on may be fetched by the readers from the writer's own memory: one copy by the kernel
/// instead of two, at the price of a wait.
const OFFER_FROM: usize = 4 << 20;
/// Shortest average run that the kernel copies as fast as a mapped slot would be read.
const OFFER_RUN: u64 = 64 << 10;
/// How fast readers that were waiting are expected to fetch, at least; slower ones get the slot.
const FETCH_BYTES_PER_US: usize = 2000;
/// How fast a part is copied into its slot, about.
const SLOT_BYTES_PER_US: usize = 10_000;

impl Slotted {
    /// Whether a reader waits, or comes to wait within the time that copying into the slot would take. Where
    /// steps follow each other evenly this never makes them slower: either the readers come in that time and
    /// one copy is saved, or they are what the steps wait for anyway.
    pub(super) fn readers_come(&self, port: &mut Port, len: usize) -> bool {
        let time = Duration::from_micros((len / SLOT_BYTES_PER_US) as u64);
        let end = clock::now().saturating_add(time);
        // Nothing rings when a reader falls asleep.
        let look_again = WaitLimits { spin: Spin::never(), timeout: Some(time / 32), interrupt: None };
        loop {
            let (slots, stats) = (&self.local.slots, &mut port.stats);
            let come = || slots.readers_sleep().then_some(());
            if wait_for(slots.freed_bell(), &look_again, &mut stats.waited, come).is_ok() {
                return true;
            }
            if clock::now() >= end || slots.fault().is_some() {
                return false;
            }
        }
    }

    /// Publishes a step that lies in the caller's memory, and waits until the readers have fetched it. When
    /// they do not in good time, or may not, it goes through the slot after all.
    pub(super) fn offer(
        &mut self,
        port: &mut Port,
        turn: Turn,
        part: &[u8],
        with: Kernels,
    ) -> Result<(), PipeError> {
        let unit = port.me.unit;
        self.local.slots.offer(unit, turn, part.as_ptr() as u64);
        self.finish(port, turn.step, Begin::Fill(turn))?;
        let timeout = port.patience.timeout;
        let time = Duration::from_micros((part.len() / FETCH_BYTES_PER_US) as u64);
        port.patience.timeout = Some(timeout.map_or(time, |t| t.min(time)));
        let what = ("the readers to fetch step", turn.step);
        let fetched = self.local.wait(port, Slots::freed_bell, what, |slots| {
            if let Some(fault) = slots.fault() {
                return Err(slots.stop(fault));
            }
            Ok((slots.is_released(turn) || slots.is_refused(unit, turn)).then_some(()))
        });
        port.patience.timeout = timeout;
        if fetched.is_ok() && self.local.slots.is_released(turn) {
            return Ok(());
        }
        self.offers &= !self.local.slots.is_refused(unit, turn);
        // Readers may be copying from `part` until the offer is withdrawn, and look again after that.
        let copied = fill(port, self.slot_mut(turn), part, with);
        self.local.slots.withdraw(unit);
        copied?;
        match fetched {
            Err(e) if e.scope() == Scope::Port => Err(e),
            _ => Ok(()),
        }
    }
}

/// Whether readers may fetch large arrays of this unit from its own memory: its part is large, every reader's
/// runs in it are long, and its death would not leave a published step without data that a replacement is
/// expected to go on from.
pub(super) fn may_offer(mapping: &Mapping, welcome: &Welcome, options: &Options) -> bool {
    let unit = u64::from(options.unit);
    let large = mapping.local_len_bytes(unit).is_ok_and(|n| n >= OFFER_FROM as u64);
    if !large || welcome.converts || options.on_loss == OnLoss::Wait || options.policy != Policy::Block {
        return false;
    }
    let long_runs = |(layout, units): (&String, &u32)| -> Result<bool, LayoutError> {
        let reader = layout.parse::<Layout>()?.bind(mapping.dataset(), u64::from(*units))?;
        let plan = Plan::from_writer(mapping, &reader, unit)?;
        Ok(plan.bytes() >= plan.runs() * OFFER_RUN)
    };
    let long = welcome.reader_layouts.iter().zip(&welcome.readers).all(|r| long_runs(r).unwrap_or(false));
    // Where Yama forbids looking into other processes by default, this one allows it.
    long && polyduct_os::remote::permit_readers().is_ok()
}
