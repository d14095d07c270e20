//! Programs that a test makes to run them.
//!
//! They are written by processes of their own. What this one has open for writing, a child that another test
//! starts meanwhile would have, too, until it runs its own program; and a file that somebody may write cannot
//! be run ("Text file busy").

use std::path::Path;
use std::process::Command;

fn done(command: &mut Command, to: &Path) {
    assert!(command.arg(to).status().unwrap().success(), "{} was not written", to.display());
}

/// A copy of this program that anybody may run.
pub fn copy(to: &Path) {
    done(Command::new("install").args(["-m", "755"]).arg(std::env::current_exe().unwrap()), to);
}

/// A script, or whatever begins like one.
pub fn script(text: &str, to: &Path) {
    done(Command::new("sh").args(["-c", r#"printf %s "$1" > "$2" && chmod 755 "$2""#, "sh", text]), to);
}
