//! What a program may name as the other end of a port.

use crate::Error;
use std::path::PathBuf;

/// The other end of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `pipe:NAME`: another program on this host.
    Pipe(String),
    /// `PATH.npy`.
    Npy(PathBuf),
    /// `PATH.raw`: the bytes of the row-major array and nothing else.
    Raw(PathBuf),
}

/// Which way data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From the other end.
    Read,
    /// To the other end.
    Write,
}

impl Mode {
    /// The variable in which a pipeline says what `-` means.
    pub fn variable(self) -> &'static str {
        match self {
            Mode::Read => "POLYDUCT_IN",
            Mode::Write => "POLYDUCT_OUT",
        }
    }
}

/// Understands a URL. `-` is what the pipeline gave; `get` reads an environment variable.
///
/// # Errors
/// [`Error::Url`] with what would have been understood.
pub fn parse(url: &str, mode: Mode, get: impl Fn(&str) -> Option<String>) -> Result<Target, Error> {
    let bad = |why: &str| Err(Error::Url { url: url.chars().take(200).collect(), why: why.into() });
    if url == "-" {
        return match get(mode.variable()) {
            Some(given) if given != "-" => parse(&given, mode, get),
            _ => bad(match mode {
                Mode::Read => "no pipeline gives this program its input; start it with `polyduct run`, or name a file or pipe",
                Mode::Write => "no pipeline takes this program's output; start it with `polyduct run`, or name a file or pipe",
            }),
        };
    }
    if let Some(name) = url.strip_prefix("pipe:") {
        if name.starts_with("//") {
            return bad("pipes across hosts are not available in this version; use pipe:NAME on one host");
        }
        return Ok(Target::Pipe(name.to_owned()));
    }
    let path = match url.strip_prefix("file:") {
        Some(path) => path,
        None if url.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme)) => {
            return bad("unknown kind; expected pipe:NAME, PATH.npy, PATH.raw or -")
        }
        None => url,
    };
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("npy") => Ok(Target::Npy(path.into())),
        Some("raw") => Ok(Target::Raw(path.into())),
        _ => bad("expected pipe:NAME, PATH.npy, PATH.raw or -"),
    }
}

fn is_scheme(s: &str) -> bool {
    s.len() > 1 && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Target, Error> {
        parse(url, Mode::Read, |v| (v == "POLYDUCT_IN").then(|| "pipe:run-1".to_owned()))
    }

    #[test]
    fn each_kind_is_understood() {
        assert_eq!(read("pipe:a/b").unwrap(), Target::Pipe("a/b".into()));
        assert_eq!(read("-").unwrap(), Target::Pipe("run-1".into()));
        assert_eq!(read("x.npy").unwrap(), Target::Npy("x.npy".into()));
        assert_eq!(read("file:/a:b/x.raw").unwrap(), Target::Raw("/a:b/x.raw".into()));
        assert_eq!(read("./a:b.npy").unwrap(), Target::Npy("./a:b.npy".into()));
    }

    #[test]
    fn the_rest_is_refused_with_a_reason() {
        for url in ["", "x", "x.png", "pipe://h:1/x", "http://x.npy", "store:d/x"] {
            assert!(matches!(read(url), Err(Error::Url { .. })), "{url}");
        }
        assert!(matches!(parse("-", Mode::Write, |_| None), Err(Error::Url { .. })));
        assert!(matches!(parse("-", Mode::Write, |_| Some("-".into())), Err(Error::Url { .. })));
    }
}
