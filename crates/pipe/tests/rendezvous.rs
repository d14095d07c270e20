//! The rendezvous without sockets: any events in any order, and what must hold after each.
//!
//! The driver is the one of the pipe in small: it delivers events, carries out the actions, and tells of
//! every connection that it closes.

use polyduct_pipe::rendezvous::{Action, ConnId, Rendezvous};
use polyduct_pipe::wire::{Array, FromHost, Gives, Hello, Role, Takes, ToHost, Welcome, Wish};
use polyduct_pipe::{Mismatch, OnLoss, Policy, Refusal, Side, UnitName};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

const HOST: UnitName = UnitName { side: Side::Writer, unit: 0 };
/// Conn id that unit 0 has to itself.
const SELF: ConnId = 0;

#[derive(Clone, Debug)]
enum Event {
    Hello {
        conn: ConnId,
        hello: Hello,
        fds: usize,
    },
    /// A hello that fits the pipe, from the next unit in turn.
    Good {
        conn: ConnId,
        turn: usize,
    },
    Rejoin {
        conn: ConnId,
        turn: usize,
        welcome: Welcome,
        fds: usize,
    },
    Segments(ConnId, Vec<u32>),
    Slots(ConnId, Vec<u32>, usize),
    Ready(ConnId),
    GiveUp(ConnId),
    Hangup(ConnId, bool),
    Revived,
    Deadline,
    Abandon,
}

/// The sizes of the pipe that a run opens.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    writers: u32,
    programs: u32,
    units: u32,
    on_loss: OnLoss,
}

impl Sizes {
    fn hello(&self, program: u32, unit: u32) -> Hello {
        let role = match program {
            0 => Role::Writer {
                gives: gives(),
                depth: 2,
                policy: if self.is_open() { Policy::Latest } else { Policy::Block },
                readers: self.programs,
            },
            _ => Role::Reader { takes: takes() },
        };
        Hello {
            program: format!("p{program}"),
            unit,
            units: if program == 0 { self.writers } else { self.units },
            pid: 1,
            space: 1,
            start_time: 1,
            on_loss: self.on_loss,
            role,
            rejoin: None,
        }
    }

    /// Program and unit of every unit but the writers' unit 0, in turn.
    fn turn(&self, turn: usize) -> (u32, u32) {
        let turn = turn as u32 % (self.writers - 1 + self.programs_that_come() * self.units);
        match turn.checked_sub(self.writers - 1) {
            None => (0, turn + 1),
            Some(rest) => (1 + rest / self.units, rest % self.units),
        }
    }

    /// Where any may come, two do.
    fn programs_that_come(&self) -> u32 {
        if self.is_open() {
            2
        } else {
            self.programs
        }
    }

    fn is_open(&self) -> bool {
        self.programs == 0
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            id: ID,
            program: 0,
            writers: self.writers,
            readers: vec![self.units; self.programs as usize],
            depth: 2,
            policy: if self.is_open() { Policy::Latest } else { Policy::Block },
            arrays: vec![array()],
            writers_wait: self.on_loss == OnLoss::Wait,
            readers_wait: vec![self.on_loss == OnLoss::Wait; self.programs as usize],
            reader_programs: (1..=self.programs).map(|p| format!("p{p}")).collect(),
            reader_takes: vec![takes(); self.programs as usize],
        }
    }
}

/// What the pipes of these tests have in the place of a random number.
const ID: [u8; 16] = [7; 16];

fn array() -> Array {
    Array { name: String::new(), shape: vec![8], elem: "u8".into(), layout: "block".into(), open: None }
}

fn gives() -> Gives {
    Gives::Arrays(vec![array()])
}

fn takes() -> Takes {
    Takes::One(Wish::layout("block"))
}

fn check_terms(role: &Role, arrays: &[Array], _: u32) -> Result<(), Refusal> {
    let layout = match role {
        Role::Writer { .. } => arrays.first().map(|array| &array.layout),
        Role::Reader { takes } => takes.wishes().next().map(|wish| &wish.layout),
    };
    match layout {
        Some(layout) if layout == "block" => Ok(()),
        _ => Err(Refusal::Terms(Mismatch::Layout { unit: HOST, error: "not a layout".into() })),
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (1u32..4, 0u32..3, 1u32..3, any::<bool>()).prop_map(|(writers, programs, units, wait)| Sizes {
        writers,
        programs,
        units,
        on_loss: if wait { OnLoss::Wait } else { OnLoss::Raise },
    })
}

fn any_hello() -> impl Strategy<Value = Hello> {
    let number = || prop_oneof![6 => 0u32..4, 1 => Just(4096), 1 => Just(u32::MAX)];
    let layout = || any::<bool>().prop_map(|bad| if bad { "bad" } else { "block" });
    let gives = (any::<bool>(), layout()).prop_map(|(late, layout)| match late {
        true => Gives::Bytes { layout: layout.into() },
        false => Gives::Arrays(vec![Array { layout: layout.into(), ..array() }]),
    });
    let wish = (any::<bool>(), any::<bool>(), layout()).prop_map(|(other, convert, layout)| Wish {
        shape: other.then(|| vec![9]),
        convert,
        ..Wish::layout(layout)
    });
    let role = prop_oneof![
        (gives, number()).prop_map(|(gives, readers)| Role::Writer {
            gives,
            depth: 2,
            policy: Policy::Block,
            readers,
        }),
        (any::<bool>(), wish).prop_map(|(named, wish)| Role::Reader {
            takes: if named { Takes::Named(vec![("*".into(), wish)]) } else { Takes::One(wish) },
        }),
    ];
    let names = (0u32..5, number(), number(), any::<bool>());
    (names, role).prop_map(|((program, unit, units, wait), role)| Hello {
        program: format!("p{program}"),
        unit,
        units,
        pid: 1,
        space: 1,
        start_time: 1,
        on_loss: if wait { OnLoss::Wait } else { OnLoss::Raise },
        role,
        rejoin: None,
    })
}

fn event(sizes: Sizes) -> impl Strategy<Value = Event> {
    let conn = || 1u64..14;
    let welcome = (0u32..3, 0u32..5, any::<bool>()).prop_map(move |(program, other, far)| {
        let mut w = sizes.welcome();
        w.program = if far { u32::MAX } else { program };
        match other {
            0 => w.readers.push(1),
            1 => w.readers.iter_mut().for_each(|n| *n = u32::MAX),
            _ => {}
        }
        w
    });
    prop_oneof![
        3 => (conn(), any_hello(), 0usize..3).prop_map(|(conn, hello, fds)| Event::Hello { conn, hello, fds }),
        12 => (conn(), 0usize..12).prop_map(|(conn, turn)| Event::Good { conn, turn }),
        4 => (conn(), 0usize..12, welcome, 0usize..3)
            .prop_map(|(conn, turn, welcome, fds)| Event::Rejoin { conn, turn, welcome, fds }),
        1 => (conn(), prop::collection::vec(0u32..5, 0..100)).prop_map(|(conn, units)| Event::Segments(conn, units)),
        1 => (conn(), prop::collection::vec(0u32..5, 0..5), 0usize..5)
            .prop_map(|(conn, units, fds)| Event::Slots(conn, units, fds)),
        8 => conn().prop_map(Event::Ready),
        1 => conn().prop_map(Event::GiveUp),
        2 => (conn(), any::<bool>()).prop_map(|(conn, closed)| Event::Hangup(conn, closed)),
        1 => Just(Event::Revived),
    ]
}

fn events() -> impl Strategy<Value = (Sizes, Vec<Event>)> {
    sizes().prop_flat_map(|sizes| {
        let end =
            prop_oneof![3 => Just(None), 1 => Just(Some(Event::Deadline)), 1 => Just(Some(Event::Abandon))];
        let some = prop::collection::vec(event(sizes), 0..80);
        let after = prop::collection::vec(event(sizes), 0..12);
        (some, end, after).prop_map(move |(mut events, end, after)| {
            if let Some(end) = end {
                events.push(end);
                events.extend(after);
            }
            (sizes, events)
        })
    })
}

/// What the driver knows of one run.
struct Driver {
    rendezvous: Rendezvous<u32>,
    sizes: Sizes,
    open: HashSet<ConnId>,
    /// Connections that were told why they may not join, or why the pipe ended.
    refused: HashSet<ConnId>,
    places: HashMap<UnitName, ConnId>,
    /// Members that have said that they are ready since they were welcomed.
    ready: HashSet<ConnId>,
    closed: bool,
    /// Units whose programs do not wait for replacements, by their hellos.
    raises: HashSet<UnitName>,
    on_loss: HashMap<ConnId, OnLoss>,
    built: Option<Welcome>,
    /// Units of the guests that have a place.
    seats: HashMap<u32, u32>,
    gone: bool,
    over: bool,
}

impl Driver {
    fn new(sizes: Sizes) -> Driver {
        let (rendezvous, first) = Rendezvous::new(ID, sizes.hello(0, 0), 1, Some(0), check_terms);
        let mut driver = Driver {
            rendezvous,
            sizes,
            open: [SELF].into(),
            refused: HashSet::new(),
            places: HashMap::new(),
            ready: [SELF].into(),
            closed: false,
            raises: HashSet::new(),
            on_loss: [(SELF, sizes.on_loss)].into(),
            built: None,
            seats: HashMap::new(),
            gone: false,
            over: false,
        };
        driver.carry_out(first);
        driver
    }

    fn deliver(&mut self, event: &Event) {
        self.closed = false;
        let actions = match event.clone() {
            Event::Hello { conn, hello, fds } => self.message(conn, ToHost::Hello(hello), fds),
            Event::Good { conn, turn } => {
                let (program, unit) = self.sizes.turn(turn);
                let fds = usize::from(program == 0);
                self.message(conn, ToHost::Hello(self.sizes.hello(program, unit)), fds)
            }
            Event::Rejoin { conn, turn, mut welcome, fds } => {
                let (program, unit) = self.sizes.turn(turn);
                if program > 0 && welcome.program < 3 {
                    welcome.program = program - 1;
                }
                let hello = Hello { rejoin: Some(welcome), ..self.sizes.hello(program, unit) };
                self.message(conn, ToHost::Hello(hello), fds)
            }
            Event::Segments(conn, units) => self.message(conn, ToHost::Segments(units), 0),
            Event::Slots(conn, units, fds) => self.message(conn, ToHost::Slots(units), fds),
            Event::Ready(conn) => {
                if self.places.values().any(|&c| c == conn) {
                    self.ready.insert(conn);
                }
                self.message(conn, ToHost::Ready, 0)
            }
            Event::GiveUp(conn) => self.message(conn, ToHost::GiveUp, 0),
            Event::Hangup(conn, closed) => {
                self.closed = closed;
                return self.hang_up(conn);
            }
            Event::Revived => self.rendezvous.revived(),
            Event::Deadline => self.rendezvous.deadline(1000),
            Event::Abandon => {
                self.rendezvous.abandon(Refusal::System { unit: HOST, error: "no memory".into() })
            }
        };
        assert!(actions.len() <= 200, "{} actions for {event:?}", actions.len());
        self.carry_out(actions);
    }

    fn message(&mut self, conn: ConnId, message: ToHost, fds: usize) -> Vec<Action> {
        // A connection that was told no is read no more: the driver ends when the pipe is over.
        if self.refused.contains(&conn) && !self.open.contains(&conn) {
            self.refused.remove(&conn);
        }
        self.open.insert(conn);
        if let (ToHost::Hello(hello), false) = (&message, self.rendezvous.is_member(conn)) {
            self.on_loss.insert(conn, hello.on_loss);
        }
        let before = self.over;
        let actions = self.rendezvous.handle(conn, 7, message, vec![9; fds]);
        if before {
            let refusal = |a: &Action| matches!(a, Action::Send(c, FromHost::Refused(_)) | Action::Drop(c) if *c == conn);
            assert!(actions.iter().all(refusal), "after its end: {actions:?}");
        }
        actions
    }

    fn hang_up(&mut self, conn: ConnId) {
        if !self.open.remove(&conn) {
            return;
        }
        self.ready.remove(&conn);
        self.refused.remove(&conn);
        self.places.retain(|_, c| *c != conn);
        let actions = self.rendezvous.hangup(conn, self.closed);
        assert!(!self.rendezvous.is_member(conn));
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(conn, FromHost::Refused(why)) => {
                    assert!(self.open.contains(&conn), "a refusal to nobody");
                    let first = self.refused.insert(conn);
                    assert!(first || self.over, "{conn} is refused twice, now because {why}");
                    let _ = why.to_string();
                }
                Action::Send(conn, FromHost::Go) => {
                    assert!(self.open.contains(&conn) && self.places.values().any(|&c| c == conn));
                    assert!(!self.over);
                }
                Action::Send(conn, FromHost::Noted { .. }) => {
                    assert!(self.open.contains(&conn) && self.built.is_none(), "{conn} is noted too late");
                }
                Action::Send(_, other) => panic!("{other:?} is not for Send"),
                Action::Welcome { to, welcome, .. } => {
                    assert!(self.open.contains(&to) && !self.refused.contains(&to));
                    assert!(
                        self.built.is_some()
                            && (welcome.program as usize)
                                < welcome.readers.len().max(8 * usize::from(self.sizes.is_open()))
                    );
                    self.ready.remove(&to);
                }
                Action::Segment(to, unit) => {
                    assert!(self.open.contains(&to) && self.rendezvous.segment(unit).is_some());
                }
                Action::Drop(conn) => {
                    assert!(self.refused.contains(&conn), "{conn} is dropped without a word");
                    self.closed = false;
                    self.hang_up(conn);
                }
                Action::Build(welcome) | Action::Revive(welcome) => {
                    assert!(self.places.is_empty() && welcome.writers == self.sizes.writers);
                    assert_eq!(welcome.readers.len() as u32, self.sizes.programs);
                    assert!(self.built.replace(welcome).is_none(), "built twice");
                    self.ready = [SELF].into();
                }
                Action::Join(conn, unit, ..) => {
                    assert!(self.built.is_some() && self.open.contains(&conn));
                    let welcome = self.built.as_ref().unwrap();
                    let units = match unit.side {
                        Side::Writer => welcome.writers,
                        Side::Reader(p) if self.sizes.is_open() => self.seats[&p],
                        Side::Reader(p) => welcome.readers[p as usize],
                    };
                    assert!(unit.unit < units, "{unit} is of no program of {units} units");
                    match self.on_loss[&conn] {
                        OnLoss::Raise => self.raises.insert(unit),
                        OnLoss::Wait => self.raises.remove(&unit),
                    };
                    let there = self.places.insert(unit, conn);
                    assert!(there.is_none(), "{unit} is there twice: {there:?} and {conn}");
                    if self.rendezvous.is_reviving() {
                        self.ready.insert(conn);
                    }
                }
                Action::Go => {
                    assert!(self.built.is_some() && !self.gone && !self.over);
                    let writer = |unit: &UnitName| unit.side == Side::Writer;
                    let waiting = self.places.iter().find(|(u, c)| writer(u) && !self.ready.contains(c));
                    assert!(waiting.is_none(), "off without {waiting:?}");
                    self.gone = true;
                }
                Action::Fail(_) => {
                    self.over = true;
                }
                Action::Seat(place, units) => {
                    assert!(self.gone && self.sizes.is_open() && place < 8);
                    assert!(self.seats.insert(place, units).is_none(), "place {place} is taken");
                }
                Action::Enter(place) => {
                    let side = Side::Reader(place);
                    let its: Vec<_> = self.places.iter().filter(|(unit, _)| unit.side == side).collect();
                    assert_eq!(its.len() as u32, self.seats[&place], "not all of program {place} are there");
                    assert!(its.iter().all(|(_, conn)| self.ready.contains(conn)));
                }
                Action::Vacate(place) => {
                    assert!(self.seats.remove(&place).is_some(), "place {place} was free");
                    let left = self.places.keys().find(|unit| unit.side == Side::Reader(place));
                    assert!(left.is_none(), "{left:?} is still there");
                }
                Action::Lost(unit, _) => {
                    assert!(self.built.is_some() && !self.over);
                    assert!(self.raises.contains(&unit), "{unit} is waited for");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]
    #[test]
    fn any_events_in_any_order((sizes, events) in events()) {
        let mut driver = Driver::new(sizes);
        for event in &events {
            driver.deliver(event);
        }
    }

    #[test]
    fn units_that_come_in_any_order_all_go(sizes in sizes(), seed in any::<u64>()) {
        let n = (sizes.writers - 1 + sizes.programs_that_come() * sizes.units) as usize;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(seed | 1));
        let mut driver = Driver::new(sizes);
        for &turn in &order {
            driver.deliver(&Event::Good { conn: turn as u64 + 1, turn });
        }
        let alone = sizes.is_open() && sizes.writers == 1;
        prop_assert!(driver.built.is_some() && driver.rendezvous.is_running() == alone);
        if sizes.is_open() {
            // Readers are welcomed when the writers run.
            order.sort_by_key(|&turn| turn + 1 < sizes.writers as usize);
        }
        for (i, &turn) in order.iter().rev().enumerate() {
            prop_assert!(!driver.gone || sizes.is_open(), "off after {i} of {n}");
            driver.deliver(&Event::Ready(turn as u64 + 1));
        }
        prop_assert!(driver.gone && driver.rendezvous.is_running());
        prop_assert_eq!(driver.places.len(), n + 1);
    }
}

const PAIR: Sizes = Sizes { writers: 2, programs: 1, units: 2, on_loss: OnLoss::Wait };

#[test]
fn a_unit_that_breaks_the_order_frees_its_place() {
    let mut driver = Driver::new(PAIR);
    driver.deliver(&Event::Good { conn: 1, turn: 0 });
    // A second hello: refused, and whoever comes then may have the place.
    driver.deliver(&Event::Good { conn: 1, turn: 0 });
    assert!(!driver.open.contains(&1));
    for turn in 0..3 {
        driver.deliver(&Event::Good { conn: 10 + turn as u64, turn });
    }
    assert!(driver.built.is_some());
}

#[test]
fn a_unit_that_dies_before_all_have_come_ends_the_pipe_unless_its_program_waits() {
    for on_loss in [OnLoss::Raise, OnLoss::Wait] {
        let mut driver = Driver::new(Sizes { on_loss, ..PAIR });
        driver.deliver(&Event::Good { conn: 1, turn: 0 });
        driver.deliver(&Event::Good { conn: 2, turn: 1 });
        driver.deliver(&Event::Hangup(1, false));
        assert_eq!(driver.over, on_loss == OnLoss::Raise);
        // A unit that waited is told, and so is one that comes late.
        driver.deliver(&Event::Good { conn: 3, turn: 2 });
        assert_eq!(driver.refused.contains(&2), driver.over);
        assert_eq!(driver.open.contains(&3), !driver.over);
    }
}

#[test]
fn a_program_that_left_again_does_not_count() {
    let sizes = Sizes { writers: 2, programs: 2, units: 1, on_loss: OnLoss::Raise };
    let mut driver = Driver::new(sizes);
    let named = |conn, name: &str| {
        let hello = Hello { program: name.into(), ..sizes.hello(1, 0) };
        Event::Hello { conn, hello, fds: 0 }
    };
    driver.deliver(&named(1, "first try"));
    driver.deliver(&named(2, "other"));
    driver.deliver(&Event::GiveUp(1));
    driver.deliver(&Event::Hangup(1, false));
    driver.deliver(&named(3, "second try"));
    assert!(driver.open.contains(&3) && driver.built.is_none());
    driver.deliver(&Event::Good { conn: 4, turn: 0 });
    assert!(driver.built.is_some(), "the name of the program that left still counts");
}

#[test]
fn survivors_have_their_places_before_replacements() {
    for early in [true, false] {
        let mut driver = Driver::new(PAIR);
        let rejoin = |conn, turn, fds| Event::Rejoin { conn, turn, welcome: PAIR.welcome(), fds };
        // Reader unit 1 was lost together with unit 0: its replacement comes before, or among, the survivors.
        let replacement = Event::Good { conn: 1, turn: 2 };
        if early {
            driver.deliver(&replacement);
        }
        driver.deliver(&rejoin(2, 0, 2));
        if !early {
            driver.deliver(&replacement);
        }
        assert!(!driver.places.values().any(|&c| c == 1), "a place is given away while survivors come back");
        driver.deliver(&rejoin(3, 1, 2));
        // Nobody can take the place of one who is back.
        driver.deliver(&rejoin(4, 1, 2));
        assert!(!driver.open.contains(&4));
        driver.deliver(&Event::Revived);
        let lost = UnitName { side: Side::Reader(0), unit: 1 };
        assert_eq!(driver.places.get(&lost), Some(&1));
    }
}

/// What unit 0 of a pipe answers to these hellos, and what it says at the deadline.
fn answers(sizes: Sizes, hellos: Vec<Hello>) -> (Vec<Refusal>, String) {
    let (mut rendezvous, _) = Rendezvous::new(ID, sizes.hello(0, 0), 1, Some(0), check_terms);
    let mut refused = Vec::new();
    for (conn, hello) in (1..).zip(hellos) {
        let actions = rendezvous.handle(conn, 2, ToHost::Hello(hello), vec![]);
        assert!(!actions.iter().any(|a| matches!(a, Action::Welcome { .. })));
        refused.extend(actions.into_iter().filter_map(|a| match a {
            Action::Send(_, FromHost::Refused(why)) => Some(why),
            _ => None,
        }));
    }
    match rendezvous.deadline(50).pop() {
        Some(Action::Fail(why)) => (refused, why.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_unit_that_is_awaited_in_vain_was_turned_away_for_a_reason_that_is_told() {
    let sizes = Sizes { writers: 1, programs: 1, units: 1, on_loss: OnLoss::Raise };
    let hello = |takes| Hello { role: Role::Reader { takes }, ..sizes.hello(1, 0) };
    let (refused, end) = answers(sizes, vec![hello(Takes::Ask)]);
    assert!(matches!(refused[..], [Refusal::Terms(Mismatch::Described { .. })]), "{refused:?}");
    assert!(!end.contains("turned away"), "{end}");
    let (refused, end) = answers(sizes, vec![hello(Takes::One(Wish::layout("bad")))]);
    let unit = UnitName { side: Side::Reader(0), unit: 0 };
    assert_eq!(refused, [Refusal::Terms(Mismatch::Layout { unit, error: "not a layout".into() })]);
    assert_eq!(
        end,
        "reader program 1 of 1 did not come within 50 ms; turned away was one because reader unit 0: not a layout"
    );
}

#[test]
fn a_sole_reader_that_does_not_fit_ends_the_opening() {
    let sizes = Sizes { writers: 1, programs: 1, units: 2, on_loss: OnLoss::Raise };
    let hello = |unit, takes| Hello { role: Role::Reader { takes }, ..sizes.hello(1, unit) };
    let bad = || Takes::One(Wish::layout("bad"));
    for (first, second) in [(sizes.hello(1, 0), hello(1, bad())), (hello(0, bad()), sizes.hello(1, 1))] {
        let (rendezvous, _) = Rendezvous::new(ID, sizes.hello(0, 0), 1, Some(0), check_terms);
        let mut rendezvous = rendezvous.with_a_sole_reader(true);
        let asks = rendezvous.handle(3, 2, ToHost::Hello(hello(0, Takes::Ask)), vec![]);
        assert!(!asks.iter().any(|a| matches!(a, Action::Fail(_))), "who only asks ends nothing: {asks:?}");
        let mut told = rendezvous.handle(1, 2, ToHost::Hello(first), vec![]);
        told.extend(rendezvous.handle(2, 2, ToHost::Hello(second), vec![]));
        let failed = told.iter().filter(|a| matches!(a, Action::Fail(_)));
        assert_eq!(failed.count(), 1, "{told:?}");
        for unit in [1, 2] {
            let refused = |a: &&Action| matches!(a, Action::Send(to, FromHost::Refused(_)) if *to == unit);
            assert_eq!(told.iter().filter(refused).count(), 1, "{told:?}");
        }
    }
}

#[test]
fn programs_taken_for_one_are_told_to_name_themselves() {
    let sizes = Sizes { writers: 2, programs: 2, units: 1, on_loss: OnLoss::Raise };
    let other = Hello { units: 3, unit: 1, ..sizes.hello(1, 0) };
    let hellos = vec![sizes.hello(1, 0), sizes.hello(1, 0), other];
    let (refused, _) = answers(sizes, hellos);
    assert_eq!(refused.len(), 2);
    for why in refused {
        assert!(why.to_string().ends_with("open each with its own program name)"), "{why}");
    }
}

/// What a survivor says that it was told is input, too.
#[test]
fn a_survivor_whose_welcome_lacks_layouts_is_refused() {
    let sizes = Sizes { writers: 2, programs: 1, units: 1, on_loss: OnLoss::Wait };
    let (mut r, _) = Rendezvous::new(ID, sizes.hello(0, 0), 1, Some(0), check_terms);
    let mut says = |conn, welcome| {
        let rejoin = Some(welcome);
        r.handle(conn, 9, ToHost::Hello(Hello { rejoin, ..sizes.hello(0, 1) }), vec![1, 2])
    };
    let refused = says(1, Welcome { reader_takes: vec![], ..sizes.welcome() });
    assert_eq!(refused, [Action::Send(1, FromHost::Refused(Refusal::Over)), Action::Drop(1)]);
    says(2, sizes.welcome());
    assert!(r.handle(2, 9, ToHost::Slots(vec![0, 1]), vec![3, 4]).is_empty());
    assert_eq!(r.handle(2, 9, ToHost::Ready, vec![]), [Action::Send(2, FromHost::Go)]);
    // A replacement for a lost program is held against what the survivor was told.
    r.revived();
    let joined = r.handle(3, 9, ToHost::Hello(sizes.hello(1, 0)), vec![]);
    assert!(joined.iter().any(|a| matches!(a, Action::Welcome { to: 3, .. })), "{joined:?}");
}
