//! A middle of the network: whoever connects to it speaks with who listens behind it, until it resets all of
//! its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

/// Pieces of bytes under way at once, at most.
const UNDER_WAY: usize = 256;

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
        Middle::between(behind, look, Duration::ZERO)
    }

    /// The same where all bytes come so much later, each way.
    pub fn far(behind: SocketAddr, way: Duration) -> Middle {
        Middle::between(behind, Arc::new(|_, _| {}), way)
    }

    fn between(behind: SocketAddr, look: Look, way: Duration) -> Middle {
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
                    // A client that finds nobody behind it tries again.
                    let (Ok(front), Ok(back)) = (front, TcpStream::connect(behind)) else { continue };
                    let pair = [front, back];
                    for (from, to) in [(0, 1), (1, 0)] {
                        let [from, to] = [from, to].map(|at: usize| pair[at].try_clone().unwrap());
                        let _ = from.set_nodelay(true);
                        let look = look.clone();
                        let onwards = from.peer_addr().is_ok_and(|peer| peer != behind);
                        std::thread::spawn(move || carry(from, to, (&look, onwards), way));
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

fn carry(mut from: TcpStream, mut to: TcpStream, (look, onwards): (&Look, bool), way: Duration) {
    // What comes is read while other pieces are under way: it is the way that takes time, not each piece. A
    // way that takes none holds none.
    let most = if way.is_zero() { 0 } else { UNDER_WAY };
    let (send, pieces) = mpsc::sync_channel::<(Instant, Vec<u8>)>(most);
    let writer = std::thread::spawn(move || {
        for (due, piece) in pieces {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut bytes = vec![0; 32 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        look(&bytes[..n], onwards);
        if send.send((Instant::now() + way, bytes[..n].to_vec())).is_err() {
            break;
        }
    }
    drop(send);
    let _ = writer.join();
}
