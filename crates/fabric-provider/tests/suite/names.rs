//! Endpoints at ports, which are found by the names of hosts.

use super::*;
use crate::common::{getinfo_at, Info as Given};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port at which nobody listens, and of those that the system gives nobody by itself.
fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 1000) as u16 * 10;
    let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
    ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).unwrap().to_string()
}

#[test]
fn an_endpoint_at_a_port_is_found_by_host_and_port_alone() {
    let port = free_port();
    let at_port = getinfo_at(null(), None, Some(&port), SOURCE_FLAG).unwrap();
    let mut server = Node::of(&at_port, &[]);
    for host in ["127.0.0.1", "localhost"] {
        let info = getinfo_at(null(), Some(host), Some(&port), 0).unwrap();
        let mut client = Node::of(&info, &[]);
        let by_info = client.insert(&info.destination().unwrap());
        let by_service = client.insert_service(host, &port);
        // The client is known by nothing that it was not told of.
        let mut got = [[0; 16]; 2];
        for (n, (to, got)) in [by_info, by_service].into_iter().zip(&mut got).enumerate() {
            assert_eq!(server.trecv(got, ADDR_UNSPEC, n as u64, 0, n), 0);
            assert_eq!(client.tsend([b"by 0", b"by 1"][n], to, n as u64, n), 0);
        }
        let told = until_told(&mut [&mut server, &mut client], &[2, 2]);
        assert!(told.iter().flatten().all(Result::is_ok), "{told:?}");
        assert!(got[0].starts_with(b"by 0") && got[1].starts_with(b"by 1"));
        // It tells its own address, as programs do, and is answered by who is called as it was first.
        let to_client = server.insert(&client.name());
        let mut answer = [0; 16];
        assert_eq!(client.trecv(&mut answer, by_info, 7, 0, 1), 0);
        assert_eq!(server.tsend(b"an answer", to_client, 7, 1), 0);
        until_told(&mut [&mut server, &mut client], &[1, 1]);
        assert!(answer.starts_with(b"an answer"));
        assert_eq!(client.insert(&server.name()), 2, "it is inserted once more");
    }
    // An endpoint finds itself, too.
    let to_itself = server.insert_service("127.0.0.1", &port);
    let mut got = [0; 4];
    assert_eq!(server.trecv(&mut got, ADDR_UNSPEC, 9, 0, 1), 0);
    assert_eq!(server.tsend(b"self", to_itself, 9, 2), 0);
    until_told(&mut [&mut server], &[2]);
    assert_eq!(&got, b"self");
}

#[test]
fn a_port_is_one_endpoints_at_a_time() {
    let port = free_port();
    let at_port = getinfo_at(null(), Some("127.0.0.1"), Some(&port), SOURCE_FLAG).unwrap();
    let first = Node::of(&at_port, &[]);
    assert_eq!(Node::refused(&at_port), EADDRINUSE);
    // Where no host is named, it is anywhere.
    let anywhere = getinfo_at(null(), None, Some(&port), SOURCE_FLAG).unwrap();
    let second = Node::of(&anywhere, &[]);
    // By what others know them.
    let known = |node: &Node| node.name()[4..16].to_vec();
    let names = [known(&first), known(&second)];
    assert!(names[0] != names[1]);
    drop((first, second));
    assert_eq!(known(&Node::of(&at_port, &[])), names[0]);
    assert_eq!(known(&Node::of(&anywhere, &[])), names[0]);
}

/// A client that comes too early, and one that stays while the server ends and comes back, reach it when they
/// learn of it anew.
#[test]
fn another_life_of_an_endpoint_at_a_port_is_reached() {
    let port = free_port();
    let at_port = getinfo_at(null(), Some("127.0.0.1"), Some(&port), SOURCE_FLAG).unwrap();
    let mut client = Node::new();
    for life in 0..3 {
        // Nobody is there, or not any more.
        let (start, to) = (Instant::now(), client.insert_service("127.0.0.1", &port));
        loop {
            let sent = client.tsend(b"early", to, 1, 1) as i32;
            let told = (sent == 0).then(|| until_told(&mut [&mut client], &[1]).remove(0).remove(0));
            match told {
                None if sent == -EHOSTUNREACH => break,
                Some(Err(failed)) => break assert_eq!(failed.error, EHOSTUNREACH),
                _ => assert!(start.elapsed() < WATCHDOG, "life {life}: it is sent without end"),
            }
        }
        let mut server = Node::of(&at_port, &[]);
        let to = client.insert_service("127.0.0.1", &port);
        let mut got = [[0; 8]; 2];
        let to_client = server.insert(&client.name());
        assert_eq!(server.trecv(&mut got[0], ADDR_UNSPEC, 2, 0, 1), 0);
        assert_eq!(client.trecv(&mut got[1], ADDR_UNSPEC, 3, 0, 2), 0);
        if life == 1 {
            // The new life comes first.
            assert_eq!(server.tsend(b"answer", to_client, 3, 3), 0);
            assert_eq!(client.tsend(b"question", to, 2, 4), 0);
        } else {
            assert_eq!(client.tsend(b"question", to, 2, 4), 0);
            assert_eq!(server.tsend(b"answer", to_client, 3, 3), 0);
        }
        let told = until_told(&mut [&mut server, &mut client], &[2, 2]);
        assert!(told.iter().flatten().all(Result::is_ok), "life {life}: {told:?}");
        assert!(got[0] == *b"question" && got[1].starts_with(b"answer"));
    }
}

#[test]
fn what_is_asked_for_comes_back_and_what_is_no_place_is_refused() {
    let source = |info: &Given| info.source();
    let here = getinfo_at(null(), Some("127.0.0.1"), Some("41107"), SOURCE_FLAG).unwrap();
    assert_eq!(here.destination(), None);
    // Addresses of before, in hints.
    let there = getinfo_at(here.get(), Some("192.0.2.7"), Some("41108"), NUMERICHOST).unwrap();
    assert_eq!(source(&there), source(&here));
    let again = getinfo_at(there.get(), None, None, 0).unwrap();
    assert_eq!((again.source(), again.destination()), (there.source(), there.destination()));
    assert!(there.destination().is_some() && there.destination() != Some(source(&here)));
    for (node, service, flags) in [
        (Some("192.0.2.7"), Some("41108"), SOURCE_FLAG),
        (Some("localhost"), Some("41108"), NUMERICHOST),
        (Some("no.such.host.invalid"), Some("41108"), 0),
        (Some("127.0.0.1"), Some("no service"), 0),
        (Some("127.0.0.1"), Some("65536"), 0),
    ] {
        let found = getinfo_at(null(), node, service, flags);
        assert_eq!(found.err(), Some(ENODATA), "{node:?} {service:?}");
    }
    // What is not asked for is not looked at, and nobody opens an endpoint at another's host.
    let destination = there.destination().unwrap();
    assert_eq!(Node::refused(&there.at(destination)), EADDRNOTAVAIL);
    // SAFETY: its own, of this length.
    unsafe { (*here.get().cast_mut()).src_addr.cast::<u8>().write(b'x') };
    assert_eq!(getinfo_at(here.get(), None, None, 0).err(), Some(ENODATA));
    assert!(getinfo_at(here.get(), Some("127.0.0.1"), Some("41107"), SOURCE_FLAG).is_ok());
}

#[test]
fn a_poll_set_tells_which_queues_and_counters_have_news() {
    let (mut a, mut b, to_b, _) = pair();
    let counter = b.counter();
    // SAFETY: as a program does it; the set ends before what is in it.
    unsafe {
        let fid = b.ep.cast::<Fid>();
        assert_eq!(((*(*fid).ops).bind)(fid, counter.cast(), RECV), 0);
        (*b.cq.cast::<Fid>()).context = context(11);
        (*counter.cast::<Fid>()).context = context(12);
        let mut set = null_mut();
        assert_eq!(((*(*b.domain).ops).poll_open)(b.domain, null(), &raw mut set), 0);
        let ops = &*(*set).ops;
        for fid in [b.cq.cast::<Fid>(), counter.cast()] {
            assert_eq!((ops.poll_add)(set, fid, 0), 0);
            assert_eq!((ops.poll_add)(set, fid, 0), 0, "it is there once");
            assert_eq!(((*(*fid).ops).close)(fid), -EBUSY);
        }
        assert_eq!((ops.poll_add)(set, a.cq.cast(), 0), -EINVAL, "it is of another domain");
        let poll = |count| {
            let mut contexts = [null_mut(); 3];
            let found = (ops.poll)(set, contexts.as_mut_ptr(), count);
            contexts[..found as usize].to_vec()
        };
        assert_eq!(poll(3), []);
        let mut got = [0; 8];
        assert_eq!(b.trecv(&mut got, ADDR_UNSPEC, 5, 0, 1), 0);
        assert_eq!(a.tsend(b"news", to_b, 5, 2), 0);
        let (start, mut found) = (Instant::now(), Vec::new());
        while found != [context(11), context(12)] {
            found.extend(poll(3));
            found.sort();
            found.dedup();
            a.look();
            assert!(start.elapsed() < WATCHDOG, "{found:?}");
        }
        assert_eq!(poll(1), [context(11)], "it is not read yet");
        // A counter has news though it counts what it did before.
        assert_eq!(((*(*counter).ops).set)(counter, 0), 0);
        assert_eq!(b.trecv(&mut got, ADDR_UNSPEC, 5, 0, 1), 0);
        assert_eq!(a.tsend(b"news", to_b, 5, 2), 0);
        while !poll(3).contains(&context(12)) {
            a.look();
            assert!(start.elapsed() < WATCHDOG);
        }
        while b.look() {}
        assert_eq!(poll(3), [], "both are read");
        for fid in [b.cq.cast::<Fid>(), counter.cast()] {
            assert_eq!((ops.poll_del)(set, fid, 0), 0);
            assert_eq!((ops.poll_del)(set, fid, 0), -EINVAL);
        }
        assert_eq!((ops.poll_add)(set, b.cq.cast(), 0), 0);
        close(set);
    }
}
