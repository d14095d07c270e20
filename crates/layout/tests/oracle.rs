//! Mappings and plans against the naive oracle, for every kind of layout and random pairs of them.

mod common;

use std::collections::BTreeMap;

use common::{random_digits, random_regular, random_shape, random_spec, Rng, Spec};
use polyduct_layout::{
    run_sizes, traffic, Dataset, Dims, IndexBox, Layout, LayoutError, Mapping, Plan, Transfer, Window,
    MAX_TABLE_OPS,
};

const ELEMS: [&str; 5] = ["u8", "i16", "bytes(3)", "f32", "f64"];

fn bind(spec: &Spec, data: &Dataset) -> Mapping {
    let layout: Layout = spec.text().parse().unwrap_or_else(|e| panic!("{}: {e}", spec.text()));
    layout.bind(data, spec.units()).unwrap_or_else(|e| panic!("{} over {data:?}: {e}", spec.text()))
}

/// Byte of the source part → byte of the destination part, in the order of the tables.
fn byte_pairs(t: &Transfer) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    let mut ops = 0;
    for table in t.tables() {
        let e = table.elem_len();
        assert_eq!(e, t.elem_len());
        assert!(table.ops().len() <= MAX_TABLE_OPS);
        assert!(table.ops().windows(2).all(|w| w[0].dst <= w[1].dst), "destination order");
        ops += table.ops().len() as u64;
        table.for_each_run(|s, d, n| all.extend((0..n * e).map(|b| (s * e + b, d * e + b))));
    }
    assert_eq!(ops, t.ops());
    assert_eq!(all.len() as u64, t.bytes());
    all
}

fn check_mapping(spec: &Spec, shape: &[u64], map: &Mapping) {
    let e = map.dataset().elem().len_bytes();
    let elems = map.dataset().len_elems();
    let text = spec.text();
    let mut places: BTreeMap<u64, Vec<(u64, u64, bool)>> = BTreeMap::new();
    for u in 0..map.units() {
        let memory = spec.memory(shape, e, u);
        assert_eq!(map.local_len_bytes(u).unwrap(), memory.len() as u64, "{text} {shape:?} unit {u}");
        let local: u64 = map.local_shape(u).unwrap().iter().product();
        let stripes = map.layout().kind_name() == "stripe";
        assert_eq!(local * if stripes { 1 } else { e }, memory.len() as u64);
        assert_eq!(map.local_len_elems(u).unwrap(), (memory.len() as u64).div_ceil(e));
        for (at, &(byte, halo)) in memory.iter().enumerate() {
            places.entry(byte).or_default().push((u, at as u64, halo));
        }
        // Boxes: every owned element once.
        let mut owned: Vec<u64> = memory.iter().filter(|b| !b.1 && b.0 % e == 0).map(|b| b.0 / e).collect();
        let mut listed = Vec::new();
        for b in map.boxes(u).unwrap() {
            listed.extend(box_elements(&b, shape));
        }
        owned.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, owned, "boxes of {text} {shape:?} unit {u}");
        let mut all: Vec<u64> = memory.iter().filter(|b| b.0 % e == 0).map(|b| b.0 / e).collect();
        let mut with_halo: Vec<u64> =
            map.boxes_with_halo(u).unwrap().iter().flat_map(|b| box_elements(b, shape)).collect();
        all.sort_unstable();
        with_halo.sort_unstable();
        assert_eq!(with_halo, all, "boxes with halo of {text} {shape:?} unit {u}");
        // Strides: the place of the first element of each owned box.
        if let Ok(strides) = map.local_strides(u) {
            let held = map.local_shape(u).unwrap();
            let last: u64 = (0..shape.len()).map(|k| held[k].saturating_sub(1) * strides[k]).sum();
            assert!(memory.is_empty() || last * e + e == memory.len() as u64);
        }
    }
    for x in 0..elems {
        let mut index = vec![0; shape.len()];
        let mut rest = x;
        for k in (0..shape.len()).rev() {
            index[k] = rest % shape[k];
            rest /= shape[k];
        }
        let mut found: BTreeMap<u64, Vec<(u64, u64, bool)>> = BTreeMap::new();
        for p in map.locate(&index).unwrap() {
            let (from, to) = p.bytes_of_elem();
            assert_eq!(p.offset_elems, p.offset_bytes() / e);
            for b in from..to {
                found.entry(x * e + u64::from(b)).or_default().push((
                    p.unit,
                    p.offset_bytes() + u64::from(b - from),
                    p.halo,
                ));
            }
        }
        for b in x * e..x * e + e {
            let want = places.get(&b).cloned().unwrap_or_default();
            let mut got = found.remove(&b).unwrap_or_default();
            got.sort_unstable();
            assert_eq!(got, want, "{text} {shape:?} byte {b}");
        }
    }
}

fn box_elements(b: &polyduct_layout::IndexBox, shape: &[u64]) -> Vec<u64> {
    let mut all = vec![0u64];
    for (k, &n) in shape.iter().enumerate() {
        all = all.iter().flat_map(|&e| (b.lo[k]..b.hi[k]).map(move |i| e * n + i)).collect();
    }
    all
}

fn check_pair(src: &Spec, dst: &Spec, shape: &[u64], elem: &str) {
    let data = Dataset::new(shape, elem.parse().unwrap()).unwrap();
    let what = format!("{shape:?} {elem}: {} -> {}", src.text(), dst.text());
    let (a, b) = (bind(src, &data), bind(dst, &data));
    let matrix = traffic(&a, &b).unwrap();
    check_plans(&what, (src, &a), (dst, &b), &Some, &|side| {
        let plan = match side {
            Side::Reader(d) => Plan::to_reader(&a, &b, d),
            Side::Writer(s) => Plan::from_writer(&a, &b, s),
        };
        let plan = plan.unwrap_or_else(|e| panic!("{what}: {e}"));
        for t in plan.transfers() {
            assert_eq!(matrix.bytes(t.src_unit(), t.dst_unit()), t.bytes());
        }
        assert_eq!(run_sizes(&plan).unwrap().bytes(), plan.bytes());
        plan
    });
}

/// The unit for which a plan is made.
enum Side {
    Reader(u64),
    Writer(u64),
}

/// Whether the plans of all units bring each byte of the readers once, from where it is; `comes` says which byte
/// of the source's file a byte of the destination's is, if it comes at all.
fn check_plans(
    what: &str,
    (src, a): (&Spec, &Mapping),
    (dst, b): (&Spec, &Mapping),
    comes: &dyn Fn(u64) -> Option<u64>,
    plan_of: &dyn Fn(Side) -> Plan,
) {
    a.check_writer().unwrap_or_else(|e| panic!("{what}: {e}"));
    let memory = |spec: &Spec, map: &Mapping, unit| {
        spec.memory(map.dataset().shape(), map.dataset().elem().len_bytes(), unit)
    };
    let memories: Vec<_> = (0..a.units()).map(|u| memory(src, a, u)).collect();
    let mut seen: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for d in 0..b.units() {
        let want: Vec<Option<u64>> = memory(dst, b, d).iter().map(|&(byte, _)| comes(byte)).collect();
        let mut got = vec![None; want.len()];
        let plan = plan_of(Side::Reader(d));
        assert_eq!(plan.bytes(), want.iter().flatten().count() as u64, "{what}");
        for t in plan.transfers() {
            assert_eq!(t.dst_unit(), d);
            let mut pairs = byte_pairs(t);
            assert!(!pairs.is_empty(), "{what}: an empty transfer");
            for &(from, to) in &pairs {
                let (byte, halo) = memories[t.src_unit() as usize][from as usize];
                assert!(!halo, "{what}: sent from a halo");
                let before = got[to as usize].replace(byte);
                assert_eq!(before, None, "{what}: unit {d} byte {to} comes twice");
            }
            pairs.sort_unstable();
            assert!(seen.insert((t.src_unit(), d), pairs).is_none(), "{what}: two transfers for one pair");
        }
        assert_eq!(got, want, "{what}: unit {d}");
    }
    for s in 0..a.units() {
        for t in plan_of(Side::Writer(s)).transfers() {
            assert_eq!(t.src_unit(), s);
            let mut pairs = byte_pairs(t);
            pairs.sort_unstable();
            let same = seen.remove(&(s, t.dst_unit()));
            assert_eq!(same, Some(pairs), "{what}: writer {s} and reader {} disagree", t.dst_unit());
        }
    }
    assert!(seen.is_empty(), "{what}: writers do not know of {:?}", seen.keys());
}

/// Boxes of the same sizes in two shapes, of random dimensions of which those of size 1 may be on one side alone.
fn random_window(rng: &mut Rng) -> (Vec<u64>, Vec<u64>, Window) {
    let sizes: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(7)).collect();
    let mut side = || {
        let (mut shape, mut lo, mut hi) = (Vec::new(), Vec::new(), Vec::new());
        let mut dim = |rng: &mut Rng, size: u64| {
            let (before, after) = (rng.below(4), rng.below(4));
            shape.push(before + size + after);
            lo.push(before);
            hi.push(before + size);
        };
        for &size in &sizes {
            if rng.chance(4) {
                dim(rng, 1);
            }
            // A dimension of size 1 may be missing.
            if size != 1 || rng.chance(2) {
                dim(rng, size);
            }
        }
        let dims = |numbers: &[u64]| Dims::from_slice(numbers).unwrap();
        (shape, IndexBox { lo: dims(&lo), hi: dims(&hi) })
    };
    let ((a, src), (b, dst)) = (side(), side());
    (a, b, Window::new(src, dst).unwrap())
}

#[test]
fn boxes_of_one_array_become_boxes_of_another() {
    let mut compared = 0;
    for seed in 0..4000 {
        let mut rng = Rng(seed ^ 0x3c3c_0000);
        let (from, to, window) = random_window(&mut rng);
        let (src, dst) = (random_spec(&mut rng, &from, true), random_spec(&mut rng, &to, false));
        let elem = rng.pick(&ELEMS);
        let data = |shape: &[u64]| Dataset::new(shape, elem.parse().unwrap()).unwrap();
        let (a, b) = (bind(&src, &data(&from)), bind(&dst, &data(&to)));
        let what = format!("{elem}: {} {from:?} -> {} {to:?}, {window:?}", src.text(), dst.text());
        let make = |side: &Side| match *side {
            Side::Reader(d) => Plan::window_to_reader(&a, &b, d, &window),
            Side::Writer(s) => Plan::window_from_writer(&a, &b, s, &window),
        };
        let whole = |spec: &Spec| matches!(spec, Spec::Digits { .. } | Spec::Stripe { .. });
        if whole(&src) || whole(&dst) {
            assert!(matches!(make(&Side::Reader(0)), Err(LayoutError::NoWindow { .. })), "{what}");
            continue;
        }
        let e = data(&to).elem().len_bytes();
        let pairs: BTreeMap<u64, u64> = box_elements(window.dst(), &to)
            .into_iter()
            .zip(box_elements(window.src(), &from))
            .filter(|_| !window.is_empty())
            .collect();
        let comes = |byte: u64| pairs.get(&(byte / e)).map(|elem| elem * e + byte % e);
        check_plans(&what, (&src, &a), (&dst, &b), &comes, &|side| {
            make(&side).unwrap_or_else(|e| panic!("{what}: {e}"))
        });
        compared += 1;
    }
    assert!(compared > 1500, "{compared}");
}

#[test]
fn mappings_are_what_the_design_says() {
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let shape = random_shape(&mut rng, 6, 200);
        let spec = random_spec(&mut rng, &shape, seed % 2 == 0);
        let elem = rng.pick(&ELEMS);
        let data = Dataset::new(&shape, elem.parse().unwrap()).unwrap();
        let map = bind(&spec, &data);
        check_mapping(&spec, &shape, &map);
        let printed: Layout = map.layout().to_string().parse().unwrap();
        assert_eq!(&printed, map.layout(), "{}", spec.text());
    }
}

#[test]
fn every_byte_arrives_once_from_where_it_is() {
    for seed in 0..4000 {
        let mut rng = Rng(seed ^ 0xa5a5_0000);
        let shape = random_shape(&mut rng, 6, 160);
        let (src, dst) = (random_spec(&mut rng, &shape, true), random_spec(&mut rng, &shape, false));
        check_pair(&src, &dst, &shape, rng.pick(&ELEMS));
    }
}

#[test]
fn regular_pairs_with_long_periods() {
    for seed in 0..1500 {
        let mut rng = Rng(seed ^ 0x77_0000);
        let shape: Vec<u64> = (0..1 + rng.below(2)).map(|_| 20 + rng.below(60)).collect();
        let (src, dst) = (random_regular(&mut rng, &shape), random_regular(&mut rng, &shape));
        check_pair(&src, &dst, &shape, "u8");
    }
}

#[test]
fn digits_against_everything() {
    for seed in 0..1500 {
        let mut rng = Rng(seed ^ 0x1234_0000);
        let shape: Vec<u64> = (0..1 + rng.below(3)).map(|_| rng.pick(&[2, 4, 6, 8, 9, 1])).collect();
        let digits = random_digits(&mut rng, shape.iter().product());
        let other = if seed % 3 == 0 {
            random_digits(&mut rng, shape.iter().product())
        } else {
            random_spec(&mut rng, &shape, seed % 2 == 0)
        };
        let (src, dst) = if seed % 2 == 0 { (&other, &digits) } else { (&digits, &other) };
        check_pair(src, dst, &shape, rng.pick(&ELEMS));
    }
}
