//! Stores on simulated disks.

mod basics;
mod crash;
mod failed_syncs;
mod foreign;
mod forged;
mod forks;
mod made;
mod mirrors;
mod old;
mod rebuild;
mod rebuild_faults;
mod replay;
mod rot;
mod scenario;
mod scrub;
mod sim;
mod told;
mod unreadable;
mod written;
