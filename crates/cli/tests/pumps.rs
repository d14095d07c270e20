//! Plain programs beside parallel ones. The parallel program is `polyduct cp - -`, which copies what it
//! reads.

mod common;
use common::*;

const CP: &str = env!("CARGO_BIN_EXE_polyduct");

fn npy(shape: &str, fortran: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn floats(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

#[test]
fn arrays_with_headers_become_steps_and_plain_bytes_again() {
    let dir = Scratch::new("npy");
    let file = dir.write("a.npy", npy("(3, 4)", "False", &floats(12)));
    let o = output(&["run", &format!("cat {file} {file} {file} | -n 1 {CP} cp -q - - | cat")]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
    assert_eq!(o.stdout, floats(12).repeat(3));
}

#[test]
fn column_major_arrays_come_out_row_major() {
    let dir = Scratch::new("fortran");
    let file = dir.write("a.npy", npy("(3, 4)", "True", &floats(12)));
    let o = output(&["run", &format!("cat {file} | -n 1 {CP} cp -q - - | cat")]);
    let expected: Vec<u8> = (0..12u32).flat_map(|i| ((i / 4 + i % 4 * 3) as f32).to_le_bytes()).collect();
    assert_eq!((o.status.code(), o.stdout), (Some(0), expected), "{}", text(&o.stderr));
}

#[test]
fn plain_bytes_are_what_the_reader_says() {
    let dir = Scratch::new("raw");
    let file = dir.write("a", floats(12));
    let cp = format!("-n 1 {CP} cp -q - - --shape 2x3 --dtype f4");
    let o = output(&["run", &format!("< {file} cat | {cp} | cat")]);
    assert_eq!((o.status.code(), o.stdout), (Some(0), floats(12)), "{}", text(&o.stderr));
    let o = output(&["run", &format!("head -c 30 {file} | {cp} | cat")]);
    assert_eq!(o.status.code(), Some(1));
    let error = text(&o.stderr);
    assert!(error.contains("ends within step 1: 6 of 24 bytes are there"), "{error}");
    // Those that hear that the pump gave up may end a moment before it, and are named then: all know why.
    let named = ["the pump behind stage 0 (head -c 30", "stage 1 (", "the pump before stage 2 ("];
    assert!(named.iter().any(|named| error.contains(&format!("polyduct: {named}"))), "{error}");
    let gave_up = error.lines().filter(|line| line.contains("writer unit 0 gave up"));
    for line in gave_up {
        assert!(line.ends_with("6 of 24 bytes are there"), "{error}");
    }
}

#[test]
fn a_header_that_is_cut_short_is_named() {
    let dir = Scratch::new("cut");
    let file = dir.write("a.npy", &npy("(3, 4)", "False", &floats(12))[..40]);
    let o = output(&["run", &format!("cat {file} | -n 1 {CP} cp -q - - | cat")]);
    assert_eq!(o.status.code(), Some(1));
    let error = text(&o.stderr);
    assert!(error.contains("standard input: .npy header: the header is cut short: expected "), "{error}");
}

#[test]
fn arrays_of_two_kinds_are_refused() {
    let dir = Scratch::new("kinds");
    let a = dir.write("a.npy", npy("(3, 4)", "False", &floats(12)));
    let b = dir.write("b.npy", npy("(4, 3)", "False", &floats(12)));
    let o = output(&["run", &format!("cat {a} {b} | -n 1 {CP} cp -q - - | cat")]);
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).contains("the array of step 1 has another shape"), "{}", text(&o.stderr));
}

#[test]
fn an_endless_stream_ends_with_its_reader() {
    let cp = format!("-n 1 {CP} cp -q - - --shape 300x400 --dtype f4");
    let o = output(&["run", &format!("cat /dev/zero | {cp} | head -c 5")]);
    assert_eq!((o.status.code(), o.stdout), (Some(0), vec![0; 5]), "{}", text(&o.stderr));
}

#[test]
fn figures_of_each_port_arrive() {
    let dir = Scratch::new("figures");
    let file = dir.write("a.npy", npy("(3, 4)", "False", &floats(12)));
    let json = dir.path("stats.json");
    let o = output(&["run", "--json", &json, &format!("cat {file} {file} | -n 1 {CP} cp -q - - | cat")]);
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    for pipe in json["pipes"].as_array().unwrap() {
        for side in ["writers", "readers"] {
            assert_eq!((&pipe[side]["steps"], &pipe[side]["bytes"]), (&2.into(), &96.into()), "{pipe}");
        }
    }
    assert_eq!(json["pipes"].as_array().unwrap().len(), 2);
}
