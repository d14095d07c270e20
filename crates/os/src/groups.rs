//! The control groups around this process, and how many tasks they leave.

use std::fs;
use std::path::{Path, PathBuf};

/// Which of the system's two kinds of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// The directories of all groups around this process that may limit what a controller counts.
pub(crate) fn around(controller: &str) -> Vec<(Version, PathBuf)> {
    let lines = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    lines.lines().flat_map(|line| of_line(line, controller)).collect()
}

/// Those of a line of `/proc/self/cgroup`: the innermost first.
fn of_line(line: &str, controller: &str) -> Vec<(Version, PathBuf)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (version, root) = match controllers {
        "" => (Version::Two, PathBuf::from("/sys/fs/cgroup")),
        names if names.split(',').any(|name| name == controller) => {
            (Version::One, Path::new("/sys/fs/cgroup").join(controller))
        }
        _ => return Vec::new(),
    };
    let at = root.join(path.trim_start_matches('/'));
    let within = at.ancestors().take_while(|at| at.starts_with(&root));
    within.map(|at| (version, at.to_path_buf())).collect()
}

/// Threads and processes that a control group allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Its limit.
    pub limit: u64,
    /// How many there are.
    pub used: u64,
}

impl Tasks {
    /// How many more there may be.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The control group that leaves the fewest tasks, of those around this process that have a limit.
pub fn tasks() -> Option<Tasks> {
    around("pids").iter().filter_map(|(_, at)| read_tasks(at)).min_by_key(Tasks::left)
}

/// In both versions the files have these names; the limit is `max` where there is none.
fn read_tasks(at: &Path) -> Option<Tasks> {
    let number = |name: &str| fs::read_to_string(at.join(name)).ok()?.trim().parse::<u64>().ok();
    Some(Tasks { limit: number("pids.max")?, used: number("pids.current").unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_where_the_system_has_them() {
        let of = |line: &str| of_line(line, "pids");
        let two = |at: &str| (Version::Two, PathBuf::from(at));
        assert_eq!(of("0::/a/b"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(two));
        assert_eq!(of("0::/"), [two("/sys/fs/cgroup")]);
        let one = |at: &str| (Version::One, PathBuf::from(at));
        assert_eq!(of("8:cpu,pids:/a"), ["/sys/fs/cgroup/pids/a", "/sys/fs/cgroup/pids"].map(one));
        for other in ["4:memory:/a", "", "8", "8:pids"] {
            assert!(of(other).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn tasks_are_read_as_the_system_writes_them() {
        let dir = std::env::temp_dir().join(format!("polyduct-os-tasks-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let put = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        assert_eq!(read_tasks(&dir), None);
        put("pids.max", "max\n");
        put("pids.current", "70\n");
        let unlimited = read_tasks(&dir);
        put("pids.max", "64\n");
        let limited = read_tasks(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!((unlimited, limited), (None, Some(Tasks { limit: 64, used: 70 })));
        assert_eq!(limited.map(|tasks| tasks.left()), Some(0));
    }
}
