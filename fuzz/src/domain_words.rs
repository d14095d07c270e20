//! Whatever units say to each other in a domain is read or refused, and what was read can be said again. Who
//! gathers the units of a host is not kept from it by strangers; a barrier passes only when all words of it
//! came from those who may say them; a table of hosts and a list of handlers are consistent or are not taken.

#![forbid(unsafe_code)]

mod acts;
mod driver;

use polyduct_message::domain::barrier::Barrier;
use polyduct_message::domain::directory::{
    Directory, HandlerError, Installed, Kind, Offered, MAX_HANDLERS, MAX_NAME,
};
use polyduct_message::domain::host::{Answer, Ask, Join, PROTOCOL};
use polyduct_message::domain::host_map::{Hosts, Reach};
use polyduct_message::domain::process::Process;
use polyduct_message::meeting::{ConnId, Gathering, JoinRefusal, Member, OWN};
use polyduct_message::HandlerId;
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// What may come to pass, for all of it at once: each part takes what concerns it.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Event {
    Join {
        conn: u8,
        pid: u32,
        join: Join,
    },
    Hangup {
        conn: u8,
    },
    Deadline,
    /// This unit comes to a barrier.
    Begin,
    /// A word of a barrier.
    Word {
        from: u32,
        number: u32,
        round: u32,
    },
    /// The units that share a host, as unit 0 says.
    Book {
        me: u32,
        lowest: Vec<u32>,
    },
    /// All units bring their handlers.
    Offers(Vec<Vec<Offered>>),
    /// Unit 0 sends a list.
    Agreed(Directory),
}

fn say<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("words")
}

fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(value) = postcard::from_bytes::<T>(bytes) {
        let again = say(&value);
        assert_eq!(postcard::from_bytes::<T>(&again).as_ref(), Ok(&value));
        let mut message = [&b"PDUC"[..], &PROTOCOL.version.to_le_bytes(), &[0, PROTOCOL.kind]].concat();
        message.extend(again);
        assert_eq!(PROTOCOL.decode::<T>(&message), Ok(Some(value)));
    }
    let _ = PROTOCOL.decode::<T>(bytes);
}

/// Units of the domain; those of this host.
const UNITS: u32 = 6;
const NEAR: [u32; 4] = [1, 2, 3, 5];

/// The number of a connection: 0 is the gathering unit's own.
fn id(conn: u8) -> ConnId {
    ConnId::from(conn) + 1
}

struct Host {
    gathering: Gathering<Process>,
    /// Its end has been told.
    over: bool,
}

impl Host {
    fn join(&mut self, conn: ConnId, pid: u32, join: &Join) -> Result<(), JoinRefusal> {
        let member = Member { conn, pid, terms: join.process };
        self.gathering.handle_join((join.unit, join.units), member, || Ok(()))
    }

    /// Whether nothing is wrong with what a unit says, and its place is free.
    fn is_free(&self, conn: ConnId, join: &Join) -> bool {
        let taken =
            self.gathering.has_joined(conn) || self.gathering.terms().any(|(unit, _)| unit == join.unit);
        !taken && join.units == UNITS && NEAR.contains(&join.unit)
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Join { conn, pid, join } => match self.join(id(*conn), *pid, join) {
                // All else would be in order, but the gathering has ended.
                Err(why) if self.over => assert_eq!(self.is_free(id(*conn), join), why == JoinRefusal::Over),
                Err(why) => assert!(!why.to_string().is_empty() && !self.gathering.has_joined(id(*conn))),
                Ok(()) => {
                    assert!(!self.over && self.gathering.has_joined(id(*conn)) && NEAR.contains(&join.unit));
                    self.over = self.gathering.is_complete();
                }
            },
            Event::Hangup { conn } => {
                self.gathering.handle_hangup(id(*conn));
                assert!(self.over || !self.gathering.has_joined(id(*conn)));
            }
            Event::Deadline if !self.over => {
                let why = self.gathering.handle_deadline(5);
                assert!(why.to_string().contains("did not come"));
                assert!(self.gathering.conns().len() < NEAR.len() - 1);
                self.over = true;
            }
            _ => {}
        }
    }

    /// When all strangers have gone, those come who belong.
    fn end(mut self) {
        (0..=255).for_each(|conn| self.handle(&Event::Hangup { conn }));
        if self.over {
            return;
        }
        for unit in [5, 2, 3] {
            assert!(!self.gathering.is_complete());
            let process = Process { pid: unit, space: 1, start_time: unit.into() };
            let came = self.join(1000 + u64::from(unit), unit, &Join { unit, units: UNITS, process });
            assert_eq!(came, Ok(()));
        }
        let members = [1, 2, 3, 5].map(|n| (n, Process { pid: n, space: 1, start_time: n.into() }));
        assert!(self.gathering.is_complete());
        assert!(self.gathering.terms().map(|(unit, process)| (unit, *process)).eq(members));
        assert_eq!(self.gathering.conns(), [1002, 1003, 1005]);
    }
}

/// Unit 2 of 5: three rounds, in which 1, 0 and 3 tell it.
struct Watched {
    barrier: Barrier,
    begun: u32,
    under_way: bool,
    heard: [u32; 3],
}

impl Watched {
    fn handle(&mut self, event: &Event) {
        let mut told = Vec::new();
        match *event {
            Event::Begin if !self.under_way => {
                self.barrier.begin(&mut |tell| told.push(tell));
                (self.begun, self.under_way) = (self.begun + 1, true);
            }
            Event::Word { from, number, round } => {
                let taken = self.barrier.handle(from, number, round, &mut |tell| told.push(tell));
                let may = [1, 0, 3].get(round as usize) == Some(&from);
                let fits = may && number == self.heard[round as usize] + 1 && number <= self.begun + 1;
                assert_eq!(taken, fits, "{event:?} after {:?}", self.heard);
                if taken {
                    self.heard[round as usize] = number;
                }
            }
            _ => return,
        }
        for (to, number, round) in told {
            assert_eq!((Some(&to), number), ([3, 4, 1].get(round as usize), self.begun));
        }
        let here = |heard: &u32| *heard == self.begun || *heard == self.begun + 1;
        self.under_way &= !self.heard.iter().all(here);
        assert_eq!(self.barrier.is_over(), !self.under_way, "{:?} in {}", self.heard, self.begun);
        let waits = self.heard.iter().position(|heard| !here(heard)).map(|round| [1, 0, 3][round]);
        assert_eq!(self.barrier.waits_for(), waits.filter(|_| self.under_way));
    }
}

fn check_book(me: u32, lowest: &[u32]) {
    let Some(hosts) = Hosts::read(me, lowest.to_vec()) else { return };
    let units = lowest.len() as u32;
    assert!(hosts.near().contains(&me) && hosts.reach(me) == Some(Reach::Itself) && me < units);
    let far: Vec<u32> = hosts.far().collect();
    let all: BTreeSet<u32> = far.iter().chain(hosts.near()).copied().collect();
    assert!(all.len() == far.len() + hosts.near().len() && all.into_iter().eq(0..units));
    for unit in (0..units).chain([units, u32::MAX]) {
        assert_eq!(hosts.are_together(me, unit), hosts.near().contains(&unit));
        assert_eq!(hosts.reach(unit).is_none(), unit >= units);
        assert_eq!(hosts.reach(unit) == Some(Reach::Far), far.contains(&unit));
    }
}

/// The list so far: what the next brings is added, and nothing changes its number.
fn check_offers(before: &mut Directory, offers: &[Vec<Offered>]) {
    let next = match before.merge(offers) {
        Ok(next) => next,
        Err(HandlerError::BadName { name }) => return assert!(name.chars().count() <= 40),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(next.len() <= MAX_HANDLERS && next.len() >= before.len());
    for id in (0..before.len() as u32).map(HandlerId) {
        assert_eq!(before.name(id), next.name(id));
    }
    for (unit, offer) in (0..).zip(offers) {
        for Offered { name, kind, .. } in offer {
            assert!((1..=MAX_NAME).contains(&name.len()) && !name.contains(char::is_control));
            let id = next.lookup(name, unit, *kind).expect("it was offered");
            assert_eq!(next.name(id), Some(&**name));
        }
    }
    *before = next;
}

/// A list of unit 0's is used as it is: a faulty one misleads, and that is all.
fn check_agreed(directory: &Directory) {
    let mut mine = Installed::default();
    mine.install("f", 1, Kind::Calls, ()).expect("a name");
    mine.number(directory);
    for id in (0..directory.len().min(50) as u32).chain([u32::MAX]).map(HandlerId) {
        let name = directory.name(id);
        assert_eq!(mine.get(id).is_some(), name == Some("f"));
        let found = name.and_then(|name| directory.lookup(name, 1, Kind::Calls).ok());
        assert!(found.is_none_or(|found| directory.name(found) == name));
    }
    let next = directory.merge(&[mine.offer()]);
    assert!(next.is_err() || next.is_ok_and(|next| next.lookup("f", 0, Kind::Calls).is_ok()));
}

fn target(input: &[u8]) {
    read::<Ask>(input);
    read::<Answer>(input);
    let terms = Process { pid: 1, space: 1, start_time: 1 };
    let gathering = Gathering::new(UNITS, NEAR, Member { conn: OWN, pid: 77, terms });
    let mut host = Host { gathering, over: false };
    let mut barrier = Watched { barrier: Barrier::new(2, 5), begun: 0, under_way: false, heard: [0; 3] };
    let mut directory = Directory::default();
    for event in acts::read::<Event>(input) {
        host.handle(&event);
        barrier.handle(&event);
        match &event {
            Event::Book { me, lowest } => check_book(*me, lowest),
            Event::Offers(offers) => check_offers(&mut directory, offers),
            Event::Agreed(directory) => check_agreed(directory),
            _ => {}
        }
    }
    host.end();
}

fn main() {
    let events = acts::write::<Event>;
    let join = |conn, unit| Event::Join {
        conn,
        pid: 9,
        join: Join { unit, units: UNITS, process: Process { pid: 0, space: 1, start_time: 4 } },
    };
    let word = |from, number, round| Event::Word { from, number, round };
    let offered = |name: &str, version| Offered { name: name.into(), version, kind: Kind::Calls };
    let offers =
        |a: &str, b: &str| Event::Offers(vec![vec![offered(a, 1)], vec![offered(b, 1), offered(a, 1)]]);
    let agreed = Directory::default().merge(&[vec![offered("f", 1), offered("g", 2)]]).expect("a list");
    let missing = JoinRefusal::Missing { missing: "unit 1".into(), waited_ms: 300, hint: "x".into() };
    let seeds = [
        events(&[join(1, 2), join(2, 3), Event::Hangup { conn: 1 }, join(3, 2), join(4, 5), Event::Deadline]),
        events(&[join(1, 2), join(1, 3), join(2, 2), join(3, 4), Event::Deadline, join(5, 5)]),
        events(&[Event::Begin, word(1, 1, 0), word(0, 1, 1), word(3, 1, 2), Event::Begin, word(1, 2, 0)]),
        events(&[word(1, 1, 0), word(0, 1, 1), Event::Begin, word(1, 2, 0), word(3, 1, 2)]),
        events(&[
            Event::Book { me: 3, lowest: vec![0, 1, 2, 0, 4, 1, 0] },
            Event::Book { me: 1, lowest: vec![0; 2] },
        ]),
        events(&[offers("f", "g"), offers("a", "f"), offers("b", "c"), Event::Agreed(agreed)]),
        say(&Ask::Join(Join {
            unit: 1,
            units: 2,
            process: Process { pid: 1, space: 1, start_time: 1 << 40 },
        })),
        say(&Ask::Region { unit: 1, id: 300 }),
        say(&Answer::Welcome(
            [(7, 1 << 40), (8, 5)].map(|(pid, start_time)| Process { pid, space: 1, start_time }).to_vec(),
        )),
        say(&Answer::Memory { address: u64::MAX, len: 4096 }),
        say(&Answer::Refused(missing)),
        [&b"PDUC\x0f\0\0\x02"[..], &say(&Ask::Link { unit: 4 })].concat(),
    ];
    let words = [
        events(&[join(9, 5)]),
        events(&[join(8, 1)]),
        events(&[Event::Begin]),
        events(&[word(1, 2, 0)]),
        events(&[word(0, 2, 1)]),
        events(&[word(3, 2, 2)]),
        events(&[Event::Hangup { conn: 3 }]),
        events(&[offers("h", "")]),
        say(&u32::MAX),
        say(&u64::MAX),
        b"\0".to_vec(),
        b"\x01".to_vec(),
        "\x02ü".into(),
    ];
    let [seeds, words] = [&seeds[..], &words].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    driver::run(&seeds, &words, target);
}
