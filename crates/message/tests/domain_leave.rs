//! Units that leave with something still to send: everything arrives as long as its receiver lives, and where
//! it cannot both sides are told.

mod units;

use polyduct_message::domain::pending::CallError;
use polyduct_message::domain::{Domain, OnLoss, Options};
use polyduct_message::MessageError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Barrier, Mutex};
use std::time::Duration;
use units::{at_with, sizes, until_asleep, Place, HOSTS};

/// Mails that one unit sends, far more than fit into a ring and the other's inbox.
const MAILS: u32 = 600;
const LEN: usize = 10_000;
const PATIENCE: Duration = Duration::from_millis(300);

fn places() -> impl Iterator<Item = Place> {
    HOSTS.into_iter().chain([Place::Here])
}

fn small_inbox(options: &mut Options) {
    options.config = sizes(&[("inbox", 64 << 10)]);
}

fn payload(n: u32) -> Vec<u8> {
    (0..LEN).map(|i| (n as usize * 31 + i) as u8).collect()
}

/// This unit sends so many mails to another from a handler, which does not wait: they wait for room.
fn send_without_waiting(d: &Domain, to: u32) {
    let (weak, sent) = (d.downgrade(), Arc::new(AtomicBool::new(false)));
    let done = sent.clone();
    d.handler("mails", 1, move |_, _| {
        let d = weak.upgrade().unwrap();
        (0..MAILS).for_each(|n| d.send(to, n, [n, 1], &payload(n)).unwrap());
        done.store(true, Ordering::Release);
    })
    .unwrap();
    d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
    d.synchronise().unwrap();
    d.post(d.unit(), "mails", [0; 4], b"").unwrap();
    assert!(sent.load(Ordering::Acquire));
}

/// The mails that come from a unit, in order and whole, and what comes after the last.
fn take_all(d: &Domain, from: u32) -> (u32, MessageError) {
    for n in 0.. {
        match d.recv(Some(from), None) {
            Ok(mail) => {
                assert!((mail.tag, mail.words) == (n, [n, 1]) && mail.payload == payload(n), "mail {n}")
            }
            Err(error) => return (n, error),
        }
    }
    unreachable!("mails never end")
}

/// Leaves, and says before in which thread.
fn leave_saying_where(d: &Domain, say: &Mutex<mpsc::Sender<i32>>) {
    say.lock().unwrap().send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
    d.leave().unwrap();
}

/// Comes to where [`send_without_waiting`] waits for all, and waits until the other sleeps in its leave.
fn come_and_hear(d: &Domain, hear: &Mutex<mpsc::Receiver<i32>>) {
    d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
    d.synchronise().unwrap();
    until_asleep(hear.lock().unwrap().recv().unwrap());
}

/// Unit 1 leaves with mails under way, for which unit 0 makes no room until it has done something else. All
/// of them arrive.
fn leave_late(place: Place, meanwhile: &(impl Fn(&Domain) + Sync)) {
    let (say, hear) = mpsc::channel();
    let (say, hear) = (Mutex::new(say), Mutex::new(hear));
    at_with(place, 2, &small_inbox, &|d| {
        if d.unit() == 1 {
            send_without_waiting(&d, 0);
            return leave_saying_where(&d, &say);
        }
        come_and_hear(&d, &hear);
        meanwhile(&d);
        assert_eq!(take_all(&d, 1), (MAILS, MessageError::PeerLeft { unit: 1 }), "{place:?}");
    });
}

#[test]
fn what_was_accepted_arrives_however_late_it_is_taken() {
    places().for_each(|place| leave_late(place, &|_| ()));
}

#[test]
fn what_cannot_be_sent_in_time_is_an_error_on_both_sides() {
    for (place, interrupted) in places().flat_map(|place| [(place, false), (place, true)]) {
        let (say, hear) = mpsc::channel();
        let (say, hear) = (Mutex::new(say), Mutex::new(hear));
        let stop = Arc::new(AtomicBool::new(false));
        let impatient = |options: &mut Options| {
            small_inbox(options);
            if options.unit == 1 {
                let stop = stop.clone();
                options.interrupt = Some(Arc::new(move || stop.load(Ordering::Acquire)));
                options.timeout = Some(PATIENCE).filter(|_| !interrupted);
            }
        };
        at_with(place, 2, &impatient, &|d| {
            if d.unit() == 1 {
                send_without_waiting(&d, 0);
                stop.store(interrupted, Ordering::Release);
                match d.leave().unwrap_err() {
                    MessageError::Timeout { .. } if !interrupted => {}
                    MessageError::Interrupted if interrupted => {}
                    other => panic!("{place:?}: {other}"),
                }
                assert_eq!(d.leave(), Ok(()), "it has left");
                say.lock().unwrap().send(()).unwrap();
                return;
            }
            d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
            d.synchronise().unwrap();
            hear.lock().unwrap().recv().unwrap();
            let (count, error) = take_all(&d, 1);
            let told = matches!(&error, MessageError::PeerLost { unit: 1, .. });
            assert!(told && count < MAILS, "{place:?}: {count} mails, then {error}");
        });
    }
}

#[test]
fn two_that_leave_do_not_wait_for_each_others_mail() {
    for place in places() {
        let sent = Barrier::new(2);
        at_with(place, 2, &small_inbox, &|d| {
            send_without_waiting(&d, 1 - d.unit());
            sent.wait();
            d.leave().unwrap();
        });
    }
}

#[test]
fn who_leaves_and_waits_answers_nobody() {
    for place in HOSTS {
        leave_late(place, &|d| {
            // Their answers could not come behind what this unit does not take.
            while let Ok(answer) = d.call(1, "echo", b"?", None).unwrap().wait() {
                assert_eq!(answer, b"?");
            }
            let late = d.call(1, "echo", b"?", None).and_then(|call| call.wait()).unwrap_err();
            let (MessageError::PeerLeft { unit } | MessageError::Call(CallError::PeerGone { unit, .. })) =
                late
            else {
                panic!("{place:?}: {late}")
            };
            assert_eq!(unit, 1);
            assert_eq!(d.barrier(), Err(MessageError::PeerLeft { unit: 1 }), "{place:?}");
        });
    }
}

#[test]
fn another_thread_may_hear_the_others_good_bye() {
    for place in places() {
        at_with(place, 2, &|_| (), &|d| {
            let left = AtomicBool::new(false);
            std::thread::scope(|s| {
                let (d, left) = (&d, &left);
                s.spawn(move || d.serve_until(None, || left.load(Ordering::Acquire)));
                d.send(1 - d.unit(), 1, [0; 2], &payload(1)).unwrap();
                d.barrier().unwrap();
                d.leave().unwrap();
                left.store(true, Ordering::Release);
                d.wake();
            });
        });
    }
}

#[test]
fn a_handler_leaves_when_it_is_over() {
    for place in places() {
        at_with(place, 2, &small_inbox, &|d| {
            // The handler has the last handle.
            let (last, over) = (Arc::new(Mutex::new(None::<Domain>)), Arc::new(AtomicBool::new(false)));
            let (own, done) = (last.clone(), over.clone());
            d.handler("leave", 1, move |_, _| {
                let d = own.lock().unwrap().take().unwrap();
                (0..MAILS).for_each(|n| d.send(0, n, [n, 1], &payload(n)).unwrap());
                assert_eq!(d.leave(), Err(MessageError::InHandler));
                done.store(true, Ordering::Release);
            })
            .unwrap();
            d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
            if d.unit() == 1 {
                *last.lock().unwrap() = Some(d.clone());
            }
            d.synchronise().unwrap();
            if d.unit() == 0 {
                d.post(1, "leave", [0; 4], b"").unwrap();
                assert_eq!(take_all(&d, 1), (MAILS, MessageError::PeerLeft { unit: 1 }), "{place:?}");
                return;
            }
            d.serve_until(None, || over.load(Ordering::Acquire)).unwrap();
        });
    }
}

/// A unit that goes on after a loss does not leave because of it: what it sent arrives.
#[test]
fn where_losses_end_no_waits_they_cost_no_messages() {
    for place in HOSTS {
        let (say, hear) = mpsc::channel();
        let (say, hear) = (Mutex::new(say), Mutex::new(hear));
        let met = Barrier::new(3);
        let adjust = |options: &mut Options| {
            small_inbox(options);
            options.on_loss = OnLoss::Continue;
        };
        at_with(place, 3, &adjust, &|d| {
            if d.unit() == 1 {
                send_without_waiting(&d, 0);
                met.wait();
                d.serve_until(None, || d.gone(2).unwrap().is_some()).unwrap();
                return leave_saying_where(&d, &say);
            }
            d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
            d.synchronise().unwrap();
            // None is lost to another that still waits for all.
            met.wait();
            if d.unit() == 2 {
                return d.give_up();
            }
            until_asleep(hear.lock().unwrap().recv().unwrap());
            assert_eq!(take_all(&d, 1), (MAILS, MessageError::PeerLeft { unit: 1 }), "{place:?}");
        });
    }
}
