//! How a unit takes its leave: in order, or because it cannot go on.

use super::ask::knock;
use super::host::Host;
use super::peer::lock;
use super::wait::is_loss;
use super::Inner;
use crate::MessageError;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long a unit that leaves because of a loss, of which others may have to hear from it, waits until that is heard.
pub(super) const LAST_NEWS: Duration = Duration::from_millis(250);

/// That the unit takes part: when this goes, it leaves.
pub(super) struct Part {
    pub(super) inner: Arc<Inner>,
    /// None where no other unit is on this host. It goes after the unit has left: who waits for room for last words is told
    /// by it of those who will never make any.
    pub(super) _host: Option<Host>,
}

impl Drop for Part {
    fn drop(&mut self) {
        match std::thread::panicking() {
            false => {
                if let Err(error) = self.inner.leave() {
                    tracing::warn!(%error, "left while something was under way");
                }
            }
            // The process may live on, and the others would wait for it.
            true => self.inner.give_up(),
        }
    }
}

impl Inner {
    /// Leaves when others have what this unit sent; the first time. Who has left takes no mail any more: two that leave would
    /// each wait for room that the other makes by taking its own.
    pub(super) fn leave(&self) -> Result<(), MessageError> {
        if self.left.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        lock(&self.mailbox).clear();
        // What waits for room goes before. After a loss nobody waits.
        if self.backlog.load(Ordering::Acquire) && self.lost().is_none() {
            let sent = |inner: &Inner| {
                inner.flush_backlog();
                (!inner.backlog.load(Ordering::Acquire)).then_some(Ok(()))
            };
            match self.wait("others to take what was sent", None, sent) {
                Err(error) if !is_loss(&error) => {
                    self.end_early();
                    return Err(error);
                }
                _ => {}
            }
        }
        let because = self.leaves_because_of();
        self.board.leave(self.options.unit, because);
        self.close_links();
        match &self.net {
            Some(net) => net.leave(self, because),
            None => Ok(()),
        }
    }

    pub(super) fn give_up(&self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            self.end_early();
        }
    }

    /// Ends this unit's part while others do not have all that it sent: to them it is lost.
    fn end_early(&self) {
        // Where all know of a loss already, nobody waits any more.
        let news = self.lost().is_none();
        self.board.give_up(self.options.unit, self.leaves_because_of());
        self.close_links();
        if news {
            knock(&self.who(), &self.board);
        }
        if let Some(net) = &self.net {
            net.give_up(self);
        }
    }

    fn close_links(&self) {
        for peer in &self.peers {
            if let Some(link) = peer.link.get() {
                link.close();
            }
        }
    }
}
