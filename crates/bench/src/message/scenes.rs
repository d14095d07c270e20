//! Plays the scenes of two processes, each its part, and measures them. Times are in seconds.
//!
//! A scene alternates what is measured and what it is compared with, several times within one life of the two
//! processes, and gives medians: whatever else the machine does falls on both alike.

use super::end::{Carrier, End};
use super::error::BenchError;
use super::tally::{Kind, HIGH};
use crate::case::median;
use polyduct_os::clock::now;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Duration;

/// Messages of a burst whose cost to the sender is measured.
const BURST: u64 = 64;
/// Bursts of a repetition.
const BURSTS: u64 = 30;
/// Low messages that are offered before each one of high priority, at most.
const FLOOD: usize = 1024;
/// A long message of the flood: half of the usual ring.
const FLOOD_BYTES: usize = 256 << 10;

/// Work beside a transfer, in eighths of what the transfer takes.
const EIGHTHS: [u32; 9] = [0, 2, 4, 6, 8, 10, 12, 16, 24];

/// How much of a scene is played.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Size {
    /// Bytes of a message's payload.
    pub len: usize,
    /// Messages of a repetition.
    pub times: u64,
    /// Repetitions, of which the median counts.
    pub repeat: u32,
}

/// What a scene gives.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What is measured.
    pub value: f64,
    /// What it is compared with; NaN is not JSON, so zero where there is nothing.
    pub base: f64,
    /// Curves, where the scene has them.
    pub curves: Vec<Curve>,
}

/// A curve of times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What is the same along it.
    pub parameter: f64,
    /// Place and time.
    pub points: Vec<(f64, f64)>,
}

impl Outcome {
    fn of(pairs: Vec<(f64, f64)>) -> Outcome {
        let (values, bases) = pairs.into_iter().unzip();
        Outcome { value: median(values), base: median(bases), curves: Vec::new() }
    }
}

/// Plays a part several times, after one time that does not count.
fn repeat(
    size: Size,
    mut part: impl FnMut() -> Result<(f64, f64), BenchError>,
) -> Result<Outcome, BenchError> {
    part()?;
    (0..size.repeat.max(1)).map(|_| part()).collect::<Result<_, _>>().map(Outcome::of)
}

/// A message there and back: one way. `fresh` ones are the next part of the source each time.
pub fn ping<C: Carrier>(end: &mut End<C>, size: Size, fresh: bool) -> Result<Outcome, BenchError> {
    let mut turn = 0;
    repeat(size, || {
        let from = turn;
        turn += if fresh { size.times as usize } else { 0 };
        Ok((bounce(end, size, 1, if fresh { Some(from) } else { None })?, 0.0))
    })
}

/// The same by 64 channels in turn, beside one channel.
pub fn channels<C: Carrier>(end: &mut End<C>, size: Size) -> Result<Outcome, BenchError> {
    repeat(size, || Ok((bounce(end, size, HIGH, None)?, bounce(end, size, 1, None)?)))
}

/// One way, the same message again and again.
pub fn ping_once<C: Carrier>(end: &mut End<C>, size: Size) -> Result<f64, BenchError> {
    bounce(end, size, 1, None)
}

/// One way, by so many lanes in turn; from the part of the source with this number on, or always the first.
fn bounce<C: Carrier>(
    end: &mut End<C>,
    size: Size,
    lanes: usize,
    part: Option<usize>,
) -> Result<f64, BenchError> {
    let parts = end.source_len() / size.len.max(1);
    let from = end.meet()?.data;
    let start = now();
    for i in 0..size.times {
        if !end.first {
            end.until("a message to answer", |seen| seen.data > from + i)?;
        }
        let at = part.map_or(0, |part| (part + i as usize) % parts * size.len);
        end.send(Kind::Data, i as usize % lanes, at, size.len)?;
        if end.first {
            end.until("an answer", |seen| seen.data > from + i)?;
        }
    }
    Ok((now() - start).as_secs_f64() / (2 * size.times) as f64)
}

/// Messages in one direction, without answers: the time of each. Beside it a memcpy of the same bytes on one
/// core.
///
/// Every message is the next part of a source that is larger than the caches, since programs send what they
/// have computed and not the same bytes again.
pub fn stream<C: Carrier>(end: &mut End<C>, size: Size) -> Result<Outcome, BenchError> {
    let mut copy = vec![1; if end.first { end.source_len() } else { 0 }];
    let mut turn = 0;
    repeat(size, || {
        let places: Vec<usize> = (0..size.times as usize)
            .map(|i| (turn + i) * size.len % (end.source_len() - size.len + 1))
            .collect();
        turn += size.times as usize;
        let mut memcpy = 0.0;
        if end.first && size.len > 0 {
            let start = now();
            for &at in &places {
                copy[at..at + size.len].copy_from_slice(black_box(end.part(at, size.len)));
            }
            black_box(&mut copy);
            memcpy = (now() - start).as_secs_f64();
        }
        let before = end.meet()?;
        let start = now();
        if end.first {
            for &at in &places {
                end.send(Kind::Data, 0, at, size.len)?;
            }
            end.until("the end of a stream", |seen| seen.replies > before.replies)?;
        } else {
            end.until("a stream", |seen| seen.data >= before.data + size.times)?;
            end.short(Kind::Reply, 0)?;
        }
        let took = (now() - start).as_secs_f64();
        // One more that is compared whole, outside the time.
        if end.first && size.len > 0 {
            end.send_compared(0, 0, size.len)?;
        } else if size.len > 0 {
            end.until("the last message", |seen| seen.data > before.data + size.times)?;
        }
        end.meet()?;
        Ok((took / size.times as f64, memcpy / size.times as f64))
    })
}

/// What sending costs the sender: bursts that the ring has room for.
pub fn overhead<C: Carrier>(end: &mut End<C>, size: Size) -> Result<Outcome, BenchError> {
    repeat(size, || {
        let mut all = Vec::new();
        for _ in 0..BURSTS {
            let before = end.meet()?;
            if end.first {
                let start = now();
                for _ in 0..BURST {
                    end.send(Kind::Data, 0, 0, size.len)?;
                }
                all.push((now() - start).as_secs_f64() / BURST as f64);
            } else {
                end.until("a burst", |seen| seen.data >= before.data + BURST)?;
            }
        }
        end.meet()?;
        Ok((median(all), 0.0))
    })
}

/// A message of high priority there and back while low ones wait in front of the receiver, beside the same
/// without them. `size.len` is zero for a flood of short messages, else the flood is of long ones.
pub fn priority<C: Carrier>(end: &mut End<C>, size: Size) -> Result<Outcome, BenchError> {
    repeat(size, || {
        let alone = ping_high(end, size, |_| Ok(()))?;
        let flooded = match size.len {
            0 => ping_high(end, size, |end| {
                // As many as there is room for; the receiver may be as fast as this.
                for _ in 0..FLOOD {
                    if !end.try_short(Kind::Data, 0)? {
                        break;
                    }
                }
                Ok(())
            }),
            _ => ping_high(end, size, |end| end.send(Kind::Data, 0, 0, FLOOD_BYTES)),
        }?;
        Ok((flooded, alone))
    })
}

fn ping_high<C: Carrier>(
    end: &mut End<C>,
    size: Size,
    mut flood: impl FnMut(&mut End<C>) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let from = end.meet()?.high;
    let mut all = Vec::new();
    for next in from + 1..=from + size.times {
        if end.first {
            flood(end)?;
            let start = now();
            end.short(Kind::Data, HIGH)?;
            end.until("an answer of high priority", |seen| seen.high >= next)?;
            all.push((now() - start).as_secs_f64() / 2.0);
        } else {
            // It is answered where it is handled.
            end.until("a message of high priority", |seen| seen.high >= next)?;
        }
    }
    // Behind the flood, on its channel.
    end.meet()?;
    Ok(if end.first { median(all) } else { 0.0 })
}

/// A message with work of the sender's own (the experiment of SCI-MPICH, Fig. 10 and 11): total time over the
/// work's, first with the sender blocked until the receiver has the message, then with both at once. The
/// value is the second's total where the work takes as long as the transfer, and the base the transfer alone.
pub fn overlap<C: Carrier>(end: &mut End<C>, size: Size) -> Result<Outcome, BenchError> {
    let repeat = size.repeat.max(3);
    let alone = |end: &mut End<C>| -> Result<f64, BenchError> {
        (0..repeat).map(|_| once(end, size, Duration::ZERO, true)).collect::<Result<_, _>>().map(median)
    };
    alone(end)?;
    // Both processes must play as many, but only one knows the times.
    let alone = alone(end)?;
    let jobs = EIGHTHS.map(|eighths| alone * f64::from(eighths) / 8.0);
    let mut totals = [false, true].map(|_| EIGHTHS.map(|_| Vec::new()));
    // Turn about, so that a slow moment falls on all of them.
    for _ in 0..repeat {
        for (i, &job) in jobs.iter().enumerate() {
            for (both, totals) in [false, true].into_iter().zip(&mut totals) {
                totals[i].push(once(end, size, Duration::from_secs_f64(job), both)?);
            }
        }
    }
    let curves =
        totals.map(|totals| -> Vec<(f64, f64)> { jobs.into_iter().zip(totals.map(median)).collect() });
    let of = |eighths| EIGHTHS.iter().position(|&e| e == eighths).map_or(0.0, |i| curves[1][i].1);
    let (value, base) = (of(8), of(0).max(alone));
    let [blocking, both] = curves;
    let curve = |parameter, points| Curve { parameter, points };
    Ok(Outcome { value, base, curves: vec![curve(0.0, blocking), curve(1.0, both)] })
}

fn once<C: Carrier>(end: &mut End<C>, size: Size, job: Duration, both: bool) -> Result<f64, BenchError> {
    let before = end.meet()?;
    let start = now();
    let mut work = || {
        let until = now() + job;
        while now() < until {
            black_box((0..50_u64).sum::<u64>());
        }
    };
    if !end.first {
        end.until("a message", |seen| seen.data > before.data)?;
    } else if both {
        end.send_while(0, 0, size.len, &mut work)?;
    } else {
        // With no work: blocked until it is fetched, whichever way the carrier has for that.
        end.send_while(0, 0, size.len, &mut || ())?;
        work();
    }
    Ok((now() - start).as_secs_f64())
}
