//! An end of a stream that gives up in the middle of a unit, while lanes take nothing more: the other end is
//! told why, and at once.

mod sites;

use polyduct_os::clock;
use polyduct_rig::free_address;
use polyduct_stream::gateway::receive::Sink;
use polyduct_stream::gateway::transmit::{Opened, ProgramError, Source};
use polyduct_stream::StreamError;
use sites::Stream;
use std::ops::Range;
use std::sync::Barrier;
use std::time::Duration;

/// Who is told knows it long before silence is no longer borne.
const SOON: Duration = Duration::from_secs(5);
/// Bytes of a unit: more than the system keeps of what nobody reads.
const UNIT: u64 = 24 << 20;
const STEP: u64 = 4 * UNIT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GivesUp {
    Sender,
    Receiver,
}

/// A program of one step, which may be lost when the first unit is on its way.
struct Field<'a> {
    step: u64,
    lost: Option<&'a Barrier>,
    copied: u64,
}

impl Source for Field<'_> {
    fn open(&mut self, _: bool) -> Result<Opened, ProgramError> {
        self.step += 1;
        Ok(if self.step == 1 { Opened::Step(STEP) } else { Opened::End })
    }

    fn lies(&mut self, _: &Range<u64>) -> Result<bool, ProgramError> {
        Ok(false)
    }

    fn lie(&self, _: &Range<u64>) -> &[u8] {
        &[]
    }

    fn copy(&mut self, _: &Range<u64>, _: &mut [u8]) -> Result<(), ProgramError> {
        self.copied += 1;
        match self.lost.filter(|_| self.copied > 1) {
            // The lane has as much of the first unit as it takes.
            Some(receiver_reads) => {
                receiver_reads.wait();
                Err("the program ran out of fuel".into())
            }
            None => Ok(()),
        }
    }

    fn pass(&mut self) -> Result<(), ProgramError> {
        Ok(())
    }
}

struct Slots<'a>(GivesUp, &'a Barrier);

impl Sink for Slots<'_> {
    fn step(
        &mut self,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        match self.0 {
            GivesUp::Receiver => Err(StreamError::stopped("here", "the program ran out of fuel")),
            GivesUp::Sender => {
                self.1.wait();
                fill(&mut vec![0; len as usize])
            }
        }
    }
}

/// What both ends say.
fn gives_up(who: GivesUp, sender_listens: bool, lanes: u32) -> [String; 2] {
    let stream = Stream { addrs: [free_address(); 2], sender_listens, lanes, sizes: [STEP, UNIT, UNIT] };
    let (barrier, start) = (Barrier::new(2), clock::now());
    let field = Field { step: 0, lost: (who == GivesUp::Sender).then_some(&barrier), copied: 0 };
    let said = stream.carry(field, Slots(who, &barrier)).map(|end| end.unwrap_err().to_string());
    assert!(clock::now() - start < SOON, "{who:?} {:?}: {said:?}", clock::now() - start);
    said
}

#[test]
fn a_sender_that_gives_up_in_a_unit_says_why() {
    for (listens, lanes) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
        let [_, received] = gives_up(GivesUp::Sender, listens, lanes);
        assert!(received.contains("gave up") && received.contains("ran out of fuel"), "{received}");
    }
}

#[test]
fn a_receiver_that_gives_up_in_a_unit_says_why() {
    for (listens, lanes) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
        let [sent, _] = gives_up(GivesUp::Receiver, listens, lanes);
        assert!(sent.contains("gave up") && sent.contains("ran out of fuel"), "{sent}");
    }
}
