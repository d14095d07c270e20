use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

use polyduct_os::poll::{poll, PollItem};
use polyduct_os::socket::{Conn, Listener, Received, Sent, DESCRIPTOR_LIMIT, MESSAGE_LIMIT};
use polyduct_os::{Errno, OsError, Scope};

use crate::child::{self, fresh_name, hear, say, WATCHDOG};

fn file(content: &str) -> OwnedFd {
    let mut f = File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    f.write_all(content.as_bytes()).unwrap();
    f.rewind().unwrap();
    f.into()
}

fn content(fd: OwnedFd) -> String {
    let mut text = String::new();
    File::from(fd).read_to_string(&mut text).unwrap();
    text
}

/// How many descriptors this process has open.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_name_may_be_had_while_its_last_listener_is_being_closed() {
    let name = format!("polyduct-test-closing-{}", std::process::id()).into_bytes();
    let last = Listener::bind(&name).unwrap();
    let begins = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        let next = s.spawn(|| {
            begins.wait();
            Listener::bind(&name).map(drop)
        });
        begins.wait();
        drop(last);
        next.join().unwrap().unwrap();
    });
}

#[test]
fn a_name_has_one_listener_and_is_free_when_it_is_gone() {
    let _alone = child::no_new_process();
    let name = fresh_name();
    let shown = String::from_utf8(name.clone()).unwrap();
    assert_eq!(Conn::connect(&name).unwrap_err(), OsError::NotListening { name: shown.clone() });
    let listener = Listener::bind(&name).unwrap();
    assert_eq!(Listener::bind(&name).unwrap_err(), OsError::AddrInUse { name: shown.clone() });
    assert!(listener.accept().unwrap().is_none());
    let conn = Conn::connect(&name).unwrap();
    let accepted = listener.accept().unwrap().unwrap();
    drop(listener);
    assert_eq!(Conn::connect(&name).unwrap_err(), OsError::NotListening { name: shown });
    say(&conn, b"still here", &[]);
    assert_eq!(hear(&accepted).unwrap().0, b"still here");
    Listener::bind(&name).unwrap();
}

#[test]
fn names_are_checked() {
    for name in [&b""[..], &[b'x'; 108], &[b'x'; 5000]] {
        assert!(matches!(Listener::bind(name), Err(OsError::BadName { .. })));
        assert!(matches!(Conn::connect(name), Err(OsError::BadName { .. })));
    }
    let longest = [fresh_name(), vec![0xFF; 107]].concat()[..107].to_vec();
    let _listener = Listener::bind(&longest).unwrap();
    Conn::connect(&longest).unwrap();
}

#[test]
fn descriptors_go_with_their_message() {
    if let Some(conn) = child::here() {
        let (message, fds) = hear(&conn).unwrap();
        assert_eq!(message, b"three");
        let texts: Vec<_> = fds.into_iter().map(content).collect();
        assert_eq!(texts, ["one", "two", "three"]);
        assert!(hear(&conn).unwrap().1.is_empty());
        say(&conn, b"back", &[file("from the child").as_fd()]);
        return;
    }
    let kid = child::start("socket::descriptors_go_with_their_message");
    let files = [file("one"), file("two"), file("three")];
    say(&kid.conn, b"three", &files.each_ref().map(AsFd::as_fd));
    say(&kid.conn, b"none", &[]);
    let (_, mut fds) = hear(&kid.conn).unwrap();
    let fd = fds.remove(0);
    assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    assert_eq!(content(fd), "from the child");
    kid.join();
}

#[test]
fn the_kernel_says_who_the_peer_is() {
    if let Some(conn) = child::here() {
        assert_eq!(conn.peer().unwrap().pid, std::os::unix::process::parent_id());
        hear(&conn);
        return;
    }
    let mut kid = child::start("socket::the_kernel_says_who_the_peer_is");
    let peer = kid.conn.peer().unwrap();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!((peer.pid, peer.uid, peer.gid), (kid.pid(), uid, gid));
    assert!(kid.conn.peer_pidfd().unwrap().is_alive());
    kid.kill();
    assert_eq!(kid.conn.peer().unwrap(), peer, "as it was when the connection was made");
    match kid.conn.peer_pidfd() {
        Err(OsError::PeerGone { pid }) => assert_eq!(pid, peer.pid),
        Ok(process) => assert!(!process.is_alive()),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_dead_peer_hangs_up_and_what_it_sent_is_still_there() {
    if let Some(conn) = child::here() {
        say(&conn, b"last words", &[]);
        hear(&conn);
        return;
    }
    let mut kid = child::start("socket::a_dead_peer_hangs_up_and_what_it_sent_is_still_there");
    assert_eq!(poll(&mut [PollItem::readable(&kid.conn)], Some(WATCHDOG)), Ok(1));
    kid.kill();
    let mut items = [PollItem::readable(&kid.conn)];
    assert_eq!(poll(&mut items, Some(WATCHDOG)), Ok(1));
    assert!(items[0].is_hangup() && items[0].is_readable());
    let error = kid.conn.send(b"are you there?", &[]).unwrap_err();
    assert_eq!(error, OsError::PeerClosed);
    assert!(error.is_peer_gone());
    assert_eq!(hear(&kid.conn).unwrap().0, b"last words");
    assert!(hear(&kid.conn).is_none());
    assert!(hear(&kid.conn).is_none());
}

/// The kernel looks at the queue, and after that at whether the peer has gone: who sends and goes in between
/// seems to have said nothing. Who looks all the while, as here, meets that within some thousand goodbyes.
#[test]
fn last_words_are_heard_by_who_looks_when_they_are_said() {
    let (give, take) = std::sync::mpsc::channel::<Conn>();
    std::thread::scope(|s| {
        s.spawn(move || take.iter().for_each(|conn| say(&conn, b"last words", &[])));
        let mut buffer = vec![0; MESSAGE_LIMIT];
        for goodbye in 0..20_000 {
            let (a, b) = Conn::pair().unwrap();
            give.send(b).unwrap();
            loop {
                match a.recv(&mut buffer).unwrap() {
                    Received::WouldBlock => {}
                    Received::Message { len, .. } => {
                        assert_eq!(&buffer[..len], b"last words");
                        break;
                    }
                    Received::Closed => panic!("nothing was said at goodbye {goodbye}"),
                }
            }
        }
        drop(give);
    });
}

#[test]
fn unread_messages_of_ours_do_not_make_the_end_an_error() {
    let (a, b) = Conn::pair().unwrap();
    say(&a, b"never read", &[]);
    drop(b);
    assert!(hear(&a).is_none());
}

#[test]
fn messages_keep_their_bounds_and_a_full_socket_says_so() {
    let (a, b) = Conn::pair().unwrap();
    let mut buffer = vec![0; MESSAGE_LIMIT];
    assert!(matches!(b.recv(&mut buffer), Ok(Received::WouldBlock)));
    let mut sent = 0_usize;
    while a.send(&vec![sent as u8; MESSAGE_LIMIT - sent], &[]).unwrap() == Sent::Done {
        sent += 1;
        assert!(sent < 10_000);
    }
    assert!(sent >= 1);
    assert_eq!(poll(&mut [PollItem::writable(&a)], Some(std::time::Duration::ZERO)), Ok(0));
    for i in 0..sent {
        match b.recv(&mut buffer).unwrap() {
            Received::Message { len, fds } => {
                assert!(fds.is_empty());
                assert_eq!(len, MESSAGE_LIMIT - i);
                assert!(buffer[..len].iter().all(|&x| x == i as u8));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(poll(&mut [PollItem::writable(&a)], Some(WATCHDOG)), Ok(1));
    say(&a, &[1; MESSAGE_LIMIT], &[]);
}

#[test]
fn misuse_is_refused_before_anything_is_sent() {
    let (a, b) = Conn::pair().unwrap();
    let limit = MESSAGE_LIMIT;
    assert_eq!(a.send(&[], &[]), Err(OsError::MessageLength { len: 0, limit }));
    assert_eq!(a.send(&vec![0; limit + 1], &[]), Err(OsError::MessageLength { len: limit + 1, limit }));
    let one = file("x");
    let given = DESCRIPTOR_LIMIT + 1;
    let error = OsError::TooManyDescriptors { given, limit: DESCRIPTOR_LIMIT };
    assert_eq!(a.send(b"x", &vec![one.as_fd(); given]), Err(error));
    assert!(matches!(b.recv(&mut []), Err(OsError::MessageLength { .. })));
    assert!(matches!(b.recv(&mut [0]), Ok(Received::WouldBlock)));
    say(&a, b"x", &[one.as_fd(); DESCRIPTOR_LIMIT]);
    assert_eq!(hear(&b).unwrap().1.len(), DESCRIPTOR_LIMIT);
    assert!(matches!(Conn::from_fd(one), Err(OsError::System { errno: Errno::NOTSOCK, .. })));
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(matches!(Conn::from_fd(stream.into()), Err(OsError::BadName { .. })));
}

/// Sends as a peer that keeps to none of our limits.
fn send_raw(conn: &Conn, len: usize, fds: &[std::os::fd::BorrowedFd<'_>]) {
    use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(conn, &[std::io::IoSlice::new(&vec![7; len])], &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn what_a_faulty_peer_sends_is_an_error_and_leaks_nothing() {
    if let Some(_conn) = child::here() {
        let (a, b) = Conn::pair().unwrap();
        let one = file("x");
        let before = open_descriptors();
        for given in [9, 10, 253] {
            send_raw(&a, 1, &vec![one.as_fd(); given]);
            let error = b.recv(&mut [0; 10]).unwrap_err();
            assert!(
                matches!(error, OsError::DescriptorsTruncated { limit: 8, kept } if kept >= 8),
                "{error}"
            );
            assert_eq!(error.scope(), Scope::Link);
        }
        send_raw(&a, 11, &[one.as_fd()]);
        assert_eq!(b.recv(&mut [0; 10]).unwrap_err(), OsError::MessageTruncated { room: 10 });
        assert_eq!(open_descriptors(), before);
        send_raw(&a, 0, &[one.as_fd()]);
        assert!(matches!(b.recv(&mut [0; 10]), Ok(Received::Closed)));
        assert_eq!(open_descriptors(), before);
        return;
    }
    child::start("socket::what_a_faulty_peer_sends_is_an_error_and_leaks_nothing").join();
}

#[test]
fn out_of_descriptors_turns_one_peer_away_and_the_others_go_on() {
    if let Some(_conn) = child::here() {
        use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
        let name = fresh_name();
        let listener = Listener::bind(&name).unwrap();
        let first = Conn::connect(&name).unwrap();
        let accepted = listener.accept().unwrap().unwrap();
        let late = [Conn::connect(&name).unwrap(), Conn::connect(&name).unwrap()];
        // A message whose descriptor finds no room either.
        let (a, b) = Conn::pair().unwrap();
        say(&a, b"x", &[first.as_fd()]);
        let lowest = rustix::io::dup(&first).unwrap();
        let used = std::os::fd::AsRawFd::as_raw_fd(&lowest) as u64;
        drop(lowest);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(used), ..before }).unwrap();
        for conn in &late {
            let turned_away = listener.accept_or(|conn, error| say(conn, error.to_string().as_bytes(), &[]));
            let Err(error @ OsError::OutOfDescriptors { op: "accept", .. }) = turned_away else {
                panic!("{turned_away:?}")
            };
            assert_eq!(poll(&mut [PollItem::hangup(conn)], Some(WATCHDOG)), Ok(1), "not turned away");
            assert_eq!(hear(conn).unwrap().0, error.to_string().as_bytes());
        }
        assert_eq!(poll(&mut [PollItem::readable(&listener)], Some(std::time::Duration::ZERO)), Ok(0));
        assert!(matches!(Conn::connect(&name), Err(OsError::OutOfDescriptors { .. })));
        assert_eq!(Conn::pair().unwrap_err().scope(), Scope::Endpoint);
        assert!(matches!(b.recv(&mut [0; 8]), Err(OsError::DescriptorsTruncated { kept: 0, .. })));
        say(&first, b"on we go", &[]);
        assert_eq!(hear(&accepted).unwrap().0, b"on we go");
        setrlimit(Resource::Nofile, before).unwrap();
        let conn = Conn::connect(&name).unwrap();
        say(&conn, b"room again", &[]);
        assert_eq!(hear(&listener.accept().unwrap().unwrap()).unwrap().0, b"room again");
        return;
    }
    child::start("socket::out_of_descriptors_turns_one_peer_away_and_the_others_go_on").join();
}
