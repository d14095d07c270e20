//! A reader unit on the host of a writer unit maps that one's slots, in the place of having their bytes sent.
//!
//! The lane is asked for and stays as between hosts: that it is open tells that the writer lives. What the
//! two know of each other's host is in its first two messages; the descriptors of the slots go over a Unix
//! socket whose name the writer draws for this one reader and says on the lane, on which both have proved
//! that they know the key. When a slot may be read and when it is filled again, the step protocol says as
//! ever.

use super::store::Store;
use polyduct_message::domain::HostId;
use polyduct_message::handshake::{Incoming, PIPE};
use polyduct_message::link::key::random;
use polyduct_message::link::net::Fault;
use polyduct_message::meeting::{Shared, CROWDED};
use polyduct_message::LinkError;
use polyduct_os::{
    clock,
    poll::PollItem,
    process::user_id,
    segment::{Access, Segment},
    socket::{Conn, Listener, Sent, DESCRIPTOR_LIMIT, MESSAGE_LIMIT},
    OsError,
};
use polyduct_port::Options;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Where this process runs, if its units are to share memory with those beside them.
pub fn host_of(options: &Options) -> Option<HostId> {
    options.near.then(|| HostId::of_this_process(0)).flatten()
}

/// What the descriptors of some slots come with: how many were handed over before.
type Before = u32;

/// A writer's slots on their way to one reader unit.
pub struct Handing {
    listener: Listener,
    name: Vec<u8>,
    conn: Option<Conn>,
    slots: Vec<Shared>,
    /// How many have gone.
    gone: usize,
    /// Too many descriptors were on their way beside: when to try again.
    again: Option<Duration>,
}

impl Handing {
    /// Listens for the reader at a name of its own.
    ///
    /// # Errors
    /// The system's.
    pub fn new(store: &Store) -> Result<Handing, OsError> {
        let mut secret = [0; 16];
        random(&mut secret)?;
        let name = format!("polyduct/{}/slots/{:032x}", user_id(), u128::from_le_bytes(secret)).into_bytes();
        let (listener, slots) = (Listener::bind(&name)?, store.descriptors().to_vec());
        Ok(Handing { listener, name, conn: None, slots, gone: 0, again: None })
    }

    /// Where the reader finds them.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What to wait for.
    pub fn item(&self) -> PollItem<'_> {
        match &self.conn {
            Some(conn) if self.again.is_some() => PollItem::hangup(conn),
            Some(conn) => PollItem::writable(conn),
            None => PollItem::readable(&self.listener),
        }
    }

    /// When to go on though nothing happens.
    pub fn deadline(&self) -> Option<Duration> {
        self.again
    }

    /// Goes on; returns whether the reader has all. Where it went, it asks for another lane.
    ///
    /// # Errors
    /// The system's.
    pub fn go_on(&mut self) -> Result<bool, Fault> {
        if self.conn.is_none() {
            let came = self.listener.accept_or(|_, _| {})?;
            // The name is known to who has the lane; what else comes is not answered.
            self.conn = came.filter(|conn| conn.stranger() == Ok(None));
        }
        let Some(conn) = &self.conn else { return Ok(false) };
        self.again = None;
        for slots in self.slots[self.gone..].chunks(DESCRIPTOR_LIMIT) {
            let fds: Vec<_> = slots.iter().map(|slot| slot.as_fd()).collect();
            let before = self.gone as Before;
            match PIPE.encode(&before).and_then(|message| message.send(conn, &fds)) {
                Ok(Sent::Done) => self.gone += slots.len(),
                Ok(Sent::WouldBlock) => return Ok(false),
                Err(OsError::TooManyInFlight { .. }) => {
                    self.again = Some(clock::now() + CROWDED);
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }
}

/// A writer's slots, as they come to a reader unit.
pub struct Coming {
    conn: Conn,
    depth: usize,
    len: usize,
    slots: Vec<Segment<()>>,
}

impl Coming {
    /// Asks for `depth` slots of `len` bytes where the writer says that it hands them out.
    ///
    /// # Errors
    /// The system's; [`LinkError::OutOfTurn`] where another user is there.
    pub fn new(name: &[u8], depth: u32, len: usize) -> Result<Coming, Fault> {
        let conn = Conn::connect(name)?;
        match conn.stranger()? {
            None => Ok(Coming { conn, depth: depth as usize, len, slots: Vec::new() }),
            Some(_) => Err(LinkError::OutOfTurn { what: "slots of another user" }.into()),
        }
    }

    /// What to wait for.
    pub fn item(&self) -> PollItem<'_> {
        PollItem::readable(&self.conn)
    }

    /// Where they come.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.conn.as_fd()
    }

    /// Takes what has come; gives all slots when they have.
    ///
    /// # Errors
    /// The system's; where the writer hands out something else, or hangs up.
    pub fn take(&mut self) -> Result<Option<Vec<Segment<()>>>, Fault> {
        let mut buffer = vec![0; MESSAGE_LIMIT];
        while self.slots.len() < self.depth {
            match PIPE.receive::<Before>(&self.conn, &mut buffer) {
                Incoming::Message(before, fds) if before as usize == self.slots.len() && !fds.is_empty() => {
                    for fd in fds.into_iter().take(self.depth - self.slots.len()) {
                        let len = self.len.max(1);
                        let slot = Segment::from_fd(fd, len, len, Access::ReadOnly)?;
                        slot.prefault(0..len)?;
                        self.slots.push(slot.into_parts().0);
                    }
                }
                Incoming::Nothing => return Ok(None),
                Incoming::Closed => return Err(LinkError::Closed.into()),
                _ => return Err(LinkError::OutOfTurn { what: "slots that were not asked for" }.into()),
            }
        }
        Ok(Some(std::mem::take(&mut self.slots)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_whole_whatever_their_number() {
        for depth in [1, 8, 9, 64] {
            let store = Store::new(depth, 5000).unwrap();
            for slot in 0..depth {
                let mut memory = store.take(slot, Duration::ZERO).unwrap();
                memory.slice_mut(0..5000).unwrap().fill(slot as u8 + 1);
                store.put(slot, Some(slot.into()), memory);
            }
            let mut handing = Handing::new(&store).unwrap();
            let mut coming = Coming::new(handing.name(), depth, 5000).unwrap();
            assert!(coming.take().unwrap().is_none());
            assert!(handing.go_on().unwrap());
            let slots = coming.take().unwrap().unwrap();
            assert_eq!(slots.len(), depth as usize);
            for (n, slot) in slots.iter().enumerate() {
                assert!(slot.slice(0..5000).unwrap().iter().all(|&byte| byte == n as u8 + 1), "{n}");
            }
        }
    }

    #[test]
    fn what_is_no_slot_is_refused() {
        let store = Store::new(2, 5000).unwrap();
        let mut handing = Handing::new(&store).unwrap();
        let mut coming = Coming::new(handing.name(), 2, 9000).unwrap();
        assert!(handing.go_on().unwrap());
        assert!(coming.take().is_err(), "slots of another length");
        let mut handing = Handing::new(&store).unwrap();
        let mut coming = Coming::new(handing.name(), 3, 5000).unwrap();
        assert!(handing.go_on().unwrap());
        drop(handing);
        assert!(matches!(coming.take(), Err(Fault::Peer(LinkError::Closed))), "too few");
    }
}
