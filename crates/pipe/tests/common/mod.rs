//! What the tests of whole pipes share.
#![allow(dead_code)]

pub mod at;
pub mod kill;
pub mod lasting;
pub mod net;
pub mod raw;
pub mod suite;

use at::At;
use polyduct_layout::{Dataset, Mapping};
use polyduct_pipe::{Expect, Given, Options, Policy, Reader, Writer};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A pipe name that no other test uses.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn writer_options(unit: u32, units: u32) -> Options {
    let open_timeout = Duration::from_secs(30);
    Options {
        unit,
        units,
        program: "w".into(),
        timeout: Some(open_timeout),
        open_timeout,
        // What is tested here is what goes over the network, unless a test says otherwise.
        near: false,
        ..Options::default()
    }
}

pub fn reader_options(program: &str, unit: u32, units: u32) -> Options {
    Options { program: program.into(), ..writer_options(unit, units) }
}

/// For each element of a unit's part, its row-major index in the dataset, found by asking where each element
/// lies.
pub fn local_indices(mapping: &Mapping, unit: u64) -> Vec<u64> {
    let data = mapping.dataset();
    let mut at = vec![u64::MAX; mapping.local_len_elems(unit).unwrap() as usize];
    let mut index = vec![0; data.shape().len()];
    for linear in 0..data.len_elems() {
        let mut rest = linear;
        for (i, n) in index.iter_mut().zip(data.shape()).rev() {
            *i = rest % n;
            rest /= n;
        }
        for place in mapping.locate(&index).unwrap().iter().filter(|p| p.unit == unit) {
            at[place.offset_elems as usize] = linear;
        }
    }
    at
}

/// Fills a part of u64 elements with values that name element and step.
pub fn fill(part: &mut [u8], indices: &[u64], step: u64) {
    for (element, index) in part.chunks_exact_mut(8).zip(indices) {
        element.copy_from_slice(&(index * 1_000_003 + step).to_le_bytes());
    }
}

/// A pipe whose units are threads.
pub struct PipeAt<'a, A> {
    pub at: A,
    pub data: Dataset,
    pub src: &'a str,
    pub writers: u32,
    pub readers: &'a [(&'a str, u32)],
    pub policy: Policy,
    pub depth: u32,
    pub timeout: Option<Duration>,
}

/// One on this host, by name.
pub type Pipe<'a> = PipeAt<'a, String>;

impl<'a, A: At> PipeAt<'a, A> {
    pub fn new(data: &Dataset, src: &'a str, writers: u32, readers: &'a [(&'a str, u32)]) -> PipeAt<'a, A> {
        PipeAt {
            at: A::new(),
            data: *data,
            src,
            writers,
            readers,
            policy: Policy::Block,
            depth: 2,
            timeout: Some(Duration::from_secs(30)),
        }
    }

    /// Runs `write` in every writer unit and `read` in every reader unit.
    pub fn run(&self, write: impl Fn(Writer, u64) + Sync, read: impl Fn(Reader, usize, u64) + Sync) {
        let (write, read) = (&write, &read);
        std::thread::scope(|s| {
            for unit in 0..self.writers {
                let mut options = writer_options(unit, self.writers);
                (options.policy, options.depth, options.timeout) = (self.policy, self.depth, self.timeout);
                options.readers = (self.readers.len() as u32).into();
                s.spawn(move || {
                    let given = Given::Dataset(self.data);
                    write(self.at.writer(&given, self.src, &options).unwrap(), unit.into())
                });
            }
            for (program, &(layout, units)) in self.readers.iter().enumerate() {
                for unit in 0..units {
                    let mut options = reader_options(&format!("r{program}"), unit, units);
                    options.timeout = self.timeout;
                    s.spawn(move || {
                        let reader = self.at.reader(layout, &Expect::default(), &options).unwrap();
                        read(reader, program, unit.into())
                    });
                }
            }
        });
    }
}
