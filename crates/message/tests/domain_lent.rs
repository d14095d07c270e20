//! Ordinary memory as a region, and words to its owner: by the kernel, by messages where the kernel refuses,
//! across hosts.

use polyduct_message::domain::directory::HandlerError;
use polyduct_message::domain::{Domain, Notice};
use polyduct_message::link::net::config::Transport;
use polyduct_message::MessageError;
use polyduct_os::remote::RemoteReader;
use polyduct_os::OsError;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use units::{at, together, Place};

mod units;

/// From here on this thread may not reach the memory of any process, as in many containers.
fn refuse_to_reach() {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let skip_unless = |nr: libc::c_long, jf| libc::sock_filter { code: 0x15, jt: 0, jf, k: nr as u32 };
    let give = |what| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: what };
    let denied = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        load(0),
        skip_unless(libc::SYS_process_vm_readv, 1),
        give(denied),
        skip_unless(libc::SYS_process_vm_writev, 1),
        give(denied),
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
    let (this, byte) = (RemoteReader::new(std::process::id()).unwrap(), [5]);
    let read = this.read(&mut [0], byte.as_ptr() as u64);
    assert!(matches!(read, Err(OsError::RemoteDenied { .. })), "{read:?}");
}

/// By the kernel, by messages on one host, and across hosts.
fn every_way<T: Send>(units: u32, run: impl Fn(Domain) -> T + Sync) {
    together(units, &run);
    at(Place::Here, units, &|d| {
        refuse_to_reach();
        run(d)
    });
}

fn bytes(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

const SIZES: [usize; 13] =
    [0, 1, 7, 8, 64, 4095, 4096, 8193, 100_000, 1 << 20, (1 << 20) + 1, 3 << 20, (4 << 20) + 17];

#[test]
fn lent_memory_of_every_size_against_an_oracle() {
    every_way(2, |d| {
        let (me, other) = (d.unit(), 1 - d.unit());
        for (id, len) in (0..).zip(SIZES) {
            let lent = d.lend(id, bytes(len, me)).unwrap();
            assert_eq!((lent.id(), lent.len(), lent.is_empty()), (id, len, len == 0));
            d.barrier().unwrap();
            // Each writes into its own quarter of the other's, and reads all but that.
            let mut oracle = bytes(len, other);
            let quarter = len / 4;
            let part = bytes(quarter, 77 + me);
            d.put(other, id, quarter, &part).unwrap();
            oracle[quarter..2 * quarter].copy_from_slice(&part);
            let started = bytes(quarter, 99 + me);
            d.start_put(other, id, 2 * quarter, &started).unwrap().wait().unwrap();
            oracle[2 * quarter..3 * quarter].copy_from_slice(&started);
            let mut got = vec![0; len];
            d.get(other, id, 0, &mut got).unwrap();
            assert!(got == oracle, "{len} bytes");
            let mut mine = vec![0; quarter];
            d.get(me, id, 0, &mut mine).unwrap();
            assert!(mine == bytes(len, me)[..quarter], "one's own, {len} bytes");
            d.barrier().unwrap();
            // What the other has put is in the vector that comes back.
            let back = lent.withdraw().unwrap().into_vec().ok().unwrap();
            let mut oracle = bytes(len, me);
            oracle[quarter..2 * quarter].copy_from_slice(&bytes(quarter, 77 + other));
            oracle[2 * quarter..3 * quarter].copy_from_slice(&bytes(quarter, 99 + other));
            assert!(back == oracle, "{len} bytes come back");
        }
        d.barrier().unwrap();
        assert_eq!(d.status().calls, 0);
    });
}

#[test]
fn bytes_beyond_the_end_and_regions_that_are_not_there_are_errors_and_touch_nothing() {
    const LEN: usize = (2 << 20) + 5;
    every_way(2, |d| {
        let other = 1 - d.unit();
        let lent = d.lend(7, vec![1; LEN]).unwrap();
        assert!(matches!(d.lend(7, vec![0; 1]), Err(MessageError::Region { id: 7, .. })));
        assert!(matches!(d.region(7, 1), Err(MessageError::Region { id: 7, .. })));
        d.barrier().unwrap();
        for to in [other, d.unit()] {
            for (offset, len) in
                [(LEN, 1), (LEN + 1, 0), (LEN - 1, 2), (usize::MAX, 2), (usize::MAX - 1, 1), (0, LEN + 1)]
            {
                let put = d.put(to, 7, offset, &vec![9; len]);
                assert!(matches!(put, Err(MessageError::Region { id: 7, .. })), "{offset}, {len}: {put:?}");
                let get = d.get(to, 7, offset, &mut vec![9; len]);
                assert!(matches!(get, Err(MessageError::Region { id: 7, .. })), "{offset}, {len}: {get:?}");
            }
            assert!(matches!(d.get(to, 8, 0, &mut [0]), Err(MessageError::Region { id: 8, .. })));
            assert!(matches!(d.put(to, 8, 0, &[]), Err(MessageError::Region { id: 8, .. })));
        }
        assert!(matches!(d.put(2, 7, 0, &[0]), Err(MessageError::NoUnit { to: 2, units: 2 })));
        let late = d.start_put(other, 7, LEN, &[9]).and_then(|put| put.wait());
        assert!(matches!(late, Err(MessageError::Region { id: 7, .. })), "{late:?}");
        d.barrier().unwrap();
        let back = lent.withdraw().unwrap().into_vec().ok().unwrap();
        assert!(back.iter().all(|&b| b == 1), "something was written");
        assert!(matches!(lent.withdraw(), Err(MessageError::Region { id: 7, .. })), "twice");
        assert!(matches!(lent.write(0, &[1]), Err(MessageError::Region { id: 7, .. })));
        d.barrier().unwrap();
    });
    at(Place::Here, 2, &|d: Domain| {
        let _lent = d.lend(7, vec![1; 8]).unwrap();
        d.barrier().unwrap();
        for unit in 0..2 {
            let error = d.region_of(unit, 7).map(drop).unwrap_err().to_string();
            assert!(error.contains("ordinary memory"), "{error}");
        }
        d.barrier().unwrap();
    });
}

/// One lends, fills, takes back and spoils the memory, again and again; the other copies all the while. It
/// never sees a byte of spoiled memory, and never writes one into it.
#[test]
fn memory_that_was_taken_back_is_neither_read_nor_written() {
    const LEN: usize = 300_000;
    const SPOILED: u8 = 0xEE;
    every_way(3, |d| {
        let over = d.region(1, 1).unwrap();
        d.barrier().unwrap();
        if d.unit() == 0 {
            let mut memory = vec![0; LEN];
            for turn in 0..60 {
                memory.fill(1 + turn % 2);
                let lent = d.lend(9, memory).unwrap();
                // Until somebody has been there.
                for _ in 0..50 {
                    d.poll();
                    std::thread::yield_now();
                }
                memory = lent.withdraw().unwrap().into_vec().ok().unwrap();
                memory.fill(SPOILED);
                (0..10).for_each(|_| _ = d.poll());
                assert!(memory.iter().all(|&b| b == SPOILED), "written after it was taken back, turn {turn}");
            }
            for to in 1..3 {
                d.put(to, 1, 0, &[1]).unwrap();
            }
        } else {
            let (mut done, mut there, mut gone, mut got) = ([0], 0, 0, vec![0; LEN]);
            while done == [0] {
                let tried = match there % 2 {
                    0 => d.get(0, 9, 0, &mut got).inspect(|()| {
                        assert!(!got.contains(&SPOILED) && !got.contains(&0), "read after it was taken back");
                    }),
                    _ => d.put(0, 9, 5, &[3; LEN / 2]),
                };
                match tried {
                    Ok(()) => there += 1,
                    Err(MessageError::Region { id: 9, .. }) => gone += 1,
                    Err(other) => panic!("{other}"),
                }
                d.poll();
                over.read(0, &mut done).unwrap();
            }
            assert!(gone > 0 || there > 0);
        }
        d.barrier().unwrap();
    });
}

#[test]
fn a_dropped_handle_and_a_unit_that_leaves_end_it() {
    every_way(2, |d| {
        let mut byte = [0];
        if d.unit() == 0 {
            drop(d.lend(1, vec![5; 10]).unwrap());
            let _lent = d.lend(2, vec![6; 10]).unwrap();
            d.barrier().unwrap();
            d.barrier().unwrap();
            d.leave().unwrap();
            return;
        }
        d.barrier().unwrap();
        assert!(matches!(d.get(0, 1, 0, &mut byte), Err(MessageError::Region { id: 1, .. })));
        d.get(0, 2, 9, &mut byte).unwrap();
        assert_eq!(byte, [6]);
        d.barrier().unwrap();
        assert_eq!(d.recv(Some(0), None).map(drop), Err(MessageError::PeerLeft { unit: 0 }));
        assert_eq!(d.get(0, 2, 9, &mut byte), Err(MessageError::PeerLeft { unit: 0 }));
        assert_eq!(d.put(0, 2, 9, &byte), Err(MessageError::PeerLeft { unit: 0 }));
    });
}

#[test]
fn a_notice_comes_after_the_bytes_and_in_order_with_mail() {
    const LEN: usize = 1_500_000;
    const TURNS: u32 = 12;
    every_way(2, |d| {
        let (me, other) = (d.unit(), 1 - d.unit());
        let lent = Arc::new(d.lend(4, vec![0; LEN]).unwrap());
        let shared = d.region(5, LEN).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (memory, list) = (Arc::downgrade(&lent), seen.clone());
        let same = AtomicBool::new(true);
        d.handler("put", 1, move |_, m| {
            let mut now = vec![0; LEN];
            match m.args[1] {
                4 => memory.upgrade().unwrap().read(0, &mut now).unwrap(),
                _ => shared.read(0, &mut now).unwrap(),
            }
            same.fetch_and(now.iter().all(|&b| u32::from(b) == m.args[0]), Ordering::Relaxed);
            assert!(m.payload.is_empty() && m.from == other);
            list.lock().unwrap().push((m.args[0], same.load(Ordering::Relaxed)));
        })
        .unwrap();
        d.handler("got", 1, |_, _| ()).unwrap();
        let taken = Arc::new(AtomicU32::new(0));
        let count = taken.clone();
        d.handler("taken", 1, move |_, m| _ = count.fetch_add(m.args[3], Ordering::Relaxed)).unwrap();
        d.synchronise().unwrap();
        for turn in 1..=TURNS {
            let id = 4 + turn % 2;
            let notice = Notice { handler: "put", args: [turn, id, 0, 0] };
            d.put_notify(other, id, 0, &vec![turn as u8; LEN], notice).unwrap();
            d.send(other, turn, [0; 2], b"").unwrap();
            // Once its mail is here, so is the other's notice of the turn.
            d.recv(Some(other), Some(turn)).unwrap();
            assert_eq!(seen.lock().unwrap().last(), Some(&(turn, true)));
            d.barrier().unwrap();
        }
        let mut got = vec![0; 100];
        let notice = Notice { handler: "taken", args: [0, 0, 0, 3] };
        d.get_notify(other, 4, LEN - 100, &mut got, notice).unwrap();
        assert_eq!(got, [TURNS as u8; 100]);
        d.serve_until(None, || taken.load(Ordering::Relaxed) == 3).unwrap();
        // Nothing is written, and nobody told, where one of the two is not there.
        let unknown = Notice { handler: "nobody", args: [0; 4] };
        let refused = d.put_notify(other, 4, 0, &[99], unknown);
        assert!(matches!(refused, Err(MessageError::Handler(HandlerError::Unknown { .. }))));
        let missing = d.put_notify(other, 6, 0, &[99], Notice { handler: "put", args: [0; 4] });
        assert!(matches!(missing, Err(MessageError::Region { id: 6, .. })));
        d.barrier().unwrap();
        let mut first = [0];
        lent.read(0, &mut first).unwrap();
        assert_eq!((first, seen.lock().unwrap().len(), me + other), ([TURNS as u8], TURNS as usize, 1));
    });
}

#[test]
fn many_puts_are_under_way_at_once_and_each_says_when_it_is_there() {
    at(Place::Hosts(Transport::Tcp, true), 2, &|d: Domain| {
        const EACH: usize = 200_000;
        let lent = d.lend(1, vec![0; 20 * EACH]).unwrap();
        d.barrier().unwrap();
        let other = 1 - d.unit();
        let puts: Vec<_> =
            (0..20).map(|n| d.start_put(other, 1, n * EACH, &vec![n as u8 + 1; EACH]).unwrap()).collect();
        d.serve_until(None, || puts.iter().all(|put| put.is_done())).unwrap();
        puts.into_iter().for_each(|put| put.wait().unwrap());
        d.barrier().unwrap();
        let back = lent.withdraw().unwrap().into_vec().ok().unwrap();
        assert!(back.iter().enumerate().all(|(i, &b)| usize::from(b) == i / EACH + 1));
    });
}

/// Threads of one unit copy while others take the memory back.
#[test]
fn threads_of_a_unit_share_what_it_reaches() {
    at(Place::Here, 2, &|d: Domain| {
        let lent = d.lend(1, vec![7; 50_000]).unwrap();
        d.barrier().unwrap();
        let (start, refused, other) = (Barrier::new(4), AtomicU64::new(0), 1 - d.unit());
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    start.wait();
                    let mut got = vec![0; 50_000];
                    while d.get(other, 1, 0, &mut got).is_ok() {
                        assert!(got.iter().all(|&b| b == 7));
                    }
                    refused.fetch_add(1, Ordering::Relaxed);
                });
            }
            start.wait();
            d.barrier().unwrap();
            lent.withdraw().unwrap().into_vec().ok().unwrap().fill(9);
        });
        assert_eq!(refused.load(Ordering::Relaxed), 3);
        d.barrier().unwrap();
    });
}

#[test]
fn on_one_host_the_owner_takes_no_part() {
    let owner_waits = Barrier::new(2);
    at(Place::Here, 2, &|d: Domain| {
        let lent = d.lend(1, vec![4; 1_000_000]).unwrap();
        d.barrier().unwrap();
        if d.unit() == 1 {
            let mut got = vec![0; 1_000_000];
            d.get(0, 1, 0, &mut got).unwrap();
            assert!(got.iter().all(|&b| b == 4));
            d.put(0, 1, 0, &vec![8; 1_000_000]).unwrap();
            d.start_put(0, 1, 0, &[9]).unwrap().wait().unwrap();
        }
        // Unit 0 is here all the while, and does not receive.
        owner_waits.wait();
        let back = lent.withdraw().unwrap().into_vec().ok().unwrap();
        let first = if d.unit() == 0 { [9, 8] } else { [4, 4] };
        assert_eq!(back[..2], first);
        d.barrier().unwrap();
    });
}
