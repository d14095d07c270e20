//! Endpoints with real sessions on a simulated network.

use super::{Net, Random};
use crate::engine::{Config, Event, Incoming, PathId, Session, SessionId, Transmit};
use crate::error::LinkError;
use crate::types::Priority;
use crate::wire::{Frame, Piece};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Buffers of one node: counts those that are out.
#[derive(Clone, Debug)]
pub struct Pool {
    limit: usize,
    out: Rc<Cell<usize>>,
}

/// A buffer; goes back to its pool when dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    out: Rc<Cell<usize>>,
}

impl Buffer {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "buffer of {} bytes", self.bytes.len())
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        self.bytes == other.bytes
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.out.set(self.out.get() - 1);
    }
}

impl Pool {
    /// A pool of at most so many buffers.
    pub fn new(limit: usize) -> Pool {
        Pool { limit, out: Rc::default() }
    }

    /// Buffers that are out.
    pub fn out(&self) -> usize {
        self.out.get()
    }

    /// A buffer for a message, if there is one.
    pub fn give(&self, ask: &Incoming) -> Option<Buffer> {
        if self.out.get() >= self.limit {
            return None;
        }
        self.out.set(self.out.get() + 1);
        // Where the length is not known yet, guess some more.
        let len = ask.len.unwrap_or(ask.at_least * 2 + 1000);
        Some(Buffer { bytes: vec![0xee; len as usize], out: self.out.clone() })
    }
}

/// What the outside hears of.
#[derive(Debug)]
pub enum Happening {
    /// Something happened in the session of `at` with `from`.
    Event {
        /// Whose session.
        at: usize,
        /// With whom.
        from: usize,
        /// What.
        event: Event<Buffer>,
    },
    /// A time asked for by [`World::alarm`] has come.
    Alarm(u64),
    /// A frame was refused.
    Bad(LinkError),
    /// Something that must never be.
    Violation(String),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// A frame comes to the next of its links; with none left it has come through.
    Link {
        links: Vec<usize>,
        hop: usize,
        carried: Carried,
    },
    /// A frame comes to its receiver.
    Frame(Carried),
    Timer {
        at: usize,
        from: usize,
    },
    Alarm(u64),
}

/// A frame under way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Carried {
    from: usize,
    to: usize,
    path: u8,
    generation: u32,
    bytes: Vec<u8>,
}

struct End {
    session: Session<Buffer>,
    /// When the earliest timer in the heap fires.
    timer: Duration,
}

/// The simulation. Nodes are numbered from 0; sessions exist between pairs for which
/// [`connect`](World::connect) was called.
pub struct World {
    /// Virtual time.
    pub now: Duration,
    /// The network.
    pub net: Net,
    /// Buffers of each node.
    pub pools: Vec<Pool>,
    random: Random,
    ends: Vec<Option<End>>,
    nodes: usize,
    lives: u64,
    /// For each session: frames sent before a cut of a path that loses nothing do not arrive after it.
    generations: Vec<u32>,
    heap: BinaryHeap<Reverse<(Duration, u64, Item)>>,
    sequence: u64,
    happened: VecDeque<Happening>,
    trace: u64,
    transmit: Transmit,
    /// Frames that were sent.
    pub frames: u64,
    /// Timers that fired.
    pub timers: u64,
}

impl World {
    /// Nodes without sessions.
    pub fn new(net: Net, pools: Vec<Pool>, random: Random) -> World {
        let nodes = pools.len();
        World {
            now: Duration::ZERO,
            net,
            pools,
            random,
            ends: (0..nodes * nodes).map(|_| None).collect(),
            nodes,
            lives: 0,
            generations: vec![0; nodes * nodes],
            heap: BinaryHeap::new(),
            sequence: 0,
            happened: VecDeque::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            transmit: Transmit::new(),
            frames: 0,
            timers: 0,
        }
    }

    /// A hash of everything that happened (FNV-1a).
    pub fn trace(&self) -> u64 {
        self.trace
    }

    fn note(&mut self, what: u64) {
        for byte in what.to_le_bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Gives two nodes new sessions with each other, as after a handshake; what they had before is gone.
    pub fn connect(&mut self, a: usize, b: usize, config: &Config, paths: &[(u8, usize)]) {
        self.lives += 1;
        let (mine, yours) = (2 * self.lives, 2 * self.lives + 1);
        for (at, from, id) in
            [(a, b, SessionId::between(mine, yours)), (b, a, SessionId::between(yours, mine))]
        {
            let mut session = Session::new(config.clone(), from as u32, id, self.now);
            for &(path, max_frame) in paths {
                if let Err(error) = session.handle_path_up(self.now, PathId(path), max_frame) {
                    self.happened.push_back(Happening::Violation(format!("path {path}: {error}")));
                }
            }
            self.ends[at * self.nodes + from] = Some(End { session, timer: Duration::MAX });
        }
        self.pump(a, b);
        self.pump(b, a);
    }

    /// A node dies without a word: all its sessions and buffers are gone.
    pub fn crash(&mut self, node: usize) {
        self.note(0xdead + node as u64);
        for other in 0..self.nodes {
            self.ends[node * self.nodes + other] = None;
        }
    }

    /// Paths that lose nothing are cut between two nodes: what is under way is lost, and both sides know.
    pub fn cut(&mut self, a: usize, b: usize, path: u8) {
        for (at, from) in [(a, b), (b, a)] {
            self.generations[at * self.nodes + from] += 1;
            if let Some(end) = &mut self.ends[at * self.nodes + from] {
                end.session.handle_path_down(self.now, PathId(path));
            }
        }
        self.pump(a, b);
        self.pump(b, a);
    }

    /// A cut path is up again.
    pub fn mend(&mut self, a: usize, b: usize, path: u8, max_frame: usize) {
        for (at, from) in [(a, b), (b, a)] {
            if let Some(end) = &mut self.ends[at * self.nodes + from] {
                if end.session.handle_path_up(self.now, PathId(path), max_frame).is_err() {
                    self.happened.push_back(Happening::Violation("a path did not come up again".into()));
                }
            }
        }
        self.pump(a, b);
        self.pump(b, a);
    }

    /// Does something with the session of `at` with `from`, if there is one, and sends what comes of it.
    pub fn with<T>(
        &mut self,
        at: usize,
        from: usize,
        act: impl FnOnce(&mut Session<Buffer>, Duration) -> T,
    ) -> Option<T> {
        let now = self.now;
        let end = self.ends[at * self.nodes + from].as_mut()?;
        let result = act(&mut end.session, now);
        self.pump(at, from);
        Some(result)
    }

    /// Looks at the session of `at` with `from`.
    pub fn session(&self, at: usize, from: usize) -> Option<&Session<Buffer>> {
        self.ends[at * self.nodes + from].as_ref().map(|end| &end.session)
    }

    /// Asks for an [`Happening::Alarm`] after a while.
    pub fn alarm(&mut self, after: Duration, tag: u64) {
        self.push(self.now + after, Item::Alarm(tag));
    }

    fn push(&mut self, at: Duration, item: Item) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, item)));
    }

    /// The next thing that happens; `None` when nothing will before `until`, which then is the time.
    pub fn next(&mut self, until: Duration) -> Option<Happening> {
        loop {
            if let Some(happening) = self.happened.pop_front() {
                return Some(happening);
            }
            match self.heap.peek() {
                Some(Reverse((at, ..))) if *at <= until => {}
                _ => {
                    self.now = self.now.max(until);
                    return None;
                }
            }
            let Reverse((at, _, item)) = self.heap.pop()?;
            self.now = self.now.max(at);
            match item {
                Item::Alarm(tag) => return Some(Happening::Alarm(tag)),
                Item::Timer { at, from } => {
                    let now = self.now;
                    if let Some(end) = &mut self.ends[at * self.nodes + from] {
                        if end.timer <= now {
                            end.timer = Duration::MAX;
                            self.timers += 1;
                            // Waking up for nothing is a defect as well: on a real host it would burn a core.
                            if self.timers > 1000 + 20 * self.frames {
                                let text = format!("{at} wakes for nothing: {:?}", end.session);
                                return Some(Happening::Violation(text));
                            }
                            end.session.handle_time(now);
                            self.pump(at, from);
                        }
                    }
                }
                Item::Link { links, hop, carried } => self.cross(links, hop, carried),
                Item::Frame(carried) => self.arrive(&carried),
            }
        }
    }

    fn cross(&mut self, links: Vec<usize>, hop: usize, carried: Carried) {
        if let Some(&link) = links.get(hop) {
            if let Some(out) = self.net.cross(self.now, link, carried.bytes.len()) {
                self.push(out, Item::Link { links, hop: hop + 1, carried });
            }
            return;
        }
        let Carried { from, to, path, generation, bytes } = carried;
        for (at, bytes) in
            self.net.harm(self.now, (from, to), path, bytes, &mut self.random).into_iter().flatten()
        {
            self.push(at, Item::Frame(Carried { from, to, path, generation, bytes }));
        }
    }

    fn arrive(&mut self, carried: &Carried) {
        let &Carried { from, to, path, generation, ref bytes } = carried;
        self.note(self.now.as_nanos() as u64);
        self.note((to << 32 | bytes.len()) as u64);
        self.note(crc32c::crc32c(bytes).into());
        let now = self.now;
        let pool = &self.pools[to];
        let Some(end) = &mut self.ends[to * self.nodes + from] else { return };
        if end.session.config().lossless && generation != self.generations[to * self.nodes + from] {
            return;
        }
        let result = end.session.handle_frame(now, PathId(path), bytes, &mut |ask| pool.give(ask));
        if let Err(error) = result {
            self.happened.push_back(Happening::Bad(error));
        }
        self.pump(to, from);
    }

    /// Takes out of a session what there is.
    fn pump(&mut self, at: usize, from: usize) {
        let index = at * self.nodes + from;
        let Some(mut end) = self.ends[index].take() else { return };
        let mut transmit = std::mem::take(&mut self.transmit);
        let mut busy = None;
        for path in 0..end.session.config().paths.min(4) as u8 {
            loop {
                // What is chosen late is chosen well: a frame is made only when the link is free.
                let free = self.net.free_at(at, from, path);
                if free > self.now {
                    busy = Some(busy.map_or(free, |b: Duration| b.min(free)));
                    break;
                }
                if !end.session.poll_transmit(self.now, PathId(path), &mut transmit) {
                    break;
                }
                let mut frame = Vec::new();
                transmit.write_to(&mut frame);
                if frame.len() != transmit.len_bytes() {
                    self.happened.push_back(Happening::Violation("a frame of another length".into()));
                }
                self.check_priority(&mut end.session, path, &frame);
                self.frames += 1;
                let links = self.net.links(at, from, path, &mut self.random);
                let generation = self.generations[index];
                self.cross(links, 0, Carried { from: at, to: from, path, generation, bytes: frame });
            }
        }
        self.transmit = transmit;
        while let Some(event) = end.session.poll_event() {
            self.happened.push_back(Happening::Event { at, from, event });
        }
        let deadline = [end.session.next_deadline(), busy].into_iter().flatten().min();
        if let Some(deadline) = deadline {
            // What is due already waits for the link.
            let soon = busy.unwrap_or(self.now + Duration::from_nanos(100));
            let deadline = if deadline <= self.now { soon } else { deadline };
            if deadline < end.timer {
                end.timer = deadline;
                self.push(deadline, Item::Timer { at, from });
            }
        }
        self.ends[index] = Some(end);
    }

    /// Low priority goes into a frame only when no fragment of high priority is left.
    fn check_priority(&mut self, session: &mut Session<Buffer>, path: u8, frame: &[u8]) {
        let Ok(frame) = Frame::parse(frame) else {
            self.happened.push_back(Happening::Violation("a frame that does not parse".into()));
            return;
        };
        let mut low = false;
        for piece in frame.pieces() {
            if let Piece::Fragment(f) = piece {
                match f.name.stream.priority() {
                    Priority::Low => low = true,
                    Priority::High if low => {
                        self.happened.push_back(Happening::Violation("high priority behind low".into()));
                    }
                    Priority::High => {}
                }
            }
        }
        if low && session.has_ready(PathId(path), Priority::High) {
            self.happened.push_back(Happening::Violation("low priority while high waits".into()));
        }
    }
}
