//! What unit 0 tells the others: what the hub has for them, what became of units, and its last words.

use super::{FarServer, Standing};
use crate::net::wire::{Ask, Tell};
use crate::rendezvous::ConnId;
use crate::wire::FromHost;
use polyduct_os::{
    clock,
    poll::{poll, PollItem},
};
use polyduct_port::{Side, UnitName};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the last words to the others may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl FarServer {
    pub(super) fn send_all_but(&mut self, one: ConnId, message: &Tell) {
        let is_other = |&&id: &&ConnId| id != one && self.rendezvous.is_member(id);
        let members: Vec<ConnId> = self.conns.keys().filter(is_other).copied().collect();
        members.into_iter().for_each(|id| self.send(id, message));
    }

    /// A unit is lost, and may be replaced: all are told but those that need not know of guests.
    pub(super) fn tell_lost(&mut self, but: ConnId, unit: UnitName, pid: u32) {
        if !self.open.as_ref().is_some_and(|(hub, _)| hub.is_guest(unit)) {
            self.send_all_but(but, &Tell::Lost(unit, pid));
        }
    }

    pub(super) fn send(&mut self, to: ConnId, message: &Tell) {
        if let Some(conn) = self.conns.get_mut(&to) {
            // A peer that is gone is noticed by its hangup.
            let _ = conn.session.post(message.clone()).and_then(|()| conn.session.flush());
        }
    }

    /// Says what there is to tell. A unit that leaves in good order is not waited for by another unit 0.
    fn say(&mut self, told: &[(ConnId, Tell)]) {
        for (id, tell) in told {
            let leaves = matches!(tell, Tell::Bye);
            let stood = self.open.as_ref().filter(|_| leaves).and_then(|(hub, _)| hub.stood(*id));
            if let Some((unit, stands)) = stood {
                self.known.entry(unit).or_default().left = Some(stands);
                self.tell_known(*id, unit);
            }
            self.send(*id, tell);
        }
    }

    /// Tells the others what is known of a unit by now.
    pub(super) fn tell_known(&mut self, but: ConnId, unit: UnitName) {
        let known = self.known.get(&unit).filter(|_| self.lasts()).cloned();
        known.into_iter().for_each(|known| self.send_all_but(but, &Tell::Units(vec![(unit, known)])));
    }

    /// Whether unit 0 may be replaced.
    pub(super) fn lasts(&self) -> bool {
        self.open.as_ref().is_some_and(|(hub, _)| hub.waits_for(Side::Writer))
    }

    /// A unit may go.
    pub(super) fn let_go(&mut self, id: ConnId) {
        if self.lasts() {
            let known = self.known.iter().map(|(unit, known)| (*unit, known.clone()));
            self.send(id, &Tell::Units(known.collect()));
        }
        self.send(id, &Tell::Meet(FromHost::Go, std::process::id(), None, 0));
    }

    /// Tells the others what there is to tell, and unit 0 whether it is alone.
    pub(super) fn tell(&mut self) {
        // What one is told may be what another waits for.
        loop {
            let Some((hub, _)) = &mut self.open else { return };
            let told = hub.poll();
            if told.is_empty() {
                break;
            }
            self.say(&told);
        }
        let Some((hub, _)) = &self.open else { return };
        if self.outcome.is_some() {
            return;
        }
        // Who asks for a place after unit 0 has closed is turned away: nobody comes to one that is alone then.
        let closed = hub.slots().is_closed(UnitName { side: Side::Writer, unit: 0 });
        let (alone, over) = (closed && hub.is_alone(), hub.readers_are_over());
        let is_new = |flag: &AtomicBool, value| !flag.swap(value, Ordering::AcqRel) && value;
        if is_new(&self.shared.alone, alone) | is_new(&self.shared.readers_over, over) {
            hub.slots().wake_all();
        }
    }

    /// Guests are waited for when the stream has ended, so that they have its newest step, but not for ever.
    pub(super) fn let_guests_go(&mut self) {
        let Some((hub, _)) = &mut self.open else { return };
        if !hub.awaits_guests() {
            self.farewell = None;
            return;
        }
        let now = clock::now();
        if now >= *self.farewell.get_or_insert(now.saturating_add(self.silence.0)) {
            tracing::warn!("readers that did not take the newest step are left behind");
            hub.let_guests_go();
            self.farewell = None;
        }
    }

    /// What was said last shall reach the others before the connections close.
    pub(super) fn say_last_words(&mut self) {
        self.tell();
        let told = self.open.as_mut().map(|(hub, _)| hub.last_words()).unwrap_or_default();
        self.say(&told);
        let end = clock::now() + LAST_WORDS;
        // A unit that is cut off comes back for them: without, it would take unit 0 for dead.
        self.serve_all();
        while self.conns.values().any(|conn| matches!(conn.way, Standing::Broke(_))) && clock::now() < end {
            if !self.wait(Some(end)) {
                break;
            }
            self.serve_all();
            self.welcome_strangers();
        }
        for conn in self.conns.values_mut() {
            while let Ok(false) = conn.session.flush() {
                let left = end.saturating_sub(clock::now());
                if left.is_zero()
                    || poll(&mut [PollItem::writable(conn.session.channel())], Some(left)).is_err()
                {
                    break;
                }
            }
            // Unread questions would turn the end into a reset.
            while let Ok(Some(_)) = conn.session.hear::<Ask>() {}
            conn.session.channel().shut();
        }
    }
}
