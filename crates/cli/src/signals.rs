//! Sets the handling of signals that all commands share.

use signal_hook::consts::SIGXFSZ;
use std::sync::{atomic::AtomicBool, Arc};

/// Has a write beyond the limit of file sizes (ulimit -f) fail with an error, which can be told, instead of
/// killing us without a word.
pub fn outlive_file_limit() {
    if !is_ignored(SIGXFSZ) {
        // A handler and not SIG_IGN, which the programs of a run would inherit. Without it a write that is
        // too large ends us, as it did before: no reason not to begin.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// Whether whoever started us wants this signal ignored.
pub fn is_ignored(signal: i32) -> bool {
    ignored() >> (signal - 1) & 1 == 1
}

/// The set of ignored signals, from the kernel; none if it does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}
