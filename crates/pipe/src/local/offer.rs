//! Large arrays that are left where they are: readers that wait fetch them from the writer's own memory.

use super::writer::Slotted;
use crate::bind::{bind_readers, bind_writers};
use crate::error::PipeError;
use crate::port::Port;
use crate::wire::{Takes, Welcome};
use crate::writer::{Parts, WriterEnd};
use polyduct_layout::Plan;
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

    /// Publishes a step of one array that lies in the caller's memory, and waits until the readers have fetched
    /// it. When they do not in good time, or may not, it goes through the slot after all.
    pub(super) fn offer(&mut self, port: &mut Port, turn: Turn, parts: &Parts<'_>) -> Result<(), PipeError> {
        let &[part] = parts.parts else { return self.write_slot(port, turn.step, turn, parts) };
        let unit = port.me.unit;
        self.local.slots.offer(unit, turn, part.as_ptr() as u64);
        self.finish(port, turn.step, Begin::Fill(turn), parts.said)?;
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
        let copied = parts.fill(port, self.slot_mut(turn));
        self.local.slots.withdraw(unit);
        copied?;
        match fetched {
            Err(e) if e.scope() == Scope::Port => Err(e),
            _ => Ok(()),
        }
    }
}

/// Whether readers may fetch large arrays of this unit, whose part has so many bytes, from its own memory: it
/// is large and the only one, every reader's runs in it are long, and its death would not leave a published
/// step without data that a replacement is expected to go on from.
pub(super) fn may_offer(welcome: &Welcome, len: usize, options: &Options) -> bool {
    let is_one = matches!(welcome.arrays[..], [_]);
    let converts = welcome.reader_takes.iter().flat_map(Takes::wishes).any(|wish| wish.convert);
    if !is_one
        || len < OFFER_FROM
        || converts
        || options.on_loss == OnLoss::Wait
        || options.policy != Policy::Block
    {
        return false;
    }
    let Ok(src) = bind_writers(&welcome.arrays, welcome.writers) else { return false };
    let long_runs = |(takes, &units): (&Takes, &u32)| {
        let (_, dst) = bind_readers(&welcome.arrays, takes, units).ok()?;
        let plan = Plan::from_writer(src.mapping(0), dst.mapping(0), u64::from(options.unit)).ok()?;
        Some(plan.bytes() >= plan.runs() * OFFER_RUN)
    };
    let long = welcome.reader_takes.iter().zip(&welcome.readers).all(|r| long_runs(r).unwrap_or(false));
    // Where Yama forbids looking into other processes by default, this one allows it.
    long && polyduct_os::remote::permit_readers().is_ok()
}
