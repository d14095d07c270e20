//! Kernels that carry out plan operations between two memories.
