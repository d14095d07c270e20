//! Reads how much memory there is, and how much of it may be had.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{getrlimit, Resource};

use crate::groups::{self, Version};

/// Memory of the machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// What programs can take without swapping.
    pub available_bytes: u64,
    /// Free swap.
    pub swap_free_bytes: u64,
}

/// The tightest memory control group around this process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupMemory {
    /// Its limit.
    pub limit_bytes: u64,
    /// What it uses of it, without the page cache that it could give back.
    pub used_bytes: u64,
}

/// What the machine has, from `/proc/meminfo`; `None` where that cannot be read.
pub fn machine() -> Option<Memory> {
    parse_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory {
        total_bytes: field("MemTotal")?,
        available_bytes: field("MemAvailable").or_else(|| field("MemFree"))?,
        swap_free_bytes: field("SwapFree").unwrap_or(0),
    })
}

/// The control group that leaves the least, of those around this process that have a limit.
pub fn cgroup() -> Option<CgroupMemory> {
    let around = groups::around("memory");
    let read =
        |(version, at): &(Version, PathBuf)| read_group(at, if *version == Version::One { &V1 } else { &V2 });
    around.iter().filter_map(read).min_by_key(CgroupMemory::left_bytes)
}

/// [`cgroup`]'s limit alone.
pub fn cgroup_memory_limit() -> Option<u64> {
    cgroup().map(|g| g.limit_bytes)
}

impl CgroupMemory {
    fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

struct Files {
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat` that count pages of files, which the kernel drops before it refuses.
    cache: [&'static str; 2],
}

const V2: Files =
    Files { limit: "memory.max", used: "memory.current", cache: ["inactive_file", "active_file"] };
const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};

fn read_group(at: &Path, files: &Files) -> Option<CgroupMemory> {
    let number = |name: &str| fs::read_to_string(at.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit_bytes = number(files.limit).filter(|&n| n < 1 << 60)?; // "max" in v2, a huge number in v1
    let stat = fs::read_to_string(at.join("memory.stat")).unwrap_or_default();
    let cache: u64 = stat
        .lines()
        .filter_map(|l| l.split_once(' '))
        .filter(|(name, _)| files.cache.contains(name))
        .filter_map(|(_, n)| n.trim().parse::<u64>().ok())
        .sum();
    Some(CgroupMemory { limit_bytes, used_bytes: number(files.used).unwrap_or(0).saturating_sub(cache) })
}

/// What a new allocation may take at most, as far as one can know: the machine's available memory and free
/// swap, and what the control group leaves. `u64::MAX` where nothing is known.
pub fn obtainable_bytes() -> u64 {
    let machine = machine().map_or(u64::MAX, |m| m.available_bytes.saturating_add(m.swap_free_bytes));
    machine.min(cgroup().map_or(u64::MAX, |g| g.left_bytes()))
}

/// The largest file this process may make; beyond it the kernel sends a deadly signal, so it is asked before.
pub(crate) fn file_size_limit_bytes() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_as_the_system_writes_it() {
        let text = "MemTotal:       16 kB\nMemFree: 4 kB\nMemAvailable:   8 kB\nSwapFree:  2 \
            kB\nHugePages_Total: 0\n";
        let memory = Memory { total_bytes: 16 << 10, available_bytes: 8 << 10, swap_free_bytes: 2 << 10 };
        assert_eq!(parse_meminfo(text), Some(memory));
        let old = "MemTotal: 16 kB\nMemFree: 4 kB\n";
        assert_eq!(parse_meminfo(old).map(|m| (m.available_bytes, m.swap_free_bytes)), Some((4 << 10, 0)));
        for bad in ["", "MemTotal: x kB\nMemFree: 1 kB", "MemTotal:", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(parse_meminfo(bad), None);
        }
        let here = machine().unwrap();
        assert!(here.available_bytes <= here.total_bytes && obtainable_bytes() > 0);
    }

    #[test]
    fn the_page_cache_of_a_group_counts_as_free() {
        let dir = std::env::temp_dir().join(format!("polyduct-os-cgroup-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let put = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        put("memory.max", "1000\n");
        put("memory.current", "700\n");
        put("memory.stat", "anon 100\ninactive_file 200\nactive_file 50\nshmem 300\n");
        let limited = read_group(&dir, &V2);
        put("memory.max", "max\n");
        let unlimited = read_group(&dir, &V2);
        put("memory.limit_in_bytes", "9223372036854771712\n");
        let old_unlimited = read_group(&dir, &V1);
        fs::remove_dir_all(&dir).unwrap();
        let group = CgroupMemory { limit_bytes: 1000, used_bytes: 450 };
        assert_eq!((limited, unlimited, old_unlimited), (Some(group), None, None));
        assert_eq!(group.left_bytes(), 550);
        assert_eq!(CgroupMemory { used_bytes: 2000, ..group }.left_bytes(), 0);
    }
}
