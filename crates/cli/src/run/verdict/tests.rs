use super::super::pipeline::Pipeline;
use super::super::plan::Site;
use super::*;
use std::path::Path;

fn plan(text: &str) -> Plan {
    let site = Site { run: "r", polyduct: Path::new("/p"), directory: Path::new("/") };
    Plan::new(&Pipeline::parse(text).unwrap(), &site)
}

struct Case<'a> {
    s: Supervisor<'a>,
    start: Instant,
}

impl<'a> Case<'a> {
    fn new(plan: &'a Plan) -> Self {
        let pids: Vec<u32> = (0..plan.processes.len() as u32).map(|i| 100 + i).collect();
        let start = Instant::now();
        let grace = Duration::from_secs(2);
        Case { s: Supervisor::new(plan, &pids, grace, Some(Duration::from_secs(30)), start), start }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn ends(&mut self, ms: u64, ends: &[(usize, End)]) -> Option<Action> {
        let now = self.at(ms);
        self.s.handle_ends(now, ends);
        self.s.poll_action()
    }

    fn port(&mut self, ms: u64, process: usize, mode: Mode, port: Port) {
        let now = self.at(ms);
        self.s.handle_port(now, process, mode, port);
        assert_eq!(self.s.poll_action(), None);
    }

    fn time(&mut self, ms: u64) -> Option<Action> {
        let now = self.at(ms);
        self.s.handle_time(now);
        self.s.poll_action()
    }

    fn message(&self) -> (u8, String) {
        let v = self.s.verdict();
        (v.status, v.message.unwrap_or_default())
    }
}

use End::*;

#[test]
fn success_is_silent() {
    let plan = plan("-n 2 a | b");
    let mut c = Case::new(&plan);
    let all: Vec<_> = (0..4).map(|i| (i, Exit(0))).collect();
    assert_eq!(c.ends(5, &all), None);
    assert!(c.s.is_finished());
    assert_eq!(c.message(), (0, String::new()));
}

#[test]
fn a_signal_is_named_at_once() {
    let plan = plan("-n 4 a x | -n 3 b");
    let mut c = Case::new(&plan);
    assert_eq!(c.ends(5, &[(3, Signal(9))]), Some(Action::SignalAll(15)));
    assert_eq!(c.ends(6, &[(0, Exit(1)), (1, Exit(1)), (2, Signal(11))]), None);
    assert_eq!(c.time(1999), None);
    assert_eq!(c.time(2005), Some(Action::SignalAll(9)));
    c.ends(2006, &[(4, Signal(9)), (5, Signal(9)), (6, Signal(9))]);
    assert!(c.s.is_finished());
    let text = "stage 0 (a x) unit 3 (pid 103) was killed by SIGKILL; ended the other 6 processes";
    assert_eq!(c.message(), (137, text.into()));
}

#[test]
fn an_exit_waits_for_the_signal_that_explains_it() {
    let plan = plan("-n 3 a");
    let mut c = Case::new(&plan);
    assert_eq!(c.ends(5, &[(0, Exit(1))]), None);
    assert_eq!(c.s.next_deadline(), Some(c.at(5) + WINDOW));
    assert_eq!(c.ends(9, &[(1, Exit(1)), (2, Signal(11))]), None, "all have ended: nobody to signal");
    assert!(c.s.is_finished());
    assert_eq!(
        c.message(),
        (139, "stage 0 (a) unit 2 (pid 102) was killed by SIGSEGV; ended the other 2 processes".into())
    );

    let mut c = Case::new(&plan);
    c.ends(5, &[(1, Exit(3))]);
    c.ends(7, &[(0, Exit(1))]);
    assert_eq!(c.time(5 + 40), Some(Action::SignalAll(15)));
    c.ends(50, &[(2, Signal(15))]);
    let text = "stage 0 (a) unit 1 (pid 101) exited with status 3; ended the other 2 processes";
    assert_eq!(c.message(), (3, text.into()));
}

#[test]
fn a_last_success_ends_the_suspicion() {
    let plan = plan("-n 2 a | -n 1 b");
    let mut c = Case::new(&plan);
    c.ends(1, &[(0, Exit(1))]);
    c.ends(2, &[(1, Exit(1))]);
    c.ends(3, &[(2, Exit(0))]);
    let text = "stage 0 (a) unit 0 (pid 100) exited with status 1; ended the other 1 process";
    assert_eq!(c.message(), (1, text.into()));
}

#[test]
fn those_that_had_finished_are_not_counted() {
    let plan = plan("-n 3 a");
    let mut c = Case::new(&plan);
    c.ends(1, &[(0, Exit(0))]);
    c.ends(2, &[(1, Signal(6))]);
    c.ends(3, &[(2, Signal(15))]);
    let text = "stage 0 (a) unit 1 (pid 101) was killed by SIGABRT; ended the other 1 process";
    assert_eq!(c.message(), (134, text.into()));
}

#[test]
fn sigpipe_of_a_plain_stage_is_no_failure() {
    let plan = plan("yes | head");
    for end in [Signal(13), Exit(141)] {
        let mut c = Case::new(&plan);
        assert_eq!(c.ends(1, &[(0, end)]), None);
        c.ends(2, &[(1, Exit(0))]);
        assert_eq!(c.message(), (0, String::new()));
        let mut c = Case::new(&plan);
        c.ends(1, &[(0, Exit(0))]);
        c.ends(2, &[(1, end)]);
        assert_eq!(c.message(), (141, String::new()), "the status stands, the message does not");
    }
}

#[test]
fn a_pump_without_reader_ends_the_stages_before_it() {
    let plan = plan("-n 2 a | head | cat");
    let mut c = Case::new(&plan);
    assert_eq!(c.ends(1, &[(2, Exit(READER_GONE))]), Some(Action::Terminate(vec![0, 1])));
    assert_eq!(c.ends(2, &[(0, Exit(1)), (1, Signal(15)), (3, Exit(0)), (4, Exit(0))]), None);
    assert_eq!(c.message(), (0, String::new()));

    // The writers fail first, the pump ends a moment later.
    let mut c = Case::new(&plan);
    assert_eq!(c.ends(1, &[(0, Exit(1)), (1, Exit(1)), (3, Exit(0))]), None);
    assert_eq!(c.ends(2, &[(2, Exit(READER_GONE))]), Some(Action::Terminate(vec![])));
    assert_eq!(c.time(60), None);
    c.ends(61, &[(4, Exit(0))]);
    assert_eq!(c.message(), (0, String::new()));
}

const BOTH: [Mode; 2] = [Mode::Read, Mode::Write];

#[test]
fn a_port_that_others_wait_for_must_be_opened() {
    // The stage that waits, with which port, and the one that ends without having opened which.
    for (pipeline, waits, asks, absent, lacks) in [
        ("-n 2 a | -n 2 b", 0, Mode::Write, 3, Mode::Read),
        ("-n 2 a | -n 2 b", 2, Mode::Read, 1, Mode::Write),
        ("-n 2 a | -n 2 b", 0, Mode::Write, 1, Mode::Write),
        ("a | -n 2 b", 1, Mode::Write, 2, Mode::Read),
        ("< f -n 2 a | b", 2, Mode::Read, 0, Mode::Write),
        ("-n 2 a > f", 0, Mode::Write, 1, Mode::Write),
    ] {
        let plan = plan(pipeline);
        for asks_first in [true, false] {
            let mut c = Case::new(&plan);
            if asks_first {
                c.port(1, waits, asks, Port::Opening);
                assert_eq!(c.ends(2, &[(absent, Exit(0))]), None);
            } else {
                assert_eq!(c.ends(1, &[(absent, Exit(0))]), None);
                assert_eq!(c.s.next_deadline(), Some(c.at(30_000)), "nobody waits yet");
                c.port(2, waits, asks, Port::Opening);
            }
            assert_eq!(c.time(2 + 40), Some(Action::SignalAll(15)), "{pipeline}");
            let rest: Vec<_> = (0..plan.processes.len()).filter(|&i| i != absent).collect();
            c.ends(43, &rest.iter().map(|&i| (i, Signal(15))).collect::<Vec<_>>());
            let (status, message) = c.message();
            let what = if lacks == Mode::Read { "input" } else { "output" };
            let who = plan.describe(absent);
            let start = format!("{who} (pid {}) ended without opening its {what}; ended", 100 + absent);
            assert!(status == 1 && message.starts_with(&start), "{message}");
        }
    }
}

#[test]
fn nobody_waits_where_nobody_asks_or_all_have_come() {
    let plan = plan("-n 2 a | -n 2 b");
    let all: Vec<_> = (0..4).map(|i| (i, Exit(0))).collect();
    // Programs that do not know of ports.
    let mut c = Case::new(&plan);
    assert_eq!(c.ends(1, &all[..3]), None);
    assert_eq!(c.s.next_deadline(), Some(c.at(30_000)));
    c.ends(2, &all[3..]);
    assert_eq!(c.message(), (0, String::new()));
    // One port is open, so all are, whether or not the news has come.
    let mut c = Case::new(&plan);
    (0..4).for_each(|i| c.port(1, i, BOTH[usize::from(i < 2)], Port::Opening));
    c.port(2, 0, Mode::Write, Port::Opened);
    c.ends(3, &all[1..]);
    c.ends(4, &all[..1]);
    assert_eq!(c.message(), (0, String::new()));
    // One that gave up waits no more, and one that ended neither; what opens no pipe of the run meets nobody.
    let mut c = Case::new(&plan);
    c.port(1, 0, Mode::Read, Port::Opening);
    c.port(1, 3, Mode::Write, Port::Opening);
    c.port(1, 0, Mode::Write, Port::Opening);
    c.port(1, 0, Mode::Write, Port::Failed);
    c.port(1, 1, Mode::Write, Port::Opening);
    c.ends(2, &all[1..3]);
    c.ends(3, &all[..1]);
    c.ends(3, &all[3..]);
    assert_eq!(c.message(), (0, String::new()));
}

#[test]
fn real_failures_and_late_news_win_over_a_port_that_nobody_opened() {
    let plan = plan("-n 2 a | -n 2 b");
    let suspect = || {
        let mut c = Case::new(&plan);
        c.port(1, 0, Mode::Write, Port::Opening);
        assert_eq!(c.ends(2, &[(2, Exit(0))]), None);
        c
    };
    let mut c = suspect();
    c.ends(3, &[(3, Exit(7))]);
    assert_eq!(c.time(3 + 40), Some(Action::SignalAll(15)));
    c.ends(50, &[(0, Exit(1)), (1, Signal(15))]);
    assert!(c.message().0 == 7 && c.message().1.contains("unit 1 (pid 103) exited with status 7"));

    let mut c = suspect();
    assert_eq!(c.ends(3, &[(1, Signal(11))]), Some(Action::SignalAll(15)));
    c.ends(50, &[(0, Exit(1)), (3, Signal(15))]);
    assert_eq!(c.message().0, 139);

    // A descendant of the one that ended had opened in its name.
    let mut c = suspect();
    c.port(3, 0, Mode::Write, Port::Opened);
    assert_eq!(c.s.next_deadline(), Some(c.at(30_000)));
}

#[test]
fn a_file_that_nobody_opens_must_come_all_the_same() {
    let plan = plan("-n 2 a > f");
    let all = [(1, Exit(0)), (0, Exit(0))];
    let mut c = Case::new(&plan);
    assert_eq!(c.ends(1, &all), None);
    let text = "stage 0 (a) unit 1 (pid 101) ended without opening its output\n";
    assert!(c.message().0 == 1 && c.message().1.starts_with(text), "{}", c.message().1);
    // A program may write the file that POLYDUCT_OUT names by itself.
    let mut c = Case::new(&plan);
    c.s.handle_file();
    c.ends(1, &all);
    assert_eq!(c.message(), (0, String::new()));
    let mut c = Case::new(&plan);
    c.ends(1, &[(1, Exit(0)), (0, Exit(2))]);
    assert_eq!(c.message().0, 2);
}

#[test]
fn a_file_that_is_opened_must_be_written() {
    let plan = plan("-n 2 a > f");
    let all = [(1, Exit(0)), (0, Exit(0))];
    let opened = || {
        let mut c = Case::new(&plan);
        (0..2).for_each(|unit| c.port(1, unit, Mode::Write, Port::Opened));
        c
    };
    let mut c = opened();
    assert_eq!(c.ends(1, &all), None);
    let text = "every process succeeded, but stage 0 did not write /f\n";
    assert!(c.message().0 == 1 && c.message().1.starts_with(text), "{}", c.message().1);
    let mut c = opened();
    c.s.handle_file();
    c.ends(1, &all);
    assert_eq!(c.message(), (0, String::new()));
    // A failure that is known says more.
    let mut c = opened();
    c.ends(1, &[(1, Exit(120))]);
    c.ends(2, &[(0, Exit(0))]);
    assert_eq!(c.message().0, 120);
}

#[test]
fn stages_before_a_pump_without_reader_need_not_open() {
    let plan = plan("-n 2 a | -n 1 b | head");
    let mut c = Case::new(&plan);
    c.port(1, 0, Mode::Write, Port::Opening);
    assert_eq!(c.ends(2, &[(3, Exit(READER_GONE))]), Some(Action::Terminate(vec![0, 1, 2])));
    c.ends(3, &[(2, Exit(0)), (4, Exit(0))]);
    c.ends(4, &[(0, Signal(15)), (1, Exit(0))]);
    assert_eq!(c.message(), (0, String::new()));
}

#[test]
fn asked_twice_kills() {
    let plan = plan("-n 2 a");
    let mut c = Case::new(&plan);
    c.s.handle_signal(c.at(1), 2);
    assert_eq!(c.s.poll_action(), Some(Action::SignalAll(2)));
    c.s.handle_signal(c.at(2), 2);
    assert_eq!(c.s.poll_action(), Some(Action::SignalAll(9)));
    c.ends(3, &[(0, Signal(9)), (1, Signal(9))]);
    assert_eq!(c.message(), (130, "interrupted (SIGINT); ended 2 processes".into()));
}

#[test]
fn timeout() {
    let plan = plan("-n 2 a");
    let mut c = Case::new(&plan);
    assert_eq!(c.s.next_deadline(), Some(c.at(30_000)));
    assert_eq!(c.time(29_999), None);
    assert_eq!(c.time(30_000), Some(Action::SignalAll(15)));
    c.ends(30_001, &[(0, Signal(15)), (1, Signal(15))]);
    assert_eq!(c.message(), (124, "still running after --timeout 30s; ended 2 processes".into()));
}

#[test]
fn of_ranks_the_first_that_failed_is_named() {
    // 0 is the launcher, 1 to 3 are its ranks, 4 reads.
    let plan = plan("-n 3 --mpi a | -n 1 b");
    let case = || {
        let mut c = Case::new(&plan);
        (1..4).for_each(|i| c.s.handle_rank(i, 900 + i as u32));
        c
    };
    // A rank that is killed wakes the reader first; the launcher kills the others.
    let mut c = case();
    assert_eq!(c.ends(5, &[(4, Exit(1))]), None);
    assert_eq!(c.ends(6, &[(2, Signal(9))]), Some(Action::SignalAll(15)));
    c.ends(7, &[(1, Signal(15)), (3, Signal(15)), (0, Exit(137))]);
    assert!(c.s.is_finished());
    let text = "stage 0 (a) unit 1 (pid 902) was killed by SIGKILL; ended the other 4 processes";
    assert_eq!(c.message(), (137, text.into()));

    // One that fails by itself is not overtaken by those that the launcher then kills, however the news come.
    for together in [true, false] {
        let mut c = case();
        let ends = [(3, Exit(3)), (1, Signal(15)), (2, Signal(9)), (0, Exit(3))];
        if together {
            assert_eq!(c.ends(5, &ends), None);
        } else {
            ends.iter().for_each(|end| assert_eq!(c.ends(5, &[*end]), None));
        }
        assert_eq!(c.time(5 + 40), Some(Action::SignalAll(15)));
        c.ends(46, &[(4, Signal(15))]);
        let text = "stage 0 (a) unit 2 (pid 903) exited with status 3; ended the other 4 processes";
        assert_eq!(c.message(), (3, text.into()));
    }
}

#[test]
fn a_launcher_ends_its_ranks_too() {
    let plan = plan("-n 2 --mpi a | -n 1 b");
    // It could not start them.
    let mut c = Case::new(&plan);
    (1..3).for_each(|i| c.s.handle_rank(i, 0));
    assert_eq!(c.ends(1, &[(0, Exit(213))]), None);
    assert_eq!(c.time(41), Some(Action::SignalAll(15)));
    c.ends(42, &[(3, Signal(15))]);
    assert!(c.s.is_finished());
    let text = "the launcher of stage 0 (a) (pid 100) exited with status 213; ended the other 1 process";
    assert_eq!(c.message(), (213, text.into()));

    // It did not start all of them, and is content.
    let mut c = Case::new(&plan);
    c.s.handle_rank(2, 0);
    assert_eq!(c.ends(1, &[(1, Exit(0)), (0, Exit(0)), (3, Exit(0))]), None);
    let text = "stage 0 (a) unit 1 was never started: its launcher ended without it";
    assert_eq!(c.message(), (1, text.into()));

    // A rank that opened no port is missed by who waits there; what comes late of it is old.
    let mut c = Case::new(&plan);
    c.port(1, 3, Mode::Read, Port::Opening);
    assert_eq!(c.ends(2, &[(1, Exit(0)), (2, Exit(0)), (0, Exit(0))]), None);
    assert_eq!(c.ends(3, &[(1, Exit(5))]), None);
    assert_eq!(c.time(2 + 40), Some(Action::SignalAll(15)));
    c.ends(43, &[(3, Signal(15))]);
    assert!(c.message().1.contains("unit 0 (pid 101) ended without opening its output"), "{:?}", c.message());

    let mut c = Case::new(&plan);
    c.ends(1, &[(0, Exit(0)), (3, Exit(0))]);
    assert!(c.s.is_finished() && c.message() == (0, String::new()));
}
