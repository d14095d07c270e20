//! A relay between two UDP sockets that loses some of the datagrams, by a seed: always the same ones of a
//! row.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread looks whether it is to end.
const SLICE: Duration = Duration::from_millis(20);
const DATAGRAM: usize = 1 << 16;

/// The relay. A process that sends to [`addr`](Relay::addr) speaks with the socket behind it.
pub struct Relay {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// A relay in front of a socket that loses `lost` of a hundred datagrams, either way.
    pub fn new(behind: SocketAddr, lost: u32) -> std::io::Result<Relay> {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = front.local_addr()?;
        front.set_read_timeout(Some(SLICE))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().spawn({
            let stop = stop.clone();
            move || carry(&front, behind, lost, &stop)
        })?;
        Ok(Relay { addr, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn carry(front: &UdpSocket, behind: SocketAddr, lost: u32, stop: &AtomicBool) {
    let (mut random, mut client, mut buffer) = (0x9e37_79b9_7f4a_7c15_u64, None, vec![0; DATAGRAM]);
    while !stop.load(Ordering::Relaxed) {
        let (len, from) = match front.recv_from(&mut buffer) {
            Ok(got) => got,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            // The socket behind was closed while something was on its way to it.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => continue,
            Err(_) => return,
        };
        // One socket faces both: what comes from behind goes to whoever spoke last in front.
        let to = match (from == behind, client) {
            (true, Some(client)) => client,
            (true, None) => continue,
            (false, _) => {
                client = Some(from);
                behind
            }
        };
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if random % 100 >= u64::from(lost) {
            // One that the system drops is lost like the others.
            let _ = front.send_to(&buffer[..len], to);
        }
    }
}
