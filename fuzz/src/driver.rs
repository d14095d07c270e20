//! Runs a target on mutations of seeds, on stable Rust with nothing installed: `--seconds N` (default 10),
//! `--seed N`, or files whose content is one input each, to run a finding again. A panic is a finding, and so
//! is an input without end; it is printed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No input takes as long as that, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);

/// The input that runs, and since when.
static RUNNING: Mutex<Option<(Instant, Vec<u8>)>> = Mutex::new(None);

/// xorshift64*.
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Changes an input in one to eight places: bytes, runs, words of the target's language, and pieces of other
/// seeds.
fn mutate(input: &mut Vec<u8>, seeds: &[&[u8]], words: &[&[u8]], random: &mut Random) {
    for _ in 0..=random.below(8) {
        let at = random.below(input.len() + 1);
        match random.below(7) {
            0 if at < input.len() => input[at] = random.next() as u8,
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 => {
                let end = (at + random.below(9)).min(input.len());
                input.drain(at..end);
            }
            3 | 4 => {
                let word = words[random.below(words.len())];
                input.splice(at..at, word.iter().copied());
            }
            5 => {
                let other = seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                input.splice(at..at, other[from..].iter().copied());
            }
            _ => input.truncate(at),
        }
    }
    input.truncate(1 << 16);
}

/// Ends the process when an input does not end.
fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if let Some((start, input)) = &*RUNNING.lock().unwrap_or_else(PoisonError::into_inner) {
            if start.elapsed() > LIMIT {
                eprintln!("finding, without end: {}", input.escape_ascii());
                std::process::exit(1);
            }
        }
    }
}

/// Runs `target` as the arguments say.
pub fn run(seeds: &[&[u8]], words: &[&[u8]], target: fn(&[u8])) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value =
        |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)?.parse::<u64>().ok());
    let files: Vec<_> = args.iter().filter(|a| std::path::Path::new(a).is_file()).collect();
    std::thread::spawn(watch);
    let one = |input: &[u8]| {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.to_vec()));
        if let Err(panic) = std::panic::catch_unwind(|| target(input)) {
            eprintln!("finding: {}", input.escape_ascii());
            std::panic::resume_unwind(panic);
        }
    };
    for file in &files {
        one(&std::fs::read(file).expect("a readable input"));
    }
    if !files.is_empty() {
        return;
    }
    let mut random = Random(value("--seed").unwrap_or(1).max(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let end = Instant::now() + Duration::from_secs(value("--seconds").unwrap_or(10));
    seeds.iter().for_each(|seed| one(seed));
    let mut runs = seeds.len() as u64;
    while Instant::now() < end {
        let mut input = seeds[random.below(seeds.len())].to_vec();
        mutate(&mut input, seeds, words, &mut random);
        one(&input);
        runs += 1;
    }
    println!("{runs} inputs, no finding");
}
