//! Joining a domain: by name, or as a port's.

use crate::domain::Domain;
use crate::error;
use crate::guard::{Guard, What};
use crate::options::{maybe_seconds, seconds};
use crate::port::Port;
use polyduct::message;
use polyduct::message::domain::OnLoss;
use polyduct::Error;
use pyo3::prelude::*;

/// Joins a domain. Times are in seconds.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn join(
    py: Python<'_>,
    name: Option<&str>,
    unit: Option<u32>,
    units: Option<u32>,
    timeout: Option<f64>,
    open_timeout: f64,
    on_loss: &str,
) -> PyResult<Domain> {
    let get = |name: &str| std::env::var(name).ok();
    let place = polyduct::domain_place(unit, units, name, get).map_err(|e| error::raise(py, &e))?;
    let guard = Guard::new(What::Domain);
    let mut join = polyduct::domain()
        .name(&place.program)
        .unit(place.unit)
        .units(place.units)
        .open_timeout(seconds(py, "open_timeout", open_timeout)?)
        .on_loss(loss(py, on_loss)?)
        .interrupt(guard.interrupt());
    if let Some(timeout) = timeout {
        join = join.timeout(seconds(py, "timeout", timeout)?);
    }
    let domain = guard.run(py, || join.join(), error::raise)?;
    let mut joined = Domain::new(guard, domain);
    // A URL, where it was joined by one.
    joined.name = place.program;
    Ok(joined)
}

/// Joins the domain of a port, which `ask` asks for it. What is `None` is as for the port.
pub fn of_port(
    py: Python<'_>,
    port: &Port,
    timeout: Option<f64>,
    open_timeout: Option<f64>,
    on_loss: &str,
    ask: impl FnOnce(polyduct::Join) -> Result<message::Domain, Error> + Send,
) -> PyResult<Domain> {
    let guard = Guard::new(What::Domain);
    let mut join = polyduct::domain().on_loss(loss(py, on_loss)?).interrupt(guard.interrupt());
    if let Some(timeout) = maybe_seconds(py, "timeout", timeout)? {
        join = join.timeout(timeout);
    }
    if let Some(timeout) = maybe_seconds(py, "open_timeout", open_timeout)? {
        join = join.open_timeout(timeout);
    }
    let domain = port.run(py, || ask(join))?;
    Ok(Domain::new(guard, domain))
}

fn loss(py: Python<'_>, on_loss: &str) -> PyResult<OnLoss> {
    match on_loss {
        "raise" => Ok(OnLoss::Raise),
        "continue" => Ok(OnLoss::Continue),
        other => {
            let message = format!("on_loss is {other:?}; expected 'raise' or 'continue'");
            Err(error::bad_option(py, "on_loss", &message))
        }
    }
}
