//! Processes of other users get no answer from a pipe, and are not believed.

mod common;

use common::raw::{answer, connect, data, name_of, reader, LEN};
use common::{reader_options, unique, writer_options};
use polyduct_os::process::user_id;
use polyduct_os::socket::{Conn, Listener};
use polyduct_pipe::wire::{ToHost, PROTOCOL};
use polyduct_pipe::{Expect, Given, PipeError, Reader, Writer};
use std::io::Read;
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;

/// Not a test by itself: what the other user's process does when a test below starts this program again.
#[test]
fn as_another_user() {
    let Ok(task) = std::env::var("POLYDUCT_TEST_STRANGER") else { return };
    let (what, name) = task.split_once(' ').unwrap();
    assert_eq!(user_id(), NOBODY);
    if what == "meet" {
        return meet_in_this_namespace(name);
    }
    if what == "serve" {
        let listener = Listener::bind(name.as_bytes()).unwrap();
        println!("ready");
        let end = Instant::now() + Duration::from_secs(20);
        while !matches!(listener.accept(), Ok(Some(_))) {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        // The unit that came looks at our credentials and leaves.
        return;
    }
    let conn = Conn::connect(name.as_bytes()).unwrap();
    let _ = PROTOCOL.encode(&ToHost::Hello(reader(0, 1))).unwrap().send(&conn, &[]);
    assert_eq!(answer(&conn), None, "a stranger got an answer");
}

/// Both ends of a pipe in a user namespace that maps nobody, with the time for a stranger to come in between.
fn meet_in_this_namespace(pipe: &str) {
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut w = Writer::open(pipe, &Given::Dataset(data()), "block", &writer_options(0, 1)).unwrap();
            w.write(&[7; LEN as usize]).unwrap();
        });
        drop(connect(pipe));
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let mut r = Reader::open(pipe, "*", &Expect::default(), &reader_options("r0", 0, 1)).unwrap();
        assert_eq!(r.read(&mut [0; LEN as usize]).unwrap(), Some(0));
    });
}

fn stranger(task: &str) -> Option<std::process::Child> {
    start_as(NOBODY, true, task)
}

/// Starts this program as another user; where that is not `mapped`, in a user namespace in which everybody
/// looks like nobody.
fn start_as(user: u32, mapped: bool, task: &str) -> Option<std::process::Child> {
    use std::os::unix::process::CommandExt;
    if user_id() != 0 {
        eprintln!("not checked: what a process of another user gets; only root can start one");
        return None;
    }
    // The build directory may be closed to others.
    let program = std::env::temp_dir().join(unique("stranger"));
    polyduct_rig::program::copy(&program);
    let mut command =
        std::process::Command::new(if mapped { program.as_os_str() } else { "unshare".as_ref() });
    if !mapped {
        command.arg("--user").arg(&program);
    }
    let child = command
        .args(["--exact", "as_another_user", "--nocapture"])
        .env("POLYDUCT_TEST_STRANGER", task)
        .current_dir("/")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .uid(user)
        .spawn();
    let mut child = child.unwrap();
    // A command in between has to find it first.
    let mut said = [0];
    let heard = child.stdout.as_mut().unwrap().read(&mut said);
    assert!(heard.is_ok_and(|n| n == 1), "it did not start");
    let _ = std::fs::remove_file(&program);
    Some(child)
}

#[test]
fn among_users_that_all_look_alike_only_those_of_this_namespace_come_in() {
    use std::io::{BufRead, Write};
    let pipe = unique("alike");
    let name = format!("polyduct/{NOBODY}/{pipe}");
    let Some(mut ours) = start_as(0, false, &format!("meet {pipe}")) else { return };
    let mut lines = std::io::BufReader::new(ours.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.ends_with("ready")));
    // Seen from there, this one is nobody, and so is every other.
    for mapped in [true, false] {
        let mut theirs = start_as(NOBODY, mapped, &format!("knock {name}")).unwrap();
        assert!(theirs.wait().unwrap().success(), "a stranger got an answer");
    }
    ours.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    lines.for_each(drop);
    assert!(ours.wait().unwrap().success(), "the pipe did not go on");
}

#[test]
fn a_stranger_is_turned_away_and_the_pipe_goes_on() {
    let pipe = unique("ours");
    let name = String::from_utf8(name_of(&pipe)).unwrap();
    std::thread::scope(|s| {
        let pipe = &pipe;
        s.spawn(move || {
            let mut w = Writer::open(pipe, &Given::Dataset(data()), "block", &writer_options(0, 1)).unwrap();
            w.write(&[7; LEN as usize]).unwrap();
        });
        drop(connect(pipe));
        if let Some(mut child) = stranger(&format!("knock {name}")) {
            assert!(child.wait().unwrap().success(), "the stranger got an answer");
        }
        let mut r = Reader::open(pipe, "*", &Expect::default(), &reader_options("r0", 0, 1)).unwrap();
        assert_eq!(r.read(&mut [0; LEN as usize]).unwrap(), Some(0));
    });
}

#[test]
fn a_stranger_who_took_our_name_is_not_believed() {
    use std::io::BufRead;
    let pipe = unique("taken");
    let name = String::from_utf8(name_of(&pipe)).unwrap();
    let Some(mut child) = stranger(&format!("serve {name}")) else { return };
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|l| l.ends_with("ready")));
    let error =
        Reader::open(&pipe, "*", &Expect::default(), &reader_options("r", 0, 1)).map(drop).unwrap_err();
    assert_eq!(error, PipeError::Stranger { pipe, expected: user_id(), found: NOBODY });
    lines.for_each(drop);
    child.wait().unwrap();
}
