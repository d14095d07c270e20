//! A unit leaves: what it said before reaches unit 0, whose good-bye it waits for.

use super::Client;
use crate::net::wire::{Ask, Tell};
use polyduct_os::clock;
use polyduct_slots::reason::cut;
use std::time::Duration;

/// How long a leaving unit waits for unit 0's good-bye.
const BYE: Duration = Duration::from_secs(2);

impl Client {
    /// Leaves: what was said before reaches unit 0.
    pub fn leave(&mut self, ask: &Ask) {
        self.gives_up = matches!(ask, Ask::Abort(_));
        let _ = self.say(ask);
        self.wait_for_bye(Some(if self.silent { Duration::ZERO } else { BYE }));
        if self.bye {
            // With that unit 0 knows that its good-bye was heard, and does not look for this unit.
            let _ = self.say(ask);
        }
        self.door = None;
        self.session.channel().shut();
    }

    /// Leaves for a reason that the others know, or shall know; it may be empty.
    pub fn give_up(&mut self, reason: &str) {
        let known = self.stop.is_some() || self.notice.is_some();
        self.leave(&if known { Ask::Leave } else { Ask::Abort(cut(reason).to_owned()) });
    }

    /// Stays for the readers after a stop, within the port's patience.
    pub fn outlast(&mut self) {
        let _ = self.say(&Ask::Leave);
        self.wait_for_bye(self.options.timeout);
    }

    fn wait_for_bye(&mut self, limit: Option<Duration>) {
        let start = clock::now();
        // Another unit 0 has to know that this unit did not die.
        let comes_back = self.options.timeout.map_or(self.calls.most, |most| most.min(self.calls.most));
        while !self.bye && !self.options.is_interrupted() {
            let heard = self.hear();
            let is_late = self.is_cut_off() && self.calls.revives && !self.gives_up;
            let limit = if is_late { limit.map(|l| l.max(comes_back)) } else { limit };
            let left = limit.map(|l| l.saturating_sub(clock::now() - start));
            match heard {
                Ok(Some(Tell::Bye)) => self.bye = true,
                Ok(Some(_)) => {}
                Ok(None) if left.is_some_and(|l| l.is_zero()) || self.poll(Vec::new(), left).is_err() => {
                    return
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether unit 0 has said that nobody needs this unit any more.
    pub fn is_dismissed(&self) -> bool {
        self.bye
    }
}
