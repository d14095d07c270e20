//! Receiving: one thread at a time looks at all links and calls the handlers; others that wait sleep until it
//! has.
//!
//! Links that bring nothing for a while are told to call (see [`crate::link::shm::bell`]), and are looked at
//! again when they have, so a domain of thousands of units looks at those few that are busy.

use super::handlers::Table;
use super::room::Buffer;
use super::Inner;
use crate::link::shm::{Incoming, Payload, Receiver};
use crate::types::Address;

/// Looks at a link that brought nothing, before it is told to call.
const PATIENCE: u32 = 2000;
/// Links up to so many are always looked at: it costs less than to be called.
const FEW: usize = 8;
/// Looks at a link that bring nothing, from one question whether its unit is gone to the next.
const GONE: u32 = 64;

struct Inward {
    from: Address,
    receiver: Receiver<Buffer>,
    idle: u32,
    /// Its peer has been told to call.
    cold: bool,
    broken: bool,
}

/// The receiving side of all links.
#[derive(Default)]
pub struct Progress {
    links: Vec<Inward>,
    /// Which of them are looked at.
    hot: Vec<usize>,
    /// Some of those have not been told to call since they came to be.
    unarmed: bool,
    /// The number of a link at the bell is its unit's address: where that unit's link is in `links`.
    by_unit: Vec<Option<usize>>,
    /// The number of the latest news that it knows.
    news: u32,
    handlers: Table,
}

impl Progress {
    /// Looks at what has come, once. Returns the number of records handled.
    pub fn poll(&mut self, inner: &Inner) -> usize {
        self.take_news(inner);
        let calls = inner.receiving.bell().calls();
        if calls.any() {
            self.unarmed = true;
            let (links, hot, by_unit) = (&mut self.links, &mut self.hot, &self.by_unit);
            calls.take(|unit| {
                if let Some(&Some(i)) = by_unit.get(unit as usize) {
                    if std::mem::take(&mut links[i].cold) {
                        links[i].idle = 0;
                        hot.push(i);
                    }
                }
            });
        }
        let (mut records, few) = (0, self.links.len() <= FEW);
        let handlers = &self.handlers;
        let links = &mut self.links;
        self.hot.retain(|&i| {
            let link = &mut links[i];
            let found = link.look(inner, handlers);
            records += found;
            link.idle = if found > 0 { 0 } else { link.idle.saturating_add(1) };
            if link.idle % GONE == 1 && inner.units.is_gone(link.from) {
                link.receiver.forget_unfinished();
            }
            if few || link.idle < PATIENCE {
                return true;
            }
            link.receiver.ask_for_call();
            // What came before the peer could know is found now.
            let found = link.look(inner, handlers);
            records += found;
            // Who was refused may wait for room, and calls no more: its link is looked at until that is
            // taken.
            link.cold = found == 0 && link.receiver.is_empty();
            if !link.cold {
                link.idle = 0;
            }
            !link.cold
        });
        if let Some(net) = &inner.net {
            records += net.poll(inner, handlers);
        }
        if inner.units.has_backlog() {
            // Somebody may wait for just that.
            records += usize::from(!inner.flush_backlog());
        }
        inner.offer_room();
        records
    }

    /// Tells the peers of all links that are looked at to call: somebody is about to sleep.
    pub fn arm(&mut self) {
        self.unarmed = false;
        for &i in &self.hot {
            self.links[i].receiver.ask_for_call();
        }
    }

    /// Whether there are links to look at that [`arm`](Progress::arm) has not seen. Who finds such after it
    /// was about to sleep must tell them, too: their peers would write without a call.
    pub fn has_unarmed(&self) -> bool {
        self.unarmed
    }

    /// Links and handlers that are new, and units that are gone: what they leave unfinished holds room.
    fn take_news(&mut self, inner: &Inner) {
        let news = inner.receiving.news();
        if news == self.news {
            return;
        }
        self.news = news;
        self.unarmed = true;
        self.handlers = inner.handlers.table();
        for (from, receiver) in inner.receiving.take_links() {
            let at = from as usize;
            if self.by_unit.len() <= at {
                self.by_unit.resize(at + 1, None);
            }
            self.by_unit[at] = Some(self.links.len());
            self.hot.push(self.links.len());
            self.links.push(Inward { from, receiver, idle: 0, cold: false, broken: false });
        }
        for (i, link) in self.links.iter_mut().enumerate().filter(|(_, link)| inner.units.is_gone(link.from))
        {
            link.idle = 0;
            if inner.units.has_broken(link.from) {
                link.broken = true;
                link.receiver.forget_all();
            }
            if std::mem::take(&mut link.cold) {
                self.hot.push(i);
            }
        }
    }
}

impl Inward {
    fn look(&mut self, inner: &Inner, handlers: &Table) -> usize {
        if self.broken {
            return 0;
        }
        let from = self.from;
        let mut give = |m: &Incoming| inner.buffer_for(from, m);
        let mut deliver =
            |m: &Incoming, payload: Payload<'_, Buffer>| inner.deliver(from, m, payload, handlers);
        match self.receiver.poll(&mut give, &mut deliver) {
            Ok(records) => records,
            Err(error) => {
                self.broken = true;
                self.receiver.forget_all();
                // A unit that has gone may have threads that still send, and what they began is forgotten.
                if !inner.units.is_gone(from) {
                    inner.broke(from, error);
                }
                1
            }
        }
    }
}
