//! Chooses the vector code that runs, and the size from which copies bypass the caches.

use crate::LastCache;
use std::sync::OnceLock;

/// A family of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain Rust, on any machine: the reference that the others are tested against.
    Portable,
    /// 128-bit vectors of aarch64.
    Neon,
    /// 256-bit vectors: AVX2 and F16C.
    Avx2,
    /// 512-bit vectors: AVX-512 F, BW and VL.
    Avx512,
}

impl Level {
    /// All levels, the plainest first.
    pub const ALL: [Level; 4] = [Level::Portable, Level::Neon, Level::Avx2, Level::Avx512];

    /// The best level that this machine has.
    pub fn detect() -> Level {
        Level::ALL.into_iter().rev().find(|l| l.is_available()).unwrap_or(Level::Portable)
    }

    /// Whether this machine has the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Portable => true,
            Level::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Level::Avx2 | Level::Avx512 => false,
        }
    }
}

/// The kernels of one level, and the size from which they bypass the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    pub(crate) level: Level,
    pub(crate) stream_from: usize,
}

impl Kernels {
    /// The best kernels that this machine has; found once in a process.
    #[inline]
    pub fn detect() -> Kernels {
        static BEST: OnceLock<Kernels> = OnceLock::new();
        *BEST.get_or_init(|| Kernels { level: Level::detect(), stream_from: stream_from() })
    }

    /// The kernels of a level, for tests and comparisons; `None` where the machine does not have it.
    pub fn at(level: Level) -> Option<Kernels> {
        level.is_available().then(|| Kernels { level, ..Kernels::detect() })
    }

    /// The same kernels with another size in bytes from which a table's or a copy's stores bypass the caches.
    pub fn stream_from(self, bytes: usize) -> Kernels {
        Kernels { stream_from: bytes, ..self }
    }

    /// The level of these kernels.
    pub fn level(self) -> Level {
        self.level
    }
}

/// Three quarters of one core's share of the last-level cache: a destination larger than that does not fit
/// beside its source, and an ordinary store would read each line only to overwrite it.
fn stream_from() -> usize {
    LastCache::detect().share() / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_level_is_available() {
        assert!(Level::detect().is_available() && Level::Portable.is_available());
        assert_eq!(Kernels::detect().level(), Level::detect());
        assert!(Kernels::detect().stream_from >= 64 << 10);
    }
}
