//! Who comes in: strangers that have proved the key, until they have said what they came for.

use super::channel::Channel;
use super::place::Place;
use super::wire::First;
use super::Trust;
use polyduct_message::link::net::gate::{Gate, Limits, Visit};
use polyduct_message::link::net::lives::Lives;
use polyduct_message::link::net::socket::{listen, local_addr, Patience};
use polyduct_os::{poll::PollItem, OsError};
use std::net::SocketAddr;
use std::time::Duration;

/// Connections that have not said what they came for, at most; for one more, the first of them is dropped.
const WAITING: usize = 64;
/// How long they may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// A listener and those who came to it.
pub struct Porch {
    gate: Gate,
    addr: SocketAddr,
    waiting: Vec<(Channel, Duration)>,
    borne: Duration,
    /// Who was turned away last, and why.
    turned_away: Option<String>,
}

impl Porch {
    /// Listens at `addr` as writer unit `unit`. Who comes may be silent for as long as is `borne`.
    pub fn new(
        addr: SocketAddr,
        place: &Place,
        trust: &Trust,
        unit: u32,
        borne: Duration,
    ) -> Result<Porch, OsError> {
        let listener = listen(addr)?;
        let addr = local_addr(&listener)?;
        // Several programs number their units alike; who may join is decided behind this door.
        let lives = Lives::new(true);
        let gate = Gate::new(
            listener,
            place.terms(trust, unit),
            Patience { dead_after: borne },
            Limits::default(),
            lives,
        )?;
        Ok(Porch { gate, addr, waiting: Vec::new(), borne, turned_away: None })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Adds what to wait for.
    pub fn items<'a>(&'a self, items: &mut Vec<PollItem<'a>>) {
        items.push(PollItem::readable(&self.gate));
        items.extend(self.waiting.iter().map(|(channel, _)| PollItem::readable(channel)));
    }

    /// When [`serve`](Porch::serve) must be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        self.waiting.iter().map(|w| w.1 + DEADLINE).chain(self.gate.next_deadline()).min()
    }

    /// Who was turned away since this was asked last, the last of them, and why.
    pub fn turned_away(&mut self) -> Option<String> {
        self.turned_away.take()
    }

    /// Lets in who comes; gives those who have said what they want.
    ///
    /// # Errors
    /// The system's: the listener is of no further use.
    pub fn serve(&mut self, now: Duration) -> Result<Vec<(Channel, First)>, OsError> {
        let (waiting, borne, turned_away) = (&mut self.waiting, self.borne, &mut self.turned_away);
        self.gate.serve(now, |visit| match visit {
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
