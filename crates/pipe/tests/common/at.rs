//! Where pipes are, on one host or across hosts, so that one test can hold for both.

use super::net::Across;
use super::unique;
use polyduct_pipe::{Expect, Given, Options, PipeError, Reader, Rule, Writer};
use polyduct_port::Array;

/// Where a pipe is.
pub trait At: Sync {
    /// A place that no other test uses.
    fn new() -> Self
    where
        Self: Sized;
    fn writer(&self, given: &Given, layout: &str, options: &Options) -> Result<Writer, PipeError>;
    fn reader(&self, layout: &str, expect: &Expect, options: &Options) -> Result<Reader, PipeError>;
    fn reader_of(&self, rules: &[Rule], options: &Options) -> Result<Reader, PipeError>;
    fn describe(&self, options: &Options) -> Result<Vec<Array>, PipeError>;
}

/// On this host, by name.
impl At for String {
    fn new() -> String {
        unique("pipe")
    }
    fn writer(&self, given: &Given, layout: &str, options: &Options) -> Result<Writer, PipeError> {
        Writer::open(self, given, layout, options)
    }
    fn reader(&self, layout: &str, expect: &Expect, options: &Options) -> Result<Reader, PipeError> {
        Reader::open(self, layout, expect, options)
    }
    fn reader_of(&self, rules: &[Rule], options: &Options) -> Result<Reader, PipeError> {
        Reader::open_arrays(self, rules, options)
    }
    fn describe(&self, options: &Options) -> Result<Vec<Array>, PipeError> {
        Reader::describe(self, options)
    }
}

impl At for Across {
    fn new() -> Across {
        Across::trusting(true)
    }
    fn writer(&self, given: &Given, layout: &str, options: &Options) -> Result<Writer, PipeError> {
        Writer::open((&self.place, &self.trust), given, layout, &self.near.options(options))
    }
    fn reader(&self, layout: &str, expect: &Expect, options: &Options) -> Result<Reader, PipeError> {
        Reader::open((&self.place, &self.trust), layout, expect, &self.near.options(options))
    }
    fn reader_of(&self, rules: &[Rule], options: &Options) -> Result<Reader, PipeError> {
        Reader::open_arrays((&self.place, &self.trust), rules, &self.near.options(options))
    }
    fn describe(&self, options: &Options) -> Result<Vec<Array>, PipeError> {
        Reader::describe((&self.place, &self.trust), &self.near.options(options))
    }
}

/// Begins a step, has its slot filled, and publishes it.
pub fn step_with(w: &mut Writer, fill: impl FnOnce(&mut [u8])) -> Result<bool, PipeError> {
    let mut slot = w.step()?;
    fill(&mut slot);
    slot.publish()
}
