//! Pipes across hosts whose units are threads of this process.

use super::{reader_options, writer_options};
use polyduct_layout::Dataset;
use polyduct_pipe::net::{JobKey, NetReader, NetWriter, Place, Trust};
use polyduct_pipe::{Expect, Given, Policy};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A place that no other test uses: every process has some thousands of the addresses of this host to itself.
pub fn place() -> Place {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let host = format!("127.{}.{}.{}", 1 + (pid >> 8) % 250, pid & 255, 1 + n % 250);
    Place { host, port: 7000 + (n / 250 + (pid >> 16) * 16) as u16, name: "test".into() }
}

/// A key that all units of the tests know.
pub fn trust(trusted_network: bool) -> Trust {
    Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network }
}

/// A pipe across hosts whose units are threads.
pub struct NetPipe<'a> {
    pub place: Place,
    pub trust: Trust,
    pub data: Dataset,
    pub src: &'a str,
    pub writers: u32,
    pub readers: &'a [(&'a str, u32)],
    pub policy: Policy,
    pub depth: u32,
    pub timeout: Option<Duration>,
}

impl<'a> NetPipe<'a> {
    pub fn new(data: &Dataset, src: &'a str, writers: u32, readers: &'a [(&'a str, u32)]) -> NetPipe<'a> {
        NetPipe {
            place: place(),
            trust: trust(true),
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
    pub fn run(&self, write: impl Fn(NetWriter, u64) + Sync, read: impl Fn(NetReader, usize, u64) + Sync) {
        let (write, read) = (&write, &read);
        std::thread::scope(|s| {
            for unit in 0..self.writers {
                let mut options = writer_options(unit, self.writers);
                (options.policy, options.depth, options.timeout) = (self.policy, self.depth, self.timeout);
                options.readers = self.readers.len() as u32;
                s.spawn(move || {
                    let given = Given::Dataset(self.data);
                    let writer = NetWriter::open(&self.place, &self.trust, &given, self.src, &options);
                    write(writer.unwrap(), unit.into())
                });
            }
            for (program, &(layout, units)) in self.readers.iter().enumerate() {
                for unit in 0..units {
                    let mut options = reader_options(&format!("r{program}"), unit, units);
                    options.timeout = self.timeout;
                    s.spawn(move || {
                        let expect = Expect::default();
                        let reader = NetReader::open(&self.place, &self.trust, layout, &expect, &options);
                        read(reader.unwrap(), program, unit.into())
                    });
                }
            }
        });
    }
}
