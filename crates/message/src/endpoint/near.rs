//! Links with endpoints of this host.

use super::{sizes, Endpoint, Inward, Number, Out, Sent, Way, SHORT, STREAM};
use crate::link::shm::Link;
use polyduct_os::{clock, Errno, OsError};
use std::fmt::Display;
use std::time::Duration;

/// How long the system may have no memory or descriptor for a link, before who it would lead to counts as gone.
const PATIENCE: Duration = Duration::from_secs(3);

/// Since when the system has refused what a link needs.
#[derive(Default)]
pub(super) struct Lack(Option<Duration>);

impl Lack {
    /// The system refuses it. Returns whether it may yet give it.
    fn is_refused(&mut self, error: &impl Display) -> bool {
        let now = clock::now();
        let since = *self.0.get_or_insert_with(|| {
            tracing::warn!(%error, "a link to another process has to wait");
            now
        });
        now.saturating_sub(since) < PATIENCE
    }
}

/// Whether an error is one that time may heal.
fn is_lack(error: &OsError) -> bool {
    match error {
        OsError::NoMemory { .. } | OsError::OutOfDescriptors { .. } => true,
        OsError::System { errno, .. } => matches!(*errno, Errno::NOMEM | Errno::NOBUFS),
        _ => false,
    }
}

impl<B: AsMut<[u8]> + Send + 'static> Endpoint<B> {
    /// The process of a peer, where this endpoint has reached it and it is of this host.
    pub fn process_of(&self, peer: Number) -> Option<u32> {
        Some(self.peers.get(peer as usize)?.process.as_ref()?.pid())
    }

    /// Makes the link to an endpoint of this host.
    pub(super) fn connect(&mut self, to: Number) -> Sent {
        let (Some(door), Some(place)) = (&self.door, self.peers[to as usize].place) else {
            return Sent::Gone;
        };
        let peer = &mut self.peers[to as usize];
        let link = match peer.links.first() {
            Some(link) => Ok(link.clone()),
            None => Link::create(&sizes()),
        };
        let called = link.map(|link| (door.call(&self.place, &place, &link), link));
        match called {
            Ok((Ok(true), link)) => {
                self.take_link(to, link);
                Sent::All
            }
            Ok((Ok(false), _)) => Sent::Later,
            Ok((Err(error), _)) if is_lack(&error) => self.lacks(to, &error),
            Ok((Err(error), _)) => {
                tracing::info!(%error, "an endpoint is gone");
                self.note_gone(to);
                Sent::Later
            }
            Err(error) => self.lacks(to, &error),
        }
    }

    /// The system does not give what a link with a peer needs.
    fn lacks(&mut self, to: Number, error: &impl Display) -> Sent {
        if !self.peers[to as usize].lack.is_refused(error) {
            self.note_gone(to);
        }
        Sent::Later
    }

    pub(super) fn take_link(&mut self, from: Number, link: Link) {
        let peer = &mut self.peers[from as usize];
        if let Way::Near(out @ None) = &mut peer.way {
            if let (Some(short), Some(stream)) =
                (link.sender(SHORT.0, SHORT.1), link.sender(STREAM.0, STREAM.1))
            {
                *out = Some(Box::new(Out { short, stream }));
            }
        }
        if let Some(receiver) = link.receiver() {
            self.inward.push(Inward { from, receiver, is_broken: false, is_stuck: false });
        }
        peer.links.push(link);
    }
}
