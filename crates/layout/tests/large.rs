//! Sizes past 2^32 elements, where nothing can be unrolled: single elements found by `locate` on both sides
//! must be in the plan, the byte counts must add up, and the cost must not grow with the sizes.

mod common;

use common::Rng;
use polyduct_layout::{Dataset, ElemType, Layout, Loop, Mapping, OpTable, Plan, MAX_TABLE_OPS};

fn bind(text: &str, shape: &[u64], elem: ElemType, units: u64) -> Mapping {
    text.parse::<Layout>().unwrap().bind(&Dataset::new(shape, elem).unwrap(), units).unwrap()
}

/// How often a table moves grain `src` to grain `dst`.
fn moves(table: &OpTable, src: u64, dst: u64) -> u64 {
    let mut found = 0;
    for op in table.ops() {
        let mut loops: Vec<Loop> = table.loops(op).to_vec();
        loops.push(Loop { count: op.run, src_step: 1, dst_step: 1 });
        loops.sort_by_key(|l| std::cmp::Reverse(l.dst_step));
        found += search(&loops, src as i128 - op.src as i128, dst as i128 - op.dst as i128);
    }
    found
}

fn search(loops: &[Loop], src: i128, dst: i128) -> u64 {
    let Some((l, rest)) = loops.split_first() else { return u64::from(src == 0 && dst == 0) };
    let inner: i128 = rest.iter().map(|r| (r.count as i128 - 1) * r.dst_step as i128).sum();
    let step = l.dst_step as i128;
    let lowest = (dst - inner + step - 1).div_euclid(step).max(0);
    let highest = dst.div_euclid(step).min(l.count as i128 - 1);
    (lowest..=highest).map(|i| search(rest, src - i * l.src_step as i128, dst - i * step)).sum()
}

fn check(src: &Mapping, dst: &Mapping, seed: u64) {
    let mut rng = Rng(seed);
    let shape = src.dataset().shape().to_vec();
    for _ in 0..40 {
        let index: Vec<u64> = shape
            .iter()
            .map(|&n| if rng.chance(4) { n - 1 - rng.below(n.min(3)) } else { rng.below(n) })
            .collect();
        let from: Vec<_> = src.locate(&index).unwrap().into_iter().filter(|p| !p.halo).collect();
        for to in dst.locate(&index).unwrap() {
            let plan = Plan::to_reader(src, dst, to.unit).unwrap();
            assert_eq!(plan.bytes(), dst.local_len_bytes(to.unit).unwrap(), "{src:?} -> {dst:?}");
            let mut times = 0;
            for t in plan.transfers() {
                for p in from.iter().filter(|p| p.unit == t.src_unit()) {
                    let by = t.elem_len();
                    let (a, b) = (p.offset_bytes() / by, to.offset_bytes() / by);
                    times += t.tables().map(|table| moves(&table, a, b)).sum::<u64>();
                }
            }
            assert_eq!(times, 1, "{src:?} -> {dst:?} at {index:?}");
        }
    }
}

#[test]
fn regular_layouts_of_a_trillion_elements() {
    let shape = [10_000, 10_000, 10_000];
    let maps: Vec<Mapping> = [
        ("cyclic(3),cyclic(2),cyclic(2)@16x8x8", 1024),
        ("cyclic(2),cyclic(3),cyclic(3)@12x8x8", 768),
        ("block,balanced,*@7x5;order=F;halo=1,0:2,3", 35),
        ("block,block,*@3x4;halo=1~,2:1~,1~", 12),
        ("cyclic,block,cyclic(999)@3x2x7", 42),
        ("cut(0,7,5000),*,cyclic(16)@3x5;order=1,2,0", 15),
    ]
    .into_iter()
    .map(|(t, u)| bind(t, &shape, ElemType::F32, u))
    .collect();
    for (i, a) in maps.iter().enumerate() {
        for (j, b) in maps.iter().enumerate() {
            check(a, b, (i * 10 + j) as u64);
        }
    }
}

#[test]
fn stripes_and_digits_past_two_to_the_32() {
    let shape = [1 << 20, 3, 1 << 14];
    let stripe = bind("stripe(64KiB)", &shape, ElemType::F64, 6);
    for (text, units) in [
        ("block,*,*", 5),
        ("*,*,block;halo=0,0,2", 4),
        ("cyclic(3),*,*;order=F", 4),
        ("block,cyclic,*@4x2", 8),
    ] {
        let map = bind(text, &shape, ElemType::F64, units);
        check(&stripe, &map, 1);
        check(&map, &stripe, 2);
    }
    check(&stripe, &bind("stripe(100000)", &shape, ElemType::F64, 7), 3);
    let bits = vec!["2"; 40].join("x");
    let reversed: Vec<String> = (0..36).rev().map(|d| d.to_string()).collect();
    let line = [1 << 20, 1 << 20];
    let digits = bind(
        &format!("digits({bits};unit=39,38,37,36;offset={})", reversed.join(",")),
        &line,
        ElemType::U8,
        16,
    );
    let blocks = bind("block,cyclic(4)@4x2", &line, ElemType::U8, 8);
    // Reversing 36 bits takes more loops than one operation has; the rest become operations, made lazily.
    let plan = Plan::from_writer(&blocks, &digits, 3).unwrap();
    let t = &plan.transfers()[0];
    assert!(t.ops() > MAX_TABLE_OPS as u64 && t.table().is_none());
    let first = t.tables().next().unwrap();
    assert_eq!(first.ops().len(), MAX_TABLE_OPS);
    assert_eq!(plan.bytes(), 1 << 37);
    let mixed = bind("digits(1024x1048576x1024;unit=0;offset=2,1)", &line, ElemType::U8, 1024);
    check(&blocks, &mixed, 4);
    check(&mixed, &blocks, 5);
}

/// Windows over a file that are dealt once, as stores and files have them: what a window shares with a part
/// is some operations for each dimension, however many runs that is.
#[test]
fn stripes_that_are_dealt_once() {
    let shape = [1 << 20, 3, 1 << 14];
    let bytes = 3u64 << 37;
    for window in [1u64 << 30, 999_999_937, 5 << 35] {
        let stripe = bind(&format!("stripe({window})"), &shape, ElemType::F64, bytes.div_ceil(window));
        for (text, units) in [
            ("block,*,block@2x2", 4),
            ("*,block,balanced@2x3;halo=0,0,2", 6),
            ("*,block,balanced@2x3;halo=1~,0,2~", 6),
            ("cyclic(3),*,cyclic(100)@2x2;order=F", 4),
            ("*,*,*", 1),
        ] {
            let map = bind(text, &shape, ElemType::F64, units);
            let plan = Plan::to_reader(&stripe, &map, units - 1).unwrap();
            let most = plan.transfers().iter().map(|t| t.ops()).max().unwrap();
            assert!(most <= 40, "{text}: {most} operations of a window");
            check(&stripe, &map, 1);
            check(&map, &stripe, 2);
        }
    }
}

#[test]
fn big_tables_come_in_pieces() {
    // 25 families in each of three dimensions.
    let shape = [1200, 1200, 1200];
    let a = bind("cyclic(12),cyclic(12),cyclic(12)@1x1x1", &shape, ElemType::U8, 1);
    let b = bind("cut(0),cut(0),cut(0)", &shape, ElemType::U8, 1);
    assert_eq!(Plan::to_reader(&a, &b, 0).unwrap().transfers()[0].ops(), 1);
    let a = bind("cyclic(25),cyclic(25),cyclic(25)@2x2x2", &shape, ElemType::U8, 8);
    let b = bind("cyclic(24),cyclic(24),cyclic(24)@2x2x2", &shape, ElemType::U8, 8);
    let plan = Plan::to_reader(&a, &b, 5).unwrap();
    assert_eq!(plan.bytes(), b.local_len_bytes(5).unwrap());
    let t = &plan.transfers()[0];
    assert!(t.ops() > MAX_TABLE_OPS as u64 && t.table().is_none() && t.table_bytes() < 20_000);
    let tables: Vec<OpTable> = t.tables().map(|t| t.into_owned()).collect();
    assert!(tables.iter().all(|t| t.ops().len() <= MAX_TABLE_OPS));
    assert_eq!(tables.iter().map(OpTable::elems).sum::<u64>(), t.len_elems());
    check(&a, &b, 6);
}

#[test]
fn plans_do_not_grow_with_extents() {
    let sizes = |n: u64| {
        let shape = [n, n, n];
        let a = bind("cyclic(3),cyclic(2),cyclic(2)@16x8x8", &shape, ElemType::U8, 1024);
        let b = bind("cyclic(2),cyclic(3),cyclic(3)@12x8x8", &shape, ElemType::U8, 768);
        let plan = Plan::to_reader(&a, &b, 100).unwrap();
        for t in plan.transfers() {
            assert!(t.table_bytes() <= 10_000, "{} bytes for a partner", t.table_bytes());
        }
        plan.transfers().len()
    };
    assert_eq!(sizes(1_000), sizes(100_000));
}
