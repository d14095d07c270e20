//! The registered memory of others: read, written, counted, and atomics on it.

use super::*;

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
