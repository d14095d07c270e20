//! Safe wrappers over what the operating system offers.
