//! Makes one pipe of the units of two or more programs: the state machine of the writer's unit 0.
//!
//! Input: connections, their messages, their hangups. Output: [`Action`]s. No sockets, no time; `F` stands
//! for a file descriptor, so that tests can drive it with numbers.
//!
//! Every unit says [`Hello`]. When all units of the writer and of every expected reader program have come,
//! each is [welcomed](Welcome) with the control segment; readers ask for the segments that their plans need;
//! when all are ready, all may go. After that the only input is hangups, and replacements of lost units where
//! their program waits for them.

mod absent;
mod admit;
mod guests;
mod revive;

use admit::named;
use guests::Guests;
use polyduct_port::{OnLoss, Side, UnitName};

use crate::error::{is_of_terms, Mismatch, Refusal};
use crate::wire::{Array, FromHost, Gives, Hello, Role, Takes, ToHost, Welcome, SEGMENTS_AT_ONCE};
use polyduct_slots::close::Ending;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

pub use polyduct_message::meeting::{ConnId, OWN};
use polyduct_message::meeting::{Member, Roll};

/// What the driver has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this.
    Send(ConnId, FromHost),
    /// Send a welcome with the control segment, and a writer's own segment if it is a replacement.
    Welcome {
        /// To whom.
        to: ConnId,
        /// What.
        welcome: Welcome,
        /// The writer unit whose segment goes with it.
        segment: Option<u32>,
    },
    /// Send the segment of a writer unit.
    Segment(ConnId, u32),
    /// Close the connection, and say so by [`hangup`](Rendezvous::hangup).
    Drop(ConnId),
    /// All units are there: build the control segment for this pipe before carrying out what follows.
    Build(Welcome),
    /// This pipe exists already, and its unit 0 was replaced by this one: take the control segment from
    /// [`control`](Rendezvous::control).
    Revive(Welcome),
    /// A unit has its place in the control segment from now on: its pid and start time.
    Join(ConnId, UnitName, u32, u64),
    /// All units are ready: unit 0 itself may go.
    Go,
    /// The pipe cannot come to be.
    Fail(Refusal),
    /// A unit is gone and its program does not wait for a replacement.
    Lost(UnitName, u32),
    /// Where reader programs come and go: this one, of so many units, gets its place.
    Seat(u32, u32),
    /// The program in this place reads from now on.
    Enter(u32),
    /// Nobody of the program in this place is left.
    Vacate(u32),
}

/// Where the rendezvous stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    Readying,
    /// Survivors of a pipe that lost its unit 0 come back.
    Reviving,
    Running,
    Over,
}

/// What a unit that has come is for the pipe.
struct Part {
    hello: Hello,
    ready: bool,
    /// Nothing is heard of it: whoever comes in its place gets it. Until then it may come back.
    given_up: bool,
}

impl Part {
    fn waits(&self) -> bool {
        self.hello.on_loss == OnLoss::Wait
    }
}

/// A replacement that came while survivors are coming back: it hears when all are there.
struct Early<F> {
    conn: ConnId,
    pid: u32,
    hello: Hello,
    fds: Vec<F>,
}

/// The state machine.
pub struct Rendezvous<F> {
    phase: Phase,
    id: [u8; 16],
    /// Guests, too, where they come and go.
    roll: Roll<UnitName, Part>,
    early: Vec<Early<F>>,
    /// Units that have come to their end; nobody takes their places.
    closed: BTreeSet<UnitName>,
    /// A unit that finds no place any more comes for the next pipe of this name.
    ending: Ending,
    /// Names of the reader programs, in the order in which they came.
    programs: Vec<String>,
    segments: HashMap<u32, F>,
    control: Option<F>,
    /// Reader programs to wait for; 0: those that come are guests.
    readers: u32,
    /// A reader that does not fit has no other that could come in its place.
    sole: bool,
    guests: Guests,
    welcome: Option<Welcome>,
    /// Why the pipe did not come to be, for those whose word is read too late.
    ended: Option<Refusal>,
    /// Whether it may take the place of an earlier unit 0.
    revives: bool,
    /// What arrays and layouts are, is known to the driver.
    check_terms: CheckTerms,
}

/// Says what is wrong with what a unit wants, where these arrays move and its program has so many units.
pub type CheckTerms = fn(role: &Role, arrays: &[Array], units: u32) -> Result<(), Refusal>;

/// Unit 0 of the writers.
const FIRST: UnitName = UnitName { side: Side::Writer, unit: 0 };

/// All places of a program.
fn places(side: Side) -> RangeInclusive<UnitName> {
    UnitName { side, unit: 0 }..=UnitName { side, unit: u32::MAX }
}

impl<F> Rendezvous<F> {
    /// A rendezvous opened by unit 0 of a writer program, for a pipe of this [id](Welcome::id). Connection
    /// ids given later must not be 0.
    pub fn new(
        id: [u8; 16],
        me: Hello,
        pid: u32,
        segment: Option<F>,
        check_terms: CheckTerms,
    ) -> (Self, Vec<Action>) {
        let readers = match &me.role {
            Role::Writer { readers, .. } => *readers,
            Role::Reader { .. } => 0,
        };
        let mut r = Rendezvous {
            phase: Phase::Gathering,
            id,
            roll: Roll::default(),
            early: Vec::new(),
            closed: BTreeSet::new(),
            ending: Ending::No,
            programs: Vec::new(),
            segments: HashMap::new(),
            control: None,
            readers,
            sole: false,
            guests: Guests::default(),
            welcome: None,
            ended: None,
            // Guests have nothing that a new unit 0 could go on from.
            revives: readers > 0,
            check_terms,
        };
        let mut actions = Vec::new();
        r.hello(OWN, pid, me, segment.into_iter().collect(), &mut actions);
        if let [Action::Send(OWN, FromHost::Refused(why)), ..] = &mut actions[..] {
            actions = vec![Action::Fail(why.clone())];
        }
        (r, actions)
    }

    /// Ends when a reader is refused for what it takes: no other is to come.
    pub fn with_a_sole_reader(self, sole: bool) -> Self {
        Rendezvous { sole, ..self }
    }

    /// The segment of a writer unit.
    pub fn segment(&self, unit: u32) -> Option<&F> {
        self.segments.get(&unit)
    }

    /// The control segment that a survivor brought.
    pub fn control(&self) -> Option<&F> {
        self.control.as_ref()
    }

    /// Whether this unit has a connection (unit 0 has one to itself), and while survivors come back has said
    /// all it has to.
    pub fn is_here(&self, unit: UnitName) -> bool {
        let is_here = |part: &Part| !part.given_up && (part.ready || self.phase != Phase::Reviving);
        self.roll.get(unit).is_some_and(|member| is_here(&member.terms))
    }

    /// The process namespace of a unit: see [`Hello::space`].
    pub fn space(&self, unit: UnitName) -> u32 {
        self.roll.get(unit).map_or(0, |member| member.terms.hello.space)
    }

    /// Whether this connection has a place that this unit could get.
    pub fn is_in_the_way(&self, conn: ConnId, hello: &Hello) -> bool {
        let Some(held) = self.roll.place(conn) else { return false };
        let side = match hello.role {
            Role::Writer { .. } => Side::Writer,
            Role::Reader { .. } if self.is_open() => match self.guest_place(&hello.program) {
                Some(place) => Side::Reader(place),
                None => return held.side != Side::Writer && self.free_place().is_none(),
            },
            Role::Reader { .. } => match self.programs.iter().position(|p| *p == hello.program) {
                Some(i) => Side::Reader(i as u32),
                // A lone lost unit may come back under another name.
                None => return held.side != Side::Writer && held.unit == hello.unit,
            },
        };
        held == UnitName { side, unit: hello.unit }
    }

    /// Whether this connection has a unit's place.
    pub fn is_member(&self, conn: ConnId) -> bool {
        self.roll.place(conn).is_some()
    }

    /// Somebody was refused, or not let in at all.
    pub fn turned_away(&mut self, why: &str) {
        self.roll.turned_away(&why);
    }

    /// Answers one that is not let in. Who only asked is no reader that was turned away.
    fn refuse(&mut self, conn: ConnId, why: Refusal, actions: &mut Vec<Action>) {
        if !matches!(why, Refusal::Terms(Mismatch::Described { .. })) {
            self.turned_away(&why.to_string());
        }
        let ends = self.sole && self.phase == Phase::Gathering && is_of_terms(&why);
        actions.extend([Action::Send(conn, FromHost::Refused(why.clone())), Action::Drop(conn)]);
        if ends {
            actions.extend(self.abandon(why));
        }
    }

    /// Gives the segment of a writer unit that came without one.
    pub fn set_segment(&mut self, unit: u32, segment: F) {
        self.segments.insert(unit, segment);
    }

    /// Whether all units have been told to go.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether nobody may come any more, since the pipe did not come to be.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// A message came.
    pub fn handle(&mut self, conn: ConnId, pid: u32, message: ToHost, fds: Vec<F>) -> Vec<Action> {
        let mut actions = Vec::new();
        match message {
            ToHost::Hello(hello) if !self.knows(conn) => {
                // Until the survivors are back, nobody knows whose place is free.
                if self.phase == Phase::Reviving && hello.rejoin.is_none() {
                    self.early.push(Early { conn, pid, hello, fds });
                } else {
                    self.hello(conn, pid, hello, fds, &mut actions)
                }
            }
            ToHost::Segments(units) if self.may_ask(conn) && units.len() <= SEGMENTS_AT_ONCE => {
                match units.iter().find(|u| !self.segments.contains_key(u)) {
                    None => actions.extend(units.iter().map(|&u| Action::Segment(conn, u))),
                    Some(&u) => {
                        let why = Refusal::Terms(Mismatch::Segment {
                            unit: UnitName { unit: u, ..FIRST },
                            error: "there are none".into(),
                        });
                        actions.extend([Action::Send(conn, FromHost::Refused(why)), Action::Drop(conn)]);
                    }
                }
            }
            ToHost::Slots(units) if self.is_back(conn) && units.len() == fds.len() => {
                self.keep(units.into_iter().zip(fds))
            }
            ToHost::Ready if self.guest_may_ask(conn) => self.guest_ready(conn, &mut actions),
            ToHost::Ready if self.may_ask(conn) || self.is_back(conn) => self.ready(conn, &mut actions),
            // Where nothing is free, or all have come, the hangup that follows says the same.
            ToHost::GiveUp if self.knows(conn) => self.leave(conn),
            // Out of turn.
            _ => {
                self.leave(conn);
                actions.push(Action::Send(conn, FromHost::Refused(Refusal::Malformed)));
                actions.push(Action::Drop(conn));
            }
        }
        actions
    }

    /// Whether this connection has said hello and was not refused.
    fn knows(&self, conn: ConnId) -> bool {
        self.is_member(conn) || self.early.iter().any(|e| e.conn == conn)
    }

    fn may_ask(&self, conn: ConnId) -> bool {
        match self.guest(conn) {
            Some(_) => self.guest_may_ask(conn),
            None => self.is_member(conn) && matches!(self.phase, Phase::Readying | Phase::Running),
        }
    }

    /// Whether a unit that is lost may be replaced, of whichever program.
    pub fn anyone_waits(&self) -> bool {
        self.resident().any(|(_, member)| member.terms.waits())
    }

    /// Whether units may come that need the memory of the pipe, once all have been told to go.
    pub fn takes_more(&self) -> bool {
        self.anyone_waits() || self.is_open()
    }

    /// The programs whose lost units may be replaced.
    pub fn waiting(&self) -> Vec<Side> {
        let waits = self.resident().filter(|(_, member)| member.terms.waits());
        let mut programs: Vec<Side> = waits.map(|(place, _)| place.side).collect();
        programs.dedup();
        programs
    }

    /// Whether a lost unit of a program that is there may be replaced.
    pub fn waits(&self, side: Side) -> bool {
        self.first_of(side).is_some_and(|(_, member)| member.terms.waits())
    }

    /// Those without whom the pipe does not open: all but guests.
    fn resident(&self) -> impl Iterator<Item = (UnitName, &Member<Part>)> {
        self.roll.iter().filter(|(place, _)| !self.is_guest(*place))
    }

    /// The sides of the pipe, as far as they are awaited.
    fn sides(&self) -> impl Iterator<Item = Side> {
        [Side::Writer].into_iter().chain((0..self.readers).map(Side::Reader))
    }

    /// A unit of a program, the lowest that is there.
    fn first_of(&self, side: Side) -> Option<(UnitName, &Member<Part>)> {
        self.roll.range(places(side)).next()
    }

    fn units_of(&self, side: Side) -> Option<u32> {
        self.first_of(side).map(|(_, member)| member.terms.hello.units)
    }

    fn hello(&mut self, conn: ConnId, pid: u32, hello: Hello, mut fds: Vec<F>, actions: &mut Vec<Action>) {
        if hello.rejoin.is_some() {
            return self.rejoin(conn, pid, hello, fds, actions);
        }
        if self.is_open() && matches!(hello.role, Role::Reader { .. }) {
            return self.guest_hello(conn, pid, hello, actions);
        }
        let segment = fds.pop();
        match self.admit(&hello, segment.is_some()) {
            Err(why) => self.refuse(conn, why, actions),
            Ok(place) => {
                match place.side {
                    Side::Writer => {
                        segment.into_iter().for_each(|segment| {
                            self.segments.entry(place.unit).or_insert(segment);
                        });
                    }
                    Side::Reader(program) => match self.programs.get_mut(program as usize) {
                        // The first of its program, in a place that another program left.
                        Some(named) if self.phase == Phase::Gathering => named.clone_from(&hello.program),
                        Some(_) => {}
                        None => self.programs.push(hello.program.clone()),
                    },
                }
                let start_time = hello.start_time;
                actions.extend(self.enter(place, conn, pid, hello).map(Action::Drop));
                match self.phase {
                    Phase::Gathering => {
                        let writers_wait = self.roll.get(FIRST).is_some_and(|first| first.terms.waits());
                        if conn != OWN {
                            actions.push(Action::Send(conn, FromHost::Noted { writers_wait }));
                        }
                        self.build_if_complete(actions)
                    }
                    _ => {
                        actions.push(Action::Join(conn, place, pid, start_time));
                        actions.extend(self.welcome_to(place, true));
                    }
                }
            }
        }
    }

    /// Gives a unit its place; returns the connection of who had it.
    fn enter(&mut self, place: UnitName, conn: ConnId, pid: u32, hello: Hello) -> Option<ConnId> {
        let terms = Part { hello, ready: false, given_up: false };
        self.roll.enter(place, Member { conn, pid, terms }).map(|before| before.conn)
    }

    /// The arrays, if a side has said what they are.
    fn arrays(&self) -> Option<Cow<'_, [Array]>> {
        if let Some(w) = &self.welcome {
            return Some(Cow::Borrowed(&w.arrays));
        }
        let layout = match &self.roll.get(FIRST)?.terms.hello.role {
            Role::Writer { gives: Gives::Arrays(arrays), .. } => return Some(Cow::Borrowed(arrays)),
            Role::Writer { gives: Gives::Bytes { layout }, .. } => layout,
            Role::Reader { .. } => return None,
        };
        self.roll.iter().find_map(|(_, member)| match &member.terms.hello.role {
            Role::Reader { takes: Takes::One(wish) } => {
                let (shape, elem, layout) = (wish.shape.clone()?, wish.elem.clone()?, layout.clone());
                Some(Cow::Owned(vec![Array { name: String::new(), shape, elem, layout, open: None }]))
            }
            _ => None,
        })
    }

    fn build_if_complete(&mut self, actions: &mut Vec<Action>) {
        let units: Option<Vec<u32>> = self.sides().map(|side| self.units_of(side)).collect();
        let Some(units) = units else { return };
        if self.resident().count() as u64 != units.iter().map(|&u| u64::from(u)).sum::<u64>() {
            return;
        }
        let built = self.arrays().ok_or(Refusal::Terms(Mismatch::NoDataset)).and_then(|arrays| {
            for (place, Member { terms: Part { hello, .. }, .. }) in self.resident() {
                if place.unit == 0 {
                    (self.check_terms)(&hello.role, &arrays, hello.units).map_err(|e| named(e, place))?;
                }
            }
            Ok(arrays.into_owned())
        });
        let arrays = match built {
            Ok(arrays) => arrays,
            Err(why) => return actions.extend(self.abandon(why)),
        };
        let firsts = self.resident().filter(|(place, _)| place.unit == 0);
        let mut hellos = firsts.map(|(_, first)| &first.terms.hello);
        let Some(first) = hellos.next() else { return };
        let Role::Writer { depth, policy, .. } = first.role else { return };
        let readers: Vec<&Hello> = hellos.collect();
        let welcome = Welcome {
            id: self.id,
            program: 0,
            writers: units[0],
            readers: units[1..].to_vec(),
            depth,
            policy,
            arrays,
            writers_wait: first.on_loss == OnLoss::Wait,
            readers_wait: readers.iter().map(|hello| hello.on_loss == OnLoss::Wait).collect(),
            reader_programs: self.programs.clone(),
            reader_takes: readers.iter().filter_map(|hello| hello.role.takes().cloned()).collect(),
        };
        actions.push(Action::Build(welcome.clone()));
        self.welcome = Some(welcome);
        self.phase = Phase::Readying;
        // From here on readers map slots, so that who takes a writer's place goes on with that one's.
        let joined = |(place, m): (UnitName, &Member<Part>)| {
            Action::Join(m.conn, place, m.pid, m.terms.hello.start_time)
        };
        actions.extend(self.resident().map(joined));
        actions.extend(self.resident().filter_map(|(place, _)| self.welcome_to(place, false)));
        self.ready(OWN, actions);
    }

    /// `replaces`: it takes the place of a unit that was welcomed before.
    fn welcome_to(&self, place: UnitName, replaces: bool) -> Option<Action> {
        let to = Some(self.roll.get(place)?.conn).filter(|&c| c != OWN)?;
        let mut welcome = self.welcome.clone()?;
        let segment;
        (welcome.program, segment) = match place.side {
            Side::Writer => (0, replaces.then_some(place.unit)),
            Side::Reader(program) => (program, None),
        };
        Some(Action::Welcome { to, welcome, segment })
    }

    fn ready(&mut self, conn: ConnId, actions: &mut Vec<Action>) {
        let Some(member) = self.roll.by_conn_mut(conn) else { return };
        member.terms.ready = true;
        if self.phase != Phase::Readying {
            actions.push(Action::Send(conn, FromHost::Go));
        } else if self.all_are_ready() {
            self.phase = Phase::Running;
            if !self.takes_more() {
                // Nobody comes any more that could need them.
                self.segments.clear();
            }
            let conns = self.resident().map(|(_, member)| member.conn).filter(|&conn| conn != OWN);
            actions.extend(conns.map(|conn| Action::Send(conn, FromHost::Go)));
            actions.push(Action::Go);
            self.seat_all(actions);
        }
    }

    fn all_are_ready(&self) -> bool {
        let units = |w: &Welcome| u64::from(w.writers) + w.readers.iter().map(|&n| u64::from(n)).sum::<u64>();
        self.welcome.as_ref().is_some_and(|w| self.resident().count() as u64 == units(w))
            && self.resident().all(|(_, member)| member.terms.ready)
    }
}
