//! The step protocol for units that cannot map it: a state machine that holds it at unit 0 of the writers, takes what the
//! others [ask](Ask) and says what to [tell](Tell) them. No sockets, no time.
//!
//! The protocol itself is that of one host ([`Slots`]), in memory of this process; each remote unit has somebody here who
//! looks for it. What a unit says is input: it is checked against what it was last told, and nobody's slot or step number is
//! ever taken from the wire.

use super::wire::{Ask, Tell};
use crate::error::{Side, UnitName};
use crate::rendezvous::ConnId;
use crate::slots::{fault::Fault, Begin, Next, Slots, Stop};
use std::collections::BTreeMap;

/// What a unit was last told it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    Nothing,
    Begin(Begin),
    Next(Next),
}

struct Member {
    unit: UnitName,
    /// The next step it will ask about.
    next: u64,
    asks: bool,
    granted: Granted,
    /// It has closed, given up or left, or was told that there is no next step: its hangup is no loss.
    over: bool,
    /// It knows what went wrong, by an answer or a notice.
    knows: bool,
    told_bye: bool,
}

/// A unit said what it may not say now: its connection is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfTurn;

/// The state machine.
pub struct Hub {
    slots: Slots,
    members: BTreeMap<ConnId, Member>,
}

impl Hub {
    /// A hub over the pipe's control state.
    pub fn new(slots: Slots) -> Hub {
        Hub { slots, members: BTreeMap::new() }
    }

    /// The control state.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// A unit has joined.
    pub fn join(&mut self, conn: ConnId, unit: UnitName, pid: u32, start_time: u64) {
        self.slots.join(unit, (pid, start_time));
        let granted = Granted::Nothing;
        let (asks, over, knows, told_bye) = (false, false, false, false);
        let member = Member { unit, next: 0, asks, granted, over, knows, told_bye };
        self.members.insert(conn, member);
    }

    /// A connection is gone. Returns whether its unit had come to its end before.
    pub fn hangup(&mut self, conn: ConnId) -> bool {
        self.members.remove(&conn).is_none_or(|m| m.over && (m.told_bye || m.unit.side != Side::Writer))
    }

    /// Whether every other unit has left.
    pub fn is_alone(&self) -> bool {
        self.members.is_empty()
    }

    /// A unit says something.
    pub fn handle(&mut self, conn: ConnId, ask: &Ask) -> Result<(), OutOfTurn> {
        let slots = &self.slots;
        let m = self.members.get_mut(&conn).ok_or(OutOfTurn)?;
        let (n, number) = (m.next, m.unit.unit);
        match (ask, m.unit.side, m.granted) {
            (Ask::Abort, ..) => {
                slots.give_up(m.unit);
                m.over = true;
                m.told_bye = true;
            }
            (Ask::Leave, ..) if m.knows => {
                slots.leave(m.unit);
                m.over = true;
                m.asks = false;
            }
            (Ask::Lost(lost), ..) => {
                let there = slots.units().any(|u| u == *lost) && *lost != m.unit;
                if !there {
                    return Err(OutOfTurn);
                }
                slots.fail(Fault::Lost { unit: *lost, pid: slots.process(*lost).0 });
            }
            (Ask::Close, side, _) if !m.over => {
                m.over = match side {
                    // Told with the others that they disagree, it leaves when it knows.
                    Side::Writer => slots.close_writer(number, n).is_ok(),
                    Side::Reader(program) => {
                        slots.close_reader(program, number, n);
                        true
                    }
                };
                m.asks = false;
            }
            // It has yet to hear of its own end.
            _ if m.over => {}
            (Ask::Begin, Side::Writer, Granted::Nothing) if !m.asks => m.asks = true,
            (Ask::Publish, Side::Writer, Granted::Begin(Begin::Fill(turn))) => {
                slots.publish(number, turn);
                m.next += 1;
                m.granted = Granted::Nothing;
            }
            (Ask::Skip, Side::Writer, Granted::Begin(Begin::Drop)) => {
                slots.skip(number, n);
                m.next += 1;
                m.granted = Granted::Nothing;
            }
            (Ask::Next, Side::Reader(_), Granted::Nothing) if !m.asks => m.asks = true,
            (Ask::Release, Side::Reader(program), Granted::Next(Next::Step(turn))) => {
                slots.release(program, number, n, turn);
                m.next += 1;
                m.granted = Granted::Nothing;
            }
            _ => return Err(OutOfTurn),
        }
        Ok(())
    }

    /// What there is to tell now. To be called when anything was handled, or unit 0 itself has done a step.
    pub fn poll(&mut self) -> Vec<(ConnId, Tell)> {
        let mut told = Vec::new();
        let slots = &self.slots;
        for (&conn, m) in self.members.iter_mut().filter(|(_, m)| m.asks) {
            let (granted, tell) = match m.unit.side {
                Side::Writer => match slots.poll_begin(m.unit.unit, m.next) {
                    Ok(None) => continue,
                    Ok(Some(begin)) => (Granted::Begin(begin), Tell::Begin(begin)),
                    Err(stop) => {
                        m.knows = true;
                        (Granted::Nothing, Tell::Stop(stop.into()))
                    }
                },
                Side::Reader(program) => match slots.poll_next(program, m.unit.unit, m.next) {
                    Ok(None) => continue,
                    Ok(Some(next)) => {
                        m.over |= next == Next::End;
                        (Granted::Next(next), Tell::Next(next))
                    }
                    Err(stop) => {
                        (m.knows, m.over) = (true, true);
                        // Of a fault the writers hear anyway; that this reader has read its last they learn from here
                        // alone, whether it comes to closing or not.
                        if !matches!(stop, Stop::Fault(_)) {
                            slots.close_reader(program, m.unit.unit, m.next);
                        }
                        (Granted::Nothing, Tell::Stop(stop.into()))
                    }
                },
            };
            (m.asks, m.granted) = (false, granted);
            told.push((conn, tell));
        }
        let fault = slots.fault();
        if let Some(fault) = fault {
            self.notice(slots.stop(fault), &mut told);
        }
        let slots = &self.slots;
        let readers_over = self.readers_are_over();
        let is_fatal = fault.is_some_and(Fault::loses_steps);
        for (&conn, m) in &mut self.members {
            let unneeded = m.unit.side != Side::Writer || readers_over || is_fatal;
            let closed = slots.is_closed(m.unit) || m.granted == Granted::Next(Next::End);
            if m.over && closed && unneeded && !m.told_bye {
                m.told_bye = true;
                told.push((conn, Tell::Bye));
            }
        }
        told
    }

    /// What the others must know before unit 0 is gone.
    pub fn last_words(&mut self) -> Vec<(ConnId, Tell)> {
        let mut told = self.poll();
        if self.slots.readers_are_gone() {
            self.notice(Stop::ReadersGone, &mut told);
        }
        told
    }

    fn notice(&mut self, stop: Stop, told: &mut Vec<(ConnId, Tell)>) {
        for (&conn, m) in self.members.iter_mut().filter(|(_, m)| !m.knows && !m.over) {
            m.knows = true;
            told.push((conn, Tell::Notice(stop.into())));
        }
    }

    /// Whether no reader needs what the writers have any more.
    pub fn readers_are_over(&self) -> bool {
        self.members.values().all(|m| m.unit.side == Side::Writer || m.over) && self.readers_joined()
    }

    /// Units that have left are no members any more, but have joined.
    fn readers_joined(&self) -> bool {
        self.slots.units().all(|unit| unit.side == Side::Writer || self.slots.process(unit).1 != 0)
    }
}
