//! Where programs say that they are, or want to reach: by names of hosts and services, or by addresses.

use crate::abi;
use polyduct_message::endpoint::{Place, PLACE_BYTES};
use std::ffi::{c_char, c_void, CStr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// The place at a service of a host, as `fi_getinfo` and `fi_av_insertsvc` have them: the host by its name or
/// its address (`this`, where none is named), the service by its number. `None`: there is none.
///
/// # Safety
/// Strings, or null.
pub unsafe fn named(
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    this: Ipv4Addr,
) -> Option<Place> {
    // SAFETY: the caller's.
    let (node, service) = unsafe { (words(node)?, words(service)?) };
    let port = service.map_or(Some(0), |service| service.parse().ok())?;
    let ip = match node {
        None => this.into(),
        Some(node) if flags & abi::NUMERICHOST != 0 => node.parse().ok()?,
        Some(node) => address(node)?,
    };
    match Place::of_port(SocketAddr::new(ip, port)) {
        Ok(place) => Some(place),
        Err(error) => {
            tracing::error!(%error, "no address of this host");
            None
        }
    }
}

/// The first address of a host, of the older kind where it has both.
fn address(node: &str) -> Option<IpAddr> {
    let found: Vec<IpAddr> = (node, 0).to_socket_addrs().ok()?.map(|at| at.ip()).collect();
    found.iter().find(|ip| ip.is_ipv4()).or(found.first()).copied()
}

/// # Safety
/// A string, or null.
unsafe fn words<'a>(string: *const c_char) -> Option<Option<&'a str>> {
    match string.is_null() {
        true => Some(None),
        // SAFETY: the caller's.
        false => unsafe { CStr::from_ptr(string) }.to_str().ok().map(Some),
    }
}

/// The place that an address is of: `Ok(None)` where there is no address.
///
/// # Errors
/// It is no address of this provider's.
///
/// # Safety
/// Null, or so many bytes.
pub unsafe fn addressed(at: *const c_void, len: usize) -> Result<Option<Place>, ()> {
    if at.is_null() || len == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's.
    let bytes = unsafe { core::slice::from_raw_parts(at.cast::<u8>(), len.min(PLACE_BYTES)) };
    Place::from_bytes(bytes).map(Some).ok_or(())
}
