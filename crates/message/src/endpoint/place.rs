//! Where an endpoint is: what others are told by whatever starts them all, and reach it by.

use super::far::{is_apart, is_here, own_address};
use crate::domain::host_map::HostId;
use crate::hash::fnv1a;
use crate::link::key;
use crate::MessageError;
use polyduct_os::process::user_id;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a place.
pub const PLACE_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"pdE\x01";

/// Where an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its number, drawn at random: what it is called on the network.
    pub unit: u32,
    /// Drawn at random: no two have the same. Of one at a port both follow from where that is.
    pub draw: u64,
    /// The host whose processes share memory with it; `None` where the system does not say.
    pub host: Option<HostId>,
    /// Where it listens for those of other hosts.
    pub at: Option<SocketAddr>,
}

impl Place {
    /// One that no other endpoint has.
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn drawn() -> Result<Place, MessageError> {
        let mut drawn = [0; 16];
        key::random(&mut drawn)?;
        Ok(Place::numbered(u128::from_le_bytes(drawn), None, None))
    }

    fn numbered(drawn: u128, host: Option<HostId>, at: Option<SocketAddr>) -> Place {
        let unit = (drawn >> 64) as u32;
        Place { unit: unit.min(u32::MAX - 1), draw: (drawn as u64).max(1), host, at }
    }

    /// The place of an endpoint that is opened at a port of a host. Who knows both finds it there, and need
    /// be told nothing else. All addresses of this host are taken for the one under which others reach it.
    ///
    /// # Errors
    /// The address that the environment says this host has is none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use polyduct_message::endpoint::{Endpoint, Place};
    /// let place = Place::of_port("127.0.0.1:41107".parse()?)?;
    /// let endpoint = Endpoint::<Vec<u8>>::open(None, Some(&place), |_, _| None)?;
    /// assert_eq!(endpoint.place().draw, Place::of_port("127.0.0.1:41107".parse()?)?.draw);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_port(at: SocketAddr) -> Result<Place, MessageError> {
        let (ip, own) = (at.ip().to_canonical(), own_address()?);
        let here = is_here(ip, own);
        let at = SocketAddr::new(if here { own } else { ip }, at.port());
        let host = if here && !is_apart() { HostId::of_this_process(0) } else { None };
        let words = |seed: &[u8]| fnv1a([seed, at.to_string().as_bytes()].concat());
        let drawn = u128::from(words(b"unit")) << 64 | u128::from(words(b"draw"));
        Ok(Place::numbered(drawn, host, Some(at)))
    }

    /// Whether it is the same endpoint, or another life of it, however much is known of where that is.
    pub fn is_same(&self, other: &Place) -> bool {
        (self.draw, self.unit) == (other.draw, other.unit)
    }

    /// Whether an endpoint of this process may be there.
    pub fn is_here(&self) -> bool {
        let is_near = self.host.is_some() && self.host == HostId::of_this_process(0);
        is_near || self.at.zip(own_address().ok()).is_some_and(|(at, own)| is_here(at.ip(), own))
    }

    /// | bytes | |
    /// |---|---|
    /// | 0-3 | magic and version |
    /// | 4-7 | unit |
    /// | 8-15 | draw |
    /// | 16-39 | host, or zeros |
    /// | 40-41 | port, 0 where it does not listen |
    /// | 42-57 | IPv6 address; IPv4 is mapped |
    ///
    /// Numbers are little endian; the rest is zero.
    pub fn to_bytes(&self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.unit.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.draw.to_le_bytes());
        if let Some(host) = self.host {
            bytes[16..40].copy_from_slice(&host.to_bytes());
        }
        if let Some(at) = self.at {
            let ip = match at.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes[40..42].copy_from_slice(&at.port().to_le_bytes());
            bytes[42..58].copy_from_slice(&ip.octets());
        }
        bytes
    }

    /// What [`to_bytes`](Place::to_bytes) made; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Place> {
        let bytes: &[u8; PLACE_BYTES] = bytes.get(..PLACE_BYTES)?.try_into().ok()?;
        let part = |from: usize, to: usize| &bytes[from..to];
        if part(0, 4) != MAGIC || part(58, 64) != [0; 6] {
            return None;
        }
        let port = u16::from_le_bytes(part(40, 42).try_into().ok()?);
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(part(42, 58)).ok()?);
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        Some(Place {
            unit: u32::from_le_bytes(part(4, 8).try_into().ok()?),
            draw: u64::from_le_bytes(part(8, 16).try_into().ok()?),
            host: HostId::from_bytes(part(16, 40).try_into().ok()?),
            at: (port > 0).then_some(SocketAddr::new(ip, port)),
        })
    }

    /// The abstract name of its socket on its host.
    pub(super) fn socket(&self) -> Vec<u8> {
        format!("polyduct/{}/endpoint/{:016x}{:08x}", user_id(), self.draw, self.unit).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_were_written_and_nothing_else_is() {
        let host = HostId::of_this_process(7);
        assert!(host.is_some());
        for at in ["10.0.0.7:41", "[fe80::1]:65535"].map(|at| at.parse().ok()).into_iter().chain([None]) {
            for host in [host, None] {
                let place = Place { unit: 7, draw: 1 << 63, host, at };
                let bytes = place.to_bytes();
                assert_eq!(Place::from_bytes(&bytes), Some(place));
                assert_eq!(Place::from_bytes(&bytes[..63]), None);
                for wrong in [0, 3, 58, 63] {
                    let mut bytes = bytes;
                    bytes[wrong] ^= 1;
                    assert_eq!(Place::from_bytes(&bytes), None, "byte {wrong}");
                }
            }
        }
    }
}
