//! Processors and their caches.

use std::fs;
use std::path::Path;

use rustix::thread::CpuSet;

use crate::error::{OsError, Result};

pub use crate::memory::cgroup_memory_limit;

/// What is taken for the last-level cache where the system does not say.
pub const FALLBACK_CACHE_BYTES: u64 = 32 << 20;

/// The processors this thread may run on, in rising order; never empty.
pub fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).ok();
    let cpus: Vec<usize> =
        set.map_or_else(Vec::new, |s| (0..CpuSet::MAX_CPU).filter(|&c| s.is_set(c)).collect());
    if !cpus.is_empty() {
        return cpus;
    }
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Keeps this thread (and those it starts) on one processor.
pub fn pin_to(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(OsError::OutOfRange {
            what: "the processors".into(),
            start: cpu,
            end: cpu.saturating_add(1),
            len: CpuSet::MAX_CPU,
        });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| OsError::sys("sched_setaffinity", format!("processor {cpu}"), e))
}

/// The processor this thread runs on now.
pub fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// The size of the largest cache of the first allowed processor.
pub fn last_level_cache_bytes() -> u64 {
    let cpu = allowed()[0];
    cache_bytes(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/cache"))).unwrap_or(FALLBACK_CACHE_BYTES)
}

fn cache_bytes(dir: &Path) -> Option<u64> {
    let mut best: Option<(u32, u64)> = None;
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let found = || Some((read("level")?.trim().parse().ok()?, parse_size(read("size")?.trim())?));
        best = best.max(found());
    }
    best.map(|(_, bytes)| bytes).filter(|&bytes| bytes > 0)
}

/// `32768K`, `16M`, `512`.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_are_read_as_the_system_writes_them() {
        let sizes = ["32K", "36608K", "16M", "1G", "512", "", "K", "12Q", "-1K", "99999999999999999999K"];
        let expected = [Some(32 << 10), Some(36608 << 10), Some(16 << 20), Some(1 << 30), Some(512)];
        let found = sizes.map(parse_size);
        assert_eq!(found[..5], expected);
        assert_eq!(found[5..], [None; 5]);
        assert_eq!(parse_size(&format!("{}G", u64::MAX)), None);
    }

    #[test]
    fn the_last_level_wins_whatever_the_order() {
        let dir = std::env::temp_dir().join(format!("polyduct-os-cache-{}", std::process::id()));
        for (index, level, size) in [(0, "1", "48K"), (1, "3", "30M"), (2, "2", "64M"), (3, "x", "1G")] {
            let at = dir.join(format!("index{index}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("level"), format!("{level}\n")).unwrap();
            fs::write(at.join("size"), format!("{size}\n")).unwrap();
        }
        let found = cache_bytes(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, Some(30 << 20));
        assert_eq!(cache_bytes(&dir), None);
        assert!(last_level_cache_bytes() >= 1 << 15);
    }

    #[test]
    fn a_pinned_thread_stays_where_it_is_put() {
        std::thread::spawn(|| {
            for cpu in allowed() {
                pin_to(cpu).unwrap();
                assert_eq!((current(), allowed()), (cpu, vec![cpu]));
            }
        })
        .join()
        .unwrap();
        assert!(matches!(pin_to(CpuSet::MAX_CPU), Err(OsError::OutOfRange { .. })));
        assert!(matches!(pin_to(usize::MAX), Err(OsError::OutOfRange { .. })));
    }
}
