//! Which frames go to one viewer: at most two that it has not acknowledged, and then the newest.

use crate::limits::{MAX_CLIENT_MESSAGES, MAX_UNACKNOWLEDGED};
use std::time::Duration;

/// What is on the way to a viewer. Frames have rising numbers; what lies between two that were sent was
/// dropped for this viewer.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Sent, and not acknowledged, oldest first.
    out: Vec<u64>,
    /// The last that was sent.
    last: Option<u64>,
    paused: bool,
    /// What comes next was asked for, and nothing before it is missed.
    fresh: bool,
    /// The newest is to be sent though it was.
    again: bool,
    shown: u64,
    dropped: u64,
}

impl Window {
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Frames that were acknowledged.
    pub(crate) fn shown(&self) -> u64 {
        self.shown
    }

    /// Frames that this viewer missed because it was slower than they came.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the frame `newest` is to be sent now.
    pub(crate) fn wants(&self, newest: u64) -> bool {
        let is_new = self.again || self.last.is_none_or(|last| newest > last);
        !self.paused && is_new && self.out.len() < MAX_UNACKNOWLEDGED
    }

    /// Whether waiting would bring no newer frame than `newest`.
    pub(crate) fn is_caught_up(&self, newest: u64) -> bool {
        self.paused || self.last.unwrap_or(0) >= newest
    }

    /// The frame `id` is sent.
    pub(crate) fn handle_sent(&mut self, id: u64) {
        if let Some(last) = self.last.filter(|_| !self.fresh) {
            self.dropped += id.saturating_sub(last + 1);
        }
        (self.last, self.fresh, self.again) = (Some(id), false, false);
        self.out.push(id);
    }

    /// The viewer has drawn `id`; those before it, too, or it never will. Says whether it was on the way.
    pub(crate) fn handle_ack(&mut self, id: u64) -> bool {
        let is_out = self.out.contains(&id);
        if is_out {
            let before = self.out.len();
            self.out.retain(|out| *out > id);
            self.shown += (before - self.out.len()) as u64;
        }
        is_out
    }

    pub(crate) fn handle_pause(&mut self) {
        self.paused = true;
    }

    pub(crate) fn handle_play(&mut self) {
        self.paused = false;
        self.fresh = true;
    }

    /// Something of the newest frame that was not sent is now wanted.
    pub(crate) fn handle_want(&mut self) {
        self.again = true;
    }

    /// Another program has taken the name; what is on the way will not be acknowledged.
    pub(crate) fn handle_restart(&mut self) {
        self.out.clear();
        self.fresh = true;
    }
}

/// How many messages may come: so many at once, and as many in each second.
#[derive(Debug)]
pub(crate) struct Rate {
    left: f64,
    at: Duration,
}

impl Rate {
    pub(crate) fn new(now: Duration) -> Rate {
        Rate { left: f64::from(MAX_CLIENT_MESSAGES), at: now }
    }

    /// Whether one more may come.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        let most = f64::from(MAX_CLIENT_MESSAGES);
        self.left = most.min(self.left + most * now.saturating_sub(self.at).as_secs_f64());
        self.at = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }

    /// The last one did not count.
    pub(crate) fn give_back(&mut self) {
        self.left += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_are_on_the_way_and_then_only_the_newest() {
        let mut window = Window::default();
        for id in [5, 6] {
            assert!(
                window.wants(id)
                    && !{
                        window.handle_sent(id);
                        window.wants(id)
                    }
            );
        }
        assert!(!window.wants(7) && !window.wants(9));
        window.handle_ack(5);
        assert!(window.wants(9));
        window.handle_sent(9);
        assert_eq!((window.shown(), window.dropped()), (1, 2));
        window.handle_ack(9);
        assert_eq!((window.shown(), window.wants(9), window.wants(10)), (3, false, true));
        assert!(!window.handle_ack(9) && !window.handle_ack(77));
        assert_eq!(window.shown(), 3);
    }

    #[test]
    fn a_pause_is_no_loss() {
        let mut window = Window::default();
        window.handle_sent(1);
        window.handle_pause();
        assert!(window.is_paused() && !window.wants(2));
        window.handle_play();
        assert!(window.wants(50) && !window.wants(1));
        window.handle_sent(50);
        assert_eq!(window.dropped(), 0);
    }

    #[test]
    fn what_is_wanted_of_the_newest_is_sent_again_once() {
        let mut window = Window::default();
        window.handle_sent(1);
        window.handle_want();
        assert!(window.wants(1));
        window.handle_sent(1);
        window.handle_ack(1);
        assert_eq!((window.wants(1), window.shown(), window.dropped()), (false, 2, 0));
    }

    #[test]
    fn another_program_starts_with_an_open_window() {
        let mut window = Window::default();
        window.handle_sent(1);
        window.handle_sent(2);
        window.handle_restart();
        assert!(window.wants(8));
        window.handle_sent(8);
        assert_eq!(window.dropped(), 0);
    }

    #[test]
    fn a_burst_passes_and_a_flood_does_not() {
        let mut rate = Rate::new(Duration::ZERO);
        let passed = (0..10_000).filter(|ms| rate.take(Duration::from_millis(ms / 10))).count();
        assert!((390..=401).contains(&passed), "{passed}");
        assert!(!rate.take(Duration::ZERO) && rate.take(Duration::from_secs(9)));
    }

    proptest! {
        #[test]
        fn never_are_more_than_two_out_and_every_frame_is_sent_or_dropped(
            acts in prop::collection::vec(0u8..4, 0..200),
        ) {
            let (mut window, mut newest, mut sent) = (Window::default(), 0, Vec::new());
            for act in acts {
                match act {
                    0 | 1 => newest += 1,
                    2 => if window.wants(newest) {
                        window.handle_sent(newest);
                        sent.push(newest);
                    },
                    _ => {
                        window.handle_ack(sent.get(window.shown() as usize).copied().unwrap_or(0));
                    }
                }
                prop_assert!(sent.len() as u64 - window.shown() <= 2);
                let seen = sent.first().zip(sent.last()).map_or(0, |(a, b)| b - a + 1);
                prop_assert_eq!(sent.len() as u64 + window.dropped(), seen);
            }
        }
    }
}
