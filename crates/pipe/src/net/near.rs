//! Lanes within a host: a reader unit maps a writer unit's slots, in the place of having their bytes sent.
//!
//! A writer unit listens at a Unix socket, too, whose name follows from the job's key, the pipe and where the
//! unit listens for everybody: a reader that finds it is on the same host. Each proves to the other that it
//! knows the key, as on every lane, and that it is a process of the same user is vouched for by the system.
//! The reader is handed the slots, and then told of each step that lies in them; when a slot may be read and
//! when it is filled again, the step protocol says as ever. That the connection stands tells that the other
//! unit lives.

use super::address::PipeAddress;
use super::frames::check_step;
use super::job::{Serves, Stock};
use super::store::Store;
use super::wire::{NearAsk, NearTell, Proof};
use super::Trust;
use polyduct_message::handshake::{Incoming, PIPE};
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::{Connections, Heard, Shared, CROWDED};
use polyduct_message::LinkError;
use polyduct_os::{
    clock,
    poll::PollItem,
    process::user_id,
    segment::{Access, Segment},
    socket::{Conn, Listener, Sent, DESCRIPTOR_LIMIT},
    OsError,
};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Bytes that no message of a lane exceeds.
const LONGEST: usize = 256;

/// What two units of a host have in common before they meet.
struct Secrets {
    name: Vec<u8>,
    reader: Proof,
    writer: Proof,
}

impl Secrets {
    /// Those of the writer unit `unit` that listens at `at`.
    fn new(place: &PipeAddress, trust: &Trust, unit: u32, at: SocketAddr) -> Secrets {
        let ip = match at.ip().is_unspecified() {
            true => String::new(),
            false => at.ip().to_canonical().to_string(),
        };
        let says = |what: &str| {
            let (unit, port) = (unit.to_le_bytes(), at.port().to_le_bytes());
            trust.key.mac(&[what.as_bytes(), place.name.as_bytes(), &unit, ip.as_bytes(), &port])
        };
        let told: String = says("slots")[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("polyduct/{}/slots/{told}", user_id()).into_bytes();
        Secrets { name, reader: says("reader of slots"), writer: says("writer of slots") }
    }
}

/// Where readers of this host come to a writer unit.
pub struct Door {
    connections: Connections,
    reader: Proof,
    writer: Proof,
}

/// A reader unit that asks for the slots.
pub struct Arrival {
    conn: Conn,
    proof: Proof,
    /// Its program and its number there.
    pub of: (u32, u32),
    /// The first step that it needs, where the queue drops none.
    pub from: u64,
}

impl Door {
    /// The door of the writer unit `unit`, which listens at `at` for everybody.
    ///
    /// # Errors
    /// The system's.
    pub fn new(place: &PipeAddress, trust: &Trust, unit: u32, at: SocketAddr) -> Result<Door, OsError> {
        let Secrets { name, reader, writer } = Secrets::new(place, trust, unit, at);
        Ok(Door { connections: Connections::new(Listener::bind(&name)?, PIPE), reader, writer })
    }

    /// Adds what to wait for.
    pub fn items<'a>(&'a self, items: &mut Vec<PollItem<'a>>) {
        self.connections.items(items);
    }

    /// Those that have come and know the key. All others are dropped.
    pub fn serve(&mut self) -> Vec<Arrival> {
        let (mut came, connections) = (Vec::new(), &mut self.connections);
        // A unit that finds no descriptor free here asks for another lane.
        let accept = |connections: &mut Connections| connections.accept(|_| NearTell::Step(0));
        let mut waiting = connections.all().into_iter();
        while let Some(id) = waiting.next().or_else(|| accept(connections)) {
            match connections.hear::<NearAsk>(id) {
                Heard::Nothing => {}
                Heard::Message(NearAsk::Lane { proof, program, unit, from }, _) if proof == self.reader => {
                    let of = (program, unit);
                    came.extend(connections.take(id).map(|conn| Arrival {
                        conn,
                        proof: self.writer,
                        of,
                        from,
                    }));
                }
                Heard::Message(..) | Heard::Gone | Heard::Bad(_) => connections.drop(id),
            }
        }
        came
    }
}

/// A writer unit's end: hands out the slots, and says which steps lie in them.
pub struct Job {
    of: (u32, u32),
    conn: Conn,
    proof: Proof,
    slots: VecDeque<Shared>,
    /// Slots that have gone.
    gone: u32,
    /// Too many descriptors were on their way: when to try again.
    again: Option<Duration>,
    next: u64,
    /// Where the reader says so: the one that it waits for.
    wanted: Option<u64>,
    is_stuck: bool,
}

impl Job {
    /// For who came.
    pub fn new(came: Arrival, store: &Store) -> Job {
        let Arrival { conn, proof, of, from } = came;
        let (slots, gone, again, wanted) = (store.descriptors().iter().cloned().collect(), 0, None, None);
        // There is something to send as soon as its thread looks.
        Job { of, conn, proof, slots, gone, again, next: from, wanted, is_stuck: true }
    }

    /// Sends, unless there is no room now.
    fn say(&mut self, message: &NearTell, fds: &[BorrowedFd<'_>]) -> Result<bool, LinkFault> {
        self.is_stuck = false;
        match PIPE.encode(message)?.send(&self.conn, fds) {
            Ok(Sent::Done) => return Ok(true),
            Ok(Sent::WouldBlock) => self.is_stuck = true,
            Err(OsError::TooManyInFlight { .. }) => self.again = Some(clock::now() + CROWDED),
            Err(e) => return Err(e.into()),
        }
        Ok(false)
    }

    /// Hands out the slots; returns whether all have gone.
    fn hand_out(&mut self) -> Result<bool, LinkFault> {
        self.again = None;
        while !self.slots.is_empty() {
            let some: Vec<Shared> = self.slots.iter().take(DESCRIPTOR_LIMIT).cloned().collect();
            let fds: Vec<_> = some.iter().map(|slot| slot.as_fd()).collect();
            if !self.say(&NearTell::Slots { proof: self.proof, before: self.gone }, &fds)? {
                return Ok(false);
            }
            self.slots.drain(..some.len());
            self.gone += some.len() as u32;
        }
        Ok(true)
    }

    /// What the reader has asked for, where it says which steps it wants. It says nothing else.
    fn hear(&mut self, wants: bool) -> Result<(), LinkFault> {
        match PIPE.receive::<NearAsk>(&self.conn, &mut [0; LONGEST]) {
            Incoming::Nothing => Ok(()),
            Incoming::Message(NearAsk::Want(step), _) if wants => {
                self.wanted = Some(step);
                Ok(())
            }
            Incoming::Closed => Err(LinkError::Closed.into()),
            Incoming::Message(..) | Incoming::Bad(_) => {
                Err(LinkError::OutOfTurn { what: "a reader that was handed the slots" }.into())
            }
        }
    }
}

impl Serves for Job {
    fn of(&self) -> (u32, u32) {
        self.of
    }

    fn item(&self) -> PollItem<'_> {
        match self.again {
            Some(_) => PollItem::hangup(&self.conn),
            None if self.is_stuck => PollItem::writable(&self.conn),
            None => PollItem::readable(&self.conn),
        }
    }

    fn is_stuck(&self) -> bool {
        self.is_stuck || self.again.is_some()
    }

    fn deadline(&self) -> Option<Duration> {
        self.again
    }

    fn serve(&mut self, ready: bool, stock: &Stock<'_>) -> Result<bool, LinkFault> {
        if !self.hand_out()? {
            return Ok(false);
        }
        loop {
            if self.wanted.is_none() && (ready || stock.wants) {
                self.hear(stock.wants)?;
            }
            match (stock.wants, self.wanted) {
                (false, _) if stock.store.has(self.next) => {}
                (true, Some(step)) if stock.store.has(step) => self.next = step,
                // One that replaces another fills it anew.
                _ => return Ok(false),
            }
            if !self.say(&NearTell::Step(self.next), &[])? {
                return Ok(false);
            }
            (self.next, self.wanted) = (self.next + 1, None);
        }
    }

    fn end(self: Box<Self>, _: &Store) {}
}

/// A reader unit's end: a writer unit's slots, and which step lies there.
pub struct Mapping {
    conn: Conn,
    writer: Proof,
    depth: usize,
    len: usize,
    /// The first of them, of arrays whose size does not change.
    fixed: usize,
    slots: Vec<Segment<()>>,
}

impl Mapping {
    /// Asks for the slots, `depth` of `len` bytes each, of the writer unit `unit` that listens at `at`, if
    /// that is on this host.
    pub fn ask(
        (place, trust): (&PipeAddress, &Trust),
        (unit, at): (u32, SocketAddr),
        (program, me, from): (u32, u32, u64),
        (depth, len, fixed): (u32, usize, usize),
    ) -> Option<Mapping> {
        // One that listens everywhere does not know under which address it is seen.
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port());
        let (Secrets { reader, writer, .. }, conn) = [at, everywhere].into_iter().find_map(|at| {
            let secrets = Secrets::new(place, trust, unit, at);
            let conn = Conn::connect(&secrets.name).ok().filter(|conn| conn.stranger() == Ok(None))?;
            Some((secrets, conn))
        })?;
        let asks = NearAsk::Lane { proof: reader, program, unit: me, from };
        let asked = PIPE.encode(&asks).and_then(|message| message.send(&conn, &[]));
        let slots = Vec::with_capacity(depth as usize);
        let depth = depth as usize;
        matches!(asked, Ok(Sent::Done)).then(|| Mapping { conn, writer, depth, len, fixed, slots })
    }

    /// What to wait for.
    pub fn item(&self) -> PollItem<'_> {
        PollItem::readable(&self.conn)
    }

    /// The connection, to wait for.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.conn.as_fd()
    }

    /// Whether all slots have come.
    ///
    /// # Errors
    /// The writer hands out something else, or hangs up.
    pub fn is_open(&mut self) -> Result<bool, LinkFault> {
        while self.slots.len() < self.depth {
            match self.hear()? {
                None => return Ok(false),
                Some((NearTell::Slots { proof, before }, fds))
                    if proof == self.writer && before as usize == self.slots.len() && !fds.is_empty() =>
                {
                    for fd in fds.into_iter().take(self.depth - self.slots.len()) {
                        let len = self.len.max(1);
                        let slot = Segment::from_fd_partly(fd, len, len, self.fixed, Access::ReadOnly)?;
                        slot.prefault(0..self.fixed.max(1))?;
                        self.slots.push(slot.into_parts().0);
                    }
                }
                Some(_) => return Err(LinkError::OutOfTurn { what: "slots that were not asked for" }.into()),
            }
        }
        Ok(true)
    }

    /// Asks for a step, where the queue may drop some.
    ///
    /// # Errors
    /// The writer is gone, or takes nothing.
    pub fn want(&self, step: u64) -> Result<(), LinkFault> {
        match PIPE.encode(&NearAsk::Want(step))?.send(&self.conn, &[])? {
            Sent::Done => Ok(()),
            Sent::WouldBlock => Err(LinkError::OutOfTurn { what: "a writer that hears nothing" }.into()),
        }
    }

    /// The slot, once the writer has said that this step lies there.
    ///
    /// # Errors
    /// It says something else, or hangs up.
    pub fn slot(&mut self, step: u64, slot: u32) -> Result<Option<&[u8]>, LinkFault> {
        match self.hear()? {
            None => return Ok(None),
            Some((NearTell::Step(found), _)) => check_step(found, step)?,
            Some(_) => return Err(LinkError::OutOfTurn { what: "slots that were not asked for" }.into()),
        }
        let slot = self.slots.get(slot as usize).and_then(|slot| slot.slice(0..self.len).ok());
        slot.map(Some).ok_or(LinkError::OutOfTurn { what: "a slot that there is not" }.into())
    }

    fn hear(&mut self) -> Result<Option<(NearTell, Vec<std::os::fd::OwnedFd>)>, LinkFault> {
        match PIPE.receive(&self.conn, &mut [0; LONGEST]) {
            Incoming::Message(said, fds) => Ok(Some((said, fds))),
            Incoming::Nothing => Ok(None),
            Incoming::Closed => Err(LinkError::Closed.into()),
            Incoming::Bad(_) => Err(LinkError::OutOfTurn { what: "no message of a lane" }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::JobKey;
    use super::*;
    use polyduct_copy::Kernels;

    const AT: ([u8; 4], u16) = ([127, 0, 0, 1], 7);

    fn place(name: &str) -> PipeAddress {
        PipeAddress::new("h", 7, format!("{name}-{}", std::process::id()))
    }

    fn trust(key: u8) -> Trust {
        Trust { key: JobKey::from_bytes([key; 32]).unwrap(), trusted_network: false }
    }

    /// A writer unit with these slots and a reader unit that expects others, once it has asked.
    fn lane(name: &str, store: &Store, depth: u32, len: usize) -> (Job, Mapping) {
        let (place, trust) = (place(name), trust(1));
        let mut door = Door::new(&place, &trust, 0, AT.into()).unwrap();
        let mapping = Mapping::ask((&place, &trust), (0, AT.into()), (0, 3, 0), (depth, len, len)).unwrap();
        let [came] = door.serve().try_into().ok().unwrap();
        assert_eq!((came.of, came.from), ((0, 3), 0));
        (Job::new(came, store), mapping)
    }

    fn stock(store: &Store, wants: bool) -> Stock<'_> {
        Stock { store, len: 5000, wants, kernels: Kernels::detect() }
    }

    fn put(store: &Store, slot: u32, step: u64) {
        let mut memory = store.take(slot, Duration::ZERO).unwrap();
        memory.slice_mut(0..5000).unwrap().fill(step as u8 + 1);
        store.put(slot, Some(step), memory);
    }

    #[test]
    fn slots_come_whole_whatever_their_number_and_steps_are_told_in_order() {
        for depth in [1, 8, 9, 64] {
            let store = Store::new(depth, 5000, 5000).unwrap();
            let (mut job, mut mapping) = lane("whole", &store, depth, 5000);
            assert!(!mapping.is_open().unwrap());
            assert!(!job.serve(false, &stock(&store, false)).unwrap());
            assert!(mapping.is_open().unwrap());
            assert!(mapping.slot(0, 0).unwrap().is_none(), "nothing is there yet");
            for step in 0..u64::from(depth) {
                put(&store, step as u32, step);
            }
            assert!(!job.serve(false, &stock(&store, false)).unwrap());
            for step in 0..u64::from(depth) {
                let slot = mapping.slot(step, step as u32).unwrap().unwrap();
                assert!(slot.iter().all(|&byte| byte == step as u8 + 1), "{step}");
            }
        }
    }

    #[test]
    fn where_steps_may_be_dropped_the_one_that_is_wanted_is_told() {
        let store = Store::new(2, 5000, 5000).unwrap();
        let (mut job, mut mapping) = lane("wanted", &store, 2, 5000);
        put(&store, 1, 5);
        assert!(!job.serve(false, &stock(&store, true)).unwrap());
        assert!(mapping.is_open().unwrap());
        assert!(mapping.slot(5, 1).unwrap().is_none());
        mapping.want(5).unwrap();
        assert!(!job.serve(true, &stock(&store, true)).unwrap());
        assert!(mapping.slot(5, 1).unwrap().is_some());
        mapping.want(7).unwrap();
        // A unit that replaces another has yet to fill again what readers ask for.
        assert!(!job.serve(true, &stock(&store, true)).unwrap());
        assert!(mapping.slot(7, 0).unwrap().is_none());
        put(&store, 0, 7);
        assert!(!job.serve(false, &stock(&store, true)).unwrap());
        assert!(mapping.slot(7, 0).unwrap().is_some());
    }

    #[test]
    fn what_is_no_slot_is_refused() {
        let store = Store::new(2, 5000, 5000).unwrap();
        let (mut job, mut mapping) = lane("length", &store, 2, 9000);
        assert!(!job.serve(false, &stock(&store, false)).unwrap());
        assert!(mapping.is_open().is_err(), "slots of another length");
        let (mut job, mut mapping) = lane("few", &store, 3, 5000);
        assert!(!job.serve(false, &stock(&store, false)).unwrap());
        drop(job);
        assert!(matches!(mapping.is_open(), Err(LinkFault::Peer(LinkError::Closed))), "too few");
    }

    #[test]
    fn who_does_not_know_the_key_finds_no_door_and_is_handed_nothing() {
        let (place, mine) = (place("key"), trust(1));
        let mut door = Door::new(&place, &mine, 0, AT.into()).unwrap();
        assert!(Mapping::ask((&place, &trust(2)), (0, AT.into()), (0, 0, 0), (1, 9, 9)).is_none());
        // Names can be seen: whoever comes there proves what cannot.
        let conn = Conn::connect(&Secrets::new(&place, &mine, 0, AT.into()).name).unwrap();
        let asks = NearAsk::Lane { proof: [0; 32], program: 0, unit: 0, from: 0 };
        assert_eq!(PIPE.encode(&asks).unwrap().send(&conn, &[]), Ok(Sent::Done));
        assert!(door.serve().is_empty());
        assert!(matches!(PIPE.receive::<NearTell>(&conn, &mut [0; LONGEST]), Incoming::Closed));
        // Nor are slots taken of who does not.
        let store = Store::new(1, 9, 9).unwrap();
        let mut mapping = Mapping::ask((&place, &mine), (0, AT.into()), (0, 0, 0), (1, 9, 9)).unwrap();
        let [came] = door.serve().try_into().ok().unwrap();
        let mut job = Job { proof: [0; 32], ..Job::new(came, &store) };
        assert!(!job.serve(false, &stock(&store, false)).unwrap());
        assert!(mapping.is_open().is_err());
    }
}
