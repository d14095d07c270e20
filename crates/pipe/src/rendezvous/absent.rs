//! Who goes, and who does not come.

use super::{name, Action, ConnId, Phase, Rendezvous, OWN};
use crate::error::Refusal;
use crate::wire::FromHost;
use polyduct_os::process::is_unnamed;
use polyduct_port::{OnLoss, Peer};

impl<F> Rendezvous<F> {
    /// A connection hung up. `closed` says whether its unit closed its port before.
    pub fn hangup(&mut self, conn: ConnId, closed: bool) -> Vec<Action> {
        self.early.retain(|e| e.conn != conn);
        if self.guests.knows(conn) {
            return self.guest_hangup(conn, closed);
        }
        let Some(&key) = self.by_conn.get(&conn) else {
            return Vec::new();
        };
        let Some(member) = self.members.get(&key) else {
            return Vec::new();
        };
        let (pid, wait) = (member.pid, member.hello.on_loss == OnLoss::Wait);
        if self.phase == Phase::Gathering && wait {
            self.leave(conn);
            return Vec::new();
        }
        self.by_conn.remove(&conn);
        match self.phase {
            Phase::Running | Phase::Reviving if closed => {
                self.closed.insert(key);
                Vec::new()
            }
            Phase::Running | Phase::Reviving | Phase::Readying if wait => {
                tracing::info!(unit = %name(key), pid, "lost; waiting for a replacement");
                self.members.remove(&key);
                Vec::new()
            }
            Phase::Running | Phase::Reviving => vec![Action::Lost(name(key), pid)],
            Phase::Over => Vec::new(),
            Phase::Gathering | Phase::Readying => self.abandon(Refusal::Lost { unit: name(key), pid }),
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
        let member = self.by_conn.get(&conn).and_then(|key| self.members.get_mut(key));
        member.into_iter().for_each(|member| member.given_up = given_up);
    }

    /// A unit goes, or is sent away: while others still come, that leaves its place free.
    pub fn leave(&mut self, conn: ConnId) {
        self.guests.give_up(conn);
        let Some(&key) = self.by_conn.get(&conn).filter(|_| self.phase == Phase::Gathering) else { return };
        self.by_conn.remove(&conn);
        self.members.remove(&key);
        if key.0 == 0 {
            self.segments.remove(&key.1);
        }
    }

    /// The time to gather is over.
    pub fn deadline(&mut self, waited_ms: u64) -> Vec<Action> {
        if matches!(self.phase, Phase::Running | Phase::Over) {
            return Vec::new();
        }
        let missing = self.missing();
        let turned_away = self.turned_away.take();
        self.abandon(Refusal::Missing { missing, waited_ms, turned_away })
    }

    /// The driver could not carry out a build.
    pub fn abandon(&mut self, why: Refusal) -> Vec<Action> {
        self.phase = Phase::Over;
        self.ended = Some(why.clone());
        let early = std::mem::take(&mut self.early);
        let conns = self.by_conn.keys().copied().filter(|&c| c != OWN).chain(early.iter().map(|e| e.conn));
        let conns: Vec<ConnId> = conns.chain(self.guests.drain()).collect();
        let mut actions: Vec<_> =
            conns.into_iter().map(|c| Action::Send(c, FromHost::Refused(why.clone()))).collect();
        actions.push(Action::Fail(why));
        actions
    }

    /// A unit in words, with the name of its program where there are several.
    fn who(&self, key: (u32, u32)) -> String {
        let program = self.programs.get((key.0 as usize).wrapping_sub(1));
        let named = program.filter(|name| self.readers > 1 && !is_unnamed(name));
        Peer { program: named.map(|name| name.as_str().into()), ..name(key).into() }.to_string()
    }

    /// Who is missing, in words.
    fn missing(&self) -> String {
        let mut parts = Vec::new();
        for program in 0..=self.readers {
            let gone = self.closed.iter().filter(|k| !self.members.contains_key(k));
            let mut here: Vec<u32> =
                self.members.keys().chain(gone).filter(|k| k.0 == program).map(|k| k.1).collect();
            here.sort_unstable();
            if matches!(self.phase, Phase::Readying | Phase::Reviving) {
                let late = self
                    .members
                    .iter()
                    .filter(|(k, m)| k.0 == program && (!m.ready || m.given_up))
                    .map(|(k, _)| k.1);
                parts.extend(late.map(|u| self.who((program, u))));
            }
            let said = self.welcome.as_ref().map(|w| match program {
                0 => w.writers,
                p => w.readers[p as usize - 1],
            });
            match said.or(self.units_of(program)) {
                None => parts.push(format!("reader program {program} of {}", self.readers)),
                Some(units) => {
                    let absent = (0..units).filter(|u| here.binary_search(u).is_err());
                    parts.extend(absent.take(5).map(|u| self.who((program, u))));
                    if units as usize - here.len() > 5 {
                        parts.push(format!("{} more units", units as usize - here.len() - 5));
                    }
                }
            }
        }
        parts.join(", ")
    }
}
