//! `cp` and `ls` of several arrays with names.

mod common;
use common::*;
use polyduct::layout::{Dataset, ElemType};
use polyduct::store::file::Notes;
use polyduct::{open, values, Array, Changes, Rule};
use std::path::Path;

const STEPS: u64 = 3;

fn array(name: &str, shape: &[u64], elem: ElemType) -> Array {
    let dataset = Dataset::new(shape, elem).unwrap();
    Array { name: name.into(), dataset, layout: "...".into(), open: None }
}

fn arrays() -> Vec<Array> {
    vec![
        array("encoder/w", &[300, 40], ElemType::F32),
        array("encoder/b", &[40], ElemType::F32),
        array("scale", &[], ElemType::F64),
        array("none", &[0, 4], ElemType::U8),
    ]
}

fn content(n: usize, step: u64, len: usize) -> Vec<u8> {
    // Numbers that bfloat16 has.
    (0..len / 4).map(|at| (((at * 7 + n) as u64 + step) % 128) as f32).flat_map(f32::to_le_bytes).collect()
}

fn write(path: &str, steps: u64) {
    let arrays = arrays();
    let mut out = open(path).unit(0).units(1).write_arrays(&arrays).unwrap();
    for step in 0..steps {
        let parts: Vec<Vec<u8>> = arrays
            .iter()
            .enumerate()
            .map(|(n, a)| content(n, step, a.dataset.len_bytes() as usize))
            .collect();
        let said = vec![("time".to_owned(), values::Value::from(step as f64))];
        out.set_values(&values::pack(said).unwrap()).unwrap();
        out.write_arrays(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    }
    out.close().unwrap();
}

/// The arrays that a file has, and what is in them in each step.
fn read(path: &str) -> Vec<Vec<(String, Vec<u8>)>> {
    let rule = Rule { pattern: "*".into(), layout: "...".into(), ..Rule::default() };
    let mut port = open(path).unit(0).units(1).read_arrays(&[rule]).unwrap();
    let mut memory = vec![0; port.local_len_bytes()];
    let mut steps = Vec::new();
    while let Some(step) = port.read(&mut memory).unwrap() {
        let said = values::unpack(port.values()).unwrap();
        assert_eq!(said, [("time".to_owned(), values::Value::from(step as f64))], "{path}");
        steps.push(port.arrays().iter().map(|a| (a.name.clone(), memory[a.at.clone()].to_vec())).collect());
    }
    steps
}

fn expected(steps: u64) -> Vec<Vec<(String, Vec<u8>)>> {
    let of = |step| {
        let one =
            |(n, a): (usize, &Array)| (a.name.clone(), content(n, step, a.dataset.len_bytes() as usize));
        let mut all: Vec<_> = arrays().iter().enumerate().map(one).collect();
        all.sort();
        all
    };
    (0..steps).map(of).collect()
}

fn copied(args: &[&str]) -> String {
    let o = output(&[&["cp"], args].concat());
    assert_eq!(o.status.code(), Some(0), "{args:?}: {}", text(&o.stderr));
    text(&o.stderr)
}

#[test]
fn sets_are_copied_between_all_forms() {
    let dir = Scratch::new("cp-sets");
    let first = dir.path("m.safetensors");
    write(&first, 1);
    let names = ["a.npz", "b.zarr", "c.safetensors.index.json", "d.zarr", "e.safetensors"];
    let mut from = first;
    for (n, name) in names.iter().enumerate() {
        let to = dir.path(name);
        let units = (n % 3 + 1).to_string();
        let mut args = vec![&from[..], &to, "--verify", "--units", &units];
        if *name == "d.zarr" {
            args.extend(["--compress", "zstd"]);
        }
        let said = copied(&args);
        assert!(said.contains("4 arrays in 1 step") && said.ends_with("verified\n"), "{said}");
        assert_eq!(read(&to), expected(1), "{to}");
        from = to;
    }
    // Into a directory, under the name that it had.
    std::fs::create_dir(dir.path("inner")).unwrap();
    copied(&[&from, &dir.path("inner")]);
    assert!(Path::new(&dir.path("inner/e.safetensors")).is_file());
}

#[test]
fn steps_go_from_group_to_group_and_nowhere_else() {
    let dir = Scratch::new("cp-set-steps");
    let (a, b, npz) = (dir.path("a.zarr"), dir.path("b.zarr"), dir.path("c.npz"));
    write(&a, STEPS);
    for extra in [&[][..], &["--compress", "zstd"]] {
        let said = copied(&[&[&a[..], &b, "--units", "2", "--verify"], extra].concat());
        assert!(said.contains("in 3 steps"), "{said}");
        assert_eq!(read(&b), expected(STEPS));
    }
    let o = output(&["cp", &a, &npz]);
    assert!(o.status.code() == Some(2) && text(&o.stderr).contains("a second one"), "{}", text(&o.stderr));
    assert!(!Path::new(&npz).exists());
}

#[test]
fn folders_of_stores_are_sets() {
    let dir = Scratch::new("cp-set-store");
    let (group, back, store) = (dir.path("a.zarr"), dir.path("b.zarr"), dir.path("s"));
    assert!(output(&["store", "create", &store, "--units", "3", "--parity", "1"]).status.success());
    write(&group, STEPS);
    let (first, second) = (format!("store:{store}/runs/first"), format!("store:{store}/runs/second"));
    for (from, to, units) in [(&group, &first, "2"), (&first, &second, "3"), (&second, &back, "2")] {
        let said = copied(&[from, to, "--units", units, "--verify"]);
        assert!(said.contains("4 arrays in 3 steps") && said.ends_with("verified\n"), "{said}");
        assert_eq!(read(to), expected(STEPS), "{to}");
    }
    // What is written here is read there, and one of its arrays alone.
    write(&first, 1);
    assert_eq!(read(&first), expected(1));
    let one = dir.path("one.npy");
    copied(&[&format!("{first}/encoder/w"), &one]);
    let said = text(&output(&["ls", &format!("store:{store}/runs")]).stdout);
    assert_eq!(said.lines().count(), 9, "{said}");
    // All of a store, but not in place of it.
    let said = copied(&[&format!("store:{store}"), &dir.path("all.zarr"), "--verify"]);
    assert!(said.contains("8 arrays in 3 steps"), "{said}");
    let o = output(&["cp", &group, &format!("store:{store}")]);
    assert!(
        o.status.code() == Some(1) && text(&o.stderr).contains("store:DIR/FOLDER"),
        "{}",
        text(&o.stderr)
    );
}

#[test]
fn some_are_copied_and_converted() {
    let dir = Scratch::new("cp-set-some");
    let (from, to) = (dir.path("m.npz"), dir.path("h.safetensors"));
    write(&from, 1);
    for units in ["1", "2"] {
        copied(&[
            &from,
            &to,
            "--layout",
            "encoder/*=block,...",
            "--convert",
            "--dtype",
            "bf16",
            "--units",
            units,
        ]);
        let o = output(&["ls", &to, "--json"]);
        let rows: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        let rows: Vec<_> = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|r| (r["name"].as_str().unwrap(), r["dtype"].as_str().unwrap()))
            .collect();
        assert_eq!(rows, [("encoder/b", "bf16"), ("encoder/w", "bf16")]);
        let back = dir.path("back.npz");
        copied(&[&to, &back, "--convert", "--dtype", "f4"]);
        assert_eq!(read(&back)[0][..], expected(1)[0][..2]);
    }
    for (args, status, why) in [
        (&["--layout", "decoder/*=..."][..], 1, "no array has a name"),
        (&["--layout", "*=blok"], 2, "--layout"),
        (&["--shape", "3"], 2, "several arrays; --shape is for one"),
    ] {
        let o = output(&[&["cp", &from, &dir.path("x.npz")], args].concat());
        assert!(o.status.code() == Some(status) && text(&o.stderr).contains(why), "{}", text(&o.stderr));
    }
    assert!(!Path::new(&dir.path("x.npz")).exists());
    let one = dir.path("one.npy");
    copied(&[&format!("{from}#encoder/w"), &one]);
    let o = output(&["cp", &one, &dir.path("y.npy"), "--layout", "a*=block"]);
    assert!(o.status.code() == Some(2) && text(&o.stderr).contains("without a name"), "{}", text(&o.stderr));
}

#[test]
fn two_bytes_of_numpy_are_bfloat16_where_that_is_asked_for() {
    let dir = Scratch::new("cp-set-bf16");
    let (from, to) = (dir.path("m.npz"), dir.path("m.safetensors"));
    let bytes: Vec<u8> = (0..24).collect();
    let arrays = [array("w", &[3, 4], ElemType::Bf16), array("n", &[2], ElemType::I32)];
    let mut out = open(&from).unit(0).units(1).write_arrays(&arrays).unwrap();
    out.write_arrays(&[&bytes, &[7; 8]]).unwrap();
    out.close().unwrap();
    copied(&[&from, &to, "--convert", "--dtype", "bf16", "--verify"]);
    let rule = Rule { pattern: "*".into(), layout: "...".into(), ..Rule::default() };
    let mut port = open(&to).unit(0).units(1).read_arrays(&[rule]).unwrap();
    let found: Vec<_> = port.arrays().iter().map(|a| (a.name.clone(), a.mapping.dataset().elem())).collect();
    assert_eq!(found, [("n".to_owned(), ElemType::I32), ("w".to_owned(), ElemType::Bf16)]);
    let mut memory = vec![0; port.local_len_bytes()];
    port.read(&mut memory).unwrap();
    assert_eq!(memory[port.arrays()[1].at.clone()], bytes);
}

#[test]
fn pipes_carry_sets() {
    let dir = Scratch::new("cp-set-pipe");
    let (a, b) = (dir.path("a.zarr"), dir.path("b.zarr"));
    write(&a, STEPS);
    let pipe = format!("pipe:sets-{}", std::process::id());
    let from = std::thread::spawn({
        let (a, pipe) = (a.clone(), pipe.clone());
        move || output(&["cp", &a, &pipe, "--units", "2"])
    });
    let listed = output(&["ls", &pipe]);
    let said = text(&listed.stdout);
    assert!(said.contains("encoder/w") && said.contains("300x40") && said.contains("LAYOUT"), "{said}");
    copied(&[&pipe, &b, "--units", "3"]);
    assert_eq!(from.join().unwrap().status.code(), Some(0));
    assert_eq!(read(&b), expected(STEPS));
}

#[test]
fn ls_lists_what_there_is() {
    let dir = Scratch::new("ls");
    let (group, npy, store) = (dir.path("g.zarr"), dir.path("x.npy"), dir.path("s"));
    write(&group, STEPS);
    copied(&[&format!("{group}/encoder/b"), &npy]);
    let said = text(&output(&["ls", &group]).stdout);
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "SHAPE", "DTYPE", "STEPS", "SIZE"]);
    assert_eq!(lines[2], ["encoder/w", "300x40", "f32", "3", "144", "kB"]);
    assert!(text(&output(&["ls", &npy]).stdout).contains("3x40"));
    assert!(output(&["store", "create", &store, "--units", "2", "--parity", "1"]).status.success());
    copied(&[&npy, &format!("store:{store}/runs/b")]);
    for (url, there) in [("", true), ("/runs", true), ("/runs/b", true), ("/other", false)] {
        let said = text(&output(&["ls", &format!("store:{store}{url}")]).stdout);
        assert_eq!(said.contains("runs/b"), there, "{url}: {said}");
    }
    let o = output(&["ls", &format!("store:{store}/nope"), "--json"]);
    assert!(!o.status.success() && text(&o.stdout).is_empty(), "{o:?}");
    assert!(text(&o.stderr).contains("\"nope\""), "{o:?}");
    let o = output(&["ls", &dir.path("gone.npz")]);
    assert!(o.status.code() == Some(1) && text(&o.stderr).contains("gone.npz"), "{}", text(&o.stderr));
}

/// Particles and a mesh, whose sizes change from step to step.
fn changing() -> Vec<Array> {
    let open = |array: Array, open| Array { open: Some(open), ..array };
    vec![
        open(array("particles/x", &[50, 3], ElemType::F32), Changes::Dim(0)),
        open(array("mesh", &[9, 4], ElemType::I16), Changes::Whole),
        array("u", &[7], ElemType::U8),
        open(array("grid", &[3], ElemType::F32), Changes::Never),
    ]
}

#[test]
fn steps_whose_size_changes_are_copied_with_where_each_begins() {
    let dir = Scratch::new("cp-ragged");
    let store = format!("{}/s", dir.path(""));
    assert_eq!(output(&["store", "create", &store, "--units", "3", "--parity", "1"]).status.code(), Some(0));
    let (arrays, first) = (changing(), dir.path("first.zarr"));
    let said: polyduct::store::Attributes = [("unit".to_owned(), "m".into())].into_iter().collect();
    let to = open(&first)
        .unit(0)
        .units(1)
        .note_array("particles/x", Notes { attributes: said.clone(), ..Notes::default() });
    let mut out = to.write_arrays(&arrays).unwrap();
    let sizes = [(31u64, [9u64, 4u64]), (0, [0, 4]), (50, [2, 1])];
    let bytes = |n: u64, seed: u64| (0..n).map(|at| (at * 7 + seed) as u8).collect::<Vec<u8>>();
    for (step, (n, mesh)) in (0..).zip(sizes) {
        out.bring(1, &mesh).unwrap();
        let said = vec![("time".to_owned(), values::Value::from(step as f64))];
        out.set_values(&values::pack(said).unwrap()).unwrap();
        let (x, m, u) = (bytes(n * 12, step), bytes(mesh[0] * mesh[1] * 2, step), bytes(7, step));
        out.write_arrays(&[&x, &m, &u, &bytes(12, 5)]).unwrap();
    }
    out.close().unwrap();
    let read = |path: &str| {
        let rule = Rule { pattern: "*".into(), layout: "...".into(), ..Rule::default() };
        let mut port = open(path).unit(0).units(1).read_arrays(&[rule]).unwrap();
        let mut steps = Vec::new();
        while port.peek().unwrap().is_some() {
            let mut memory = vec![0; port.local_len_bytes()];
            port.read(&mut memory).unwrap();
            let array = |of: &polyduct::ArrayPart| {
                (of.mapping.dataset().shape().to_vec(), memory[of.at.clone()].to_vec())
            };
            steps.push(port.arrays().iter().map(array).collect::<Vec<_>>());
        }
        steps
    };
    let expected = read(&first);
    for (step, (n, mesh)) in (0..).zip(sizes) {
        let of = &expected[step as usize];
        assert_eq!(of[0], (vec![3], bytes(12, 5)));
        assert_eq!(of[1], (mesh.to_vec(), bytes(mesh[0] * mesh[1] * 2, step)));
        assert_eq!(of[2], (vec![n, 3], bytes(n * 12, step)));
    }
    let (folder, again) = (format!("store:{store}/run"), dir.path("again.zarr"));
    copied(&[&first, &folder, "--units", "2", "--verify"]);
    copied(&[&folder, &again, "--units", "3", "--verify"]);
    assert_eq!((read(&folder), read(&again)), (expected.clone(), expected.clone()));
    for copy in [&folder, &again] {
        let each = open(copy).unit(0).units(1).each().unwrap();
        let (names, stepped): (Vec<_>, Vec<_>) =
            each.arrays().unwrap().into_iter().map(|(name, _, stepped)| (name, stepped)).unzip();
        assert_eq!(names, ["grid", "mesh", "particles/x", "u"]);
        assert_eq!(stepped, [false, false, false, true], "{copy}");
        let attributes = each.notes().nth(2).unwrap().attributes;
        assert_eq!(attributes.get("unit"), said.get("unit"), "{copy}");
        assert!(!attributes.contains_key("polyduct_begins"));
    }
    // One of them, as NumPy has it and saves one array behind the other.
    let x = dir.path("particles/x.npy");
    std::fs::create_dir(dir.path("particles")).unwrap();
    copied(&[&again, &x, "--layout", "particles/x=..."]);
    let all = std::fs::read(&x).unwrap();
    let data = [bytes(31 * 12, 0), bytes(50 * 12, 2)].concat();
    assert_eq!(all[128..128 + data.len()], data);
    let begins: Vec<u8> = [0i64, 31, 31, 81].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert!(all[128 + data.len()..].starts_with(b"\x93NUMPY") && all.ends_with(&begins));
    let copy = dir.path("copy.npy");
    copied(&[&x, &copy, "--units", "2"]);
    assert_eq!(std::fs::read(&copy).unwrap(), all);
    let listed = text(&output(&["ls", &again, "--json"]).stdout);
    assert!(listed.contains(r#""changes": "size""#) && listed.contains(r#""steps": 3"#), "{listed}");
    let listed = text(&output(&["ls", &folder]).stdout);
    assert!(
        listed.lines().any(|l| l.contains("run/particles/x") && l.contains("81x3") && l.contains(" 3 ")),
        "{listed}"
    );
    let o = output(&["cp", &x, &dir.path("x.npz")]);
    assert!(text(&o.stderr).contains("its size changes from step to step"), "{}", text(&o.stderr));
}

/// A new store, by its url.
fn store_in(dir: &Scratch) -> String {
    let store = format!("{}/s", dir.path(""));
    assert_eq!(output(&["store", "create", &store, "--units", "3", "--parity", "1"]).status.code(), Some(0));
    format!("store:{store}")
}

#[test]
fn what_is_written_down_of_files_and_groups_goes_where_there_is_a_place() {
    let dir = Scratch::new("cp-notes");
    let note = |key: &str, value: &str| Notes {
        attributes: [(key.to_owned(), value.into())].into_iter().collect(),
        ..Notes::default()
    };
    let write = |path: &str, steps: u64| {
        let to = open(path).unit(0).units(1).note_array("", note("who", "me"));
        let to = to.note_array("flow", note("solver", "v2")).note_array("flow/u", note("unit", "m/s"));
        let arrays = [array("flow/u", &[6], ElemType::U8), array("t", &[], ElemType::U8)];
        let mut out = to.write_arrays(&arrays).unwrap();
        for step in 0..steps {
            let said = vec![("time".to_owned(), values::Value::from(step))];
            out.set_values(&values::pack(said).unwrap()).unwrap();
            out.write_arrays(&[&[step as u8; 6], &[7]]).unwrap();
        }
        out.close().unwrap();
    };
    let groups = |path: &str| open(path).unit(0).units(1).each().unwrap().groups().clone();
    let whole = |path: &str| {
        let each = open(path).unit(0).units(1).each().unwrap();
        let mut said = each.said(0);
        said.extend(each.groups().get("").cloned().unwrap_or_default());
        serde_json::Value::from(said)
    };
    let (steps, again) = (dir.path("steps.zarr"), dir.path("again.zarr"));
    write(&steps, 3);
    copied(&[&steps, &again, "--verify"]);
    let expected =
        [("".to_owned(), note("who", "me").attributes), ("flow".to_owned(), note("solver", "v2").attributes)];
    assert_eq!(groups(&again), expected.into_iter().collect());
    let lost = output(&["cp", &steps, &format!("{}/run", store_in(&dir))]);
    assert_eq!(lost.status.code(), Some(0));
    let told = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert!(
        told.contains("cannot store attributes that") && told.contains("of the whole, \"flow\":"),
        "{told}"
    );

    let said = serde_json::json!({"time": 0, "who": "me"});
    let (one, set) = (dir.path("one.safetensors"), dir.path("set.safetensors.index.json"));
    write(&one, 1);
    assert_eq!(whole(&one), said);
    copied(&[&one, &set, "--verify"]);
    copied(&[&set, &again, "--verify"]);
    copied(&[&again, &one, "--verify"]);
    for path in [&set, &again, &one] {
        assert_eq!(whole(path), said, "{path}");
    }
    let index: serde_json::Value = serde_json::from_slice(&std::fs::read(&set).unwrap()).unwrap();
    assert_eq!(index["metadata"]["who"], "me");
}
