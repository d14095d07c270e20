//! Takes a unit out of its domain: in order, or because it cannot go on.

use super::ask::knock;
use super::dispatch::in_handler;
use super::host::Host;
use super::peer::lock;
use super::wait::is_loss;
use super::{Inner, OnLoss};
use crate::MessageError;
use std::sync::atomic::Ordering;
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
    /// None where no other unit is on this host. It goes after the unit has left: who waits for room for last
    /// words is told by it of those who will never make any.
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

impl Inner {
    /// Leaves when others have what this unit sent; the first time. Who has left takes no mail any more: two
    /// that leave would each wait for room that the other makes by taking its own.
    pub(super) fn leave(&self) -> Result<(), MessageError> {
        if self.left.load(Ordering::Acquire) {
            return Ok(());
        }
        if in_handler() {
            return Err(MessageError::InHandler);
        }
        if self.left.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        lock(&self.mailbox).clear();
        // What waits for room goes before. After a loss, or a breach, that ends all waits nobody waits for
        // it.
        let sent = |inner: &Inner| (!inner.flush_backlog()).then_some(Ok(()));
        match self.wait("others to take what was sent", None, sent) {
            Err(error) if !is_loss(&error) && self.lost().is_none() => {
                self.end_early();
                return Err(error);
            }
            _ => {}
        }
        // Who goes on after a loss does not leave because of it.
        let because = (self.options.on_loss == OnLoss::Raise).then(|| self.leaves_because_of()).flatten();
        self.board.leave(self.options.unit, because);
        self.go_away();
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
        self.go_away();
        if news {
            knock(&self.who(), &self.board);
        }
        if let Some(net) = &self.net {
            net.give_up(self);
        }
    }

    /// Ends the links, and the waits of other threads: nobody looks for them any more.
    fn go_away(&self) {
        self.away.store(true, Ordering::Release);
        for peer in &self.peers {
            if let Some(link) = peer.link.get() {
                link.close();
            }
        }
        self.stir();
    }
}
