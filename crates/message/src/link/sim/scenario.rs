//! A whole run from one seed: who sends what to whom over which network, what goes wrong, and what must hold.

use super::ledger::{payload, Ledger, Stream};
use super::{Buffer, Faults, Happening, LinkSpeed, Net, Pool, Random, Topology, World};
use crate::engine::{Config, Event, Message, Send};
use crate::error::MessageError;
use crate::types::{ChannelId, HandlerId, Head, Order, Priority, Token};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hash of everything that happened.
    pub trace: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Frames sent.
    pub frames: u64,
    /// Timers that fired.
    pub timers: u64,
    /// Refusals that senders heard of.
    pub refusals: u64,
    /// Virtual time that it took, in microseconds.
    pub micros: u64,
}

struct Injection {
    at: usize,
    to: usize,
    life: u32,
    token: Token,
    bytes: Bytes,
    done: usize,
    abandon_at: usize,
}

struct Run {
    world: World,
    random: Random,
    config: Config,
    nodes: usize,
    paths: Vec<(u8, usize)>,
    /// Session life of each pair.
    lives: HashMap<(usize, usize), u32>,
    dead: Vec<bool>,
    ledger: Ledger,
    injections: BTreeMap<u64, Injection>,
    held: Vec<Option<(usize, Message<Buffer>)>>,
    todo: Vec<u32>,
    big: bool,
    tells: bool,
    hold: u64,
    summary: Summary,
}

const SEND: u64 = 1 << 56;
const EXTEND: u64 = 2 << 56;
const RELEASE: u64 = 3 << 56;
const FAULT: u64 = 4 << 56;
const VALUE: u64 = SEND - 1;

/// What goes wrong, besides what happens to single frames.
const CALM: u64 = 0;
const PART: u64 = 1;
const HEAL: u64 = 2;
const CRASH: u64 = 3;
const RESTART: u64 = 4;
const CUT: u64 = 5;
const MEND: u64 = 6;
const PATH_DIES: u64 = 7;
const PATH_LIVES: u64 = 8;

/// Runs the scenario of a seed with the engine's settings changed by `adjust`.
///
/// # Errors
///
/// What did not hold, in words.
pub fn run(seed: u64, adjust: &dyn Fn(&mut Config)) -> Result<Summary, String> {
    let mut run = Run::new(seed, adjust);
    run.go()?;
    run.summary.trace = run.world.trace();
    run.summary.frames = run.world.frames;
    run.summary.timers = run.world.timers;
    run.summary.micros = run.world.now.as_micros() as u64;
    Ok(run.summary)
}

impl Run {
    fn new(seed: u64, adjust: &dyn Fn(&mut Config)) -> Run {
        let mut random = Random::new(seed);
        let nodes = random.pick(&[2, 2, 2, 3, 4]);
        let topology = match random.below(4) {
            0 => Topology::Switch,
            1 => Topology::Ring,
            2 => Topology::Torus { width: 2 },
            _ => Topology::FatTree { radix: 2 },
        };
        let lossless = random.chance(0.2);
        let speed = LinkSpeed {
            bandwidth: random.pick(&[1e6, 1e7, 1e8, 1e9]),
            latency: Duration::from_micros(random.pick(&[5, 50, 500, 5000])),
            queue: if lossless { u64::MAX } else { random.pick(&[20_000, 200_000, 2_000_000]) },
        };
        let mut net = Net::new(topology, nodes, speed);
        if !lossless {
            net.faults = Faults {
                loss: random.pick(&[0.0, 0.01, 0.05, 0.1, 0.3]),
                duplicate: random.pick(&[0.0, 0.05, 0.2]),
                reorder: random.pick(&[0.0, 0.05, 0.3]),
                corrupt: random.pick(&[0.0, 0.0, 0.02, 0.1]),
            };
        }
        let buffers = random.pick(&[1, 1, 2, 4, 1000]) as usize;
        let pools = (0..nodes).map(|_| Pool::new(buffers)).collect();
        let mut config = if lossless { Config::stream() } else { Config::datagram() };
        config.messages_in_flight = random.pick(&[8, 64, 4096]) as u32;
        config.first_fragment = random.pick(&[100, 1000, 4096]) as usize;
        config.waiting = random.pick(&[1, 16, 4096]) as usize;
        config.queue_bytes = random.pick(&[1, 5000, 64 << 20]);
        let ranges = random.pick(&[2, 1024]) as usize;
        config.max_ranges = if lossless { config.max_ranges } else { ranges };
        config.silence = Duration::from_secs(4);
        config.keepalive = random.chance(0.5);
        adjust(&mut config);
        let max_frame = random.pick(&[200, 600, 1400, 1400, 9000, 65_000]) as usize;
        let mut paths = vec![(0, max_frame)];
        if random.chance(0.3) {
            paths.push((1, max_frame.max(300) - 50));
        }
        let world = World::new(net, pools, Random::new(random.next_u64()));
        let big = random.chance(0.04);
        let tells = random.chance(0.7);
        let hold = random.pick(&[0, 100, 3000, 20_000]);
        let todo = vec![0; nodes * nodes];
        Run {
            world,
            random,
            config,
            nodes,
            paths,
            lives: HashMap::new(),
            dead: vec![false; nodes],
            ledger: Ledger::default(),
            injections: BTreeMap::new(),
            held: Vec::new(),
            todo,
            big,
            tells,
            hold,
            summary: Summary::default(),
        }
    }

    fn connect(&mut self, a: usize, b: usize) {
        for pair in [(a, b), (b, a)] {
            *self.lives.entry(pair).or_default() += 1;
        }
        self.world.connect(a, b, &self.config, &self.paths);
    }

    fn go(&mut self) -> Result<(), String> {
        for a in 0..self.nodes {
            for b in a + 1..self.nodes {
                self.connect(a, b);
            }
        }
        for a in 0..self.nodes {
            for b in 0..self.nodes {
                if a != b && (self.random.chance(0.6) || a < b) {
                    self.todo[a * self.nodes + b] = self.random.range(1, 30) as u32;
                    self.world.alarm(Duration::ZERO, SEND | (a * self.nodes + b) as u64);
                }
            }
        }
        self.plan_faults();
        let mut idle_since = None;
        loop {
            let now = self.world.now;
            match self.world.next(now + Duration::from_millis(20)) {
                Some(Happening::Alarm(tag)) => self.alarm(tag)?,
                Some(Happening::Event { at, from, event }) => self.event(at, from, event)?,
                Some(Happening::Bad(error)) => {
                    // Frames that are changed on the way, or of a former life, are refused; nothing else may
                    // be.
                    let life = matches!(error, crate::error::LinkError::Unknown { what: "session", .. });
                    if !life && self.config.lossless {
                        return Err(format!("a good frame was refused: {error}"));
                    }
                }
                Some(Happening::Violation(what)) => return Err(what),
                None => {}
            }
            if self.finished() {
                let since = *idle_since.get_or_insert(self.world.now);
                if self.world.now > since + Duration::from_millis(100) {
                    return self.end();
                }
            } else {
                idle_since = None;
            }
            if self.world.now > Duration::from_secs(60) {
                return Err(self.stuck());
            }
        }
    }

    fn plan_faults(&mut self) {
        let ms = Duration::from_millis;
        // All faults end after this.
        let end = self.random.range(50, 1500);
        self.world.alarm(ms(end), FAULT | CALM);
        let spell = |run: &mut Run, chance: f64, start: u64, stop: u64| {
            if run.random.chance(chance) {
                let from = run.random.below(end.min(100));
                let until = from + run.random.range(1, (end - from).min(1200));
                run.world.alarm(ms(from), FAULT | start);
                run.world.alarm(ms(until), FAULT | stop);
            }
        };
        if self.config.lossless {
            spell(self, 0.3, CUT, MEND);
        } else {
            spell(self, 0.2, PART, HEAL);
            if self.paths.len() > 1 {
                spell(self, 0.3, PATH_DIES, PATH_LIVES);
            }
        }
        spell(self, 0.15, CRASH, RESTART);
    }

    fn alarm(&mut self, tag: u64) -> Result<(), String> {
        let value = tag & VALUE;
        match tag & !VALUE {
            SEND => self.send(value as usize),
            EXTEND => self.extend(value),
            RELEASE => {
                self.release(value as usize);
                Ok(())
            }
            _ => {
                self.fault(value);
                Ok(())
            }
        }
    }

    fn fault(&mut self, what: u64) {
        let crashed = self.nodes - 1;
        match what {
            CALM => self.world.net.faults = Faults::default(),
            PART => self.world.net.partition = 1,
            HEAL => self.world.net.partition = 0,
            PATH_DIES => self.world.net.dead_paths = 1,
            PATH_LIVES => self.world.net.dead_paths = 0,
            CUT => self.world.cut(0, 1, 0),
            MEND => self.world.mend(0, 1, 0, self.paths[0].1),
            CRASH => {
                self.world.crash(crashed);
                self.dead[crashed] = true;
            }
            _ => {
                self.dead[crashed] = false;
                for other in 0..crashed {
                    self.connect(other, crashed);
                }
                for held in &mut self.held {
                    held.take_if(|(at, _)| *at == crashed);
                }
                // They have something to say in their new life as well.
                for (a, b) in [(0, crashed), (crashed, 0)] {
                    if self.todo[a * self.nodes + b] == 0 {
                        self.world.alarm(Duration::ZERO, SEND | (a * self.nodes + b) as u64);
                    }
                    self.todo[a * self.nodes + b] += 3;
                }
            }
        }
    }

    fn send(&mut self, pair: usize) -> Result<(), String> {
        let (at, to) = (pair / self.nodes, pair % self.nodes);
        let again = |run: &mut Run| {
            let pause = run.random.pick(&[0, 0, 0, 20, 500, 5000]);
            run.world.alarm(Duration::from_micros(pause), SEND | pair as u64);
        };
        if self.dead[at] || self.dead[to] {
            self.world.alarm(Duration::from_millis(5), SEND | pair as u64);
            return Ok(());
        }
        let high = self.random.chance(0.25);
        let any = self.random.chance(0.25);
        let channel = self.random.pick(&[0u16, 0, 1, 2, 7]);
        let len = match self.random.below(12) {
            0..=3 => 0,
            4..=7 => self.random.below(200),
            8..=9 => self.random.below(5_000),
            10 => self.random.below(30_000),
            // Some hundreds of frames are as good as thousands.
            _ if self.big => self.random.below((self.paths[0].1 as u64 * 300).min(1 << 21)),
            _ => self.random.below(60_000),
        } as usize;
        let life = self.lives[&(at, to)];
        let stream = (life, at, to, channel, high, any);
        let number = self.ledger.count(&stream);
        let seed = self.random.next_u64() as u32;
        let head = Head { handler: HandlerId(3), args: [life, number as u32, seed, len as u32] };
        let bytes = payload(seed, len);
        let priority = if high { Priority::High } else { Priority::Low };
        let order = if any { Order::Any } else { Order::Ordered };
        let slowly = self.random.chance(0.2);
        let known = self.random.chance(0.5);
        let first = if slowly { self.random.below(len as u64 / 2 + 1) as usize } else { len };
        let message = Send { priority, order, head, payload: bytes.slice(..first) };
        let total = known.then_some(len as u64);
        let result = self.world.with(at, to, |session, now| {
            let channel = ChannelId(channel);
            if slowly {
                session.begin(now, channel, message, total)
            } else {
                session.send(now, channel, message)
            }
        });
        let token = match result {
            Some(Ok(token)) => token,
            Some(Err(MessageError::Full { .. })) => {
                self.world.alarm(Duration::from_millis(1), SEND | pair as u64);
                return Ok(());
            }
            // A partition may outlast the silence; then there is nothing more to say in this life.
            Some(Err(MessageError::PeerLost { .. })) | None => return Ok(()),
            Some(Err(error)) => return Err(format!("send: {error}")),
        };
        let id = self.ledger.note(stream, token, seed, len);
        if slowly {
            let abandon_at = if self.random.chance(0.2) { first + (len - first) / 2 } else { usize::MAX };
            let injection = Injection { at, to, life, token, bytes, done: first, abandon_at };
            self.injections.insert(id, injection);
            self.world.alarm(Duration::from_micros(200), EXTEND | id);
        }
        self.todo[pair] -= 1;
        if self.todo[pair] > 0 {
            again(self);
        }
        Ok(())
    }

    fn extend(&mut self, id: u64) -> Result<(), String> {
        let Some(mut injection) = self.injections.remove(&id) else { return Ok(()) };
        let (at, to, token) = (injection.at, injection.to, injection.token);
        if self.dead[at] || self.lives[&(at, to)] != injection.life {
            return Ok(());
        }
        let left = injection.bytes.len() - injection.done;
        let more = self.random.range(1, (left as u64 / 2).max(1)).min(left as u64) as usize;
        let piece = injection.bytes.slice(injection.done..injection.done + more);
        injection.done += more;
        let over = injection.done == injection.bytes.len();
        let abandon = injection.done >= injection.abandon_at;
        let result = self.world.with(at, to, |session, now| {
            session.extend(token, piece)?;
            match (abandon, over) {
                (true, _) => session.abandon(now, token),
                (_, true) => session.finish(token),
                _ => Ok(()),
            }
        });
        match result {
            None | Some(Err(MessageError::NoMessage { .. })) => return Ok(()),
            Some(Err(error)) => return Err(format!("extend: {error}")),
            Some(Ok(())) => {}
        }
        if abandon {
            self.ledger.abandon((injection.life, at, to), token);
        } else if !over {
            self.injections.insert(id, injection);
            let pause = self.random.pick(&[10, 300, 2000]);
            self.world.alarm(Duration::from_micros(pause), EXTEND | id);
        }
        Ok(())
    }

    fn release(&mut self, which: usize) {
        let Some((at, message)) = self.held[which].take() else { return };
        drop(message);
        if self.tells {
            for other in 0..self.nodes {
                self.world.with(at, other, |session, now| session.retry_refused(now));
            }
        }
    }

    fn event(&mut self, at: usize, from: usize, event: Event<Buffer>) -> Result<(), String> {
        match event {
            Event::Message(message) => {
                let (life, now) = (message.head.args[0], self.lives[&(from, at)]);
                if life != now {
                    return Err(format!("a message of life {life} came in life {now}"));
                }
                self.ledger.came(at, from, &message)?;
                self.summary.delivered += 1;
                if message.payload.is_some() {
                    self.held.push(Some((at, message)));
                    let hold = self.random.below(self.hold + 1);
                    self.world.alarm(Duration::from_micros(hold), RELEASE | (self.held.len() as u64 - 1));
                }
                Ok(())
            }
            Event::Delivered(token) => self.ledger.delivered((self.lives[&(at, from)], at, from), token),
            Event::Refused(_) => {
                self.summary.refusals += 1;
                Ok(())
            }
            Event::Broken(why) => {
                if self.dead.contains(&true) {
                    return Ok(());
                }
                Err(format!("{at} lost {from}, which lives: {why:?}"))
            }
            other => Err(format!("unexpected {other:?}")),
        }
    }

    fn current(&self, stream: &Stream) -> bool {
        self.lives[&(stream.1, stream.2)] == stream.0
            && self.world.session(stream.1, stream.2).is_some_and(|s| s.is_open())
    }

    fn finished(&self) -> bool {
        let over = |pair: usize| {
            self.todo[pair] == 0
                || self.world.session(pair / self.nodes, pair % self.nodes).is_some_and(|s| !s.is_open())
        };
        self.world.now > Duration::from_millis(1)
            && self.injections.is_empty()
            && self.held.iter().all(Option::is_none)
            && (0..self.nodes * self.nodes).all(over)
            && !self.dead.contains(&true)
            && self.ledger.is_settled(|stream| self.current(stream))
            && (0..self.nodes).all(|a| {
                (0..self.nodes).all(|b| self.world.session(a, b).is_none_or(|s| s.is_idle() || !s.is_open()))
            })
    }

    /// What holds when all is done.
    fn end(&self) -> Result<(), String> {
        self.ledger.check_all_came(|stream| self.current(stream))?;
        for (node, pool) in self.world.pools.iter().enumerate() {
            if pool.out() != 0 {
                return Err(format!("{} buffers of node {node} are still out", pool.out()));
            }
        }
        for (a, b) in (0..self.nodes).flat_map(|a| (0..self.nodes).map(move |b| (a, b))) {
            let Some(session) = self.world.session(a, b).filter(|session| session.is_open()) else {
                continue;
            };
            for priority in [Priority::High, Priority::Low] {
                let (sends, bytes) = (session.status(priority).sends, session.bytes_kept(priority));
                if (sends, bytes) != (self.config.queue_per_priority, 0) {
                    return Err(format!(
                        "node {a} has room for {sends} sends to {b}, and keeps {bytes} bytes"
                    ));
                }
            }
        }
        Ok(())
    }

    fn stuck(&self) -> String {
        format!("not finished after a minute:{}", self.ledger.unsettled(|stream| self.current(stream)))
    }
}
