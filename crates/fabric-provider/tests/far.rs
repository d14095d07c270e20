//! The provider between hosts: the same by the network, on loopback.

mod common;
mod suite;

use std::sync::Once;

/// Endpoints of one host use the network.
fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::env::set_var("POLYDUCT_JOB_KEY", "4d".repeat(32));
        std::env::set_var("POLYDUCT_ADDRESS", "127.0.0.1");
        std::env::set_var("POLYDUCT_NEAR", "0");
    });
}
