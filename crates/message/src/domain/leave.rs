//! How a unit takes its leave: in order, or because it cannot go on.

use super::ask::knock;
use super::host::Host;
use super::wait::SPIN;
use super::Inner;
use polyduct_os::clock;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long a unit that leaves waits for room for its last words.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The same after a loss, of which others may have to hear from this unit.
const LAST_NEWS: Duration = Duration::from_millis(250);

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
            false => self.inner.leave(),
            // The process may live on, and the others would wait for it.
            true => self.inner.give_up(),
        }
    }
}

impl Inner {
    pub(super) fn leave(&self) {
        if self.left.swap(true, Ordering::AcqRel) {
            return;
        }
        // What waits for room goes before, if those who are to take it do so in good time. After a loss nobody waits.
        if self.backlog.load(Ordering::Acquire) && self.lost().is_none() {
            let deadline = clock::now() + self.options.open_timeout.min(LAST_WORDS);
            let sent = |_: &mut ()| {
                self.poll();
                (self.leave_flushed() || self.lost().is_some()).then_some(())
            };
            self.bell.wait(&mut (), SPIN, deadline, sent, |_| ());
        }
        let because = self.leaves_because_of();
        self.board.leave(self.options.unit, because);
        self.close_links();
        if let Some(net) = &self.net {
            net.leave(self, because, if because.is_some() { LAST_NEWS } else { LAST_WORDS });
        }
    }

    pub(super) fn give_up(&self) {
        if !self.left.swap(true, Ordering::AcqRel) {
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
    }

    fn close_links(&self) {
        for peer in &self.peers {
            if let Some(link) = peer.link.get() {
                link.close();
            }
        }
    }
}
