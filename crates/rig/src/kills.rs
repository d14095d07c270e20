//! Kills of units, and how soon the survivors know.

use crate::unit::{say, Unit};
use polyduct_os::clock;

/// How many seeds to run: `POLYDUCT_KILLS`, or so many.
pub fn kills(default: u64) -> u64 {
    std::env::var("POLYDUCT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// In a unit: the last line of one that ends with an error, with the time at which it knew.
pub fn say_error(error: &str) {
    say(&format!("error {:.6} {error}", clock::now().as_secs_f64()));
}

/// The time and the error of such a line.
pub fn error_of(line: &str) -> Option<(f64, &str)> {
    let (time, error) = line.strip_prefix("error ")?.split_once(' ')?;
    Some((time.parse().ok()?, error))
}

/// All units but the victims.
pub fn survivors<'a>(units: &'a mut [Unit], victims: &'a [usize]) -> impl Iterator<Item = &'a mut Unit> {
    units.iter_mut().enumerate().filter(|(i, _)| !victims.contains(i)).map(|(_, unit)| unit)
}

/// How long after each kill the survivors knew of it, in seconds.
#[derive(Default)]
pub struct Delays(Vec<f64>);

impl Delays {
    /// Kills a unit; every other must end with `expected`. `case` says what is run, where one does not.
    pub fn kill(&mut self, units: &mut [Unit], victim: usize, expected: &str, case: &str) {
        self.kill_with(units, victim, |error| error == expected, &format!("{case}, not {expected:?}"));
    }

    /// The same where what they are to end with is not one text.
    pub fn kill_with(
        &mut self,
        units: &mut [Unit],
        victim: usize,
        expected: impl Fn(&str) -> bool,
        case: &str,
    ) {
        units[victim].kill();
        let killed = clock::now().as_secs_f64();
        for unit in survivors(units, &[victim]) {
            let last = unit.end();
            match error_of(&last) {
                Some((time, error)) if expected(error) => self.0.push(time - killed),
                _ => panic!("{case}: {} says {last:?}", unit.name),
            }
        }
    }

    /// Prints the delays. Of each pair in `limits`, so many of a hundred must be below so many seconds: a
    /// shared machine may hold a few processes back for long.
    pub fn check(mut self, kills: u64, limits: &[(usize, f64)]) {
        self.0.sort_by(f64::total_cmp);
        let count = self.0.len();
        let (middle, worst) = (self.0[count / 2], self.0[count - 1]);
        println!(
            "{count} survivors of {kills} kills: told within {:.1} ms (median), {:.1} ms (worst)",
            middle * 1e3,
            worst * 1e3
        );
        for &(percent, limit) in limits {
            let found = self.0[(count * percent / 100).min(count - 1)];
            assert!(found < limit, "{percent} of 100 survivors are told within {found:.3} s, not {limit}");
        }
    }
}
