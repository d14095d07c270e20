//! Writes the history of a store as text: `events.log` in its directory.
//!
//! One line for each event: when, and what. It is for people, and for their tools; the store itself never
//! reads more than its end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The file's name.
pub const NAME: &str = "events.log";
/// Bytes after which it becomes `events.log.1`, and begins anew.
const LIMIT: u64 = 16 << 20;
/// Bytes of its end in which the same words are not said again.
const END: u64 = 4 << 10;

/// Adds a line. What cannot be written is lost: nothing depends on it.
pub fn note(dir: &Path, what: &str) {
    let _ = append(dir, what);
}

/// Adds a line, unless the last ones say the same.
pub fn note_once(dir: &Path, what: &str) {
    if !end(&dir.join(NAME)).is_ok_and(|end| end.contains(what)) {
        note(dir, what);
    }
}

fn append(dir: &Path, what: &str) -> std::io::Result<()> {
    let path = dir.join(NAME);
    if std::fs::metadata(&path).is_ok_and(|m| m.len() > LIMIT) {
        std::fs::rename(&path, dir.join(format!("{NAME}.1")))?;
    }
    let when = stamp(SystemTime::now());
    // In one call: several processes may write at once.
    let line = format!("{when} {}\n", what.replace(['\n', '\r'], " "));
    OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes())
}

/// A time as text. After the year 9999, where a clock went wrong, the seconds since 1970.
fn stamp(when: SystemTime) -> String {
    const LAST: u64 = 253_402_300_799;
    match when.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()) {
        secs @ 0..=LAST => {
            humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)).to_string()
        }
        secs => format!("@{secs}"),
    }
}

fn end(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(END)))?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_text() {
        let of = |secs| stamp(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(of(0), "1970-01-01T00:00:00Z");
        assert_eq!(of(253_402_300_799), "9999-12-31T23:59:59Z");
        assert_eq!(of(253_402_300_800), "@253402300800");
        assert_eq!(of(1 << 60), "@1152921504606846976");
        assert_eq!(stamp(SystemTime::UNIX_EPOCH - Duration::from_secs(9)), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn events_are_lines_and_the_same_is_said_once() {
        let dir = std::env::temp_dir().join(format!("polyduct-store-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        note(&dir, "one\nline");
        note_once(&dir, "two");
        note_once(&dir, "two");
        note_once(&dir, "three");
        let text = std::fs::read_to_string(dir.join(NAME)).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let said: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(said, ["one line", "two", "three"]);
        assert!(text.lines().all(|line| line.as_bytes()[10] == b'T' && line.contains("Z ")), "{text}");
    }
}
