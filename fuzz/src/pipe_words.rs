//! Whatever units of a pipe say to the writers' unit 0 is answered by the rules or refused. Who joins is
//! checked, nobody hears what is for members before it is one, and strangers do not keep the pipe from
//! opening; of the steps nobody gets one that is not its next, and what is said across hosts can be said
//! again.

#![forbid(unsafe_code)]

mod acts;
mod driver;
mod words;

use polyduct_pipe::net::hub::StepHub;
use polyduct_pipe::net::wire::{Ask, First, Halt, KnownUnit, Knows, LaneOpen, NearAsk, NearTell, Tell, Want};
use polyduct_pipe::rendezvous::{Action, ConnId, Rendezvous};
use polyduct_pipe::wire::{
    Array, FromHost, Gives, Hello, Role, Takes, ToHost, Welcome, Wish, SEGMENTS_AT_ONCE,
};
use polyduct_pipe::{OnLoss, Policy, Refusal, Side, UnitName};
use polyduct_slots::geometry::Sizes;
use polyduct_slots::rebuild::{Granted, Position, Stands};
use polyduct_slots::{Begin, Next, Slots, Stop, Turn};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use words::{read, say};

/// What may come to pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Event {
    /// A unit says something before the steps.
    Meet {
        conn: u8,
        fds: u8,
        message: ToHost,
    },
    /// A unit says something of the steps.
    Step {
        conn: u8,
        ask: Ask,
    },
    Hangup {
        conn: u8,
        closed: bool,
    },
    Deadline,
    Revived,
    /// Unit 0 itself does what it can of its next step.
    Mine,
}

/// Units of the writers, and of the one reader program.
const WRITERS: u32 = 2;
const READERS: u32 = 2;
const DEPTH: u32 = 2;

fn hello(program: u32, unit: u32, on_loss: OnLoss) -> Hello {
    let gives = Gives::Arrays(vec![array()]);
    let role = match program {
        0 => Role::Writer { gives, depth: DEPTH, policy: Policy::Block, readers: 1 },
        _ => Role::Reader { takes: takes() },
    };
    let (program, units) = if program == 0 { ("w".into(), WRITERS) } else { ("r".into(), READERS) };
    Hello { program, unit, units, pid: 9, space: 1, start_time: 1, on_loss, role, rejoin: None }
}

fn welcome() -> Welcome {
    Welcome {
        id: [7; 16],
        program: 0,
        writers: WRITERS,
        readers: vec![READERS],
        depth: DEPTH,
        policy: Policy::Block,
        arrays: vec![array()],
        writers_wait: false,
        readers_wait: vec![false],
        reader_programs: vec!["r".into()],
        reader_takes: vec![takes()],
    }
}

fn array() -> Array {
    Array { name: String::new(), shape: vec![8], elem: "u8".into(), layout: "block".into(), open: None }
}

fn takes() -> Takes {
    Takes::One(Wish::layout("block"))
}

fn check_terms(role: &Role, arrays: &[Array], _: u32) -> Result<(), Refusal> {
    let is_good = match role {
        Role::Writer { .. } => *arrays == [array()],
        Role::Reader { takes } => takes.wishes().all(|wish| wish.layout == "block"),
    };
    is_good.then_some(()).ok_or(Refusal::Malformed)
}

/// The rendezvous, and what its driver knows.
struct Meeting {
    on_loss: OnLoss,
    rendezvous: Rendezvous<u32>,
    /// Connections that were closed: nothing may be said to them.
    closed: BTreeSet<ConnId>,
    built: usize,
    went: usize,
    failed: usize,
}

impl Meeting {
    fn new(on_loss: OnLoss) -> Meeting {
        let (rendezvous, first) = Rendezvous::new([7; 16], hello(0, 0, on_loss), 1, Some(0), check_terms);
        assert_eq!(first, []);
        Meeting { on_loss, rendezvous, closed: BTreeSet::new(), built: 0, went: 0, failed: 0 }
    }

    fn handle(&mut self, event: &Event) {
        let actions = match event {
            Event::Meet { conn, fds, message } => {
                let conn = ConnId::from(*conn) + 1;
                self.closed.remove(&conn);
                let asked = match message {
                    ToHost::Segments(units) => units.len(),
                    _ => 0,
                };
                let actions = self.rendezvous.handle(conn, 9, message.clone(), vec![5; usize::from(fds % 4)]);
                let sent = actions.iter().filter(|a| matches!(a, Action::Segment(..))).count();
                assert!(sent <= asked.min(SEGMENTS_AT_ONCE));
                actions
            }
            Event::Hangup { conn, closed } => {
                let conn = ConnId::from(*conn) + 1;
                self.closed.insert(conn);
                self.rendezvous.hangup(conn, *closed)
            }
            Event::Deadline => self.rendezvous.deadline(5),
            Event::Revived => self.rendezvous.revived(),
            Event::Step { .. } | Event::Mine => return,
        };
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, message) => {
                    assert!(!self.closed.contains(&to), "{message:?} to {to}, which is closed");
                    if let FromHost::Refused(why) = message {
                        assert!(!why.to_string().is_empty());
                    }
                }
                Action::Welcome { to, welcome, segment } => {
                    assert!(self.rendezvous.is_member(to) && !self.closed.contains(&to));
                    assert_eq!((welcome.writers, welcome.depth), (WRITERS, DEPTH));
                    assert!(segment.is_none_or(|unit| self.rendezvous.segment(unit).is_some()));
                }
                Action::Segment(to, unit) => {
                    assert!(self.rendezvous.is_member(to) && self.rendezvous.segment(unit).is_some());
                }
                Action::Drop(id) => {
                    self.closed.insert(id);
                    let actions = self.rendezvous.hangup(id, false);
                    self.carry_out(actions);
                }
                Action::Build(w) => {
                    assert!((w.writers, w.readers.len()) == (WRITERS, 1) && w.id == [7; 16]);
                    self.built += 1;
                }
                Action::Revive(_) => {
                    assert!(self.rendezvous.control().is_some());
                    self.built += 1;
                }
                Action::Join(_, unit, ..) => assert!(unit.unit < 1 << 12),
                Action::Go => self.went += 1,
                Action::Fail(why) => {
                    assert!(!why.to_string().is_empty());
                    self.failed += 1;
                }
                Action::Lost(..) => assert!(self.built == 1),
                Action::Seat(..) | Action::Enter(_) | Action::Vacate(_) => panic!("no guests are let in"),
            }
        }
        assert!(self.built <= 1 && self.went <= self.built && self.failed <= 1);
        assert!(self.failed == 0 || !self.rendezvous.is_running());
    }

    /// When all strangers have gone, those come who belong.
    fn end(mut self) {
        (0..=255).for_each(|conn| self.handle(&Event::Hangup { conn, closed: false }));
        if self.built > 0 || self.failed > 0 {
            return;
        }
        let others = [(0, 1), (1, 1), (1, 0)];
        let say =
            |at: &mut Meeting, i: usize, message| at.handle(&Event::Meet { conn: i as u8, fds: 1, message });
        for (i, (program, unit)) in others.into_iter().enumerate() {
            let message = ToHost::Hello(hello(program, unit, self.on_loss));
            say(&mut self, i, message);
        }
        assert_eq!((self.built, self.went, self.failed), (1, 0, 0), "all are there");
        say(&mut self, 1, ToHost::Segments(vec![0, 1]));
        (0..others.len()).for_each(|i| say(&mut self, i, ToHost::Ready));
        assert_eq!((self.built, self.went, self.failed), (1, 1, 0), "all are ready");
        assert!(self.rendezvous.is_running());
    }
}

/// The steps at unit 0.
struct Steps {
    hub: StepHub,
    mine: u64,
    /// For each connection: its unit, the steps that it was given and has not ended, and its next.
    units: BTreeMap<ConnId, (UnitName, VecDeque<u64>, u64)>,
    /// Units that are lost and may be replaced.
    absent: Vec<UnitName>,
}

impl Steps {
    /// Of readers that are there from the start, or that come and go.
    fn new(policy: Policy, waits: bool, come: bool) -> Steps {
        let (policy, readers) = if come { (Policy::Latest, vec![]) } else { (policy, vec![READERS]) };
        let sizes = Sizes { writers: WRITERS, readers, depth: DEPTH, policy, words: 1 };
        let mut waiting = vec![Side::Writer, Side::Reader(0)];
        waiting.retain(|_| waits && !come);
        let mut hub = StepHub::new(Slots::on_heap(sizes), waiting);
        if come {
            hub.seat(0, READERS, waits);
            hub.slots().enter(0);
        }
        hub.slots().join(UnitName { side: Side::Writer, unit: 0 }, (1, 1), 1);
        let others = [(Side::Writer, 1), (Side::Reader(0), 0), (Side::Reader(0), 1)];
        let mut units = BTreeMap::new();
        for (conn, (side, unit)) in (1..).zip(others) {
            hub.join(conn, UnitName { side, unit }, 9, 1);
            units.insert(conn, (UnitName { side, unit }, VecDeque::new(), 0));
        }
        Steps { hub, mine: 0, units, absent: Vec::new() }
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Step { conn, ask } => {
                let conn = ConnId::from(*conn);
                let taken = self.hub.handle(conn, ask).is_ok();
                let unit = self.units.get_mut(&conn);
                assert!(!taken || unit.is_some(), "{ask:?} of nobody");
                if let (true, Some((_, given, next)), Ask::Publish | Ask::Skip | Ask::Release) =
                    (taken, unit, ask)
                {
                    // Where it is over, it may say so to no effect.
                    if given.pop_front().is_some() {
                        *next += 1;
                    }
                }
            }
            Event::Hangup { conn, .. } => {
                let conn = ConnId::from(*conn);
                self.absent.extend(self.hub.replaceable(conn));
                let _ = self.hub.hangup(conn);
                self.units.remove(&conn);
                let is_guest = |unit: &UnitName| self.hub.is_guest(*unit);
                if self.hub.slots().sizes().are_open()
                    && !self.units.values().any(|(unit, ..)| is_guest(unit))
                {
                    self.absent.clear();
                    self.hub.vacate(0);
                }
            }
            Event::Deadline if self.hub.awaits_guests() => self.hub.let_guests_go(),
            Event::Revived => {
                let _ = self.hub.slots().close_writer(0, self.mine);
            }
            // Somebody comes in the place of the unit that was lost first.
            Event::Meet { conn, .. } if !self.absent.is_empty() => {
                let conn = ConnId::from(*conn);
                if self.units.contains_key(&conn) {
                    return;
                }
                let unit = self.absent.remove(0);
                self.hub.join(conn, unit, 10, 1);
                self.units.insert(conn, (unit, VecDeque::new(), self.hub.goes_on_at(conn)));
            }
            Event::Mine => match self.hub.slots().poll_begin(0, self.mine) {
                Ok(Some(Begin::Fill(turn))) => {
                    assert_eq!(turn.step, self.mine);
                    self.hub.slots().bring(0, turn, &[7]);
                    self.hub.slots().publish(0, turn);
                    self.mine += 1;
                }
                Ok(Some(Begin::Drop)) => {
                    self.hub.slots().skip(0, self.mine);
                    self.mine += 1;
                }
                Ok(None) => {}
                Err(stop) => assert!(!matches!(stop, Stop::Corrupt(_)), "{stop:?}"),
            },
            _ => return,
        }
        let told = self.hub.poll();
        told.iter().for_each(|(conn, tell)| self.check(*conn, tell));
    }

    fn check(&mut self, conn: ConnId, tell: &Tell) {
        read::<Tell>(&say(tell));
        let lossless = self.hub.slots().sizes().policy == Policy::Block;
        let (unit, given, next) = self.units.get_mut(&conn).expect("somebody who is there");
        match tell {
            Tell::Begin(Begin::Fill(turn)) => {
                // It is told of further steps before it asks where every step comes.
                let most = if lossless { DEPTH as usize } else { 1 };
                assert!(unit.side == Side::Writer && turn.slot < DEPTH && given.len() < most);
                assert_eq!(turn.step, *next + given.len() as u64);
                given.push_back(turn.step);
            }
            Tell::Begin(Begin::Drop) => {
                assert!(unit.side == Side::Writer && !lossless && given.is_empty());
                given.push_back(*next);
            }
            Tell::Brought(said) => assert!(unit.side != Side::Writer && said.len() == WRITERS as usize),
            Tell::Next(Next::Step(turn)) => {
                // It may ask ahead where every step comes.
                assert!(unit.side != Side::Writer && turn.slot < DEPTH);
                assert!((given.len() as u32) < if lossless { DEPTH } else { 1 });
                let due = *next + given.len() as u64;
                assert!(if lossless { turn.step == due } else { turn.step >= due });
                given.push_back(turn.step);
            }
            Tell::Next(Next::End) => assert!(unit.side != Side::Writer),
            Tell::NotYet => assert!(unit.side != Side::Writer && !lossless && given.is_empty()),
            Tell::Stop(halt) | Tell::Notice(halt) => assert_ne!(*halt, Halt::Corrupt),
            Tell::Bye => {}
            Tell::Meet(..) | Tell::Lost(..) | Tell::Replaced(..) | Tell::Units(_) => {
                panic!("{tell:?} is not of the steps")
            }
        }
    }

    fn end(mut self) {
        let told = self.hub.last_words();
        told.iter().for_each(|(conn, tell)| self.check(*conn, tell));
        let _ = self.units.keys().map(|&conn| self.hub.hangup(conn)).collect::<Vec<_>>();
        assert!(self.hub.is_alone() || self.hub.slots().fault().is_none(), "a failed pipe waits for nobody");
    }
}

/// Units come to a new unit 0 and say that they stand there.
fn revive(policy: Policy, input: &[u8]) {
    let Ok(stands) = postcard::from_bytes::<[Option<Stands>; 3]>(input) else { return };
    let names = [(Side::Writer, 1), (Side::Reader(0), 0), (Side::Reader(0), 1)];
    let names = names.map(|(side, unit)| UnitName { side, unit });
    let unit_0 = Position { unit: UnitName { side: Side::Writer, unit: 0 }, process: (9, 1), stands: None };
    let others = names.into_iter().zip(stands.clone());
    let others = others.map(|(unit, stands)| Position { unit, process: (9, 1), stands });
    let positions: Vec<Position> = [unit_0].into_iter().chain(others).collect();
    let sizes = Sizes { writers: WRITERS, readers: vec![READERS], depth: DEPTH, policy, words: 1 };
    let Some((slots, published)) = Slots::rebuild(sizes, &positions) else { return };
    assert!(slots.first_needed(published) <= published);
    let mut hub = StepHub::new(slots, vec![Side::Writer, Side::Reader(0)]);
    for (conn, (unit, stands)) in (1..).zip(names.into_iter().zip(&stands)) {
        match stands {
            Some(stands) => hub.returns(conn, unit, published, stands),
            None => hub.lacks(unit),
        }
    }
    for ask in [Ask::Begin, Ask::Bring(vec![5]), Ask::Publish, Ask::Next, Ask::Release, Ask::Skip, Ask::Close]
    {
        let _ = [1, 2, 3].map(|conn| hub.handle(conn, &ask));
        hub.poll();
    }
    hub.last_words();
}

/// The first byte says what the units agreed on, then events follow; the rest of the input is read as each
/// kind of word.
fn target(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    read::<First>(rest);
    read::<Ask>(rest);
    read::<Tell>(rest);
    read::<LaneOpen>(rest);
    read::<Want>(rest);
    read::<NearAsk>(rest);
    read::<NearTell>(rest);
    let policy =
        [Policy::Block, Policy::Latest, Policy::DropOldest, Policy::DropNewest][usize::from(choice % 4)];
    let waits = choice & 4 != 0;
    revive(policy, rest);
    let mut meeting = Meeting::new(if waits { OnLoss::Wait } else { OnLoss::Raise });
    let mut steps = Steps::new(policy, waits, choice & 8 != 0);
    for event in acts::read::<Event>(rest) {
        meeting.handle(&event);
        steps.handle(&event);
    }
    meeting.end();
    steps.end();
}

fn main() {
    let meet = |conn, message| Event::Meet { conn, fds: 2, message };
    let joins = |conn, program, unit| meet(conn, ToHost::Hello(hello(program, unit, OnLoss::Wait)));
    let rejoins = |conn, program, unit| {
        let rejoin = Some(welcome());
        meet(conn, ToHost::Hello(Hello { rejoin, ..hello(program, unit, OnLoss::Wait) }))
    };
    let forgetful = Some(Welcome { reader_takes: Vec::new(), ..welcome() });
    let forgets = Hello { rejoin: forgetful, ..hello(0, 1, OnLoss::Wait) };
    let forgets = meet(1, ToHost::Hello(forgets));
    let ready = |conn| meet(conn, ToHost::Ready);
    let step = |conn, ask| Event::Step { conn, ask };
    let hangup = |conn| Event::Hangup { conn, closed: false };
    let all = [joins(1, 0, 1), joins(2, 1, 0), joins(3, 1, 1)];
    let readers = |ask: Ask| [step(2, ask.clone()), step(3, ask)];
    let writes = [step(1, Ask::Begin), step(1, Ask::Bring(vec![5])), step(1, Ask::Publish), Event::Mine];
    let scenes = [
        [
            &all[..],
            &[meet(2, ToHost::Segments(vec![0, 1])), ready(1), ready(2), ready(3), hangup(2), joins(4, 1, 0)],
        ]
        .concat(),
        [&all[..2], &[hangup(1), joins(5, 0, 1), Event::Deadline]].concat(),
        vec![rejoins(1, 0, 1), rejoins(2, 1, 0), joins(4, 1, 1), Event::Revived, rejoins(3, 1, 1)],
        vec![forgets, Event::Revived, joins(2, 1, 0), joins(3, 1, 1)],
        [&writes[..], &readers(Ask::Next), &readers(Ask::Release), &writes, &[step(1, Ask::Close)]].concat(),
        [&writes[..], &writes, &[step(1, Ask::Begin)], &readers(Ask::Next), &readers(Ask::Close)].concat(),
        [&readers(Ask::Next)[..], &writes, &[step(1, Ask::Begin), step(1, Ask::Skip), hangup(2)]].concat(),
        vec![
            step(1, Ask::Abort("no more".into())),
            step(2, Ask::Next),
            step(2, Ask::Leave),
            step(3, Ask::Close),
        ],
        // Readers that come and go, from here on.
        [&readers(Ask::Next)[..], &writes, &[Event::Revived, step(1, Ask::Close)], &readers(Ask::Release)]
            .concat(),
        [&readers(Ask::Next)[..], &readers(Ask::Withdraw), &writes, &[hangup(2), hangup(3)], &writes]
            .concat(),
        [&writes[..], &[Event::Revived, step(1, Ask::Close), Event::Deadline, hangup(1)]].concat(),
    ];
    let lost = Ask::Lost(UnitName { side: Side::Reader(0), unit: 1 }, 10);
    let at = "[::1]:7".parse().expect("an address");
    let (session, hello) = ([7; 16], ToHost::Hello(hello(1, 0, OnLoss::Raise)));
    let turn = Turn { step: 3, slot: 1, sense: true, uses: 1 };
    let granted = Some(Granted::Begin(Begin::Fill(Turn { step: 4, slot: 0, ..turn })));
    let writer = Stands { from: 0, done: 4, granted, turns: vec![turn], brought: vec![], closed: false };
    let reader = Stands { done: 3, granted: Some(Granted::Next(Next::Step(turn))), ..writer.clone() };
    let known = KnownUnit { life: 1, pid: 9, door: Some(at), left: Some(Stands::default()) };
    let others = vec![(UnitName { side: Side::Reader(0), unit: 1 }, known)];
    let knows = Some(Box::new(Knows { stands: writer.clone(), others: others.clone() }));
    let first = First::Join { pid: 9, session, door: Some(at), hello, knows };
    let mut seeds: Vec<Vec<u8>> =
        (0..).zip(&scenes).map(|(i, events): (u8, _)| [vec![i], acts::write(events)].concat()).collect();
    let again = First::Again { session, heard: 3, life: 1, pipe: [7; 16] };
    let stand = [Some(writer), Some(reader.clone()), Some(reader)];
    seeds.extend([0, 1, 2, 3].map(|policy| [vec![policy], say(&stand)].concat()));
    seeds.push([vec![0], say(&Tell::Units(others))].concat());
    for word in
        [say(&first), say(&again), say(&lost), say(&Tell::Meet(FromHost::Welcome(welcome()), 9, Some(at), 3))]
    {
        seeds.push([vec![0], word].concat());
    }
    let words: Vec<Vec<u8>> = [&all[..], &writes, &readers(Ask::Next), &readers(Ask::Release)]
        .concat()
        .iter()
        .chain(&[hangup(1), hangup(2), ready(2), step(1, lost), rejoins(2, 1, 0), step(1, Ask::Skip)])
        .map(|event| acts::write(std::slice::from_ref(event)))
        .chain([say(&u32::MAX), say(&u64::MAX), vec![0], vec![1]])
        .collect();
    let [seeds, words] = [&seeds, &words].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    driver::run(&seeds, &words, target);
}
