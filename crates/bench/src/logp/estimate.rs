//! Estimates o_s, o_r, g and L from the curves of a LogP signature: a pure function.

use crate::case::median;
use serde::Serialize;

/// The average time of a message over the length of its burst, with a pause after each message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// Seconds of the pause; zero for none.
    #[serde(rename = "pause_s")]
    pub pause: f64,
    /// Messages of a burst and seconds of each, in rising order of the first.
    pub points: Vec<(f64, f64)>,
}

/// What is measured: the curves, a round trip, and a stream without replies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Signature {
    /// A curve for each pause.
    pub bursts: Vec<Burst>,
    /// Half of a round trip, in seconds.
    #[serde(rename = "half_round_trip_s")]
    pub half_round_trip: f64,
    /// Seconds of a message in a long stream without replies.
    #[serde(rename = "stream_s")]
    pub stream: f64,
}

/// The parameters of a link, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LogP {
    /// o_s: what a message costs its sender.
    #[serde(rename = "o_s_s")]
    pub send: f64,
    /// o_r: what it costs its receiver.
    #[serde(rename = "o_r_s")]
    pub receive: f64,
    /// g: between two messages of a stream, at least.
    #[serde(rename = "g_s")]
    pub gap: f64,
    /// The same where each message is answered: the answers' share is in it.
    #[serde(rename = "g_with_replies_s")]
    pub gap_with_replies: f64,
    /// L: on the way.
    #[serde(rename = "latency_s")]
    pub latency: f64,
}

/// Reads a signature (Culler and others, LogP Performance Assessment of Fast Network Interfaces, 1996; Hoe,
/// StarT-X, 1998).
///
/// * Without pauses a short burst is over before a reply has to be taken: its messages cost o_s each.
/// * A long burst without pauses is held up by the bottleneck: the plateau is the gap, with the replies'
///   share in it. Where o_s + o_r is more than the bottleneck, as on shared memory, the plateau is the time
///   of bouncing a message; StarT-X took g from another experiment then, and so does this: a stream without
///   replies.
/// * With pauses longer than a round trip each message costs o_s, the pause, and o_r of one reply that has
///   come meanwhile.
/// * L is what remains of half a round trip. A long message is received while its end is still being sent, so
///   nothing may remain.
///
/// `None` if there is no curve without a pause or none with one, or one of them has too few points.
pub fn estimate(signature: &Signature) -> Option<LogP> {
    let bursts = &signature.bursts;
    let dense = bursts.iter().find(|b| b.pause == 0.0)?;
    let sparse = bursts.iter().filter(|b| b.pause > 0.0).max_by(|a, b| a.pause.total_cmp(&b.pause))?;
    // The very first messages are the least busy, but a single one is mostly the clock.
    let send = dense.points.iter().map(|p| p.1).min_by(f64::total_cmp)?;
    let plateau = dense.points.last()?.1;
    // Of short bursts too, which are less likely to be interrupted. The reply to the last message comes after
    // the burst: one of a burst's replies is missing in its time.
    let of_burst = |&(m, t): &(f64, f64)| (t - sparse.pause - send) * m / (m - 1.0);
    let long: Vec<f64> = sparse.points.iter().filter(|p| p.0 >= 4.0).map(of_burst).collect();
    let receive = if long.is_empty() { return None } else { median(long).max(0.0) };
    let latency = (signature.half_round_trip - send - receive).max(0.0);
    let gap = if signature.stream > 0.0 { signature.stream } else { plateau };
    Some(LogP { send, receive, gap, gap_with_replies: plateau, latency })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The signature that a link with known parameters has: a source that sends (and takes replies when it
    /// must) beside a bottleneck that passes a message in each `gap`.
    fn synthetic(o_s: f64, o_r: f64, gap: f64, latency: f64) -> Signature {
        let round_trip = 2.0 * (o_s + latency + o_r);
        let lengths = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0, 65536.0];
        // A burst is held up once more is under way than fits; before that it costs o_s each.
        let dense =
            |m: f64| if m <= 16.0 { o_s } else { o_s + (gap.max(o_s + o_r) - o_s) * (1.0 - 16.0 / m) };
        let burst = |pause: f64| Burst {
            pause,
            points: lengths
                .iter()
                .map(|&m| (m, if pause == 0.0 { dense(m) } else { o_s + pause + o_r * (m - 1.0) / m }))
                .collect(),
        };
        Signature {
            bursts: vec![burst(0.0), burst(round_trip), burst(4.0 * round_trip)],
            half_round_trip: round_trip / 2.0,
            stream: gap.max(o_s).max(o_r),
        }
    }

    proptest! {
        #[test]
        fn known_parameters_are_found_again(
            o_s in 1e-9..1e-5, o_r in 1e-9..1e-5, gap in 1e-9..1e-4, latency in 1e-9..1e-4,
        ) {
            let found = estimate(&synthetic(o_s, o_r, gap, latency)).unwrap();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b + 1e-13;
            prop_assert!(near(found.send, o_s), "o_s {} of {o_s}", found.send);
            prop_assert!((found.receive - o_r).abs() <= 1e-3 * o_r + 1e-12, "o_r {} of {o_r}", found.receive);
            prop_assert!(near(found.gap, gap.max(o_s).max(o_r)), "g {} of {gap}", found.gap);
            prop_assert!(near(found.gap_with_replies, gap.max(o_s + o_r)), "{}", found.gap_with_replies);
            prop_assert!((found.latency - latency).abs() <= 1e-3 * (o_s + o_r + latency), "L {}", found.latency);
        }
    }

    #[test]
    fn the_papers_table_comes_out_of_its_signature() {
        // StarT-X, Table 1 (a), in µs: o_s 0.6, o_r 3.0, half a round trip 5.5, L 1.9; g is o_r.
        let found = estimate(&synthetic(0.6e-6, 3.0e-6, 3.0e-6, 1.9e-6)).unwrap();
        let micros = |s: f64| (s * 1e7).round() / 10.0;
        let all = [found.send, found.receive, found.gap, found.latency].map(micros);
        assert_eq!(all, [0.6, 3.0, 3.0, 1.9]);
    }

    #[test]
    fn noise_makes_nothing_negative_and_too_little_gives_nothing() {
        let mut signature = synthetic(1e-6, 1e-6, 1e-6, 0.0);
        signature.half_round_trip = 1e-6;
        signature.bursts[2].points.iter_mut().for_each(|p| p.1 -= 1.5e-6);
        let found = estimate(&signature).unwrap();
        assert_eq!((found.receive, found.latency), (0.0, 0.0));
        for keep in [0..1, 1..3] {
            let bursts = signature.bursts[keep].to_vec();
            assert_eq!(estimate(&Signature { bursts, ..signature.clone() }), None);
        }
        signature.bursts[0].points.clear();
        assert_eq!(estimate(&signature), None);
    }
}
