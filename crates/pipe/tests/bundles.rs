//! Several arrays in each step: every element of every array arrives, whatever the layouts and the way.

mod common;

use common::at::At;
use common::net::{Across, Near};
use common::{local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::{Expect, Given, Mismatch, Options, PipeError, Policy, Reader, Refusal, Rule, Writer};
use polyduct_port::{Array, ArrayPart, BundleError, PortError};
use proptest::prelude::*;

/// An array of a random bundle: of which shape, element and layouts.
#[derive(Clone, Debug)]
struct Spec {
    shape: usize,
    elem: usize,
    written: usize,
    read: usize,
    /// Whether readers take it.
    taken: bool,
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

    fn layout(&self, at: usize) -> &'static str {
        LAYOUTS[SHAPES[self.shape].len() - 1][at]
    }
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let spec = (0..SHAPES.len(), 0..ELEMS.len(), 0..5usize, 0..5usize, prop::bool::weighted(0.8));
    let spec =
        spec.prop_map(|(shape, elem, written, read, taken)| Spec { shape, elem, written, read, taken });
    prop::collection::vec(spec, 1..12)
}

fn name_of(array: usize) -> String {
    format!("group{}/größe {array}", array % 3)
}

fn arrays(specs: &[Spec]) -> Vec<Array> {
    let array = |(n, spec): (usize, &Spec)| Array {
        name: name_of(n),
        dataset: spec.dataset(),
        layout: spec.layout(spec.written).into(),
    };
    specs.iter().enumerate().map(array).collect()
}

/// One rule for each array that is taken; the first array always is.
fn rules(specs: &[Spec]) -> Vec<Rule> {
    let taken = specs.iter().enumerate().filter(|(n, spec)| *n == 0 || spec.taken);
    let rule = |(n, spec): (usize, &Spec)| Rule {
        pattern: name_of(n),
        layout: spec.layout(spec.read).into(),
        expect: Expect::default(),
    };
    // Their order does not count.
    taken.map(rule).rev().collect()
}

/// What a part of an array holds in a step: bytes that name the array, the element and the step.
fn expected(part: &ArrayPart, unit: u64, step: u64) -> Vec<u8> {
    let (salt, len) =
        (part.name.bytes().map(u64::from).sum::<u64>(), part.mapping.dataset().elem().len_bytes());
    let element = |index: u64| {
        let value = (index * 1_000_003 + salt * 77 + step * 13).to_le_bytes();
        (0..len as usize).map(move |at| value[at % 8].wrapping_add(at as u8))
    };
    local_indices(&part.mapping, unit).into_iter().flat_map(element).collect()
}

/// Writes steps in the two ways in turn.
fn write(w: &mut Writer, unit: u64, steps: u64) {
    for step in 0..steps {
        let parts: Vec<Vec<u8>> = w.arrays().iter().map(|part| expected(part, unit, step)).collect();
        if step % 2 == 0 {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            w.write_arrays(&parts).unwrap();
        } else {
            let places: Vec<_> = w.arrays().iter().map(|part| part.at.clone()).collect();
            let mut slot = w.step().unwrap();
            places.into_iter().zip(&parts).for_each(|(at, part)| slot[at].copy_from_slice(part));
            slot.publish().unwrap();
        }
    }
}

/// Reads steps in the three ways in turn. Returns how many there were.
fn read(r: &mut Reader, unit: u64) -> u64 {
    let mut read = 0;
    loop {
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
        for (part, got) in arrays.iter().zip(got) {
            assert!(got == expected(part, unit, step), "{}, unit {unit}, step {step}", part.name);
        }
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
                write(&mut w, unit.into(), steps);
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
    Array { name: name.into(), dataset: Dataset::new(shape, elem).unwrap(), layout: "block".into() }
}

fn rule(pattern: &str, layout: &str) -> Rule {
    Rule { pattern: pattern.into(), layout: layout.into(), expect: Expect::default() }
}

/// A writer of one unit that stays for as long as readers come in vain, and ends with the first that reads.
fn against<A: At>(at: &A, arrays: Vec<Array>, readers: impl FnOnce(&A)) {
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = at.writer(&Given::Bundle(arrays), "", &writer_options(0, 1)).unwrap();
            write(&mut w, 0, 1);
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
        let part = ArrayPart { name: "layer/weight".into(), mapping, at: 0..16 };
        for (got, full) in weight.chunks(2).zip(expected(&part, 0, 0).chunks(4)) {
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
