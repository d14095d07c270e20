//! What goes to endpoints of other hosts.

use super::{Sent, SHORT, STREAM};
use crate::config::Config;
use crate::domain::lock;
use crate::engine::{self, Send as Outgoing};
use crate::hash::fnv1a;
use crate::link::key::{self, Trust};
use crate::link::net::config::{NetConfig, NetEvent, Transport};
use crate::link::net::endpoint::NetEndpoint;
use crate::link::net::socket::way_to;
use crate::link::shm::{Bell, Incoming, Payload};
use crate::types::{Head, Order};
use crate::MessageError;
use bytes::Bytes;
use polyduct_os::OsError;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Events that one look handles, at most.
const AT_ONCE: usize = 64;
/// The address of this host under which others reach it, where it has several.
pub const ADDRESS_VARIABLE: &str = "POLYDUCT_ADDRESS";
/// Some address that is no host's: only the way there is asked for.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
/// 0 has endpoints of one host use the network: for tests and comparisons.
pub const NEAR_VARIABLE: &str = "POLYDUCT_NEAR";
/// Bytes of the longest payload.
const MAX_PAYLOAD: u64 = 1 << 40;

/// The network of a job.
#[derive(Clone, Debug)]
pub struct Network {
    /// The job's key, and whether the network is trusted.
    pub trust: Trust,
    /// The address of this host under which the others reach it.
    pub ip: IpAddr,
    /// Endpoints of different numbers use the network though they are on one host: for tests and comparisons.
    pub apart: u64,
    /// A host that says nothing for so long is lost, as is one that cannot be reached in it, or in five
    /// seconds. Who dies is known to be gone at once, by its connections.
    pub silence: Duration,
}

impl Network {
    /// The network of this job, under the address in [`ADDRESS_VARIABLE`] or else the one that leads to most
    /// others. With 0 in [`NEAR_VARIABLE`] those of one host use it, too.
    ///
    /// # Errors
    /// What the system refuses; what is no address; [`MessageError::Config`].
    pub fn here(trust: Trust) -> Result<Network, MessageError> {
        let apart = match is_apart() {
            true => {
                let mut drawn = [0; 8];
                key::random(&mut drawn)?;
                u64::from_le_bytes(drawn)
            }
            false => 0,
        };
        Ok(Network { trust, ip: own_address()?, apart, silence: Config::load()?.time("silence") })
    }
}

/// Whether an address is one of this host, which others reach by its `own`.
pub(super) fn is_here(ip: IpAddr, own: IpAddr) -> bool {
    // The way to this host itself is from the address that is asked for.
    let leads_here = || way_to(SocketAddr::new(ip, 9)).is_ok_and(|from| from == ip);
    ip == own || ip.is_loopback() || ip.is_unspecified() || leads_here()
}

/// Whether endpoints of one host use the network.
pub(super) fn is_apart() -> bool {
    std::env::var(NEAR_VARIABLE).is_ok_and(|near| near == "0")
}

/// The address in [`ADDRESS_VARIABLE`], or else the one that leads to most others.
///
/// # Errors
/// What is no address.
pub(super) fn own_address() -> Result<IpAddr, OsError> {
    match std::env::var(ADDRESS_VARIABLE) {
        Ok(name) => name.parse().map_err(|_| OsError::BadName { name, reason: "it is no address of a host" }),
        // Without a way anywhere there is nobody but this host.
        Err(_) => Ok(way_to(ELSEWHERE).unwrap_or(Ipv4Addr::LOCALHOST.into())),
    }
}

/// Memory that the network reads until the other end has what lies there.
#[derive(Clone, Debug)]
pub struct Lent(Arc<AtomicBool>);

struct Loan {
    bytes: *const u8,
    len: usize,
    is_free: Arc<AtomicBool>,
}

// SAFETY: the memory is only read, and whoever lent it keeps it as it is; see `Endpoint::stream`.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as above, until this is dropped.
        unsafe { core::slice::from_raw_parts(self.bytes, self.len) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.is_free.store(true, Ordering::Release);
    }
}

/// An endpoint's place on the network.
pub(super) struct Far<B: AsMut<[u8]> + Send + 'static> {
    endpoint: NetEndpoint<B>,
    at: SocketAddr,
    /// What was refused.
    held: Mutex<VecDeque<NetEvent<B>>>,
    /// Why units are gone.
    faults: Mutex<FxHashMap<u32, String>>,
}

impl<B: AsMut<[u8]> + Send + 'static> Far<B> {
    /// Listens at the network's address, at this port, or where it is 0, at a free one.
    pub fn start(
        network: &Network,
        port: u16,
        unit: u32,
        bell: &Arc<Bell>,
        give: impl FnMut(u32, &engine::Incoming) -> Option<B> + Send + 'static,
    ) -> Result<Far<B>, MessageError> {
        let domain = fnv1a(*b"polyduct endpoints");
        let Trust { key, trusted_network } = network.trust.clone();
        let listen = SocketAddr::new(network.ip, port);
        let mut config = NetConfig::new(unit, u32::MAX, domain, key, listen, Transport::Tcp);
        let rung = bell.clone();
        config.trusted = trusted_network;
        config.waker = Some(Arc::new(move || rung.calls().ring()));
        config.session.max_payload = MAX_PAYLOAD;
        config.session.queue_bytes = MAX_PAYLOAD;
        config.session.silence = network.silence;
        config.patience.dead_after = network.silence;
        config.connect_timeout = config.connect_timeout.max(network.silence);
        config.limits.deadline = config.connect_timeout;
        let endpoint = NetEndpoint::start(config, give)?;
        let at = endpoint.local_addr();
        Ok(Far { endpoint, at, held: Mutex::default(), faults: Mutex::default() })
    }

    /// Where it listens.
    pub fn listens_at(&self) -> SocketAddr {
        self.at
    }

    /// Says where a unit listens.
    pub fn introduce(&self, unit: u32, at: SocketAddr) {
        self.endpoint.introduce(unit, at);
    }

    /// Another life of a unit may come.
    pub fn forget(&self, unit: u32) {
        self.endpoint.forget(unit);
        lock(&self.faults).remove(&unit);
    }

    fn offer(
        &self,
        to: u32,
        (channel, priority): (crate::ChannelId, crate::Priority),
        head: Head,
        payload: Bytes,
    ) -> Sent {
        match self.endpoint.send(to, channel, Outgoing { priority, order: Order::Ordered, head, payload }) {
            Ok(_) => Sent::All,
            Err(MessageError::Full { .. }) => Sent::Later,
            Err(error) => {
                self.note(to, &error);
                Sent::Gone
            }
        }
    }

    fn note(&self, unit: u32, why: &dyn std::fmt::Display) {
        lock(&self.faults).insert(unit, why.to_string());
    }

    /// Why a unit is gone.
    pub fn why(&self, unit: u32) -> Option<String> {
        lock(&self.faults).get(&unit).cloned()
    }

    /// Sends a short message.
    pub fn send(&self, to: u32, head: Head, payload: &[u8]) -> Sent {
        self.offer(to, SHORT, head, Bytes::copy_from_slice(payload))
    }

    /// Sends all of a stream, or sees whether its memory is free again.
    ///
    /// # Safety
    /// As [`Endpoint::stream`](super::Endpoint::stream).
    pub unsafe fn stream(
        &self,
        to: u32,
        head: Head,
        bytes: *const u8,
        len: usize,
        lent: &mut Option<Lent>,
    ) -> Sent {
        if let Some(Lent(is_free)) = lent {
            return if is_free.load(Ordering::Acquire) { Sent::All } else { Sent::Later };
        }
        let is_free = Arc::new(AtomicBool::new(false));
        let loan = Loan { bytes, len, is_free: is_free.clone() };
        match self.offer(to, STREAM, head, Bytes::from_owner(loan)) {
            Sent::All => {
                *lent = Some(Lent(is_free));
                Sent::Later
            }
            other => other,
        }
    }

    /// The thread of the network looks from now on.
    pub fn rest(&self) {
        let _ = self.endpoint.rest();
    }

    /// Handles what has come; `gone` gets those who are.
    pub fn poll(
        &self,
        deliver: &mut dyn FnMut(u32, &Incoming, Payload<'_, B>) -> bool,
        gone: &mut dyn FnMut(u32),
    ) -> usize {
        let mut held = lock(&self.held);
        for n in 0..AT_ONCE {
            let event = match held.pop_front() {
                Some(event) => Some(event),
                None => self.endpoint.poll_event().ok().flatten(),
            };
            match event {
                None => return n,
                Some(NetEvent::Message { from, message }) => {
                    let engine::Message { channel, priority, order, head, len, payload } = message;
                    let incoming = Incoming { channel, priority, head, len, holds_up: false };
                    match payload {
                        // A buffer is over in any case.
                        Some(buffer) => drop(deliver(from, &incoming, Payload::Buffer(buffer))),
                        None => {
                            if !deliver(from, &incoming, Payload::Bytes(&[])) {
                                let payload = None;
                                let message =
                                    engine::Message { channel, priority, order, head, len, payload };
                                held.push_front(NetEvent::Message { from, message });
                                return n;
                            }
                        }
                    }
                }
                Some(NetEvent::Left { unit }) => gone(unit),
                Some(NetEvent::Lost { unit, error }) => {
                    self.note(unit, &error);
                    gone(unit);
                }
                Some(NetEvent::Unreachable { unit, fault }) => {
                    self.note(unit, &fault);
                    gone(unit);
                }
                Some(NetEvent::TurnedAway { from, fault }) => tracing::warn!(%from, %fault, "turned away"),
                Some(_) => {}
            }
        }
        AT_ONCE
    }
}
