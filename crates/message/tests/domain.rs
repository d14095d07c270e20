//! Domains of several units, in threads: what they say to each other.

mod units;

use polyduct_message::config::Config;
use polyduct_message::domain::directory::{HandlerError, Kind};
use polyduct_message::domain::pending::CallError;
use polyduct_message::domain::{Collective, Domain, Gone, Notice, Options};
use polyduct_message::{MessageError, Priority};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use units::{at, options, together, unique, Place};

#[test]
fn mails_of_any_length_between_all() {
    const LENGTHS: [usize; 9] = [0, 1, 31, 32, 33, 8192, 8193, 700_000, 3 << 20];
    together(4, |d| {
        let me = d.unit();
        std::thread::scope(|s| {
            s.spawn(|| {
                for (tag, len) in (0..).zip(LENGTHS) {
                    for to in 0..d.units() {
                        let payload: Vec<u8> = (0..len).map(|i| (i as u32 * 7 + me * 3 + to) as u8).collect();
                        d.send(to, tag, [me, len as u32], &payload).unwrap();
                    }
                }
            });
            for from in (0..d.units()).rev() {
                for (tag, len) in (0..).zip(LENGTHS) {
                    let mail = d.recv(Some(from), Some(tag)).unwrap();
                    assert_eq!((mail.words, mail.payload.len()), ([from, len as u32], len));
                    let good = |(i, &b): (usize, &u8)| b == (i as u32 * 7 + from * 3 + me) as u8;
                    assert!(mail.payload.iter().enumerate().all(good));
                    d.give_back(mail.payload);
                }
            }
        });
        d.barrier().unwrap();
        assert_eq!(d.status().mails, 0);
    });
}

/// More than one look takes, for one who sleeps: on one processor it always does when they come.
#[test]
fn who_is_woken_takes_all_that_came() {
    const TURNS: u64 = 60;
    const EACH: u64 = 400;
    let cpu = polyduct_os::cpu::allowed()[0];
    let times = together(2, |d| {
        polyduct_os::cpu::pin_to(cpu).unwrap();
        let other = 1 - d.unit();
        let seen = Arc::new(AtomicU64::new(0));
        let count = seen.clone();
        d.handler("count", 1, move |_, _| _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
        d.synchronise().unwrap();
        let count = d.lookup("count", other).unwrap();
        let mut channel = d.channel(other, Priority::Low).unwrap();
        let start = polyduct_os::clock::now();
        for turn in 1..=TURNS {
            (0..EACH).for_each(|_| channel.bulk(count, [0; 4], &[]).unwrap());
            d.serve_until(None, || seen.load(Ordering::Relaxed) >= turn * EACH).unwrap();
        }
        let took = polyduct_os::clock::now() - start;
        d.barrier().unwrap();
        took
    });
    // Sleepers look again after 100 ms by themselves; none had to.
    assert!(times.iter().all(|t| *t < Duration::from_millis(1500)), "{times:?}");
}

#[test]
fn handlers_by_name_with_channels_of_both_priorities() {
    together(3, |d| {
        let sum = Arc::new(AtomicU64::new(0));
        let bytes = Arc::new(AtomicU64::new(0));
        let (s, b) = (sum.clone(), bytes.clone());
        d.handler("add", 1, move |_, m| {
            s.fetch_add(u64::from(m.args[0]), Ordering::Relaxed);
            b.fetch_add(m.payload.len() as u64, Ordering::Relaxed);
        })
        .unwrap();
        assert!(matches!(d.lookup("add", 0), Err(MessageError::Handler(HandlerError::Unknown { .. }))));
        d.synchronise().unwrap();
        for to in (0..3).filter(|&to| to != d.unit()) {
            let add = d.lookup("add", to).unwrap();
            for priority in [Priority::High, Priority::Low] {
                let mut channel = d.channel(to, priority).unwrap();
                assert!(channel.sends_guaranteed().unwrap() > 0);
                for n in 0..3000 {
                    while let Err(e) = channel.short(add, [n, 0, 0, 0]) {
                        assert_eq!(e, MessageError::Full { to });
                        d.poll();
                    }
                }
                channel.bulk(add, [1, 0, 0, 0], &[5; 100_000]).unwrap();
                let seen = channel.bulk_while(add, [1, 0, 0, 0], &[5; 2_000_000], || 42).unwrap();
                assert_eq!(seen, 42);
            }
        }
        let done = || sum.load(Ordering::Relaxed) == 4 * (2999 * 3000 / 2 + 2);
        d.serve_until(None, done).unwrap();
        assert_eq!(bytes.load(Ordering::Relaxed), 4 * 2_100_000);
        d.barrier().unwrap();
    });
}

#[test]
fn names_that_disagree_are_told_to_all() {
    let told = together(3, |d| {
        d.handler("f", if d.unit() == 2 { 7 } else { 1 }, |_, _| ()).unwrap();
        let twice = d.handler("f", 1, |_, _| ());
        assert_eq!(twice, Err(MessageError::Handler(HandlerError::Duplicate { name: "f".into() })));
        d.synchronise()
    });
    for error in told {
        let want =
            HandlerError::Versions { name: "f".into(), first: 1, first_unit: 0, second: 7, second_unit: 2 };
        assert_eq!(error, Err(MessageError::Handler(want)));
    }
}

#[test]
fn a_function_gets_no_messages_and_a_handler_no_calls() {
    together(2, |d| {
        d.function("double", 1, |_, x| Ok([x, x].concat())).unwrap();
        d.handler("hear", 1, |_, _| ()).unwrap();
        d.synchronise().unwrap();
        let (messages, calls) = (Kind::Messages, Kind::Calls);
        let wrong = |name: &str, expected, found| {
            MessageError::Handler(HandlerError::WrongKind { name: name.into(), expected, found })
        };
        let region = d.region(5, 64).unwrap();
        d.barrier().unwrap();
        for to in 0..2 {
            let sent = [
                d.post(to, "double", [0; 4], b"x"),
                d.lookup("double", to).map(drop),
                d.put_notify(to, 5, 0, &[9], Notice { handler: "double", args: [0; 4] }),
            ];
            for told in sent {
                assert_eq!(told, Err(wrong("double", messages, calls)), "unit {to}");
            }
            let told = d.call(to, "hear", b"x", None).map(drop);
            assert_eq!(told, Err(wrong("hear", calls, messages)), "unit {to}");
        }
        d.barrier().unwrap();
        drop(region);
        // Nobody is thought faulty for it.
        assert_eq!(d.call(1 - d.unit(), "double", b"ab", None).unwrap().wait().unwrap(), b"abab");
        d.barrier().unwrap();
    });
}

#[test]
fn a_name_that_is_a_function_here_and_a_handler_there_is_told_to_all() {
    let told = together(3, |d| {
        match d.unit() {
            2 => d.function("f", 1, |_, _| Ok(vec![])).unwrap(),
            _ => d.handler("f", 1, |_, _| ()).unwrap(),
        }
        d.synchronise()
    });
    for error in told {
        let (first, second) = (Kind::Messages, Kind::Calls);
        let want = HandlerError::Kinds { name: "f".into(), first, first_unit: 0, second, second_unit: 2 };
        assert_eq!(error, Err(MessageError::Handler(want)));
    }
}

#[test]
fn who_comes_to_another_collective_operation_is_told_of_at_once() {
    const UNITS: u32 = 5;
    // Those that synchronise; the others come to a barrier.
    for synchronise in [&[0][..], &[1], &[4], &[0, 1], &[2, 4], &[1, 2, 3, 4]] {
        together(UNITS, |d| {
            let (me, case) = (d.unit(), format!("{synchronise:?}: unit {}", d.unit()));
            let own = |unit| match synchronise.contains(&unit) {
                true => Collective::Synchronise,
                false => Collective::Barrier,
            };
            let come = || match own(me) {
                Collective::Synchronise => d.synchronise(),
                Collective::Barrier => d.barrier(),
            };
            for _ in 0..3 {
                d.barrier().unwrap();
                d.synchronise().unwrap();
            }
            let begun = Instant::now();
            let told = come();
            match told {
                Err(MessageError::AtOdds { unit, theirs, mine }) => {
                    assert_eq!((theirs, mine), (own(unit), own(me)), "{case}");
                    assert_ne!(theirs, mine, "{case}");
                }
                _ => panic!("{case}: {told:?}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "{case} after {:?}", begun.elapsed());
            // It stays so.
            assert_eq!(d.barrier(), told, "{case}");
            assert_eq!(d.synchronise(), told, "{case}");
        });
    }
}

#[test]
fn calls_from_many_threads() {
    together(3, |d| {
        d.function("square", 1, |_, x| {
            let x = u64::from_le_bytes(x.try_into().map_err(|_| "not a number")?);
            Ok((x * x).to_le_bytes().to_vec())
        })
        .unwrap();
        d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
        if d.unit() == 0 {
            d.function("only here", 1, |_, _| Ok(vec![])).unwrap();
        }
        d.synchronise().unwrap();
        std::thread::scope(|s| {
            for thread in 0..4u64 {
                let d = &d;
                s.spawn(move || {
                    for n in 0..200u64 {
                        let to = ((thread + n) % 3) as u32;
                        let x = thread * 1000 + n;
                        let call = d.call(to, "square", &x.to_le_bytes(), None).unwrap();
                        assert_eq!(call.wait().unwrap(), (x * x).to_le_bytes());
                    }
                });
            }
        });
        let long: Vec<u8> = (0..1_500_000).map(|i| (i * 31) as u8).collect();
        let calls: Vec<_> = (0..3).map(|to| d.call(to, "echo", &long, None).unwrap()).collect();
        for call in calls {
            assert_eq!(call.wait().unwrap(), long);
        }
        let failed = d.call(1, "square", b"x", None).unwrap().wait();
        let error = CallError::Failed { unit: 1, name: "square".into(), error: "not a number".into() };
        assert_eq!(failed, Err(MessageError::Call(error)));
        let unknown = d.call(0, "cube", b"", None).map(drop);
        assert!(matches!(unknown, Err(MessageError::Handler(HandlerError::Unknown { .. }))));
        let there = d.call(2, "only here", b"", None).map(drop);
        assert!(matches!(there, Err(MessageError::Handler(HandlerError::NotThere { unit: 2, .. }))));
        d.barrier().unwrap();
        assert_eq!(d.status().calls, 0);
    });
}

#[test]
fn calls_end_by_deadline_and_cancellation() {
    // Across hosts a region is of no use to tell somebody who does not look.
    at(Place::Here, 2, &|d: Domain| {
        d.function("later", 1, |_, _| Ok(Vec::new())).unwrap();
        let told = d.region(0, 1).unwrap();
        d.synchronise().unwrap();
        let wait_to_be_told = || {
            let (end, mut byte) = (Instant::now() + Duration::from_secs(20), [0]);
            while byte == [0] {
                assert!(Instant::now() < end, "nobody tells");
                told.read(0, &mut byte).unwrap();
                std::thread::yield_now();
            }
        };
        if d.unit() == 0 {
            // From then on the other unit does not look before it is told, so nothing is answered.
            wait_to_be_told();
            let late = d.call(1, "later", b"", Some(Duration::from_millis(30))).unwrap();
            assert!(matches!(late.wait(), Err(MessageError::Call(CallError::Deadline { unit: 1, .. }))));
            let given_up = d.call(1, "later", b"", None).unwrap();
            given_up.cancel();
            assert!(matches!(given_up.wait(), Err(MessageError::Call(CallError::Cancelled { unit: 1, .. }))));
            drop(d.call(1, "later", b"", None).unwrap());
            d.put(1, 0, 0, &[1]).unwrap();
        } else {
            d.put(0, 0, 0, &[1]).unwrap();
            wait_to_be_told();
        }
        d.barrier().unwrap();
        assert_eq!(d.status().calls, 0);
    });
}

#[test]
fn regions_are_written_and_read_without_their_owner() {
    together(3, |d| {
        let mine = d.region(7, 100_000).unwrap();
        mine.write(0, &[d.unit() as u8 + 1; 100_000]).unwrap();
        assert!(matches!(d.region(7, 1), Err(MessageError::Region { id: 7, .. })));
        d.barrier().unwrap();
        let (next, me) = ((d.unit() + 1) % 3, d.unit());
        let mut bytes = vec![0; 100_000];
        d.get(next, 7, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| u32::from(b) == next + 1));
        d.barrier().unwrap();
        d.put(next, 7, 50_000 + me as usize, &[9; 1000]).unwrap();
        for (offset, len) in [(100_000, 1), (99_999, 2), (usize::MAX, 2), (0, 100_001)] {
            assert!(matches!(d.put(next, 7, offset, &vec![0; len]), Err(MessageError::Region { id: 7, .. })));
        }
        assert!(matches!(d.get(next, 8, 0, &mut [0]), Err(MessageError::Region { id: 8, .. })));
        d.barrier().unwrap();
        let before = ((me + 2) % 3) as usize;
        mine.read(0, &mut bytes).unwrap();
        for (i, &b) in bytes.iter().enumerate() {
            let written = (50_000 + before..51_000 + before).contains(&i);
            assert_eq!(u32::from(b), if written { 9 } else { me + 1 }, "byte {i}");
        }
        d.barrier().unwrap();
    });
}

#[test]
fn a_handler_answers_but_does_not_wait() {
    together(2, |d| {
        let answers = Arc::new(Mutex::new(HashMap::new()));
        let waited = Arc::new(Mutex::new(None));
        let (seen, refused) = (answers.clone(), waited.clone());
        // A handler that kept the domain would keep it for ever.
        let domain = d.downgrade();
        d.handler("answer", 1, move |_, m| {
            seen.lock().unwrap().insert(m.args[0], m.payload.to_vec());
        })
        .unwrap();
        d.handler("ask", 1, move |context, m| {
            let domain = domain.upgrade().unwrap();
            *refused.lock().unwrap() = Some(domain.recv(None, None).unwrap_err());
            let answer = domain.lookup("answer", m.from).unwrap();
            context.send(m.from, answer, [m.args[0], 0, 0, 0], &vec![7; m.args[0] as usize]).unwrap();
        })
        .unwrap();
        d.synchronise().unwrap();
        let other = 1 - d.unit();
        let ask = d.lookup("ask", other).unwrap();
        let mut channel = d.channel(other, Priority::Low).unwrap();
        for n in [0, 10, 100_000, 2_000_000] {
            channel.bulk(ask, [n, 0, 0, 0], b"").unwrap();
        }
        d.serve_until(None, || answers.lock().unwrap().len() == 4).unwrap();
        assert!(answers.lock().unwrap().iter().all(|(n, p)| p.len() == *n as usize));
        d.barrier().unwrap();
        assert_eq!(*waited.lock().unwrap(), Some(MessageError::InHandler));
    });
}

#[test]
fn what_is_posted_comes_in_order_with_what_is_sent() {
    const LENGTHS: [usize; 5] = [0, 20, 5000, 100_000, 1_000_000];
    together(2, |d| {
        let me = d.unit();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (numbers, domain) = (seen.clone(), d.downgrade());
        d.handler("number", 1, move |_, m| {
            let (n, domain) = (m.args[0], domain.upgrade().unwrap());
            assert_eq!(m.payload.len(), LENGTHS[n as usize % 5]);
            // What was sent before it is there.
            if m.from != domain.unit() {
                assert_eq!(domain.try_recv(Some(m.from), Some(n)).map(|mail| mail.words), Some([n, 0]));
            }
            numbers.lock().unwrap().push((m.from, n));
        })
        .unwrap();
        let domain = d.downgrade();
        d.handler("answer by post", 1, move |_, m| {
            domain.upgrade().unwrap().post(m.from, "count", m.args, m.payload).unwrap();
        })
        .unwrap();
        let (count, counted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (c, b) = (count.clone(), counted.clone());
        d.handler("count", 1, move |_, m| {
            b.fetch_add(m.payload.len() as u64, Ordering::Relaxed);
            c.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        if me == 0 {
            d.handler("only here", 1, |_, _| ()).unwrap();
        }
        assert!(matches!(d.post(me, "number", [0; 4], b""), Err(MessageError::Handler(_))), "not known yet");
        d.synchronise().unwrap();
        let other = 1 - me;
        for n in 0..50 {
            d.send(other, n, [n, 0], b"").unwrap();
            d.post(other, "number", [n, 0, 0, 0], &vec![1; LENGTHS[n as usize % 5]]).unwrap();
        }
        d.serve_until(None, || seen.lock().unwrap().len() == 50).unwrap();
        let come: Vec<_> = (0..50).map(|n| (other, n)).collect();
        assert_eq!(*seen.lock().unwrap(), come);
        // To the unit itself, the handler has run when it returns.
        d.post(me, "number", [1, 0, 0, 0], &[0; LENGTHS[1]]).unwrap();
        assert_eq!(seen.lock().unwrap().last(), Some(&(me, 1)));
        // A handler posts without waiting, more than there is room for at once.
        (0..20).for_each(|_| d.post(other, "answer by post", [0; 4], &[7; 1 << 20]).unwrap());
        d.serve_until(None, || count.load(Ordering::Relaxed) == 20).unwrap();
        assert_eq!(counted.load(Ordering::Relaxed), 20 << 20);
        let unknown = d.post(other, "nobody's", [0; 4], b"");
        assert!(matches!(unknown, Err(MessageError::Handler(HandlerError::Unknown { .. }))));
        let there = d.post(1, "only here", [0; 4], b"");
        assert!(matches!(there, Err(MessageError::Handler(HandlerError::NotThere { unit: 1, .. }))));
        assert_eq!(d.post(2, "count", [0; 4], b""), Err(MessageError::NoUnit { to: 2, units: 2 }));
        d.barrier().unwrap();
    });
}

#[test]
fn who_leaves_is_not_waited_for_and_its_last_words_are_heard() {
    together(3, |d| {
        if d.unit() == 2 {
            d.send(0, 1, [0; 2], &[1; 200_000]).unwrap();
            d.send(1, 1, [0; 2], b"bye").unwrap();
            return;
        }
        assert!(!d.recv(Some(2), None).unwrap().payload.is_empty());
        assert_eq!(d.recv(Some(2), None), Err(MessageError::PeerLeft { unit: 2 }));
        assert_eq!(d.barrier(), Err(MessageError::PeerLeft { unit: 2 }));
        assert!(matches!(d.send(2, 1, [0; 2], b"x"), Err(MessageError::PeerLeft { unit: 2 })));
        let other = 1 - d.unit();
        d.send(other, 2, [0; 2], b"still here").unwrap();
        assert_eq!(d.recv(None, None).unwrap().payload, b"still here");
    });
}

#[test]
fn a_message_has_a_limit() {
    let name = unique("limit");
    std::thread::scope(|s| {
        let unit = |unit| {
            let config =
                Config::from_sources(None, |v| (v == "POLYDUCT_MESSAGE_MESSAGE").then(|| "1MiB".into()));
            let options = Options { config: config.unwrap(), ..options(&name, unit, 2) };
            s.spawn(move || {
                let d = Domain::join(options).unwrap();
                d.function("f", 1, |_, _| Ok(Vec::new())).unwrap();
                d.synchronise().unwrap();
                let (limit, found) = (1 << 20, (1 << 20) + 1);
                let long = vec![0; found as usize];
                let limited = MessageError::Limit { what: "bytes of a message", limit, found };
                assert_eq!(d.send(1 - unit, 0, [0; 2], &long), Err(limited.clone()));
                assert_eq!(d.call(1 - unit, "f", &long, None).map(drop), Err(limited));
                d.send(1 - unit, 0, [0; 2], &long[1..]).unwrap();
                assert_eq!(d.recv(None, None).unwrap().payload.len() as u64, limit);
                d.barrier().unwrap();
            })
        };
        let units: Vec<_> = (0..2).map(unit).collect();
        units.into_iter().for_each(|u| u.join().unwrap());
    });
}

#[test]
fn joining_fails_by_name() {
    let name = unique("alone");
    let short =
        |unit, units| Options { open_timeout: Duration::from_millis(60), ..options(&name, unit, units) };
    let alone = Domain::join(short(0, 3)).map(drop).unwrap_err().to_string();
    assert!(alone.contains("unit 1, unit 2 did not come within"), "{alone}");
    assert!(matches!(Domain::join(short(1, 2)).map(drop), Err(MessageError::Timeout { .. })));
    assert!(matches!(Domain::join(short(2, 2)).map(drop), Err(MessageError::NoUnit { to: 2, units: 2 })));
    assert!(matches!(Domain::join(short(0, 5000)).map(drop), Err(MessageError::Limit { .. })));
    let bad = Options { name: "a/b".into(), ..short(0, 1) };
    assert!(matches!(Domain::join(bad).map(drop), Err(MessageError::BadName { .. })));
    let one = Domain::join(short(0, 1)).unwrap();
    assert!(matches!(Domain::join(short(0, 1)).map(drop), Err(MessageError::NameTaken { unit: 0, .. })));
    assert_eq!(one.gone(0), Ok(None::<Gone>));
    assert!(matches!(one.channel(0, Priority::Low).map(drop), Err(MessageError::ToSelf { unit: 0 })));
}

/// A unit that has come through is not needed any more: it may not receive again for long.
#[test]
fn who_is_through_owes_nobody_a_word() {
    let all = std::sync::Barrier::new(5);
    for _ in 0..5 {
        together(5, |d| {
            let first = d.barrier();
            all.wait();
            let second = d.synchronise();
            all.wait();
            first.and(second).unwrap();
        });
    }
}

/// What was to be fetched by a receiver that does not come in time is not sent, and its memory is the
/// caller's.
#[test]
fn a_fetch_that_comes_too_late_fetches_nothing() {
    let adjust = |o: &mut Options| o.timeout = Some(Duration::from_millis(200));
    let outside = std::sync::Barrier::new(2);
    units::at_with(Place::Here, 2, &adjust, &|d| {
        let got = Arc::new(Mutex::new(Vec::new()));
        let put = got.clone();
        d.handler("late", 1, move |_, m| put.lock().unwrap().push(m.payload.to_vec())).unwrap();
        d.synchronise().unwrap();
        let to_late = d.lookup("late", 1 - d.unit()).unwrap();
        if d.unit() == 0 {
            let mut channel = d.channel(1, Priority::Low).unwrap();
            // Only then does it know that the other can fetch.
            channel.bulk(to_late, [0; 4], &[0; 8]).unwrap();
            d.recv(Some(1), None).unwrap();
            let mut payload = vec![1; 300_000];
            let error = channel.bulk_while(to_late, [0; 4], &payload, || ()).unwrap_err();
            assert!(matches!(error, MessageError::Timeout { .. }), "{error}");
            payload.fill(9);
            let panics = std::panic::AssertUnwindSafe(|| {
                channel.bulk_while(to_late, [0; 4], &payload, || panic!("on purpose"))
            });
            std::panic::catch_unwind(panics).unwrap_err();
            drop(payload);
            outside.wait();
            channel.bulk(to_late, [0; 4], &[2; 8]).unwrap();
            d.send(1, 7, [0; 2], &[]).unwrap();
            d.barrier().unwrap();
        } else {
            d.serve_until(None, || !got.lock().unwrap().is_empty()).unwrap();
            d.send(0, 1, [0; 2], &[]).unwrap();
            // The other's patience ends while nobody receives here.
            outside.wait();
            while d.recv(Some(0), Some(7)).is_err() {}
            assert_eq!(*got.lock().unwrap(), [vec![0; 8], vec![2; 8]]);
            d.barrier().unwrap();
        }
    });
}

/// A program that opens one thing after the other under one name: whoever is early meets the domain that unit
/// 0 still closes. Each time all links are new, and whoever sleeps is to be called by them: a lost call costs
/// a tenth of a second.
#[test]
fn a_domain_that_all_have_left_is_joined_again_at_once() {
    const ROUNDS: u32 = 400;
    let name = format!("test-again-{}", std::process::id());
    let slow = AtomicU32::new(0);
    std::thread::scope(|s| {
        for unit in 0..3 {
            let (name, slow) = (&name, &slow);
            s.spawn(move || {
                for round in 0..ROUNDS {
                    let failed = |e: MessageError| -> String { format!("unit {unit}, round {round}: {e}") };
                    let options =
                        Options { open_timeout: Duration::from_secs(20), ..Options::new(name, unit, 3) };
                    let domain = Domain::join(options).map_err(failed).unwrap();
                    let start = Instant::now();
                    domain.barrier().map_err(failed).unwrap();
                    slow.fetch_add(u32::from(start.elapsed().as_millis() >= 90), Ordering::Relaxed);
                }
            });
        }
    });
    // One in two, where calls are lost.
    let slow = slow.into_inner();
    assert!(slow < ROUNDS / 5, "{slow} barriers of {} took as long as a lost call", 3 * ROUNDS);
}
