//! The secret that all units of one job share.

use core::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use polyduct_os::OsError;
use rustix::rand::{getrandom, GetRandomFlags};
use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use zeroize::Zeroizing;

/// The environment variable that holds the key of a job, as [`JobKey::to_hex`] writes it.
pub const KEY_VARIABLE: &str = "POLYDUCT_JOB_KEY";
/// The environment variable that names a file with the key, for those who keep secrets out of environments,
/// which children inherit and others may see. [`KEY_VARIABLE`] goes before it.
pub const KEY_FILE_VARIABLE: &str = "POLYDUCT_JOB_KEY_FILE";
/// Set to 1 in all units, it declares the network trusted: the key is proved, but nothing is encrypted.
pub const TRUSTED_VARIABLE: &str = "POLYDUCT_TRUSTED_NETWORK";

/// Bytes of a file that are looked at.
const MAX_FILE: u64 = 256;

/// 32 secret bytes that every unit of a job knows and nobody else. Copies share one memory, which is zeroed
/// when the last is dropped. It is never shown: not by `Debug`, not in errors.
#[derive(Clone)]
pub struct JobKey(Arc<Zeroizing<[u8; 32]>>);

/// What the units of a job prove to each other across hosts.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The secret that all units share.
    pub key: JobKey,
    /// The network is declared trusted: the key is proved, but what follows is not encrypted. All units must
    /// declare the same.
    pub trusted_network: bool,
}

impl Trust {
    /// What a launcher left in the environment: the key (see [`JobKey::from_env`]), and 1 in
    /// [`TRUSTED_VARIABLE`] where the network is trusted.
    ///
    /// # Errors
    /// As [`JobKey::from_env`].
    pub fn from_env() -> Result<Trust, KeyError> {
        let key = JobKey::from_env()?;
        let trusted_network = std::env::var_os(TRUSTED_VARIABLE).is_some_and(|v| v == "1");
        Ok(Trust { key, trusted_network })
    }
}

/// Why there is no key. Says nothing about a text that is none but its length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Neither variable is set.
    #[error("neither {KEY_VARIABLE} nor {KEY_FILE_VARIABLE} is set")]
    Missing,
    /// The file that [`KEY_FILE_VARIABLE`] names is no place for a secret, or has none.
    #[error("{KEY_FILE_VARIABLE}: {path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another number of characters.
    #[error("a job key has 64 hexadecimal digits; {found} characters found")]
    Length {
        /// Bytes of the text.
        found: usize,
    },
    /// A character that is no hexadecimal digit.
    #[error("a job key has 64 hexadecimal digits; character {at} is none")]
    Digit {
        /// Which, from 0.
        at: usize,
    },
    /// All zero: a variable that was never filled in, not a secret.
    #[error("a job key of zeros is no secret")]
    Zero,
}

impl JobKey {
    /// A fresh key from the system's random source.
    ///
    /// # Errors
    /// The system's, where it has none.
    pub fn fresh() -> Result<JobKey, OsError> {
        let mut bytes = Zeroizing::new([0; 32]);
        random(&mut bytes[..])?;
        Ok(JobKey(Arc::new(bytes)))
    }

    /// The key that a launcher left in [`KEY_VARIABLE`], or in the file that [`KEY_FILE_VARIABLE`] names.
    ///
    /// # Errors
    /// [`KeyError::Missing`]; [`KeyError::File`]; what is wrong with the text.
    pub fn from_env() -> Result<JobKey, KeyError> {
        match (std::env::var_os(KEY_VARIABLE), std::env::var_os(KEY_FILE_VARIABLE)) {
            (Some(text), _) => JobKey::from_hex(Zeroizing::new(text.into_encoded_bytes())),
            (None, Some(path)) => JobKey::from_file(Path::new(&path)),
            (None, None) => Err(KeyError::Missing),
        }
    }

    /// The key in a file: 64 hexadecimal digits, and perhaps the end of the line. Nobody but its owner may
    /// have access to it.
    ///
    /// # Errors
    /// [`KeyError::File`].
    pub fn from_file(path: &Path) -> Result<JobKey, KeyError> {
        let refused = |reason: String| KeyError::File { path: path.display().to_string(), reason };
        let failed = |e: std::io::Error| refused(e.to_string());
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let others = about.mode() & 0o077;
        if about.is_file() && others != 0 {
            let mode = about.mode() & 0o777;
            return Err(refused(format!("has mode {mode:03o}; others must have no access to it: chmod 600")));
        }
        // Nothing that is longer can be one.
        let mut text = Zeroizing::new(String::with_capacity(MAX_FILE as usize + 1));
        file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
        JobKey::from_hex(text.trim_end()).map_err(|e| refused(e.to_string()))
    }

    /// The key that 64 hexadecimal digits spell, in either case.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn from_hex(text: impl AsRef<[u8]>) -> Result<JobKey, KeyError> {
        let text = text.as_ref();
        if text.len() != 64 {
            return Err(KeyError::Length { found: text.len() });
        }
        let digit = |at: usize| char::from(text[at]).to_digit(16).ok_or(KeyError::Digit { at });
        let mut bytes = Zeroizing::new([0; 32]);
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (digit(2 * i)? << 4 | digit(2 * i + 1)?) as u8;
        }
        JobKey::from_bytes(*bytes)
    }

    /// The key of these bytes.
    ///
    /// # Errors
    /// [`KeyError::Zero`].
    pub fn from_bytes(bytes: [u8; 32]) -> Result<JobKey, KeyError> {
        let bytes = Zeroizing::new(bytes);
        match bytes.iter().all(|&b| b == 0) {
            true => Err(KeyError::Zero),
            false => Ok(JobKey(Arc::new(bytes))),
        }
    }

    /// For a launcher that hands the key on in the environment of a child.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64));
        for byte in self.0.iter() {
            let digit = |d: u8| char::from_digit(d.into(), 16).unwrap_or('0');
            text.push(digit(byte >> 4));
            text.push(digit(byte & 15));
        }
        text
    }

    /// What only those who know the key can say of these parts, each of at most 2³² bytes, and of no others:
    /// HMAC-SHA256 (RFC 2104) over their lengths and them.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut data = b"polyduct".to_vec();
        for part in parts {
            data.extend((part.len() as u32).to_le_bytes());
            data.extend(*part);
        }
        hmac(&self.0, &data)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// HMAC-SHA256 (RFC 2104).
pub(crate) fn hmac(key: &[u8; 32], data: &[u8]) -> [u8; 32] {
    let mut mac = [0; 32];
    // The handshake needs the same hash: it is there.
    if let Some(mut hash) = DefaultResolver.resolve_hash(&HashChoice::SHA256) {
        hash.hmac(key, data, &mut mac);
    }
    mac
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(secret)")
    }
}

/// Fills `bytes` from the system's random source.
///
/// # Errors
/// The system's.
pub fn random(bytes: &mut [u8]) -> Result<(), OsError> {
    let mut filled = 0;
    while filled < bytes.len() {
        let got = rustix::io::retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()));
        let what = "the random source".to_owned();
        filled += got.map_err(|errno| OsError::System { op: "getrandom", what, errno })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("polyduct-key-{}", std::process::id()));
        let key = JobKey::fresh().unwrap();
        let of = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let found = JobKey::from_file(&path);
            std::fs::remove_file(&path).unwrap();
            found.map(|key| *key.bytes()).map_err(|e| e.to_string())
        };
        let text = format!("{}\n", *key.to_hex());
        assert_eq!(of(&text, 0o600), Ok(*key.bytes()));
        for (text, mode, words) in [
            (&text[..], 0o640, "has mode 640; others must have no access to it: chmod 600"),
            ("abc", 0o600, "3 characters found"),
            (&"0".repeat(10_000), 0o600, "256 characters found"),
        ] {
            assert!(of(text, mode).is_err_and(|e| e.ends_with(words)), "{words}");
        }
        let missing = JobKey::from_file(&path).unwrap_err().to_string();
        assert!(
            missing.starts_with("POLYDUCT_JOB_KEY_FILE: ") && missing.contains("No such file"),
            "{missing}"
        );
    }

    #[test]
    fn what_is_said_with_a_key_depends_on_the_key_and_on_each_part() {
        let key = |byte| JobKey::from_bytes([byte; 32]).unwrap();
        let said = key(1).mac(&[b"ab", b"c"]);
        assert_eq!(said, key(1).mac(&[b"ab", b"c"]));
        for other in [key(2).mac(&[b"ab", b"c"]), key(1).mac(&[b"a", b"bc"]), key(1).mac(&[b"ab", b"d"])] {
            assert_ne!(said, other);
        }
    }

    #[test]
    fn a_key_is_its_text_and_never_shown() {
        let key = JobKey::fresh().unwrap();
        let text = key.to_hex();
        assert_eq!(JobKey::from_hex(text.as_bytes()).unwrap().bytes(), key.bytes());
        assert_eq!(JobKey::from_hex(text.to_uppercase()).unwrap().bytes(), key.bytes());
        assert_ne!(JobKey::fresh().unwrap().bytes(), key.bytes());
        assert_eq!(format!("{key:?}"), "JobKey(secret)");
    }

    #[test]
    fn what_is_no_key_is_named_without_showing_it() {
        let digits = "0123456789abcdef".repeat(4);
        assert_eq!(JobKey::from_hex("").unwrap_err(), KeyError::Length { found: 0 });
        assert_eq!(JobKey::from_hex(&digits[1..]).unwrap_err(), KeyError::Length { found: 63 });
        assert_eq!(JobKey::from_hex(digits.replace('f', "g")).unwrap_err(), KeyError::Digit { at: 15 });
        assert_eq!(JobKey::from_hex("0".repeat(64)).unwrap_err(), KeyError::Zero);
        assert!(JobKey::from_hex(&digits).is_ok());
    }
}
