//! One way to the peer: numbers of frames, what is in flight, what came (RFC 9002 for a path that loses
//! frames).

use super::config::Config;
use super::planted::Bug;
use super::ranges::Ranges;
use super::rate::{Rate, Snapshot};
use super::rtt::Rtt;
use crate::error::LinkError;
use crate::types::Priority;
use crate::wire::{Ack, StreamId, MAX_ACK_RANGES};
use std::collections::VecDeque;
use std::time::Duration;

/// A frame that goes out.
pub(crate) struct Outbound {
    pub bytes: usize,
    /// It carries fragments of high priority only.
    pub high: bool,
    /// It asks for an acknowledgement.
    pub eliciting: bool,
    /// There was nothing more to send: what is delivered says little about the path.
    pub limited: bool,
    pub carried: Vec<Carried>,
}

/// What a frame carried that must arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Carried {
    Fragment {
        stream: StreamId,
        number: u64,
        attempt: u8,
        offset: u64,
        len: u32,
        head: bool,
    },
    Control(Control),
    /// An acknowledgement up to this number: once it arrived, what lies below is not repeated.
    Ack {
        up_to: u64,
    },
}

/// Small pieces that must arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Control {
    Taken(StreamId),
    Done(StreamId, u64),
    Refused(StreamId, u64, u8),
    /// There are buffers again.
    Go(StreamId),
    /// This message, refused before, has its place now.
    Accepted(StreamId, u64),
    Cancel(StreamId, u64),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// Asks for no acknowledgement.
    Quiet,
    Flying,
    Arrived,
    Lost,
}

#[derive(Debug)]
struct Sent {
    at: Duration,
    bytes: u32,
    high: bool,
    fate: Fate,
    snapshot: Snapshot,
    carried: Vec<Carried>,
}

/// Frames out of order before the earlier is lost (RFC 9002); grows when that turns out wrong.
const REORDER: u64 = 3;
const REORDER_MAX: u64 = 300;
/// Ranges kept of what came.
const RECEIVED_RANGES: usize = 64;
/// After this many timers without an answer, a path is no place for what others can carry.
const SUSPECT: u32 = 3;

#[derive(Debug)]
pub(crate) struct Path {
    pub up: bool,
    pub max_frame: usize,
    next_number: u64,
    /// From number `next_number - sent.len()` on.
    sent: VecDeque<Sent>,
    /// Bytes in flight, low and high.
    flying: [u64; 2],
    flying_frames: usize,
    largest_acked: Option<u64>,
    reorder: u64,
    pub rtt: Rtt,
    pub rate: Rate,
    loss_at: Option<Duration>,
    timeout_at: Option<Duration>,
    pub timeouts: u32,
    /// Frames that go out whatever the window says.
    pub probes: u32,
    received: Ranges,
    received_floor: u64,
    largest_at: Duration,
    /// Frames that wait for an acknowledgement.
    unacked: u32,
    pub ack_at: Option<Duration>,
    pool: Vec<Vec<Carried>>,
    /// Bytes of a fragment that the driver reads straight into its place.
    pub body: Option<Body>,
    pub counters: PathCounters,
}

/// A large fragment of which the start came in the frame's first bytes.
#[derive(Debug)]
pub(crate) struct Body {
    pub stream: StreamId,
    /// No message has the greatest number: then the bytes are skipped.
    pub number: u64,
    /// Where the fragment lies in the payload.
    pub start: u64,
    pub end: u64,
    /// Where the next byte goes.
    pub at: u64,
}

/// Counts of one path since it was first used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Frames sent.
    pub frames_sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Frames received, each once.
    pub frames_received: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames taken for lost.
    pub lost: u64,
    /// … that came after all.
    pub found: u64,
    /// Times the retransmission timer fired.
    pub timeouts: u64,
}

impl Path {
    pub fn new(max_frame: usize, config: &Config) -> Path {
        Path {
            up: true,
            max_frame,
            next_number: 0,
            sent: VecDeque::new(),
            flying: [0; 2],
            flying_frames: 0,
            largest_acked: None,
            reorder: REORDER,
            rtt: Rtt::new(config.initial_rtt),
            rate: Rate::new(config.initial_window, config.max_window, max_frame as u64, config.ack_delay),
            loss_at: None,
            timeout_at: None,
            timeouts: 0,
            probes: 0,
            received: Ranges::default(),
            received_floor: 0,
            largest_at: Duration::ZERO,
            unacked: 0,
            ack_at: None,
            pool: Vec::new(),
            body: None,
            counters: PathCounters::default(),
        }
    }

    // -- out --

    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    pub fn in_flight(&self) -> u64 {
        self.flying[0] + self.flying[1]
    }

    /// Whether something flies that will be acknowledged.
    pub fn expects_ack(&self) -> bool {
        self.flying_frames > 0
    }

    pub fn suspect(&self) -> bool {
        self.timeouts >= SUSPECT
    }

    /// Whether the window has room. Low priority counts everything in flight, high only its own, so that low
    /// never keeps it waiting.
    pub fn window_open(&self, priority: Priority) -> bool {
        let counted = match priority {
            Priority::Low => self.in_flight(),
            Priority::High => self.flying[1],
        };
        counted < self.rate.window()
    }

    /// Whether the table of sent frames has room; a reserve is kept for what must go out anyhow.
    pub fn table_open(&self, config: &Config) -> bool {
        self.sent.len() < config.max_sent
    }

    pub fn carried(&mut self) -> Vec<Carried> {
        self.pool.pop().unwrap_or_default()
    }

    /// Puts a frame on record that is sent now.
    pub fn on_sent(&mut self, now: Duration, frame: Outbound, config: &Config) {
        let Outbound { bytes, high, eliciting, limited, carried } = frame;
        self.next_number += 1;
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        if config.lossless {
            return;
        }
        let snapshot = if eliciting {
            let snapshot = self.rate.on_sent(now, bytes as u64, self.in_flight(), limited);
            self.flying[usize::from(high)] += bytes as u64;
            self.flying_frames += 1;
            self.probes = self.probes.saturating_sub(1);
            self.timeout_at = Some(now + self.timeout(config));
            snapshot
        } else {
            Snapshot::default()
        };
        let fate = if eliciting { Fate::Flying } else { Fate::Quiet };
        self.sent.push_back(Sent { at: now, bytes: bytes as u32, high, fate, snapshot, carried });
        self.forget();
    }

    fn timeout(&self, config: &Config) -> Duration {
        let base = self.rtt.timeout(config.ack_delay);
        base.saturating_mul(1 << self.timeouts.min(10)).min(config.max_timeout.max(base))
    }

    /// Drops records at the front that nobody asks for any more. Lost ones stay for a while: they may turn
    /// up.
    fn forget(&mut self) {
        while let Some(front) = self.sent.front() {
            let old = match front.fate {
                Fate::Flying => false,
                Fate::Quiet | Fate::Arrived => true,
                Fate::Lost => self.sent.len() > 2 * REORDER_MAX as usize || self.flying_frames == 0,
            };
            if !old {
                return;
            }
            let carried = self.sent.pop_front().map(|s| s.carried).unwrap_or_default();
            self.recycle(carried);
        }
    }

    fn recycle(&mut self, mut carried: Vec<Carried>) {
        if self.pool.len() < 64 && carried.capacity() > 0 {
            carried.clear();
            self.pool.push(carried);
        }
    }

    /// Takes an acknowledgement. `arrived` and `lost` get what the frames carried.
    pub fn on_ack(
        &mut self,
        now: Duration,
        ack: &Ack<'_>,
        config: &Config,
        arrived: &mut Vec<Carried>,
        lost: &mut Vec<Carried>,
    ) -> Result<(), LinkError> {
        if ack.largest >= self.next_number {
            return Err(LinkError::BadField {
                what: "acknowledged frame",
                found: ack.largest,
                expected: "the number of a frame that was sent",
            });
        }
        let first = self.next_number - self.sent.len() as u64;
        let mut bytes = 0;
        let mut newest: Option<(u64, Duration, Snapshot)> = None;
        for (low, high) in ack.ranges() {
            if high < first {
                break;
            }
            for number in low.max(first)..=high {
                let sent = &mut self.sent[(number - first) as usize];
                match sent.fate {
                    Fate::Flying => {
                        self.flying[usize::from(sent.high)] -= u64::from(sent.bytes);
                        self.flying_frames -= 1;
                    }
                    Fate::Lost => {
                        // It was only late: be more patient from now on.
                        let overtaken = ack.largest.saturating_sub(number);
                        self.reorder = self.reorder.max((overtaken + 1).min(REORDER_MAX));
                        self.rate.on_found(sent.bytes.into());
                        self.counters.found += 1;
                    }
                    Fate::Quiet | Fate::Arrived => continue,
                }
                sent.fate = Fate::Arrived;
                bytes += u64::from(sent.bytes);
                if newest.is_none_or(|n| n.0 < number) {
                    newest = Some((number, sent.at, sent.snapshot));
                }
                arrived.append(&mut sent.carried);
            }
        }
        if let Some((number, at, snapshot)) = newest {
            let mut rtt = None;
            if number == ack.largest && self.largest_acked.is_none_or(|l| l < number) {
                let sample = now.saturating_sub(at);
                let delay = Duration::from_micros(ack.delay_us.into());
                self.rtt.sample(sample, delay, config.ack_delay * 2);
                rtt = Some(sample);
            }
            self.rate.on_acked(now, bytes, at, snapshot, rtt);
            self.timeouts = 0;
            self.probes = 0;
        }
        if self.largest_acked.is_none_or(|l| l < ack.largest) {
            self.largest_acked = Some(ack.largest);
        }
        self.find_lost(now, config, lost);
        self.timeout_at = self.expects_ack().then(|| now + self.timeout(config));
        self.forget();
        Ok(())
    }

    fn find_lost(&mut self, now: Duration, config: &Config, lost: &mut Vec<Carried>) {
        self.loss_at = None;
        let Some(largest) = self.largest_acked else { return };
        let first = self.next_number - self.sent.len() as u64;
        if largest < first {
            return;
        }
        let delay = self.rtt.loss_delay();
        let upto = (largest - first) as usize;
        for at in 0..upto.min(self.sent.len()) {
            let sent = &mut self.sent[at];
            if sent.fate != Fate::Flying {
                continue;
            }
            let number = first + at as u64;
            if sent.at + delay > now && largest - number < self.reorder {
                // Those that follow were sent later, but by their number may be nearer to the largest: all
                // wait.
                self.loss_at = Some(sent.at + delay);
                break;
            }
            sent.fate = Fate::Lost;
            self.flying_frames -= 1;
            if !config.planted(Bug::WindowLeak) {
                self.flying[usize::from(sent.high)] -= u64::from(sent.bytes);
            }
            self.counters.lost += 1;
            self.rate.on_lost(sent.bytes.into());
            lost.append(&mut sent.carried);
        }
    }

    /// Timers that have come. `lost` gets what is to be sent again.
    pub fn on_time(&mut self, now: Duration, config: &Config, lost: &mut Vec<Carried>) {
        if self.loss_at.is_some_and(|at| at <= now) {
            self.find_lost(now, config, lost);
            self.timeout_at = self.expects_ack().then(|| now + self.timeout(config));
            self.forget();
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.timeout_at = None;
            if config.planted(Bug::NoProbe) {
                return;
            }
            if !self.expects_ack() {
                return;
            }
            self.timeouts += 1;
            self.counters.timeouts += 1;
            self.probes = 2;
            // The oldest two go out again, without being counted as lost: any answer will tell.
            let oldest = self.sent.iter_mut().filter(|s| s.fate == Fate::Flying && !s.carried.is_empty());
            for sent in oldest.take(2) {
                lost.append(&mut sent.carried);
            }
            if self.suspect() {
                // Other paths may carry all of it.
                for sent in self.sent.iter_mut().filter(|s| s.fate == Fate::Flying) {
                    lost.append(&mut sent.carried);
                }
                self.rate.on_silence();
            }
            self.timeout_at = Some(now + self.timeout(config));
        }
    }

    /// The path is gone: everything in flight on it is lost.
    pub fn on_down(&mut self, lost: &mut Vec<Carried>) {
        self.up = false;
        self.body = None;
        for sent in &mut self.sent {
            if sent.fate == Fate::Flying {
                sent.fate = Fate::Lost;
                lost.append(&mut sent.carried);
            }
        }
        self.flying = [0; 2];
        self.flying_frames = 0;
        (self.loss_at, self.timeout_at, self.ack_at) = (None, None, None);
        self.probes = 0;
        self.unacked = 0;
        self.forget();
    }

    /// The earliest of the timers above.
    pub fn deadline(&self) -> Option<Duration> {
        [self.loss_at, self.timeout_at, self.ack_at].into_iter().flatten().min()
    }

    // -- in --

    /// Whether a frame of this number came before, or cannot be told from one that did.
    pub fn came(&self, number: u64) -> bool {
        number < self.received_floor || self.received.contains(number)
    }

    /// Puts a frame on record that came and was used in whole.
    pub fn on_received(&mut self, now: Duration, number: u64, eliciting: bool, config: &Config) {
        self.counters.frames_received += 1;
        let next = self.received.last().map_or(0, |r| r.1);
        self.received.insert(number, number + 1);
        if self.received.len() > RECEIVED_RANGES {
            self.received.pop_lowest();
            self.received_floor = self.received.first().map_or(0, |r| r.0);
        }
        if number >= next {
            self.largest_at = now;
        }
        if config.lossless || !eliciting {
            return;
        }
        self.unacked += 1;
        // A hole is told at once: the sender may have lost something.
        let soon = self.unacked >= config.ack_every || number != next;
        let due = if soon { now } else { now + config.ack_delay };
        self.ack_at = Some(self.ack_at.map_or(due, |at| at.min(due)));
    }

    /// A frame came again: its acknowledgement may have been lost.
    pub fn on_duplicate(&mut self, now: Duration, config: &Config) {
        self.counters.duplicates += 1;
        if !config.lossless {
            let due = now + config.ack_delay;
            self.ack_at = Some(self.ack_at.map_or(due, |at| at.min(due)));
        }
    }

    /// Whether there is something to acknowledge.
    pub fn ack_wanted(&self) -> bool {
        self.ack_at.is_some()
    }

    /// Writes the acknowledgement into at most `room` bytes; returns up to which number.
    pub fn write_ack(&mut self, now: Duration, path: u8, room: usize, out: &mut Vec<u8>) -> Option<u64> {
        let ranges = room.checked_sub(20)? / 8 + 1;
        let largest = self.received.last()?.1 - 1;
        let delay = now.saturating_sub(self.largest_at).as_micros().min(u32::MAX.into()) as u32;
        let inclusive = self.received.descending().map(|(a, b)| (a, b - 1));
        crate::wire::write_ack(path, delay, inclusive.take(ranges.min(MAX_ACK_RANGES)), out);
        self.unacked = 0;
        self.ack_at = None;
        Some(largest)
    }

    /// The peer has our acknowledgement up to this number: what lies far below need not be repeated.
    pub fn ack_arrived(&mut self, up_to: u64) {
        let below = up_to.saturating_sub(REORDER_MAX);
        if below > self.received_floor {
            self.received_floor = below;
            self.received.remove_below(below);
        }
    }
}
