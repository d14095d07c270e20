use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use polyduct_os::dir::{link_as, open_dir, remove, remove_tree, tmpfile_in, FileMode};
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
        link_as(file.as_fd(), dir.as_fd(), "array.npy", "passing").unwrap();
        assert_eq!(fs::read_to_string(&named).unwrap(), content);
        // The same file once more changes nothing and leaves nothing.
        link_as(file.as_fd(), dir.as_fd(), "array.npy", "passing").unwrap();
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }
    for name in ["a/b", "../x", "/x", ".", "..", "x/"] {
        let file = File::open(&named).unwrap();
        assert!(link_as(file.as_fd(), dir.as_fd(), name, "passing").is_err(), "{name}");
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
    let error = link_as(file.as_fd(), dir.as_fd(), "taken", "passing").unwrap_err();
    assert_eq!(error, OsError::System { op: "rename", what: "taken".into(), errno: Errno::ISDIR });
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn where_files_must_have_names_there_is_no_unnamed_one() {
    let proc = open_dir("/proc".as_ref()).unwrap();
    assert!(tmpfile_in(proc.as_fd(), FileMode::RUSR).unwrap().is_none());
}

#[test]
fn a_tree_is_removed_and_what_its_links_name_is_not() {
    let (scratch, dir) = Scratch::new();
    let at = |path: &str| scratch.0.join(path);
    fs::create_dir_all(at("tree/a/b")).unwrap();
    fs::create_dir(at("kept")).unwrap();
    for file in ["tree/x", "tree/a/y", "tree/a/b/z", "kept/k"] {
        fs::write(at(file), file).unwrap();
    }
    std::os::unix::fs::symlink("../kept", at("tree/link")).unwrap();
    std::os::unix::fs::symlink("kept", at("name")).unwrap();
    assert_eq!(remove_tree(dir.as_fd(), "tree"), Ok(true));
    assert_eq!(remove_tree(dir.as_fd(), "tree"), Ok(false));
    // Neither a link nor a file is a tree, nor is a path a name.
    for name in ["name", "kept/k", "..", ""] {
        assert!(remove_tree(dir.as_fd(), name).is_err(), "{name}");
    }
    assert_eq!(fs::read(at("kept/k")).unwrap(), b"kept/k");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 2);
}

#[test]
fn a_tree_is_removed_while_others_still_put_files_there() {
    let (scratch, dir) = Scratch::new();
    let tree = scratch.0.join("tree");
    for _ in 0..20 {
        fs::create_dir(&tree).unwrap();
        let writer = std::thread::spawn({
            let inner = open_dir(&tree).unwrap();
            move || {
                // Until the directory is gone.
                let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&inner));
                (0..).take_while(|i| fs::write(format!("{by_number}/{}", i % 100), "x").is_ok()).count()
            }
        });
        while remove_tree(dir.as_fd(), "tree").is_err() {}
        writer.join().unwrap();
        assert!(!tree.exists());
    }
}
