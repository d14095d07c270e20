//! Two processes with a link between them: the one that asks, and a copy of its program.

#![allow(dead_code)]

use polyduct_message::link::shm::{Bell, Link, Region, Sizes};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::process::PidFd;
use polyduct_os::segment::{Access, Segment};
use polyduct_os::socket::{Conn, Received, Sent};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ROLE: &str = "POLYDUCT_MESSAGE_ROLE";
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One process's end.
pub struct End {
    pub link: Link,
    /// Where this process sleeps.
    pub bell: Arc<Bell>,
    /// A segment of one megabyte beside the link.
    pub beside: Segment,
    /// A region that the first process has made.
    pub region: Region,
    pub peer: PidFd,
    pub conn: Conn,
    pub child: Option<Child>,
}

pub fn soon() -> Duration {
    polyduct_os::clock::now() + PATIENCE
}

/// Starts a copy of this program in a role.
pub fn spawn(role: &str, args: &[&str], sizes: &Sizes) -> End {
    spawn_with(role, args, sizes, 4096)
}

/// The same, with a region of so many bytes.
pub fn spawn_with(role: &str, args: &[&str], sizes: &Sizes, region_bytes: usize) -> End {
    let region = Region::create(region_bytes).unwrap();
    let (mine, theirs) = Conn::pair().unwrap();
    let theirs = theirs.as_fd().try_clone_to_owned().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args).env(ROLE, role).stdin(Stdio::from(theirs));
    let child = command.spawn().unwrap();
    let _ = polyduct_os::remote::permit_readers();
    let link = Link::create(sizes).unwrap();
    let bell = Arc::new(Bell::create(64).unwrap());
    let beside = Segment::create("beside", 1 << 20).unwrap();
    let me = std::process::id().to_le_bytes();
    assert_eq!(mine.send(&me, &[link.fd(), bell.fd(), beside.fd(), region.fd()]).unwrap(), Sent::Done);
    let (answer, mut fds) = receive(&mine);
    assert_eq!(answer, [1]);
    let peer = PidFd::open(child.id()).unwrap();
    link.ring_at(Arc::new(Bell::attach(fds.remove(0)).unwrap()), 0);
    link.pull_from(PidFd::open(child.id()).unwrap()).unwrap();
    assert_eq!(mine.send(&[2], &[]).unwrap(), Sent::Done);
    End { link, bell, beside, region, peer, conn: mine, child: Some(child) }
}

/// In the copy: its role and its end. `None` in the first process.
pub fn role() -> Option<(String, End)> {
    let role = std::env::var(ROLE).ok()?;
    let conn = Conn::from_fd(std::io::stdin().as_fd().try_clone_to_owned().unwrap()).unwrap();
    let _ = polyduct_os::remote::permit_readers();
    let (pid, mut fds) = receive(&conn);
    let pid = u32::from_le_bytes(pid.try_into().unwrap());
    let link = Link::attach(fds.remove(0), 1 << 30, &Sizes::default()).unwrap();
    link.ring_at(Arc::new(Bell::attach(fds.remove(0)).unwrap()), 0);
    link.pull_from(PidFd::open(pid).unwrap()).unwrap();
    let beside = Segment::from_fd(fds.remove(0), 1 << 20, 1 << 20, Access::ReadWrite).unwrap();
    let region = Region::attach(fds.remove(0), 1 << 30).unwrap();
    let bell = Arc::new(Bell::create(64).unwrap());
    assert_eq!(conn.send(&[1], &[bell.fd()]).unwrap(), Sent::Done);
    assert_eq!(receive(&conn).0, [2]);
    Some((role, End { link, bell, beside, region, peer: PidFd::open(pid).unwrap(), conn, child: None }))
}

/// The next message of a socket.
pub fn receive(conn: &Conn) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut buffer = [0; 64];
    loop {
        assert!(poll(&mut [PollItem::readable(conn)], Some(PATIENCE)).unwrap() > 0, "nothing came");
        match conn.recv(&mut buffer).unwrap() {
            Received::Message { len, fds } => return (buffer[..len].to_vec(), fds),
            Received::WouldBlock => {}
            Received::Closed => panic!("the other process has gone"),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
