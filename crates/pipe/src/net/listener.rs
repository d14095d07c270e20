//! Listens for units of a pipe: strangers prove the key, and say what they came for.

use super::address::PipeAddress;
use super::channel::Channel;
use super::near::{Arrival, Door};
use super::wire::First;
use super::Trust;
use polyduct_message::link::net::acceptor::{Acceptor, Limits, Visit};
use polyduct_message::link::net::incarnations::Incarnations;
use polyduct_message::link::net::socket::{listen, local_addr, KeepAlive};
use polyduct_os::{poll::PollItem, OsError};
use polyduct_port::Options;
use std::net::SocketAddr;
use std::time::Duration;

/// Connections that have not said what they came for, at most; for one more, the first of them is dropped.
const WAITING: usize = 64;
/// How long they may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// A listener and those who came to it.
pub struct PipeListener {
    acceptor: Acceptor,
    addr: SocketAddr,
    /// Where readers of this host come, if they may map the slots.
    near: Option<Door>,
    waiting: Vec<(Channel, Duration)>,
    borne: Duration,
    /// The unit that was turned away last, and why.
    turned_away: Option<String>,
}

impl PipeListener {
    /// Listens at `addr` as the writer unit of these options, which say how long others may be silent, and
    /// whether those of this host may map its slots.
    pub fn new(
        addr: SocketAddr,
        place: &PipeAddress,
        trust: &Trust,
        options: &Options,
    ) -> Result<PipeListener, OsError> {
        let (unit, borne) = (options.unit, options.silence);
        let listener = listen(addr)?;
        let addr = local_addr(&listener)?;
        // Several programs number their units alike; who may join is decided behind this door.
        let incarnations = Incarnations::new(true);
        let acceptor = Acceptor::new(
            listener,
            place.terms(trust, unit),
            KeepAlive { dead_after: borne },
            Limits::default(),
            incarnations,
        )?;
        let near = options.near.then(|| Door::new(place, trust, unit, addr));
        // Without it, the bytes are sent.
        let near = near.and_then(|door| door.inspect_err(|error| tracing::warn!(%error, "no slots")).ok());
        Ok(PipeListener { acceptor, addr, near, waiting: Vec::new(), borne, turned_away: None })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Adds what to wait for.
    pub fn items<'a>(&'a self, items: &mut Vec<PollItem<'a>>) {
        items.push(PollItem::readable(&self.acceptor));
        items.extend(self.waiting.iter().map(|(channel, _)| PollItem::readable(channel)));
        self.near.iter().for_each(|door| door.items(items));
    }

    /// Readers of this host that have come for the slots.
    pub fn near(&mut self) -> Vec<Arrival> {
        self.near.as_mut().map(Door::serve).unwrap_or_default()
    }

    /// When [`serve`](PipeListener::serve) must be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        self.waiting.iter().map(|w| w.1 + DEADLINE).chain(self.acceptor.next_deadline()).min()
    }

    /// The last unit that was turned away since this was asked, and why.
    pub fn turned_away(&mut self) -> Option<String> {
        self.turned_away.take()
    }

    /// Lets in who comes; gives those who have said what they want.
    ///
    /// # Errors
    /// The system's: the listener is of no further use.
    pub fn serve(&mut self, now: Duration) -> Result<Vec<(Channel, First)>, OsError> {
        let (waiting, borne, turned_away) = (&mut self.waiting, self.borne, &mut self.turned_away);
        self.acceptor.serve(now, |visit| match visit {
            Visit::Arrival(arrival) => {
                if waiting.len() == WAITING {
                    waiting.remove(0);
                }
                waiting.push((Channel::new(arrival.stream, arrival.established, borne), now));
            }
            Visit::TurnedAway(from, fault) => {
                tracing::warn!(%from, %fault, "turned a connection away");
                *turned_away = Some(format!("{from}: {fault}"));
            }
        })?;
        let mut came = Vec::new();
        for (mut channel, since) in std::mem::take(waiting) {
            match channel.next::<First>() {
                Ok(Some(first)) => came.push((channel, first)),
                Ok(None) if now < since + DEADLINE => self.waiting.push((channel, since)),
                Ok(None) => tracing::warn!(from = ?channel.peer(), "dropped a silent connection"),
                Err(fault) => tracing::warn!(from = ?channel.peer(), %fault, "dropped a connection"),
            }
        }
        Ok(came)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::wire::{Ask, First, Tell};
    use super::super::{JobKey, PipeAddress, Trust};
    use super::*;
    use crate::net::dial::dial;
    use crate::serve::HOST;
    use polyduct_message::link::net::LinkFault;
    use polyduct_os::{clock, poll::poll};
    use polyduct_port::Options;

    /// Two ends of a connection.
    pub fn pair(trusted_network: bool) -> (Channel, Channel) {
        let place = PipeAddress::new("127.0.0.1", 0, "pair");
        let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network };
        let options = Options::default();
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listener = PipeListener::new(at, &place, &trust, &options).unwrap();
        let at = listener.addr();
        std::thread::scope(|s| {
            let dialled = s.spawn(|| {
                let mut channel =
                    dial(&place, &trust, &options, clock::now(), &[at], (HOST, false), || Ok(None)).unwrap();
                channel.post(&First::Lane { program: 0, unit: 0, from: 0, guest: None }).unwrap();
                assert!(channel.flush().unwrap());
                channel
            });
            let came = loop {
                let mut items = Vec::new();
                listener.items(&mut items);
                poll(&mut items, None).unwrap();
                if let Some((channel, _)) = listener.serve(clock::now()).unwrap().pop() {
                    break channel;
                }
            };
            (dialled.join().unwrap(), came)
        })
    }

    #[test]
    fn what_was_said_before_the_end_counts_though_nothing_can_be_written() {
        for trusted in [true, false] {
            let (mut leaver, mut host) = pair(trusted);
            // A unit that goes with words unread breaks the connection, and not only ends it.
            host.post(&Tell::Bye).unwrap();
            assert!(host.flush().unwrap());
            leaver.post(&Ask::Close).unwrap();
            assert!(leaver.flush().unwrap());
            drop(leaver);
            host.post(&Tell::Bye).unwrap();
            let said = host.hear();
            assert!(matches!(said, Ok(Some(Ask::Close))), "trusted {trusted}: {said:?}");
            let end = host.hear::<Ask>();
            assert!(matches!(end, Err(LinkFault::System(OsError::PeerClosed))), "trusted {trusted}: {end:?}");
        }
    }
}
