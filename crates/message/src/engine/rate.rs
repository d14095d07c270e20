//! Controls the rate of a lossy path: how much may be in flight, and how fast it goes out.
//!
//! A model of the path instead of a reaction to loss, after BBR (Cardwell et al., "BBR: congestion-based
//! congestion control", CACM 60(2), 2017): the greatest delivery rate of the last ten rounds and the least
//! round-trip time say what the path holds. Two things differ. Loss without a growing queue is taken for
//! noise, and the sending rate is raised by what gets lost, so that the path stays full at 30 % loss, where
//! BBR starves (its probing gains 25 % and more is lost). Loss with a growing queue, or a queue that stays,
//! is taken for congestion: one round below the measured rate with a small window. Delivery rates are sampled
//! as in draft-cheng-iccrg-delivery-rate-estimation-02.

use std::time::Duration;

/// What a frame remembers of the path at the time it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    delivered: u64,
    delivered_at: Duration,
    first_sent_at: Duration,
    limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Double each round until the rate stops growing.
    Startup,
    /// Let the queue that startup built run empty.
    Drain,
    /// At the measured rate, with one round above and one below it in each cycle of eight.
    Cruise(u8),
    /// A round below the measured rate.
    Yield,
}

const ROUNDS: usize = 10;
const STARTUP_GAIN: f64 = 2.77;
/// Loss below this share of a round is noise whatever the queue does.
const NOISE: f64 = 0.03;
/// Loss is made up for as far as this share.
const MADE_UP: f64 = 0.5;
/// The next frame waits no longer than this for the frames before.
const MAX_DEBT: Duration = Duration::from_millis(100);
/// The least round-trip time is forgotten after this.
const MEMORY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Rate {
    mode: Mode,
    delivered: u64,
    delivered_at: Duration,
    first_sent_at: Duration,
    /// Bytes per second, the greatest of each of the last rounds.
    rounds: [f64; ROUNDS],
    round: usize,
    /// The round ends when a frame sent after this much was delivered is acknowledged.
    round_end: u64,
    round_acked: u64,
    round_lost: u64,
    round_min_rtt: Duration,
    full_rate: f64,
    full_rounds: u32,
    min_rtt: Duration,
    min_rtt_at: Duration,
    /// Share of bytes lost, smoothed.
    loss: f64,
    queued_rounds: u32,
    window: u64,
    min_window: u64,
    max_window: u64,
    ack_delay: Duration,
    next_send: Duration,
}

impl Rate {
    pub fn new(initial: u64, max: u64, frame: u64, ack_delay: Duration) -> Rate {
        Rate {
            mode: Mode::Startup,
            delivered: 0,
            delivered_at: Duration::ZERO,
            first_sent_at: Duration::ZERO,
            rounds: [0.0; ROUNDS],
            round: 0,
            round_end: 0,
            round_acked: 0,
            round_lost: 0,
            round_min_rtt: Duration::MAX,
            full_rate: 0.0,
            full_rounds: 0,
            min_rtt: Duration::MAX,
            min_rtt_at: Duration::ZERO,
            loss: 0.0,
            queued_rounds: 0,
            window: initial.max(4 * frame).min(max),
            min_window: (4 * frame).min(max),
            max_window: max,
            ack_delay,
            next_send: Duration::ZERO,
        }
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Bytes per second delivered, as far as known.
    pub fn bandwidth(&self) -> f64 {
        self.rounds.iter().fold(0.0, |a, &b| a.max(b))
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => 1.0 / STARTUP_GAIN,
            Mode::Cruise(0) => 1.25,
            Mode::Cruise(1) => 0.75,
            Mode::Cruise(_) => 1.0,
            Mode::Yield => 0.7,
        }
    }

    /// By how much more must be sent than is to arrive.
    fn made_up(&self) -> f64 {
        1.0 / (1.0 - self.loss.min(MADE_UP))
    }

    /// When the next frame may go out.
    pub fn next_send(&self) -> Duration {
        self.next_send
    }

    /// A frame of `bytes` goes out, with `in_flight` before it.
    pub fn on_sent(&mut self, now: Duration, bytes: u64, in_flight: u64, limited: bool) -> Snapshot {
        if in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        let rate = self.bandwidth() * self.gain() * self.made_up();
        // A path that was never full has shown how fast its user was, and not how fast it is: the window
        // alone holds.
        let known = self.mode != Mode::Startup || self.full_rate > 0.0;
        if known && rate > 0.0 {
            // Bursts of a millisecond or a few frames go out at once: timers are not finer.
            let burst = Duration::from_secs_f64((self.min_window as f64 / rate).clamp(0.001, 0.1));
            let cost = Duration::from_secs_f64((bytes as f64 / rate).min(1.0));
            let next = self.next_send.max(now.saturating_sub(burst)) + cost;
            // What goes out unpaced must not add up to a debt that holds the rest up for long.
            self.next_send = next.min(now + MAX_DEBT.max(cost));
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            limited,
        }
    }

    /// Bytes were acknowledged; `newest` is the last sent of their frames: when it went out, with which
    /// snapshot, and the round-trip time if it was measured.
    pub fn on_acked(
        &mut self,
        now: Duration,
        bytes: u64,
        sent_at: Duration,
        newest: Snapshot,
        rtt: Option<Duration>,
    ) {
        self.delivered += bytes;
        self.delivered_at = now;
        self.round_acked += bytes;
        self.first_sent_at = self.first_sent_at.max(sent_at);
        if let Some(rtt) = rtt {
            self.round_min_rtt = self.round_min_rtt.min(rtt);
            if rtt <= self.min_rtt || now.saturating_sub(self.min_rtt_at) > MEMORY {
                self.min_rtt = rtt.max(Duration::from_micros(1));
                self.min_rtt_at = now;
            }
        }
        let interval =
            sent_at.saturating_sub(newest.first_sent_at).max(now.saturating_sub(newest.delivered_at));
        if interval >= self.min_rtt / 2 && !interval.is_zero() {
            let rate = (self.delivered - newest.delivered) as f64 / interval.as_secs_f64();
            let best = &mut self.rounds[self.round % ROUNDS];
            if !newest.limited || rate > *best {
                *best = best.max(rate);
            }
        }
        if newest.delivered >= self.round_end {
            self.end_round(newest.limited);
        }
        self.set_window();
    }

    /// Bytes are taken for lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.round_lost += bytes;
    }

    /// Bytes taken for lost came after all.
    pub fn on_found(&mut self, bytes: u64) {
        self.round_lost = self.round_lost.saturating_sub(bytes);
    }

    /// Nothing was acknowledged for several timers: whatever was known of the path no longer holds.
    pub fn on_silence(&mut self) {
        self.window = self.min_window;
        self.rounds = [0.0; ROUNDS];
        self.full_rate = 0.0;
        self.full_rounds = 0;
        self.mode = Mode::Startup;
    }

    fn end_round(&mut self, limited: bool) {
        let rate = self.bandwidth();
        let sent = self.round_acked + self.round_lost;
        let loss = if sent > 0 { self.round_lost as f64 / sent as f64 } else { 0.0 };
        let weight = (sent as f64 / (16.0 * self.min_window as f64)).clamp(0.05, 0.5);
        self.loss += (loss - self.loss) * weight;
        let known = self.min_rtt < Duration::MAX && self.round_min_rtt < Duration::MAX;
        let queued = known && self.round_min_rtt > self.min_rtt * 3 / 2 + Duration::from_micros(500);
        self.queued_rounds = if queued { self.queued_rounds + 1 } else { 0 };
        let congested = queued && (loss > NOISE || self.queued_rounds > 8);

        self.mode = match self.mode {
            Mode::Startup => {
                if !limited {
                    if rate > self.full_rate * 1.25 {
                        self.full_rate = rate;
                        self.full_rounds = 0;
                    } else {
                        self.full_rounds += 1;
                    }
                }
                if self.full_rounds >= 3 || congested {
                    Mode::Drain
                } else {
                    Mode::Startup
                }
            }
            Mode::Drain if queued && self.queued_rounds < 8 => Mode::Drain,
            Mode::Drain | Mode::Yield => Mode::Cruise(2),
            Mode::Cruise(_) if congested => Mode::Yield,
            Mode::Cruise(phase) => Mode::Cruise((phase + 1) % 8),
        };
        if congested {
            // What the queue swallowed was not the path's rate; and what got lost there is not made up for.
            self.loss = self.loss.min(NOISE);
            self.queued_rounds = 0;
        }
        // A round in which there was little to send says nothing: what was known of the path is not forgotten
        // for it.
        if !limited || congested {
            self.round += 1;
            self.rounds[self.round % ROUNDS] = 0.0;
        }
        self.round_end = self.delivered;
        self.round_acked = 0;
        self.round_lost = 0;
        self.round_min_rtt = Duration::MAX;
    }

    fn set_window(&mut self) {
        let rate = self.bandwidth();
        if rate == 0.0 || self.min_rtt == Duration::MAX {
            return;
        }
        let gain = match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Yield => 1.0,
            _ => 2.0,
        };
        // Receivers hold acknowledgements back for a while; without that much more the path would idle.
        let held = (self.min_rtt.mul_f64(gain) + 2 * self.ack_delay).as_secs_f64();
        let target = (rate * held * self.made_up()) as u64 + self.min_window;
        let target = target.clamp(self.min_window, self.max_window);
        // Startup never shrinks: its first samples are of few frames.
        self.window = if self.mode == Mode::Startup { self.window.max(target) } else { target };
    }
}
