//! Limits and times of a session.

use super::planted::Bug;
use std::time::Duration;

/// Settings of a [`Session`](super::Session). Both sides must have the same `lossless`, `max_payload`,
/// `messages_in_flight` and `channels`; the handshake compares them.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The paths lose, double and reorder nothing as long as they are up (TCP): no acknowledgements of
    /// frames, no timers for sending again, no congestion window.
    pub lossless: bool,
    /// Frames carry a CRC32C. For paths that are not encrypted and may change bytes; frames without one are
    /// then refused.
    pub checksum: bool,
    /// Bytes of a payload, at most.
    pub max_payload: u64,
    /// Channels, at most: their numbers are below this.
    pub channels: u16,
    /// Messages begun and not yet known to be delivered, over all streams. Low priority gets three quarters
    /// of it.
    pub messages_in_flight: u32,
    /// Messages of one stream (channel, priority and order) that the sender keeps, at most.
    pub queue_per_stream: usize,
    /// Messages of one priority that the sender keeps, at most.
    pub queue_per_priority: usize,
    /// Payload bytes of one priority that the sender keeps when it takes a message; one, however large, finds
    /// room where no other is kept, and one without payload in any case. What is handed over to a message
    /// later counts, and finds room.
    pub queue_bytes: u64,
    /// Messages of one priority received and not yet polled; more are refused.
    pub waiting: usize,
    /// Paths, at most.
    pub paths: usize,
    /// Bytes of the first fragment of a message: small, so that the receiver starts early and a refusal costs
    /// little.
    pub first_fragment: usize,
    /// Each further fragment may be this many times the one before.
    pub growth: usize,
    /// Bytes of a fragment, at most: what high priority may have to wait for.
    pub max_fragment: usize,
    /// Payload bytes up to which a fragment is copied beside its header instead of being referred to.
    pub inline: usize,
    /// Ranges of bytes that a message under reassembly may have; beyond, frames count as lost unless they
    /// bring its start. Where paths lose nothing it is an error: there it must exceed the fragments by which
    /// one path can be ahead of another.
    pub max_ranges: usize,
    /// Frames sent on a path and not yet acknowledged, at most.
    pub max_sent: usize,
    /// Acknowledgements and receipts wait this long for traffic to ride on.
    pub ack_delay: Duration,
    /// … unless this many frames wait for theirs.
    pub ack_every: u32,
    /// Round-trip time before the first measurement.
    pub initial_rtt: Duration,
    /// The retransmission timer backs off up to this.
    pub max_timeout: Duration,
    /// A peer not heard for this long, while something is expected of it, is lost.
    pub silence: Duration,
    /// Something is always expected of the peer, so that its death is noticed when nothing is sent as well.
    pub keepalive: bool,
    /// Bytes in flight before anything is known of the path.
    pub initial_window: u64,
    /// Bytes in flight, at most.
    pub max_window: u64,
    /// A refused message is tried again after this long, and twice as long after each further refusal …
    pub retry_first: Duration,
    /// … up to this long.
    pub retry_max: Duration,
    /// The bug that a test plants.
    #[doc(hidden)]
    pub planted: Option<Bug>,
}

impl Config {
    /// For links that carry datagrams and may lose them.
    pub fn datagram() -> Config {
        Config {
            lossless: false,
            checksum: true,
            max_payload: 1 << 40,
            channels: 256,
            messages_in_flight: 4096,
            queue_per_stream: 4096,
            queue_per_priority: 16384,
            queue_bytes: 64 << 20,
            waiting: 4096,
            paths: 16,
            first_fragment: 4 << 10,
            growth: 2,
            max_fragment: 64 << 10,
            inline: 256,
            max_ranges: 1024,
            max_sent: 16384,
            ack_delay: Duration::from_micros(500),
            ack_every: 4,
            initial_rtt: Duration::from_millis(20),
            max_timeout: Duration::from_millis(400),
            silence: Duration::from_millis(2500),
            keepalive: true,
            initial_window: 64 << 10,
            max_window: 64 << 20,
            retry_first: Duration::from_millis(2),
            retry_max: Duration::from_millis(500),
            planted: None,
        }
    }

    /// For links that carry a stream of bytes and lose none of it.
    pub fn stream() -> Config {
        Config { lossless: true, checksum: false, ..Config::datagram() }
    }

    /// Whether a bug is planted: never outside tests.
    pub(crate) fn planted(&self, bug: Bug) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }
}

/// Names one session in both directions, so that frames of a former life of either side, and a side's own
/// frames thrown back at it, are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// Frames to the peer carry this.
    pub send: u64,
    /// Frames from the peer carry this.
    pub receive: u64,
}

impl SessionId {
    /// From the numbers that both sides chose at random for this session in the handshake. The peer calls it
    /// with the two exchanged and gets the mirror image.
    pub fn between(mine: u64, peers: u64) -> SessionId {
        SessionId { send: mix(mine, peers), receive: mix(peers, mine) }
    }
}

/// Two steps of SplitMix64 (Steele, Lea, Flood 2014): not a secret, only well spread.
fn mix(a: u64, b: u64) -> u64 {
    let step = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    step(step(a.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(b).wrapping_add(0x3c6e_f372_fe94_f82a))
}
