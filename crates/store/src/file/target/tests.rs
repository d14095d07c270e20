use super::*;
use polyduct_layout::{Dataset, ElemType};

#[test]
fn paths_that_cannot_become_files() {
    for (path, what) in [
        ("/tmp/", "it names a directory"),
        ("/", "it names a directory"),
        ("", "it is empty"),
        ("..", "it names a directory"),
        ("/tmp/.", "it names a directory"),
        ("/tmp", "it is a directory"),
        ("/dev/null", "it is not a regular file"),
    ] {
        match Target::open(Path::new(path), Format::Npy, false) {
            Err(FileError::BadPath { problem, .. }) => assert_eq!(problem, what, "{path:?}"),
            other => panic!("{path:?}: {other:?}"),
        }
    }
    let gone = Target::open(Path::new("/nowhere/x.npy"), Format::Npy, false).unwrap_err();
    assert_eq!(gone, FileError::sys("/nowhere/x.npy", "open its directory", Errno::NOENT));
}

#[test]
fn without_unnamed_files_a_temporary_name_serves_and_is_cleaned_up() {
    let root = std::env::temp_dir().join(format!("polyduct-store-named-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let path = root.join("a.raw");
    let names = || std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    let form =
        Form::new(Format::Raw, Dataset::new(&[2], ElemType::U8).unwrap(), &Options::default(), "x").unwrap();
    let draft = || Draft::named(Target::open(&path, Format::Raw, false).unwrap()).unwrap();

    let (one, two) = (draft(), draft());
    assert_ne!(one.temporary, two.temporary);
    drop(two);
    assert_eq!(names().len(), 1);
    one.commit(&form, 1).unwrap();
    assert_eq!(names(), ["a.raw"]);

    // As a killed process leaves it: the name, but no lock. The next one takes the name over.
    let name = draft().temporary.clone().unwrap();
    std::fs::write(root.join(&name), "left behind").unwrap();
    let again = draft();
    assert_eq!(again.temporary.as_ref(), Some(&name));
    Target::open(&path, Format::Raw, false).unwrap().sweep(again.temporary(), None);
    assert_eq!(names(), ["a.raw"]);
    drop(again);
    std::fs::remove_dir_all(&root).unwrap();
}
