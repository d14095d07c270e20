//! Two hosts: network namespaces with a cable (a veth pair) between them, gone with their processes.
//!
//! A program starts itself again: as host A, in a user and network namespace of its own, for which nobody has
//! to be root; and from there as host B, in another network namespace. Nothing has a name outside, so nothing
//! can be left behind.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const ROLE: &str = "POLYDUCT_TEST_HOST";

/// Which of the processes of a test this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that looks on.
    Outside,
    /// Host A, at which the cable is cut.
    A,
    /// Host B.
    B,
}

/// Which of them this process is, by what started it.
pub fn role() -> Role {
    match std::env::var(ROLE).as_deref() {
        Ok("A") => Role::A,
        Ok("B") => Role::B,
        _ => Role::Outside,
    }
}

/// The body of a test of two hosts: `args` make its program run this test only. `a` is host A, told whether
/// there is a cable, and `b` is host B. Lines of host A that contain `figures` are shown. Where the system
/// allows no namespaces, the test says so, and A and B are two processes of this host.
pub fn two_hosts(args: &[&str], figures: &str, a: impl FnOnce(bool), b: impl FnOnce()) {
    match role() {
        Role::A => a(true),
        Role::B => b(),
        Role::Outside => match run_a(args) {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&text);
                text.lines().filter(|l| l.contains(figures)).for_each(|l| println!("{l}"));
                assert!(output.status.success(), "{text}");
            }
            Err(why) => {
                eprintln!("NO NETWORK NAMESPACES HERE ({why}): two processes of this host instead");
                a(false);
            }
        },
    }
}

/// Runs this program as host A, with these arguments. `Err`: why the system lets nobody have namespaces.
pub fn run_a(args: &[&str]) -> Result<Output, String> {
    command_a(args).map(|mut command| command.output().unwrap())
}

/// The command that runs this program as host A, with these arguments. `Err`: why the system lets nobody have
/// namespaces.
pub fn command_a(args: &[&str]) -> Result<Command, String> {
    let tried = Command::new("unshare")
        .args(["-rn", "ip", "link", "add", "cable", "type", "veth", "peer", "name", "other"])
        .output();
    match tried {
        Ok(tried) if tried.status.success() => {
            let me = std::env::current_exe().unwrap();
            let mut command = Command::new("unshare");
            command.arg("-rn").arg(me).args(args).env(ROLE, "A");
            Ok(command)
        }
        Ok(tried) => Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

pub(crate) fn ip(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Host B, as host A sees it: ends with A's interest in it.
pub struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Address of A.
    pub mine: &'static str,
    /// Address of B.
    pub theirs: &'static str,
    cable: bool,
    /// Kept when the process was killed.
    namespace: Option<File>,
}

impl Other {
    /// Starts host B: behind a cable, or where there are no namespaces as another process of this host.
    pub fn start(args: &[&str], cable: bool) -> Other {
        let me = std::env::current_exe().unwrap();
        let mut command = if cable { Command::new("unshare") } else { Command::new(&me) };
        if cable {
            command.arg("-n").arg(&me);
        }
        command.args(args).env(ROLE, "B").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mine, theirs) = if cable { ("10.77.0.1", "10.77.0.2") } else { ("127.0.0.1", "127.0.0.1") };
        let mut other = Other { child, lines, mine, theirs, cable, namespace: None };
        // It speaks from within its own namespace.
        other.hear("here");
        if cable {
            ip("link set lo up");
            ip(&format!("link add cable type veth peer name cable netns {}", other.child.id()));
            ip(&format!("addr add {mine}/24 dev cable"));
            ip("link set cable up");
        }
        other.say(&format!("{mine} {theirs} {cable}"));
        other.hear("ready");
        other
    }

    /// A command that runs this program there, in a process of its own that can be killed without that host.
    pub fn command(&self) -> Command {
        self.command_of(&std::env::current_exe().unwrap())
    }

    /// The same with another program.
    pub fn command_of(&self, program: &Path) -> Command {
        let mut command = match self.cable {
            true => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{}/ns/net", self.child.id())).arg(program);
                command
            }
            false => Command::new(program),
        };
        command.env_remove(ROLE);
        command
    }

    /// A line to host B.
    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for a line that begins with `@what`; returns the rest of it.
    pub fn hear(&mut self, what: &str) -> String {
        let begins = format!("@{what}");
        let line = self.lines.by_ref().map(|l| l.unwrap()).find(|l| l.starts_with(&begins));
        line.unwrap_or_else(|| panic!("host B ends before it says {what}"))[begins.len()..].trim().to_owned()
    }

    /// The other host goes away without a word; where there is no cable, its process is killed.
    pub fn cut(&mut self) {
        match self.cable {
            true => ip("link set cable down"),
            false => self.kill(),
        }
    }

    /// What was cut is whole again: for tests with a cable.
    pub fn mend(&self) {
        ip("link set cable up");
    }

    /// Kills the process, and not its host: its namespace would end with it, and take the cable and this
    /// end's address along before the last segments are through.
    pub fn kill(&mut self) {
        let namespace = File::open(format!("/proc/{}/ns/net", self.child.id()));
        self.namespace = Some(namespace.expect("the network namespace of a child"));
        self.child.kill().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.cable {
            // The system takes its time to do this by itself.
            let _ = Command::new("ip").args(["link", "del", "cable"]).stderr(Stdio::null()).status();
        }
    }
}

/// What host B says.
pub fn tell(line: &str) {
    println!("\n@{line}");
}

/// Host B begins: plugs its end of the cable in. Returns the addresses of A and B.
pub fn plug_in() -> (String, String) {
    tell("here");
    let line = next_line();
    let words: Vec<&str> = line.split(' ').collect();
    if words[2] == "true" {
        ip("link set lo up");
        ip(&format!("addr add {}/24 dev cable", words[1]));
        ip("link set cable up");
    }
    tell("ready");
    (words[0].to_owned(), words[1].to_owned())
}

/// In host B: the next line that A says to it.
pub fn next_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}
