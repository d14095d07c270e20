//! Reader programs that come and go: nobody waits for them, but for the end, and what happens to them is
//! nobody else's loss.

use super::{RemoteUnit, StepHub};
use crate::net::wire::Tell;
use crate::rendezvous::ConnId;
use polyduct_port::{Side, UnitName};
use polyduct_slots::rebuild::Granted;
use polyduct_slots::Next;

impl StepHub {
    /// Where reader programs come and go: this one, of so many units, gets its place. Lost units of it may be
    /// replaced where it `waits`.
    pub fn seat(&mut self, program: u32, units: u32, waits: bool) {
        self.slots.seat(program, units);
        self.waiting.extend(waits.then_some(Side::Reader(program)));
    }

    /// Nobody of the program in this place is left.
    pub fn vacate(&mut self, program: u32) {
        self.slots.vacate(program);
        self.waiting.retain(|&side| side != Side::Reader(program));
    }

    /// Whether a unit is one of a program that comes and goes.
    pub fn is_guest(&self, unit: UnitName) -> bool {
        unit.side != Side::Writer && self.slots.sizes().are_open()
    }

    /// Whether the stream has ended, and some guest has yet to read the rest of it.
    pub fn awaits_guests(&self) -> bool {
        self.slots.sizes().are_open() && self.slots.has_ended() && !self.readers_are_over()
    }

    /// Guests that have yet to read the rest of the stream are waited for no more: those that do not read now
    /// are told that it has ended.
    pub fn let_guests_go(&mut self) {
        self.lets_go = true;
    }

    /// The stream has ended: guests that have all of it are told before they ask, since nobody may be there
    /// when they do.
    pub(super) fn end_for_guests(&mut self, told: &mut Vec<(ConnId, Tell)>) {
        let StepHub { slots, members, lets_go, .. } = self;
        if !(slots.sizes().are_open() && slots.has_ended()) {
            return;
        }
        for (&conn, m) in members.iter_mut().filter(|(_, m)| !m.over && !m.knows) {
            let Side::Reader(program) = m.unit.side else { continue };
            if m.asks > 0 || !m.granted.is_empty() || !slots.has_entered(program) {
                continue;
            }
            let has_all = slots.has_all(program, m.next)
                && slots.poll_next(program, m.unit.unit, m.next) == Ok(Some(Next::End));
            if !has_all && *lets_go {
                slots.leave(m.unit);
            }
            if has_all || *lets_go {
                m.over = true;
                m.granted.push_back(Granted::Next(Next::End));
                told.push((conn, Tell::Next(Next::End)));
            }
        }
    }

    /// Whether a unit is one of a guest that need not stay for anything, though it may not have noticed.
    pub(super) fn guest_may_leave(&self, m: &RemoteUnit) -> bool {
        self.is_guest(m.unit) && (m.told_bye || m.knows || self.lets_go)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::wire::Ask;
    use polyduct_port::Policy;
    use polyduct_slots::{geometry::Sizes, Begin, Slots};

    const WRITER: UnitName = UnitName { side: Side::Writer, unit: 1 };

    /// Writer units 0, which is here, and 1, and a guest of one unit in each of two places.
    fn hub() -> StepHub {
        let sizes = Sizes { writers: 2, readers: Vec::new(), depth: 4, policy: Policy::Latest, words: 0 };
        let mut hub = StepHub::new(Slots::on_heap(sizes), Vec::new());
        hub.slots().join(UnitName { unit: 0, ..WRITER }, (1, 1), 0);
        hub.join(1, WRITER, 2, 1);
        for program in 0..2 {
            hub.seat(program, 1, false);
            hub.join(u64::from(program) + 10, guest(program), 10 + program, 1);
            hub.slots().enter(program);
        }
        hub
    }

    fn guest(program: u32) -> UnitName {
        UnitName { side: Side::Reader(program), unit: 0 }
    }

    /// Both writers write a step, and close.
    fn write_and_close(hub: &mut StepHub) {
        let Ok(Some(Begin::Fill(turn))) = hub.slots().poll_begin(0, 0) else { panic!("no slot") };
        hub.handle(1, &Ask::Begin).unwrap();
        hub.poll();
        hub.slots().publish(0, turn);
        hub.handle(1, &Ask::Publish).unwrap();
        hub.slots().close_writer(0, 1).unwrap();
        hub.handle(1, &Ask::Close).unwrap();
    }

    fn told(hub: &mut StepHub, conn: ConnId) -> Vec<Tell> {
        hub.poll().into_iter().filter(|told| told.0 == conn).map(|told| told.1).collect()
    }

    #[test]
    fn a_writer_that_a_guest_does_not_reach_is_the_loss_of_that_guest_alone() {
        let mut hub = hub();
        hub.handle(10, &Ask::Lost(WRITER, 0)).unwrap();
        assert_eq!(hub.slots().fault(), None);
        assert!(matches!(&told(&mut hub, 10)[..], [Tell::Notice(_)]));
        hub.handle(10, &Ask::Leave).unwrap();
        assert!(hub.hangup(10), "it is lost, though it has left");
        hub.vacate(0);
        // The other guest and the writers go on.
        hub.handle(11, &Ask::Next).unwrap();
        write_and_close(&mut hub);
        assert!(matches!(&told(&mut hub, 11)[..], [Tell::Next(Next::Step(_))]));
    }

    #[test]
    fn a_guest_that_has_the_newest_step_is_told_of_the_end_unasked_and_another_is_waited_for() {
        let mut hub = hub();
        hub.handle(10, &Ask::Next).unwrap();
        write_and_close(&mut hub);
        assert!(matches!(&told(&mut hub, 10)[..], [Tell::Next(Next::Step(_))]));
        assert!(hub.awaits_guests());
        hub.handle(10, &Ask::Release).unwrap();
        assert!(matches!(&told(&mut hub, 10)[..], [Tell::Next(Next::End), Tell::Bye]));
        // What it asks before it has heard that is no fault.
        hub.handle(10, &Ask::Next).unwrap();
        // The other has yet to take it.
        assert!(hub.awaits_guests() && !hub.is_alone());
        assert!(told(&mut hub, 11).is_empty());
        hub.let_guests_go();
        assert!(matches!(&told(&mut hub, 11)[..], [Tell::Next(Next::End), Tell::Bye]));
        assert!(!hub.awaits_guests());
        // The writers know that they are not needed any more, and need not wait for the guests to notice.
        assert!(hub.has_ended(1) && !hub.is_alone());
        hub.hangup(1);
        assert!(hub.is_alone());
    }

    #[test]
    fn a_guest_that_does_not_wait_is_told_at_once_and_nothing_is_kept_for_it() {
        let mut hub = hub();
        hub.handle(10, &Ask::Next).unwrap();
        hub.handle(10, &Ask::Withdraw).unwrap();
        assert!(matches!(&told(&mut hub, 10)[..], [Tell::NotYet]));
        write_and_close(&mut hub);
        assert!(told(&mut hub, 10).is_empty());
        // What there is when it asks it gets, though it does not wait for it.
        hub.handle(10, &Ask::Next).unwrap();
        hub.handle(10, &Ask::Withdraw).unwrap();
        assert!(matches!(&told(&mut hub, 10)[..], [Tell::Next(Next::Step(_))]));
        hub.handle(10, &Ask::Withdraw).unwrap();
        assert!(told(&mut hub, 10).is_empty());
    }

    #[test]
    fn a_guest_that_has_yet_to_enter_is_told_nothing() {
        let mut hub = hub();
        hub.seat(2, 1, false);
        hub.join(12, guest(2), 12, 1);
        write_and_close(&mut hub);
        hub.let_guests_go();
        assert!(told(&mut hub, 12).is_empty());
    }
}
