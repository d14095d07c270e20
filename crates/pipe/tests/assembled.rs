//! Arrays that readers put together from boxes of the writers', split or rename: every element comes from where it
//! belongs, whatever the layouts and the way.

mod common;

use common::at::At;
use common::net::{Across, Near};
use common::{local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::{Expect, Given, Mismatch, PipeError, Reader, Refusal, Rule};
use polyduct_port::{Array, ArrayPart, Assembly, Changes, Index, Join, Piece};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const STEPS: u64 = 3;
const LAYOUTS: [&str; 6] = ["block,*", "*,block", "*,*", "cyclic(2),*", "balanced,*;order=F", "*,cyclic(3)"];
const LAYOUTS_3D: [&str; 3] = ["block,*,*", "*,*,block", "*,block,*;halo=0,1,0"];

/// An element of an array in a step, as a number that its bytes are.
fn element(array: usize, linear: u64, step: u64) -> u32 {
    (array as u32 + 1) * 1_000_000 + step as u32 * 100_000 + linear as u32
}

/// An array of the writers: rows, and its layout; all have as many columns.
type Given2d = (u64, usize);

#[derive(Clone, Debug)]
struct Case {
    given: Vec<Given2d>,
    columns: u64,
    layouts: [usize; 4],
    /// Of the first array, what the reader takes as a box.
    rows: (u64, u64),
    row: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let given = prop::collection::vec((1u64..9, 0..LAYOUTS.len()), 1..5);
    let layouts = [0..LAYOUTS.len(), 0..LAYOUTS.len(), 0..LAYOUTS_3D.len(), 0..LAYOUTS.len()];
    (given, 1u64..12, layouts, 0u64..99, 0u64..99).prop_map(|(given, columns, layouts, a, b)| {
        let rows = given[0].0;
        let (a, b) = (a % (rows + 1), b % (rows + 1));
        Case { rows: (a.min(b), a.max(b)), row: a % rows, given, columns, layouts }
    })
}

fn name_of(array: usize) -> String {
    format!("layer/{array}")
}

fn arrays(case: &Case) -> Vec<Array> {
    let array = |(n, &(rows, layout)): (usize, &Given2d)| Array {
        name: name_of(n),
        dataset: Dataset::new(&[rows, case.columns], ElemType::U32).unwrap(),
        layout: LAYOUTS[layout].into(),
        open: None,
    };
    case.given.iter().enumerate().map(array).collect()
}

fn made(name: &str, layout: &str, pieces: Vec<Piece>, join: Join, shape: Option<&[u64]>) -> Rule {
    let expect = Expect { shape: shape.map(<[u64]>::to_vec), ..Expect::default() };
    let (pattern, of) = (name.to_owned(), Some(Assembly { pieces, join }));
    Rule { pattern, layout: layout.into(), expect, of }
}

fn piece(array: usize, of: &[Index], at: Option<&[Index]>) -> Piece {
    Piece { array: name_of(array), of: of.to_vec(), at: at.map(<[Index]>::to_vec) }
}

/// What a reader makes of the arrays, each with its content: for each element the writers' array and its number
/// in that.
fn rules(case: &Case) -> Vec<(Rule, Vec<(usize, u64)>)> {
    let all = Index::Span(0, None);
    let (n, columns) = (case.given.len(), case.columns);
    let [joined, split, stacked, placed] = case.layouts;
    let whole = |array: usize| (0..case.given[array].0 * columns).map(move |at| (array, at));
    let fused = made(
        "fused",
        LAYOUTS[joined],
        (0..n).map(|array| piece(array, &[], None)).collect(),
        Join::Along(0),
        None,
    );
    let (from, to) = case.rows;
    let part = made(
        "part",
        LAYOUTS[split],
        vec![piece(0, &[Index::Span(from, Some(to)), all], None)],
        Join::Along(0),
        None,
    );
    // A row of each of two arrays, as planes of one row.
    let row = |array: usize| case.row % case.given[array].0;
    let planes = made(
        "planes",
        LAYOUTS_3D[stacked],
        [0, n - 1]
            .map(|array| piece(array, &[Index::Span(row(array), Some(row(array) + 1)), all], None))
            .into(),
        Join::Stacked(0),
        None,
    );
    // The last array to the right of a column of the first one's rows, written as rows of another array.
    let line = made(
        "line",
        LAYOUTS[placed],
        vec![
            piece(0, &[Index::One(row(0)), all], Some(&[Index::One(0), Index::Span(columns, None)])),
            piece(n - 1, &[Index::One(row(n - 1)), all], Some(&[all, Index::Span(0, Some(columns))])),
        ],
        Join::Along(0),
        Some(&[1, 2 * columns]),
    );
    let of_row = |array: usize| (0..columns).map(move |at| (array, row(array) * columns + at));
    let renamed = made("renamed", LAYOUTS[placed], vec![piece(n - 1, &[], None)], Join::Along(0), None);
    vec![
        (fused, (0..n).flat_map(whole).collect()),
        (part, (from * columns..to * columns).map(|at| (0, at)).collect()),
        (planes, of_row(0).chain(of_row(n - 1)).collect()),
        (line, of_row(n - 1).chain(of_row(0)).collect()),
        (renamed, whole(n - 1).collect()),
        (Rule { pattern: name_of(0), layout: "*,*".into(), ..Rule::default() }, whole(0).collect()),
    ]
}

fn bytes_of(part: &ArrayPart, unit: u64, content: &[(usize, u64)], step: u64) -> Vec<u8> {
    let one = |linear: u64| {
        let (array, at) = content[linear as usize];
        element(array, at, step).to_le_bytes()
    };
    local_indices(&part.mapping, unit).into_iter().flat_map(one).collect()
}

fn read(r: &mut Reader, unit: u64, of: &[(Rule, Vec<(usize, u64)>)], step: u64) {
    let arrays = r.arrays().to_vec();
    let mut all = vec![0xa5; r.local_len_bytes()];
    assert_eq!(r.read(&mut all).unwrap(), Some(step));
    for part in arrays {
        let (_, content) = of.iter().find(|(rule, _)| rule.pattern == part.name).unwrap();
        let got = &all[part.at.clone()];
        assert!(got == bytes_of(&part, unit, content, step), "{}, unit {unit}, step {step}", part.name);
    }
}

fn check<A: At>(at: A, case: &Case, (writers, readers): (u32, u32)) {
    let (given, of, at) = (&Given::Bundle(arrays(case)), &rules(case), &at);
    let rules: &Vec<Rule> = &of.iter().map(|(rule, _)| rule.clone()).collect();
    std::thread::scope(|s| {
        for unit in 0..writers {
            s.spawn(move || {
                let mut w = at.writer(given, "", &writer_options(unit, writers)).unwrap();
                for step in 0..STEPS {
                    let part = |(n, part): (usize, &ArrayPart)| -> Vec<u8> {
                        let numbers = local_indices(&part.mapping, unit.into()).into_iter();
                        numbers.flat_map(|linear| element(n, linear, step).to_le_bytes()).collect()
                    };
                    let parts: Vec<Vec<u8>> = w.arrays().iter().enumerate().map(part).collect();
                    w.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
                }
                w.close().unwrap();
            });
        }
        for unit in 0..readers {
            s.spawn(move || {
                let mut r = at.reader_of(rules, &reader_options("r", unit, readers)).unwrap();
                let mut names: Vec<&str> = r.arrays().iter().map(|part| part.name.as_str()).collect();
                names.sort_unstable();
                assert_eq!(names, ["fused", "layer/0", "line", "part", "planes", "renamed"]);
                (0..STEPS).for_each(|step| read(&mut r, unit.into(), of, step));
                r.close().unwrap();
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn every_element_of_arrays_that_are_put_together_arrives(
        case in cases(),
        units in (1u32..4, 1u32..4),
        way in 0u32..4,
    ) {
        match way {
            0 | 1 => check(<String as At>::new(), &case, units),
            2 => check(Across::trusting(true), &case, units),
            _ => check(Across { near: Near::Even, ..Across::trusting(true) }, &case, units),
        }
    }
}

/// Refusals of rules by a writer of some arrays of one unit, and at last a reader that goes on.
#[test]
fn readers_are_told_which_pieces_do_not_fit() {
    let at = <String as At>::new();
    let array = |name: &str, shape: &[u64], elem: ElemType| Array {
        name: name.into(),
        dataset: Dataset::new(shape, elem).unwrap(),
        layout: "...".into(),
        open: None,
    };
    let mut open = array("particles", &[8], ElemType::F32);
    open.open = Some(Changes::Dim(0));
    open.layout = String::new();
    let stripes = Array { layout: "stripe(4)".into(), ..array("bytes", &[4], ElemType::F32) };
    let arrays = vec![
        array("q", &[4], ElemType::F32),
        array("k", &[4], ElemType::F32),
        array("ids", &[4], ElemType::I64),
        open,
        stripes,
    ];
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = at.writer(&Given::Bundle(arrays), "", &writer_options(0, 1)).unwrap();
            w.bring(3, &[2]).unwrap();
            let parts = [[1; 16], [2; 16], [3; 16]];
            w.write_arrays(&[&parts[0], &parts[1], &[0; 32], &[7; 8], &parts[2]]).unwrap();
            w.close().unwrap();
        });
        let options = || reader_options("r", 0, 1);
        let of = |names: &[&str]| {
            let piece = |name: &&str| Piece { array: (*name).into(), of: Vec::new(), at: None };
            names.iter().map(piece).collect::<Vec<_>>()
        };
        let fused = |names: &[&str]| made("w", "*", of(names), Join::Along(0), None);
        let plain = |name: &str| Rule { pattern: name.into(), layout: "*".into(), ..Rule::default() };
        let told = |rules: &[Rule]| match at.reader_of(rules, &options()) {
            Err(PipeError::Refused { reason: Refusal::Terms(Mismatch::Arrays { error }), .. }) => error,
            Err(PipeError::Refused { reason: Refusal::Terms(why), .. }) => why.to_string(),
            other => panic!("{:?}", other.err()),
        };
        let missing = told(&[plain("nothing"), fused(&["q", "v"])]);
        assert!(missing.contains(r#"called "nothing"; "v""#), "{missing}");
        let types = told(&[fused(&["q", "ids"])]);
        assert_eq!(types, r#"the reader expects the dtype of "ids" f32; the writer gives i64"#);
        let sizes = told(&[fused(&["q", "particles"])]);
        assert!(sizes.contains(r#"array "w": a piece is of "particles", whose size changes"#), "{sizes}");
        let twice = told(&[plain("q"), made("q", "*", of(&["k"]), Join::Along(0), None)]);
        assert_eq!(twice, r#"two arrays are called "q""#);
        let short = told(&[made("w", "*", of(&["q", "k"]), Join::Along(0), Some(&[9]))]);
        assert!(short.contains("8 elements; expected its 9"), "{short}");
        let bytes = told(&[fused(&["q", "bytes"])]);
        assert!(bytes.contains("a part of a stripe layout has no boxes"), "{bytes}");
        // Names and whole arrays, those that change as well; a pattern takes what no other rule uses.
        let rules = [
            made("w", "*", of(&["q", "k"]), Join::Along(0), None),
            made("points", "partner", of(&["particles"]), Join::Along(0), None),
            Rule { pattern: "*".into(), layout: "...".into(), ..Rule::default() },
        ];
        let mut r = at.reader_of(&rules, &options()).unwrap();
        r.peek().unwrap();
        let names: Vec<String> = r.arrays().iter().map(|part| part.name.clone()).collect();
        assert_eq!(names, ["ids", "bytes", "w", "points"]);
        let (mut ids, mut bytes, mut w, mut points) = ([9; 32], [9; 16], [9; 32], [9; 8]);
        r.read_arrays(&mut [&mut ids, &mut bytes, &mut w, &mut points]).unwrap();
        assert_eq!((w[..16].to_vec(), w[16..].to_vec(), points), (vec![1; 16], vec![2; 16], [7; 8]));
        assert_eq!((ids, bytes), ([0; 32], [3; 16]));
    });
}

fn what_there_is_is_told<A: At>(at: &A) {
    let mut arrays: Vec<Array> = (0..18_000)
        .map(|n| Array {
            name: format!("layers/{n}/weight"),
            dataset: Dataset::new(&[4, n % 5], ElemType::Bf16).unwrap(),
            layout: "block,*".into(),
            open: None,
        })
        .collect();
    arrays[7].open = Some(Changes::Whole);
    let refused = &AtomicU32::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = at.writer(&Given::Bundle(arrays.clone()), "", &writer_options(0, 1)).unwrap();
            let parts: Vec<Vec<u8>> = w.arrays().iter().map(|part| vec![3; part.at.len()]).collect();
            w.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
            w.close().unwrap();
        });
        // Units that ask have no place, so that each may ask as often as it likes, also as one of several.
        for _ in 0..3 {
            assert_eq!(at.describe(&reader_options("r", 1, 2)).unwrap(), arrays);
        }
        // Units of a program that make an array differently.
        let rows = |from: u64| {
            let of = vec![Index::Span(from, Some(from + 1)), Index::Span(0, None)];
            let piece = Piece { array: "layers/3/weight".into(), of, at: None };
            vec![made("row", "*,*", vec![piece], Join::Along(0), None)]
        };
        let enter = move |unit: u32, from: u64| {
            let options = reader_options("r", unit, 2);
            let reader = match at.reader_of(&rows(from), &options) {
                Err(PipeError::Refused { reason: Refusal::Disagree { what, .. }, .. }) => {
                    assert_eq!(what, "pieces of \"row\"");
                    refused.fetch_add(1, Relaxed);
                    at.reader_of(&rows(1 - from), &options)
                }
                reader => reader,
            };
            reader.unwrap().read(&mut [0; 6]).unwrap();
        };
        // The later of them is told, and agrees.
        s.spawn(move || enter(0, 0));
        enter(1, 1);
        assert_eq!(refused.load(Relaxed), 1);
    });
}

#[test]
fn what_there_is_is_told_on_one_host_and_across() {
    what_there_is_is_told(&<String as At>::new());
    what_there_is_is_told(&Across::trusting(false));
}
