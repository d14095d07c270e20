//! The page that viewers load.

/// The whole page, served at `/` and at every name.
pub(crate) const PAGE: &str = include_str!("page.html");
