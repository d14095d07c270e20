//! The step protocol for units that cannot map it: a state machine that holds it at unit 0 of the writers,
//! takes what the others [ask](Ask) and says what to [tell](Tell) them. No sockets, no time.
//!
//! The protocol itself is that of one host ([`Slots`]), in memory of this process; each remote unit has
//! somebody here who looks for it. What a unit says is input: it is checked against what it was last told,
//! and nobody's slot or step number is ever taken from the wire.

mod guests;

use super::wire::{Ask, Tell};
use crate::rendezvous::ConnId;
use polyduct_port::{Policy, Side, UnitName};
use polyduct_slots::rebuild::{Granted, Stands};
use polyduct_slots::{fault::Fault, Begin, Next, Slots, Stop};
use std::collections::{BTreeMap, VecDeque};

struct RemoteUnit {
    unit: UnitName,
    /// The next step it will ask about.
    next: u64,
    /// A writer: the steps before this one its predecessor has published. What is needed of them is written
    /// again.
    published: u64,
    /// Questions about steps that are not answered yet.
    asks: u32,
    /// A writer: it has asked, and is told of further steps unasked.
    begun: bool,
    /// A reader: it asks for what there is now.
    withdraws: bool,
    /// What it was told of its next steps, and has not done: a reader may ask ahead.
    granted: VecDeque<Granted>,
    /// It came from another unit 0, by whose word it fills a slot for a step that is dropped by now.
    fills_in_vain: bool,
    /// A reader: where the steps lay that it took last, if they are to be known.
    taken: Stands,
    /// It has closed, given up or left, or was told that there is no next step: its hangup is no loss.
    over: bool,
    /// It knows what went wrong, by an answer or a notice.
    knows: bool,
    told_bye: bool,
    /// Its unit counts as lost, and may come back before another has its place.
    given_up: bool,
}

impl RemoteUnit {
    fn new(unit: UnitName, next: u64, published: u64) -> RemoteUnit {
        RemoteUnit {
            unit,
            next,
            published,
            asks: 0,
            begun: false,
            withdraws: false,
            granted: VecDeque::new(),
            fills_in_vain: false,
            taken: Stands::default(),
            over: false,
            knows: false,
            told_bye: false,
            given_up: false,
        }
    }

    /// Whether its unit is not lost when its connection ends.
    fn has_ended(&self) -> bool {
        self.over && (self.told_bye || self.unit.side != Side::Writer)
    }
}

/// Tells the units for which there is a reason that they do not know yet.
fn notice(
    members: &mut BTreeMap<ConnId, RemoteUnit>,
    why: impl Fn(&RemoteUnit) -> Option<Stop>,
    told: &mut Vec<(ConnId, Tell)>,
) {
    for (&conn, m) in members.iter_mut().filter(|(_, m)| !m.knows) {
        let Some(stop) = why(m) else { continue };
        m.knows = true;
        told.push((conn, Tell::Notice(stop.into())));
    }
}

/// Of how many steps a unit is told that it has not published or released: of as many as the writers have
/// slots for, so that a writer knows that the next slot is free before it asks, and what comes next lies in a
/// reader's sockets. Where steps are dropped, only of one: others would be old when the unit comes to them.
pub fn steps_ahead(depth: u32, policy: Policy) -> u32 {
    match policy {
        Policy::Block => depth,
        _ => 1,
    }
}

/// A unit said what it may not say now: its connection is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfTurn;

/// The state machine.
pub struct StepHub {
    slots: Slots,
    members: BTreeMap<ConnId, RemoteUnit>,
    /// Programs whose lost units may be replaced.
    waiting: Vec<Side>,
    /// Units of theirs that are lost and not replaced yet, guests aside.
    absent: Vec<UnitName>,
    /// The stream has ended, and no guest is waited for any more.
    lets_go: bool,
}

impl StepHub {
    /// A hub over the pipe's control state. Lost units of the programs in `waiting` may be replaced.
    pub fn new(slots: Slots, waiting: Vec<Side>) -> StepHub {
        StepHub { slots, members: BTreeMap::new(), waiting, absent: Vec::new(), lets_go: false }
    }

    /// Whether lost units of a program may be replaced.
    pub fn waits_for(&self, side: Side) -> bool {
        self.waiting.contains(&side)
    }

    /// The control state.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// A unit has joined, maybe in the place of one that was lost.
    pub fn join(&mut self, conn: ConnId, unit: UnitName, pid: u32, start_time: u64) {
        self.is_there(unit);
        let reached = self.slots.resume_at(unit);
        // Numbers of processes of other hosts mean nothing here.
        self.slots.join(unit, (pid, start_time), 0);
        let (next, published) = match unit.side {
            // What it had published went with its memory.
            Side::Writer => (self.slots.first_needed(reached), reached),
            Side::Reader(_) => (reached, 0),
        };
        self.members.insert(conn, RemoteUnit::new(unit, next, published));
    }

    /// A unit has come from an earlier unit 0, and stands where the [state](Slots::rebuild) was made anew
    /// from, in which the writers that are lost have published the steps before `published`.
    pub fn returns(&mut self, conn: ConnId, unit: UnitName, published: u64, stands: &Stands) {
        let (slots, n) = (&self.slots, stands.done);
        let mut member = RemoteUnit::new(unit, n, if unit.side == Side::Writer { published } else { 0 });
        match (stands.granted, unit.side) {
            (Some(granted @ Granted::Begin(_)), Side::Writer) if n < published => {
                member.granted.push_back(granted);
            }
            (Some(Granted::Begin(had)), Side::Writer) => {
                let begin = slots.poll_begin(unit.unit, n).ok().flatten().unwrap_or(Begin::Drop);
                member.fills_in_vain = begin == Begin::Drop && had != Begin::Drop;
                member.granted.push_back(Granted::Begin(begin));
            }
            (Some(Granted::Next(next)), Side::Reader(program)) => {
                let again = slots.poll_next(program, unit.unit, n).ok().flatten();
                let next = if next == Next::End { Some(next) } else { again };
                member.granted.extend(next.map(Granted::Next));
                member.over = next == Some(Next::End);
            }
            _ => {}
        }
        if unit.side == Side::Writer {
            stands.brought.iter().for_each(|(turn, said)| slots.bring(unit.unit, *turn, said));
        }
        member.taken.turns.clone_from(&stands.turns);
        if unit.side != Side::Writer && stands.granted.is_some() && !stands.has_all() {
            member.taken.turns.pop();
        }
        // Writers that disagree are told with the others.
        let disagree = unit.side == Side::Writer && slots.fault().is_some();
        member.over |= stands.closed && !disagree;
        self.members.insert(conn, member);
    }

    /// A unit that was there with an earlier unit 0 is lost, and may be replaced.
    pub fn lacks(&mut self, unit: UnitName) {
        self.is_lost(unit);
    }

    /// Where the unit of a connection stood when it came to its end.
    pub fn stood(&self, conn: ConnId) -> Option<(UnitName, Stands)> {
        let member = self.members.get(&conn)?;
        let end = Granted::Next(Next::End);
        let granted = (member.granted.front() == Some(&end)).then_some(end);
        let stands = Stands { done: member.next, granted, closed: true, ..member.taken.clone() };
        Some((member.unit, stands))
    }

    /// The step at which a unit that has just joined goes on.
    pub fn goes_on_at(&self, conn: ConnId) -> u64 {
        self.members.get(&conn).map_or(0, |m| m.next)
    }

    /// A connection is gone. Returns whether its unit had come to its end before.
    pub fn hangup(&mut self, conn: ConnId) -> bool {
        let lost = self.replaceable(conn);
        lost.into_iter().for_each(|unit| self.is_lost(unit));
        self.members.remove(&conn).is_none_or(|m| m.has_ended())
    }

    /// Nothing is heard of a unit that may be replaced: it counts as lost, and what it was told is kept, so
    /// that it can [come back](StepHub::is_back). Gives the unit.
    pub fn give_up(&mut self, conn: ConnId) -> Option<UnitName> {
        let unit = self.replaceable(conn)?;
        self.members.get_mut(&conn)?.given_up = true;
        self.is_lost(unit);
        Some(unit)
    }

    /// A unit that was [given up](StepHub::give_up) is heard again, and goes on where it was.
    pub fn is_back(&mut self, conn: ConnId) -> Option<UnitName> {
        let member = self.members.get_mut(&conn).filter(|m| m.given_up)?;
        member.given_up = false;
        let unit = member.unit;
        self.is_there(unit);
        Some(unit)
    }

    fn is_lost(&mut self, unit: UnitName) {
        self.is_there(unit);
        if !self.is_guest(unit) {
            self.absent.push(unit);
        }
    }

    fn is_there(&mut self, unit: UnitName) {
        self.absent.retain(|&lost| lost != unit);
    }

    /// Whether the unit of a connection has come to its end.
    pub fn has_ended(&self, conn: ConnId) -> bool {
        self.members.get(&conn).is_some_and(RemoteUnit::has_ended)
    }

    /// The unit of a connection if it may be replaced: where it gives up or its connection ends, it is lost,
    /// and nothing ends.
    pub fn replaceable(&self, conn: ConnId) -> Option<UnitName> {
        let member = self.members.get(&conn)?;
        (!member.has_ended() && self.waiting.contains(&member.unit.side)).then_some(member.unit)
    }

    /// Units that are lost and not replaced yet, and their processes.
    pub fn absent(&self) -> Vec<(UnitName, u32)> {
        self.absent.iter().map(|&unit| (unit, self.slots.process(unit).0)).collect()
    }

    /// Whether every other unit has left, and none has yet to be replaced. Guests need not have noticed that
    /// they may leave.
    pub fn is_alone(&self) -> bool {
        self.members.values().all(|m| m.given_up || self.guest_may_leave(m))
            && (self.slots.fault().is_some() || self.absent.is_empty() || self.readers_are_over())
    }

    /// Whether a reader is lost that somebody may replace, and has yet something to read.
    fn readers_awaited(&self) -> bool {
        let lacks = |unit: &UnitName| unit.side != Side::Writer && !self.slots.is_done(*unit);
        self.slots.fault().is_none() && self.absent.iter().any(lacks)
    }

    /// A unit says something.
    pub fn handle(&mut self, conn: ConnId, ask: &Ask) -> Result<(), OutOfTurn> {
        let slots = &self.slots;
        let m = self.members.get_mut(&conn).ok_or(OutOfTurn)?;
        let (n, number) = (m.next, m.unit.unit);
        let ahead = steps_ahead(slots.sizes().depth, slots.sizes().policy);
        match (ask, m.unit.side, m.granted.front().copied()) {
            (Ask::Abort(reason), ..) => {
                slots.give_up(m.unit, reason);
                m.over = true;
                m.told_bye = true;
            }
            (Ask::Leave, ..) if m.knows => {
                slots.leave(m.unit);
                m.over = true;
                m.asks = 0;
            }
            (Ask::Lost(lost, seconds), ..) => {
                let there = slots.units().any(|u| u == *lost) && *lost != m.unit;
                if !there {
                    return Err(OutOfTurn);
                }
                let fault = Fault::lost(*lost, slots.process(*lost).0, *seconds);
                // Where it may be replaced, its own connection to unit 0 says whether it is lost.
                if slots.sizes().are_open() && m.unit.side != Side::Writer {
                    // What a guest does not reach is its own loss.
                    slots.fail_for(m.unit.side, fault);
                } else if !self.waiting.contains(&lost.side) {
                    slots.fail(fault);
                }
            }
            (Ask::Close, side, _) if !m.over => {
                m.over = match side {
                    // Readers wait for steps that were published, and that nobody has any more.
                    Side::Writer if n < m.published => {
                        slots.fail(Fault::Aborted { unit: m.unit });
                        slots.leave(m.unit);
                        false // It is told with the others.
                    }
                    // Told with the others that they disagree, it leaves when it knows.
                    Side::Writer => slots.close_writer(number, n).is_ok(),
                    Side::Reader(program) => {
                        slots.close_reader(program, number, n);
                        true
                    }
                };
                m.asks = 0;
            }
            // It has yet to hear of its own end.
            _ if m.over => {}
            // The answer may be on its way already.
            (Ask::Begin, Side::Writer, Some(_)) if ahead > 1 => {}
            (Ask::Begin, Side::Writer, None) if m.asks == 0 => (m.asks, m.begun) = (1, true),
            (Ask::Bring(said), Side::Writer, Some(Granted::Begin(begin)))
                if said.len() == slots.sizes().words as usize =>
            {
                if let Begin::Fill(turn) = begin {
                    // Readers may know already what its predecessor brought of a step.
                    match n < m.published && slots.said_others(number, turn, said) {
                        true => slots.fail(Fault::Aborted { unit: m.unit }),
                        false => slots.bring(number, turn, said),
                    }
                }
            }
            (Ask::Publish, Side::Writer, Some(Granted::Begin(Begin::Drop))) if m.fills_in_vain => {
                slots.skip(number, n);
                m.fills_in_vain = false;
                m.next += 1;
                m.granted.pop_front();
            }
            (Ask::Publish, Side::Writer, Some(Granted::Begin(Begin::Fill(turn)))) => {
                if n >= m.published {
                    // Another may have closed since it was told of this step: both have to know then.
                    let _ = slots.poll_begin(number, n);
                    slots.publish(number, turn);
                }
                m.next += 1;
                m.granted.pop_front();
            }
            (Ask::Skip, Side::Writer, Some(Granted::Begin(Begin::Drop))) => {
                if n >= m.published {
                    slots.skip(number, n);
                }
                m.next += 1;
                m.granted.pop_front();
            }
            (Ask::Next, Side::Reader(_), _) if m.asks + (m.granted.len() as u32) < ahead => m.asks += 1,
            (Ask::Withdraw, Side::Reader(_), _) if slots.is_lossy() => m.withdraws = true,
            (Ask::Release, Side::Reader(program), Some(Granted::Next(Next::Step(turn)))) => {
                slots.release(program, number, n, turn);
                if slots.is_lossy() {
                    m.taken.takes(turn, slots.sizes().depth as usize);
                }
                m.next += 1;
                m.granted.pop_front();
            }
            _ => return Err(OutOfTurn),
        }
        Ok(())
    }

    /// What there is to tell now. To be called when anything was handled, or unit 0 itself has done a step.
    pub fn poll(&mut self) -> Vec<(ConnId, Tell)> {
        let mut told = Vec::new();
        self.end_for_guests(&mut told);
        let slots = &self.slots;
        for (&conn, m) in &mut self.members {
            while m.asks > 0 {
                let at = m.next + m.granted.len() as u64;
                let (granted, tell) = match m.unit.side {
                    Side::Writer => match slots.poll_begin_again(m.unit.unit, at, m.published) {
                        Ok(None) => break,
                        Ok(Some(begin)) => (Some(Granted::Begin(begin)), Tell::Begin(begin)),
                        Err(stop) => {
                            m.knows = true;
                            (None, Tell::Stop(stop.into()))
                        }
                    },
                    Side::Reader(program) => match slots.poll_next(program, m.unit.unit, at) {
                        Ok(None) => break,
                        // That nothing follows is told when it has done what comes before.
                        Ok(Some(Next::End)) | Err(_) if !m.granted.is_empty() => break,
                        Ok(Some(next)) => {
                            if let (Next::Step(turn), true) = (next, slots.sizes().words > 0) {
                                // Of one that a lost unit had published nobody may know it yet.
                                let Some(said) = slots.brought(turn) else { break };
                                told.push((conn, Tell::Brought(said)));
                            }
                            m.over |= next == Next::End;
                            (Some(Granted::Next(next)), Tell::Next(next))
                        }
                        Err(stop) => {
                            (m.knows, m.over) = (true, true);
                            // Of a fault the writers hear anyway; that this reader has read its last they
                            // learn from here alone, whether it comes to closing or not.
                            if !matches!(stop, Stop::Fault(_) | Stop::Aborted { .. }) {
                                slots.close_reader(program, m.unit.unit, m.next);
                            }
                            (None, Tell::Stop(stop.into()))
                        }
                    },
                };
                let goes_on = granted.is_some_and(|granted| granted != Granted::Next(Next::End));
                m.asks = if goes_on { m.asks - 1 } else { 0 };
                m.granted.extend(granted);
                told.push((conn, tell));
            }
            if std::mem::take(&mut m.withdraws) && m.asks > 0 {
                m.asks = 0;
                told.push((conn, Tell::NotYet));
            }
            let ahead = steps_ahead(slots.sizes().depth, slots.sizes().policy) as usize;
            while m.begun && !m.over && !m.knows && ahead > 1 && m.granted.len() < ahead {
                let at = m.next + m.granted.len() as u64;
                let again = (at < m.published).then(|| slots.poll_begin_again(m.unit.unit, at, m.published));
                let begin = match again {
                    Some(begin) => begin.ok().flatten(),
                    None => slots.free_turn(at).map(Begin::Fill),
                };
                let Some(begin) = begin else { break };
                m.granted.push_back(Granted::Begin(begin));
                told.push((conn, Tell::Begin(begin)));
            }
        }
        let fault_of = |m: &RemoteUnit| slots.fault_of(m.unit.side).filter(|_| !m.over);
        notice(&mut self.members, |m| fault_of(m).map(|fault| slots.stop(fault)), &mut told);
        let slots = &self.slots;
        let readers_over = self.readers_are_over();
        let is_fatal = slots.fault().is_some_and(Fault::loses_steps);
        for (&conn, m) in &mut self.members {
            let unneeded = m.unit.side != Side::Writer || readers_over || is_fatal;
            let closed = slots.is_closed(m.unit) || m.granted.front() == Some(&Granted::Next(Next::End));
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
        let StepHub { slots, members, .. } = self;
        if slots.readers_are_gone() {
            notice(members, |m| (!m.over).then_some(Stop::ReadersGone), &mut told);
        }
        // A unit that has closed and waits for the readers would take the end of the connection for a death.
        if let Some(fault) = slots.fault() {
            notice(members, |m| (!m.told_bye).then(|| slots.stop(fault)), &mut told);
        }
        told
    }

    /// Whether no reader needs what the writers have any more.
    pub fn readers_are_over(&self) -> bool {
        let is_over = |m: &RemoteUnit| m.unit.side == Side::Writer || m.over || m.given_up;
        self.members.values().all(|m| is_over(m) || self.guest_may_leave(m))
            && !self.readers_awaited()
            && self.readers_joined()
    }

    /// Units that have left are no members any more, but have joined.
    fn readers_joined(&self) -> bool {
        self.slots.units().all(|unit| unit.side == Side::Writer || self.slots.process(unit).1 != 0)
    }
}
