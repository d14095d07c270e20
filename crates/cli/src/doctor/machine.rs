//! The machine and its limits.

use super::{limit, Finding};
use crate::text::bytes;
use polyduct::host::{cpu, memory, Facts, LastCache, RemoteReader};
use std::fs;

/// Few programs of a parallel run fit into less.
const FEW_FILES: u64 = 4096;
/// Memory below which a warning is due.
const LITTLE: u64 = 512 << 20;

/// Everything about the machine, in the order of the report.
pub fn examine() -> Vec<Finding> {
    let facts = Facts::gather();
    let mut findings = vec![
        Finding::ok("system", format!("Linux {} on {}", facts.kernel, std::env::consts::ARCH)),
        processors(),
        vector_code(),
        caches(),
        machine_memory(),
    ];
    findings.extend(group_memory());
    findings.extend([
        memfd(&facts),
        shared_directory(&facts),
        open_files(&facts),
        processes(),
        pidfd(&facts),
    ]);
    findings.extend([other_memory(&facts), huge_pages(&facts)]);
    findings
}

fn processors() -> Finding {
    let allowed = cpu::allowed().len();
    let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("model name"))?;
        Some(format!(", {}", line.split_once(':')?.1.trim()))
    });
    let online = fs::read_to_string("/proc/cpuinfo")
        .map_or(0, |t| t.lines().filter(|l| l.starts_with("processor")).count());
    let found = match online > allowed {
        true => format!("{allowed} of {online} may be used{}", model.unwrap_or_default()),
        false => format!("{allowed}{}", model.unwrap_or_default()),
    };
    match allowed {
        1 => Finding::warn(
            "processors",
            found,
            "the two sides of a pipe take turns; give this job two or more",
        ),
        _ => Finding::ok("processors", found),
    }
}

fn vector_code() -> Finding {
    use polyduct::host::Level;
    match Level::detect() {
        Level::Avx512 => Finding::ok("vector code", "AVX-512"),
        Level::Avx2 => Finding::ok("vector code", "AVX2"),
        Level::Neon => Finding::ok("vector code", "NEON"),
        Level::Portable => {
            Finding::warn("vector code", "none", "transposes and conversions run slower than they could")
        }
    }
}

fn caches() -> Finding {
    let read = |index: usize, file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
        fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
    };
    let found: Vec<String> = (0..8)
        .filter(|&i| read(i, "type").is_some_and(|t| t != "Instruction"))
        .filter_map(|i| Some(format!("L{} {}", read(i, "level")?, read(i, "size")?)))
        .collect();
    let last = bytes(LastCache::detect().bytes as u64);
    match found.is_empty() {
        true => Finding::ok("caches", format!("not told; {last} is taken for the last level")),
        false => Finding::ok("caches", format!("{}; copies count on {last} of the last", found.join(", "))),
    }
}

fn machine_memory() -> Finding {
    match memory::machine() {
        None => Finding::warn(
            "memory",
            "/proc/meminfo cannot be read",
            "limits cannot be checked before they are hit",
        ),
        Some(m) => {
            let found = format!("{} available of {}", bytes(m.available_bytes), bytes(m.total_bytes));
            match m.available_bytes < LITTLE {
                true => Finding::warn(
                    "memory",
                    found,
                    "slots of pipes are memory: depth × the local part for each writer unit",
                ),
                false => Finding::ok("memory", found),
            }
        }
    }
}

fn group_memory() -> Option<Finding> {
    let group = memory::cgroup()?;
    let found = format!("{} used of {}", bytes(group.used_bytes), bytes(group.limit_bytes));
    let left = group.limit_bytes.saturating_sub(group.used_bytes);
    Some(match left < LITTLE {
        true => {
            Finding::warn("memory limit", found, "slots of pipes count towards it; raise the job's memory")
        }
        false => Finding::ok("memory limit", found),
    })
}

fn memfd(facts: &Facts) -> Finding {
    match facts.memfd {
        true => Finding::ok("memfd", "unnamed shared memory with seals works"),
        false => Finding::missing(
            "memfd",
            "memfd_create is refused",
            "pipes need it: Linux 3.17 or newer, and a sandbox that allows it",
        ),
    }
}

/// Not needed by polyduct; other programs beside it (MPI libraries) fill it.
fn shared_directory(facts: &Facts) -> Finding {
    match facts.dev_shm {
        None => Finding::ok("/dev/shm", "not there; polyduct does without"),
        Some((size, free)) => {
            Finding::ok("/dev/shm", format!("{} free of {}; polyduct does without", bytes(free), bytes(size)))
        }
    }
}

fn open_files(facts: &Facts) -> Finding {
    let show = |n: Option<u64>| n.map_or("no limit".into(), |n| n.to_string());
    let limit = facts.descriptors;
    let found = format!("{}, may be raised to {}", show(limit.soft), show(limit.hard));
    match limit.hard.is_some_and(|hard| hard < FEW_FILES) {
        true => {
            let advice =
                "raise the hard limit (ulimit -Hn): each partner of a unit takes a socket and its slots";
            Finding::warn("open files", found, advice)
        }
        false => Finding::ok("open files", found),
    }
}

fn processes() -> Finding {
    let max = rustix::process::getrlimit(rustix::process::Resource::Nproc).current;
    let found = max.map_or("no limit".to_owned(), |n| format!("up to {n} for this user"));
    match max.is_some_and(|n| n < 256) {
        true => Finding::warn("processes", found, "ulimit -u raises the limit"),
        false => Finding::ok("processes", found),
    }
}

fn pidfd(facts: &Facts) -> Finding {
    match facts.pidfd {
        true => Finding::ok("pidfd", "the death of a process is seen at once"),
        false => Finding::missing(
            "pidfd",
            "pidfd_open is refused",
            "needed to watch processes: Linux 5.3 or newer, and a sandbox that allows it",
        ),
    }
}

/// Whether large arrays outside slots can be pulled from another process.
fn other_memory(facts: &Facts) -> Finding {
    let name = "other memory";
    let slower = "arrays that are not in a slot are copied once more";
    let probe = [0x5au8; 8];
    let mut copy = [0; 8];
    let own =
        RemoteReader::new(std::process::id()).and_then(|r| r.read(&mut copy, probe.as_ptr().addr() as u64));
    match (own, facts.ptrace_scope) {
        (Err(error), _) => Finding::warn(name, format!("process_vm_readv: {error}"), slower),
        (Ok(()), Some(2 | 3)) => Finding::warn(
            name,
            "kernel.yama.ptrace_scope forbids process_vm_readv",
            format!("{slower}; sysctl kernel.yama.ptrace_scope=1 allows it"),
        ),
        (Ok(()), Some(1)) => {
            Finding::ok(name, "process_vm_readv works; writers permit it to their readers (ptrace_scope 1)")
        }
        (Ok(()), _) => Finding::ok(name, "process_vm_readv works"),
    }
}

fn huge_pages(facts: &Facts) -> Finding {
    let setting = |s: &Option<String>| s.clone().unwrap_or_else(|| "not there".into());
    let found =
        format!("{}; shared memory: {}", setting(&facts.huge_pages), setting(&facts.huge_pages_shared));
    let lock = limit(facts.locked_memory.soft);
    match facts.huge_pages_shared.as_deref() {
        Some("always" | "advise" | "within_size" | "force") => Finding::ok("huge pages", found),
        _ => Finding::warn(
            "huge pages",
            format!("{found} (memory that may be locked: {lock})"),
            "the first pass over new slots is faster after: echo advise > \
                /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
    }
}
