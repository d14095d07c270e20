//! All to all: every unit of a domain sends short messages to every other, with fewer processors than units
//! or as many. Units that find nothing to do sleep.

use super::domain_carrier::DomainCarrier;
use super::error::BenchError;
use super::scenes::Outcome;
use super::tally::{words, Kind, Source, LANES};
use polyduct_message::{MessageError, Priority};
use polyduct_os::clock::now;

/// Messages from each unit to each other, `times` of them, begun and ended together. Gives the time of one
/// message of the whole crowd.
pub fn crowd(name: &str, unit: u32, units: u32, times: u64) -> Result<Outcome, BenchError> {
    if units as usize > LANES - 1 {
        return Err(BenchError::Disagree { what: "too many units" });
    }
    let (domain, handler, tally) = DomainCarrier::of_many(name, unit, units, Source::new(64))?;
    let others: Vec<u32> = (0..units).filter(|&u| u != unit).collect();
    let mut channels =
        others.iter().map(|&to| domain.channel(to, Priority::Low)).collect::<Result<Vec<_>, _>>()?;
    let due = u64::from(units - 1) * times;
    let mut took = 0.0;
    for round in 0..2 {
        domain.barrier()?;
        let start = now();
        for i in 0..times {
            // The receiver counts what comes from each sender by itself.
            let args = words(Kind::Data, unit as usize, (round * times + i) as u32, 0, 0);
            for channel in &mut channels {
                match channel.short(handler, args) {
                    Ok(()) => {}
                    // Waits for room, asleep after a while.
                    Err(MessageError::Full { .. }) => channel.bulk(handler, args, &[])?,
                    Err(e) => return Err(e.into()),
                }
            }
        }
        domain.serve_until(None, || tally.seen().data >= (round + 1) * due)?;
        domain.barrier()?;
        took = (now() - start).as_secs_f64();
    }
    if tally.bad() > 0 || tally.seen().data != 2 * due {
        return Err(BenchError::Wrong { what: "all to all", count: tally.bad().max(1) });
    }
    domain.barrier()?;
    domain.leave()?;
    Ok(Outcome { value: took / (u64::from(units) * due) as f64, base: 0.0, curves: Vec::new() })
}
