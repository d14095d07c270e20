//! Puts and gets: one process copies into or out of the other's memory, whose processor takes no part.

use super::domain_carrier::DomainCarrier;
use super::end::End;
use super::error::BenchError;
use super::scenes::{Outcome, Size};
use super::tally::Source;
use crate::case::median;
use polyduct_os::clock::now;
use std::hint::black_box;

const REGION: u32 = 1;

/// The time of a put (or get) of `size.len` bytes, and of a memcpy of the same.
pub fn region(end: &mut End<DomainCarrier>, size: Size, put: bool) -> Result<Outcome, BenchError> {
    let len = size.len;
    // Larger than the caches, and each transfer at the next place.
    let source = Source::new(end.source_len());
    let places = source.len() / len;
    let wrong = || BenchError::Wrong { what: "a region", count: 1 };
    if !end.first {
        let mine = end.carrier().domain.region(REGION, source.len())?;
        mine.write(0, source.part(0, source.len()))?;
        end.meet()?;
        end.meet()?;
        let mut found = vec![0; source.len()];
        mine.read(0, &mut found)?;
        let good = found == source.part(0, source.len());
        end.meet()?;
        return if good { Ok(Outcome::default()) } else { Err(wrong()) };
    }
    end.meet()?;
    let (domain, peer) = (end.carrier().domain.clone(), end.carrier().peer());
    let mut copy = vec![1; source.len()];
    let (mut values, mut bases, mut turn) = (Vec::new(), Vec::new(), 0);
    for round in 0..=size.repeat.max(1) {
        let all: Vec<usize> = (0..size.times as usize).map(|i| (turn + i) % places * len).collect();
        turn += size.times as usize;
        let start = now();
        for &at in &all {
            copy[at..at + len].copy_from_slice(black_box(source.part(at, len)));
        }
        black_box(&mut copy);
        let memcpy = (now() - start).as_secs_f64();
        // Other places than the memcpy's, which left its own in the cache.
        let all: Vec<usize> = all.iter().map(|at| (at + places / 2 * len) % (places * len)).collect();
        let start = now();
        for &at in &all {
            match put {
                true => domain.put(peer, REGION, at, source.part(at, len))?,
                false => domain.get(peer, REGION, at, &mut copy[at..at + len])?,
            }
        }
        let took = (now() - start).as_secs_f64();
        if all.iter().any(|&at| !put && copy[at..at + len] != *source.part(at, len)) {
            return Err(wrong());
        }
        // The first time maps the region.
        if round > 0 {
            values.push(took / size.times as f64);
            bases.push(memcpy / size.times as f64);
        }
    }
    end.meet()?;
    end.meet()?;
    Ok(Outcome { value: median(values), base: median(bases), curves: Vec::new() })
}
