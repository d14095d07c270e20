//! A control group in which some devices have a limit.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the groups of version 1's controller lie.
const VERSION_1: &str = "/sys/fs/cgroup/blkio";
/// Where those of version 2 may lie.
const VERSION_2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A group that this process is in, with all that it starts. It goes when dropped, and we go back to where we
/// were.
pub(super) struct Group {
    dir: PathBuf,
    before: PathBuf,
    /// Where the controller had to be switched on.
    switched: Option<PathBuf>,
}

impl Group {
    /// Makes a group whose members read and write each device with `rate` bytes a second at most, and joins
    /// it.
    pub(super) fn join(devices: &[(u32, u32)], rate: u64) -> Result<Group, String> {
        let name = format!("polyduct-bench-{}", std::process::id());
        let first = Path::new(VERSION_1);
        let has_io = |dir: &&Path| {
            std::fs::read_to_string(dir.join("cgroup.controllers"))
                .is_ok_and(|all| all.split_whitespace().any(|c| c == "io"))
        };
        let mut switched = None;
        let (base, old) = if let Some(base) = VERSION_2.map(Path::new).iter().copied().find(|b| has_io(b)) {
            let control = base.join("cgroup.subtree_control");
            let on =
                std::fs::read_to_string(&control).is_ok_and(|on| on.split_whitespace().any(|c| c == "io"));
            if !on {
                put(&control, "+io")?;
                switched = Some(control);
            }
            (base, false)
        } else if first.join("cgroup.procs").exists() {
            (first, true)
        } else {
            return Err("no control group limits disks here".into());
        };
        // From here on the group's end undoes what was done.
        let group = Group { dir: base.join(name), before: base.join(ours(old)), switched };
        std::fs::create_dir(&group.dir).map_err(|e| format!("{}: {e}", group.dir.display()))?;
        for (major, minor) in devices {
            if old {
                for way in ["read", "write"] {
                    let file = group.dir.join(format!("blkio.throttle.{way}_bps_device"));
                    put(&file, &format!("{major}:{minor} {rate}"))?;
                }
            } else {
                let limit = format!("{major}:{minor} rbps={rate} wbps={rate}");
                put(&group.dir.join("io.max"), &limit)?;
            }
        }
        put(&group.dir.join("cgroup.procs"), &std::process::id().to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let us = std::process::id().to_string();
        let base = self.dir.parent().unwrap_or(&self.dir);
        let _ = put(&self.before.join("cgroup.procs"), &us).or_else(|_| put(&base.join("cgroup.procs"), &us));
        // Processes that have just ended may still count.
        let end = Instant::now() + Duration::from_secs(2);
        while std::fs::remove_dir(&self.dir).is_err() && self.dir.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(control) = &self.switched {
            let _ = put(control, "-io");
        }
    }
}

/// The group that we are in, relative to where the groups lie.
fn ours(old: bool) -> PathBuf {
    let all = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = all.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is = if old { controllers.split(',').any(|c| c == "blkio") } else { controllers.is_empty() };
        is.then(|| path.trim_start_matches('/').to_owned())
    });
    path.unwrap_or_default().into()
}

/// Says something to the kernel.
fn put(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}
