//! Whole pipes, their units as threads of one process: what goes in comes out, whatever the layouts.

mod common;

use common::suite::{self, LAYOUTS};
use common::{fill, local_indices, reader_options, unique, writer_options, Pipe};
use polyduct_layout::{Dataset, ElemType, Layout};
use polyduct_pipe::{Expect, Given, OnLoss, Options, PipeError, Reader, Refusal, Writer};
use polyduct_port::PortError;
use proptest::prelude::*;
use std::time::Duration;

/// On this host.
type Here = String;

fn check(shape: &[u64], src: &str, writers: u32, dst: &str, readers: u32, steps: u64) {
    suite::check(unique("steps"), shape, (src, writers), (dst, readers), steps);
}

#[test]
fn rows_reach_columns() {
    check(&[64, 48], "block,*", 3, "*,block", 4, 5);
}

#[test]
fn one_unit_reaches_one_unit() {
    check(&[7], "*", 1, "*", 1, 20);
}

#[test]
fn halos_are_filled_and_orders_change() {
    check(&[20, 30], "block,block@2x2", 4, "block,*;order=F;halo=2,0", 3, 3);
}

#[test]
fn units_without_a_part_take_part() {
    check(&[2, 3], "block,*", 4, "*,cyclic", 5, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_pair_of_layouts(rows in 0u64..9, cols in 0u64..9, a in 0usize..8, b in 0usize..8, w in 1u32..4, r in 1u32..4) {
        // `*,*` gives every unit all of it; as a writer that is a replica.
        check(&[rows, cols], LAYOUTS[a].split(";halo").next().unwrap(), w, LAYOUTS[b], r, 3);
    }
}

#[test]
fn several_reader_programs_each_get_every_step_in_their_own_layout() {
    let data = Dataset::new(&[12, 10], ElemType::U64).unwrap();
    let layouts = [("block,*", 2), ("*,block", 3), ("*,*", 1)];
    Pipe::new(&data, "*,cyclic", 2, &layouts).run(
        |mut w, unit| {
            let indices = local_indices(w.mapping(), unit);
            for step in 0..10 {
                let mut part = vec![0; w.local_len_bytes()];
                fill(&mut part, &indices, step);
                assert!(w.write(&part).unwrap());
            }
        },
        |mut r, program, unit| {
            let (layout, units) = layouts[program];
            let mapping = layout.parse::<Layout>().unwrap().bind(&data, units.into()).unwrap();
            let indices = local_indices(&mapping, unit);
            let mut expected = vec![0; r.local_len_bytes()];
            let mut steps = 0;
            while let Some(step) = r.next_step().unwrap() {
                fill(&mut expected, &indices, steps);
                assert!(*step == *expected, "program {program} unit {unit} step {steps}");
                steps += 1;
            }
            assert_eq!(steps, 10);
        },
    );
}

#[test]
fn a_part_that_lies_in_one_slot_is_read_in_place() {
    let data = Dataset::new(&[8, 8], ElemType::F64).unwrap();
    Pipe::new(&data, "block,*", 2, &[("block,*", 4)]).run(
        |mut w, _| assert!(w.step().unwrap().publish().unwrap()),
        |mut r, _, _| assert!(r.next_step().unwrap().unwrap().is_mapped()),
    );
}

#[test]
fn large_arrays_reach_readers_that_wait_and_readers_that_do_not() {
    // 1 Mi elements of 8 bytes: large enough to be fetched from the writer's own memory.
    let data = Dataset::new(&[1 << 10, 1 << 10], ElemType::U64).unwrap();
    Pipe::new(&data, "block,*", 1, &[("block,*", 2)]).run(
        |mut w, _| {
            let mut part = vec![0; w.local_len_bytes()];
            for step in 0..12u64 {
                part.chunks_exact_mut(8).for_each(|e| e.copy_from_slice(&step.to_le_bytes()));
                assert!(w.write(&part).unwrap());
                // The array is the caller's again: what readers still copy must not see this.
                part.fill(0xff);
            }
        },
        |mut r, _, unit| {
            let mut part = vec![0; r.local_len_bytes()];
            for step in 0..12u64 {
                // Unit 1 is slow now and then, so that offers are also withdrawn while unit 0 fetches.
                if unit == 1 && step % 3 == 0 {
                    (0..30).for_each(|i| part.fill(i));
                }
                assert_eq!(r.read(&mut part).unwrap(), Some(step));
                assert!(part.chunks_exact(8).all(|e| e == step.to_le_bytes()), "unit {unit}, step {step}");
            }
        },
    );
}

/// One unit on each side, and more than one processor: several threads copy the part, from the slot and from
/// the writer's own memory, in pieces that end in the midst of runs.
#[test]
fn parts_of_many_pieces_arrive_whole() {
    const COLUMNS: u64 = 200_003;
    let data = Dataset::new(&[61, COLUMNS], ElemType::U16).unwrap();
    let value = |step: u64, i: u64| ((i * 7 + step * 13) % 65_521) as u16;
    for (layout, skip) in [("*,*", 0), ("cut(0,1),*", 1)] {
        Pipe::new(&data, "*,*", 1, &[(layout, 1 + skip as u32)]).run(
            |mut w, _| {
                for step in 0..6 {
                    let part: Vec<u8> =
                        (0..61 * COLUMNS).flat_map(|i| value(step, i).to_ne_bytes()).collect();
                    match step % 2 {
                        0 => assert!(w.write(&part).unwrap()),
                        _ => {
                            let mut slot = w.step().unwrap();
                            slot.copy_from_slice(&part);
                            assert!(slot.publish().unwrap());
                        }
                    }
                }
            },
            |mut r, _, unit| {
                let mut part = vec![0; r.local_len_bytes()];
                for step in 0..6 {
                    assert_eq!(r.read(&mut part).unwrap(), Some(step));
                    let first = unit * skip * COLUMNS;
                    let same = |(i, e): (u64, &[u8])| *e == value(step, first + i).to_ne_bytes();
                    assert!((0..).zip(part.chunks_exact(2)).all(same), "unit {unit}, step {step}");
                }
            },
        );
    }
}

#[test]
fn element_types_change_on_the_way_only_when_asked() {
    suite::element_types_change_only_when_asked(unique("convert"), 100);
}

#[test]
fn lossy_queues_never_hold_the_writer_and_deliver_whole_steps_in_order() {
    suite::lossy_queues_deliver_whole_steps_in_order::<Here>(500);
}

#[test]
fn closing_unevenly_is_an_error_and_no_hang() {
    suite::closing_unevenly_is_an_error_and_no_hang::<Here>(drop);
}

#[test]
fn having_written_unevenly_is_an_error() {
    suite::having_written_unevenly_is_an_error::<Here>();
}

#[test]
fn a_writer_without_readers_left_is_told() {
    suite::a_writer_without_readers_left_is_told::<Here>();
}

#[test]
fn readers_that_close_unevenly_are_gone() {
    suite::readers_that_close_unevenly_are_gone::<Here>();
}

#[test]
fn an_abort_reaches_everybody() {
    suite::an_abort_reaches_everybody::<Here>();
}

#[test]
fn deadlines_hold() {
    let options = Options { open_timeout: Duration::from_millis(50), ..reader_options("r", 0, 1) };
    let nobody = Reader::open(&unique("nobody"), "*", &Expect::default(), &options);
    match nobody.map(drop) {
        // Half a second is what others wait longer than unit 0, once they have found it.
        Err(PipeError::Port(PortError::Timeout { waited, .. })) => {
            assert!(waited < Duration::from_millis(450), "{waited:?}")
        }
        other => panic!("{other:?}"),
    }

    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    let options = Options { open_timeout: Duration::from_millis(50), ..writer_options(0, 2) };
    match Writer::open(&unique("alone"), &Given::Dataset(data), "block", &options) {
        Err(PipeError::Refused { reason: Refusal::Missing { missing, .. }, .. }) => {
            assert_eq!(missing, "writer unit 1, reader program 1 of 1")
        }
        other => panic!("{:?}", other.err()),
    }

    let mut pipe = Pipe::new(&data, "block", 1, &[("*", 1)]);
    pipe.timeout = Some(Duration::from_millis(30));
    // The reader begins when the writer has seen its timeouts.
    let (seen, wait) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    pipe.run(
        |mut w, _| {
            w.write(&[0; 4]).unwrap();
            w.write(&[0; 4]).unwrap();
            let full = w.write(&[0; 4]).unwrap_err();
            assert!(matches!(full, PipeError::Port(PortError::Timeout { .. })), "{full}");
            assert!(full.to_string().contains(": writer unit 0: timed out after "), "{full}");
            assert!(
                matches!(w.write(&[0; 4]), Err(PipeError::Port(PortError::Timeout { .. }))),
                "a timeout ends the call, not the port"
            );
            seen.wait();
            wait.wait();
            w.close().unwrap();
        },
        |mut r, _, _| {
            seen.wait();
            let mut part = [0; 4];
            assert_eq!(r.read(&mut part).unwrap(), Some(0));
            assert_eq!(r.read(&mut part).unwrap(), Some(1));
            let empty = r.read(&mut part).unwrap_err();
            assert!(matches!(empty, PipeError::Port(PortError::Timeout { .. })), "{empty}");
            assert!(empty.to_string().contains(": reader unit 0: timed out after "), "{empty}");
            wait.wait();
            while r.read(&mut part) != Ok(None) {}
        },
    );
}

#[test]
fn units_that_disagree_are_refused_by_name() {
    let name = unique("disagree");
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    let open =
        |layout: &str, options: &_| Writer::open(&name, &Given::Dataset(data), layout, options).map(drop);
    std::thread::scope(|s| {
        s.spawn(|| {
            Writer::open(&name, &Given::Dataset(data), "block", &writer_options(0, 2)).unwrap();
        });
        match open("cyclic", &writer_options(1, 2)) {
            Err(PipeError::Refused { reason: Refusal::Disagree { what, expected, found, .. }, .. }) => {
                assert_eq!((&what[..], &expected[..], &found[..]), ("layout", "\"block\"", "\"cyclic\""))
            }
            other => panic!("{other:?}"),
        }
        match open("block", &writer_options(0, 2)) {
            Err(error @ PipeError::NameTaken { pid, .. }) if pid == std::process::id() => {
                let me = std::env::args().next().unwrap();
                let shown: String = me.chars().take(40).collect();
                assert!(error.to_string().contains(&shown), "{error}");
            }
            other => panic!("{:?}", other.map(drop)),
        }
        let on_loss = Options { on_loss: OnLoss::Wait, ..writer_options(1, 2) };
        assert!(matches!(open("block", &on_loss), Err(PipeError::Refused { .. })));
        let open = &open;
        s.spawn(move || open("block", &writer_options(1, 2)).unwrap());
        Reader::open(&name, "*", &Expect::default(), &reader_options("r", 0, 1)).unwrap();
    });
}

#[test]
fn bad_input_is_refused_before_anything_is_done() {
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    let given = Given::Dataset(data);
    let open = |name: &str, layout: &str, f: &dyn Fn(&mut Options)| {
        let mut options = writer_options(0, 1);
        f(&mut options);
        Writer::open(name, &given, layout, &options).map(drop).unwrap_err()
    };
    let error = open("x", "blok", &|_| ());
    assert!(
        matches!(error, PipeError::Port(PortError::Layout { .. })) && error.pipe() == Some("x"),
        "{error}"
    );
    assert!(error.to_string().starts_with("pipe x: layout text, byte 0: "), "{error}");
    assert!(matches!(
        open("", "block", &|_| ()),
        PipeError::Port(PortError::BadOption { option: "pipe name", .. })
    ));
    assert!(matches!(
        open("a b", "block", &|_| ()),
        PipeError::Port(PortError::BadOption { option: "pipe name", .. })
    ));
    for (option, set) in [
        ("unit", &(|o: &mut Options| o.unit = 1) as &dyn Fn(&mut Options)),
        ("units", &|o| o.units = 0),
        ("units", &|o| o.units = 5000),
        ("depth", &|o| o.depth = 0),
        ("depth", &|o| o.depth = 65),
        ("readers", &|o| o.readers = 9.into()),
    ] {
        let error = open("x", "block", set);
        assert!(
            matches!(error, PipeError::Port(PortError::BadOption { option: o, .. }) if o == option),
            "{error}"
        );
    }
    let error = open("x", "block", &|o| o.unit = 1);
    assert_eq!(error.to_string(), "unit is 1; expected below units, 1");
    let huge = Given::Dataset(Dataset::new(&[1 << 50], ElemType::U8).unwrap());
    let error = Writer::open(&unique("huge"), &huge, "block", &writer_options(0, 1)).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::System { .. }), "{error}");
    assert!(error.to_string().contains(": writer unit 0: "), "{error}");
}

#[test]
fn a_name_opens_again_at_once() {
    suite::a_name_opens_again_at_once(unique("again"), 200);
}

/// Two jobs use one name, each with a program of its own on both sides.
#[test]
fn a_name_belongs_to_its_job() {
    let (name, data) = (unique("job"), Dataset::new(&[4], ElemType::U8).unwrap());
    let in_job = |job: &str, options: Options| Options { job: job.into(), ..options };
    std::thread::scope(|s| {
        for (job, value) in [("first", 1), ("second job, whose name is ü", 2), ("", 3)] {
            let (name, in_job) = (&name, &in_job);
            s.spawn(move || {
                let options = in_job(job, writer_options(0, 1));
                let mut w = Writer::open(name, &Given::Dataset(data), "*", &options).unwrap();
                assert!(w.write(&[value; 4]).unwrap());
                w.close().unwrap();
            });
            s.spawn(move || {
                let options = in_job(job, reader_options("r", 0, 1));
                let mut r = Reader::open(name, "*", &Expect::default(), &options).unwrap();
                let mut part = [0; 4];
                assert_eq!(r.read(&mut part).unwrap(), Some(0));
                assert_eq!(part, [value; 4], "job {job:?}");
                r.close().unwrap();
            });
        }
    });
    let alone =
        Options { open_timeout: Duration::from_millis(20), ..in_job("third", reader_options("r", 0, 1)) };
    let told = Reader::open(&name, "*", &Expect::default(), &alone).map(drop).unwrap_err().to_string();
    assert!(told.contains("to open the pipe in job \"third\" (see POLYDUCT_JOB)"), "{told}");
    assert!(told.ends_with("must all open them in the same order"), "{told}");
}

#[test]
fn readers_follow_each_other() {
    suite::readers_follow_each_other(unique("follow"));
}

#[test]
fn pipes_opened_in_opposite_orders_are_told_so() {
    suite::pipes_opened_in_opposite_orders_are_told_so::<String>();
}

#[test]
fn a_unit_of_several_programs_is_named_with_its_own() {
    suite::a_unit_of_several_programs_is_named_with_its_own::<String>();
}
