//! What pipes on one host and across hosts have in common, so that one test can hold for both.

use super::net::Across;
use super::unique;
use polyduct_layout::Mapping;
use polyduct_message::domain::Domain;
use polyduct_pipe::net::{NetReader, NetWriter};
use polyduct_pipe::{Addresses, DomainOptions, Expect, Given, Options, PipeError, Reader, Stats, Writer};

/// Where a pipe is.
pub trait At: Sync {
    type Writer: Port + Write;
    type Reader: Port + Read;

    /// A place that no other test uses.
    fn new() -> Self;
    fn writer(&self, given: &Given, layout: &str, options: &Options) -> Result<Self::Writer, PipeError>;
    fn reader(&self, layout: &str, expect: &Expect, options: &Options) -> Result<Self::Reader, PipeError>;
}

pub trait Port {
    fn mapping(&self) -> &Mapping;
    fn local_len_bytes(&self) -> usize;
    fn addresses(&self) -> &Addresses;
    fn domain(&mut self, wishes: &DomainOptions) -> Result<Domain, PipeError>;
    fn close(&mut self) -> Result<Stats, PipeError>;
    fn abort(&mut self);
}

pub trait Write {
    fn next_step(&self) -> u64;
    /// Begins a step, has its slot filled, and publishes it.
    fn step_with(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<bool, PipeError>;
    fn write(&mut self, part: &[u8]) -> Result<bool, PipeError>;
}

pub trait Read {
    fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError>;
}

/// The ports' own methods, which have the same names and come first where both are known.
macro_rules! port {
    ($($port:ty),+) => { $(impl Port for $port {
        fn mapping(&self) -> &Mapping {
            self.mapping()
        }
        fn local_len_bytes(&self) -> usize {
            self.local_len_bytes()
        }
        fn addresses(&self) -> &Addresses {
            self.addresses()
        }
        fn domain(&mut self, wishes: &DomainOptions) -> Result<Domain, PipeError> {
            self.domain(wishes)
        }
        fn close(&mut self) -> Result<Stats, PipeError> {
            self.close()
        }
        fn abort(&mut self) {
            self.abort()
        }
    })+ };
}
port!(Writer, Reader, NetWriter, NetReader);

impl Write for Writer {
    fn next_step(&self) -> u64 {
        self.next_step()
    }
    fn step_with(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<bool, PipeError> {
        let mut slot = self.step()?;
        fill(&mut slot);
        Ok(slot.publish())
    }
    fn write(&mut self, part: &[u8]) -> Result<bool, PipeError> {
        self.write(part)
    }
}

impl Write for NetWriter {
    fn next_step(&self) -> u64 {
        self.next_step()
    }
    fn step_with(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<bool, PipeError> {
        let mut slot = self.step()?;
        fill(&mut slot);
        slot.publish()
    }
    fn write(&mut self, part: &[u8]) -> Result<bool, PipeError> {
        self.write(part)
    }
}

impl Read for Reader {
    fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError> {
        self.read(part)
    }
}

impl Read for NetReader {
    fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError> {
        self.read(part)
    }
}

/// On this host, by name.
impl At for String {
    type Writer = Writer;
    type Reader = Reader;

    fn new() -> String {
        unique("pipe")
    }
    fn writer(&self, given: &Given, layout: &str, options: &Options) -> Result<Writer, PipeError> {
        Writer::open(self, given, layout, options)
    }
    fn reader(&self, layout: &str, expect: &Expect, options: &Options) -> Result<Reader, PipeError> {
        Reader::open(self, layout, expect, options)
    }
}

impl At for Across {
    type Writer = NetWriter;
    type Reader = NetReader;

    fn new() -> Across {
        Across::trusting(true)
    }
    fn writer(&self, given: &Given, layout: &str, options: &Options) -> Result<NetWriter, PipeError> {
        NetWriter::open(&self.place, &self.trust, given, layout, &self.near.options(options))
    }
    fn reader(&self, layout: &str, expect: &Expect, options: &Options) -> Result<NetReader, PipeError> {
        NetReader::open(&self.place, &self.trust, layout, expect, &self.near.options(options))
    }
}
