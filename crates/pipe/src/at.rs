//! The place of a pipe: a name on this host, or an address.

use crate::error::PipeError;
use crate::join::check_name;
use crate::net::{PipeAddress, Trust};
use std::fmt;

/// Where a pipe is: by name on this host, or where its writers' unit 0 listens.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// On this host, `pipe:NAME`.
    Name(&'a str),
    /// Across hosts, `pipe://HOST:PORT/NAME`, and whom the units trust there.
    Host(&'a PipeAddress, &'a Trust),
}

impl At<'_> {
    /// Checks the name of a pipe on this host; that of another is checked where its address is found.
    pub(crate) fn check_name(&self) -> Result<(), PipeError> {
        match self {
            At::Name(name) => check_name(name),
            At::Host(..) => Ok(()),
        }
    }
}

/// The pipe as errors name it, without `pipe:`.
impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Name(name) => name.fmt(f),
            At::Host(place, _) => place.fmt(f),
        }
    }
}

impl<'a> From<&'a str> for At<'a> {
    fn from(name: &'a str) -> At<'a> {
        At::Name(name)
    }
}

impl<'a> From<&'a String> for At<'a> {
    fn from(name: &'a String) -> At<'a> {
        At::Name(name)
    }
}

impl<'a> From<(&'a PipeAddress, &'a Trust)> for At<'a> {
    fn from((place, trust): (&'a PipeAddress, &'a Trust)) -> At<'a> {
        At::Host(place, trust)
    }
}
