//! Every error of binding, asking and planning; and what counts as a good writer.

mod common;

use common::{random_boxes, Rng, Spec};
use polyduct_layout::{traffic, Dataset, Direction, ElemType, Layout, LayoutError, Mapping, Plan, PlanCache};
use LayoutError::*;

fn data(shape: &[u64]) -> Dataset {
    Dataset::new(shape, ElemType::F32).unwrap()
}

fn bind(text: &str, shape: &[u64], units: u64) -> Result<Mapping, LayoutError> {
    text.parse::<Layout>().unwrap().bind(&data(shape), units)
}

#[test]
fn datasets_that_are_refused() {
    assert_eq!(Dataset::new(&[1; 9], ElemType::U8), Err(TooManyDims { dims: 9, limit: 8 }));
    assert_eq!(Dataset::new(&[3, 1 << 62], ElemType::U8), Err(DatasetTooLarge { dim: 1 }));
    assert_eq!(Dataset::new(&[1 << 60, 1], ElemType::F64), Err(DatasetTooLarge { dim: 0 }));
    assert_eq!(Dataset::new(&[0, u64::MAX], ElemType::F64), Err(DatasetTooLarge { dim: 1 }));
    assert!(Dataset::new(&[1 << 59, 1], ElemType::F64).is_ok());
    assert!(matches!(Dataset::new(&[1], ElemType::Bytes(0)), Err(UnknownElem { .. })));
    let scalar = Dataset::new(&[], ElemType::C128).unwrap();
    assert_eq!((scalar.len_elems(), scalar.len_bytes()), (1, 16));
}

#[test]
fn layouts_that_do_not_fit() {
    let max = polyduct_layout::MAX_UNITS;
    for (text, shape, units, error) in [
        ("block", &[4u64][..], 0, UnitCount { units: 0, limit: max }),
        ("block", &[4], max + 1, UnitCount { units: max + 1, limit: max }),
        ("block", &[4, 4], 2, DimsDiffer { layout: 1, dataset: 2 }),
        ("block", &[], 2, DimsDiffer { layout: 1, dataset: 0 }),
        ("boxes(0:1)", &[4, 4], 1, DimsDiffer { layout: 1, dataset: 2 }),
        ("block@3", &[4], 2, GridSize { grid: 3, units: 2 }),
        ("block@4294967296x4294967296", &[4], 2, GridSize { grid: u64::MAX, units: 2 }),
        ("*,block[2]@2x1", &[4, 4], 2, AxisOutOfRange { dim: 1, axis: 2, axes: 2 }),
        ("block[0,1],block[1]@2x1", &[4, 4], 2, AxisUsedTwice { axis: 1, first: 0, second: 1 }),
        ("block,block@2", &[4, 4], 2, NoAxisLeft { dim: 1, axes: 1 }),
        ("*,cut(0,1,2)", &[4, 4], 2, CutCount { dim: 1, pieces: 3, parts: 2 }),
        ("cut(0,5)", &[4], 2, CutPastEnd { dim: 0, cut: 5, size: 4 }),
        ("block,...,*", &[4], 2, DimsDiffer { layout: 2, dataset: 1 }),
        ("*,block;halo=0,1:5~", &[9, 4], 2, HaloTooWide { dim: 1, width: 5, size: 4 }),
        ("*,*;halo=1073741824~,536870912~", &[1 << 30, 1 << 29], 2, PartTooLarge),
        ("boxes(0:2|2:4)", &[4], 3, BoxUnits { listed: 2, units: 3 }),
        ("boxes(0:2|2:4+1:5)", &[4], 2, BoxOutside { unit: 1, index: 1, dim: 0, hi: 5, size: 4 }),
        ("digits(2x3;unit=0)", &[8], 2, DigitElems { product: 6, elems: 8 }),
        ("digits(4294967296x4294967296)", &[8], 2, DigitElems { product: u64::MAX, elems: 8 }),
        ("digits(2x4;unit=1)", &[8], 2, DigitUnits { product: 4, units: 2 }),
    ] {
        let found = bind(text, shape, units).unwrap_err();
        assert_eq!(found, error, "{text}");
        assert_eq!(found.reason(), snake_case(&found), "{text}");
    }
    let boxes = format!("boxes({})", ["0:1152921504606846976"; 3].join("+"));
    assert_eq!(bind(&boxes, &[1 << 60], 1).unwrap_err(), BoxesTooLarge { unit: 0 });
}

/// The name of the variant, as `Debug` has it: `CutPastEnd { … }` is `cut_past_end`.
fn snake_case(error: &LayoutError) -> String {
    let shown = format!("{error:?}");
    let name = shown.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap();
    let words: String = name
        .chars()
        .flat_map(|c| c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()]))
        .collect();
    words.trim_start_matches('_').to_owned()
}

/// `...` stands for as many dimensions as there are left, none and all of them included, with their halo.
#[test]
fn the_rest_of_the_dimensions() {
    for (short, long, shape) in [
        ("...", "*", &[][..]),
        ("...", "*,*,*", &[2, 3, 4]),
        ("block,...", "block", &[4]),
        ("block,...;order=F", "block,*,*;order=F", &[4, 2, 3]),
        ("...,block;halo=1~,2", "*,*,block;halo=1~,1~,2", &[4, 2, 6]),
        ("block,...,cyclic@2x1", "block,*,*,cyclic@2x1", &[4, 2, 3, 2]),
    ] {
        let (a, b) = (bind(short, shape, 2).unwrap(), bind(long, shape, 2).unwrap());
        for unit in 0..2 {
            assert_eq!(a.local_shape(unit), b.local_shape(unit), "{short}");
            assert_eq!(a.local_strides(unit), b.local_strides(unit), "{short}");
            assert_eq!(a.boxes_with_halo(unit), b.boxes_with_halo(unit), "{short}");
        }
        assert_eq!(a.layout().to_string(), short);
    }
}

#[test]
fn messages_say_what_was_expected() {
    let map = bind("block,*", &[6, 4], 4).unwrap();
    let text = |e: LayoutError| e.to_string();
    assert_eq!(text(map.locate(&[5]).unwrap_err()), "the index has 1 dimension, the array 2");
    assert_eq!(text(map.local_shape(4).unwrap_err()), "there is no unit 4; expected 0 to 3");
    let huge = bind("block,block@4294967296x4294967296", &[4, 4], 2).unwrap_err();
    assert_eq!(text(huge), "the grid has 2^64-1 or more places for 2 units");
}

#[test]
fn questions_that_are_refused() {
    let map = bind("block,*", &[4, 6], 2).unwrap();
    let no_unit = UnitOutOfRange { unit: 2, units: 2 };
    assert_eq!(map.local_shape(2), Err(no_unit.clone()));
    assert_eq!(map.local_strides(2), Err(no_unit.clone()));
    assert_eq!(map.local_len_elems(2), Err(no_unit.clone()));
    assert_eq!(map.local_len_bytes(2), Err(no_unit.clone()));
    assert_eq!(map.boxes(2), Err(no_unit.clone()));
    assert_eq!(map.boxes_with_halo(2), Err(no_unit.clone()));
    assert_eq!(Plan::to_reader(&map, &map, 2).unwrap_err(), no_unit);
    assert_eq!(Plan::from_writer(&map, &map, 2).unwrap_err(), no_unit);
    assert_eq!(map.locate(&[1, 6]), Err(IndexOutOfRange { dim: 1, index: 6, size: 6 }));
    assert_eq!(map.locate(&[1]), Err(IndexDims { index: 1, dataset: 2 }));
    for (text, kind) in
        [("stripe(4)", "stripe"), ("digits(24)", "digits"), ("boxes(0:1,0:1+1:2,0:1)", "boxes")]
    {
        assert_eq!(bind(text, &[4, 6], 1).unwrap().local_strides(0), Err(NoStrides { kind }));
    }
    let huge = bind("cyclic", &[1 << 40], 2).unwrap();
    assert!(matches!(huge.boxes(0), Err(TooMany { .. })));
    assert_eq!(huge.boxes_iter(1).unwrap().nth(1000).unwrap().lo[0], 2001);
}

#[test]
fn pairs_that_do_not_fit() {
    let a = bind("block", &[8], 2).unwrap();
    let b = bind("block", &[9], 2).unwrap();
    let dims = |n: u64| vec![n];
    assert_eq!(Plan::to_reader(&a, &b, 0).unwrap_err(), ShapesDiffer { src: dims(8), dst: dims(9) });
    let stripe: Layout = "stripe(8)".parse().unwrap();
    let f64s = Dataset::new(&[8], ElemType::F64).unwrap();
    let s = stripe.bind(&f64s, 2).unwrap();
    let differ = ElemsDiffer { src: ElemType::F32, dst: ElemType::F64 };
    assert_eq!(Plan::to_reader(&a, &s, 0).unwrap_err(), differ);
    // Without stripes a plan counts elements, which may be converted on the way.
    let converted = "block".parse::<Layout>().unwrap().bind(&f64s, 2).unwrap();
    assert_eq!(Plan::to_reader(&a, &converted, 0).unwrap().bytes(), 16);
    let many = bind("*", &[8], 1 << 20).unwrap();
    assert!(matches!(traffic(&many, &many), Err(TooMany { .. })));
    // Millions of rows that never repeat against the stripes.
    let rows = bind("*,cut(0,5)", &[1 << 32, 7], 2).unwrap();
    let prime = "stripe(1000003)".parse::<Layout>().unwrap().bind(&data(&[1 << 32, 7]), 9973).unwrap();
    assert!(matches!(Plan::to_reader(&prime, &rows, 0), Err(TooMany { .. })));
    // As many stripes as there are bytes, which a column meets all over.
    let columns = bind("*,block", &[1 << 30, 4], 4).unwrap();
    let each = "stripe(4)".parse::<Layout>().unwrap().bind(&data(&[1 << 30, 4]), 1 << 32).unwrap();
    assert!(matches!(Plan::from_writer(&columns, &each, 1), Err(TooMany { .. })));
    // More loops than an operation has, each with too many rounds to be operations of their own.
    let twos = vec!["2"; 34].join("x");
    let unit = (0..17).map(|d| (2 * d + 1).to_string()).collect::<Vec<_>>().join(",");
    let bytes = Dataset::new(&[1 << 56], ElemType::U8).unwrap();
    let alternating = format!("digits(4194304x{twos};unit={unit})").parse::<Layout>().unwrap();
    let alternating = alternating.bind(&bytes, 1 << 17).unwrap();
    let whole = "stripe(34359738368MiB)".parse::<Layout>().unwrap().bind(&bytes, 2).unwrap();
    assert!(matches!(Plan::from_writer(&alternating, &whole, 0), Err(TooMany { .. })));
    let digits = bind("digits(3x134217728;unit=0)", &[3 << 27], 3).unwrap();
    let odd = bind("digits(134217728x3;unit=1)", &[3 << 27], 3).unwrap();
    assert!(matches!(Plan::to_reader(&odd, &digits, 0), Err(TooMany { .. })));
}

#[test]
fn writers_with_holes_and_overlaps() {
    let at = |index: &[u64]| index.to_vec();
    let hole = Hole { element: 10, index: at(&[1, 4]) };
    let map = bind("boxes(0:1,0:6+1:2,0:4|2:4,0:6)", &[4, 6], 2).unwrap();
    assert_eq!(map.check_writer().unwrap_err(), hole);
    assert_eq!(Plan::to_reader(&map, &bind("*,*", &[4, 6], 1).unwrap(), 0).unwrap_err(), hole);
    let map = bind("boxes(0:3,0:6|2:4,1:6|2:4,0:1)", &[4, 6], 3).unwrap();
    assert_eq!(
        map.check_writer().unwrap_err(),
        Overlap { element: 12, index: at(&[2, 0]), first: 0, second: 2 }
    );
    let map = bind("boxes(0:3+1:4)", &[4], 1).unwrap();
    assert_eq!(map.check_writer().unwrap_err(), Overlap { element: 1, index: at(&[1]), first: 0, second: 0 });
    // Equal lists are replicas.
    let map = bind("boxes(0:2|2:4|-|0:2|2:4)", &[4], 5).unwrap();
    assert_eq!((map.check_writer(), map.replicas(), map.is_replicated()), (Ok(()), 2, true));
    assert_eq!(bind("boxes(-|-)", &[0, 4], 2).unwrap().check_writer(), Ok(()));
    assert_eq!(
        bind("boxes(-)", &[], 1).unwrap().check_writer().unwrap_err(),
        Hole { element: 0, index: at(&[]) }
    );
}

#[test]
fn the_first_fault_is_the_naive_one() {
    let (mut good, mut holes, mut overlaps) = (0, 0, 0);
    for seed in 0..4000 {
        let mut rng = Rng(seed);
        let shape: Vec<u64> = (0..1 + rng.below(3)).map(|_| 1 + rng.below(7)).collect();
        let writer = rng.chance(2);
        let spec = random_boxes(&mut rng, &shape, writer);
        let Spec::Boxes { units, .. } = &spec else { unreachable!() };
        let map = spec.text().parse::<Layout>().unwrap().bind(&data(&shape), spec.units()).unwrap();
        // Units with the same non-empty boxes in the same order are one.
        let key = |u: usize| -> Vec<_> {
            units[u].iter().filter(|b| b.iter().all(|(lo, hi)| lo < hi)).cloned().collect()
        };
        let firsts: Vec<usize> = (0..units.len()).filter(|&u| (0..u).all(|v| key(v) != key(u))).collect();
        let mut holders = vec![Vec::new(); shape.iter().product::<u64>() as usize];
        for &u in &firsts {
            for (e, _) in spec.memory(&shape, 1, u as u64) {
                holders[e as usize].push(u as u64);
            }
        }
        let fault = holders.iter().position(|h| h.len() != 1);
        match (map.check_writer(), fault) {
            (Ok(()), None) => good += 1,
            (Err(Hole { element, index }), Some(f)) => {
                assert!(element == f as u64 && holders[f].is_empty(), "{}", spec.text());
                assert_eq!(index.iter().zip(&shape).fold(0, |e, (&i, &n)| e * n + i), element);
                holes += 1;
            }
            (Err(Overlap { element, first, second, .. }), Some(f)) => {
                assert_eq!(element, f as u64, "{} {shape:?}", spec.text());
                let mut at = holders[f].clone();
                for u in [first, second] {
                    let i = at.iter().position(|&h| h == u).expect("a unit that holds the element");
                    at.remove(i);
                }
                overlaps += 1;
            }
            other => panic!("{} {shape:?}: {other:?}", spec.text()),
        }
    }
    assert!(good > 500 && holes > 500 && overlaps > 200, "{good} {holes} {overlaps}");
}

#[test]
fn readers_spread_over_replicas() {
    for (src, s_units, dst, d_units) in [
        ("block[1],*@2x3", 6, "block,*", 12),
        ("*,*", 4, "block,block@4x2", 8),
        ("block[1],*@2x4", 8, "block,block@2x4", 8),
        ("*,block[0]@3x4", 12, "*,*", 8),
    ] {
        let (a, b) = (bind(src, &[24, 24], s_units).unwrap(), bind(dst, &[24, 24], d_units).unwrap());
        let load: Vec<u64> = (0..s_units).map(|s| Plan::from_writer(&a, &b, s).unwrap().bytes()).collect();
        assert!(load.iter().all(|&l| l == load[0] && l > 0), "{src} -> {dst}: {load:?}");
    }
    let (a, b) = (bind("boxes(0:24|0:24|0:24)", &[24], 3).unwrap(), bind("block", &[24], 6).unwrap());
    assert!((0..3).all(|s| Plan::from_writer(&a, &b, s).unwrap().bytes() == 32));
}

#[test]
fn the_cache_is_bounded_and_drops_the_oldest() {
    let (a, b) = (bind("block", &[64], 4).unwrap(), bind("cyclic", &[64], 4).unwrap());
    let cache = PlanCache::new(2);
    let get = |u, d| cache.get(&a, &b, u, d).unwrap();
    let first = get(0, Direction::ToReader);
    get(0, Direction::FromWriter);
    assert!(std::sync::Arc::ptr_eq(&first, &get(0, Direction::ToReader)));
    get(1, Direction::ToReader);
    assert_eq!(cache.len(), 2);
    assert!(std::sync::Arc::ptr_eq(&first, &get(0, Direction::ToReader)));
    assert!(cache.get(&a, &b, 9, Direction::ToReader).is_err());
    let none = PlanCache::new(0);
    none.get(&a, &b, 0, Direction::ToReader).unwrap();
    assert!(none.is_empty());
}

#[test]
fn many_awkward_boxes_are_checked_fast() {
    let n = 20_000u64;
    let columns = (0..n).map(|i| format!("0:{n},{i}:{}", i + 1));
    let rows = (0..n).map(|i| format!("{i}:{},{n}:{}", i + 1, 2 * n));
    let text = format!("boxes({})", columns.chain(rows).collect::<Vec<_>>().join("|"));
    assert_eq!(bind(&text, &[n, 2 * n], 2 * n).unwrap().check_writer(), Ok(()));
    let nested = (0..n / 2).map(|i| format!("{i}:{},{i}:{}", n - i, n - i)).collect::<Vec<_>>().join("+");
    let map = bind(&format!("boxes({nested})"), &[n, n], 1).unwrap();
    assert_eq!(
        map.check_writer().unwrap_err(),
        Overlap { element: n + 1, index: vec![1, 1], first: 0, second: 0 }
    );
}
