//! Units whose connection to unit 0 is gone: those that are looked for, those that were given up, and how
//! they come back.

use super::{Conn, FarServer};
use crate::net::channel::Channel;
use crate::net::mend::{is_of_the_way, Missing};
use crate::net::session::SessionId;
use crate::net::silence::seconds;
use crate::net::wire::{Back, First, Tell};
use crate::rendezvous::ConnId;
use crate::wire::ToHost;
use polyduct_message::link::net::LinkFault;
use polyduct_os::clock;
use polyduct_port::{Side, UnitName};
use std::collections::VecDeque;

/// Sessions of units that were replaced, and may yet ask after them, at most: the first is forgotten for one
/// more.
const REPLACED: usize = 1024;

/// How a unit is reached.
pub enum Standing {
    Stands,
    /// The connection broke.
    Broke(Missing),
    /// Nothing was heard of it for too long. Its place is free; until another has it, the unit may come back.
    GivenUp,
}

/// Sessions of units that were given up, and replaced before they came back.
#[derive(Default)]
pub struct Replaced(VecDeque<SessionId>);

impl Replaced {
    /// Another has come in the place of this unit, if it was given up.
    pub(super) fn note(&mut self, conn: &Conn) {
        if matches!(conn.way, Standing::GivenUp) {
            self.0.push_back(conn.name);
            self.0.drain(..self.0.len().saturating_sub(REPLACED));
        }
    }
}

impl FarServer {
    /// Whether this is said by one who asks for the place of a unit that may live, though its connection
    /// broke.
    pub(super) fn is_early(&self, first: &First) -> bool {
        let First::Join { hello: ToHost::Hello(hello), .. } = first else { return false };
        let broke = self.conns.iter().filter(|(_, conn)| matches!(conn.way, Standing::Broke(_)));
        broke.into_iter().any(|(&id, _)| self.rendezvous.is_in_the_way(id, hello))
    }

    /// A connection has ended: where its unit may live, it is looked for.
    pub(super) fn ended(&mut self, id: ConnId, fault: &LinkFault) {
        let silent = seconds(fault, self.silence.0);
        let over = self.open.as_ref().is_some_and(|(hub, _)| hub.has_ended(id));
        let Some(conn) = self.conns.get_mut(&id) else { return };
        // A unit that can be asked, and lives, comes back for the last words.
        let over = over && (conn.session.is_heard() || conn.door.is_none());
        // A unit that cannot be asked, and has not been reset, has ended as a process does.
        let reset = conn.session.channel().peer().is_none();
        let may_live = is_of_the_way(fault) && silent == 0 && (reset || conn.door.is_some());
        if silent > 0 && !over {
            return self.give_up(id, silent);
        }
        if !may_live || over || !self.rendezvous.is_member(id) {
            return self.hang_up(id, silent);
        }
        conn.session.is_cut();
        conn.way = Standing::Broke(Missing::new(conn.door, self.silence.0, clock::now()));
        self.serve(id);
    }

    /// Nothing was heard of a unit for so many seconds: it counts as lost. Where it may be replaced, it may
    /// as well come back.
    pub(super) fn give_up(&mut self, id: ConnId, silent: u8) {
        let unit = self.open.as_mut().and_then(|(hub, _)| hub.give_up(id));
        let (Some(unit), Some(conn)) = (unit, self.conns.get_mut(&id)) else {
            return self.hang_up(id, silent);
        };
        tracing::warn!(%unit, silent, "not heard; waiting for it, or a replacement");
        // It may still hear on this connection; with the end of it, it comes again.
        conn.session.is_cut();
        conn.session.channel().shut();
        conn.way = Standing::GivenUp;
        let pid = conn.pid;
        self.rendezvous.give_up(id);
        self.note_absent();
        self.tell_lost(id, unit, pid);
    }

    pub(super) fn note_absent(&self) {
        if let Some((hub, _)) = &self.open {
            self.shared.absent().clone_from(&hub.absent());
        }
    }

    /// Somebody says that its connection broke.
    pub(super) fn again(&mut self, mut channel: Channel, name: SessionId, heard: u64, life: u32) {
        if self.open.is_some() && life > self.own.calls.life {
            // It has been with another unit 0 since.
            self.is_replaced();
            return channel.shut();
        }
        if self.open.is_some() && name == self.own.calls.session {
            let said = self.own_place(life);
            let _ = channel.post(&said).and_then(|()| channel.flush());
            return channel.shut();
        }
        let Some((&id, conn)) = self.conns.iter_mut().find(|(_, conn)| conn.name == name) else {
            let said = match (self.replaced.0.contains(&name), &self.outcome) {
                (true, _) => Back::Replaced,
                (false, Some(_)) => Back::Opens,
                (false, None) => Back::Unknown,
            };
            let _ = channel.post(&said).and_then(|()| channel.flush());
            return channel.shut();
        };
        // One that comes late, or is nobody's: the unit lives, and goes on.
        if !conn.session.may_have_heard(heard) {
            tracing::warn!(from = ?channel.peer(), heard, "turned a connection away that was made again");
            return channel.shut();
        }
        tracing::info!(from = ?channel.peer(), "a connection that broke was made again");
        let was_given_up = matches!(std::mem::replace(&mut conn.way, Standing::Stands), Standing::GivenUp);
        let said = channel.post(&Back::On(conn.session.heard()));
        let resumed = said.and_then(|()| conn.session.resume(channel, heard));
        if was_given_up {
            let unit = self.open.as_mut().and_then(|(hub, _)| hub.is_back(id));
            self.rendezvous.is_back_again(id);
            self.note_absent();
            unit.into_iter().for_each(|unit| self.tell_of(id, unit));
        }
        match resumed {
            Ok(()) => self.serve(id),
            Err(fault) => self.ended(id, &fault),
        }
    }

    /// The place of a unit that was lost is held again, on this connection: all others are told.
    pub(super) fn tell_of(&mut self, id: ConnId, unit: UnitName) {
        let addr = self.rendezvous.segment(unit.unit).filter(|_| unit.side == Side::Writer).copied();
        self.send_all_but(id, &Tell::Replaced(unit, addr));
    }
}
