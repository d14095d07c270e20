//! Standard files (npy, raw) read and written by all units at once.
