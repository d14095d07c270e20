use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::PathBuf;

use polyduct_os::dir::{
    link_as, open_beneath, open_dir, private_dir, remove, tmpfile_in, FileMode, OpenFlags,
};
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
fn nothing_outside_the_directory_is_opened() {
    let (scratch, dir) = Scratch::new();
    fs::create_dir_all(scratch.0.join("a/b")).unwrap();
    fs::write(scratch.0.join("a/b/file"), "inside").unwrap();
    symlink("/etc/passwd", scratch.0.join("out")).unwrap();
    symlink("a", scratch.0.join("in")).unwrap();
    let open = |path: &str| open_beneath(dir.as_fd(), path, OpenFlags::RDONLY, FileMode::empty());
    for path in ["a/b/file", "./a//b/./file"] {
        assert_eq!(std::io::read_to_string(File::from(open(path).unwrap())).unwrap(), "inside");
    }
    for path in ["/etc/passwd", "..", "../x", "a/../a/b/file", "a/b/..", "a/../../x", "/", ".", "./", "//"] {
        assert_eq!(open(path).unwrap_err(), OsError::PathEscapes { path: path.into() });
    }
    for path in ["out", "in/b/file", "in/"] {
        assert_eq!(open(path).unwrap_err(), OsError::SymbolicLink { path: path.into() });
    }
    for path in ["", "a\0b"] {
        assert!(matches!(open(path), Err(OsError::BadName { .. })));
    }
    assert_eq!(open("a/none").unwrap_err().errno(), Some(Errno::NOENT));
    assert_eq!(open("a/b/file/more").unwrap_err().errno(), Some(Errno::NOTDIR));
    // A mode without a use for it is harmless, and a file is made where it belongs.
    open_beneath(dir.as_fd(), "a/b/file", OpenFlags::RDONLY, FileMode::RUSR).unwrap();
    let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::RDWR;
    open_beneath(dir.as_fd(), "a/new", flags, FileMode::RUSR | FileMode::WUSR).unwrap();
    assert_eq!(fs::metadata(scratch.0.join("a/new")).unwrap().permissions().mode() & 0o777, 0o600);
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

#[test]
fn a_directory_that_others_may_enter_is_not_private() {
    let (scratch, _dir) = Scratch::new();
    let path = scratch.0.join("private");
    private_dir(&path).unwrap();
    private_dir(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    for mode in [0o701, 0o750, 0o777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(private_dir(&path), Err(OsError::NotPrivate { mode: m, .. }) if m == mode));
    }
    let link = scratch.0.join("link");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&path, &link).unwrap();
    let error = private_dir(&link).unwrap_err();
    assert_eq!(error, OsError::SymbolicLink { path: link.display().to_string() });
    assert_eq!(private_dir(&scratch.0.join("no/such")).unwrap_err().errno(), Some(Errno::NOENT));
}
