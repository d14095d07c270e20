//! A directory for one test.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Waits until the test lets go, or has ended, however it did; what units of it still make is removed in a
/// second round.
const REMOVE: &str = r#"read -r _; rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }"#;

/// A directory that goes when this is dropped, and when the test is killed.
pub struct Scratch {
    path: PathBuf,
    remover: Child,
}

impl Scratch {
    /// A new one among the temporary files; its name tells whose it is.
    pub fn new(name: &str) -> Scratch {
        Scratch::below(&std::env::temp_dir(), name)
    }

    /// The same in memory, where syncs cost nothing, if there is such a place.
    pub fn in_memory(name: &str) -> Scratch {
        let place = Path::new("/dev/shm");
        match place.is_dir() {
            true => Scratch::below(place, name),
            false => Scratch::new(name),
        }
    }

    fn below(place: &Path, name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("polyduct-{name}-{}-{n}", std::process::id()));
        let mut remover = Command::new("sh");
        // What ends all that the test has started is not to end this.
        remover.args(["-c", REMOVE, "sh"]).arg(&path).stdin(Stdio::piped()).process_group(0);
        let remover = remover.spawn().unwrap();
        std::fs::create_dir_all(&path).unwrap();
        Scratch { path, remover }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}
