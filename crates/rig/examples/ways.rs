//! Ways between two network namespaces, for programs of other languages.
//!
//! `ways COUNT BYTES_A_SECOND DELAY_MS` makes devices `pda0` and `pdb0` and so on, which are then moved and given
//! addresses, and says `ready` with the longest packet. They are gone when the program ends: when it is told to,
//! when who started it closes its input, or after ten minutes.

use polyduct_rig::ways::{Way, MTU};
use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

/// The most ways.
const COUNT: u32 = 16;
const MOST: Duration = Duration::from_secs(600);

fn main() {
    let words: Vec<f64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [count, rate, delay_ms] = words[..] else { panic!("COUNT BYTES_A_SECOND DELAY_MS") };
    assert!((1.0..=f64::from(COUNT)).contains(&count) && rate > 0.0 && delay_ms >= 0.0);
    let way = Way { rate, delay: Duration::from_secs_f64(delay_ms / 1e3), queue: 4 << 20 };
    for k in 0..count as u32 {
        way.open(&format!("pda{k}"), &format!("pdb{k}"));
    }
    println!("ready {MTU}");
    let (ends, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        let _ = ends.send(());
    });
    let _ = ended.recv_timeout(MOST);
}
