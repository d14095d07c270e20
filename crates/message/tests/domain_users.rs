//! A domain among other users: who is none of its user's processes gets nothing, has it a name of the
//! domain's or looks like all others; and what one user's processes may have together, descriptors on their
//! way, is waited for.

use polyduct_message::config::Config;
use polyduct_message::domain::host::{socket_name, Answer, Ask, Join, PROTOCOL};
use polyduct_message::domain::process::Process;
use polyduct_message::domain::{Domain, Options};
use polyduct_message::handshake::Incoming;
use polyduct_message::MessageError;
use polyduct_os::process::user_id;
use polyduct_os::socket::{Conn, Listener, MESSAGE_LIMIT};
use polyduct_os::OsError;
use polyduct_rig::{say, tests, Unit};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            among_users_that_all_look_alike_only_those_of_this_namespace_come_in,
            a_name_that_another_user_took_is_said_to_be_that_users,
            descriptors_on_their_way_are_waited_for,
            who_does_not_pull_lets_nobody_read_its_memory,
        ],
    );
}

fn unique(what: &str) -> String {
    format!("users-{what}-{}", std::process::id())
}

/// What this process is to do: a word, and a name.
fn unit(spec: &str) {
    match spec.split_once(' ').unwrap() {
        ("meet", domain) => meet(domain),
        ("knock", socket) => knock(socket.as_bytes()),
        ("squat", socket) => {
            let _listener = Listener::bind(socket.as_bytes()).unwrap();
            say("ready");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        ("flight", domain) => flight(domain),
        ("permit", pull_from) => permit(pull_from),
        other => panic!("{other:?}"),
    }
    say("end");
}

/// Starts this program by a command, as a user. `None` where this is not root, who alone can.
fn start_as(user: u32, by: &[&str], spec: &str) -> Option<Unit> {
    if user_id() != 0 {
        eprintln!("not checked: what a process of another user gets; only root can start one");
        return None;
    }
    // The build directory may be closed to others.
    let program = std::env::temp_dir().join(unique("program"));
    polyduct_rig::program::copy(&program);
    let mut words = by.iter().map(OsStr::new).chain([program.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).current_dir("/").uid(user);
    let mut unit = Unit::start_by(command, spec, spec);
    // A command in between has to find the program first.
    unit.wait_line("ready");
    std::fs::remove_file(&program).unwrap();
    Some(unit)
}

fn options(domain: &str, unit: u32) -> Options {
    Options { open_timeout: PATIENCE, timeout: Some(PATIENCE), ..Options::new(domain, unit, 2) }
}

fn until_it_listens(domain: &str, unit: u32) {
    let end = Instant::now() + PATIENCE;
    while Conn::connect(&socket_name(domain, unit)).is_err() {
        assert!(Instant::now() < end, "unit {unit} does not listen");
        std::thread::yield_now();
    }
}

/// Both units of a domain, with the time for a stranger to come in between.
fn meet(domain: &str) {
    std::thread::scope(|s| {
        s.spawn(|| Domain::join(options(domain, 0)).unwrap().barrier().unwrap());
        until_it_listens(domain, 0);
        say("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        Domain::join(options(domain, 1)).unwrap().barrier().unwrap();
    });
}

/// A stranger asks to join as unit 1: it gets no answer.
fn knock(socket: &[u8]) {
    say("ready");
    let conn = Conn::connect(socket).unwrap();
    let ask = Ask::Join(Join { unit: 1, units: 2, process: Process::current().unwrap() });
    let _ = PROTOCOL.encode(&ask).unwrap().send(&conn, &[]);
    let (mut buffer, end) = (vec![0; MESSAGE_LIMIT], Instant::now() + PATIENCE);
    loop {
        match PROTOCOL.receive::<Answer>(&conn, &mut buffer) {
            Incoming::Closed => return,
            Incoming::Nothing => assert!(Instant::now() < end, "neither answered nor turned away"),
            Incoming::Message(..) | Incoming::Bad(_) => panic!("a stranger got an answer"),
        }
        std::thread::yield_now();
    }
}

fn among_users_that_all_look_alike_only_those_of_this_namespace_come_in() {
    let domain = unique("alike");
    let Some(mut ours) = start_as(0, &["unshare", "--user"], &format!("meet {domain}")) else { return };
    // Seen from there, this one is nobody, and so is every other.
    let socket = format!("polyduct/{NOBODY}/domain/{domain}/0");
    for by in [&[][..], &["unshare", "--user"]] {
        let mut theirs = start_as(NOBODY, by, &format!("knock {socket}")).unwrap();
        assert_eq!(theirs.end(), "end", "{by:?}");
    }
    ours.let_go();
    assert_eq!(ours.end(), "end", "the domain did not go on");
}

fn a_name_that_another_user_took_is_said_to_be_that_users() {
    let domain = unique("squat");
    let socket = String::from_utf8(socket_name(&domain, 0)).unwrap();
    let Some(_theirs) = start_as(NOBODY, &[], &format!("squat {socket}")) else { return };
    for unit in [0, 1] {
        let error = Domain::join(options(&domain, unit)).map(drop).unwrap_err();
        let stranger = MessageError::Stranger { unit: 0, expected: user_id(), found: NOBODY };
        assert_eq!(error, stranger, "unit {unit}");
        let text = format!("the process serving unit 0 belongs to user {NOBODY}, not to user {}", user_id());
        assert_eq!(error.to_string(), text);
    }
}

/// So many descriptors of this user are on their way that the system takes no more: who joins waits until
/// that is over, or its time.
fn flight(domain: &str) {
    say("ready");
    let (from, to) = Conn::pair().unwrap();
    let fds = [from.as_fd(); 8];
    while from.send(b"x", &fds) != Err(OsError::TooManyInFlight { limit: Some(64) }) {}
    std::thread::scope(|s| {
        let first = s.spawn(|| Domain::join(options(domain, 0)).and_then(|d| d.barrier()));
        until_it_listens(domain, 0);
        let soon = Options { open_timeout: Duration::from_millis(300), ..options(domain, 1) };
        let told = Domain::join(soon).map(drop).unwrap_err();
        let why = OsError::TooManyInFlight { limit: Some(64) }.to_string();
        assert!(matches!(&told, MessageError::Timeout { what, .. } if what.contains(&why)), "{told}");
        // Asked while it waits to send.
        let asked = Arc::new(AtomicU32::new(0));
        let interrupt = {
            let (asked, to) = (asked.clone(), std::sync::Mutex::new(to));
            move || {
                if asked.fetch_add(1, Ordering::Relaxed) == 10 {
                    let (to, mut buffer) = (to.lock().unwrap(), [0; 8]);
                    while let Ok(polyduct_os::socket::Received::Message { .. }) = to.recv(&mut buffer) {}
                }
                false
            }
        };
        let d = Domain::join(Options { interrupt: Some(Arc::new(interrupt)), ..options(domain, 1) }).unwrap();
        assert!(asked.load(Ordering::Relaxed) > 10, "it did not have to wait");
        d.barrier().unwrap();
        first.join().unwrap().unwrap();
    });
}

fn descriptors_on_their_way_are_waited_for() {
    // Root may have any number on their way.
    let by = ["sh", "-c", "ulimit -n 64; exec \"$0\""];
    let Some(mut unit) = start_as(NOBODY, &by, &format!("flight {}", unique("flight"))) else { return };
    assert_eq!(unit.end(), "end");
}

/// From here on this thread, and those that it starts, end the process when they permit others to read its
/// memory.
fn die_when_permitting() {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let skip_unless = |k, jf| libc::sock_filter { code: 0x15, jt: 0, jf, k };
    let give = |what| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: what };
    // The call's number, and the lower half of its first argument, on machines whose lower half comes first.
    let mut filter = [
        load(0),
        skip_unless(libc::SYS_prctl as u32, 3),
        load(16),
        skip_unless(libc::PR_SET_PTRACER as u32, 1),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers, and a program that lives until the call returns; the kernel checks and copies
    // it.
    let done = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// A domain of two units that pull messages from so many bytes on out of each other's memory; 0: by default.
fn permit(pull_from: &str) {
    die_when_permitting();
    let given = |name: &str| (name == "POLYDUCT_MESSAGE_PULL_FROM").then(|| pull_from.to_owned());
    let config = Config::from_sources(None, |name| given(name).filter(|n| n != "0")).unwrap();
    let domain = unique("permit");
    std::thread::scope(|s| {
        for unit in 0..2 {
            let options = Options { config: config.clone(), ..options(&domain, unit) };
            s.spawn(move || {
                let d = Domain::join(options).unwrap();
                d.send(1 - unit, 0, [0; 2], &[7; 3_000_000]).unwrap();
                assert_eq!(d.recv(Some(1 - unit), None).unwrap().payload, [7; 3_000_000]);
                d.barrier().unwrap();
            });
        }
    });
}

/// What Yama lets only those read whom a process permits stays so, unless messages are pulled.
fn who_does_not_pull_lets_nobody_read_its_memory() {
    assert_eq!(Unit::start("by default", "permit 0").end(), "end");
    assert_ne!(Unit::start("pulls", "permit 65536").end(), "end", "the test does not see who permits it");
}
