//! Parallel pipes, files and layouts: open a port, move steps.
