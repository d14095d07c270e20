//! Stores on simulated disks.

mod basics;
mod crash;
mod rot;
mod sim;
