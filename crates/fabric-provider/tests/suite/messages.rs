//! Messages: whole, in pieces, matched, and more than anybody receives.

use super::*;

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
            let len = |n: usize| [(256 << 10) + 1, (1 << 20) + 13, 300_001, 3 << 20][(n + round) % 4];
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

/// A thread that waits holds up no other: one that sends, and one that is waited for.
#[test]
fn a_queue_is_waited_at_while_other_threads_use_the_endpoint() {
    let (a, mut b, to_b, to_a) = pair();
    let a = &a;
    let start = Instant::now();
    assert_eq!(a.wait(20), -EAGAIN);
    assert!(start.elapsed().as_millis() >= 20);
    let (long, mut got) = (bytes(3, 3 << 20), vec![0; 3 << 20]);
    for _ in 0..20 {
        got.fill(0);
        assert_eq!(a.trecv(&mut got, to_b, 1, 0, 1), 0);
        assert_eq!(b.tsend(&long, to_a, 1, 2), 0);
        std::thread::scope(|threads| {
            // Only this thread looks at the queue of the other end.
            let other = threads.spawn(|| drop(until_told(&mut [&mut b], &[1])));
            assert_eq!(a.wait(60_000), 1);
            other.join().unwrap();
        });
        assert_eq!(got, long);
    }
    // It is called off.
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| a.wait(-1));
        while !waiting.is_finished() {
            a.signal();
        }
        assert_eq!(waiting.join().unwrap(), -EAGAIN);
    });
}
