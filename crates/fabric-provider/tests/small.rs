//! The provider between processes of one host that are set to send at once, and to keep, as little as may be.

mod common;
mod suite;

use std::sync::Once;

/// Nearly every message is only offered, and nearly every copy is one on which both ends work.
fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, value) in [("EAGER", "64"), ("UNEXPECTED", "8KiB"), ("BOTH_FROM", "64KiB")] {
            std::env::set_var(format!("POLYDUCT_MESSAGE_{name}"), value);
        }
    });
}
