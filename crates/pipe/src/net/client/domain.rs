//! A unit joins the domain of the port, and listens to unit 0 meanwhile.

use super::{Client, VERDICT};
use crate::domain::{DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::watch::no_thread;
use polyduct_message::{domain::Domain, LinkError, MessageError};
use polyduct_os::{
    clock,
    poll::{poll, EventFd, PollItem},
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

impl Client {
    /// Joins the domain of the port. Its units do not know who died before they met; unit 0 of the pipe does,
    /// and says so meanwhile.
    pub fn join_domain(
        &mut self,
        domain: &mut PortDomain,
        wishes: &DomainOptions,
        step: u64,
    ) -> Result<Domain, PipeError> {
        let pipe = self.pipe.clone();
        let done = EventFd::new().map_err(crate::join::system(&pipe))?;
        let over = Arc::new(AtomicBool::new(false));
        let asked = over.clone();
        let (joined, ended) = std::thread::scope(|s| {
            let listens = || {
                let ended = self.listen(&done, None, step);
                over.store(ended.is_some(), Ordering::Release);
                ended
            };
            let thread = std::thread::Builder::new().spawn_scoped(s, listens).map_err(no_thread(&pipe))?;
            let joined = domain.join(wishes, move || asked.load(Ordering::Acquire));
            let _ = done.signal();
            Ok::<_, PipeError>((joined, thread.join().unwrap_or_default()))
        })?;
        let Err(error) = joined else { return joined };
        let is_loss = matches!(&error, PipeError::Domain { source, .. }
            if matches!(**source, MessageError::PeerLost { .. } | MessageError::PeerLeft { .. }));
        // Those who met hear at once of each other's end, and maybe before unit 0's word of whose end made
        // them go.
        let ended = ended.or_else(|| {
            let _ = done.drain();
            is_loss.then(|| self.listen(&done, Some(clock::now() + VERDICT), step)).flatten()
        });
        Err(ended.unwrap_or(error))
    }

    /// Takes what unit 0 says until `done` is signalled or `deadline` is over. Gives how the pipe has ended,
    /// if it has.
    fn listen(&mut self, done: &EventFd, deadline: Option<Duration>, step: u64) -> Option<PipeError> {
        loop {
            if let Err(e) = self.take(step) {
                return Some(e);
            }
            if let Some(stop) = &self.notice {
                return Some(self.stopped(stop.clone(), step));
            }
            // What is still to be read, a reader's next step, is for later; whom the domain needs is gone.
            if self.ended.is_some() {
                return Some(self.gone(LinkError::Closed.into()));
            }
            let left = deadline.map(|d| d.saturating_sub(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let mut items = vec![PollItem::readable(done)];
            items.extend(self.item());
            let happened = poll(&mut items, left.into_iter().chain(self.look_in()).min());
            if happened.is_err() || items[0].is_ready() {
                return None;
            }
        }
    }
}
