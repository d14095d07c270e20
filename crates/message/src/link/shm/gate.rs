//! The gate of a region in ordinary memory: who copies enters, and the owner that takes its memory back waits until
//! nobody is inside.
//!
//! The kernel would copy to any address of the owner, also when something else lies there by now. A look before and after
//! a copy is too late for a put, so the two sides shake hands: a copier counts itself in, then looks whether the gate is
//! closed; the owner closes it, then looks at the counts. One of the two sees the other. A copier that dies inside leaves
//! its count: the owner asks whether it still lives.
//!
//! The segment is one line for the owner and one for each user, in memory that all have mapped. It is an agreement among
//! processes of one user, who could write to each other's memory without it: a faulty one can keep the owner waiting, up
//! to its deadline, and can spoil what it could spoil anyway.

use polyduct_os::bell::{ring, Sleeper};
use polyduct_os::sync::{fence, Line, Ordering};

#[cfg(not(loom))]
pub use shared::{Gate, Inside};

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
    /// Lets a user in, unless the gate is closed: then it has to [`leave`](Lines::leave) all the same. `None`: there is no such user.
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

    /// Who is inside. After [`close`](Lines::close) nobody comes to be, but to leave at once.
    pub fn inside(self) -> impl Iterator<Item = u32> + 'a {
        let within = |(_, line): &(u32, &Line)| line.w[INSIDE].load(Ordering::Acquire) != 0;
        (0..).zip(self.users).filter(within).map(|(user, _)| user)
    }

    /// The owner, about to sleep until somebody leaves.
    pub fn sleeper(&self) -> Sleeper<'a> {
        Sleeper::at(self.owner)
    }
}

#[cfg(not(loom))]
mod shared {
    use super::{Line, Lines};
    use polyduct_os::clock;
    use polyduct_os::segment::{Access, Segment};
    use polyduct_os::Result;
    use std::mem::size_of;
    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::time::Duration;

    /// How often a waiting owner asks whether those inside still live.
    const SLICE: Duration = Duration::from_millis(20);

    /// A gate, its owner's or as a user has mapped it.
    #[derive(Debug)]
    pub struct Gate {
        segment: Segment,
        users: u32,
    }

    /// One who is inside, until dropped.
    #[derive(Debug)]
    pub struct Inside<'a> {
        lines: Lines<'a>,
        user: u32,
    }

    impl Gate {
        /// An open gate for so many users.
        ///
        /// # Errors
        /// No memory, or no descriptor.
        pub fn create(users: u32) -> Result<Gate> {
            let segment = Segment::create("polyduct gate", Gate::bytes(users))?;
            segment.prefault(0..segment.len())?;
            Ok(Gate { segment, users })
        }

        /// An owner's gate, by the descriptor that it handed over.
        ///
        /// # Errors
        /// It is no such segment, or cannot be mapped.
        pub fn attach(fd: OwnedFd, users: u32) -> Result<Gate> {
            let bytes = Gate::bytes(users);
            Ok(Gate { segment: Segment::from_fd(fd, bytes, bytes, Access::ReadWrite)?, users })
        }

        fn bytes(users: u32) -> usize {
            (users as usize + 1) * size_of::<Line>()
        }

        /// The descriptor, to hand to users.
        pub fn fd(&self) -> BorrowedFd<'_> {
            self.segment.fd()
        }

        fn lines(&self) -> Option<Lines<'_>> {
            let (owner, users) = self.segment.lines(0..Gate::bytes(self.users)).ok()?.split_first()?;
            Some(Lines { owner, users })
        }

        /// Lets a user in, unless the gate is closed. Inside, the memory behind it stays where it is.
        pub fn enter(&self, user: u32) -> Option<Inside<'_>> {
            let lines = self.lines()?;
            let is_open = lines.enter(user)?;
            let inside = Inside { lines, user };
            is_open.then_some(inside)
        }

        /// Closes it, for ever.
        pub fn close(&self) {
            if let Some(lines) = self.lines() {
                lines.close();
            }
        }

        /// After [`close`](Gate::close): waits until nobody who lives is inside, or until `deadline`, a time of
        /// [`clock::now`]. Returns whether nobody is. `dead` is asked of those who stay.
        pub fn wait_empty(&self, deadline: Duration, dead: impl Fn(u32) -> bool) -> bool {
            let Some(lines) = self.lines() else { return true };
            let empty = || lines.inside().next().is_none().then_some(());
            let all_dead = || lines.inside().all(&dead);
            let sleeper = lines.sleeper();
            loop {
                let Err(seen) = sleeper.look(empty) else { return true };
                let left = deadline.saturating_sub(clock::now());
                if all_dead() || left.is_zero() {
                    return all_dead();
                }
                sleeper.sleep(seen, Some(left.min(SLICE)));
            }
        }
    }

    impl Drop for Inside<'_> {
        fn drop(&mut self) {
            self.lines.leave(self.user);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use polyduct_os::clock;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::Barrier;
    use std::time::Duration;

    fn at(time: Duration) -> Duration {
        clock::now().saturating_add(time)
    }

    #[test]
    fn who_is_inside_is_waited_for_unless_it_is_dead() {
        let gate = Gate::create(3).unwrap();
        let other = Gate::attach(gate.fd().try_clone_to_owned().unwrap(), 3).unwrap();
        assert!(Gate::attach(gate.fd().try_clone_to_owned().unwrap(), 4).is_err(), "of another domain");
        assert!(other.enter(3).is_none(), "no such user");
        let inside = other.enter(2).unwrap();
        gate.close();
        assert!(other.enter(1).is_none());
        assert!(!gate.wait_empty(at(Duration::ZERO), |_| false));
        assert!(gate.wait_empty(at(Duration::from_secs(20)), |user| user == 2));
        drop(inside);
        assert!(gate.wait_empty(at(Duration::ZERO), |_| false));
    }

    /// The memory behind the gate is a flag: after the wait nobody may look at it.
    #[test]
    fn nobody_copies_after_the_owner_has_waited() {
        for _ in 0..200 {
            let (gate, taken, copies) = (Gate::create(2).unwrap(), AtomicBool::new(false), AtomicU64::new(0));
            let start = Barrier::new(3);
            std::thread::scope(|s| {
                for user in 0..2 {
                    let (gate, taken, copies, start) = (&gate, &taken, &copies, &start);
                    s.spawn(move || {
                        start.wait();
                        while let Some(inside) = gate.enter(user) {
                            assert!(!taken.load(Ordering::SeqCst), "copied from memory that was taken back");
                            copies.fetch_add(1, Ordering::Relaxed);
                            drop(inside);
                        }
                    });
                }
                start.wait();
                while copies.load(Ordering::Relaxed) < 50 {
                    std::thread::yield_now();
                }
                gate.close();
                assert!(gate.wait_empty(at(Duration::from_secs(20)), |_| false));
                taken.store(true, Ordering::SeqCst);
            });
        }
    }
}
