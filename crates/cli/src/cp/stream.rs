//! Recognizes names of ordinary streams: `-` and what else stands for standard input and output, named pipes,
//! and character devices.

use polyduct::Mode;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// A stream that was found under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Standard input, or standard output.
    Standard,
    Path(PathBuf),
}

/// What a name means if it is a stream. In a run `-` is a port.
pub fn of(url: &str, mode: Mode) -> Option<Found> {
    let in_a_run =
        || [Mode::Read, Mode::Write].iter().any(|mode| std::env::var_os(mode.variable()).is_some());
    let standard: &[&str] = match mode {
        Mode::Read => &["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"],
        Mode::Write => &["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"],
    };
    let path = url.strip_prefix("file:").unwrap_or(url);
    match path {
        "-" => (!in_a_run()).then_some(Found::Standard),
        path if standard.contains(&path) => Some(Found::Standard),
        path => {
            let kind = std::fs::metadata(path).ok()?.file_type();
            (kind.is_fifo() || kind.is_char_device()).then(|| Found::Path(path.into()))
        }
    }
}

/// How errors call it.
pub fn name(url: &str, mode: Mode) -> &str {
    match (url, mode) {
        ("-", Mode::Read) => "standard input",
        ("-", Mode::Write) => "standard output",
        (url, _) => url,
    }
}

impl Found {
    /// Whether its name says that it is for plain bytes.
    pub fn is_raw(&self) -> bool {
        matches!(self, Found::Path(path) if path.extension().is_some_and(|end| end == "raw"))
    }

    /// Opens it. A named pipe waits for whoever is at its other end, as everywhere.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(&self, mode: Mode) -> io::Result<File> {
        match self {
            Found::Standard => match mode {
                Mode::Read => io::stdin().as_fd().try_clone_to_owned(),
                Mode::Write => io::stdout().as_fd().try_clone_to_owned(),
            }
            .map(File::from),
            Found::Path(path) => {
                OpenOptions::new().read(mode == Mode::Read).write(mode == Mode::Write).open(path)
            }
        }
    }
}
