use std::thread;
use std::time::{Duration, Instant};

use polyduct_os::poll::{poll, EventFd, PollItem};
use polyduct_os::socket::Conn;

use crate::child::{say, WATCHDOG};

#[test]
fn signals_run_together_until_they_are_drained() {
    let bell = EventFd::new().unwrap();
    assert_eq!(poll(&mut [PollItem::readable(&bell)], Some(Duration::ZERO)), Ok(0));
    bell.signal().unwrap();
    bell.signal().unwrap();
    let mut items = [PollItem::readable(&bell)];
    assert_eq!(poll(&mut items, None), Ok(1));
    assert!(items[0].is_readable() && items[0].is_ready() && !items[0].is_hangup());
    assert_eq!(bell.drain(), Ok(2));
    assert_eq!(bell.drain(), Ok(0));
}

#[test]
fn a_full_counter_is_still_a_signal() {
    let bell = EventFd::new().unwrap();
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    bell.signal().unwrap();
    assert_eq!(bell.drain(), Ok(u64::MAX - 1));
}

#[test]
fn a_thread_that_polls_is_woken() {
    let bell = EventFd::new().unwrap();
    thread::scope(|s| {
        let sleeper = s.spawn(|| poll(&mut [PollItem::readable(&bell)], Some(WATCHDOG)));
        bell.signal().unwrap();
        assert_eq!(sleeper.join().unwrap(), Ok(1));
    });
}

#[test]
fn each_item_tells_its_own_state() {
    let (a, b) = Conn::pair().unwrap();
    let (c, d) = Conn::pair().unwrap();
    let quiet = EventFd::new().unwrap();
    say(&b, b"x", &[]);
    drop(d);
    let mut items =
        [PollItem::both(&a), PollItem::readable(&quiet), PollItem::hangup(&c), PollItem::writable(&b)];
    assert_eq!(poll(&mut items, Some(WATCHDOG)), Ok(3));
    let state: Vec<_> = items.iter().map(|i| (i.is_readable(), i.is_writable(), i.is_hangup())).collect();
    assert_eq!(
        state,
        [(true, true, false), (false, false, false), (false, false, true), (false, true, false)]
    );
}

#[test]
fn a_peer_that_only_stops_sending_has_hung_up_too() {
    let (a, b) = Conn::pair().unwrap();
    rustix::net::shutdown(&b, rustix::net::Shutdown::Write).unwrap();
    let mut items = [PollItem::hangup(&a)];
    assert_eq!(poll(&mut items, Some(WATCHDOG)), Ok(1));
    assert!(items[0].is_hangup());
}

#[test]
fn nothing_to_wait_for_waits_for_the_time() {
    let start = Instant::now();
    assert_eq!(poll(&mut [], Some(Duration::from_millis(10))), Ok(0));
    assert!(start.elapsed() >= Duration::from_millis(10));
}

#[test]
fn signals_do_not_shorten_the_wait() {
    use std::sync::atomic::{AtomicBool, Ordering};
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; without SA_RESTART it interrupts what it hits, which is the point.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    // SAFETY: it takes nothing and cannot fail.
    let sleeper = unsafe { libc::pthread_self() } as usize;
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the thread lives until `done`, and the scope outlives this one.
                unsafe { libc::pthread_kill(sleeper as libc::pthread_t, libc::SIGUSR1) };
                thread::yield_now();
            }
        });
        let start = Instant::now();
        let answer = poll(&mut [], Some(Duration::from_millis(50)));
        let took = start.elapsed();
        done.store(true, Ordering::Relaxed);
        assert_eq!(answer, Ok(0));
        assert!(took >= Duration::from_millis(50), "{took:?}");
    });
}
