//! Stores on simulated disks.

mod basics;
mod crash;
mod rebuild;
mod rebuild_faults;
mod rot;
mod scrub;
mod sim;
