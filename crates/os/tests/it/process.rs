use std::time::Duration;

use polyduct_os::poll::{poll, PollItem};
use polyduct_os::process::{self, PidFd, ProcessId, Signal};
use polyduct_os::OsError;

use crate::child::{self, WATCHDOG};

#[test]
fn this_process_is_who_it_is() {
    let me = ProcessId::current().unwrap();
    assert_eq!(me.pid, std::process::id());
    assert_eq!(ProcessId::of(me.pid), Ok(me));
    assert!(me.is_alive());
    assert!(me.start_time > 0);
    let another = ProcessId { start_time: me.start_time + 1, ..me };
    assert!(!another.is_alive());
    assert_eq!(PidFd::of(another).unwrap_err(), OsError::PeerGone { pid: me.pid });
    assert!(PidFd::of(me).unwrap().is_alive());
}

#[test]
fn there_is_no_such_process() {
    // The kernel's largest number is 2^22.
    for pid in [0, 1 << 23, i32::MAX as u32, u32::MAX] {
        assert_eq!(PidFd::open(pid).unwrap_err(), OsError::PeerGone { pid });
        assert_eq!(ProcessId::of(pid).unwrap_err(), OsError::PeerGone { pid });
    }
}

#[test]
fn a_killed_process_is_dead_before_and_after_it_is_reaped() {
    if let Some(conn) = child::here() {
        child::hear(&conn);
        return;
    }
    let mut kid = child::start("process::a_killed_process_is_dead_before_and_after_it_is_reaped");
    let id = ProcessId::of(kid.pid()).unwrap();
    let by_id = PidFd::of(id).unwrap();
    let by_socket = kid.conn.peer_pidfd().unwrap();
    assert_eq!((by_id.pid(), by_socket.pid()), (kid.pid(), kid.pid()));
    assert!(id.is_alive() && by_id.is_alive() && by_socket.is_alive());
    let is_child = || process::children().unwrap().iter().any(|c| c.id == id);
    assert!(is_child());
    assert_eq!(by_id.exited_within(Duration::ZERO), Ok(false));
    by_socket.kill().unwrap();
    let mut items = [PollItem::readable(&by_id), PollItem::hangup(&kid.conn)];
    while !items.iter().all(PollItem::is_ready) {
        assert_ne!(poll(&mut items, Some(WATCHDOG)), Ok(0), "nobody said that it died");
    }
    assert_eq!(by_id.exited_within(WATCHDOG), Ok(true));
    assert!(!id.is_alive() && !by_id.is_alive() && !by_socket.is_alive());
    assert!(!is_child());
    assert_eq!(ProcessId::of(kid.pid()), Ok(id), "a zombie keeps its number");
    kid.kill();
    assert!(!id.is_alive() && !by_id.is_alive() && !by_socket.is_alive());
    assert_eq!(by_id.kill().unwrap_err(), OsError::PeerGone { pid: id.pid });
    assert_eq!(PidFd::of(id).unwrap_err(), OsError::PeerGone { pid: id.pid });
}

#[test]
fn a_child_dies_with_its_parent() {
    const TEST: &str = "process::a_child_dies_with_its_parent";
    if let Some(conn) = child::here() {
        if std::env::var_os("GRANDCHILD").is_some() {
            process::set_parent_death_signal(Some(Signal::KILL)).unwrap();
            child::say(&conn, &process::parent_id().to_ne_bytes(), &[]);
            child::hear(&conn);
            panic!("it outlived its parent");
        }
        std::env::set_var("GRANDCHILD", "1");
        // The signal comes when the thread ends that started the process, so that thread must be the last.
        let kid = child::start(TEST);
        let grandchild = kid.conn.peer_pidfd().unwrap();
        let (said, _) = child::hear(&kid.conn).unwrap();
        assert_eq!(said, std::process::id().to_ne_bytes());
        child::say(
            &conn,
            b"mine",
            &[std::os::fd::AsFd::as_fd(&grandchild), std::os::fd::AsFd::as_fd(&kid.conn)],
        );
        child::hear(&conn);
        panic!("it outlived its parent");
    }
    let mut kid = child::start(TEST);
    let (_, mut fds) = child::hear(&kid.conn).unwrap();
    let (grandchild, _its_conn) = (fds.remove(0), fds.remove(0));
    assert_eq!(poll(&mut [PollItem::readable(&grandchild)], Some(Duration::ZERO)), Ok(0));
    kid.kill();
    assert_eq!(poll(&mut [PollItem::readable(&grandchild)], Some(WATCHDOG)), Ok(1));
}
