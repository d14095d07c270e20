//! Folders of a store that are written and read as one thing.

use crate::rig::{check, each, options, part, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::values::{pack, unpack, Value};
use polyduct_port::{Array, Changes, Rule};
use polyduct_store::disk::{folder, FolderWriter, Store, StoreError};
use polyduct_store::file::{ArraysReader, WriteArrays};
use polyduct_store::FileError;
use std::collections::BTreeSet;
use std::ops::Range;

fn array(name: &str, shape: &[u64], elem: ElemType, layout: &str) -> Array {
    let dataset = Dataset::new(shape, elem).unwrap();
    Array { name: name.into(), dataset, layout: layout.into(), open: None }
}

/// Longer and shorter than a row, scattered and whole, nested, of no elements, of none but one, and a constant.
fn state() -> Vec<Array> {
    let mut all = vec![
        array("u", &[300, 401], ElemType::F64, "block,*"),
        array("mask", &[40, 30], ElemType::U8, "*,cyclic(3)"),
        array("encoder/0/weight", &[64, 64], ElemType::Bf16, "*,block"),
        array("encoder/0/bias", &[7], ElemType::F32, "block"),
        array("nothing", &[0, 3], ElemType::I16, "block,*"),
        array("scalar", &[], ElemType::F64, "*"),
        array("größe", &[9, 3000], ElemType::F32, "*,*"),
    ];
    all.push(Array { open: Some(Changes::Never), ..array("grid", &[50, 50], ElemType::F32, "block,block") });
    all
}

/// What stands in an array in a step: another thing in each.
fn content(n: usize, array: &Array, step: u64) -> u64 {
    1000 * n as u64 + if array.open.is_some() { 0 } else { step }
}

fn values(step: u64) -> Vec<u8> {
    pack(vec![("time".into(), Value::from(step)), ("name".into(), Value::from("größe"))]).unwrap()
}

fn time(packed: &[u8]) -> Option<u64> {
    unpack(packed).unwrap().into_iter().find(|(name, _)| name == "time").and_then(|(_, value)| value.as_u64())
}

fn write_folder(
    place: &Place,
    arrays: &[Array],
    units: u32,
    append: bool,
    steps: Range<u64>,
) -> Vec<Result<(), FileError>> {
    each(units, |unit| {
        let options = options(unit, units);
        let mut out = FolderWriter::open(&place.0, "run/state", arrays, append, &options)?;
        for step in steps.clone() {
            assert_eq!(out.next_step(), if append { step } else { step - steps.start });
            let parts = arrays
                .iter()
                .enumerate()
                .map(|(n, array)| part(&array.dataset, &array.layout, unit, units, content(n, array, step)));
            let parts: Vec<Vec<u8>> = parts.collect();
            out.set_values(&values(step))?;
            if step % 2 == 0 {
                out.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
                continue;
            }
            let mut memory = (&mut out as &mut dyn WriteArrays).step_mut()?;
            let places: Vec<_> = memory.arrays().iter().map(|array| array.at.clone()).collect();
            places.into_iter().zip(&parts).for_each(|(at, part)| memory[at].copy_from_slice(part));
            memory.publish()?;
        }
        out.close().map(|_| ())
    })
}

/// Reads all of it by so many units in this layout, and checks it.
fn read_folder(place: &Place, arrays: &[Array], layout: &str, units: u32, steps: Range<u64>) {
    for unit in 0..units {
        let options = options(unit, units);
        let found = folder::find(&place.0, "run/state", &options).unwrap();
        let rule = Rule { pattern: "*".into(), layout: layout.into(), ..Rule::default() };
        let path = place.0.join("run/state");
        let mut port = ArraysReader::open(&path, found, &[rule], &options).unwrap();
        let names: BTreeSet<&str> = port.arrays().iter().map(|array| array.name.as_str()).collect();
        assert_eq!(names, arrays.iter().map(|array| array.name.as_str()).collect());
        let mut memory = vec![0; port.local_len_bytes()];
        for step in steps.clone() {
            assert_eq!(port.read(&mut memory).unwrap(), Some(step - steps.start));
            assert_eq!(time(port.values()), Some(step));
            for of in port.arrays() {
                let (n, array) = arrays.iter().enumerate().find(|(_, array)| array.name == of.name).unwrap();
                let text = if array.dataset.shape().len() < 2 { "..." } else { layout };
                let expected = part(&array.dataset, text, unit, units, content(n, array, step));
                let found = &memory[of.at.clone()];
                assert!(text == "..." && layout != "..." || found == expected, "{} {layout} {step}", of.name);
            }
        }
        assert_eq!(port.read(&mut memory).unwrap(), None);
    }
}

#[test]
fn arrays_of_any_size_are_written_together_and_each_is_a_dataset() {
    for (data, parity, writers) in [(1, 0, 1), (2, 1, 3), (4, 2, 2)] {
        let (place, arrays) = (Place::store(data, parity, 8192), state());
        write_folder(&place, &arrays, writers, false, 0..3).into_iter().for_each(|r| r.unwrap());
        read_folder(&place, &arrays, "...", 1, 0..3);
        read_folder(&place, &arrays, "...", 2, 0..3);
        if parity > 0 {
            place.lose(0);
            read_folder(&place, &arrays, "...", 1, 0..3);
        }
        // As any dataset.
        for (n, array) in arrays.iter().enumerate().filter(|(_, array)| array.name != "nothing") {
            let (first, steps) = (1000 * n as u64, if array.open.is_some() { 1 } else { 3 });
            let name = format!("run/state/{}", array.name);
            let layout = if array.dataset.shape().len() == 2 { "*,block" } else { "..." };
            let checked = check(&place.0, &name, &array.dataset, layout, 2, first..first + steps);
            checked.into_iter().for_each(|r| r.unwrap());
        }
        let metas = Store::open(&place.0).unwrap().datasets().unwrap();
        assert_eq!(metas.len(), arrays.len());
    }
}

#[test]
fn many_arrays_need_no_more_files_open_than_few() {
    let place = Place::store(2, 1, 4096);
    let named = |n: u64| array(&format!("layers/{n}"), &[n % 5 + 1, 700], ElemType::F32, "*,block");
    let arrays: Vec<Array> = (0..60).map(named).collect();
    write_folder(&place, &arrays, 2, false, 0..2).into_iter().for_each(|r| r.unwrap());
    read_folder(&place, &arrays, "block,*", 3, 0..2);
}

#[test]
fn what_is_written_anew_replaces_all_of_the_folder_at_once_and_nothing_else() {
    let place = Place::store(2, 1, 8192);
    let other = Dataset::new(&[10], ElemType::U8).unwrap();
    write(&place.0, "run/other", &other, "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
    let old = state();
    write_folder(&place, &old, 2, false, 0..2).into_iter().for_each(|r| r.unwrap());
    let new = [array("v", &[20, 20], ElemType::F32, "block,*"), array("mask", &[3], ElemType::U8, "*")];
    // Until it is closed, and where it is given up, the old one is there.
    let mut out = FolderWriter::open(&place.0, "run/state", &new, false, &options(0, 1)).unwrap();
    out.write_arrays(&[&[0; 1600], &[0; 3]]).unwrap();
    read_folder(&place, &old, "...", 1, 0..2);
    drop(out);
    read_folder(&place, &old, "...", 1, 0..2);
    write_folder(&place, &new, 2, false, 0..1).into_iter().for_each(|r| r.unwrap());
    read_folder(&place, &new, "...", 1, 0..1);
    let names: Vec<String> = Store::open(&place.0).unwrap().datasets().unwrap().into_keys().collect();
    assert_eq!(names, ["run/other", "run/state/mask", "run/state/v"]);
}

#[test]
fn steps_are_appended_to_all_arrays_alike() {
    let (place, arrays) = (Place::store(2, 1, 8192), state());
    write_folder(&place, &arrays, 2, true, 0..2).into_iter().for_each(|r| r.unwrap());
    write_folder(&place, &arrays, 3, true, 2..5).into_iter().for_each(|r| r.unwrap());
    read_folder(&place, &arrays, "...", 2, 0..5);
    // None of them may be left out, but what is constant; of a folder of one step nobody knows what that is.
    for written in [2, 1] {
        let name = format!("run/left out {written}");
        let append = |arrays: &[Array], stepped: bool| {
            let mut options = options(0, 1);
            options.stepped = stepped;
            let mut out = FolderWriter::open(&place.0, &name, arrays, true, &options)?;
            let parts: Vec<Vec<u8>> =
                arrays.iter().map(|array| part(&array.dataset, &array.layout, 0, 1, 0)).collect();
            out.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            out.close()
        };
        for step in 0..written {
            append(&arrays, step > 0).unwrap();
        }
        let refused = append(&arrays[1..], true).unwrap_err().to_string();
        assert!(refused.contains("does not come with the steps that are appended"), "{refused}");
    }
    // One has gone further by itself.
    let (n, u) = (0, &arrays[0]);
    write(&place.0, "run/state/u", &u.dataset, &u.layout, 1, true, 5..6).into_iter().for_each(|r| r.unwrap());
    let refused = write_folder(&place, &arrays, 1, true, 5..6).remove(n).unwrap_err().to_string();
    assert!(
        refused.contains("the number of steps of \"run/state/mask\"") && refused.contains("is 5"),
        "{refused}"
    );
    // Of those that differ, the others can be read.
    let found = folder::find(&place.0, "run/state", &options(0, 1)).unwrap();
    assert_eq!(found.steps(), 6);
    let mask = found.arrays().iter().find(|array| array.name() == "mask").unwrap();
    let said = mask.dataset().unwrap_err().to_string();
    assert!(said.contains("the number of steps of \"mask\" is 5; expected 6"), "{said}");
}

#[test]
fn units_that_write_other_numbers_of_steps_leave_nothing() {
    let (place, arrays) = (Place::store(2, 1, 8192), state());
    let written = each(2, |unit| {
        let mut out = FolderWriter::open(&place.0, "f", &arrays, false, &options(unit, 2)).unwrap();
        let parts: Vec<Vec<u8>> =
            arrays.iter().map(|array| part(&array.dataset, &array.layout, unit, 2, 0)).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        out.write_arrays(&parts)?;
        if unit == 1 {
            out.write_arrays(&parts)?;
        }
        out.close().map(|_| ())
    });
    assert!(written.iter().all(Result::is_err), "{written:?}");
    assert!(Store::open(&place.0).unwrap().datasets().unwrap().is_empty());
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place::store(1, 0, 4096);
    let open = |arrays: &[Array]| {
        FolderWriter::open(&place.0, "f", arrays, false, &options(0, 1)).err().expect("it opens").to_string()
    };
    let u = |name: &str| array(name, &[4], ElemType::U8, "*");
    let said = open(&[u("a/b"), u("a")]);
    assert!(said.contains("array \"a/b\" is in \"a\", which is an array itself"), "{said}");
    assert!(open(&[]).contains("at least one array"));
    assert!(open(&[u("a"), u("a")]).contains("\"a\""));
    let grows = Array { open: Some(Changes::Dim(0)), ..u("a") };
    let append = FolderWriter::open(&place.0, "f", &[grows], true, &options(0, 1)).err().unwrap().to_string();
    assert!(append.contains("whose size changes, to be appended to"), "{append}");
    for name in ["..", "a/../b", ""] {
        assert!(!open(&[u(name)]).is_empty());
    }
    // A dataset has the folder's name.
    write(&place.0, "f", &u("f").dataset, "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
    assert!(open(&[u("a")]).contains("the dataset \"f\" is there already"));
    let found = folder::find(&place.0, "g", &options(0, 1)).err();
    assert!(matches!(found, Some(StoreError::NotThere { .. })), "{found:?}");
    // Units that disagree.
    let other = each(2, |unit| {
        let arrays = [u("a"), u(if unit == 0 { "b" } else { "c" })];
        FolderWriter::open(&place.0, "g", &arrays, false, &options(unit, 2)).err().unwrap().to_string()
    });
    assert!(other[0].contains("name of an array"), "{other:?}");
}
