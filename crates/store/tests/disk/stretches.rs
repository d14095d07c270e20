//! Steps written in stretches, by units that each have whole rows of them.

use crate::rig::{byte, check, each, options, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{StoreError, StoreWriter};

#[test]
fn stretches_of_any_unit_make_the_same_steps_and_lost_units_change_nothing() {
    for (data, parity) in [(1, 0), (2, 1), (4, 2)] {
        let place = Place::store(data, parity, 8192);
        for (n, shape) in [(0, &[300, 401][..]), (1, &[8, 1024]), (2, &[9001])] {
            let (dataset, name) = (Dataset::new(shape, ElemType::F64).unwrap(), format!("d{n}"));
            let len = dataset.len_bytes();
            let write = |append: bool, units: u32, steps: std::ops::Range<u64>| {
                each(units, |u| {
                    let mut out = StoreWriter::open(
                        &place.0,
                        &name,
                        &dataset,
                        "stripe(64)",
                        append,
                        &options(u, units),
                    )
                    .unwrap();
                    // One and a few rows at once.
                    let row = out.stretch_unit().unwrap();
                    for step in steps.clone() {
                        let (mut at, mut turn) = (0, 0);
                        while at < len {
                            let end = (at + row * (1 + turn % 3)).min(len);
                            if turn % u64::from(units) == u64::from(u) {
                                let bytes: Vec<u8> = (at..end).map(|at| byte(step, at)).collect();
                                out.write_stretch(at, &bytes).unwrap();
                            }
                            (at, turn) = (end, turn + 1);
                        }
                        out.end_step().unwrap();
                    }
                    assert_eq!(out.close().unwrap().steps, steps.end - steps.start);
                })
            };
            write(false, 3, 0..2);
            write(true, 1, 2..3);
            check(&place.0, &name, &dataset, "stripe(64)", 2, 0..3).into_iter().for_each(|r| r.unwrap());
        }
        if parity > 0 {
            place.lose(1);
            let dataset = Dataset::new(&[300, 401], ElemType::F64).unwrap();
            check(&place.0, "d0", &dataset, "block,*", 2, 0..3).into_iter().for_each(|r| r.unwrap());
        }
    }
}

#[test]
fn what_is_no_stretch_is_refused_and_the_port_goes_on() {
    let place = Place::store(2, 1, 8192);
    let open = |len: u64| {
        let dataset = Dataset::new(&[len], ElemType::U8).unwrap();
        StoreWriter::open(&place.0, "x", &dataset, "*", false, &options(0, 1)).unwrap()
    };
    let mut out = open(40_000);
    let row = out.stretch_unit().unwrap();
    assert_eq!(row, 16384);
    for (at, len) in [(1, 16384), (0, 100), (32768, 16384), (16384, 40_000), (49152, 0), (u64::MAX, 1)] {
        let refused = out.write_stretch(at, &vec![0; len]).unwrap_err();
        assert!(matches!(refused, StoreError::Bad { .. }), "{at} {len}: {refused}");
    }
    out.write_stretch(16384, &vec![1; 40_000 - 16384]).unwrap();
    out.write_stretch(0, &vec![1; 16384]).unwrap();
    out.end_step().unwrap();
    out.close().unwrap();
    // Several of these share a row.
    let mut small = open(100);
    assert_eq!(small.stretch_unit(), None);
    assert!(small.write_stretch(0, &[0; 100]).unwrap_err().to_string().contains("a whole step"));
    small.abort();
}
