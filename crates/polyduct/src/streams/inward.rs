//! What a gateway does for a stream that comes: it writes the pipe that the program reads.

use super::bundles::{self, Unpacked};
use super::meet::Pipe;
use super::program::Read;
use super::reach::Inward;
use super::work::{program, why, Job, TU_BYTES, WHOLE};
use super::Form;
use crate::plain::Steps;
use polyduct_message::meeting::Within;
use polyduct_pipe::{Given, PipeError, Writer};
use polyduct_port::{BundleError, Interrupt, Options, PortError, PortName, Readers};
use polyduct_stream::gateway::far::FarSteps;
use polyduct_stream::gateway::transmit::ProgramError;
use polyduct_stream::gateway::{receive, udp, Lease};
use polyduct_stream::{Adu, Format, StreamError};
use std::io::BufReader;
use std::time::Duration;

/// How long a gateway waits for a program that it has nothing for.
const TELL: Duration = Duration::from_millis(500);

/// Carries what comes to a program that reads.
///
/// # Errors
/// What ended it.
pub fn receive_steps(job: &Job, inward: Inward, lease: &Lease, again: &Interrupt) -> Result<(), StreamError> {
    let (target, pipe) = (&job.target, &job.between(&**again)?);
    let mut options = job.options(pipe)?;
    let place = target.to_string();
    (options.interrupt, options.readers) = (Some(again.clone()), Readers::Sole);
    let again = &**again;
    let ready = |sink: &mut Read, adu| {
        let format = Format::new(adu, TU_BYTES, TU_BYTES, 1).map_err(StreamError::from);
        let ready = format.and_then(|format| lease.ready(format, 2));
        ready.inspect_err(|e| sink.0.abort_because(&why(lease, e)))
    };
    let open = |given: &Given, layout: &str| {
        Writer::open(pipe, given, layout, &options).map_err(|e| match e {
            // Steps that this side has no room for: the program has not been told by the pipe itself.
            PipeError::System { .. } | PipeError::Port(PortError::BadOption { .. }) => {
                let error = StreamError::Content { place: place.clone(), step: 0, source: e.into() };
                give_up(pipe, &options, &why(lease, &error));
                error
            }
            // Far away nobody knows the pipe.
            PipeError::Refused { reason, .. } => {
                program(PipeError::Refused { port: PortName::Stream(place.clone()).into(), reason })
            }
            e => program(e),
        })
    };
    match inward {
        Inward::Tcp(socket) => {
            let input = BufReader::with_capacity(64 << 10, receive::Incoming::new(socket, again));
            let begun = match target.form {
                Form::Length => Ok(Steps::with_lengths(input)),
                Form::Raw | Form::Npy => Steps::begin(input),
            };
            let content = |e| StreamError::Content { place: place.clone(), step: 0, source: From::from(e) };
            let begun = begun.map_err(content);
            let mut steps = begun.inspect_err(|e| give_up(pipe, &options, &why(lease, e)))?;
            let (given, layout) = match steps.header() {
                Some(header) => (Given::Dataset(header.dataset), header.layout()),
                None => (Given::ByReader, WHOLE.to_owned()),
            };
            let mut sink = Read(open(&given, &layout)?);
            let len = sink.0.local_len_bytes() as u64;
            steps.are_of(len);
            ready(&mut sink, Adu::Fixed(len))?;
            let moved = receive::run(&mut Plain(steps), &mut sink, lease, (&place, len), again);
            sink.end(&moved, lease);
            moved.map(drop)
        }
        Inward::Udp(socket) => {
            let mut sink = Read(open(&Given::ByReader, WHOLE)?);
            let len = sink.0.local_len_bytes() as u64;
            ready(&mut sink, Adu::Fixed(len))?;
            let moved = udp::receive(&socket, &mut sink, lease, (&place, len), again);
            sink.end(&moved, lease);
            moved.map(drop)
        }
        Inward::Far(side) => {
            let met = FarSteps::meet(*side, Within { most: job.open, gives_up: again });
            let mut steps = met.inspect_err(|e| give_up(pipe, &options, &why(lease, e)))?;
            let offered = steps.offer().map_or(Err(BundleError::Empty), bundles::given);
            let (given, adu) = offered.map_err(|e| {
                steps.abort(&e.to_string());
                let error = StreamError::Content { place: place.clone(), step: 0, source: e.into() };
                give_up(pipe, &options, &why(lease, &error));
                error
            })?;
            let opened = open(&given, bundles::ALL);
            let mut sink = Read(opened.inspect_err(|e| steps.abort(&why(lease, e)))?);
            steps.are_of(adu);
            ready(&mut sink, adu).inspect_err(|e| steps.abort(&why(lease, e)))?;
            let moved = match given {
                Given::Bundle(_) => steps.run(&mut Unpacked::new(&place, &mut sink.0), lease, again),
                Given::Dataset(_) | Given::ByReader => steps.run(&mut sink, lease, again),
            };
            sink.end(&moved, lease);
            if moved.is_ok() {
                steps.done();
            }
            moved.map(drop)
        }
    }
}

/// Tells a program that waits for its gateway that nothing will come, and why.
fn give_up(pipe: &Pipe, options: &Options, why: &str) {
    // Those that cannot be told have an error of their own.
    let options = Options { open_timeout: TELL, ..options.clone() };
    if let Ok(mut writer) = Writer::open(pipe, &Given::ByReader, WHOLE, &options) {
        writer.abort_because(why);
    }
}

struct Plain<R>(Steps<R>);

impl<R: std::io::BufRead> receive::Steps for Plain<R> {
    fn open(&mut self) -> Result<bool, ProgramError> {
        Ok(self.0.next_step()?)
    }

    fn fill(&mut self, part: &mut [u8]) -> Result<(), ProgramError> {
        Ok(self.0.fill(part)?)
    }
}
