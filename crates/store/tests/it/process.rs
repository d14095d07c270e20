//! A unit in a process of its own, told what to do line by line: barriers are pipes.

use crate::oracle::{bind, part};
use polyduct_layout::Dataset;
use polyduct_os::poll::{poll, PollItem};
use polyduct_store::{FileError, FileWriter, Format, Options};
use rustix::process::{set_parent_process_death_signal, Signal};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const WHAT: &str = "POLYDUCT_STORE_TEST_UNIT";
/// Nothing here takes long; who waits longer waits for ever.
const WATCHDOG: Duration = Duration::from_secs(30);

/// Shape, layout and place of the file that the units write.
#[derive(Clone)]
pub struct Job {
    pub units: u32,
    pub layout: &'static str,
    pub path: std::path::PathBuf,
}

pub fn dataset() -> Dataset {
    Dataset::new(&[12, 64], polyduct_layout::ElemType::F32).unwrap()
}

/// A process that is one unit; killed when dropped.
pub struct Unit {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Unit {
    /// Starts a unit by way of `wrap`, a command before the program.
    pub fn start_by(job: &Job, unit: u32, wrap: &[&str], user: Option<u32>, exe: &Path) -> Unit {
        let mut command = match wrap.split_first() {
            Some((first, rest)) => {
                let mut c = Command::new(first);
                c.args(rest).arg(exe);
                c
            }
            None => Command::new(exe),
        };
        if let Some(uid) = user {
            command.gid(uid).uid(uid);
        }
        let what = format!("{unit} {} {} {}", job.units, job.layout, job.path.display());
        let mut child = command
            .args(["--exact", "process::a_unit", "--nocapture"])
            .env(WHAT, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut unit = Unit { child, input, output };
        assert_eq!(unit.hear(), "ready");
        unit
    }

    pub fn start(job: &Job, unit: u32) -> Unit {
        Unit::start_by(job, unit, &[], None, &std::env::current_exe().unwrap())
    }

    /// Sends a command and does not wait.
    pub fn tell(&mut self, command: &str) {
        // A unit that was killed hears nothing.
        let _ = writeln!(self.input, "{command}");
    }

    /// The answer to a command; `dead` when there is none any more.
    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.output.buffer().is_empty() {
                let ready = poll(&mut [PollItem::readable(self.output.get_ref())], Some(WATCHDOG));
                assert_eq!(ready, Ok(1), "a unit says nothing");
            }
            if self.output.read_line(&mut line).unwrap_or(0) == 0 {
                return "dead".into();
            }
            // The harness writes before and on the same line.
            if let Some(at) = line.find('@') {
                return line[at + 1..].trim_end().to_owned();
            }
        }
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    /// Which of two units answers first. (After a unit is ready, its harness writes nothing more.)
    pub fn first(a: &Unit, b: &Unit) -> usize {
        let mut items = [PollItem::readable(a.output.get_ref()), PollItem::readable(b.output.get_ref())];
        poll(&mut items, Some(WATCHDOG)).unwrap();
        items.iter().position(PollItem::is_readable).expect("an answer")
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn start_all(job: &Job) -> Vec<Unit> {
    (0..job.units).map(|u| Unit::start(job, u)).collect()
}

/// Tells all, then hears all.
pub fn ask_all(units: &mut [Unit], command: &str) -> Vec<String> {
    units.iter_mut().for_each(|u| u.tell(command));
    units.iter_mut().map(Unit::hear).collect()
}

/// The other side: in a process made by [`Unit::start`], does what it is told; otherwise checks that there is
/// nothing to do.
#[test]
fn a_unit() {
    let Ok(what) = std::env::var(WHAT) else {
        assert_eq!(dataset().len_bytes(), 12 * 64 * 4);
        return;
    };
    // Whatever happens to the test that started this process, it ends.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let words: Vec<&str> = what.splitn(4, ' ').collect();
    let (unit, units): (u32, u32) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    // Several chunks, where there are any.
    let options = Options { chunk_bytes: 1000, ..Options::of(unit, units) };
    let mapping = bind(words[2], &dataset(), units);
    let mut port: Option<FileWriter> = None;
    println!("@ready");
    for line in std::io::stdin().lines() {
        let result = match (line.unwrap().as_str(), &mut port) {
            ("open", port) => {
                let path = Path::new(words[3]);
                FileWriter::open(path, Format::of_path(path).unwrap(), &dataset(), words[2], &options)
                    .map(|opened| *port = Some(opened))
            }
            ("write", Some(p)) => p.write(&part(&mapping, unit.into(), p.next_step(), false)),
            ("close", Some(p)) => p.close().map(drop),
            ("drop", port) => {
                *port = None;
                Ok(())
            }
            (other, _) => panic!("{other}"),
        };
        match result {
            Ok(()) => println!("@ok"),
            Err(FileError::Port(e)) => println!("@{e:?}"),
            Err(e) => println!("@{e:?}"),
        }
    }
    std::process::exit(0);
}
