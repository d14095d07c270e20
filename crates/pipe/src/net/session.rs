//! A session between two processes, over as many connections as it takes: no message is lost, and none comes
//! twice.
//!
//! Each message carries the number of those that its sender has heard. What the other end is not known to
//! have is kept; when a connection breaks and another is made, both ends say how far they are, and say the
//! rest again.

use super::channel::Channel;
use polyduct_message::link::net::LinkFault;
use polyduct_message::LinkError;
use serde::{de::DeserializeOwned, Serialize};
use std::collections::VecDeque;

/// The name of a session, drawn at random: by it the other end knows who comes again.
pub type SessionId = [u8; 16];

/// Messages that are kept for the other end, at most: one that hears nothing of so many is given up.
const KEPT: usize = 1 << 14;

/// One end, which says `S`.
pub struct ResumableSession<S> {
    channel: Channel,
    /// The connection is gone, and another is not made yet.
    broken: bool,
    /// What was said and may not have come, the last of it at the back.
    kept: VecDeque<S>,
    /// Messages before those.
    known: u64,
    heard: u64,
}

impl<S: Serialize> ResumableSession<S> {
    /// A session that begins on this connection.
    pub fn new(channel: Channel) -> ResumableSession<S> {
        ResumableSession { channel, broken: false, kept: VecDeque::new(), known: 0, heard: 0 }
    }

    /// The connection, which may be gone.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Messages that have come from the other end.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// Whether the other end has said that it has heard all.
    pub fn is_heard(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether the other end has not said for too long that it hears.
    pub fn is_overfull(&self) -> bool {
        self.kept.len() > KEPT
    }

    /// The connection is gone: what is said from now on waits for the next.
    pub fn is_cut(&mut self) {
        self.broken = true;
    }

    /// Says something, at the next [`flush`](ResumableSession::flush).
    pub fn post(&mut self, message: S) -> Result<(), LinkFault> {
        let posted = match self.broken {
            true => Ok(()),
            false => self.channel.post(&(self.heard, &message)),
        };
        self.kept.push_back(message);
        posted
    }

    /// Writes what waits for the socket; returns whether all of it went.
    pub fn flush(&mut self) -> Result<bool, LinkFault> {
        match self.broken {
            true => Ok(true),
            false => self.channel.flush(),
        }
    }

    /// Writes what waits as far as that goes; the next message, if it has come.
    pub fn hear<H: DeserializeOwned>(&mut self) -> Result<Option<H>, LinkFault> {
        if self.broken {
            return Ok(None);
        }
        // What came before the end of a connection counts, though nobody takes anything there any more.
        let heard = match self.channel.flush() {
            Ok(_) => self.channel.next::<(u64, H)>()?,
            Err(fault) => Some(self.channel.next().ok().flatten().ok_or(fault)?),
        };
        let Some((theirs, message)) = heard else { return Ok(None) };
        self.forget(theirs)?;
        self.heard += 1;
        Ok(Some(message))
    }

    /// Whether the other end can have heard so many messages: it said of fewer that it had, and more were not
    /// said.
    pub fn may_have_heard(&self, theirs: u64) -> bool {
        theirs.checked_sub(self.known).is_some_and(|new| new <= self.kept.len() as u64)
    }

    /// Goes on with another connection, whose other end has heard so many messages: says the others again.
    pub fn resume(&mut self, channel: Channel, theirs: u64) -> Result<(), LinkFault> {
        self.forget(theirs)?;
        (self.channel, self.broken) = (channel, false);
        self.kept.iter().try_for_each(|message| self.channel.post(&(self.heard, message)))?;
        self.channel.flush().map(drop)
    }

    /// The other end has heard so many messages.
    fn forget(&mut self, theirs: u64) -> Result<(), LinkFault> {
        if !self.may_have_heard(theirs) {
            let (what, expected) = ("count of messages", "what was said and not confirmed before");
            return Err(LinkError::BadField { what, found: theirs, expected }.into());
        }
        let new = theirs - self.known;
        self.kept.drain(..new as usize);
        self.known = theirs;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::listener::tests::pair;
    use super::*;
    use polyduct_os::poll::{poll, PollItem};

    /// The next message, once it has come.
    fn next<S: Serialize, H: DeserializeOwned>(session: &mut ResumableSession<S>) -> Result<H, LinkFault> {
        loop {
            if let Some(message) = session.hear()? {
                return Ok(message);
            }
            poll(&mut [PollItem::readable(session.channel())], None)?;
        }
    }

    #[test]
    fn what_did_not_come_is_said_again_and_nothing_twice() {
        for trusted in [true, false] {
            let (here, there) = pair(trusted);
            let (mut here, mut there) =
                (ResumableSession::<u32>::new(here), ResumableSession::<u64>::new(there));
            [1, 2, 3].into_iter().for_each(|n| here.post(n).unwrap());
            assert!(here.flush().unwrap());
            assert_eq!(next::<u64, u32>(&mut there).unwrap(), 1);
            there.post(10).unwrap();
            assert!(there.flush().unwrap());
            assert_eq!(next::<u32, u64>(&mut here).unwrap(), 10);
            // What has come and is not heard is lost with the connection.
            here.is_cut();
            there.is_cut();
            here.post(4).unwrap();
            there.post(11).unwrap();
            let ends = pair(trusted);
            here.resume(ends.0, there.heard()).unwrap();
            there.resume(ends.1, here.heard()).unwrap();
            for n in [2, 3, 4] {
                assert_eq!(next::<u64, u32>(&mut there).unwrap(), n);
            }
            assert_eq!(next::<u32, u64>(&mut here).unwrap(), 11);
            assert!(here.hear::<u64>().unwrap().is_none() && there.hear::<u32>().unwrap().is_none());
        }
    }

    #[test]
    fn who_claims_to_have_heard_what_was_not_said_is_refused() {
        let mut session = ResumableSession::<u32>::new(pair(true).0);
        session.post(1).unwrap();
        assert!(matches!(session.resume(pair(true).0, 2), Err(LinkFault::Peer(LinkError::BadField { .. }))));
    }
}
