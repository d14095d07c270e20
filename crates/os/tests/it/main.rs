//! The system as it is: real processes, real descriptors.

mod child;

mod dir;
mod futex;
mod poll;
mod process;
mod remote;
mod segment;
mod socket;
