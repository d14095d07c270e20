//! Small pieces of text output that several commands share.

use polyduct::{Error, PortError, PortName};
use std::io::{self, IsTerminal, Write};

/// Writes a line to standard error. Where nobody can be told, as on a full disk or to a reader that has gone,
/// the command still does what it is for, and ends with the status that it would have.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::text::to_stderr(format_args!("{}\n", format_args!($($words)*)))
    };
}
pub use say;

/// The same for what is no line of its own.
pub fn to_stderr(words: std::fmt::Arguments<'_>) {
    // One write, so that lines of several threads and processes do not mix.
    let _ = io::stderr().write_all(words.to_string().as_bytes());
}

/// Prints to standard output; false, after saying so, where that fails. A reader that has gone wants no more:
/// `| head` is no failure.
#[must_use]
pub fn print(text: &str) -> bool {
    printed(io::stdout().write_all(text.as_bytes()))
}

/// Prints help, the version or what is wrong with the arguments, and gives the status to end with.
pub fn print_usage(words: &clap::Error) -> u8 {
    if words.use_stderr() {
        let _ = words.print(); // as in `to_stderr`
        return 2;
    }
    u8::from(!printed(words.print()))
}

fn printed(done: io::Result<()>) -> bool {
    match done.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            crate::text::say!("polyduct: cannot write to standard output: {error}");
            false
        }
        _ => true,
    }
}

/// As [`print`], a value as JSON.
#[must_use]
pub fn print_json(value: &impl serde::Serialize) -> bool {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(&(text + "\n")),
        Err(error) => {
            crate::text::say!("polyduct: cannot print as JSON: {error}");
            false
        }
    }
}

/// A path or a name as part of a line: what would end the line, or move the cursor, is escaped.
pub fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(plain).collect()
}

/// `6.7 GB`
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB", "TB", "PB"] {
        if value < 999.5 {
            let digits = if unit == "B" || value >= 99.5 {
                0
            } else if value >= 9.95 {
                1
            } else {
                2
            };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.0} EB")
}

/// `1.25 s`, `340 ms`, `15 µs`
pub fn seconds(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0} s"),
        v if v >= 1.0 => format!("{v:.2} s"),
        v if v >= 1e-3 => format!("{:.1} ms", v * 1e3),
        v if v > 0.0 => format!("{:.1} µs", v * 1e6),
        _ => "0 s".into(),
    }
}

/// Columns as wide as they need to be, two blanks apart; `right` says which are flush right.
pub fn table<const N: usize>(rows: &[[String; N]], right: &[bool; N]) -> String {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            line += &if right[c] { format!("{pad}{cell}  ") } else { format!("{cell}{pad}  ") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// `text` with a caret under byte `at`, on the line where it stands.
pub fn caret(text: &str, at: usize) -> String {
    let at = (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
    let end = text[at..].find('\n').map_or(text.len(), |i| at + i);
    let blank: String = text[start..at].chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    format!("  {}\n  {blank}^", &text[start..end])
}

/// An error of the port at `url`, which is named once.
pub fn at_url(url: &str, error: &Error) -> String {
    let names_it = match error {
        Error::Url { .. } | Error::Pipe(_) | Error::File(_) => true,
        Error::Port(PortError::BadOption { port, .. }) => port.is_some(),
        // What a store says names the whole of it.
        Error::Port(error) => !matches!(error.port(), Some(PortName::Store(_))),
        _ => false,
    };
    if names_it {
        error.to_string()
    } else {
        format!("{url}: {error}")
    }
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Colour {
    /// If it goes to a terminal and NO_COLOR is not set.
    #[default]
    Auto,
    Always,
    Never,
}

impl Colour {
    /// Whether to use it on `stream`.
    pub fn on(self, stream: &impl IsTerminal) -> bool {
        match self {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
                stream.is_terminal()
                    && !set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        let sizes: Vec<_> =
            [0, 999, 1000, 67_108_864, 1_500_000_000, u64::MAX].into_iter().map(bytes).collect();
        assert_eq!(sizes, ["0 B", "999 B", "1.00 kB", "67.1 MB", "1.50 GB", "18 EB"]);
        let times: Vec<_> = [0.0, 2e-6, 0.0123, 1.5, 345.6].into_iter().map(seconds).collect();
        assert_eq!(times, ["0 s", "2.0 µs", "12.3 ms", "1.50 s", "346 s"]);
    }

    #[test]
    fn carets() {
        assert_eq!(caret("ab cd", 3), "  ab cd\n     ^");
        assert_eq!(caret("é\nxy", 4), "  xy\n   ^");
        assert_eq!(caret("", 9), "  \n  ^");
    }
}
