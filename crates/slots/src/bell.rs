//! Waiting: spin for a moment, then sleep at a bell.
//!
//! A bell is a [`Line`]; whoever changes what others may wait for rings it.

pub use polyduct_os::bell::{ring, Sleeper};
use polyduct_os::spin::Spin;
use polyduct_os::sync::Line;
use polyduct_port::{Interrupt, INTERRUPT_SLICE};
use std::time::Duration;

/// How long to spin and to wait.
pub struct WaitLimits {
    /// How long to spin before sleeping.
    pub spin: Spin,
    /// Longest wait; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Asked now and then whether to give up.
    pub interrupt: Option<Interrupt>,
}

/// How a wait ended when it did not end with what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The deadline came.
    Timeout,
    /// The interrupt said so.
    Interrupted,
}

/// Calls `ready` until it gives something, sleeping at `bell` in between. `waited` grows by the time spent.
pub fn wait_for<T>(
    bell: &Line,
    patience: &WaitLimits,
    waited: &mut Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T, Unmet> {
    if let Some(t) = ready() {
        return Ok(t);
    }
    let start = polyduct_os::clock::now();
    let end = match polyduct_os::bell::spin(start, patience.spin.time(), &mut ready) {
        Some(t) => Ok(t),
        None => sleep_for(bell, patience, start, &mut ready),
    };
    let took = polyduct_os::clock::now() - start;
    patience.spin.handle_answer(took);
    *waited += took;
    end
}

#[cold]
fn sleep_for<T>(
    bell: &Line,
    patience: &WaitLimits,
    start: Duration,
    ready: &mut impl FnMut() -> Option<T>,
) -> Result<T, Unmet> {
    let sleeper = Sleeper::at(bell);
    loop {
        let seen = match sleeper.look(&mut *ready) {
            Ok(t) => return Ok(t),
            Err(seen) => seen,
        };
        if patience.interrupt.as_ref().is_some_and(|ask| ask()) {
            return Err(Unmet::Interrupted);
        }
        let mut slice = patience.interrupt.as_ref().map(|_| INTERRUPT_SLICE);
        if let Some(left) = polyduct_os::clock::left(start, patience.timeout) {
            if left.is_zero() {
                return Err(Unmet::Timeout);
            }
            slice = Some(slice.map_or(left, |s| s.min(left)));
        }
        sleeper.sleep(seen, slice);
    }
}
