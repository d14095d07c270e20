//! The first thing that went wrong, in one word, so that every survivor reports the same.

use super::{Slots, FAULT};
use polyduct_os::sync::Ordering;
use polyduct_port::{Side, UnitName};
use serde::{Deserialize, Serialize};

/// Why a pipe came to a bad end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// A unit's process ended without closing.
    Lost {
        /// The unit.
        unit: UnitName,
        /// Its process.
        pid: u32,
    },
    /// A unit gave up.
    Aborted {
        /// The unit.
        unit: UnitName,
    },
    /// A writer closed after fewer steps than another.
    Uneven {
        /// The one that closed.
        unit: UnitName,
    },
    /// Nothing was heard of a unit's host: it is given up, though it may live.
    Silent {
        /// The unit.
        unit: UnitName,
        /// Its process.
        pid: u32,
        /// For so long, from 1; 255 stands for more, too.
        seconds: u8,
    },
}

impl Fault {
    /// A unit is lost: its process has ended, or nothing was heard of it for so many seconds, if any.
    pub fn lost(unit: UnitName, pid: u32, seconds: u8) -> Fault {
        match seconds {
            0 => Fault::Lost { unit, pid },
            seconds => Fault::Silent { unit, pid, seconds },
        }
    }

    /// The unit that is at fault.
    pub fn unit(self) -> UnitName {
        match self {
            Fault::Lost { unit, .. } | Fault::Silent { unit, .. } => unit,
            Fault::Aborted { unit } | Fault::Uneven { unit } => unit,
        }
    }

    /// Whether steps of the writer that nobody has read yet may be gone with it.
    pub fn loses_steps(self) -> bool {
        !matches!(self, Fault::Uneven { .. })
    }

    /// kind in bits 62-63, side in 56-60 (0 the writer, 1 + p a reader program), of one that is lost the
    /// seconds of silence in 48-55, unit in 32-47, pid in 0-31. Bit 48 of one that gave up is [`SAYS_WHY`].
    fn pack(self) -> u64 {
        let (kind, seconds, unit, pid) = match self {
            Fault::Lost { unit, pid } => (1, 0, unit, pid),
            Fault::Silent { unit, pid, seconds } => (1, u64::from(seconds.max(1)), unit, pid),
            Fault::Aborted { unit } => (2, 0, unit, 0),
            Fault::Uneven { unit } => (3, 0, unit, 0),
        };
        let side = match unit.side {
            Side::Writer => 0,
            Side::Reader(p) => 1 + u64::from(p),
        };
        kind << 62 | side << 56 | seconds << 48 | u64::from(unit.unit) << 32 | u64::from(pid)
    }

    /// Whether a word holds this fault of a unit that gave up and [says why](super::reason).
    pub(super) fn says_why(self, word: u64) -> bool {
        matches!(self, Fault::Aborted { .. }) && word & SAYS_WHY != 0 && Fault::unpack(word) == Some(self)
    }

    fn unpack(word: u64) -> Option<Fault> {
        let side = match word >> 56 & 0x1f {
            0 => Side::Writer,
            p => Side::Reader(p as u32 - 1),
        };
        let unit = UnitName { side, unit: (word >> 32 & 0xffff) as u32 };
        match word >> 62 {
            0 => None,
            1 => Some(match (word >> 48) as u8 {
                0 => Fault::Lost { unit, pid: word as u32 },
                seconds => Fault::Silent { unit, pid: word as u32, seconds },
            }),
            2 => Some(Fault::Aborted { unit }),
            _ => Some(Fault::Uneven { unit }),
        }
    }
}

/// In the word of a unit that gave up: the [reason](super::reason) beside it is its own.
const SAYS_WHY: u64 = 1 << 48;

impl Slots {
    /// The fault of this pipe, if it has one.
    pub fn fault(&self) -> Option<Fault> {
        self.fault_in(None)
    }

    /// The fault of this pipe for one side. Where reader programs come and go, each has its own, beside those
    /// of the writers.
    pub fn fault_of(&self, side: Side) -> Option<Fault> {
        self.fault().or_else(|| self.fault_in(self.fault_place(side)))
    }

    fn fault_in(&self, place: Option<u32>) -> Option<Fault> {
        Fault::unpack(self.line(self.geometry.fault(place)).w[FAULT].load(Ordering::Acquire))
    }

    /// The place whose faults are those of a side: `None` is the whole pipe.
    pub(super) fn fault_place(&self, side: Side) -> Option<u32> {
        match side {
            Side::Reader(program) if self.sizes().are_open() => {
                Some(program).filter(|&program| program < self.sizes().programs())
            }
            _ => None,
        }
    }

    /// Records a fault, unless there is one already, and wakes everybody.
    pub fn fail(&self, fault: Fault) {
        self.fail_for(fault.unit().side, fault);
    }

    /// The same for one side alone, whichever unit's the fault is, where reader programs come and go.
    pub fn fail_for(&self, side: Side, fault: Fault) {
        self.record(self.fault_place(side), fault.pack());
    }

    /// A unit gives up for this [reason](super::reason), which may be empty.
    pub(super) fn fail_because(&self, unit: UnitName, reason: &str) {
        let place = self.fault_place(unit.side);
        let Some(says_why) = self.say_why(place, reason) else { return };
        let mark = if says_why { SAYS_WHY } else { 0 };
        self.record(place, Fault::Aborted { unit }.pack() | mark);
    }

    fn record(&self, place: Option<u32>, fault: u64) {
        let word = &self.line(self.geometry.fault(place)).w[FAULT];
        let _ = word.compare_exchange(0, fault, Ordering::AcqRel, Ordering::Acquire);
        self.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_survive_the_word() {
        for side in [Side::Writer, Side::Reader(0), Side::Reader(7)] {
            for unit in [0, 1, 4095] {
                let unit = UnitName { side, unit };
                for fault in [
                    Fault::Lost { unit, pid: u32::MAX },
                    Fault::Silent { unit, pid: u32::MAX, seconds: 1 },
                    Fault::Silent { unit, pid: 0, seconds: 255 },
                    Fault::Aborted { unit },
                    Fault::Uneven { unit },
                ] {
                    assert_eq!(Fault::unpack(fault.pack()), Some(fault));
                }
            }
        }
        assert_eq!(Fault::unpack(0), None);
    }
}
