//! The first thing that went wrong, in one word, so that every survivor reports the same.

use super::{Slots, FAULT, GLOBAL};
use polyduct_os::sync::{AtomicU64, Ordering};
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
    /// seconds of silence in 48-55, unit in 32-47, pid in 0-31.
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

impl Slots {
    /// The fault of this pipe, if it has one.
    pub fn fault(&self) -> Option<Fault> {
        Fault::unpack(self.line(GLOBAL).w[FAULT].load(Ordering::Acquire))
    }

    /// The fault of this pipe for one side. Where reader programs come and go, each has its own, beside those
    /// of the writers.
    pub fn fault_of(&self, side: Side) -> Option<Fault> {
        let own = || Fault::unpack(self.fault_word(side).load(Ordering::Acquire));
        self.fault().or_else(own)
    }

    fn fault_word(&self, side: Side) -> &AtomicU64 {
        match side {
            Side::Reader(program) if self.sizes().are_open() => {
                &self.line(self.geometry.program(program)).w[FAULT]
            }
            _ => &self.line(GLOBAL).w[FAULT],
        }
    }

    /// Records a fault, unless there is one already, and wakes everybody.
    pub fn fail(&self, fault: Fault) {
        self.fail_for(fault.unit().side, fault);
    }

    /// The same for one side alone, whichever unit's the fault is, where reader programs come and go.
    pub fn fail_for(&self, side: Side, fault: Fault) {
        let word = self.fault_word(side);
        let _ = word.compare_exchange(0, fault.pack(), Ordering::AcqRel, Ordering::Acquire);
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
