//! Whatever a unit says of the arrays that it brings or takes: it is refused, or every plan that follows from
//! it stays within the parts and moves each of their bytes once.

#![forbid(unsafe_code)]

mod driver;

use polyduct_copy::Kernels;
use polyduct_layout::ElemType;
use polyduct_message::handshake::unpack;
use polyduct_pipe::threads::Threads;
use polyduct_pipe::wire::{Array, Takes, Wish, VALUES};
use polyduct_pipe::work::{Supply, Work};
use polyduct_pipe::Changes;
use serde::Serialize;

/// Units of both programs.
const WRITERS: u32 = 2;
const READERS: u32 = 3;
/// Larger arrays are planned, and not moved.
const MOVED: u64 = 1 << 16;

fn target(input: &[u8]) {
    let Ok((arrays, takes, said)) = unpack::<(Vec<Array>, Takes, Vec<u64>)>(input) else { return };
    for reader in 0..READERS {
        let mut work = match Work::bind(&arrays, WRITERS, &takes, (reader, READERS)) {
            Ok(work) => work,
            Err(why) => return assert!(!why.to_string().is_empty()),
        };
        work.supplies.iter().for_each(check);
        // Sizes that cannot be change nothing.
        let before = (work.len, work.generation);
        match work.at_step(&said) {
            Ok(_) => work.supplies.iter().for_each(check),
            Err(why) => assert!(!why.to_string().is_empty() && before == (work.len, work.generation)),
        }
    }
}

/// Whether a supply stays within the writer's slot, and moves no byte twice.
fn check(supply: &Supply) {
    assert!(supply.legs.iter().all(|leg| leg.slot.end <= supply.slot_len && leg.transfer().bytes() > 0));
    assert_eq!(supply.legs.iter().map(|leg| leg.transfer().bytes()).sum::<u64>(), supply.bytes);
    let arrays = supply.legs.iter().map(|leg| leg.array + 1).max().unwrap_or(0);
    if supply.slot_len as u64 > MOVED || supply.bytes > MOVED || arrays > 16 {
        return;
    }
    let slot = vec![1; supply.slot_len];
    let mut memory = vec![vec![0u8; 4 * MOVED as usize]; arrays];
    let mut parts: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    let moved = supply.copy((Kernels::detect(), Threads::of(READERS)), &slot, &mut parts);
    // A halo or a hole may put the last of a part behind what is there.
    if moved.is_ok() && supply.legs.iter().all(|leg| leg.conversion.is_none()) {
        let came: usize = memory.iter().map(|part| part.iter().filter(|byte| **byte == 1).count()).sum();
        assert!(came as u64 <= supply.bytes);
    }
}

fn main() {
    let array = |name: &str, shape: &[u64], elem: ElemType, layout: &str| Array {
        name: name.into(),
        shape: shape.to_vec(),
        elem: elem.to_string(),
        layout: layout.into(),
        open: None,
    };
    let said =
        |arrays: &[Array], takes: &Takes| postcard::to_stdvec(&(arrays, takes, [2u64, 3])).expect("words");
    let named = |rules: &[(&str, &str)]| {
        Takes::Named(rules.iter().map(|(name, layout)| ((*name).into(), Wish::layout(layout))).collect())
    };
    let u = array("u", &[6, 4], ElemType::F32, "block,*");
    let w = array("deep/w", &[9], ElemType::U8, "cyclic(2)");
    let open = |array: &Array, open| Array { open: Some(open), layout: "...".into(), ..array.clone() };
    let values = open(&array(VALUES, &[1 << 20], ElemType::U8, "..."), Changes::Dim(0));
    let converts = Wish { elem: Some("bf16".into()), convert: true, ..Wish::layout("*,block") };
    let seeds = [
        said(&[u.clone(), w.clone()], &named(&[("u", "*,block"), ("deep/*", "*")])),
        said(&[u.clone(), w.clone()], &Takes::Named(vec![("u".into(), converts)])),
        said(&[Array { name: String::new(), ..u.clone() }], &Takes::One(Wish::layout("*,cyclic;order=F"))),
        said(&[w.clone(), w.clone()], &named(&[("*", "*")])),
        said(&[Array { name: "../u".into(), ..u.clone() }, w.clone()], &named(&[("w", "*")])),
        said(
            &[Array { shape: vec![u64::MAX, 3], ..u.clone() }, w.clone()],
            &named(&[("?", "block,*;halo=1,0")]),
        ),
        said(&[open(&w, Changes::Dim(0)), u.clone()], &named(&[("*", "...")])),
        said(&[open(&w, Changes::Dim(0))], &named(&[("deep/w", "partner")])),
        said(&[Array { layout: "block".into(), ..open(&w, Changes::Whole) }], &named(&[("*", "cyclic")])),
        said(&[u, values.clone()], &named(&[("u", "*,*")])),
        said(
            &[open(&w, Changes::Dim(0)), Array { shape: vec![], ..open(&values, Changes::Whole) }],
            &named(&[("*", "*")]),
        ),
        said(&[w, Array { shape: vec![1 << 40], open: None, ..values }], &named(&[("*", "*")])),
    ];
    let words = ["u", "deep/w", "*", "block,*", "stripe(8)", "boxes(0:3|3:9)", "f32", "bf16", "bytes(3)"];
    let words: Vec<Vec<u8>> = words
        .iter()
        .map(|word| postcard::to_stdvec(word).expect("a word"))
        .chain([said_alone(&[6u64, 4]), said_alone(&[0u64]), vec![0xff; 9], vec![0x80, 0x80, 4]])
        .collect();
    let [seeds, words] = [&seeds[..], &words].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    driver::run(&seeds, &words, target);
}

fn said_alone(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("words")
}
