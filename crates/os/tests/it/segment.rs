use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use polyduct_os::segment::{Access, Segment};
use polyduct_os::{futex, Blame, Errno, OsError, SegmentFault};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use crate::child;

const MIB: usize = 1 << 20;

fn memfd(len: usize, reserved: usize, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    if reserved > 0 {
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, reserved as u64).unwrap();
    }
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn dup(segment: &Segment) -> OwnedFd {
    segment.fd().try_clone_to_owned().unwrap()
}

fn fault(fd: OwnedFd, min: usize, max: usize) -> SegmentFault {
    match Segment::from_fd(fd, min, max, Access::ReadWrite) {
        Err(OsError::BadSegment(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_processes_share_words_bytes_and_sleep() {
    if let Some(conn) = child::here() {
        let (_, mut fds) = child::hear(&conn).unwrap();
        let segment = Segment::from_fd(fds.remove(0), 4096, MIB, Access::ReadWrite).unwrap();
        let line = &segment.lines(64..128).unwrap()[0];
        let mut waits = 0;
        while line.bell.load(Ordering::Acquire) == 0 {
            line.sleepers.fetch_add(1, Ordering::SeqCst);
            futex::wait(&line.bell, 0, Some(child::WATCHDOG));
            waits += 1;
            assert!(waits < 100);
        }
        assert!(segment.slice(4096..MIB).unwrap().iter().enumerate().all(|(i, &b)| b == i as u8));
        line.w[6].store(77, Ordering::Release);
        line.bell.store(2, Ordering::Release);
        futex::wake(&line.bell, 1);
        return;
    }
    let kid = child::start("segment::two_processes_share_words_bytes_and_sleep");
    let mut segment = Segment::create("shared", MIB).unwrap();
    child::say(&kid.conn, b"here", &[segment.fd()]);
    let data = segment.slice_mut(4096..MIB).unwrap();
    data.iter_mut().enumerate().for_each(|(i, b)| *b = i as u8);
    let line = &segment.lines(0..4096).unwrap()[1];
    while line.sleepers.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    line.bell.store(1, Ordering::Release);
    futex::wake(&line.bell, u32::MAX);
    let mut seen = 1;
    while seen == 1 {
        assert_ne!(futex::wait(&line.bell, 1, Some(child::WATCHDOG)), futex::Wake::TimedOut);
        seen = line.bell.load(Ordering::Acquire);
    }
    assert_eq!(line.w[6].load(Ordering::Acquire), 77);
    kid.join();
}

#[test]
fn what_is_not_a_sealed_reserved_memfd_is_refused() {
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let needed = sealed.bits();
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW, SealFlags::WRITE] {
        let found = seals.bits();
        assert_eq!(fault(memfd(4096, 4096, seals), 1, MIB), SegmentFault::Unsealed { needed, found });
    }
    let (min_bytes, max_bytes) = (4097, 4095);
    let found_bytes = 4096;
    assert_eq!(
        fault(memfd(4096, 4096, sealed), 4097, MIB),
        SegmentFault::TooShort { min_bytes, found_bytes }
    );
    assert_eq!(fault(memfd(4096, 4096, sealed), 1, 4095), SegmentFault::TooLong { max_bytes, found_bytes });
    assert_eq!(fault(memfd(0, 0, sealed), 0, MIB), SegmentFault::TooShort { min_bytes: 1, found_bytes: 0 });
    assert_eq!(
        fault(memfd(MIB, 8192, sealed), 1, MIB),
        SegmentFault::NotReserved { reserved_bytes: 8192, len_bytes: MIB as u64 }
    );
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    assert_eq!(fault(pipe, 1, MIB), SegmentFault::NotMemfd);
    let exe = fs::File::open(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(fault(exe.into(), 1, MIB), SegmentFault::NotMemfd);
    // Huge pages, where the kernel has them, are not reserved by the file's length.
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    if let Ok(huge) = rustix::fs::memfd_create("huge", flags) {
        rustix::fs::fcntl_add_seals(&huge, sealed).unwrap();
        assert_eq!(fault(huge, 1, MIB), SegmentFault::NotMemfd);
    }
    let error = OsError::from(SegmentFault::NotMemfd);
    assert_eq!(error.blame(), Blame::Peer);
    assert!(Segment::from_fd(memfd(4096, 4096, sealed), 4096, 4096, Access::ReadWrite).is_ok());
}

#[test]
fn more_than_there_is_is_an_error_and_never_a_signal() {
    if child::here().is_none() {
        return child::start("segment::more_than_there_is_is_an_error_and_never_a_signal").join();
    }
    // Were the check to fail, the kernel would run out of memory: then let it end this process and no other.
    fs::write("/proc/self/oom_score_adj", "1000").unwrap();
    for asked in [1 << 50, isize::MAX as usize, usize::MAX] {
        match Segment::create("huge", asked) {
            Err(OsError::NoMemory { asked_bytes, available_bytes: Some(available), .. }) => {
                assert_eq!(asked_bytes, asked as u64);
                assert!(available < asked_bytes && available > 0);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(Segment::create("empty", 0), Err(OsError::BadName { .. })));
    assert!(matches!(Segment::create("a\0b", 1), Err(OsError::BadName { .. })));
    assert!(matches!(Segment::create(&"n".repeat(300), 1), Err(OsError::BadName { .. })));
}

#[test]
fn limits_of_the_process_are_errors_and_never_signals() {
    if let Some(_conn) = child::here() {
        use rustix::process::{setrlimit, Resource, Rlimit};
        let limit = |n| Rlimit { current: Some(n), maximum: Some(n) };
        setrlimit(Resource::Fsize, limit(MIB as u64)).unwrap();
        let refused = Segment::create("file size", MIB + 1).unwrap_err();
        assert!(matches!(refused, OsError::NoMemory { available_bytes: Some(n), .. } if n == MIB as u64));
        assert!(refused.to_string().contains("RLIMIT_FSIZE"), "{refused}");
        assert!(Segment::create("file size", MIB).is_ok());
        setrlimit(Resource::Fsize, Rlimit { current: Some(MIB as u64), maximum: Some(MIB as u64) }).unwrap();
        setrlimit(Resource::As, limit(0)).unwrap();
        assert!(matches!(Segment::create("addresses", MIB), Err(OsError::NoMemory { .. })));
        setrlimit(Resource::Nofile, limit(0)).unwrap();
        assert!(matches!(Segment::create("descriptors", 1), Err(OsError::OutOfDescriptors { .. })));
        // The test harness itself wants memory and descriptors to end; this has to be the end.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    use std::os::unix::process::ExitStatusExt;
    let mut kid = child::start("segment::limits_of_the_process_are_errors_and_never_signals");
    assert!(child::hear(&kid.conn).is_none());
    assert_eq!(kid.wait().signal(), Some(9), "anything but the kill at its end is a failure");
}

#[test]
fn a_segment_keeps_its_size() {
    let segment = Segment::create("sealed", 10_000).unwrap();
    for len in [0, 9_999, 10_001, 1 << 30] {
        assert_eq!(rustix::fs::ftruncate(segment.fd(), len), Err(Errno::PERM));
    }
    assert_eq!(rustix::fs::fcntl_add_seals(segment.fd(), SealFlags::WRITE), Err(Errno::PERM));
    assert_eq!(segment.len(), 10_000);
    assert!(segment.slice(0..10_000).unwrap().iter().all(|&b| b == 0));
}

#[test]
fn ranges_are_checked() {
    let mut segment = Segment::create("ranges", 8192).unwrap();
    #[allow(clippy::reversed_empty_ranges)]
    for range in [0..8193, 8193..8193, 5..4, 0..usize::MAX, usize::MAX..usize::MAX] {
        let (start, end) = (range.start, range.end);
        let expected = OsError::OutOfRange { what: "a segment".into(), start, end, len: 8192 };
        assert_eq!(segment.slice(range.clone()).unwrap_err(), expected);
        assert_eq!(segment.bytes(range.clone()).unwrap_err(), expected);
        assert_eq!(segment.lines(range.clone()).unwrap_err(), expected);
        assert_eq!(segment.prefault(range.clone()).unwrap_err(), expected);
        assert_eq!(segment.slice_mut(range).unwrap_err(), expected);
    }
    for range in [1..64, 0..63, 32..96] {
        assert!(matches!(segment.lines(range), Err(OsError::Misaligned { align: 64, .. })));
    }
    assert_eq!(segment.slice(8192..8192).unwrap().len(), 0);
    assert_eq!(segment.lines(0..8192).unwrap().len(), 128);
}

#[test]
fn no_byte_is_both_atomic_and_plain() {
    let mut segment = Segment::create("views", 8192).unwrap();
    let conflict = |r: Result<usize, OsError>| match r {
        Err(OsError::ViewConflict { atomic_end, plain_start, .. }) => (atomic_end, plain_start),
        other => panic!("{other:?}"),
    };
    segment.lines(0..4096).unwrap();
    assert_eq!(conflict(segment.slice(4095..8192).map(<[u8]>::len)), (4096, usize::MAX));
    segment.slice(5000..8192).unwrap();
    assert_eq!(conflict(segment.bytes(4096..5001).map(<[_]>::len)), (4096, 5000));
    assert_eq!(conflict(segment.lines(8128..8192).map(<[_]>::len)), (4096, 5000));
    // A refusal changes nothing.
    assert_eq!(segment.bytes(4096..5000).unwrap().len(), 904);
    assert_eq!(segment.slice(5000..5001).unwrap().len(), 1);
    assert_eq!(segment.slice(0..0).unwrap().len(), 0);
    // Alone, the segment can be divided anew.
    segment.slice_mut(0..8192).unwrap().fill(3);
    assert!(segment.slice(0..8192).unwrap().iter().all(|&b| b == 3));
    assert!(segment.lines(0..64).is_err());
    segment.slice_mut(64..8192).unwrap();
    assert_eq!(segment.lines(0..64).unwrap()[0].w[0].load(Ordering::Relaxed), 0x0303_0303_0303_0303);
}

#[test]
fn only_its_creator_fills_a_segment_and_a_reader_only_reads() {
    let created = Segment::create("mine", 4096).unwrap();
    let mut writable = Segment::from_fd(dup(&created), 4096, 4096, Access::ReadWrite).unwrap();
    assert!(matches!(writable.slice_mut(0..1), Err(OsError::AccessDenied { .. })));
    writable.bytes(7..8).unwrap()[0].store(9, Ordering::Relaxed);
    let reader = Segment::from_fd(dup(&created), 4096, 4096, Access::ReadOnly).unwrap();
    assert_eq!(reader.slice(0..4096).unwrap()[7], 9);
    assert!(matches!(reader.lines(0..64), Err(OsError::AccessDenied { .. })));
    assert!(matches!(reader.bytes(0..1), Err(OsError::AccessDenied { .. })));
    reader.prefault(0..4096).unwrap();
}

/// The pages of mappings whose name contains `name`, in KiB: mapped, and present in this process's tables.
fn mapped(name: &str) -> (u64, u64) {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut within = false;
    let (mut size, mut rss) = (0, 0);
    for line in text.lines() {
        let number = || line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        match line.split_whitespace().next().unwrap() {
            "Size:" if within => size += number(),
            "Rss:" if within => rss += number(),
            first if !first.ends_with(':') => within = line.contains(name),
            _ => {}
        }
    }
    (size, rss)
}

#[test]
fn prefault_brings_the_pages_and_drop_takes_the_mapping() {
    let name = "prefault-and-drop";
    let mut segment = Segment::create(name, MIB).unwrap();
    assert_eq!(mapped(name), (1024, 0));
    segment.prefault(5000..5001).unwrap();
    assert_eq!(mapped(name), (1024, 4));
    segment.slice_mut(0..MIB).unwrap()[MIB - 1] = 8;
    segment.prefault(0..MIB).unwrap();
    assert_eq!(mapped(name), (1024, 1024));
    assert_eq!(segment.slice(MIB - 2..MIB).unwrap(), [0, 8]);
    // The descriptor alone keeps the memory.
    let fd = dup(&segment);
    drop(segment);
    assert_eq!(mapped(name), (0, 0));
    let again = Segment::from_fd(fd, MIB, MIB, Access::ReadOnly).unwrap();
    assert_eq!(again.slice(MIB - 1..MIB).unwrap(), [8]);
}

#[test]
fn a_descriptor_that_cannot_be_written_maps_only_for_reading() {
    let created = Segment::create("half", 4096).unwrap();
    fs::File::from(dup(&created)).write_all(b"through the file").unwrap();
    let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&created.fd()));
    let open = || OwnedFd::from(fs::File::open(&by_number).unwrap());
    match Segment::from_fd(open(), 4096, 4096, Access::ReadWrite) {
        Err(OsError::System { op: "mmap", errno: Errno::ACCESS, .. }) => {}
        other => panic!("{other:?}"),
    }
    let reader =
        Segment::from_fd(open().as_fd().try_clone_to_owned().unwrap(), 1, MIB, Access::ReadOnly).unwrap();
    assert_eq!(&reader.slice(0..16).unwrap(), b"through the file");
}
