//! Turns the arguments of `polyduct.open` into options of the façade.

use crate::error;
use crate::port::Port;
use polyduct::store::file::Notes;
use polyduct::store::npy::Descr;
use polyduct::store::zarr::{Compression, UnknownCompression};
use polyduct::{Error, JobUnit, Open, Readers};
use pyo3::prelude::*;
use std::time::Duration;

/// What is written down of one of several arrays: its name, attributes as JSON, what its dimensions are called, and
/// what NumPy takes its elements for.
type WrittenDown = (String, String, Option<Vec<Option<String>>>, Option<String>);

/// Options that writers and readers share; the names are those of `polyduct.open`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    unit: Option<u32>,
    units: Option<u32>,
    program: Option<String>,
    job: Option<String>,
    depth: Option<u32>,
    policy: Option<String>,
    readers: Option<ReaderPrograms>,
    timeout: Option<f64>,
    on_loss: Option<String>,
    append: bool,
    chunks: Option<Vec<u64>>,
    compress: Option<String>,
    shard_bytes: Option<u64>,
    written_down: Vec<WrittenDown>,
    descr: Option<String>,
}

/// Reader programs of a writer: their number, or `any`.
#[derive(FromPyObject)]
enum ReaderPrograms {
    Number(u32),
    Name(String),
}

/// What NumPy takes elements for, as the header of a `.npy` file has it.
pub fn descr(py: Python<'_>, text: Option<&str>) -> PyResult<Option<Descr>> {
    let bad =
        |e| error::own(py, "WrongType", &format!("what NumPy takes the elements for cannot be kept: {e}"));
    text.map(Descr::parse).transpose().map_err(bad)
}

/// What chunks are compressed with.
fn compression(py: Python<'_>, text: Option<&str>) -> PyResult<Compression> {
    let bad = |e: UnknownCompression| error::bad_option(py, "compress", &e.to_string());
    text.map_or(Ok(Compression::None), |text| text.parse().map_err(bad))
}

/// A time limit in seconds, the option or argument `what`.
pub fn seconds(py: Python<'_>, what: &str, given: f64) -> PyResult<Duration> {
    let limited = (0.0..=1e9).contains(&given).then(|| Duration::try_from_secs_f64(given).ok()).flatten();
    let message = format!("{what}: expected seconds from 0 to 1e9, or None");
    limited.ok_or_else(|| error::bad_option(py, what, &message))
}

/// The same of one that may not be given.
pub fn maybe_seconds(py: Python<'_>, what: &str, given: Option<f64>) -> PyResult<Option<Duration>> {
    given.map(|given| seconds(py, what, given)).transpose()
}

/// The layout that was given; without one, the only unit has everything.
pub fn layout_of<'a>(py: Python<'_>, given: Option<&'a str>, place: &JobUnit) -> PyResult<&'a str> {
    let message = || {
        let JobUnit { unit, units, .. } = place;
        format!("layout: none given, but this is unit {unit} of {units}; say what each has, as \"block,...\" or \"...\" \
                 for everything")
    };
    match given {
        None if place.units > 1 => Err(error::bad_option(py, "layout", &message())),
        given => Ok(given.unwrap_or("...")),
    }
}

impl Options {
    /// Puts the options into a builder whose waits ask `port` whether to go on.
    pub fn builder(&self, py: Python<'_>, url: &str, port: &Port) -> PyResult<(Open, JobUnit)> {
        let fail = |e: Error| error::raise(py, &e);
        let get = |name: &str| std::env::var(name).ok();
        let place = polyduct::place(self.unit, self.units, self.program.as_deref(), get).map_err(fail)?;
        let mut open = polyduct::open(url)
            .unit(place.unit)
            .units(place.units)
            .program(&place.program)
            .append(self.append)
            .chunks(self.chunks.clone())
            .compress(compression(py, self.compress.as_deref())?)
            .descr(descr(py, self.descr.as_deref())?)
            .interrupt(port.interrupt());
        for (name, attributes, dims, text) in &self.written_down {
            let attributes = serde_json::from_str(attributes).unwrap_or_default();
            let descr = descr(py, text.as_deref())?;
            open = open.note_array(name, Notes { attributes, dims: dims.clone(), descr });
        }
        if let Some(most) = self.shard_bytes {
            open = open.shard_bytes(most);
        }
        if let Some(job) = &self.job {
            open = open.job(job);
        }
        if let Some(depth) = self.depth {
            open = open.depth(depth);
        }
        if let Some(policy) = &self.policy {
            open = open.policy(policy.parse().map_err(|e| fail(Error::Port(e)))?);
        }
        match &self.readers {
            None => {}
            Some(ReaderPrograms::Number(readers)) => open = open.readers(*readers),
            Some(ReaderPrograms::Name(name)) => {
                let readers: Readers = name.parse().map_err(|e| fail(Error::Port(e)))?;
                open = open.readers(readers);
            }
        }
        if let Some(on_loss) = &self.on_loss {
            open = open.on_loss(on_loss.parse().map_err(|e| fail(Error::Port(e)))?);
        }
        if let Some(timeout) = self.timeout {
            open = open.timeout(seconds(py, "timeout", timeout)?);
        }
        Ok((open, place))
    }
}
