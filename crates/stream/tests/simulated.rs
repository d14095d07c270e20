//! Seeded simulation: a gateway in virtual time, whose program brings steps and whose lanes move them as chance has it.

use polyduct_rig::Random;
use polyduct_stream::control::{Direction, Spec, State, Ties};
use polyduct_stream::{
    Adu, Capacity, ConnectionId, ControlError, Format, GroupId, Manager, Order, StreamId, WaitsFor,
};
use std::collections::BTreeMap;
use std::time::Duration;

const ALL: Capacity = Capacity { buffer_bytes: 4096, lanes: 4 };

/// What the simulator knows of a stream, by what it was told.
#[derive(Default)]
struct Seen {
    spec: Option<Spec>,
    /// Steps that the program will bring.
    steps: u64,
    offered: u64,
    said_last: bool,
    begun: u64,
    moved: u64,
    holds: bool,
    ended: bool,
    failed: bool,
    /// Steps of others that have begun since this one was first seen pending.
    passed: u64,
}

struct World {
    manager: Manager,
    /// How many each group is to have.
    members: BTreeMap<GroupId, u64>,
    streams: BTreeMap<StreamId, Seen>,
    now: Duration,
    random: Random,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let random = Random::new(seed);
        let (manager, now) = (Manager::new(ALL), Duration::ZERO);
        World { manager, members: BTreeMap::new(), streams: BTreeMap::new(), now, random, seed }
    }

    /// Streams of every kind; what the manager refuses is left out.
    fn register(&mut self, count: u64) {
        let connections: Vec<_> =
            (0..1 + self.random.below(count)).map(|_| self.manager.connect("x").unwrap()).collect();
        let groups: Vec<GroupId> = (0..3)
            .map(|members| {
                let group = self.manager.group(members);
                self.members.insert(group, members.into());
                group
            })
            .collect();
        for _ in 0..count {
            self.register_one(&connections, &groups);
        }
        // Of a group in which too few would ever come somebody would wait for ever.
        for &group in &groups {
            for _ in 0..200 {
                if (1..self.members[&group]).contains(&self.came(group)) {
                    let connection = self.manager.connect("x").unwrap();
                    self.register_one(&[connection], &[group]);
                }
            }
            if (1..self.members[&group]).contains(&self.came(group)) {
                // Permanent streams leave no room for the rest.
                let of = |seen: &Seen| seen.spec.as_ref().unwrap().group == Some(group);
                let (id, seen) = self.streams.iter_mut().find(|(_, seen)| of(seen)).unwrap();
                seen.failed = true;
                self.manager.fail(*id, "cut", self.now).unwrap();
            }
        }
    }

    /// How many of a group have come.
    fn came(&self, group: GroupId) -> u64 {
        self.streams.values().filter(|seen| seen.spec.as_ref().unwrap().group == Some(group)).count() as u64
    }

    fn register_one(&mut self, connections: &[ConnectionId], groups: &[GroupId]) {
        let len = 1 + self.random.below(900);
        let tu = 1 + self.random.below(500);
        let lanes = 1 + self.random.below(3) as u32;
        let format = Format::new(Adu::Fixed(len), tu, 64, lanes).unwrap();
        let mut spec = Spec::new(self.random.one_of(connections), Direction::Transmit, format);
        spec.buffers = 2 + self.random.below(3) as u32;
        spec.quantum = 1 + self.random.below(4) as u32;
        spec.priority = self.random.below(3) as i32;
        spec.permanent = self.random.below(6) == 0;
        spec.group = (self.random.below(3) == 0).then(|| self.random.one_of(groups));
        let there: Vec<_> = self.streams.keys().copied().collect();
        if !there.is_empty() && self.random.below(4) == 0 {
            spec.after = vec![self.random.one_of(&there)];
        }
        match self.manager.register(spec.clone(), self.now) {
            Ok(id) => {
                let steps = self.random.below(12);
                self.streams.insert(id, Seen { spec: Some(spec), steps, ..Seen::default() });
            }
            Err(ControlError::NoRoom { .. } | ControlError::Cycle { .. }) => {}
            Err(other) => panic!("seed {}: {other}", self.seed),
        }
    }

    fn obey(&mut self) {
        while let Some(order) = self.manager.poll() {
            match order {
                Order::SwapIn(id) => {
                    let seen = self.streams.get_mut(&id).unwrap();
                    assert!(!seen.holds, "seed {}", self.seed);
                    seen.holds = true;
                    self.bounded();
                }
                Order::SwapOut(id) => {
                    let seen = self.streams.get_mut(&id).unwrap();
                    let over = seen.failed || self.manager.state(id) == Ok(State::Failed);
                    assert!(seen.holds && (seen.begun == seen.moved || over), "seed {}", self.seed);
                    seen.holds = false;
                }
                Order::Begin { stream, adu, .. } => self.begins(stream, adu),
                Order::Fail(id, why) => {
                    let seen = self.streams.get(&id).unwrap();
                    let group = seen.spec.as_ref().unwrap().group;
                    let of_group = |s: &Seen| s.failed && s.spec.as_ref().unwrap().group == group;
                    let because = self.streams.values().any(of_group) && why.ends_with("has failed: cut");
                    assert!(group.is_some() && because && !seen.ended && !seen.failed, "seed {}", self.seed);
                    self.streams.get_mut(&id).unwrap().failed = true;
                }
                Order::End(id) => {
                    let seen = self.streams.get_mut(&id).unwrap();
                    assert!(seen.moved == seen.steps && !seen.ended, "seed {}: all of it", self.seed);
                    seen.ended = true;
                }
            }
        }
    }

    /// Buffers and lanes of all that hold some are not more than there are.
    fn bounded(&self) {
        let held = self.streams.values().filter(|seen| seen.holds).filter_map(|seen| seen.spec.as_ref());
        let (mut bytes, mut lanes) = (0, 0);
        for spec in held {
            bytes += spec.buffer_bytes();
            lanes += spec.format.lanes();
        }
        assert!(bytes <= ALL.buffer_bytes && lanes <= ALL.lanes, "seed {}", self.seed);
    }

    fn begins(&mut self, id: StreamId, adu: u64) {
        let seed = self.seed;
        let alive = |seen: &Seen| !seen.ended && !seen.failed;
        let spec = self.streams[&id].spec.clone().unwrap();
        for (other, seen) in self.streams.iter().filter(|(other, seen)| **other != id && alive(seen)) {
            let theirs = seen.spec.as_ref().unwrap();
            assert!(
                theirs.connection != spec.connection || *other > id,
                "seed {seed}: order on a connection"
            );
            assert!(!spec.after.contains(other), "seed {seed}: sequence");
            let in_step = spec.group.is_none() || theirs.group != spec.group || seen.moved >= adu;
            assert!(in_step, "seed {seed}: lock step");
        }
        if let Some(group) = spec.group {
            assert!(self.came(group) >= self.members[&group], "seed {seed}: all members first");
        }
        for (other, seen) in &mut self.streams {
            let pending = *other != id && self.manager.state(*other) == Ok(State::Pending);
            seen.passed = if pending { seen.passed + 1 } else { 0 };
            // Quantum 4, 5 streams that hold, patience 8, and those that went before it by right.
            assert!(seen.passed <= 400, "seed {seed}: stream {other} starves");
        }
        let seen = self.streams.get_mut(&id).unwrap();
        assert!(seen.holds && seen.begun == adu, "seed {seed}");
        seen.begun += 1;
    }

    /// Something happens: a step is brought, or has arrived.
    fn turn(&mut self, faults: bool) {
        self.now += Duration::from_micros(self.random.below(50));
        let ids: Vec<_> = self.streams.keys().copied().collect();
        let id = self.random.one_of(&ids);
        let (dice, now) = (self.random.below(100), self.now);
        let seen = self.streams.get_mut(&id).unwrap();
        if seen.ended || seen.failed {
            return;
        }
        let Adu::Fixed(len) = seen.spec.as_ref().unwrap().format.adu() else { unreachable!() };
        match dice {
            0..45 if seen.offered < seen.steps => {
                seen.offered += 1;
                self.manager.offer(id, len, now).unwrap();
            }
            0..45 if !seen.said_last => {
                seen.said_last = true;
                self.manager.no_more(id, now).unwrap();
            }
            45..90 if seen.moved < seen.begun => {
                seen.moved += 1;
                self.manager.moved(id, now).unwrap();
            }
            90..93 => self.manager.pause(id, now).unwrap(),
            93..98 => self.manager.resume(id, now).unwrap(),
            98 => self.manager.set_priority(id, 1, now).unwrap(),
            99 if faults => {
                seen.failed = true;
                self.manager.fail(id, "cut", now).unwrap();
            }
            _ => {}
        }
        self.obey();
    }

    fn is_over(&self) -> bool {
        self.streams.values().all(|seen| seen.ended || seen.failed)
    }
}

fn run(seed: u64, faults: bool) {
    let mut world = World::new(seed);
    world.register(2 + seed % 12);
    world.obey();
    if world.streams.is_empty() {
        return;
    }
    for _ in 0..200_000 {
        if world.is_over() {
            let status = world.manager.status(world.now);
            assert_eq!((status.free_bytes, status.free_lanes), (ALL.buffer_bytes, ALL.lanes), "seed {seed}");
            return;
        }
        world.turn(faults);
    }
    let status = serde_json::to_string(&world.manager.status(world.now)).unwrap();
    panic!("seed {seed}: somebody waits for ever: {status}");
}

#[test]
fn every_stream_moves_in_order_in_step_within_its_bounds_and_ends() {
    for seed in 0..400 {
        run(seed, false);
        run(seed, true);
    }
}

#[test]
fn streams_beside_permanent_ones_are_served() {
    let mut manager = Manager::new(Capacity { buffer_bytes: 400, lanes: 8 });
    let format = Format::new(Adu::Fixed(100), 100, 100, 1).unwrap();
    let now = Duration::ZERO;
    let mut spec = Spec::new(manager.connect("permanent").unwrap(), Direction::Transmit, format);
    spec.permanent = true;
    let permanent = manager.register(spec, now).unwrap();
    let others: Vec<_> = (0..3)
        .map(|_| {
            let connection = manager.connect("other").unwrap();
            manager.register(Spec::new(connection, Direction::Transmit, format), now).unwrap()
        })
        .collect();
    let mut moved = BTreeMap::new();
    for &id in others.iter().chain([&permanent]) {
        (0..200).for_each(|_| manager.offer(id, 100, now).unwrap());
    }
    for _ in 0..400 {
        let mut begun = Vec::new();
        while let Some(order) = manager.poll() {
            if let Order::Begin { stream, .. } = order {
                begun.push(stream);
            }
        }
        for id in begun {
            manager.moved(id, now).unwrap();
            *moved.entry(id).or_insert(0) += 1;
        }
    }
    assert_eq!(moved[&permanent], 200, "it has its own");
    // There is room for one of them at a time: each of them has its turn.
    let moved: Vec<i32> = others.iter().map(|id| moved[id]).collect();
    let (least, most) = (moved.iter().min().unwrap(), moved.iter().max().unwrap());
    assert!(most - least <= 3 && moved.iter().sum::<i32>() >= 400, "{moved:?}");
}

#[test]
fn one_that_waits_says_for_what() {
    let mut manager = Manager::new(ALL);
    let format = Format::new(Adu::Fixed(8), 8, 8, 1).unwrap();
    let (now, c) = (Duration::ZERO, manager.connect("c").unwrap());
    let a = manager.register(Spec::new(c, Direction::Transmit, format), now).unwrap();
    let b = manager.register(Spec::new(c, Direction::Transmit, format), now).unwrap();
    assert_eq!(manager.state(a), Ok(State::Inactive(WaitsFor::Data)));
    assert_eq!(manager.state(b), Ok(State::Inactive(WaitsFor::Stream(a))));
    manager.pause(a, now).unwrap();
    assert_eq!(manager.state(a), Ok(State::Inactive(WaitsFor::Resume)));
    assert_eq!(manager.offer(a, 9, now), Err(ControlError::WrongSize { stream: a, found: 9 }));
    assert_eq!(manager.moved(a, now), Err(ControlError::WrongSize { stream: a, found: 0 }));
    assert!(matches!(manager.disconnect(c), Err(ControlError::InUse { .. })));
    manager.fail(a, "the receiver is gone", now).unwrap();
    manager.no_more(b, now).unwrap();
    assert_eq!((manager.state(a), manager.state(b)), (Ok(State::Failed), Ok(State::Ended)));
    assert_eq!(manager.status(now).streams[0].why.as_deref(), Some("the receiver is gone"));
    assert_eq!(manager.offer(a, 8, now), Err(ControlError::NoStream(a)));
    manager.disconnect(c).unwrap();
    assert!(manager.status(now).streams.is_empty());
}

#[test]
fn names_tie_streams_that_come_from_anywhere() {
    let (mut manager, now) = (Manager::new(ALL), Duration::ZERO);
    let format = Format::new(Adu::Fixed(8), 8, 8, 1).unwrap();
    let name = |name: &str| Some(name.to_owned());
    let enter = |manager: &mut Manager, ties: Ties| {
        let id = manager.enter("tcp://there", Direction::Transmit, &ties, now)?;
        manager.ready(id, format, 2, now).map(|()| id)
    };
    let grouped = |members| Ties { group: name("g"), members, ..Ties::default() };
    let waits = |manager: &Manager, id| match manager.state(id) {
        Ok(State::Inactive(waits)) => waits,
        other => panic!("{other:?}"),
    };
    // A line of a name, and what comes after it.
    let a = enter(&mut manager, Ties { connection: name("c"), ..grouped(Some(2)) }).unwrap();
    let after = enter(&mut manager, Ties { after: name("c"), ..Ties::default() }).unwrap();
    let second = enter(&mut manager, Ties { connection: name("c"), ..Ties::default() }).unwrap();
    assert_eq!((waits(&manager, after), waits(&manager, second)), (WaitsFor::Stream(a), WaitsFor::Stream(a)));
    assert_eq!(waits(&manager, a), WaitsFor::Members(1));
    // Those that would never move are refused, by their names; nothing is left of them.
    let cycle = enter(&mut manager, Ties { after: name("c"), ..grouped(Some(2)) }).unwrap_err().to_string();
    assert!(cycle.contains("(g)") && cycle.contains(&format!("stream {a} (tcp://there)")), "{cycle}");
    let other = enter(&mut manager, grouped(Some(3))).unwrap_err();
    assert_eq!(other, ControlError::Members { group: "g".into(), first: 2, found: 3 });
    assert_eq!(manager.status(now).streams.len(), 3);
    // One that is not ready is there.
    let b = manager.enter("tcp://b", Direction::Receive, &grouped(Some(2)), now).unwrap();
    assert_eq!((waits(&manager, a), waits(&manager, b)), (WaitsFor::Data, WaitsFor::Program));
    // The group has its members: who comes now begins another, and the two fail together.
    let c = enter(&mut manager, grouped(Some(2))).unwrap();
    assert_eq!(waits(&manager, c), WaitsFor::Members(1));
    manager.fail(b, "killed", now).unwrap();
    assert_eq!(
        (manager.state(a), manager.state(c)),
        (Ok(State::Failed), Ok(State::Inactive(WaitsFor::Members(1))))
    );
    let orders: Vec<_> = std::iter::from_fn(|| manager.poll()).collect();
    let why = format!("stream {b} (tcp://b) of its group g has failed: killed");
    assert!(orders.contains(&Order::Fail(a, why)), "{orders:?}");
    let status = manager.status(now);
    let names = |n: usize| (status.streams[n].connection_name.clone(), status.streams[n].group_name.clone());
    assert_eq!((names(0), names(1)), ((name("c"), name("g")), (None, None)));
    assert_eq!((waits(&manager, after), waits(&manager, second)), (WaitsFor::Data, WaitsFor::Data));
}
