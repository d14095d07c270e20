//! Whole pipes across hosts, their units as threads with real sockets: what goes in comes out, whatever the
//! layouts.

mod common;

use common::net::{address_of, place, trust, Across, Near, NetPipe};
use common::suite::{self, LAYOUTS};
use common::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, OnLoss, Options, PipeError, Reader, Writer};
use polyduct_port::PortError;
use polyduct_rig::Middle;
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn check(shape: &[u64], src: &str, writers: u32, dst: &str, readers: u32, steps: u64, trusted: bool) {
    for near in [Near::None, Near::All, Near::Even] {
        let at = Across { near, ..Across::trusting(trusted) };
        suite::check(at, shape, (src, writers), (dst, readers), steps);
    }
}

/// Each pair of units: by memory, over the network, and both within one pipe.
fn each() -> [Across; 3] {
    [Near::None, Near::All, Near::Even].map(|near| Across { near, ..Across::trusting(true) })
}

#[test]
fn rows_reach_columns() {
    check(&[64, 48], "block,*", 3, "*,block", 4, 5, true);
    check(&[64, 48], "block,*", 3, "*,block", 4, 5, false);
}

#[test]
fn long_runs_go_straight_and_short_ones_in_frames() {
    for trusted in [true, false] {
        for dst in ["*,block", "*,block;order=F", "cyclic,*", "*,cyclic(3)", "block,*;halo=2,0"] {
            suite::check(Across::far(trusted), &[700, 1024], ("block,*", 2), (dst, 2), 3);
        }
    }
}

#[test]
fn halos_are_filled_and_orders_change() {
    check(&[20, 30], "block,block@2x2", 4, "block,*;order=F;halo=2,0", 3, 3, true);
}

#[test]
fn units_without_a_part_take_part() {
    check(&[2, 3], "block,*", 4, "*,cyclic", 5, 3, true);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_pair_of_layouts(
        rows in 0u64..40, cols in 0u64..40, a in 0usize..8, b in 0usize..8, w in 1u32..4, r in 1u32..4, trusted: bool
    ) {
        // `*,*` gives every unit all of it; as a writer that is a replica.
        check(&[rows, cols], LAYOUTS[a].split(";halo").next().unwrap(), w, LAYOUTS[b], r, 3, trusted);
    }
}

#[test]
fn several_reader_programs_each_get_every_step_in_their_own_layout() {
    let data = Dataset::new(&[12, 10], ElemType::U64).unwrap();
    let layouts = [("block,*", 2), ("*,block", 3), ("*,*", 1)];
    NetPipe::new(&data, "*,cyclic", 2, &layouts).run(
        |mut w, unit| {
            let indices = local_indices(w.mapping(), unit);
            for step in 0..10 {
                let mut part = vec![0; w.local_len_bytes()];
                fill(&mut part, &indices, step);
                assert!(w.write(&part).unwrap());
            }
        },
        |mut r, program, unit| {
            let indices = local_indices(r.mapping(), unit);
            let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
            for step in 0..10 {
                assert_eq!(r.read(&mut part).unwrap(), Some(step));
                fill(&mut expected, &indices, step);
                assert!(part == expected, "program {program} unit {unit} step {step}");
            }
            assert_eq!(r.read(&mut part).unwrap(), None);
        },
    );
}

#[test]
fn element_types_change_on_the_way_only_when_asked() {
    each().into_iter().for_each(|at| suite::element_types_change_only_when_asked(at, 40_000));
}

#[test]
fn a_writer_of_plain_bytes_takes_the_readers_dataset() {
    let (at, trust) = (place(), trust(true));
    std::thread::scope(|s| {
        s.spawn(|| {
            let options = writer_options(0, 1);
            let mut w = Writer::open((&at, &trust), &Given::ByReader, "stripe(1024MiB)", &options).unwrap();
            assert_eq!(w.local_len_bytes(), 24);
            w.write(&[5; 24]).unwrap();
        });
        let expect = Expect { shape: Some(vec![3]), elem: Some(ElemType::U64), convert: false };
        let mut r = Reader::open((&at, &trust), "block", &expect, &reader_options("r", 0, 1)).unwrap();
        let mut part = [0; 24];
        assert_eq!((r.read(&mut part).unwrap(), part), (Some(0), [5; 24]));
    });
}

#[test]
fn lossy_queues_deliver_whole_steps_in_order() {
    // From place to place units are near, far, or both.
    (0..3).for_each(|_| suite::lossy_queues_deliver_whole_steps_in_order::<Across>(300));
}

#[test]
fn closing_unevenly_is_an_error_and_no_hang() {
    suite::closing_unevenly_is_an_error_and_no_hang::<Across>(|mut w| {
        assert!(matches!(w.close(), Err(PipeError::Port(PortError::UnevenSteps { closed_after: 2, .. }))))
    });
}

#[test]
fn having_written_unevenly_is_an_error() {
    suite::having_written_unevenly_is_an_error::<Across>();
}

#[test]
fn a_writer_without_readers_left_is_told() {
    suite::a_writer_without_readers_left_is_told::<Across>();
}

/// A reader that leaves is not taken for dead, however its last words and those to it cross.
#[test]
fn hundreds_of_readers_leave_and_nobody_is_lost() {
    (0..200).for_each(|_| suite::a_writer_without_readers_left_is_told::<Across>());
}

#[test]
fn readers_that_close_unevenly_are_gone() {
    suite::readers_that_close_unevenly_are_gone::<Across>();
}

#[test]
fn an_abort_reaches_everybody() {
    suite::an_abort_reaches_everybody::<Across>();
}

#[test]
fn a_port_goes_on_after_a_timeout_and_an_interrupt() {
    let data = Dataset::new(&[8], ElemType::U8).unwrap();
    let barrier = std::sync::Barrier::new(2);
    let mut pipe = NetPipe::new(&data, "block", 1, &[("block", 1)]);
    pipe.timeout = Some(Duration::from_millis(60));
    pipe.run(
        |mut w, _| {
            barrier.wait();
            (0..2).for_each(|step| assert!(w.write(&[step; 8]).unwrap()));
            // Depth 2 is full, and the reader waits for the barrier.
            let error = w.write(&[2; 8]).unwrap_err();
            assert!(matches!(error, PipeError::Port(PortError::Timeout { .. })), "{error}");
            assert!(error.to_string().contains(": writer unit 0: timed out after "), "{error}");
            barrier.wait();
            while !w.write(&[2; 8]).is_ok_and(|taken| taken) {}
            while matches!(w.close(), Err(PipeError::Port(PortError::Timeout { .. }))) {}
        },
        |mut r, _, _| {
            let mut part = [0; 8];
            let error = r.read(&mut part).unwrap_err();
            assert!(matches!(error, PipeError::Port(PortError::Timeout { .. })), "{error}");
            barrier.wait();
            barrier.wait();
            for step in 0..3 {
                let read = std::iter::repeat_with(|| r.read(&mut part))
                    .find(|r| !matches!(r, Err(PipeError::Port(PortError::Timeout { .. }))));
                assert_eq!((read.unwrap().unwrap(), part), (Some(step), [step as u8; 8]));
            }
            let end = std::iter::repeat_with(|| r.read(&mut part))
                .find(|r| !matches!(r, Err(PipeError::Port(PortError::Timeout { .. }))));
            assert_eq!(end.unwrap().unwrap(), None);
        },
    );
}

#[test]
fn what_cannot_be_is_refused_before_anything_happens() {
    let (at, trust) = (place(), trust(true));
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    let given = Given::Dataset(data);
    let error = Writer::open((&at, &trust), &given, "blok", &writer_options(0, 1)).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::Port(PortError::Layout { .. })), "{error}");
    assert!(error.to_string().starts_with("pipe://"), "{error}");
    let soon = Options { open_timeout: Duration::from_millis(50), ..reader_options("r", 0, 1) };
    let error = Reader::open((&at, &trust), "*", &Expect::default(), &soon).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::Port(PortError::Timeout { .. })), "{error}");
    assert!(error.to_string().contains(": reader unit 0: timed out after "), "{error}");
    let nowhere = polyduct_pipe::net::PipeAddress { host: "no such host".into(), ..at };
    let error = Reader::open((&nowhere, &trust), "*", &Expect::default(), &soon).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::Port(PortError::BadOption { option: "host", .. })), "{error}");
}

/// Its predecessor had published steps that not all readers have.
#[test]
fn a_replacement_that_closes_before_it_has_written_them_ends_the_stream() {
    let (at, trust) = (place(), trust(true));
    let given = Given::Dataset(Dataset::new(&[2], ElemType::U8).unwrap());
    let options = |unit| Options { on_loss: OnLoss::Wait, depth: 3, ..writer_options(unit, 2) };
    let open = |unit| Writer::open((&at, &trust), &given, "block", &options(unit)).unwrap();
    std::thread::scope(|s| {
        let write = |unit| {
            let mut w = open(unit);
            (0..3).for_each(|step| assert!(w.write(&[step]).unwrap()));
            w
        };
        let [first, second] = [0, 1].map(|unit| s.spawn(move || write(unit)));
        let expect = Expect::default();
        let mut r = Reader::open((&at, &trust), "*", &expect, &reader_options("r", 0, 1)).unwrap();
        let (mut first, mut second) = (first.join().unwrap(), second.join().unwrap());
        let mut part = [0; 2];
        assert_eq!(r.read(&mut part).unwrap(), Some(0));
        second.abort();
        let mut again = open(1);
        assert!([1, 2].contains(&again.next_step()), "{}", again.next_step());
        let gave_up = |e: PipeError| {
            assert!(
                matches!(&e, PipeError::Port(PortError::PeerAborted { peer, .. }) if peer.unit == 1),
                "{e}"
            );
        };
        gave_up(again.close().unwrap_err());
        gave_up(first.write(&[3]).unwrap_err());
        // What lies in its sockets it may still read.
        gave_up(std::iter::repeat_with(|| r.read(&mut part)).find_map(Result::err).unwrap());
    });
}

#[test]
fn a_name_opens_again_at_once() {
    each().into_iter().for_each(|at| suite::a_name_opens_again_at_once(at, 15));
}

#[test]
fn readers_follow_each_other() {
    each().into_iter().for_each(suite::readers_follow_each_other);
}

#[test]
fn pipes_opened_in_opposite_orders_are_told_so() {
    suite::pipes_opened_in_opposite_orders_are_told_so::<Across>();
}

#[test]
fn a_unit_of_several_programs_is_named_with_its_own() {
    suite::a_unit_of_several_programs_is_named_with_its_own::<Across>();
}

/// How long what is said to unit 0, or by it, is on its way.
const WAY: Duration = Duration::from_millis(5);
/// Steps of a stream over such a way.
const FAR_STEPS: u64 = 64;

/// How long a stream takes through a queue of this depth, whose second writer unit and reader are far from
/// unit 0.
fn far_steps(depth: u32) -> Duration {
    let (at, trust) = (&place(), &trust(true));
    let middle = Middle::far(address_of(at), WAY);
    let far = &PipeAddress { host: middle.addr.ip().to_string(), port: middle.addr.port(), ..at.clone() };
    let write = |unit: u32, at: &PipeAddress| {
        let given = Given::Dataset(Dataset::new(&[2], ElemType::U64).unwrap());
        let options = Options { depth, ..writer_options(unit, 2) };
        let mut w = Writer::open((at, trust), &given, "block", &options).unwrap();
        (0..FAR_STEPS).for_each(|step| assert!(w.write(&step.to_le_bytes()).unwrap()));
        w.close().unwrap();
    };
    std::thread::scope(|s| {
        let write = &write;
        s.spawn(move || write(0, at));
        s.spawn(move || write(1, far));
        let options = reader_options("r", 0, 1);
        let mut r = Reader::open((far, trust), "*", &Expect::default(), &options).unwrap();
        let (start, mut part) = (Instant::now(), [0; 16]);
        for step in 0..FAR_STEPS {
            assert_eq!(r.read(&mut part).unwrap(), Some(step));
            assert_eq!(part, [step.to_le_bytes(); 2].concat()[..]);
        }
        let took = start.elapsed();
        assert_eq!(r.read(&mut part).unwrap(), None);
        took
    })
}

#[test]
fn deeper_queues_hide_the_way_to_unit_0() {
    let (shallow, deep) = (far_steps(1), far_steps(8));
    println!("{FAR_STEPS} steps over a way of {WAY:?}: {shallow:.0?} at depth 1, {deep:.0?} at depth 8");
    assert!(shallow >= 2 * WAY * (FAR_STEPS as u32 - 2), "{shallow:?}: there and back again for each step");
    assert!(deep < shallow / 2, "{deep:?} at depth 8, {shallow:?} at depth 1");
}
