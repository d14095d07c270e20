//! What gateways are called: on their host by a name, from other hosts by the place where they listen.

use crate::url::host_port;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Gateways that carry one stream together, and those of one name on a host, at most.
pub const MEMBERS: u32 = 16;

/// A gateway that is a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GatewayAt {
    /// On this host: all of a name (`north`), or one of them (`north/1`).
    Name(String),
    /// Where it listens: a host and a port.
    Place(String, u16),
}

impl GatewayAt {
    /// Those that a place's `gateway=` says: `NAME`, or up to 16 of `HOST:PORT` with commas between them.
    ///
    /// # Errors
    /// What was expected.
    pub fn all(text: &str) -> Result<Vec<GatewayAt>, &'static str> {
        let all: Vec<GatewayAt> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let places = all.iter().all(|one| matches!(one, GatewayAt::Place(..)));
        match all.len() == 1 || places && all.len() <= MEMBERS as usize {
            true => Ok(all),
            false => Err(EXPECTED),
        }
    }

    /// Where it listens.
    pub fn place(&self) -> Option<(&str, u16)> {
        match self {
            GatewayAt::Name(_) => None,
            GatewayAt::Place(host, port) => Some((host, *port)),
        }
    }

    /// The gateways that there may be of it: of a name the first like all of them, and `north/1`, `north/2` and so on.
    pub fn members(&self) -> impl Iterator<Item = GatewayAt> + use<'_> {
        let more = match self {
            GatewayAt::Name(name) if !name.contains('/') => 1..MEMBERS,
            _ => 1..1,
        };
        std::iter::once(self.clone())
            .chain(more.map(move |number| GatewayAt::Name(format!("{self}/{number}"))))
    }
}

const EXPECTED: &str =
    "a gateway's name: 1 to 40 letters, digits, ., _ and -, or HOST:PORT[,HOST:PORT,...] of up to 16";

impl FromStr for GatewayAt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<GatewayAt, &'static str> {
        if let Some((host, port)) = host_port(text) {
            return Ok(GatewayAt::Place(host, port));
        }
        let (name, number) = text.split_once('/').unwrap_or((text, "1"));
        let one_of = number.parse().is_ok_and(|n: u32| (1..MEMBERS).contains(&n) && n.to_string() == number);
        match is_name(name) && one_of {
            true => Ok(GatewayAt::Name(text.to_owned())),
            false => Err(EXPECTED),
        }
    }
}

impl TryFrom<String> for GatewayAt {
    type Error = &'static str;

    fn try_from(text: String) -> Result<GatewayAt, &'static str> {
        text.parse()
    }
}

impl From<GatewayAt> for String {
    fn from(gateway: GatewayAt) -> String {
        gateway.to_string()
    }
}

impl fmt::Display for GatewayAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatewayAt::Name(name) => f.write_str(name),
            GatewayAt::Place(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            GatewayAt::Place(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// Whether a gateway, a group, a connection or a part may have this name.
pub fn is_name(name: &str) -> bool {
    (1..=40).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_are_understood_and_nothing_else() {
        let place = |host: &str, port| GatewayAt::Place(host.into(), port);
        let name = |name: &str| GatewayAt::Name(name.into());
        assert_eq!(GatewayAt::all("north"), Ok(vec![name("north")]));
        assert_eq!(GatewayAt::all("north/15"), Ok(vec![name("north/15")]));
        assert_eq!(GatewayAt::all("a:1,[::1]:2"), Ok(vec![place("a", 1), place("::1", 2)]));
        for text in
            ["", "a b", "a,b", "a:1,b", "a:", "a:0", ":7", "north/0", "north/16", "north/01", "a/1/2", "a:1,"]
        {
            assert_eq!(GatewayAt::all(text), Err(EXPECTED), "{text}");
        }
        assert_eq!(GatewayAt::all(&vec!["a:1"; 17].join(",")), Err(EXPECTED));
        for text in ["north", "north/3", "[fe80::1]:7", "host:65535"] {
            assert_eq!(GatewayAt::all(text).unwrap()[0].to_string(), text);
        }
    }

    #[test]
    fn a_name_is_that_of_several_and_one_of_them_is_itself() {
        let members = |text: &str| {
            text.parse::<GatewayAt>().unwrap().members().map(|m| m.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(members("north").len(), 16);
        assert_eq!(members("north")[..2], ["north", "north/1"]);
        assert_eq!(members("north/2"), ["north/2"]);
        assert_eq!(members("host:7"), ["host:7"]);
    }
}
