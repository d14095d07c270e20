//! Many runs of the real engine on simulated networks, each from one seed.

use polyduct_message::engine::planted::Bug;
use polyduct_message::link::sim::scenario::{run, Summary};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// Runs seeds on all cores and returns the first that failed, and what all did.
fn seeds(from: u64, count: u64) -> (Option<(u64, String)>, [u64; 3]) {
    let next = AtomicU64::new(from);
    let failed: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let totals = [const { AtomicU64::new(0) }; 3];
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= from + count || failed.lock().is_ok_and(|f| f.is_some()) {
                    return;
                }
                match run(seed, &|_| {}) {
                    Ok(Summary { delivered, frames, refusals, .. }) => {
                        totals[0].fetch_add(delivered, Ordering::Relaxed);
                        totals[1].fetch_add(frames, Ordering::Relaxed);
                        totals[2].fetch_add(refusals, Ordering::Relaxed);
                    }
                    Err(error) => {
                        let mut first = failed.lock().unwrap();
                        if first.as_ref().is_none_or(|f| f.0 > seed) {
                            *first = Some((seed, error));
                        }
                    }
                }
            });
        }
    });
    (failed.into_inner().unwrap(), totals.map(|t| t.into_inner()))
}

fn count() -> u64 {
    std::env::var("POLYDUCT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
}

/// `POLYDUCT_SEED=n` runs that one; `POLYDUCT_SEEDS=n` so many instead of 10,000.
#[test]
fn every_seed_holds() {
    let one = std::env::var("POLYDUCT_SEED").ok().and_then(|n| n.parse().ok());
    let (from, count) = one.map_or((0, count()), |seed| (seed, 1));
    let (failed, [delivered, frames, refusals]) = seeds(from, count);
    if let Some((seed, error)) = failed {
        panic!("seed {seed} (run again with POLYDUCT_SEED={seed}): {error}");
    }
    println!("{:?}", run(from, &|_| {}));
    println!("{count} seeds: {delivered} messages, {frames} frames, {refusals} refusals");
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    for seed in 0..200 {
        let first = run(seed, &|_| {});
        assert_eq!(first, run(seed, &|_| {}), "seed {seed}");
        let other = run(seed + 1, &|_| {});
        assert_ne!(first.map(|s| s.trace), other.map(|s| s.trace), "seeds {seed} and the next");
    }
}

/// A check that cannot fail is a defect: each planted bug is found.
#[test]
fn planted_bugs_are_found() {
    for bug in Bug::ALL {
        let plant = |config: &mut polyduct_message::engine::Config| config.planted = Some(bug);
        let found = (0..1000).find_map(|seed| {
            let result = std::panic::catch_unwind(|| run(seed, &plant));
            match result {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some((seed, error)),
                Err(_) => Some((seed, "a panic".to_string())),
            }
        });
        match found {
            Some((seed, error)) => {
                println!("{bug:?} found by seed {seed}: {}", &error[..error.len().min(150)])
            }
            None => panic!("{bug:?} was not found in 1000 seeds"),
        }
    }
}
