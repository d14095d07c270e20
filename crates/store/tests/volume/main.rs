//! Stores on simulated disks.

mod basics;
mod crash;
mod failed_syncs;
mod rebuild;
mod rebuild_faults;
mod rot;
mod scenario;
mod scrub;
mod sim;
