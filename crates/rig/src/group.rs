//! Control groups of memory, made by tests and gone with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the system may take to see that a group is empty.
const EMPTY: Duration = Duration::from_secs(10);

/// A control group below the one of this process. Removed when dropped; its processes have to be gone by
/// then.
pub struct Group {
    at: PathBuf,
    used: &'static str,
}

impl Group {
    /// A group for so many bytes. `Err`: why this process cannot have one.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Group, String> {
        let lines = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let path = |wanted: &str| {
            let fields = lines.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
            fields.filter(|f| f.len() == 3 && f[1] == wanted).map(|f| f[2].to_owned()).next()
        };
        // The first version where it is there for memory, or the second.
        let (root, path, limit, used) = match (path("memory"), path("")) {
            (Some(path), _) => {
                ("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            (None, Some(path)) => ("/sys/fs/cgroup", path, "memory.max", "memory.current"),
            (None, None) => return Err("there are no control groups of memory".to_owned()),
        };
        let name = format!("polyduct-test-{name}-{}", std::process::id());
        let at = Path::new(root).join(path.trim_start_matches('/')).join(name);
        fs::create_dir(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        let group = Group { at, used };
        let set = fs::write(group.at.join(limit), limit_bytes.to_string());
        set.map_err(|e| format!("{limit}: {e}"))?;
        Ok(group)
    }

    /// What a process is to [enter].
    pub fn path(&self) -> &str {
        self.at.to_str().unwrap()
    }

    /// What its processes use now, in bytes.
    pub fn used_bytes(&self) -> u64 {
        fs::read_to_string(self.at.join(self.used)).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + EMPTY;
        while fs::remove_dir(&self.at).is_err() && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

/// This process goes to a group, before it takes what is to be counted there.
pub fn enter(path: &str) {
    fs::write(Path::new(path).join("cgroup.procs"), std::process::id().to_string()).unwrap();
}
