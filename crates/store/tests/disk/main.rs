//! Stores on real directories, by threads and processes that are the units of programs.

mod access;
mod care;
mod damage;
mod doors;
mod folders;
mod full;
mod links;
mod made;
mod manifests;
mod many;
mod mirrors;
mod old;
mod ports;
mod readers;
mod rig;
mod stretches;
