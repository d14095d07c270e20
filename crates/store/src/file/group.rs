//! The groups that a Zarr array is written into: how its neighbours are written down, and what a group says
//! of all arrays in it.
//!
//! A group may have the metadata of all arrays beneath it in one place ("consolidated"), and readers look
//! there alone. So whoever replaces an array makes that entry anew, and adds one for a new array. Where an
//! entry becomes wrong the group first loses it all, which makes readers look at the arrays themselves; then
//! the array gets its name, and then the group has its metadata again. However that ends in between, nobody
//! reads old metadata of new bytes.

use super::chunks;
use super::target::{Draft, Target};
use super::Options;
use crate::zarr::{Described, Surroundings, Version, ZarrError};
use crate::{json, FileError};
use polyduct_os::{clock, dir, Errno};
use polyduct_port::{PortError, PortName};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use serde_json::{Map, Value};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// The longest metadata of a group that are renewed, in bytes.
const MAX_GROUP_BYTES: usize = 256 << 20;
/// Neighbours that are looked at.
const MAX_NEIGHBOURS: usize = 10_000;
/// Groups in each other.
const MAX_DEPTH: usize = 32;
/// How long another program may take to renew a group's metadata.
const PATIENCE: Duration = Duration::from_secs(30);

/// The version that an array of this name in a directory is written in: the group's, or its own.
pub fn version(dir: &OwnedFd, name: &str) -> Version {
    let has = |path: &str| rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if has("zarr.json") {
        return Version::V3;
    }
    let own = !has(&format!("{name}/zarr.json")) && has(&format!("{name}/.zarray"));
    match has(".zgroup") || own {
        true => Version::V2,
        false => Version::V3,
    }
}

/// The groups around an array that is about to get its name. No other program renews their metadata until
/// this is dropped.
pub struct Group {
    place: Surroundings,
    levels: Vec<Level>,
}

/// A group with consolidated metadata.
struct Level {
    dir: OwnedFd,
    /// What the array is called in them.
    key: String,
    version: Version,
    document: Value,
}

impl Group {
    /// Finds out what stands where an array is written.
    ///
    /// # Errors
    /// [`FileError::BadZarr`] for metadata that are not understood and so cannot be renewed,
    /// [`PortError::Timeout`] where another program does not end doing that, [`FileError::System`].
    pub fn enter(target: &Target) -> Result<Group, FileError> {
        let version = target.version.unwrap_or_default();
        let mut levels = Vec::new();
        let mut dir = open(&target.dir, ".", target)?;
        let mut key = target.name.clone();
        for _ in 0..MAX_DEPTH {
            let has = |name: &str| rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            if !(has(file_of(version)) || version == Version::V2 && has(".zgroup")) {
                break;
            }
            lock(&dir, target)?;
            let document = read(&dir, file_of(version), target)?;
            let is_group = |d: &Value| d.get("node_type").is_some_and(|t| t == "group");
            if version == Version::V3 && !document.as_ref().is_some_and(is_group) {
                break;
            }
            let own = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()));
            let name = own.ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
            let above = open(&dir, "..", target)?;
            if let Some(document) = document {
                let level = Level { dir, key: key.clone(), version, document };
                if level.is_consolidated(target)? {
                    levels.push(level);
                }
            }
            dir = above;
            match name {
                Some(name) => key = format!("{name}/{key}"),
                None => break,
            }
        }
        let is_group = |dir: &OwnedFd| {
            [".zgroup", "zarr.json"]
                .iter()
                .any(|f| rustix::fs::statat(dir, *f, AtFlags::SYMLINK_NOFOLLOW).is_ok())
        };
        let others = if is_group(&target.dir) { others(target) } else { Vec::new() };
        let old = open(&target.dir, &target.name, target).ok().and_then(|dir| described(&dir, target));
        Ok(Group { place: Surroundings { version, name: target.name.clone(), old, others }, levels })
    }

    /// How it is written down.
    pub fn place(&self) -> &Surroundings {
        &self.place
    }

    /// What an array of these metadata changes.
    pub fn renewal(self, documents: &[(&'static str, Value)]) -> Renewal {
        let levels = self.levels.into_iter().filter_map(|level| {
            let mut after = level.document.clone();
            let all = entries(&mut after, level.version)?;
            let within = format!("{}/", level.key);
            let before = all.len();
            all.retain(|key, _| *key != level.key && !key.starts_with(&within));
            let replaces = all.len() < before;
            for (file, document) in documents {
                let key = match level.version {
                    Version::V2 => format!("{within}{file}"),
                    Version::V3 => level.key.clone(),
                };
                all.insert(key, document.clone());
            }
            (after != level.document).then_some((level, replaces, after))
        });
        Renewal { levels: levels.collect() }
    }
}

/// New metadata of groups.
pub struct Renewal {
    levels: Vec<(Level, bool, Value)>,
}

impl Renewal {
    /// Takes metadata away that will be wrong as soon as the array has its name.
    ///
    /// # Errors
    /// [`FileError::System`], [`FileError::NoSpace`].
    pub fn forget(&self, path: &str) -> Result<(), FileError> {
        for (level, ..) in self.levels.iter().filter(|(_, replaces, _)| *replaces) {
            match level.version {
                Version::V2 => {
                    dir::remove(level.dir.as_fd(), file_of(level.version)).map_err(FileError::os(path))?;
                    dir::sync(&level.dir).map_err(|e| FileError::sys(path, "fsync its group", e))?;
                }
                Version::V3 => {
                    let mut without = level.document.clone();
                    without.as_object_mut().map(|all| all.remove(CONSOLIDATED));
                    level.write(&without, path)?;
                }
            }
        }
        Ok(())
    }

    /// Gives the groups their new metadata.
    ///
    /// # Errors
    /// [`FileError::System`], [`FileError::NoSpace`]: the array is there, and its group has no metadata of
    /// all arrays any more, or none of this one.
    pub fn finish(self, path: &str) -> Result<(), FileError> {
        self.levels.iter().try_for_each(|(level, _, after)| level.write(after, path))
    }
}

const CONSOLIDATED: &str = "consolidated_metadata";

/// Where a group's metadata stand.
fn file_of(version: Version) -> &'static str {
    match version {
        Version::V2 => ".zmetadata",
        Version::V3 => "zarr.json",
    }
}

/// The metadata of all arrays.
fn entries(document: &mut Value, version: Version) -> Option<&mut Map<String, Value>> {
    let around = match version {
        Version::V2 => document,
        Version::V3 => document.get_mut(CONSOLIDATED)?,
    };
    around.get_mut("metadata")?.as_object_mut()
}

impl Level {
    /// Whether there are metadata of all arrays.
    fn is_consolidated(&self, target: &Target) -> Result<bool, FileError> {
        let (kind, found) = match (self.version, self.document.get(CONSOLIDATED)) {
            (Version::V3, None | Some(Value::Null)) => return Ok(false),
            (Version::V3, Some(all)) => ("inline".into(), all.get("kind")),
            (Version::V2, _) => (Value::from(1), self.document.get("zarr_consolidated_format")),
        };
        match found == Some(&kind) && entries(&mut self.document.clone(), self.version).is_some() {
            true => Ok(true),
            false => Err(FileError::BadPath {
                path: target.path.clone(),
                problem: "its group has metadata of all its arrays of a kind that is not known",
            }),
        }
    }

    fn write(&self, document: &Value, path: &str) -> Result<(), FileError> {
        let dir = self.dir.try_clone().map_err(|e| FileError::io(path, "duplicate a descriptor", &e))?;
        let shown = format!("{path}: its group's {}", file_of(self.version));
        Draft::write(
            Target::beneath(dir, file_of(self.version), &shown),
            format!("{document:#}\n").as_bytes(),
        )
    }
}

fn open(dir: &OwnedFd, name: &str, target: &Target) -> Result<OwnedFd, FileError> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
        .map_err(|e| FileError::sys(&target.path, "open its group", e))
}

/// Waits until no other program renews a group's metadata.
fn lock(dir: &OwnedFd, target: &Target) -> Result<(), FileError> {
    let start = clock::now();
    loop {
        match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Where there are no locks, nobody else has one.
            _ => return Ok(()),
        }
        let waited = clock::now().saturating_sub(start);
        if waited > PATIENCE {
            let what = "another program to renew the metadata of its group";
            return Err(FileError::Port(PortError::Timeout {
                port: PortName::File(target.path.clone()),
                unit: None,
                what: what.into(),
                waited,
            }));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A document in a directory; `None` where there is none.
fn read(dir: &OwnedFd, file: &'static str, target: &Target) -> Result<Option<Value>, FileError> {
    let text = chunks::document(dir, "", file, &target.path, MAX_GROUP_BYTES, &Options::default())?;
    let parse = |text: Vec<u8>| {
        json::parse(&text).map_err(|e| FileError::BadZarr {
            path: target.path.clone(),
            source: ZarrError::Syntax {
                file,
                position: json::position(&text, &e),
                problem: json::problem(&e),
            },
        })
    };
    text.map(parse).transpose()
}

/// What the array in a directory is, if one is there that is understood.
fn described(dir: &OwnedFd, target: &Target) -> Option<Described> {
    let read = |file| read(dir, file, target).ok().flatten();
    match read("zarr.json") {
        Some(document) => Described::of_v3(&document),
        None => Described::of_v2(&read(".zarray")?, read(".zattrs").as_ref()),
    }
}

/// The arrays beside one.
fn others(target: &Target) -> Vec<(String, Described)> {
    let Ok(entries) = rustix::fs::Dir::read_from(&target.dir) else { return Vec::new() };
    let arrays = entries.flatten().take(MAX_NEIGHBOURS).filter_map(|entry| {
        let name = entry.file_name().to_str().ok()?;
        let may_be = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        (may_be && name != target.name && !name.starts_with('.')).then_some(())?;
        Some((name.to_owned(), described(&open(&target.dir, name, target).ok()?, target)?))
    });
    let mut arrays: Vec<_> = arrays.collect();
    // What is taken from the first of them must not depend on the order in which the system lists them.
    arrays.sort_by(|a, b| a.0.cmp(&b.0));
    arrays
}
