//! Stores on simulated disks.

mod basics;
mod crash;
mod rebuild;
mod rot;
mod scrub;
mod sim;
