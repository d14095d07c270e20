//! Stores on real directories, by threads and processes that are the units of programs.

mod access;
mod care;
mod full;
mod ports;
mod rig;
