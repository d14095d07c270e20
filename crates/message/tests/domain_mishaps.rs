//! What programs do by mistake: a handler that panics, a time limit without end, a fork that drops what its
//! parent has.

mod units;

use polyduct_message::domain::pending::CallError;
use polyduct_message::domain::{Domain, Options};
use polyduct_message::MessageError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;
use units::{options, together, unique};

/// The link goes on, and so do the handlers: the caller of a function that panics is told its words.
#[test]
fn handlers_that_panic_harm_nobody_else() {
    let heard = together(2, |d: Domain| {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        d.handler("hear", 1, move |_, m| {
            assert!(m.args[0] != 1, "the second message is one too many");
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        d.function("fail", 1, |_, _| panic!("no such luck")).unwrap();
        d.function("echo", 1, |_, argument| Ok(argument.to_vec())).unwrap();
        d.synchronise().unwrap();
        let other = 1 - d.unit();
        for to in [other, d.unit()] {
            for n in 0..3 {
                d.post(to, "hear", [n, 0, 0, 0], &[7; 20_000]).unwrap();
            }
            let error = d.call(to, "fail", b"", None).unwrap().wait().unwrap_err();
            let words = match &error {
                MessageError::Call(CallError::Failed { unit, error, .. }) if *unit == to => error,
                _ => panic!("{error}"),
            };
            assert!(words.contains("it panicked: no such luck"), "{words}");
            assert_eq!(d.call(to, "echo", b"still here", None).unwrap().wait().unwrap(), b"still here");
        }
        d.barrier().unwrap();
        count.load(Ordering::Relaxed)
    });
    assert_eq!(heard, [4, 4]);
}

#[test]
fn a_time_limit_without_end_is_none() {
    let options = |name: &str| Options {
        timeout: Some(Duration::MAX),
        open_timeout: Duration::MAX,
        ..Options::new(name, 0, 1)
    };
    let d = Domain::join(options(&unique("endless"))).unwrap();
    d.function("echo", 1, |_, argument| Ok(argument.to_vec())).unwrap();
    d.synchronise().unwrap();
    assert_eq!(d.call(0, "echo", b"x", Some(Duration::MAX)).unwrap().wait().unwrap(), b"x");
    d.barrier().unwrap();
}

/// What a fork drops is its parent's: the unit is still there for the others, and so is the thread that
/// serves its host.
#[test]
fn a_fork_that_drops_a_domain_does_not_leave_it() {
    let name = unique("fork");
    let gate = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        for unit in 0..2 {
            let (name, gate) = (&name, &gate);
            s.spawn(move || {
                let d = Domain::join(options(name, unit, 2)).unwrap();
                d.barrier().unwrap();
                if unit == 0 {
                    // SAFETY: the child drops what it has and ends; the allocator keeps its locks across
                    // forks.
                    let child = unsafe { libc::fork() };
                    if child == 0 {
                        drop(d);
                        // SAFETY: no destructors or handlers of the parent are to run.
                        unsafe { libc::_exit(0) };
                    }
                    let mut status = 1;
                    // SAFETY: the child is this process's own.
                    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                    assert_eq!(status, 0);
                }
                gate.wait();
                d.barrier().unwrap();
                d.send(1 - unit, 0, [0; 2], b"there").unwrap();
                assert_eq!(d.recv(Some(1 - unit), None).unwrap().payload, b"there");
            });
        }
    });
}

/// A call that a fork drops is its parent's, which still gets the answer.
#[test]
fn a_fork_that_drops_a_call_does_not_cancel_it() {
    let name = unique("fork-call");
    let gate = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        let (name, gate) = (&name, &gate);
        s.spawn(move || {
            let d = Domain::join(options(name, 1, 2)).unwrap();
            d.function("echo", 1, |_, argument| Ok(argument.to_vec())).unwrap();
            d.synchronise().unwrap();
            // Nothing is answered before the child has dropped the call.
            gate.wait();
            d.barrier().unwrap();
        });
        let d = Domain::join(options(name, 0, 2)).unwrap();
        d.function("echo", 1, |_, argument| Ok(argument.to_vec())).unwrap();
        d.synchronise().unwrap();
        let call = d.call(1, "echo", b"still asked", None).unwrap();
        // SAFETY: the child drops what it has and ends; the allocator keeps its locks across forks.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(call);
            // SAFETY: no destructors or handlers of the parent are to run.
            unsafe { libc::_exit(0) };
        }
        let mut status = 1;
        // SAFETY: the child is this process's own.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        gate.wait();
        assert_eq!(call.wait().unwrap(), b"still asked");
        d.barrier().unwrap();
    });
}

/// What a fork has of lent memory is its parent's, which still lends it: others who found it before reach it
/// as before.
#[test]
fn a_fork_that_drops_lent_memory_does_not_take_it_back() {
    let name = unique("fork-lent");
    let gate = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        let (name, gate) = (&name, &gate);
        s.spawn(move || {
            let d = Domain::join(options(name, 1, 2)).unwrap();
            gate.wait();
            let mut found = [0; 2];
            let mut done = vec![d.get(0, 7, 1, &mut found)];
            for round in 4..6 {
                // In the child the memory is dropped here.
                gate.wait();
                gate.wait();
                done.push(d.put(0, 7, 0, &[round]));
            }
            d.barrier().unwrap();
            assert_eq!((done, found), (vec![Ok(()); 3], [2, 3]));
        });
        let d = Domain::join(options(name, 0, 2)).unwrap();
        let mut lent = Some(d.lend(7, vec![1, 2, 3]).unwrap());
        gate.wait();
        let mut ended = Vec::new();
        for withdraws in [true, false] {
            gate.wait();
            // SAFETY: the child drops what it has and ends; the allocator keeps its locks across forks.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let lent = lent.take();
                let refused = lent.as_ref().is_some_and(|lent| {
                    !withdraws || matches!(lent.withdraw(), Err(MessageError::Region { id: 7, .. }))
                });
                drop(lent);
                // SAFETY: no destructors or handlers of the parent are to run.
                unsafe { libc::_exit(i32::from(!refused)) };
            }
            let mut status = 1;
            // SAFETY: the child is this process's own.
            ended.push(unsafe { libc::waitpid(child, &mut status, 0) } == child && status == 0);
            gate.wait();
        }
        d.barrier().unwrap();
        assert_eq!(ended, [true; 2]);
        assert_eq!(lent.take().unwrap().withdraw().unwrap().into_vec().ok(), Some(vec![5, 2, 3]));
    });
}
