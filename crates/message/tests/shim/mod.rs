//! A network with weather: a relay between two UDP sockets that loses, doubles, delays and changes datagrams
//! by a seed.

#![allow(dead_code)]

use polyduct_rig::Random;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How many datagrams of a hundred.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub lost: u32,
    pub doubled: u32,
    /// Overtaken by up to eight others.
    pub late: u32,
    /// One bit differs.
    pub changed: u32,
}

#[derive(Debug, Default)]
struct Counts {
    carried: AtomicU64,
    lost: AtomicU64,
}

/// The relay. Whoever sends to [`addr`](Shim::addr) speaks with the socket behind it.
pub struct Shim {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Shim {
    pub fn new(behind: SocketAddr, weather: Weather, seed: u64) -> Shim {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = front.local_addr().unwrap();
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let thread = std::thread::spawn({
            let (stop, counts) = (stop.clone(), counts.clone());
            move || run(&front, behind, weather, seed, &stop, &counts)
        });
        Shim { addr, stop, counts, thread: Some(thread) }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Datagrams carried and lost.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.carried.load(Ordering::Relaxed), self.counts.lost.load(Ordering::Relaxed))
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = UdpSocket::bind("127.0.0.1:0").and_then(|s| s.send_to(b"stop", self.addr));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn happens(percent: u32, random: &mut Random) -> bool {
    random.below(100) < percent.into()
}

fn run(
    front: &UdpSocket,
    behind: SocketAddr,
    weather: Weather,
    seed: u64,
    stop: &AtomicBool,
    counts: &Counts,
) {
    let mut random = Random::new(seed);
    // One socket faces both: what comes from behind goes to whoever spoke last in front.
    let mut client = None;
    let mut late: HashMap<u64, (SocketAddr, Vec<u8>)> = HashMap::new();
    let (mut now, mut buffer) = (0_u64, vec![0; 1 << 16]);
    front.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    while !stop.load(Ordering::Relaxed) {
        now += 1;
        if let Some((to, bytes)) = late.remove(&now) {
            let _ = front.send_to(&bytes, to);
        }
        let Ok((len, from)) = front.recv_from(&mut buffer) else { continue };
        let to = match (from == behind, client) {
            (true, Some(client)) => client,
            (true, None) => continue,
            (false, _) => {
                client = Some(from);
                behind
            }
        };
        if happens(weather.lost, &mut random) {
            counts.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        counts.carried.fetch_add(1, Ordering::Relaxed);
        let mut bytes = buffer[..len].to_vec();
        if happens(weather.doubled, &mut random) {
            let _ = front.send_to(&bytes, to);
        }
        if happens(weather.changed, &mut random) && len > 0 {
            let bit = random.below(8 * len as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let at = now + 1 + random.below(8);
        if happens(weather.late, &mut random) && !late.contains_key(&at) {
            late.insert(at, (to, bytes));
        } else {
            let _ = front.send_to(&bytes, to);
        }
    }
}
