//! Round-trip time of a path (RFC 9002, section 5).

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Rtt {
    latest: Duration,
    smoothed: Duration,
    variation: Duration,
    min: Duration,
    measured: bool,
}

/// Timers are not finer than this.
const GRANULARITY: Duration = Duration::from_micros(200);

impl Rtt {
    pub fn new(initial: Duration) -> Rtt {
        Rtt { latest: initial, smoothed: initial, variation: initial / 2, min: initial, measured: false }
    }

    /// A frame was acknowledged this long after it went out; the peer says that it waited `delay` of that,
    /// which counts no more than `max_delay`.
    pub fn sample(&mut self, rtt: Duration, delay: Duration, max_delay: Duration) {
        self.latest = rtt;
        if !self.measured {
            self.measured = true;
            (self.smoothed, self.variation, self.min) = (rtt, rtt / 2, rtt);
            return;
        }
        self.min = self.min.min(rtt);
        let delay = delay.min(max_delay);
        let rtt = if rtt >= self.min + delay { rtt - delay } else { rtt };
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(rtt)) / 4;
        self.smoothed = (self.smoothed * 7 + rtt) / 8;
    }

    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// After this long without acknowledgement of what came before an acknowledged frame, it is lost.
    pub fn loss_delay(&self) -> Duration {
        (self.latest.max(self.smoothed) * 9 / 8).max(GRANULARITY)
    }

    /// After this long without any acknowledgement, the peer is asked again.
    pub fn timeout(&self, ack_delay: Duration) -> Duration {
        self.smoothed + (self.variation * 4).max(GRANULARITY) + ack_delay
    }
}
