//! What programs are told: completions, errors, counts.

use crate::abi::{self, CqErrEntry, CqTaggedEntry};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

/// An operation that is done.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// What the program gave with the operation.
    pub context: *mut c_void,
    /// What it was, and what it brought.
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Where they lie.
    pub buf: *mut c_void,
    /// The sender's data.
    pub data: u64,
    /// The sender's tag.
    pub tag: u64,
    /// The sender, as the program calls it.
    pub from: u64,
}

/// One that failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// Which.
    pub of: Completion,
    /// Bytes for which there was no room.
    pub lacking: usize,
    /// An error number of libfabric, positive.
    pub error: c_int,
}

/// A completion queue. It takes no more than its size of what comes; the rest waits where it is.
pub struct Queue {
    done: VecDeque<Completion>,
    failed: VecDeque<Failure>,
    size: usize,
    /// Bytes of an entry as the program wants it.
    entry: usize,
}

impl Queue {
    /// An empty queue of so many entries, each of this many bytes.
    pub fn new(size: usize, entry: usize) -> Queue {
        Queue { done: VecDeque::new(), failed: VecDeque::new(), size, entry }
    }

    /// Whether one more may come.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.done.len() < self.size
    }

    /// Whether there is nothing to read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.failed.is_empty()
    }

    /// Adds one.
    #[inline]
    pub fn push(&mut self, done: Completion) {
        self.done.push_back(done);
    }

    /// Adds an error.
    pub fn fail(&mut self, failed: Failure) {
        self.failed.push_back(failed);
    }

    /// Gives out as many as there are, at most `count`, in the program's form; and who sent them. What
    /// failed is told when there is nothing else.
    ///
    /// # Safety
    /// There is room for `count` entries at `to`, and, unless it is null, for as many addresses at `from`.
    #[inline]
    pub unsafe fn read(&mut self, to: *mut c_void, count: usize, from: *mut u64) -> isize {
        if self.done.is_empty() {
            return -(if self.failed.is_empty() { abi::EAGAIN } else { abi::EAVAIL } as isize);
        }
        let count = count.min(self.done.len());
        for (n, done) in self.done.drain(..count).enumerate() {
            let Completion { context, flags, len, buf, data, tag, from: sender } = done;
            let entry = CqTaggedEntry { op_context: context, flags, len, buf, data, tag };
            // SAFETY: the caller's; shorter entries are beginnings of this one.
            unsafe {
                let to = to.cast::<u8>().add(n * self.entry);
                core::ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), to, self.entry);
                if !from.is_null() {
                    from.add(n).write(sender);
                }
            }
        }
        count as isize
    }

    /// Gives out an error.
    ///
    /// # Safety
    /// There is room for an entry at `to`.
    pub unsafe fn read_error(&mut self, to: *mut CqErrEntry) -> isize {
        let Some(Failure { of, lacking, error }) = self.failed.pop_front() else {
            return -(abi::EAGAIN as isize);
        };
        // SAFETY: the caller's. What the program has set its own data's memory to is left alone.
        unsafe {
            (*to).op_context = of.context;
            (*to).flags = of.flags;
            (*to).len = of.len;
            (*to).buf = of.buf;
            (*to).data = of.data;
            (*to).tag = of.tag;
            (*to).olen = lacking;
            (*to).err = error;
            (*to).prov_errno = error;
            (*to).err_data_size = 0;
        }
        1
    }
}

/// How many operations are done, and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Done.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// What was counted since the beginning, whatever the program has set the others to.
    pub events: u64,
}
