use polyduct_os::remote::{permit_readers, RemoteReader};
use polyduct_os::segment::Segment;
use polyduct_os::OsError;

use crate::child;

fn pattern(i: usize) -> u8 {
    (i * 31 + i / 251) as u8
}

/// A child that holds `len` patterned bytes and says where.
fn holder(test: &str, len: usize) -> Option<(child::Kid, u64)> {
    if let Some(conn) = child::here() {
        permit_readers().unwrap();
        let bytes: Vec<u8> = (0..len).map(pattern).collect();
        child::say(&conn, &(bytes.as_ptr() as u64).to_ne_bytes(), &[]);
        child::hear(&conn);
        assert_eq!(bytes.len(), len);
        return None;
    }
    let kid = child::start(test);
    let (said, _) = child::hear(&kid.conn).unwrap();
    Some((kid, u64::from_ne_bytes(said.try_into().unwrap())))
}

#[test]
fn thousands_of_runs_arrive_in_their_places() {
    const LEN: usize = 1 << 20;
    let Some((mut kid, base)) = holder("remote::thousands_of_runs_arrive_in_their_places", LEN) else {
        return;
    };
    let reader = RemoteReader::of(kid.conn.peer_pidfd().unwrap());
    assert_eq!(reader.process().pid(), kid.pid());
    // (runs, bytes in each, distance there, distance here): scattered, gathered, packed, beyond and at the
    // batch size.
    let shapes = [
        (5000, 7, 200, 11),
        (5000, 7, 200, 7),
        (5000, 7, 7, 11),
        (5000, 7, 7, 7),
        (1023, 1, 2, 3),
        (1024, 1, 2, 3),
        (1025, 1, 2, 3),
        (2048, 1, 2, 1),
        (2049, 1, 1, 2),
        (3, 0, 5, 5),
        (1, LEN, 0, 0),
        (0, 1, 1, 1),
    ];
    for (count, len, there, here) in shapes {
        let mut dst = vec![0xEE; LEN];
        let mut expected = dst.clone();
        let runs: Vec<_> = (0..count).map(|i| (i * here, i * there, len)).collect();
        for &(to, from, len) in &runs {
            (0..len).for_each(|k| expected[to + k] = pattern(from + k));
        }
        let runs = runs.into_iter().map(|(to, from, len)| (to, base + from as u64, len));
        assert_eq!(reader.read_runs(&mut dst, runs), Ok((count * len) as u64));
        assert!(dst == expected, "{count} {len} {there} {here}");
    }
    let mut one = [0; 100];
    reader.read(&mut one, base + 1000).unwrap();
    assert!(one.iter().enumerate().all(|(i, &b)| b == pattern(1000 + i)));

    kid.kill_unreaped();
    assert_eq!(reader.read(&mut one, base), Err(OsError::PeerGone { pid: kid.pid() }));
    kid.kill();
    assert_eq!(reader.read(&mut one, base), Err(OsError::PeerGone { pid: kid.pid() }));
    assert_eq!(
        reader.read_runs(&mut one, []),
        Err(OsError::PeerGone { pid: kid.pid() }),
        "nothing can be said of it"
    );
    assert!(matches!(RemoteReader::new(kid.pid()), Err(OsError::PeerGone { .. })));
}

#[test]
fn runs_beyond_the_destination_are_refused() {
    let me = RemoteReader::new(std::process::id()).unwrap();
    let source = [1_u8; 16];
    let addr = source.as_ptr() as u64;
    let mut dst = [0_u8; 16];
    for (offset, len) in [(0, 17), (16, 1), (17, 0), (usize::MAX, 1), (1, usize::MAX)] {
        let answer = me.read_runs(&mut dst, [(offset, addr, len)]);
        assert!(matches!(answer, Err(OsError::OutOfRange { len: 16, .. })), "{offset} {len}: {answer:?}");
    }
    assert_eq!(dst, [0; 16]);
    assert_eq!(me.read_runs(&mut dst, [(16, addr, 0)]), Ok(0));
}

/// The copy goes another way where the two ends lie a few bytes apart in their pages.
#[test]
fn bytes_come_and_go_whole_however_the_two_ends_lie() {
    const ROOM: usize = 300_000;
    let me = RemoteReader::new(std::process::id()).unwrap();
    let source: Vec<u8> = (0..ROOM).map(pattern).collect();
    for len in [1, 4095, 4096, 4097, 128 << 10, (128 << 10) + 1, (256 << 10) + 33] {
        for (from, to) in (0..70).map(|to| (0, to)).chain((0..70).map(|from| (from, 0))) {
            let mut expected = vec![0xEE; ROOM];
            expected[to..to + len].copy_from_slice(&source[from..from + len]);
            let mut read = vec![0xEE; ROOM];
            me.read(&mut read[to..to + len], source[from..].as_ptr() as u64).unwrap();
            assert!(read == expected, "{len} bytes read from {from} to {to}");
            let mut written = vec![0xEE; ROOM];
            me.write(&source[from..from + len], written[to..].as_mut_ptr() as u64).unwrap();
            assert!(written == expected, "{len} bytes written from {from} to {to}");
        }
    }
}

#[test]
fn a_wrong_address_is_an_error_that_names_it() {
    let pid = std::process::id();
    let me = RemoteReader::new(pid).unwrap();
    let mut dst = [0_u8; 64];
    for addr in [0, 8, u64::MAX, u64::MAX - 64, 1 << 63] {
        assert_eq!(me.read(&mut dst, addr), Err(OsError::BadAddress { pid, addr }));
    }
    // The first piece is good, so the kernel answers with a short count first, and with the fault when asked
    // to go on.
    let source = [7_u8; 8];
    let runs = [(0, source.as_ptr() as u64, 8), (16, 4096, 8)];
    assert_eq!(me.read_runs(&mut dst, runs), Err(OsError::BadAddress { pid, addr: 4096 }));
    assert_eq!(dst[..8], [7; 8]);
}

#[test]
fn a_segment_can_be_read_where_its_owner_has_it() {
    const TEST: &str = "remote::a_segment_can_be_read_where_its_owner_has_it";
    if let Some(conn) = child::here() {
        permit_readers().unwrap();
        let mut segment = Segment::create("remote", 1 << 16).unwrap();
        segment.slice_mut(0..1 << 16).unwrap().iter_mut().enumerate().for_each(|(i, b)| *b = pattern(i));
        child::say(&conn, &segment.address().to_ne_bytes(), &[]);
        child::hear(&conn);
        return;
    }
    let kid = child::start(TEST);
    let (said, _) = child::hear(&kid.conn).unwrap();
    let base = u64::from_ne_bytes(said.try_into().unwrap());
    let mut segment = Segment::create("local", 1 << 16).unwrap();
    let dst = segment.slice_mut(0..1 << 16).unwrap();
    RemoteReader::new(kid.pid()).unwrap().read(dst, base).unwrap();
    assert!(dst.iter().enumerate().all(|(i, &b)| b == pattern(i)));
}

#[test]
fn a_process_of_another_user_is_not_readable() {
    if let Some(conn) = child::here() {
        // Give up root for good, then try to read who started us.
        let (said, _) = child::hear(&conn).unwrap();
        let pid = std::os::unix::process::parent_id();
        // SAFETY: plain system calls without pointers; this process has no other use for its identity.
        let dropped = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) } == 0;
        let addr = u64::from_ne_bytes(said.try_into().unwrap());
        let mut one = [0; 1];
        let answer = RemoteReader::new(pid).unwrap().read(&mut one, addr);
        match dropped {
            true => assert_eq!(answer, Err(OsError::RemoteDenied { pid })),
            // Not root: the same user's memory is readable, or Yama says no.
            false => assert!(matches!(answer, Ok(()) | Err(OsError::RemoteDenied { .. }))),
        }
        return;
    }
    let kid = child::start("remote::a_process_of_another_user_is_not_readable");
    let byte = [5_u8; 1];
    child::say(&kid.conn, &(byte.as_ptr() as u64).to_ne_bytes(), &[]);
    kid.join();
    assert_eq!(byte, [5]);
}
