//! The signature's measurement, played by two processes.
//!
//! One sends m messages and pauses after each; the other answers each with one of the same size. Without a
//! pause the sender takes answers only when it has no more room, or after 32 messages; with one it takes
//! after each pause what has come. The time is that of the sending; answers that are missing then are taken
//! after it.

use crate::case::median;
use crate::message::end::{Carrier, End};
use crate::message::error::BenchError;
use crate::message::scenes::{ping_once, Curve, Outcome, Size};
use crate::message::tally::Kind;
use polyduct_os::clock::now;
use serde::{Deserialize, Serialize};
use std::hint::{black_box, spin_loop};

/// Messages between two looks for answers where there is no pause.
const LOOK: u64 = 32;
/// Pauses as multiples of a round trip. The longest lets every answer come before it is over.
pub const PAUSES: [f64; 4] = [0.0, 1.0, 2.0, 4.0];
/// Spins by which the length of one is measured.
const SPINS: u64 = 2_000;

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
    ping_once(end, size)?;
    let trips = (0..repeat).map(|_| ping_once(end, size)).collect::<Result<Vec<_>, _>>()?;
    let half = median(trips);
    // The shortest of many: whatever interrupts only ever makes it longer, and pauses would come out too
    // short.
    let spin = (0..50).map(|_| seconds(|| pause(SPINS)) / SPINS as f64).fold(f64::INFINITY, f64::min);
    let mut curves = Vec::new();
    for multiple in PAUSES {
        let spins = (multiple * 2.0 * half / spin).ceil() as u64;
        let (mut pauses, mut points) = (Vec::new(), Vec::new());
        for &burst in &script.bursts {
            let mut all = Vec::new();
            for _ in 0..repeat {
                let (took, paused) = bounce(end, size, burst, spins)?;
                all.push(took - paused);
                pauses.push(paused);
            }
            points.push((burst as f64, median(all)));
        }
        let pause = median(pauses);
        points.iter_mut().for_each(|p| p.1 += pause);
        curves.push(Curve { parameter: pause, points });
    }
    Ok(Outcome { value: half, base: 0.0, curves })
}

/// A burst and its answers: seconds for each message of it, and for each pause in it. The pauses are measured
/// in a loop of their own, right before: a spin takes longer when the machine is busy, and more than a short
/// message does.
fn bounce<C: Carrier>(
    end: &mut End<C>,
    size: Size,
    burst: u64,
    spins: u64,
) -> Result<(f64, f64), BenchError> {
    let before = end.meet()?;
    if !end.first {
        for i in 1..=burst {
            end.until("a message of a burst", |seen| seen.data >= before.data + i)?;
            end.send(Kind::Reply, 0, 0, size.len)?;
        }
        return Ok((0.0, 0.0));
    }
    let paused = match spins {
        0 => 0.0,
        _ => seconds(|| (0..burst).for_each(|_| pause(spins))),
    };
    let start = now();
    for i in 1..=burst {
        end.send(Kind::Data, 0, 0, size.len)?;
        if spins > 0 {
            pause(spins);
            end.carrier().poll()?;
        } else if i % LOOK == 0 {
            end.carrier().poll()?;
        }
    }
    let took = (now() - start).as_secs_f64();
    end.until("the answers to a burst", |seen| seen.replies >= before.replies + burst)?;
    Ok((took / burst as f64, paused / burst as f64))
}
