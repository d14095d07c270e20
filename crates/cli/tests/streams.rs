//! `cp` from and to ordinary streams: standard input and output, named pipes.

mod common;
use common::*;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const CP: &str = env!("CARGO_BIN_EXE_polyduct");

fn npy(descr: &str, shape: &str, fortran: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn floats(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

/// Runs `cp` with these bytes as its standard input.
fn fed(input: &[u8], args: &[&str]) -> Output {
    let mut command = polyduct(&[&["cp", "-q"], args].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    // A program that refuses the bytes need not read them.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = watched(child);
    writer.join().unwrap();
    output
}

fn done(o: Output) -> Vec<u8> {
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
    o.stdout
}

/// Runs a line of a shell in which `$cp` is `polyduct cp -q`.
fn shell(line: &str) -> Output {
    let mut shell = Command::new("env");
    let line = format!("cp='{CP} cp -q'; {line}");
    shell.args(["--default-signal", "bash", "-c", &line]).stdin(Stdio::null());
    watched(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn an_array_comes_and_goes_as_the_file_that_it_would_be() {
    let dir = Scratch::new("streams-npy");
    let (file, copy) = (dir.path("a.npy"), dir.path("b.npy"));
    let raw = dir.write("a.raw", floats(24));
    done(fed(b"", &[&raw, &file, "--shape", "2x3x4", "--dtype", "f4"]));
    let bytes = std::fs::read(&file).unwrap();
    for name in ["-", "/dev/stdout"] {
        assert!(done(fed(b"", &[&file, name])) == bytes, "{name}");
    }
    for name in ["-", "/dev/stdin"] {
        assert!(done(fed(&bytes, &[name, "-"])) == bytes, "{name}");
        done(fed(&bytes, &[name, &copy]));
        assert!(std::fs::read(&copy).unwrap() == bytes, "{name}");
        std::fs::remove_file(&copy).unwrap();
    }
    // A file as standard input is read from where it stands, and one as standard output written likewise.
    let stepped = "{ head -c 5 >&2; $cp /dev/stdin -; } 2> /dev/null";
    let o = shell(&format!("{{ printf 12345; cat {file}; }} > {copy}; {stepped} < {copy} > {copy}.2"));
    done(o);
    assert!(std::fs::read(format!("{copy}.2")).unwrap() == bytes);
}

#[test]
fn steps_that_are_counted_are_one_array_and_others_one_after_the_other() {
    let dir = Scratch::new("streams-steps");
    let one = npy("<f4", "(3, 4)", "False", &floats(12));
    let s = dir.path("s");
    assert!(output(&["store", "create", &s, "--units", "2", "--parity", "1"]).status.success());
    for to in [dir.path("x.npy"), format!("store:{s}/x"), dir.path("x.zarr")] {
        done(fed(&one.repeat(3), &["-", &to]));
        let array = done(fed(b"", &[&to, "-"]));
        assert!(
            text(&array).contains("'shape': (3, 3, 4)") && array.ends_with(&floats(12).repeat(3)),
            "{to}"
        );
    }
    let again = done(fed(&one.repeat(3), &["-", "-"]));
    let single = done(fed(&one, &["-", "-"]));
    assert!(again == single.repeat(3) && single.ends_with(&floats(12)));
}

#[test]
fn orders_of_indices_and_bytes_are_the_arrays_own() {
    let dir = Scratch::new("streams-orders");
    let turned: Vec<u8> = floats(12).chunks(4).flat_map(|v| v.iter().rev()).copied().collect();
    let columns: Vec<u8> = (0..12u32).flat_map(|i| ((i % 3 * 4 + i / 3) as f32).to_le_bytes()).collect();
    let (raw, file) = (dir.path("x.raw"), dir.path("f.npy"));
    for (descr, fortran, data) in
        [(">f4", "False", &turned), ("<f4", "True", &columns), ("<f4", "False", &floats(12))]
    {
        let array = npy(descr, "(3, 4)", fortran, data);
        done(fed(&array, &["-", &raw]));
        assert!(std::fs::read(&raw).unwrap() == floats(12), "{descr} {fortran}");
        done(fed(&done(fed(&array, &["-", "-"])), &["-", &raw]));
        assert!(std::fs::read(&raw).unwrap() == floats(12), "{descr} {fortran}");
        std::fs::write(&file, &array).unwrap();
        assert!(done(fed(b"", &[&file, "-"])).ends_with(&floats(12)), "{descr} {fortran}");
    }
    let texts = npy("|S2", "(2,)", "False", b"abcd");
    assert!(text(&done(fed(&texts, &["-", "-"]))).contains("'|S2'"));
}

#[test]
fn named_pipes_are_streams_under_a_name() {
    let dir = Scratch::new("streams-fifo");
    let raw = dir.write("a.raw", floats(12));
    let (fifo, plain, out) = (dir.path("p.npy"), dir.path("p.raw"), dir.path("out.raw"));
    for name in [&fifo, &plain] {
        assert!(Command::new("mkfifo").arg(name).status().unwrap().success());
    }
    let told = "--shape 3x4 --dtype f4";
    for line in [
        format!("$cp {raw} {fifo} {told} & $cp {fifo} {out} && wait $!"),
        format!("$cp {raw} {plain} {told} & cat {plain} > {out} && wait $!"),
        format!("cat {raw} > {plain} & $cp {plain} {out} {told} && wait $!"),
        format!("$cp <(cat {raw}) {out} {told}"),
        format!("$cp {raw} >($cp - {out}) {told}; wait $!"),
    ] {
        done(shell(&line));
        assert!(std::fs::read(&out).unwrap() == floats(12), "{line}");
        std::fs::remove_file(&out).unwrap();
    }
    // Nothing took the names over.
    let kind =
        |name: &str| std::os::unix::fs::FileTypeExt::is_fifo(&std::fs::metadata(name).unwrap().file_type());
    assert!(kind(&fifo) && kind(&plain));
    done(fed(b"", &[&raw, "/dev/null", "--shape", "3x4", "--dtype", "f4"]));
}

#[test]
fn plain_bytes_are_what_the_options_say() {
    let dir = Scratch::new("streams-raw");
    let (raw, file) = (dir.path("x.raw"), dir.path("x.npy"));
    let told = ["--shape", "2x3", "--dtype", "f4"];
    done(fed(&floats(12), &[&["-", &file][..], &told].concat()));
    let array = std::fs::read(&file).unwrap();
    assert!(text(&array).contains("'shape': (2, 2, 3)") && array.ends_with(&floats(12)));
    for (input, args, status, words) in [
        (&floats(6)[..], vec!["-", &raw], 2, "standard input: it is no .npy stream; plain bytes need"),
        (&[], vec!["-", &raw], 2, "standard input: it is no .npy stream"),
        (&floats(8)[..], [&["-", &raw][..], &told].concat(), 1, "ends within step 1: 8 of 24 bytes"),
        (&array[..99], vec!["-", &raw], 1, "standard input: .npy header: the header is cut short"),
        (&array[..array.len() - 1], vec!["-", &raw], 1, "ends within step 0: 47 of 48 bytes"),
        (&[&array[..], &array[..40]].concat(), vec!["-", &raw], 1, "cut short"),
        (&[&array[..], b"rubbish"].concat(), vec!["-", &raw], 1, "step 1 has another shape"),
        (
            &array[..],
            [&["-", &raw][..], &told].concat(),
            1,
            "standard input: it is 2x2x3 of f32, and not what",
        ),
        (&array[..], vec!["-", &raw, "--units", "2"], 2, "--units cannot be used with it"),
        (&array[..], vec!["-", &raw, "--layout", "block,*,*"], 2, "--layout cannot be used with it"),
        (&array[..], vec!["-", &raw, "--verify"], 2, "can be read only once"),
        (&array[..], vec!["-", &raw, "--convert", "--dtype", "f8"], 2, "--convert"),
        (&array[..], vec!["-", "/nowhere/x.raw"], 1, "/nowhere/x.raw"),
    ] {
        let o = fed(input, &args);
        let error = text(&o.stderr);
        assert!(o.status.code() == Some(status) && error.contains(words), "{args:?}: {:?} {error}", o.status);
        assert!(!std::path::Path::new(&raw).exists(), "{args:?}");
    }
}

#[test]
fn a_stream_of_any_length_takes_the_memory_of_a_stretch() {
    let dir = Scratch::new("streams-memory");
    let (out, from) = (dir.path("x.npy"), dir.path("from.raw"));
    std::fs::File::create(&from).unwrap().set_len(160 << 20).unwrap();
    let shape = "--shape 160x1024x1024 --dtype u1";
    done(shell(&format!("ulimit -v 130000; head -c $((160<<20)) /dev/zero | $cp - {out} {shape}")));
    let found = std::fs::read(&out).unwrap();
    assert!(found.len() > 160 << 20 && found[4096..].iter().all(|&b| b == 0));
    done(shell(&format!("ulimit -v 130000; $cp {from} - {shape} | cmp - {out}")));
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure_to_tell_of() {
    let dir = Scratch::new("streams-head");
    let from = dir.path("from.raw");
    std::fs::File::create(&from).unwrap().set_len(64 << 20).unwrap();
    let o = shell(&format!("$cp {from} - --shape 67108864 --dtype u1 | head -c 6; exit ${{PIPESTATUS[0]}}"));
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(141), String::new()));
    assert_eq!(o.stdout, b"\x93NUMPY");
    let o = shell(&format!("$cp {from} - --shape 67108864 --dtype u1 > /dev/full"));
    let error = text(&o.stderr);
    assert!(
        o.status.code() == Some(1) && error.starts_with("polyduct: standard output: No space"),
        "{error}"
    );
}
