//! Parallel pipes: rendezvous of two programs, slots, steps, queue policies.
