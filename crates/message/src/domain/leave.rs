//! Takes a unit out of its domain: in order, or because it cannot go on.

use super::ask::knock;
use super::handlers::in_handler;
use super::host::Host;
use super::wait::is_loss;
use super::{Domain, Inner};
use crate::MessageError;
use std::sync::Arc;
use std::time::Duration;

/// How long a unit that leaves because of a loss, of which others may have to hear from it, waits until that
/// is heard.
pub(super) const LAST_NEWS: Duration = Duration::from_millis(250);

/// That the unit takes part: when this goes, it leaves.
pub(super) struct Part {
    pub(super) inner: Arc<Inner>,
    /// The process that takes part: a fork of it does not.
    pub(super) process: u32,
    /// None where no other unit is on this host. It goes after the unit has left: a unit that waits for room
    /// for last words is told by it of those that will never make any.
    pub(super) _host: Option<Host>,
}

impl Drop for Part {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // All that a fork shares with the unit is the unit's: the memory, the sockets, and what stops its
            // thread.
            std::mem::forget((self.inner.clone(), self._host.take()));
            return;
        }
        if std::thread::panicking() {
            // The process may live on, and the others would wait for it.
            return self.inner.give_up();
        }
        match self.inner.leave() {
            // What is to be waited for comes when this handler is over.
            Err(MessageError::InHandler) => {
                let (inner, host) = (self.inner.clone(), self._host.take());
                let leave = move || {
                    let _host = host;
                    warn(inner.leave());
                };
                if std::thread::Builder::new().name("polyduct-leave".to_owned()).spawn(leave).is_err() {
                    self.inner.give_up();
                }
            }
            left => warn(left),
        }
    }
}

fn warn(left: Result<(), MessageError>) {
    if let Err(error) = left {
        tracing::warn!(%error, "left while something was under way");
    }
}

impl Domain {
    /// Leaves the domain in order: the others may wait for this unit no more, and calls of any kind are
    /// refused at their ends. Waits until what was sent, handlers' answers included, is with the others or
    /// lies where they will find it, as long as they live. Messages that wait here to be taken are dropped.
    /// The first call counts, whichever handle it is made with. Waits of other threads end then with
    /// [`MessageError::PeerLeft`] of this very unit.
    ///
    /// # Errors
    /// [`MessageError::Timeout`] after the domain's timeout (without one it waits for as long as it takes)
    /// and [`MessageError::Interrupted`]: something was not taken; to the units that miss it this one is
    /// lost.
    /// [`MessageError::InHandler`]: nothing was done.
    pub fn leave(&self) -> Result<(), MessageError> {
        self.inner.leave()
    }

    /// The same unless somebody else has a handle, too: the unit leaves when that is dropped, which cannot
    /// say how it went.
    ///
    /// # Errors
    /// As [`leave`](Domain::leave).
    pub fn close(self) -> Result<(), MessageError> {
        Arc::into_inner(self.part).map_or(Ok(()), |part| part.inner.leave())
    }

    /// Gives up: for the others this unit is lost from now on, as if its process had died. For those who
    /// cannot go on, and whose process lives.
    pub fn give_up(&self) {
        self.inner.give_up();
    }
}

impl Inner {
    /// Leaves when others have what this unit sent; the first time. A unit that has left takes no mail any
    /// more: two that leave would each wait for room that the other makes by taking its own.
    pub(super) fn leave(&self) -> Result<(), MessageError> {
        if self.units.leaves() {
            return Ok(());
        }
        if in_handler() {
            return Err(MessageError::InHandler);
        }
        if self.units.begin_to_leave() {
            return Ok(());
        }
        self.inbox.mailbox().clear();
        // What waits for room goes before. After a loss, or a breach, that ends all waits nobody waits for
        // it.
        let sent = |inner: &Inner| (!inner.flush_backlog()).then_some(Ok(()));
        match self.wait("others to take what was sent", None, sent) {
            Err(error) if !is_loss(&error) && self.units.lost().is_none() => {
                self.end_early();
                return Err(error);
            }
            _ => {}
        }
        let because = self.units.leave();
        // The waits of other threads end.
        self.receiving.stir();
        match &self.net {
            Some(net) => net.leave(&self.units, because),
            None => Ok(()),
        }
    }

    pub(super) fn give_up(&self) {
        if !self.units.begin_to_leave() {
            self.end_early();
        }
    }

    /// Ends this unit's part while others do not have all that it sent: to them it is lost.
    fn end_early(&self) {
        // Where all know of a loss already, nobody waits any more.
        let news = self.units.lost().is_none();
        self.units.give_up();
        self.receiving.stir();
        if news {
            knock(&self.units.who(), self.units.board());
        }
        if let Some(net) = &self.net {
            net.give_up(&self.units);
        }
    }
}
