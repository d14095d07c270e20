//! Deaths, signals and time limits of real pipelines. Every victim says that it is ready by a line of output,
//! and the end of everything is the end of that output: nothing here sleeps.

mod common;
use common::*;
use std::process::{Child, Stdio};

/// A run whose every process has printed one line: its place and its number. The numbers are in order of the
/// places.
struct Run {
    child: Child,
    lines: Lines,
    pids: Vec<u32>,
}

const VICTIM: &str = "sh -c 'echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; exec sleep infinity'";

impl Run {
    fn start(args: &[&str], pipeline: &str, processes: usize) -> Run {
        let args = [&["run"], args, &[pipeline]].concat();
        let mut child = polyduct(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Lines::new(child.stdout.take().unwrap());
        let mut places = lines.take(processes);
        places.sort();
        let pids = places.iter().map(|l| l.split_once(' ').unwrap().1.parse().unwrap()).collect();
        Run { child, lines, pids }
    }

    /// Waits for the end of the run and of all that held its output; status and message.
    fn end(self) -> (Option<i32>, String) {
        let output = watched(self.child);
        self.lines.end();
        (output.status.code(), text(&output.stderr))
    }
}

#[test]
fn a_killed_unit_is_named() {
    let run = Run::start(&[], &format!("-n 4 {VICTIM} | -n 3 {VICTIM}"), 7);
    let victim = run.pids[3];
    assert!(kill(victim, "KILL"));
    let (status, message) = run.end();
    assert_eq!(status, Some(137));
    let tail = format!(" unit 3 (pid {victim}) was killed by SIGKILL; ended the other 6 processes\n");
    assert!(message.starts_with(&format!("polyduct: stage 0 ({VICTIM})")), "{message}");
    assert!(message.ends_with(&tail), "{message}");
}

#[test]
fn peers_that_fail_in_its_wake_are_not_named() {
    // Unit 0 dies by a signal when told; the others notice through their pipe and exit with errors at once.
    let dir = Scratch::new("wake");
    let fifo = dir.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let program = dir.write(
        "program",
        format!(
            "if [ $POLYDUCT_UNIT = 0 ]; then exec 3>{fifo}; echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; exec sleep infinity; fi\n\
             exec 3<{fifo}; echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; read x <&3; exit 9\n"
        ),
    );
    for _ in 0..10 {
        let run = Run::start(&[], &format!("-n 5 sh {program}"), 5);
        let victim = run.pids[0];
        assert!(kill(victim, "KILL"));
        let (status, message) = run.end();
        assert_eq!(status, Some(137), "{message}");
        assert!(
            message.contains(&format!("unit 0 (pid {victim}) was killed by SIGKILL; ended the other 4")),
            "{message}"
        );
    }
}

#[test]
fn an_exit_status_is_passed_on() {
    let unit2 = "-n 3 sh -c 'if [ $POLYDUCT_UNIT = 2 ]; then exit 7; fi; exec sleep infinity'";
    let o = output(&["run", &format!("{unit2} | -n 2 sleep infinity")]);
    assert_eq!(o.status.code(), Some(7));
    let message = text(&o.stderr);
    assert!(
        message.contains("unit 2 (pid ") && message.contains("exited with status 7; ended the other 4"),
        "{message}"
    );
}

#[test]
fn those_that_do_not_listen_are_killed() {
    let deaf =
        "sh -c 'trap \"\" TERM; echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; while :; do sleep infinity; done'";
    let run = Run::start(&["--grace", "100ms"], &format!("-n 2 {deaf} | -n 1 {VICTIM}"), 3);
    // The last in order is the one that listens.
    assert!(kill(run.pids[2], "KILL"));
    let (status, message) = run.end();
    assert_eq!(status, Some(137), "{message}");
    assert!(message.contains("stage 1"), "{message}");
}

#[test]
fn descendants_end_too() {
    let parents = "sh -c 'sleep infinity & sleep infinity & echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; wait'";
    let run = Run::start(&[], &format!("-n 2 {parents} | -n 1 {VICTIM}"), 3);
    assert!(kill(run.pids[0], "KILL"));
    // The pipe ends only when every sleep has died.
    assert_eq!(run.end().0, Some(137));
    // Also those that a successful stage left in the background.
    let o = output(&["run", "-n 2 sh -c 'sleep infinity & exit 0'"]);
    assert_eq!(o.status.code(), Some(0));
}

#[test]
fn kill_9_of_the_runner_leaves_nothing() {
    let parents = "sh -c 'sleep infinity & echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; wait'";
    let run = Run::start(&[], &format!("-n 3 {parents} | -n 2 {VICTIM}"), 5);
    assert!(kill(run.child.id(), "KILL"));
    assert_eq!(run.end().0, None);
    let run = Run::start(
        &["--prefix"],
        "sh -c 'sleep infinity & echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; wait'",
        1,
    );
    assert!(kill(run.child.id(), "KILL"));
    run.end();
}

#[test]
fn killing_all_at_once() {
    let run = Run::start(&[], &format!("-n 4 {VICTIM} | -n 4 {VICTIM}"), 8);
    // The later ones may have been ended by the run before their turn comes.
    assert!(run.pids.iter().filter(|&&pid| kill(pid, "KILL")).count() > 0);
    let (status, message) = run.end();
    assert_eq!(status, Some(137), "{message}");
}

#[test]
fn signals_to_the_runner_end_all() {
    for (signal, status, word) in
        [("INT", 130, "interrupted"), ("TERM", 143, "SIGTERM"), ("HUP", 129, "SIGHUP")]
    {
        let run = Run::start(&[], &format!("-n 2 {VICTIM} | -n 1 {VICTIM}"), 3);
        assert!(kill(run.child.id(), signal));
        let (code, message) = run.end();
        assert_eq!(code, Some(status));
        assert!(message.contains(word) && message.ends_with("ended 3 processes\n"), "{message}");
    }
}

#[test]
fn the_timeout() {
    let run = Run::start(&["--timeout", "300ms"], &format!("-n 2 {VICTIM}"), 2);
    let (status, message) = run.end();
    assert_eq!(
        (status, message.as_str()),
        (Some(124), "polyduct: still running after --timeout 300ms; ended 2 processes\n")
    );
}

#[test]
fn a_reader_that_wants_no_more_is_no_failure() {
    let o = output(&["run", "yes | head -n 2"]);
    assert_eq!(
        (o.status.code(), text(&o.stdout), text(&o.stderr)),
        (Some(0), "y\ny\n".into(), String::new())
    );
    // The process that reads the run's own output has gone: quiet, with the shell's status.
    let mut child = polyduct(&["run", "sh -c 'echo ready; exec yes' | cat"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = watched(child);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(141), String::new()));
}

#[test]
fn failure_in_the_middle_of_a_plain_pipeline_counts() {
    let o = output(&["run", "cat /dev/null | false | cat"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).contains("stage 1 (false) (pid "), "{}", text(&o.stderr));
}

#[test]
fn a_stopped_unit_still_ends() {
    let run = Run::start(
        &[],
        &format!(
            "-n 1 sh -c 'echo $POLYDUCT_PROGRAM.$POLYDUCT_UNIT $$; kill -STOP $$; sleep \
            infinity' | -n 1 {VICTIM}"
        ),
        2,
    );
    assert!(kill(run.child.id(), "TERM"));
    assert_eq!(run.end().0, Some(143));
}

#[test]
fn many_processes_under_a_small_file_limit() {
    let run = format!(
        "ulimit -S -n 64; exec {} run --prefix \"-n 100 sh -c 'ulimit -n'\"",
        env!("CARGO_BIN_EXE_polyduct")
    );
    let child = std::process::Command::new("sh").args(["-c", &run]).stdout(Stdio::piped()).spawn().unwrap();
    let o = watched(child);
    assert_eq!(o.status.code(), Some(0));
    let lines = text(&o.stdout);
    assert_eq!(
        lines.lines().filter(|l| l.ends_with("] 64")).count(),
        100,
        "the programs keep the limit: {lines}"
    );
}

#[test]
fn a_file_limit_that_is_too_small_is_named() {
    let run = format!("ulimit -n 12; exec {} run true", env!("CARGO_BIN_EXE_polyduct"));
    let o =
        watched(std::process::Command::new("sh").args(["-c", &run]).stderr(Stdio::piped()).spawn().unwrap());
    let message = text(&o.stderr);
    // Where it meets the limit depends on how many descriptors it was given.
    let named = ["Too many open files", "out of file descriptors"].iter().any(|what| message.contains(what));
    assert!(o.status.code() == Some(1) && named, "{message}");
    let told = message.replace('`', "").contains("ulimit -n raises");
    assert!(message.starts_with("polyduct: cannot ") && told, "{message}");
}

/// Leaves a daemon and a daemon of that, each with a session of its own, both orphans that hold standard
/// output. Goes on when both have said who they are. What they do when told to end is in its first argument,
/// how it ends in its second.
const LEAVER: &str = r#"
import os, signal, sys

def daemon(name, then):
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "deaf" else told)
            os.dup2(1, 2)
            then()
            os.write(1, f"{name} {os.getpid()}\n".encode())
            os.write(tell, b"x")
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    os.read(ready, 1)

def told(*_):
    os.write(1, b"told\n")
    os._exit(0)

daemon("a", lambda: daemon("b", lambda: None))
os.write(1, f"c {os.getpid()}\n".encode())
if sys.argv[2] == "stay":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pause()
sys.exit(int(sys.argv[2]))
"#;

/// Whether a process of this number is there, dead ones that nobody has reaped included.
fn is_there(pid: &u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn daemons_end_with_the_run() {
    let dir = Scratch::new("daemons");
    let leaver = dir.write("leaver.py", LEAVER);
    let hour = ["--grace", "1h"];
    for (args, words, signal, status, told) in [
        // Of itself it ends when its programs do: what they left is killed.
        (&hour[..], "deaf 0", None, 0, 0),
        (&["--prefix"], "deaf 0", None, 0, 0),
        (&hour, "deaf 3", None, 3, 0),
        // Where it is brought to its end, all are told, and those that do not listen are killed.
        (&hour, "polite stay", Some("TERM"), 143, 2),
        (&["--grace", "100ms"], "deaf stay", Some("TERM"), 143, 0),
        (&["--grace", "100ms", "--timeout", "2s"], "deaf stay", None, 124, 0),
    ] {
        let mut child = polyduct(&[&["run"], args, &[&format!("python3 {leaver} {words}")]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Lines::new(child.stdout.take().unwrap());
        let pids: Vec<u32> =
            lines.take(3).iter().map(|l| l.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert!(signal.is_none_or(|signal| kill(child.id(), signal)));
        let o = watched(child);
        let left: Vec<u32> = pids.into_iter().filter(is_there).collect();
        // Not this test's to leave either.
        for &pid in &left {
            kill(pid, "KILL");
        }
        assert_eq!(left, [0; 0], "{args:?} {words}: alive after the run");
        assert_eq!(o.status.code(), Some(status), "{args:?} {words}: {}", text(&o.stderr));
        assert_eq!(lines.end(), vec!["told"; told], "{args:?} {words}");
    }
}

#[test]
fn orphans_that_end_meanwhile_are_reaped() {
    let dir = Scratch::new("orphans");
    let program = dir.write(
        "program.py",
        r#"
import os, sys

def state_and_parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            return state, int(parent)
    except OSError:
        return None

for i in range(50):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
        os._exit(7)
    os.wait()
while any(state_and_parent(pid) == ("Z", os.getppid()) for pid in os.listdir("/proc") if pid.isdigit()):
    pass
sys.exit(5)
"#,
    );
    let o = output(&["run", &format!("-n 2 python3 {program} | -n 1 sleep infinity")]);
    let message = text(&o.stderr);
    assert!(o.status.code() == Some(5) && message.contains("exited with status 5"), "{message}");
}

#[test]
fn children_from_before_the_run_are_left_alone() {
    // As the shell has them that becomes the run in `polyduct run ... > >(tee log)`.
    let dir = Scratch::new("before");
    let (fifo, run) = (dir.path("fifo"), format!("exec {} run", env!("CARGO_BIN_EXE_polyduct")));
    for script in [
        format!("sleep infinity & echo $!; {run} 'echo end'"),
        format!("setsid sleep infinity & echo $!; {run} 'echo end'"),
        // One that dies meanwhile makes an orphan.
        format!(
            "mkfifo {fifo}; sh -c 'sleep infinity & echo $! > {fifo}; wait' & parent=$!; read pid < {fifo}; \
             echo $pid; {run} \"sh -c 'kill -9 $parent; while [ -d /proc/$parent ]; do :; done; echo end'\""
        ),
    ] {
        let mut command = std::process::Command::new("sh");
        let mut child =
            command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::new(child.stdout.take().unwrap());
        let before: u32 = lines.next().parse().unwrap();
        let status = watched(child).status;
        assert!(kill(before, "KILL"), "it has been ended: {script}");
        assert_eq!((status.code(), lines.end()), (Some(0), vec!["end".to_owned()]), "{script}");
    }
}
