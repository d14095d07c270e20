//! What cannot be read or written is refused by name, and leaves what was there alone.

use crate::oracle::*;
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::{Peer, PortError};
use polyduct_store::npy::NpyError;
use polyduct_store::{Expect, FileError, FileReader, FileWriter, Format, Scope};
use std::path::Path;

fn open(path: &Path, layout: &str) -> Result<FileReader, FileError> {
    FileReader::open(path, Format::Npy, layout, &Expect::default(), &unit(0, 1))
}

fn create(path: &Path) -> Result<FileWriter, FileError> {
    FileWriter::open(path, Format::Npy, &Dataset::new(&[4], ElemType::U8).unwrap(), "*", &unit(0, 1))
}

/// The error, with the path that it names checked.
fn error<T>(result: Result<T, FileError>, path: &Path) -> FileError {
    let e = result.err().expect("an error");
    assert!(e.to_string().starts_with(&path.display().to_string()), "{e}");
    e
}

#[test]
fn files_that_are_not_there_or_not_files() {
    let place = Place::new();
    let gone = place.file("gone.npy");
    assert_eq!(
        error(open(&gone, "*"), &gone).to_string(),
        format!("{}: open: No such file or directory (os error 2)", gone.display())
    );
    let e = error(open(place.path(), "*"), place.path());
    assert!(matches!(e, FileError::BadPath { problem: "it is a directory", .. }), "{e}");
    // A pipe would block; it must not even be opened.
    let fifo = place.file("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(matches!(error(open(&fifo, "*"), &fifo), FileError::BadPath { .. }));
    assert!(matches!(error(create(&fifo), &fifo), FileError::BadPath { .. }));
    assert!(matches!(create(&place.path().join("")), Err(FileError::BadPath { .. })));
    assert_eq!(place.names(), ["fifo"]);
}

#[test]
fn hostile_and_truncated_files() {
    let place = Place::new();
    let path = place.file("x.npy");
    let good = npy_bytes("<f4", false, &[3, 4], &[0; 48], 128);
    let attempt = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        open(&path, "block,*").map(|_| ())
    };
    assert_eq!(attempt(&good), Ok(()));
    for len in 0..good.len() {
        let e = attempt(&good[..len]).unwrap_err();
        match e {
            FileError::BadHeader { .. } => assert!(len < 128, "{len}: {e}"),
            FileError::Truncated { expected, found, .. } => assert_eq!((expected, found), (176, len as u64)),
            _ => panic!("{len}: {e}"),
        }
    }
    let big = npy_bytes("<f4", false, &[1 << 40, 1 << 20], &[], 128);
    assert!(matches!(attempt(&big), Err(FileError::Truncated { .. })));
    let huge = npy_bytes("<f4", false, &[1 << 40, 1 << 40], &[], 128);
    assert!(matches!(attempt(&huge), Err(FileError::Port(PortError::Layout { .. }))));
    let steps = npy_bytes("<f4", false, &[u64::MAX, 3, 4], &[], 128);
    assert!(matches!(attempt(&steps), Err(FileError::Truncated { expected: u64::MAX, .. })));
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    let e = attempt(&long).unwrap_err();
    assert!(matches!(e, FileError::BadHeader { source: NpyError::TooLong { .. }, .. }), "{e}");
    let e = attempt(&npy_bytes("<f9", false, &[3, 4], &[0; 48], 128)).unwrap_err();
    assert!(matches!(e, FileError::BadHeader { source: NpyError::Elem(_), .. }), "{e}");
    // A long header of a later version is read whole.
    let mut v2 = b"\x93NUMPY\x02\x00".to_vec();
    let dict =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}}{}\n", " ".repeat(100_000));
    v2.extend((dict.len() as u32).to_le_bytes());
    v2.extend(dict.bytes());
    v2.extend([0; 48]);
    assert_eq!(attempt(&v2), Ok(()));
}

#[test]
fn a_file_that_shrinks_while_it_is_open() {
    let place = Place::new();
    let path = place.file("x.npy");
    std::fs::write(&path, npy_bytes("|u1", false, &[2, 100_000], &[7; 200_000], 128)).unwrap();
    let mut port = open(&path, "*").unwrap();
    let mut part = vec![0; 100_000];
    assert_eq!(port.read(&mut part), Ok(Some(0)));
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(150_128).unwrap();
    let e = port.read(&mut part).unwrap_err();
    assert_eq!(
        e,
        FileError::Truncated { path: path.display().to_string(), expected: 200_128, found: 150_128 }
    );
}

#[test]
fn options_and_sizes() {
    let place = Place::new();
    let path = place.file("x.raw");
    let dataset = Dataset::new(&[8], ElemType::U8).unwrap();
    let open =
        |layout: &str, u, units| FileWriter::open(&path, Format::Raw, &dataset, layout, &unit(u, units));
    assert!(matches!(
        open("block", 0, 0),
        Err(FileError::Port(PortError::BadOption { option: "units", .. }))
    ));
    assert!(matches!(open("block", 2, 2), Err(FileError::Port(PortError::BadOption { option: "unit", .. }))));
    assert!(matches!(open("blok", 0, 1), Err(FileError::Port(PortError::Layout { .. }))));
    assert!(matches!(open("boxes(0:5)", 0, 1), Err(FileError::Port(PortError::Layout { .. }))), "a hole");
    let mut port = open("block", 0, 1).unwrap();
    let e = port.write(&[0; 7]).unwrap_err();
    assert!(
        matches!(e, FileError::Port(PortError::WrongSize { expected: 8, found: 7, .. }))
            && e.scope() == Scope::Operation
    );
    port.write(&[1; 8]).unwrap();
    port.close().unwrap();
    assert_eq!(port.close().unwrap().steps, 1);
    assert!(matches!(port.write(&[1; 8]), Err(FileError::Port(PortError::Closed { .. }))));
    assert!(matches!(port.step_mut().err(), Some(FileError::Port(PortError::Closed { .. }))));
    let expect = Expect::default();
    let reader = FileReader::open(&path, Format::Raw, "block", &expect, &unit(0, 1));
    assert!(matches!(reader.err(), Some(FileError::NeedsDataset { .. })));
}

#[test]
fn a_port_that_is_not_closed_leaves_the_old_file() {
    let place = Place::new();
    let path = place.file("x.npy");
    std::fs::write(&path, "old").unwrap();
    let mut port = create(&path).unwrap();
    port.write(b"newx").unwrap();
    assert_eq!((place.names(), std::fs::read(&path).unwrap()), (vec!["x.npy".into()], b"old".to_vec()));
    drop(port);
    assert_eq!((place.names(), std::fs::read(&path).unwrap()), (vec!["x.npy".into()], b"old".to_vec()));
    let mut port = create(&path).unwrap();
    port.abort("changed my mind");
    assert!(matches!(port.write(b"newx"), Err(FileError::Port(PortError::Closed { .. }))));
    assert!(matches!(port.close(), Err(FileError::Port(PortError::Closed { .. }))));
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[test]
fn what_a_link_stands_for_is_written_and_the_link_stays() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    let (real, link) = (place.file("in/real.npy"), place.file("link.npy"));
    let dir = std::fs::canonicalize(place.path()).unwrap();
    std::fs::create_dir_all(place.file("in/deep")).unwrap();
    // Relative to the directory of the link, over another link, absolute; dangling at first, then over the
    // file.
    symlink("in/deep/next", &link).unwrap();
    symlink("../other", place.file("in/deep/next")).unwrap();
    symlink(dir.join("in/real.npy"), place.file("in/other")).unwrap();
    for value in 1..4 {
        let mut port = create(&link).unwrap();
        port.write(&[value; 4]).unwrap();
        port.close().unwrap();
        assert!(std::fs::read(&real).unwrap().ends_with(&[value; 4]));
        for kept in ["link.npy", "in/deep/next", "in/other"] {
            assert!(place.file(kept).is_symlink(), "{kept}");
        }
        assert_eq!(place.names(), ["in", "link.npy"]);
        assert_eq!(std::fs::read_dir(place.file("in")).unwrap().count(), 3);
    }
    // What happens to the link after it was followed leads nowhere else.
    let mut port = create(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    symlink("in/elsewhere", &link).unwrap();
    std::fs::rename(place.file("in"), place.file("moved")).unwrap();
    port.write(&[9; 4]).unwrap();
    port.close().unwrap();
    assert!(std::fs::read(place.file("moved/real.npy")).unwrap().ends_with(&[9; 4]));
    assert_eq!(place.names(), ["link.npy", "moved"]);

    let (around, gone, up) = (place.file("around.npy"), place.file("gone.npy"), place.file("up.npy"));
    symlink("back.npy", &around).unwrap();
    symlink("around.npy", place.file("back.npy")).unwrap();
    let e = error(create(&around), &around);
    assert!(e.to_string().contains("lead to one another"), "{e}");
    symlink("nowhere/x.npy", &gone).unwrap();
    let e = error(create(&gone), &gone);
    assert!(e.to_string().contains("open the directory that its link leads to: No such file"), "{e}");
    for to in ["..", "moved", "moved/"] {
        symlink(to, &up).unwrap();
        assert!(matches!(error(create(&up), &up), FileError::BadPath { .. }), "{to}");
        std::fs::remove_file(&up).unwrap();
    }
}

#[test]
fn a_replaced_file_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let path = place.file("x.npy");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let mut port = create(&path).unwrap();
    port.write(b"newx").unwrap();
    port.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read(&path).unwrap(), npy_bytes("|u1", false, &[4], b"newx", 128));
}

#[test]
fn no_space_is_said_before_a_byte_is_written() {
    let place = Place::new();
    let path = place.file("x.raw");
    std::fs::write(&path, "old").unwrap();
    // Unit 0 has 16 bytes, unit 1 all the rest of more than any disk here has.
    let dataset = Dataset::new(&[1 << 50], ElemType::U8).unwrap();
    let errors = in_threads(2, |u| {
        let mut port = FileWriter::open(&path, Format::Raw, &dataset, "cut(0,16)", &unit(u, 2)).unwrap();
        match u {
            0 => port.write(&[1; 16]).unwrap_err(),
            _ => port.close().unwrap_err(),
        }
    });
    match &errors[0] {
        FileError::NoSpace { needed, available, .. } => assert!(*needed == 1 << 50 && available < needed),
        e => panic!("{e}"),
    }
    match &errors[1] {
        FileError::Port(PortError::PeerAborted { peer: Peer { unit: 0, .. }, reason, .. }) => {
            assert!(reason.contains("no space"), "{reason}")
        }
        e => panic!("{e}"),
    }
    assert_eq!((place.names(), std::fs::read(&path).unwrap()), (vec!["x.raw".into()], b"old".to_vec()));
}
