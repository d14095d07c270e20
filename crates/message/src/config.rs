//! Sizes and thresholds: defaults, a file, the environment, and what the machine gives.
//!
//! The file is TOML: `$POLYDUCT_CONFIG`, or `polyduct/polyduct.toml` in the user's configuration folder. Each
//! setting of its table `[message]` can also be given in the environment, in capitals after
//! `POLYDUCT_MESSAGE_`, which goes before the file. `polyduct doctor` shows what is in force and where each
//! comes from (SCI-MPICH had such a file, and a start option that showed the result).

use crate::error::ConfigError;
use crate::link::shm::Sizes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What rings may take of the memory that the machine would give, at most: one part in this many.
const SHARE: u64 = 4;
/// Rings may grow by so much before they are made smaller from the start.
const LEAST_GROWTH: u64 = 1 << 20;

/// Where a value in force comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    #[default]
    Default,
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
    /// Made smaller, to fit into the memory that the machine gives.
    Shrunk {
        /// What was configured.
        from: u64,
    },
}

/// A setting: bytes, a time, or a switch (from 0 to 1), in force for a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name in the file.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// The value in force: bytes, milliseconds of a time, or 1 for a switch that is on.
    pub bytes: u64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// Where the value comes from.
    pub origin: Origin,
}

impl Setting {
    /// Writes one of its values: a switch's as it is, others with their unit.
    pub fn show(&self, value: u64) -> String {
        match self.max {
            1 => value.to_string(),
            _ if self.is_time() => show_millis(value),
            _ => show_bytes(value),
        }
    }

    /// Reads a value as it may stand in the file: what [`show`](Setting::show) writes, and other units.
    pub fn read(&self, words: &str) -> Option<u64> {
        if self.is_time() {
            parse_millis(words)
        } else {
            parse_bytes(words)
        }
    }

    fn is_time(&self) -> bool {
        self.name == "silence"
    }
}

/// All settings of the message layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    settings: BTreeMap<&'static str, Setting>,
}

/// Name, meaning, default, smallest, largest.
const SETTINGS: &[(&str, &str, u64, u64, u64)] = &[
    ("ring", "ring of low priority between two units, each way", 4 << 20, 16 << 10, 64 << 20),
    ("express_ring", "ring of high priority between two units, each way", 64 << 10, 4 << 10, 16 << 20),
    (
        "rings",
        "memory of all rings on which a unit sends: they begin small and grow with use",
        28 << 20,
        0,
        1 << 40,
    ),
    ("whole", "messages up to this size go in one piece, read where they lie", 8 << 10, 256, 1 << 20),
    ("first_fragment", "first fragment of a bulk message", 8 << 10, 256, 1 << 20),
    ("max_fragment", "largest fragment of a bulk message", 64 << 10, 256, 4 << 20),
    // Measured: two copies by two processors at once go 2 to 5 times as fast as one through the kernel's page
    // tables. Users who would rather spare the ring's memory, or the sender's processor, lower it.
    (
        "pull_from",
        "payloads from this size on are pulled from the sender's memory",
        1 << 48,
        4 << 10,
        1 << 48,
    ),
    ("message", "longest message", 16 << 30, 1 << 20, 1 << 48),
    (
        "inbox",
        "messages received and not yet taken, in all, those still coming included",
        256 << 20,
        64 << 10,
        1 << 40,
    ),
    // Across hosts. The kernel's path is the larger part of a fragment's cost there, so TCP has longer ones.
    (
        "queue",
        "messages to a unit of another host that are not there yet, of each priority",
        64 << 20,
        64 << 10,
        1 << 40,
    ),
    ("far_first_fragment", "first fragment of a bulk message to another host", 4 << 10, 256, 1 << 20),
    ("tcp_max_fragment", "largest fragment of a bulk message by TCP", 128 << 10, 256, 4 << 20),
    ("udp_max_fragment", "largest fragment of a bulk message by datagrams", 64 << 10, 256, 4 << 20),
    ("inline", "payloads to another host up to this size are copied beside their header", 256, 0, 64 << 10),
    // Of MPI programs: see the provider for libfabric.
    (
        "eager",
        "messages of MPI up to this size go at once, longer ones when they are wanted",
        8 << 10,
        0,
        8 << 10,
    ),
    (
        "unexpected",
        "bytes of a rank's messages that another keeps of MPI, until the next go when they are wanted",
        4 << 20,
        8 << 10,
        4 << 20,
    ),
    // Measured: from 512 KiB on both at once are faster than the receiver alone, but a sender that has work
    // of its own behind a message of 1 MiB is held up by half of it.
    (
        "both_from",
        "messages of MPI from this size on are copied by both ranks, where both have time",
        2 << 20,
        64 << 10,
        1 << 48,
    ),
    (
        "silence",
        "a host that says nothing for so long is given up, in domains and pipes; a closed connection is \
            noticed at once",
        10_000,
        500,
        86_400_000,
    ),
    // What every path carries.
    ("datagram", "a datagram to another machine, its header included", 1200, 512, 65_000),
    // To measure or test a network on one host.
    ("near", "across hosts: 1, units of one host share memory; 0, they use the network", 1, 0, 1),
];

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    message: BTreeMap<String, toml::Value>,
}

impl Default for Config {
    fn default() -> Self {
        let setting = |&(name, about, bytes, min, max)| {
            (name, Setting { name, about, bytes, min, max, origin: Origin::Default })
        };
        Config { settings: SETTINGS.iter().map(setting).collect() }
    }
}

impl Config {
    /// What holds in this process: defaults, then the file, then the environment.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file or the variable.
    pub fn load() -> Result<Config, ConfigError> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let given = var("POLYDUCT_CONFIG").map(PathBuf::from);
        let folder =
            var("XDG_CONFIG_HOME").map(PathBuf::from).or(var("HOME").map(|h| Path::new(&h).join(".config")));
        let file = match (&given, folder) {
            (Some(path), _) => Some(path.clone()),
            (None, folder) => folder.map(|f| f.join("polyduct/polyduct.toml")),
        };
        let text = match file.as_ref().map(std::fs::read_to_string) {
            Some(Ok(text)) => Some(text),
            // A file that nobody asked for need not be there.
            Some(Err(e)) if given.is_some() || e.kind() != std::io::ErrorKind::NotFound => {
                let path = file.unwrap_or_default();
                return Err(ConfigError::Unreadable { path, error: e.to_string() });
            }
            _ => None,
        };
        check_names(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
        let file = file.zip(text);
        Config::from_sources(file.as_ref().map(|(path, text)| (path.as_path(), &text[..])), var)
    }

    /// The same from a given file's path and text, and given variables.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file or the variable.
    pub fn from_sources(
        file: Option<(&Path, &str)>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        if let Some((path, text)) = file {
            let place = || path.display().to_string();
            let parsed: File = toml::from_str(text).map_err(|e| ConfigError::Unreadable {
                path: path.to_owned(),
                error: e.message().to_owned(),
            })?;
            for (name, value) in parsed.message {
                let words = match &value {
                    toml::Value::Integer(n) => n.to_string(),
                    toml::Value::String(s) => s.clone(),
                    other => other.to_string(),
                };
                config.set(&name, &words, &place(), Origin::File(path.to_owned()))?;
            }
        }
        for (name, ..) in SETTINGS {
            let variable_name = format!("POLYDUCT_MESSAGE_{}", name.to_uppercase());
            if let Some(words) = variable(&variable_name) {
                config.set(name, &words, &variable_name, Origin::Variable(variable_name.clone()))?;
            }
        }
        Ok(config)
    }

    fn set(&mut self, name: &str, words: &str, place: &str, origin: Origin) -> Result<(), ConfigError> {
        let Some(setting) = self.settings.get_mut(name) else {
            return Err(unknown(place.to_owned(), name.to_owned()));
        };
        match setting.read(words).filter(|b| (setting.min..=setting.max).contains(b)) {
            Some(bytes) => {
                (setting.bytes, setting.origin) = (bytes, origin);
                Ok(())
            }
            None => Err(ConfigError::BadValue {
                place: place.to_owned(),
                name: name.to_owned(),
                found: words.to_owned(),
                min: setting.show(setting.min),
                max: setting.show(setting.max),
            }),
        }
    }

    /// The value of a setting: bytes, or 1 for a switch that is on.
    ///
    /// # Panics
    /// For a name that is none.
    pub fn bytes(&self, name: &str) -> u64 {
        self.settings[name].bytes
    }

    /// The value of a setting that is a time.
    ///
    /// # Panics
    /// For a name that is none.
    pub fn time(&self, name: &str) -> Duration {
        Duration::from_millis(self.bytes(name))
    }

    /// All settings, by name.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.settings.values()
    }

    /// The sizes of a link between two units of a host, for a unit that has so many `partners` there.
    pub fn link_sizes(&self, partners: u64) -> Sizes {
        let bytes = |name| u32::try_from(self.bytes(name)).unwrap_or(u32::MAX);
        let power = |n: u32| 1 << (31 - n.clamp(1024, 1 << 30).leading_zeros());
        // Lines that fit into a processor's own cache are the faster ones for short messages.
        let lines =
            |bytes: u32| (bytes / 512).min(1024).max(bytes / 2048).next_power_of_two().clamp(8, 1 << 20);
        let (high_bytes, low_bytes) = (power(bytes("express_ring")), power(bytes("ring")));
        let mut sizes = Sizes {
            high_lines: lines(high_bytes),
            low_lines: lines(low_bytes),
            high_bytes,
            low_bytes,
            whole_bytes: bytes("whole"),
            first_fragment: bytes("first_fragment"),
            max_fragment: bytes("max_fragment"),
            grow_bytes: 0,
        };
        let first = partners.saturating_mul(sizes.first_bytes() / 2);
        sizes.grow_bytes = self.bytes("rings").saturating_sub(first);
        sizes
    }

    /// Bytes of the rings of a host's units, each of which has so many partners.
    pub fn needed(&self, partners: u64) -> u64 {
        let first = partners.saturating_mul(self.link_sizes(partners).first_bytes() / 2);
        partners.saturating_add(1).saturating_mul(first.max(self.bytes("rings")))
    }

    /// Descriptors that a unit with so many partners on its host takes, at most: for each the segment of
    /// their link, its bell, and its process twice, to see it end and to read its memory; and what else a
    /// program has open.
    pub fn descriptors(partners: u64) -> u64 {
        partners.saturating_mul(4).saturating_add(64)
    }

    /// Makes the rings smaller until those of a host's units, each with all `partners`, fit into a quarter of
    /// `obtainable` bytes: first what they may grow by, then what they take at first.
    ///
    /// # Errors
    /// [`ConfigError::TooBig`] when the smallest do not.
    pub fn fit(&mut self, partners: u64, obtainable: u64) -> Result<(), ConfigError> {
        let allowed = obtainable / SHARE;
        loop {
            let needed = self.needed(partners);
            if needed <= allowed {
                return Ok(());
            }
            let mut shrunk = false;
            let names: &[&str] = if self.bytes("rings") > LEAST_GROWTH {
                &["rings"]
            } else {
                &["ring", "express_ring", "rings"]
            };
            for &name in names {
                let Some(s) = self.settings.get_mut(name).filter(|s| s.bytes > s.min) else { continue };
                let from = match s.origin {
                    Origin::Shrunk { from } => from,
                    _ => s.bytes,
                };
                (s.bytes, s.origin, shrunk) = ((s.bytes / 2).max(s.min), Origin::Shrunk { from }, true);
            }
            if !shrunk {
                return Err(ConfigError::TooBig { partners, needed, allowed });
            }
        }
    }
}

/// Whether all variables that are named as settings are are some: one that is misspelt would have no effect.
fn check_names(variables: impl Iterator<Item = String>) -> Result<(), ConfigError> {
    for place in variables {
        let Some(name) = place.strip_prefix("POLYDUCT_MESSAGE_").map(str::to_lowercase) else { continue };
        if !SETTINGS.iter().any(|setting| setting.0 == name) {
            return Err(unknown(place, name));
        }
    }
    Ok(())
}

fn unknown(place: String, name: String) -> ConfigError {
    let known = SETTINGS.iter().map(|s| s.0).collect::<Vec<_>>().join(", ");
    ConfigError::Unknown { place, name, known }
}

/// Reads a number of bytes: `65536`, `64KiB`, `1 MiB`.
pub fn parse_bytes(words: &str) -> Option<u64> {
    let words = words.trim();
    let digits = words.find(|c: char| !c.is_ascii_digit()).unwrap_or(words.len());
    let (number, unit) = words.split_at(digits);
    let factor: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Writes a number of bytes with the largest unit that divides it.
pub fn show_bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

/// Reads a time: `10s`, `1500ms`, `2 min`; a bare number counts milliseconds.
fn parse_millis(words: &str) -> Option<u64> {
    let words = words.trim();
    let digits = words.find(|c: char| !c.is_ascii_digit()).unwrap_or(words.len());
    let (number, unit) = words.split_at(digits);
    let factor: u64 = match unit.trim_start() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Writes milliseconds with the largest unit that divides them.
fn show_millis(millis: u64) -> String {
    match millis {
        0 => "0s".into(),
        m if m % 60_000 == 0 => format!("{}min", m / 60_000),
        m if m % 1000 == 0 => format!("{}s", m / 1000),
        m => format!("{m}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let path = Path::new("p.toml");
        let variable =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Config::from_sources(Some((path, file)), variable)
    }

    #[test]
    fn the_environment_goes_before_the_file_and_that_before_defaults() {
        let config = load(
            "[message]\nring = '1 MiB'\npull_from = 65536\n[other]\nx = 1",
            &[("POLYDUCT_MESSAGE_RING", "2MiB"), ("POLYDUCT_MESSAGE_OTHER", "x")],
        )
        .unwrap();
        let of =
            |name| config.settings().find(|s| s.name == name).map(|s| (s.bytes, s.origin.clone())).unwrap();
        assert_eq!(of("ring"), (2 << 20, Origin::Variable("POLYDUCT_MESSAGE_RING".into())));
        assert_eq!(of("pull_from"), (65536, Origin::File("p.toml".into())));
        assert_eq!(of("max_fragment"), (65536, Origin::Default));
    }

    #[test]
    fn ranks_agree_on_the_most_that_is_sent_at_once_and_kept() {
        let config = Config::default();
        let most = |name| config.settings().find(|s| s.name == name).map(|s| s.max);
        assert_eq!(most("eager"), Some(crate::endpoint::SHORT_BYTES as u64));
        // Beyond it a rank is cut off.
        assert_eq!(most("unexpected"), Some(4 << 20));
    }

    #[test]
    fn times_have_units() {
        let silence = |words| {
            let config = load("", &[("POLYDUCT_MESSAGE_SILENCE", words)]).unwrap();
            let setting = config.settings().find(|s| s.name == "silence").unwrap().clone();
            (config.time("silence").as_millis(), setting.show(setting.bytes))
        };
        assert_eq!(Config::default().time("silence"), Duration::from_secs(10));
        for (words, millis, shown) in [
            ("3000", 3000, "3s"),
            ("90 s", 90_000, "90s"),
            ("2500ms", 2500, "2500ms"),
            ("2min", 120_000, "2min"),
        ] {
            assert_eq!(silence(words), (millis, shown.to_owned()));
        }
    }

    #[test]
    fn mistakes_are_named_where_they_stand() {
        let error = |file, variables: &[_]| load(file, variables).unwrap_err().to_string();
        assert_eq!(
            error("[message]\nrin = 5", &[]),
            "p.toml: there is no setting \"rin\"; there are ring, express_ring, rings, whole, \
                first_fragment, max_fragment, pull_from, message, inbox, queue, far_first_fragment, \
                tcp_max_fragment, udp_max_fragment, inline, eager, unexpected, both_from, silence, \
                datagram, near"
        );
        assert_eq!(
            error("[message]\nring = '5 parsecs'", &[]),
            "p.toml: ring is \"5 parsecs\"; expected 16KiB to 64MiB"
        );
        assert_eq!(
            error("", &[("POLYDUCT_MESSAGE_RING", "1")]),
            "POLYDUCT_MESSAGE_RING: ring is \"1\"; expected 16KiB to 64MiB"
        );
        assert_eq!(error("[message]\nnear = 2", &[]), "p.toml: near is \"2\"; expected 0 to 1");
        assert_eq!(
            error("", &[("POLYDUCT_MESSAGE_SILENCE", "10 MiB")]),
            "POLYDUCT_MESSAGE_SILENCE: silence is \"10 MiB\"; expected 500ms to 1440min"
        );
        assert!(error("[message", &[]).starts_with("p.toml: "));
        assert!(matches!(load("[message]\nring = [1]", &[]), Err(ConfigError::BadValue { .. })));
    }

    #[test]
    fn misspelt_variables_are_named() {
        let check = |name: &str| check_names([name.to_owned(), "PATH".to_owned()].into_iter());
        assert_eq!(check("POLYDUCT_MESSAGE_RING"), Ok(()));
        assert_eq!(check("POLYDUCT_TRUST"), Ok(()));
        let error = check("POLYDUCT_MESSAGE_RNG").unwrap_err().to_string();
        assert!(
            error.starts_with("POLYDUCT_MESSAGE_RNG: there is no setting \"rng\"; there are ring,"),
            "{error}"
        );
    }

    #[test]
    fn rings_shrink_to_what_there_is() {
        let mut config = Config::default();
        config.fit(3, 16 << 30).unwrap();
        assert_eq!(config, Config::default());
        let of = |config: &Config, name| config.settings().find(|s| s.name == name).unwrap().clone();
        // In a control group of 2 GiB.
        config.fit(31, 2 << 30).unwrap();
        assert_eq!(of(&config, "rings").origin, Origin::Shrunk { from: 28 << 20 });
        assert_eq!(of(&config, "ring").origin, Origin::Default);
        config.fit(63, 512 << 20).unwrap();
        assert!(config.needed(63) <= 128 << 20);
        assert_eq!(of(&config, "ring").origin, Origin::Shrunk { from: 4 << 20 });
        assert!(matches!(config.fit(4095, 64 << 20), Err(ConfigError::TooBig { partners: 4095, .. })));
    }

    #[test]
    fn bytes_are_read_as_they_are_shown() {
        for bytes in [0, 1, 1023, 1024, 65536, 3 << 20, (1 << 40) + 1, u64::MAX] {
            assert_eq!(parse_bytes(&show_bytes(bytes)), Some(bytes));
        }
        for bad in ["", "KiB", "1kb", "-1", "99999999999TiB", "1.5MiB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
