//! Messages to memory: put and get, in either kind of region, with a word to the owner when they are done.

use super::far::Put;
use super::lent::Lent;
use super::region::{Copy, Region};
use super::Domain;
use crate::link::shm::Memory;
use crate::types::Address;
use crate::MessageError;

/// What the owner of a region is told when a put or get is done: a message to one of its handlers, without
/// payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    /// The handler's name.
    pub handler: &'a str,
    /// Four words for it.
    pub args: [u32; 4],
}

impl Domain {
    /// A region of `len` bytes of shared memory that the other units can put to and get from, by its number
    /// `id`.
    ///
    /// # Errors
    /// [`MessageError::Region`]: the number is taken; [`MessageError::Limit`]: too many regions; no memory.
    pub fn region(&self, id: u32, len: usize) -> Result<Region, MessageError> {
        self.inner.regions.create(id, len)
    }

    /// Makes memory that this program has anyway (a `Vec<u8>`, for one) a region, by its number `id`, until
    /// the handle is [withdrawn](Lent::withdraw) or dropped. The others put and get by the same calls; for
    /// those of this host the kernel copies, and this unit takes no part.
    ///
    /// The kernel lets every process of the same user that it lets copy at all reach all of this one's
    /// memory, whether it lends something or not: the domain of those others checks the bounds.
    ///
    /// # Errors
    /// As [`region`](Domain::region); the memory is gone then, or with its keeper.
    ///
    /// # Examples
    /// ```
    /// use polyduct_message::domain::{Domain, Options};
    /// let d = Domain::join(Options::new(&format!("doc-lend-{}", std::process::id()), 0, 1))?;
    /// let lent = d.lend(7, vec![0; 4])?;
    /// d.put(0, 7, 1, &[5, 6])?;
    /// assert_eq!(lent.withdraw()?.into_vec().ok(), Some(vec![0, 5, 6, 0]));
    /// # Ok::<(), polyduct_message::MessageError>(())
    /// ```
    pub fn lend(&self, id: u32, memory: impl Into<Memory>) -> Result<Lent, MessageError> {
        Lent::new(&self.inner, id, memory.into())
    }

    /// A unit's region of shared memory, mapped here now if it is the first time: for those who use it in
    /// place.
    ///
    /// # Errors
    /// [`MessageError::Region`]: there is no such region, or it is lent memory or on another host, and has no
    /// place here; loss of the unit.
    pub fn region_of(&self, unit: Address, id: u32) -> Result<Region, MessageError> {
        self.inner.region_of(unit, id)
    }

    /// Bytes of a region of a unit, of either kind. A unit of another host answers when it receives.
    ///
    /// # Errors
    /// [`MessageError::Region`]: there is no such region; loss of the unit.
    pub fn region_len(&self, unit: Address, id: u32) -> Result<usize, MessageError> {
        self.inner.region_len(unit, id)
    }

    /// Writes into a region of a unit: of this host directly, and its processor takes no part; otherwise when
    /// it receives, in packets. What was put is there when this returns.
    ///
    /// # Errors
    /// [`MessageError::Region`]: there is no such region (it may have been withdrawn), or the bytes lie
    /// beyond its end; loss of the unit; [`MessageError::Timeout`] and, in a handler,
    /// [`MessageError::InHandler`] where the unit has to answer. After an error but for bytes beyond its end,
    /// a part of the bytes may have been written.
    pub fn put(&self, to: Address, id: u32, offset: usize, bytes: &[u8]) -> Result<(), MessageError> {
        self.inner.copy(to, id, offset, &mut Copy::Put(bytes))
    }

    /// Reads from a region of a unit, as [`put`](Domain::put) writes. After an error `bytes` hold anything.
    ///
    /// # Errors
    /// As [`put`](Domain::put).
    pub fn get(&self, from: Address, id: u32, offset: usize, bytes: &mut [u8]) -> Result<(), MessageError> {
        self.inner.copy(from, id, offset, &mut Copy::Get(bytes))
    }

    /// Begins a [`put`](Domain::put) and does not wait for its end; `bytes` are the caller's again. Where
    /// memory is reached directly, it is done when this returns. In no order with other messages: wait for it
    /// before you send "done".
    ///
    /// # Errors
    /// As [`put`](Domain::put); [`MessageError::Limit`] when too much is under way. To another host bytes
    /// beyond the region's end are told by [`Put::wait`], and those before it are written.
    pub fn start_put(&self, to: Address, id: u32, offset: usize, bytes: &[u8]) -> Result<Put, MessageError> {
        match self.inner.copy_near(to, id, offset, &mut Copy::Put(bytes))? {
            true => Ok(Put::done(self.inner.clone(), id)),
            false => self.inner.start_put_far(to, id, offset, bytes),
        }
    }

    /// A [`put`](Domain::put), after which the unit gets a message: when its handler runs, the bytes are
    /// there. In order with [`send`](Domain::send) and [`post`](Domain::post). To this unit itself, the
    /// handler has run on return.
    ///
    /// # Errors
    /// As [`put`](Domain::put) and [`post`](Domain::post). Nothing is written where there is no such handler.
    pub fn put_notify(
        &self,
        to: Address,
        id: u32,
        offset: usize,
        bytes: &[u8],
        notice: Notice<'_>,
    ) -> Result<(), MessageError> {
        self.inner.units.peer(to)?;
        self.lookup(notice.handler, to)?;
        self.put(to, id, offset, bytes)?;
        self.post(to, notice.handler, notice.args, &[])
    }

    /// A [`get`](Domain::get), after which the unit gets a message: when its handler runs, the bytes were
    /// read, and may be changed. Otherwise as [`put_notify`](Domain::put_notify).
    ///
    /// # Errors
    /// As [`put_notify`](Domain::put_notify).
    pub fn get_notify(
        &self,
        from: Address,
        id: u32,
        offset: usize,
        bytes: &mut [u8],
        notice: Notice<'_>,
    ) -> Result<(), MessageError> {
        self.inner.units.peer(from)?;
        self.lookup(notice.handler, from)?;
        self.get(from, id, offset, bytes)?;
        self.post(from, notice.handler, notice.args, &[])
    }
}
