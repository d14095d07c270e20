//! Stores on real directories, by threads and processes that are the units of programs.

mod care;
mod ports;
mod rig;
