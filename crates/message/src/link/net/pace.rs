//! Limits how much a connection is given at once.
//!
//! What a connection has been given, high priority waits for: in this program, and in the kernel while it is
//! not sent. On a link that is slower than who sends there is always something. More at once costs fewer
//! system calls, which counts where the link is fast.

use core::time::Duration;

/// From so many bytes a second on a link is fast: the processors are what there is too little of.
const FAST: f64 = 250e6;
/// What a fast link is given at once.
const MOST: usize = 512 << 10;
/// What another carries in this time is given at once …
const SOON: f64 = 100e-6;
/// … but at least so many bytes.
const LEAST: usize = 16 << 10;
/// What is given before anything is known of the link.
pub const FIRST: usize = 64 << 10;
/// How long a measurement takes at least: the socket takes its bytes in gulps.
const MEASURED: Duration = Duration::from_millis(2);

/// What is known of a connection's speed.
#[derive(Debug)]
pub struct Pace {
    at_once: usize,
    /// Since when there was always more for it, and how many bytes it has taken since.
    since: Duration,
    taken: usize,
}

impl Pace {
    pub fn new(now: Duration) -> Pace {
        Pace { at_once: FIRST, since: now, taken: 0 }
    }

    /// Bytes that it is given at once.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Its socket took so many bytes, of `all` that there were or less. Returns whether it is given more or
    /// less from now on.
    pub fn wrote(&mut self, now: Duration, bytes: usize, all: bool) -> bool {
        // With less than it may have it was not the link that set the pace.
        if all && bytes < self.at_once {
            (self.since, self.taken) = (now, 0);
            return false;
        }
        self.taken += bytes;
        let time = now.saturating_sub(self.since);
        if time < MEASURED {
            return false;
        }
        let carries = self.taken as f64 / time.as_secs_f64();
        (self.since, self.taken) = (now, 0);
        let wanted = if carries < FAST { ((carries * SOON) as usize).max(LEAST) } else { MOST };
        // A little more or less is not worth a system call.
        let other = wanted > self.at_once + self.at_once / 2 || wanted < self.at_once - self.at_once / 3;
        if other {
            self.at_once = wanted;
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What a link of so many bytes a millisecond is given at once in the end.
    fn given(pace: &mut Pace, from: u32, carries: usize) -> usize {
        for at in from..from + 50 {
            pace.wrote(at * MS, carries, false);
        }
        pace.at_once()
    }

    #[test]
    fn a_link_is_given_what_it_carries_soon() {
        let mut pace = Pace::new(Duration::ZERO);
        assert_eq!(given(&mut pace, 0, 25_000), LEAST, "200 Mbit/s");
        assert_eq!(given(&mut pace, 100, 125_000), LEAST, "1 Gbit/s");
        assert_eq!(given(&mut pace, 200, 248_000), 24_800, "2 Gbit/s");
        assert_eq!(given(&mut pace, 300, 1_000_000), MOST, "8 Gbit/s");
        // A sender that has nothing more to send learns nothing of the link.
        (400..500).for_each(|at| assert!(!pace.wrote(at * MS, 10, true)));
        assert_eq!(given(&mut pace, 500, 1000), LEAST);
        for at in 6000..7000 {
            pace.wrote(at * MS / 10, LEAST, false);
            pace.wrote(at * MS / 10, pace.at_once(), true);
        }
        assert_eq!(pace.at_once(), MOST);
    }
}
