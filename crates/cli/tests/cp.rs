//! `cp` between files, and `run` with files at its ends.

mod common;
use common::*;
use std::process::Stdio;

const CP: &str = env!("CARGO_BIN_EXE_polyduct");

fn floats(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

#[test]
fn raw_to_npy_and_back_by_several_units() {
    let dir = Scratch::new("cp");
    let data = floats(30 * 40);
    let raw = dir.write("a.raw", &data);
    let (npy, back) = (dir.path("a.npy"), dir.path("b.raw"));
    for layout in ["stripe(1KiB)", "block,*", "*,cyclic(3)", "block,block@2x2;order=F"] {
        let forth = ["cp", &raw, &npy, "--shape", "30x40", "--dtype", "f4", "--units", "4", "--verify"];
        let o = output(&[&forth[..], &["--layout", layout]].concat());
        assert_eq!(o.status.code(), Some(0), "{layout}: {}", text(&o.stderr));
        assert!(text(&o.stderr).starts_with("4.80 kB in 1 step") && text(&o.stderr).ends_with("verified\n"));
        assert!(std::fs::read(&npy).unwrap().starts_with(b"\x93NUMPY"));
        let o = output(&["cp", "-q", &npy, &back, "--units", "3"]);
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
        assert_eq!(std::fs::read(&back).unwrap(), data, "{layout}");
        std::fs::remove_file(&npy).unwrap();
        std::fs::remove_file(&back).unwrap();
    }
}

#[test]
fn bytes_that_are_called_text_are_text() {
    let dir = Scratch::new("cp-dtype");
    let (raw, npy) = (dir.write("x.raw", b"abcdef"), dir.path("x.npy"));
    for (dtype, descr) in [("S2", "'|S2'"), ("V2", "'|V2'"), ("u2", "'<u2'")] {
        let o = output(&["cp", &raw, &npy, "--shape", "3", "--dtype", dtype]);
        assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
        assert!(text(&std::fs::read(&npy).unwrap()).contains(descr), "{dtype}");
    }
}

#[test]
fn what_numpy_takes_elements_for_and_a_single_step_in_front_stay() {
    let dir = Scratch::new("cp-descr");
    let s = dir.path("s");
    assert!(output(&["store", "create", &s, "--units", "2", "--parity", "1"]).status.success());
    let fields = "[('a', '<f4'), ('b', '|S4', (2,))]";
    for (descr, shape, layout, len) in [
        ("'|S2'", "(3, 4)", "stripe(4MiB)", 24),
        (fields, "(3,)", "block", 36),
        ("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 1, 3)", "stripe(4MiB)", 12),
        ("'<f4'", "(2, 1, 1, 1, 1, 1, 1, 1, 3)", "stripe(4MiB)", 24),
        ("'|S4'", "(1, 3, 2)", "block,*", 24),
    ] {
        let data: Vec<u8> = (0..len).collect();
        let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.bytes().chain(data.iter().copied()));
        let from = dir.write("from.npy", file);
        let (zarr, stored, to) = (dir.path("x.zarr"), format!("store:{s}/x"), dir.path("to.npy"));
        let mut way = vec![from.as_str(), stored.as_str(), to.as_str()];
        if descr == "'<f4'" {
            // It has no place for what is not one of its types.
            way.insert(1, &zarr);
        }
        for pair in way.windows(2) {
            let o = output(&["cp", pair[0], pair[1], "--units", "2", "--layout", layout, "--verify"]);
            assert_eq!(o.status.code(), Some(0), "{shape} {pair:?}: {}", text(&o.stderr));
        }
        let copy = std::fs::read(&to).unwrap();
        assert!(copy[10..].starts_with(header.as_bytes()), "{header} became {}", copy[10..].escape_ascii());
        assert!(copy.ends_with(&data), "{header}");
        let o = output(&["cp", "-q", &from, &zarr]);
        let says = format!("{zarr} cannot store NumPy's type of {from}, {descr}: its bytes are copied\n");
        assert_eq!(text(&o.stderr).ends_with(&says), descr != "'<f4'", "{}", text(&o.stderr));
        std::fs::remove_dir_all(&zarr).unwrap();
    }
}

#[test]
fn what_cannot_be_copied_leaves_no_file() {
    let dir = Scratch::new("cp-errors");
    let raw = dir.write("a.raw", floats(7));
    let out = dir.path("out.npy");
    for (args, blames) in [
        (&["cp", &raw, &out][..], &raw[..]),
        (&["cp", &raw, &out, "--shape", "3x5", "--dtype", "f4"], &raw),
        (&["cp", "/nowhere/a.npy", &out], "/nowhere/a.npy"),
        (&["cp", &raw, &out, "--shape", "7", "--dtype", "f4", "--layout", "blok"], "--layout"),
        (&["cp", &raw, &out, "--shape", "7", "--dtype", "f4", "--layout", "block,*"], "--layout"),
        (&["cp", &raw, "/nowhere/out.npy", "--shape", "7", "--dtype", "f4"], "/nowhere/out.npy"),
        (&["cp", &raw, "pipe:a b", "--shape", "7", "--dtype", "f4"], "pipe:a b"),
    ] {
        let o = output(args);
        let error = text(&o.stderr);
        assert!(
            matches!(o.status.code(), Some(1 | 2)) && error.starts_with("polyduct: "),
            "{args:?}: {error}"
        );
        assert!(error["polyduct: ".len()..].starts_with(blames), "{args:?}: {error}");
        for name in [&raw, "/nowhere/a.npy", "/nowhere/out.npy"] {
            assert!(error.matches(name).count() <= 1, "named twice: {error}");
        }
        assert!(!std::path::Path::new(&out).exists(), "{args:?}");
    }
    let o = output(&["cp", &raw, &out, "--shape", "7", "--dtype", "f4", "--layout", "block,blok"]);
    assert!(o.status.code() == Some(2) && text(&o.stderr).ends_with("\n  block,blok\n        ^\n"));
    assert_eq!(output(&["cp", "--verify", "pipe:x", &out]).status.code(), Some(2));
}

#[test]
fn threads_that_the_system_refuses_are_an_error_where_they_are_needed() {
    let dir = Scratch::new("cp-threads");
    let (raw, out) = (dir.write("a.raw", floats(7)), dir.path("out.npy"));
    let refused = |args: &[&str]| {
        // No machine has memory for such stacks.
        let mut command = polyduct(args);
        command.env("RUST_MIN_STACK", (1u64 << 56).to_string());
        let o = watched(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        (o.status.code(), text(&o.stderr))
    };
    let copy = |units| refused(&["cp", &raw, &out, "--shape", "7", "--dtype", "f4", "--units", units]);
    let (status, error) = copy("2");
    assert_eq!(status, Some(1), "{error}");
    assert!(error.starts_with("polyduct: cannot start a thread for each unit: "), "{error}");
    assert!(!std::path::Path::new(&out).exists());
    let (status, error) = copy("1");
    assert!(status == Some(0) && error.starts_with("28 B in 1 step"), "{error}");
    let (status, error) = refused(&["run", "true"]);
    assert!(
        status == Some(1) && error.starts_with("polyduct: cannot print what the processes write: "),
        "{error}"
    );
}

#[test]
fn a_run_reads_and_writes_files() {
    let dir = Scratch::new("cp-run");
    let data = floats(12 * 10);
    let raw = dir.write("a.raw", &data);
    let (npy, out) = (dir.path("a.npy"), dir.path("out.raw"));
    assert!(output(&["cp", "-q", &raw, &npy, "--shape", "12x10", "--dtype", "f4"]).status.success());
    let o =
        output(&["run", "--stats", &format!("< {npy} -n 1 {CP} cp -q - - | -n 1 {CP} cp -q - - > {out}")]);
    let table = text(&o.stderr);
    assert_eq!(o.status.code(), Some(0), "{table}");
    assert_eq!(std::fs::read(&out).unwrap(), data);
    for row in ["stage 0 → stage 1".to_owned(), format!("{npy} → stage 0"), format!("stage 1 → {out}")]
    {
        assert!(table.contains(&row), "{table}");
    }
}

#[test]
fn a_file_limit_is_named() {
    let dir = Scratch::new("cp-limit");
    let raw = dir.write("a.raw", vec![7; 1 << 20]);
    let out = dir.path("out.npy");
    // The limit counts blocks of 512 bytes or 1 KiB, by the shell.
    let limited = |command: &str| {
        let command = format!("ulimit -f 64; exec {CP} {command}");
        let mut shell = std::process::Command::new("env");
        shell.args(["--default-signal", "sh", "-c", &command]).stdin(Stdio::null());
        watched(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let o = limited(&format!("cp -q {raw} {out} --shape 1048576 --dtype u1"));
    let error = text(&o.stderr);
    assert_eq!(o.status.code(), Some(1), "{:?} {error}", o.status);
    assert!(error.starts_with("polyduct: ") && error.contains("File too large"), "{error}");
    assert!(!std::path::Path::new(&out).exists());
    // Programs of a run have the limit, and die of it, as anywhere.
    let o = limited("run 'grep -e SigIgn -e SigCgt /proc/self/status'");
    let sets: Vec<u64> = text(&o.stdout)
        .lines()
        .map(|l| u64::from_str_radix(l.split_whitespace().last().unwrap(), 16).unwrap())
        .collect();
    let xfsz = 1 << (signal_hook::consts::SIGXFSZ - 1);
    assert!(sets.len() == 2 && sets.iter().all(|set| set & xfsz == 0), "{sets:x?}");
}

#[test]
fn through_every_form_and_back() {
    let dir = Scratch::new("cp-forms");
    let raw = dir.write("a.raw", floats(30 * 40 * 3));
    let path = |name: &str| dir.path(name);
    let copy = |args: &[&str]| {
        let o = output(&[&["cp", "-q", "--verify"], args].concat());
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{args:?}");
    };
    // One step, and several: the first dimension of what has one more than the layout.
    for (steps, layout) in [(1, "*,block,cyclic(3)@2x2"), (30, "block,cyclic(3)@2x2")] {
        let (first, last) = (path("first.npy"), path("last.npy"));
        copy(&[&raw, &first, "--shape", "30x40x3", "--dtype", "f4"]);
        let tensor = path("a.safetensors#x/y");
        copy(&[&first, &tensor, "--units", "4", "--layout", layout]);
        copy(&[&path("a.safetensors"), &path("a.zarr"), "--units", "4", "--layout", layout]);
        copy(&[&path("a.zarr/"), &last, "--units", "3"]);
        let (first, last) = (std::fs::read(&first).unwrap(), std::fs::read(&last).unwrap());
        assert!(first == last, "{steps} steps");
        // What was there is replaced.
        assert_eq!(std::fs::read_dir(dir.path("")).unwrap().count(), 5);
    }
    let o = output(&["cp", &path("a.safetensors#z"), &path("out.npy")]);
    let error = text(&o.stderr);
    assert!(o.status.code() == Some(1) && error.contains("no tensor \"z\"; it has x/y"), "{error}");
}

#[test]
fn one_tensor_of_a_file_is_replaced_and_the_others_stay() {
    let dir = Scratch::new("cp-tensors");
    let (raw, model, back) = (dir.write("a.raw", floats(12)), dir.path("m.safetensors"), dir.path("b.raw"));
    let copy = |args: &[&str]| {
        let o = output(&[&["cp", "-q"], args].concat());
        (o.status.code(), text(&o.stderr))
    };
    let done = (Some(0), String::new());
    for (name, shape, dtype) in [("a", "12", "f4"), ("b", "48", "u1"), ("c", "3x4", "f4"), ("b", "24", "u2")]
    {
        let to = format!("{model}#{name}");
        assert_eq!(copy(&["--shape", shape, "--dtype", dtype, "--units", "3", "--verify", &raw, &to]), done);
    }
    for name in ["a", "b", "c"] {
        assert_eq!(copy(&[&format!("{model}#{name}"), &back]), done);
        assert_eq!(std::fs::read(&back).unwrap(), floats(12), "{name}");
    }
    let (status, error) = copy(&["--shape", "12", "--dtype", "f4", &raw, &model]);
    assert!(status == Some(1) && error.contains("it holds several tensors; name the one"), "{error}");
}

#[test]
fn a_run_reads_a_tensor_and_writes_an_array() {
    let dir = Scratch::new("run-forms");
    let data = floats(12 * 10);
    let raw = dir.write("a.raw", &data);
    let (tensor, array, back) = (dir.path("m.safetensors#w"), dir.path("x.zarr"), dir.path("b.raw"));
    assert!(output(&["cp", "-q", &raw, &tensor, "--shape", "12x10", "--dtype", "f4"]).status.success());
    for _ in 0..2 {
        let o = output(&["run", &format!("< '{tensor}' -n 1 {CP} cp -q - - > {array}")]);
        assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
        assert!(output(&["cp", "-q", &array, &back]).status.success());
        assert_eq!(std::fs::read(&back).unwrap(), data);
    }
    let o = output(&["run", &format!("< {array} cat")]);
    assert!(o.status.code() != Some(0) && text(&o.stderr).contains("is a directory"), "{}", text(&o.stderr));
}

/// Runs the command with so many KiB of memory to name. Each thread that allocates would name 64 MiB of it for
/// itself, or not, as it comes to pass.
fn in_memory(kib: u64, command: &str) -> std::process::Output {
    let mut shell = std::process::Command::new("env");
    let command = format!("ulimit -v {kib}; exec {CP} {command}");
    shell.env("MALLOC_ARENA_MAX", "1").args(["--default-signal", "sh", "-c", &command]).stdin(Stdio::null());
    watched(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// A `.npy` file of one step with a hole for most of it, and marks at both ends.
fn large(dir: &Scratch, mib: u64, fortran: &str) -> String {
    use std::os::unix::fs::FileExt;
    let header = format!("{{'descr': '<f4', 'fortran_order': {fortran}, 'shape': ({mib}, 512, 512), }}");
    let mut start = b"\x93NUMPY\x01\x00".to_vec();
    start.extend((header.len() as u16).to_le_bytes());
    start.extend(header.bytes());
    let data_at = start.len() as u64;
    start.extend(floats(1000));
    let path = dir.write("large.npy", start);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(data_at + (mib << 20)).unwrap();
    file.write_all_at(&floats(1000), data_at + (mib << 20) - 4000).unwrap();
    path
}

#[test]
fn a_step_is_copied_without_memory_for_it() {
    let dir = Scratch::new("cp-memory");
    let from = large(&dir, 160, "False");
    let (raw, zarr) = (dir.path("to.raw"), dir.path("to.zarr"));
    let done = |o: std::process::Output, what: &str| {
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{what}");
        o.stdout
    };
    for to in [&raw, &zarr] {
        done(in_memory(130_000, &format!("cp -q {from} {to}")), to);
    }
    done(in_memory(130_000, &format!("cp -q --verify {from} {raw}")), "--verify");
    let copied = std::fs::read(&raw).unwrap();
    assert!(copied.len() == 160 << 20 && copied == std::fs::read(&from).unwrap()[copied_at(&from)..]);
    for of in [&from, &zarr] {
        assert!(done(in_memory(130_000, &format!("cat {of}")), of) == copied, "{of}");
    }
}

#[test]
fn what_goes_into_a_store_is_copied_without_memory_for_it() {
    let dir = Scratch::new("cp-store-memory");
    let from = large(&dir, 160, "False");
    let stores = ["a", "b"].map(|name| dir.path(name));
    for store in &stores {
        assert!(output(&["store", "create", store, "--units", "3", "--parity", "1"]).status.success());
    }
    let [first, second] = stores.map(|store| format!("store:{store}/x"));
    let (raw, zarr) = (dir.path("to.raw"), dir.path("to.zarr"));
    for way in [[&from, &first], [&first, &second], [&second, &raw], [&second, &zarr]] {
        let o = in_memory(130_000, &format!("cp -q {} {}", way[0], way[1]));
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{way:?}");
    }
    let copied = std::fs::read(&raw).unwrap();
    assert!(copied == std::fs::read(&from).unwrap()[copied_at(&from)..]);
    // Chunks that do not meet the rows of the store, by several units, with as many as a few bytes at the
    // end.
    let odd = dir.write("odd.raw", floats(3 * 1111 * 1013));
    let parts: [&[&str]; 4] = [
        &[&odd, &zarr, "--shape", "3x1111x1013", "--dtype", "f4"],
        &[&zarr, &first, "--units", "3"],
        &[&first, &second, "--units", "2"],
        &[&second, &raw],
    ];
    for args in parts {
        let o = output(&[&["cp", "-q", "--verify"], args].concat());
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{args:?}");
    }
    assert!(std::fs::read(&raw).unwrap() == std::fs::read(&odd).unwrap());
}

#[test]
fn memory_for_rows_and_chunks_that_is_not_there_is_an_error() {
    let dir = Scratch::new("cp-no-room");
    let from = large(&dir, 160, "False");
    let (wide, s) = (dir.path("wide"), dir.path("s"));
    let create = |store: &str, stripe: &str| {
        let o = output(&["store", "create", store, "--units", "2", "--parity", "1", "--stripe", stripe]);
        assert!(o.status.success(), "{}", text(&o.stderr));
    };
    create(&wide, "256MiB");
    create(&s, "64KiB");
    let (wide, s) = (format!("store:{wide}/x"), format!("store:{s}/x"));
    // One row is more than there is memory for: as it lies in the step, and gathered.
    let chunk = dir.path("chunk.zarr");
    std::fs::create_dir(&chunk).unwrap();
    let codec = r#"{"name": "gzip", "configuration": {"level": 1}}"#;
    let document = format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [160, 1048576], "data_type": "uint8",
        "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [160, 1048576]}}}},
        "chunk_key_encoding": {{"name": "default", "configuration": {{"separator": "."}}}}, "fill_value": 0,
        "codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}, {codec}]}}"#
    );
    std::fs::write(format!("{chunk}/zarr.json"), document).unwrap();
    let zip = format!("head -c $((160<<20)) /dev/zero | gzip -1 > {chunk}/c.0.0");
    assert!(std::process::Command::new("sh").args(["-c", &zip]).status().unwrap().success());
    for (command, words) in [
        (format!("cp -q {from} {wide}"), "no memory for"),
        (format!("cp -q {from} {wide} --layout 'block,*,*;order=F'"), "no memory for"),
        (format!("cp -q {chunk} {s} --layout 'block,*'"), "memory"),
        (format!("cp -q {chunk} {} --layout 'block,*;order=F'", dir.path("x.raw")), "memory"),
    ] {
        let o = in_memory(130_000, &command);
        let error = text(&o.stderr);
        assert_eq!(o.status.code(), Some(1), "{command}: {:?} {error}", o.status);
        assert!(error.starts_with("polyduct: ") && error.contains(words), "{error}");
    }
    // With the memory it takes, each of them works.
    let o = output(&["cp", "-q", &chunk, &s, "--layout", "block,*", "--verify"]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
}

/// Where the data begin in a file that [`large`] made.
fn copied_at(path: &str) -> usize {
    use std::io::Read;
    let mut start = [0; 10];
    std::fs::File::open(path).unwrap().read_exact(&mut start).unwrap();
    10 + usize::from(u16::from_le_bytes([start[8], start[9]]))
}

#[test]
fn what_needs_memory_that_is_not_there_is_an_error() {
    let dir = Scratch::new("cp-no-memory");
    let from = large(&dir, 160, "True");
    let to = dir.path("to.raw");
    for command in [format!("cp -q {from} {to}"), format!("cat {from}")] {
        let o = in_memory(130_000, &command);
        let error = text(&o.stderr);
        assert_eq!(o.status.code(), Some(1), "{command}: {:?} {error}", o.status);
        assert!(error.contains("large.npy: the system gives no memory for 167772160 bytes"), "{error}");
    }
    assert!(!std::path::Path::new(&to).exists());
}

#[test]
fn a_directory_as_target_gets_a_file_of_the_same_name() {
    let dir = Scratch::new("cp-directory");
    let (raw, into) = (dir.write("a.raw", floats(6)), dir.path("into"));
    std::fs::create_dir(&into).unwrap();
    let o = output(&["cp", "-q", &raw, &into, "--shape", "6", "--dtype", "f4"]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
    assert_eq!(std::fs::read(dir.path("into/a.raw")).unwrap(), floats(6));
}

#[test]
fn elements_are_converted_where_the_source_tells_what_they_are() {
    let dir = Scratch::new("cp-convert");
    let (raw, npy, wide) = (dir.write("a.raw", floats(6)), dir.path("a.npy"), dir.path("wide.npy"));
    let done = |args: &[&str]| {
        let o = output(args);
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{args:?}");
        o.stdout
    };
    done(&["cp", "-q", &raw, &npy, "--shape", "6", "--dtype", "f4"]);
    done(&["cp", "-q", "--verify", "--units", "3", &npy, &wide, "--convert", "--dtype", "f8"]);
    done(&["cp", "-q", "--verify", &npy, &wide, "--convert", "--dtype", "f8"]);
    let narrow = floats(6);
    let narrow = narrow.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let expected: Vec<u8> = narrow.flat_map(|x| f64::from(x).to_le_bytes()).collect();
    assert!(done(&["cat", &wide]) == expected);
    for (args, words) in [
        (vec!["cp", &raw, &wide, "--convert", "--dtype", "f8", "--shape", "6"], "tells its element type"),
        (vec!["cp", &npy, &wide, "--convert"], "--dtype"),
    ] {
        let o = output(&args);
        assert!(o.status.code() == Some(2) && text(&o.stderr).contains(words), "{}", text(&o.stderr));
    }
}

#[test]
fn arrays_are_compressed_in_chunks_of_any_shape() {
    let dir = Scratch::new("cp-compress");
    let raw = dir.write("a.raw", floats(3 * 70 * 90));
    let told = ["--shape", "3x70x90", "--dtype", "f4"];
    let done = |args: &[&str]| {
        let o = output(&[&["cp", "-q"], args].concat());
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{args:?}");
    };
    let zarr = dir.path("x.zarr");
    for (compress, chunks) in
        [("zstd", "1x32x32"), ("gzip:9", "3x70x7"), ("blosc", "2x1x90"), ("none", "2x33x44")]
    {
        for units in ["1", "4"] {
            let back = dir.path("back.raw");
            done(
                &[
                    &[raw.as_str(), &zarr, "--compress", compress, "--chunks", chunks, "--units", units][..],
                    &told,
                ]
                .concat(),
            );
            let document = std::fs::read(format!("{zarr}/zarr.json")).unwrap();
            let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
            let shape: Vec<u64> = chunks.split('x').map(|n| n.parse().unwrap()).collect();
            assert_eq!(document["chunk_grid"]["configuration"]["chunk_shape"], serde_json::json!(shape));
            let name = compress.split(':').next().unwrap();
            let last = document["codecs"].as_array().unwrap().last().unwrap();
            assert_eq!(last["name"], if name == "none" { "bytes" } else { name });
            done(&[&zarr, &back, "--units", "3"]);
            assert!(std::fs::read(&back).unwrap() == std::fs::read(&raw).unwrap(), "{compress} {units}");
        }
    }
    let npy = dir.path("out.npy");
    for (args, words) in [
        ([&zarr, &npy, "--compress", "zstd"], "out.npy: compress"),
        ([&zarr, &npy, "--chunks", "1x2x3"], "out.npy: chunks"),
        ([&zarr, "-", "--compress", "gzip"], "cannot store what --compress gives"),
        ([&raw, &zarr, "--compress", "lz5"], "expected none, zstd, gzip"),
        ([&npy, &zarr, "--chunks", "1x0"], "chunks"),
    ] as [([&str; 4], &str); 5]
    {
        let args = if args[0] == npy { [&raw, args[1], args[2], args[3]] } else { args };
        let o = output(&[&["cp"][..], &args, if args[0] == raw { &told[..] } else { &[] }].concat());
        assert!(
            o.status.code() == Some(2) && text(&o.stderr).contains(words),
            "{args:?} {}",
            text(&o.stderr)
        );
    }
    assert!(!std::path::Path::new(&npy).exists());
}

#[test]
fn attributes_and_names_of_dimensions_are_written_where_there_is_a_place() {
    let dir = Scratch::new("cp-attrs");
    let raw = dir.write("a.raw", floats(24));
    let (zarr, again, s) = (dir.path("x.zarr"), dir.path("y.zarr"), dir.path("s"));
    let done = |args: &[&str]| {
        let o = output(&[&["cp", "-q"], args].concat());
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{args:?}");
    };
    let told = ["--shape", "2x3x4", "--dtype", "f4", "--dims", "time,y,x"];
    let attrs = r#"{"units": "K", "level": 3}"#;
    done(&[&[raw.as_str(), &zarr, "--units", "2", "--attrs", attrs][..], &told].concat());
    let document = |path: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(format!("{path}/zarr.json")).unwrap()).unwrap()
    };
    let found = document(&zarr);
    assert_eq!(found["dimension_names"], serde_json::json!(["time", "y", "x"]));
    assert_eq!(found["attributes"], serde_json::from_str::<serde_json::Value>(attrs).unwrap());
    // What the source says stays, but for what is said anew; a store keeps attributes, too.
    let more = format!("@{}", dir.write("more.json", r#"{"level": 4, "by": ["me"]}"#));
    assert!(output(&["store", "create", &s, "--units", "2", "--parity", "1"]).status.success());
    let stored = format!("store:{s}/x");
    let o = output(&["cp", "-q", &zarr, &stored, "--attrs", &more]);
    let says = format!("{stored} cannot store the names of the dimensions of {zarr}: they are not copied\n");
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), format!("polyduct: {says}")));
    done(&[&stored, &again, "--dims", ",y,x"]);
    let found = document(&again);
    let all = r#"{"units": "K", "level": 4, "by": ["me"]}"#;
    assert_eq!(found["attributes"], serde_json::from_str::<serde_json::Value>(all).unwrap());
    assert_eq!(found["dimension_names"], serde_json::json!([null, "y", "x"]));
    let (out, npy) = (dir.path("out.zarr"), dir.path("out.npy"));
    for (args, words) in [
        (vec![zarr.as_str(), &npy, "--attrs", "{}"], "out.npy cannot store what --attrs gives"),
        (vec![&zarr, &npy, "--dims", "time,y,x"], "out.npy cannot store what --dims gives"),
        (vec![&zarr, "-", "--attrs", "{}"], "cannot store what --attrs gives"),
        (vec![&zarr, &stored, "--dims", "time,y,x"], "x cannot store what --dims gives"),
        (vec![&zarr, &out, "--dims", "y,x"], "--dims: 2 names; "),
        (vec![&zarr, &out, "--attrs", "[3]"], "expected a JSON object"),
        (vec![&zarr, &out, "--attrs", "@/nowhere"], "/nowhere: No such file"),
    ] {
        let o = output(&[&["cp"][..], &args].concat());
        assert!(o.status.code() == Some(2) && text(&o.stderr).contains(words), "{}", text(&o.stderr));
        for name in [&out, &npy] {
            assert!(!std::path::Path::new(name).exists(), "{args:?}");
        }
    }
}

#[test]
fn cat_takes_what_a_raw_file_does_not_tell() {
    let dir = Scratch::new("cat-raw");
    let raw = dir.write("a.raw", floats(6));
    let o = output(&["cat", &raw]);
    assert!(o.status.code() == Some(1) && text(&o.stderr).contains("shape"), "{}", text(&o.stderr));
    let o = output(&["cat", &raw, "--shape", "2x3", "--dtype", "f4"]);
    assert!(o.status.success() && o.stdout == floats(6), "{}", text(&o.stderr));
}

#[test]
fn shells_and_man_learn_of_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let o = output(&["completions", shell]);
        let script = text(&o.stdout);
        assert!(o.status.success() && script.contains("scrub") && script.contains("layout"), "{shell}");
    }
    let dir = Scratch::new("man");
    let pages = dir.path("man1");
    assert!(output(&["man", &pages]).status.success());
    let page = std::fs::read_to_string(dir.path("man1/polyduct-cp.1")).unwrap();
    assert!(page.contains("NumPy") && page.contains("verify"), "{page}");
    assert!(!output(&["man", &dir.write("file", b"")]).status.success());
}
