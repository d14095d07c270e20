//! The manifest: what a store is made of, as text that a person can read.
//!
//! It lies in the store's directory and again in every directory of its units, so that any of them is enough
//! to find the store. Its last line is the BLAKE3 of what stands before it: a manifest is whole, or it is
//! none.
//!
//! ```text
//! # A polyduct store. `polyduct store status` shows it.
//! version = 4
//! id = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
//! data = 4
//! parity = 1
//! stripe = 1048576
//! units = [["unit0"], ["/mnt/b/unit1"], ["unit2", "unit2-more"], ["unit3"], ["unit4"]]
//! serial = 1
//! blake3 = "…"
//! ```
//!
//! Copies may be outdated: a unit that is not there when others change keeps its own. The one with the
//! highest `serial` counts.

use super::StoreError;
use crate::volume::planted::{self, Bug};
use crate::volume::Geometry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The file's name.
pub const NAME: &str = "store.toml";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 4;
/// The longest manifest.
const LIMIT: u64 = 1 << 20;
/// The most directories of a unit.
const MAX_CHAIN: usize = 64;
/// What helps who had one.
const IF_LOST: &str = "If that was lost: each directory of its units has a copy, to be copied back as it is";
const HEAD: &str = "# A polyduct store. `polyduct store status` shows it.\n";

/// Manifests by what tells those of a store apart, and how many are the same.
type KnownManifests = BTreeMap<(u64, Vec<Vec<PathBuf>>), (u32, Manifest)>;

/// What a store is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The store's own number.
    pub id: [u8; 16],
    /// How it is cut.
    pub geometry: Geometry,
    /// The directories of each unit; relative ones count from the store's.
    pub units: Vec<Vec<PathBuf>>,
    /// How often it was changed: of several the highest counts.
    pub serial: u64,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    id: String,
    data: u32,
    parity: u32,
    stripe: u64,
    units: Vec<Vec<String>>,
    #[serde(default)]
    serial: u64,
    blake3: String,
}

impl Manifest {
    /// As text, its checksum included.
    ///
    /// # Errors
    /// [`StoreError::Manifest`]: a path is not UTF-8.
    pub fn to_text(&self) -> Result<String, StoreError> {
        let path = |path: &PathBuf| {
            path.to_str().map(str::to_owned).ok_or_else(|| StoreError::Manifest {
                store: path.display().to_string(),
                problem: "the path of a unit is not UTF-8".into(),
            })
        };
        let units = self
            .units
            .iter()
            .map(|chain| chain.iter().map(path).collect())
            .collect::<Result<Vec<Vec<_>>, _>>()?;
        let id: String = self.id.iter().map(|b| format!("{b:02x}")).collect();
        let g = self.geometry;
        let stripe = u64::from(g.chunk_blocks()) * crate::volume::BLOCK as u64;
        // Strings are quoted as JSON does it, which TOML understands.
        let units = serde_json::Value::from(units);
        let (data, parity) = (g.data(), g.parity());
        let mut body = format!(
            "{HEAD}version = {VERSION}\nid = \"{id}\"\ndata = {data}\nparity = {parity}\nstripe = \
                {stripe}\nunits = {units}\n"
        );
        // Programs that do not know it read what was never changed.
        if self.serial > 0 {
            body += &format!("serial = {}\n", self.serial);
        }
        let sum = blake3::hash(body.as_bytes());
        Ok(format!("{body}blake3 = \"{sum}\"\n"))
    }

    /// What a text says. `shown` is its path, for errors.
    ///
    /// # Errors
    /// [`StoreError::Manifest`] with what is wrong with it.
    pub fn parse(shown: &str, text: &str) -> Result<Manifest, StoreError> {
        let bad = |problem: String| StoreError::Manifest { store: shown.to_owned(), problem };
        let body = text.trim_end().rsplit_once('\n').map(|(body, _)| body).unwrap_or_default();
        let read: Text =
            toml::from_str(text).map_err(|e| bad(format!("not a manifest of a store: {}", e.message())))?;
        if read.version != VERSION {
            return Err(bad(format!(
                "a store of version {}; this program reads and writes version {VERSION} only, and nothing converts \
                 one into the other: copy what it holds by a program of its own version",
                read.version
            )));
        }
        if blake3::hash(format!("{body}\n").as_bytes()).to_string() != read.blake3 {
            return Err(bad("damaged, or changed by hand: its checksum is of another text".into()));
        }
        let geometry = Geometry::new(read.data, read.parity, read.stripe).map_err(|e| bad(e.to_string()))?;
        let id = id_of(&read.id)
            .ok_or_else(|| bad(format!("id: {:?} is not 32 hexadecimal digits", cut(&read.id))))?;
        if read.units.len() != geometry.units() as usize {
            let found = read.units.len();
            return Err(bad(format!("it names {found} units, and data and parity are {}", geometry.units())));
        }
        for (unit, chain) in read.units.iter().enumerate() {
            if chain.is_empty() || chain.len() > MAX_CHAIN {
                return Err(bad(format!(
                    "unit {unit} has {} directories; expected 1 to {MAX_CHAIN}",
                    chain.len()
                )));
            }
            if let Some(path) = chain.iter().find(|p| p.is_empty() || p.contains('\0')) {
                return Err(bad(format!("unit {unit}: {path:?} is no path")));
            }
        }
        let units =
            read.units.into_iter().map(|chain| chain.into_iter().map(PathBuf::from).collect()).collect();
        Ok(Manifest { id, geometry, units, serial: read.serial })
    }

    /// The manifest of the store in `dir`.
    ///
    /// # Errors
    /// [`StoreError::NoStore`], [`StoreError::Manifest`], [`StoreError::System`].
    pub fn read(dir: &Path) -> Result<Manifest, StoreError> {
        use std::io::Read;
        let path = dir.join(NAME);
        let shown = path.display().to_string();
        let fail = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => {
                let problem = format!("no store: it has no {NAME}. {IF_LOST}");
                StoreError::NoStore { store: dir.display().to_string(), problem }
            }
            std::io::ErrorKind::InvalidData => {
                StoreError::Manifest { store: shown.clone(), problem: "damaged: it is not UTF-8".into() }
            }
            _ => StoreError::sys(&shown, "read", errno(&e)),
        };
        let file = std::fs::File::open(&path).map_err(fail)?;
        let mut text = String::new();
        file.take(LIMIT + 1).read_to_string(&mut text).map_err(fail)?;
        if text.len() as u64 > LIMIT {
            let problem = format!("longer than {LIMIT} bytes: no manifest");
            return Err(StoreError::Manifest { store: shown, problem });
        }
        Manifest::parse(&shown, &text)
    }

    /// Writes it into a directory, in place of what is there, durably.
    ///
    /// # Errors
    /// [`StoreError::System`], [`StoreError::Os`].
    pub fn write(&self, dir: &Path) -> Result<(), StoreError> {
        use std::io::Write;
        use std::os::fd::AsFd;
        let shown = dir.join(NAME).display().to_string();
        let sys = |e: std::io::Error| StoreError::sys(&shown, "write", errno(&e));
        let text = self.to_text()?;
        let fd = polyduct_os::dir::open_dir(dir).map_err(StoreError::os(&shown))?;
        // Beside it, and under its name when it is whole.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let nth = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let passing = dir.join(format!(".{NAME}.{}.{nth}", std::process::id()));
        let written = std::fs::File::create(&passing).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if planted::is_planted(Bug::ManifestFirst) {
                return Ok(());
            }
            file.sync_all()
        });
        let named = written.and_then(|()| std::fs::rename(&passing, dir.join(NAME)));
        if named.is_err() {
            let _ = std::fs::remove_file(&passing);
        }
        named.map_err(sys)?;
        if planted::is_planted(Bug::ManifestNotNamed) {
            return Ok(());
        }
        rustix::io::retry_on_intr(|| rustix::fs::fsync(fd.as_fd()))
            .map_err(|e| StoreError::sys(&shown, "fsync its directory", e))
    }

    /// Whether the other is of the same store, at any time.
    pub(super) fn is_of_same(&self, other: &Manifest) -> bool {
        self.id == other.id && self.geometry == other.geometry
    }

    /// The newest of these and of those that lie where these say that units are; of several as new ones that
    /// which most have.
    pub(super) fn newest(store: &Path, known: impl IntoIterator<Item = Manifest>) -> Option<Manifest> {
        let mut left: Vec<Manifest> = known.into_iter().collect();
        let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
        let mut told = KnownManifests::new();
        while let Some(manifest) = left.pop() {
            let dirs = (0..manifest.geometry.units()).flat_map(|unit| manifest.dirs(store, unit));
            let new = dirs.filter(|dir| seen.insert(dir.clone()));
            let there = new.filter_map(|dir| Manifest::read(&dir).ok());
            left.extend(there.filter(|other| other.is_of_same(&manifest)));
            told.entry((manifest.serial, manifest.units.clone())).or_insert((0, manifest)).0 += 1;
        }
        let newest = told.into_values().max_by_key(|(count, manifest)| (manifest.serial, *count));
        newest.map(|(_, manifest)| manifest)
    }

    /// The directories of a unit, from the store's.
    pub fn dirs(&self, store: &Path, unit: u32) -> Vec<PathBuf> {
        self.units.get(unit as usize).into_iter().flatten().map(|dir| store.join(dir)).collect()
    }

    /// Of where the units are: of two that are not the same it is not either.
    ///
    /// # Errors
    /// As [`to_text`](Manifest::to_text).
    pub(super) fn places(&self) -> Result<[u8; 32], StoreError> {
        Ok(*blake3::hash(self.to_text()?.as_bytes()).as_bytes())
    }

    /// Whether a unit may be in the directories that are new for it: readers of this manifest take them for
    /// paths, and none is, lies in or holds another directory of the store.
    ///
    /// # Errors
    /// [`StoreError::Manifest`], [`StoreError::Bad`].
    pub fn check_moved(&self, store: &Path, shown: &str, unit: u32) -> Result<(), StoreError> {
        Manifest::parse(shown, &self.to_text()?)?;
        let others = (0..self.geometry.units()).filter(|&other| other != unit);
        let mut used: Vec<PathBuf> = others.flat_map(|other| self.dirs(store, other)).collect();
        for dir in self.dirs(store, unit) {
            let here = place_of(&dir);
            let meets = |other: &&PathBuf| {
                let there = place_of(other);
                here.starts_with(&there) || there.starts_with(&here)
            };
            if let Some(other) = used.iter().find(meets) {
                return Err(StoreError::Bad {
                    store: shown.to_owned(),
                    what: format!("a directory of unit {unit}"),
                    found: dir.display().to_string(),
                    expected: format!("one apart from {}, which the store uses", other.display()),
                });
            }
            used.push(dir);
        }
        Ok(())
    }
}

/// Where a directory is, whatever links lead there, or will be once it is made.
pub(super) fn place_of(dir: &Path) -> PathBuf {
    let made = dir.ancestors().find_map(|there| Some((there, std::fs::canonicalize(there).ok()?)));
    made.map_or(dir.to_owned(), |(there, place)| place.join(dir.strip_prefix(there).unwrap_or(dir)))
}

/// Whether what could not be read is to be looked for elsewhere: it is damaged or gone.
pub(super) fn is_lost(error: &StoreError) -> bool {
    match error {
        StoreError::NoStore { .. } | StoreError::Manifest { .. } => true,
        StoreError::System { errno, .. } => *errno == polyduct_os::Errno::IO,
        _ => false,
    }
}

/// Whether a file was to become a manifest, and whoever wrote it died.
pub(super) fn is_passing(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(format!(".{NAME}.").as_bytes())
}

fn id_of(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(id)
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The number of an error of the standard library.
pub(super) fn errno(e: &std::io::Error) -> polyduct_os::Errno {
    e.raw_os_error().map_or(polyduct_os::Errno::IO, polyduct_os::Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let units = [&["a"][..], &["/b \"quoted\"", "c\\d"], &["ünit\n2"]];
        Manifest {
            id: std::array::from_fn(|i| i as u8 * 17),
            geometry: Geometry::new(2, 1, 1 << 20).unwrap(),
            units: units.map(|chain| chain.iter().map(PathBuf::from).collect()).to_vec(),
            serial: 0,
        }
    }

    #[test]
    fn what_is_printed_is_read_and_every_changed_byte_is_found() {
        let changed = Manifest { serial: 7, ..manifest() };
        assert_eq!(Manifest::parse("x", &changed.to_text().unwrap()).unwrap(), changed);
        let text = manifest().to_text().unwrap();
        assert_eq!(Manifest::parse("x", &text).unwrap(), manifest());
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            assert!(Manifest::parse("x", &changed).is_err(), "byte {at}");
        }
        for len in 0..text.len() - 1 {
            assert!(text.get(..len).is_none_or(|part| Manifest::parse("x", part).is_err()), "{len}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_words() {
        let sealed = |body: &str| format!("{body}blake3 = \"{}\"\n", blake3::hash(body.as_bytes()));
        let id = "00112233445566778899aabbccddeeff";
        let body = |version: u32, id: &str, data: u32, units: &str| {
            format!(
                "version = {version}\nid = \"{id}\"\ndata = {data}\nparity = 0\nstripe = 4096\nunits = \
                {units}\n"
            )
        };
        for (text, says) in [
            (String::new(), "not a manifest"),
            (
                sealed(&body(3, id, 1, "[[\"a\"]]")),
                "a store of version 3; this program reads and writes version 4 only",
            ),
            (sealed(&body(VERSION, "xyz", 1, "[[\"a\"]]")), "32 hexadecimal"),
            (sealed(&body(VERSION, id, 2, "[[\"a\"]]")), "names 1 units"),
            (sealed(&body(VERSION, id, 0, "[]")), "data units"),
            (sealed(&body(VERSION, id, 1, "[[]]")), "0 directories"),
            (sealed(&body(VERSION, id, 1, "[[\"\"]]")), "no path"),
            (sealed(&format!("{}more = 1\n", body(VERSION, id, 1, "[[\"a\"]]"))), "not a manifest"),
        ] {
            let error = Manifest::parse("x", &text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
