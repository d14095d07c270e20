//! Pipelines of real processes: what they get, and what they give.

mod common;
use common::*;
use std::process::Stdio;

#[test]
fn plain_stages_are_a_shell_pipeline() {
    let dir = Scratch::new("plain");
    let (input, out) = (dir.write("in put", "b\na\nc\na\n"), dir.path("out"));
    let o = output(&["run", &format!("< '{input}' sort | uniq -c | tr -s ' ' > {out}")]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
    assert_eq!(std::fs::read_to_string(out).unwrap(), " 2 a\n 1 b\n 1 c\n");
}

#[test]
fn standard_input_and_output_are_the_runs_own() {
    let mut child =
        polyduct(&["run", "tr a-z A-Z | cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello").unwrap();
    assert_eq!(text(&watched(child).stdout), "HELLO");
}

#[test]
fn words_reach_the_program_as_the_shell_would_give_them() {
    let pipeline = r#"X='1 $Y' sh -c 'printf "%s\n" "$X" "$@"' -- 'a b' "c'd" e\ f $HOME *.rs"#;
    let o = output(&["run", pipeline]);
    assert_eq!(text(&o.stdout), "1 $Y\na b\nc'd\ne f\n$HOME\n*.rs\n");
}

#[test]
fn parallel_stages_know_their_place() {
    let dir = Scratch::new("env");
    let input = dir.write("in.npy", "");
    let show =
        "sh -c 'echo $POLYDUCT_UNIT/$POLYDUCT_UNITS $POLYDUCT_PROGRAM $POLYDUCT_IN $POLYDUCT_OUT; cat'";
    let run = format!("< {input} -n 2 {show} | -n 1 {show} > {}", dir.path("out.npy"));
    // A run inside a run: nothing of the outer one may show.
    let mut command = polyduct(&["run", "--prefix", &run]);
    let child = command.env("POLYDUCT_UNIT", "77").env("POLYDUCT_REPORT", "/nowhere").stdout(Stdio::piped());
    let o = watched(child.spawn().unwrap());
    let mut lines: Vec<String> = text(&o.stdout).lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines.len(), 3, "standard input is empty, so cat ends: {lines:?}");
    let words: Vec<Vec<&str>> = lines.iter().map(|l| l.split(' ').collect()).collect();
    assert_eq!([words[0][0], words[0][1], words[0][3]], ["[0.0]", "0/2", &input]);
    assert_eq!([words[1][0], words[1][1], words[1][3]], ["[0.1]", "1/2", &input]);
    assert_eq!([words[2][0], words[2][1]], ["[1.0]", "0/1"]);
    assert_eq!(words[0][2], words[1][2]);
    assert_ne!(words[0][2], words[2][2]);
    let url = words[0][4];
    assert!(url.starts_with("pipe:stage-0-to-1.run-"), "{url}");
    assert_eq!([words[2][3], words[2][4]], [url, &dir.path("out.npy")]);
}

#[test]
fn lines_are_prefixed_and_never_mixed() {
    let words =
        "for i in 1 2 3 4 5 6 7 8 9; do printf x; printf y; printf 'z\\n'; echo e >&2; done; printf end";
    let o = output(&["run", "--prefix", &format!("-n 3 sh -c \"{words}\" | -n 2 true")]);
    assert_eq!(o.status.code(), Some(0));
    for unit in 0..3 {
        let prefix = format!("[0.{unit}] ");
        let of = |bytes: &[u8]| -> Vec<String> {
            text(bytes).lines().filter_map(|l| l.strip_prefix(&prefix)).map(String::from).collect()
        };
        assert_eq!(of(&o.stdout), [["xyz"; 9].as_slice(), &["end"]].concat());
        assert_eq!(of(&o.stderr), ["e"; 9]);
    }
    assert_eq!(text(&o.stdout).lines().count(), 30);
}

#[test]
fn a_result_is_not_prefixed() {
    let o = output(&["run", "--prefix", "sh -c 'echo note >&2; echo result' | cat"]);
    assert_eq!((text(&o.stdout), text(&o.stderr)), ("result\n".into(), "[0.0] note\n".into()));
}

#[test]
fn ports_report_to_the_run() {
    let dir = Scratch::new("stats");
    let record = |mode: &str, dropped: u64, wait: f64| {
        format!(
            r#"{{\"program\":\"$POLYDUCT_PROGRAM\",\"unit\":$POLYDUCT_UNIT,\"url\":\"$URL\",\"mode\":\"{mode}\",\"steps\":10,\"dropped\":{dropped},\"bytes\":1000000000,\"wait_s\":{wait},\"copy_s\":0.1,\"open_s\":2.0}}"#
        )
    };
    let writer =
        dir.write("w", format!("URL=$POLYDUCT_OUT; echo \"{}\" > $POLYDUCT_REPORT", record("w", 0, 0.5)));
    let reader =
        dir.write("r", format!("URL=$POLYDUCT_IN; echo \"{}\" > $POLYDUCT_REPORT", record("r", 7, 1.5)));
    let json = dir.path("stats.json");
    let run = format!("-n 4 sh {writer} | -n 2 sh {reader}");
    let o = output(&["run", "--stats", "--json", &json, &run]);
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
    let table = text(&o.stderr);
    let row =
        "stage 0 → stage 1     10        7  4.00 GB  2.00        4  500.0 ms (25 %)        2  1.50 s (75 %)";
    assert!(table.contains(row), "{table}");

    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["status"], 0);
    assert_eq!(json["pipeline"], *run);
    let pipe = &json["pipes"][0];
    assert_eq!((&pipe["from_stage"], &pipe["to_stage"]), (&0.into(), &1.into()));
    assert_eq!(
        (&pipe["bytes"], &pipe["steps"], &pipe["dropped"]),
        (&4_000_000_000u64.into(), &10.into(), &7.into())
    );
    assert_eq!((&pipe["writers"]["ports"], &pipe["readers"]["ports"]), (&4.into(), &2.into()));
    assert_eq!(json["processes"].as_array().unwrap().len(), 6);
    assert_eq!(json["processes"][5]["exit"], 0);
}

#[test]
fn a_dry_run_starts_nothing() {
    let dir = Scratch::new("dry");
    let out = dir.path("out");
    let o = output(&["run", "--dry-run", &format!("A='x y' cat /etc/hostname | -n 2 cat | sort > {out}")]);
    let shown = text(&o.stdout);
    assert_eq!(o.status.code(), Some(0));
    let starts: Vec<&str> = shown.lines().map(|l| &l[..l.find(']').map_or(0, |i| i + 1)]).collect();
    assert_eq!(starts, ["[0]", "[0 pump]", "[1.0]", "[1.1]", "[2 pump]", "[2]", "", ""]);
    assert!(shown.starts_with("[0] A='x y' cat /etc/hostname >&pipe0\n"), "{shown}");
    assert!(
        shown.contains("pump-in pipe:stage-0-to-1.run-")
            && shown.contains(&format!("sort <&pipe1 > {out}\n"))
    );
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn what_cannot_start_is_said_before_anything_starts() {
    let dir = Scratch::new("start");
    let touch = format!("touch {}", dir.path("started"));
    for (pipeline, status, message) in [
        ("-n 2 no-such-program", 127, "stage 1: command not found: no-such-program"),
        ("$X/program", 127, "expanded"),
        ("/etc/passwd", 126, "stage 1: /etc/passwd cannot be executed: Permission denied"),
        ("cat > /nowhere/x", 1, "cannot write /nowhere/x"),
        (
            "-n 2 cat > out.txt",
            2,
            "out.txt is no kind of file that a parallel stage can open: name it PATH.npy, PATH.raw, \
                PATH.safetensors,",
        ),
    ] {
        let o = output(&["run", &format!("{touch} | {pipeline}")]);
        assert_eq!(o.status.code(), Some(status));
        let error = text(&o.stderr);
        assert!(error.starts_with("polyduct: ") && error.contains(message), "{error}");
        assert!(!dir.0.join("started").exists());
    }
    let o = output(&["run", "--json", "/nowhere/x.json", &touch]);
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).contains("cannot write /nowhere/x.json: No such file"), "{}", text(&o.stderr));
    assert!(!dir.0.join("started").exists());
    // What only the kernel knows: an interpreter that is not there.
    let script = dir.path("script");
    polyduct_rig::program::script("#!/nowhere/interpreter\n", script.as_ref());
    let o = output(&["run", &format!("-n 2 {script} | -n 1 sleep infinity")]);
    assert_eq!(o.status.code(), Some(127));
    assert!(text(&o.stderr).contains("interpreter"), "{}", text(&o.stderr));
}

#[test]
fn misuse_is_shown_where_it_is() {
    let o = output(&["run", "-n 4 a | -n x b"]);
    assert_eq!(o.status.code(), Some(2));
    let expected =
        "polyduct: `x` is no number of processes from 1 to 4096\n  -n 4 a | -n x b\n              ^\n";
    assert_eq!(text(&o.stderr), expected);
    assert_eq!(output(&["run"]).status.code(), Some(2));
    for limit in ["soon", "0s"] {
        let o = output(&["run", "true", "--timeout", limit]);
        assert!(o.status.code() == Some(2) && text(&o.stderr).contains(&format!("'{limit}'")), "{limit}");
    }
    assert!(text(&output(&["run", "--help"]).stdout).contains("$VAR"));
}

/// The program whose output could not be passed on is not to blame.
#[test]
fn a_full_standard_output_is_named() {
    let lines = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = polyduct(&["run", "--prefix", &format!("-n 1 sh -c '{lines}'")]);
    let o = watched(child.stdout(full).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(o.status.code(), Some(1));
    let said = text(&o.stderr);
    assert!(said.contains("standard output: No space left on device") && said.lines().count() == 1, "{said}");
}

#[test]
fn what_cannot_be_printed_is_no_success() {
    let show = &["show", "block", "--shape", "4", "--units", "2", "--json"];
    for args in [&["--help"][..], &["run", "--help"], &["--version"], show] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let o = watched(polyduct(args).stdout(full).stderr(Stdio::piped()).spawn().unwrap());
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        let said = text(&o.stderr);
        assert!(
            said.contains("standard output: No space left on device") && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_standard_error_that_takes_nothing_changes_no_status() {
    let dir = Scratch::new("mute");
    let raw = dir.write("a.raw", [0; 12]);
    let copied = dir.path("a.npy");
    for (args, status) in [
        (&["run", "sh -c 'exit 7'"][..], 7),
        (&["run", "--stats", "true"], 0),
        (&["run", "--timeout", "10ms", "sleep infinity"], 124),
        (&["cp", &raw, &copied, "--shape", "12", "--dtype", "u1"], 0),
        (&["cp", &copied, &dir.path("a.odd")], 1),
        (&["show", "blick"], 2),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let o = watched(polyduct(args).stdout(Stdio::piped()).stderr(full).spawn().unwrap());
        assert_eq!(o.status.code(), Some(status), "{args:?}");
    }
}

/// Names of pipes belong to the run, unless somebody has said whose they are.
#[test]
fn a_run_is_a_job() {
    let jobs = |pipeline: &str| -> Vec<String> {
        let o = output(&["run", pipeline]);
        assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
        text(&o.stdout).split_whitespace().map(str::to_owned).collect()
    };
    let two = "sh -c 'echo $POLYDUCT_JOB' | sh -c 'cat; echo $POLYDUCT_JOB'";
    let (first, second) = (jobs(two), jobs(two));
    assert!(first.len() == 2 && first[0] == first[1] && first[0].starts_with("run-"), "{first:?}");
    assert_ne!(first[0], second[0]);
    assert_eq!(jobs("POLYDUCT_JOB=mine sh -c 'echo $POLYDUCT_JOB'"), ["mine"]);
}
