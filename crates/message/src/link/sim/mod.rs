//! Simulated networks.
