//! What moves bytes between two processes.

pub mod shm;
