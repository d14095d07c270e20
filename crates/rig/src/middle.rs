//! A middle of the network: whoever connects to it speaks with who listens behind it, until it resets all of
//! its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Bytes that went to who listens, and back.
    carried: Arc<[AtomicU64; 2]>,
}

/// What happens on the way.
#[derive(Clone)]
struct Way {
    look: Look,
    /// All bytes come so much later.
    delay: Duration,
    /// Bytes in one direction of a connection, after which it is cut.
    most: u64,
}

impl Middle {
    /// Before this address, at which somebody will listen.
    pub fn new(behind: SocketAddr) -> Middle {
        Middle::looking(behind, Arc::new(|_, _| {}))
    }

    /// The same where each piece of bytes is looked at before it goes on.
    pub fn looking(behind: SocketAddr, look: Look) -> Middle {
        Middle::between(behind, Way { look, delay: Duration::ZERO, most: u64::MAX })
    }

    /// The same where all bytes come so much later, each way.
    pub fn far(behind: SocketAddr, way: Duration) -> Middle {
        Middle::cutting(behind, way, u64::MAX)
    }

    /// The same where each connection is cut after `most` bytes in one direction.
    pub fn cutting(behind: SocketAddr, delay: Duration, most: u64) -> Middle {
        Middle::between(behind, Way { look: Arc::new(|_, _| {}), delay, most })
    }

    /// Bytes that went to who listens, and back.
    pub fn carried(&self) -> [u64; 2] {
        [0, 1].map(|way: usize| self.carried[way].load(Ordering::SeqCst))
    }

    fn between(behind: SocketAddr, way: Way) -> Middle {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (pairs, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let carried = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::spawn({
            let (pairs, stop, carried) = (pairs.clone(), stop.clone(), carried.clone());
            move || {
                for front in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    // A client that finds nobody behind it tries again.
                    let (Ok(front), Ok(back)) = (front, TcpStream::connect(behind)) else { continue };
                    let pair = [front, back];
                    for (from, to) in [(0, 1), (1, 0)] {
                        let onwards = from == 0;
                        let [from, to] = [from, to].map(|at: usize| pair[at].try_clone().unwrap());
                        let _ = from.set_nodelay(true);
                        let (way, carried) = (way.clone(), carried.clone());
                        std::thread::spawn(move || {
                            carry(from, to, (&way, onwards), &carried[usize::from(!onwards)]);
                        });
                    }
                    pairs.lock().unwrap().push(pair);
                }
            }
        });
        Middle { addr, pairs, stop, carried }
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

fn carry(mut from: TcpStream, mut to: TcpStream, (way, onwards): (&Way, bool), carried: &AtomicU64) {
    // What comes is read while other pieces are under way: it is the way that takes time, not each piece. A
    // way that takes none holds none.
    let most = if way.delay.is_zero() { 0 } else { UNDER_WAY };
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
    let (mut bytes, mut left) = (vec![0; 32 << 10], way.most);
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let n = n.min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= n as u64;
        (way.look)(&bytes[..n], onwards);
        carried.fetch_add(n as u64, Ordering::SeqCst);
        if send.send((Instant::now() + way.delay, bytes[..n].to_vec())).is_err() || left == 0 {
            break;
        }
    }
    drop(send);
    let _ = writer.join();
    if left == 0 {
        let _ = from.shutdown(Shutdown::Both);
    }
}
