//! The [gate](polyduct_ring::gate) of a region, in memory that its owner and its users have mapped.

use polyduct_os::clock;
use polyduct_os::segment::{Access, Segment};
use polyduct_os::sync::Line;
use polyduct_os::Result;
use polyduct_ring::gate::Lines;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::Barrier;

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
