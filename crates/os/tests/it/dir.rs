use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use polyduct_os::dir::{link_as, open_dir, remove, tmpfile_in, FileMode};
use polyduct_os::{Errno, OsError};

use crate::child::fresh_name;

/// A directory of this test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> (Scratch, OwnedFd) {
        let path = std::env::temp_dir().join(String::from_utf8(fresh_name()).unwrap());
        fs::create_dir(&path).unwrap();
        let fd = open_dir(&path).unwrap();
        (Scratch(path), fd)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_name_changes_from_the_old_file_to_the_new() {
    let (scratch, dir) = Scratch::new();
    let named = scratch.0.join("array.npy");
    for content in ["first", "second", "third"] {
        let mode = FileMode::RUSR | FileMode::WUSR;
        let Some(fd) = tmpfile_in(dir.as_fd(), mode).unwrap() else {
            panic!("{} cannot make unnamed files", scratch.0.display());
        };
        let mut file = File::from(fd);
        file.write_all(content.as_bytes()).unwrap();
        link_as(file.as_fd(), dir.as_fd(), "array.npy").unwrap();
        assert_eq!(fs::read_to_string(&named).unwrap(), content);
        // The same file once more changes nothing and leaves nothing.
        link_as(file.as_fd(), dir.as_fd(), "array.npy").unwrap();
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }
    for name in ["a/b", "../x", "/x", ".", "..", "x/"] {
        let file = File::open(&named).unwrap();
        assert!(link_as(file.as_fd(), dir.as_fd(), name).is_err(), "{name}");
        assert!(remove(dir.as_fd(), name).is_err(), "{name}");
    }
    assert_eq!(remove(dir.as_fd(), "array.npy"), Ok(true));
    assert_eq!(remove(dir.as_fd(), "array.npy"), Ok(false));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn a_name_that_cannot_be_replaced_leaves_nothing_behind() {
    let (scratch, dir) = Scratch::new();
    fs::create_dir(scratch.0.join("taken")).unwrap();
    let file = tmpfile_in(dir.as_fd(), FileMode::RUSR).unwrap().unwrap();
    let error = link_as(file.as_fd(), dir.as_fd(), "taken").unwrap_err();
    assert_eq!(error, OsError::System { op: "rename", what: "taken".into(), errno: Errno::ISDIR });
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn where_files_must_have_names_there_is_no_unnamed_one() {
    let proc = open_dir("/proc".as_ref()).unwrap();
    assert!(tmpfile_in(proc.as_fd(), FileMode::RUSR).unwrap().is_none());
}
