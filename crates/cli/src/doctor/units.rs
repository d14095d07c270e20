//! Compares what so many units need on this machine with what there is.

use super::Finding;
use crate::text::bytes;
use polyduct::host::{memory, tasks, Facts, Tasks};
use polyduct::message::config::Config;
use rustix::process::{getrlimit, Resource};

/// What a unit takes beside its rings, without the program around it.
const OWN_BYTES: u64 = 2 << 20;
/// Tasks of a unit: its program's thread, the one that watches the units of its host, and the one of its
/// sockets.
const TASKS: u64 = 3;

/// What there is.
struct There {
    obtainable_bytes: u64,
    /// Descriptors that a process may have in the end.
    descriptors: Option<u64>,
    /// What the control group allows.
    group: Option<Tasks>,
    /// Tasks that this user may have.
    processes: Option<u64>,
}

/// Memory, descriptors and tasks for `units` units that all talk to all.
pub fn examine(units: u32) -> Vec<Finding> {
    let there = There {
        obtainable_bytes: memory::obtainable_bytes(),
        descriptors: Facts::gather().descriptors.hard,
        group: tasks(),
        processes: getrlimit(Resource::Nproc).current,
    };
    // Settings that are wrong are told with the settings.
    let mut config = Config::load().unwrap_or_default();
    let fits = config.fit(u64::from(units - 1), there.obtainable_bytes).is_ok();
    findings(units, &config, fits, &there)
}

fn findings(units: u32, config: &Config, fits: bool, there: &There) -> Vec<Finding> {
    let (count, partners) = (u64::from(units), u64::from(units - 1));
    let name = |what: &str| format!("{units} units: {what}");
    let rings = config.needed(partners);
    let own = count * OWN_BYTES;
    let found = format!(
        "{} of rings at most, and {} beside them; {} can be had",
        bytes(rings),
        bytes(own),
        bytes(there.obtainable_bytes)
    );
    let memory = match fits && rings.saturating_add(own) <= there.obtainable_bytes {
        true => Finding::ok(name("memory"), found),
        false => Finding::warn(name("memory"), found, "have fewer units here, or give this job more memory"),
    };
    let needs = Config::descriptors(partners);
    let files = match there.descriptors {
        Some(limit) if limit < needs => Finding::warn(
            name("open files"),
            format!("a unit that talks to all needs {needs}; {limit} may be had"),
            format!("raise the hard limit (ulimit -Hn {needs})"),
        ),
        Some(limit) => {
            Finding::ok(name("open files"), format!("a unit needs {needs} at most; {limit} may be had"))
        }
        None => Finding::ok(name("open files"), format!("a unit needs {needs} at most; there is no limit")),
    };
    let needs = count * TASKS;
    let limits = [
        there.group.map(|group| (group.left(), "left by the control group (pids.max)")),
        // Nobody tells how many of them there are.
        there.processes.map(|limit| (limit, "allowed to this user (ulimit -u)")),
    ];
    let tightest = limits.into_iter().flatten().min();
    let tasks = match tightest {
        Some((left, whose)) if left < needs => Finding::warn(
            name("tasks"),
            format!("they need {needs} processes and threads; {left} are {whose}"),
            "raise that limit, or have fewer units here",
        ),
        Some((left, whose)) => Finding::ok(name("tasks"), format!("they need {needs}; {left} are {whose}")),
        None => Finding::ok(name("tasks"), format!("they need {needs}; there is no limit")),
    };
    vec![memory, files, tasks]
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn there(obtainable_bytes: u64, descriptors: u64, left: u64, processes: u64) -> There {
        let group = Some(Tasks { limit: left + 7, used: 7 });
        There { obtainable_bytes, descriptors: Some(descriptors), group, processes: Some(processes) }
    }

    /// What is said of memory, open files and tasks.
    fn said(units: u32, there: &There) -> [(State, String); 3] {
        let mut config = Config::default();
        let fits = config.fit(u64::from(units - 1), there.obtainable_bytes).is_ok();
        let found = findings(units, &config, fits, there);
        let said: Vec<_> = found.into_iter().map(|f| (f.state, f.found)).collect();
        said.try_into().unwrap()
    }

    #[test]
    fn what_units_need_is_compared_with_what_there_is() {
        let enough = said(512, &there(64 << 30, 1 << 20, 10_000, 60_000));
        assert!(enough.iter().all(|(state, _)| *state == State::Ok), "{enough:?}");
        assert_eq!(enough[1].1, "a unit needs 2108 at most; 1048576 may be had");
        assert_eq!(enough[2].1, "they need 1536; 10000 are left by the control group (pids.max)");

        let little = said(512, &there(1 << 30, 1024, 1000, 60_000));
        let states = little.each_ref().map(|(state, _)| *state);
        assert_eq!(states, [State::Warn; 3], "{little:?}");
        assert_eq!(little[1].1, "a unit that talks to all needs 2108; 1024 may be had");
        assert_eq!(
            little[2].1,
            "they need 1536 processes and threads; 1000 are left by the control group (pids.max)"
        );
        let user = said(512, &there(64 << 30, 1 << 20, 10_000, 100));
        assert!(user[2].1.ends_with("100 are allowed to this user (ulimit -u)"), "{}", user[2].1);
        // As many as fit, with smaller rings, are well in a group of half a GiB.
        let small = said(32, &there(512 << 20, 4096, 1000, 60_000));
        assert!(small.iter().all(|(state, _)| *state == State::Ok), "{small:?}");
    }
}
