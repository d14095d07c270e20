//! The states in which a cut may leave the directories of a store that is being made: it can be made again
//! from each.
//!
//! The order that holds: marks in all units, durable, before anything else; then what units have, in any
//! order and torn anywhere; then the manifest of the store, durable; then the marks go.

use crate::rig::{check, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{Create, Store};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files beneath a directory, by path, with their content; directories end in `/`.
type Tree = BTreeMap<String, Vec<u8>>;

fn read(dir: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![PathBuf::new()];
    while let Some(inner) = left.pop() {
        for found in std::fs::read_dir(dir.join(&inner)).unwrap() {
            let path = inner.join(found.unwrap().file_name());
            let name = path.display().to_string();
            match dir.join(&path).is_dir() {
                true => {
                    tree.insert(name + "/", Vec::new());
                    left.push(path);
                }
                false => drop(tree.insert(name, std::fs::read(dir.join(&path)).unwrap())),
            }
        }
    }
    tree
}

fn lay(dir: &Path, tree: &Tree) {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
    for (path, bytes) in tree {
        match path.strip_suffix('/') {
            Some(inner) => std::fs::create_dir_all(dir.join(inner)).unwrap(),
            None => {
                std::fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
                std::fs::write(dir.join(path), bytes).unwrap();
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// What came of a file: nothing, its name, a part of it, all.
fn come(bytes: &[u8], how: usize) -> Option<Vec<u8>> {
    match how {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some(bytes[..bytes.len() / 2].to_vec()),
        _ => Some(bytes.to_vec()),
    }
}

#[test]
fn a_store_whose_making_was_cut_short_is_made_again() {
    const UNITS: usize = 2;
    let place = Place::new();
    let dir = place.0.join("s");
    let make = || {
        let units = (0..UNITS).map(|u| vec![format!("unit{u}").into()]).collect();
        Store::create(&dir, &Create { units, parity: 1, stripe: 4096 }).map(drop)
    };
    make().unwrap();
    let mark = std::fs::canonicalize(&dir).unwrap().display().to_string().into_bytes();
    let marks = || (0..UNITS).map(|u| (format!("unit{u}/making"), mark.clone()));
    // What is there just before the store's own manifest is; and what a manifest is called until it is whole.
    let mut whole = read(&dir);
    let manifest = whole.remove("store.toml").unwrap();
    for beside in ["lock", "log"] {
        whole.remove(beside);
    }
    whole.insert(".store.toml.1.7".into(), manifest.clone());
    for unit in 0..UNITS {
        whole.insert(format!("unit{unit}/.store.toml.1.{unit}"), manifest.clone());
    }
    let names: Vec<String> =
        whole.keys().filter(|name| !name.starts_with("unit") || name.len() > 6).cloned().collect();
    assert!(names.iter().any(|name| name == "served") && names.iter().any(|name| name == "unit1/superblock"));
    let mut states: Vec<Tree> = Vec::new();
    // While the marks are written.
    for state in 0..5_usize.pow(UNITS as u32) {
        let mut tree = Tree::new();
        for unit in 0..UNITS {
            match state / 5_usize.pow(unit as u32) % 5 {
                0 => {}
                how => {
                    tree.insert(format!("unit{unit}/"), Vec::new());
                    tree.extend(come(&mark, how - 1).map(|bytes| (format!("unit{unit}/making"), bytes)));
                }
            }
        }
        states.push(tree);
    }
    // Afterwards: each file by itself, and all of them by chance.
    for name in &names {
        for how in 0..3 {
            let mut tree = whole.clone();
            let bytes = tree.remove(name).unwrap();
            tree.extend(
                come(&bytes, how).filter(|_| !name.ends_with('/')).map(|bytes| (name.clone(), bytes)),
            );
            tree.extend(marks());
            states.push(tree);
        }
    }
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..200 {
        let mut tree: Tree = marks().collect();
        for name in &names {
            let how = random.below(4);
            let is_dir = name.ends_with('/');
            tree.extend(
                come(&whole[name], how).filter(|_| !is_dir || how == 3).map(|bytes| (name.clone(), bytes)),
            );
        }
        states.push(tree);
    }
    let dataset = Dataset::new(&[3, 1000], ElemType::U8).unwrap();
    for (n, tree) in states.iter().enumerate() {
        lay(&dir, tree);
        make().unwrap_or_else(|e| panic!("state {n}, {:?}: {e}", tree.keys()));
        let now = read(&dir);
        let left: Vec<&String> =
            now.keys().filter(|name| name.contains("making") || name.contains("/.")).collect();
        assert!(left.is_empty(), "state {n}: {left:?}");
        if n % 10 == 0 {
            write(&dir, "x", &dataset, "block,*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
            std::fs::rename(dir.join("unit1"), dir.join("away")).unwrap();
            check(&dir, "x", &dataset, "*,*", 1, 0..1).into_iter().for_each(|r| r.unwrap());
        }
    }
    // Once it has its manifest it is there, whichever marks are.
    for which in 0..1 << UNITS {
        let mut tree = whole.clone();
        tree.insert("store.toml".into(), manifest.clone());
        tree.extend(marks().enumerate().filter(|(unit, _)| which >> unit & 1 == 1).map(|(_, mark)| mark));
        lay(&dir, &tree);
        assert!(make().unwrap_err().to_string().contains("a store is there already"), "{which}");
        write(&dir, "x", &dataset, "block,*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
        check(&dir, "x", &dataset, "*,*", 1, 0..1).into_iter().for_each(|r| r.unwrap());
    }
}
