//! The signature's measurement, played by two processes.
//!
//! One sends m messages and pauses after each; the other answers each with one of the same size. Without a pause the sender takes
//! answers only when it has no more room, or after 32 messages; with one it takes after each pause what has come. The time is
//! that of the sending; answers that are missing then are taken after it.

use crate::bench::case::median;
use crate::bench::message::end::{Carrier, End};
use crate::bench::message::error::BenchError;
use crate::bench::message::scenes::{ping_once, Curve, Outcome, Size};
use crate::bench::message::tally::Kind;
use polyduct::os::clock::now;
use serde::{Deserialize, Serialize};
use std::hint::{black_box, spin_loop};

/// Messages between two looks for answers where there is no pause.
const LOOK: u64 = 32;
/// Pauses as multiples of a round trip. The longest lets every answer come before it is over.
const PAUSES: [f64; 4] = [0.0, 1.0, 2.0, 4.0];
/// Spins by which the length of one is measured.
const SPINS: u64 = 200_000;

/// How the signature is taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// Lengths of bursts, rising.
    pub bursts: Vec<u64>,
}

/// Waits without looking at the clock, which would cost more than a short message does.
#[inline]
fn pause(spins: u64) {
    for _ in 0..spins {
        spin_loop();
    }
    black_box(spins);
}

fn seconds(f: impl FnOnce()) -> f64 {
    let start = now();
    f();
    (now() - start).as_secs_f64()
}

/// Gives a curve for each pause; the value is half a round trip.
pub fn signature<C: Carrier>(end: &mut End<C>, size: Size, script: &Script) -> Result<Outcome, BenchError> {
    let repeat = size.repeat.max(1);
    ping_once(end, size, 1)?;
    let trips = (0..repeat).map(|_| ping_once(end, size, 1)).collect::<Result<Vec<_>, _>>()?;
    let half = median(trips);
    let spin = median((0..5).map(|_| seconds(|| pause(SPINS)) / SPINS as f64).collect());
    let mut curves = Vec::new();
    for multiple in PAUSES {
        let spins = (multiple * 2.0 * half / spin).ceil() as u64;
        // What the pause really takes, in a loop of its own.
        let real = median((0..9).map(|_| seconds(|| (0..16).for_each(|_| pause(spins))) / 16.0).collect());
        let mut points = Vec::new();
        for &burst in &script.bursts {
            let mut all = Vec::new();
            for _ in 0..repeat {
                all.push(bounce(end, size, burst, if multiple > 0.0 { Some(spins) } else { None })?);
            }
            points.push((burst as f64, median(all)));
        }
        curves.push(Curve { parameter: if multiple > 0.0 { real } else { 0.0 }, points });
    }
    Ok(Outcome { value: half, base: 0.0, curves })
}

/// A burst and its answers: seconds for each message of it.
fn bounce<C: Carrier>(
    end: &mut End<C>,
    size: Size,
    burst: u64,
    spins: Option<u64>,
) -> Result<f64, BenchError> {
    let before = end.meet()?;
    if !end.first {
        for i in 1..=burst {
            end.until("a message of a burst", |seen| seen.data >= before.data + i)?;
            end.send(Kind::Reply, 0, 0, size.len)?;
        }
        return Ok(0.0);
    }
    let start = now();
    for i in 1..=burst {
        end.send(Kind::Data, 0, 0, size.len)?;
        match spins {
            Some(spins) => {
                pause(spins);
                end.carrier().poll()?;
            }
            None if i % LOOK == 0 => end.carrier().poll()?,
            None => {}
        }
    }
    let took = (now() - start).as_secs_f64();
    end.until("the answers to a burst", |seen| seen.replies >= before.replies + burst)?;
    Ok(took / burst as f64)
}
