//! Seals records on an open link: encrypted and authenticated, or plain where both sides trust the network.

use core::fmt;

use crate::error::LinkError;
use snow::StatelessTransportState;
use std::sync::Arc;

/// Bytes that sealing adds.
pub const TAG: usize = 16;
/// Bytes of a sealed record, at most: Noise's limit.
pub const RECORD: usize = 65_535;
/// Bytes in one record, at most.
pub const RECORD_PLAIN: usize = RECORD - TAG;
/// How far a datagram may be overtaken before it counts as a replay.
pub const WINDOW: u64 = 2048;

/// The number of the record that confirms the handshake; frames of the side that connects begin after it.
const CONFIRMATION: u64 = 0;

/// Makes what goes out. Each record has the next number, which is never used twice.
pub struct Sealer {
    keys: Arc<StatelessTransportState>,
    plain: bool,
    next: u64,
}

/// Reads what comes in.
pub struct Opener {
    keys: Arc<StatelessTransportState>,
    plain: bool,
    next: u64,
    seen: Window,
}

/// The two halves of one side.
pub(crate) fn pair(keys: StatelessTransportState, plain: bool, initiator: bool) -> (Sealer, Opener) {
    let keys = Arc::new(keys);
    let first = CONFIRMATION + 1;
    let sealer = Sealer { keys: keys.clone(), plain, next: if initiator { CONFIRMATION } else { first } };
    (sealer, Opener { keys, plain, next: first, seen: Window::new(first) })
}

impl Sealer {
    /// Frames go as they are: both sides declared the network trusted.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Seals `plain` ([`RECORD_PLAIN`] bytes at most) as the next record into `out` ([`TAG`] bytes longer at
    /// least); returns the record's number and length.
    ///
    /// # Errors
    /// [`LinkError::BadField`] where a length does not fit or 2⁶⁴ records were made.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<(u64, usize), LinkError> {
        let number = self.next;
        let len = self.keys.write_message(number, plain, out).map_err(|_| LinkError::BadField {
            what: "length of a record to seal",
            found: plain.len() as u64,
            expected: "at most 65519 and room for it",
        })?;
        self.next += 1;
        Ok((number, len))
    }

    pub(crate) fn confirmation(&mut self, out: &mut [u8]) -> Result<usize, LinkError> {
        self.seal(&[], out).map(|(_, len)| len)
    }
}

impl Opener {
    /// Frames come as they are: both sides declared the network trusted.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Opens the next record of a stream into `out`, which must have the record's length: the [`TAG`] needs
    /// room on the way. Returns the bytes that were in it.
    ///
    /// # Errors
    /// [`LinkError::Unauthentic`]: changed, repeated, left out, or out of its place. The stream is of no
    /// further use.
    pub fn open_next(&mut self, record: &[u8], out: &mut [u8]) -> Result<usize, LinkError> {
        let len = self.keys.read_message(self.next, record, out).map_err(|_| LinkError::Unauthentic)?;
        self.next += 1;
        Ok(len)
    }

    /// Opens a datagram with its number. What does not open changes nothing.
    ///
    /// # Errors
    /// [`LinkError::Unauthentic`]; [`LinkError::OutOfTurn`] where it came before, or too late to tell.
    pub fn open_at(&mut self, number: u64, record: &[u8], out: &mut [u8]) -> Result<usize, LinkError> {
        if !self.seen.is_new(number) {
            return Err(LinkError::OutOfTurn { what: "a datagram that came before, or came too late" });
        }
        let len = self.keys.read_message(number, record, out).map_err(|_| LinkError::Unauthentic)?;
        self.seen.insert(number);
        Ok(len)
    }

    pub(crate) fn check_confirmation(&self, record: &[u8]) -> Result<(), LinkError> {
        let mut nothing = [0; TAG];
        match self.keys.read_message(CONFIRMATION, record, &mut nothing) {
            Ok(0) => Ok(()),
            _ => Err(LinkError::Unauthentic),
        }
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer(plain: {}, next: {})", self.plain, self.next)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener(plain: {}, next: {})", self.plain, self.next)
    }
}

/// Which numbers have come: everything below `end - WINDOW` counts as seen, everything from `end` on as new,
/// and a bit each tells about those between.
#[derive(Debug)]
struct Window {
    bits: [u64; (WINDOW / 64) as usize],
    end: u64,
}

impl Window {
    fn new(first: u64) -> Window {
        let mut window = Window { bits: [0; (WINDOW / 64) as usize], end: first };
        (0..first).for_each(|n| window.set(n));
        window
    }

    fn set(&mut self, number: u64) {
        self.bits[(number % WINDOW / 64) as usize] |= 1 << (number % 64);
    }

    fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            return true;
        }
        let bit = self.bits[(number % WINDOW / 64) as usize] >> (number % 64) & 1;
        self.end - number <= WINDOW && bit == 0
    }

    fn insert(&mut self, number: u64) {
        if number >= self.end {
            // What lies between was not seen; beyond a whole window nothing of the old is left.
            for skipped in self.end..number.min(self.end.saturating_add(WINDOW)) {
                self.bits[(skipped % WINDOW / 64) as usize] &= !(1 << (skipped % 64));
            }
            self.end = number.saturating_add(1);
        }
        self.set(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against the naive set: a number is new once, if it is not older than the window.
        #[test]
        fn the_window_is_a_set_that_forgets(steps in prop::collection::vec((0_u64..3, 0_u64..5000), 1..400)) {
            let (mut window, mut seen, mut top) = (Window::new(1), BTreeSet::from([0_u64]), 0_u64);
            for (kind, delta) in steps {
                let number = match kind {
                    0 => top + delta % 3,
                    1 => top.saturating_sub(delta),
                    _ => top + delta,
                };
                let late = top + 1 > WINDOW && number < top + 1 - WINDOW;
                prop_assert_eq!(window.is_new(number), !seen.contains(&number) && !late, "{} of {}", number, top);
                if window.is_new(number) {
                    window.insert(number);
                    seen.insert(number);
                    top = top.max(number);
                }
            }
        }
    }

    #[test]
    fn the_last_numbers_there_are_do_not_overflow() {
        let mut window = Window::new(1);
        for number in [u64::MAX, u64::MAX - 1, u64::MAX - WINDOW + 2] {
            assert!(window.is_new(number));
            window.insert(number);
            assert!(!window.is_new(number) || number == u64::MAX);
        }
        assert!(!window.is_new(5));
    }
}
