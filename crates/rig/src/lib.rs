//! Tools for tests of several crates: real processes, kills, seeded chance, directories, network namespaces,
//! control groups, memory that is counted.
//!
//! Crates have it as a development dependency only. What goes wrong here is a panic: it fails the test.

pub mod cuts;
mod deaf;
pub mod faults;
pub mod fork;
pub mod group;
pub mod hosts;
pub mod inject;
pub mod kills;
mod lines;
pub mod memory;
mod middle;
pub mod pods;
mod port;
pub mod program;
mod random;
pub mod record;
mod scratch;
mod unit;
pub mod wan;
pub mod ways;

pub use deaf::Deaf;
pub use lines::{Lines, WATCHDOG};
pub use middle::Middle;
pub use port::free_address;
pub use random::Random;
pub use scratch::Scratch;
pub use unit::{kill_all, say, Unit};

/// A test of a program without libtest, which starts copies of itself: its name and what it does.
pub type Test = (&'static str, fn());

/// Tests of these functions, by their names.
#[macro_export]
macro_rules! tests {
    ($($test:ident),+ $(,)?) => { &[$((stringify!($test), $test as fn())),+] };
}

/// The `main` of a test program without libtest. In a copy that [`Unit::start`] has made, runs `unit` with
/// what the unit was told; otherwise the tests whose names contain an argument, or all.
pub fn main(unit: impl FnOnce(&str), tests: &[Test]) {
    if let Some(spec) = unit::spec() {
        return unit(&spec);
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let chosen: Vec<_> =
        tests.iter().filter(|(n, _)| wanted.is_empty() || wanted.iter().any(|w| n.contains(w))).collect();
    println!("\nrunning {} tests", chosen.len());
    for (name, test) in &chosen {
        test();
        println!("test {name} ... ok");
    }
    let out = tests.len() - chosen.len();
    println!(
        "\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; {out} filtered out\n",
        chosen.len()
    );
}
