//! Several arrays in each step: every element of every array arrives, whatever the layouts and the way.

mod common;

use common::at::At;
use common::net::{Across, Near};
use common::{local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_os::OsError;
use polyduct_pipe::wire::{Array as WireArray, Takes, Wish, VALUES};
use polyduct_pipe::work::Work;
use polyduct_pipe::{Expect, Given, Mismatch, Options, PipeError, Policy, Reader, Refusal, Rule, Writer};
use polyduct_port::{Array, ArrayPart, BundleError, Changes, PortError, Scope};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;

/// An array of a random bundle: of which shape, element and layouts.
#[derive(Clone, Debug)]
struct Spec {
    shape: usize,
    elem: usize,
    written: usize,
    read: usize,
    /// Whether readers take it.
    taken: bool,
    /// Whether its size changes, and how.
    open: u32,
}

const SHAPES: [&[u64]; 6] = [&[1], &[7], &[64], &[5, 9], &[40, 30], &[600, 70]];
const ELEMS: [ElemType; 4] = [ElemType::U8, ElemType::U16, ElemType::F32, ElemType::C128];
const LAYOUTS: [[&str; 5]; 2] = [
    ["block", "balanced", "cyclic(2)", "*", "stripe(64)"],
    ["block,*", "*,block", "*,cyclic(3);order=F", "*,*", "balanced,*"],
];

impl Spec {
    fn dataset(&self) -> Dataset {
        Dataset::new(SHAPES[self.shape], ELEMS[self.elem]).unwrap()
    }

    fn dim(&self) -> Option<usize> {
        match self.open {
            1 => Some(0),
            2 => Some(SHAPES[self.shape].len() - 1),
            _ => None,
        }
    }

    fn open(&self) -> Option<Changes> {
        match self.dim() {
            Some(dim) => Some(Changes::Dim(dim as u32)),
            None if self.open == 4 => Some(Changes::Never),
            // Bytes of stripes have no shape that could change.
            None => {
                (self.open == 3 && !self.layout(self.written).starts_with("stripe")).then_some(Changes::Whole)
            }
        }
    }

    /// How a reader has it.
    fn reads(&self) -> &'static str {
        let changes = self.open().is_some_and(|open| open != Changes::Never);
        let (read, open) = (self.layout(self.read), changes);
        match self.dim() {
            Some(_) if self.read == 0 => "partner",
            _ if open && read.starts_with("stripe") => "block",
            _ => read,
        }
    }

    fn layout(&self, at: usize) -> &'static str {
        LAYOUTS[SHAPES[self.shape].len() - 1][at]
    }
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let taken = prop::bool::weighted(0.8);
    let open = prop_oneof![6 => Just(0u32), 1 => Just(1), 1 => Just(2), 2 => Just(3), 2 => Just(4)];
    let spec = (0..SHAPES.len(), 0..ELEMS.len(), 0..5usize, 0..5usize, taken, open);
    let spec = spec.prop_map(|(shape, elem, written, read, taken, open)| Spec {
        shape,
        elem,
        written,
        read,
        taken,
        open,
    });
    prop::collection::vec(spec, 1..12)
}

fn name_of(array: usize) -> String {
    format!("group{}/größe {array}", array % 3)
}

fn arrays(specs: &[Spec]) -> Vec<Array> {
    let array = |(n, spec): (usize, &Spec)| Array {
        name: name_of(n),
        dataset: spec.dataset(),
        layout: if spec.dim().is_some() { String::new() } else { spec.layout(spec.written).into() },
        open: spec.open(),
    };
    specs.iter().enumerate().map(array).collect()
}

/// One rule for each array that is taken; the first array always is.
fn rules(specs: &[Spec]) -> Vec<Rule> {
    let taken = specs.iter().enumerate().filter(|(n, spec)| *n == 0 || spec.taken);
    let rule = |(n, spec): (usize, &Spec)| Rule {
        pattern: name_of(n),
        layout: spec.reads().into(),
        ..Rule::default()
    };
    // Their order does not count.
    taken.map(rule).rev().collect()
}

/// How large a unit's piece of an open dimension is in a step.
fn piece(most: u64, unit: u64, step: u64) -> u64 {
    (unit * 5 + step * 3 + most) % (most + 1)
}

/// The shape of an array in a step that changes as a whole.
fn whole(most: &[u64], step: u64) -> Vec<u64> {
    most.iter().map(|n| (n + step * 2) % (n + 1)).collect()
}

/// What a part of an array holds in a step: bytes that name the array, the element and the step. Of an open
/// dimension a writer's part begins at index `first` of that.
fn expected(part: &ArrayPart, unit: u64, step: u64, first: u64) -> Vec<u8> {
    let data = *part.mapping.dataset();
    let (salt, len) = (part.name.bytes().map(u64::from).sum::<u64>(), data.elem().len_bytes());
    let dim = match part.open {
        Some(Changes::Dim(dim)) => dim as usize,
        _ => 0,
    };
    let step = if part.open == Some(Changes::Never) { 0 } else { step };
    let element = |linear: u64| {
        // A number that does not depend on how large the array is as a whole.
        let (mut rest, mut index) = (linear, 0);
        for (at, n) in data.shape().iter().enumerate().rev() {
            index = index * 1009 + rest % n + if at == dim { first } else { 0 };
            rest /= n;
        }
        let value = (index * 1_000_003 + salt * 77 + step * 13).to_le_bytes();
        (0..len as usize).map(move |at| value[at % 8].wrapping_add(at as u8))
    };
    local_indices(&part.mapping, unit).into_iter().flat_map(element).collect()
}

/// Has the arrays as large as they are in a step. Gives where this unit's pieces of them begin.
fn size(w: &mut Writer, specs: &[Spec], unit: u64, step: u64) -> Vec<u64> {
    let begin = |(n, spec): (usize, &Spec)| {
        let mut shape = SHAPES[spec.shape].to_vec();
        let first = match (spec.open(), spec.dim()) {
            (Some(Changes::Whole), _) => {
                shape = whole(&shape, step);
                0
            }
            (Some(Changes::Dim(_)), Some(dim)) => {
                let most = std::mem::replace(&mut shape[dim], piece(SHAPES[spec.shape][dim], unit, step));
                (0..unit).map(|before| piece(most, before, step)).sum()
            }
            _ => return 0,
        };
        w.bring(n, &shape).unwrap();
        first
    };
    specs.iter().enumerate().map(begin).collect()
}

fn values(step: u64) -> Vec<u8> {
    vec![step as u8; (step * 700) as usize]
}

/// Writes steps in the two ways in turn.
fn write(w: &mut Writer, specs: &[Spec], unit: u64, steps: u64) {
    // The first step in either way.
    let first = specs.len() as u64 % 2;
    for step in 0..steps {
        let firsts = size(w, specs, unit, step);
        let firsts = firsts.into_iter().chain(std::iter::repeat(0));
        let parts: Vec<Vec<u8>> =
            w.arrays().iter().zip(firsts).map(|(part, first)| expected(part, unit, step, first)).collect();
        // Those of unit 0 count.
        w.set_values(&if unit == 0 { values(step) } else { vec![9; 50] }).unwrap();
        if step % 2 == first {
            // What is constant is given once.
            let is_left_out = |at: usize| step > 0 && w.arrays()[at].open == Some(Changes::Never);
            let given = |(at, part)| if is_left_out(at) { &[][..] } else { Vec::as_slice(part) };
            let parts: Vec<&[u8]> = parts.iter().enumerate().map(given).collect();
            w.write_arrays(&parts).unwrap();
        } else {
            let arrays = w.arrays().to_vec();
            let mut slot = w.step().unwrap();
            for (array, part) in arrays.iter().zip(&parts) {
                if step == 0 || array.open != Some(Changes::Never) {
                    slot[array.at.clone()].copy_from_slice(part);
                }
            }
            slot.publish().unwrap();
        }
    }
}

/// Reads steps in the three ways in turn. Returns how many there were.
fn read(r: &mut Reader, unit: u64) -> u64 {
    let mut read = 0;
    loop {
        let Some(next) = r.peek().unwrap() else { return read };
        let arrays = r.arrays().to_vec();
        let (got, step) = match read % 3 {
            0 => {
                let mut parts: Vec<Vec<u8>> = arrays.iter().map(|part| vec![0xa5; part.at.len()]).collect();
                let mut all: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
                let Some(step) = r.read_arrays(&mut all).unwrap() else { return read };
                (parts, step)
            }
            way => {
                let (all, step) = if way == 1 {
                    let mut all = vec![0xa5; r.local_len_bytes()];
                    let Some(step) = r.read(&mut all).unwrap() else { return read };
                    (all, step)
                } else {
                    let Some(step) = r.next_step().unwrap() else { return read };
                    (step.to_vec(), step.number())
                };
                (arrays.iter().map(|part| all[part.at.clone()].to_vec()).collect(), step)
            }
        };
        assert_eq!(step, next);
        for (part, got) in arrays.iter().zip(got) {
            assert!(got == expected(part, unit, step, 0), "{}, unit {unit}, step {step}", part.name);
        }
        assert!(r.values() == values(step), "{} values in step {step}", r.values().len());
        read += 1;
    }
}

fn check<A: At>(at: A, specs: &[Spec], (writers, readers): (u32, u32), policy: Policy) {
    let (given, rules, steps) = (Given::Bundle(arrays(specs)), rules(specs), 5);
    let (given, rules, at) = (&given, &rules, &at);
    std::thread::scope(|s| {
        for unit in 0..writers {
            s.spawn(move || {
                let options = Options { policy, ..writer_options(unit, writers) };
                let mut w = at.writer(given, "", &options).unwrap();
                assert_eq!(w.arrays().len(), specs.len());
                write(&mut w, specs, unit.into(), steps);
                w.close().unwrap();
            });
        }
        for unit in 0..readers {
            s.spawn(move || {
                let mut r = at.reader_of(rules, &reader_options("r", unit, readers)).unwrap();
                let names: Vec<String> = r.arrays().iter().map(|part| part.name.clone()).collect();
                let taken: Vec<String> = rules.iter().rev().map(|rule| rule.pattern.clone()).collect();
                assert_eq!(names, taken, "in the writers' order");
                let read = read(&mut r, unit.into());
                assert!(if policy == Policy::Block { read == steps } else { read > 0 });
                r.close().unwrap();
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn every_element_of_every_array_arrives(
        specs in specs(),
        units in (1u32..4, 1u32..4),
        way in 0u32..5,
        lossy in prop::bool::weighted(0.2),
    ) {
        let policy = if lossy { Policy::Latest } else { Policy::Block };
        match way {
            0 | 1 => check(<String as At>::new(), &specs, units, policy),
            2 => check(Across::trusting(true), &specs, units, policy),
            3 => check(Across { near: Near::All, ..Across::trusting(false) }, &specs, units, policy),
            _ => check(Across { near: Near::Even, ..Across::trusting(true) }, &specs, units, policy),
        }
    }
}

fn named(name: &str, shape: &[u64], elem: ElemType) -> Array {
    Array {
        name: name.into(),
        dataset: Dataset::new(shape, elem).unwrap(),
        layout: "block".into(),
        open: None,
    }
}

fn rule(pattern: &str, layout: &str) -> Rule {
    Rule { pattern: pattern.into(), layout: layout.into(), ..Rule::default() }
}

/// A writer of one unit that stays for as long as readers come in vain, and ends with the first that reads.
fn against<A: At>(at: &A, arrays: Vec<Array>, readers: impl FnOnce(&A)) {
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = at.writer(&Given::Bundle(arrays), "", &writer_options(0, 1)).unwrap();
            write(&mut w, &[], 0, 1);
            w.close().unwrap();
        });
        readers(at);
    });
}

fn readers_are_told_what_does_not_fit<A: At>(at: &A) {
    let arrays = vec![
        named("layer/weight", &[4], ElemType::F32),
        named("layer/bias", &[4], ElemType::F32),
        named("ids", &[4], ElemType::I64),
    ];
    against(at, arrays, |at| {
        let options = || reader_options("r", 0, 1);
        let terms = |rules: &[Rule]| match at.reader_of(rules, &options()) {
            Err(PipeError::Refused { reason: Refusal::Terms(why), .. }) => why.to_string(),
            other => panic!("{:?}", other.err()),
        };
        // All names at once, each with the nearest.
        let told = terms(&[rule("layer/wieght", "*"), rule("ids", "*"), rule("head/*", "*")]);
        assert!(told.contains(r#"3 arrays is called "layer/wieght" (near: "layer/weight""#), "{told}");
        assert!(told.ends_with(r#"; "head/*""#), "{told}");
        let told = terms(&[rule("ids", "block,block")]);
        assert!(told.contains(r#"array "ids": the layout has"#), "{told}");
        let expect = Expect { shape: Some(vec![5]), ..Expect::default() };
        let told = terms(&[Rule { expect, ..rule("ids", "*") }]);
        assert_eq!(told, r#"the reader expects the shape of "ids" [5]; the writer gives [4]"#);
        let expect = Expect { elem: Some(ElemType::F32), convert: true, ..Expect::default() };
        assert_eq!(
            terms(&[Rule { expect, ..rule("ids", "*") }]),
            "the reader wants i64 converted to f32; there are f32↔bf16, f32↔f16 and f64↔f32"
        );
        match at.reader("*", &Expect::default(), &options()) {
            Err(PipeError::Refused { reason: Refusal::Terms(Mismatch::Arrays { error }), .. }) => {
                assert!(error.starts_with("the writer gives 3 arrays (\"layer/weight\", "), "{error}")
            }
            other => panic!("{:?}", other.err()),
        }
        // Rules that cannot be never reach the writer.
        for (rules, name) in [(vec![], None), (vec![rule("a", "blok")], Some("a"))] {
            match at.reader_of(&rules, &options()) {
                Err(PipeError::Port(PortError::Bundle { source, .. })) => match *source {
                    BundleError::Empty => assert_eq!(name, None),
                    BundleError::Layout { name: of, .. } => assert_eq!(Some(&of[..]), name),
                    other => panic!("{other}"),
                },
                other => panic!("{:?}", other.err()),
            }
        }
        // A pattern for the types that convert, and a name.
        let expect = Expect { elem: Some(ElemType::Bf16), convert: true, ..Expect::default() };
        let rules = [Rule { expect, ..rule("layer/*", "*") }, rule("ids", "*")];
        let mut r = at.reader_of(&rules, &options()).unwrap();
        let elems: Vec<ElemType> = r.arrays().iter().map(|part| part.mapping.dataset().elem()).collect();
        assert_eq!(elems, [ElemType::Bf16, ElemType::Bf16, ElemType::I64]);
        let lens: Vec<usize> = r.arrays().iter().map(|part| part.at.len()).collect();
        assert_eq!(lens, [8, 8, 32]);
        let wrong = r.read_arrays(&mut [&mut [0; 8], &mut [0; 9], &mut [0; 32]]).unwrap_err();
        assert!(
            wrong.to_string().contains(r#"the array "layer/bias" has 9 bytes; unit 0's part has 8"#),
            "{wrong}"
        );
        let few = r.read_arrays(&mut [&mut [0; 8]]).unwrap_err();
        assert!(few.to_string().contains("arrays is 1; expected one for each of the 3 arrays"), "{few}");
        let mut parts = [vec![1; 8], vec![1; 8], vec![1; 32]];
        let [weight, bias, ids] = &mut parts;
        assert_eq!(r.read_arrays(&mut [weight, bias, ids]).unwrap(), Some(0));
        // The upper half of each element, rounded.
        let mapping = named("layer/weight", &[4], ElemType::F32).mapping();
        let part = ArrayPart { name: "layer/weight".into(), mapping, at: 0..16, open: None };
        for (got, full) in weight.chunks(2).zip(expected(&part, 0, 0, 0).chunks(4)) {
            let full = f32::from_le_bytes(full.try_into().unwrap());
            let got = f32::from_bits(u32::from(u16::from_le_bytes(got.try_into().unwrap())) << 16);
            assert!((got - full).abs() <= full.abs() / 128.0, "{got} {full}");
        }
    });
}

trait Bound {
    fn mapping(&self) -> polyduct_layout::Mapping;
}

impl Bound for Array {
    fn mapping(&self) -> polyduct_layout::Mapping {
        self.layout.parse::<polyduct_layout::Layout>().unwrap().bind(&self.dataset, 1).unwrap()
    }
}

#[test]
fn readers_are_told_what_does_not_fit_on_one_host_and_across() {
    readers_are_told_what_does_not_fit(&<String as At>::new());
    readers_are_told_what_does_not_fit(&Across::trusting(true));
}

#[test]
fn a_bundle_that_is_none_is_refused_before_anything_is_done() {
    let open = |arrays: Vec<Array>| match Writer::open(
        "no_bundle",
        &Given::Bundle(arrays),
        "",
        &writer_options(0, 1),
    ) {
        Err(PipeError::Port(PortError::Bundle { source, .. })) => *source,
        other => panic!("{:?}", other.err()),
    };
    let u = || named("u", &[4], ElemType::F32);
    assert_eq!(open(vec![]), BundleError::Empty);
    assert_eq!(open(vec![u(), u()]), BundleError::Twice { name: "u".into() });
    for bad in ["", "../u", "a//b", "u*"] {
        assert!(matches!(open(vec![named(bad, &[4], ElemType::F32)]), BundleError::Name { .. }), "{bad}");
    }
    let misfit = Array { layout: "block,block".into(), ..u() };
    assert!(matches!(open(vec![misfit]), BundleError::Layout { name, .. } if name == "u"));
}

#[test]
fn writer_units_that_disagree_hear_on_which_array() {
    let at = <String as At>::new();
    std::thread::scope(|s| {
        let first = s.spawn(|| {
            let given = Given::Bundle(vec![named("a", &[4], ElemType::F32), named("b", &[4], ElemType::F32)]);
            at.writer(
                &given,
                "",
                &Options { open_timeout: std::time::Duration::from_secs(2), ..writer_options(0, 2) },
            )
        });
        let given = Given::Bundle(vec![named("a", &[4], ElemType::F32), named("b", &[5], ElemType::F32)]);
        let told = at.writer(&given, "", &writer_options(1, 2)).map(drop).unwrap_err().to_string();
        assert!(told.contains(r#"shape of "b""#), "{told}");
        assert!(first.join().unwrap().is_err());
    });
}

/// One whose only array has a name is read by name, or as if it had none.
#[test]
fn a_bundle_of_one_is_read_in_both_ways() {
    for by_name in [true, false] {
        let at = <String as At>::new();
        against(&at, vec![named("u", &[40], ElemType::F32)], |at| {
            let options = reader_options("r", 0, 1);
            let mut r = match by_name {
                true => at.reader_of(&[rule("?", "block")], &options).unwrap(),
                false => at.reader("block", &Expect::default(), &options).unwrap(),
            };
            assert_eq!(r.arrays()[0].name, "u");
            assert_eq!(read(&mut r, 0), 1);
        });
    }
}

#[test]
fn sizes_that_cannot_be_are_refused_and_change_nothing() {
    let at = <String as At>::new();
    let open = |name: &str, open| Array { open: Some(open), ..named(name, &[4, 3], ElemType::F32) };
    let arrays = vec![
        Array { layout: String::new(), ..open("p", Changes::Dim(0)) },
        Array { layout: "block,*".into(), ..open("m", Changes::Whole) },
        named("u", &[4], ElemType::F32),
    ];
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = at.writer(&Given::Bundle(arrays), "", &writer_options(0, 1)).unwrap();
            for (array, shape) in
                [(0, &[5, 3][..]), (0, &[4, 2]), (0, &[4]), (1, &[5, 1]), (2, &[3]), (7, &[1])]
            {
                let told = w.bring(array, shape).unwrap_err();
                assert!(matches!(told, PipeError::Port(PortError::Bundle { .. })), "{told}");
            }
            assert!(w.set_values(&vec![0; (1 << 20) + 1]).is_err());
            assert_eq!(w.arrays().iter().map(|part| part.at.len()).collect::<Vec<_>>(), [0, 0, 16]);
            w.bring(1, &[2, 2]).unwrap();
            // The length of a part says how large an open dimension is; not that of the others.
            assert!(w.write_arrays(&[&[7; 36], &[8; 15], &[9; 16]]).is_err());
            assert!(w.write_arrays(&[&[7; 35], &[8; 16], &[9; 16]]).is_err());
            assert!(w.write_arrays(&[&[7; 36], &[8; 16], &[9; 16]]).unwrap());
            w.close().unwrap();
        });
        let mut r = at.reader_of(&[rule("*", "...")], &reader_options("r", 0, 1)).unwrap();
        let (mut p, mut m, mut u) = ([0; 36], [0; 16], [0; 16]);
        assert!(r.read_arrays(&mut [&mut p[..1], &mut m, &mut u]).is_err());
        assert_eq!(r.read_arrays(&mut [&mut p, &mut m, &mut u]).unwrap(), Some(0));
        assert_eq!((p, m, u), ([7; 36], [8; 16], [9; 16]));
        let shapes = [0, 1].map(|array| r.arrays()[array].mapping.dataset().shape().to_vec());
        assert_eq!(shapes, [vec![3, 3], vec![2, 2]]);
    });
    // Units that differ where they must not end the stream of their readers, who are told.
    let at = <String as At>::new();
    std::thread::scope(|s| {
        for unit in 0..2 {
            let at = &at;
            let arrays = vec![Array { layout: "block,*".into(), ..open("m", Changes::Whole) }];
            s.spawn(move || {
                let mut w = at.writer(&Given::Bundle(arrays), "", &writer_options(unit, 2)).unwrap();
                w.bring(0, &[2, 1 + u64::from(unit)]).unwrap();
                let len = w.arrays()[0].at.len();
                w.write_arrays(&[&vec![1; len]]).unwrap();
                let _ = w.close();
            });
        }
        let mut r = at.reader_of(&[rule("m", "...")], &reader_options("r", 0, 1)).unwrap();
        let told = r.peek().unwrap_err();
        assert!(
            told.to_string()
                .contains(r#"array "m": its size in a step is [2, 2]; expected [2, 1], as unit 0 says"#),
            "{told}"
        );
    });
    for bad in
        [Array { open: Some(Changes::Dim(1)), ..named("p", &[4], ElemType::F32) }, open("p", Changes::Dim(0))]
    {
        let given = Given::Bundle(vec![bad]);
        let told = Writer::open("no_size", &given, "", &writer_options(0, 1)).map(drop).unwrap_err();
        assert!(matches!(told, PipeError::Port(PortError::Bundle { .. })), "{told}");
    }
}

/// Of six rows in blocks the last of four units has none; of four it has one.
#[test]
fn a_unit_that_has_none_of_the_most_has_room_for_its_part_of_less() {
    let arrays: Vec<Array> = ["a", "b"]
        .map(|name| Array {
            layout: "block,*".into(),
            open: Some(Changes::Whole),
            ..named(name, &[6, 5000], ElemType::U8)
        })
        .into();
    let at = <String as At>::new();
    std::thread::scope(|s| {
        for unit in 0..4u8 {
            let (at, arrays) = (&at, arrays.clone());
            s.spawn(move || {
                let given = Given::Bundle(arrays);
                let mut w = at.writer(&given, "", &writer_options(unit.into(), 4)).unwrap();
                for array in 0..2 {
                    w.bring(array, &[4, 5000]).unwrap();
                }
                w.write_arrays(&[&[unit; 5000], &[10 + unit; 5000]]).unwrap();
                w.close().unwrap();
            });
        }
        let mut r = at.reader_of(&[rule("*", "...")], &reader_options("r", 0, 1)).unwrap();
        assert_eq!(r.peek().unwrap(), Some(0));
        let (mut a, mut b) = (vec![0; 20_000], vec![0; 20_000]);
        assert_eq!(r.read_arrays(&mut [&mut a, &mut b]).unwrap(), Some(0));
        let rows = |first: u8| (0..4).flat_map(move |unit| [first + unit; 5000]);
        assert!(a.into_iter().eq(rows(0)) && b.into_iter().eq(rows(10)));
    });
}

/// Bytes of memory of slots that are so large that they are none of another test.
fn slots_hold(from: u64) -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let slots = open.filter_map(|fd| {
        let name = std::fs::read_link(fd.path()).ok()?;
        let is_slot = name.to_str()?.starts_with("/memfd:polyduct-slot");
        let stat = std::fs::metadata(fd.path()).ok().filter(|stat| is_slot && stat.len() >= from)?;
        Some((stat.ino(), stat.blocks() * 512))
    });
    slots.collect::<BTreeMap<_, _>>().into_values().sum()
}

/// What a step takes of memory, and not what it might.
fn memory_follows_the_sizes_of_steps<A: At>(at: &A) {
    const MOST: usize = 37 << 20;
    let open = Some(Changes::Dim(0));
    let array = Array { open, layout: String::new(), ..named("particles", &[MOST as u64], ElemType::U8) };
    let sizes = |step: usize| if step.is_multiple_of(80) { MOST } else { 1000 + step };
    let (there, told) = mpsc::sync_channel(0);
    std::thread::scope(|s| {
        // Who panics drops its end, for which the other does not wait then.
        s.spawn(move || {
            let options = Options { depth: 2, ..writer_options(0, 1) };
            let mut w = at.writer(&Given::Bundle(vec![array]), "", &options).unwrap();
            assert!(slots_hold(MOST as u64) < 1 << 20);
            for step in 0..=160 {
                match step % 2 {
                    0 => drop(w.write_arrays(&[&vec![step as u8; sizes(step)]]).unwrap()),
                    _ => {
                        let mut s = w.step().unwrap();
                        s.bring(0, &[sizes(step) as u64]).unwrap();
                        let part = s.arrays()[0].at.clone();
                        s[part].fill(step as u8);
                        s.publish().unwrap();
                    }
                }
                let holds = slots_hold(MOST as u64);
                match step % 80 {
                    0 => assert!(holds >= MOST as u64, "{step}: {holds}"),
                    79 => assert!(holds < 1 << 20, "{step}: {holds}"),
                    _ => {}
                }
                there.send(()).unwrap();
            }
            w.close().unwrap();
        });
        let mut r = at.reader_of(&[rule("*", "*")], &reader_options("r", 0, 1)).unwrap();
        for step in 0..=160 {
            told.recv().unwrap();
            assert_eq!(r.peek().unwrap(), Some(step as u64));
            let mut part = vec![0; sizes(step)];
            assert_eq!(r.read_arrays(&mut [&mut part]).unwrap(), Some(step as u64));
            assert!(part.iter().all(|&byte| byte == step as u8), "{step}");
        }
        assert_eq!(r.peek().unwrap(), None);
    });
}

#[test]
fn memory_follows_the_sizes_of_steps_on_one_host_and_across() {
    memory_follows_the_sizes_of_steps(&<String as At>::new());
    for near in [Near::All, Near::None] {
        memory_follows_the_sizes_of_steps(&Across { near, ..Across::trusting(true) });
    }
}

/// More than any machine has may be declared, and asked for; the port goes on with what there is.
fn a_step_for_which_there_is_no_memory_is_an_error<A: At>(at: &A) {
    let open = Some(Changes::Dim(0));
    let array = Array { open, layout: String::new(), ..named("particles", &[1 << 42], ElemType::U8) };
    std::thread::scope(|s| {
        s.spawn(|| {
            let options = Options { depth: 2, ..writer_options(0, 1) };
            let mut w = at.writer(&Given::Bundle(vec![array]), "", &options).unwrap();
            let no_memory = |error: PipeError| {
                assert!(
                    matches!(error, PipeError::System { source: OsError::NoMemory { .. }, .. }),
                    "{error}"
                );
                assert_eq!(error.scope(), Scope::Operation);
            };
            let mut s = w.step().unwrap();
            no_memory(s.bring(0, &[1 << 41]).unwrap_err());
            assert!(s.arrays()[0].at.is_empty());
            s.bring(0, &[5]).unwrap();
            let part = s.arrays()[0].at.clone();
            s[part].fill(1);
            s.publish().unwrap();
            // Said beforehand, it is asked for by the step, and not twice.
            w.bring(0, &[1 << 41]).unwrap();
            no_memory(w.step().err().unwrap());
            let mut s = w.step().unwrap();
            assert!(s.arrays()[0].at.is_empty());
            s.bring(0, &[7]).unwrap();
            let part = s.arrays()[0].at.clone();
            s[part].fill(2);
            s.publish().unwrap();
            w.write_arrays(&[&[3; 9]]).unwrap();
            w.close().unwrap();
        });
        let mut r = at.reader_of(&[rule("*", "*")], &reader_options("r", 0, 1)).unwrap();
        for (step, len) in [(0, 5), (1, 7), (2, 9)] {
            assert_eq!(r.peek().unwrap(), Some(step));
            let mut part = vec![0; len];
            assert_eq!(r.read_arrays(&mut [&mut part]).unwrap(), Some(step));
            assert_eq!(part, vec![step as u8 + 1; len]);
        }
        assert_eq!(r.peek().unwrap(), None);
    });
}

#[test]
fn a_step_for_which_there_is_no_memory_is_an_error_on_one_host_and_across() {
    a_step_for_which_there_is_no_memory_is_an_error(&<String as At>::new());
    for near in [Near::All, Near::None] {
        a_step_for_which_there_is_no_memory_is_an_error(&Across { near, ..Across::trusting(true) });
    }
}

/// Steps that the queue drops have memory for what is written there, and not for the most that may be.
fn a_dropped_step_takes_no_more_than_it_needs<A: At>(at: &A) {
    let open = Some(Changes::Dim(0));
    let array = Array { open, layout: String::new(), ..named("particles", &[1 << 42], ElemType::U8) };
    let full = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        s.spawn(|| {
            let options = Options { depth: 2, policy: Policy::DropNewest, ..writer_options(0, 1) };
            let mut w = at.writer(&Given::Bundle(vec![array]), "", &options).unwrap();
            let mut published = 0;
            for step in 0..4u8 {
                let mut s = w.step().unwrap();
                s.bring(0, &[1000]).unwrap();
                let part = s.arrays()[0].at.clone();
                s[part.clone()].fill(step);
                assert!(s[part].iter().all(|&byte| byte == step));
                published += u32::from(s.publish().unwrap());
            }
            assert_eq!(published, 2);
            full.wait();
            w.close().unwrap();
        });
        let mut r = at.reader_of(&[rule("*", "*")], &reader_options("r", 0, 1)).unwrap();
        full.wait();
        for step in 0..2 {
            let mut part = vec![9; 1000];
            assert_eq!(r.read_arrays(&mut [&mut part]).unwrap(), Some(step));
            assert_eq!(part, [step as u8; 1000]);
        }
    });
}

#[test]
fn a_dropped_step_takes_no_more_than_it_needs_on_one_host_and_across() {
    a_dropped_step_takes_no_more_than_it_needs(&<String as At>::new());
    a_dropped_step_takes_no_more_than_it_needs(&Across::trusting(true));
}

#[test]
fn what_would_fail_in_a_step_is_refused_before() {
    let options = writer_options(0, 3);
    let whole = |layout: &str| Array {
        open: Some(Changes::Whole),
        layout: layout.into(),
        ..named("mesh", &[20], ElemType::U8)
    };
    let open = |arrays: Vec<Array>| {
        let error = Writer::open(&<String as At>::new(), &Given::Bundle(arrays), "", &options).err().unwrap();
        assert_eq!(error.scope(), Scope::Port);
        error.to_string()
    };
    let told = open(vec![whole("cut(0,2,9)")]);
    assert!(told.contains("its layout is \"cut(0,2,9)\", which does not fit every shape"), "{told}");
    let long = |n: usize| format!("{n:0500}");
    let told = open((0..20_000).map(|n| named(&long(n), &[1], ElemType::U8)).collect());
    assert!(
        told.contains("what this program says of its arrays is") && told.contains("bytes long"),
        "{told}"
    );
    // Whatever another process says of the values of steps.
    let wire = |name: &str, shape: &[u64], open| WireArray {
        name: name.into(),
        shape: shape.to_vec(),
        elem: "u8".into(),
        layout: "...".into(),
        open,
    };
    let takes = Takes::Named(vec![("*".into(), Wish::layout("*"))]);
    let bind = |values| {
        let arrays = [wire("a", &[9], Some(Changes::Dim(0))), values];
        Work::bind(&arrays, 2, &takes, (0, 1)).err().map(|why| why.to_string())
    };
    let right = wire(VALUES, &[1 << 20], Some(Changes::Dim(0)));
    assert_eq!(bind(right.clone()), None);
    for wrong in [
        wire(VALUES, &[1 << 40], None),
        wire(VALUES, &[1 << 40], Some(Changes::Dim(0))),
        wire(VALUES, &[], Some(Changes::Whole)),
        wire(VALUES, &[1 << 20], Some(Changes::Never)),
        WireArray { elem: "u16".into(), ..right.clone() },
        WireArray { layout: "block".into(), ..right },
    ] {
        let told = bind(wrong).unwrap();
        assert!(told.contains("expected [1048576] of u8, open"), "{told}");
    }
}

/// A model's worth of small arrays opens and moves in a time that grows with their number.
#[test]
fn thousands_of_arrays_come_in_one_step() {
    let arrays: Vec<Array> =
        (0..6000).map(|n| named(&format!("experts/{n}/w"), &[16], ElemType::F32)).collect();
    for at in [Across { near: Near::All, ..Across::trusting(true) }, Across::trusting(true)] {
        against(&at, arrays.clone(), |at| {
            let mut r = at.reader_of(&[rule("*", "block")], &reader_options("r", 0, 1)).unwrap();
            assert_eq!((r.arrays().len(), read(&mut r, 0)), (6000, 1));
        });
    }
}
