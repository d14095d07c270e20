//! The gate of a region in ordinary memory: who copies enters, and the owner that takes its memory back waits
//! until nobody is inside.
//!
//! The kernel would copy to any address of the owner, also when something else lies there by now. A look
//! before and after a copy is too late for a put, so the two sides shake hands: a copier counts itself in,
//! then looks whether the gate is closed; the owner closes it, then looks at the counts. One of the two sees
//! the other. A copier that dies inside leaves its count: the owner asks whether it still lives.
//!
//! It is one line for the owner and one for each user, in memory that all have mapped. It is an agreement
//! among processes of one user, who could write to each other's memory without it: a faulty one can keep the
//! owner waiting, up to its deadline, and can spoil what it could spoil anyway.

use polyduct_os::bell::{ring, Sleeper};
use polyduct_os::sync::{fence, Line, Ordering};

/// Word of the owner's line: not zero once the gate is closed.
const CLOSED: usize = 0;
/// Word of a user's line: its copies under way.
const INSIDE: usize = 0;

/// The lines of a gate, wherever they lie.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The owner's: whether it is closed, and where the owner sleeps.
    pub owner: &'a Line,
    /// One for each user: how often it is inside.
    pub users: &'a [Line],
}

impl<'a> Lines<'a> {
    /// Lets a user in, unless the gate is closed: then it has to [`leave`](Lines::leave) all the same.
    /// `None`: there is no such user.
    pub fn enter(&self, user: u32) -> Option<bool> {
        self.users.get(user as usize)?.w[INSIDE].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Some(self.owner.w[CLOSED].load(Ordering::Acquire) == 0)
    }

    /// Counts a user out, and wakes the owner that waits for it.
    pub fn leave(&self, user: u32) {
        if let Some(line) = self.users.get(user as usize) {
            line.w[INSIDE].fetch_sub(1, Ordering::Release);
            ring(self.owner);
        }
    }

    /// Closes it, for ever.
    pub fn close(&self) {
        self.owner.w[CLOSED].store(1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Users that are inside. After [`close`](Lines::close) nobody comes to be, but to leave at once.
    pub fn inside(self) -> impl Iterator<Item = u32> + 'a {
        let within = |(_, line): &(u32, &Line)| line.w[INSIDE].load(Ordering::Acquire) != 0;
        (0..).zip(self.users).filter(within).map(|(user, _)| user)
    }

    /// The owner, about to sleep until somebody leaves.
    pub fn sleeper(&self) -> Sleeper<'a> {
        Sleeper::at(self.owner)
    }
}
