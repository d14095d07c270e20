//! Maps the units of a domain to hosts: those of one host share memory.
//!
//! Every unit says where it runs when it meets the others; unit 0 tells all, once, who is beside whom. From
//! then on each unit is near or far for good. It is a hint: who is said to be near has yet to come to the
//! near rendezvous ([`host`](super::host)), which asks the system for its user and its process.

use super::process::{Members, Process};
use crate::hash::fnv1a;
use crate::types::Address;
use polyduct_os::process::{number_space, user_id, PidFd, ProcessId};
use polyduct_os::OsError;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// How a unit is reached from this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It is this unit.
    Itself,
    /// By shared memory: it is on this host.
    Near,
    /// By the network.
    Far,
}

/// Where a process runs: equal for two that can share segments, find each other's sockets and watch each
/// other's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostId {
    /// Which start of which kernel.
    boot: u128,
    /// The namespaces and the user, and what else tells units apart, spread over numbers.
    within: u64,
}

impl HostId {
    /// Where this process runs; units with another `apart` are told apart though the system would not. `None`
    /// where the system does not say, or cannot watch processes: then all others are far.
    pub fn of_this_process(apart: u64) -> Option<HostId> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).ok()?;
        PidFd::of(ProcessId::current().ok()?).ok()?;
        if number_space() == 0 {
            return None;
        }
        let place = |space: &str| {
            let there = fs::metadata(format!("/proc/self/ns/{space}")).ok()?;
            Some([there.dev(), there.ino()])
        };
        // Abstract sockets belong to a network, processes and users have their numbers in the others; start
        // times count in that of clocks, which old kernels do not have.
        let spaces = [place("net")?, place("pid")?, place("user")?, place("time").unwrap_or_default()];
        let words = spaces.into_iter().flatten().chain([user_id().into(), apart]);
        Some(HostId { boot, within: fnv1a(words.flat_map(u64::to_le_bytes)) })
    }

    /// For a message of fixed form; never all zero.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.boot.to_le_bytes());
        bytes[16..].copy_from_slice(&self.within.to_le_bytes());
        bytes
    }

    /// What [`to_bytes`](HostId::to_bytes) made; `None` for zeros.
    pub fn from_bytes(bytes: [u8; 24]) -> Option<HostId> {
        let (boot, within) = bytes.split_at(16);
        let boot = u128::from_le_bytes(boot.try_into().ok()?);
        (boot != 0).then_some(HostId { boot, within: u64::from_le_bytes(within.try_into().ok()?) })
    }
}

/// For each unit the lowest that shares its host: what unit 0 tells all of where they run. A unit that does
/// not know its host is alone.
pub fn beside(ids: &[Option<HostId>]) -> Vec<Address> {
    let mut first = HashMap::new();
    let lowest =
        |(unit, id): (Address, &Option<HostId>)| id.map_or(unit, |id| *first.entry(id).or_insert(unit));
    (0..).zip(ids).map(lowest).collect()
}

/// The units that are near, as one unit sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    me: Address,
    /// For each unit the lowest of its host.
    lowest: Vec<Address>,
    near: Vec<Address>,
}

impl Hosts {
    /// All units are on one host.
    pub fn one(me: Address, units: u32) -> Hosts {
        Hosts { me, lowest: vec![0; units as usize], near: (0..units).collect() }
    }

    /// What unit `me` reads in unit 0's [answer](beside). `None` where it cannot be.
    pub fn read(me: Address, lowest: Vec<Address>) -> Option<Hosts> {
        // The lowest of a host is its own lowest.
        let good = |(unit, &low): (Address, &Address)| low <= unit && lowest.get(low as usize) == Some(&low);
        let mine = *lowest.get(me as usize)?;
        if !(0..).zip(&lowest).all(good) {
            return None;
        }
        let near = (0..).zip(&lowest).filter(|&(_, &low)| low == mine).map(|(unit, _)| unit).collect();
        Some(Hosts { me, lowest, near })
    }

    /// Units of this host in their order, this one too.
    pub fn near(&self) -> &[Address] {
        &self.near
    }

    /// Entries of a table that has one for each unit of this host, by address; none where there is no other.
    pub fn users(&self) -> u32 {
        match self.near[..] {
            [_, .., last] => last + 1,
            _ => 0,
        }
    }

    /// Units of the domain.
    pub fn units(&self) -> u32 {
        self.lowest.len() as u32
    }

    /// Units of other hosts.
    pub fn far(&self) -> impl Iterator<Item = Address> + '_ {
        (0..self.lowest.len() as Address).filter(|&unit| self.is_far(unit))
    }

    /// Whether a unit is on another host. A number of no unit is not.
    #[inline]
    pub fn is_far(&self, unit: Address) -> bool {
        self.lowest.get(unit as usize).is_some_and(|low| Some(low) != self.lowest.get(self.me as usize))
    }

    /// Whether two units share a host.
    pub fn are_together(&self, one: Address, other: Address) -> bool {
        let [one, other] = [one, other].map(|unit| self.lowest.get(unit as usize));
        one.is_some() && one == other
    }

    /// How a unit is reached; `None` for who is none.
    pub fn reach(&self, unit: Address) -> Option<Reach> {
        match self.lowest.get(unit as usize)? {
            _ if unit == self.me => Some(Reach::Itself),
            _ if self.is_far(unit) => Some(Reach::Far),
            _ => Some(Reach::Near),
        }
    }
}

/// The processes of the units of this host.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    me: Option<(Address, Process)>,
    all: BTreeMap<Address, Process>,
    /// Those that have no number here.
    handed: BTreeMap<Address, Arc<PidFd>>,
}

impl Processes {
    /// The members of the near rendezvous are these units, in this order. `handed`: who has no number that
    /// unit `me` knows.
    pub fn new(
        near: &[Address],
        members: Members,
        me: Address,
        handed: BTreeMap<Address, PidFd>,
    ) -> Processes {
        let all: BTreeMap<_, _> = near.iter().copied().zip(members).collect();
        let handed = handed.into_iter().map(|(unit, process)| (unit, Arc::new(process))).collect();
        Processes { me: all.get(&me).map(|own| (me, *own)), all, handed }
    }

    /// The number of a unit's process; `None` where it has none here, or is not known.
    pub fn pid(&self, unit: Address) -> Option<u32> {
        self.numbered(unit).map(|process| process.pid)
    }

    /// Whether a unit is one of them.
    pub fn is_known(&self, unit: Address) -> bool {
        self.all.contains_key(&unit)
    }

    /// Units that are known and run in other processes than this one's, in order.
    pub fn others(&self) -> impl Iterator<Item = Address> + '_ {
        let own = self.me.map(|(_, own)| own);
        let mine = move |process: &Process| process.space != 0 && Some(*process) == own;
        self.all.iter().filter(move |(_, process)| !mine(process)).map(|(&unit, _)| unit)
    }

    /// Whether the unit is known, and its process may be the one that a socket says has this number.
    pub fn may_be(&self, unit: Address, pid: u32) -> bool {
        self.is_known(unit) && self.pid(unit).is_none_or(|known| known == pid)
    }

    /// A descriptor of a unit's process; `None` where it is not known.
    pub fn watch(&self, unit: Address) -> Option<Result<PidFd, OsError>> {
        if let Some(process) = self.handed.get(&unit) {
            return Some(process.try_clone());
        }
        let Process { pid, start_time, .. } = *self.numbered(unit)?;
        Some(PidFd::of(ProcessId { pid, start_time }))
    }

    /// Whether every unit's process can be told.
    pub fn are_told(&self) -> bool {
        self.all.keys().all(|unit| self.numbered(*unit).is_some() || self.handed.contains_key(unit))
    }

    /// Two may say the same of themselves and be two, each the first of a namespace: no number is compared
    /// without one.
    fn numbered(&self, unit: Address) -> Option<&Process> {
        let process = self.all.get(&unit)?;
        let (me, own) = self.me.as_ref()?;
        (*me == unit || own.shares_numbers(process)).then_some(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processes_of_two_namespaces_are_not_one() {
        // Both have number 1, were started in one tick, and see a /proc of another namespace.
        let alike = Process { pid: 1, space: 0, start_time: 7 };
        let known = Processes::new(&[0, 1], vec![alike; 2], 0, BTreeMap::new());
        assert_eq!((known.pid(0), known.pid(1)), (Some(1), None));
        assert!(known.may_be(1, 0) && !known.may_be(0, 5));
        assert!(!known.are_told() && known.watch(1).is_none());
    }

    fn id(within: u64) -> Option<HostId> {
        Some(HostId { boot: 1, within })
    }

    #[test]
    fn all_see_the_same_hosts() {
        let told = beside(&[id(5), id(6), None, id(5), None, id(6), id(5)]);
        assert_eq!(told, [0, 1, 2, 0, 4, 1, 0]);
        let near: Vec<_> = (0..7).map(|me| Hosts::read(me, told.clone()).unwrap().near().to_vec()).collect();
        assert_eq!(near, [&[0, 3, 6][..], &[1, 5], &[2], &[0, 3, 6], &[4], &[1, 5], &[0, 3, 6]]);
        let hosts = Hosts::read(3, told).unwrap();
        let reach: Vec<_> = (0..8).map(|unit| hosts.reach(unit)).collect();
        let [itself, near, far] = [Reach::Itself, Reach::Near, Reach::Far].map(Some);
        assert_eq!(reach, [near, far, far, itself, far, far, near, None]);
        assert_eq!(hosts.far().collect::<Vec<_>>(), [1, 2, 4, 5]);
        assert_eq!((hosts.users(), Hosts::one(0, 1).users(), Hosts::one(0, 2).users()), (7, 0, 2));
        assert!(!hosts.is_far(7) && !hosts.are_together(7, 7));
        assert!(hosts.are_together(1, 5) && !hosts.are_together(2, 4));
        assert_eq!(Hosts::one(1, 3), Hosts::read(1, vec![0; 3]).unwrap());
    }

    #[test]
    fn what_cannot_be_is_not_read() {
        for (me, told) in [(0, vec![]), (2, vec![0, 0]), (0, vec![1, 1]), (0, vec![0, 0, 1]), (0, vec![9])] {
            assert_eq!(Hosts::read(me, told), None);
        }
    }

    #[test]
    fn this_process_is_where_it_is_unless_it_is_told_apart() {
        let here = HostId::of_this_process(0);
        assert!(here.is_some());
        assert_eq!(here, HostId::of_this_process(0));
        assert_ne!(here, HostId::of_this_process(1));
    }
}
