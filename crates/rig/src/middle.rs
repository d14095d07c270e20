//! A middle of the network: whoever connects to it speaks with who listens behind it, until it resets all of
//! its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is done with bytes on their way: said for each piece of them, before it goes on, with whether it goes
/// to who listens.
pub type Look = Arc<dyn Fn(&[u8], bool) + Send + Sync>;

/// Connections through it end when it is dropped.
pub struct Middle {
    /// Where it listens.
    pub addr: SocketAddr,
    pairs: Arc<Mutex<Vec<[TcpStream; 2]>>>,
    stop: Arc<AtomicBool>,
}

impl Middle {
    /// Before this address, at which somebody will listen.
    pub fn new(behind: SocketAddr) -> Middle {
        Middle::looking(behind, Arc::new(|_, _| {}))
    }

    /// The same where each piece of bytes is looked at before it goes on.
    pub fn looking(behind: SocketAddr, look: Look) -> Middle {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (pairs, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        std::thread::spawn({
            let (pairs, stop) = (pairs.clone(), stop.clone());
            move || {
                for front in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    // Who finds nobody behind it tries again.
                    let (Ok(front), Ok(back)) = (front, TcpStream::connect(behind)) else { continue };
                    let pair = [front, back];
                    for (from, to) in [(0, 1), (1, 0)] {
                        let [from, to] = [from, to].map(|at: usize| pair[at].try_clone().unwrap());
                        let _ = from.set_nodelay(true);
                        let look = look.clone();
                        let onwards = from.peer_addr().is_ok_and(|peer| peer != behind);
                        std::thread::spawn(move || carry(from, to, &look, onwards));
                    }
                    pairs.lock().unwrap().push(pair);
                }
            }
        });
        Middle { addr, pairs, stop }
    }

    /// Resets every connection. Returns how many there were.
    pub fn reset(&self) -> usize {
        let pairs = std::mem::take(&mut *self.pairs.lock().unwrap());
        for stream in pairs.iter().flatten() {
            // What is unread, or not sent, makes the end a reset.
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
        pairs.len()
    }

    /// Nobody listens there any more.
    pub fn shut(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.shut();
        self.reset();
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, look: &Look, onwards: bool) {
    let mut bytes = vec![0; 32 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        look(&bytes[..n], onwards);
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
