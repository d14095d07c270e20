//! Barriers by dissemination: in round k, each unit tells the one 2ᵏ further on; after ⌈log₂ N⌉ rounds all
//! have heard of all (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988). A
//! state machine without I/O.

use crate::types::Address;

/// The barriers of a unit, one after the other.
#[derive(Debug)]
pub struct Barrier {
    me: Address,
    units: u32,
    /// How many barriers this unit has begun.
    begun: u32,
    /// The round of the current one, and whether it is under way.
    round: Option<u32>,
    /// For each round: how many times the unit behind has told.
    heard: Vec<u32>,
}

/// A message that a barrier sends: to whom, of which barrier, of which round.
pub type Tell = (Address, u32, u32);

impl Barrier {
    /// The barriers of unit `me` of `units`.
    pub fn new(me: Address, units: u32) -> Self {
        let rounds = units.max(1).next_power_of_two().trailing_zeros();
        Barrier { me, units, begun: 0, round: None, heard: vec![0; rounds as usize] }
    }

    /// This unit comes to the barrier. Must not be called while one is under way.
    pub fn begin(&mut self, tell: &mut impl FnMut(Tell)) {
        self.begun = self.begun.wrapping_add(1);
        self.round = Some(0);
        self.tell(0, tell);
        self.advance(tell);
    }

    /// A unit tells that it came to round `round` of its barrier number `number`. Returns false for what
    /// cannot be: the teller is at most one barrier ahead.
    pub fn handle(&mut self, from: Address, number: u32, round: u32, tell: &mut impl FnMut(Tell)) -> bool {
        let Some(heard) = self.heard.get_mut(round as usize) else { return false };
        let behind = (u64::from(self.me) + u64::from(self.units) - (1 << round) % u64::from(self.units))
            % u64::from(self.units);
        let ahead = number.wrapping_sub(self.begun);
        if u64::from(from) != behind || number != heard.wrapping_add(1) || ahead > 1 {
            return false;
        }
        *heard = number;
        self.advance(tell);
        true
    }

    /// Whether no barrier is under way: the last that this unit came to is over.
    pub fn is_over(&self) -> bool {
        self.round.is_none()
    }

    /// Of whom this unit has to hear next.
    pub fn waits_for(&self) -> Option<Address> {
        let step = (1u64 << self.round?) % u64::from(self.units);
        Some(((u64::from(self.me) + u64::from(self.units) - step) % u64::from(self.units)) as Address)
    }

    fn advance(&mut self, tell: &mut impl FnMut(Tell)) {
        while let Some(round) = self.round {
            match self.heard.get(round as usize) {
                None => self.round = None,
                // It may be one barrier ahead already.
                Some(&heard) if heard == self.begun || heard == self.begun.wrapping_add(1) => {
                    self.round = Some(round + 1);
                    self.tell(round + 1, tell);
                }
                Some(_) => return,
            }
        }
    }

    fn tell(&self, round: u32, tell: &mut impl FnMut(Tell)) {
        if (round as usize) < self.heard.len() {
            let to = (u64::from(self.me) + (1 << round)) % u64::from(self.units);
            tell((to as Address, self.begun, round));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Units come and messages arrive in any order (each pair's in order): nobody passes before all have
        /// come, and in the end everybody has.
        #[test]
        fn nobody_passes_before_all_have_come(units in 1u32..10, choices in prop::collection::vec(any::<u16>(), 600)) {
            const BARRIERS: u32 = 4;
            let mut all: Vec<Barrier> = (0..units).map(|u| Barrier::new(u, units)).collect();
            let mut wires: Vec<(Address, Tell)> = Vec::new();
            let mut choices = choices.into_iter().cycle();
            loop {
                let ready: Vec<usize> =
                    (0..all.len()).filter(|&u| all[u].is_over() && all[u].begun < BARRIERS).collect();
                let n = ready.len() + wires.len();
                if n == 0 {
                    break;
                }
                let pick = choices.next().unwrap() as usize % n;
                let mut told = Vec::new();
                let who = if let Some(&unit) = ready.get(pick) {
                    all[unit].begin(&mut |t| told.push(t));
                    unit
                } else {
                    // The first on its way from that unit to that unit.
                    let (from, (to, ..)) = wires[pick - ready.len()];
                    let at = wires.iter().position(|w| w.0 == from && w.1.0 == to).unwrap();
                    let (from, (to, number, round)) = wires.remove(at);
                    prop_assert!(all[to as usize].handle(from, number, round, &mut |t| told.push(t)));
                    to as usize
                };
                wires.extend(told.into_iter().map(|t| (who as Address, t)));
                let least = all.iter().map(|b| b.begun).min().unwrap();
                for b in &all {
                    let passed = b.begun - u32::from(!b.is_over());
                    prop_assert!(passed <= least, "unit {} passed {} while one came to {}", b.me, passed, least);
                }
            }
            prop_assert!(all.iter().all(|b| b.begun == BARRIERS && b.is_over()));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut b = Barrier::new(0, 4);
        let mut none = |t| panic!("{t:?}");
        assert!(!b.handle(3, 1, 2, &mut none), "no such round");
        assert!(!b.handle(1, 1, 0, &mut none), "not the one behind");
        assert!(!b.handle(3, 2, 0, &mut none), "not the next barrier");
        assert!(b.handle(3, 1, 0, &mut none));
        assert!(!b.handle(3, 1, 0, &mut none), "twice");
        assert!(!b.handle(3, 2, 0, &mut none), "two barriers ahead");
        assert_eq!(b.waits_for(), None);
        let mut told = Vec::new();
        b.begin(&mut |t| told.push(t));
        assert_eq!((told, b.waits_for()), (vec![(1, 1, 0), (2, 1, 1)], Some(2)));
    }
}
