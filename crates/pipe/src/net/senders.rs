//! The threads that send from a writer unit's slots: one for each reader unit that has a part there, so that a slow one
//! keeps no other waiting, and several use several cores.

use super::channel::Channel;
use super::porch::Porch;
use super::route::{Cursor, End, Piece, Route, FRAME};
use super::store::Store;
use super::wire::{First, LaneOpen, Want};
use crate::bind::{bind_writer, from_wire};
use crate::config::Policy;
use crate::error::PipeError;
use crate::port::kernels;
use crate::wire::Welcome;
use polyduct_copy::{Dest, Kernels, Source};
use polyduct_layout::{Layout, Mapping};
use polyduct_message::link::net::Fault;
use polyduct_message::LinkError;
use polyduct_os::{
    clock,
    poll::{poll, EventFd, PollItem},
    OsError,
};
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Slices in one system call.
const SLICES: usize = 64;
/// Bytes of the threads' stacks.
const STACK: usize = 256 << 10;

/// A writer unit's slots, and who sends from them.
pub struct Senders {
    /// The slots.
    pub store: Store,
    src: Mapping,
    len: usize,
    readers: Vec<Mapping>,
    unit: u64,
    lossy: bool,
    kernels: Kernels,
    stop: EventFd,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    there: HashMap<(u32, u32), Arc<Lane>>,
    threads: Vec<JoinHandle<()>>,
    /// No more of them.
    stopped: bool,
}

/// What ends a thread.
struct Lane {
    stop: EventFd,
    stopped: AtomicBool,
}

impl Lane {
    fn stop(&self, store: &Store) {
        self.stopped.store(true, Ordering::Release);
        let _ = self.stop.signal();
        store.wake();
    }
}

impl Senders {
    /// The slots of writer unit `unit` of a pipe.
    pub fn new(pipe: &str, welcome: &Welcome, unit: u32) -> Result<Arc<Senders>, PipeError> {
        let data = from_wire(&welcome.dataset)?;
        let src = bind_writer(&welcome.layout.parse()?, &data, welcome.writers)?;
        let bind = |(layout, units): (&String, &u32)| -> Result<Mapping, PipeError> {
            Ok(layout.parse::<Layout>()?.bind(&data, u64::from(*units))?)
        };
        let readers =
            welcome.reader_layouts.iter().zip(&welcome.readers).map(bind).collect::<Result<_, _>>()?;
        let len = src.local_len_bytes(u64::from(unit))? as usize;
        let system = crate::join::system(pipe);
        Ok(Arc::new(Senders {
            store: Store::new(welcome.depth, len).map_err(&system)?,
            len,
            readers,
            unit: unit.into(),
            lossy: welcome.policy != Policy::Block,
            kernels: kernels(src.dataset()),
            src,
            stop: EventFd::new().map_err(&system)?,
            lanes: Mutex::default(),
        }))
    }

    /// The writers' mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.src
    }

    /// Takes a connection on which a unit of a reader program asks for its part of the steps from `from` on. One that makes no
    /// sense is dropped. Of two for one unit the later counts: the unit was replaced, or lost the connection.
    pub fn adopt(self: &Arc<Self>, mut channel: Channel, program: u32, unit: u32, from: u64) {
        let Some(dst) = self.readers.get(program as usize).filter(|m| u64::from(unit) < m.units()) else {
            return tracing::warn!(program, unit, "turned a lane away: there is no such reader");
        };
        let route = match Route::new(&self.src, dst, self.unit, unit.into(), End::Gather) {
            Ok(Some(route)) => route,
            _ => return tracing::warn!(program, unit, "turned a lane away: nothing goes there"),
        };
        let Ok(stop) = EventFd::new() else {
            return tracing::warn!(program, unit, "turned a lane away: the system has no descriptor for it");
        };
        let lane = Arc::new(Lane { stop, stopped: AtomicBool::new(false) });
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.stopped {
            return;
        }
        if let Some(before) = lanes.there.insert((program, unit), lane.clone()) {
            before.stop(&self.store);
        }
        lanes.threads.retain(|thread| !thread.is_finished());
        let this = self.clone();
        let serve = move || {
            if let Err(fault) = this.serve(&mut channel, &route, &lane, from) {
                // Whether its unit is lost or has closed, unit 0 knows.
                tracing::debug!(program, unit, %fault, "a lane ended");
            }
        };
        let spawned = std::thread::Builder::new().name("polyduct-send".into()).stack_size(STACK).spawn(serve);
        match spawned {
            Ok(thread) => lanes.threads.push(thread),
            Err(e) => {
                tracing::warn!(program, unit, %e, "turned a lane away: the system has no thread for it");
                lanes.there.remove(&(program, unit));
            }
        }
    }

    /// Lets readers in until stopped.
    pub fn accept(self: &Arc<Self>, mut porch: Porch) {
        loop {
            let mut items = vec![PollItem::readable(&self.stop)];
            porch.items(&mut items);
            let timeout = porch.deadline().map(|d| d.saturating_sub(clock::now()));
            if poll(&mut items, timeout).is_err() || items[0].is_ready() {
                return;
            }
            let Ok(came) = porch.serve(clock::now()) else { return };
            for (channel, first) in came {
                if let First::Lane { program, unit, from } = first {
                    self.adopt(channel, program, unit, from);
                }
            }
        }
    }

    /// Ends all threads.
    pub fn stop(&self) {
        let _ = self.stop.signal();
        let none = Lanes { stopped: true, ..Lanes::default() };
        let lanes = std::mem::replace(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner), none);
        lanes.there.values().for_each(|lane| lane.stop(&self.store));
        lanes.threads.into_iter().for_each(|t| drop(t.join()));
    }

    fn serve(&self, channel: &mut Channel, route: &Route, lane: &Lane, from: u64) -> Result<(), Fault> {
        channel.post(&LaneOpen { bytes: route.bytes() })?;
        let mut frame = vec![0; FRAME as usize];
        let mut next = from;
        loop {
            drain(channel, lane)?;
            let memory = match self.lossy {
                false => self.store.wait_for(next, &lane.stopped),
                true => {
                    let Some(Want { step }) = wanted(channel, lane)? else { return Ok(()) };
                    next = step;
                    let found = self.store.find(step);
                    if found.is_none() {
                        return Err(LinkError::OutOfTurn { what: "a step that is not there" }.into());
                    }
                    found
                }
            };
            let Some(memory) = memory else { return Ok(()) };
            let sent = self.send_step(
                channel,
                (route, lane),
                next,
                memory.slice(0..self.len).unwrap_or_default(),
                &mut frame,
            );
            self.store.done(memory);
            sent?;
            next += 1;
        }
    }

    fn send_step(
        &self,
        channel: &mut Channel,
        (route, lane): (&Route, &Lane),
        step: u64,
        slot: &[u8],
        frame: &mut [u8],
    ) -> Result<(), Fault> {
        let mut header = [0; 16];
        header[..8].copy_from_slice(&step.to_le_bytes());
        header[8..].copy_from_slice(&route.bytes().to_le_bytes());
        let mut cursor = Cursor::default();
        let mut slices = Vec::with_capacity(SLICES);
        slices.push(IoSlice::new(&header));
        while let Some(piece) = route.next(&mut cursor) {
            match piece {
                Piece::Run { at, len } => {
                    slices.push(IoSlice::new(slot.get(at..at + len).unwrap_or_default()));
                    if slices.len() == SLICES {
                        send(channel, lane, &mut slices)?;
                        slices.clear();
                    }
                }
                Piece::Frame { table, len } => {
                    send(channel, lane, &mut slices)?;
                    slices.clear();
                    let gathered =
                        self.kernels.execute(&table, Source::from(slot), Dest::from(&mut frame[..len]));
                    gathered.map_err(|_| LinkError::OutOfTurn { what: "a route that leaves its slot" })?;
                    send(channel, lane, &mut [IoSlice::new(&frame[..len])])?;
                }
            }
        }
        send(channel, lane, &mut slices)?;
        drain(channel, lane)
    }
}

fn wanted(channel: &mut Channel, lane: &Lane) -> Result<Option<Want>, Fault> {
    loop {
        if let Some(want) = channel.next()? {
            return Ok(Some(want));
        }
        let mut items = [PollItem::readable(&lane.stop), PollItem::readable(channel)];
        poll(&mut items, None)?;
        if items[0].is_ready() {
            return Ok(None);
        }
    }
}

fn send(channel: &mut Channel, lane: &Lane, mut parts: &mut [IoSlice<'_>]) -> Result<(), Fault> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match channel.send(parts)? {
            Some(n) => IoSlice::advance_slices(&mut parts, n),
            None => wait_writable(channel, lane)?,
        }
    }
    Ok(())
}

fn drain(channel: &mut Channel, lane: &Lane) -> Result<(), Fault> {
    while !channel.flush()? {
        wait_writable(channel, lane)?;
    }
    Ok(())
}

fn wait_writable(channel: &Channel, lane: &Lane) -> Result<(), Fault> {
    let mut items = [PollItem::readable(&lane.stop), PollItem::writable(channel)];
    // Who is silent is noticed by the next attempt.
    poll(&mut items, channel.deadline().map(|at| at.saturating_sub(clock::now())))?;
    match items[0].is_ready() {
        true => Err(OsError::PeerClosed.into()),
        false => Ok(()),
    }
}
