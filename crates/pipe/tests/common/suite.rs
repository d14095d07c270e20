//! What holds of a pipe wherever it is: one suite, run on one host and across hosts.

use super::at::{step_with, At};
use super::{fill, local_indices, reader_options, writer_options, PipeAt};
use polyduct_layout::{Dataset, ElemType, Layout};
use polyduct_pipe::{Expect, Given, Mismatch, OnLoss, Options, PipeError, Policy, Reader, Refusal, Writer};
use polyduct_port::{PortError, Reached};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Barrier;
use std::time::Duration;

/// Layouts for pairs of them. `*,*` gives every unit all of it; as a writer that is a replica.
pub const LAYOUTS: [&str; 8] = [
    "block,*",
    "*,block",
    "cyclic,*",
    "cyclic(2),*;order=F",
    "*,balanced;halo=0,1:2",
    "*,*",
    "*,cyclic(3)",
    "stripe(64)",
];

/// Sends `steps` steps through a pipe and checks every element that arrives.
pub fn check<A: At>(at: A, shape: &[u64], src: (&str, u32), dst: (&str, u32), steps: u64) {
    let data = Dataset::new(shape, ElemType::U64).unwrap();
    let programs = [dst];
    let mut pipe = PipeAt::<A>::new(&data, src.0, src.1, &programs);
    pipe.at = at;
    let mapping = dst.0.parse::<Layout>().unwrap().bind(&data, dst.1.into()).unwrap();
    pipe.run(
        |mut w, unit| {
            let indices = local_indices(w.mapping(), unit);
            for step in 0..steps {
                assert!(step_with(&mut w, |slot| fill(slot, &indices, step)).unwrap());
            }
            assert_eq!(w.close().unwrap().steps, steps);
        },
        |mut r, _, unit| {
            let indices = local_indices(&mapping, unit);
            let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
            for step in 0..steps {
                assert_eq!(r.read(&mut part).unwrap(), Some(step));
                fill(&mut expected, &indices, step);
                assert!(part == expected, "{src:?} to {dst:?}, unit {unit}, step {step}");
            }
            assert_eq!(r.read(&mut part).unwrap(), None);
            r.close().unwrap();
        },
    );
}

/// The elements are F32, and converted for a reader of F64 that asks for it.
pub fn element_types_change_only_when_asked<A: At>(at: A, len: u64) {
    let data = Dataset::new(&[len], ElemType::F32).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = at.writer(&Given::Dataset(data), "block", &writer_options(0, 1)).unwrap();
            let part: Vec<u8> = (0..len).flat_map(|i| (i as f32).to_le_bytes()).collect();
            w.write(&part).unwrap();
        });
        let open = |expect| at.reader("block", &expect, &reader_options("r", 0, 1));
        let refused = |expect| match open(expect) {
            Err(PipeError::Refused { reason: Refusal::Terms(Mismatch::Dataset { what, .. }), .. }) => what,
            other => panic!("{:?}", other.err()),
        };
        let expect = Expect { elem: Some(ElemType::F64), ..Expect::default() };
        assert_eq!(refused(expect.clone()), "dtype");
        assert_eq!(refused(Expect { shape: Some(vec![99]), ..Expect::default() }), "shape");
        let mut r = open(Expect { convert: true, ..expect }).unwrap();
        let mut part = vec![0; r.local_len_bytes()];
        assert_eq!(r.read(&mut part).unwrap(), Some(0));
        let got: Vec<f64> = part.chunks(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect();
        assert_eq!(got.len() as u64, len);
        assert!(got.iter().enumerate().all(|(i, &x)| x == i as f64));
    });
}

pub fn lossy_queues_deliver_whole_steps_in_order<A: At>(steps: u64) {
    for policy in [Policy::Latest, Policy::DropOldest, Policy::DropNewest] {
        for (writers, readers, runs) in [(1, 1, 1), (3, 2, 60)] {
            let data = Dataset::new(&[60, 4], ElemType::U64).unwrap();
            let programs = [("*,block", readers)];
            let mut pipe = PipeAt::<A>::new(&data, "block,*", writers, &programs);
            pipe.policy = policy;
            pipe.run(
                |mut w, unit| {
                    let indices = local_indices(w.mapping(), unit);
                    for step in 0..steps {
                        step_with(&mut w, |slot| fill(slot, &indices, step)).unwrap();
                    }
                    let stats = w.close().unwrap();
                    assert_eq!(stats.steps + stats.dropped, steps);
                },
                |mut r, _, unit| {
                    let indices = local_indices(r.mapping(), unit);
                    let mut part = vec![0; r.local_len_bytes()];
                    let mut expected = part.clone();
                    let mut last = None;
                    while let Some(step) = r.read(&mut part).unwrap() {
                        assert!(last < Some(step), "{policy}: {step} after {last:?}");
                        fill(&mut expected, &indices, step);
                        assert!(part == expected, "{policy}, step {step} is torn");
                        last = Some(step);
                    }
                    let stats = r.close().unwrap();
                    assert_eq!(Some(stats.steps + stats.dropped), last.map(|last| last + 1));
                    assert_eq!(stats.runs, runs * stats.steps);
                    if policy != Policy::DropNewest {
                        assert_eq!(last, Some(steps - 1), "{policy}: the last step is never the one dropped");
                    }
                },
            );
        }
    }
}

fn reads_two_steps_and_the_disagreement(mut r: Reader) {
    let mut part = [0; 4];
    assert_eq!(r.read(&mut part).unwrap(), Some(0));
    assert_eq!(r.read(&mut part).unwrap(), Some(1));
    let error = r.read(&mut part).unwrap_err();
    assert!(
        matches!(
            error,
            PipeError::Port(PortError::UnevenSteps { closed_after: 2, came: Reached::ToStep(2), .. })
        ),
        "{error}"
    );
}

/// Unit 0 writes two steps, unit 1 would write five; `end` is the end of unit 0.
pub fn closing_unevenly_is_an_error_and_no_hang<A: At>(end: impl Fn(Writer) + Sync) {
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    PipeAt::<A>::new(&data, "block", 2, &[("*", 1)]).run(
        |mut w, unit| {
            let steps = if unit == 0 { 2 } else { 5 };
            let result: Result<Vec<bool>, _> = (0..steps).map(|_| w.write(&[0; 2])).collect();
            match (unit, result) {
                (0, Ok(_)) => end(w),
                (1, Err(PipeError::Port(PortError::UnevenSteps { peer: unit, closed_after: 2, .. }))) => {
                    assert_eq!(unit.unit, 0)
                }
                (unit, other) => panic!("unit {unit}: {other:?}"),
            }
        },
        |r, _, _| reads_two_steps_and_the_disagreement(r),
    );
}

/// Both units have written when they close, one more than the other.
pub fn having_written_unevenly_is_an_error<A: At>() {
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    for ahead in [0_u32, 1] {
        let (written, told) = (Barrier::new(2), AtomicU32::new(0));
        let mut pipe = PipeAt::<A>::new(&data, "block", 2, &[("*", 1)]);
        pipe.depth = 4;
        pipe.run(
            |mut w, unit| {
                let steps = if unit == u64::from(ahead) { 3 } else { 2 };
                (0..steps).for_each(|_| assert!(w.write(&[0; 2]).unwrap()));
                written.wait();
                // The first to close cannot know; the last must be told, whichever wrote more.
                match w.close() {
                    Ok(_) => 0,
                    Err(PipeError::Port(PortError::UnevenSteps { peer: by, closed_after: 2, .. }))
                        if by.unit == 1 - ahead =>
                    {
                        told.fetch_add(1, Ordering::Relaxed)
                    }
                    Err(other) => panic!("unit {unit}: {other}"),
                };
            },
            |r, _, _| reads_two_steps_and_the_disagreement(r),
        );
        assert_ne!(told.into_inner(), 0, "a writer");
    }
}

pub fn a_writer_without_readers_left_is_told<A: At>() {
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    PipeAt::<A>::new(&data, "block", 2, &[("*", 2)]).run(
        |mut w, _| {
            let error = (0..).find_map(|_| w.write(&[0; 2]).err()).unwrap();
            assert!(matches!(error, PipeError::ReadersGone { .. }), "{error}");
        },
        |mut r, _, _| assert_eq!(r.read(&mut [0; 4]).unwrap(), Some(0)),
    );
}

/// One reader has left before the other, which finds that there is no next step for it, whether it asks for
/// one or has asked ahead: both are gone then.
pub fn readers_that_close_unevenly_are_gone<A: At>() {
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    for asks in [true, false] {
        let left = Barrier::new(2);
        PipeAt::<A>::new(&data, "block", 2, &[("*", 2)]).run(
            |mut w, _| {
                let error = (0..).find_map(|_| w.write(&[0; 2]).err()).unwrap();
                assert!(matches!(error, PipeError::ReadersGone { .. }), "{error}");
            },
            |mut r, _, unit| {
                if unit == 0 {
                    assert_eq!(r.read(&mut [0; 4]).unwrap(), Some(0));
                    drop(r);
                    left.wait();
                    return;
                }
                left.wait();
                assert_eq!(r.read(&mut [0; 4]).unwrap(), Some(0));
                if asks {
                    let error = (0..).find_map(|_| r.read(&mut [0; 4]).err()).unwrap();
                    assert!(
                        matches!(error, PipeError::Port(PortError::UnevenSteps { closed_after: 1, .. })),
                        "{error}"
                    );
                }
            },
        );
    }
}

pub fn an_abort_reaches_everybody<A: At>() {
    for aborting in [0, 1] {
        let data = Dataset::new(&[4], ElemType::U8).unwrap();
        PipeAt::<A>::new(&data, "block", 2, &[("*", 2)]).run(
            |mut w, unit| {
                if unit == aborting {
                    return w.abort();
                }
                let error = (0..).find_map(|_| w.write(&[0; 2]).err()).unwrap();
                let right =
                    matches!(&error, PipeError::Port(PortError::PeerAborted { peer, .. }) if u64::from(peer.unit) == aborting);
                assert!(right, "{error}");
            },
            |mut r, _, _| {
                let error = r.read(&mut [0; 4]).unwrap_err().to_string();
                let (_, what) = error.split_once(": ").unwrap();
                assert_eq!(what, format!("writer unit {aborting} gave up"));
            },
        );
    }
}

/// Every unit opens the name again as soon as it has closed it: it waits for the next pipe, whoever is still
/// in the last.
pub fn a_name_opens_again_at_once<A: At>(at: A, times: u64) {
    let data = Dataset::new(&[8, 8], ElemType::U64).unwrap();
    let at = &at;
    std::thread::scope(|s| {
        for unit in 0..3 {
            s.spawn(move || {
                for time in 0..times {
                    let options = writer_options(unit, 3);
                    let mut w = at.writer(&Given::Dataset(data), "block,*", &options).unwrap();
                    let indices = local_indices(w.mapping(), unit.into());
                    step_with(&mut w, |slot| fill(slot, &indices, time)).unwrap();
                    w.close().unwrap();
                }
            });
        }
        for unit in 0..2 {
            s.spawn(move || {
                for time in 0..times {
                    // A program that has seen the end comes under another name: in the last pipe it would be
                    // one too many. A program that left before, while the writers may still go on, would be
                    // just that, and comes under its own.
                    let options = reader_options(&format!("r{}", time.div_ceil(2)), unit, 2);
                    let mut r = at.reader("*,block", &Expect::default(), &options).unwrap();
                    let indices = local_indices(r.mapping(), unit.into());
                    let (mut part, mut expected) =
                        (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
                    assert_eq!(r.read(&mut part).unwrap(), Some(0));
                    fill(&mut expected, &indices, time);
                    assert!(part == expected, "time {time}: reader unit {unit} has got another pipe's step");
                    // Half of them leave before the end.
                    if time % 2 == 0 {
                        assert_eq!(r.read(&mut part).unwrap(), None);
                    }
                    r.close().unwrap();
                }
            });
        }
    });
}

/// A server that says that another follows may go and come again, while the writer writes on; one that closes
/// is the last.
pub fn readers_follow_each_other<A: At>(at: A) {
    let data = Dataset::new(&[8], ElemType::U8).unwrap();
    std::thread::scope(|s| {
        let at = &at;
        let writer = s.spawn(move || {
            let options = Options { policy: Policy::Latest, ..writer_options(0, 1) };
            let mut w = at.writer(&Given::Dataset(data), "block", &options).unwrap();
            loop {
                if let Err(error) = w.write(&[7; 8]) {
                    return error;
                }
            }
        });
        let options = Options { on_loss: OnLoss::Wait, ..reader_options("server", 0, 1) };
        let (mut part, mut last) = ([0; 8], None);
        for _ in 0..5 {
            let mut r = at.reader("block", &Expect::default(), &options).unwrap();
            let step = r.read(&mut part).unwrap();
            assert!(step.is_some() && step > last && part == [7; 8], "{step:?} after {last:?}");
            last = step;
            r.abort();
        }
        let mut r = at.reader("block", &Expect::default(), &options).unwrap();
        assert!(r.read(&mut part).unwrap() > last);
        r.close().unwrap();
        let error = writer.join().unwrap();
        assert!(matches!(error, PipeError::ReadersGone { .. }), "{error}");
        assert!(error.to_string().contains("leaves by abort()"), "{error}");
    });
}

/// Two programs open two pipes, each first the one that it writes: they wait for each other, and both are
/// told what to look at.
pub fn pipes_opened_in_opposite_orders_are_told_so<A: At>() {
    let (places, data) = ([A::new(), A::new()], Dataset::new(&[4], ElemType::U8).unwrap());
    let brief = |options: Options| Options { open_timeout: Duration::from_millis(300), ..options };
    let open = |first: &A, second: &A| -> Result<(), PipeError> {
        let _w = first.writer(&Given::Dataset(data), "block", &brief(writer_options(0, 1)))?;
        second.reader("*", &Expect::default(), &brief(reader_options("r", 0, 1))).map(drop)
    };
    let [a, b] = &places;
    let read = a.reader("*", &Expect::default(), &brief(reader_options("r", 0, 1))).map(drop);
    let ends = std::thread::scope(|s| {
        let ends = [s.spawn(|| open(a, b)), s.spawn(|| open(b, a))];
        ends.map(|end| end.join().unwrap())
    });
    for end in ends.into_iter().chain([read]) {
        let error = end.unwrap_err().to_string();
        assert!(error.ends_with("must all open them in the same order"), "{error}");
    }
}

/// Of several reader programs the texts say which, by its name.
pub fn a_unit_of_several_programs_is_named_with_its_own<A: At>() {
    let (at, data) = (A::new(), Dataset::new(&[4], ElemType::U8).unwrap());
    let (at, options) = (&at, Options { readers: 2.into(), ..writer_options(0, 1) });
    let read = |program: &str| -> Result<Reader, PipeError> {
        at.reader("*", &Expect::default(), &reader_options(program, 0, 1))
    };
    let says = |error: PipeError| {
        let says = error.to_string();
        assert!(says.ends_with("unit 0 of reader program \"viewer\" gave up"), "{says}");
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = at.writer(&Given::Dataset(data), "block", &options).unwrap();
            says((0..).find_map(|_| w.write(&[0; 4]).err()).unwrap());
        });
        s.spawn(|| read("viewer").unwrap().abort());
        s.spawn(|| {
            let mut r = read("logger").unwrap();
            says((0..).find_map(|_| r.read(&mut [0; 4]).err()).unwrap());
        });
    });
}
