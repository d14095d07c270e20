//! Stores over disks that are each held to a rate: how bandwidth grows with their number.
//!
//! A disk is a file system in a file, on a loop device whose rate a control group limits. One process
//! measures, in a mount namespace of its own: the mounts go with it, the loop devices with the mounts, and
//! the files have no names as soon as they are mounted. What is left to remove is a folder and a group.

mod group;

use super::case::{Case, Measured, Rounds, Target};
use super::disk::{Bench, Scratch, MIB, ROWS, STRIPE};
use super::unit::Role;
use crate::text::print_json;
use clap::Args;
use group::Group;
use polyduct_store::disk::{Create, Store};
use rustix::process::{geteuid, set_parent_process_death_signal, Signal};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Bytes a second that a disk may read, and as many to write.
const RATE: u64 = 200_000_000;
/// MiB of a dataset for each disk.
const SHARE: u64 = 512;
/// Processes, for any number of disks.
const PROCESSES: u32 = 4;

/// `bench throttled`.
#[derive(Args)]
pub struct ThrottledArgs {
    /// Where the files go.
    dir: PathBuf,
    /// How many disks.
    units: u32,
}

/// What one process found: value and baseline, in GB/s.
#[derive(Serialize, Deserialize)]
enum Found {
    Rates {
        write: (f64, f64),
        read: (f64, f64),
    },
    /// The machine has no such disks.
    Missing(String),
    Failed(String),
}

/// The cases.
pub fn cases(rounds: Rounds, dir: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    // Both ways are measured together, and told apart.
    for way in ["write", "read"] {
        for (units, baseline) in [(2, "2 times 1 unit"), (4, "4 times 1 unit"), (8, "8 times 1 unit")] {
            let dir = dir.to_owned();
            cases.push(Case {
                name: format!("{way}, {units} units of 200 MB/s each, 4 processes"),
                unit: "GB/s",
                baseline,
                target: Target::RatioAtLeast(0.9),
                run: Box::new(move || {
                    let mut all = Vec::new();
                    for _ in 0..rounds.0 {
                        match apart(&dir, units)? {
                            Found::Rates { write, read } => {
                                all.push(if way == "read" { read } else { write })
                            }
                            Found::Missing(why) => return Ok(Measured::Missing(why)),
                            Found::Failed(why) => return Err(why),
                        }
                    }
                    Ok(Measured::Rounds(all))
                }),
            });
        }
    }
    cases
}

/// Measures in a process of its own.
fn apart(dir: &Path, units: u32) -> Result<Found, String> {
    if !geteuid().is_root() {
        return Ok(Found::Missing("throttled disks need root".into()));
    }
    let out = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().map_err(|e| e.to_string())?)
        .args(["throttled"])
        .arg(dir)
        .arg(units.to_string())
        .output();
    let out = match out {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Ok(Found::Missing("unshare is not there".into()))
        }
        out => out.map_err(|e| format!("unshare: {e}"))?,
    };
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().last().unwrap_or_default();
    match serde_json::from_slice(&out.stdout) {
        // What a process of the measurement said of itself.
        Ok(Found::Failed(why)) => Ok(Found::Failed(format!("{why}: {said}"))),
        Ok(found) => Ok(found),
        Err(_) if said.starts_with("unshare:") => Ok(Found::Missing(said.into())),
        Err(e) => Err(format!("bench throttled: {}: {e}: {said}", out.status)),
    }
}

/// Carries out `polyduct-bench throttled`.
pub fn throttled(args: &ThrottledArgs) -> u8 {
    let found = match Disks::new(&args.dir, args.units) {
        Ok(disks) => measure(&disks, args.units).unwrap_or_else(Found::Failed),
        Err(why) => Found::Missing(why),
    };
    u8::from(!print_json(&found))
}

/// One unit alone, and all of them.
fn measure(disks: &Disks, units: u32) -> Result<Found, String> {
    let one = disks.both(1)?;
    // Room for all, and new files on every disk.
    std::fs::remove_dir_all(disks.unit(0)).map_err(|e| e.to_string())?;
    if one.0.max(one.1) > RATE as f64 / 1e9 * 1.25 {
        let why =
            format!("the limit of 200 MB/s is not kept: one unit has {:.2} and {:.2} GB/s", one.0, one.1);
        return Ok(Found::Missing(why));
    }
    let all = disks.both(units)?;
    let linear = |rate: f64| rate * f64::from(units);
    Ok(Found::Rates { write: (all.0, linear(one.0)), read: (all.1, linear(one.1)) })
}

/// Mounted disks, each held to its rate for us and for the processes that we start.
struct Disks {
    // In the order in which they go.
    _group: Group,
    mounts: Vec<Mount>,
    scratch: Scratch,
    ended: Arc<AtomicBool>,
}

impl Disks {
    fn new(dir: &Path, units: u32) -> Result<Disks, String> {
        // A signal ends those that we start, or us at the next step: never before all is removed.
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, ended.clone()).map_err(|e| e.to_string())?;
        }
        set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| e.to_string())?;
        // Absolute: units that are not count from the store.
        let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
        let scratch = Scratch::new(&dir)?;
        let mut mounts = Vec::new();
        for unit in 0..units {
            living(&ended)?;
            mounts.push(Mount::new(&scratch.0, unit)?);
        }
        let devices: Vec<_> = mounts.iter().map(|m| m.device).collect();
        let group = Group::join(&devices, RATE)?;
        Ok(Disks { _group: group, mounts, scratch, ended })
    }

    fn unit(&self, unit: usize) -> PathBuf {
        self.mounts[unit].dir.join("unit")
    }

    /// GB/s of both ways in a new store over the first disks.
    fn both(&self, units: u32) -> Result<(f64, f64), String> {
        let store = self.scratch.0.join(format!("store-{units}"));
        let dirs = (0..units as usize).map(|unit| vec![self.unit(unit)]).collect();
        Store::create(&store, &Create { units: dirs, parity: 0, stripe: STRIPE })
            .map_err(|e| e.to_string())?;
        let bench = Bench { dir: self.scratch.0.clone(), mib: SHARE * u64::from(units) };
        let rate = |role| -> Result<f64, String> {
            living(&self.ended)?;
            Ok(bench.bytes() / bench.seconds(&store, role, ROWS, PROCESSES)? / 1e9)
        };
        Ok((rate(Role::DiskWrite)?, rate(Role::DiskRead)?))
    }
}

fn living(ended: &AtomicBool) -> Result<(), String> {
    if ended.load(Ordering::Relaxed) {
        return Err("ended by a signal".into());
    }
    Ok(())
}

/// A file system in a file, mounted.
struct Mount {
    dir: PathBuf,
    /// Major and minor number of its loop device.
    device: (u32, u32),
}

impl Mount {
    fn new(scratch: &Path, unit: u32) -> Result<Mount, String> {
        let (file, dir) = (scratch.join(format!("disk{unit}")), scratch.join(format!("mount{unit}")));
        let sized = File::create(&file).and_then(|f| f.set_len((2 * SHARE) * MIB));
        sized.map_err(|e| format!("{}: {e}", file.display()))?;
        tool(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&file))?;
        std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        // The device is freed with its mount.
        tool(Command::new("mount").args(["-o", "loop,noatime"]).arg(&file).arg(&dir))?;
        let mut mount = Mount { dir, device: (0, 0) };
        std::fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let number = std::fs::metadata(&mount.dir).map_err(|e| e.to_string())?.dev();
        mount.device = (rustix::fs::major(number), rustix::fs::minor(number));
        let (major, minor) = mount.device;
        let name =
            std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).map_err(|e| e.to_string())?;
        let name = name.file_name().filter(|n| n.as_encoded_bytes().starts_with(b"loop"));
        let name = name.ok_or_else(|| format!("{} is on no loop device", mount.dir.display()))?;
        // To the disk and not into the cache, where the disk can; the limit holds either way.
        let _ = tool(Command::new("losetup").arg("--direct-io=on").arg(Path::new("/dev").join(name)));
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The second one waits for nobody who still looks into it.
        let _ = tool(Command::new("umount").arg(&self.dir))
            .or_else(|_| tool(Command::new("umount").arg("--lazy").arg(&self.dir)));
    }
}

/// Runs a program of the system; gives what it complained of.
fn tool(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("{name}: {}: {}", out.status, said.trim().lines().next().unwrap_or_default()))
}
