//! Processes that end well without having opened what the pipeline gave them. The others would wait a minute
//! for them; the watchdog of these tests is shorter.

mod common;
use common::*;

const POLYDUCT: &str = env!("CARGO_BIN_EXE_polyduct");

/// A directory with an array in it, and programs for the units of a stage.
struct Stage(Scratch);

impl Stage {
    fn new(name: &str) -> Stage {
        let dir = Scratch::new(name);
        let raw = dir.write("a.raw", [0; 48]);
        let args = ["cp", "-q", &raw, &dir.path("a.npy"), "--shape", "12", "--dtype", "f4"];
        assert!(output(&args).status.success());
        Stage(dir)
    }

    fn npy(&self) -> String {
        self.0.path("a.npy")
    }

    /// A program whose units write one step, except those that `does_not` matches.
    fn writer(&self, does_not: &str) -> String {
        let does = format!("{POLYDUCT} pump-in $POLYDUCT_OUT < {}", self.npy());
        self.program(&format!("writer-{does_not}"), does_not, &does)
    }

    /// A program whose units read all steps, except those that `does_not` matches.
    fn reader(&self, does_not: &str) -> String {
        let does = format!("{POLYDUCT} pump-out $POLYDUCT_IN > /dev/null");
        self.program(&format!("reader-{does_not}"), does_not, &does)
    }

    fn program(&self, name: &str, does_not: &str, does: &str) -> String {
        let script = format!("case $POLYDUCT_UNIT in {does_not}) exit 0;; esac\n{does}\n");
        format!("sh {}", self.0.write(name, script))
    }
}

/// Runs the pipeline, which must fail, and gives its message.
fn fails(pipeline: &str) -> String {
    let o = output(&["run", pipeline]);
    let message = text(&o.stderr);
    assert_eq!(o.status.code(), Some(1), "{pipeline}: {message}");
    message
}

#[test]
fn a_process_that_keeps_others_waiting_is_named() {
    let stage = Stage::new("unopened");
    let (npy, out) = (stage.npy(), stage.0.path("out.npy"));
    let (writer, reader) = (stage.writer("none"), stage.reader("none"));
    let (some_write, some_read) = (stage.writer("1"), stage.reader("1"));
    for (pipeline, who, unit, what) in [
        (format!("-n 2 {writer} | -n 2 true"), "1 (true)", "", "input"),
        (format!("-n 2 true | -n 2 {reader}"), "0 (true)", "", "output"),
        (format!("cat {npy} | -n 2 true"), "1 (true)", "", "input"),
        ("-n 2 true | cat".to_owned(), "0 (true)", "", "output"),
        (format!("< {npy} -n 2 {some_write} | cat"), "0 (sh ", "1", "output"),
        (format!("-n 2 {some_write} | -n 2 {reader}"), "0 (sh ", "1", "output"),
        (format!("-n 2 {writer} | -n 2 {some_read}"), "1 (sh ", "1", "input"),
        (format!("< {npy} -n 2 {some_write} > {out}"), "0 (sh ", "1", "output"),
    ] {
        let message = fails(&pipeline);
        let own: Vec<&str> = message.lines().filter(|l| l.contains(" ended without opening its ")).collect();
        assert!(own.len() == 1 && own[0].starts_with(&format!("polyduct: stage {who}")), "{message}");
        assert!(own[0].contains(&format!(") unit {unit}")), "{message}");
        assert!(own[0].contains(&format!("without opening its {what}; ended the other ")), "{message}");
        assert!(message.ends_with("; a plain Unix program is a stage without -n\n"), "{message}");
        assert!(!std::path::Path::new(&out).exists());
    }
}

#[test]
fn a_process_that_fails_is_named_by_that() {
    let stage = Stage::new("unopened-exit");
    let o = output(&["run", &format!("-n 2 sh -c 'exit 7' | -n 2 {}", stage.reader("none"))]);
    let message = text(&o.stderr);
    assert!(o.status.code() == Some(7) && message.contains("exited with status 7"), "{message}");
}

#[test]
fn a_file_that_nobody_writes_is_a_failure() {
    let dir = Scratch::new("unwritten");
    let out = dir.path("t.npy");
    let message = fails(&format!("-n 2 true > {out}"));
    assert!(message.contains("ended without opening its output\n"), "{message}");
    assert!(!std::path::Path::new(&out).exists());
    // One that was there before does not count, one that a program wrote by itself does.
    dir.write("t.npy", "old");
    fails(&format!("-n 2 true > {out}"));
    let o = output(&["run", &format!("-n 1 sh -c 'echo new > $POLYDUCT_OUT' > {out}")]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
}

#[test]
fn a_file_that_is_opened_and_not_written_is_a_failure() {
    let stage = Stage::new("opened-unwritten");
    let (npy, out) = (stage.npy(), stage.0.write("t.npy", "old"));
    // One unit writes a step more than the other, and both say that all is well.
    let steps = format!("case $POLYDUCT_UNIT in 1) cat {npy} {npy};; *) cat {npy};; esac");
    let uneven =
        stage.program("uneven", "none", &format!("{steps} | {POLYDUCT} pump-in $POLYDUCT_OUT; exit 0"));
    let message = fails(&format!("-n 2 {uneven} > {out}"));
    let text = format!("polyduct: every process succeeded, but stage 0 did not write {out}\n");
    assert!(message.contains(&text), "{message}");
    assert_eq!(std::fs::read_to_string(out).unwrap(), "old");
}

#[test]
fn nothing_is_wrong_where_nobody_waits() {
    let stage = Stage::new("nobody-waits");
    let npy = stage.npy();
    let reader = stage.reader("1");
    // Between the run and the port, a program that lets nothing be inherited.
    let closes = "for i in 3 4 5 6 7 8 9; do eval \"exec $i>&-\"; done\n";
    let forward =
        stage.program("forward", "none", &format!("{closes}{POLYDUCT} pump-in $POLYDUCT_OUT < {npy}; exit"));
    for pipeline in [
        "-n 2 true | -n 3 true".to_owned(),
        format!("< {npy} -n 2 true"),
        // Each unit reads a file by itself.
        format!("< {npy} -n 2 {reader}"),
        format!("-n 2 {forward} | -n 2 {}", stage.reader("none")),
        "true | cat".to_owned(),
    ] {
        let o = output(&["run", &pipeline]);
        assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()), "{pipeline}");
    }
    // A plain program that writes nothing is a stream without steps.
    let sink = stage.0.path("none.raw");
    let o = output(&["run", &format!("true | -n 1 {POLYDUCT} cp -q - {sink} --shape 3 --dtype f4")]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
}

#[test]
fn plain_bytes_need_a_reader_that_says_what_they_are() {
    let stage = Stage::new("plain-bytes");
    // The reader stays, so the pump has all the time to say why it ends.
    let reader = stage.program(
        "stays",
        "none",
        &format!("{POLYDUCT} pump-out $POLYDUCT_IN 2> /dev/null; exec sleep infinity"),
    );
    let message = fails(&format!("-n 1 {} | cat | -n 1 {reader}", stage.writer("none")));
    assert!(message.contains("open(\"-\", \"r\", shape=(480, 640), dtype=\"f4\")"), "{message}");
    let mut named = message.lines().filter(|l| l.contains("stage-1-to-2.run-"));
    assert!(named.all(|l| l.matches("stage-1-to-2").count() == 1), "named twice: {message}");
    assert!(message.contains("polyduct: the pump behind stage 1 (cat)"), "{message}");
}
