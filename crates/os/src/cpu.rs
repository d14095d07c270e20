//! Processors.

use rustix::thread::CpuSet;

use crate::error::{OsError, Result};

pub use crate::memory::cgroup_memory_limit;

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

/// How many processors the machine has, whichever of them this thread may use: the same for all processes.
pub fn online() -> usize {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = listed.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((last.parse::<usize>().ok()? + 1).saturating_sub(first.parse().ok()?))
    });
    match ranges.sum() {
        0 => allowed().len(),
        count => count,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_allowed_than_there_are() {
        assert!(online() >= allowed().len());
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
