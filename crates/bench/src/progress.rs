//! One line on standard error that says what is being measured, where somebody looks.

use std::io::IsTerminal;

/// Shows what is measured now, in place of what was before.
pub fn show(what: &str) {
    if std::io::stderr().is_terminal() {
        crate::text::to_stderr(format_args!("\r\x1b[Kmeasuring {what} ...\r"));
    }
}

/// Leaves the line empty.
pub fn clear() {
    if std::io::stderr().is_terminal() {
        crate::text::to_stderr(format_args!("\x1b[K"));
    }
}
