//! The provider as programs see it, by libfabric's tables.

use crate::common::{close, context, free, getinfo, until_told, Failed, Node, WATCHDOG};
use polyduct_fi::abi::{self, *};
use std::collections::VecDeque;
use std::ptr::{null, null_mut};
use std::time::Instant;

fn pair() -> (Node, Node, u64, u64) {
    let (a, b) = (Node::new(), Node::new());
    let (to_b, to_a) = (a.insert(&b.name()), b.insert(&a.name()));
    (a, b, to_b, to_a)
}

/// Both look at their queues so many times.
fn look(a: &mut Node, b: &mut Node, times: usize) {
    for _ in 0..times {
        a.look();
        b.look();
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A sender is called as it was first inserted and still is, whether that was before the endpoint had its
/// vector or after.
#[test]
fn who_sends_is_called_as_the_vector_has_it() {
    let mut b = Node::new();
    let mut a = Node::knowing(&[b.name()]);
    let (to_a, again) = (b.insert(&a.name()), a.insert(&b.name()));
    let source = |a: &mut Node, b: &mut Node| {
        let mut room = [0; 8];
        assert_eq!(a.trecv(&mut room, ADDR_UNSPEC, 5, 0, 1), 0);
        assert_eq!(b.tsend(&[7; 8], to_a, 5, 2), 0);
        let from = a.told_from(&mut [b]);
        assert_eq!(room, [7; 8]);
        until_told(&mut [b], &[1]);
        from
    };
    assert_eq!(source(&mut a, &mut b), 0);
    a.remove(0);
    assert_eq!(source(&mut a, &mut b), again);
    a.remove(again);
    assert_eq!(source(&mut a, &mut b), ADDR_NOTAVAIL);
    let last = a.insert(&b.name());
    assert_eq!(source(&mut a, &mut b), last);
}

#[test]
fn what_cannot_be_had_is_not_offered() {
    let usual = getinfo(null()).unwrap();
    let met = |change: &dyn Fn(&mut Info, &mut TxAttr, &mut EpAttr, &mut DomainAttr)| {
        // SAFETY: what the provider made.
        let (mut tx, mut ep, mut domain) =
            unsafe { (*(*usual).tx_attr, *(*usual).ep_attr, *(*usual).domain_attr) };
        domain.threading = abi::THREAD_DOMAIN;
        let mut info = Info {
            next: null_mut(),
            caps: TAGGED,
            mode: 0,
            addr_format: 0,
            src_addrlen: 0,
            dest_addrlen: 0,
            src_addr: null_mut(),
            dest_addr: null_mut(),
            handle: null_mut(),
            tx_attr: null_mut(),
            rx_attr: null_mut(),
            ep_attr: null_mut(),
            domain_attr: null_mut(),
            fabric_attr: null_mut(),
            nic: null_mut(),
        };
        change(&mut info, &mut tx, &mut ep, &mut domain);
        (info.tx_attr, info.ep_attr, info.domain_attr) = (&raw mut tx, &raw mut ep, &raw mut domain);
        let found = getinfo(&info)?;
        // SAFETY: as above.
        let said =
            unsafe { ((*found).caps, (*(*found).domain_attr).threading, (*(*found).domain_attr).mr_mode) };
        free(found);
        Ok::<_, i32>(said)
    };
    let (caps, threading, mr_mode) = met(&|_, _, _, _| ()).unwrap();
    assert_eq!((caps & (SEND | RECV | TAGGED), threading), (SEND | RECV | TAGGED, THREAD_DOMAIN));
    assert_eq!((caps & (MSG | RMA | ATOMIC), mr_mode), (0, 0));
    for mr_mode in [MR_BASIC, MR_SCALABLE] {
        assert_eq!(met(&|_, _, _, domain| domain.mr_mode = mr_mode).unwrap().2, mr_mode);
    }
    type Change = dyn Fn(&mut Info, &mut TxAttr, &mut EpAttr, &mut DomainAttr);
    let not: [&Change; 9] = [
        &|info, _, _, _| info.caps = 1 << 6,
        &|info, _, _, _| info.addr_format = 2,
        &|_, tx, _, _| tx.inject_size = 1 << 20,
        &|_, tx, _, _| tx.msg_order = ORDER_STRICT,
        &|_, tx, _, _| tx.iov_limit = 100_000,
        &|_, _, ep, _| ep.kind = 1,
        &|_, _, ep, _| ep.tx_ctx_cnt = 2,
        &|_, _, _, domain| domain.data_progress = PROGRESS_AUTO,
        &|_, _, _, domain| domain.name = c"eth0".as_ptr().cast_mut(),
    ];
    for (n, change) in not.into_iter().enumerate() {
        assert_eq!(met(change), Err(ENODATA), "change {n}");
    }
    free(usual);
}

/// As libfabric's `fi_getinfo_test` has it: an address to open an endpoint at, and the progress that was
/// asked for.
#[test]
fn what_is_said_of_an_endpoint_is_complete() {
    let usual = getinfo(null()).unwrap();
    // SAFETY: what the provider made.
    let (info, domain) = unsafe { (&*usual, &mut *(*usual).domain_attr) };
    assert!(!info.src_addr.is_null());
    // SAFETY: so many bytes are there.
    let address = unsafe { core::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) };
    let node = Node::new();
    assert_eq!((address.len(), &address[..4]), (node.name().len(), &node.name()[..4]));
    assert_eq!(domain.control_progress, PROGRESS_AUTO);
    domain.control_progress = PROGRESS_MANUAL;
    // SAFETY: as above.
    let tx = unsafe { &mut *info.tx_attr };
    assert_eq!(std::mem::replace(&mut tx.iov_limit, 4096), 32);
    let manual = getinfo(usual).unwrap();
    // SAFETY: as above.
    let said = unsafe { ((*(*manual).domain_attr).control_progress, (*(*manual).tx_attr).iov_limit) };
    assert_eq!(said, (PROGRESS_MANUAL, 4096));
    free(manual);
    free(usual);
}

/// There are no descriptors to wait on, and no events of addresses: who wants them is told so at once.
#[test]
fn what_is_not_there_is_refused_when_it_is_opened() {
    let (node, wait_fd) = (Node::new(), 3);
    // SAFETY: as a program does it.
    unsafe {
        let (mut cntr, mut av): (*mut CntrFid, *mut AvFid) = (null_mut(), null_mut());
        let attr = CntrAttr { events: 0, wait_obj: wait_fd, wait_set: null_mut(), flags: 0 };
        let ops = &*(*node.domain).ops;
        assert_eq!((ops.cntr_open)(node.domain, &attr, &raw mut cntr, null_mut()), -ENOSYS);
        let attr = AvAttr { flags: EVENT, ..core::mem::zeroed() };
        assert_eq!((ops.av_open)(node.domain, &attr, &raw mut av, null_mut()), -ENOSYS);
    }
}

#[test]
fn messages_of_all_lengths_arrive_whole_and_say_who_sent_them() {
    let (mut a, mut b, to_b, to_a) = pair();
    for (n, len) in [0, 1, 8, 32, 33, 4000, 8192, 8193, 70_000, 3_000_001].into_iter().enumerate() {
        for early in [true, false] {
            let (sent, mut got) = (bytes(len as u64, len), vec![0xaa; len + 3]);
            if early {
                assert_eq!(b.trecv(&mut got, to_a, 7, 0, 2), 0);
            }
            assert_eq!(a.tsend(&sent, to_b, 7, 1), 0);
            if !early {
                // It is there, and waits.
                look(&mut a, &mut b, 100);
                assert_eq!(b.trecv(&mut got, ADDR_UNSPEC, 0, u64::MAX, 2), 0);
            }
            let told = until_told(&mut [&mut a, &mut b], &[1, 1]);
            let (of_a, of_b) = (told[0][0].unwrap(), told[1][0].unwrap());
            assert_eq!((of_a.op_context, of_a.flags & (SEND | TAGGED)), (context(1), SEND | TAGGED));
            assert_eq!((of_b.op_context, of_b.flags & (RECV | TAGGED)), (context(2), RECV | TAGGED));
            assert_eq!((of_b.len, of_b.tag), (len, 7), "case {n}");
            assert!(got[..len] == sent[..] && got[len..] == [0xaa; 3], "case {n}");
        }
    }
}

/// Cuts memory into pieces of about `size` bytes, with gaps of 3, some of nothing; and where they lie.
fn cut(len: usize, size: usize) -> (Vec<std::ops::Range<usize>>, usize) {
    let (mut cuts, mut at, mut left, mut n) = (Vec::new(), 0, len, 0);
    while left > 0 {
        let now = if n % 5 == 3 { 0 } else { (size + n % 7).min(left) };
        cuts.push(at..at + now);
        (at, left, n) = (at + now + 3, left - now, n + 1);
    }
    (cuts, at)
}

/// From pieces to pieces, to one, and from one; early and late; pieces of few bytes and of many; and cut off.
#[test]
fn messages_in_pieces_come_as_they_lie() {
    let (mut a, mut b, to_b, to_a) = pair();
    let sizes = [None, Some(2), Some(900), Some(70_000)];
    let cases = [40, 3_000, 8192, 8193, 1_000_000].into_iter().flat_map(|len| {
        sizes.into_iter().flat_map(move |from| sizes.into_iter().map(move |to| (len, from, to)))
    });
    for (n, (len, from, to)) in cases.enumerate() {
        let (from, from_room) = cut(len, from.unwrap_or(len + 7));
        let room = if n % 3 == 2 { len - 20 } else { len };
        let (to, to_room) = cut(room, to.unwrap_or(len + 7));
        if from.len() > 4096 || to.len() > 4096 {
            continue;
        }
        let (mut sent, mut got) = (vec![0; from_room], vec![0xaa; to_room]);
        let message = bytes(n as u64, len);
        let mut at = 0;
        for piece in &from {
            sent[piece.clone()].copy_from_slice(&message[at..at + piece.len()]);
            at += piece.len();
        }
        let vector = |memory: &mut [u8], cuts: &[std::ops::Range<usize>]| -> Vec<libc::iovec> {
            let base = memory.as_mut_ptr();
            let piece = |cut: &std::ops::Range<usize>| libc::iovec {
                iov_base: base.wrapping_add(cut.start).cast(),
                iov_len: cut.len(),
            };
            cuts.iter().map(piece).collect()
        };
        let (out, into) = (vector(&mut sent, &from), vector(&mut got, &to));
        let receive = || {
            // SAFETY: as a program does it.
            unsafe {
                let ops = &*(*b.ep).tagged;
                assert_eq!(
                    (ops.recvv)(b.ep, into.as_ptr(), null_mut(), into.len(), to_a, 7, 0, context(2)),
                    0
                );
            }
        };
        let early = n % 2 == 0;
        if early {
            receive();
        }
        // SAFETY: as above.
        unsafe {
            let ops = &*(*a.ep).tagged;
            assert_eq!((ops.sendv)(a.ep, out.as_ptr(), null_mut(), out.len(), to_b, 7, context(1)), 0);
        }
        if !early {
            receive();
        }
        let told = until_told(&mut [&mut a, &mut b], &[1, 1]);
        assert_eq!(told[0][0].unwrap().op_context, context(1));
        match told[1][0] {
            Ok(entry) => assert_eq!((entry.len, entry.op_context), (len, context(2)), "case {n}"),
            Err(failed) => {
                assert_eq!(
                    failed,
                    Failed { context: context(2), error: ETRUNC, lacking: len - room },
                    "case {n}"
                )
            }
        }
        let mut expected = vec![0xaa; to_room];
        let mut at = 0;
        for piece in &to {
            expected[piece.clone()].copy_from_slice(&message[at..at + piece.len()]);
            at += piece.len();
        }
        assert!(got == expected, "case {n}: {len} bytes, {} pieces to {}", from.len(), to.len());
    }
}

/// Long ones both ways, so many at a time that not all can be helped with, by two threads at once: each helps
/// with the other's copies.
#[test]
fn long_messages_arrive_whole_while_both_ends_work_on_them() {
    const AT_ONCE: usize = 7;
    let (a, b, to_b, to_a) = pair();
    let exchange = |mut node: Node, peer: u64, (mine, theirs): (u64, u64)| {
        for round in 0..4 {
            let len = |n: usize| [256 << 10, (1 << 20) + 13, 300_001, 5 << 20][(n + round) % 4];
            let seed = |who: u64, n: usize| who * 1000 + (n + round * AT_ONCE) as u64;
            let mut got: Vec<_> = (0..AT_ONCE).map(|n| vec![0; len(n)]).collect();
            let sent: Vec<_> = (0..AT_ONCE).map(|n| bytes(seed(mine, n), len(n))).collect();
            for (n, got) in got.iter_mut().enumerate() {
                assert_eq!(node.trecv(got, peer, n as u64, 0, n), 0);
            }
            for (n, sent) in sent.iter().enumerate() {
                assert_eq!(node.tsend(sent, peer, n as u64, n), 0);
            }
            let told = until_told(&mut [&mut node], &[2 * AT_ONCE]);
            assert!(told[0].iter().all(Result::is_ok), "round {round}");
            for (n, got) in got.iter().enumerate() {
                assert!(*got == bytes(seed(theirs, n), len(n)), "round {round}, message {n}");
            }
        }
        node
    };
    std::thread::scope(|s| {
        let (a, b) = (Apart(a), Apart(b));
        let other = s.spawn(|| Apart(exchange({ b }.0, to_a, (2, 1))));
        let a = exchange({ a }.0, to_b, (1, 2));
        drop((a, other.join().unwrap()));
    });
}

/// A node for a thread of its own.
struct Apart(Node);

// SAFETY: one thread at a time uses it.
unsafe impl Send for Apart {}

#[test]
fn a_message_that_is_too_long_is_cut_and_said_to_be() {
    let (mut a, mut b, to_b, to_a) = pair();
    for len in [100, 100_000] {
        let (sent, mut got) = (bytes(1, len), vec![0; len - 10]);
        assert_eq!(a.tsend(&sent, to_b, 1, 1), 0);
        assert_eq!(b.trecv(&mut got, to_a, 1, 0, 2), 0);
        let told = until_told(&mut [&mut a, &mut b], &[1, 1]);
        assert_eq!(told[1][0].unwrap_err(), Failed { context: context(2), error: ETRUNC, lacking: 10 });
        assert!(told[0][0].is_ok() && got == sent[..len - 10]);
    }
}

#[test]
fn messages_are_looked_at_claimed_discarded_and_receives_taken_back() {
    let (mut a, mut b, to_b, _) = pair();
    let mut got = vec![0; 30_000];
    let one = |b: &mut Node| until_told(&mut [b], &[1]).remove(0).remove(0);
    assert_eq!(b.trecvmsg(&mut got, 5, PEEK, 9), 0);
    assert_eq!(one(&mut b).unwrap_err().error, ENOMSG);
    let sent: Vec<_> = [20, 20_000, 30, 40].map(|len| bytes(len as u64, len)).into();
    for bytes in &sent {
        assert_eq!(a.tsend(bytes, to_b, 5, 1), 0);
    }
    // They have come when the one behind them has.
    assert_eq!(a.tsend(&[], to_b, 6, 1), 0);
    let start = Instant::now();
    loop {
        look(&mut a, &mut b, 1);
        assert_eq!(b.trecvmsg(&mut got, 6, PEEK, 9), 0);
        match one(&mut b) {
            Ok(entry) => break assert_eq!((entry.len, entry.op_context), (0, context(9))),
            Err(failed) => assert_eq!(failed.error, ENOMSG),
        }
        assert!(start.elapsed() < WATCHDOG);
    }
    assert_eq!(b.trecvmsg(&mut got, 5, PEEK | CLAIM, 3), 0);
    assert_eq!(one(&mut b).unwrap().len, 20);
    assert_eq!(b.trecvmsg(&mut got, 5, PEEK | CLAIM, 4), 0);
    assert_eq!(one(&mut b).unwrap().len, 20_000, "the first is claimed");
    assert_eq!(b.trecvmsg(&mut got, 5, PEEK | DISCARD, 5), 0);
    assert_eq!(one(&mut b).unwrap().len, 30);
    assert_eq!(b.trecvmsg(&mut got, 0, CLAIM, 4), 0);
    let told = until_told(&mut [&mut a, &mut b], &[1, 1]);
    assert_eq!(told[1][0].unwrap().len, 20_000);
    assert!(got[..20_000] == sent[1][..]);
    assert_eq!(b.trecvmsg(&mut got, 0, CLAIM | DISCARD, 3), 0);
    assert_eq!(one(&mut b).unwrap().len, 20);
    assert_eq!(b.trecvmsg(&mut got, 0, CLAIM, 3), -(ENOENT as isize));
    let mut rest = vec![0; 40];
    assert_eq!(b.trecv(&mut rest, ADDR_UNSPEC, 5, 0, 6), 0);
    assert_eq!(one(&mut b).unwrap().len, 40);
    assert_eq!(rest, sent[3]);
    assert_eq!(b.trecv(&mut rest, ADDR_UNSPEC, 5, 0, 7), 0);
    // SAFETY: as a program does it.
    unsafe { assert_eq!(((*(*b.ep).ops).cancel)(b.ep.cast(), context(7)), 0) };
    assert_eq!(one(&mut b).unwrap_err(), Failed { context: context(7), error: ECANCELED, lacking: 0 });
}

#[test]
fn a_receive_of_several_messages_takes_them_one_behind_the_other() {
    let (mut a, mut b, to_b, _) = pair();
    let mut memory = vec![0; 1000];
    // SAFETY: as a program does it.
    unsafe {
        let (least, fid) = (200_usize, b.ep.cast::<Fid>());
        let ops = &*(*b.ep).ops;
        let set = (ops.setopt)(fid, OPT_ENDPOINT, OPT_MIN_MULTI_RECV, (&raw const least).cast(), 8);
        assert_eq!(set, 0);
        let iov = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: 1000 };
        let (desc, addr, context) = (null_mut(), ADDR_UNSPEC, context(4));
        let msg = Msg { iov: &raw const iov, desc, iov_count: 1, addr, context, data: 0 };
        assert_eq!(((*(*b.ep).msg).recvmsg)(b.ep, &msg, MULTI_RECV), 0);
        for n in 0..3_u64 {
            let bytes = bytes(n, 300);
            assert_eq!(((*(*a.ep).msg).inject)(a.ep, bytes.as_ptr().cast(), 300, to_b), 0);
        }
    }
    let told = until_told(&mut [&mut a, &mut b], &[0, 3]);
    for (n, entry) in told[1].iter().enumerate() {
        let entry = entry.unwrap();
        assert_eq!((entry.op_context, entry.len), (context(4), 300));
        assert_eq!(entry.buf, memory[300 * n..].as_mut_ptr().cast());
        assert_eq!(entry.flags & MULTI_RECV != 0, n == 2, "with the last, the memory is the program's");
        assert!(memory[300 * n..300 * (n + 1)] == bytes(n as u64, 300)[..]);
    }
}

/// The memory of a receive of several is the program's when all of them are here, the long ones too.
#[test]
fn memory_for_several_messages_is_given_back_when_all_are_here() {
    let (mut a, mut b, to_b, _) = pair();
    let mut memory = vec![0; 100_000];
    let long = bytes(1, 80_000);
    // SAFETY: as a program does it.
    unsafe {
        let (least, fid) = (19_000_usize, b.ep.cast::<Fid>());
        let ops = &*(*b.ep).ops;
        assert_eq!((ops.setopt)(fid, OPT_ENDPOINT, OPT_MIN_MULTI_RECV, (&raw const least).cast(), 8), 0);
        let iov = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        let (desc, addr, context) = (null_mut(), ADDR_UNSPEC, context(4));
        let msg = Msg { iov: &raw const iov, desc, iov_count: 1, addr, context, data: 0 };
        assert_eq!(((*(*b.ep).msg).recvmsg)(b.ep, &msg, MULTI_RECV), 0);
        let send = (*(*a.ep).msg).send;
        assert_eq!(send(a.ep, long.as_ptr().cast(), long.len(), null_mut(), to_b, self::context(1)), 0);
        for n in 0..2_u64 {
            let bytes = bytes(n, 600);
            assert_eq!(((*(*a.ep).msg).inject)(a.ep, bytes.as_ptr().cast(), 600, to_b), 0);
        }
    }
    let told = until_told(&mut [&mut a, &mut b], &[1, 3]);
    let entries: Vec<_> = told[1].iter().map(|entry| entry.unwrap()).collect();
    let mut lens: Vec<_> = entries.iter().map(|entry| entry.len).collect();
    lens.sort_unstable();
    assert_eq!(lens, [600, 600, 80_000]);
    let released: Vec<_> = entries.iter().map(|entry| entry.flags & MULTI_RECV != 0).collect();
    assert_eq!(released, [false, false, true], "with the last that is told, whichever that is");
    assert!(memory[..80_000] == long[..] && memory[80_000..80_600] == bytes(0, 600)[..]);
}

/// Any sends, received in any way, by what MPI's rules say which goes where.
#[test]
fn any_messages_find_the_receives_that_they_should() {
    for seed in 0..30_u64 {
        let mut x = seed * 7919 + 1;
        let mut pick = |n: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        let (mut a, mut b, to_b, to_a) = pair();
        let lens = [0, 5, 31, 32, 33, 900, 8192, 8193, 40_000, 150_000];
        let plan: Vec<(u64, usize)> =
            (0..120).map(|_| (pick(4), lens[pick(lens.len() as u64) as usize])).collect();
        let sent: Vec<_> = plan.iter().enumerate().map(|(n, &(_, len))| bytes(n as u64 + 1, len)).collect();
        // The messages that have not been received, in their order, and the receives that have none.
        let mut memory: Vec<Vec<u8>> = plan.iter().map(|_| vec![0; 150_000]).collect();
        let (mut next, mut posted, mut waiting, mut expected) = (0, 0, VecDeque::new(), vec![None; 120]);
        let mut receives: VecDeque<(usize, u64, u64)> = VecDeque::new();
        while next < plan.len() || posted < plan.len() {
            if pick(2) == 0 && next < plan.len() {
                match a.tsend(&sent[next], to_b, plan[next].0, next) {
                    0 => {
                        let tag = plan[next].0;
                        match receives.iter().position(|&(_, t, ignore)| (t ^ tag) & !ignore == 0) {
                            Some(at) => expected[receives.remove(at).unwrap().0] = Some(next),
                            None => waiting.push_back(next),
                        }
                        next += 1;
                    }
                    again => assert_eq!(again, -(EAGAIN as isize)),
                }
            } else if posted < plan.len() {
                // As many of each tag as there are messages, so that all are received.
                let tag = plan[posted].0;
                let (tag, ignore) = if pick(5) == 0 && next == plan.len() { (0, u64::MAX) } else { (tag, 0) };
                let fits = |n: &usize| (plan[*n].0 ^ tag) & !ignore == 0;
                // One for anything takes what a later one wants: only where all that come are known.
                match waiting.iter().position(fits) {
                    Some(at) => expected[posted] = waiting.remove(at),
                    None => receives.push_back((posted, tag, ignore)),
                }
                let from = if pick(2) == 0 { to_a } else { ADDR_UNSPEC };
                // What was sent must have come before, so that what is expected is what happens.
                look(&mut a, &mut b, 200);
                assert_eq!(b.trecv(&mut memory[posted], from, tag, ignore, posted), 0);
                posted += 1;
            }
        }
        let done = expected.iter().filter(|n| n.is_some()).count();
        let mut received = 0;
        let told = until_told(&mut [&mut a, &mut b], &[0, done]);
        for entry in &told[1] {
            let entry = entry.unwrap();
            let at = entry.op_context as usize;
            let n = expected[at].unwrap_or_else(|| panic!("seed {seed}: receive {at} should wait"));
            assert!(memory[at][..entry.len] == sent[n][..], "seed {seed}: receive {at}, message {n}");
            received += 1;
        }
        assert_eq!(received, done);
        // Some that are long wait for a receive that never comes: they are the program's when it ends.
        for (at, _, _) in receives {
            // SAFETY: as a program does it.
            unsafe { ((*(*b.ep).ops).cancel)(b.ep.cast(), context(at)) };
        }
    }
}

/// A receiver that receives nothing keeps a bounded number of bytes, and gets all of it in the end.
#[test]
fn a_receiver_that_receives_nothing_is_not_buried() {
    let (mut a, mut b, to_b, to_a) = pair();
    let message = bytes(3, 8000);
    let (mut sent, mut refused) = (0_usize, 0);
    while refused < 10_000 && sent < 100_000 {
        match a.tsend(&message, to_b, 1, sent) {
            0 => sent += 1,
            again => {
                assert_eq!(again, -(EAGAIN as isize));
                refused += 1;
                look(&mut a, &mut b, 1);
            }
        }
        if sent.is_multiple_of(64) {
            look(&mut a, &mut b, 1);
        }
    }
    let mut got = vec![0; 8000];
    for n in 0..sent {
        assert_eq!(b.trecv(&mut got, to_a, 1, 0, n), 0);
        let told = until_told(&mut [&mut a, &mut b], &[0, 1]);
        assert_eq!(told[1][0].unwrap().op_context, context(n));
        assert!(got == message, "message {n} of {sent}");
    }
    // Memory of this process, of both ends, at its largest.
    let peak = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak: u64 = peak
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(sent > 2_000 && peak < 600 << 10, "{sent} messages, {peak} KiB");
}

/// As ranks do that begin all their sends before they receive: nothing is refused, though the other end keeps
/// fewer.
#[test]
fn both_send_more_than_is_kept_before_they_receive() {
    const MANY: usize = 100_000;
    let (mut a, mut b, to_b, to_a) = pair();
    let numbers: Vec<[u8; 4]> = (0..MANY as u32).map(u32::to_le_bytes).collect();
    for (n, number) in numbers.iter().enumerate() {
        assert_eq!((a.tsend(number, to_b, 1, n), b.tsend(number, to_a, 1, n)), (0, 0), "message {n}");
        if n.is_multiple_of(64) {
            look(&mut a, &mut b, 1);
        }
    }
    let (mut at_a, mut at_b) = (vec![[0; 4]; MANY], vec![[0; 4]; MANY]);
    for n in 0..MANY {
        assert_eq!(a.trecv(&mut at_a[n], to_b, 1, 0, n), 0);
        assert_eq!(b.trecv(&mut at_b[n], to_a, 1, 0, n), 0);
    }
    // Both sends and receives are told.
    until_told(&mut [&mut a, &mut b], &[2 * MANY, 2 * MANY]);
    assert!(at_a == numbers && at_b == numbers);
}

#[test]
fn registered_memory_is_read_and_written_and_nothing_else_is() {
    let (mut a, mut b, to_b, _) = pair();
    let mut memory = vec![0; 3_000_000];
    let all = REMOTE_READ | REMOTE_WRITE;
    let mr = b.mr(&mut memory, all, 77).unwrap();
    assert_eq!(b.mr(&mut [0; 8], all, 77), Err(ENOKEY), "the key is taken");
    let mut small = vec![0; 64];
    let only = b.mr(&mut small, REMOTE_READ, 78).unwrap();
    let write = |a: &Node, bytes: &[u8], offset: u64, key: u64, n: usize| {
        // SAFETY: as a program does it.
        unsafe {
            let ops = &*(*a.ep).rma;
            (ops.write)(a.ep, bytes.as_ptr().cast(), bytes.len(), null_mut(), to_b, offset, key, context(n))
        }
    };
    let read = |a: &Node, bytes: &mut [u8], offset: u64, key: u64, n: usize| {
        // SAFETY: as a program does it.
        unsafe {
            let ops = &*(*a.ep).rma;
            (ops.read)(
                a.ep,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                null_mut(),
                to_b,
                offset,
                key,
                context(n),
            )
        }
    };
    for (n, len) in [1, 100, 8000, 9000, 200_000, 1_500_000, 2_000_001].into_iter().enumerate() {
        let (sent, mut back) = (bytes(len as u64, len), vec![0; len]);
        assert_eq!(write(&a, &sent, 50, 77, n), 0);
        let told = until_told(&mut [&mut a, &mut b], &[1, 0]);
        assert_eq!(told[0][0].unwrap().flags & (RMA | WRITE), RMA | WRITE);
        assert!(memory[50..50 + len] == sent[..]);
        assert_eq!(read(&a, &mut back, 50, 77, n), 0);
        let told = until_told(&mut [&mut a, &mut b], &[1, 0]);
        assert_eq!((told[0][0].unwrap().op_context, told[0][0].unwrap().flags & READ), (context(n), READ));
        assert!(back == sent);
    }
    let before = memory.clone();
    let mut back = vec![0; 100];
    for (result, error) in [
        (write(&a, &[1; 9], 0, 79, 1), libc::EKEYREJECTED),
        (write(&a, &[1; 9], 2_999_992, 77, 2), EINVAL),
        (write(&a, &[1; 9], u64::MAX, 77, 3), EINVAL),
        (write(&a, &[1; 9], 0, 78, 4), EACCES),
        (read(&a, &mut back, 2_999_901, 77, 5), EINVAL),
    ] {
        assert_eq!(result, 0);
        let told = until_told(&mut [&mut a, &mut b], &[1, 0]);
        assert_eq!(told[0][0].unwrap_err().error, error);
    }
    assert!(memory == before && small == vec![0; 64]);
    close(mr);
    close(only);
    assert_eq!(read(&a, &mut back, 0, 77, 6), 0);
    let told = until_told(&mut [&mut a, &mut b], &[1, 0]);
    assert_eq!(told[0][0].unwrap_err().error, libc::EKEYREJECTED);
}

/// From pieces and to pieces, few bytes and many.
#[test]
fn registered_memory_is_written_from_pieces_and_read_to_pieces() {
    let (mut a, mut b, to_b, _) = pair();
    let mut memory = vec![0; 1_000_000];
    let mr = b.mr(&mut memory, REMOTE_READ | REMOTE_WRITE, 5).unwrap();
    for len in [10, 8_000, 9_000, 900_000] {
        let (cuts, room) = cut(len, len / 4);
        let (mut sent, mut back) = (bytes(len as u64, room), vec![0xaa; room]);
        let vector = |memory: &mut [u8]| -> Vec<libc::iovec> {
            let base = memory.as_mut_ptr();
            let piece = |cut: &std::ops::Range<usize>| libc::iovec {
                iov_base: base.wrapping_add(cut.start).cast(),
                iov_len: cut.len(),
            };
            cuts.iter().map(piece).collect()
        };
        let (out, into) = (vector(&mut sent), vector(&mut back));
        let (count, none) = (cuts.len(), null_mut());
        // SAFETY: as a program does it.
        unsafe {
            let ops = &*(*a.ep).rma;
            assert_eq!((ops.writev)(a.ep, out.as_ptr(), none, count, to_b, 3, 5, context(1)), 0);
            assert!(until_told(&mut [&mut a, &mut b], &[1, 0])[0][0].is_ok());
            let remote = RmaIov { addr: 3, len, key: 5 };
            let msg = MsgRma {
                iov: into.as_ptr(),
                desc: none.cast(),
                iov_count: count,
                addr: to_b,
                rma_iov: &raw const remote,
                rma_iov_count: 1,
                context: context(2),
                data: 0,
            };
            assert_eq!((ops.readmsg)(a.ep, &msg, COMPLETION), 0);
        }
        assert!(until_told(&mut [&mut a, &mut b], &[1, 0])[0][0].is_ok());
        let mut expected = vec![0xaa; room];
        cuts.iter().for_each(|cut| expected[cut.clone()].copy_from_slice(&sent[cut.clone()]));
        assert!(back == expected, "{len} bytes, and nothing beside them");
    }
    // A stream from it ends when the other end has said that it has all.
    let start = Instant::now();
    // SAFETY: as a program does it.
    while unsafe { ((*(*mr.cast::<Fid>()).ops).close)(mr.cast()) } == -EBUSY {
        look(&mut a, &mut b, 1);
        assert!(start.elapsed() < WATCHDOG);
    }
}

/// Wherever the read is by then: over the network a long one is asked for once more when it is known to be
/// there.
#[test]
fn a_read_of_memory_that_is_closed_meanwhile_ends() {
    let (mut a, mut b, to_b, _) = pair();
    let (mut memory, mut here) = (bytes(1, 900_000), vec![0; 900_000]);
    for looks in [0, 1, 30, 1_000, 30_000] {
        let mr = b.mr(&mut memory, REMOTE_READ, 5).unwrap();
        // SAFETY: as a program does it.
        unsafe {
            let (to, none) = (here.as_mut_ptr().cast(), null_mut());
            assert_eq!(((*(*a.ep).rma).read)(a.ep, to, here.len(), none, to_b, 0, 5, context(1)), 0);
        }
        for _ in 0..looks {
            b.look();
        }
        close(mr);
        match &until_told(&mut [&mut a, &mut b], &[1, 0])[0][0] {
            Ok(_) => assert!(here == memory),
            Err(failed) => assert_eq!(failed.error, libc::EKEYREJECTED, "after {looks} looks"),
        }
    }
}

/// The same of atomics, each vector in pieces of its own.
#[test]
fn atomics_take_pieces() {
    let (mut a, mut b, to_b, _) = pair();
    let mut memory: Vec<u8> = (1..=4_u64).flat_map(u64::to_ne_bytes).collect();
    let mr = b.mr(&mut memory, REMOTE_READ | REMOTE_WRITE, 5).unwrap();
    let (mut operands, mut compare, mut result) = ([10_u64, 20, 0, 30, 40], [1_u64, 2, 0, 0, 4], [0_u64; 5]);
    let vector = |numbers: &mut [u64; 5], counts: [usize; 2]| {
        let base = numbers.as_mut_ptr();
        [
            Ioc { addr: base.cast(), count: counts[0] },
            Ioc { addr: base.wrapping_add(5 - counts[1]).cast(), count: counts[1] },
        ]
    };
    let (from, with) = (vector(&mut operands, [2, 2]), vector(&mut compare, [3, 1]));
    let (into, none, u64_type, cswap) = (vector(&mut result, [1, 3]), null_mut(), 7, 12);
    let began = |into: &[Ioc]| {
        // SAFETY: as a program does it.
        unsafe {
            let (f, w, i) = (from.as_ptr(), with.as_ptr(), into.as_ptr());
            let begin = (*(*a.ep).atomic).compwritev;
            begin(a.ep, f, none, 2, w, none, 2, i, none, into.len(), to_b, 0, 5, u64_type, cswap, context(1))
        }
    };
    assert_eq!(began(&into[..1]), -(EINVAL as isize), "fewer results than operands");
    assert_eq!(began(&into), 0);
    assert!(until_told(&mut [&mut a, &mut b], &[1, 0])[0][0].is_ok());
    assert_eq!(result, [1, 0, 2, 3, 4]);
    // Of a read the operands are no matter; of a sum there are some.
    let nowhere = [Ioc { addr: null_mut(), count: 1 }, Ioc { addr: null_mut(), count: 7 }];
    let (sum, read) = (2, 10);
    let fetch = |given: &[Ioc], op: i32| {
        // SAFETY: as a program does it.
        unsafe {
            let begin = (*(*a.ep).atomic).readwritev;
            let (count, into) = (given.len(), into.as_ptr());
            begin(a.ep, given.as_ptr(), none, count, into, none, 2, to_b, 0, 5, u64_type, op, context(1))
        }
    };
    assert_eq!(fetch(&[], sum), -(EINVAL as isize));
    assert_eq!(fetch(&nowhere, read), 0);
    assert!(until_told(&mut [&mut a, &mut b], &[1, 0])[0][0].is_ok());
    assert_eq!(result, [10, 0, 20, 3, 40]);
    let expected: Vec<u8> = [10_u64, 20, 3, 40].into_iter().flat_map(u64::to_ne_bytes).collect();
    assert_eq!(memory, expected);
    close(mr);
}

/// What changes memory counts for its counter, and for those of the endpoint as the manual page has it:
/// atomics that fetch are reads.
#[test]
fn what_others_do_to_memory_is_counted() {
    let (mut a, mut b, to_b, _) = pair();
    let mut memory = vec![0; 1_000_000];
    let mr = b.mr(&mut memory, REMOTE_READ | REMOTE_WRITE, 5).unwrap();
    let counters = [(); 3].map(|()| b.counter());
    let bind = |to: *mut Fid, counter: *mut CntrFid, flags| {
        // SAFETY: as a program does it.
        unsafe { ((*(*to).ops).bind)(to, counter.cast(), flags) }
    };
    let [of_memory, reads, writes] = counters;
    assert_eq!(bind(mr.cast(), of_memory, REMOTE_READ), -EBADFLAGS);
    assert_eq!(bind(mr.cast(), of_memory, REMOTE_WRITE), 0);
    assert_eq!(bind(b.ep.cast(), reads, REMOTE_READ), 0);
    assert_eq!(bind(b.ep.cast(), writes, REMOTE_WRITE), 0);
    let (u64_type, sum, read) = (7, 2, 10);
    let (long, one, mut result, none) = (bytes(1, 900_000), 1_u64, 0_u64, null_mut());
    let (at, to) = ((&raw const one).cast(), (&raw mut result).cast());
    // SAFETY: as a program does it.
    unsafe {
        let (rma, atomic) = (&*(*a.ep).rma, &*(*a.ep).atomic);
        assert_eq!((rma.write)(a.ep, at, 8, none, to_b, 0, 5, context(1)), 0);
        assert_eq!((rma.write)(a.ep, long.as_ptr().cast(), long.len(), none, to_b, 8, 5, context(1)), 0);
        assert_eq!((rma.read)(a.ep, to, 8, none, to_b, 0, 5, context(1)), 0);
        assert_eq!((atomic.write)(a.ep, at, 1, none, to_b, 0, 5, u64_type, sum, context(1)), 0);
        let fetches = atomic.readwrite;
        for op in [sum, read] {
            assert_eq!(fetches(a.ep, at, 1, none, to, none, to_b, 0, 5, u64_type, op, context(1)), 0);
        }
    }
    assert!(until_told(&mut [&mut a, &mut b], &[6, 0])[0].iter().all(Result::is_ok));
    // SAFETY: they live.
    let counted = counters.map(|cntr| unsafe { ((*(*cntr).ops).read)(cntr) });
    assert_eq!(counted, [4, 3, 3]);
    assert_eq!(result, 3);
    // SAFETY: as a program does it.
    let early = unsafe { ((*(*of_memory.cast::<Fid>()).ops).close)(of_memory.cast()) };
    assert_eq!(early, -EBUSY, "the memory has it");
    close(mr);
}

#[test]
fn atomics_add_up() {
    let (mut a, mut b, to_b, _) = pair();
    let mut memory = vec![0; 80];
    let mr = b.mr(&mut memory, REMOTE_READ | REMOTE_WRITE, 5).unwrap();
    let (u64_type, sum, cswap) = (7, 2, 12);
    let operands: Vec<u8> = (1..=10_u64).flat_map(u64::to_ne_bytes).collect();
    let mut before = vec![0xff; 80];
    for n in 0..50_usize {
        // SAFETY: as a program does it.
        let result = unsafe {
            let ops = &*(*a.ep).atomic;
            let (at, to) = (operands.as_ptr().cast(), before.as_mut_ptr().cast());
            (ops.readwrite)(a.ep, at, 10, null_mut(), to, null_mut(), to_b, 0, 5, u64_type, sum, context(n))
        };
        assert_eq!(result, 0);
        assert!(until_told(&mut [&mut a, &mut b], &[1, 0])[0][0].is_ok());
        let expected: Vec<u8> = (1..=10_u64).flat_map(|k| (k * n as u64).to_ne_bytes()).collect();
        assert_eq!(before, expected);
    }
    let (compare, operand, mut result) = (500_u64.to_ne_bytes(), 7_u64.to_ne_bytes(), [0; 8]);
    // SAFETY: as a program does it.
    let began = unsafe {
        let (ops, none) = (&*(*a.ep).atomic, null_mut());
        let (at, with, to) = (operand.as_ptr().cast(), compare.as_ptr().cast(), result.as_mut_ptr().cast());
        (ops.compwrite)(a.ep, at, 1, none, with, none, to, none, to_b, 72, 5, u64_type, cswap, context(1))
    };
    assert_eq!(began, 0);
    assert!(until_told(&mut [&mut a, &mut b], &[1, 0])[0][0].is_ok());
    assert_eq!((u64::from_ne_bytes(result), &memory[72..]), (500, &operand[..]));
    close(mr);
}

#[test]
fn who_is_gone_is_told() {
    let (mut a, mut b, to_b, to_a) = pair();
    let mut got = [0; 8];
    assert_eq!((a.tsend(&[1; 8], to_b, 1, 1), b.trecv(&mut got, to_a, 1, 0, 2)), (0, 0));
    until_told(&mut [&mut a, &mut b], &[1, 1]);
    // It is offered, and nobody comes for it.
    let long = vec![1; 50_000];
    assert_eq!(a.tsend(&long, to_b, 2, 3), 0);
    drop(b);
    let told = until_told(&mut [&mut a], &[1]);
    assert_eq!(told[0][0].unwrap_err().error, EHOSTUNREACH);
    assert_eq!(a.tsend(&[1; 8], to_b, 1, 4), 0);
    assert_eq!(until_told(&mut [&mut a], &[1])[0][0].unwrap_err().error, EHOSTUNREACH);
    // What was sent by one that is gone is received.
    let (mut c, d) = (Node::new(), Node::new());
    let (to_c, to_d) = (d.insert(&c.name()), c.insert(&d.name()));
    assert_eq!(d.tsend(&[9; 8], to_c, 1, 1), 0);
    drop(d);
    assert_eq!(c.trecv(&mut got, to_d, 1, 0, 2), 0);
    assert!(until_told(&mut [&mut c], &[1])[0][0].is_ok());
    assert_eq!(got, [9; 8]);
}
