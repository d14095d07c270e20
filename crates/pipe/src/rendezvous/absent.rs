//! Handles units that go, and units that do not come.

use super::{places, Action, ConnId, Part, Phase, Rendezvous};
use crate::error::Refusal;
use crate::join::ORDER;
use crate::wire::FromHost;
use polyduct_os::process::is_unnamed;
use polyduct_port::{Peer, Side, UnitName};
use std::collections::BTreeSet;

impl<F> Rendezvous<F> {
    /// A connection hung up. `closed` says whether its unit closed its port before.
    pub fn hangup(&mut self, conn: ConnId, closed: bool) -> Vec<Action> {
        self.early.retain(|e| e.conn != conn);
        if self.guest(conn).is_some() {
            return self.guest_hangup(conn, closed);
        }
        let Some(unit) = self.roll.place(conn) else { return Vec::new() };
        let Some(member) = self.roll.get(unit) else { return Vec::new() };
        let (pid, wait) = (member.pid, member.terms.waits());
        if self.phase == Phase::Gathering && wait {
            self.leave(conn);
            return Vec::new();
        }
        self.roll.hang_up(conn);
        match self.phase {
            Phase::Running | Phase::Reviving if closed => {
                self.closed.insert(unit);
                Vec::new()
            }
            Phase::Running | Phase::Reviving | Phase::Readying if wait => {
                tracing::info!(%unit, pid, "lost; waiting for a replacement");
                self.roll.remove(unit);
                Vec::new()
            }
            Phase::Running | Phase::Reviving => vec![Action::Lost(unit, pid)],
            Phase::Over => Vec::new(),
            Phase::Gathering | Phase::Readying => self.abandon(Refusal::Lost { unit, pid, silent_s: None }),
        }
    }

    /// Nothing is heard of a unit whose program waits for replacements: whoever comes in its place gets it,
    /// and the unit itself where it [comes back](Rendezvous::is_back_again) before. The driver is told to
    /// drop the connection of one that is replaced.
    pub fn give_up(&mut self, conn: ConnId) {
        self.mark(conn, true);
    }

    /// A unit that was [given up](Rendezvous::give_up) is heard again.
    pub fn is_back_again(&mut self, conn: ConnId) {
        self.mark(conn, false);
    }

    fn mark(&mut self, conn: ConnId, given_up: bool) {
        let member = self.roll.by_conn_mut(conn);
        member.into_iter().for_each(|member| member.terms.given_up = given_up);
    }

    /// A unit goes, or is sent away: while others still come, that leaves its place free.
    pub fn leave(&mut self, conn: ConnId) {
        if let Some((_, place)) = self.guest(conn) {
            return self.guest_gives_up(conn, place);
        }
        if self.phase != Phase::Gathering {
            return;
        }
        if let Some((UnitName { side: Side::Writer, unit }, _)) = self.roll.leave(conn) {
            self.segments.remove(&unit);
        }
    }

    /// The time to gather is over.
    pub fn deadline(&mut self, waited_ms: u64) -> Vec<Action> {
        if matches!(self.phase, Phase::Running | Phase::Over) {
            return Vec::new();
        }
        let missing = self.missing();
        let why = self.roll.missing(missing, waited_ms, ORDER);
        self.abandon(why)
    }

    /// The driver could not carry out a build.
    pub fn abandon(&mut self, why: Refusal) -> Vec<Action> {
        self.phase = Phase::Over;
        self.ended = Some(why.clone());
        let early = std::mem::take(&mut self.early);
        let conns = self.roll.conns().chain(early.iter().map(|e| e.conn));
        let mut actions: Vec<_> = conns.map(|c| Action::Send(c, FromHost::Refused(why.clone()))).collect();
        self.lose_guests();
        actions.push(Action::Fail(why));
        actions
    }

    /// A unit in words, with the name of its program where there are several.
    fn who(&self, unit: UnitName) -> String {
        let program = match unit.side {
            Side::Writer => None,
            Side::Reader(program) => self.programs.get(program as usize),
        };
        let named = program.filter(|name| self.readers > 1 && !is_unnamed(name));
        Peer { program: named.map(|name| name.as_str().into()), ..unit.into() }.to_string()
    }

    /// The units that are missing, in words.
    fn missing(&self) -> String {
        let mut parts = Vec::new();
        for side in self.sides() {
            let late = |part: &Part| match self.phase {
                Phase::Readying | Phase::Reviving => !part.ready || part.given_up,
                _ => false,
            };
            let there = self.roll.range(places(side));
            parts.extend(there.filter(|(_, m)| late(&m.terms)).map(|(unit, _)| self.who(unit)));
            let said = self.welcome.as_ref().and_then(|w| match side {
                Side::Writer => Some(w.writers),
                Side::Reader(p) => w.readers.get(p as usize).copied(),
            });
            let Some(units) = said.or(self.units_of(side)) else {
                if let Side::Reader(p) = side {
                    parts.push(format!("reader program {} of {}", u64::from(p) + 1, self.readers));
                }
                continue;
            };
            let is_here = |unit: &UnitName| self.roll.get(*unit).is_some() || self.closed.contains(unit);
            let absent = (0..units).map(|unit| UnitName { side, unit }).filter(|unit| !is_here(unit));
            parts.extend(absent.take(5).map(|unit| self.who(unit)));
            // Counted without going through all: what a survivor says of their number may be any.
            let here: BTreeSet<UnitName> = self
                .roll
                .range(places(side))
                .map(|(unit, _)| unit)
                .chain(self.closed.iter().copied())
                .collect();
            let here = here.iter().filter(|unit| unit.side == side && unit.unit < units).count() as u32;
            match (units - here).saturating_sub(5) {
                0 => {}
                more => parts.push(format!("{more} more units")),
            }
        }
        parts.join(", ")
    }
}
